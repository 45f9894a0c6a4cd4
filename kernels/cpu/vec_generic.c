#include "kernels/cpu/simd_generic.h"

#include "kernels/cpu/vec_body.h"

const hr_kernel hr_kernels_vec_generic[] = {HR_VEC_KERNELS("generic", HR_ISA_GENERIC, 0)};
