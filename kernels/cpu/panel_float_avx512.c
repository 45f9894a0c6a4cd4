/* The AVX-512 rows of the table for products in floats or bf16 with weights in panels. */
#include "kernels/cpu/panel_float_avx512.h"

/* Up to FEW tokens the weights are read once (GEMV). GEMM tiles of 8 tokens up to SOME, so that 16 are 8 + 8. bf16 weights
 * with up to three tiles of 12 are streamed: there reading them costs about as much as the arithmetic. The wider tile is
 * there for fewer tokens too, lest a matrix of another type beside streamed ones finds no row. */
enum { RANK = 30, FEW = 8, SOME = 16, ALL = HR_SET_ALL | HR_SET_WIDE };

/* clang-format off */
#define ROW(title, kind, features, set, type, least, most, width, where) \
    RANKED(RANK, title, kind, features, set, type, least, most, width, where)
#define BF16(rank, title, kind, set, least, most, width) \
    RANKED(rank, title, kind, HR_CPU_BF16, set, HR_ACT_BF16, least, most, width, HR_UNIT_BF16)
#define RANKED(value, title, kind, features, set, type, least, most, width, where) {.family = HR_FAM_MATMUL, \
                          .name = "panel_" title "_avx512", .isa = HR_ISA_AVX512, .needs = features, .dtypes = set, \
                          .act = type, .orders = HR_IN_PANELS, .n_min = least, .n_max = most, .tile = width, \
                          .rank = value, .unit = where, .fn.matmul = hr_panel_##kind##_avx512}
const hr_kernel hr_kernels_panel_float_avx512[] = {
    ROW("gemv_f32", gemv_f32, 0, ALL, HR_ACT_F32, 1, FEW, 0, HR_UNIT_FP32),
    ROW("gemv_pairs", gemv_pairs, HR_CPU_BF16, HR_SET_BF16, HR_ACT_BF16, 1, FEW, 0, HR_UNIT_BF16),
    ROW("gemv_bf16", gemv_bf16, 0, ALL & ~(uint32_t)HR_SET_BF16, HR_ACT_BF16, 1, FEW, 0, HR_UNIT_FP32),
    ROW("gemv_int8_float", gemv_int8_float, 0, HR_SET_FLOAT, HR_ACT_INT8, 1, FEW, 0, HR_UNIT_FP32),
    ROW("gemv_int8_row_float", gemv_int8_float, 0, HR_SET_FLOAT, HR_ACT_INT8_ROW, 1, FEW, 0, HR_UNIT_FP32),
    ROW("gemm8_f32", gemm_f32, 0, ALL, HR_ACT_F32, FEW + 1, SOME, 8, HR_UNIT_FP32),
    ROW("gemm12_f32", gemm_f32, 0, ALL, HR_ACT_F32, SOME + 1, 0, 12, HR_UNIT_FP32),
    BF16(RANK + 1, "gemm8_bf16", gemm_bf16, ALL, FEW + 1, SOME, 8),
    BF16(RANK, "gemm12_bf16", gemm_bf16, ALL, FEW + 1, 0, 12),
    BF16(RANK + 3, "stream8_bf16", stream_bf16, HR_SET_BF16, 12 + 1, SOME, 8),
    BF16(RANK + 2, "stream12_bf16", stream_bf16, HR_SET_BF16, FEW + 1, 3 * 12, 12),
    ROW("gemm_int8_float", gemm_f32, 0, HR_SET_FLOAT, HR_ACT_INT8, FEW + 1, 0, 0, HR_UNIT_FP32),
    ROW("gemm_int8_row_float", gemm_f32, 0, HR_SET_FLOAT, HR_ACT_INT8_ROW, FEW + 1, 0, 0, HR_UNIT_FP32),
    {.name = NULL},
};
/* clang-format on */
