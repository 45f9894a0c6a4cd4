/* attn_decode.cu - attention of one query a sequence (decode), and the merge of its splits.
 *
 * A block takes one KV head of one sequence, all query heads that share it (up to 8), and a split of the positions, so that
 * each row of K and V is read once. Its warps work on tiles of 32 positions in turn and meet only at the end. A tile's rows come
 * to shared memory as they are stored, 16 bytes at a time and asynchronously: while K of a tile is multiplied its V is under
 * way, and while V is, K of the warp's next tile. Scores: a lane is a position. Output: a lane has a few elements of the head. */
#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/attn_launch.h"

namespace {

enum { ROWS = HR_CUDA_DECODE_ROWS, THREADS = 32 * HR_CUDA_DECODE_WARPS, MAX_HEADS = HR_CUDA_DECODE_HEADS };
static_assert((int)ROWS == (int)HR_KV_GROUP, "a tile is a group of i4kc, whose positions share their scales");

/* Shared memory of a warp. */
struct area {
    uint8_t *k, *v;                              /* [ROWS][stride] */
    uint16_t *k_scales, *v_scales;               /* [ROWS][their part of the scale plane] */
    float *weights;                              /* [heads][ROWS] */
    uint32_t k_stride, v_stride, k_part, v_part; /* bytes; f16 */
    uint32_t bytes;                              /* of it all; at most hr_cuda_decode_warp_bytes */
};

__device__ area area_at(const attn_head &h, uint8_t *at, uint32_t dim, int heads) {
    area a;
    uint32_t k_bytes = (uint32_t)h.g->row_bytes[HR_KV_K];
    if (h.k_type == HR_I4KC && k_bytes < 2 * dim) k_bytes = 2 * dim; /* of the open group */
    a.k_stride = k_bytes + 16, a.v_stride = (uint32_t)h.g->row_bytes[HR_KV_V] + 16;
    a.k_part = (uint32_t)h.g->row_bytes[HR_KV_KS] / 2, a.v_part = (uint32_t)h.g->row_bytes[HR_KV_VS] / 2;
    a.weights = (float *)(void *)at;
    a.k = at + 4 * ROWS * heads;
    a.v = a.k + ROWS * a.k_stride;
    a.k_scales = (uint16_t *)(void *)(a.v + ROWS * a.v_stride);
    a.v_scales = a.k_scales + ROWS * a.k_part;
    a.bytes = (uint32_t)((uint8_t *)(a.v_scales + ROWS * a.v_part) - at + 15) / 16 * 16;
    return a;
}

/* Starts the copy of a tile's rows, of `bytes` each; lane i says where row i lies, NULL: zeros instead. */
__device__ void fetch(uint8_t *to, uint32_t stride, uint32_t bytes, const uint8_t *mine, const uint8_t *anywhere) {
    const uint32_t lane = threadIdx.x % 32, parts = bytes / 16, step_rows = 32 / parts, step_parts = 32 % parts;
    uint32_t row = lane / parts, part = lane % parts;
#pragma unroll 1
    for (uint32_t i = 0; i < parts; i++) {
        const uint8_t *from = (const uint8_t *)__shfl_sync(0xffffffffu, (unsigned long long)mine, (int)row);
        hr_cp_async16(to + row * stride + 16 * part, from ? from + 16 * part : anywhere, from ? 16 : 0);
        row += step_rows, part += step_parts;
        if (part >= parts) row++, part -= parts;
    }
}
__device__ void fetch_k(const attn_head &h, const attn_seen &seen, const area &a, uint32_t base) {
    const uint32_t lane = threadIdx.x % 32, pos = base + lane;
    const bool sees = attn_sees(h, seen, pos), open = base >= h.closed;
    /* the scales of a group are spread over all of its positions */
    const bool wanted = sees || (h.k_type == HR_I4KC && !open && !attn_is_gone(h, pos));
    attn_row row = {NULL, NULL};
    if (wanted) row = attn_k_row(h, pos);
    fetch(a.k, a.k_stride, open ? 2 * h.g->head_dim : (uint32_t)h.g->row_bytes[HR_KV_K], sees ? row.at : NULL,
          h.kv->base[HR_KV_K]);
    hr_cp_async_commit();
    if (!row.scales) return;
#pragma unroll 1
    for (uint32_t i = 0; i < a.k_part; i++) a.k_scales[lane * a.k_part + i] = row.scales[i];
}
__device__ void fetch_v(const attn_head &h, const attn_seen &seen, const area &a, uint32_t base) {
    const uint32_t lane = threadIdx.x % 32, pos = base + lane;
    attn_row row = {NULL, NULL};
    if (attn_sees(h, seen, pos)) row = attn_v_row(h, pos);
    fetch(a.v, a.v_stride, (uint32_t)h.g->row_bytes[HR_KV_V], row.at, h.kv->base[HR_KV_V]);
    hr_cp_async_commit();
#pragma unroll 1
    for (uint32_t i = 0; i < a.v_part; i++) a.v_scales[lane * a.v_part + i] = row.scales ? row.scales[i] : (uint16_t)0;
}

/* q . K of this lane's position, for all heads. */
template <int HEADS>
__device__ void dots(const attn_head &h, const area &a, const float *q, uint32_t dim, uint32_t base, float dot[HEADS]) {
    const uint32_t lane = threadIdx.x % 32, type = attn_k_type(h, base);
    const uint8_t *row = a.k + lane * a.k_stride;
    const uint16_t *scales = type == HR_I4KC ? a.k_scales : a.k_scales + lane * a.k_part;
#pragma unroll
    for (int g = 0; g < HEADS; g++) dot[g] = 0;
#pragma unroll 1
    for (uint32_t d = 0; d < dim; d += 8) {
        float x[8];
        attn_load<8>(type, row, scales, d, x);
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            const float4 *y = (const float4 *)(const void *)(q + g * dim + d);
            const float4 lo = y[0], hi = y[1];
            dot[g] += lo.x * x[0] + lo.y * x[1] + lo.z * x[2] + lo.w * x[3];
            dot[g] += hi.x * x[4] + hi.y * x[5] + hi.z * x[6] + hi.w * x[7];
        }
    }
}

