/* attn_rows.h - decode: one query, few heads in the group. Lanes are elements of a row; each K and V row is read once
 * for the heads of the group, up to four at a time. While K of a chunk is read V of it is fetched, and then K of the next
 * one, at whatever places they lie. Included by attn_body.h alone. */
#ifndef HR_ATTN_ROWS_H
#define HR_ATTN_ROWS_H

#include "kernels/cpu/attn_load.h"

enum {
    HR_ATTN_ROWS_GROUP = 8,  /* above this the lanes of attn_tile.h are full enough */
    HR_ATTN_ROWS_ABREAST = 4 /* K rows taken together: as many sums as v_sum4 gives */
};

/* score[g][first..n-1] = q[g] . K row; n - first rounded up to 4 (the rows are padded). q is [heads][ld], zero beyond dim. */
HR_INLINE void attn_rows_qk(hr_dtype t, const int heads, const attn_rows *k, uint32_t first, uint32_t n, const float *q,
                            size_t ld, size_t dim, float *score, size_t ld_score, attn_ahead next) {
    for (uint32_t i = first; i < n; i += HR_ATTN_ROWS_ABREAST) {
        attn_fetch_some(&next, i, HR_ATTN_ROWS_ABREAST);
        const uint8_t *const *row = k->row + i;
        const uint16_t *const *scale = k->scale + i;
        v_f acc[4][HR_ATTN_ROWS_ABREAST];
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = v_set(0);
        size_t d = 0;
        for (; d + V_N <= dim; d += V_N) {
            v_f kk[HR_ATTN_ROWS_ABREAST];
            HR_UNROLL for (int j = 0; j < 4; j++) kk[j] = attn_load(t, row[j], scale[j], d);
            HR_UNROLL for (int g = 0; g < heads; g++) {
                const v_f qq = v_load(q + g * ld + d);
                HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = v_fma(qq, kk[j], acc[g][j]);
            }
        }
        if (d < dim) { /* unrolled as well, so that the sums stay in registers */
            v_f kk[HR_ATTN_ROWS_ABREAST];
            HR_UNROLL for (int j = 0; j < 4; j++) kk[j] = attn_load_rest(t, row[j], d, dim);
            HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] =
                v_fma(v_load(q + g * ld + d), kk[j], acc[g][j]);
        }
        HR_UNROLL for (int g = 0; g < heads; g++)
            v_sum4(acc[g][0], acc[g][1], acc[g][2], acc[g][3], score + g * ld_score + i);
    }
}

/* o[g][d] += sum over positions of p[g][i] V[i][d], in order of position. */
HR_INLINE void attn_rows_pv(hr_dtype t, const int heads, const attn_rows *v, uint32_t n, const float *p, size_t ld_p,
                            float *o, size_t ld, size_t dim, attn_ahead next) {
    enum { WIDE = V_N == 16 ? 4 : 2 };
    /* each stripe of elements fetches its part of the rows */
    const size_t stripes = dim / (WIDE * V_N) ? dim / (WIDE * V_N) : 1, all = next.end;
    const size_t part = (all + 64 * stripes - 1) / (64 * stripes) * 64;
    size_t d = 0;
    for (; d + WIDE * V_N <= dim; d += WIDE * V_N, next.at += part, next.scales = false) {
        next.end = next.at + part < all ? next.at + part : all;
        v_f acc[4][WIDE];
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < WIDE; j++) acc[g][j] =
            v_load(o + g * ld + d + j * V_N);
        for (uint32_t i = 0; i < n; i++) {
            attn_fetch_some(&next, i, 1);
            v_f vv[WIDE];
            HR_UNROLL for (int j = 0; j < WIDE; j++) vv[j] = attn_load(t, v->row[i], v->scale[i], d + j * V_N);
            HR_UNROLL for (int g = 0; g < heads; g++) {
                const v_f pp = v_set(p[g * ld_p + i]);
                HR_UNROLL for (int j = 0; j < WIDE; j++) acc[g][j] = v_fma(pp, vv[j], acc[g][j]);
            }
        }
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < WIDE; j++)
            v_store(o + g * ld + d + j * V_N, acc[g][j]);
    }
    for (; d < dim; d += V_N) {
        v_f acc[4];
        HR_UNROLL for (int g = 0; g < heads; g++) acc[g] = v_load(o + g * ld + d);
        for (uint32_t i = 0; i < n; i++) {
            const v_f vv =
                d + V_N <= dim ? attn_load(t, v->row[i], v->scale[i], d) : attn_load_rest(t, v->row[i], d, dim);
            HR_UNROLL for (int g = 0; g < heads; g++) acc[g] = v_fma(v_set(p[g * ld_p + i]), vv, acc[g]);
        }
        HR_UNROLL for (int g = 0; g < heads; g++) v_store(o + g * ld + d, acc[g]);
    }
}

