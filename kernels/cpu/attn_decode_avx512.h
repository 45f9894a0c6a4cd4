/* attn_decode_avx512.h - decode on the bf16 unit: one query, up to four heads of the group at a time, each K and V row
 * read from memory once.
 *
 * Lanes are elements of a row: K rows and the rounded query multiply in pairs of elements, V rows in pairs of positions
 * (two unpacks make the pairs), so that bf16 needs no conversion; quantized rows become bf16 in
 * registers. Four heads times four positions make one vector of scores, on which softmax works in place. While K of a
 * chunk is read, V of the chunk is fetched, and then K of the next one, at whatever places they lie. Weights are rounded to bf16 and their f32 sum is that of the rounded ones.
 * Include it from attn_bf16_avx512.c alone. */
#ifndef HR_ATTN_DECODE_AVX512_H
#define HR_ATTN_DECODE_AVX512_H

#include "kernels/cpu/attn_tile_avx512.h"

#ifdef __AVX512BF16__

enum { ATTN_DECODE_GROUP = 8 }; /* above this the lanes of attn_tile_avx512.h are full enough */

/* Four heads, or as many as are left. Lane 4 g + i of a vector is head g, position i of four. */
typedef struct attn_quad {
    int heads;
    size_t dim, ld;         /* ld: dim rounded up to 32 */
    uint16_t *q;            /* [heads][ld] */
    float *o;               /* [heads][ld], elements in the order of attn_place */
    float *score;           /* [HR_ATTN_CHUNK / 4][4 heads][4 positions] */
    uint32_t *weight;       /* [HR_ATTN_CHUNK / 4][4 heads][2 pairs] */
    __m512 top, sum, decay; /* top and decay: the head's value in all its lanes; sum: to be added up */
} attn_quad;

/* Sums of 4 x 4 vectors, x[head][position], into the lanes of one. */
HR_INLINE __m512 attn_sum16(const int heads, __m512 x[4][4]) {
    __m512 y[4];
    HR_UNROLL for (int g = 0; g < 4; g++) {
        y[g] = _mm512_setzero_ps();
        if (g >= heads) continue;
        const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(x[g][0], x[g][1]), _mm512_unpackhi_ps(x[g][0], x[g][1]));
        const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(x[g][2], x[g][3]), _mm512_unpackhi_ps(x[g][2], x[g][3]));
        y[g] = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    }
    const __m512 lo = _mm512_add_ps(_mm512_shuffle_f32x4(y[0], y[1], 0x44), _mm512_shuffle_f32x4(y[0], y[1], 0xee));
    const __m512 hi = _mm512_add_ps(_mm512_shuffle_f32x4(y[2], y[3], 0x44), _mm512_shuffle_f32x4(y[2], y[3], 0xee));
    return _mm512_add_ps(_mm512_shuffle_f32x4(lo, hi, 0x88), _mm512_shuffle_f32x4(lo, hi, 0xdd));
}

/* Scores of n positions; blocks: of 32 elements in a row, 0 for any number. */
HR_INLINE void attn_quad_qk(hr_dtype t, const int heads, const int blocks, const attn_quad *w, const attn_rows *k,
                            uint32_t first, uint32_t n, attn_ahead next) {
    const size_t dim = blocks ? 32 * (size_t)blocks : w->dim, ld = blocks ? dim : w->ld;
    for (uint32_t i = first; i < n; i += 4) {
        const uint8_t *const row[4] = {k->row[i], k->row[i + 1], k->row[i + 2], k->row[i + 3]};
        const uint16_t *const *scale = k->scale + i;
        __m512 acc[4][4];
        HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = _mm512_setzero_ps();
        attn_fetch_some(&next, i, 4);
        size_t d = 0;
        HR_UNROLL_SOME for (; d + 32 <= dim; d += 32) {
            __m512i kk[4];
            HR_UNROLL for (int j = 0; j < 4; j++) kk[j] = attn_load32(t, row[j], scale[j], d, d + 32);
            HR_UNROLL for (int g = 0; g < heads; g++) {
                const __m512i qq = _mm512_loadu_si512(w->q + g * ld + d);
                HR_UNROLL for (int j = 0; j < 4; j++) acc[g][j] = attn_dp(acc[g][j], kk[j], qq);
            }
        }
        if (d < dim) {
            HR_UNROLL for (int j = 0; j < 4; j++) {
                const __m512i kk = attn_load32(t, row[j], scale[j], d, dim);
                HR_UNROLL for (int g = 0; g < heads; g++) acc[g][j] =
                    attn_dp(acc[g][j], kk, _mm512_loadu_si512(w->q + g * ld + d));
            }
        }
        _mm512_storeu_ps(w->score + 4 * i, attn_sum16(heads, acc));
    }
}

