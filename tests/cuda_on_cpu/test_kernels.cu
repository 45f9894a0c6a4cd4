/* test_kernels.cu - kernels of the tests of the machine itself (test_cuda_shim.c): none is in the program. */
#include "kernels/cuda/cu.h"
#include "tests/cuda_on_cpu/test_kernels.h"

/* Sums of rows, one block a row: dynamic shared memory, a barrier, a warp sum. */
HR_KERNEL(test_row_sum, 256, hr_test_sum, p) {
    HR_SHARED(float, sums, [8]);
    HR_SHARED_DYNAMIC(float, row);
    for (unsigned i = threadIdx.x; i < p.cols; i += blockDim.x) row[i] = p.x[(size_t)blockIdx.x * p.cols + i];
    __syncthreads();
    float sum = 0;
    for (unsigned i = threadIdx.x; i < p.cols; i += blockDim.x) sum += row[p.cols - 1 - i];
    sum = hr_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = hr_warp_sum(threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) p.y[blockIdx.x] = sum;
    }
}
