/* top_k.cuh - the k largest of many keys, by a block in shared memory: lists of k, sorted, are joined two by two. The larger of
 * (element i of one list, element k - 1 - i of the other) are the k largest of both, in an order that a bitonic merge sorts. */
#ifndef HR_TOP_K_CUH
#define HR_TOP_K_CUH

#include "kernels/cuda/bits.cuh"

typedef unsigned long long hr_key;

/* A candidate as a number: larger logit first, then lower id. NaN counts as -infinity, -0 as 0. Never 0. */
__device__ static inline hr_key hr_key_of(float logit, uint32_t id) {
    const float x = logit >= -INFINITY ? logit + 0.0f : -INFINITY;
    const uint32_t u = __float_as_uint(x), rising = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (hr_key)rising << 32 | (0xffffffffu - id);
}
__device__ static inline int32_t hr_key_id(hr_key key) {
    return (int32_t)(0xffffffffu - (uint32_t)key);
}
__device__ static inline float hr_key_logit(hr_key key) {
    const uint32_t rising = (uint32_t)(key >> 32);
    return __uint_as_float(rising & 0x80000000u ? rising & 0x7fffffffu : ~rising);
}
__device__ static inline hr_key hr_key_larger(hr_key a, hr_key b) {
    return a > b ? a : b;
}

/* One round of compare and exchange at a distance over n keys; those whose index has the bit `size` rise, the others fall
 * (size 0: all fall). */
__device__ static inline void hr_top_k_round(hr_key *keys, uint32_t n, uint32_t distance, uint32_t size) {
    __syncthreads();
    for (uint32_t p = threadIdx.x; p < n / 2; p += blockDim.x) {
        const uint32_t i = 2 * p - (p & (distance - 1)), j = i + distance;
        const hr_key a = keys[i], b = keys[j];
        if ((a < b) == !(i & size)) keys[i] = b, keys[j] = a;
    }
}
/* Sorts each list of k, largest first; k is a power of two. */
__device__ static inline void hr_top_k_sort(hr_key *keys, uint32_t lists, uint32_t k) {
    for (uint32_t size = 2; size <= k; size *= 2)
        for (uint32_t distance = size / 2; distance; distance /= 2)
            hr_top_k_round(keys, lists * k, distance, size < k ? size : 0);
}
/* Joins sorted lists into the first. All threads see it after the next barrier. */
__device__ static inline void hr_top_k_join(hr_key *keys, uint32_t lists, uint32_t k) {
    while (lists > 1) {
        const uint32_t half = (lists + 1) / 2, pairs = lists - half;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < pairs * k; i += blockDim.x) {
            const uint32_t mirror = half * k + i / k * k + (k - 1 - i % k);
            keys[i] = hr_key_larger(keys[i], keys[mirror]);
        }
        for (uint32_t distance = k / 2; distance; distance /= 2) hr_top_k_round(keys, pairs * k, distance, 0);
        lists = half;
    }
}

#endif
