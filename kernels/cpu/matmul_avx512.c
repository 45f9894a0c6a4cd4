/* The AVX-512 rows of the table for activations and matrix products. */
#include "kernels/cpu/matmul_avx512.h"

/* Up to this many tokens the GEMV kernels win (measured on Zen 4, 8192 x 2048). */
enum { FEW_FLOAT = 28, FEW_INT8 = 4, RANK = 20 };

/* clang-format off */
#define ACTS(kind, type) {.family = HR_FAM_ACTS, .name = "acts_" #kind "_avx512", .isa = HR_ISA_AVX512, .act = type, \
                          .rank = RANK, .unit = HR_UNIT_FP32, .fn.acts = hr_acts_##kind##_avx512}
#define ROW(kind, features, set, type, least, most, where) {.family = HR_FAM_MATMUL, .name = #kind "_avx512", \
                          .isa = HR_ISA_AVX512, .needs = features, .dtypes = set, .act = type, .n_min = least, \
                          .n_max = most, .rank = RANK, .unit = where, .fn.matmul = hr_##kind##_avx512}
const hr_kernel hr_kernels_matmul_avx512[] = {
    ACTS(f32, HR_ACT_F32),
    ACTS(bf16, HR_ACT_BF16),
    ACTS(int8, HR_ACT_INT8),
    ROW(gemv_f32, 0, HR_SET_ALL, HR_ACT_F32, 1, FEW_FLOAT, HR_UNIT_FP32),
    ROW(gemm_f32, 0, HR_SET_ALL, HR_ACT_F32, FEW_FLOAT + 1, 0, HR_UNIT_FP32),
    ROW(gemv_bf16, HR_CPU_BF16, HR_SET_ALL, HR_ACT_BF16, 1, FEW_FLOAT, HR_UNIT_BF16),
    ROW(gemm_bf16, HR_CPU_BF16, HR_SET_ALL, HR_ACT_BF16, FEW_FLOAT + 1, 0, HR_UNIT_BF16),
    ROW(gemv_int8, HR_CPU_VNNI, HR_SET_G32, HR_ACT_INT8, 1, FEW_INT8, HR_UNIT_INT8),
    ROW(gemv_q6_k, HR_CPU_VNNI, HR_SET_Q6_K, HR_ACT_INT8, 1, FEW_INT8, HR_UNIT_INT8),
    ROW(gemm_int8, HR_CPU_VNNI, HR_SET_QUANT, HR_ACT_INT8, FEW_INT8 + 1, 0, HR_UNIT_INT8),
    ROW(gemv_int8_float, 0, HR_SET_FLOAT, HR_ACT_INT8, 1, FEW_FLOAT, HR_UNIT_FP32),
    ROW(gemm_int8_float, 0, HR_SET_FLOAT, HR_ACT_INT8, FEW_FLOAT + 1, 0, HR_UNIT_FP32),
    {.name = NULL},
};
/* clang-format on */
