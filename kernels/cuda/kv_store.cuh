/* kv_store.cuh - one row of K or V in the type of the cache, by one warp: the bits of kernels/cpu/kv_append_body.h. Divisions
 * are IEEE divisions, so that the stored scale and the roundings are those of the CPU. */
#ifndef HR_KV_STORE_CUH
#define HR_KV_STORE_CUH

#include "kernels/cuda/bits.cuh"
#include "kernels/kv/kv_open.h"

/* The largest |x| of a group over `levels`, as it is stored. A NaN does not count. */
__device__ static inline uint16_t hr_kv_scale(float most, float levels) {
    return hr_to_f16(most / levels);
}
__device__ static inline float hr_kv_size(float x) {
    const float a = fabsf(x);
    return a > 0 ? a : 0;
}
/* x / d to nearest even within +-limit. */
__device__ static inline int32_t hr_kv_level(float x, float d, float limit) {
    float y = x / d;
    y = y > limit ? limit : y;
    y = y < -limit ? -limit : y;
    return hr_nearest_int(y);
}

/* 16-bit floats: four a lane where rows are aligned for it. */
__device__ static inline void hr_kv_store_halves(const float *row, uint32_t dim, uint16_t *to, bool brain) {
    const uint32_t lane = threadIdx.x % 32;
    if (dim % 4 == 0 && hr_is_aligned(to, 8)) {
        for (uint32_t d = 4 * lane; d < dim; d += 128) {
            const float4 v = hr_quad(row, d, dim, hr_is_aligned(row, 16));
            *reinterpret_cast<uint2 *>(to + d) =
                brain ? hr_quad_bf16(v) : hr_pack16(hr_to_f16(v.x), hr_to_f16(v.y), hr_to_f16(v.z), hr_to_f16(v.w));
        }
        return;
    }
    for (uint32_t d = lane; d < dim; d += 32) to[d] = brain ? hr_to_bf16(row[d]) : hr_to_f16(row[d]);
}

/* A lane holds one of 32 values. */
__device__ static inline void hr_kv_store_int8(float x, float d, int8_t *to) {
    to[threadIdx.x % 32] = d > 0 ? (int8_t)hr_kv_level(x, d, 127) : (int8_t)0;
}
__device__ static inline void hr_kv_store_int4(float x, uint16_t scale, uint8_t *to) {
    const float d = hr_of_f16(scale);
    const uint32_t nibble = d > 0 ? (uint32_t)(hr_kv_level(x, d, 7) + 8) & 15 : 8;
    const uint32_t high = __shfl_down_sync(0xffffffffu, nibble, 16), lane = threadIdx.x % 32;
    if (lane < 16) to[lane] = (uint8_t)(nibble | high << 4);
}

/* row [dim] may lie in shared memory; scale: of this row, where the type has scales. All lanes of the warp come here. V of i4kc
 * is q4_0; K of i4kc is not stored here. */
__device__ static inline void hr_kv_store_row(hr_dtype type, const float *row, uint32_t dim, uint8_t *to,
                                              uint16_t *scale) {
    const uint32_t lane = threadIdx.x % 32;
    if (type == HR_F32) {
        for (uint32_t d = lane; d < dim; d += 32) reinterpret_cast<float *>(to)[d] = row[d];
    } else if (type == HR_F16 || type == HR_BF16) {
        hr_kv_store_halves(row, dim, reinterpret_cast<uint16_t *>(to), type == HR_BF16);
    } else if (type == HR_I8ROW) {
        float most = 0;
        for (uint32_t d = lane; d < dim; d += 32) most = fmaxf(most, hr_kv_size(row[d]));
        const uint16_t stored = hr_kv_scale(hr_warp_max(most), 127);
        if (lane == 0) *scale = stored;
        for (uint32_t d = 0; d < dim; d += 32)
            hr_kv_store_int8(row[d + lane], hr_of_f16(stored), reinterpret_cast<int8_t *>(to) + d);
    } else {
        const bool bytes = type == HR_Q8_0;
        for (uint32_t d = 0; d < dim; d += 32) {
            const float x = row[d + lane];
            const uint16_t stored = hr_kv_scale(hr_warp_max(hr_kv_size(x)), bytes ? 127 : 7);
            if (lane == 0) scale[d / 32] = stored;
            if (bytes)
                hr_kv_store_int8(x, hr_of_f16(stored), reinterpret_cast<int8_t *>(to) + d);
            else
                hr_kv_store_int4(x, stored, to + d / 2);
        }
    }
}

/* One 16-bit word of the scales of the closed group that begins at position `first`: word i of [2 * head_dim] lies in the row
 * of the position that holds that share. */
__device__ static inline uint16_t *hr_kv_group_word(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first,
                                                    uint32_t i) {
    const uint32_t words = (uint32_t)(s->g->row_bytes[HR_KV_KS] / 2);
    uint8_t *at = hr_kv_run(s, layer, head, first + i / words).at[HR_KV_KS];
    return reinterpret_cast<uint16_t *>(at) + i % words;
}

#endif
