/* attn_tile.h - a tile of queries: lanes are the tile's rows (query x head of the group), so that scores stand as
 * [position][row] and both matrix products broadcast single elements of K and V in place: nothing is transposed but
 * the queries and the output, softmax needs no sum across lanes. Included by attn_body.h alone.
 *
 * K and V rows of other types than f32 become f32 at most HR_ATTN_CONVERT_ROWS and one tile at a time. */
#ifndef HR_ATTN_TILE_H
#define HR_ATTN_TILE_H

#include "kernels/cpu/attn_load.h"

enum {
    HR_ATTN_ABREAST = 6,             /* positions (scores) or elements (output) per step: 6 x 4 sums in registers */
    HR_ATTN_WIDE = V_N == 16 ? 4 : 2 /* vectors of lanes per step; 16 registers hold 6 x 2 */
};

/* Rows of one piece as f32 (i4kc: of K; V has the type q4_0): in place, or converted into `to`. */
HR_INLINE void attn_convert_row(hr_dtype t, const uint8_t *row, const uint16_t *scale, size_t dim, float *to) {
    size_t d = 0;
    for (; d + V_N <= dim; d += V_N) v_store(to + d, attn_load(t, row, scale, d));
    for (; d < dim; d++) to[d] = attn_load_one(t, row, d);
}
static void attn_convert_rows(hr_dtype t, const attn_rows *r, uint32_t from, uint32_t n, size_t dim, float *scratch,
                              const float **out) {
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *row = r->row[from + i];
        const uint16_t *scale = r->scale[from + i];
        float *to = scratch + i * dim;
        out[i] = to;
        switch (t == HR_I4KC && from + i >= r->closed ? HR_BF16 : t) {
        case HR_F32:
            out[i] = (const float *)(const void *)row;
            break;
        case HR_BF16:
            attn_convert_row(HR_BF16, row, scale, dim, to);
            break;
        case HR_F16:
            attn_convert_row(HR_F16, row, scale, dim, to);
            break;
        case HR_Q8_0:
            attn_convert_row(HR_Q8_0, row, scale, dim, to);
            break;
        case HR_I8ROW:
            attn_convert_row(HR_I8ROW, row, scale, dim, to);
            break;
        case HR_I4KC:
            attn_convert_row(HR_I4KC, row, scale, dim, to);
            break;
        default:
            attn_convert_row(HR_Q4_0, row, scale, dim, to);
        }
    }
}

/* s[i][lane] = K[i] . q[.][lane] for m positions and w vectors of lanes. */
HR_INLINE void attn_qk_step(const int m, const int w, const float *const *k, const float *q, size_t lanes, size_t dim,
                            float *s) {
    v_f acc[HR_ATTN_ABREAST][HR_ATTN_WIDE];
    HR_UNROLL for (int i = 0; i < m; i++) HR_UNROLL for (int j = 0; j < w; j++) acc[i][j] = v_set(0);
    for (size_t d = 0; d < dim; d++) {
        v_f qq[HR_ATTN_WIDE];
        HR_UNROLL for (int j = 0; j < w; j++) qq[j] = v_load(q + d * lanes + j * V_N);
        HR_UNROLL for (int i = 0; i < m; i++) {
            const v_f kk = v_set(k[i][d]);
            HR_UNROLL for (int j = 0; j < w; j++) acc[i][j] = v_fma(kk, qq[j], acc[i][j]);
        }
    }
    HR_UNROLL for (int i = 0; i < m; i++) HR_UNROLL for (int j = 0; j < w; j++)
        v_store(s + i * lanes + j * V_N, acc[i][j]);
}
HR_INLINE void attn_qk_lanes(const int w, const float *const *k, uint32_t n, const float *q, size_t lanes, size_t dim,
                             float *s) {
    uint32_t i = 0;
    for (; i + 6 <= n; i += 6) attn_qk_step(6, w, k + i, q, lanes, dim, s + i * lanes);
    for (; i + 2 <= n; i += 2) attn_qk_step(2, w, k + i, q, lanes, dim, s + i * lanes);
    for (; i < n; i++) attn_qk_step(1, w, k + i, q, lanes, dim, s + i * lanes);
}

