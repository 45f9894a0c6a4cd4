/* The AVX2 rows of the table for activations and matrix products. AVX2 has no bf16 arithmetic: those products run in
 * fp32 on widened values. */
#include "kernels/cpu/matmul_avx2.h"

enum { RANK = 10 };

/* clang-format off */
#define ACTS(kind, type) {.family = HR_FAM_ACTS, .name = "acts_" #kind "_avx2", .isa = HR_ISA_AVX2, .act = type, \
                          .rank = RANK, .unit = HR_UNIT_FP32, .fn.acts = hr_acts_##kind##_avx2}
#define ROW(title, kind, set, type, where) {.family = HR_FAM_MATMUL, .name = title "_avx2", .isa = HR_ISA_AVX2, \
                          .dtypes = set, .act = type, .rank = RANK, .unit = where, .fn.matmul = hr_matmul_##kind##_avx2}
const hr_kernel hr_kernels_matmul_avx2[] = {
    ACTS(f32, HR_ACT_F32),
    ACTS(bf16, HR_ACT_BF16),
    ACTS(int8, HR_ACT_INT8),
    ACTS(int8_row, HR_ACT_INT8_ROW),
    ROW("matmul_f32", f32, HR_SET_ALL | HR_SET_WIDE, HR_ACT_F32, HR_UNIT_FP32),
    ROW("matmul_bf16", f32, HR_SET_ALL | HR_SET_WIDE, HR_ACT_BF16, HR_UNIT_FP32),
    ROW("matmul_int8_float", f32, HR_SET_FLOAT, HR_ACT_INT8, HR_UNIT_FP32),
    ROW("matmul_int8_row_float", f32, HR_SET_FLOAT, HR_ACT_INT8_ROW, HR_UNIT_FP32),
    ROW("matmul_int8", int8, HR_SET_QUANT | HR_SET_WIDE, HR_ACT_INT8, HR_UNIT_INT8),
    ROW("matmul_int8_row", int8, HR_SET_QUANT | HR_SET_WIDE, HR_ACT_INT8_ROW, HR_UNIT_INT8),
    {.name = NULL},
};
/* clang-format on */
