/* Every row of the table for activations and matrix products that this machine can run, against double precision; the
 * int8 activations of all ISAs against the generic ones, to the bit. */
#include "kernels/base/memory.h"
#include "kernels/table.h"
#include "tests/hr_test.h"
#include <stdlib.h>

static uint32_t random_state = 1;
static float random_float(void) { /* -1 .. 1 */
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1;
}

static bool can_run(const hr_kernel *k) {
    return k->isa <= hr_isa_best() && !(k->needs & ~hr_cpu_features());
}

/* ---- data ---- */

/* Random weights with all bit patterns that the format allows, in memory that ends with the last row, not aligned. */
typedef struct weights {
    hr_mat m;
    uint8_t *data;
    uint16_t *scales;
} weights;

static void random_scale(uint8_t *p) {
    const uint16_t d = hr_f32_to_f16(0.01f * random_float());
    memcpy(p, &d, 2);
}

static weights make_weights(hr_dtype t, size_t rows, size_t cols) {
    const size_t bytes = rows * hr_row_bytes(t, cols), groups = rows * hr_row_scales(t, cols);
    weights w = {.data = hr_malloc(bytes + 1), .scales = groups ? hr_malloc(2 * groups) : NULL};
    uint8_t *p = w.data + 1;
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)((int)(127 * random_float()) + 128);
    for (size_t g = 0; g < groups; g++) random_scale((uint8_t *)(w.scales + g));
    for (size_t i = 0; i < rows * cols; i++) {
        const float v = random_float();
        const uint16_t half = t == HR_F16 ? hr_f32_to_f16(v) : hr_f32_to_bf16(v);
        if (t == HR_F32) memcpy(p + 4 * i, &v, 4);
        if (t == HR_F16 || t == HR_BF16) memcpy(p + 2 * i, &half, 2);
    }
    const size_t step = hr_dtypes[t].block_bytes;
    for (size_t i = 0; i < bytes; i += step) {
        if (t == HR_Q8_0 || t == HR_Q4_0 || t == HR_Q4_1) random_scale(p + i);
        if (t == HR_Q4_1) random_scale(p + i + 2);
        if (t == HR_Q6_K) random_scale(p + i + 208);
    }
    w.m = (hr_mat){.dtype = t, .rows = rows, .cols = cols, .data = p, .scales = w.scales};
    return w;
}

static void free_weights(weights *w) {
    hr_free(w->data);
    hr_free(w->scales);
}

static hr_acts alloc_acts(hr_act type, size_t n, size_t k) {
    hr_acts a = {.type = type, .n = n, .k = k, .ld = hr_align_up(k, 64)};
    const size_t bytes = n * a.ld;
    if (type == HR_ACT_F32) a.f32 = aligned_alloc(64, 4 * bytes);
    if (type == HR_ACT_BF16) a.bf16 = aligned_alloc(64, 2 * bytes);
    if (type == HR_ACT_INT8 || type == HR_ACT_INT8_ROW) {
        a.q = aligned_alloc(64, bytes);
        a.d = hr_malloc(bytes / 8);
        a.sum = hr_malloc(bytes / 8);
    }
    return a;
}

static void free_acts(hr_acts *a) {
    free(a->f32);
    free(a->bf16);
    free(a->q);
    hr_free(a->d);
    hr_free(a->sum);
}

static const hr_kernel *acts_kernel(hr_act type, hr_isa isa) {
    const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = isa, .act = type, .n = 1};
    return hr_kernel_choose(&q);
}

/* Element c of token t as the products see it. */
static double act_value(const hr_acts *a, size_t t, size_t c) {
    const size_t i = t * a->ld + c;
    if (a->type == HR_ACT_F32) return (double)a->f32[i];
    if (a->type == HR_ACT_BF16) return (double)hr_bf16_to_f32(a->bf16[i]);
    return (double)a->q[i] * (double)a->d[i / 32];
}

/* ---- activations ---- */

static void fill_special(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = random_float() * ldexpf(1, (int)(i / 32 % 24) - 12);
    for (size_t i = 0; i < 32 && i < n; i++) x[i] = 0;
    for (size_t i = 32; i < 64 && i < n; i++) x[i] = i == 32 ? 127 : (float)i / 2 - 20; /* d = 1: ties */
    for (size_t i = 64; i < 96 && i < n; i++) x[i] = 1e-40f;                            /* subnormal */
    for (size_t i = 96; i < 128 && i < n; i++) x[i] = i == 100 ? -3.4e38f : 1e30f;
}

