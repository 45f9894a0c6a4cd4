/* Products of some tens of tokens with bf16 weights in panels, AVX-512, where reading the weights takes about as long as
 * the arithmetic: neither may wait for the other.
 *
 * SIDES panels side by side are cut into blocks of DEPTH lines, which stay in the first-level cache while all tiles of
 * tokens pass by; every sum goes on in memory of the thread. Meanwhile the next block is fetched, evenly over the first
 * passes, so that memory is busy all the time; past the last panel lie those of the thread's next piece.
 *
 * Two Zen 5 cores, 8192 x 2048, out of memory that plainly read gives 77 to 80 GB/s, GFLOP/s (beside it those of
 * panel_gemm_avx512.c, whose blocks of 256 KB lie in the second-level cache): 12 tokens 840 (540), 16: 885 (645), 24: 900
 * (820), 32: 910 (860), 48: the same. DEPTH 64: 830 for 16; fetched two blocks ahead, or also into the second-level cache
 * from farther: no faster. One panel and 16 tokens, straight on: 770, as an activation is loaded for every product. With
 * up to 8 tokens GEMV is better where memory is slow. */
#include "kernels/cpu/panel_float_avx512.h"

enum { SIDES = 2, DEPTH = 128, STEP_4 = 4, MOST = 12 };

/* A block: line k of panel p at w + p * stride + 64 * k. */
typedef struct block {
    const uint8_t *w;
    size_t stride, lines;
    const uint8_t *next; /* what is fetched: line k of panel p at next + p * stride + 64 * k */
    size_t fetch;        /* panels of it in this pass */
} block;

/* The block with the tokens of one tile: dword k of token t at x + k * ldx + t. acc: [sides][tokens][16], continued. */
HR_INLINE void pass(int sides, int tokens, const block *b, const float *x, size_t ldx, float *acc) {
    __m512 sum[SIDES][MOST];
#pragma GCC unroll 2
    for (int p = 0; p < sides; p++)
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) sum[p][t] = _mm512_load_ps(acc + HR_PANEL * (p * tokens + t));
    const uint8_t *w = b->w, *next = b->next;
    for (size_t k = 0; k < b->lines; k += STEP_4, next += 64 * STEP_4) {
        for (size_t p = 0; p < b->fetch; p++)
#pragma GCC unroll 4
            for (size_t j = 0; j < STEP_4; j++) _mm_prefetch((const char *)next + p * b->stride + 64 * j, _MM_HINT_T0);
#pragma GCC unroll 4
        for (size_t j = 0; j < STEP_4; j++, w += 64, x += ldx) {
            __m512 v[SIDES];
#pragma GCC unroll 2
            for (int p = 0; p < sides; p++) v[p] = _mm512_load_ps(w + (size_t)p * b->stride);
#pragma GCC unroll 12
            for (int t = 0; t < tokens; t++) {
                const __m512 a = _mm512_set1_ps(x[t]);
#pragma GCC unroll 2
                for (int p = 0; p < sides; p++) sum[p][t] = hr_dword_fma(true, sum[p][t], v[p], a);
            }
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < sides; p++)
#pragma GCC unroll 12
        for (int t = 0; t < tokens; t++) _mm512_store_ps(acc + HR_PANEL * (p * tokens + t), sum[p][t]);
}

/* clang-format off */
#define CASE(t) case t: if (sides == 1) pass(1, t, b, x, ldx, acc); else pass(SIDES, t, b, x, ldx, acc); break;
static void pass_of(size_t sides, size_t tokens, const block *b, const float *x, size_t ldx, float *acc) {
    switch (tokens) {
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11)
    default: CASE(12)
    }
}
/* clang-format on */

/* Sums of all tokens, tile by tile, to y. */
static void store(const hr_matmul *m, size_t row, size_t row1, size_t sides, const float *acc) {
    const size_t n = m->x->n, tile = m->x->tile;
    for (size_t i = 0; i < n; i += tile) {
        const size_t have = n - i < tile ? n - i : tile;
        for (size_t p = 0; p < sides; p++) {
            const size_t from = row + HR_PANEL * p;
            const __mmask16 mask = hr_mask16(row1 - from);
            for (size_t t = 0; t < have; t++, acc += HR_PANEL) {
                float *y = m->y + (i + t) * m->ldy + from;
                __m512 v = _mm512_load_ps(acc);
                if (m->add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, y));
                _mm512_mask_storeu_ps(y, mask, v);
            }
        }
    }
}

/* Panels of rows row .. row + 16 sides - 1. */
static void panels(const hr_matmul *m, size_t row, size_t sides, float *acc) {
    const hr_acts *a = m->x;
    const size_t bytes = hr_panel_bytes(HR_BF16, m->w->cols), all = bytes / 64, tile = a->tile;
    const size_t area = hr_acts_tile_bytes(HR_ACT_BF16, a->tile, a->k) / 4, passes = (a->n + tile - 1) / tile;
    const size_t blocks = (all + DEPTH - 1) / DEPTH, depth = (all / STEP_4 + blocks - 1) / blocks * STEP_4;
    const uint8_t *w = hr_panel_data(m->w, row / HR_PANEL);
    memset(acc, 0, sides * a->n * HR_PANEL * sizeof *acc);
    for (size_t k = 0; k < all; k += depth) {
        const uint8_t *next = k + depth < all ? w + 64 * (k + depth) : w + sides * bytes;
        block b = {w + 64 * k, bytes, all - k < depth ? all - k : depth, next, passes > 1 ? 1 : SIDES};
        for (size_t q = 0; q < passes; q++) {
            const size_t i = q * tile, have = a->n - i < tile ? a->n - i : tile;
            const float *x = (const float *)a->tiles + q * area + k * tile;
            pass_of(sides, have, &b, x, tile, acc + i * sides * HR_PANEL);
            if (q + 1 < SIDES)
                b.next += bytes;
            else
                b.fetch = 0;
        }
    }
}

void hr_panel_stream_bf16_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    if (!m->x->tile) { /* activations without tiles */
        hr_panel_gemm_bf16_avx512(m, row0, row1, scratch);
        return;
    }
    for (size_t row = row0; row < row1;) {
        const size_t sides = row + HR_PANEL < row1 ? SIDES : 1;
        panels(m, row, sides, scratch);
        store(m, row, row1, sides, scratch);
        row += sides * HR_PANEL;
    }
}
