/* attn_tile_avx512.h - a tile of queries in bf16: lanes are the tile's rows (query x head of the group), as in
 * attn_tile.h, so that scores stand as [position][row], single pairs of K and V are broadcast, and softmax needs no
 * sum across lanes.
 *
 * Queries are scaled, rounded to bf16 and turned once a tile into [pair of elements][row]; K becomes bf16 at most one
 * tile of the cache at a time, V pairs of positions in stripes of 32 elements of a chunk (8 KB). Scores, maximum and the
 * output are f32; weights are rounded to bf16 and their sum, in f32, is that of the rounded ones, so that they add up
 * to 1. Include it from attn_bf16_avx512.c alone. */
#ifndef HR_ATTN_TILE_AVX512_H
#define HR_ATTN_TILE_AVX512_H

#include "kernels/cpu/attn_pairs_avx512.h"

#ifdef __AVX512BF16__

#define ATTN_LN2   0.693147181f
#define ATTN_LOG2E 1.44269504f

/* What a tile works on; arrays lie in the thread's scratch, in blocks of 16 lanes so that each block is contiguous. */
typedef struct attn_bf16_tile {
    const hr_attn *a;
    const hr_attn_unit *u;
    size_t dim, rows, lanes;  /* lanes: rows rounded up to 16 */
    size_t ldk, ldo;          /* dwords of a converted K row; dim rounded up to 32 */
    uint32_t *q;              /* [lanes / 16][ldk][16] pairs of elements */
    float *o;                 /* [lanes / 16][ldo][16], elements in the order of attn_place */
    float *score;             /* [lanes / 16][HR_ATTN_CHUNK][16], then weights: pairs of positions */
    float *top, *sum, *decay; /* [lanes], powers of two */
    uint32_t *k;              /* [at most HR_ATTN_CONVERT_ROWS][ldk] */
    uint32_t *v;              /* [HR_ATTN_CHUNK / 2][32] pairs of positions, the same order */
    attn_rows k_rows, v_rows;
    bool apart[HR_ATTN_CHUNK]; /* V holds no numbers here and some row may not see it */
} attn_bf16_tile;

/* A product of up to four blocks of lanes: out[block][i][lane] = sum over n dwords of broadcast(x[i * ldx + e * step])
 * . y[block][e][lane], plus what `out` held times decay[block][lane] where there is decay. */
typedef struct attn_bf16_operands {
    const uint32_t *x;
    size_t ldx, step;
    const uint32_t *y;
    size_t ldy, n; /* ldy: dwords from block to block */
    const float *decay;
    float *out;
    size_t ldo;
} attn_bf16_operands;

