/* matmul_generic.cu - matrix products of any weights with any activations for any number of tokens: the plain kernel that others are
 * held against, and the row for pairs of types that no other serves. A warp makes one output of one token. */
#include "kernels/cuda/matmul.cuh"

/* Of a row and a token; every lane has the sum. */
__device__ static float dot(const hr_mat &w, const hr_cuda_acts &x, uint32_t row, uint32_t t, uint32_t lane) {
    const uint8_t *data = hr_weight_row(w, w.dtype, row);
    const uint16_t *scales = hr_weight_scales(w, w.dtype, row);
    const uint32_t groups = (uint32_t)(w.cols / 32), dtype = w.dtype;
    float sum = 0;
    for (uint32_t g = lane; g < groups; g += 32) {
        float v[32];
        hr_weight32_floats((int)dtype, data, scales, g, v);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float4 a = hr_act_float4(x, t, 32 * g + 4 * i);
            sum += v[4 * i] * a.x + v[4 * i + 1] * a.y + v[4 * i + 2] * a.z + v[4 * i + 3] * a.w;
        }
    }
    return hr_warp_sum(sum);
}

HR_KERNEL_RESIDENT(matmul_generic, 128, 4, hr_cuda_matmul, p) {
    const uint32_t lane = threadIdx.x % 32, n = hr_matmul_tokens(p);
    uint32_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= hr_matmul_rows(p)) return;
    const uint32_t m = p.glu ? 0 : hr_matmul_locate(p, &row);
    for (uint32_t t = blockIdx.y; t < n; t += gridDim.y) {
        const float sum = dot(p.w[m], p.x, row, t, lane);
        if (!p.glu) {
            if (lane == 0) hr_matmul_store(p, m, t, row, sum);
            continue;
        }
        const float up = dot(p.w[1], p.x, row, t, lane);
        if (lane == 0) hr_matmul_store_glu(p, t, row, sum, up);
    }
}