/* The bodies above for each type and number of heads. */
#define HR_ATTN_HEADS(fn, t, ...) \
    switch (heads) {              \
    case 1:                       \
        fn(t, 1, __VA_ARGS__);    \
        return;                   \
    case 2:                       \
        fn(t, 2, __VA_ARGS__);    \
        return;                   \
    case 3:                       \
        fn(t, 3, __VA_ARGS__);    \
        return;                   \
    default:                      \
        fn(t, 4, __VA_ARGS__);    \
        return;                   \
    }
#define HR_ATTN_TYPES(fn, ...)                   \
    switch (t) {                                 \
    case HR_F32:                                 \
        HR_ATTN_HEADS(fn, HR_F32, __VA_ARGS__)   \
    case HR_BF16:                                \
        HR_ATTN_HEADS(fn, HR_BF16, __VA_ARGS__)  \
    case HR_F16:                                 \
        HR_ATTN_HEADS(fn, HR_F16, __VA_ARGS__)   \
    case HR_Q8_0:                                \
        HR_ATTN_HEADS(fn, HR_Q8_0, __VA_ARGS__)  \
    case HR_I8ROW:                               \
        HR_ATTN_HEADS(fn, HR_I8ROW, __VA_ARGS__) \
    default:                                     \
        HR_ATTN_HEADS(fn, HR_Q4_0, __VA_ARGS__)  \
    }
static void attn_rows_qk_groups(int heads, const attn_rows *k, uint32_t n, const float *q, size_t ld, size_t dim,
                                float *score, size_t ld_score, attn_ahead next) {
    HR_ATTN_HEADS(attn_rows_qk, HR_I4KC, k, 0, n, q, ld, dim, score, ld_score, next)
}
static void attn_rows_qk_any(hr_dtype t, int heads, const attn_rows *k, uint32_t first, uint32_t n, const float *q,
                             size_t ld, size_t dim, float *score, size_t ld_score, attn_ahead next) {
    HR_ATTN_TYPES(attn_rows_qk, k, first, n, q, ld, dim, score, ld_score, next)
}
static void attn_rows_pv_any(hr_dtype t, int heads, const attn_rows *v, uint32_t n, const float *p, size_t ld_p,
                             float *o, size_t ld, size_t dim, attn_ahead next) {
    HR_ATTN_TYPES(attn_rows_pv, v, n, p, ld_p, o, ld, dim, next)
}

/* Scores of one head and chunk become weights; *top and *sum go on, *decay is what earlier output is multiplied by. */
static inline void attn_rows_softmax(float *score, size_t n, float *top, float *sum, float *decay) {
    size_t i = n;
    for (; i % 16; i++) score[i] = -INFINITY;
    const size_t padded = i;
    v_f max = v_set(*top);
    for (i = 0; i < padded; i += V_N) max = v_max(max, v_load(score + i));
    const float new_top = v_top(max), base = new_top == -INFINITY ? 0 : new_top;
    v_f s = v_set(0);
    for (i = 0; i < padded; i += V_N) {
        const v_f e = v_exp(v_sub(v_load(score + i), v_set(base)));
        v_store(score + i, e);
        s = v_add(s, e);
    }
    float one[V_N];
    v_store(one, v_exp(v_set(*top - base)));
    *decay = one[0];
    *sum = *sum * *decay + v_sum(s);
    *top = new_top;
}

/* What a unit carries from chunk to chunk; score is [group][ld_score]. */
typedef struct attn_decode {
    const hr_attn *a;
    const hr_attn_unit *u;
    size_t dim, ld, ld_score;
    float *q, *o, *score;
    float top[HR_ATTN_ROWS_GROUP], sum[HR_ATTN_ROWS_GROUP];
} attn_decode;

