/* attn_fours_avx512.h - decode for the usual case: head dimension 64 or 128, bf16 or q8_0, rows that are equally spaced four
 * by four (any layout but pages of 1 and 2 positions; no odd hole or window). One address for four rows is looked up and
 * kept, or, for the yardstick `attn_contig`, none at all: there all rows of a head follow each other. The body is one, its
 * arithmetic that of attn_decode_avx512.h, to the bit. Include it from attn_bf16_avx512.c alone.
 * K and V of a chunk are looked up together: they share their geometry.
 *
 * Measured on Zen 5, one thread, bf16, 8 heads of KV, head dimension 64 / 128, share of attn_contig: cache in L2, `head`
 * 98 / 101 %, pages of 16 in order 85 / 93 %, zorder 93 / 94 %; in L3, `head` 98 / 98 %, pages 79 / 89 %, zorder 92 / 89 %.
 * Pages of 16 at dimension 64 are pieces of 2 KB, 16 KB apart: those of K and of V share half of the sets of L1, likely what
 * they lack. Asking for rows in L2 only, and again in L1 eight or 16 rows ahead, was slower: 73 to 82 %. */
#ifndef HR_ATTN_FOURS_AVX512_H
#define HR_ATTN_FOURS_AVX512_H

#include "kernels/cpu/attn_decode_avx512.h"

#ifdef __AVX512BF16__

enum { ATTN_FOURS = HR_ATTN_CHUNK / 4 };

/* Rows of K or V of one piece. Looked up: run by run, row[run] is the first of R rows `stride` apart (R a power of two of at least 4), of
 * R - phase in the first run; else there is one run. */
typedef struct attn_fours {
    const uint8_t *row[ATTN_FOURS];
    const uint16_t *scale[ATTN_FOURS];
    size_t stride, scale_stride; /* bytes; f16 */
    uint32_t n, phase;           /* positions; those before them in the first run */
    uint32_t shift;              /* log2 R */
} attn_fours;

/* Rows of a run that count: those of a unit or page, or of a chunk. */
static inline uint32_t attn_fours_run(const hr_kv_geom *g) {
    const bool whole = g->layout == HR_KV_HEAD || g->layout == HR_KV_TOKEN;
    const uint32_t n = whole ? HR_ATTN_CHUNK : g->page_size ? g->page_size : g->block;
    return n < HR_ATTN_CHUNK ? n : HR_ATTN_CHUNK;
}

/* K and V of one piece. */
typedef struct attn_fours_pair {
    attn_fours k, v;
} attn_fours_pair;

/* The same for each layout, so that what does not change from run to run is computed once. */
HR_INLINE void attn_fours_find_in(const hr_kv_layout layout, const hr_attn *a, uint32_t kv_head,
                                  const hr_attn_piece *piece, attn_fours_pair *out) {
    const uint32_t R = 1u << out->k.shift, phase = piece->from & (R - 1);
    const uint32_t runs = (phase + piece->n + R - 1) >> out->k.shift;
    const hr_kv_rows first = hr_kv_run(a->kv, a->layer, kv_head, piece->from);
    out->k.stride = first.stride[HR_KV_K], out->v.stride = first.stride[HR_KV_V];
    out->k.scale_stride = first.stride[HR_KV_KS] / 2, out->v.scale_stride = first.stride[HR_KV_VS] / 2;
    out->k.phase = out->v.phase = phase;
    for (uint32_t i = 0; i < runs; i++) {
        if (a->kv->g->layout != layout) __builtin_unreachable();
        const hr_kv_rows run = hr_kv_run(a->kv, a->layer, kv_head, i ? piece->from - phase + i * R : piece->from);
        out->k.row[i] = run.at[HR_KV_K], out->v.row[i] = run.at[HR_KV_V];
        if (first.at[HR_KV_KS]) out->k.scale[i] = (const uint16_t *)(const void *)run.at[HR_KV_KS];
        if (first.at[HR_KV_VS]) out->v.scale[i] = (const uint16_t *)(const void *)run.at[HR_KV_VS];
    }
}
static __attribute__((noinline)) void attn_fours_look_up(const hr_attn *a, uint32_t kv_head, const hr_attn_piece *piece,
                                                         attn_fours_pair *out) {
    switch (a->kv->g->layout) {
#define ATTN_FOURS_IN(layout)                               \
    case layout:                                            \
        attn_fours_find_in(layout, a, kv_head, piece, out); \
        break;
        ATTN_FOURS_IN(HR_KV_HEAD)
        ATTN_FOURS_IN(HR_KV_TOKEN)
        ATTN_FOURS_IN(HR_KV_BLOCK)
        ATTN_FOURS_IN(HR_KV_PAGED)
        ATTN_FOURS_IN(HR_KV_PAGED_IDENTITY)
        ATTN_FOURS_IN(HR_KV_PAGED_NHD)
        ATTN_FOURS_IN(HR_KV_ZORDER)
        ATTN_FOURS_IN(HR_KV_ZORDER_H)
    default:
        attn_fours_find_in(HR_KV_SHUFFLED, a, kv_head, piece, out);
    }
}