/* out += weights . V, elements N * lane .. of each head. */
template <int HEADS, int N>
__device__ void outputs(const attn_head &h, const area &a, uint32_t dim, float out[HEADS][N]) {
    const uint32_t lane = threadIdx.x % 32, d = N * lane;
    if (d >= dim) return;
#pragma unroll 1
    for (uint32_t j = 0; j < ROWS; j += 2) {
        float x[2][N];
        attn_load<N>(h.v_type, a.v + j * a.v_stride, a.v_scales + j * a.v_part, d, x[0]);
        attn_load<N>(h.v_type, a.v + (j + 1) * a.v_stride, a.v_scales + (j + 1) * a.v_part, d, x[1]);
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            const float2 w = *(const float2 *)(const void *)(a.weights + g * ROWS + j);
#pragma unroll
            for (int i = 0; i < N; i++) out[g][i] += w.x * x[0][i] + w.y * x[1][i];
        }
    }
}

/* Positions from..to - 1 for `heads` heads; what the warps found comes together in their areas. */
template <int HEADS, int N>
__device__ void decode_heads(const hr_cuda_attn &p, const attn_head &h, const attn_seen &seen, uint32_t from,
                             uint32_t to, const float *q, uint8_t *mine) {
    const uint32_t warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = p.head_dim;
    const area a = area_at(h, mine, dim, HEADS);
    float top[HEADS], sum[HEADS], out[HEADS][N];
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        top[g] = -INFINITY, sum[g] = 0;
#pragma unroll
        for (int i = 0; i < N; i++) out[g][i] = 0;
    }
    /* Step by step: K of the next tile is asked for between the two products of this one, V of the next after both. */
    const uint32_t step = ROWS * warps;
    for (uint32_t next = from + ROWS * warp, begun = 0; begun || next < to; next += step, begun = 1) {
        const uint32_t base = next - step;
        if (begun) {
            hr_cp_async_wait<1>(); /* K is here; V may be under way */
            __syncwarp();
            float dot[HEADS];
            dots<HEADS>(h, a, q, dim, base, dot);
            const bool sees = attn_sees(h, seen, base + lane);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                const float score = sees ? attn_score(p, dot[g]) : -INFINITY, best = fmaxf(top[g], hr_warp_max(score));
                const float shrink = top[g] == -INFINITY ? 0 : expf(top[g] - best), w = sees ? expf(score - best) : 0;
                a.weights[g * ROWS + lane] = w;
                sum[g] = sum[g] * shrink + w, top[g] = best;
#pragma unroll
                for (int i = 0; i < N; i++) out[g][i] *= shrink;
            }
            __syncwarp();
        }
        if (next < to)
            fetch_k(h, seen, a, next);
        else
            hr_cp_async_commit(); /* an empty group, so that waiting counts alike */
        if (begun) {
            hr_cp_async_wait<1>();
            __syncwarp();
            outputs<HEADS, N>(h, a, dim, out);
            __syncwarp();
        }
        if (next >= to) break;
        fetch_v(h, seen, a, next);
    }
    float *found = (float *)(void *)mine; /* [HEADS][2 + dim] */
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        const float all = hr_warp_sum(sum[g]);
        if (lane == 0) found[g * (2 + dim)] = top[g], found[g * (2 + dim) + 1] = all;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (N * lane + i < dim) found[g * (2 + dim) + 2 + N * lane + i] = out[g][i];
    }
}

template <int HEADS>
__device__ void decode_dim(const hr_cuda_attn &p, const attn_head &h, const attn_seen &seen, uint32_t from, uint32_t to,
                           const float *q, uint8_t *mine) {
    if (p.head_dim <= 64)
        decode_heads<HEADS, 2>(p, h, seen, from, to, q, mine);
    else if (p.head_dim <= 128)
        decode_heads<HEADS, 4>(p, h, seen, from, to, q, mine);
    else
        decode_heads<HEADS, 8>(p, h, seen, from, to, q, mine);
}

