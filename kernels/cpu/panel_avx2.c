/* Rows of the table for weights in panels. */
#include "kernels/cpu/matmul_common.h"

const hr_kernel hr_kernels_panel_avx2[] = {{.name = NULL}};