/* m rows i from `row` on, w blocks. */
HR_INLINE void attn_bf16_step(const int m, const int w, const attn_bf16_operands *p, size_t row) {
    const uint32_t *x = p->x + row * p->ldx, *y = p->y;
    const size_t ldx = p->ldx, step = p->step, ldy = p->ldy;
    float *out = p->out + row * 16;
    __m512 acc[16][4];
    HR_UNROLL for (int j = 0; j < w; j++) {
        _Pragma("GCC unroll 16") for (int i = 0; i < m; i++) acc[i][j] = _mm512_setzero_ps();
        if (!p->decay) continue;
        const __m512 f = _mm512_loadu_ps(p->decay + 16 * j);
        _Pragma("GCC unroll 16") for (int i = 0; i < m; i++) acc[i][j] =
            _mm512_mul_ps(_mm512_loadu_ps(out + j * p->ldo + i * 16), f);
    }
    for (size_t e = 0; e < p->n; e++, x += step, y += 16) {
        __m512i yy[4];
        HR_UNROLL for (int j = 0; j < w; j++) yy[j] = _mm512_loadu_si512(y + j * ldy);
        _Pragma("GCC unroll 16") for (int i = 0; i < m; i++) {
            const __m512i xx = attn_pair(x + i * ldx);
            HR_UNROLL for (int j = 0; j < w; j++) acc[i][j] = attn_dp(acc[i][j], xx, yy[j]);
        }
    }
    HR_UNROLL for (int j = 0; j < w; j++) _Pragma("GCC unroll 16") for (int i = 0; i < m; i++)
        _mm512_storeu_ps(out + j * p->ldo + i * 16, acc[i][j]);
}
/* Any number of rows, in pieces that fill the registers with sums: at most 24, and enough to hide the latency. */
HR_INLINE void attn_bf16_wide(const int w, const attn_bf16_operands *p, size_t rows) {
    for (size_t i = 0, m; i < rows; i += m) {
        const size_t pieces = (rows - i + 5) / 6;
        m = (rows - i + pieces - 1) / pieces;
        switch (m) {
        case 1:
            attn_bf16_step(1, w, p, i);
            break;
        case 2:
            attn_bf16_step(2, w, p, i);
            break;
        case 3:
            attn_bf16_step(3, w, p, i);
            break;
        case 4:
            attn_bf16_step(4, w, p, i);
            break;
        case 5:
            attn_bf16_step(5, w, p, i);
            break;
        default:
            attn_bf16_step(6, w, p, i);
        }
    }
}
HR_INLINE void attn_bf16_narrow(const int w, const attn_bf16_operands *p, size_t rows) {
    size_t i = 0;
    for (; i + 8 <= rows; i += 8) attn_bf16_step(8, w, p, i);
    for (; i + 2 <= rows; i += 2) attn_bf16_step(2, w, p, i);
    for (; i < rows; i++) attn_bf16_step(1, w, p, i);
}
static __attribute__((noinline)) void attn_bf16_product(attn_bf16_operands p, size_t rows, size_t blocks) {
    while (blocks) {
        const size_t w = blocks < 4 ? blocks : 4;
        if (w == 4)
            attn_bf16_wide(4, &p, rows);
        else if (w == 3)
            attn_bf16_wide(3, &p, rows);
        else if (w == 2)
            attn_bf16_narrow(2, &p, rows);
        else
            attn_bf16_narrow(1, &p, rows);
        p.y += w * p.ldy, p.out += w * p.ldo, blocks -= w;
        if (p.decay) p.decay += w * 16;
    }
}

/* Queries, times scale and log2(e), as pairs of elements with the rows side by side. */
static void attn_bf16_queries(attn_bf16_tile *w) {
    const hr_attn *a = w->a;
    const size_t group = w->u->group, dim = w->dim;
    const __m512 factor = _mm512_set1_ps(a->scale * ATTN_LOG2E);
    for (size_t r0 = 0; r0 < w->lanes; r0 += 16) {
        for (size_t d = 0; d < dim; d += 32) {
            const __mmask16 low = hr_mask16(dim - d), high = dim - d > 16 ? hr_mask16(dim - d - 16) : 0;
            __m512i x[16];
            for (size_t i = 0; i < 16; i++) {
                const size_t r = r0 + i;
                x[i] = _mm512_setzero_si512();
                if (r >= w->rows) continue;
                const float *q = a->q + (w->u->q0 + r / group) * a->ldq + (w->u->kv_head * group + r % group) * dim + d;
                const __m512 q0 = _mm512_maskz_loadu_ps(low, q), q1 = _mm512_maskz_loadu_ps(high, q + 16);
                x[i] = attn_bf16(_mm512_mul_ps(q0, factor), _mm512_mul_ps(q1, factor));
            }
            hr_transpose_16x16(x);
            for (size_t i = 0; i < 16; i++) _mm512_storeu_si512(w->q + r0 * w->ldk + (d / 2 + i) * 16, x[i]);
        }
    }
}

#define ATTN_BF16_TYPES(t, call) \
    switch (t) {                 \
    case HR_BF16:                \
        call(HR_BF16);           \
        break;                   \
    case HR_F16:                 \
        call(HR_F16);            \
        break;                   \
    case HR_Q8_0:                \
        call(HR_Q8_0);           \
        break;                   \
    case HR_I8ROW:               \
        call(HR_I8ROW);          \
        break;                   \
    default:                     \
        call(HR_Q4_0);           \
    }

/* Asks for the lines of a row, ahead of its use. */
HR_INLINE void attn_fetch(const uint8_t *row, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)row + i, _MM_HINT_T0);
}
/* Whether every row of the tile sees position p. */
static inline bool attn_bf16_all_see(const attn_bf16_tile *w, uint32_t p) {
    const uint32_t at = w->a->pos0 + w->u->q0;
    return p <= at && (!w->a->window || p + w->a->window >= at + w->u->n_q);
}

