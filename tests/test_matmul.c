/* Every row of the table for matrix products that this machine can run, with every type of weights and activations and
 * both orders that it takes, against double precision. */
#include "tests/matmul_fixture.h"

/* ---- products ---- */

typedef struct shape {
    size_t rows, cols;
} shape;

/* NMSE. Inputs are the values that the kernel multiplies, so only sums (of up to 4352 terms in f32) and products with
 * scales are rounded: each by at most 2^-24, together below 1e-11. */
static const double tolerance = 1e-10;

/* One matrix, n tokens, and what their products are: [n][rows]. bf16 units take weights as bf16: want_bf16. */
typedef struct problem {
    weights w;
    shape s;
    size_t n;
    float *x; /* [n][cols] */
    hr_acts acts;
    float *want, *want_bf16;
} problem;

static float *reference(const problem *p, bool round_weights) {
    const hr_mat *w = &p->w.m[HR_ORDER_ROWS];
    float *row = hr_malloc(w->cols * sizeof *row), *out = hr_malloc(p->n * w->rows * sizeof *out);
    double *x = hr_malloc(p->n * w->cols * sizeof *x);
    for (size_t t = 0; t < p->n; t++)
        for (size_t c = 0; c < w->cols; c++) x[t * w->cols + c] = act_value(&p->acts, t, c);
    for (size_t r = 0; r < w->rows; r++) {
        hr_mat_row_f32(w, r, row);
        for (size_t c = 0; round_weights && c < w->cols; c++) row[c] = hr_bf16_to_f32(hr_f32_to_bf16(row[c]));
        for (size_t t = 0; t < p->n; t++) {
            double sum[4] = {0};
            for (size_t c = 0; c < w->cols; c++) sum[c % 4] += (double)row[c] * x[t * w->cols + c];
            out[t * w->rows + r] = (float)(sum[0] + sum[1] + sum[2] + sum[3]);
        }
    }
    hr_free(row), hr_free(x);
    return out;
}

static problem make_problem(hr_dtype type, hr_act act, shape s, size_t n) {
    problem p = {.w = make_weights(type, s.rows, s.cols), .s = s, .n = n};
    p.x = hr_malloc(n * s.cols * sizeof *p.x);
    for (size_t i = 0; i < n * s.cols; i++) p.x[i] = random_float();
    p.acts = make_acts(act, HR_ISA_GENERIC, p.x, n, s.cols, 0);
    p.want = reference(&p, false);
    p.want_bf16 = act == HR_ACT_BF16 ? reference(&p, true) : NULL;
    return p;
}

static void free_problem(problem *p) {
    hr_free(p->x), hr_free(p->want), hr_free(p->want_bf16);
    free_acts(&p->acts);
    free_weights(&p->w);
}

/* Buffers of one call: y is [n][ldy] with room after each row that must stay as it was. */
typedef struct outputs {
    size_t n, ldy;
    float *y, *again, *got;
    void *scratch;
} outputs;
static const float untouched = 1e30f;

/* The same bits whatever the ranges, and nothing written outside them. */
static void check_ranges(const hr_kernel *k, const hr_matmul *all, shape s, outputs *o) {
    hr_matmul m = *all;
    m.y = o->again;
    const size_t cut = m.w->order == HR_ORDER_PANELS ? (s.rows + 8) / 2 / HR_PANEL * HR_PANEL : s.rows / 3;
    for (size_t i = 0; i < o->n * o->ldy; i++) o->again[i] = untouched;
    k->fn.matmul(&m, cut, s.rows, o->scratch);
    for (size_t t = 0; t < o->n; t++)
        for (size_t r = 0; r < o->ldy; r++)
            if (r < cut || r >= s.rows) assert_true(o->again[t * o->ldy + r] == untouched);
    k->fn.matmul(&m, 0, cut, o->scratch);
    assert_memory_equal(o->again, o->y, o->n * o->ldy * sizeof *o->y);
}

/* Each token alone (or as few as the kernel takes) gives the bits that it has among the others. */
static void check_alone(const hr_kernel *k, const hr_matmul *all, const problem *p, outputs *o, const char *what) {
    const size_t least = k->n_min > 1 ? k->n_min : 1;
    for (size_t t = 0; t + least <= o->n; t++) {
        hr_acts one = make_acts((hr_act)k->act, k->isa, p->x + t * p->s.cols, least, p->s.cols, k->tile);
        hr_matmul m = *all;
        m.x = &one, m.y = o->again;
        k->fn.matmul(&m, 0, p->s.rows, o->scratch);
        for (size_t r = 0; r < p->s.rows; r++)
            if (memcmp(&o->again[r], &o->y[t * o->ldy + r], sizeof *o->y))
                fail_msg("%s: token %zu row %zu: %.9g among others, %.9g alone", what, t, r,
                         (double)o->y[t * o->ldy + r], (double)o->again[r]);
        free_acts(&one);
    }
}

