/* weights.cuh - how kernels for GPUs read weights of every type: 32 columns of a row as bytes with a scale, or as floats.
 *
 * Quantized values become signed bytes at a power of two of their size: nibbles stay in the upper half of a byte (16 times the
 * value), the six bits of Q6_K in the upper six (4 times), and the scale is divided by the same, which is exact. So no byte needs an
 * arithmetic shift, and sums of products of such bytes are exact integers all the same. */
#ifndef HR_WEIGHTS_CUH
#define HR_WEIGHTS_CUH

#include "kernels/cuda/cu.h"
#include "kernels/cuda/cuda_params.h"

/* hr_row_bytes and hr_row_scales without the table, which is in host memory. */
__device__ __forceinline__ size_t hr_weight_row_bytes(int dtype, size_t cols) {
    switch (dtype) {
    case HR_F32:
        return cols * 4;
    case HR_F16:
    case HR_BF16:
        return cols * 2;
    case HR_Q8_0:
        return cols / 32 * 34;
    case HR_Q4_0:
        return cols / 32 * 18;
    case HR_Q4_1:
        return cols / 32 * 20;
    case HR_Q6_K:
        return cols / 256 * 210;
    case HR_I8G32:
    case HR_I8ROW:
        return cols;
    default:
        return cols / 2; /* I4G32, I4G128 */
    }
}
__device__ __forceinline__ size_t hr_weight_row_scales(int dtype, size_t cols) {
    return dtype == HR_I8ROW ? 1 : dtype == HR_I4G128 ? (cols + 127) / 128 : cols / 32;
}
__device__ __forceinline__ const uint8_t *hr_weight_row(const hr_mat &m, int dtype, size_t row) {
    return static_cast<const uint8_t *>(m.data) + row * hr_weight_row_bytes(dtype, m.cols);
}
/* NULL for types without a plane of scales. */
__device__ __forceinline__ const uint16_t *hr_weight_scales(const hr_mat &m, int dtype, size_t row) {
    return m.scales ? m.scales + row * hr_weight_row_scales(dtype, m.cols) : nullptr;
}
/* Which scale of its row the g-th 32 columns have. */
__device__ __forceinline__ uint32_t hr_weight_scale_index(int dtype, uint32_t g) {
    return dtype == HR_I8ROW ? 0 : dtype == HR_I4G128 ? g / 4 : g;
}
__device__ __forceinline__ bool hr_weight_is_float(int dtype) {
    return dtype == HR_F32 || dtype == HR_F16 || dtype == HR_BF16;
}

__device__ __forceinline__ float hr_f16_float(uint32_t bits) {
    return __half2float(__ushort_as_half((unsigned short)bits));
}
__device__ __forceinline__ float hr_bf16_float(uint32_t bits) {
    return __uint_as_float(bits << 16);
}
/* The two bf16 of a word. */
__device__ __forceinline__ float hr_bf16_low(uint32_t word) {
    return __uint_as_float(word << 16);
}
__device__ __forceinline__ float hr_bf16_high(uint32_t word) {
    return __uint_as_float(word & 0xffff0000u);
}
__device__ __forceinline__ uint32_t hr_float_bf16(float f) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(f));
}
__device__ __forceinline__ uint32_t hr_float2_bf16(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return (uint32_t)__bfloat16_as_ushort(v.x) | (uint32_t)__bfloat16_as_ushort(v.y) << 16;
}
/* Byte i of a word of signed bytes, xor 0x80808080 done: 0x47000000 with the byte at bits 8..15 is 32768 + byte. */
__device__ __forceinline__ float hr_biased_byte(uint32_t flipped, int i) {
    return __uint_as_float(__byte_perm(flipped, 0x47000000u, 0x7404u | (uint32_t)i << 4));
}
#define HR_BYTE_BIAS 32896.0f
__device__ __forceinline__ float hr_byte_float(uint32_t flipped, int i) {
    return hr_biased_byte(flipped, i) - HR_BYTE_BIAS;
}

