/* gemm.cuh - products for many tokens on tensor cores: tiles of weights and activations in shared memory, 128 bytes of columns at a
 * time, and what is done with the fragments of sums. Weights are the rows of mma's a, tokens the columns of its b.
 *
 * A tile lies in shared memory in rows of 128 bytes whose eight pieces of 16 are swapped by the row's number, so that eight rows
 * of one piece, as ldmatrix reads them, lie in all banks. The same bytes are 64 columns of bf16 or 128 of int8: fragments of
 * mma.m16n8k16 of bf16 and of mma.m16n8k32 of int8 come from the same places.
 *
 * Grid (tiles of tokens, tiles of rows, split): tiles of tokens next to each other, so that one reading of the weights serves all
 * of them from L2. With glu a tile's rows are 16 of gate and 16 of up by turns: the same thread has both sums. */
#ifndef HR_GEMM_CUH
#define HR_GEMM_CUH

#include "kernels/cuda/matmul.cuh"

enum { HR_GEMM_LINE = 128 }; /* bytes of columns of a tile */

__device__ __forceinline__ uint32_t hr_gemm_at(uint32_t row, uint32_t piece) {
    return row * HR_GEMM_LINE + (piece ^ (row & 7)) * 16;
}

/* ---- rows of a tile ---- */

/* Rows of outputs of a tile of `height`: all of one matrix, or `pair` of gate and `pair` of up by turns. */
struct hr_gemm_rows {
    uint32_t m, first, rows, pair; /* pair 0: no gate */
    __device__ __forceinline__ hr_gemm_rows(const hr_cuda_matmul &p, uint32_t tile, uint32_t height, uint32_t pair_)
        : m(0), pair(p.glu ? pair_ : 0) {
        if (pair) height /= 2;
        for (; !pair && m + 1 < p.n_mats; m++) {
            const uint32_t tiles = ((uint32_t)p.w[m].rows + height - 1) / height;
            if (tile < tiles) break;
            tile -= tiles;
        }
        first = tile * height, rows = (uint32_t)p.w[m].rows;
    }
    /* Matrix and row of the l-th row of the tile; the row may be past the end. */
    __device__ __forceinline__ uint32_t matrix(uint32_t l) const { return pair ? l / pair % 2 : m; }
    __device__ __forceinline__ uint32_t row(uint32_t l) const {
        return first + (pair ? l / (2 * pair) * pair + l % pair : l);
    }
    /* The same, the last row where it is past the end: its sums are not stored. */
    __device__ __forceinline__ uint32_t row_within(uint32_t l) const { return min(row(l), rows - 1); }
};

/* ---- copies of tiles whose bytes are used as they are ---- */

/* Each thread copies the same piece of every THREADS / 8-th row. */
template <int ROWS, int THREADS> struct hr_gemm_copy {
    enum { N = ROWS * 8 / THREADS };
    const uint8_t *from[N];
    uint32_t row_bytes; /* of columns there are */
    __device__ __forceinline__ static uint32_t row(int i) { return threadIdx.x / 8 + i * (THREADS / 8); }
    __device__ __forceinline__ void weights(const hr_cuda_matmul &p, int dtype, const hr_gemm_rows &rows) {
        row_bytes = (uint32_t)hr_weight_row_bytes(dtype, p.w[0].cols);
#pragma unroll
        for (int i = 0; i < N; i++) from[i] = hr_weight_row(p.w[rows.matrix(row(i))], dtype, rows.row_within(row(i)));
    }
    __device__ __forceinline__ void tokens(const hr_cuda_acts &x, uint32_t bytes, uint32_t t0, uint32_t n) {
        row_bytes = x.ld * bytes;
#pragma unroll
        for (int i = 0; i < N; i++)
            from[i] = static_cast<const uint8_t *>(x.data) + (size_t)min(t0 + row(i), n - 1) * row_bytes;
    }
    /* Line `line` of all rows; zeros past the end of a row. */
    __device__ __forceinline__ void start(unsigned char *tile, uint32_t line) const {
        const uint32_t piece = threadIdx.x % 8, at = line * HR_GEMM_LINE + piece * 16;
        const bool inside = at < row_bytes;
#pragma unroll
        for (int i = 0; i < N; i++)
            hr_cp_async16(tile + hr_gemm_at(row(i), piece), from[i] + (inside ? at : 0), inside ? 16 : 0);
    }
};

