/* Products of int8 weights in panels with few int8 tokens, AVX-512 VNNI in 512 bits. */
#include "kernels/cpu/vnni_512_avx512.h"

#include "kernels/cpu/panel_gemv_body.h"
#include "kernels/cpu/panel_int_avx512.h"

HR_PANEL_PAIR(gemv, gemv_i8g32, HR_I8G32)
HR_PANEL_PAIR(gemv, gemv_i8row, HR_I8ROW)
