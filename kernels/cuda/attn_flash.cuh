/* attn_flash.cuh - prefill on the tensor cores: bf16 products, fp32 sums, online softmax. Compiled once for each height of a tile
 * (attn_flash_64.cu, attn_flash_128.cu).
 *
 * A warp has 16 rows (queries x heads of a group) and meets the others only to share tiles of K and V. In shared memory rows stand 16
 * bytes further apart than they are long, so that the 8 rows of a matrix that ldmatrix reads meet in no bank. One buffer for K and one
 * for V suffice: V of a tile comes while its scores are computed, K of the next while its output is. */
#ifndef HR_ATTN_FLASH_CUH
#define HR_ATTN_FLASH_CUH

#include "kernels/cuda/attn_launch.h"
#include "kernels/cuda/attn_stage.cuh"

namespace {

/* What a block shares. */
struct flash_shared {
    uint16_t *q, *k, *v;         /* [rows or keys][DIM + 8], bf16 */
    attn_row *k_table, *v_table; /* [keys] */
    uint16_t *groups;            /* [keys / 32][2 * dim] */
};

__device__ inline float max_of_four(float x) { /* lanes that share a row */
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* scores[KEYS / 8 tiles of 16 x 8] = Q K^T of the warp's 16 rows; q is theirs. */
template <int DIM, int KEYS>
__device__ inline void flash_scores(const uint16_t *q, const uint16_t *k, uint32_t dim, float scores[KEYS / 8][4]) {
    constexpr int LD = DIM + 8;
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *q_at = q + lane % 16 * LD + lane / 16 * 8,
                   *k_at = k + (lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) scores[n][i] = 0;
#pragma unroll
    for (int c = 0; c < DIM; c += 16) {
        if ((uint32_t)c >= dim) break;
        uint32_t a[4], b[4];
        hr_ldmatrix_x4(a, q_at + c);
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            hr_ldmatrix_x4(b, k_at + 16 * n * LD + c);
            hr_mma_bf16(scores[2 * n], a, b);
            hr_mma_bf16(scores[2 * n + 1], a, b + 2);
        }
    }
}

/* out[DIM / 8 tiles of 16 x 8] += weights V. weights: two as bf16 in one, the fragments of A. */
template <int DIM, int KEYS>
__device__ inline void flash_outputs(const uint32_t weights[KEYS / 16][4], const uint16_t *v, uint32_t dim,
                                     float out[DIM / 8][4]) {
    constexpr int LD = DIM + 8;
    const uint32_t lane = threadIdx.x % 32;
    const uint16_t *v_at = v + lane % 16 * LD + lane / 16 * 8;
#pragma unroll
    for (int c = 0; c < DIM; c += 16) {
        if ((uint32_t)c >= dim) break;
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            hr_ldmatrix_x4_trans(b, v_at + 16 * n * LD + c);
            hr_mma_bf16(out[c / 8], weights[n], b);
            hr_mma_bf16(out[c / 8 + 1], weights[n], b + 2);
        }
    }
}

/* What a thread keeps of its two rows, lane / 4 and 8 further. */
template <int DIM> struct flash_state {
    float top[2], sum[2]; /* scores and maximum in units of log 2 */
    float out[DIM / 8][4];
    attn_seen seen[2];
};

/* Scores to weights, in place of the scores' fragments; rescales what was summed before. */
template <int DIM, int KEYS>
__device__ inline void flash_softmax(const hr_cuda_attn &p, const attn_head &h, uint32_t base, bool masked,
                                     float scores[KEYS / 8][4], uint32_t weights[KEYS / 16][4], flash_state<DIM> &s) {
    constexpr float LOG2E = 1.44269504f;
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t pos = base + 8 * n + lane % 4 * 2 + i % 2;
            scores[n][i] =
                masked && !attn_sees(h, s.seen[i / 2], pos) ? -INFINITY : attn_score(p, scores[n][i]) * LOG2E;
        }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float best = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) best = fmaxf(best, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
        best = fmaxf(s.top[r], max_of_four(best));
        const float from = best == -INFINITY ? 0 : best, shrink = exp2f(s.top[r] - from);
        s.top[r] = best, s.sum[r] *= shrink;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) s.out[n][2 * r] *= shrink, s.out[n][2 * r + 1] *= shrink;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            const uint32_t w = attn_pack(exp2f(scores[n][2 * r] - from), exp2f(scores[n][2 * r + 1] - from));
            s.sum[r] += attn_bits(w << 16) + attn_bits(w & 0xffff0000u); /* as rounded */
            weights[n / 2][n % 2 * 2 + r] = w;
        }
    }
}

template <int DIM>
__device__ inline void flash_store(const hr_cuda_attn &p, const attn_tile &tile, uint32_t row0, flash_state<DIM> &s) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint32_t mine = row0 + lane / 4 + 8 * r;
        const float all = sum_of_four(s.sum[r]);
        if (mine >= tile.n) continue;
        const uint32_t row = tile.row0 + attn_tile_query(tile, mine), head = attn_tile_head(tile, mine);
#pragma unroll
        for (int n = 0; n < DIM / 8; n++) {
            const uint32_t d = 8 * n + lane % 4 * 2;
            if (d >= p.head_dim) continue;
            attn_store(p, row, head, d, s.out[n][2 * r] / all);
            attn_store(p, row, head, d + 1, s.out[n][2 * r + 1] / all);
        }
        if (head == p.n_heads - 1) attn_store_padding(p, row, lane % 4, 4);
    }
}

