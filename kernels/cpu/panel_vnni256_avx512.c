/* Rows of the table for weights in panels. */
#include "kernels/cpu/matmul_common.h"

const hr_kernel hr_kernels_panel_vnni256_avx512[] = {{.name = NULL}};
