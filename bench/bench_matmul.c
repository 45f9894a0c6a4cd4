/* Matrix products: every row of the table over the layers of real models, for 1 to 512 tokens, weights cold and warm. */
#include "bench/bench.h"
#include "kernels/operands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct what {
    const hr_kernel *k;
    hr_dtype type;
    hr_order order;
    size_t rows, cols;
    bool cold;
    size_t copies; /* of the matrix, shared by neighbours in the list: what a cold run rotates over */
} what;

typedef struct run {
    what w;
    size_t n, next; /* next: copy that is read next */
    const hr_bench_weights *weights;
    hr_operands operands;
} run;

/* ---- the check ---- */

enum { CHECK_ROWS = 72 }; /* whole panels and half of one */

static hr_status check(const what *w, size_t n) {
    const hr_kernel *ref = hr_kernel_ref(w->k);
    if (!ref) HR_FAIL(HR_ERR_INTERNAL, "%s has no reference row", w->k->name);
    const size_t block = hr_dtypes[w->type].block_elems, cols = block == 256 ? 512 : w->cols < 416 ? w->cols : 416;
    hr_bench_weights weights;
    hr_operands o = {0};
    HR_TRY(hr_bench_weights_init(&weights, w->type, w->order, CHECK_ROWS, cols, 1));
    const size_t all = n * CHECK_ROWS;
    float *got = malloc(all * sizeof *got);
    hr_status status = got ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for the check of %s", w->k->name);
    if (status == HR_OK) status = hr_operands_init(&o, w->k, weights.m, n);
    if (status == HR_OK) {
        memset(o.call.y, 0xff, all * sizeof *got);
        hr_operands_run(w->k, &o);
        memcpy(got, o.call.y, all * sizeof *got);
        hr_operands_run(ref, &o);
        char name[96];
        snprintf(name, sizeof name, "%s on %s in %s, %zu tokens", w->k->name, hr_dtypes[w->type].name,
                 w->order ? "panels" : "rows", n);
        status = hr_bench_check(name, got, o.call.y, all, hr_bench_limit(w->k));
    }
    free(got);
    hr_operands_fini(&o);
    hr_bench_weights_fini(&weights);
    return status;
}

/* A row is checked once for each type, order and number of tokens. */
static hr_status check_once(const what *w, size_t n) {
    static struct {
        const hr_kernel *k;
        hr_dtype type;
        hr_order order;
        size_t n;
    } * seen;
    static size_t n_seen, room;
    for (size_t i = 0; i < n_seen; i++)
        if (seen[i].k == w->k && seen[i].type == w->type && seen[i].order == w->order && seen[i].n == n) return HR_OK;
    HR_TRY(check(w, n));
    if (n_seen == room) {
        void *more = realloc(seen, (room + 256) * sizeof *seen);
        if (!more) HR_FAIL(HR_ERR_MEMORY, "no memory for the list of checks");
        seen = more, room += 256;
    }
    seen[n_seen].k = w->k, seen[n_seen].type = w->type, seen[n_seen].order = w->order, seen[n_seen++].n = n;
    return HR_OK;
}

/* ---- timing ---- */

/* Neighbours in the list read the same matrix: it is made once. */
static hr_status weights_of(const what *w, const hr_bench_weights **out) {
    static hr_bench_weights kept;
    *out = &kept;
    if (kept.m && kept.m->dtype == w->type && kept.m->order == w->order && kept.m->rows == w->rows &&
        kept.m->cols == w->cols)
        return HR_OK;
    hr_bench_weights_fini(&kept);
    return hr_bench_weights_init(&kept, w->type, w->order, w->rows, w->cols, w->copies);
}

