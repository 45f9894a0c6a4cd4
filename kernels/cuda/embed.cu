/* embed.cu - rows of the embedding table as floats, for every type of weights. A thread makes eight values of one token; the
 * type is the same in the whole launch, so that one kernel suffices. */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/cuda_params.h"

/* A 16-bit word at an even address. */
__device__ static inline uint16_t word_at(const uint8_t *p) {
    return *reinterpret_cast<const uint16_t *>(p);
}
__device__ static inline float half_at(const uint8_t *p) {
    return hr_of_f16(word_at(p));
}

/* Columns c..c + n - 1 (n <= 8) of a row of f32, f16 or bf16. */
__device__ static void load_floats(hr_dtype type, const uint8_t *row, uint32_t c, uint32_t n, float out[8]) {
    if (type == HR_F32) {
        const float *x = reinterpret_cast<const float *>(row);
        const float4 a = hr_quad(x, c, c + n, hr_is_aligned(x, 16)), b = hr_quad(x, c + 4, c + n, hr_is_aligned(x, 16));
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
    const uint8_t *at = row + 2 * (size_t)c;
    uint32_t words[4] = {0, 0, 0, 0};
    if (n == 8 && hr_is_aligned(at, 16)) {
        const uint4 v = hr_load16(at);
        words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
        for (uint32_t i = 0; i < 8; i++)
            if (i < n) words[i / 2] |= (uint32_t)word_at(at + 2 * i) << 16 * (i % 2);
    }
    for (uint32_t i = 0; i < 8; i++) {
        const uint16_t bits = (uint16_t)(words[i / 2] >> 16 * (i % 2));
        out[i] = type == HR_BF16 ? __uint_as_float((uint32_t)bits << 16) : hr_of_f16(bits);
    }
}

/* Eight int8 at q, times d. */
__device__ static inline void load_int8(const uint8_t *q, float d, float out[8]) {
    for (int i = 0; i < 8; i++) out[i] = __fmul_rn((float)(int8_t)q[i], d);
}

/* Values i..i + 7 of a group of 32 whose sixteen bytes stand at q: (nibble - offset) * d + least. */
__device__ static inline void load_int4(const uint8_t *q, uint32_t i, int offset, float d, float least, float out[8]) {
    const uint32_t shift = i >= 16 ? 4 : 0;
    for (int j = 0; j < 8; j++)
        out[j] = __fadd_rn(__fmul_rn((float)((q[i % 16 + j] >> shift & 15) - offset), d), least);
}

/* Values e..e + 7 of a block of 256 (dtype.c says how it is laid out). */
__device__ static inline void load_q6_k(const uint8_t *block, uint32_t e, float out[8]) {
    const uint32_t half = e / 128, quarter = e % 128 / 32, i = e % 32;
    const uint8_t *low = block + 64 * half + 32 * (quarter & 1) + i, *high = block + 128 + 32 * half + i;
    const float scale = (float)(int8_t)block[192 + 8 * half + 2 * quarter + i / 16];
    const float step = __fmul_rn(half_at(block + 208), scale);
    for (int j = 0; j < 8; j++) {
        const int q = (low[j] >> (quarter & 2 ? 4 : 0) & 15) | (high[j] >> 2 * quarter & 3) << 4;
        out[j] = __fmul_rn(step, (float)(q - 32));
    }
}

/* Columns c..c + n - 1 of row `row`; c is a multiple of 8, and n is 8 but at the end of a row of floats. */
__device__ static void load_part(const hr_mat &m, size_t row, uint32_t c, uint32_t n, float out[8]) {
    const uint8_t *data = static_cast<const uint8_t *>(m.data);
    const size_t cols = m.cols, at = row * cols, group = c / 32;
    const uint32_t i = c % 32;
    switch (m.dtype) {
    case HR_F32:
        load_floats(HR_F32, data + 4 * at, c, n, out);
        break;
    case HR_F16:
    case HR_BF16:
        load_floats(m.dtype, data + 2 * at, c, n, out);
        break;
    case HR_Q8_0:
        data += (at / 32 + group) * 34;
        load_int8(data + 2 + i, half_at(data), out);
        break;
    case HR_Q4_0:
        data += (at / 32 + group) * 18;
        load_int4(data + 2, i, 8, half_at(data), 0, out);
        break;
    case HR_Q4_1:
        data += (at / 32 + group) * 20;
        load_int4(data + 4, i, 0, half_at(data), half_at(data + 2), out);
        break;
    case HR_Q6_K:
        load_q6_k(data + (at / 256 + c / 256) * 210, c % 256, out);
        break;
    case HR_I8G32:
        load_int8(data + at + c, hr_of_f16(m.scales[at / 32 + group]), out);
        break;
    case HR_I8ROW:
        load_int8(data + at + c, hr_of_f16(m.scales[row]), out);
        break;
    case HR_I4G32:
        load_int4(data + (at / 32 + group) * 16, i, 8, hr_of_f16(m.scales[at / 32 + group]), 0, out);
        break;
    default: /* I4G128 */
        load_int4(data + (at / 32 + group) * 16, i, 8, hr_of_f16(m.scales[row * ((cols + 127) / 128) + c / 128]), 0,
                  out);
    }
}

HR_KERNEL(embed_cuda, 128, hr_cuda_embed, p) {
    const uint32_t t = blockIdx.y, c = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (t >= p.batch->n || c >= p.dim) return;
    float *x = p.x + (size_t)t * p.dim, v[8];
    load_part(p.table, (size_t)p.batch->tokens[t], c, p.dim - c < 8 ? p.dim - c : 8, v);
    const bool wide = hr_is_aligned(x, 16);
    for (uint32_t i = 0; i < 8; i += 4)
        hr_store_quad(x, c + i, p.dim, wide,
                      make_float4(__fmul_rn(p.scale, v[i]), __fmul_rn(p.scale, v[i + 1]), __fmul_rn(p.scale, v[i + 2]),
                                  __fmul_rn(p.scale, v[i + 3])));
}