static void check(const hr_kernel *k, const problem *p, hr_order order, size_t n) {
    const hr_mat *w = &p->w.m[order];
    const shape s = p->s;
    const float *want = k->unit == HR_UNIT_BF16 ? p->want_bf16 : p->want;
    char what[160];
    snprintf(what, sizeof what, "%s, %s in %s %zux%zu, %s, %zu tokens", k->name, hr_dtypes[w->dtype].name,
             order == HR_ORDER_PANELS ? "panels" : "rows", s.rows, s.cols, hr_act_name((hr_act)k->act), n);
    hr_acts a = make_acts((hr_act)k->act, k->isa, p->x, n, s.cols, k->tile);
    outputs o = {.n = n, .ldy = s.rows + 3, .scratch = aligned_bytes(hr_matmul_scratch(s.cols, n))};
    const size_t all = n * o.ldy;
    o.y = hr_malloc(all * sizeof *o.y), o.again = hr_malloc(all * sizeof *o.y);
    o.got = hr_malloc(n * s.rows * sizeof *o.y);
    for (size_t i = 0; i < all; i++) o.y[i] = untouched;
    hr_matmul m = {.w = w, .x = &a, .y = o.y, .ldy = o.ldy};
    k->fn.matmul(&m, 0, s.rows, o.scratch);
    for (size_t t = 0; t < n; t++) memcpy(o.got + t * s.rows, o.y + t * o.ldy, s.rows * sizeof *o.y);
    hr_assert_nmse(o.got, want, n * s.rows, tolerance, what);
    check_ranges(k, &m, s, &o);
    if (n < 20) check_alone(k, &m, p, &o, what);
    m.add = true;
    k->fn.matmul(&m, 0, s.rows, o.scratch);
    for (size_t t = 0; t < n; t++)
        for (size_t r = 0; r < s.rows; r++) o.got[t * s.rows + r] = o.y[t * o.ldy + r] / 2;
    hr_assert_nmse(o.got, want, n * s.rows, tolerance, what);
    free(o.scratch), hr_free(o.y), hr_free(o.again), hr_free(o.got);
    free_acts(&a);
}

/* No token: nothing is written. */
static void check_none(const hr_kernel *k, const problem *p, hr_order order) {
    hr_acts a = p->acts;
    a.n = 0;
    float y[8] = {untouched};
    void *scratch = aligned_bytes(hr_matmul_scratch(p->s.cols, 0));
    k->fn.matmul(&(hr_matmul){.w = &p->w.m[order], .x = &a, .y = y, .ldy = p->s.rows}, 0, p->s.rows, scratch);
    assert_true(y[0] == untouched);
    free(scratch);
}

static bool has_order(const hr_kernel *k, hr_order order) {
    return (k->orders ? k->orders : 1u << HR_ORDER_ROWS) >> order & 1;
}

/* Every row of the table that takes them, every order; n up to `most`, all those up to 9 when `every`. */
static void check_all_rows(hr_dtype type, hr_act act, shape s, size_t most, bool every) {
    static const size_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 33, 64, 270};
    problem p = make_problem(type, act, s, most);
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_MATMUL || k->act != (int)act || !(k->dtypes >> type & 1) || !can_run(k)) continue;
        for (int order = 0; every && order < HR_ORDER_COUNT; order++)
            if (has_order(k, (hr_order)order)) check_none(k, &p, (hr_order)order);
        for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) {
            const size_t n = tokens[j];
            if (n > most || n < k->n_min || (k->n_max && n > k->n_max)) continue;
            if (!every && n != 1 && n != 3 && n != 8 && n != 13 && n != most) continue;
            for (int order = 0; order < HR_ORDER_COUNT; order++)
                if (has_order(k, (hr_order)order)) check(k, &p, (hr_order)order, n);
        }
    }
    free_problem(&p);
}

static void products(hr_act act) {
    /* Tails of rows (4, 16, 32), of columns (vector, block of four groups, panel depth), both sides of each. */
    const shape any[] = {{33, 65}, {17, 100}, {1, 1}, {7, 31}, {100, 130}, {17, 640}, {5, 2081}, {17, 2048}};
    const shape by_32[] = {{33, 64},  {17, 96},  {3, 32},    {100, 160}, {17, 576},
                           {33, 640}, {5, 1536}, {17, 2048}, {4, 4192}};
    const shape by_256[] = {{33, 512}, {3, 256}, {100, 512}, {17, 1536}, {17, 2048}, {2, 4352}};
    const bool quick = hr_test_quick();
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        const size_t block = hr_dtypes[t].block_elems;
        const shape *shapes = block == 1 ? any : block == 32 ? by_32 : by_256;
        const size_t count = block == 1 ? 8 : block == 32 ? 9 : 6;
        for (size_t s = 0; s < count; s++) {
            if (quick && s >= 2 && s + 1 < count) continue;
            const bool small = shapes[s].rows * shapes[s].cols <= 5000;
            check_all_rows((hr_dtype)t, act, shapes[s], s == 0 ? 270 : small ? 64 : 33, s < 2);
        }
    }
}