static void teardown(void *context) {
    run *r = context;
    hr_operands_fini(&r->operands);
    free(r);
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    const size_t n = (size_t)args[0];
    HR_TRY(check_once(w, n));
    run *r = calloc(1, sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    r->w = *w, r->n = n;
    hr_status status = weights_of(w, &r->weights);
    if (status == HR_OK) status = hr_operands_init(&r->operands, w->k, r->weights->m, n);
    if (status != HR_OK) {
        teardown(r);
        return status;
    }
    *out = r;
    return HR_OK;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) {
        r->operands.call.w = &r->weights->m[r->next];
        hr_operands_run(r->w.k, &r->operands);
        if (r->w.cold && ++r->next == r->weights->copies) r->next = 0;
    }
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    const hr_work work = hr_work_matmul(r->w.k, r->weights->m, r->n);
    return (hr_bench_cost){
        .bytes = work.bytes, .flops = work.flops, .unit = work.unit, .resident = r->w.cold ? 0 : work.bytes};
}

/* ---- registration ---- */

/* The numbers of tokens that this row takes. */
static size_t tokens_of(const what *w, bool few, int64_t *out) {
    size_t n = 0;
    for (int i = 0; i < HR_BENCH_TOKENS; i++) {
        const int64_t t = hr_bench_tokens[i];
        if (t < w->k->n_min || (w->k->n_max && t > w->k->n_max) || (few && t > 8)) continue;
        if (2.0 * (double)w->rows * (double)w->cols * (double)t <= hr_bench_most_flops(w->k->isa)) out[n++] = t;
    }
    return n;
}

static bool takes(const hr_kernel *k, hr_dtype type, hr_order order, size_t cols) {
    const uint32_t orders = k->orders ? k->orders : 1u << HR_ORDER_ROWS;
    return k->family == HR_FAM_MATMUL && hr_bench_can_run(k) && k->dtypes >> type & 1 && orders >> order & 1 &&
           cols % hr_dtypes[type].block_elems == 0;
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
    hr_bench_add_product(f, w->k->name, shape, w->cold, hr_dtypes[w->type].name, w->order ? "panels" : "rows");
}

/* All rows that take one matrix, so that it is made once. */
static void add_rows(int model, int matrix, hr_dtype type, hr_order order) {
    const hr_bench_shape shape = hr_bench_shape_of(&hr_bench_models[model], matrix), *s = &shape;
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (!takes(k, type, order, s->cols) || !hr_bench_wants(k, model)) continue;
        const hr_mat m = {.dtype = type, .rows = s->rows, .cols = s->cols};
        what w = {k, type, order, s->rows, s->cols, true, hr_bench_cold_bytes() / hr_mat_bytes(&m) + 1};
        int64_t values[HR_BENCH_TOKENS];
        const size_t n = tokens_of(&w, s->head, values);
        add(&w, s->name, values, n);
        /* What does not fit the caches is never warm; with 32 tokens and more it does not matter. */
        size_t few = 0;
        while (few < n && values[few] < 32) few++;
        w.cold = false;
        if (hr_mat_bytes(&m) < hr_bench_llc()) add(&w, s->name, values, few);
    }
}

/* The least number of tokens that a row takes, one in between, and more than a tile. */
static void add_smoke(const hr_kernel *k, hr_dtype type, hr_order order) {
    const what w = {k, type, order, 80, 256, false, 1};
    if (!takes(k, type, order, w.cols)) return;
    const int64_t least = k->n_min > 1 ? k->n_min : 1, wanted[] = {least, least + 4, 37};
    int64_t values[3];
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (wanted[i] >= least && (!k->n_max || wanted[i] <= k->n_max) && (!n || values[n - 1] != wanted[i]))
            values[n++] = wanted[i];
    add(&w, "small.80x256", values, n);
}

void hr_bench_register_matmul(bool smoke) {
    for (int t = 0; smoke && t < HR_DTYPE_COUNT; t++)
        for (int order = 0; order < HR_ORDER_COUNT; order++)
            for (size_t i = 0; hr_kernel_at(i); i++) add_smoke(hr_kernel_at(i), (hr_dtype)t, (hr_order)order);
    for (int m = 0; !smoke && m < HR_BENCH_MODELS; m++)
        for (int matrix = 0; matrix < HR_BENCH_MATRICES; matrix++)
            for (int t = 0; t < HR_DTYPE_COUNT; t++)
                for (int order = 0; order < HR_ORDER_COUNT; order++) add_rows(m, matrix, (hr_dtype)t, (hr_order)order);
}
