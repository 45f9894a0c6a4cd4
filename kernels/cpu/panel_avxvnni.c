/* The AVX-VNNI rows of the table for weights in panels: bytes by vpdpbusd in its VEX form, which cores without AVX-512
 * have too. All else is as for AVX2. */
#define HR_DOT_BYTES 1
#include "kernels/cpu/panel_int_avx2.h"

void hr_panel_int8_avxvnni(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    panel_products(m, row0, row1, scratch);
}

enum { RANK = 10, QUANT = HR_SET_QUANT | HR_SET_WIDE };

/* clang-format off */
#define ROW(title, type) {.family = HR_FAM_MATMUL, .name = title "_avxvnni", .isa = HR_ISA_AVXVNNI, \
                          .needs = HR_CPU_AVXVNNI, .dtypes = QUANT, .act = type, .orders = HR_IN_PANELS, .rank = RANK, \
                          .unit = HR_UNIT_INT8, .fn.matmul = hr_panel_int8_avxvnni}
const hr_kernel hr_kernels_panel_avxvnni[] = {
    ROW("panel_int8", HR_ACT_INT8),
    ROW("panel_int8_row", HR_ACT_INT8_ROW),
    {.name = NULL},
};
/* clang-format on */
