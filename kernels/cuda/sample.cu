/* sample.cu - the largest logit of each row. A row is cut into parts, a block each; their best meet in the workspace, and the
 * block that comes last writes the token and leaves the workspace zeroed. */
#include "kernels/base/random.h"
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/vec_launch.h"

/* A candidate as a number: larger logit first, then lower id. NaN counts as -infinity, -0 as 0. Never 0. */
__device__ static inline unsigned long long key_of(float logit, uint32_t id) {
    const float x = logit >= -INFINITY ? logit + 0.0f : -INFINITY;
    const uint32_t u = __float_as_uint(x), rising = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (unsigned long long)rising << 32 | (0xffffffffu - id);
}
__device__ static inline int32_t id_of(unsigned long long key) {
    return (int32_t)(0xffffffffu - (uint32_t)key);
}

/* Of one row in the workspace. */
typedef struct sample_slot {
    unsigned long long best;
    uint32_t arrived, unused;
} sample_slot;

__device__ static inline unsigned long long larger(unsigned long long a, unsigned long long b) {
    return a > b ? a : b;
}

__device__ static void argmax_part(const hr_cuda_sample &p, uint32_t i) {
    HR_SHARED(unsigned long long, room, [32]);
    const float *x = p.logits + (size_t)i * p.vocab;
    const uint32_t part = (p.vocab + gridDim.x - 1) / gridDim.x + 3 & ~3u, from = blockIdx.x * part;
    const uint32_t end = p.vocab - min(from, p.vocab) < part ? p.vocab : from + part, lane = threadIdx.x % 32;
    const bool wide = hr_is_aligned(x, 16);
    unsigned long long best = 0;
    for (uint32_t c = from + 4 * threadIdx.x; c < end; c += 4 * blockDim.x) {
        const float4 v = hr_quad(x, c, end, wide);
        best = larger(best, key_of(v.x, c));
        if (c + 1 < end) best = larger(best, key_of(v.y, c + 1));
        if (c + 2 < end) best = larger(best, key_of(v.z, c + 2));
        if (c + 3 < end) best = larger(best, key_of(v.w, c + 3));
    }
    for (int o = 16; o; o >>= 1) best = larger(best, __shfl_xor_sync(0xffffffffu, best, o));
    if (lane == 0) room[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
    for (uint32_t w = 1; w < blockDim.x / 32; w++) best = larger(best, room[w]);
    sample_slot *slot = static_cast<sample_slot *>(p.workspace) + i;
    atomicMax(&slot->best, best);
    __threadfence();
    if (atomicAdd(&slot->arrived, 1u) + 1 < gridDim.x) return;
    __threadfence();
    p.out[i] = id_of(atomicExch(&slot->best, 0ull));
    slot->arrived = 0;
}

HR_KERNEL(sample_cuda, 256, hr_cuda_sample, p) {
    const uint32_t i = blockIdx.y;
    if (i >= p.n || (p.batch && i >= p.batch->n_logits)) return;
    if (!(p.temperature > 0))
        argmax_part(p, i);
    else if (threadIdx.x == 0 && blockIdx.x == 0)
        p.out[i] = -1;
}
