/* elementwise.cu - residual addition, and the gated activation of the feed-forward network. */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/cuda_params.h"

/* x += y over all tokens of the batch as one array. */
HR_KERNEL(add_cuda, 256, hr_cuda_add, p) {
    const size_t n = (size_t)p.batch->n * p.dim, step = 4 * (size_t)gridDim.x * blockDim.x;
    const bool wide = hr_is_aligned(p.x, 16) && hr_is_aligned(p.y, 16);
    for (size_t i = 4 * ((size_t)blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) {
        const uint32_t left = n - i < 4 ? (uint32_t)(n - i) : 4;
        float4 a = hr_quad(p.x + i, 0, left, wide);
        const float4 b = hr_quad(p.y + i, 0, left, wide);
        a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
        hr_store_quad(p.x + i, 0, left, wide, a);
    }
}

/* g / (1 + e^-g), or the tanh form of gelu. */
__device__ static inline float activate(uint32_t kind, float g) {
    if (kind == HR_CUDA_GLU_SILU) return g / (1 + expf(-g));
    if (kind == HR_CUDA_GLU_GELU) return 0.5f * g * (1 + tanhf(0.7978845608f * (g + 0.044715f * g * g * g)));
    return g;
}

/* A thread makes four columns of one token; those past ffn are the zeros at the end of a row of activations. */
HR_KERNEL(glu_cuda, 256, hr_cuda_glu, p) {
    const uint32_t t = blockIdx.y, c = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    const uint32_t end = p.acts.data && p.acts.ld > p.ffn ? p.acts.ld : p.ffn;
    if (t >= p.batch->n || c >= end) return;
    const size_t row = (size_t)t * p.ffn;
    float4 v = hr_quad(p.gate + row, c, p.ffn, hr_is_aligned(p.gate + row, 16));
    v.x = activate(p.kind, v.x), v.y = activate(p.kind, v.y), v.z = activate(p.kind, v.z), v.w = activate(p.kind, v.w);
    if (p.up) {
        const float4 u = hr_quad(p.up + row, c, p.ffn, hr_is_aligned(p.up + row, 16));
        v.x *= u.x, v.y *= u.y, v.z *= u.z, v.w *= u.w;
    }
    if (p.out) hr_store_quad(p.out + row, c, p.ffn, hr_is_aligned(p.out + row, 16), v);
    if (!p.acts.data || c >= p.acts.ld) return;
    const size_t at = (size_t)t * p.acts.ld + c;
    if (p.acts.type == HR_ACT_F32)
        *reinterpret_cast<float4 *>(static_cast<float *>(p.acts.data) + at) = v;
    else
        *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(p.acts.data) + at) = hr_quad_bf16(v);
}
