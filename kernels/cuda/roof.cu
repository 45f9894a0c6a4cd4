/* roof.cu - loads of one kind: reading, writing and copying memory, and arithmetic of one unit. They compute nothing that is
 * wanted; what they leave behind only proves that the work was done. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/roof_params.h"

/* ---- memory: a block takes tiles of U x threads words, one after another over the grid ---- */

/* U words, a block's threads side by side; the caller knows that all are there. */
template <int U> __device__ static inline void load_tile(uint4 v[U], const uint4 *from) {
#pragma unroll
    for (int u = 0; u < U; u++) v[u] = hr_load16_l2(from + (uint64_t)u * blockDim.x);
}

__device__ static inline uint32_t words_of(uint4 v) {
    return v.x + v.y + v.z + v.w;
}

__device__ static inline void put_sum(uint32_t *sums, uint32_t sum) {
    HR_SHARED(uint32_t, parts, [32]);
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t all = 0;
        for (uint32_t w = 0; w < (blockDim.x + 31) / 32; w++) all += parts[w];
        sums[blockIdx.x] = all;
    }
}

template <int U> __device__ static inline void read_all(const hr_cuda_roof_memory &p) {
    const uint4 *from = static_cast<const uint4 *>(p.from);
    const uint64_t tile = (uint64_t)U * blockDim.x, whole = p.n / tile * tile, first = blockIdx.x * tile + threadIdx.x;
    uint32_t sum = 0;
    for (uint32_t pass = 0; pass < p.passes; pass++) {
        uint64_t i = first;
        for (; i < whole; i += gridDim.x * tile) {
            uint4 v[U];
            load_tile<U>(v, from + i);
#pragma unroll
            for (int u = 0; u < U; u++) sum += words_of(v[u]);
        }
        for (int u = 0; u < U; u++, i += blockDim.x) /* of the last tile, what there is */
            if (i < p.n) sum += words_of(hr_load16_l2(from + i));
    }
    put_sum(p.sums, sum);
}

__device__ static inline uint4 word(uint64_t i, uint32_t seed) {
    return make_uint4(hr_roof_word(4 * i, seed), hr_roof_word(4 * i + 1, seed), hr_roof_word(4 * i + 2, seed),
                      hr_roof_word(4 * i + 3, seed));
}

template <int U> __device__ static inline void write_all(const hr_cuda_roof_memory &p) {
    uint4 *to = static_cast<uint4 *>(p.to);
    const uint64_t tile = (uint64_t)U * blockDim.x, whole = p.n / tile * tile, first = blockIdx.x * tile + threadIdx.x;
    const uint4 v = word(threadIdx.x, p.seed);
    for (uint32_t pass = 0; pass < p.passes; pass++) {
        uint64_t i = first;
        for (; i < whole; i += gridDim.x * tile) {
#pragma unroll
            for (int u = 0; u < U; u++) to[i + (uint64_t)u * blockDim.x] = v;
        }
        for (int u = 0; u < U; u++, i += blockDim.x)
            if (i < p.n) to[i] = v;
    }
}

template <int U> __device__ static inline void copy_all(const hr_cuda_roof_memory &p) {
    const uint4 *from = static_cast<const uint4 *>(p.from);
    uint4 *to = static_cast<uint4 *>(p.to);
    const uint64_t tile = (uint64_t)U * blockDim.x, whole = p.n / tile * tile, first = blockIdx.x * tile + threadIdx.x;
    for (uint32_t pass = 0; pass < p.passes; pass++) {
        uint64_t i = first;
        for (; i < whole; i += gridDim.x * tile) {
            uint4 v[U];
            load_tile<U>(v, from + i);
#pragma unroll
            for (int u = 0; u < U; u++) to[i + (uint64_t)u * blockDim.x] = v[u];
        }
        for (int u = 0; u < U; u++, i += blockDim.x)
            if (i < p.n) to[i] = hr_load16_l2(from + i);
    }
}

