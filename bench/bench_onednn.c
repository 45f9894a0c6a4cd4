/* Baseline: oneDNN's matmul, with weights as they lie in a file (plain) and in the layout that it asks for (packed). Built
 * where its header is, opened at run time, one thread. */
#include "bench/baseline.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#endif

#if defined(DNNL_VERSION_MAJOR) && DNNL_VERSION_MAJOR == 2

/* clang-format off */
#define HR_DNNL_LIST(X)                                                                    \
    X(engine_create) X(stream_create) X(stream_wait) X(version)                            \
    X(memory_desc_init_by_strides) X(memory_desc_init_by_tag)                              \
    X(memory_create) X(memory_destroy) X(matmul_desc_init)                                 \
    X(primitive_desc_create) X(primitive_desc_destroy) X(primitive_desc_query_md)          \
    X(primitive_create) X(primitive_destroy) X(primitive_execute)                          \
    X(reorder_primitive_desc_create)
/* clang-format on */

static struct {
#define X(name) __typeof__(dnnl_##name) *name;
    HR_DNNL_LIST(X)
#undef X
    dnnl_engine_t engine;
    dnnl_stream_t stream;
} dnnl;

typedef struct own {
    bool packed;
    dnnl_primitive_t matmul;
    dnnl_memory_t src, dst;
    dnnl_memory_t *weights; /* [n_weights] one a copy */
    size_t n_weights;
} own;

static void finish(hr_baseline_job *j) {
    own *o = j->own;
    if (!o) return;
    for (size_t i = 0; o->weights && i < o->n_weights; i++)
        if (o->weights[i]) dnnl.memory_destroy(o->weights[i]);
    free(o->weights);
    if (o->src) dnnl.memory_destroy(o->src);
    if (o->dst) dnnl.memory_destroy(o->dst);
    if (o->matmul) dnnl.primitive_destroy(o->matmul);
    free(o);
    j->own = NULL;
}

#define TRY_DNNL(call)                                                                                       \
    do {                                                                                                     \
        const int dnnl_try_ = (call);                                                                        \
        if (dnnl_try_ != dnnl_success) HR_FAIL(HR_ERR_UNSUPPORTED, "oneDNN refused (status %d)", dnnl_try_); \
    } while (0)

static hr_status reorder(const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, dnnl_memory_t a,
                         dnnl_memory_t b) {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    TRY_DNNL(dnnl.reorder_primitive_desc_create(&pd, from, dnnl.engine, to, dnnl.engine, NULL));
    int status = dnnl.primitive_create(&primitive, pd);
    dnnl.primitive_desc_destroy(pd);
    TRY_DNNL(status);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, a}, {DNNL_ARG_TO, b}};
    status = dnnl.primitive_execute(primitive, dnnl.stream, 2, args);
    if (status == dnnl_success) status = dnnl.stream_wait(dnnl.stream);
    dnnl.primitive_destroy(primitive);
    TRY_DNNL(status);
    return HR_OK;
}

/* One memory a copy: over the plain array, or packed from it. */
static hr_status put_weights(hr_baseline_job *j, const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *wanted) {
    own *o = j->own;
    o->n_weights = j->weights->copies;
    o->weights = calloc(o->n_weights, sizeof(dnnl_memory_t));
    if (!o->weights) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < o->n_weights; i++) {
        void *data = (void *)(uintptr_t)j->weights->m[i].data;
        if (!o->packed) {
            TRY_DNNL(dnnl.memory_create(&o->weights[i], plain, dnnl.engine, data));
            continue;
        }
        dnnl_memory_t from;
        TRY_DNNL(dnnl.memory_create(&o->weights[i], wanted, dnnl.engine, DNNL_MEMORY_ALLOCATE));
        TRY_DNNL(dnnl.memory_create(&from, plain, dnnl.engine, data));
        const hr_status status = reorder(plain, wanted, from, o->weights[i]);
        dnnl.memory_destroy(from);
        HR_TRY(status);
    }
    return HR_OK;
}

