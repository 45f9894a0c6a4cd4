/* attn_load.h - the rows of K or V of a piece of positions, and their elements as vectors of floats. Included by
 * attn_rows.h and attn_tile.h. */
#ifndef HR_ATTN_LOAD_H
#define HR_ATTN_LOAD_H

#include "kernels/cpu/attn_plan.h"
#include "kernels/kv/kv_open.h"
#ifndef HR_INLINE
#include "kernels/cpu/simd_generic.h"
#endif

#ifdef __clang__
#define HR_UNROLL      _Pragma("unroll")
#define HR_UNROLL_SOME /* of a length that may be unknown: clang takes "unroll" as wholly or not at all */
#else
#define HR_UNROLL      _Pragma("GCC unroll 8")
#define HR_UNROLL_SOME HR_UNROLL
#endif

/* Addresses of the K or V rows (and scales) of up to a chunk of positions, padded to a multiple of 4 by the last. */
typedef struct attn_rows {
    const uint8_t *row[HR_ATTN_CHUNK];
    const uint16_t *scale[HR_ATTN_CHUNK];
    uint32_t closed;                                                 /* K of i4kc: rows from here on are bf16 */
    uint16_t room[HR_ATTN_CHUNK / HR_KV_GROUP][2 * HR_KV_GROUP_DIM]; /* scales of groups that lie in pieces */
} attn_rows;

/* K of i4kc: rows of a group have its scales in common, and those of the open group, the last ones, are bf16. Both kinds
 * are padded to a multiple of 4. */
static __attribute__((noinline)) void attn_find_groups(const hr_attn *a, uint32_t kv_head, const hr_attn_piece *piece,
                                                       attn_rows *out) {
    const uint32_t n = piece->n, closed = hr_kv_closed(a->kv->g, a->kv->len);
    uint32_t i = 0;
    for (uint32_t slot = 0; i < n && hr_attn_at(piece, i) < closed; slot++) {
        const uint32_t pos = hr_attn_at(piece, i), first = pos / HR_KV_GROUP * HR_KV_GROUP;
        const uint16_t *scales = hr_kv_group_scales(a->kv, a->layer, kv_head, first, out->room[slot]);
        for (uint32_t end = i + first + HR_KV_GROUP - pos; i < end && i < n; i++) out->scale[i] = scales;
    }
    out->closed = i;
    for (; i < n; i++) {
        out->row[i] = (const uint8_t *)hr_kv_open_row(a->kv, a->layer, kv_head, hr_attn_at(piece, i));
        out->scale[i] = out->closed ? out->scale[out->closed - 1] : (const uint16_t *)(const void *)out->row[i];
    }
    for (; i < n + 3 && i < HR_ATTN_CHUNK; i++) out->row[i] = out->row[n - 1], out->scale[i] = out->scale[n - 1];
}

typedef uintptr_t attn_u4 __attribute__((vector_size(4 * sizeof(uintptr_t))));

/* Rows of plane x of a piece (at least one). */
static inline void attn_find_rows(const hr_attn *a, uint32_t kv_head, int x, const hr_attn_piece *piece,
                                  attn_rows *out) {
    const uint32_t n = piece->n;
    for (uint32_t i = 0; i < n;) {
        const hr_kv_rows run = hr_kv_run(a->kv, a->layer, kv_head, hr_attn_at(piece, i));
        const uint32_t left = (i < piece->hole ? piece->hole : n) - i, m = run.n < left ? run.n : left;
        const int s = x == HR_KV_K ? HR_KV_KS : HR_KV_VS;
        HR_KV_TOOK(a->kv->g, &run, 1u << x | 1u << s, m);
        const uint8_t *at = run.at[x];
        attn_u4 next = {0, run.stride[x], 2 * run.stride[x], 3 * run.stride[x]};
        next += (uintptr_t)at;
        uint32_t done = 0;
        for (; done + 4 <= m; done += 4, next += 4 * run.stride[x]) memcpy(out->row + i + done, &next, sizeof next);
        for (; done < m; done++) out->row[i + done] = at + done * run.stride[x];
        if (run.at[s]) {
            for (uint32_t j = 0; j < m; j++)
                out->scale[i + j] = (const uint16_t *)(const void *)(run.at[s] + j * run.stride[s]);
        }
        i += m;
    }
    for (uint32_t i = n; i % 4; i++) out->row[i] = out->row[n - 1], out->scale[i] = out->scale[n - 1];
    if (x == HR_KV_K && a->kv->open) attn_find_groups(a, kv_head, piece, out);
}

/* The type of V as its bytes are to be read. */
static inline hr_dtype attn_v_type(const hr_kv_geom *g) {
    return g->type[1] == HR_I4KC ? HR_Q4_0 : g->type[1];
}

/* Rows that are wanted next, those from `first` on of n, bytes at..end - 1 of each. */
typedef struct attn_ahead {
    const attn_rows *rows;
    uint32_t first, n;
    size_t at, end;
    bool scales;
} attn_ahead;
/* Rows from..from + n - 1; those past the end repeat the last one. */
HR_INLINE void attn_fetch_some(const attn_ahead *next, uint32_t from, const uint32_t n) {
    if (from < next->first || from >= next->n) return;
    HR_UNROLL for (uint32_t i = 0; i < n; i++) {
        const char *row = (const char *)next->rows->row[from + i];
        for (size_t at = next->at; at < next->end; at += 64) __builtin_prefetch(row + at);
        if (next->scales) __builtin_prefetch(next->rows->scale[from + i]);
    }
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
    case HR_I8ROW:
        return v_mul(v_load_i8((const int8_t *)row + d), v_set(v_f16(scale[0])));
    case HR_I4KC: /* K */
        return v_fma(v_load_nibbles(row + d / 32 * 16 + d % 16, d % 32 >= 16), v_load_f16(scale + hr_kv_channel(d)),
                     v_load_f16(scale + hr_kv_channel(d) + 16));
    default: /* Q4_0, V of I4KC */
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

#endif
