/* Products of int8 weights in panels with many int8 tokens, AVX-512 VNNI in 256 bits. */
#include "kernels/cpu/vnni_256_avx512.h"

#include "kernels/cpu/panel_gemm_body.h"
#include "kernels/cpu/panel_int_avx512.h"

HR_PANEL_PAIR(gemm, gemm256_i8g32, HR_I8G32)
HR_PANEL_PAIR(gemm, gemm256_i8row, HR_I8ROW)
