/* Baselines: a plain C loop and OpenBLAS; what all baselines share. */
#include "bench/baseline.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct what {
    hr_baseline b;
    size_t rows, cols;
    bool smoke;
} what;

typedef struct run {
    what w;
    hr_baseline_job job;
    hr_bench_weights weights;
    size_t next, x_bytes, y_bytes;
    void *x;
} run;

/* ---- the check ---- */

static double value(hr_dtype type, const void *array, size_t i) {
    if (type == HR_F32) return (double)((const float *)array)[i];
    if (type == HR_BF16) return (double)hr_bf16_to_f32(((const uint16_t *)array)[i]);
    return ((const int8_t *)array)[i];
}

/* The first and last few outputs of each token, in double precision. */
static hr_status check(const run *r) {
    enum { FEW = 4 };
    const hr_baseline_job *j = &r->job;
    float got[2 * FEW], want[2 * FEW];
    for (size_t t = 0; t < j->n; t += j->n / 8 + 1) {
        for (size_t i = 0; i < 2 * FEW; i++) {
            const size_t row = i < FEW ? i : j->rows - 2 * FEW + i;
            double sum = 0;
            for (size_t c = 0; c < j->cols; c++)
                sum += value(j->type, j->weights->m->data, row * j->cols + c) * value(j->type, j->x, t * j->cols + c);
            want[i] = (float)sum;
            const size_t at = t * j->rows + row;
            got[i] = j->type == HR_I8ROW ? (float)((const int32_t *)j->y)[at] : ((const float *)j->y)[at];
        }
        HR_TRY(hr_bench_check(r->w.b.name, got, want, 2 * FEW, 1e-9));
    }
    return HR_OK;
}

/* ---- timing ---- */

static void teardown(void *context) {
    run *r = context;
    if (r->w.b.finish) r->w.b.finish(&r->job);
    if (r->x) hr_pages_free(r->x, r->x_bytes);
    if (r->job.y) hr_pages_free(r->job.y, r->y_bytes);
    hr_bench_weights_fini(&r->weights);
    free(r);
}

static hr_status fill(run *r, size_t n) {
    const what *w = &r->w;
    const size_t one = hr_row_bytes(w->b.type, w->cols),
                 copies = w->smoke ? 1 : hr_bench_cold_bytes() / (w->rows * one) + 1;
    HR_TRY(hr_bench_weights_init(&r->weights, w->b.type, HR_ORDER_ROWS, w->rows, w->cols, copies));
    r->x_bytes = n * one, r->y_bytes = n * w->rows * 4;
    r->x = hr_pages_alloc(r->x_bytes, true);
    r->job =
        (hr_baseline_job){w->rows, w->cols, n, w->b.type, &r->weights, r->x, hr_pages_alloc(r->y_bytes, true), NULL};
    if (!r->x || !r->job.y) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu tokens", n);
    hr_bench_weights tokens; /* random rows of the same type */
    HR_TRY(hr_bench_weights_init(&tokens, w->b.type, HR_ORDER_ROWS, n, w->cols, 1));
    memcpy(r->x, tokens.m->data, r->x_bytes);
    hr_bench_weights_fini(&tokens);
    return w->b.prepare ? w->b.prepare(&r->job) : HR_OK;
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->w = *(const what *)context;
    hr_status status = fill(r, (size_t)args[0]);
    if (status == HR_OK) {
        r->w.b.call(&r->job, 0);
        status = check(r);
    }
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) {
        r->w.b.call(&r->job, r->next);
        if (++r->next == r->weights.copies) r->next = 0;
    }
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    const hr_kernel k = {.unit = r->w.b.unit};
    const hr_work work = hr_work_matmul(&k, r->weights.m, r->job.n);
    return (hr_bench_cost){
        .bytes = work.bytes, .flops = work.flops, .unit = work.unit, .resident = r->w.smoke ? work.bytes : 0};
}