static void test_acts(void **state) {
    (void)state;
    enum { N = 3 };
    const size_t sizes[] = {1, 32, 33, 64, 96, 130, 576, 2048};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t k = sizes[s], ldx = k + 3;
        float *x = hr_malloc(N * ldx * sizeof *x);
        for (size_t t = 0; t < N; t++) fill_special(x + t * ldx, k);
        for (size_t i = 0; hr_kernel_at(i); i++) {
            const hr_kernel *kernel = hr_kernel_at(i);
            if (kernel->family != HR_FAM_ACTS || !can_run(kernel)) continue;
            hr_acts got = alloc_acts((hr_act)kernel->act, N, k), want = alloc_acts((hr_act)kernel->act, N, k);
            const size_t all = N * got.ld;
            if (got.f32) memset(got.f32, 0x55, 4 * all);
            if (got.bf16) memset(got.bf16, 0x55, 2 * all);
            if (got.q) memset(got.q, 0x55, all);
            kernel->fn.acts(&got, x, ldx, 2, N);
            kernel->fn.acts(&got, x, ldx, 0, 2);
            acts_kernel(got.type, HR_ISA_GENERIC)->fn.acts(&want, x, ldx, 0, N);
            if (got.f32) assert_memory_equal(got.f32, want.f32, 4 * all);
            if (got.bf16) assert_memory_equal(got.bf16, want.bf16, 2 * all);
            if (got.q) {
                assert_memory_equal(got.q, want.q, all);
                assert_memory_equal(got.d, want.d, all / 8);
                assert_memory_equal(got.sum, want.sum, all / 8);
            }
            for (size_t t = 0; t < N; t++)
                for (size_t c = 0; c < got.ld; c++) {
                    const double v = c < k ? (double)x[t * ldx + c] : 0, g = act_value(&got, t, c);
                    /* bf16: half an ulp, 2^-8 relative, 2^-134 where subnormal; int8: half a step and the rounding of x / d. */
                    double limit = got.type == HR_ACT_BF16 ? fabs(v) / 256 + 4.6e-41 : 0;
                    if (got.q) limit = c < k ? 0.5001 * (double)got.d[(t * got.ld + c) / 32] + 1.5e-36 : 0;
                    if (!(fabs(g - v) <= limit) && !(got.bf16 && fabs(v) > 3.38e38))
                        fail_msg("%s k %zu token %zu column %zu: expected %.9g, got %.9g, tolerance %.3g", kernel->name,
                                 k, t, c, v, g, limit);
                }
            free_acts(&got);
            free_acts(&want);
        }
        hr_free(x);
    }
}

/* A NaN or infinity must not turn into plausible numbers. */
static void test_acts_not_finite(void **state) {
    (void)state;
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *kernel = hr_kernel_at(i);
        if (kernel->family != HR_FAM_ACTS || kernel->act != HR_ACT_INT8 || !can_run(kernel)) continue;
        float x[64] = {1, 2, NAN, 3};
        x[40] = -INFINITY;
        hr_acts a = alloc_acts(HR_ACT_INT8, 1, 64);
        kernel->fn.acts(&a, x, 64, 0, 1);
        assert_true(isnan(a.d[0]));
        assert_true(isinf(a.d[1]));
        free_acts(&a);
    }
}

/* ---- products ---- */

typedef struct shape {
    size_t rows, cols;
} shape;

/* NMSE. Inputs are the values that the kernel multiplies, so only sums (of up to 4352 terms in f32) and products with
 * scales are rounded: each by at most 2^-24, together below 1e-11. */
static const double tolerance = 1e-10;

/* round_weights: bf16 units take weights as bf16. */
static void reference(const hr_mat *w, const hr_acts *x, bool round_weights, float *out) {
    float *row = hr_malloc(w->cols * sizeof *row);
    for (size_t r = 0; r < w->rows; r++) {
        hr_mat_row_f32(w, r, row);
        for (size_t c = 0; round_weights && c < w->cols; c++) row[c] = hr_bf16_to_f32(hr_f32_to_bf16(row[c]));
        for (size_t t = 0; t < x->n; t++) {
            double sum = 0;
            for (size_t c = 0; c < w->cols; c++) sum += (double)row[c] * act_value(x, t, c);
            out[t * w->rows + r] = (float)sum;
        }
    }
    hr_free(row);
}

