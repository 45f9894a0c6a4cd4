/* norm.cu - RMS norm, LayerNorm, or neither, of one row a block, and the row as activations for products: f32, bf16, int8 with a
 * scale per 32 values or per row. Rows are read once for each sum and once for the result; after the first time they come from
 * L1. A thread owns the same columns in every round, so that the result may stand where x does.
 *
 * Variants: weights copied to shared memory while the sum is made; and read through the path for constant data, which is
 * what a compiler makes of const __restrict__ arguments (here pointers come in a struct, so it is said by __ldg). */
#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/cuda_params.h"
#include "kernels/cuda/vec_launch.h"

typedef enum norm_variant { NORM_PLAIN, NORM_STAGED, NORM_CONSTANT } norm_variant;

template <norm_variant HOW>
__device__ static inline float4 norm_load(const float *x, uint32_t c, uint32_t n, bool wide) {
    if (HOW == NORM_CONSTANT && wide && c + 4 <= n) return __ldg(reinterpret_cast<const float4 *>(x + c));
    return hr_quad(x, c, n, wide);
}

/* What is done to each value: (x - mean) * factor * w + b. */
typedef struct norm_row {
    const float *x, *w, *b, *staged; /* staged: w of the first HR_NORM_STAGED columns, in shared memory */
    float mean, factor;
    uint32_t dim;
    bool wide; /* x, w and b are aligned to 16 bytes */
} norm_row;

/* Columns c..c + 3, zeros past the last. */
template <norm_variant HOW> __device__ static inline float4 norm_quad(const norm_row &r, uint32_t c) {
    float4 v = norm_load<HOW>(r.x, c, r.dim, r.wide);
    v.x = (v.x - r.mean) * r.factor, v.y = (v.y - r.mean) * r.factor;
    v.z = (v.z - r.mean) * r.factor, v.w = (v.w - r.mean) * r.factor;
    if (r.w) {
        const float4 w = HOW == NORM_STAGED && c + 4 <= HR_NORM_STAGED && c + 4 <= r.dim
                             ? *reinterpret_cast<const float4 *>(r.staged + c)
                             : norm_load<HOW>(r.w, c, r.dim, r.wide);
        v.x *= w.x, v.y *= w.y, v.z *= w.z, v.w *= w.w;
    }
    if (r.b) {
        const float4 b = norm_load<HOW>(r.b, c, r.dim, r.wide);
        v.x += b.x, v.y += b.y, v.z += b.z, v.w += b.w;
    }
    if (c + 4 > r.dim) { /* less mean, nothing is not zero */
        v.x = c < r.dim ? v.x : 0, v.y = c + 1 < r.dim ? v.y : 0;
        v.z = c + 2 < r.dim ? v.z : 0, v.w = 0;
    }
    return v;
}

/* Largest of a quad's |x| as bits. */
__device__ static inline uint32_t quad_most(float4 v) {
    return max(max(hr_abs_bits(v.x), hr_abs_bits(v.y)), max(hr_abs_bits(v.z), hr_abs_bits(v.w)));
}
/* The scale of int8 activations; below the normal numbers it counts as 0, as on the CPU. */
__device__ static inline float act_scale(uint32_t most) {
    const float d = __uint_as_float(most) / 127.0f;
    return d < 1.17549435e-38f ? 0 : d;
}
__device__ static inline uint32_t quad_int8(float4 v, float d) {
    if (d == 0) return 0;
    return hr_pack8(hr_nearest_int(v.x / d), hr_nearest_int(v.y / d), hr_nearest_int(v.z / d), hr_nearest_int(v.w / d));
}

/* Columns c..c + 3 of activations of row i. All lanes of a warp come here, with columns side by side; those at or past ld
 * store nothing. */
__device__ static inline void store_acts(const hr_cuda_acts &a, size_t i, uint32_t c, float4 v, float row_scale) {
    const bool inside = c < a.ld;
    const size_t at = i * a.ld + c;
    if (a.type == HR_ACT_F32) {
        if (inside) *reinterpret_cast<float4 *>(static_cast<float *>(a.data) + at) = v;
    } else if (a.type == HR_ACT_BF16) {
        if (inside) *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(a.data) + at) = hr_quad_bf16(v);
    } else {
        float d = row_scale;
        if (a.type == HR_ACT_INT8) {
            uint32_t most = quad_most(v); /* of 8 lanes: 32 values */
            for (int o = 4; o; o >>= 1) most = max(most, __shfl_xor_sync(0xffffffffu, most, o));
            d = act_scale(most);
            if (inside && c % 32 == 0) a.d[at / 32] = d;
        }
        if (inside) *reinterpret_cast<uint32_t *>(static_cast<int8_t *>(a.data) + at) = quad_int8(v, d);
    }
}