template <int DIM, int ROWS>
__device__ void flash(const hr_cuda_attn &p, const attn_head &h, const attn_tile &tile, const flash_shared &in) {
    constexpr int LD = DIM + 8, KEYS = hr_cuda_flash_keys(DIM), THREADS = 2 * ROWS;
    const uint32_t t = threadIdx.x, lane = t % 32, row0 = t / 32 * 16, dim = p.head_dim;
    const void *anywhere = h.kv->base[HR_KV_K];
    for (uint32_t i = t; i < ROWS * (LD / 2); i += THREADS) { /* zeros behind head_dim */
        const uint32_t r = i / (LD / 2), d = 2 * (i % (LD / 2));
        const bool is = r < tile.n && d < dim;
        const float *q =
            p.q + (size_t)(tile.row0 + attn_tile_query(tile, r)) * p.ldq + (size_t)attn_tile_head(tile, r) * dim;
        *(uint32_t *)(void *)(in.q + r * LD + d) = is ? attn_pack(q[d], q[d + 1]) : 0;
    }
    for (uint32_t i = t; i < KEYS * 8; i += THREADS)
        if (dim < DIM) in.k[i / 8 * LD + dim + i % 8] = 0, in.v[i / 8 * LD + dim + i % 8] = 0;

    flash_state<DIM> s;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        s.top[r] = -INFINITY, s.sum[r] = 0;
        s.seen[r] = attn_seen_from(tile.pos0 + attn_tile_query(tile, row0 + lane / 4 + 8 * r), p.window);
    }
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s.out[n][i] = 0;
    const attn_seen begin = attn_seen_from(tile.pos0 + attn_tile_query(tile, row0), p.window);
    const attn_seen end = attn_seen_from(tile.pos0 + attn_tile_query(tile, row0 + 15), p.window);

    uint32_t base = attn_next_tile(h, tile.first / KEYS * KEYS, KEYS);
    if (t < KEYS)
        attn_find_k(h, tile, base, t, in.k_table, in.groups);
    else if (t < 2 * KEYS)
        attn_find_v(h, tile, base, t - KEYS, in.v_table);
    __syncthreads();
    attn_stage(in.k, LD, in.k_table, KEYS, dim, h.k_type, h.closed > base ? h.closed - base : 0, anywhere, THREADS);
    hr_cp_async_commit();
    while (base <= tile.last) {
        const uint32_t next = attn_next_tile(h, base + KEYS, KEYS);
        const bool works = base <= end.last && base + KEYS > begin.first && row0 < tile.n;
        hr_cp_async_wait<0>();
        __syncthreads(); /* K is here, V of the tile before is done with */
        attn_stage(in.v, LD, in.v_table, KEYS, dim, h.v_type, KEYS, anywhere, THREADS);
        hr_cp_async_commit();
        if (t < KEYS && next <= tile.last) attn_find_k(h, tile, next, t, in.k_table, in.groups);
        float scores[KEYS / 8][4];
        if (works) flash_scores<DIM, KEYS>(in.q + row0 * LD, in.k, dim, scores);
        hr_cp_async_wait<0>();
        __syncthreads(); /* V is here, K is done with */
        if (next <= tile.last) {
            attn_stage(in.k, LD, in.k_table, KEYS, dim, h.k_type, h.closed > next ? h.closed - next : 0, anywhere,
                       THREADS);
            if (t < KEYS) attn_find_v(h, tile, next, t, in.v_table);
        }
        hr_cp_async_commit();
        if (works) {
            const bool masked = base + KEYS - 1 > begin.last || base < end.first ||
                                (h.gone_from < base + KEYS && h.gone_to > base && h.gone_from < h.gone_to);
            uint32_t weights[KEYS / 16][4];
            flash_softmax<DIM, KEYS>(p, h, base, masked, scores, weights, s);
            flash_outputs<DIM, KEYS>(weights, in.v, dim, s.out);
        }
        base = next;
    }
    flash_store<DIM>(p, tile, row0, s);
}

/* grid: tiles of rows, KV heads; 2 * ROWS threads */
template <int ROWS> __device__ void flash_rows(const hr_cuda_attn &p) {
    HR_SHARED_DYNAMIC(uint16_t, area);
    HR_SHARED(attn_row, k_table, [HR_CUDA_FLASH_KEYS]);
    HR_SHARED(attn_row, v_table, [HR_CUDA_FLASH_KEYS]);
    HR_SHARED(uint16_t, groups, [HR_CUDA_FLASH_KEYS / HR_KV_GROUP * 2 * HR_KV_GROUP_DIM]);
    const hr_cuda_segment *segment = p.batch->segments;
    /* the longest tiles, the last ones, first */
    const attn_tile tile = attn_tile_of(p, segment, blockIdx.y, gridDim.x - 1 - blockIdx.x, ROWS);
    if (!tile.n) return;
    const attn_head h = attn_head_of(segment, p.layer, blockIdx.y);
    const uint32_t dim = hr_cuda_flash_dim(p.head_dim), ld = dim + 8;
    flash_shared in;
    in.q = area, in.k = in.q + ROWS * ld, in.v = in.k + hr_cuda_flash_keys(dim) * ld;
    in.k_table = k_table, in.v_table = v_table, in.groups = groups;
    if (dim <= 128)
        flash<128, ROWS>(p, h, tile, in);
    else
        flash<256, ROWS>(p, h, tile, in);
}

} // namespace

#endif
