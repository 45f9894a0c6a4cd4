/* The table's rows for quantized weights in panels, AVX-512 VNNI in 256 bits. */
#include "kernels/cpu/int_tiles.h"
#include "kernels/cpu/matmul_common.h"
#include "kernels/cpu/panel_int_avx512.h"

const hr_kernel hr_kernels_panel_vnni256_avx512[] = {HR_PANEL_LIST(gemv256, gemm256, 6, 256), {.name = NULL}};
