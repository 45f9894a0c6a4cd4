#include "kernels/base/dtype.h"
#include "tests/hr_test.h"

static uint32_t bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Values of all 65536 halves, by the definition of IEEE binary16 in double precision, and the way back. */
static void test_f16_all(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const int exponent = h >> 10 & 31, fraction = h & 1023;
        double want = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        if (exponent == 31) want = fraction ? NAN : INFINITY;
        if (h & 0x8000) want = -want;
        const float got = hr_f16_to_f32((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            assert_int_equal(hr_f32_to_f16(got) & 0x7c00, 0x7c00);
            assert_true(hr_f32_to_f16(got) & 0x3ff);
            continue;
        }
        if (bits(got) != bits((float)want)) fail_msg("half %04x: expected %.9g, got %.9g", h, want, (double)got);
        assert_int_equal(hr_f32_to_f16(got), h);
    }
}

/* Between two neighbouring halves the nearer is chosen; in the middle the even one; past the largest, infinity. */
static void test_f16_rounding(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        const float a = hr_f16_to_f32((uint16_t)h), b = hr_f16_to_f32((uint16_t)(h + 1));
        const float middle = (a + b) / 2;
        assert_int_equal(hr_f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(hr_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(hr_f32_to_f16(-nextafterf(middle, INFINITY)), 0x8000 | (h + 1));
    }
    assert_int_equal(hr_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(hr_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(hr_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(hr_f32_to_f16(1e-45f), 0);
}

static void test_bf16(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 0x7f80; b++) {
        const float a = hr_bf16_to_f32((uint16_t)b);
        assert_int_equal(hr_f32_to_bf16(a), b);
        float middle;
        const uint32_t u = b << 16 | 0x8000, below = u - 1, above = u + 1;
        memcpy(&middle, &u, 4);
        assert_int_equal(hr_f32_to_bf16(middle), b & 1 ? b + 1 : b);
        memcpy(&middle, &below, 4);
        assert_int_equal(hr_f32_to_bf16(middle), b);
        memcpy(&middle, &above, 4);
        assert_int_equal(hr_f32_to_bf16(-middle), 0x8000 | (b + 1));
    }
    const uint32_t nan_low_bits = 0x7f800001;
    float nan;
    memcpy(&nan, &nan_low_bits, 4);
    assert_true(isnan(hr_bf16_to_f32(hr_f32_to_bf16(nan))));
    assert_int_equal(hr_f32_to_bf16(INFINITY), 0x7f80);
}

static hr_mat one_row(hr_dtype t, size_t cols, const void *data, const uint16_t *scales) {
    return (hr_mat){.dtype = t, .rows = 1, .cols = cols, .data = data, .scales = scales};
}

/* Small blocks written by hand from the definitions of the formats. */
static void test_rows_by_hand(void **state) {
    (void)state;
    float out[256];
    uint8_t q8[34] = {0x00, 0x38}; /* d = 0.5 */
    for (int i = 0; i < 32; i++) q8[2 + i] = (uint8_t)(i - 128);
    hr_mat m = one_row(HR_Q8_0, 32, q8, NULL);
    hr_mat_row_f32(&m, 0, out);
    for (int i = 0; i < 32; i++) assert_true(out[i] == 0.5f * (float)(i - 128));

    uint8_t q4[20] = {0x00, 0x40, 0x00, 0xbc}; /* d = 2, m = -1 */
    for (int i = 0; i < 16; i++) q4[4 + i] = (uint8_t)(i | (15 - i) << 4);
    m = one_row(HR_Q4_1, 32, q4, NULL);
    hr_mat_row_f32(&m, 0, out);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 2.0f * (float)i - 1);
        assert_true(out[i + 16] == 2.0f * (float)(15 - i) - 1);
    }
    q4[2] = 0x00, q4[3] = 0x40;
    m = one_row(HR_Q4_0, 32, q4 + 2, NULL);
    hr_mat_row_f32(&m, 0, out);
    for (int i = 0; i < 16; i++) {
        assert_true(out[i] == 2.0f * (float)(i - 8));
        assert_true(out[i + 16] == 2.0f * (float)(7 - i));
    }

    /* Q6_K: weight w of half h, quarter r (32 each) has 6 bits, here 13 r + h + i. */
    uint8_t q6[210] = {0};
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 32; i++) {
            for (int r = 0; r < 4; r++) {
                const int v = (13 * r + h + i) & 63;
                q6[64 * h + (r & 1) * 32 + i] |= (uint8_t)((v & 15) << (r & 2 ? 4 : 0));
                q6[128 + 32 * h + i] |= (uint8_t)(v >> 4 << 2 * r);
            }
        }
    for (int s = 0; s < 16; s++) q6[192 + s] = (uint8_t)(s - 8);
    q6[208] = 0x00, q6[209] = 0x34; /* d = 0.25 */
    m = one_row(HR_Q6_K, 256, q6, NULL);
    hr_mat_row_f32(&m, 0, out);
    for (int e = 0; e < 256; e++) {
        const int h = e / 128, r = e % 128 / 32, i = e % 32;
        const float want = 0.25f * (float)(e / 16 - 8) * (float)(((13 * r + h + i) & 63) - 32);
        if (out[e] != want) fail_msg("q6_k element %d: expected %g, got %g", e, (double)want, (double)out[e]);
    }
}

