#include "kernels/cpu/simd_generic.h"

#include "kernels/cpu/attn_body.h"
#include "kernels/cpu/kv_append_body.h"

const hr_kernel hr_kernels_attn_generic[] = {HR_ATTN_KERNELS("generic", HR_ISA_GENERIC, 0)};
