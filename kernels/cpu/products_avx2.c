/* Matrix products with AVX2: rows of weights as floats or as signed bytes (in place where they are that already, else
 * converted a few at a time), columns in the lanes, one accumulator a row and token. Tokens go in blocks whose
 * activations stay in the second-level cache while the rows pass by. */
#include "kernels/cpu/matmul_avx2.h"
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = 4, TOKENS = 3, BLOCK = 48 };

INLINE float sum_of(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static void put(const hr_matmul *m, size_t t, size_t row, float v) {
    float *y = m->y + t * m->ldy + row;
    *y = m->add ? *y + v : v;
}

/* ---- floats ---- */

/* sums[token][row] of four rows and up to three tokens. The rows may lie at any address. */
INLINE void tile_f32(const uint8_t *const w[ROWS], const float *x, size_t ldx, size_t k, int tokens, size_t ahead,
                     float sums[TOKENS][ROWS]) {
    __m256 acc[TOKENS][ROWS];
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) acc[t][r] = _mm256_setzero_ps();
    size_t c = 0;
    for (; c + 8 <= k; c += 8) {
        __m256 v[TOKENS];
#pragma GCC unroll 4
        for (int t = 0; t < tokens; t++) v[t] = _mm256_loadu_ps(x + (size_t)t * ldx + c);
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            if (ahead) _mm_prefetch((const char *)w[r] + 4 * c + ahead, _MM_HINT_T0);
            const __m256 row = _mm256_loadu_ps((const float *)(const void *)(w[r] + 4 * c));
#pragma GCC unroll 4
            for (int t = 0; t < tokens; t++) acc[t][r] = _mm256_fmadd_ps(row, v[t], acc[t][r]);
        }
    }
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++) {
            float sum = sum_of(acc[t][r]), one;
            for (size_t i = c; i < k; i++) {
                memcpy(&one, w[r] + 4 * i, sizeof one);
                sum += one * x[(size_t)t * ldx + i];
            }
            sums[t][r] = sum;
        }
}

/* Tokens t0 .. t0 + n - 1, whose activations as floats are x [n][ldx]. */
static void products_f32(const hr_matmul *m, size_t row0, size_t row1, const float *x, size_t ldx, size_t t0, size_t n,
                         uint8_t *scratch) {
    const hr_mat *w = m->w;
    const bool in_place = w->dtype == HR_F32;
    const size_t k = w->cols, stride = hr_padded_cols(k) * 4;
    for (size_t row = row0; row < row1; row += ROWS) {
        const size_t rows = row1 - row < ROWS ? row1 - row : ROWS;
        const uint8_t *src[ROWS];
        for (size_t r = 0; r < ROWS; r++) { /* rows past the last repeat it */
            const size_t from = r < rows ? r : rows - 1;
            src[r] = in_place ? hr_mat_row(w, row + from) : scratch + from * stride;
            if (!in_place && r < rows)
                hr_row_f32_avx2(w, row + r, (float *)(scratch + r * stride), scratch + ROWS * stride);
        }
        const size_t ahead = in_place && rows == ROWS ? ROWS * 4 * k : 0;
        for (size_t t = 0; t < n;) {
            const size_t left = n - t, tokens = left == 4 ? 2 : left < TOKENS ? left : TOKENS;
            float sums[TOKENS][ROWS];
            const float *xt = x + t * ldx;
            if (tokens == 3)
                tile_f32(src, xt, ldx, k, 3, t ? 0 : ahead, sums);
            else if (tokens == 2)
                tile_f32(src, xt, ldx, k, 2, t ? 0 : ahead, sums);
            else
                tile_f32(src, xt, ldx, k, 1, t ? 0 : ahead, sums);
            for (size_t i = 0; i < tokens; i++)
                for (size_t r = 0; r < rows; r++) put(m, t0 + t + i, row + r, sums[i][r]);
            t += tokens;
        }
    }
}

void hr_acts_expand_avx2(const hr_acts *x, size_t t0, size_t n, float *out) {
    for (size_t t = 0; t < n; t++)
        for (size_t c = 0; c < x->ld; c += 8) {
            const size_t i = (t0 + t) * x->ld + c;
            __m256 v;
            if (x->type == HR_ACT_BF16) {
                const __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(x->bf16 + i)));
                v = _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
            } else {
                const __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(x->q + i)));
                v = _mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(x->d[i / 32]));
            }
            _mm256_storeu_ps(out + t * x->ld + c, v);
        }
}

