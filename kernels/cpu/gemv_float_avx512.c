/* Products with few tokens in floats, AVX-512: four rows at a time, columns in the lanes, one accumulator a row and
 * token. F32 with f32 and BF16 with bf16 activations are read in place; every other type is converted four rows at a
 * time into scratch. */
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/matmul_avx512.h"

enum { ROWS = 4, TOKENS = 6 };

/* Four rows of weights, `stride` bytes apart, and the tokens of one tile, ldx elements apart. */
typedef struct tile {
    const uint8_t *w;
    size_t stride, k, ahead; /* ahead: bytes from a row to what is prefetched for it */
    const void *x;
    size_t ldx;
} tile;

/* y [tokens][ldy]: `rows` sums a token. */
HR_INLINE void tile_store(__m512 acc[ROWS][TOKENS], int rows, int tokens, float *y, size_t ldy, bool add) {
    const __mmask8 m = (__mmask8)((1u << rows) - 1);
#pragma GCC unroll 6
    for (int t = 0; t < tokens; t++) {
        __m128 sum = hr_sum4_512(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
        if (add) sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(m, y + (size_t)t * ldy));
        _mm_mask_storeu_ps(y + (size_t)t * ldy, m, sum);
    }
}

HR_INLINE void step_f32(__m512 acc[ROWS][TOKENS], const tile *a, size_t c, __mmask16 m, int rows, int tokens) {
    __m512 w[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const uint8_t *p = a->w + (size_t)r * a->stride + 4 * c;
        _mm_prefetch((const char *)p + a->ahead, _MM_HINT_T1);
        w[r] = _mm512_maskz_loadu_ps(m, p);
    }
#pragma GCC unroll 6
    for (int t = 0; t < tokens; t++) {
        const __m512 v = _mm512_maskz_loadu_ps(m, (const float *)a->x + (size_t)t * a->ldx + c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[r][t] = _mm512_fmadd_ps(w[r], v, acc[r][t]);
    }
}

HR_INLINE void step_bf16(__m512 acc[ROWS][TOKENS], const tile *a, size_t c, __mmask32 m, int rows, int tokens) {
    __m512bh w[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const uint8_t *p = a->w + (size_t)r * a->stride + 2 * c;
        _mm_prefetch((const char *)p + a->ahead, _MM_HINT_T1);
        w[r] = (__m512bh)_mm512_maskz_loadu_epi16(m, p);
    }
#pragma GCC unroll 6
    for (int t = 0; t < tokens; t++) { /* x is zero past k, up to a multiple of 64 */
        const __m512bh v = (__m512bh)_mm512_loadu_si512((const uint16_t *)a->x + (size_t)t * a->ldx + c);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) acc[r][t] = _mm512_dpbf16_ps(acc[r][t], w[r], v);
    }
}

HR_INLINE void tile_zero(__m512 acc[ROWS][TOKENS]) {
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 6
        for (int t = 0; t < TOKENS; t++) acc[r][t] = _mm512_setzero_ps();
}

HR_INLINE void tile_f32(const tile *a, int rows, int tokens, float *y, size_t ldy, bool add) {
    __m512 acc[ROWS][TOKENS];
    tile_zero(acc);
    size_t c = 0;
    for (; c + 16 <= a->k; c += 16) step_f32(acc, a, c, 0xffff, rows, tokens);
    if (c < a->k) step_f32(acc, a, c, hr_mask16(a->k - c), rows, tokens);
    tile_store(acc, rows, tokens, y, ldy, add);
}

HR_INLINE void tile_bf16(const tile *a, int rows, int tokens, float *y, size_t ldy, bool add) {
    __m512 acc[ROWS][TOKENS];
    tile_zero(acc);
    size_t c = 0;
    for (; c + 32 <= a->k; c += 32) step_bf16(acc, a, c, 0xffffffff, rows, tokens);
    if (c < a->k) step_bf16(acc, a, c, hr_mask32(a->k - c), rows, tokens);
    tile_store(acc, rows, tokens, y, ldy, add);
}