/* Plane x of a piece of the layout `head`, computed by hand. */
HR_INLINE void attn_fours_contig(const hr_attn *a, uint32_t kv_head, const int x, const hr_attn_piece *piece,
                                 attn_fours *out) {
    const hr_kv_geom *g = a->kv->g;
    const int s = x == HR_KV_K ? HR_KV_KS : HR_KV_VS;
    const size_t unit = (size_t)a->layer * g->n_heads + kv_head;
    out->row[0] = a->kv->base[x] + unit * g->unit_bytes[x] + piece->from * g->row_bytes[x];
    out->phase = 0, out->stride = g->row_bytes[x], out->scale_stride = g->row_bytes[s] / 2;
    if (a->kv->base[s])
        out->scale[0] =
            (const uint16_t *)(const void *)(a->kv->base[s] + unit * g->unit_bytes[s] + piece->from * g->row_bytes[s]);
}
HR_INLINE void attn_fours_find(const bool look_up, const hr_attn *a, uint32_t kv_head, const hr_attn_piece *piece,
                               attn_fours_pair *out) {
    out->k.n = out->v.n = piece->n;
    if (!piece->n) return;
    if (look_up) {
        attn_fours_look_up(a, kv_head, piece, out);
        return;
    }
    attn_fours_contig(a, kv_head, HR_KV_K, piece, &out->k);
    attn_fours_contig(a, kv_head, HR_KV_V, piece, &out->v);
}

/* Rows of one run, and how far apart they are; dense: a row's bytes, which the body knows when it is compiled. */
typedef struct attn_run {
    const uint8_t *row;
    const uint16_t *scale;
    size_t stride, scale_stride;
} attn_run;
HR_INLINE attn_run attn_run_at(const bool dense, const bool bf16, const size_t dim, const attn_fours *f, uint32_t run) {
    const attn_run r = {f->row[run], bf16 ? NULL : f->scale[run], f->stride, bf16 ? 0 : f->scale_stride};
    return dense ? (attn_run){r.row, r.scale, bf16 ? 2 * dim : dim, bf16 ? 0 : dim / 32} : r;
}
/* n rows further. */
HR_INLINE void attn_run_step(attn_run *r, const uint32_t n) {
    r->row += n * r->stride, r->scale += n * r->scale_stride;
}
/* Asks for the next n rows. */
HR_INLINE void attn_run_fetch(const bool bf16, const size_t dim, const attn_run *r, const uint32_t n) {
    HR_UNROLL for (uint32_t j = 0; j < n; j++) {
        for (size_t at = 0; at < (bf16 ? 2 * dim : dim); at += 64) __builtin_prefetch(r->row + j * r->stride + at);
        if (!bf16) __builtin_prefetch(r->scale + j * r->scale_stride);
    }
}
/* Row behind the last of run r. */
HR_INLINE uint32_t attn_run_end(const attn_fours *f, uint32_t run) {
    const uint32_t end = ((run + 1) << f->shift) - f->phase;
    return end < f->n ? end : f->n;
}

