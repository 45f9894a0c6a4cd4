/* panel_int_avx512.h - the functions that the table's rows for quantized weights in panels name. */
#ifndef HR_PANEL_INT_AVX512_H
#define HR_PANEL_INT_AVX512_H

#include "kernels/table.h"

hr_matmul_fn hr_gemv_i8g32_int8_avx512, hr_gemv_i8g32_int8_row_avx512, hr_gemv_i8row_int8_avx512,
    hr_gemv_i8row_int8_row_avx512, hr_gemv_i4g32_int8_avx512, hr_gemv_i4g32_int8_row_avx512, hr_gemv_i4g128_int8_avx512,
    hr_gemv_i4g128_int8_row_avx512, hr_gemv_q4_1_int8_avx512, hr_gemv_q4_1_int8_row_avx512, hr_gemv_q6_k_int8_avx512,
    hr_gemv_q6_k_int8_row_avx512;
hr_matmul_fn hr_gemm_i8g32_int8_avx512, hr_gemm_i8g32_int8_row_avx512, hr_gemm_i8row_int8_avx512,
    hr_gemm_i8row_int8_row_avx512, hr_gemm_i4g32_int8_avx512, hr_gemm_i4g32_int8_row_avx512, hr_gemm_i4g128_int8_avx512,
    hr_gemm_i4g128_int8_row_avx512, hr_gemm_q4_1_int8_avx512, hr_gemm_q4_1_int8_row_avx512, hr_gemm_q6_k_int8_avx512,
    hr_gemm_q6_k_int8_row_avx512;
hr_matmul_fn hr_gemv256_i8g32_int8_avx512, hr_gemv256_i8g32_int8_row_avx512, hr_gemv256_i8row_int8_avx512,
    hr_gemv256_i8row_int8_row_avx512, hr_gemv256_i4g32_int8_avx512, hr_gemv256_i4g32_int8_row_avx512,
    hr_gemv256_i4g128_int8_avx512, hr_gemv256_i4g128_int8_row_avx512, hr_gemv256_q4_1_int8_avx512,
    hr_gemv256_q4_1_int8_row_avx512, hr_gemv256_q6_k_int8_avx512, hr_gemv256_q6_k_int8_row_avx512;
hr_matmul_fn hr_gemm256_i8g32_int8_avx512, hr_gemm256_i8g32_int8_row_avx512, hr_gemm256_i8row_int8_avx512,
    hr_gemm256_i8row_int8_row_avx512, hr_gemm256_i4g32_int8_avx512, hr_gemm256_i4g32_int8_row_avx512,
    hr_gemm256_i4g128_int8_avx512, hr_gemm256_i4g128_int8_row_avx512, hr_gemm256_q4_1_int8_avx512,
    hr_gemm256_q4_1_int8_row_avx512, hr_gemm256_q6_k_int8_avx512, hr_gemm256_q6_k_int8_row_avx512;

/* Both activation types of one weight type. */
/* clang-format off */
#define HR_PANEL_PAIR(run, name, weights)                                                                          \
    void hr_##name##_int8_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {                    \
        run(m, weights, HR_ACT_INT8, row0, row1, scratch);                                                         \
    }                                                                                                              \
    void hr_##name##_int8_row_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {                \
        run(m, weights, HR_ACT_INT8_ROW, row0, row1, scratch);                                                     \
    }

/* Rows of the table for GEMV (up to `few` tokens) and GEMM (any number). */
#define HR_PANEL_ROW(kind, type, set, activations, acts, least, most, width, bits, order)                         \
    {.family = HR_FAM_MATMUL, .name = "panel_" #kind "_" #type "_" #acts "_avx512", .isa = HR_ISA_AVX512,          \
     .needs = HR_CPU_VNNI, .dtypes = set, .act = activations, .n_min = least, .n_max = most,                       \
     .orders = HR_IN_PANELS, .tile = width, .lanes = bits, .rank = order, .unit = HR_UNIT_INT8,                    \
     .fn.matmul = hr_##kind##_##type##_##acts##_avx512}
#define HR_PANEL_ROWS_OF(gemv, gemm, type, set, few, bits)                                                         \
    HR_PANEL_ROW(gemv, type, set, HR_ACT_INT8, int8, 1, few, 0, bits, 30),                                         \
    HR_PANEL_ROW(gemv, type, set, HR_ACT_INT8_ROW, int8_row, 1, few, 0, bits, 30),                                 \
    HR_PANEL_ROW(gemm, type, set, HR_ACT_INT8, int8, 1, 0, HR_INT_TILE, bits, 25),                                 \
    HR_PANEL_ROW(gemm, type, set, HR_ACT_INT8_ROW, int8_row, 1, 0, HR_INT_TILE, bits, 25)
#define HR_PANEL_LIST(gemv, gemm, few, bits)                                                                       \
    HR_PANEL_ROWS_OF(gemv, gemm, i8g32, HR_SET_I8G32 | HR_SET_Q8_0, few, bits),                                    \
    HR_PANEL_ROWS_OF(gemv, gemm, i8row, HR_SET_I8ROW, few, bits),                                                  \
    HR_PANEL_ROWS_OF(gemv, gemm, i4g32, HR_SET_I4G32 | HR_SET_Q4_0, few, bits),                                    \
    HR_PANEL_ROWS_OF(gemv, gemm, i4g128, HR_SET_I4G128, few, bits),                                                \
    HR_PANEL_ROWS_OF(gemv, gemm, q4_1, HR_SET_Q4_1, few, bits),                                                    \
    HR_PANEL_ROWS_OF(gemv, gemm, q6_k, HR_SET_Q6_K, few, bits)
/* clang-format on */

#endif