/* Four bytes times a scale, exactly where the scale is an f16: 32896 has 9 significant bits and an f16 11, so the bias is exact too. */
__device__ __forceinline__ void hr_scaled_bytes(uint32_t word, float d, float out[4]) {
    const float bias = -HR_BYTE_BIAS * d;
    const uint32_t flipped = word ^ 0x80808080u;
    out[0] = fmaf(hr_biased_byte(flipped, 0), d, bias), out[1] = fmaf(hr_biased_byte(flipped, 1), d, bias);
    out[2] = fmaf(hr_biased_byte(flipped, 2), d, bias), out[3] = fmaf(hr_biased_byte(flipped, 3), d, bias);
}
/* N words of bytes times such a scale as 2 N words of bf16. */
template <int N> __device__ __forceinline__ void hr_bytes_bf16(const uint32_t q[N], float d, uint32_t out[2 * N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float v[4];
        hr_scaled_bytes(q[i], d, v);
        out[2 * i] = hr_float2_bf16(v[0], v[1]), out[2 * i + 1] = hr_float2_bf16(v[2], v[3]);
    }
}

/* 32 columns of a quantized row: value i = byte i * scale[i / 16] + min. */
typedef struct hr_weight32 {
    uint32_t q[8]; /* 32 signed bytes in the order of columns */
    float scale[2], min;
} hr_weight32;

