/* gemm_bf16.cu - many tokens on the bf16 units: bf16 weights copied as they are, others turned into bf16 on their way into shared
 * memory; bf16 activations; sums in fp32.
 *
 * A ring of STAGES tiles is filled by asynchronous copies. Weights that must be unpacked are loaded into registers AHEAD lines before
 * they are wanted, so that a multiprocessor has some 32 KB under way, and unpacked into one of two tiles. One barrier a tile: what is
 * filled after it was read before it by all. */
#include "kernels/cuda/gemm.cuh"

enum { COLUMNS = HR_GEMM_LINE / 2 };

/* ---- weights: 32 columns of a row in registers, then as 16 words of bf16 ---- */

struct copied_bf16 {
    enum { COPIED = 1, AHEAD = 1 };
};
/* I8G32, I8ROW */
struct unpacked_i8 {
    enum { COPIED = 0, AHEAD = 2 };
    uint4 a, b;
    uint32_t s;
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                         bool inside) {
        a = b = make_uint4(0, 0, 0, 0), s = 0;
        if (!inside) return;
        a = hr_load16(row + 32 * (size_t)g), b = hr_load16(row + 32 * (size_t)g + 16);
        s = scales[hr_weight_scale_index(dtype, g)];
    }
    __device__ __forceinline__ void words(uint32_t out[16]) const {
        const uint32_t q[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        hr_bytes_bf16<8>(q, hr_f16_float(s), out);
    }
};
/* I4G32, I4G128 */
struct unpacked_i4 {
    enum { COPIED = 0, AHEAD = 3 };
    uint4 a;
    uint32_t s;
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                         bool inside) {
        a = make_uint4(0, 0, 0, 0), s = 0;
        if (!inside) return;
        a = hr_load16(row + 16 * (size_t)g);
        s = scales[hr_weight_scale_index(dtype, g)];
    }
    __device__ __forceinline__ void words(uint32_t out[16]) const {
        const uint32_t w[4] = {a.x, a.y, a.z, a.w};
        uint32_t q[8];
        hr_unpack_nibbles(w, q);
        hr_bytes_bf16<8>(q, hr_f16_float(s) * 0.0625f, out);
    }
};
/* Any type; turned into bf16 at once. */
struct unpacked_any {
    enum { COPIED = 0, AHEAD = 1 };
    uint32_t v[16];
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                         bool inside) {
#pragma unroll
        for (int i = 0; i < 16; i++) v[i] = 0;
        if (!inside) return;
        if (hr_weight_is_float(dtype)) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const float4 f = hr_weight_float4(dtype, row, 32 * (size_t)g + 4 * i);
                v[2 * i] = hr_float2_bf16(f.x, f.y), v[2 * i + 1] = hr_float2_bf16(f.z, f.w);
            }
            return;
        }
        hr_weight32 w;
        hr_weight32_load(dtype, row, scales, g, &w);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t flipped = w.q[i] ^ 0x80808080u;
            const float d = w.scale[i / 4], m = w.min;
            v[2 * i] = hr_float2_bf16(hr_byte_float(flipped, 0) * d + m, hr_byte_float(flipped, 1) * d + m);
            v[2 * i + 1] = hr_float2_bf16(hr_byte_float(flipped, 2) * d + m, hr_byte_float(flipped, 3) * d + m);
        }
    }
    __device__ __forceinline__ void words(uint32_t out[16]) const {
#pragma unroll
        for (int i = 0; i < 16; i++) out[i] = v[i];
    }
};

/* ---- the kernel ---- */

