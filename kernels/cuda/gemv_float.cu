/* gemv_float.cu - few tokens, weights of floats, products and sums in fp32. */
#include "kernels/cuda/gemv.cuh"

HR_GEMV(gemv_f32_f32, hr_gemv_f32, HR_ACT_F32)
HR_GEMV(gemv_f16_f32, hr_gemv_f16, HR_ACT_F32)
HR_GEMV(gemv_f16_bf16, hr_gemv_f16, HR_ACT_BF16)
HR_GEMV(gemv_bf16_f32, hr_gemv_bf16, HR_ACT_F32)
HR_GEMV(gemv_bf16_bf16, hr_gemv_bf16, HR_ACT_BF16)
