/* Panels hold the same values as rows, for every type, in the bytes that panel.h promises; and the types with one scale
 * a row or 128 columns are as near to the weights as their steps allow. */
#include "tests/matmul_fixture.h"

/* The same floats from both orders, to the bit, padding rows zero. */
static void test_same_floats(void **state) {
    (void)state;
    const size_t rows[] = {1, 15, 16, 17, 33, 100}, cols[] = {1, 7, 8, 32, 65, 96, 100, 256, 576, 2048};
    for (int t = 0; t < HR_DTYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (size_t j = 0; j < sizeof cols / sizeof *cols; j++) {
                if (cols[j] % hr_dtypes[t].block_elems) continue;
                weights w = make_weights((hr_dtype)t, rows[i], cols[j]);
                hr_mat panels = w.m[HR_ORDER_PANELS];
                float *want = hr_calloc(cols[j], sizeof *want), *got = hr_malloc(cols[j] * sizeof *got);
                for (size_t r = 0; r < hr_panel_count(rows[i]) * HR_PANEL; r++) {
                    if (r < rows[i])
                        hr_mat_row_f32(&w.m[HR_ORDER_ROWS], r, want);
                    else
                        memset(want, 0, cols[j] * sizeof *want);
                    hr_mat_row_f32(&panels, r, got);
                    for (size_t c = 0; c < cols[j]; c++) /* zero of either sign is zero */
                        if (memcmp(&got[c], &want[c], sizeof *got) && (got[c] != 0 || want[c] != 0))
                            fail_msg("%s %zux%zu row %zu column %zu: expected %.9g, got %.9g", hr_dtypes[t].name,
                                     rows[i], cols[j], r, c, (double)want[c], (double)got[c]);
                }
                hr_free(want), hr_free(got);
                free_weights(&w);
            }
}

/* Rows of an embedding table out of panels, by every row of the table that looks them up. */
static void test_embed(void **state) {
    (void)state;
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (k->family != HR_FAM_EMBED || !can_run(k)) continue;
        for (int t = 0; t < HR_DTYPE_COUNT; t++) {
            float want[576 + 192], got[576 + 192];
            const size_t cols = t == HR_Q6_K ? 768 : 576;
            weights w = make_weights((hr_dtype)t, 37, cols);
            for (size_t r = 0; r < 37; r++) {
                hr_mat_row_f32(&w.m[HR_ORDER_ROWS], r, want);
                for (int order = 0; order < HR_ORDER_COUNT; order++) {
                    k->fn.embed(&w.m[order], r, got);
                    for (size_t c = 0; c < cols; c++)
                        if (got[c] != want[c])
                            fail_msg("%s, %s, row %zu column %zu: expected %.9g, got %.9g", k->name, hr_dtypes[t].name,
                                     r, c, (double)want[c], (double)got[c]);
                }
            }
            free_weights(&w);
        }
    }
}

/* Columns past the last, which kernels multiply with zeros, are numbers: zero bits. */
static void test_padding_columns(void **state) {
    (void)state;
    const hr_dtype types[] = {HR_F32, HR_F16, HR_BF16};
    for (int i = 0; i < 3; i++) {
        weights w = make_weights(types[i], 16, 65);
        hr_mat wide = w.m[HR_ORDER_PANELS];
        wide.cols = hr_panel_cols(types[i], 65);
        assert_int_equal(wide.cols, 72);
        float row[72];
        for (size_t r = 0; r < 16; r++) {
            hr_mat_row_f32(&wide, r, row);
            for (size_t c = 65; c < 72; c++) assert_true(row[c] == 0);
        }
        free_weights(&w);
    }
}

/* Bits a weight are those of the order of rows, for 16 rows of 2048 columns. */
static void test_sizes(void **state) {
    (void)state;
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        const size_t got = hr_panel_bytes((hr_dtype)t, 2048) + 2 * hr_panel_scales((hr_dtype)t, 2048);
        const hr_mat m = {.dtype = (hr_dtype)t, .rows = 16, .cols = 2048};
        if (got != hr_mat_bytes(&m))
            fail_msg("%s: a panel has %zu bytes, its rows %zu", hr_dtypes[t].name, got, hr_mat_bytes(&m));
        assert_int_equal(hr_panel_bytes((hr_dtype)t, 2048) % 64, 0);
        assert_int_equal(hr_panel_scales((hr_dtype)t, 2048) % 16, 0);
    }
    assert_int_equal(hr_panel_scales(HR_I8ROW, 2048), 16);
    assert_int_equal(hr_panel_scales(HR_I4G128, 160), 32); /* a last group of 32 columns */
    assert_int_equal(hr_panel_scales(HR_Q4_1, 64), 64);
    assert_int_equal(hr_panel_count(17), 2);
    assert_int_equal(hr_panel_cols(HR_BF16, 65), 72);
}

