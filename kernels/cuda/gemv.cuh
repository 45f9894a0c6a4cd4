/* gemv.cuh - products for few tokens: a warp reads R rows of weights, 16 bytes a lane and row at a time with the next in flight,
 * and keeps the sums of T tokens.
 *
 * Block (32, kw, 8 / kw): kw warps take the columns of the same R rows by turns, the others more rows; grid (groups of rows, split,
 * groups of T tokens): `split` blocks take the columns by turns too, for matrices with few rows. Sums are joined in a fixed
 * order: lanes by a tree, warps in order through shared memory, blocks in order by the last one that is done, through the workspace,
 * which it leaves zeroed.
 *
 * With glu half of the rows are gate's and half up's. */
#ifndef HR_GEMV_CUH
#define HR_GEMV_CUH

#include "kernels/cuda/matmul.cuh"

enum { HR_GEMV_WARPS = 8 };
/* Rows of a warp: four, and two where a lane's load unpacks to so much that more do not fit into registers. */
template <class W, int T> struct hr_gemv_tile {
    enum { ROWS = T > 1 && W::ELEMS >= 16 ? 2 : 4 };
};

/* f(0) .. f(N - 1), written out, so that what f indexes stays in registers also inside a loop. */
template <int N, int I = 0, class F> __device__ __forceinline__ void hr_unrolled(const F &f) {
    if constexpr (I < N) {
        f(I);
        hr_unrolled<N, I + 1>(f);
    }
}

/* ---- weights: what a lane loads at once of a row, and how it reads it ----
 *
 * floats gives four columns after four columns, in order, when it is called with part 0, 1, ...; bytes gives sixteen. */

struct hr_gemv_f32 {
    enum { ELEMS = 4, DTYPE = HR_F32 };
    uint4 v;
    __device__ __forceinline__ void load(int, const uint8_t *row, const uint16_t *, uint32_t k) {
        v = hr_load16(row + 4 * (size_t)k);
    }
    __device__ __forceinline__ void floats(int, float out[4]) {
        out[0] = __uint_as_float(v.x), out[1] = __uint_as_float(v.y);
        out[2] = __uint_as_float(v.z), out[3] = __uint_as_float(v.w);
    }
};
struct hr_gemv_bf16 {
    enum { ELEMS = 8, DTYPE = HR_BF16 };
    uint4 v;
    __device__ __forceinline__ void load(int, const uint8_t *row, const uint16_t *, uint32_t k) {
        v = hr_load16(row + 2 * (size_t)k);
    }
    __device__ __forceinline__ void floats(int, float out[4]) {
        out[0] = hr_bf16_low(v.x), out[1] = hr_bf16_high(v.x), out[2] = hr_bf16_low(v.y), out[3] = hr_bf16_high(v.y);
        v.x = v.z, v.y = v.w;
    }
};
struct hr_gemv_f16 {
    enum { ELEMS = 8, DTYPE = HR_F16 };
    uint4 v;
    __device__ __forceinline__ void load(int, const uint8_t *row, const uint16_t *, uint32_t k) {
        v = hr_load16(row + 2 * (size_t)k);
    }
    __device__ __forceinline__ void floats(int, float out[4]) {
        out[0] = hr_f16_float(v.x & 0xffffu), out[1] = hr_f16_float(v.x >> 16);
        out[2] = hr_f16_float(v.y & 0xffffu), out[3] = hr_f16_float(v.y >> 16);
        v.x = v.z, v.y = v.w;
    }
};
/* I8G32, I8ROW: half a group. */
struct hr_gemv_i8 {
    enum { ELEMS = 16, DTYPE = HR_I8G32 };
    uint4 v;
    uint32_t s;
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t k) {
        v = hr_load16(row + k);
        s = scales[dtype == HR_I8ROW ? 0 : k / 32];
    }
    __device__ __forceinline__ float scale() const { return hr_f16_float(s); }
    __device__ __forceinline__ uint4 bytes(int) const { return v; }
    __device__ __forceinline__ void floats(int, float out[4]) {
        hr_scaled_bytes(v.x, scale(), out);
        v = make_uint4(v.y, v.z, v.w, v.x);
    }
};
/* I4G32, I4G128: a group of 32. */
struct hr_gemv_i4 {
    enum { ELEMS = 32, DTYPE = HR_I4G32 };
    uint4 v;
    uint32_t s;
    __device__ __forceinline__ void load(int dtype, const uint8_t *row, const uint16_t *scales, uint32_t k) {
        v = hr_load16(row + k / 2);
        s = scales[k / (dtype == HR_I4G128 ? 128 : 32)];
    }
    __device__ __forceinline__ float scale() const { return hr_f16_float(s) * 0.0625f; }
    __device__ __forceinline__ static uint32_t nibbles(uint32_t word, int shift) {
        return (word ^ 0x88888888u) << shift & 0xf0f0f0f0u;
    }
    __device__ __forceinline__ uint4 bytes(int part) const {
        const int shift = part ? 0 : 4;
        return make_uint4(nibbles(v.x, shift), nibbles(v.y, shift), nibbles(v.z, shift), nibbles(v.w, shift));
    }
    __device__ __forceinline__ void floats(int part, float out[4]) {
        hr_scaled_bytes(nibbles(v.x, part < 4 ? 4 : 0), scale(), out);
        v = make_uint4(v.y, v.z, v.w, v.x);
    }
};