/* K rows i..i + m - 1 of the chunk as bf16: where they lie, when they lie close together, else in the scratch. */
static const uint32_t *attn_bf16_keys(const attn_bf16_tile *w, uint32_t i, uint32_t m, size_t *ldk) {
    const attn_rows *f = &w->k_rows;
    const hr_dtype t = w->a->kv->g->type[0];
    if (t == HR_BF16 && w->dim % 2 == 0) {
        size_t apart = 0;
        for (uint32_t j = 1; j < m; j++) apart |= (uintptr_t)f->row[i + j] - (uintptr_t)f->row[i + j - 1] - 2 * w->dim;
        *ldk = w->dim / 2;
        if (!apart) return (const uint32_t *)(const void *)f->row[i];
    }
    *ldk = w->ldk;
#define ATTN_CONVERT(t)                                                                                          \
    for (uint32_t j = 0; j < m; j++)                                                                             \
        for (size_t d = 0; d < w->dim; d += 32)                                                                  \
    _mm512_storeu_si512(w->k + j * w->ldk + d / 2, attn_load32(t == HR_I4KC && i + j >= f->closed ? HR_BF16 : t, \
                                                               f->row[i + j], f->scale[i + j], d, w->dim))
    if (t == HR_I4KC) {
        ATTN_CONVERT(HR_I4KC);
    } else {
        ATTN_BF16_TYPES(t, ATTN_CONVERT)
    }
    return w->k;
}

/* Scores of a piece, what a row does not see at -infinity. V of the same positions is on its way. */
static void attn_bf16_scores(attn_bf16_tile *w, const hr_attn_piece *piece) {
    const hr_kv_geom *g = w->a->kv->g;
    const uint32_t n = piece->n, most = g->block < HR_ATTN_CONVERT_ROWS ? g->block : HR_ATTN_CONVERT_ROWS;
    for (uint32_t i = 0, m; i < n; i += m) {
        m = n - i < most ? n - i : most;
        for (uint32_t j = i; j < i + m; j++) attn_fetch(w->v_rows.row[j], g->row_bytes[HR_KV_V]);
        size_t ldk;
        const uint32_t *k = attn_bf16_keys(w, i, m, &ldk);
        attn_bf16_product((attn_bf16_operands){.x = k,
                                               .ldx = ldk,
                                               .step = 1,
                                               .y = w->q,
                                               .ldy = w->ldk * 16,
                                               .n = (w->dim + 1) / 2,
                                               .out = w->score + i * 16,
                                               .ldo = HR_ATTN_CHUNK * 16},
                          m, w->lanes / 16);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t p = hr_attn_at(piece, i);
        if (attn_bf16_all_see(w, p)) continue;
        int from, to;
        hr_attn_seen_by(w->a, w->u, p, &from, &to);
        for (size_t x = 0; x < w->lanes; x += 16) {
            float *at = w->score + x * HR_ATTN_CHUNK + i * 16;
            v_store(at, v_pick_lanes(from - (int)x, to - (int)x, v_load(at), v_set(-INFINITY)));
        }
    }
}

/* Scores of n positions become weights, in pairs of positions, down each lane. Pair i lies where score i lay, which is
 * read before it is written. */
static void attn_bf16_softmax(attn_bf16_tile *w, uint32_t n) {
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    for (size_t x = 0; x < w->lanes; x += 16) {
        float *s = w->score + x * HR_ATTN_CHUNK;
        const v_f old = v_load(w->top + x);
        v_f max = old, max2 = old;
        if (n % 2) v_store(s + n * 16, v_set(-INFINITY));
        for (size_t i = 0; i < n; i += 2) {
            max = v_max(max, v_load(s + i * 16));
            max2 = v_max(max2, v_load(s + (i + 1) * 16));
        }
        max = v_max(max, max2);
        const v_f base = v_finite_or_zero(max);
        v_f total = v_set(0);
        for (size_t i = 0; i < n; i += 2) {
            const v_f e0 = attn_exp2(v_sub(v_load(s + i * 16), base));
            const v_f e1 = attn_exp2(v_sub(v_load(s + (i + 1) * 16), base));
            const __m512i pair = attn_zip(e0, e1);
            _mm512_storeu_si512(s + i / 2 * 16, pair);
            total = attn_dp(total, pair, ones);
        }
        const v_f d = attn_exp2(v_sub(old, base));
        v_store(w->top + x, max), v_store(w->decay + x, d);
        v_store(w->sum + x, v_fma(v_load(w->sum + x), d, total));
    }
}

