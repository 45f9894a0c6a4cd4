/* Products of many tokens with weights in panels, AVX-512, floats or bf16.
 *
 * A register tile of 32 rows x 12 tokens (24 sums, two lines of weights, one broadcast a token) runs along the columns:
 * two lines and 48 bytes of activations a step of 12 cycles, which the second-level cache delivers. BLOCK panels of
 * DEPTH dwords stay there while all tiles of tokens pass by; the next block is fetched meanwhile, spread evenly over the
 * tiles, so that reading and arithmetic overlap also with few tokens. Types without arithmetic of their own are
 * converted block by block.
 *
 * What it took, on a Zen 5 core, 512 x 8192 x 2048, share of peak bf16 / f32: columns cut to 256 dwords, so that a block
 * stays in the first-level cache: 71 / 70 % (sums are stored and added to too often); cut to 512: 83 / 80 %; 1024: 91 / 88 %;
 * lines of y fetched at the start of a tile: 97 / 93 %. */
#include "kernels/cpu/panel_float_avx512.h"

enum { TILE = 12, BLOCK = 4, DEPTH = 1024, BURST = 16, STEP_4 = 4 };

/* A block of weights as lines of dwords, `stride` dwords from panel to panel. */
typedef struct block {
    const float *w;
    size_t stride, depth, panels;
    const char *next, *next_end; /* what is still to be fetched for the next block */
    size_t burst;                /* lines of it per BURST steps */
} block;

/* Where the sums of a tile go: rows from the block's first panel on. */
typedef struct sums {
    float *y;
    size_t ldy, rows;
    bool add;
} sums;

HR_INLINE void tile_steps(bool bf16, int panels, int tokens, const float *w, size_t stride, const float *x, size_t ldx,
                          __m512 acc[BLOCK][TILE]) {
#pragma GCC unroll 4
    for (size_t j = 0; j < STEP_4; j++, w += HR_PANEL, x += ldx) {
        __m512 v[BLOCK];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) v[p] = _mm512_load_ps(w + (size_t)p * stride);
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) {
            const __m512 b = _mm512_set1_ps(x[t]);
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++) acc[p][t] = hr_dword_fma(bf16, acc[p][t], v[p], b);
        }
    }
}

/* Panels `first` .. first + panels - 1 of the block. */
HR_INLINE void tile(bool bf16, int panels, int tokens, block *b, size_t first, const float *x, size_t ldx, sums s) {
    const float *w = b->w + first * b->stride;
    float *y = s.y + HR_PANEL * first;
    const size_t rows = s.rows - HR_PANEL * first;
    __m512 acc[BLOCK][TILE];
#pragma GCC unroll 12
    for (int t = 0; t < tokens; t++)
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++) {
            acc[p][t] = _mm512_setzero_ps();
            _mm_prefetch((const char *)(y + (size_t)t * s.ldy + HR_PANEL * p), _MM_HINT_T0);
        }
    for (size_t k = 0; k < b->depth;) {
        const size_t end = k + BURST < b->depth ? k + BURST : b->depth;
        if (b->next < b->next_end)
            for (const char *to = b->next + 64 * b->burst; b->next < to; b->next += 64)
                _mm_prefetch(b->next, _MM_HINT_T1);
        for (; k < end; k += STEP_4)
            tile_steps(bf16, panels, tokens, w + HR_PANEL * k, b->stride, x + ldx * k, ldx, acc);
    }
#pragma GCC unroll 4
    for (int p = 0; p < panels; p++) {
        const __mmask16 mask = hr_mask16(rows > HR_PANEL * (size_t)p ? rows - HR_PANEL * (size_t)p : 0);
        if (!mask) break;
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) {
            float *to = y + (size_t)t * s.ldy + HR_PANEL * p;
            if (s.add) acc[p][t] = _mm512_add_ps(acc[p][t], _mm512_maskz_loadu_ps(mask, to));
            _mm512_mask_storeu_ps(to, mask, acc[p][t]);
        }
    }
}

/* All panels of the block with the tokens of one tile. A single panel is read as often as there would be several. */
HR_INLINE void tiles(bool bf16, int panels, int tokens, block *b, const float *x, size_t ldx, sums s) {
    size_t p = 0;
    for (; p + (size_t)panels <= b->panels; p += (size_t)panels) tile(bf16, panels, tokens, b, p, x, ldx, s);
    for (; p < b->panels; p++) tile(bf16, 1, tokens, b, p, x, ldx, s);
}

/* Panels side by side so that sums fill the registers. */
static size_t side_by_side(size_t tokens) {
    return tokens <= 6 ? 4 : 2;
}

/* clang-format off */
#define CASE(bf16, panels, t) case t: tiles(bf16, panels, t, b, x, ldx, s); break;
#define TILES(name, bf16) \
    static void tiles_##name(size_t tokens, block *b, const float *x, size_t ldx, sums s) { \
        switch (tokens) { \
        CASE(bf16, 4, 1) CASE(bf16, 4, 2) CASE(bf16, 4, 3) CASE(bf16, 4, 4) CASE(bf16, 4, 5) CASE(bf16, 4, 6) \
        CASE(bf16, 2, 7) CASE(bf16, 2, 8) CASE(bf16, 2, 9) CASE(bf16, 2, 10) CASE(bf16, 2, 11) \
        default: tiles(bf16, 2, TILE, b, x, ldx, s); \
        } \
    }
TILES(f32, false)
TILES(bf16, true)
/* clang-format on */

