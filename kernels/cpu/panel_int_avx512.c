/* The table's rows for quantized weights in panels, AVX-512 VNNI in 512 bits. */
#include "kernels/cpu/panel_int_avx512.h"
#include "kernels/cpu/int_tiles.h"
#include "kernels/cpu/matmul_common.h"

const hr_kernel hr_kernels_panel_int_avx512[] = {HR_PANEL_LIST(gemv, gemm, 8, 512), {.name = NULL}};
