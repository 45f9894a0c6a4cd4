/* Norm, RoPE, gated activation and look-up of every ISA, and the exponentials of a softmax over the vocabulary. The table
 * counts no work for them, as their vectors stay in the caches: values a second. */
#include "bench/bench.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct what {
    const hr_kernel *k; /* NULL: softmax */
    size_t heads, dim;  /* values of a token: heads x dim */
} what;

typedef struct run {
    what w;
    size_t n, values; /* tokens; n x heads x dim */
    float *x, *y, *z; /* [values] */
    float *cs;        /* [n][dim / 2][2] */
    hr_bench_weights table;
    double sum;
} run;

static void call(const hr_kernel *k, run *r, float *out) {
    const size_t ld = r->w.heads * r->w.dim;
    switch (k->family) {
    case HR_FAM_NORM:
        k->fn.norm(r->x, ld, r->y, out, ld, ld, 1e-5f, 0, r->n);
        break;
    case HR_FAM_ROPE: /* in place; a rotation again and again keeps the length */
        k->fn.rope(out, ld, r->w.heads, r->w.dim, r->w.dim, false, r->cs, 0, r->n);
        break;
    case HR_FAM_GLU:
        k->fn.glu(r->x, r->y, out, r->values);
        break;
    default:
        for (size_t t = 0; t < r->n; t++) k->fn.embed(r->table.m, t * 131 % r->table.m->rows, out + t * ld);
    }
}

static hr_status check(run *r) {
    const hr_kernel *ref = hr_kernel_ref(r->w.k);
    if (!ref) HR_FAIL(HR_ERR_INTERNAL, "%s has no reference row", r->w.k->name);
    float *want = malloc(r->values * sizeof *want);
    if (!want) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    memcpy(want, r->x, r->values * sizeof *want);
    memcpy(r->z, r->x, r->values * sizeof *r->z);
    call(ref, r, want);
    call(r->w.k, r, r->z);
    const hr_status status = hr_bench_check(r->w.k->name, r->z, want, r->values, hr_bench_limit(r->w.k));
    free(want);
    return status;
}

static void teardown(void *context) {
    run *r = context;
    const size_t bytes = r->values * sizeof(float);
    if (r->x) hr_pages_free(r->x, bytes);
    if (r->y) hr_pages_free(r->y, bytes);
    if (r->z) hr_pages_free(r->z, bytes);
    free(r->cs);
    hr_bench_weights_fini(&r->table);
    free(r);
}

static hr_status fill(run *r) {
    r->x = hr_bench_floats(r->values, 41), r->y = hr_bench_floats(r->values, 42), r->z = hr_bench_floats(r->values, 43);
    r->cs = malloc(r->n * r->w.dim * sizeof *r->cs);
    if (!r->x || !r->y || !r->z || !r->cs) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu values", r->values);
    for (size_t i = 0; i < r->n * r->w.dim; i += 2) {
        const float angle = 0.01f * (float)(i % 997);
        r->cs[i] = cosf(angle), r->cs[i + 1] = sinf(angle);
    }
    return hr_bench_weights_init(&r->table, HR_BF16, HR_ORDER_ROWS, 1024, r->w.heads * r->w.dim, 1);
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->w = *w, r->n = (size_t)args[0], r->values = r->n * w->heads * w->dim;
    hr_status status = fill(r);
    if (status == HR_OK && w->k) status = check(r);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) call(r->w.k, r, r->z);
}

static void body_softmax(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) r->sum += hr_logsumexp(r->x, r->values);
}

static hr_bench_cost cost(const void *context) {
    return (hr_bench_cost){.items = (double)((const run *)context)->values, .item = "values/s"};
}

static void add(const what *w, const char *family, const char *kernel, const char *shape, bool smoke) {
    static const char *const names[] = {"n"};
    static const int64_t all[] = {1, 512}, few[] = {5}, one[] = {1};
    char name[HR_BENCH_NAME];
    snprintf(name, sizeof name, "%s/%s/%s", family, kernel, shape);
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 1,
                                    .values = !w->k   ? one
                                              : smoke ? few
                                                      : all,
                                    .n_values = !w->k || smoke ? 1 : 2,
                                    .context = w,
                                    .context_bytes = sizeof *w,
                                    .setup = setup,
                                    .body = w->k ? body : body_softmax,
                                    .teardown = teardown,
                                    .cost = cost});
}

static void add_row(const hr_kernel *k, const hr_bench_model *m, bool smoke) {
    const what dim = {k, 1, m->dim}, ffn = {k, 1, m->ffn}, heads = {k, m->n_heads, m->head_dim};
    if (k->family == HR_FAM_NORM) add(&dim, "norm", k->name, m->name, smoke);
    if (k->family == HR_FAM_EMBED) add(&dim, "embed", k->name, m->name, smoke);
    if (k->family == HR_FAM_GLU) add(&ffn, "glu", k->name, m->name, smoke);
    if (k->family == HR_FAM_ROPE) add(&heads, "rope", k->name, m->name, smoke);
}

void hr_bench_register_vec(bool smoke) {
    for (size_t i = 0; hr_kernel_at(i); i++)
        for (int m = 0; m < (smoke ? 1 : HR_BENCH_MODELS); m++)
            if (hr_bench_can_run(hr_kernel_at(i))) add_row(hr_kernel_at(i), &hr_bench_models[m], smoke);
    for (int m = 0; m < (smoke ? 1 : HR_BENCH_MODELS - 1); m++) { /* the last two share a vocabulary */
        const what w = {NULL, 1, hr_bench_models[m].vocab};
        add(&w, "softmax", "logsumexp", hr_bench_models[m].name, smoke);
    }
}
