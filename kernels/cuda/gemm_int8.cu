/* gemm_int8.cu - many tokens on the int8 units: weights and activations as signed bytes, products and sums of 32 columns as exact
 * integers.
 *
 * With a scale for every 32 columns one mma is one group: its integer sum, at most 32 * 127 * 128 < 2^22, is added to the bits of 1.5 *
 * 2^23, which makes it a float, and that times both scales is added to the sums in fp32. int8-row weights and activations have one
 * scale a row and a token: their sums stay integers to the end. Tiles and pipeline as in gemm_bf16.cu. */
#include "kernels/cuda/gemm.cuh"

enum { COLUMNS = HR_GEMM_LINE, GROUPS = COLUMNS / 32 };

/* ---- weights ---- */

/* I8G32, I8ROW: bytes are copied as they are. */
struct copied_i8 {
    enum { COPIED = 1 };
};
/* I4G32, I4G128, Q8_0, Q4_0: two groups of 32 columns. */
struct unpacked_bytes {
    enum { COPIED = 0 };
    uint4 v[2][2];
    float s[2];
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t g,
                                         uint32_t groups) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            v[i][0] = v[i][1] = make_uint4(0, 0, 0, 0), s[i] = 0;
            if (g + i >= groups) continue;
            hr_weight32 w;
            hr_weight32_load(dtype, row, scales, g + i, &w);
            v[i][0] = make_uint4(w.q[0], w.q[1], w.q[2], w.q[3]);
            v[i][1] = make_uint4(w.q[4], w.q[5], w.q[6], w.q[7]);
            s[i] = w.scale[0];
        }
    }
    __device__ __forceinline__ void store(unsigned char *tile, uint32_t row, uint32_t half) const {
#pragma unroll
        for (int i = 0; i < 4; i++) *reinterpret_cast<uint4 *>(tile + hr_gemm_at(row, 4 * half + i)) = v[i / 2][i % 2];
    }
};

/* ---- scales of a tile: [group][row], [group][token] ---- */

template <int BM, int BN, int THREADS> struct tile_scales { float w[GROUPS][BM], x[GROUPS][BN]; };
/* What a thread loads of them: two groups of a row, and N of the tokens. */
template <int BM, int BN, int THREADS> struct scale_loads {
    enum { N = GROUPS * BN / THREADS };
    float w[2], x[N];
    __device__ __forceinline__ void weights(int dtype, const uint16_t *scales, uint32_t g, uint32_t groups) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            w[i] = g + i < groups ? hr_f16_float(scales[hr_weight_scale_index(dtype, g + i)]) : 0.0f;
    }
    __device__ __forceinline__ void tokens(const hr_cuda_acts &a, uint32_t t0, uint32_t n, uint32_t g,
                                           uint32_t groups) {
#pragma unroll
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t at = threadIdx.x + i * THREADS, t = min(t0 + at / GROUPS, n - 1), here = g + at % GROUPS;
            x[i] = here >= groups ? 0.0f : a.type == HR_ACT_INT8 ? a.d[t * (a.ld / 32) + here] : a.d[t];
        }
    }
    __device__ __forceinline__ void store(tile_scales<BM, BN, THREADS> *to) const {
        to->w[threadIdx.x % 2 * 2][threadIdx.x / 2] = w[0];
        to->w[threadIdx.x % 2 * 2 + 1][threadIdx.x / 2] = w[1];
#pragma unroll
        for (uint32_t i = 0; i < N; i++) {
            const uint32_t at = threadIdx.x + i * THREADS;
            to->x[at % GROUPS][at / GROUPS] = x[i];
        }
    }
};

/* sums[i][j][4] += integer sums of a group times both scales. */
template <int MT, int NT, class SCALES>
__device__ __forceinline__ void add_group(const uint32_t (&a)[MT][4], const uint32_t (&b)[NT][2], const SCALES &s,
                                          uint32_t group, uint32_t row0, uint32_t token0, float (&sums)[MT * NT * 4]) {
    const uint32_t lane = threadIdx.x % 32;
    float2 d[NT];
#pragma unroll
    for (int j = 0; j < NT; j++) d[j] = *reinterpret_cast<const float2 *>(&s.x[group][token0 + 8 * j + lane % 4 * 2]);
#pragma unroll
    for (int i = 0; i < MT; i++) {
        const float low = s.w[group][row0 + 16 * i + lane / 4], high = s.w[group][row0 + 16 * i + 8 + lane / 4];
#pragma unroll
        for (int j = 0; j < NT; j++) {
            int32_t c[4] = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000}; /* 12582912.0f */
            float *to = &sums[(i * NT + j) * 4];
            hr_mma_s8(c, a[i], b[j]);
            to[0] += (__int_as_float(c[0]) - 12582912.0f) * (low * d[j].x);
            to[1] += (__int_as_float(c[1]) - 12582912.0f) * (low * d[j].y);
            to[2] += (__int_as_float(c[2]) - 12582912.0f) * (high * d[j].x);
            to[3] += (__int_as_float(c[3]) - 12582912.0f) * (high * d[j].y);
        }
    }
}