/* Packing from a window of the rows gives the same panel as from the whole matrix. */
static void test_pack_window(void **state) {
    (void)state;
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        weights w = make_weights((hr_dtype)t, 37, 512);
        hr_mat window = w.m[HR_ORDER_ROWS];
        window.data = hr_mat_row(&w.m[HR_ORDER_ROWS], 32), window.rows = 5;
        if (window.scales) window.scales = hr_mat_scales(&w.m[HR_ORDER_ROWS], 32);
        const size_t bytes = hr_panel_bytes((hr_dtype)t, 512), scales = hr_panel_scales((hr_dtype)t, 512);
        uint8_t *data = aligned_bytes(bytes);
        uint16_t *s = aligned_bytes(2 * scales);
        memset(data, 0x55, bytes);
        hr_panel_pack(&window, 0, data, scales ? s : NULL);
        assert_memory_equal(data, hr_panel_data(&w.m[HR_ORDER_PANELS], 2), bytes);
        if (scales) assert_memory_equal(s, hr_panel_scale(&w.m[HR_ORDER_PANELS], 2), 2 * scales);
        free(data), free(s);
        free_weights(&w);
    }
}

/* ---- quantization ---- */

enum { COLS = 4096 + 32 }; /* the last group of 128 has 32 columns */
static float x[COLS], back[COLS];
static uint8_t data[COLS];
static uint16_t scales[COLS / 32];

/* Groups of 128 of different size, one of zeros, zeros between. */
static void fill(void) {
    for (int i = 0; i < COLS; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) sum += random_float();
        x[i] = i % 7 ? sum * ldexpf(1, i / 128 % 16 - 8) : 0;
    }
    memset(x + 256, 0, 128 * sizeof *x);
}

/* Within half a step of the stored d, and where d was rounded down by up to 2^-11 the largest value may miss that much
 * more. */
static void test_int8_row(void **state) {
    (void)state;
    fill();
    assert_int_equal(hr_quantize_row(HR_I8ROW, x, COLS, data, scales), HR_OK);
    const hr_mat m = {HR_I8ROW, 1, COLS, data, scales, HR_ORDER_ROWS};
    hr_mat_row_f32(&m, 0, back);
    float most = 0;
    for (int i = 0; i < COLS; i++) most = fmaxf(most, fabsf(x[i]));
    assert_int_equal(scales[0], hr_f32_to_f16(most / 127));
    const float limit = hr_f16_to_f32(scales[0]) * (0.5f + 127.0f / 2048);
    for (int i = 0; i < COLS; i++)
        if (!(fabsf(back[i] - x[i]) <= limit))
            fail_msg("int8-row: index %d: expected %.9g, got %.9g, tolerance %.3g", i, (double)x[i], (double)back[i],
                     (double)limit);
    memset(x, 0, sizeof x);
    assert_int_equal(hr_quantize_row(HR_I8ROW, x, COLS, data, scales), HR_OK);
    assert_int_equal(scales[0], 0);
}

/* A group is never worse than with the plain step, the extreme value over -8; zero stays zero; all levels are used. */
static void test_int4_g128(void **state) {
    (void)state;
    uint32_t seen = 0;
    fill();
    assert_int_equal(hr_quantize_row(HR_I4G128, x, COLS, data, scales), HR_OK);
    const hr_mat m = {HR_I4G128, 1, COLS, data, scales, HR_ORDER_ROWS};
    hr_mat_row_f32(&m, 0, back);
    assert_int_equal(hr_row_scales(HR_I4G128, COLS), 33);
    assert_int_equal(scales[2], 0);
    for (int g = 0; g < COLS; g += 128) {
        const int end = g + 128 < COLS ? g + 128 : COLS;
        double got = 0, plain = 0;
        float extreme = 0;
        for (int i = g; i < end; i++)
            if (fabsf(x[i]) > fabsf(extreme)) extreme = x[i];
        const double d = (double)hr_f16_to_f32(hr_f32_to_f16(extreme / -8));
        for (int i = g; i < end; i++) {
            const double q = d != 0 ? fmin(fmax(nearbyint((double)x[i] / d), -8), 7) : 0;
            got += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
            plain += (q * d - (double)x[i]) * (q * d - (double)x[i]);
            if (x[i] == 0) assert_true(back[i] == 0);
        }
        /* the search multiplies by 1 / d where the plain step divides: a tie may fall the other way */
        if (!(got <= plain * 1.0001))
            fail_msg("group at %d: squared error %.6g, with the plain step %.6g", g, got, plain);
    }
    for (int i = 0; i < COLS / 2; i++) seen |= 1u << (data[i] & 15) | 1u << (data[i] >> 4);
    assert_int_equal(seen, 0xffff);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_floats), cmocka_unit_test(test_embed),       cmocka_unit_test(test_padding_columns),
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_pack_window), cmocka_unit_test(test_int8_row),
        cmocka_unit_test(test_int4_g128),
    };
    return cmocka_run_group_tests_name("panel", tests, NULL, NULL);
}
