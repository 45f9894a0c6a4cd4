/* heads.cu - what happens to Q, K and V between their products and attention: bias, norm of heads, rotation, append to the
 * cache. A warp takes one head of one token through all of it, in shared memory.
 *
 * K of i4kc is quantized in groups of positions: there a block takes the positions of one group of one head. Groups that end
 * inside the batch are independent, and need no open plane but for rows that stand there from before. The rows of a last
 * group that does not end would overwrite those, so the block of the first group takes the last one too, after its own. */
#include "kernels/cuda/kv_store.cuh"
#include "kernels/cuda/vec_launch.h"

/* Pairs (2i, 2i + 1) or (i, i + half), in place; products and sums are rounded one by one, as on the CPU. */
__device__ static inline void rotate(const hr_cuda_heads &p, uint32_t pos, float *row) {
    const uint32_t half = p.rope_dims / 2;
    const float2 *cs = reinterpret_cast<const float2 *>(p.angles) + (size_t)pos * half;
    for (uint32_t i = threadIdx.x % 32; i < half; i += 32) {
        const float2 turn = cs[i];
        float *x = row + (p.interleaved ? 2 * i : i), *y = row + (p.interleaved ? 2 * i + 1 : i + half);
        const float a = *x, b = *y;
        *x = __fsub_rn(__fmul_rn(a, turn.x), __fmul_rn(b, turn.y));
        *y = __fadd_rn(__fmul_rn(a, turn.y), __fmul_rn(b, turn.x));
    }
}

/* Head j of token t (Q, then K, then V) into row [head_dim]; prepared, and then written back too. One warp. */
template <bool PREPARE>
__device__ static inline void load_head(const hr_cuda_heads &p, uint32_t t, uint32_t pos, uint32_t j, float *row) {
    const uint32_t dim = p.head_dim, lane = threadIdx.x % 32;
    float *from = p.qkv + (size_t)t * p.ld + (size_t)j * dim;
    const bool is_q = j < p.n_heads, is_v = j >= p.n_heads + p.n_kv_heads;
    const float *bias = NULL, *weight = NULL;
    if (PREPARE) {
        bias = is_q ? p.bq : is_v ? p.bv : p.bk;
        weight = is_q ? p.q_norm : is_v ? NULL : p.k_norm;
        if (bias) bias += (is_q ? j : is_v ? j - p.n_heads - p.n_kv_heads : j - p.n_heads) * dim;
    }
    float sum = 0;
    for (uint32_t d = lane; d < dim; d += 32) {
        const float v = bias ? from[d] + bias[d] : from[d]; /* + 0 would lose the sign of -0 */
        sum += v * v;
        row[d] = v;
    }
    if (PREPARE && weight) {
        const float factor = 1 / sqrtf(hr_warp_sum(sum) / (float)dim + p.eps);
        for (uint32_t d = lane; d < dim; d += 32) row[d] = row[d] * factor * weight[d];
    }
    __syncwarp();
    if (!PREPARE) return;
    if (!is_v) {
        rotate(p, pos, row);
        __syncwarp();
    }
    if (!is_v || bias)
        for (uint32_t d = lane; d < dim; d += 32) from[d] = row[d];
}

/* One head of one token; a warp. */
template <bool PREPARE, bool APPEND>
__device__ static inline void head_job(const hr_cuda_heads &p, uint32_t unit, float *row) {
    const uint32_t jobs = hr_heads_jobs(&p, PREPARE, APPEND), t = unit / jobs;
    if (t >= p.batch->n) return;
    uint32_t j = unit % jobs + (PREPARE ? 0 : p.n_heads);
    if (APPEND && p.granule > 1 && j >= p.n_heads) j += p.n_kv_heads; /* to V */
    const uint32_t pos = p.batch->pos[t];
    const bool is_v = j >= p.n_heads + p.n_kv_heads;
    if (!APPEND && is_v && !p.bv) return;
    load_head<PREPARE>(p, t, pos, j, row);
    if (!APPEND || j < p.n_heads) return;
    const hr_kv_seq *s = &p.batch->segments[p.batch->segment[t]].kv;
    const hr_kv_rows run = hr_kv_run(s, p.layer, (j - p.n_heads) % p.n_kv_heads, pos);
    uint8_t *to = is_v ? run.at[HR_KV_V] : run.at[HR_KV_K], *scale = is_v ? run.at[HR_KV_VS] : run.at[HR_KV_KS];
    hr_kv_store_row(s->g->type[is_v], row, p.head_dim, to, reinterpret_cast<uint16_t *>(scale));
}

/* 0..15. */
__device__ static inline uint32_t channel_level(uint16_t x, float centre, float step) {
    float y = (hr_bf16_to_f32(x) - centre) / step;
    y = y > -8 ? y : -8;
    y = y < 7 ? y : 7;
    return (uint32_t)(hr_nearest_int(y) + 8);
}

/* Quantizes a group from its bf16 rows in tile [HR_KV_GROUP][dim]; scratch: [2][dim]. All threads of the block; what they write
 * has the bits of kernels/cpu/kv_group_body.h. */
