/* gemv_int.cu - few tokens, weights of bytes or nibbles with their scales in a plane: with float activations in fp32, with int8
 * activations as integers within a group. */
#include "kernels/cuda/gemv.cuh"

HR_GEMV(gemv_i8_f32, hr_gemv_i8, HR_ACT_F32)
HR_GEMV(gemv_i8_bf16, hr_gemv_i8, HR_ACT_BF16)
HR_GEMV(gemv_i8_int8, hr_gemv_i8, HR_ACT_INT8)
HR_GEMV(gemv_i4_f32, hr_gemv_i4, HR_ACT_F32)
HR_GEMV(gemv_i4_bf16, hr_gemv_i4, HR_ACT_BF16)
HR_GEMV(gemv_i4_int8, hr_gemv_i4, HR_ACT_INT8)
