/* Dequantization: rows of every weight type and order as floats, by the conversion that references and load use. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64 };

typedef struct what {
    hr_dtype type;
    hr_order order;
} what;

typedef struct run {
    hr_bench_weights weights;
    float *row; /* [cols] */
} run;

static void teardown(void *context) {
    run *r = context;
    hr_bench_weights_fini(&r->weights);
    free(r->row);
    free(r);
}

/* A type must give the same floats from both orders. */
static hr_status check(const run *r, size_t cols) {
    hr_bench_weights rows;
    float *want = malloc(cols * sizeof *want);
    hr_status status = want ? hr_bench_weights_init(&rows, r->weights.m->dtype, HR_ORDER_ROWS, ROWS, cols, 1)
                            : hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK) {
        for (size_t i = 0; status == HR_OK && i < ROWS; i++) {
            hr_mat_row_f32(rows.m, i, want);
            hr_mat_row_f32(r->weights.m, i, r->row);
            status = hr_bench_check(hr_dtypes[rows.m->dtype].name, r->row, want, cols, 0);
        }
        hr_bench_weights_fini(&rows);
    }
    free(want);
    return status;
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    const size_t cols = (size_t)args[0];
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->row = malloc(cols * sizeof *r->row);
    hr_status status = hr_bench_weights_init(&r->weights, w->type, w->order, ROWS, cols, 1);
    if (status == HR_OK && !r->row) status = hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK) status = check(r, cols);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) hr_mat_row_f32(r->weights.m, i % ROWS, r->row);
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    return (hr_bench_cost){.items = (double)r->weights.m->cols, .item = "values/s"};
}

void hr_bench_register_dequant(bool smoke) {
    static const char *const names[] = {"cols"};
    static const int64_t all[] = {2048, 8192}, few[] = {256};
    for (int t = 0; t < HR_DTYPE_COUNT; t++)
        for (int order = 0; order < HR_ORDER_COUNT; order++) {
            const what w = {(hr_dtype)t, (hr_order)order};
            char name[HR_BENCH_NAME];
            snprintf(name, sizeof name, "dequant/mat_row_f32/%s.%s", hr_dtypes[t].name, order ? "panels" : "rows");
            hr_bench_add(&(hr_bench_family){.name = name,
                                            .arg_names = names,
                                            .n_args = 1,
                                            .values = smoke ? few : all,
                                            .n_values = smoke ? 1 : 2,
                                            .context = &w,
                                            .context_bytes = sizeof w,
                                            .setup = setup,
                                            .body = body,
                                            .teardown = teardown,
                                            .cost = cost});
        }
}