/* ---- products ---- */

/* 16 bytes of activations as floats: N is 4 (f32) or 8 (bf16). */
template <int N> __device__ __forceinline__ void hr_gemv_act(const hr_cuda_acts &x, uint32_t at, float out[N]) {
    if constexpr (N == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(static_cast<const float *>(x.data) + at);
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else {
        const uint4 v = hr_load16(static_cast<const uint16_t *>(x.data) + at);
        out[0] = hr_bf16_low(v.x), out[1] = hr_bf16_high(v.x), out[2] = hr_bf16_low(v.y), out[3] = hr_bf16_high(v.y);
        out[4] = hr_bf16_low(v.z), out[5] = hr_bf16_high(v.z), out[6] = hr_bf16_low(v.w), out[7] = hr_bf16_high(v.w);
    }
}

/* sums[r][t] += the products of what a lane has loaded, columns from k on; token[t] is where its row is. For more than one token the
 * loop over parts stays a loop: unrolled it would load so many activations ahead that registers run out. */
template <class W, int ACT, int T, int R>
__device__ __forceinline__ void hr_gemv_float_products(W (&w)[R], const hr_cuda_acts &x, const uint32_t (&token)[T],
                                                       uint32_t k, float (&sums)[R * T]) {
    constexpr int STEP = ACT == HR_ACT_F32 ? 4 : 8;
#pragma unroll(T == 1 || W::ELEMS / STEP == 2 ? 2 : 1)
    for (int step = 0; step < W::ELEMS / STEP; step++) {
        float v[R][STEP];
        hr_unrolled<R>([&](int r) {
            w[r].floats(step * (STEP / 4), v[r]);
            if constexpr (STEP == 8) w[r].floats(step * 2 + 1, v[r] + 4);
        });
        hr_unrolled<T>([&](int t) {
            float a[STEP];
            hr_gemv_act<STEP>(x, token[t] * x.ld + k + STEP * step, a);
            hr_unrolled<R>([&](int r) {
                hr_unrolled<STEP>([&](int i) { sums[r * T + t] = fmaf(v[r][i], a[i], sums[r * T + t]); });
            });
        });
    }
}
template <class W, int T, int R>
__device__ __forceinline__ void hr_gemv_int_products(const W (&w)[R], const hr_cuda_acts &x, const uint32_t (&token)[T],
                                                     uint32_t k, float (&sums)[R * T]) {
    const uint32_t per_token = x.type == HR_ACT_INT8 ? x.ld / 32 : 1, group = x.type == HR_ACT_INT8 ? k / 32 : 0;
    int dots[R * T] = {};
#pragma unroll(T == 1 ? 2 : 1)
    for (int part = 0; part < W::ELEMS / 16; part++) {
        uint4 b[R];
        hr_unrolled<R>([&](int r) { b[r] = w[r].bytes(part); });
        hr_unrolled<T>([&](int t) {
            const uint4 q = hr_load16(static_cast<const int8_t *>(x.data) + (token[t] * x.ld + k + 16 * part));
            hr_unrolled<R>([&](int r) {
                int dot = __dp4a((int)b[r].x, (int)q.x, dots[r * T + t]);
                dot = __dp4a((int)b[r].y, (int)q.y, dot);
                dot = __dp4a((int)b[r].z, (int)q.z, dot);
                dots[r * T + t] = __dp4a((int)b[r].w, (int)q.w, dot);
            });
        });
    }
    hr_unrolled<T>([&](int t) {
        const float d = x.d[token[t] * per_token + group];
        hr_unrolled<R>([&](int r) { sums[r * T + t] += (float)dots[r * T + t] * w[r].scale() * d; });
    });
}

/* ---- joining sums ---- */

/* Sums of v[i] over the warp for N (a power of two up to 32) values at once: lane l gets that of i = l / (32 / N). Each step halves
 * the values a lane keeps, so that all take N - 1 + log2(32 / N) shuffles. */
template <int N, int BIT = 16> __device__ __forceinline__ float hr_warp_sums(float (&v)[N], uint32_t lane) {
    if constexpr (BIT == 0) {
        return v[0];
    } else if constexpr (N == 1) {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], BIT);
        return hr_warp_sums<1, BIT / 2>(v, lane);
    } else {
        const bool upper = lane & BIT;
        float half[N / 2];
        hr_unrolled<N / 2>([&](int i) {
            const float keep = upper ? v[i + N / 2] : v[i], send = upper ? v[i] : v[i + N / 2];
            half[i] = keep + __shfl_xor_sync(0xffffffffu, send, BIT);
        });
        return hr_warp_sums<N / 2, BIT / 2>(half, lane);
    }
}

