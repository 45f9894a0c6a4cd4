#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/vec_body.h"

const hr_kernel hr_kernels_vec_avx512[] = {HR_VEC_KERNELS("avx512", HR_ISA_AVX512, 20)};
