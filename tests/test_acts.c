/* Every row of the table that prepares activations, against its definition and against the generic row, to the bit. */
#include "tests/matmul_fixture.h"

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
            hr_acts got = alloc_acts((hr_act)kernel->act, N, k, 0), want = alloc_acts((hr_act)kernel->act, N, k, 0);
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
        const bool by_row = kernel->act == HR_ACT_INT8_ROW, int8 = by_row || kernel->act == HR_ACT_INT8;
        if (kernel->family != HR_FAM_ACTS || !int8 || !can_run(kernel)) continue;
        float x[64] = {1, 2, NAN, 3};
        x[40] = -INFINITY;
        hr_acts a = alloc_acts((hr_act)kernel->act, 1, 64, 0);
        kernel->fn.acts(&a, x, 64, 0, 1);
        assert_true(isnan(a.d[0]));
        assert_true(by_row ? isnan(a.d[1]) : isinf(a.d[1]));
        free_acts(&a);
    }
}

/* Tiles made without the rows are those made with them, to the bit: full and part tiles, columns that end anywhere. */
static void test_acts_tiles_alone(void **state) {
    (void)state;
    enum { N = 27, TILE = 12, MOST = 1100 };
    float *x = hr_calloc(N * MOST, sizeof *x);
    for (size_t i = 0; i < (size_t)N * MOST; i++) x[i] = (float)((int)(i * 7919 % 4093) - 2046) / 255.0f;
    for (size_t i = 0; i < (size_t)N * MOST; i++) /* of int8: quotients amidst two integers, rows of zeros */
        if (i / MOST % 3 == 1) x[i] = i % 32 ? (float)((int)(i * 7919 % 509) - 254) / 2.0f : 127;
    memset(x + 6 * MOST, 0, MOST * sizeof *x);
    for (size_t i = 0; i < 4; i++) {
        const size_t k = (size_t[]){32, 100, 512, MOST}[i], ld = hr_align_up(k, 64);
        for (int type = 0; type < HR_ACT_COUNT; type++) {
            const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = HR_ISA_AVX512, .act = (hr_act)type, .n = N};
            const hr_kernel *kernel = hr_kernel_choose(&q);
            if (kernel->isa != HR_ISA_AVX512) continue; /* not on this CPU */
            const size_t bytes = 3 * hr_acts_tile_bytes((hr_act)type, TILE, k);
            uint8_t *rows = hr_calloc(N * ld * 4 + 64, 1), *tiles[2];
            float *d = hr_calloc(N * ld / 32, sizeof *d);
            int32_t *sum = hr_calloc(N * ld / 32, sizeof *sum);
            for (int alone = 0; alone < 2; alone++) {
                void *at = (void *)hr_align_up((uintptr_t)rows, 64);
                tiles[alone] = hr_calloc(bytes, 1);
                hr_acts a = {.type = (hr_act)type,
                             .n = N,
                             .k = k,
                             .ld = ld,
                             .f32 = at,
                             .bf16 = at,
                             .q = at,
                             .d = d,
                             .sum = sum,
                             .tile = TILE,
                             .tiles = tiles[alone],
                             .tiles_alone = alone};
                kernel->fn.acts(&a, x, MOST, 0, TILE);
                kernel->fn.acts(&a, x, MOST, TILE, N);
            }
            assert_memory_equal(tiles[1], tiles[0], bytes);
            hr_free(rows), hr_free(d), hr_free(sum), hr_free(tiles[0]), hr_free(tiles[1]);
        }
    }
    hr_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_acts),
        cmocka_unit_test(test_acts_not_finite),
        cmocka_unit_test(test_acts_tiles_alone),
    };
    return cmocka_run_group_tests_name("acts", tests, NULL, NULL);
}