/* One copy of the tile for each number of rows (1 or 4) and tokens (1 to 6). */
/* clang-format off */
#define CASES(name, rows, y, ldy, add) \
    switch (tokens) { \
    case 1: tile_##name(a, rows, 1, y, ldy, add); break; \
    case 2: tile_##name(a, rows, 2, y, ldy, add); break; \
    case 3: tile_##name(a, rows, 3, y, ldy, add); break; \
    case 4: tile_##name(a, rows, 4, y, ldy, add); break; \
    case 5: tile_##name(a, rows, 5, y, ldy, add); break; \
    default: tile_##name(a, rows, 6, y, ldy, add); \
    }
static void run_f32(const tile *a, bool four, size_t tokens, float *y, size_t ldy, bool add) {
    if (four) CASES(f32, 4, y, ldy, add)
    else CASES(f32, 1, y, ldy, add)
}
static void run_bf16(const tile *a, bool four, size_t tokens, float *y, size_t ldy, bool add) {
    if (four) CASES(bf16, 4, y, ldy, add)
    else CASES(bf16, 1, y, ldy, add)
}
/* clang-format on */

typedef void run_fn(const tile *a, bool four, size_t tokens, float *y, size_t ldy, bool add);

/* Tokens t of the next tile: an even share of what is left, so that 8 tokens are 4 + 4 and not 6 + 2. */
static size_t next_tokens(size_t left) {
    const size_t tiles = (left + TOKENS - 1) / TOKENS;
    return (left + tiles - 1) / tiles;
}

/* x: the tokens, elements of `size` bytes, ldx apart. in_place: the weights are of that type already. */
static void gemv(const hr_matmul *m, size_t row0, size_t row1, run_fn *run, const void *x, size_t ldx, size_t size,
                 bool in_place, void *scratch) {
    const hr_mat *w = m->w;
    const size_t k = w->cols, bytes = hr_row_bytes(w->dtype, k), stride = in_place ? bytes : hr_padded_cols(k) * size;
    for (size_t row = row0; row < row1;) {
        const bool four = row1 - row >= ROWS;
        const size_t rows = four ? ROWS : 1;
        tile a = {.w = hr_mat_row(w, row), .stride = stride, .k = k, .ahead = in_place ? rows * bytes : 0, .ldx = ldx};
        if (!in_place) {
            a.w = scratch;
            for (size_t r = 0; r < rows; r++) {
                uint8_t *out = (uint8_t *)scratch + r * stride;
                if (size == 4)
                    hr_row_f32_avx512(w, row + r, 0, k, (float *)out);
                else
                    hr_row_bf16_avx512(w, row + r, 0, k, (uint16_t *)out);
            }
        }
        for (size_t t = 0; t < m->x->n;) {
            const size_t tokens = next_tokens(m->x->n - t);
            a.x = (const uint8_t *)x + t * ldx * size;
            run(&a, four, tokens, m->y + t * m->ldy + row, m->ldy, m->add);
            t += tokens;
            a.ahead = 0; /* the next rows are on their way */
        }
        row += rows;
    }
}

void hr_gemv_f32_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    gemv(m, row0, row1, run_f32, m->x->f32, m->x->ld, 4, m->w->dtype == HR_F32, scratch);
}

void hr_gemv_bf16_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    gemv(m, row0, row1, run_bf16, m->x->bf16, m->x->ld, 2, m->w->dtype == HR_BF16, scratch);
}

/* Float weights with int8 activations: the activations are made floats, q * d. */
void hr_gemv_int8_float_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const size_t ld = hr_align_up(m->x->k, 32);
    float *x = scratch;
    hr_acts_expand_avx512(m->x, 0, m->x->n, x, ld);
    gemv(m, row0, row1, run_f32, x, ld, 4, m->w->dtype == HR_F32, x + hr_align_up(m->x->n * ld, 64));
}
