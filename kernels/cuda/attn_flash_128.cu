/* attn_flash_128.cu - prefill on the tensor cores in tiles of 128 rows: K and V are read and converted half as often. */
#include "kernels/cuda/attn_flash.cuh"

HR_KERNEL_OF(hr_attn_flash_128, 256, hr_cuda_attn, flash_rows<128>)
