/* attn_flash_f32.cu - prefill with fp32 arithmetic throughout: the exact run, and caches of f32.
 *
 * A block has 32 rows (queries x heads of a group) and walks tiles of 32 positions with an online softmax. Threads stand as 8 x
 * 16: each has 4 rows, 2 positions of the scores, and 4 columns in 64 of the output. */
#include "kernels/cuda/attn_launch.h"
#include "kernels/cuda/attn_stage.cuh"

namespace {

enum { ROWS = HR_CUDA_F32_ROWS, THREADS = 128, ACROSS = 16, MINE = 4, P_LD = ROWS + 4 };

/* The same of the 16 threads that share their rows. */
__device__ float across_max(float x) {
    for (int o = ACROSS / 2; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
    return x;
}
__device__ float across_sum(float x) {
    for (int o = ACROSS / 2; o; o >>= 1) x += __shfl_xor_sync(0xffffffffu, x, o);
    return x;
}

__device__ float dot4(float4 a, float4 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/* PARTS: pieces of 64 columns that cover head_dim. */
template <int PARTS>
__device__ void flash(const hr_cuda_attn &p, const attn_head &h, const attn_tile &tile, float *q, attn_row *table,
                      uint16_t *groups) {
    const uint32_t t = threadIdx.x, tx = t % ACROSS, r0 = t / ACROSS * MINE, dim = p.head_dim, ld = dim + 4;
    float *k = q + ROWS * ld, *v = k + ROWS * ld, *weights = v + ROWS * ld; /* [ROWS][P_LD] */
    float top[MINE], sum[MINE];
    float4 out[MINE][PARTS];
    attn_seen seen[MINE];
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        top[i] = -INFINITY, sum[i] = 0;
        seen[i] = attn_seen_from(tile.pos0 + attn_tile_query(tile, r0 + i), p.window);
#pragma unroll
        for (int c = 0; c < PARTS; c++) out[i][c] = make_float4(0, 0, 0, 0);
    }
    for (uint32_t base = tile.first / ROWS * ROWS; base <= tile.last; base += ROWS) {
        base = attn_next_tile(h, base, ROWS);
        if (base > tile.last) break;
        __syncthreads(); /* the previous tile is done with */
        if (t < ROWS)
            attn_find_k(h, tile, base, t, table, groups);
        else if (t < 2 * ROWS)
            attn_find_v(h, tile, base, t - ROWS, table + ROWS);
        __syncthreads();
        attn_stage(k, ld, table, ROWS, dim, h.k_type, h.closed > base ? h.closed - base : 0, NULL, THREADS);
        attn_stage(v, ld, table + ROWS, ROWS, dim, h.v_type, ROWS, NULL, THREADS);
        __syncthreads();

        float dot[MINE][2] = {};
#pragma unroll 1
        for (uint32_t d = 0; d < dim; d += 4) {
            const float4 k0 = *(const float4 *)(const void *)(k + tx * ld + d);
            const float4 k1 = *(const float4 *)(const void *)(k + (tx + ACROSS) * ld + d);
#pragma unroll
            for (int i = 0; i < MINE; i++) {
                const float4 x = *(const float4 *)(const void *)(q + (r0 + i) * ld + d);
                dot[i][0] += dot4(x, k0), dot[i][1] += dot4(x, k1);
            }
        }
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            float score[2];
#pragma unroll
            for (int j = 0; j < 2; j++)
                score[j] = attn_sees(h, seen[i], base + tx + ACROSS * j) ? attn_score(p, dot[i][j]) : -INFINITY;
            const float best = fmaxf(top[i], across_max(fmaxf(score[0], score[1])));
            const float shrink = top[i] == -INFINITY ? 0 : expf(top[i] - best);
            top[i] = best, sum[i] *= shrink;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float w = score[j] == -INFINITY ? 0 : expf(score[j] - best);
                weights[(r0 + i) * P_LD + tx + ACROSS * j] = w;
                sum[i] += w;
            }
#pragma unroll
            for (int c = 0; c < PARTS; c++)
                out[i][c].x *= shrink, out[i][c].y *= shrink, out[i][c].z *= shrink, out[i][c].w *= shrink;
        }
        __syncwarp(); /* a row's weights are written and read within a warp */
#pragma unroll 1
        for (uint32_t j = 0; j < ROWS; j++) {
            float w[MINE];
#pragma unroll
            for (int i = 0; i < MINE; i++) w[i] = weights[(r0 + i) * P_LD + j];
#pragma unroll
            for (int c = 0; c < PARTS; c++) {
                if (64 * c + 4 * tx >= dim) continue;
                const float4 x = *(const float4 *)(const void *)(v + j * ld + 64 * c + 4 * tx);
#pragma unroll
                for (int i = 0; i < MINE; i++) {
                    out[i][c].x += w[i] * x.x, out[i][c].y += w[i] * x.y;
                    out[i][c].z += w[i] * x.z, out[i][c].w += w[i] * x.w;
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const float all = across_sum(sum[i]);
        if (r0 + i >= tile.n) continue;
        const uint32_t row = tile.row0 + attn_tile_query(tile, r0 + i), head = attn_tile_head(tile, r0 + i);
#pragma unroll
        for (int c = 0; c < PARTS; c++) {
            const uint32_t d = 64 * c + 4 * tx;
            if (d >= dim) continue;
            attn_store(p, row, head, d, out[i][c].x / all), attn_store(p, row, head, d + 1, out[i][c].y / all);
            attn_store(p, row, head, d + 2, out[i][c].z / all), attn_store(p, row, head, d + 3, out[i][c].w / all);
        }
        if (head == p.n_heads - 1) attn_store_padding(p, row, tx, ACROSS);
    }
}

/* grid: tiles of rows, KV heads */
__device__ void flash_f32(const hr_cuda_attn &p) {
    HR_SHARED_DYNAMIC(float, q); /* [ROWS][dim + 4], then K, V, weights */
    HR_SHARED(attn_row, table, [2 * ROWS]);
    HR_SHARED(uint16_t, groups, [2 * HR_KV_GROUP_DIM]);
    const hr_cuda_segment *segment = p.batch->segments;
    /* the longest tiles, the last ones, first */
    const attn_tile tile = attn_tile_of(p, segment, blockIdx.y, gridDim.x - 1 - blockIdx.x, ROWS);
    if (!tile.n) return;
    const attn_head h = attn_head_of(segment, p.layer, blockIdx.y);
    const uint32_t dim = p.head_dim;
    for (uint32_t i = threadIdx.x; i < ROWS * dim; i += THREADS) {
        const uint32_t r = i / dim, d = i % dim;
        const size_t row = tile.row0 + attn_tile_query(tile, r);
        q[r * (dim + 4) + d] = r < tile.n ? p.q[row * p.ldq + (size_t)attn_tile_head(tile, r) * dim + d] : 0;
    }
    if (dim <= 128)
        flash<2>(p, h, tile, q, table, groups);
    else
        flash<4>(p, h, tile, q, table, groups);
}

} // namespace

HR_KERNEL_OF(hr_attn_flash_f32, THREADS, hr_cuda_attn, flash_f32)
