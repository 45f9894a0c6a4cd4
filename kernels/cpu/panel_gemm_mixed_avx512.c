/* Products of Q4_1 and Q6_K weights in panels with many int8 tokens, AVX-512 VNNI in 512 bits. */
#include "kernels/cpu/vnni_512_avx512.h"

#include "kernels/cpu/panel_gemm_body.h"
#include "kernels/cpu/panel_int_avx512.h"

HR_PANEL_PAIR(gemm, gemm_q4_1, HR_Q4_1)
HR_PANEL_PAIR(gemm, gemm_q6_k, HR_Q6_K)
