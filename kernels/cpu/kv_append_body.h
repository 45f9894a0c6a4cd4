/* kv_append_body.h - writing K and V rows in the type of the cache; included once by each attn_*.c. The bits are the
 * same on every ISA: those of the scalar conversions, of hr_quantize_row for q8_0 and i8row, and for q4_0 a scale of the largest
 * magnitude over 7. Values that are not finite stay so in f32, f16 and bf16. */
#ifndef HR_KV_APPEND_BODY_H
#define HR_KV_APPEND_BODY_H

#include "kernels/cpu/attn_body.h"

/* One group of n: the scale that is stored is the one that is divided by. */
HR_INLINE float append_scale(const float *x, size_t n, float levels, uint16_t *stored) {
    float top = 0;
    for (size_t i = 0; i < n; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    *stored = hr_f32_to_f16(top / levels);
    return hr_f16_to_f32(*stored);
}
/* x / d rounded to nearest even within +-limit; adding 1.5 * 2^23 does the rounding. */
HR_INLINE int32_t append_quant(float x, float d, float limit) {
    float y = x / d;
    y = y > limit ? limit : y;
    y = y < -limit ? -limit : y;
    return (int32_t)((y + 12582912.0f) - 12582912.0f);
}

HR_INLINE void append_int8(const float *x, size_t n, int8_t *q, uint16_t *scale) {
    const float d = append_scale(x, n, 127, scale);
    if (!(d > 0)) {
        memset(q, 0, n);
        return;
    }
    for (size_t i = 0; i < n; i++) q[i] = (int8_t)append_quant(x[i], d, 127);
}

static void append_row(hr_dtype t, const float *x, size_t dim, uint8_t *row, uint16_t *scale) {
    switch (t) {
    case HR_F32:
        memcpy(row, x, dim * sizeof *x);
        return;
    case HR_BF16:
        for (size_t d = 0; d < dim; d++) {
            uint32_t u;
            memcpy(&u, x + d, sizeof u);
            const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
            ((uint16_t *)(void *)row)[d] = (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
        }
        return;
    case HR_F16:
        v_store_f16((uint16_t *)(void *)row, x, dim);
        return;
    case HR_Q8_0:
        for (size_t b = 0; b < dim / 32; b++) append_int8(x + 32 * b, 32, (int8_t *)row + 32 * b, scale + b);
        return;
    case HR_I8ROW:
        append_int8(x, dim, (int8_t *)row, scale);
        return;
    default: /* Q4_0, V of I4KC */
        for (size_t b = 0; b < dim / 32; b++) {
            const float d = append_scale(x + 32 * b, 32, 7, scale + b), *from = x + 32 * b;
            uint8_t *q = row + 16 * b;
            if (!(d > 0)) {
                memset(q, 0x88, 16);
                continue;
            }
            for (int i = 0; i < 16; i++)
                q[i] = (uint8_t)((append_quant(from[i], d, 7) + 8) | (append_quant(from[i + 16], d, 7) + 8) << 4);
        }
    }
}

#include "kernels/cpu/kv_group_body.h"

/* K of the open group, in bf16; its last row closes it. */
static void append_open(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos0, const float *k, size_t ldk,
                        size_t t0, size_t t1) {
    const size_t dim = s->g->head_dim;
    for (size_t t = t0; t < t1; t++) {
        const uint32_t pos = pos0 + (uint32_t)t;
        append_row(HR_BF16, k + t * ldk + head * dim, dim, (uint8_t *)hr_kv_open_row(s, layer, head, pos), NULL);
        if (pos % HR_KV_GROUP == HR_KV_GROUP - 1) append_close(s, layer, head, pos / HR_KV_GROUP * HR_KV_GROUP);
    }
}

enum { KV_K_PLANES = 1 << HR_KV_K | 1 << HR_KV_KS, KV_V_PLANES = 1 << HR_KV_V | 1 << HR_KV_VS };

static void kv_append(const hr_kv_seq *s, uint32_t layer, uint32_t pos0, const float *k, size_t ldk, const float *v,
                      size_t ldv, size_t t0, size_t t1, uint32_t head0, uint32_t head1) {
    const hr_kv_geom *g = s->g;
    const size_t dim = g->head_dim;
    const bool rows_of_k = k && g->type[0] != HR_I4KC;
    for (uint32_t h = head0; h < head1; h++) {
        if (k && !rows_of_k) append_open(s, layer, h, pos0, k, ldk, t0, t1);
        for (size_t t = t0; t < t1;) {
            const hr_kv_rows run = hr_kv_run(s, layer, h, pos0 + (uint32_t)t);
            HR_KV_TOOK(g, &run, (rows_of_k ? KV_K_PLANES : 0) | (v ? KV_V_PLANES : 0),
                       run.n < t1 - t ? run.n : (uint32_t)(t1 - t));
            for (uint32_t i = 0; i < run.n && t < t1; i++, t++) {
                if (rows_of_k)
                    append_row(
                        g->type[0], k + t * ldk + h * dim, dim, run.at[HR_KV_K] + i * run.stride[HR_KV_K],
                        (uint16_t *)(void *)(run.at[HR_KV_KS] ? run.at[HR_KV_KS] + i * run.stride[HR_KV_KS] : NULL));
                if (v)
                    append_row(
                        g->type[1], v + t * ldv + h * dim, dim, run.at[HR_KV_V] + i * run.stride[HR_KV_V],
                        (uint16_t *)(void *)(run.at[HR_KV_VS] ? run.at[HR_KV_VS] + i * run.stride[HR_KV_VS] : NULL));
            }
        }
    }
}

enum {
    HR_KV_TYPES = 1 << HR_F32 | 1 << HR_F16 | 1 << HR_BF16 | 1 << HR_Q8_0 | 1 << HR_I8ROW | 1 << HR_Q4_0 | 1 << HR_I4KC
};

/* The rows of one ISA. */
/* clang-format off */
#define HR_ATTN_ROW(fam, text, level, types, is_flash, order, field, function)                            \
    {.family = fam, .name = text, .isa = level, .dtypes = types, .act = -1, .flash = is_flash,            \
     .rank = order, .unit = HR_UNIT_FP32, .fn.field = function}
#define HR_ATTN_KERNELS(suffix, level, order)                                                                       \
    HR_ATTN_ROW(HR_FAM_ATTN, "attn_flash_" suffix, level, HR_KV_TYPES, true, order, attn, attn_flash),              \
    HR_ATTN_ROW(HR_FAM_ATTN, "attn_naive_" suffix, level, HR_KV_TYPES, false, order, attn, attn_naive),             \
    HR_ATTN_ROW(HR_FAM_ATTN_MERGE, "attn_merge_" suffix, level, 0, false, order, attn_merge, attn_merge),           \
    HR_ATTN_ROW(HR_FAM_KV_APPEND, "kv_append_" suffix, level, HR_KV_TYPES, false, order, kv_append, kv_append),     \
    {.name = NULL}
/* clang-format on */

#endif