void hr_matmul_f32_avx2(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    for (size_t t = 0; t < x->n; t += BLOCK) {
        const size_t n = x->n - t < BLOCK ? x->n - t : BLOCK;
        if (x->type == HR_ACT_F32) {
            products_f32(m, row0, row1, x->f32 + t * x->ld, x->ld, t, n, scratch);
            continue;
        }
        float *expanded = scratch;
        hr_acts_expand_avx2(x, t, n, expanded);
        products_f32(m, row0, row1, expanded, x->ld, t, n, (uint8_t *)(expanded + n * x->ld));
    }
}

/* ---- int8 ---- */

/* |w| * (x with the sign of w): pairs of at most 128 * 127 * 2 stay below the saturation of maddubs. */
INLINE __m256 dot_group(__m256i w, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* sums[token * 2 + row] of two rows and up to two tokens; q and d of the tokens ld and ld / 32 apart. */
INLINE void tile_int8(const hr_int_row w[2], const int8_t *q, const float *d, size_t ld, size_t groups, int tokens,
                      float *sums) {
    __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (size_t g = 0; g < groups; g++) {
        __m256i v[2];
        __m256 s[2];
#pragma GCC unroll 2
        for (int r = 0; r < 2; r++) {
            v[r] = _mm256_loadu_si256((const __m256i *)(w[r].q + 32 * g));
            s[r] = _mm256_set_m128(_mm_set1_ps(w[r].scale[2 * g + 1]), _mm_set1_ps(w[r].scale[2 * g]));
        }
#pragma GCC unroll 2
        for (int t = 0; t < tokens; t++) {
            const __m256i x = _mm256_loadu_si256((const __m256i *)(q + (size_t)t * ld + 32 * g));
            const __m256 dx = _mm256_set1_ps(d[(size_t)t * (ld / 32) + g]);
#pragma GCC unroll 2
            for (int r = 0; r < 2; r++)
                acc[2 * t + r] = _mm256_fmadd_ps(dot_group(v[r], x), _mm256_mul_ps(s[r], dx), acc[2 * t + r]);
        }
    }
    for (int i = 0; i < 2 * tokens; i++) sums[i] = sum_of(acc[i]);
}

/* What the minima of a row add: sum over groups of min * d * sum of q. */
static float minima(const float *min, const float *d, const int32_t *sum, size_t groups) {
    float total = 0;
    for (size_t g = 0; g < groups; g++) total += min[g] * (d[g] * (float)sum[g]);
    return total;
}

void hr_matmul_int8_avx2(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    const size_t groups = m->w->cols / 32, bytes = hr_int_row_bytes(m->w->cols);
    for (size_t t0 = 0; t0 < x->n; t0 += 4 * BLOCK)
        for (size_t row = row0; row < row1; row += 2) {
            const size_t rows = row1 - row < 2 ? 1 : 2, end = x->n - t0 < 4 * BLOCK ? x->n : t0 + 4 * BLOCK;
            hr_int_row w[2] = {hr_int_row_view(scratch, m->w->cols),
                               hr_int_row_view((uint8_t *)scratch + (rows - 1) * bytes, m->w->cols)};
            for (size_t r = 0; r < rows; r++) hr_row_int8_avx2(m->w, row + r, &w[r]);
            for (size_t t = t0; t < end;) {
                const size_t tokens = end - t < 2 ? 1 : 2, g = t * (x->ld / 32);
                float sums[4];
                if (tokens == 2)
                    tile_int8(w, x->q + t * x->ld, x->d + g, x->ld, groups, 2, sums);
                else
                    tile_int8(w, x->q + t * x->ld, x->d + g, x->ld, groups, 1, sums);
                for (size_t i = 0; i < tokens; i++)
                    for (size_t r = 0; r < rows; r++) {
                        float v = sums[2 * i + r];
                        const size_t at = g + i * (x->ld / 32);
                        if (m->w->dtype == HR_Q4_1) v += minima(w[r].min, x->d + at, x->sum + at, groups);
                        put(m, t + i, row + r, v);
                    }
                t += tokens;
            }
        }
}
