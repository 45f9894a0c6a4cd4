/* matmul_avx512.h - the functions that the AVX-512 rows of the table name, and the conversions that they share. */
#ifndef HR_MATMUL_AVX512_H
#define HR_MATMUL_AVX512_H

#include "kernels/cpu/matmul_common.h"

hr_acts_fn hr_acts_f32_avx512, hr_acts_bf16_avx512, hr_acts_int8_avx512, hr_acts_int8_row_avx512;

/* Few tokens: weights in the order of the file. */
hr_matmul_fn hr_gemv_f32_avx512, hr_gemv_bf16_avx512, hr_gemv_int8_avx512, hr_gemv_q6_k_avx512,
    hr_gemv_int8_float_avx512;
/* Many tokens: weights packed into panels. */
hr_matmul_fn hr_gemm_f32_avx512, hr_gemm_bf16_avx512, hr_gemm_int8_avx512, hr_gemm_int8_float_avx512;

/* Weights c0 .. c0 + n - 1 of a row as floats or bf16; c0 is a multiple of 256 (and of the block). */
void hr_row_f32_avx512(const hr_mat *m, size_t row, size_t c0, size_t n, float *out);
void hr_row_bf16_avx512(const hr_mat *m, size_t row, size_t c0, size_t n, uint16_t *out);

/* Tokens side by side: rows of `bytes` bytes (a multiple of 64), `stride` apart, into areas of [bytes / 4][tile] dwords,
 * tile <= 16, the last filled up with zeros. */
void hr_acts_tiles_avx512(const void *rows, size_t stride, size_t bytes, size_t n, size_t tile, void *out);

/* out [n][ldo] = q * d of tokens t0 .. t0 + n - 1 as floats, zero from k to ldo; ldo is a multiple of 32, at most ld. */
void hr_acts_expand_avx512(const hr_acts *x, size_t t0, size_t n, float *out, size_t ldo);

#endif