/* o[d][lane] += sum over i of p[i][lane] V[i][d] for m elements d and w vectors of lanes, in order of position. */
HR_INLINE void attn_pv_step(const int m, const int w, const float *const *v, uint32_t n, size_t d, const float *p,
                            size_t lanes, float *o) {
    v_f acc[HR_ATTN_ABREAST][HR_ATTN_WIDE];
    HR_UNROLL for (int i = 0; i < m; i++) HR_UNROLL for (int j = 0; j < w; j++) acc[i][j] =
        v_load(o + (d + i) * lanes + j * V_N);
    for (uint32_t r = 0; r < n; r++) {
        v_f pp[HR_ATTN_WIDE];
        HR_UNROLL for (int j = 0; j < w; j++) pp[j] = v_load(p + r * lanes + j * V_N);
        const float *row = v[r] + d;
        HR_UNROLL for (int i = 0; i < m; i++) {
            const v_f vv = v_set(row[i]);
            HR_UNROLL for (int j = 0; j < w; j++) acc[i][j] = v_fma(vv, pp[j], acc[i][j]);
        }
    }
    HR_UNROLL for (int i = 0; i < m; i++) HR_UNROLL for (int j = 0; j < w; j++)
        v_store(o + (d + i) * lanes + j * V_N, acc[i][j]);
}
HR_INLINE void attn_pv_lanes(const int w, const float *const *v, uint32_t n, size_t dim, const float *p, size_t lanes,
                             float *o) {
    size_t d = 0;
    for (; d + 6 <= dim; d += 6) attn_pv_step(6, w, v, n, d, p, lanes, o);
    if (d + 4 <= dim) attn_pv_step(4, w, v, n, d, p, lanes, o), d += 4;
    for (; d < dim; d++) attn_pv_step(1, w, v, n, d, p, lanes, o);
}

static void attn_qk(const float *const *k, uint32_t n, const float *q, size_t lanes, size_t dim, float *s) {
    for (size_t x = 0; x < lanes;) {
        const size_t left = (lanes - x) / V_N;
        if (left >= HR_ATTN_WIDE)
            attn_qk_lanes(HR_ATTN_WIDE, k, n, q + x, lanes, dim, s + x), x += HR_ATTN_WIDE * V_N;
        else if (left == 3)
            attn_qk_lanes(HR_ATTN_WIDE < 3 ? HR_ATTN_WIDE : 3, k, n, q + x, lanes, dim, s + x), x += 3 * V_N;
        else if (left == 2)
            attn_qk_lanes(2, k, n, q + x, lanes, dim, s + x), x += 2 * V_N;
        else
            attn_qk_lanes(1, k, n, q + x, lanes, dim, s + x), x += V_N;
    }
}
static void attn_pv(const float *const *v, uint32_t n, size_t dim, const float *p, size_t lanes, float *o) {
    for (size_t x = 0; x < lanes;) {
        const size_t left = (lanes - x) / V_N;
        if (left >= HR_ATTN_WIDE)
            attn_pv_lanes(HR_ATTN_WIDE, v, n, dim, p + x, lanes, o + x), x += HR_ATTN_WIDE * V_N;
        else if (left == 3)
            attn_pv_lanes(HR_ATTN_WIDE < 3 ? HR_ATTN_WIDE : 3, v, n, dim, p + x, lanes, o + x), x += 3 * V_N;
        else if (left == 2)
            attn_pv_lanes(2, v, n, dim, p + x, lanes, o + x), x += 2 * V_N;
        else
            attn_pv_lanes(1, v, n, dim, p + x, lanes, o + x), x += V_N;
    }
}
/* The same for one position that only lanes from..to-1 see. */
static void attn_pv_masked(const float *v, size_t dim, const float *p, size_t lanes, int from, int to, float *o) {
    for (size_t x = 0; x < lanes; x += V_N) {
        for (size_t d = 0; d < dim; d++) {
            float *at = o + d * lanes + x;
            const v_f old = v_load(at);
            v_store(at, v_pick_lanes(from - (int)x, to - (int)x, v_fma(v_set(v[d]), v_load(p + x), old), old));
        }
    }
}
HR_INLINE bool attn_is_finite(const float *v, size_t dim) {
    v_f s = v_set(0);
    size_t d = 0;
    for (; d + V_N <= dim; d += V_N) s = v_fma(v_load(v + d), v_set(0), s);
    float rest = 0;
    for (; d < dim; d++) rest += v[d] * 0;
    return v_sum(s) + rest == 0;
}

/* Output of m rows of a piece from row r on. A weight that masking made 0 still meets its value in a product, so a position that
 * some lanes do not see and that holds a value without end or no number goes by selection. */
static void attn_weigh(const hr_attn *a, const hr_attn_unit *u, const float *const *v, const hr_attn_piece *piece,
                       uint32_t r, uint32_t m, const float *weights, size_t lanes, float *o) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < m; i++) {
        int from, to;
        hr_attn_seen_by(a, u, hr_attn_at(piece, r + i), &from, &to);
        if ((from == 0 && to == (int)(u->n_q * u->group)) || attn_is_finite(v[i], a->head_dim)) continue;
        if (i > done) attn_pv(v + done, i - done, a->head_dim, weights + done * lanes, lanes, o);
        attn_pv_masked(v[i], a->head_dim, weights + i * lanes, lanes, from, to, o);
        done = i + 1;
    }
    if (m > done) attn_pv(v + done, m - done, a->head_dim, weights + done * lanes, lanes, o);
}