/* The largest of the four positions, in all of them. */
HR_INLINE __m512 attn_quad_max(__m512 x) {
    x = _mm512_max_ps(x, _mm512_permute_ps(x, 0xb1));
    return _mm512_max_ps(x, _mm512_permute_ps(x, 0x4e));
}

static void attn_quad_softmax(attn_quad *w, uint32_t n, attn_ahead next) {
    const uint32_t whole = (n + 3) / 4;
    float *last = w->score + 16 * (whole - 1);
    const __mmask16 past = (__mmask16)(n % 4 ? 0x1111 * (0xf & 0xf << n % 4) : 0);
    _mm512_mask_storeu_ps(last, past, _mm512_set1_ps(-INFINITY));
    __m512 max = w->top;
    for (uint32_t i = 0; i < whole; i++) max = _mm512_max_ps(max, _mm512_loadu_ps(w->score + 16 * i));
    max = attn_quad_max(max);
    const __m512 base = v_finite_or_zero(max);
    w->decay = attn_exp2(_mm512_sub_ps(w->top, base));
    __m512 sum = _mm512_mul_ps(w->sum, w->decay);
    for (uint32_t i = 0; i < whole; i++) {
        const __m512 e = attn_exp2(_mm512_sub_ps(_mm512_loadu_ps(w->score + 16 * i), base));
        const __m256i p = (__m256i)_mm512_cvtneps_pbh(e);
        _mm256_storeu_si256((__m256i *)(void *)(w->weight + 8 * i), p);
        sum = _mm512_add_ps(sum, hr_bf16x16_to_f32(p));
        attn_fetch_some(&next, i, 1);
    }
    w->top = max, w->sum = sum;
}

/* o = o * decay + weights . V, elements d..d + 32 * blocks - 1 (`rest`: fewer than 32). */
HR_INLINE void attn_quad_pv_step(hr_dtype t, const int heads, const int blocks, const bool rest, const attn_quad *w,
                                 const float *decay, const attn_rows *v, uint32_t n, size_t d, attn_ahead next) {
    __m512 acc[4][4];
    HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 2 * blocks; j++) acc[g][j] =
        _mm512_mul_ps(_mm512_loadu_ps(w->o + g * w->ld + d + 16 * j), _mm512_set1_ps(decay[4 * g]));
    for (uint32_t i = 0; i < n; i += 2) {
        const uint32_t *p = w->weight + i / 4 * 8 + i % 4 / 2;
        __m512i x[4];
        attn_fetch_some(&next, i, 2);
        HR_UNROLL for (int j = 0; j < blocks; j++) {
            const size_t from = d + 32 * j, end = rest ? w->dim : from + 32;
            const __m512i a = attn_load32(t, v->row[i], v->scale[i], from, end);
            const __m512i b = attn_load32(t, v->row[i + 1], v->scale[i + 1], from, end);
            x[2 * j] = _mm512_unpacklo_epi16(a, b), x[2 * j + 1] = _mm512_unpackhi_epi16(a, b);
        }
        HR_UNROLL for (int g = 0; g < heads; g++) {
            const __m512i pp = attn_pair(p + 2 * g);
            HR_UNROLL for (int j = 0; j < 2 * blocks; j++) acc[g][j] = attn_dp(acc[g][j], pp, x[j]);
        }
    }
    HR_UNROLL for (int g = 0; g < heads; g++) HR_UNROLL for (int j = 0; j < 2 * blocks; j++)
        _mm512_storeu_ps(w->o + g * w->ld + d + 16 * j, acc[g][j]);
}
HR_INLINE void attn_quad_pv(hr_dtype t, const int heads, const attn_quad *w, const attn_rows *v, uint32_t n,
                            attn_ahead next) {
    float decay[16];
    _mm512_storeu_ps(decay, w->decay);
    /* each stripe fetches its part of the rows */
    const size_t stripes = (w->dim + 63) / 64, part = (next.end + 64 * stripes - 1) / (64 * stripes) * 64;
    const size_t all = next.end;
    size_t d = 0;
    for (; d < w->dim; d += 64, next.at += part, next.scales = false) {
        const size_t left = w->dim - d;
        next.end = next.at + part < all ? next.at + part : all;
        if (left >= 64) {
            attn_quad_pv_step(t, heads, 2, false, w, decay, v, n, d, next);
            continue;
        }
        if (left >= 32) attn_quad_pv_step(t, heads, 1, false, w, decay, v, n, d, next), next.n = 0;
        if (left % 32) attn_quad_pv_step(t, heads, 1, true, w, decay, v, n, d + left / 32 * 32, next);
    }
}

