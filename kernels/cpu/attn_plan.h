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
static inline size_t hr_attn_splits(const hr_attn *a) {
    return a->pos0 / HR_ATTN_SPLIT - hr_attn_first(a) / HR_ATTN_SPLIT + 1;
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
        const uint32_t base = (first / HR_ATTN_SPLIT + (uint32_t)(u % splits)) * HR_ATTN_SPLIT;
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