/* n words from an address that is even. */
template <int N> __device__ __forceinline__ void hr_load_words(const uint8_t *p, uint32_t *words) {
    const uint16_t *half = reinterpret_cast<const uint16_t *>(p);
#pragma unroll
    for (int i = 0; i < N; i++) words[i] = half[2 * i] | (uint32_t)half[2 * i + 1] << 16;
}
/* Four words of nibbles, the low ones columns 0..15, to bytes of 16 times (nibble - 8). */
__device__ __forceinline__ void hr_unpack_nibbles(const uint32_t w[4], uint32_t q[8]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t flipped = w[i] ^ 0x88888888u;
        q[i] = flipped << 4 & 0xf0f0f0f0u;
        q[4 + i] = flipped & 0xf0f0f0f0u;
    }
}
__device__ __forceinline__ void hr_weight32_scale(hr_weight32 *out, float scale) {
    out->scale[0] = out->scale[1] = scale, out->min = 0;
}
/* The e-th 32 of a block of 256. */
__device__ __forceinline__ void hr_unpack_q6_k(const uint8_t *block, uint32_t e, hr_weight32 *out) {
    const uint32_t half = e / 4, quarter = e % 4;
    uint32_t low[8], high[8];
    hr_load_words<8>(block + 64 * half + (quarter & 1) * 32, low);
    hr_load_words<8>(block + 128 + 32 * half, high);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t four = low[i] >> (quarter & 2) * 2 & 0x0f0f0f0fu, two = high[i] >> 2 * quarter & 0x03030303u;
        out->q[i] = (four << 2 | two << 6) ^ 0x80808080u;
    }
    const uint16_t *tail = reinterpret_cast<const uint16_t *>(block + 192);
    const float d = hr_f16_float(tail[8]) * 0.25f;
    const uint32_t scales = tail[e];
    out->scale[0] = d * (float)(int8_t)(scales & 255), out->scale[1] = d * (float)(int8_t)(scales >> 8);
    out->min = 0;
}
/* The g-th 32 columns of a row of bytes or nibbles with their scales in a plane; aligned to 16 bytes. */
__device__ __forceinline__ void hr_plane32_load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                                hr_weight32 *out) {
    if (dtype == HR_I8G32 || dtype == HR_I8ROW) {
        const uint4 a = hr_load16(row + 32 * (size_t)g), b = hr_load16(row + 32 * (size_t)g + 16);
        out->q[0] = a.x, out->q[1] = a.y, out->q[2] = a.z, out->q[3] = a.w;
        out->q[4] = b.x, out->q[5] = b.y, out->q[6] = b.z, out->q[7] = b.w;
        hr_weight32_scale(out, hr_f16_float(scales[hr_weight_scale_index(dtype, g)]));
    } else {
        const uint4 a = hr_load16(row + 16 * (size_t)g);
        const uint32_t words[4] = {a.x, a.y, a.z, a.w};
        hr_unpack_nibbles(words, out->q);
        hr_weight32_scale(out, hr_f16_float(scales[hr_weight_scale_index(dtype, g)]) * 0.0625f);
    }
}
/* The g-th 32 columns of blocks of a file; in memory of any kind, aligned to 2 bytes. */
__device__ __forceinline__ void hr_block32_load(int dtype, const uint8_t *row, uint32_t g, hr_weight32 *out) {
    uint32_t words[4];
    if (dtype == HR_Q8_0) {
        const uint8_t *p = row + 34 * (size_t)g;
        hr_load_words<8>(p + 2, out->q);
        hr_weight32_scale(out, hr_f16_float(*reinterpret_cast<const uint16_t *>(p)));
    } else if (dtype == HR_Q4_0) {
        const uint8_t *p = row + 18 * (size_t)g;
        hr_load_words<4>(p + 2, words);
        hr_unpack_nibbles(words, out->q);
        hr_weight32_scale(out, hr_f16_float(*reinterpret_cast<const uint16_t *>(p)) * 0.0625f);
    } else if (dtype == HR_Q4_1) {
        const uint8_t *p = row + 20 * (size_t)g;
        const uint16_t *head = reinterpret_cast<const uint16_t *>(p);
        hr_load_words<4>(p + 4, words);
#pragma unroll
        for (int i = 0; i < 4; i++) out->q[i] = words[i] & 0x0f0f0f0fu, out->q[4 + i] = words[i] >> 4 & 0x0f0f0f0fu;
        hr_weight32_scale(out, hr_f16_float(head[0]));
        out->min = hr_f16_float(head[1]);
    } else {
        hr_unpack_q6_k(row + 210 * (size_t)(g / 8), g % 8, out);
    }
}
__device__ __forceinline__ void hr_weight32_load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                                 hr_weight32 *out) {
    if (scales)
        hr_plane32_load(dtype, row, scales, g, out);
    else
        hr_block32_load(dtype, row, g, out);
}

/* Four columns from column c of a row of floats; c is a multiple of 4. */
__device__ __forceinline__ float4 hr_weight_float4(int dtype, const uint8_t *row, size_t c) {
    if (dtype == HR_F32) return *reinterpret_cast<const float4 *>(row + 4 * c);
    const uint2 w = *reinterpret_cast<const uint2 *>(row + 2 * c);
    if (dtype == HR_BF16) return make_float4(hr_bf16_low(w.x), hr_bf16_high(w.x), hr_bf16_low(w.y), hr_bf16_high(w.y));
    return make_float4(hr_f16_float(w.x & 0xffffu), hr_f16_float(w.x >> 16), hr_f16_float(w.y & 0xffffu),
                       hr_f16_float(w.y >> 16));
}
/* The g-th 32 columns of a row of any type as floats. */
__device__ __forceinline__ void hr_weight32_floats(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                                   float out[32]) {
    if (hr_weight_is_float(dtype)) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float4 v = hr_weight_float4(dtype, row, 32 * (size_t)g + 4 * i);
            out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
        }
        return;
    }
    hr_weight32 w;
    hr_weight32_load(dtype, row, scales, g, &w);
#pragma unroll
    for (int i = 0; i < 32; i++) out[i] = hr_byte_float(w.q[i / 4] ^ 0x80808080u, i % 4) * w.scale[i / 16] + w.min;
}

#endif
