#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/attn_body.h"
#include "kernels/cpu/kv_append_body.h"

const hr_kernel hr_kernels_attn_avx2[] = {HR_ATTN_KERNELS("avx2", HR_ISA_AVX2, 10)};