HR_INLINE bool attn_row_is_finite(hr_dtype t, const uint8_t *row, const uint16_t *scale, size_t dim) {
    v_f s = v_set(0);
    for (size_t d = 0; d < dim; d += 16) s = v_fma(attn_load16(t, row, scale, d, dim), v_set(0), s);
    return v_sum(s) == 0;
}
/* Marks positions whose values are not finite where some row of the tile does not see them: a weight that masking made
 * 0 still meets its value in a product, so these go by selection. Returns whether there are any. */
static bool attn_bf16_find_apart(attn_bf16_tile *w, hr_dtype t, const hr_attn_piece *piece) {
    bool any = false;
    for (uint32_t i = 0; i < piece->n; i++) {
        w->apart[i] = false;
        if (attn_bf16_all_see(w, hr_attn_at(piece, i))) continue;
#define ATTN_FINITE(t) w->apart[i] = !attn_row_is_finite(t, w->v_rows.row[i], w->v_rows.scale[i], w->dim)
        ATTN_BF16_TYPES(t, ATTN_FINITE)
        any = any || w->apart[i];
    }
    return any;
}
HR_INLINE void attn_bf16_add_apart(attn_bf16_tile *w, hr_dtype t, const hr_attn_piece *piece, uint32_t i) {
    int from, to;
    hr_attn_seen_by(w->a, w->u, hr_attn_at(piece, i), &from, &to);
    for (size_t d = 0; d < w->dim; d += 16) {
        float value[16];
        v_store(value, attn_load16(t, w->v_rows.row[i], w->v_rows.scale[i], d, w->dim));
        for (size_t x = 0; x < w->lanes; x += 16) {
            const __m512i pair = _mm512_loadu_si512(w->score + x * HR_ATTN_CHUNK + i / 2 * 16);
            const __m512i bits =
                i % 2 ? _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000u)) : _mm512_slli_epi32(pair, 16);
            for (size_t j = 0; j < 16; j++) {
                float *at = w->o + x * w->ldo + attn_place(d + j) * 16;
                const v_f before = v_load(at), sum = v_fma(v_set(value[j]), _mm512_castsi512_ps(bits), before);
                v_store(at, v_pick_lanes(from - (int)x, to - (int)x, sum, before));
            }
        }
    }
}

/* 32 elements of n positions as pairs of positions; those apart, and the one past an odd n, as zeros. */
HR_INLINE void attn_bf16_stripe(attn_bf16_tile *w, hr_dtype t, uint32_t n, size_t d, bool any_apart) {
    const attn_rows *f = &w->v_rows;
    for (uint32_t i = 0; i < n; i += 2) {
        const uint32_t j = i + 1;
        __m512i a = attn_load32(t, f->row[i], f->scale[i], d, w->dim), b = _mm512_setzero_si512();
        if (j < n && !(any_apart && w->apart[j])) b = attn_load32(t, f->row[j], f->scale[j], d, w->dim);
        if (any_apart && w->apart[i]) a = _mm512_setzero_si512();
        _mm512_storeu_si512(w->v + i * 16, _mm512_unpacklo_epi16(a, b));
        _mm512_storeu_si512(w->v + i * 16 + 16, _mm512_unpackhi_epi16(a, b));
    }
}

