/* panel_float_avx512.h - products of weights in panels in floats or bf16, AVX-512: what the files of the family share.
 * Include it from *_avx512.c files only.
 *
 * Both types are seen as dwords: a float, or a pair of bf16. A line of a panel holds one dword of 16 rows, an activation
 * dword is broadcast to all of them, and every sum runs over the dwords in order in one accumulator. A result therefore
 * has the same bits whatever the tile, the blocking or the number of tokens. */
#ifndef HR_PANEL_FLOAT_AVX512_H
#define HR_PANEL_FLOAT_AVX512_H

#include "kernels/base/panel.h"
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/matmul_avx512.h"

hr_matmul_fn hr_panel_gemv_pairs_avx512, hr_panel_gemv_bf16_avx512, hr_panel_gemv_f32_avx512,
    hr_panel_gemv_int8_float_avx512;
hr_matmul_fn hr_panel_gemm_f32_avx512, hr_panel_gemm_bf16_avx512, hr_panel_stream_bf16_avx512;

/* Columns c0 .. c0 + n - 1 of a panel of any type as floats [n][16], or as pairs of bf16 [n / 2][16][2]. c0 is a
 * multiple of 256, n of 8, both within the panel's columns. */
void hr_panel_f32_avx512(const hr_mat *m, size_t panel, size_t c0, size_t n, float *out);
void hr_panel_bf16_avx512(const hr_mat *m, size_t panel, size_t c0, size_t n, uint32_t *out);

/* acc + w * v, dword by dword. */
HR_INLINE __m512 hr_dword_fma(bool bf16, __m512 acc, __m512 w, __m512 v) {
    return bf16 ? _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)v) : _mm512_fmadd_ps(w, v, acc);
}

#endif