__device__ static inline void close_group(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first,
                                          const uint16_t *tile, uint32_t dim, float *scratch) {
    float *step = scratch, *centre = scratch + dim;
    for (uint32_t d = threadIdx.x; d < dim; d += blockDim.x) {
        float low = hr_bf16_to_f32(tile[d]), high = low;
        for (uint32_t i = 1; i < HR_KV_GROUP; i++) {
            const float x = hr_bf16_to_f32(tile[i * dim + d]);
            low = x < low ? x : low, high = x > high ? x : high;
        }
        const uint16_t step_bits = hr_to_f16((high - low) / 15);
        const float width = hr_of_f16(step_bits);
        const uint16_t centre_bits = hr_to_f16(__fadd_rn(low, 8 * width));
        const uint32_t word = (uint32_t)hr_kv_channel(d);
        *hr_kv_group_word(s, layer, head, first, word) = step_bits;
        *hr_kv_group_word(s, layer, head, first, word + 16) = centre_bits;
        step[d] = width > 0 ? width : INFINITY, centre[d] = hr_of_f16(centre_bits);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < HR_KV_GROUP * dim / 2; i += blockDim.x) {
        const uint32_t row = i / (dim / 2), byte = i % (dim / 2), d = byte / 16 * 32 + byte % 16;
        const uint32_t low = channel_level(tile[row * dim + d], centre[d], step[d]);
        const uint32_t high = channel_level(tile[row * dim + d + 16], centre[d + 16], step[d + 16]);
        hr_kv_run(s, layer, head, first + row).at[HR_KV_K][byte] = (uint8_t)(low | high << 4);
    }
}

/* The rows of K that the batch has of one group; they close it if its last one is among them. All threads of the block. */
template <bool PREPARE>
__device__ static inline void append_group(const hr_cuda_heads &p, const hr_cuda_segment &g, uint32_t head,
                                           uint32_t group, float *area) {
    const uint32_t dim = p.head_dim, warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    const uint32_t first = group * HR_KV_GROUP, end = first + HR_KV_GROUP;
    const uint32_t from = g.pos0 > first ? g.pos0 : first, to = g.pos0 + g.n < end ? g.pos0 + g.n : end;
    float *row = area + warp * dim;
    uint16_t *tile = reinterpret_cast<uint16_t *>(area + warps * dim);
    for (uint32_t pos = from + warp; pos < to; pos += warps) {
        load_head<PREPARE>(p, g.row0 + (pos - g.pos0), pos, p.n_heads + head, row);
        uint16_t *open = hr_kv_open_row(&g.kv, p.layer, head, pos);
        for (uint32_t d = lane; d < dim; d += 32) { /* the columns that this lane puts there in the next round */
            const uint16_t bits = hr_to_bf16(row[d]);
            tile[(pos - first) * dim + d] = bits;
            if (to < end) open[d] = bits;
        }
    }
    if (to < end) return;
    const uint16_t *open = hr_kv_open_row(&g.kv, p.layer, head, first);
    for (uint32_t i = threadIdx.x; i < (from - first) * dim; i += blockDim.x) tile[i] = open[i];
    __syncthreads();
    close_group(&g.kv, p.layer, head, first, tile, dim, area);
}

/* Block `index` of those that take groups. */
template <bool PREPARE> __device__ static inline void group_job(const hr_cuda_heads &p, uint32_t index, float *area) {
    const hr_cuda_batch *batch = p.batch;
    const uint32_t head = index % p.n_kv_heads, unit = index / p.n_kv_heads;
    const bool one = batch->n_segments == 1;
    if (!one && unit >= batch->n_segments) return;
    const hr_cuda_segment &g = batch->segments[one ? 0 : unit];
    if (g.n == 0) return;
    const uint32_t group = g.pos0 / HR_KV_GROUP + (one ? unit : 0), end = g.pos0 + g.n;
    const uint32_t first = g.pos0 / HR_KV_GROUP, last = (end - 1) / HR_KV_GROUP;
    const bool last_stays_open = end % HR_KV_GROUP != 0;
    if (group > last || (group == last && group != first && last_stays_open)) return;
    const bool two = group == first && last != first && last_stays_open;
    for (uint32_t at = group;; at = last) {
        append_group<PREPARE>(p, g, head, at, area);
        if (at == last || !two) return;
        __syncthreads();
    }
}

template <bool PREPARE, bool APPEND> __device__ static inline void heads(const hr_cuda_heads &p) {
    HR_SHARED_DYNAMIC(float, area); /* a row a warp; then the rows of a group */
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const uint32_t blocks = hr_heads_job_blocks(&p, PREPARE, APPEND, warps);
    if (blockIdx.x < blocks)
        head_job<PREPARE, APPEND>(p, blockIdx.x * warps + warp, area + warp * p.head_dim);
    else if (APPEND)
        group_job<PREPARE>(p, blockIdx.x - blocks, area);
}

HR_KERNEL_RESIDENT(rope_cuda, 128, 8, hr_cuda_heads, p) {
    heads<true, false>(p);
}
HR_KERNEL_RESIDENT(kv_append_cuda, 128, 8, hr_cuda_heads, p) {
    heads<false, true>(p);
}
HR_KERNEL_RESIDENT(finish_cuda, 128, 8, hr_cuda_heads, p) {
    heads<true, true>(p);
}
