#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/attn_body.h"
#include "kernels/cpu/kv_append_body.h"

const hr_kernel hr_kernels_attn_avx512[] = {HR_ATTN_KERNELS("avx512", HR_ISA_AVX512, 20)};