template <norm_variant HOW> __device__ static inline void norm_stage(const norm_row &r, float *staged) {
    const uint32_t n = r.dim < HR_NORM_STAGED ? r.dim : HR_NORM_STAGED;
    for (uint32_t c = 4 * threadIdx.x; c + 4 <= n; c += 4 * blockDim.x) {
        if (r.wide)
            hr_cp_async16(staged + c, r.w + c);
        else
            for (int j = 0; j < 4; j++) staged[c + j] = r.w[c + j];
    }
    hr_cp_async_commit();
}

template <norm_variant HOW> __device__ static inline void norm(const hr_cuda_norm &p) {
    HR_SHARED(float, room, [32]);
    HR_SHARED_DYNAMIC(float, staged);
    const uint32_t i = blockIdx.x, dim = p.dim;
    if (i >= (p.rows ? p.batch->n_logits : p.batch->n)) return;
    norm_row r = {p.x + (size_t)(p.rows ? p.rows[i] : i) * p.ldx, NULL, NULL, staged, 0, 1, dim, false};
    if (p.kind != HR_CUDA_NORM_NONE) r.w = p.w, r.b = p.b;
    r.wide = hr_is_aligned(r.x, 16) && hr_is_aligned(r.w, 16) && hr_is_aligned(r.b, 16);
    if (HOW == NORM_STAGED && r.w) norm_stage<HOW>(r, staged);

    if (p.kind == HR_CUDA_NORM_LAYER) {
        float sum = 0;
        for (uint32_t c = 4 * threadIdx.x; c < dim; c += 4 * blockDim.x) {
            const float4 v = norm_load<HOW>(r.x, c, dim, r.wide);
            sum += (v.x + v.y) + (v.z + v.w);
        }
        r.mean = hr_block_sum(sum, room) / (float)dim;
    }
    if (p.kind != HR_CUDA_NORM_NONE) {
        float sum = 0;
        for (uint32_t c = 4 * threadIdx.x; c < dim; c += 4 * blockDim.x) {
            float4 v = norm_load<HOW>(r.x, c, dim, r.wide);
            v.x -= r.mean, v.y = c + 1 < dim ? v.y - r.mean : 0;
            v.z = c + 2 < dim ? v.z - r.mean : 0, v.w = c + 3 < dim ? v.w - r.mean : 0;
            sum += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
        }
        r.factor = 1 / sqrtf(hr_block_sum(sum, room) / (float)dim + p.eps);
    }
    if (HOW == NORM_STAGED) {
        hr_cp_async_wait<0>();
        __syncthreads();
    }

    float row_scale = 0;
    if (p.acts.data && p.acts.type == HR_ACT_INT8_ROW) {
        uint32_t most = 0;
        for (uint32_t c = 4 * threadIdx.x; c < dim; c += 4 * blockDim.x)
            most = max(most, quad_most(norm_quad<HOW>(r, c)));
        row_scale = act_scale(hr_block_max_bits(most, reinterpret_cast<uint32_t *>(room)));
        if (threadIdx.x == 0) p.acts.d[i] = row_scale;
    }
    const uint32_t end = p.acts.data && p.acts.ld > dim ? p.acts.ld : dim, lane = threadIdx.x % 32;
    float *out = p.out ? p.out + (size_t)i * dim : NULL;
    const bool wide_out = hr_is_aligned(out, 16);
    for (uint32_t base = 4 * (threadIdx.x - lane); base < end; base += 4 * blockDim.x) {
        const uint32_t c = base + 4 * lane;
        const float4 v = norm_quad<HOW>(r, c);
        if (out) hr_store_quad(out, c, dim, wide_out, v);
        if (p.acts.data) store_acts(p.acts, i, c, v, row_scale);
    }
}

HR_KERNEL_OF(norm_cuda, 1024, hr_cuda_norm, norm<NORM_PLAIN>)
HR_KERNEL_OF(norm_staged_cuda, 1024, hr_cuda_norm, norm<NORM_STAGED>)
HR_KERNEL(norm_restrict_cuda, 1024, hr_cuda_norm, p) {
    if (p.out == p.x) /* what is written is not constant */
        norm<NORM_PLAIN>(p);
    else
        norm<NORM_CONSTANT>(p);
}