/* ---- fragments ---- */

/* Of MT times 16 rows and NT times 8 tokens, of the 32 bytes of columns number `step` of a line. */
template <int MT, int NT>
__device__ __forceinline__ void hr_gemm_fragments(const unsigned char *a_tile, const unsigned char *b_tile,
                                                  uint32_t row0, uint32_t token0, uint32_t step, uint32_t (&a)[MT][4],
                                                  uint32_t (&b)[NT][2]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
        hr_ldmatrix_x4(a[i], a_tile + hr_gemm_at(row0 + 16 * i + lane % 16, 2 * step + lane / 16));
#pragma unroll
    for (int j = 0; j < NT; j += 2) {
        uint32_t r[4];
        hr_ldmatrix_x4(r, b_tile + hr_gemm_at(token0 + 8 * j + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
        b[j][0] = r[0], b[j][1] = r[1], b[j + 1][0] = r[2], b[j + 1][1] = r[3];
    }
}

/* ---- the sums of a block ---- */

/* Joins the sums of the blocks that share a tile, in their order, by way of the workspace: a count for each tile, then the sums
 * [tile][split][MT * NT * 4][threads]. True in the last block alone, whose sums are then complete; the workspace is left zeroed. */
template <int SUMS, int THREADS> __device__ __forceinline__ bool hr_gemm_join(void *workspace, float (&sums)[SUMS]) {
    HR_SHARED(uint32_t, before, [1]);
    const uint32_t tiles = gridDim.x * gridDim.y, tile = blockIdx.y * gridDim.x + blockIdx.x, splits = gridDim.z;
    uint32_t *counts = static_cast<uint32_t *>(workspace);
    volatile float *all = reinterpret_cast<volatile float *>(counts + tiles) + (size_t)tile * splits * SUMS * THREADS;
    volatile float *mine = all + (size_t)blockIdx.z * SUMS * THREADS;
#pragma unroll
    for (int i = 0; i < SUMS; i++) mine[i * THREADS + threadIdx.x] = sums[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) before[0] = atomicAdd(&counts[tile], 1u);
    __syncthreads();
    if (before[0] + 1 != splits) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < SUMS; i++) sums[i] = 0;
    for (uint32_t s = 0; s < splits; s++) {
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            volatile float *at = all + ((size_t)s * SUMS + i) * THREADS + threadIdx.x;
            sums[i] += *at;
            *at = 0.0f;
        }
    }
    if (threadIdx.x == 0) counts[tile] = 0;
    return true;
}

/* Stores sums[i][j][4] of a warp whose tile begins at (row0, token0) of the block's. */
template <int MT, int NT>
__device__ __forceinline__ void hr_gemm_store(const hr_cuda_matmul &p, const hr_gemm_rows &rows, uint32_t row0,
                                              uint32_t t0, uint32_t n, const float (&sums)[MT * NT * 4]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const uint32_t l = row0 + 16 * i + lane / 4 + c / 2 * 8, t = t0 + 8 * j + lane % 4 * 2 + c % 2;
                const uint32_t row = rows.row(l);
                if (t >= n || row >= rows.rows) continue;
                const float v = sums[(i * NT + j) * 4 + c];
                if (!rows.pair)
                    hr_matmul_store(p, rows.m, t, row, v);
                else if (i % 2 == 0 && i + 1 < MT)
                    hr_matmul_store_glu(p, t, row, v, sums[((i + 1) % MT * NT + j) * 4 + c]);
            }
}

#endif