HR_KERNEL(roof_fill, HR_ROOF_THREADS, hr_cuda_roof_memory, p) {
    uint4 *to = static_cast<uint4 *>(p.to);
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += step) to[i] = word(i, p.seed);
}
HR_KERNEL_OF(roof_read_1, HR_ROOF_THREADS, hr_cuda_roof_memory, (read_all<1>))
HR_KERNEL_OF(roof_read_2, HR_ROOF_THREADS, hr_cuda_roof_memory, (read_all<2>))
HR_KERNEL_OF(roof_read_4, HR_ROOF_THREADS, hr_cuda_roof_memory, (read_all<4>))
HR_KERNEL_OF(roof_read_8, HR_ROOF_THREADS, hr_cuda_roof_memory, (read_all<8>))
HR_KERNEL_OF(roof_write_1, HR_ROOF_THREADS, hr_cuda_roof_memory, (write_all<1>))
HR_KERNEL_OF(roof_write_4, HR_ROOF_THREADS, hr_cuda_roof_memory, (write_all<4>))
HR_KERNEL_OF(roof_copy_1, HR_ROOF_THREADS, hr_cuda_roof_memory, (copy_all<1>))
HR_KERNEL_OF(roof_copy_4, HR_ROOF_THREADS, hr_cuda_roof_memory, (copy_all<4>))

/* ---- arithmetic ---- */

HR_KERNEL(roof_fma_fp32, HR_ROOF_THREADS, hr_cuda_roof_compute, p) {
    const float m = __uint_as_float(p.operands[0]), y = __uint_as_float(p.operands[1]);
    float c[HR_ROOF_CHAINS], sum = 0;
#pragma unroll
    for (int i = 0; i < HR_ROOF_CHAINS; i++) c[i] = (float)i;
    for (uint32_t loop = 0; loop < p.loops; loop++) {
#pragma unroll
        for (int step = 0; step < HR_ROOF_FMAS; step++) {
#pragma unroll
            for (int i = 0; i < HR_ROOF_CHAINS; i++) c[i] = fmaf(c[i], m, y);
        }
    }
#pragma unroll
    for (int i = 0; i < HR_ROOF_CHAINS; i++) sum += c[i];
    sum = hr_warp_sum(sum);
    if (threadIdx.x == 0) p.sums[blockIdx.x] = __float_as_uint(sum);
}

__device__ static inline void fragments(const hr_cuda_roof_compute &p, uint32_t a[4], uint32_t b[2]) {
    const uint32_t *mine = p.operands + 6 * (threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = mine[i];
    b[0] = mine[4], b[1] = mine[5];
}

/* mma(c, a, b) over all chains; the compiler cannot tell that they are alike, as each is volatile. */
template <class C, class Mma> __device__ static inline C mma_loops(const hr_cuda_roof_compute &p, Mma mma) {
    uint32_t a[4], b[2];
    C c[HR_ROOF_CHAINS][4] = {}, sum = 0;
    fragments(p, a, b);
    for (uint32_t loop = 0; loop < p.loops; loop++) {
#pragma unroll
        for (int i = 0; i < HR_ROOF_CHAINS; i++) mma(c[i], a, b);
    }
#pragma unroll
    for (int i = 0; i < HR_ROOF_CHAINS; i++) sum += c[i][0] + c[i][1] + c[i][2] + c[i][3];
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    return sum;
}

HR_KERNEL(roof_mma_bf16, HR_ROOF_THREADS, hr_cuda_roof_compute, p) {
    const float sum = mma_loops<float>(p, [](float *c, const uint32_t *a, const uint32_t *b) { hr_mma_bf16(c, a, b); });
    if (threadIdx.x == 0) p.sums[blockIdx.x] = __float_as_uint(sum);
}
HR_KERNEL(roof_mma_s8, HR_ROOF_THREADS, hr_cuda_roof_compute, p) {
    const uint32_t sum =
        mma_loops<int32_t>(p, [](int32_t *c, const uint32_t *a, const uint32_t *b) { hr_mma_s8(c, a, b); });
    if (threadIdx.x == 0) p.sums[blockIdx.x] = sum;
}

/* Architectures before 8.9 have no such instruction; there the kernel is not launched. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
__device__ static inline float e4m3_loops(const hr_cuda_roof_compute &p) {
    return mma_loops<float>(p, [](float *c, const uint32_t *a, const uint32_t *b) { hr_mma_e4m3(c, a, b); });
}
#else
__device__ static inline float e4m3_loops(const hr_cuda_roof_compute &) {
    return 0;
}
#endif
HR_KERNEL(roof_mma_e4m3, HR_ROOF_THREADS, hr_cuda_roof_compute, p) {
    const float sum = e4m3_loops(p);
    if (threadIdx.x == 0) p.sums[blockIdx.x] = __float_as_uint(sum);
}

HR_KERNEL(roof_empty, HR_ROOF_THREADS, hr_cuda_roof_empty, p) {
    (void)p;
}