/* BM rows and BN tokens a block, by WM * WN warps; 2 * BM threads where weights are unpacked: half a line of a row each. */
template <class W, int BM, int BN, int WM, int WN, int STAGES>
__device__ __forceinline__ void gemm_bf16(const hr_cuda_matmul &p) {
    constexpr int THREADS = WM * WN * 32, MT = BM / WM / 16, NT = BN / WN / 8, A_TILES = W::COPIED ? STAGES : 2;
    constexpr int A_BYTES = BM * HR_GEMM_LINE, B_BYTES = BN * HR_GEMM_LINE;
    static_assert(W::COPIED || THREADS == 2 * BM, "one thread unpacks 32 columns");
    HR_SHARED_DYNAMIC(unsigned char, area);
    unsigned char *const a_area = area, *const b_area = area + A_TILES * A_BYTES;
    const int dtype = p.w[0].dtype;
    const uint32_t n = hr_matmul_tokens(p), t0 = blockIdx.x * BN, cols = (uint32_t)p.w[0].cols;
    if (t0 >= n) return;
    const hr_gemm_rows rows(p, blockIdx.y, BM, 16);
    const uint32_t lines = (cols + COLUMNS - 1) / COLUMNS;
    const uint32_t from = (uint32_t)((uint64_t)lines * blockIdx.z / gridDim.z);
    const uint32_t to = (uint32_t)((uint64_t)lines * (blockIdx.z + 1) / gridDim.z);
    const uint32_t warp = threadIdx.x / 32, row0 = warp % WM * (BM / WM), token0 = warp / WM * (BN / WN);

    hr_gemm_copy<BN, THREADS> x;
    x.tokens(p.x, 2, t0, n);
    hr_gemm_copy<W::COPIED ? BM : 8, W::COPIED ? THREADS : 64> weights;
    [[maybe_unused]] W unpacked[W::AHEAD]; /* of the next lines, in their order */
    [[maybe_unused]] const uint8_t *data = nullptr;
    [[maybe_unused]] const uint16_t *scales = nullptr;
    [[maybe_unused]] const uint32_t my_row = threadIdx.x / 2, my_half = threadIdx.x % 2;
    if constexpr (W::COPIED) {
        weights.weights(p, HR_BF16, rows);
    } else {
        const hr_mat &m = p.w[rows.matrix(my_row)];
        data = hr_weight_row(m, dtype, rows.row_within(my_row));
        scales = hr_weight_scales(m, dtype, rows.row_within(my_row));
    }
    const auto load = [&](W &into, uint32_t line) {
        if constexpr (!W::COPIED)
            into.load(dtype, data, scales, 2 * line + my_half, line < to && 64 * line + 32 * my_half < cols);
    };
#pragma unroll
    for (int i = 0; i < W::AHEAD; i++) load(unpacked[i], from + i);
    const auto start = [&](uint32_t line) {
        if (line < to) {
            const uint32_t slot = line % STAGES;
            if constexpr (W::COPIED) weights.start(a_area + slot * A_BYTES, line);
            x.start(b_area + slot * B_BYTES, line);
        }
        hr_cp_async_commit();
    };

    float sums[MT * NT * 4] = {};
    for (uint32_t s = 0; s + 1 < STAGES; s++) start(from + s);
    for (uint32_t line = from; line < to; line++) {
        unsigned char *a_tile = a_area + line % A_TILES * A_BYTES;
        const unsigned char *b_tile = b_area + line % STAGES * B_BYTES;
        if constexpr (!W::COPIED) {
            uint32_t words[16];
            unpacked[0].words(words);
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<uint4 *>(a_tile + hr_gemm_at(my_row, 4 * my_half + i)) =
                    make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
        }
        hr_cp_async_wait<STAGES - 2>();
        __syncthreads();
        start(line + STAGES - 1);
#pragma unroll
        for (int i = 0; i + 1 < W::AHEAD; i++) unpacked[i] = unpacked[i + 1];
        load(unpacked[W::AHEAD - 1], line + W::AHEAD);
#pragma unroll
        for (uint32_t step = 0; step < 4; step++) {
            uint32_t a[MT][4], b[NT][2];
            hr_gemm_fragments<MT, NT>(a_tile, b_tile, row0, token0, step, a, b);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) hr_mma_bf16(&sums[(i * NT + j) * 4], a[i], b[j]);
        }
    }
    if (gridDim.z > 1 && !hr_gemm_join<MT * NT * 4, THREADS>(p.workspace, sums)) return;
    hr_gemm_store<MT, NT>(p, rows, row0, t0 + token0, n, sums);
}

#define GEMM(name, weights)                                         \
    HR_KERNEL_RESIDENT(name##_64x32, 128, 4, hr_cuda_matmul, p) {   \
        gemm_bf16<weights, 64, 32, 2, 2, 4>(p);                     \
    }                                                               \
    HR_KERNEL_RESIDENT(name##_128x128, 256, 1, hr_cuda_matmul, p) { \
        gemm_bf16<weights, 128, 128, 2, 4, 3>(p);                   \
    }
GEMM(gemm_bf16, copied_bf16)
GEMM(gemm_bf16_i8, unpacked_i8)
GEMM(gemm_bf16_i4, unpacked_i4)
GEMM(gemm_bf16_any, unpacked_any)