/* The bodies above for each type and number of heads. */
#define ATTN_QUAD(fn, t, ...)  \
    switch (w->heads) {        \
    case 1:                    \
        fn(t, 1, __VA_ARGS__); \
        return;                \
    case 2:                    \
        fn(t, 2, __VA_ARGS__); \
        return;                \
    case 3:                    \
        fn(t, 3, __VA_ARGS__); \
        return;                \
    default:                   \
        fn(t, 4, __VA_ARGS__); \
        return;                \
    }
#define ATTN_QUAD_QK(t)                                                    \
    if (w->dim == 64) ATTN_QUAD(attn_quad_qk, t, 2, w, k, first, n, next)  \
    if (w->dim == 128) ATTN_QUAD(attn_quad_qk, t, 4, w, k, first, n, next) \
    ATTN_QUAD(attn_quad_qk, t, 0, w, k, first, n, next)
static __attribute__((noinline)) void attn_quad_scores_of(hr_dtype t, const attn_quad *w, const attn_rows *k,
                                                          uint32_t first, uint32_t n, attn_ahead next) {
    if (t == HR_BF16) {
        ATTN_QUAD_QK(HR_BF16)
    }
    if (t == HR_Q8_0) {
        ATTN_QUAD_QK(HR_Q8_0)
    }
    if (t == HR_I8ROW) {
        ATTN_QUAD_QK(HR_I8ROW)
    }
    if (t == HR_I4KC) {
        ATTN_QUAD_QK(HR_I4KC)
    }
    ATTN_QUAD_QK(HR_Q4_0)
}
/* Of i4kc: closed groups, then the open one. */
static void attn_quad_scores(hr_dtype t, const attn_quad *w, const attn_rows *k, uint32_t n, attn_ahead next) {
    const uint32_t closed = t == HR_I4KC ? k->closed : n;
    if (closed) attn_quad_scores_of(t, w, k, 0, closed, next);
    if (closed < n) attn_quad_scores_of(HR_BF16, w, k, closed, n, next);
}
static __attribute__((noinline)) void attn_quad_outputs(hr_dtype t, const attn_quad *w, const attn_rows *v, uint32_t n,
                                                        attn_ahead next) {
    if (t == HR_BF16) ATTN_QUAD(attn_quad_pv, HR_BF16, w, v, n, next)
    if (t == HR_Q8_0) ATTN_QUAD(attn_quad_pv, HR_Q8_0, w, v, n, next)
    if (t == HR_I8ROW) ATTN_QUAD(attn_quad_pv, HR_I8ROW, w, v, n, next)
    ATTN_QUAD(attn_quad_pv, HR_Q4_0, w, v, n, next)
}