/* grid: splits, KV heads x parts of their group, segments */
__device__ void decode(const hr_cuda_attn &p) {
    HR_SHARED_DYNAMIC(uint8_t, shared);
    const uint32_t dim = p.head_dim, t = threadIdx.x, group = p.n_heads / p.n_kv_heads, warps = blockDim.x / 32;
    if (blockIdx.z >= p.batch->n_segments) return;
    const hr_cuda_segment *segment = p.batch->segments + blockIdx.z;
    const uint32_t pos = segment->pos0, row = segment->row0, split = blockIdx.x;
    const hr_cuda_attn_cut cut = hr_cuda_attn_cut_of(&p, pos);
    if (split >= cut.n) return;
    const uint32_t kv_head = blockIdx.y % p.n_kv_heads, first = blockIdx.y / p.n_kv_heads * MAX_HEADS;
    const uint32_t heads = group - first < MAX_HEADS ? group - first : MAX_HEADS, room = hr_cuda_decode_heads(group);
    const uint32_t head0 = kv_head * group + first;
    const attn_head h = attn_head_of(segment, p.layer, kv_head);
    const attn_seen seen = attn_seen_from(pos, p.window);
    const uint32_t from = cut.from + split * cut.piece, to = cut.to - from < cut.piece ? cut.to : from + cut.piece;

    float *q = (float *)(void *)shared; /* [room][dim] */
    for (uint32_t i = t; i < room * dim; i += blockDim.x)
        q[i] = i < heads * dim ? p.q[(size_t)row * p.ldq + (size_t)head0 * dim + i] : 0;
    __syncthreads();
    const uint32_t entry = 2 + dim;
    uint8_t *areas = shared + 4 * room * dim;
    const uint32_t bytes = area_at(h, areas, dim, (int)room).bytes;
    uint8_t *mine = areas + t / 32 * bytes;
    switch (room) {
    case 1:
        decode_dim<1>(p, h, seen, from, to, q, mine);
        break;
    case 4:
        decode_dim<4>(p, h, seen, from, to, q, mine);
        break;
    default:
        decode_dim<8>(p, h, seen, from, to, q, mine);
    }
    __syncthreads();

    for (uint32_t i = t; i < heads * dim; i += blockDim.x) {
        const uint32_t g = i / dim, d = i % dim;
        float top = -INFINITY, sum = 0, out = 0;
        for (uint32_t w = 0; w < warps; w++) top = fmaxf(top, ((float *)(void *)(areas + w * bytes))[g * entry]);
        for (uint32_t w = 0; w < warps; w++) {
            const float *found = (float *)(void *)(areas + w * bytes) + g * entry;
            const float share = found[0] == -INFINITY ? 0 : expf(found[0] - top);
            sum += share * found[1], out += share * found[2 + d];
        }
        if (p.splits <= 1) {
            attn_store(p, row, head0 + g, d, out / sum);
            continue;
        }
        float *partial = p.partial + (((size_t)blockIdx.z * p.n_heads + head0 + g) * p.splits + split) * entry;
        if (d == 0) partial[0] = top, partial[1] = sum;
        partial[2 + d] = out;
    }
    if (p.splits <= 1 && head0 + heads == p.n_heads) attn_store_padding(p, row, t, blockDim.x);
}

enum { MERGE_THREADS = 128 };

/* grid: heads, segments */
__device__ void merge(const hr_cuda_attn &p) {
    HR_SHARED(float, share, [HR_CUDA_SPLITS]);
    const uint32_t head = blockIdx.x, t = threadIdx.x, dim = p.head_dim, entry = 2 + dim;
    if (p.splits <= 1 || blockIdx.y >= p.batch->n_segments) return;
    const hr_cuda_segment *segment = p.batch->segments + blockIdx.y;
    const uint32_t n = hr_cuda_attn_cut_of(&p, segment->pos0).n;
    const float *partial = p.partial + ((size_t)blockIdx.y * p.n_heads + head) * p.splits * entry;
    float top = -INFINITY, sum = 0;
    for (uint32_t s = 0; s < n; s++) top = fmaxf(top, partial[s * entry]);
    for (uint32_t s = t; s < n; s += MERGE_THREADS)
        share[s] = partial[s * entry] == -INFINITY ? 0 : expf(partial[s * entry] - top);
    __syncthreads();
    for (uint32_t s = 0; s < n; s++) sum += share[s] * partial[s * entry + 1];
    for (uint32_t d = t; d < dim; d += MERGE_THREADS) {
        float out = 0;
        for (uint32_t s = 0; s < n; s++) out += share[s] * partial[s * entry + 2 + d];
        attn_store(p, segment->row0, head, d, out / sum);
    }
    if (head == p.n_heads - 1) attn_store_padding(p, segment->row0, t, MERGE_THREADS);
}

} // namespace

HR_KERNEL_OF(hr_attn_decode, THREADS, hr_cuda_attn, decode)
HR_KERNEL_OF(hr_attn_merge_splits, MERGE_THREADS, hr_cuda_attn, merge)
