/* attn_flash_64.cu - prefill on the tensor cores in tiles of 64 rows: more blocks, for short prompts. */
#include "kernels/cuda/attn_flash.cuh"

HR_KERNEL_OF(hr_attn_flash_64, 128, hr_cuda_attn, flash_rows<64>)