/* Where the blocks of a group of rows meet: a count of those that are done, for each of `groups`, then their sums [group][split][N].
 * Called by whole warps. True for the last one, whose v is then the sum over all blocks in their order. */
template <int N>
__device__ __forceinline__ bool hr_gemv_join(void *workspace, size_t groups, size_t group, uint32_t split,
                                             uint32_t splits, uint32_t lane, float *v) {
    uint32_t *counts = static_cast<uint32_t *>(workspace);
    volatile float *sums = reinterpret_cast<volatile float *>(counts + groups) + group * splits * N;
    const uint32_t i = lane / (32 / N);
    if (lane % (32 / N) == 0) sums[split * N + i] = *v;
    __threadfence();
    __syncwarp();
    uint32_t before = 0;
    if (lane == 0) before = atomicAdd(&counts[group], 1u);
    before = __shfl_sync(0xffffffffu, before, 0);
    if (before + 1 != splits) return false;
    __threadfence();
    float sum = 0;
    for (uint32_t s = 0; s < splits; s++) sum += sums[s * N + i];
    __syncwarp();
    if (lane % (32 / N) == 0)
        for (uint32_t s = 0; s < splits; s++) sums[s * N + i] = 0.0f;
    if (lane == 0) counts[group] = 0;
    *v = sum;
    return true;
}

/* ---- the kernel ---- */

/* What a warp works on: R rows. */
template <int R> struct hr_gemv_rows {
    uint32_t first, rows, each;      /* rows of the outputs from `first`, of `rows`; `each` of them are this warp's */
    const uint8_t *data[R], *end[R]; /* where a row begins, where its matrix ends */
    const uint16_t *scales[R];
    __device__ __forceinline__ hr_gemv_rows(const hr_cuda_matmul &p, uint32_t group, int bytes_as, int dtype) {
        rows = hr_matmul_rows(p), each = p.glu ? R / 2 : R;
        first = group * each;
#pragma unroll
        for (uint32_t r = 0; r < R; r++) { /* past the end: the last row, whose sums nobody stores */
            uint32_t row = min(first + (p.glu ? r % (R / 2) : r), rows - 1), m = r / (R / 2);
            if (!p.glu) m = hr_matmul_locate(p, &row);
            data[r] = hr_weight_row(p.w[m], bytes_as, row);
            end[r] = hr_weight_row(p.w[m], bytes_as, p.w[m].rows);
            scales[r] = hr_weight_scales(p.w[m], dtype, row);
        }
    }
};

