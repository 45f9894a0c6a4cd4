/* gemm_f32.cu - many tokens, f32 activations, weights of any type as floats, products and sums in fp32 in the order of columns: the
 * run that rounds nothing.
 *
 * A block makes 64 rows of 64 tokens from 128 columns at a time; a thread loads and converts 32 columns of a row and of a token, and then
 * makes four rows of four tokens. Tiles lie by column, so that a thread reads its four of both as one load. */
#include "kernels/cuda/gemm.cuh"

enum { SIDE = 64, COLUMNS = 128, PITCH = SIDE + 4 };

HR_KERNEL_RESIDENT(gemm_f32_64x64, 256, 2, hr_cuda_matmul, p) {
    HR_SHARED_DYNAMIC(float, area);
    float *const w_tile = area, *const x_tile = area + COLUMNS * PITCH; /* [column][row], [column][token] */
    const uint32_t n = hr_matmul_tokens(p), t0 = blockIdx.x * SIDE, groups = (uint32_t)(p.w[0].cols / 32);
    if (t0 >= n) return;
    const hr_gemm_rows rows(p, blockIdx.y, SIDE, 2);
    const uint32_t mine = threadIdx.x % SIDE, part = threadIdx.x / SIDE;
    const uint32_t row0 = threadIdx.x / 16 * 4, token0 = threadIdx.x % 16 * 4;
    const hr_mat &m = p.w[rows.matrix(mine)];
    const int dtype = m.dtype;
    const uint8_t *const data = hr_weight_row(m, dtype, rows.row_within(mine));
    const uint16_t *const scales = hr_weight_scales(m, dtype, rows.row_within(mine));
    const float *const x = static_cast<const float *>(p.x.data) + (size_t)min(t0 + mine, n - 1) * p.x.ld;
    float sums[4][4] = {};
    for (uint32_t g0 = 0; g0 < groups; g0 += COLUMNS / 32) {
        const uint32_t g = g0 + part;
        __syncthreads(); /* the tile before has been read */
        if (g < groups) {
            float v[32];
            hr_weight32_floats(dtype, data, scales, g, v);
#pragma unroll
            for (int i = 0; i < 32; i++) w_tile[(32 * part + i) * PITCH + mine] = v[i];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float4 a = *reinterpret_cast<const float4 *>(x + 32 * g + 4 * i);
                float *to = x_tile + (32 * part + 4 * i) * PITCH + mine;
                to[0] = a.x, to[PITCH] = a.y, to[2 * PITCH] = a.z, to[3 * PITCH] = a.w;
            }
        }
        __syncthreads();
        const uint32_t columns = min(groups - g0, (uint32_t)COLUMNS / 32) * 32;
#pragma unroll 8
        for (uint32_t c = 0; c < columns; c++) {
            const float4 w = *reinterpret_cast<const float4 *>(w_tile + c * PITCH + row0);
            const float4 a = *reinterpret_cast<const float4 *>(x_tile + c * PITCH + token0);
            const float ws[4] = {w.x, w.y, w.z, w.w}, as[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] = fmaf(ws[i], as[j], sums[i][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t row = rows.row(row0 + i), t = t0 + token0 + j;
            if (t >= n || row >= rows.rows) continue;
            if (!rows.pair)
                hr_matmul_store(p, rows.m, t, row, sums[i][j]);
            else if (i < 2)
                hr_matmul_store_glu(p, t, row, sums[i][j], sums[(i + 2) % 4][j]);
        }
}