static hr_status prepare(hr_baseline_job *j, bool packed) {
    const dnnl_data_type_t type = j->type == HR_F32 ? dnnl_f32 : j->type == HR_BF16 ? dnnl_bf16 : dnnl_s8;
    const dnnl_dim_t m = (dnnl_dim_t)j->n, n = (dnnl_dim_t)j->rows, k = (dnnl_dim_t)j->cols;
    const dnnl_dims_t x = {m, k}, x_strides = {k, 1}, w = {k, n}, w_strides = {1, k}, y = {m, n}, y_strides = {n, 1};
    dnnl_memory_desc_t src, plain, any, dst;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    own *o = j->own = calloc(1, sizeof *o);
    if (!o) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    o->packed = packed;
    TRY_DNNL(dnnl.memory_desc_init_by_strides(&src, 2, x, type, x_strides));
    TRY_DNNL(dnnl.memory_desc_init_by_strides(&plain, 2, w, type, w_strides));
    TRY_DNNL(dnnl.memory_desc_init_by_tag(&any, 2, w, type, dnnl_format_tag_any));
    TRY_DNNL(dnnl.memory_desc_init_by_strides(&dst, 2, y, type == dnnl_s8 ? dnnl_s32 : dnnl_f32, y_strides));
    TRY_DNNL(dnnl.matmul_desc_init(&desc, &src, packed ? &any : &plain, NULL, &dst));
    TRY_DNNL(dnnl.primitive_desc_create(&pd, &desc, NULL, dnnl.engine, NULL));
    const dnnl_memory_desc_t wanted = *dnnl.primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const int status = dnnl.primitive_create(&o->matmul, pd);
    dnnl.primitive_desc_destroy(pd);
    TRY_DNNL(status);
    TRY_DNNL(dnnl.memory_create(&o->src, &src, dnnl.engine, (void *)(uintptr_t)j->x));
    TRY_DNNL(dnnl.memory_create(&o->dst, &dst, dnnl.engine, j->y));
    return put_weights(j, &plain, &wanted);
}

static hr_status prepare_plain(hr_baseline_job *j) {
    return prepare(j, false);
}
static hr_status prepare_packed(hr_baseline_job *j) {
    return prepare(j, true);
}

static void call(hr_baseline_job *j, size_t copy) {
    own *o = j->own;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, o->src}, {DNNL_ARG_WEIGHTS, o->weights[copy]}, {DNNL_ARG_DST, o->dst}};
    dnnl.primitive_execute(o->matmul, dnnl.stream, 3, args);
    dnnl.stream_wait(dnnl.stream);
}

static bool open_onednn(void) {
    setenv("OMP_NUM_THREADS", "1", 1); /* read when its runtime is loaded */
    void *lib = dlopen("libdnnl.so.2", RTLD_NOW);
    bool ok = lib;
#define X(name) ok = ok && (dnnl.name = (__typeof__(dnnl_##name) *)dlsym(lib, "dnnl_" #name));
    HR_DNNL_LIST(X)
#undef X
    ok = ok && dnnl.engine_create(&dnnl.engine, dnnl_cpu, 0) == dnnl_success &&
         dnnl.stream_create(&dnnl.stream, dnnl.engine, dnnl_stream_default_flags) == dnnl_success;
    if (!ok) return false;
    const dnnl_version_t *v = dnnl.version();
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    hr_bench_context("onednn", text);
    return true;
}

static void add_all(bool smoke) {
    static const struct {
        hr_dtype type;
        hr_unit unit;
    } kinds[] = {{HR_F32, HR_UNIT_FP32}, {HR_BF16, HR_UNIT_BF16}, {HR_I8ROW, HR_UNIT_INT8}};
    for (int i = 0; i < 3; i++)
        for (int packed = 0; packed < 2; packed++)
            hr_baseline_add(&(hr_baseline){.name = packed ? "onednn_packed" : "onednn_plain",
                                           .order = packed ? "packed" : "rows",
                                           .type = kinds[i].type,
                                           .unit = kinds[i].unit,
                                           .prepare = packed ? prepare_packed : prepare_plain,
                                           .call = call,
                                           .finish = finish},
                            smoke);
}

#else
static bool open_onednn(void) {
    return false;
}
static void add_all(bool smoke) {
    (void)smoke;
}
#endif

void hr_bench_register_onednn(bool smoke) {
    if (open_onednn()) {
        add_all(smoke);
        return;
    }
    fprintf(stderr, "bench: no oneDNN 2 here (Debian: libdnnl-dev): its rows are left out\n");
    hr_bench_context("onednn", "absent");
}
