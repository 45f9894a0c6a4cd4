/* panel_avx2.h - products with weights in panels for AVX2: what its files share. */
#ifndef HR_PANEL_AVX2_H
#define HR_PANEL_AVX2_H

#include "kernels/base/panel.h"
#include "kernels/cpu/matmul_avx2.h"

hr_matmul_fn hr_panel_float_avx2, hr_panel_int8_avx2, hr_panel_int8_avxvnni;

/* Columns c0 .. c0 + n - 1 of a panel as floats [n][16]; c0 is a multiple of 256, n of 8. */
void hr_panel_piece_f32_avx2(const hr_mat *w, size_t panel, size_t c0, size_t n, float *out);
/* The same of Q6_K as bytes q + 32 [n / 4][16][4], and their scales [n / 16][16]. */
void hr_panel_piece_q6_k_avx2(const hr_mat *w, size_t panel, size_t c0, size_t n, uint8_t *out, float *scales);
/* y of a panel's rows, tokens t0 .. t0 + n - 1, from sums [n][16]. */
void hr_panel_store_avx2(const hr_matmul *m, size_t panel, size_t t0, size_t n, const float *sums);

/* Tokens of the next register tile of at most `most` when `left` are to go: as even as possible. */
static inline size_t hr_tile_width(size_t left, size_t most) {
    const size_t tiles = (left + most - 1) / most;
    return (left + tiles - 1) / tiles;
}

/* Tokens whose activations of `bytes` each stay in the second-level cache while the panels pass by. */
static inline size_t hr_token_block(size_t bytes, size_t most) {
    const size_t fit = ((size_t)512 << 10) / bytes / 12 * 12;
    return fit < 12 ? 12 : fit > most ? most : fit;
}

#endif
