/* matmul.cuh - what all kernels of HR_FAM_MATMUL share: how many tokens there are, which row of which matrix a unit of work is,
 * reading activations, and what is done with a finished sum. */
#ifndef HR_MATMUL_CUH
#define HR_MATMUL_CUH

#include "kernels/cuda/weights.cuh"

__device__ __forceinline__ uint32_t hr_matmul_tokens(const hr_cuda_matmul &p) {
    return p.logits ? p.batch->n_logits : p.batch->n;
}
/* Rows of outputs of one launch: of all matrices one after another, or of gate alone. */
__device__ __forceinline__ uint32_t hr_matmul_rows(const hr_cuda_matmul &p) {
    uint32_t rows = (uint32_t)p.w[0].rows;
    if (p.glu) return rows;
    for (uint32_t m = 1; m < HR_CUDA_MATS; m++) rows += m < p.n_mats ? (uint32_t)p.w[m].rows : 0;
    return rows;
}
/* Matrix of a row counted over all matrices; the row becomes that matrix' own. */
__device__ __forceinline__ uint32_t hr_matmul_locate(const hr_cuda_matmul &p, uint32_t *row) {
    const uint32_t first = (uint32_t)p.w[0].rows, second = (uint32_t)p.w[1].rows;
    if (*row < first || p.n_mats < 2) return 0;
    *row -= first;
    if (*row < second || p.n_mats < 3) return 1;
    *row -= second;
    return 2;
}

/* Four activations from column c (a multiple of 4) of token t. */
__device__ __forceinline__ float4 hr_act_float4(const hr_cuda_acts &x, uint32_t t, uint32_t c) {
    const size_t at = (size_t)t * x.ld + c;
    if (x.type == HR_ACT_F32) return *reinterpret_cast<const float4 *>(static_cast<const float *>(x.data) + at);
    if (x.type == HR_ACT_BF16) {
        const uint2 w = *reinterpret_cast<const uint2 *>(static_cast<const uint16_t *>(x.data) + at);
        return make_float4(hr_bf16_low(w.x), hr_bf16_high(w.x), hr_bf16_low(w.y), hr_bf16_high(w.y));
    }
    const uint32_t q = *reinterpret_cast<const uint32_t *>(static_cast<const int8_t *>(x.data) + at) ^ 0x80808080u;
    const float d = x.type == HR_ACT_INT8 ? x.d[(size_t)t * (x.ld / 32) + c / 32] : x.d[t];
    return make_float4(hr_byte_float(q, 0) * d, hr_byte_float(q, 1) * d, hr_byte_float(q, 2) * d,
                       hr_byte_float(q, 3) * d);
}

__device__ __forceinline__ float hr_silu(float x) {
    return x / (1.0f + expf(-x));
}
__device__ __forceinline__ float hr_gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

/* y[m][t][row] = sum + bias, or added to it. */
__device__ __forceinline__ void hr_matmul_store(const hr_cuda_matmul &p, uint32_t m, uint32_t t, uint32_t row,
                                                float sum) {
    const float *bias = p.bias[m];
    float *y = p.y[m] + (size_t)t * p.ldy[m] + row;
    if (bias) sum += bias[row];
    *y = p.add ? *y + sum : sum;
}
/* act(gate) * up into y[0], and as activations; who has the last row also fills activations up to ld with zeros. */
__device__ __forceinline__ void hr_matmul_store_glu(const hr_cuda_matmul &p, uint32_t t, uint32_t row, float gate,
                                                    float up) {
    if (p.bias[0]) gate += p.bias[0][row];
    if (p.bias[1]) up += p.bias[1][row];
    const float v = (p.glu == HR_CUDA_GLU_SILU ? hr_silu(gate) : hr_gelu_tanh(gate)) * up;
    if (p.y[0]) {
        float *y = p.y[0] + (size_t)t * p.ldy[0] + row;
        *y = p.add ? *y + v : v;
    }
    if (!p.out.data) return;
    const uint32_t rows = (uint32_t)p.w[0].rows, end = row + 1 == rows ? p.out.ld : row + 1;
    const size_t at = (size_t)t * p.out.ld;
    for (uint32_t c = row; c < end; c++) {
        const float here = c == row ? v : 0.0f;
        if (p.out.type == HR_ACT_F32)
            static_cast<float *>(p.out.data)[at + c] = here;
        else
            static_cast<uint16_t *>(p.out.data)[at + c] = (uint16_t)hr_float_bf16(here);
    }
}

#endif