/* ---- kernels ---- */

/* Where a block stands, and its copies of activations. */
template <int BM, int BN, int WM, int WN> struct block_place {
    enum { THREADS = WM * WN * 32, MT = BM / WM / 16, NT = BN / WN / 8, SUMS = MT * NT * 4 };
    uint32_t n, t0, groups, from, to, row0, token0;
    __device__ __forceinline__ block_place(const hr_cuda_matmul &p) {
        const uint32_t lines = ((uint32_t)p.w[0].cols + COLUMNS - 1) / COLUMNS, warp = threadIdx.x / 32;
        n = hr_matmul_tokens(p), t0 = blockIdx.x * BN, groups = (uint32_t)(p.w[0].cols / 32);
        from = (uint32_t)((uint64_t)lines * blockIdx.z / gridDim.z);
        to = (uint32_t)((uint64_t)lines * (blockIdx.z + 1) / gridDim.z);
        row0 = warp % WM * (BM / WM), token0 = warp / WM * (BN / WN);
    }
};

/* A scale for every 32 columns at least. */
template <class W, int BM, int BN, int WM, int WN, int STAGES>
__device__ __forceinline__ void gemm_scaled(const hr_cuda_matmul &p) {
    typedef block_place<BM, BN, WM, WN> place;
    constexpr int THREADS = place::THREADS, MT = place::MT, NT = place::NT, A_TILES = W::COPIED ? STAGES : 2;
    constexpr int A_BYTES = BM * HR_GEMM_LINE, B_BYTES = BN * HR_GEMM_LINE;
    static_assert(THREADS == 2 * BM, "a thread unpacks, or loads the scales of, half a line of a row");
    HR_SHARED_DYNAMIC(unsigned char, area);
    unsigned char *const a_area = area, *const b_area = area + A_TILES * A_BYTES;
    auto *const shared_scales =
        reinterpret_cast<tile_scales<BM, BN, THREADS> *>(b_area + STAGES * B_BYTES); /* two of them */
    const place at(p);
    if (at.t0 >= at.n) return;
    const hr_gemm_rows rows(p, blockIdx.y, BM, 16);
    const uint32_t my_row = threadIdx.x / 2, my_half = threadIdx.x % 2;
    const hr_mat &m = p.w[rows.matrix(my_row)];
    const int dtype = m.dtype;
    const uint16_t *const scales = hr_weight_scales(m, dtype, rows.row_within(my_row));
    const uint8_t *const data = hr_weight_row(m, dtype, rows.row_within(my_row));
    hr_gemm_copy<BN, THREADS> x;
    x.tokens(p.x, 1, at.t0, at.n);
    hr_gemm_copy<W::COPIED ? BM : 8, W::COPIED ? THREADS : 64> weights;
    [[maybe_unused]] unpacked_bytes unpacked;
    scale_loads<BM, BN, THREADS> s;
    const auto load = [&](uint32_t line) {
        const uint32_t g = GROUPS * line + 2 * my_half;
        s.tokens(p.x, at.t0, at.n, GROUPS * line, at.groups);
        if constexpr (W::COPIED) {
            s.weights(dtype, scales, g, at.groups);
        } else {
            unpacked.load(dtype, data, scales, g, at.groups);
            s.w[0] = unpacked.s[0], s.w[1] = unpacked.s[1];
        }
    };
    const auto start = [&](uint32_t line) {
        if (line < at.to) {
            const uint32_t slot = line % STAGES;
            if constexpr (W::COPIED) weights.start(a_area + slot * A_BYTES, line);
            x.start(b_area + slot * B_BYTES, line);
        }
        hr_cp_async_commit();
    };
    if constexpr (W::COPIED) weights.weights(p, HR_I8G32, rows);
    float sums[MT * NT * 4] = {};
    for (uint32_t i = 0; i + 1 < STAGES; i++) start(at.from + i);
    if (at.from < at.to) load(at.from);
    for (uint32_t line = at.from; line < at.to; line++) {
        unsigned char *a_tile = a_area + line % A_TILES * A_BYTES;
        const unsigned char *b_tile = b_area + line % STAGES * B_BYTES;
        if constexpr (!W::COPIED) unpacked.store(a_tile, my_row, my_half);
        s.store(&shared_scales[line % 2]);
        hr_cp_async_wait<STAGES - 2>();
        __syncthreads();
        start(line + STAGES - 1);
        if (line + 1 < at.to) load(line + 1);
#pragma unroll 1 /* unrolled, scales of all groups are loaded ahead and registers run out */
        for (uint32_t step = 0; step < GROUPS; step++) {
            uint32_t a[MT][4], b[NT][2];
            hr_gemm_fragments<MT, NT>(a_tile, b_tile, at.row0, at.token0, step, a, b);
            add_group<MT, NT>(a, b, shared_scales[line % 2], step, at.row0, at.token0, sums);
        }
    }
    if (gridDim.z > 1 && !hr_gemm_join<MT * NT * 4, THREADS>(p.workspace, sums)) return;
    hr_gemm_store<MT, NT>(p, rows, at.row0, at.t0 + at.token0, at.n, sums);
}