static void check(const hr_kernel *k, hr_dtype type, shape s, size_t n) {
    char what[128];
    snprintf(what, sizeof what, "%s %s %zux%zu n %zu", k->name, hr_dtypes[type].name, s.rows, s.cols, n);
    weights w = make_weights(type, s.rows, s.cols);
    float *x = hr_malloc(n * s.cols * sizeof *x);
    for (size_t i = 0; i < n * s.cols; i++) x[i] = random_float();
    hr_acts a = alloc_acts((hr_act)k->act, n, s.cols);
    acts_kernel(a.type, HR_ISA_GENERIC)->fn.acts(&a, x, s.cols, 0, n);

    const size_t ldy = s.rows + 3, all = n * ldy;
    void *scratch = aligned_alloc(64, hr_align_up(hr_matmul_scratch(s.cols, n), 64));
    float *y = hr_malloc(all * sizeof *y), *again = hr_malloc(all * sizeof *y);
    float *got = hr_malloc(n * s.rows * sizeof *y), *want = hr_malloc(n * s.rows * sizeof *y);
    for (size_t i = 0; i < all; i++) y[i] = again[i] = 1e30f;
    hr_matmul m = {.w = &w.m, .x = &a, .y = y, .ldy = ldy};
    k->fn.matmul(&m, 0, s.rows, scratch);
    for (size_t t = 0; t < n; t++) memcpy(got + t * s.rows, y + t * ldy, s.rows * sizeof *y);
    reference(&w.m, &a, k->unit == HR_UNIT_BF16, want);
    hr_assert_nmse(got, want, n * s.rows, tolerance, what);

    /* The same bits whatever the ranges, and nothing written outside them. */
    m.y = again;
    const size_t cut = s.rows / 3;
    k->fn.matmul(&m, cut, s.rows, scratch);
    for (size_t t = 0; t < n; t++)
        for (size_t r = 0; r < ldy; r++)
            if (r < cut || r >= s.rows) assert_true(again[t * ldy + r] == 1e30f);
    k->fn.matmul(&m, 0, cut, scratch);
    assert_memory_equal(again, y, all * sizeof *y);

    /* `add`, and each token alone (or as few as the kernel takes) gives the bits that it has among the others. */
    const size_t least = k->n_min > 1 ? k->n_min : 1;
    if (n > least && n < 20) {
        for (size_t t = 0; t + least <= n; t++) {
            hr_acts one = a;
            one.n = least;
            one.f32 = a.f32 ? a.f32 + t * a.ld : NULL;
            one.bf16 = a.bf16 ? a.bf16 + t * a.ld : NULL;
            one.q = a.q ? a.q + t * a.ld : NULL;
            one.d = a.d ? a.d + t * a.ld / 32 : NULL;
            one.sum = a.sum ? a.sum + t * a.ld / 32 : NULL;
            hr_matmul single = {.w = &w.m, .x = &one, .y = again, .ldy = ldy};
            k->fn.matmul(&single, 0, s.rows, scratch);
            for (size_t r = 0; r < s.rows; r++)
                if (memcmp(&again[r], &y[t * ldy + r], sizeof *y))
                    fail_msg("%s: token %zu row %zu: %.9g among others, %.9g alone", what, t, r, (double)y[t * ldy + r],
                             (double)again[r]);
        }
    }
    m.y = y, m.add = true;
    k->fn.matmul(&m, 0, s.rows, scratch);
    for (size_t t = 0; t < n; t++)
        for (size_t r = 0; r < s.rows; r++) got[t * s.rows + r] = y[t * ldy + r] / 2;
    hr_assert_nmse(got, want, n * s.rows, tolerance, what);

    free(scratch);
    hr_free(y), hr_free(again), hr_free(got), hr_free(want), hr_free(x);
    free_acts(&a);
    free_weights(&w);
}

static void products(hr_act act) {
    /* Tails of rows (4, 16, 32), of columns (vector, block of four groups, panel depth), both sides of each. */
    const shape any[] = {{1, 1}, {7, 31}, {33, 65}, {70, 130}, {5, 2081}};
    const shape by_32[] = {{3, 32}, {37, 96}, {66, 160}, {5, 576}, {4, 4192}};
    const shape by_256[] = {{3, 256}, {37, 512}, {2, 4352}};
    const size_t tokens[] = {1, 2, 3, 5, 8, 13, 33, 270};
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_MATMUL || k->act != (int)act || !can_run(k)) continue;
        for (int t = 0; t < HR_DTYPE_COUNT; t++) {
            if (!(k->dtypes >> t & 1)) continue;
            const size_t block = hr_dtypes[t].block_elems;
            const shape *shapes = block == 1 ? any : block == 32 ? by_32 : by_256;
            const size_t count = block == 256 ? 3 : 5;
            for (size_t s = 0; s < count; s++)
                for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
                    if (tokens[n] < k->n_min || (k->n_max && tokens[n] > k->n_max)) continue;
                    if (tokens[n] > 100 && s != 1) continue;
                    check(k, (hr_dtype)t, shapes[s], tokens[n]);
                }
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

/* ---- the table ---- */

static void test_table_covers_all(void **state) {
    (void)state;
    const uint32_t tokens[] = {1, 2, 8, 9, 16, 17, 64, 4096};
    for (int isa = 0; isa < HR_ISA_COUNT; isa++)
        for (int t = 0; t < HR_DTYPE_COUNT; t++)
            for (int act = 0; act < HR_ACT_COUNT; act++)
                for (int n = 0; n < 8; n++) {
                    const hr_kernel_query q = {HR_FAM_MATMUL, (hr_isa)isa,   (hr_dtype)t, HR_F32, (hr_act)act,
                                               tokens[n],     HR_ORDER_ROWS, false,       NULL};
                    const hr_kernel *k = hr_kernel_choose(&q);
                    if (!k) fail_msg("no kernel for %s x %s", hr_dtypes[t].name, hr_act_name(q.act));
                    assert_true(can_run(k) && k->isa <= q.isa);
                    assert_true(k->dtypes >> t & 1 && k->act == act);
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
        cmocka_unit_test(test_acts),          cmocka_unit_test(test_acts_not_finite),
        cmocka_unit_test(test_products_f32),  cmocka_unit_test(test_products_bf16),
        cmocka_unit_test(test_products_int8), cmocka_unit_test(test_table_covers_all),
        cmocka_unit_test(test_table_names),   cmocka_unit_test(test_work),
    };
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
