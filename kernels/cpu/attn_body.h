/* attn_body.h - attention over the vectors of one ISA; included once by attn_generic.c, attn_avx2.c and attn_avx512.c
 * after their simd_*.h. attn_rows.h holds decode of small groups, attn_tile.h everything else.
 *
 * Both walk hr_kv_run over a piece of at most HR_ATTN_CHUNK positions and keep the addresses of its rows. All
 * arithmetic goes by row and position from there on, so that no bit depends on layout or page size. Flash: softmax
 * online, chunk by chunk. Naive: one chunk as long as the unit's positions. */
#ifndef HR_ATTN_BODY_H
#define HR_ATTN_BODY_H

#include "kernels/cpu/attn_plan.h"
#ifndef HR_INLINE
#include "kernels/cpu/simd_generic.h"
#endif

#ifdef __clang__
#define HR_UNROLL _Pragma("unroll")
#else
#define HR_UNROLL _Pragma("GCC unroll 8")
#endif

/* Addresses of the K or V rows (and scales) of up to a chunk of positions, padded to a multiple of 4 by the last. */
typedef struct attn_rows {
    const uint8_t *row[HR_ATTN_CHUNK];
    const uint16_t *scale[HR_ATTN_CHUNK];
} attn_rows;

/* Rows of plane x for positions from..from + n - 1. */
static inline void attn_find_rows(const hr_attn *a, uint32_t kv_head, int x, uint32_t from, uint32_t n,
                                  attn_rows *out) {
    for (uint32_t i = 0; i < n;) {
        const hr_kv_rows run = hr_kv_run(a->kv, a->layer, kv_head, from + i);
        const uint32_t m = run.n < n - i ? run.n : n - i;
        const int s = x == HR_KV_K ? HR_KV_KS : HR_KV_VS;
        const uint8_t *at = run.at[x];
        for (uint32_t j = 0; j < m; j++) out->row[i + j] = at + j * run.stride[x];
        if (run.at[s]) {
            for (uint32_t j = 0; j < m; j++)
                out->scale[i + j] = (const uint16_t *)(const void *)(run.at[s] + j * run.stride[s]);
        }
        i += m;
    }
    for (uint32_t i = n; i % 4; i++) out->row[i] = out->row[n - 1], out->scale[i] = out->scale[n - 1];
}

/* Elements d..d + V_N - 1 of a row. */
HR_INLINE v_f attn_load(hr_dtype t, const uint8_t *row, const uint16_t *scale, size_t d) {
    switch (t) {
    case HR_F32:
        return v_load((const float *)(const void *)row + d);
    case HR_BF16:
        return v_load_bf16((const uint16_t *)(const void *)row + d);
    case HR_F16:
        return v_load_f16((const uint16_t *)(const void *)row + d);
    case HR_Q8_0:
        return v_mul(v_load_i8((const int8_t *)row + d), v_set(v_f16(scale[d / 32])));
    default: /* Q4_0 */
        return v_mul(v_load_nibbles(row + d / 32 * 16 + d % 16, d % 32 >= 16), v_set(v_f16(scale[d / 32])));
    }
}
/* One element of a row of floats, for what is left beyond whole vectors (quantized rows have nothing left). */
HR_INLINE float attn_load_one(hr_dtype t, const uint8_t *row, size_t d) {
    if (t == HR_F32) return ((const float *)(const void *)row)[d];
    const uint16_t h = ((const uint16_t *)(const void *)row)[d];
    return t == HR_BF16 ? hr_bf16_to_f32(h) : v_f16(h);
}
/* Elements d..dim - 1 of a row, fewer than V_N, zeros after them. */
static __attribute__((noinline)) v_f attn_load_rest(hr_dtype t, const uint8_t *row, size_t d, size_t dim) {
    float part[V_N] = {0};
    for (size_t i = d; i < dim; i++) part[i - d] = attn_load_one(t, row, i);
    return v_load(part);
}

#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/attn_tile.h"

static inline void attn_units(const hr_attn *a, size_t unit0, size_t unit1, void *scratch, bool flash) {
    for (size_t u = unit0; u < unit1; u++) {
        const hr_attn_unit unit = hr_attn_unit_at(a, u);
        if (a->n_q == 1 && unit.group <= HR_ATTN_ROWS_GROUP)
            attn_rows_unit(a, &unit, scratch, flash);
        else
            attn_tile_unit(a, &unit, scratch, flash);
    }
}
static void attn_flash(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_units(a, unit0, unit1, scratch, true);
}
static void attn_naive(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_units(a, unit0, unit1, scratch, false);
}

/* Joins the splits of each head in order of position. */
static void attn_merge(const hr_attn *a, size_t kv_head0, size_t kv_head1) {
    const size_t splits = hr_attn_splits(a), group = a->n_heads / a->n_kv_heads, dim = a->head_dim, entry = 2 + dim;
    for (size_t h = kv_head0 * group; h < kv_head1 * group; h++) {
        const float *first = a->partial + (h / group * splits * group + h % group) * entry;
        float top = -INFINITY, sum = 0, *out = a->out + h * dim;
        for (size_t s = 0; s < splits; s++) top = fmaxf(top, first[s * group * entry]);
        for (size_t d = 0; d < dim; d++) out[d] = 0;
        for (size_t s = 0; s < splits; s++) {
            const float *p = first + s * group * entry;
            const float w = expf(p[0] - top);
            sum += w * p[1];
            for (size_t d = 0; d < dim; d++) out[d] += w * p[2 + d];
        }
        for (size_t d = 0; d < dim; d++) out[d] /= sum;
    }
}

#endif