/* One scale a row and one a token. */
template <int BM, int BN, int WM, int WN, int STAGES>
__device__ __forceinline__ void gemm_row_scaled(const hr_cuda_matmul &p) {
    typedef block_place<BM, BN, WM, WN> place;
    constexpr int THREADS = place::THREADS, MT = place::MT, NT = place::NT;
    constexpr int A_BYTES = BM * HR_GEMM_LINE, B_BYTES = BN * HR_GEMM_LINE;
    HR_SHARED_DYNAMIC(unsigned char, area);
    unsigned char *const a_area = area, *const b_area = area + STAGES * A_BYTES;
    const place at(p);
    if (at.t0 >= at.n) return;
    const hr_gemm_rows rows(p, blockIdx.y, BM, 16);
    hr_gemm_copy<BM, THREADS> weights;
    hr_gemm_copy<BN, THREADS> x;
    weights.weights(p, HR_I8ROW, rows);
    x.tokens(p.x, 1, at.t0, at.n);
    const auto start = [&](uint32_t line) {
        if (line < at.to) {
            weights.start(a_area + line % STAGES * A_BYTES, line);
            x.start(b_area + line % STAGES * B_BYTES, line);
        }
        hr_cp_async_commit();
    };
    int32_t dots[MT * NT * 4] = {};
    for (uint32_t i = 0; i + 1 < STAGES; i++) start(at.from + i);
    for (uint32_t line = at.from; line < at.to; line++) {
        hr_cp_async_wait<STAGES - 2>();
        __syncthreads();
        start(line + STAGES - 1);
#pragma unroll
        for (uint32_t step = 0; step < 4; step++) {
            uint32_t a[MT][4], b[NT][2];
            hr_gemm_fragments<MT, NT>(a_area + line % STAGES * A_BYTES, b_area + line % STAGES * B_BYTES, at.row0,
                                      at.token0, step, a, b);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) hr_mma_s8(&dots[(i * NT + j) * 4], a[i], b[j]);
        }
    }
    const uint32_t lane = threadIdx.x % 32;
    float sums[MT * NT * 4];
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const uint32_t l = at.row0 + 16 * i + lane / 4 + c / 2 * 8;
                const uint32_t t = min(at.t0 + at.token0 + 8 * j + lane % 4 * 2 + c % 2, at.n - 1);
                const float d = hr_f16_float(p.w[rows.matrix(l)].scales[rows.row_within(l)]) * p.x.d[t];
                sums[(i * NT + j) * 4 + c] = (float)dots[(i * NT + j) * 4 + c] * d;
            }
    if (gridDim.z > 1 && !hr_gemm_join<MT * NT * 4, THREADS>(p.workspace, sums)) return;
    hr_gemm_store<MT, NT>(p, rows, at.row0, at.t0 + at.token0, at.n, sums);
}

HR_KERNEL_RESIDENT(gemm_int8_64x32, 128, 4, hr_cuda_matmul, p) {
    gemm_scaled<copied_i8, 64, 32, 2, 2, 4>(p);
}
HR_KERNEL_RESIDENT(gemm_int8_128x64, 256, 2, hr_cuda_matmul, p) {
    gemm_scaled<copied_i8, 128, 64, 4, 2, 3>(p);
}
HR_KERNEL_RESIDENT(gemm_int8_unpack_64x32, 128, 4, hr_cuda_matmul, p) {
    gemm_scaled<unpacked_bytes, 64, 32, 2, 2, 4>(p);
}
HR_KERNEL_RESIDENT(gemm_int8_unpack_128x64, 256, 2, hr_cuda_matmul, p) {
    gemm_scaled<unpacked_bytes, 128, 64, 4, 2, 3>(p);
}
HR_KERNEL_RESIDENT(gemm_int8_row_64x32, 128, 4, hr_cuda_matmul, p) {
    gemm_row_scaled<64, 32, 2, 2, 4>(p);
}
HR_KERNEL_RESIDENT(gemm_int8_row_128x128, 256, 1, hr_cuda_matmul, p) {
    gemm_row_scaled<128, 128, 2, 4, 3>(p);
}
