/* attn_stage.cuh - tiles of prefill: the rows of a block (queries x heads of a group), and the rows of K and V that come to shared
 * memory as numbers of one type, whatever they are stored as. */
#ifndef HR_ATTN_STAGE_CUH
#define HR_ATTN_STAGE_CUH

#include "kernels/cuda/attn.cuh"

/* The rows of a block: number f of a KV head's rows is head f % group of query f / group, so that a tile has no gaps whatever the
 * size of the group. */
struct attn_tile {
    uint32_t f0, n;        /* first row, rows that exist */
    uint32_t group, head0; /* query heads of the KV head; the first of them */
    uint32_t pos0, row0;   /* of the segment */
    uint32_t first, last;  /* positions that any row sees, those gone among them */
};

/* Tile `tile` of `size` rows of a KV head; n 0: it lies beyond the batch. */
__device__ static inline attn_tile attn_tile_of(const hr_cuda_attn &p, const hr_cuda_segment *s, uint32_t kv_head,
                                                uint32_t tile, uint32_t size) {
    attn_tile t;
    t.group = p.n_heads / p.n_kv_heads, t.head0 = kv_head * t.group;
    t.pos0 = s->pos0, t.row0 = s->row0, t.f0 = tile * size;
    const uint32_t all = s->n * t.group;
    t.n = t.f0 >= all ? 0 : all - t.f0 < size ? all - t.f0 : size;
    if (!t.n) return t;
    t.first = attn_seen_from(t.pos0 + t.f0 / t.group, p.window).first;
    t.last = t.pos0 + (t.f0 + t.n - 1) / t.group;
    return t;
}
/* The query, its head and what it sees; rows past the end are the last one once more. */
__device__ static inline uint32_t attn_tile_query(const attn_tile &t, uint32_t row) {
    return (t.f0 + (row < t.n ? row : t.n - 1)) / t.group;
}
__device__ static inline uint32_t attn_tile_head(const attn_tile &t, uint32_t row) {
    return t.head0 + (t.f0 + (row < t.n ? row : t.n - 1)) % t.group;
}
/* The first tile of `size` positions from `base` on that holds any that are not gone. */
__device__ static inline uint32_t attn_next_tile(const attn_head &h, uint32_t base, uint32_t size) {
    if (base >= h.gone_from && base < h.gone_to && base + size <= h.gone_to) return h.gone_to / size * size;
    return base;
}

/* Entry i of the table of a tile of K from `base` on, by one thread each; groups [size / 32][2 * dim] takes the scales of i4kc.
 * To be read after a barrier. Positions that no row sees, or that are gone: NULL. */
__device__ static inline void attn_find_k(const attn_head &h, const attn_tile &t, uint32_t base, uint32_t i,
                                          attn_row *table, uint16_t *groups) {
    const uint32_t pos = base + i;
    const bool gone = attn_is_gone(h, pos), sees = pos >= t.first && pos <= t.last && !gone;
    const bool grouped = h.k_type == HR_I4KC && pos < h.closed && !gone;
    attn_row row = {NULL, NULL};
    if (sees || grouped) row = attn_k_row(h, pos);
    if (grouped) { /* each position holds a part of what its group has in common */
        const uint32_t dim = h.g->head_dim, part = 2 * dim / HR_KV_GROUP;
        uint16_t *of_group = groups + i / HR_KV_GROUP * 2 * dim;
#pragma unroll 1
        for (uint32_t j = 0; j < part; j++) of_group[i % HR_KV_GROUP * part + j] = row.scales[j];
        row.scales = of_group;
    }
    if (!sees) row.at = NULL;
    table[i] = row;
}
__device__ static inline void attn_find_v(const attn_head &h, const attn_tile &t, uint32_t base, uint32_t i,
                                          attn_row *table) {
    const uint32_t pos = base + i;
    attn_row row = {NULL, NULL};
    if (pos >= t.first && pos <= t.last && !attn_is_gone(h, pos)) row = attn_v_row(h, pos);
    table[i] = row;
}

__device__ static inline void attn_put8(float *to, const float x[8]) {
    float4 *at = (float4 *)(void *)to;
    at[0] = make_float4(x[0], x[1], x[2], x[3]), at[1] = make_float4(x[4], x[5], x[6], x[7]);
}
__device__ static inline void attn_put8(uint16_t *to, const float x[8]) {
    *(uint4 *)(void *)to =
        make_uint4(attn_pack(x[0], x[1]), attn_pack(x[2], x[3]), attn_pack(x[4], x[5]), attn_pack(x[6], x[7]));
}

/* Rows 0..n - 1 of the table as floats or bf16, ld elements apart, by all `threads` threads; rows from `open` on are bf16.
 * bf16 as bf16 goes asynchronously: the caller commits and waits. */
template <class T>
__device__ static inline void attn_stage(T *to, uint32_t ld, const attn_row *table, uint32_t n, uint32_t dim,
                                         uint32_t type, uint32_t open, const void *anywhere, uint32_t threads) {
    const uint32_t parts = dim / 8;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n * parts; i += threads) {
        const uint32_t r = i / parts, d = i % parts * 8, stored = r >= open ? (uint32_t)HR_BF16 : type;
        const attn_row row = table[r];
        if (sizeof(T) == 2 && stored == HR_BF16) {
            hr_cp_async16(to + r * ld + d, row.at ? row.at + 2 * d : anywhere, row.at ? 16 : 0);
            continue;
        }
        float x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (row.at) attn_load<8>(stored, row.at, row.scales, d, x);
        attn_put8(to + r * ld + d, x);
    }
}

#endif