/* Softmax of n positions down each lane; *top and *sum go on, decay is what earlier output is multiplied by. */
static void attn_tile_softmax(float *s, size_t n, size_t lanes, float *top, float *sum, float *decay) {
    for (size_t x = 0; x < lanes; x += V_N) {
        const v_f old = v_load(top + x);
        v_f max = old, max2 = old;
        size_t i = 0;
        for (; i + 2 <= n; i += 2) {
            max = v_max(max, v_load(s + i * lanes + x));
            max2 = v_max(max2, v_load(s + (i + 1) * lanes + x));
        }
        if (i < n) max = v_max(max, v_load(s + i * lanes + x));
        max = v_max(max, max2);
        const v_f base = v_finite_or_zero(max);
        v_f total = v_set(0);
        for (i = 0; i < n; i++) {
            const v_f e = v_exp(v_sub(v_load(s + i * lanes + x), base));
            v_store(s + i * lanes + x, e);
            total = v_add(total, e);
        }
        const v_f d = v_exp(v_sub(old, base));
        v_store(top + x, max), v_store(decay + x, d);
        v_store(sum + x, v_fma(v_load(sum + x), d, total));
    }
}

/* to[c][r] = from[r][c] * factor for `rows` row addresses, four by four. */
typedef float attn_f4 __attribute__((vector_size(16)));
static void attn_turn(const float *const *from, size_t rows, size_t cols, float factor, float *to, size_t ld) {
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        size_t c = 0;
        for (; c + 4 <= cols; c += 4) {
            attn_f4 x[4], y[4];
            HR_UNROLL for (int i = 0; i < 4; i++) memcpy(&x[i], from[r + i] + c, sizeof x[i]), x[i] *= factor;
            y[0] = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5),
            y[1] = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
            y[2] = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7),
            y[3] = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
            x[0] = __builtin_shufflevector(y[0], y[1], 0, 1, 4, 5),
            x[1] = __builtin_shufflevector(y[0], y[1], 2, 3, 6, 7);
            x[2] = __builtin_shufflevector(y[2], y[3], 0, 1, 4, 5),
            x[3] = __builtin_shufflevector(y[2], y[3], 2, 3, 6, 7);
            HR_UNROLL for (int i = 0; i < 4; i++) memcpy(to + (c + i) * ld + r, &x[i], sizeof x[i]);
        }
        for (; c < cols; c++)
            for (int i = 0; i < 4; i++) to[c * ld + r + i] = from[r + i][c] * factor;
    }
    for (; r < rows; r++)
        for (size_t c = 0; c < cols; c++) to[c * ld + r] = from[r][c] * factor;
}

/* What a tile carries from piece to piece; arrays lie in the thread's scratch, a row of `lanes` for each element or score. */
typedef struct attn_tile {
    const hr_attn *a;
    const hr_attn_unit *u;
    size_t dim, rows, lanes;  /* lanes: rows rounded up to 16 */
    float *q, *o;             /* [dim][lanes] */
    float *top, *sum, *decay; /* [lanes] */
    float *converted;         /* [HR_ATTN_CONVERT_ROWS][dim] */
    float *score;             /* [a chunk; not flash: all positions][lanes] */
    attn_rows found;
    const float *row[HR_ATTN_CHUNK];
} attn_tile;

/* Rows that are converted at a time: never more than a tile of the cache. */
static inline uint32_t attn_tile_step(const attn_tile *w, hr_dtype t, uint32_t n) {
    const uint32_t block = w->a->kv->g->block;
    return t == HR_F32 ? n : block < HR_ATTN_CONVERT_ROWS ? block : HR_ATTN_CONVERT_ROWS;
}

/* Scores of a piece, what a row does not see at -infinity. */
static void attn_tile_scores(attn_tile *w, const hr_attn_piece *p, float *score) {
    const hr_dtype t = w->a->kv->g->type[0];
    const uint32_t step = attn_tile_step(w, t, p->n);
    attn_find_rows(w->a, w->u->kv_head, HR_KV_K, p, &w->found);
    for (uint32_t i = 0; i < p->n; i += step) {
        const uint32_t m = p->n - i < step ? p->n - i : step;
        attn_convert_rows(t, &w->found, i, m, w->dim, w->converted, w->row);
        attn_qk(w->row, m, w->q, w->lanes, w->dim, score + i * w->lanes);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        int from, to;
        hr_attn_seen_by(w->a, w->u, hr_attn_at(p, i), &from, &to);
        if (from == 0 && to == (int)w->rows) continue;
        for (size_t x = 0; x < w->lanes; x += V_N) {
            float *at = score + i * w->lanes + x;
            v_store(at, v_pick_lanes(from - (int)x, to - (int)x, v_load(at), v_set(-INFINITY)));
        }
    }
}
static void attn_tile_outputs(attn_tile *w, const hr_attn_piece *p, const float *weights) {
    const hr_dtype t = attn_v_type(w->a->kv->g);
    const uint32_t step = attn_tile_step(w, t, p->n);
    attn_find_rows(w->a, w->u->kv_head, HR_KV_V, p, &w->found);
    for (uint32_t i = 0; i < p->n; i += step) {
        const uint32_t m = p->n - i < step ? p->n - i : step;
        attn_convert_rows(t, &w->found, i, m, w->dim, w->converted, w->row);
        attn_weigh(w->a, w->u, w->row, p, i, m, weights + i * w->lanes, w->lanes, w->o);
    }
}