/* Scores; rows past the last are read, and masked by softmax. V of the same positions is fetched. */
HR_INLINE void attn_fours_qk(hr_dtype t, const int heads, const bool dense, const size_t dim, const bool next_bf16,
                             const attn_quad *w, const attn_fours *k, const attn_fours *next) {
    const bool bf16 = t == HR_BF16;
    for (uint32_t run = 0, i = 0; i < k->n; run++) {
        const uint32_t end = attn_run_end(k, run);
        attn_run x = attn_run_at(dense, bf16, dim, k, run), y = attn_run_at(dense, next_bf16, dim, next, run);
        for (; i < end; i += 4, attn_run_step(&x, 4), attn_run_step(&y, 4)) {
            __m512 acc[4][4];
            HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] =
                _mm512_setzero_ps();
            attn_run_fetch(next_bf16, dim, &y, 4);
            HR_UNROLL for (size_t d = 0; d < dim; d += 32) {
                __m512i kk[4];
                HR_UNROLL for (int j = 0; j < 4; j++) kk[j] =
                    attn_load32(t, x.row + j * x.stride, x.scale + j * x.scale_stride, d, d + 32);
                HR_UNROLL for (int g = 0; g < heads; g++) {
                    const __m512i qq = _mm512_loadu_si512(w->q + g * dim + d);
                    HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = attn_dp(acc[g][j], kk[j], qq);
                }
            }
            _mm512_storeu_ps(w->score + 4 * i, attn_sum16(heads, acc));
        }
    }
}

/* o = o * decay + weights . V; the row past an odd n is the last one, with weight 0. K of the next piece is fetched. */
HR_INLINE void attn_fours_pv(hr_dtype t, const int heads, const bool dense, const size_t dim, const bool next_bf16,
                             const attn_quad *w, const attn_fours *v, const attn_fours *next) {
    const bool bf16 = t == HR_BF16;
    float decay[16];
    _mm512_storeu_ps(decay, w->decay);
    HR_UNROLL for (size_t d = 0; d < dim; d += 64) {
        __m512 acc[4][4];
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] =
            _mm512_mul_ps(_mm512_loadu_ps(w->o + g * dim + d + 16 * j), _mm512_set1_ps(decay[4 * g]));
        for (uint32_t run = 0, i = 0; i < v->n; run++) {
            const uint32_t end = attn_run_end(v, run);
            attn_run r = attn_run_at(dense, bf16, dim, v, run), y = attn_run_at(dense, next_bf16, dim, next, run);
            for (; i < end; i += 2, attn_run_step(&r, 2)) {
                const uint32_t *p = w->weight + i / 4 * 8 + i % 4 / 2;
                const size_t pair = i + 1 < v->n;
                __m512i x[4];
                if (d == 0 && i < next->n) attn_run_fetch(next_bf16, dim, &y, 2), attn_run_step(&y, 2);
                HR_UNROLL for (int j = 0; j < 2; j++) {
                    const size_t e = d + 32 * j;
                    const __m512i a = attn_load32(t, r.row, r.scale, e, e + 32);
                    const __m512i b =
                        attn_load32(t, r.row + pair * r.stride, r.scale + pair * r.scale_stride, e, e + 32);
                    x[2 * j] = _mm512_unpacklo_epi16(a, b), x[2 * j + 1] = _mm512_unpackhi_epi16(a, b);
                }
                HR_UNROLL for (int g = 0; g < heads; g++) {
                    const __m512i pp = attn_pair(p + 2 * g);
                    HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = attn_dp(acc[g][j], pp, x[j]);
                }
            }
        }
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++)
            _mm512_storeu_ps(w->o + g * dim + d + 16 * j, acc[g][j]);
    }
}

#define ATTN_FOURS_TYPES(fn, dim)                                                               \
    if (t == HR_BF16 && t_next == HR_BF16) ATTN_QUAD(fn, HR_BF16, dense, dim, true, w, x, next) \
    if (t == HR_BF16) ATTN_QUAD(fn, HR_BF16, dense, dim, false, w, x, next)                     \
    if (t_next == HR_BF16) ATTN_QUAD(fn, HR_Q8_0, dense, dim, true, w, x, next)                 \
    ATTN_QUAD(fn, HR_Q8_0, dense, dim, false, w, x, next)
