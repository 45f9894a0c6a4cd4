/* sample.cu - a token from each row of logits: the largest, or one drawn from the k largest. A row is cut into parts, a block
 * each; what they find meets in the workspace, and the block that comes last decides and leaves the workspace zeroed.
 *
 * The draw follows engine/sample.c step by step, in double as there: a sum in another order or precision can be another
 * token. It is done for k candidates by one thread, and costs nothing beside reading the logits. */
#include "kernels/base/random.h"
#include "kernels/cuda/top_k.cuh"
#include "kernels/cuda/vec_launch.h"

/* The workspace begins with one for each row; lists [row][part][k] follow. */
typedef struct sample_slot {
    hr_key best;
    uint32_t arrived, unused;
} sample_slot;
static_assert(sizeof(sample_slot) == HR_SAMPLE_SLOT, "the shape counts on it");

typedef struct sample_part {
    const float *x; /* [vocab] */
    uint32_t from, end;
    bool wide;
} sample_part;

__device__ static inline sample_part part_of(const hr_cuda_sample &p, uint32_t row) {
    const uint32_t length = ((p.vocab + gridDim.x - 1) / gridDim.x + 3) & ~3u;
    const float *x = p.logits + (size_t)row * p.vocab;
    const uint32_t from = min(blockIdx.x * length, p.vocab);
    return {x, from, min(from + length, p.vocab), hr_is_aligned(x, 16)};
}

/* Whether this block is the last of its row; all that the others wrote is then visible. All threads come here. */
__device__ static inline bool comes_last(sample_slot *slot) {
    HR_SHARED(uint32_t, before, [1]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before[0] = atomicAdd(&slot->arrived, 1u);
    __syncthreads();
    __threadfence();
    return before[0] + 1 == gridDim.x;
}

/* ---- the largest ---- */

__device__ static inline void argmax(const hr_cuda_sample &p, uint32_t row) {
    HR_SHARED(hr_key, room, [32]);
    const sample_part part = part_of(p, row);
    hr_key best = 0;
    for (uint32_t c = part.from + 4 * threadIdx.x; c < part.end; c += 4 * blockDim.x) {
        const float4 v = hr_quad(part.x, c, part.end, part.wide);
        best = hr_key_larger(best, hr_key_of(v.x, c));
        if (c + 1 < part.end) best = hr_key_larger(best, hr_key_of(v.y, c + 1));
        if (c + 2 < part.end) best = hr_key_larger(best, hr_key_of(v.z, c + 2));
        if (c + 3 < part.end) best = hr_key_larger(best, hr_key_of(v.w, c + 3));
    }
    for (int o = 16; o; o >>= 1) best = hr_key_larger(best, __shfl_xor_sync(0xffffffffu, best, o));
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x) return;
    for (uint32_t w = 1; w < blockDim.x / 32; w++) best = hr_key_larger(best, room[w]);
    sample_slot *slot = static_cast<sample_slot *>(p.workspace) + row;
    atomicMax(&slot->best, best);
    __threadfence();
    if (atomicAdd(&slot->arrived, 1u) + 1 < gridDim.x) return;
    __threadfence();
    p.out[row] = hr_key_id(atomicExch(&slot->best, 0ull));
    slot->arrived = 0;
}

/* ---- the k largest ---- */

/* Of a part, into keys[0..k - 1], sorted; keys holds `lists` lists of k. */
__device__ static inline void top_k_of_part(const sample_part &part, hr_key *keys, uint32_t lists, uint32_t k) {
    uint32_t kept = 0; /* lists that hold what was found before: none, then one */
    uint32_t c = part.from;
    do {
        const uint32_t n = (lists - kept) * k;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
            keys[kept * k + i] = c + i < part.end ? hr_key_of(part.x[c + i], c + i) : 0;
        hr_top_k_sort(keys + kept * k, lists - kept, k);
        hr_top_k_join(keys, lists, k);
        c += n, kept = 1;
    } while (c < part.end);
    __syncthreads();
}

/* Joins the lists that all parts left behind, and clears them. */
__device__ static inline void top_k_of_parts(hr_key *found, uint32_t parts, hr_key *keys, uint32_t lists, uint32_t k) {
    uint32_t kept = 0, next = 0;
    do {
        const uint32_t n = min(parts - next, lists - kept);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < n * k; i += blockDim.x) {
            keys[kept * k + i] = __ldcg(found + next * k + i);
            found[next * k + i] = 0;
        }
        hr_top_k_join(keys, kept + n, k);
        next += n, kept = 1;
    } while (next < parts);
    __syncthreads();
}

/* ---- the draw ---- */

/* Of candidates sorted best first, of which the first is finite. weights [top_k]: against the first, which weighs 1. */
__device__ static inline int32_t draw(const hr_cuda_sample &p, uint32_t row, const hr_key *keys,
                                      const double *weights) {
    const uint32_t k = p.top_k;
    double total = 0, sum = 0;
    for (uint32_t i = 0; i < k; i++) total = __dadd_rn(total, weights[i]);
    const double enough = __dmul_rn((double)p.top_p, total);
    uint32_t kept = 0;
    while (kept < k) { /* the fewest that reach top_p, at least one */
        const double w = weights[kept];
        if (kept && (w < (double)p.min_p || sum >= enough)) break;
        sum = __dadd_rn(sum, w);
        kept++;
    }
    double left = __dmul_rn((double)(hr_random(&p.rng[row]) >> 11) * 0x1p-53, sum);
    for (uint32_t i = 0; i < kept; i++) {
        left = __dadd_rn(left, -weights[i]);
        if (left < 0) return hr_key_id(keys[i]);
    }
    return hr_key_id(keys[kept - 1]);
}

__device__ static inline void sample_top_k(const hr_cuda_sample &p, uint32_t row) {
    HR_SHARED_DYNAMIC(hr_key, keys);
    HR_SHARED(double, weights, [HR_CUDA_TOP_K]);
    const uint32_t k = hr_sample_list(p.top_k), lists = hr_sample_lists(&p, gridDim.x);
    top_k_of_part(part_of(p, row), keys, lists, k);
    if (gridDim.x > 1) {
        sample_slot *slot = static_cast<sample_slot *>(p.workspace) + row;
        hr_key *found =
            reinterpret_cast<hr_key *>(static_cast<sample_slot *>(p.workspace) + p.n) + (size_t)row * gridDim.x * k;
        for (uint32_t i = threadIdx.x; i < k; i += blockDim.x) found[blockIdx.x * k + i] = keys[i];
        if (!comes_last(slot)) return;
        if (threadIdx.x == 0) slot->arrived = 0;
        top_k_of_parts(found, gridDim.x, keys, lists, k);
    }
    const float most = hr_key_logit(keys[0]);
    for (uint32_t i = threadIdx.x; i < p.top_k; i += blockDim.x) {
        const float logit = hr_key_logit(keys[i]);
        weights[i] = logit > -INFINITY ? exp(((double)logit - (double)most) / (double)p.temperature) : 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) p.out[row] = isfinite(most) ? draw(p, row, keys, weights) : hr_key_id(keys[0]);
}

HR_KERNEL(sample_cuda, 512, hr_cuda_sample, p) {
    const uint32_t row = blockIdx.y;
    if (row >= p.n || (p.batch && row >= p.batch->n_logits)) return;
    if (!(p.temperature > 0))
        argmax(p, row);
    else if (hr_sample_can(&p))
        sample_top_k(p, row);
    else if (threadIdx.x == 0 && blockIdx.x == 0)
        p.out[row] = -1;
}
