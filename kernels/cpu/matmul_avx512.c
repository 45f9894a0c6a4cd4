/* The AVX-512 rows of the table for activations and matrix products. */
#include "kernels/cpu/matmul_avx512.h"

/* Up to this many tokens the GEMV kernels win (measured on Zen 4, 8192 x 2048). */
enum { FEW_FLOAT = 28, FEW_INT8 = 4, RANK = 20 };

/* clang-format off */
#define ACTS(kind, type) {.family = HR_FAM_ACTS, .name = "acts_" #kind "_avx512", .isa = HR_ISA_AVX512, .act = type, \
                          .rank = RANK, .unit = HR_UNIT_FP32, .fn.acts = hr_acts_##kind##_avx512}
#define INT_ACTS(kind, type) {.family = HR_FAM_ACTS, .name = "acts_" #kind "_avx512", .isa = HR_ISA_AVX512, \
                          .needs = HR_CPU_VNNI, .act = type, .rank = RANK, .unit = HR_UNIT_FP32, \
                          .fn.acts = hr_acts_##kind##_avx512}
#define ROW_AS(title, kind, features, set, type, least, most, where) {.family = HR_FAM_MATMUL, .name = title "_avx512", \
                          .isa = HR_ISA_AVX512, .needs = features, .dtypes = set, .act = type, .n_min = least, \
                          .n_max = most, .rank = RANK, .unit = where, .fn.matmul = hr_##kind##_avx512}
#define ROW(kind, features, set, type, least, most, where) ROW_AS(#kind, kind, features, set, type, least, most, where)
/* int8 activations of both kinds: the scale of a token stands in the place of each group's. */
#define INT8(kind, features, set, least, most, where) ROW_AS(#kind, kind, features, set, HR_ACT_INT8, least, most, where), \
                          ROW_AS(#kind "_row", kind, features, set, HR_ACT_INT8_ROW, least, most, where)
const hr_kernel hr_kernels_matmul_avx512[] = {
    ACTS(f32, HR_ACT_F32),
    ACTS(bf16, HR_ACT_BF16),
    INT_ACTS(int8, HR_ACT_INT8),
    INT_ACTS(int8_row, HR_ACT_INT8_ROW),
    ROW(gemv_f32, 0, HR_SET_ALL, HR_ACT_F32, 1, FEW_FLOAT, HR_UNIT_FP32),
    ROW(gemm_f32, 0, HR_SET_ALL, HR_ACT_F32, FEW_FLOAT + 1, 0, HR_UNIT_FP32),
    ROW(gemv_bf16, HR_CPU_BF16, HR_SET_ALL, HR_ACT_BF16, 1, FEW_FLOAT, HR_UNIT_BF16),
    ROW(gemm_bf16, HR_CPU_BF16, HR_SET_ALL, HR_ACT_BF16, FEW_FLOAT + 1, 0, HR_UNIT_BF16),
    INT8(gemv_int8, HR_CPU_VNNI, HR_SET_G32 | HR_SET_WIDE, 1, FEW_INT8, HR_UNIT_INT8),
    INT8(gemv_q6_k, HR_CPU_VNNI, HR_SET_Q6_K, 1, FEW_INT8, HR_UNIT_INT8),
    INT8(gemm_int8, HR_CPU_VNNI, HR_SET_QUANT | HR_SET_WIDE, FEW_INT8 + 1, 0, HR_UNIT_INT8),
    INT8(gemv_int8_float, 0, HR_SET_FLOAT, 1, FEW_FLOAT, HR_UNIT_FP32),
    INT8(gemm_int8_float, 0, HR_SET_FLOAT, FEW_FLOAT + 1, 0, HR_UNIT_FP32),
    {.name = NULL},
};
/* clang-format on */
