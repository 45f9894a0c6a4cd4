/* Panels with tokens as floats, AVX2 and FMA: one column of 16 rows is two vectors, times a broadcast value of each
 * token. f32, f16 and bf16 weights are multiplied as they lie when few tokens pass by; else, and quantized weights always, a
 * piece of columns is converted to floats first. Every sum runs over the columns in order, whatever the tile. */
#include "kernels/cpu/panel_avx2.h"
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* PIECE: columns whose floats (16 KB) stay in the first-level cache. */
enum { TILE = 6, PIECE = 256, BLOCK = 96, AHEAD = 4096 };

/* Columns of panels to multiply: those of the next panel lie `stride` bytes on. */
typedef struct piece {
    const uint8_t *w;
    size_t stride, cols, ahead;
    const float *x; /* the tile's first token at the piece's first column */
    size_t ldx;
} piece;

/* Eight rows of column c + j, c even. */
INLINE __m256 column(hr_dtype type, const uint8_t *w, size_t c, int j, int half) {
    const uint8_t *line = w + c * (type == HR_F32 ? 64 : 32);
    if (type == HR_F32) return _mm256_load_ps((const float *)(const void *)(line + 64 * j + 32 * half));
    if (type == HR_F16)
        return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)(line + 32 * j + 16 * half)));
    const __m256i pair = _mm256_load_si256((const __m256i *)(const void *)(line + 32 * half));
    return _mm256_castsi256_ps(j ? _mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000u))
                                 : _mm256_slli_epi32(pair, 16));
}

/* f [panels][width][16] += ... of `panels` panels side by side: with few tokens one panel has too few sums to hide the
 * latency of FMA. */
INLINE void tile(hr_dtype type, int panels, int width, const piece *p, float *f) {
    __m256 acc[4][TILE][2];
#pragma GCC unroll 4
    for (int b = 0; b < panels; b++)
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            acc[b][t][0] = _mm256_loadu_ps(f + 16 * (b * width + t));
            acc[b][t][1] = _mm256_loadu_ps(f + 16 * (b * width + t) + 8);
        }
    for (size_t c = 0; c < p->cols; c += 2) {
#pragma GCC unroll 4
        for (int b = 0; b < panels; b++) {
            const char *next = (const char *)p->w + (size_t)b * p->stride + c * (type == HR_F32 ? 64 : 32) + p->ahead;
            _mm_prefetch(next, _MM_HINT_T0);
            if (type == HR_F32) _mm_prefetch(next + 64, _MM_HINT_T0);
        }
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++)
#pragma GCC unroll 4
            for (int b = 0; b < panels; b++) {
                const uint8_t *w = p->w + (size_t)b * p->stride;
                const __m256 w0 = column(type, w, c, j, 0), w1 = column(type, w, c, j, 1);
#pragma GCC unroll 6
                for (int t = 0; t < width; t++) {
                    const __m256 v = _mm256_set1_ps(p->x[(size_t)t * p->ldx + c + (size_t)j]);
                    acc[b][t][0] = _mm256_fmadd_ps(w0, v, acc[b][t][0]);
                    acc[b][t][1] = _mm256_fmadd_ps(w1, v, acc[b][t][1]);
                }
            }
    }
#pragma GCC unroll 4
    for (int b = 0; b < panels; b++)
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            _mm256_storeu_ps(f + 16 * (b * width + t), acc[b][t][0]);
            _mm256_storeu_ps(f + 16 * (b * width + t) + 8, acc[b][t][1]);
        }
}

