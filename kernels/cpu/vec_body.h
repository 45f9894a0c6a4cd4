/* vec_body.h - norm, RoPE, gated activation and table look-up over the vectors of one ISA; included once by
 * vec_generic.c, vec_avx2.c and vec_avx512.c after their simd_*.h. */
#ifndef HR_VEC_BODY_H
#define HR_VEC_BODY_H

#include "kernels/table.h"
#ifndef HR_INLINE
#include "kernels/cpu/simd_generic.h"
#endif

/* Squares are added in eight or more separate sums and those in double: the relative error stays near 1e-7. */
static double vec_square_sum(const float *x, size_t n) {
    double total = 0;
    size_t i = 0;
    while (i + 4 * V_N <= n) {
        /* 1024 floats at most before the sums move into double */
        const size_t end = n - i > 1024 ? i + 1024 : n;
        v_f s[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
        for (; i + 4 * V_N <= end; i += 4 * V_N) {
            for (int j = 0; j < 4; j++) {
                const v_f v = v_load(x + i + j * V_N);
                s[j] = v_fma(v, v, s[j]);
            }
        }
        float part[V_N];
        for (int j = 0; j < 4; j++) {
            v_store(part, s[j]);
            for (int l = 0; l < V_N; l++) total += (double)part[l];
        }
    }
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    return total;
}

static void vec_rms_norm(const float *x, size_t ldx, const float *w, float *y, size_t ldy, size_t dim, float eps,
                         size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        const float *from = x + t * ldx;
        float *to = y + t * ldy;
        const float r = (float)(1 / sqrt(vec_square_sum(from, dim) / (double)dim + (double)eps));
        const v_f rr = v_set(r);
        size_t i = 0;
        if (w) {
            for (; i + V_N <= dim; i += V_N) v_store(to + i, v_mul(v_mul(v_load(from + i), rr), v_load(w + i)));
            for (; i < dim; i++) to[i] = from[i] * r * w[i];
        } else {
            for (; i + V_N <= dim; i += V_N) v_store(to + i, v_mul(v_load(from + i), rr));
            for (; i < dim; i++) to[i] = from[i] * r;
        }
    }
}

static void vec_rope(float *x, size_t ldx, size_t n_heads, size_t head_dim, size_t rot, bool interleaved,
                     const float *cs, size_t t0, size_t t1) {
    const size_t half = rot / 2;
    for (size_t t = t0; t < t1; t++) {
        const float *at = cs + t * rot;
        for (size_t h = 0; h < n_heads; h++) {
            float *restrict head = x + t * ldx + h * head_dim;
            if (interleaved) {
                for (size_t i = 0; i < half; i++) {
                    const float c = at[2 * i], s = at[2 * i + 1], a = head[2 * i], b = head[2 * i + 1];
                    head[2 * i] = a * c - b * s;
                    head[2 * i + 1] = a * s + b * c;
                }
            } else {
                for (size_t i = 0; i < half; i++) {
                    const float c = at[2 * i], s = at[2 * i + 1], a = head[i], b = head[i + half];
                    head[i] = a * c - b * s;
                    head[i + half] = a * s + b * c;
                }
            }
        }
    }
}

/* g / (1 + e^-g) * u */
HR_INLINE v_f vec_silu_mul(v_f g, v_f u) {
    return v_mul(v_div(g, v_add(v_set(1), v_exp(v_sub(v_set(0), g)))), u);
}
static void vec_glu(const float *gate, const float *up, float *y, size_t n) {
    size_t i = 0;
    for (; i + V_N <= n; i += V_N) v_store(y + i, vec_silu_mul(v_load(gate + i), v_load(up + i)));
    if (i < n) {
        float g[V_N] = {0}, u[V_N] = {0};
        memcpy(g, gate + i, (n - i) * sizeof *g), memcpy(u, up + i, (n - i) * sizeof *u);
        v_store(g, vec_silu_mul(v_load(g), v_load(u)));
        memcpy(y + i, g, (n - i) * sizeof *g);
    }
}

/* The rows of one ISA. */
/* clang-format off */
#define HR_VEC_ROW(fam, text, level, order, field, function) \
    {.family = fam, .name = text, .isa = level, .act = -1, .rank = order, .unit = HR_UNIT_FP32, .fn.field = function}
#define HR_VEC_KERNELS(suffix, level, order)                                                  \
    HR_VEC_ROW(HR_FAM_NORM, "rms_norm_" suffix, level, order, norm, vec_rms_norm),            \
    HR_VEC_ROW(HR_FAM_ROPE, "rope_" suffix, level, order, rope, vec_rope),                    \
    HR_VEC_ROW(HR_FAM_GLU, "silu_mul_" suffix, level, order, glu, vec_glu),                   \
    HR_VEC_ROW(HR_FAM_EMBED, "embed_" suffix, level, order, embed, hr_mat_row_f32),           \
    {.name = NULL}
/* clang-format on */

#endif
