/* bits.cuh - conversions that give the bits of the CPU's (kernels/base/dtype.h), and loads of four floats. For element-wise
 * kernels, whose results are stored: they are compared to the bit, NaN included. */
#ifndef HR_BITS_CUH
#define HR_BITS_CUH

#include "kernels/base/dtype.h"
#include "kernels/cuda/cu.h"

__device__ static inline float hr_of_f16(uint16_t h) {
    return __half2float(__ushort_as_half(h));
}

/* As hr_f32_to_f16: the instruction makes another NaN. */
__device__ static inline uint16_t hr_to_f16(float f) {
    const uint32_t u = __float_as_uint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (a < 0x38800000u) /* below 2^-14: the addition rounds to a multiple of 2^-24, to even */
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13));
}

/* As hr_f32_to_bf16. */
__device__ static inline uint16_t hr_to_bf16(float f) {
    const uint32_t u = __float_as_uint(f);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, quiet = u >> 16 | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* Bits of |x|, which order as the values do; a NaN is largest. */
__device__ static inline uint32_t hr_abs_bits(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}

/* The nearest integer to x, to even, for |x| < 2^22: adding 1.5 * 2^23 leaves it in the low bits. */
__device__ static inline int32_t hr_nearest_int(float x) {
    return (int32_t)(__float_as_uint(x + 12582912.0f) - 0x4b400000u);
}

__device__ static inline bool hr_is_aligned(const void *p, uint32_t bytes) {
    return ((uintptr_t)p & (bytes - 1)) == 0;
}

/* Elements c..c + 3 of x [n], zeros past the end. wide: x is aligned to 16 bytes (and c is a multiple of 4). */
__device__ static inline float4 hr_quad(const float *x, uint32_t c, uint32_t n, bool wide) {
    if (wide && c + 4 <= n) return *reinterpret_cast<const float4 *>(x + c);
    return make_float4(c < n ? x[c] : 0, c + 1 < n ? x[c + 1] : 0, c + 2 < n ? x[c + 2] : 0, c + 3 < n ? x[c + 3] : 0);
}

/* Stores those of elements c..c + 3 that exist. */
__device__ static inline void hr_store_quad(float *x, uint32_t c, uint32_t n, bool wide, float4 v) {
    if (wide && c + 4 <= n) {
        *reinterpret_cast<float4 *>(x + c) = v;
        return;
    }
    if (c < n) x[c] = v.x;
    if (c + 1 < n) x[c + 1] = v.y;
    if (c + 2 < n) x[c + 2] = v.z;
    if (c + 3 < n) x[c + 3] = v.w;
}

/* Four 16-bit values side by side, as 8 bytes. */
__device__ static inline uint2 hr_pack16(uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
    return make_uint2((uint32_t)a | (uint32_t)b << 16, (uint32_t)c | (uint32_t)d << 16);
}
__device__ static inline uint2 hr_quad_bf16(float4 v) {
    return hr_pack16(hr_to_bf16(v.x), hr_to_bf16(v.y), hr_to_bf16(v.z), hr_to_bf16(v.w));
}
/* The low bytes of four integers. */
__device__ static inline uint32_t hr_pack8(int32_t a, int32_t b, int32_t c, int32_t d) {
    return ((uint32_t)a & 255) | ((uint32_t)b & 255) << 8 | ((uint32_t)c & 255) << 16 | (uint32_t)d << 24;
}

/* Over all threads of a block, the same in each; room: one value a warp, [32], in shared memory. */
__device__ static inline float hr_block_sum(float v, float *room) {
    const uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
    v = hr_warp_sum(v);
    __syncthreads(); /* those who read the room before are done */
    if (lane == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    return hr_warp_sum(lane < warps ? room[lane] : 0);
}
__device__ static inline uint32_t hr_warp_max_bits(uint32_t v) {
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}
__device__ static inline uint32_t hr_block_max_bits(uint32_t v, uint32_t *room) {
    const uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
    v = hr_warp_max_bits(v);
    __syncthreads();
    if (lane == 0) room[threadIdx.x / 32] = v;
    __syncthreads();
    return hr_warp_max_bits(lane < warps ? room[lane] : 0);
}

#endif