/* Scores of n positions into columns `at` on; then the rest of the group. */
static void attn_decode_qk(const attn_decode *w, const attn_rows *k, uint32_t n, uint32_t at, attn_ahead next) {
    const hr_dtype t = w->a->kv->g->type[0];
    for (size_t g = 0, left; (left = w->u->group - g); g += left, next.n = 0) {
        left = left < 4 ? left : 4;
        const float *q = w->q + g * w->ld;
        float *score = w->score + g * w->ld_score + at;
        if (t == HR_I4KC && k->closed)
            attn_rows_qk_groups((int)left, k, k->closed, q, w->ld, w->dim, score, w->ld_score, next);
        const uint32_t first = t == HR_I4KC ? k->closed : 0;
        if (first < n)
            attn_rows_qk_any(t == HR_I4KC ? HR_BF16 : t, (int)left, k, first, n, q, w->ld, w->dim, score, w->ld_score,
                             next);
    }
}
static void attn_decode_pv(const attn_decode *w, const attn_rows *v, uint32_t n, uint32_t at, attn_ahead next) {
    for (size_t g = 0, left; (left = w->u->group - g); g += left, next.n = 0) {
        left = left < 4 ? left : 4;
        attn_rows_pv_any(attn_v_type(w->a->kv->g), (int)left, v, n, w->score + g * w->ld_score + at, w->ld_score,
                         w->o + g * w->ld, w->ld, w->dim, next);
    }
}
static void attn_decode_softmax(attn_decode *w, uint32_t n) {
    for (size_t g = 0; g < w->u->group; g++) {
        float decay, *o = w->o + g * w->ld;
        attn_rows_softmax(w->score + g * w->ld_score, n, &w->top[g], &w->sum[g], &decay);
        for (size_t d = 0; d < w->ld; d += V_N) v_store(o + d, v_mul(v_load(o + d), v_set(decay)));
    }
}
/* Softmax chunk by chunk. */
static void attn_decode_flash(attn_decode *w) {
    const hr_attn_unit *u = w->u;
    const hr_kv_geom *g = w->a->kv->g;
    attn_rows k, v;
    attn_ahead next_k = {.rows = &k, .end = g->row_bytes[HR_KV_K], .scales = g->row_bytes[HR_KV_KS]};
    attn_ahead next_v = {.rows = &v, .end = g->row_bytes[HR_KV_V], .scales = g->row_bytes[HR_KV_VS]};
    hr_attn_piece piece = hr_attn_piece_at(w->a, u->from, u->to);
    if (piece.n) attn_find_rows(w->a, u->kv_head, HR_KV_K, &piece, &k);
    next_k.n = piece.n;
    for (uint32_t i = 0; i < next_k.n; i++) attn_fetch_some(&next_k, i, 1);
    for (hr_attn_piece next; piece.n; piece = next) {
        next = hr_attn_piece_at(w->a, piece.end, u->to);
        attn_find_rows(w->a, u->kv_head, HR_KV_V, &piece, &v);
        next_v.n = piece.n, next_k.n = next.n;
        attn_decode_qk(w, &k, piece.n, 0, next_v);
        attn_decode_softmax(w, piece.n);
        if (next.n) attn_find_rows(w->a, u->kv_head, HR_KV_K, &next, &k);
        attn_decode_pv(w, &v, piece.n, 0, next_k);
    }
}
/* All scores first. */
static void attn_decode_naive(attn_decode *w) {
    const hr_attn_unit *u = w->u;
    const attn_ahead none = {0};
    attn_rows rows;
    const hr_attn_piece first = hr_attn_piece_at(w->a, u->from, u->to);
    uint32_t n = 0; /* scores so far */
    for (hr_attn_piece p = first; p.n; n += p.n, p = hr_attn_piece_at(w->a, p.end, u->to)) {
        attn_find_rows(w->a, u->kv_head, HR_KV_K, &p, &rows);
        attn_decode_qk(w, &rows, p.n, n, none);
    }
    attn_decode_softmax(w, n);
    n = 0;
    for (hr_attn_piece p = first; p.n; n += p.n, p = hr_attn_piece_at(w->a, p.end, u->to)) {
        attn_find_rows(w->a, u->kv_head, HR_KV_V, &p, &rows);
        attn_decode_pv(w, &rows, p.n, n, none);
    }
}

static void attn_rows_unit(const hr_attn *a, const hr_attn_unit *u, float *scratch, bool flash) {
    const size_t dim = a->head_dim, ld = hr_attn_lanes(dim), group = u->group;
    const size_t whole = hr_attn_lanes(u->to - u->from) + HR_ATTN_CHUNK; /* pieces are written in fours */
    attn_decode w = {.a = a, .u = u, .dim = dim, .ld = ld, .ld_score = flash ? HR_ATTN_CHUNK : whole};
    w.q = scratch, w.o = w.q + group * ld, w.score = w.o + group * ld;
    for (size_t g = 0; g < group; g++) {
        const float *from = a->q + (u->kv_head * group + g) * dim;
        for (size_t d = 0; d < ld; d++) w.q[g * ld + d] = d < dim ? from[d] * a->scale : 0, w.o[g * ld + d] = 0;
        w.top[g] = -INFINITY, w.sum[g] = 0;
    }
    if (flash)
        attn_decode_flash(&w);
    else
        attn_decode_naive(&w);
    for (size_t g = 0; g < group; g++) {
        const float *o = w.o + g * ld;
        if (u->partial) {
            float *part = u->partial + g * (2 + dim);
            part[0] = w.top[g], part[1] = w.sum[g];
            memcpy(part + 2, o, dim * sizeof *part);
        } else {
            float *out = a->out + (u->kv_head * group + g) * dim;
            for (size_t d = 0; d < dim; d++) out[d] = o[d] / w.sum[g];
        }
    }
}

#endif