#define ATTN_FOURS_BODY(name, fn)                                                                             \
    HR_INLINE void name##_any(const bool dense, hr_dtype t, const attn_quad *w, const attn_fours *x,          \
                              const attn_fours *next, hr_dtype t_next) {                                      \
        if (w->dim == 64) {                                                                                   \
            ATTN_FOURS_TYPES(fn, 64)                                                                          \
        }                                                                                                     \
        ATTN_FOURS_TYPES(fn, 128)                                                                             \
    }                                                                                                         \
    static __attribute__((noinline)) void name##_strided(hr_dtype t, const attn_quad *w, const attn_fours *x, \
                                                         const attn_fours *next, hr_dtype t_next) {           \
        name##_any(false, t, w, x, next, t_next);                                                             \
    }                                                                                                         \
    static __attribute__((noinline)) void name##_dense(hr_dtype t, const attn_quad *w, const attn_fours *x,   \
                                                       const attn_fours *next, hr_dtype t_next) {             \
        name##_any(true, t, w, x, next, t_next);                                                              \
    }
ATTN_FOURS_BODY(attn_fours_scores, attn_fours_qk)
ATTN_FOURS_BODY(attn_fours_outputs, attn_fours_pv)

/* Whether runs begin and end at multiples of four, in types and dimensions that the body knows. */
static bool attn_fours_takes(const hr_attn *a, const hr_attn_unit *u) {
    const hr_kv_geom *g = a->kv->g;
    const uint32_t known = 1u << HR_BF16 | 1u << HR_Q8_0;
    const bool types = (known >> g->type[0] & 1u) && (known >> g->type[1] & 1u);
    const uint32_t run = hr_kv_is_paged(g->layout) ? g->page_size : g->block;
    const bool hole = a->kv->gone_from < a->kv->gone_to && a->kv->gone_from < u->to && a->kv->gone_to > u->from;
    return types && run >= 4 && g->block >= 4 && !hole && u->from % 4 == 0 &&
           (a->head_dim == 64 || a->head_dim == 128) && u->group <= 4;
}

HR_INLINE void attn_fours_unit(const bool look_up, const hr_attn *a, const hr_attn_unit *u, void *scratch) {
    const hr_kv_geom *g = a->kv->g;
    const size_t dim = a->head_dim;
    const attn_ahead none = {0};
    const hr_dtype kt = g->type[0], vt = g->type[1];
    const bool dense = g->layout != HR_KV_TOKEN && g->layout != HR_KV_PAGED_NHD; /* as hr_kv_run says */
    attn_fours_pair pairs[2], *at = &pairs[0];
    for (int i = 0; i < 2; i++)
        pairs[i].k.shift = pairs[i].v.shift = (uint32_t)__builtin_ctz(look_up ? attn_fours_run(g) : HR_ATTN_CHUNK);
    attn_quad w = {.heads = (int)u->group, .dim = dim, .ld = dim, .o = scratch};
    w.score = w.o + 4 * dim;
    w.weight = (uint32_t *)(void *)(w.score + 4 * HR_ATTN_CHUNK);
    w.q = (uint16_t *)(void *)(w.weight + 2 * HR_ATTN_CHUNK);
    hr_attn_piece piece = hr_attn_piece_at(a, u->from, u->to);
    attn_fours_find(look_up, a, u->kv_head, &piece, at);
    for (uint32_t run = 0, i = 0; i < piece.n; run++) {
        attn_run x = attn_run_at(false, kt == HR_BF16, dim, &at->k, run);
        for (; i < attn_run_end(&at->k, run); i += 4, attn_run_step(&x, 4)) attn_run_fetch(kt == HR_BF16, dim, &x, 4);
    }
    attn_quad_start(&w, a->q + u->kv_head * u->group * dim, a->scale);
    for (hr_attn_piece next; piece.n; piece = next) {
        attn_fours_pair *const then = at == &pairs[0] ? &pairs[1] : &pairs[0];
        if (!dense)
            attn_fours_scores_strided(kt, &w, &at->k, &at->v, vt);
        else
            attn_fours_scores_dense(kt, &w, &at->k, &at->v, vt);
        next = hr_attn_piece_at(a, piece.end, u->to);
        attn_quad_softmax(&w, piece.n, none);
        attn_fours_find(look_up, a, u->kv_head, &next, then);
        if (!dense)
            attn_fours_outputs_strided(vt, &w, &at->v, &then->k, kt);
        else
            attn_fours_outputs_dense(vt, &w, &at->v, &then->k, kt);
        at = then;
    }
    attn_quad_store(&w, a->out + u->kv_head * u->group * dim, u->partial);
}

#endif
#endif