typedef void tile_fn(const piece *p, float *f);
/* clang-format off */
#define COPY(type, panels, width) static void tile_##type##_##panels##_##width(const piece *p, float *f) \
    { tile(HR_##type, panels, width, p, f); }
#define COPIES(type) COPY(type, 1, 1) COPY(type, 1, 2) COPY(type, 1, 3) COPY(type, 1, 4) COPY(type, 1, 5) COPY(type, 1, 6) \
    COPY(type, 4, 1) COPY(type, 2, 2) COPY(type, 2, 3)
#define NAMES(type) {tile_##type##_1_1, tile_##type##_1_2, tile_##type##_1_3, tile_##type##_1_4, tile_##type##_1_5, \
                     tile_##type##_1_6}
#define SIDE_NAMES(type) {tile_##type##_4_1, tile_##type##_2_2, tile_##type##_2_3}
COPIES(F32) COPIES(F16) COPIES(BF16)
/* Indexed by hr_dtype and tokens less 1: one panel; and for 1, 2 and 3 tokens 4, 2 and 2 panels. */
static tile_fn *const tiles[3][TILE] = {[HR_F32] = NAMES(F32), [HR_F16] = NAMES(F16), [HR_BF16] = NAMES(BF16)};
static tile_fn *const side_tiles[3][3] = {[HR_F32] = SIDE_NAMES(F32), [HR_F16] = SIDE_NAMES(F16), [HR_BF16] = SIDE_NAMES(BF16)};
/* clang-format on */
static const size_t side_panels[3] = {4, 2, 2};

/* A few tokens, float weights as they lie, whole rows of columns at once. */
static void few_tokens(const hr_matmul *m, size_t panel0, size_t panel1, const float *x, size_t ldx) {
    const hr_mat *w = m->w;
    const size_t n = m->x->n, bytes = hr_panel_bytes(w->dtype, w->cols);
    const size_t side = n <= 3 ? side_panels[n - 1] : 1;
    piece p = {.stride = bytes, .cols = hr_panel_cols(w->dtype, w->cols), .ahead = AHEAD, .x = x, .ldx = ldx};
    float sums[4 * TILE * 16];
    for (size_t panel = panel0; panel < panel1;) {
        const size_t here = panel1 - panel >= side ? side : 1;
        memset(sums, 0, here * n * 16 * sizeof *sums);
        p.w = hr_panel_data(w, panel);
        if (here > 1)
            side_tiles[w->dtype][n - 1](&p, sums);
        else
            tiles[w->dtype][n - 1](&p, sums);
        for (size_t b = 0; b < here; b++) hr_panel_store_avx2(m, panel + b, 0, n, sums + b * n * 16);
        panel += here;
    }
}

/* n tokens from t0 on, x [n][ldx], piece by piece. room: floats of a piece. */
static void many_tokens(const hr_matmul *m, size_t panel, size_t t0, size_t n, const float *x, size_t ldx, float *room,
                        float *sums) {
    const hr_mat *w = m->w;
    const size_t k = hr_panel_cols(w->dtype, w->cols);
    const bool in_place = w->dtype == HR_F32;
    memset(sums, 0, n * 16 * sizeof *sums);
    for (size_t c = 0; c < k; c += PIECE) {
        piece p = {.cols = k - c < PIECE ? k - c : PIECE, .ldx = ldx};
        p.w = in_place ? hr_panel_data(w, panel) + 64 * c : (const uint8_t *)room;
        if (!in_place) hr_panel_piece_f32_avx2(w, panel, c, p.cols, room);
        p.ahead = in_place ? 64 * PIECE : 0;
        for (size_t t = 0; t < n; p.ahead = 0) {
            const size_t width = hr_tile_width(n - t, TILE);
            p.x = x + t * ldx + c;
            tiles[HR_F32][width - 1](&p, sums + 16 * t);
            t += width;
        }
    }
    hr_panel_store_avx2(m, panel, t0, n, sums);
}

void hr_panel_float_avx2(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    const bool in_place = m->w->dtype == HR_F32 || m->w->dtype == HR_F16 || m->w->dtype == HR_BF16;
    float *room = scratch, *sums = room + 16 * PIECE, *expanded = sums + 16 * BLOCK;
    const size_t block = hr_token_block(x->ld * sizeof *expanded, BLOCK);
    for (size_t t = 0; t < x->n; t += block) {
        const size_t n = x->n - t < block ? x->n - t : block;
        const float *floats = x->type == HR_ACT_F32 ? x->f32 + t * x->ld : expanded;
        if (x->type != HR_ACT_F32) hr_acts_expand_avx2(x, t, n, expanded);
        const size_t panel0 = row0 / HR_PANEL, panel1 = hr_panel_count(row1);
        if (in_place && x->n <= TILE) {
            few_tokens(m, panel0, panel1, floats, x->ld);
            return;
        }
        for (size_t panel = panel0; panel < panel1; panel++) many_tokens(m, panel, t, n, floats, x->ld, room, sums);
    }
}
