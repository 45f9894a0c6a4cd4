/* attn_naive.cu - attention without tiles of queries (-fa 0): each query and head for itself, in two passes over K.
 *
 * A block is one query of one head. The first pass finds the largest score, the second adds up weights and rows of V. It
 * covers every layout, type and number of queries, reads each row straight from where it lies, and is what the others are
 * measured against. */
#include "kernels/cuda/attn.cuh"

namespace {

enum { THREADS = 128, MAX_DIM = 256, PER_THREAD = MAX_DIM / THREADS, WARPS = THREADS / 32 };

__device__ void naive(const hr_cuda_attn &p) {
    HR_SHARED(float, q, [MAX_DIM]);
    HR_SHARED(uint16_t, groups, [THREADS / HR_KV_GROUP][2 * MAX_DIM]); /* scales of i4kc */
    HR_SHARED(float, weights, [THREADS]);
    HR_SHARED(float, by_warp, [WARPS]);
    const uint32_t head = blockIdx.x, row = blockIdx.y, dim = p.head_dim, t = threadIdx.x;
    if (row >= p.batch->n) return;
    const hr_cuda_segment *segment = p.batch->segments + p.batch->segment[row];
    const attn_head h = attn_head_of(segment, p.layer, head / (p.n_heads / p.n_kv_heads));
    const attn_seen seen = attn_seen_from(segment->pos0 + row - segment->row0, p.window);
    for (uint32_t d = t; d < dim; d += THREADS) q[d] = p.q[(size_t)row * p.ldq + (size_t)head * dim + d];

    float top = -INFINITY, sum = 0, out[PER_THREAD] = {};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t base = seen.first / THREADS * THREADS; base <= seen.last; base += THREADS) {
            const uint32_t pos = base + t;
            __syncthreads(); /* the previous tile is done with */
            if (h.k_type == HR_I4KC && pos < h.closed && !attn_is_gone(h, pos)) {
                const uint16_t *part = attn_k_row(h, pos).scales;
                const uint32_t n = 2 * dim / HR_KV_GROUP; /* f16 that a position holds */
                for (uint32_t i = 0; i < n; i++) groups[t / HR_KV_GROUP][t % HR_KV_GROUP * n + i] = part[i];
            }
            __syncthreads();
            float score = -INFINITY;
            if (attn_sees(h, seen, pos)) {
                const uint32_t type = attn_k_type(h, pos);
                const attn_row k = attn_k_row(h, pos);
                const uint16_t *scales = type == HR_I4KC ? groups[t / HR_KV_GROUP] : k.scales;
                float dot = 0;
                for (uint32_t d = 0; d < dim; d += 8) {
                    float x[8];
                    attn_load<8>(type, k.at, scales, d, x);
                    for (int i = 0; i < 8; i++) dot += q[d + i] * x[i];
                }
                score = attn_score(p, dot);
            }
            if (pass == 0) {
                top = fmaxf(top, score);
                continue;
            }
            weights[t] = expf(score - top);
            sum += weights[t];
            __syncthreads();
            for (uint32_t j = 0; j < THREADS && base + j <= seen.last; j++) {
                if (!attn_sees(h, seen, base + j)) continue;
                const attn_row v = attn_v_row(h, base + j);
#pragma unroll
                for (uint32_t i = 0; i < PER_THREAD; i++) {
                    float x[1];
                    if (t + i * THREADS >= dim) continue;
                    attn_load<1>(h.v_type, v.at, v.scales, t + i * THREADS, x);
                    out[i] += weights[j] * x[0];
                }
            }
        }
        /* largest score, then sum of weights, of all threads */
        __syncthreads();
        const float mine = pass ? hr_warp_sum(sum) : hr_warp_max(top);
        if (t % 32 == 0) by_warp[t / 32] = mine;
        __syncthreads();
        if (pass == 0)
            for (int w = 0; w < WARPS; w++) top = fmaxf(top, by_warp[w]);
    }
    sum = 0;
    for (int w = 0; w < WARPS; w++) sum += by_warp[w];
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; i++)
        if (t + i * THREADS < dim) attn_store(p, row, head, t + i * THREADS, out[i] / sum);
    if (head == p.n_heads - 1) attn_store_padding(p, row, t, THREADS);
}

} // namespace

HR_KERNEL_OF(hr_attn_naive, THREADS, hr_cuda_attn, naive)