/* Joins sums[row][token] of the warps and blocks and stores them. Called by all threads of a block. */
template <int T, int R>
__device__ __forceinline__ void hr_gemv_finish(const hr_cuda_matmul &p, const hr_gemv_rows<R> &rows, uint32_t group,
                                               uint32_t n, float (&sums)[R * T]) {
    constexpr int N = R * T;
    HR_SHARED(float, joined, [HR_GEMV_WARPS][N]);
    const uint32_t lane = threadIdx.x, i = lane / (32 / N), kw = blockDim.y;
    float v = hr_warp_sums<N>(sums, lane);
    if (kw > 1) {
        float(*mine)[N] = joined + threadIdx.z * kw;
        if (lane % (32 / N) == 0) mine[threadIdx.y][i] = v;
        __syncthreads();
        if (threadIdx.y) return;
        v = 0;
        for (uint32_t y = 0; y < kw; y++) v += mine[y][i];
    }
    if (rows.first >= rows.rows) return;
    if (gridDim.y > 1) {
        const size_t groups = (size_t)gridDim.x * blockDim.z;
        if (!hr_gemv_join<N>(p.workspace, groups * gridDim.z, groups * blockIdx.z + group, blockIdx.y, gridDim.y, lane,
                             &v))
            return;
    }
    const uint32_t r = i / T, t = blockIdx.z * T + i % T;
    const float up = __shfl_xor_sync(0xffffffffu, v, 16); /* of lanes with gate's rows: the same row of up */
    if (lane % (32 / N) || t >= n || r >= rows.each || rows.first + r >= rows.rows) return;
    uint32_t row = rows.first + r;
    if (p.glu) {
        hr_matmul_store_glu(p, t, row, v, up);
    } else {
        const uint32_t m = hr_matmul_locate(p, &row);
        hr_matmul_store(p, m, t, row, v);
    }
}

template <class W, int ACT, int T> __device__ __forceinline__ void hr_gemv(const hr_cuda_matmul &p) {
    constexpr int R = hr_gemv_tile<W, T>::ROWS;
    const int dtype = W::ELEMS < 16 ? (int)W::DTYPE : (int)p.w[0].dtype; /* of types with scales two share a kernel */
    const uint32_t cols = (uint32_t)p.w[0].cols, group = blockIdx.x * blockDim.z + threadIdx.z;
    const uint32_t step = 32 * W::ELEMS * blockDim.y * gridDim.y;
    const hr_gemv_rows<R> rows(p, group, W::DTYPE, dtype);
    uint32_t k = ((blockIdx.y * blockDim.y + threadIdx.y) * 32 + threadIdx.x) * W::ELEMS, token[T];
    W w[R], next[R];
    float sums[R * T] = {};
    if (k < cols) /* before the count of tokens is waited for */
#pragma unroll
        for (int r = 0; r < R; r++) w[r].load(dtype, rows.data[r], rows.scales[r], k);
    const uint32_t n = hr_matmul_tokens(p);
    if (blockIdx.z * T >= n) return;
#pragma unroll
    for (uint32_t t = 0; t < T; t++) token[t] = min(blockIdx.z * T + t, n - 1);
    for (; k < cols; k += step) {
        if (k + step < cols)
#pragma unroll
            for (int r = 0; r < R; r++) next[r].load(dtype, rows.data[r], rows.scales[r], k + step);
        if constexpr (ACT == HR_ACT_INT8)
            hr_gemv_int_products<W, T, R>(w, p.x, token, k, sums);
        else
            hr_gemv_float_products<W, ACT, T, R>(w, p.x, token, k, sums);
#pragma unroll
        for (int r = 0; r < R; r++) w[r] = next[r];
    }
    hr_gemv_finish<T, R>(p, rows, group, n, sums);
}

/* One kernel for each number of tokens a warp keeps. */
#define HR_GEMV_OF(name, weights, act, tokens, blocks)         \
    HR_KERNEL_RESIDENT(name, 256, blocks, hr_cuda_matmul, p) { \
        hr_gemv<weights, act, tokens>(p);                      \
    }
#define HR_GEMV(name, weights, act)          \
    HR_GEMV_OF(name##_1, weights, act, 1, 2) \
    HR_GEMV_OF(name##_4, weights, act, 4, 2) \
    HR_GEMV_OF(name##_8, weights, act, 8, 1)

#endif