static void test_products_f32(void **state) {
    (void)state;
    products(HR_ACT_F32);
}
static void test_products_bf16(void **state) {
    (void)state;
    products(HR_ACT_BF16);
}
static void test_products_int8(void **state) {
    (void)state;
    products(HR_ACT_INT8);
}
static void test_products_int8_row(void **state) {
    (void)state;
    products(HR_ACT_INT8_ROW);
}

/* ---- the table ---- */

static void test_table_covers_all(void **state) {
    (void)state;
    const uint32_t tokens[] = {1, 2, 8, 9, 16, 17, 64, 4096};
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (int t = 0; t < HR_DTYPE_COUNT; t++)
            for (int act = 0; act < HR_ACT_COUNT; act++)
                for (int i = 0; i < 8 * HR_ORDER_COUNT; i++) {
                    const hr_kernel_query q = {.family = HR_FAM_MATMUL,
                                               .isa = (hr_isa)isa,
                                               .dtype = (hr_dtype)t,
                                               .act = (hr_act)act,
                                               .n = tokens[i / HR_ORDER_COUNT],
                                               .order = (hr_order)(i % HR_ORDER_COUNT)};
                    const hr_kernel *k = hr_kernel_choose(&q);
                    if (!k) fail_msg("no kernel for %s x %s", hr_dtypes[t].name, hr_act_name(q.act));
                    assert_true(can_run(k) && k->isa <= q.isa);
                    assert_true(k->dtypes >> t & 1 && k->act == act && has_order(k, q.order));
                }
}

static void test_table_names(void **state) {
    (void)state;
    for (size_t i = 0; hr_kernel_at(i); i++)
        for (size_t j = 0; j < i; j++)
            if (hr_kernel_at(i)->family == hr_kernel_at(j)->family)
                assert_string_not_equal(hr_kernel_at(i)->name, hr_kernel_at(j)->name);
    assert_string_equal(hr_op_names[HR_OP_GATE_UP], "gate_up");
    assert_string_equal(hr_op_names[HR_OP_EXPERTS], "experts");
    assert_string_equal(hr_unit_names[HR_UNIT_INT8], "int8");
    assert_string_equal(hr_act_name(HR_ACT_BF16), "bf16");
}

static void test_work(void **state) {
    (void)state;
    const hr_mat w = {.dtype = HR_I4G32, .rows = 10, .cols = 64};
    const hr_kernel_query q = {.family = HR_FAM_MATMUL, .dtype = HR_I4G32, .act = HR_ACT_INT8, .n = 7};
    const hr_work work = hr_work_matmul(hr_kernel_choose(&q), &w, 7);
    assert_int_equal(work.bytes, 10 * (32 + 2 * 2)); /* two groups of 16 bytes and an f16 scale each */
    assert_int_equal(work.flops, 2 * 10 * 64 * 7);
    assert_int_equal(work.unit, HR_UNIT_INT8);

    hr_kv_geom g = {.n_heads = 2, .head_dim = 64, .row_bytes = {64, 128, 4, 0}};
    const hr_kv_seq kv = {.g = &g};
    const hr_kernel any = {.unit = HR_UNIT_FP32};
    hr_attn a = {.kv = &kv, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .n_q = 1, .pos0 = 9};
    assert_int_equal(hr_work_attn(&any, &a).bytes, 10 * 2 * 196);
    assert_int_equal(hr_work_attn(&any, &a).flops, 4 * 10 * 4 * 64);
    a.n_q = 3, a.pos0 = 4; /* 5 + 6 + 7 pairs, 7 rows */
    assert_int_equal(hr_work_attn(&any, &a).bytes, 7 * 2 * 196);
    assert_int_equal(hr_work_attn(&any, &a).flops, 4 * 18 * 4 * 64);
    a.window = 2; /* 2 + 2 + 2 pairs; positions 3..6 */
    assert_int_equal(hr_work_attn(&any, &a).bytes, 4 * 2 * 196);
    assert_int_equal(hr_work_attn(&any, &a).flops, 4 * 6 * 4 * 64);
    assert_int_equal(hr_work_kv_append(&g, 5).bytes, 5 * 2 * 196);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_f32),
        cmocka_unit_test(test_products_bf16),
        cmocka_unit_test(test_products_int8),
        cmocka_unit_test(test_products_int8_row),
        cmocka_unit_test(test_table_covers_all),
        cmocka_unit_test(test_table_names),
        cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