static void add(const what *w, const char *shape, const int64_t *values, size_t n) {
    const hr_bench_family f = {.values = values,
                               .n_values = n,
                               .context = w,
                               .context_bytes = sizeof *w,
                               .setup = setup,
                               .body = body,
                               .teardown = teardown,
                               .cost = cost};
    const char *type = w->b.type == HR_I8ROW ? "int8" : hr_dtypes[w->b.type].name; /* without scales */
    hr_bench_add_product(f, w->b.name, shape, !w->smoke, type, w->b.order);
}

void hr_baseline_add(const hr_baseline *b, bool smoke) {
    static const int64_t few[] = {1, 37};
    const what small = {*b, 80, 256, true};
    if (smoke) add(&small, "small.80x256", few, 2);
    for (int m = 0; !smoke && m < (b->slow ? 1 : HR_BENCH_MODELS); m++)
        for (int matrix = 0; matrix < HR_BENCH_MATRICES - 1; matrix++) { /* the head is no other product */
            const hr_bench_shape s = hr_bench_shape_of(&hr_bench_models[m], matrix);
            const what w = {*b, s.rows, s.cols, false};
            add(&w, s.name, hr_bench_tokens, b->slow ? 4 : HR_BENCH_TOKENS);
        }
}

/* ---- a plain C loop ---- */

static void call_loop(hr_baseline_job *j, size_t copy) {
    const float *restrict w = j->weights->m[copy].data, *restrict x = j->x;
    float *restrict y = j->y;
    for (size_t t = 0; t < j->n; t++)
        for (size_t r = 0; r < j->rows; r++) {
            float sum = 0;
            for (size_t c = 0; c < j->cols; c++) sum += w[r * j->cols + c] * x[t * j->cols + c];
            y[t * j->rows + r] = sum;
        }
}

/* ---- OpenBLAS ---- */

typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda,
                      const float *b, int ldb, float beta, float *c, int ldc);
static sgemm_fn *sgemm;

static void call_openblas(hr_baseline_job *j, size_t copy) {
    enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
    const int m = (int)j->n, n = (int)j->rows, k = (int)j->cols;
    sgemm(ROW_MAJOR, NO_TRANS, TRANS, m, n, k, 1, j->x, k, j->weights->m[copy].data, k, 0, j->y, n);
}

/* A core type that is forced on OpenBLAS makes its rows a comparison with the wrong code: it is taken out. */
static void free_coretype(void) {
    const char *type = getenv("OPENBLAS_CORETYPE");
    if (type) fprintf(stderr, "bench: OPENBLAS_CORETYPE=%s is taken out of the environment\n", type);
    unsetenv("OPENBLAS_CORETYPE");
    hr_bench_context("openblas_coretype", "unset");
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

static bool open_openblas(void) {
    free_coretype();
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW);
    if (!lib) lib = dlopen("libopenblas.so", RTLD_NOW);
    sgemm = lib ? (sgemm_fn *)dlsym(lib, "cblas_sgemm") : NULL;
    const char *(*core)(void) = lib ? (const char *(*)(void))dlsym(lib, "openblas_get_corename") : NULL;
    if (!sgemm) fprintf(stderr, "bench: no OpenBLAS here (Debian: libopenblas0): its rows are left out\n");
    hr_bench_context("openblas", sgemm && core ? core() : "absent");
    return sgemm;
}

void hr_bench_register_baselines(bool smoke) {
    const hr_baseline loop = {
        .name = "plain_c_loop", .order = "rows", .type = HR_F32, .unit = HR_UNIT_FP32, .slow = true, .call = call_loop};
    const hr_baseline openblas = {
        .name = "openblas_sgemm", .order = "rows", .type = HR_F32, .unit = HR_UNIT_FP32, .call = call_openblas};
    hr_baseline_add(&loop, smoke);
    if (open_openblas()) hr_baseline_add(&openblas, smoke);
}