/* Tokens in tiles [dwords][tile], areas of `area` dwords one after another, for y from its first token on. */
typedef struct tokens {
    const float *x;
    size_t area, tile, n;
    float *y;
    bool bf16;
} tokens;

/* Calls of tile() that pass over a full block. */
static size_t calls_of(const tokens *t) {
    size_t calls = t->n / t->tile * (BLOCK / side_by_side(t->tile));
    if (t->n % t->tile) calls += BLOCK / side_by_side(t->n % t->tile);
    return calls;
}

/* Columns k .. k + depth - 1 (dwords) of the panels from `row` on, converted into scratch where the type needs it. */
static block block_of(const hr_matmul *m, size_t row, size_t row1, size_t k, size_t depth, const tokens *t,
                      float *scratch) {
    const hr_mat *w = m->w;
    const size_t per = t->bf16 ? 2 : 1, cols = hr_panel_cols(w->dtype, w->cols), stride = HR_PANEL * cols / per;
    const size_t rows = row1 - row < BLOCK * HR_PANEL ? row1 - row : BLOCK * HR_PANEL;
    block b = {.depth = depth, .panels = hr_panel_count(rows), .stride = HR_PANEL * depth, .w = scratch};
    if (w->dtype != (t->bf16 ? HR_BF16 : HR_F32)) {
        for (size_t p = 0; p < b.panels; p++) {
            float *out = scratch + p * b.stride;
            if (t->bf16)
                hr_panel_bf16_avx512(w, row / HR_PANEL + p, k * per, depth * per, (uint32_t *)(void *)out);
            else
                hr_panel_f32_avx512(w, row / HR_PANEL + p, k, depth, out);
        }
        return b;
    }
    b.stride = stride;
    b.w = (const float *)(const void *)hr_panel_data(w, row / HR_PANEL) + HR_PANEL * k;
    if (row + BLOCK * HR_PANEL < row1) {
        const size_t steps = calls_of(t) * depth;
        b.next = (const char *)(b.w + BLOCK * stride);
        b.next_end = b.next + (size_t)BLOCK * 64 * depth;
        b.burst = (BLOCK * depth * BURST + steps - 1) / steps;
    }
    return b;
}

static void gemm(const hr_matmul *m, size_t row0, size_t row1, const tokens *t, float *scratch) {
    const size_t k1 = hr_panel_cols(m->w->dtype, m->w->cols) / (t->bf16 ? 2 : 1);
    for (size_t k = 0; k < k1; k += DEPTH)
        for (size_t row = row0; row < row1; row += BLOCK * HR_PANEL) {
            const size_t depth = k1 - k < DEPTH ? k1 - k : DEPTH;
            block b = block_of(m, row, row1, k, depth, t, scratch);
            for (size_t i = 0; i < t->n; i += t->tile) {
                const size_t have = t->n - i < t->tile ? t->n - i : t->tile;
                const float *x = t->x + i / t->tile * t->area + k * t->tile;
                const sums s = {t->y + i * m->ldy + row, m->ldy, row1 - row, m->add || k};
                (t->bf16 ? tiles_bf16 : tiles_f32)(have, &b, x, t->tile, s);
            }
        }
}

static bool is_int8(const hr_acts *a) {
    return a->type == HR_ACT_INT8 || a->type == HR_ACT_INT8_ROW;
}

/* Tiles made in the thread's own scratch, a block of tokens at a time: of int8 activations, as floats q * d, and of
 * others that came without tiles. */
static void of_rows(const hr_matmul *m, size_t row0, size_t row1, bool bf16, float *weights) {
    const hr_acts *a = m->x;
    const size_t size = bf16 ? 2 : 4, ld = hr_align_up(a->k, 64), area = TILE * ld * size / 4;
    float *expanded = weights + BLOCK * HR_PANEL * DEPTH, *x = expanded + TILE * ld;
    for (size_t t = 0; t < a->n; t += HR_TOKEN_BLOCK) {
        const size_t n = a->n - t < HR_TOKEN_BLOCK ? a->n - t : HR_TOKEN_BLOCK;
        for (size_t i = 0; i < n; i += TILE) {
            const size_t have = n - i < TILE ? n - i : TILE;
            const size_t at = (t + i) * a->ld;
            const void *rows = is_int8(a) ? (const void *)expanded : bf16 ? (const void *)(a->bf16 + at) : a->f32 + at;
            if (is_int8(a)) hr_acts_expand_avx512(a, t + i, have, expanded, ld);
            hr_acts_tiles_avx512(rows, size * (is_int8(a) ? ld : a->ld), size * ld, have, TILE, x + i / TILE * area);
        }
        gemm(m, row0, row1, &(tokens){x, area, TILE, n, m->y + t * m->ldy, bf16}, weights);
    }
}

static void products(const hr_matmul *m, size_t row0, size_t row1, bool bf16, float *scratch) {
    const hr_acts *a = m->x;
    if (!a->tile || is_int8(a)) {
        of_rows(m, row0, row1, bf16, scratch);
        return;
    }
    const size_t area = hr_acts_tile_bytes(a->type, a->tile, a->k) / 4;
    gemm(m, row0, row1, &(tokens){a->tiles, area, a->tile, a->n, m->y, bf16}, scratch);
}

void hr_panel_gemm_f32_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    products(m, row0, row1, false, scratch);
}
void hr_panel_gemm_bf16_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    products(m, row0, row1, true, scratch);
}