/* o = o * decay + weights . V of a piece. */
static void attn_bf16_outputs(attn_bf16_tile *w, const hr_attn_piece *piece) {
    const hr_dtype t = attn_v_type(w->a->kv->g);
    const uint32_t n = piece->n;
    const bool any = attn_bf16_find_apart(w, t, piece);
    for (size_t d = 0; d < w->dim; d += 32) {
#define ATTN_STRIPE(t) attn_bf16_stripe(w, t, n, d, any)
        ATTN_BF16_TYPES(t, ATTN_STRIPE)
        attn_bf16_product((attn_bf16_operands){.x = w->v,
                                               .ldx = 1,
                                               .step = 32,
                                               .y = (const uint32_t *)(const void *)w->score,
                                               .ldy = HR_ATTN_CHUNK * 16,
                                               .n = (n + 1) / 2,
                                               .decay = w->decay,
                                               .out = w->o + d * 16,
                                               .ldo = w->ldo * 16},
                          32, w->lanes / 16);
    }
    for (uint32_t i = 0; any && i < n; i++) {
        if (!w->apart[i]) continue;
#define ATTN_APART(t) attn_bf16_add_apart(w, t, piece, i)
        ATTN_BF16_TYPES(t, ATTN_APART)
    }
}

/* The rows of the output, over the sum or, for a part of the positions, as they are. */
static void attn_bf16_store(const attn_bf16_tile *w) {
    const hr_attn *a = w->a;
    const hr_attn_unit *u = w->u;
    const size_t group = u->group, dim = w->dim;
    for (size_t r0 = 0; r0 < w->rows; r0 += 16) {
        const size_t n = w->rows - r0 < 16 ? w->rows - r0 : 16;
        const v_f factor = u->partial ? v_set(1) : v_div(v_set(1), v_load(w->sum + r0));
        for (size_t d = 0; d < dim; d += 16) {
            __m512i x[16];
            for (size_t i = 0; i < 16; i++)
                x[i] = _mm512_castps_si512(v_mul(v_load(w->o + r0 * w->ldo + attn_place(d + i) * 16), factor));
            hr_transpose_16x16(x);
            for (size_t i = 0; i < n; i++) {
                const size_t r = r0 + i;
                float *to = u->partial ? u->partial + r * (2 + dim) + 2
                                       : a->out + (u->q0 + r / group) * a->ldo + (u->kv_head * group + r % group) * dim;
                _mm512_mask_storeu_ps(to + d, hr_mask16(dim - d), _mm512_castsi512_ps(x[i]));
            }
        }
        for (size_t i = 0; u->partial && i < n; i++) {
            float *part = u->partial + (r0 + i) * (2 + dim);
            part[0] = w->top[r0 + i] * ATTN_LN2, part[1] = w->sum[r0 + i];
        }
    }
}

static void attn_bf16_tile_unit(const hr_attn *a, const hr_attn_unit *u, void *scratch) {
    attn_bf16_tile w;
    w.a = a, w.u = u, w.dim = a->head_dim, w.rows = u->n_q * u->group;
    const size_t lanes = w.lanes = hr_attn_lanes(w.rows);
    w.ldo = (w.dim + 31) / 32 * 32, w.ldk = w.ldo / 2;
    w.q = scratch, w.o = (float *)(void *)(w.q + w.ldk * lanes), w.score = w.o + w.ldo * lanes;
    w.top = w.score + HR_ATTN_CHUNK * lanes, w.sum = w.top + lanes, w.decay = w.sum + lanes;
    w.k = (uint32_t *)(void *)(w.decay + lanes), w.v = w.k + HR_ATTN_CONVERT_ROWS * w.ldk;
    memset(w.o, 0, w.ldo * lanes * sizeof *w.o);
    for (size_t x = 0; x < lanes; x++) w.top[x] = -INFINITY, w.sum[x] = 0;
    hr_attn_piece piece = hr_attn_piece_at(a, u->from, u->to);
    if (piece.n) attn_find_rows(a, u->kv_head, HR_KV_K, &piece, &w.k_rows);
    attn_bf16_queries(&w);
    for (hr_attn_piece next; piece.n; piece = next) {
        attn_find_rows(a, u->kv_head, HR_KV_V, &piece, &w.v_rows);
        attn_bf16_scores(&w, &piece);
        next = hr_attn_piece_at(a, piece.end, u->to);
        if (next.n) attn_find_rows(a, u->kv_head, HR_KV_K, &next, &w.k_rows);
        for (uint32_t i = 0; i < next.n; i++) attn_fetch(w.k_rows.row[i], a->kv->g->row_bytes[HR_KV_K]);
        attn_bf16_softmax(&w, piece.n);
        attn_bf16_outputs(&w, &piece);
    }
    attn_bf16_store(&w);
}

#endif
#endif
