/* fill.cu - synthetic weights, made where they are used: the values of hr_synth_row (engine/model/synth.c) as hr_quantize_row
 * (kernels/base/dtype.c) stores them, to the bit. No product and sum may be joined into one rounding, so they are written as
 * functions that round. A block takes a row, a warp 128 columns of it, a lane four: the four values of one random number. */
#include "kernels/base/random.h"
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/cuda_params.h"

#define ALL_LANES 0xffffffffu

typedef struct fill_row {
    uint64_t counter; /* of the row's first four values */
    float scale, center;
    uint32_t cols;
} fill_row;

/* Columns c..c + 3 (c a multiple of 4), zeros past the last. */
__device__ static inline float4 drawn(const fill_row &r, uint32_t c) {
    const uint64_t bits = hr_mix64(r.counter + (uint64_t)(c / 4) * HR_GOLDEN);
    float v[4];
    for (int j = 0; j < 4; j++)
        v[j] = c + j < r.cols ? __fadd_rn(r.center, __fmul_rn(r.scale, (float)(int16_t)(bits >> 16 * j))) : 0;
    return make_float4(v[0], v[1], v[2], v[3]);
}

/* ---- floats ---- */

__device__ static inline void store_halves(uint16_t *to, uint32_t c, uint32_t cols, float4 v, bool brain) {
    uint16_t h[4] = {hr_to_f16(v.x), hr_to_f16(v.y), hr_to_f16(v.z), hr_to_f16(v.w)};
    if (brain) h[0] = hr_to_bf16(v.x), h[1] = hr_to_bf16(v.y), h[2] = hr_to_bf16(v.z), h[3] = hr_to_bf16(v.w);
    if (cols % 4 == 0) {
        if (c < cols) *reinterpret_cast<uint2 *>(to + c) = hr_pack16(h[0], h[1], h[2], h[3]);
        return;
    }
    for (uint32_t j = 0; j < 4; j++)
        if (c + j < cols) to[c + j] = h[j];
}

/* ---- integers ---- */

/* The largest |x| of 32 values, eight lanes, as bits. */
__device__ static inline uint32_t most_of_32(float4 v) {
    uint32_t most = max(max(hr_abs_bits(v.x), hr_abs_bits(v.y)), max(hr_abs_bits(v.z), hr_abs_bits(v.w)));
    for (int o = 4; o; o >>= 1) most = max(most, __shfl_xor_sync(ALL_LANES, most, o));
    return most;
}
/* d for values up to `most` in -127..127, as it is stored. */
__device__ static inline uint16_t scale_int8(uint32_t most) {
    return hr_to_f16(fminf(__uint_as_float(most) / 127, 65504.0f));
}
__device__ static inline int32_t level(float x, float d, float low, float high) {
    float v = x / d;
    v = v < low ? low : v;
    v = v > high ? high : v;
    return hr_nearest_int(v);
}
__device__ static inline uint32_t levels_int8(float4 v, float d) {
    if (!(d > 0)) return 0;
    return hr_pack8(level(v.x, d, -127, 127), level(v.y, d, -127, 127), level(v.z, d, -127, 127),
                    level(v.w, d, -127, 127));
}

/* Squared error of one value at step d in nibbles. */
__device__ static inline float square_error(float x, float inverse, float d) {
    float v = __fmul_rn(x, inverse);
    v = v < -8 ? -8 : v;
    v = v > 7 ? 7 : v;
    const float e = __fsub_rn(__fmul_rn((v + 12582912.0f) - 12582912.0f, d), x);
    return __fmul_rn(e, e);
}
/* The sum for 32 values, in the order of the CPU's tree: element i takes i + 16, then i + 8, and so on. */
__device__ static inline float error_of_32(float4 v, float d) {
    const float inverse = 1 / d;
    float s[4] = {square_error(v.x, inverse, d), square_error(v.y, inverse, d), square_error(v.z, inverse, d),
                  square_error(v.w, inverse, d)};
    for (int o = 4; o; o >>= 1)
        for (int j = 0; j < 4; j++) s[j] = __fadd_rn(s[j], __shfl_xor_sync(ALL_LANES, s[j], o));
    return __fadd_rn(__fadd_rn(s[0], s[2]), __fadd_rn(s[1], s[3]));
}

/* The value of largest magnitude, with its sign: negative where both have it. */
__device__ static inline float extreme_of_32(float4 v) {
    const uint32_t most = most_of_32(v), least = most | 0x80000000u, eight = threadIdx.x % 32 / 8 * 8;
    const bool mine = __float_as_uint(v.x) == least || __float_as_uint(v.y) == least || __float_as_uint(v.z) == least ||
                      __float_as_uint(v.w) == least;
    const uint32_t lanes = __ballot_sync(ALL_LANES, mine);
    return __uint_as_float(lanes >> eight & 255 ? least : most);
}

