/* Norm, RoPE, gated activation and look-up of every ISA against plain double precision. */
#include "tests/hr_test.h"

#include "tests/kv_fixture.h"

static const size_t sizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 127, 576, 1000, 2048, 8192, 8193};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Rounding of the factor, two products and the sum in pieces of at most 1024: under 4 ulp, 5e-7. */
static void rms_norm(void **state) {
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = fix_kernel(HR_FAM_NORM, i)); i++) {
        for (int s = 0; s < N_SIZES; s++) {
            const size_t dim = sizes[s], ld = dim + 3;
            float *x = fix_floats(3 * ld, 1), *w = fix_floats(dim, 2), *y = fix_floats(3 * ld, 3),
                  *want = fix_floats(3 * ld, 3);
            for (size_t t = 1; t < 3; t++) {
                double sum = 0;
                for (size_t c = 0; c < dim; c++) sum += (double)x[t * ld + c] * (double)x[t * ld + c];
                for (size_t c = 0; c < dim; c++)
                    want[t * ld + c] = (float)(x[t * ld + c] / sqrt(sum / (double)dim + 1e-5) * w[c]);
            }
            k->fn.norm(x, ld, w, y, ld, dim, 1e-5f, 1, 3);
            hr_assert_near(y, want, 3 * ld, 5e-7, k->name);
            for (size_t t = 1; t < 3; t++) {
                double sum = 0;
                for (size_t c = 0; c < dim; c++) sum += (double)x[t * ld + c] * (double)x[t * ld + c];
                for (size_t c = 0; c < dim; c++) want[t * ld + c] = (float)(x[t * ld + c] / sqrt(sum / (double)dim));
                for (size_t c = dim; c < ld; c++) want[t * ld + c] = x[t * ld + c];
            }
            memcpy(want, x, ld * sizeof *x);
            k->fn.norm(x, ld, NULL, x, ld, dim, 0, 1, 3); /* in place, without weights */
            hr_assert_near(x, want, 3 * ld, 5e-7, k->name);
            hr_free(x), hr_free(w), hr_free(y), hr_free(want);
        }
    }
}

/* Two products and a sum, each rounded once: 2 ulp of 1.5 at most. */
static void rope(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 2, 2}, {3, 64, 64}, {2, 80, 32}, {4, 128, 128}, {1, 20, 10}};
    const hr_kernel *k;
    for (size_t i = 0; (k = fix_kernel(HR_FAM_ROPE, i)); i++) {
        for (int s = 0; s < 5; s++) {
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                const size_t heads = shapes[s][0], dim = shapes[s][1], rot = shapes[s][2], ld = heads * dim + 5;
                float *x = fix_floats(4 * ld, 1), *want = fix_floats(4 * ld, 1), *cs = fix_floats(4 * rot, 2);
                for (size_t t = 0; t < 4; t++) {
                    for (size_t j = 0; j < rot / 2; j++) {
                        const double angle = (double)cs[t * rot + j] * 3;
                        cs[t * rot + 2 * j] = (float)cos(angle), cs[t * rot + 2 * j + 1] = (float)sin(angle);
                    }
                }
                for (size_t t = 1; t < 4; t++) {
                    for (size_t h = 0; h < heads; h++) {
                        for (size_t j = 0; j < rot / 2; j++) {
                            float *a = want + t * ld + h * dim + (interleaved ? 2 * j : j);
                            float *b = interleaved ? a + 1 : a + rot / 2;
                            const double c = cs[t * rot + 2 * j], d = cs[t * rot + 2 * j + 1], re = *a, im = *b;
                            *a = (float)(re * c - im * d), *b = (float)(re * d + im * c);
                        }
                    }
                }
                k->fn.rope(x, ld, heads, dim, rot, interleaved, cs, 1, 4);
                hr_assert_near(x, want, 4 * ld, 4e-7, k->name);
                hr_free(x), hr_free(want), hr_free(cs);
            }
        }
    }
}

/* exp within an ulp, a division and two products: 4 ulp. */
static void gated_activation(void **state) {
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = fix_kernel(HR_FAM_GLU, i)); i++) {
        for (int s = 0; s < N_SIZES; s++) {
            const size_t n = sizes[s];
            float *g = fix_floats(n, 1), *u = fix_floats(n, 2), *y = fix_floats(n, 3), *want = fix_floats(n, 4);
            for (size_t c = 0; c < n; c++) {
                g[c] *= c % 3 ? 8 : 100;
                want[c] = (float)((double)g[c] / (1 + exp(-(double)g[c])) * (double)u[c]);
            }
            k->fn.glu(g, u, y, n);
            for (size_t c = 0; c < n; c++) {
                const double limit = 5e-7 * fabs((double)want[c]) + 1e-35;
                if (!(fabs((double)y[c] - (double)want[c]) <= limit))
                    fail_msg("%s: element %zu of %zu, gate %.9g: expected %.9g, got %.9g, tolerance %.3g", k->name, c,
                             n, (double)g[c], (double)want[c], (double)y[c], limit);
            }
            k->fn.glu(g, u, g, n); /* y may be gate */
            assert_memory_equal(g, y, n * sizeof *g);
            hr_free(g), hr_free(u), hr_free(y), hr_free(want);
        }
        float edge[4] = {-INFINITY, INFINITY, NAN, -200}, one[4] = {1, 1, 1, 1}, y[4];
        k->fn.glu(edge, one, y, 4);
        assert_true(isinf(y[1]) && isnan(y[2]) && y[3] <= 0 && y[3] > -1e-30f);
    }
}

static void look_up(void **state) {
    (void)state;
    enum { ROWS = 5, COLS = 64 };
    float *x = fix_floats(ROWS * COLS, 1), want[COLS], got[COLS];
    uint8_t data[ROWS * COLS * 4];
    uint16_t scales[ROWS * COLS / 32];
    static const hr_dtype types[] = {HR_F32, HR_F16, HR_BF16, HR_I8G32, HR_I4G32};
    for (int t = 0; t < 5; t++) {
        hr_mat m = {types[t], ROWS, COLS, data, hr_row_scales(types[t], COLS) ? scales : NULL, HR_ORDER_ROWS};
        for (size_t r = 0; r < ROWS; r++)
            assert_int_equal(hr_quantize_row(types[t], x + r * COLS, COLS, data + r * hr_row_bytes(types[t], COLS),
                                             scales + r * hr_row_scales(types[t], COLS)),
                             HR_OK);
        const hr_kernel *k;
        for (size_t i = 0; (k = fix_kernel(HR_FAM_EMBED, i)); i++) {
            k->fn.embed(&m, 3, got);
            hr_mat_row_f32(&m, 3, want);
            assert_memory_equal(got, want, sizeof got);
            /* half a step of the coarsest type: 1/7 of the largest value */
            hr_assert_near(got, x + 3 * COLS, COLS, 0.08, k->name);
        }
    }
    hr_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rms_norm), cmocka_unit_test(rope),
                                       cmocka_unit_test(gated_activation), cmocka_unit_test(look_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
