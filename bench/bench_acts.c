/* Activations made ready for matrix products: every row of the table, alone and with the tiles that GEMM rows of its ISA
 * read. The table counts no work for them: tokens and values a second. */
#include "bench/bench.h"
#include "kernels/operands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct what {
    const hr_kernel *k;
    uint32_t tile;
    size_t dim;
} what;

typedef struct run {
    what w;
    size_t n;
    hr_operands operands;
    float *x; /* [n][dim] */
} run;

static void teardown(void *context) {
    run *r = context;
    if (r->x) hr_pages_free(r->x, r->n * r->w.dim * sizeof *r->x);
    hr_operands_fini(&r->operands);
    free(r);
}

static hr_status same(const hr_kernel *k, const void *got, const void *want, size_t bytes, const char *array) {
    if (!got || memcmp(got, want, bytes) == 0) return HR_OK;
    size_t i = 0;
    while (((const uint8_t *)got)[i] == ((const uint8_t *)want)[i]) i++;
    HR_FAIL(HR_ERR_INTERNAL, "%s is wrong: byte %zu of %zu of %s differs from the reference", k->name, i, bytes, array);
}

static hr_status check(const run *r) {
    const hr_kernel *ref = hr_kernel_ref(r->w.k);
    const hr_acts *got = &r->operands.x;
    const size_t all = got->n * got->ld;
    hr_operands o;
    if (!ref) HR_FAIL(HR_ERR_INTERNAL, "%s has no reference row", r->w.k->name);
    HR_TRY(hr_operands_acts(&o, got->type, 0, r->n, r->w.dim));
    ref->fn.acts(&o.x, r->x, r->w.dim, 0, r->n);
    hr_status status = same(r->w.k, got->f32, o.x.f32, 4 * all, "the floats");
    if (status == HR_OK) status = same(r->w.k, got->bf16, o.x.bf16, 2 * all, "the bf16");
    if (status == HR_OK) status = same(r->w.k, got->q, o.x.q, all, "the int8");
    if (status == HR_OK) status = same(r->w.k, got->d, o.x.d, all / 8, "the scales");
    if (status == HR_OK) status = same(r->w.k, got->sum, o.x.sum, all / 8, "the sums");
    hr_operands_fini(&o);
    return status;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) r->w.k->fn.acts(&r->operands.x, r->x, r->w.dim, 0, r->n);
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->w = *w, r->n = (size_t)args[0];
    hr_status status = hr_operands_acts(&r->operands, (hr_act)w->k->act, w->tile, r->n, w->dim);
    r->x = hr_bench_floats(r->n * w->dim, 5);
    if (status == HR_OK && !r->x) status = hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK) {
        body(r, 1);
        status = check(r);
    }
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    return (hr_bench_cost){.items = (double)r->n * (double)r->w.dim, .item = "values/s"};
}

static void add(const hr_kernel *k, uint32_t tile, size_t dim, const int64_t *values, size_t n_values) {
    static const char *const names[] = {"M"};
    const what w = {k, tile, dim};
    char name[HR_BENCH_NAME], suffix[32];
    snprintf(name, sizeof name, "acts/%s/dim%zu", k->name, dim);
    snprintf(suffix, sizeof suffix, "tile:%u", tile);
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 1,
                                    .values = values,
                                    .n_values = n_values,
                                    .suffix = tile ? suffix : NULL,
                                    .context = &w,
                                    .context_bytes = sizeof w,
                                    .setup = setup,
                                    .body = body,
                                    .teardown = teardown,
                                    .cost = cost});
}

/* Whether a matrix kernel that would use this row reads tiles of this width. */
static bool has_tile(const hr_kernel *acts, uint32_t tile) {
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = k->isa, .act = (hr_act)acts->act, .n = 1};
        if (k->family == HR_FAM_MATMUL && k->act == acts->act && k->tile == tile && hr_bench_can_run(k) &&
            hr_kernel_choose(&q) == acts)
            return true;
    }
    return false;
}

void hr_bench_register_acts(bool smoke) {
    static const int64_t all[] = {1, 8, 32, 512}, few[] = {5};
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_ACTS || !hr_bench_can_run(k)) continue;
        for (int m = 0; m < (smoke ? 1 : HR_BENCH_MODELS); m++)
            for (uint32_t tile = 0; tile <= 64; tile++)
                if (tile == 0 || has_tile(k, tile))
                    add(k, tile, hr_bench_models[m].dim, smoke ? few : all, smoke ? 1 : 4);
    }
}