/* Queries, times the scale, with the rows side by side. */
static void attn_tile_queries(attn_tile *w) {
    const hr_attn *a = w->a;
    const size_t group = w->u->group, dim = w->dim;
    for (size_t r = 0; r < w->rows; r += HR_ATTN_CHUNK) {
        size_t n = 0;
        for (; n < HR_ATTN_CHUNK && r + n < w->rows; n++)
            w->row[n] = a->q + (w->u->q0 + (r + n) / group) * a->ldq + (w->u->kv_head * group + (r + n) % group) * dim;
        attn_turn(w->row, n, dim, a->scale, w->q + r, w->lanes);
    }
}

/* The rows of the output, over the sum or, for a part of the positions, as they are. */
static void attn_tile_store(attn_tile *w) {
    const hr_attn *a = w->a;
    const hr_attn_unit *u = w->u;
    const size_t dim = w->dim, lanes = w->lanes, group = u->group;
    if (u->partial) {
        for (size_t r = 0; r < w->rows; r++) {
            float *part = u->partial + r * (2 + dim);
            part[0] = w->top[r], part[1] = w->sum[r];
            for (size_t d = 0; d < dim; d++) part[2 + d] = w->o[d * lanes + r];
        }
        return;
    }
    for (size_t x = 0; x < lanes; x += V_N) v_store(w->sum + x, v_div(v_set(1), v_load(w->sum + x)));
    for (size_t d = 0; d < dim; d++)
        for (size_t x = 0; x < lanes; x += V_N)
            v_store(w->o + d * lanes + x, v_mul(v_load(w->o + d * lanes + x), v_load(w->sum + x)));
    /* back into rows of elements, over the queries that are no longer needed */
    for (size_t d = 0; d < dim; d += HR_ATTN_CHUNK) {
        size_t n = 0;
        for (; n < HR_ATTN_CHUNK && d + n < dim; n++) w->row[n] = w->o + (d + n) * lanes;
        attn_turn(w->row, n, w->rows, 1, w->q + d, dim);
    }
    for (size_t r = 0; r < w->rows; r++)
        memcpy(a->out + (u->q0 + r / group) * a->ldo + (u->kv_head * group + r % group) * dim, w->q + r * dim,
               dim * sizeof *w->q);
}

static void attn_tile_unit(const hr_attn *a, const hr_attn_unit *u, float *scratch, bool flash) {
    attn_tile w;
    w.a = a, w.u = u;
    const size_t dim = w.dim = a->head_dim, lanes = w.lanes = hr_attn_lanes(w.rows = u->n_q * u->group);
    w.q = scratch, w.o = w.q + dim * lanes, w.top = w.o + dim * lanes, w.sum = w.top + lanes, w.decay = w.sum + lanes;
    w.converted = w.decay + lanes, w.score = w.converted + HR_ATTN_CONVERT_ROWS * dim;
    memset(w.q, 0, (2 * dim * lanes) * sizeof *w.q);
    for (size_t x = 0; x < lanes; x++) w.top[x] = -INFINITY, w.sum[x] = 0;
    attn_tile_queries(&w);
    /* Pieces that go through softmax together: one, or without flash all. */
    hr_attn_piece first = hr_attn_piece_at(a, u->from, u->to), p;
    for (bool begun = false; first.n; first = p, begun = true) {
        uint32_t n = 0;
        for (p = first; p.n && !(flash && n); n += p.n, p = hr_attn_piece_at(a, p.end, u->to))
            attn_tile_scores(&w, &p, w.score + n * lanes);
        attn_tile_softmax(w.score, n, lanes, w.top, w.sum, w.decay);
        for (size_t d = 0; begun && d < dim; d++)
            for (size_t x = 0; x < lanes; x += V_N)
                v_store(w.o + d * lanes + x, v_mul(v_load(w.o + d * lanes + x), v_load(w.decay + x)));
        n = 0;
        for (p = first; p.n && !(flash && n); n += p.n, p = hr_attn_piece_at(a, p.end, u->to))
            attn_tile_outputs(&w, &p, w.score + n * lanes);
    }
    attn_tile_store(&w);
}

#endif