/* A quantized value is within half a step of the original (steps of the stored d), extremes included. */
static void test_quantize(void **state) {
    (void)state;
    enum { COLS = 4096 };
    static float x[COLS], back[COLS];
    static uint8_t data[COLS * 4];
    static uint16_t scales[COLS / 32];
    uint32_t r = 1;
    for (int i = 0; i < COLS; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = ((float)(r >> 8) / 16777216.0f - 0.5f) * ldexpf(1, i / 32 % 16 - 8);
    }
    memset(x + 64, 0, 32 * sizeof *x);
    assert_int_equal(hr_quantize_row(HR_I8G32, x, COLS, data, scales), HR_OK);
    const hr_mat int8 = one_row(HR_I8G32, COLS, data, scales);
    hr_mat_row_f32(&int8, 0, back);
    assert_int_equal(scales[2], 0);
    for (int i = 0; i < COLS; i++) {
        /* Half a step, and where d was rounded down by up to 2^-11 the largest value may miss that much more. */
        const float limit = hr_f16_to_f32(scales[i / 32]) * (0.5f + 127.0f / 2048);
        if (!(fabsf(back[i] - x[i]) <= limit))
            fail_msg("int8: index %d: expected %.9g, got %.9g, tolerance %.3g", i, (double)x[i], (double)back[i],
                     (double)limit);
    }

    const hr_dtype floats[] = {HR_F32, HR_F16, HR_BF16};
    const double error[] = {0, 1.0 / 2048, 1.0 / 256};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(hr_quantize_row(floats[k], x, COLS - 1, data, NULL), HR_OK);
        const hr_mat m = one_row(floats[k], COLS - 1, data, NULL);
        hr_mat_row_f32(&m, 0, back);
        for (int i = 0; i < COLS - 1; i++)
            assert_true(fabs((double)back[i] - (double)x[i]) <= error[k] * fabs((double)x[i]) + 3e-8);
    }
}

/* int4: a group is never worse than with the plain step, the extreme value over -8; zero stays zero; and all sixteen
 * levels are used. */
static void test_quantize_int4(void **state) {
    (void)state;
    enum { COLS = 8192 };
    static float x[COLS], back[COLS];
    static uint8_t data[COLS / 2];
    static uint16_t scales[COLS / 32];
    uint32_t r = 7, seen = 0;
    for (int i = 0; i < COLS; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) r = r * 1664525u + 1013904223u, sum += (float)(r >> 8) / 16777216.0f - 0.5f;
        x[i] = i % 7 ? sum * ldexpf(1, i / 32 % 16 - 8) : 0;
    }
    memset(x + 64, 0, 32 * sizeof *x);
    assert_int_equal(hr_quantize_row(HR_I4G32, x, COLS, data, scales), HR_OK);
    const hr_mat m = one_row(HR_I4G32, COLS, data, scales);
    hr_mat_row_f32(&m, 0, back);
    assert_int_equal(scales[2], 0);
    for (int g = 0; g < COLS / 32; g++) {
        double got = 0, plain = 0;
        float extreme = 0;
        for (int i = 32 * g; i < 32 * g + 32; i++)
            if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
        const double d = (double)hr_f16_to_f32(hr_f32_to_f16(extreme / -8));
        for (int i = 32 * g; i < 32 * g + 32; i++) {
            const double q = d != 0 ? fmin(fmax(nearbyint((double)x[i] / d), -8), 7) : 0;
            got += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
            plain += (q * d - (double)x[i]) * (q * d - (double)x[i]);
            if (x[i] == 0) assert_true(back[i] == 0);
        }
        /* the search multiplies by 1 / d where the plain step divides: a tie may fall the other way */
        if (!(got <= plain * 1.0001)) fail_msg("group %d: squared error %.6g, with the plain step %.6g", g, got, plain);
    }
    for (int i = 0; i < COLS / 2; i++) seen |= 1u << (data[i] & 15) | 1u << (data[i] >> 4);
    assert_int_equal(seen, 0xffff);
}