/* The stored scale of a group of 32, or of the 128 of the warp: the extreme is put on -8, -9 or -7, where the error is least. */
__device__ static inline uint16_t scale_int4(float4 v, bool whole_warp) {
    float extreme = extreme_of_32(v);
    if (whole_warp) {
        const float here = extreme;
        extreme = 0;
        for (int lane = 0; lane < 32; lane += 8) {
            const float one = __shfl_sync(ALL_LANES, here, lane);
            extreme = fabsf(one) > fabsf(extreme) ? one : extreme;
        }
    }
    uint16_t best = 0;
    float least = INFINITY;
    for (int i = 0; i < 3; i++) {
        const float place = i == 0 ? -8.0f : i == 1 ? -9.0f : -7.0f;
        const uint16_t h = hr_to_f16(fmaxf(fminf(extreme / place, 65504.0f), -65504.0f));
        const float d = hr_of_f16(h);
        float error = error_of_32(v, d);
        if (whole_warp) {
            const float here = error;
            error = 0;
            for (int lane = 0; lane < 32; lane += 8) error = __fadd_rn(error, __shfl_sync(ALL_LANES, here, lane));
        }
        if (d != 0 && error < least) least = error, best = h;
    }
    return best;
}
/* Low nibbles of a group are its first 16 values, high ones the others: those of the lane four further. */
__device__ static inline void store_int4(uint8_t *row, uint32_t c, uint32_t cols, float4 v, float d) {
    uint32_t low = 0x08080808u;
    if (d != 0)
        low = hr_pack8(level(v.x, d, -8, 7) + 8, level(v.y, d, -8, 7) + 8, level(v.z, d, -8, 7) + 8,
                       level(v.w, d, -8, 7) + 8);
    const uint32_t high = __shfl_xor_sync(ALL_LANES, low, 4);
    if (c < cols && c % 32 < 16) *reinterpret_cast<uint32_t *>(row + c / 32 * 16 + c % 32) = low | high << 4;
}

/* ---- rows ---- */

/* Columns c..c + 3; all lanes of the warp come here. row_d: of int8-row. */
__device__ static inline void fill_quad(const hr_mat &w, const fill_row &r, size_t row, uint32_t c, float row_d) {
    const float4 v = drawn(r, c);
    const uint32_t cols = r.cols;
    uint8_t *data = static_cast<uint8_t *>(const_cast<void *>(w.data));
    uint16_t *scales = const_cast<uint16_t *>(w.scales);
    const bool inside = c < cols;
    switch (w.dtype) {
    case HR_F32:
        hr_store_quad(reinterpret_cast<float *>(data) + row * cols, c, cols, cols % 4 == 0, v);
        break;
    case HR_F16:
    case HR_BF16:
        store_halves(reinterpret_cast<uint16_t *>(data) + row * cols, c, cols, v, w.dtype == HR_BF16);
        break;
    case HR_I8G32:
    case HR_I8ROW: {
        float d = row_d;
        if (w.dtype == HR_I8G32) {
            const uint16_t stored = scale_int8(most_of_32(v));
            d = hr_of_f16(stored);
            if (inside && c % 32 == 0) scales[(row * cols + c) / 32] = stored;
        }
        if (inside) *reinterpret_cast<uint32_t *>(data + row * cols + c) = levels_int8(v, d);
        break;
    }
    default: { /* I4G32, I4G128 */
        const bool whole_warp = w.dtype == HR_I4G128;
        const uint16_t stored = scale_int4(v, whole_warp);
        const uint32_t group = whole_warp ? 128 : 32;
        if (inside && c % group == 0) scales[row * ((cols + group - 1) / group) + c / group] = stored;
        store_int4(data + row * (cols / 2), c, cols, v, hr_of_f16(stored));
    }
    }
}

HR_KERNEL(fill_cuda, 256, hr_cuda_fill, p) {
    HR_SHARED(uint32_t, room, [32]);
    const uint32_t cols = (uint32_t)p.w.cols, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    fill_row r;
    r.scale = __fmul_rn(p.std, 1.7320508f) / 32768;
    r.center = __fadd_rn(p.center, 0.5f * r.scale);
    r.cols = cols;
    for (size_t row = blockIdx.x; row < p.w.rows; row += gridDim.x) {
        r.counter = p.key + (row * ((cols + 3) / 4) + 1) * HR_GOLDEN;
        float row_d = 0;
        if (p.w.dtype == HR_I8ROW) {
            uint32_t most = 0;
            for (uint32_t c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
                const float4 v = drawn(r, c);
                most = max(max(most, hr_abs_bits(v.x)), max(hr_abs_bits(v.y), max(hr_abs_bits(v.z), hr_abs_bits(v.w))));
            }
            const uint16_t stored = scale_int8(hr_block_max_bits(most, room));
            row_d = hr_of_f16(stored);
            if (threadIdx.x == 0) const_cast<uint16_t *>(p.w.scales)[row] = stored;
        }
        for (uint32_t c = 128 * warp; c < cols; c += 4 * blockDim.x) fill_quad(p.w, r, row, c + 4 * lane, row_d);
    }
}
