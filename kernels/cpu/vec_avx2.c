#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/vec_body.h"

const hr_kernel hr_kernels_vec_avx2[] = {HR_VEC_KERNELS("avx2", HR_ISA_AVX2, 10)};