/* Ties go to even: x / d is exactly 0.5, 1.5, 2.5 with d = 1. */
static void test_quantize_ties(void **state) {
    (void)state;
    float x[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.49f};
    int8_t q[32];
    uint16_t d;
    assert_int_equal(hr_quantize_row(HR_I8G32, x, 32, q, &d), HR_OK);
    assert_int_equal(d, 0x3c00);
    const int8_t want[8] = {127, 0, 2, 2, 0, -2, -2, 3};
    assert_memory_equal(q, want, 8);
    for (int i = 0; i < 32; i++)
        x[i] = i ? 0 : 1e30f; /* beyond what an f16 scale can hold: the largest stays largest */
    assert_int_equal(hr_quantize_row(HR_I8G32, x, 32, q, &d), HR_OK);
    assert_int_equal(d, 0x7bff);
    assert_int_equal(q[0], 127);
    for (int i = 0; i < 32; i++) x[i] = 1e-30f; /* below it: zero */
    assert_int_equal(hr_quantize_row(HR_I8G32, x, 32, q, &d), HR_OK);
    assert_int_equal(d, 0);
    assert_int_equal(q[0], 0);
}

static void test_quantize_errors(void **state) {
    (void)state;
    float x[64] = {0};
    uint8_t data[256];
    uint16_t scales[2];
    assert_int_equal(hr_quantize_row(HR_I8G32, x, 33, data, scales), HR_ERR_INPUT);
    assert_int_equal(hr_quantize_row(HR_Q4_0, x, 64, data, NULL), HR_ERR_UNSUPPORTED);
    x[63] = NAN;
    assert_int_equal(hr_quantize_row(HR_I4G32, x, 64, data, scales), HR_ERR_INPUT);
    x[63] = -INFINITY;
    assert_int_equal(hr_quantize_row(HR_BF16, x, 64, data, NULL), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "infinite"));
}

/* Rows of random bytes: the short way through the scales says what the values say. */
static void test_finite(void **state) {
    (void)state;
    uint64_t seed = 7;
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        size_t seen[2] = {0, 0};
        for (size_t trial = 0; trial < 6000; trial++) {
            uint8_t row[1024];
            uint16_t scales[32];
            float values[768];
            for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)((seed = seed * 6364136223846793005u + 1) >> 56);
            memcpy(scales, row + 900, sizeof scales);
            const hr_mat m = {(hr_dtype)t, 1, hr_dtypes[t].block_elems * (1 + trial % 3), row, scales, HR_ORDER_ROWS};
            hr_mat_row_f32(&m, 0, values);
            bool finite = true;
            for (size_t i = 0; i < m.cols; i++) finite = finite && isfinite(values[i]);
            if (hr_mat_row_is_finite(&m, 0) != finite) fail_msg("%s, trial %zu", hr_dtypes[t].name, trial);
            seen[finite]++;
        }
        assert_true(seen[0] > 0 && seen[1] > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_all),       cmocka_unit_test(test_f16_rounding),
        cmocka_unit_test(test_bf16),          cmocka_unit_test(test_rows_by_hand),
        cmocka_unit_test(test_quantize),      cmocka_unit_test(test_quantize_int4),
        cmocka_unit_test(test_quantize_ties), cmocka_unit_test(test_quantize_errors),
        cmocka_unit_test(test_finite),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