static void attn_quad_start(attn_quad *w, const float *q, float scale) {
    const __m512 factor = _mm512_set1_ps(scale * ATTN_LOG2E);
    for (size_t g = 0; g < (size_t)w->heads; g++, q += w->dim) {
        for (size_t d = 0; d < w->ld; d += 32) {
            const size_t left = w->dim - d;
            const __m512 a = _mm512_maskz_loadu_ps(hr_mask16(left), q + d);
            const __m512 b = _mm512_maskz_loadu_ps(left > 16 ? hr_mask16(left - 16) : 0, q + d + 16);
            _mm512_storeu_si512(w->q + g * w->ld + d, attn_bf16(_mm512_mul_ps(a, factor), _mm512_mul_ps(b, factor)));
            _mm512_storeu_ps(w->o + g * w->ld + d, _mm512_setzero_ps());
            _mm512_storeu_ps(w->o + g * w->ld + d + 16, _mm512_setzero_ps());
        }
    }
    w->top = _mm512_set1_ps(-INFINITY), w->sum = _mm512_setzero_ps();
}
static void attn_quad_store(const attn_quad *w, float *out, float *partial) {
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    float top[16], sum[16];
    _mm512_storeu_ps(top, _mm512_mul_ps(w->top, _mm512_set1_ps(ATTN_LN2)));
    _mm512_storeu_ps(sum, w->sum);
    for (size_t g = 0; g < (size_t)w->heads; g++) {
        const float total = sum[4 * g] + sum[4 * g + 1] + (sum[4 * g + 2] + sum[4 * g + 3]);
        const __m512 factor = _mm512_set1_ps(partial ? 1 : 1 / total);
        float *to = partial ? partial + g * (2 + w->dim) + 2 : out + g * w->dim;
        for (size_t d = 0; d < w->dim; d += 32) {
            const __m512 lo = _mm512_loadu_ps(w->o + g * w->ld + d), hi = _mm512_loadu_ps(w->o + g * w->ld + d + 16);
            const size_t left = w->dim - d;
            _mm512_mask_storeu_ps(to + d, hr_mask16(left),
                                  _mm512_mul_ps(_mm512_permutex2var_ps(lo, first, hi), factor));
            if (left > 16)
                _mm512_mask_storeu_ps(to + d + 16, hr_mask16(left - 16),
                                      _mm512_mul_ps(_mm512_permutex2var_ps(lo, second, hi), factor));
        }
        if (partial) to[-2] = top[4 * g], to[-1] = total;
    }
}

static void attn_decode_unit(const hr_attn *a, const hr_attn_unit *u, void *scratch) {
    const hr_kv_geom *g = a->kv->g;
    const size_t dim = a->head_dim, ld = (dim + 31) / 32 * 32, group = u->group;
    const size_t quads = (group + 3) / 4;
    attn_rows k, v;
    attn_ahead next_k = {.rows = &k, .end = g->row_bytes[HR_KV_K], .scales = g->row_bytes[HR_KV_KS]};
    attn_ahead next_v = {.rows = &v, .end = g->row_bytes[HR_KV_V], .scales = g->row_bytes[HR_KV_VS]};
    attn_quad w[ATTN_DECODE_GROUP / 4];
    char *at = scratch;
    hr_attn_piece piece = hr_attn_piece_at(a, u->from, u->to);
    if (piece.n) attn_find_rows(a, u->kv_head, HR_KV_K, &piece, &k);
    next_k.n = piece.n;
    for (uint32_t i = 0; i < piece.n; i += 4) attn_fetch_some(&next_k, i, 4);
    for (size_t i = 0; i < quads; i++) {
        w[i].heads = group - 4 * i < 4 ? (int)(group - 4 * i) : 4;
        w[i].dim = dim, w[i].ld = ld;
        w[i].o = (float *)(void *)at, at += 4 * ld * sizeof *w[i].o;
        w[i].score = (float *)(void *)at, at += 4 * HR_ATTN_CHUNK * sizeof *w[i].score;
        w[i].weight = (uint32_t *)(void *)at, at += 2 * HR_ATTN_CHUNK * sizeof *w[i].weight;
        w[i].q = (uint16_t *)(void *)at, at += 4 * ld * sizeof *w[i].q;
        attn_quad_start(&w[i], a->q + (u->kv_head * group + 4 * i) * dim, a->scale);
    }
    for (hr_attn_piece next; piece.n; piece = next) {
        const uint32_t n = piece.n;
        attn_find_rows(a, u->kv_head, HR_KV_V, &piece, &v);
        for (size_t i = 0; i < quads; i++) {
            next_v.n = i ? 0 : n;
            attn_quad_scores(g->type[0], &w[i], &k, n, next_v);
        }
        next = hr_attn_piece_at(a, piece.end, u->to);
        if (next.n) attn_find_rows(a, u->kv_head, HR_KV_K, &next, &k);
        for (size_t i = 0; i < quads; i++) { /* softmax fetches as many rows as it takes steps, the rest follows */
            next_k.first = 0, next_k.n = i ? 0 : next.n;
            attn_quad_softmax(&w[i], n, next_k);
        }
        for (size_t i = 0; i < quads; i++) {
            next_k.first = (n + 3) / 4, next_k.n = i ? 0 : next.n;
            attn_quad_outputs(attn_v_type(g), &w[i], &v, n, next_k);
        }
    }
    for (size_t i = 0; i < quads; i++)
        attn_quad_store(&w[i], a->out + (u->kv_head * group + 4 * i) * dim,
                        u->partial ? u->partial + 4 * i * (2 + dim) : NULL);
}

#endif
#endif
