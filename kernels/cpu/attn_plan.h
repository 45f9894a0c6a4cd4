/* attn_plan.h - units of attention: which KV head, which queries, which positions. Shared by the kernels of all ISAs.
 *
 * A tile takes as many queries as make HR_ATTN_TILE_ROWS rows (query x head of the group): the rows are the lanes of
 * the small matrix products. Tiles of a head are numbered from both ends inward, so that equal shares of the units
 * are nearly equal work under the causal mask. */
#ifndef HR_ATTN_PLAN_H
#define HR_ATTN_PLAN_H

#include "kernels/table.h"

enum {
    HR_ATTN_CONVERT_ROWS = 32 /* rows of K or V that are converted to f32 at a time, never more than one tile */
};

/* n rounded up to whole vectors of the widest ISA. */
static inline size_t hr_attn_lanes(size_t n) {
    return (n + 15) / 16 * 16;
}
static inline uint32_t hr_attn_tile_queries(uint32_t group) {
    return group < HR_ATTN_TILE_ROWS ? HR_ATTN_TILE_ROWS / group : 1;
}
/* First position that any query sees. */
static inline uint32_t hr_attn_first(const hr_attn *a) {
    return a->window && a->pos0 + 1 > a->window ? a->pos0 + 1 - a->window : 0;
}
static inline size_t hr_attn_tiles(const hr_attn *a) {
    const uint32_t t = hr_attn_tile_queries(a->n_heads / a->n_kv_heads);
    return (a->n_q + t - 1) / t;
}
/* Splits from..to - 1 are skipped, all of their positions are gone; never the last one, which holds the query's. */
static inline void hr_attn_gone_splits(const hr_attn *a, uint32_t *from, uint32_t *to) {
    const uint32_t first = hr_attn_first(a), last = a->pos0 / HR_ATTN_SPLIT, gone = a->kv->gone_from;
    *from = gone <= first ? first / HR_ATTN_SPLIT : gone / HR_ATTN_SPLIT + (gone % HR_ATTN_SPLIT != 0);
    *to = a->kv->gone_to / HR_ATTN_SPLIT < last ? a->kv->gone_to / HR_ATTN_SPLIT : last;
    if (*to < *from || a->kv->gone_to <= gone) *to = *from;
}
static inline size_t hr_attn_splits(const hr_attn *a) {
    uint32_t from, to;
    hr_attn_gone_splits(a, &from, &to);
    return a->pos0 / HR_ATTN_SPLIT - hr_attn_first(a) / HR_ATTN_SPLIT + 1 - (to - from);
}

typedef struct hr_attn_unit {
    uint32_t kv_head, group;
    uint32_t q0, n_q;  /* queries of the tile */
    uint32_t from, to; /* positions that the tile reads, `to` not included */
    float *partial;    /* [group][2 + head_dim] or NULL */
} hr_attn_unit;

static inline hr_attn_unit hr_attn_unit_at(const hr_attn *a, size_t u) {
    hr_attn_unit r = {.group = a->n_heads / a->n_kv_heads};
    const uint32_t first = hr_attn_first(a);
    if (hr_attn_is_split(a)) {
        const size_t splits = hr_attn_splits(a);
        r.kv_head = (uint32_t)(u / splits);
        uint32_t split = first / HR_ATTN_SPLIT + (uint32_t)(u % splits), gone, back;
        hr_attn_gone_splits(a, &gone, &back);
        if (split >= gone) split += back - gone;
        const uint32_t base = split * HR_ATTN_SPLIT;
        r.n_q = 1;
        r.from = base > first ? base : first;
        r.to = base + HR_ATTN_SPLIT < a->pos0 + 1 ? base + HR_ATTN_SPLIT : a->pos0 + 1;
        r.partial = a->partial + u * r.group * (2 + (size_t)a->head_dim);
        return r;
    }
    const size_t tiles = hr_attn_tiles(a), t = u % tiles;
    const uint32_t per = hr_attn_tile_queries(r.group);
    r.kv_head = (uint32_t)(u / tiles);
    r.q0 = (uint32_t)(t % 2 ? tiles - 1 - t / 2 : t / 2) * per;
    r.n_q = r.q0 + per < a->n_q ? per : a->n_q - r.q0;
    const uint32_t at = a->pos0 + r.q0;
    r.from = a->window && at + 1 > a->window ? at + 1 - a->window : 0;
    r.to = at + r.n_q;
    return r;
}

/* What is read of one chunk: row i stands at position hr_attn_at(piece, i). Positions that are gone are left out by never
 * being asked for: their memory may hold anything or belong to somebody else. */
typedef struct hr_attn_piece {
    uint32_t from, n;    /* first position, rows; n 0: nothing is left */
    uint32_t hole, jump; /* rows from `hole` on stand `jump` positions further */
    uint32_t end;        /* where the next piece may start */
} hr_attn_piece;

/* The rest of the chunk of p, or of the first position from p on that is there; none beyond `to`. Chunks are counted from
 * position 0 whatever is gone. */
static inline hr_attn_piece hr_attn_piece_at(const hr_attn *a, uint32_t p, uint32_t to) {
    const uint32_t gone = a->kv->gone_from, back = a->kv->gone_to;
    if (p >= gone && p < back) p = back;
    if (p >= to) return (hr_attn_piece){.from = to, .end = to};
    const uint32_t start = p / HR_ATTN_CHUNK * HR_ATTN_CHUNK;
    const uint32_t end = to - start < HR_ATTN_CHUNK ? to : start + HR_ATTN_CHUNK;
    hr_attn_piece piece = {.from = p, .n = end - p, .hole = end - p, .end = end};
    if (gone > p && gone < end && gone < back) {
        piece.hole = gone - p, piece.jump = back - gone;
        piece.n = piece.hole + (back < end ? end - back : 0);
    }
    return piece;
}
static inline uint32_t hr_attn_at(const hr_attn_piece *piece, uint32_t i) {
    return piece->from + i + (i >= piece->hole ? piece->jump : 0);
}

/* Rows of the tile (query x head) that see position p: queries lo..hi - 1 of the tile, `group` rows each. */
static inline void hr_attn_seen_by(const hr_attn *a, const hr_attn_unit *u, uint32_t p, int *from, int *to) {
    const int64_t at = (int64_t)a->pos0 + u->q0;
    int64_t lo = (int64_t)p - at, hi = a->window ? (int64_t)p + a->window - at : u->n_q;
    lo = lo < 0 ? 0 : lo, hi = hi > u->n_q ? u->n_q : hi;
    *from = (int)(lo * u->group), *to = (int)(hi * u->group);
}

/* y = 2^x as the rows on the bf16 unit compute it, for the test of its error. Needs AVX-512 with BF16. */
void hr_attn_exp2_avx512(const float *x, float *y, size_t n);

#endif
