/* The AVX2 rows of the table for weights in panels. One row serves one token and many: the register tile is the same. */
#include "kernels/cpu/panel_avx2.h"

enum { RANK = 10, ALL = HR_SET_ALL | HR_SET_WIDE, QUANT = HR_SET_QUANT | HR_SET_WIDE };

/* clang-format off */
#define ROW(title, kind, set, type, where) {.family = HR_FAM_MATMUL, .name = title "_avx2", .isa = HR_ISA_AVX2, \
                          .dtypes = set, .act = type, .orders = HR_IN_PANELS, .rank = RANK, .unit = where, \
                          .fn.matmul = hr_panel_##kind##_avx2}
const hr_kernel hr_kernels_panel_avx2[] = {
    ROW("panel_f32", float, ALL, HR_ACT_F32, HR_UNIT_FP32),
    ROW("panel_bf16", float, ALL, HR_ACT_BF16, HR_UNIT_FP32),
    ROW("panel_int8_float", float, HR_SET_FLOAT, HR_ACT_INT8, HR_UNIT_FP32),
    ROW("panel_int8_row_float", float, HR_SET_FLOAT, HR_ACT_INT8_ROW, HR_UNIT_FP32),
    ROW("panel_int8", int8, QUANT, HR_ACT_INT8, HR_UNIT_INT8),
    ROW("panel_int8_row", int8, QUANT, HR_ACT_INT8_ROW, HR_UNIT_INT8),
    {.name = NULL},
};
/* clang-format on */
