/* kv_run.h - where the rows of a KV cache lie: the one function that every reader and writer of KV goes through.
 *
 * Symbols as everywhere: L layers, H KV heads, D head dimension, B positions a tile (a power of two, the same for K
 * and V), NB blocks of B positions that a sequence can hold, p positions a page, P = next power of two >= H.
 *
 * A cache has four planes: K rows, V rows, K scales, V scales (scale planes only for quantized types). All planes
 * share one geometry, counted in units and rows:
 *     address in plane x = base[x] + unit * unit_bytes[x] + row * row_bytes[x]
 * A unit is the longest piece that is contiguous by construction (head: the NB tiles of a head; block, zorder,
 * shuffled: one tile; paged: the p rows of one head in a page; token: one row). unit_bytes is rows per unit *
 * row_bytes, rounded up to 128 where that is >= 128: units start on 128-byte lines, and the padding is counted
 * (hr_kv_geom.pad_bytes).
 *
 * unit of (layer l, block b = pos / B, head h):
 *     head      l*H + h                                   row = pos
 *     token     (pos*L + l)*H + h                         row = 0, next position L*H units further
 *     block     (l*NB + b)*H + h                          row = pos % B
 *     zorder    l*ceil(NB/P)*P*H + (b/P)*P*H + rank[b % P][h]   row = pos % B
 *     zorder-h  the same with the bit lanes of the Morton code swapped
 *     shuffled  the same with a fixed random permutation for rank
 *     paged     (page*L + l)*H + h, page = table[pos / p]  row = pos % p
 *     paged-nhd ((page*L + l)*p + pos % p)*H + h           row = 0, next position of the page H units further
 *     paged-identity  as paged; the allocator hands out pages in order, so that only the look-up is left of its price */
#ifndef HR_KV_RUN_H
#define HR_KV_RUN_H

#include "kernels/base/dtype.h"

typedef enum hr_kv_layout {
    HR_KV_HEAD,
    HR_KV_TOKEN,
    HR_KV_BLOCK,
    HR_KV_ZORDER,
    HR_KV_ZORDER_H,
    HR_KV_SHUFFLED,
    HR_KV_PAGED,
    HR_KV_PAGED_NHD,
    HR_KV_PAGED_IDENTITY,
    HR_KV_LAYOUT_COUNT
} hr_kv_layout;

HR_BOTH static inline bool hr_kv_is_paged(hr_kv_layout layout) {
    return layout >= HR_KV_PAGED;
}

enum { HR_KV_K, HR_KV_V, HR_KV_KS, HR_KV_VS, HR_KV_PLANES };

/* The types a cache may have: F32, BF16, F16, Q8_0 (int8 rows, f16 scale per 32 in the scale plane), I8ROW (int8 rows,
 * one f16 scale in the scale plane), Q4_0 (nibbles as in dtype.h's I4G32, f16 scale per 32 in the scale plane), I4KC
 * (nibbles in the same order: K with a scale and a centre per channel and 32 positions, kv_open.h; V as Q4_0). No block is
 * interleaved. Their names: "f32", "bf16", "f16", "q8_0", "i8row", "q4_0", "i4kc". */
const char *hr_kv_type_name(hr_dtype type);
/* ERR_USAGE naming the types there are. */
hr_status hr_kv_type_parse(const char *name, hr_dtype *out);

typedef struct hr_kv_geom {
    hr_kv_layout layout;
    uint32_t n_layers, n_heads, head_dim; /* L, H, D */
    hr_dtype type[2];                     /* of K, of V */
    uint32_t block;                       /* B */
    uint32_t n_blocks;                    /* NB: capacity of one sequence in blocks */
    uint32_t page_size;                   /* p; 0 unless paged */
    uint32_t super;                       /* P */
    uint8_t block_log2, page_log2, super_log2;
    uint32_t unit_rows; /* rows a unit */
    size_t row_bytes[HR_KV_PLANES], unit_bytes[HR_KV_PLANES];
    size_t extent_units; /* units of one sequence's extent; paged: units of one page (L*H) */
    size_t pad_bytes;    /* bytes of an extent (paged: of a page) that hold no row, all planes */
    uint16_t
        rank[64 * 64]; /* [P][H] place of tile (b % P, h) in its super-block; zorder, zorder-h, shuffled. H <= 64 */
} hr_kv_geom;

/* One sequence as kernels see it. Unpaged: base[] is the start of its own extent. Paged: base[] is the start of the
 * page pool and table[i] the page of positions i*p .. i*p + p - 1. */
typedef struct hr_kv_seq {
    const hr_kv_geom *g;
    uint8_t *base[HR_KV_PLANES];
    const uint32_t *table;
    uint32_t len;                /* positions written */
    uint8_t *open;               /* K of i4kc: the rows of the last, incomplete group (kv_open.h); else NULL */
    uint32_t gone_from, gone_to; /* positions gone_from..gone_to - 1 were evicted: nobody sees them; equal: none */
} hr_kv_seq;

/* A run: n rows from `pos` on. Row i of plane x lies at at[x] + i * stride[x]. Planes that do not exist are NULL. */
typedef struct hr_kv_rows {
    uint8_t *at[HR_KV_PLANES];
    size_t stride[HR_KV_PLANES];
    uint32_t n;
} hr_kv_rows;

/* The longest run of equally spaced rows of (layer, head) that starts at pos, not beyond the capacity. */
HR_BOTH static inline hr_kv_rows hr_kv_run(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos) {
    const hr_kv_geom *g = s->g;
    const size_t L = g->n_layers, H = g->n_heads;
    const uint32_t capacity = g->n_blocks * g->block, b = pos >> g->block_log2;
    uint32_t r = pos & (g->block - 1);
    size_t unit, step = 0; /* step: units from one row to the next; 0: rows follow inside the unit */
    uint32_t row, n;
    switch (g->layout) {
    case HR_KV_HEAD:
        unit = layer * H + head, row = pos, n = capacity - pos;
        break;
    case HR_KV_TOKEN:
        unit = (pos * L + layer) * H + head, row = 0, n = capacity - pos, step = L * H;
        break;
    case HR_KV_BLOCK:
        unit = ((size_t)layer * g->n_blocks + b) * H + head, row = r, n = g->block - r;
        break;
    case HR_KV_PAGED_NHD:
        r = pos & (g->page_size - 1), row = 0, n = g->page_size - r, step = H;
        unit = (((size_t)s->table[pos >> g->page_log2] * L + layer) * g->page_size + r) * H + head;
        break;
    case HR_KV_PAGED:
    case HR_KV_PAGED_IDENTITY:
        row = pos & (g->page_size - 1), n = g->page_size - row;
        unit = ((size_t)s->table[pos >> g->page_log2] * L + layer) * H + head;
        break;
    default: { /* zorder, zorder-h, shuffled */
        const uint32_t P = g->super;
        const size_t supers = (g->n_blocks + P - 1) >> g->super_log2;
        unit = (layer * supers + (b >> g->super_log2)) * P * H + g->rank[(b & (P - 1)) * H + head], row = r,
        n = g->block - r;
    }
    }
    hr_kv_rows run;
    run.n = n;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        run.at[x] = s->base[x] ? s->base[x] + unit * g->unit_bytes[x] + row * g->row_bytes[x] : NULL;
        run.stride[x] = step ? step * g->unit_bytes[x] : g->row_bytes[x];
    }
    return run;
}

/* Fills *g for one layout. capacity: positions a sequence must hold (rounded up to B, paged also to p). page_size only
 * for paged (1..256, a power of two). B is the largest power of two with which the larger tile has at most 4096 bytes
 * (at least 1). ERR_UNSUPPORTED for a KV type, a head count over 64 or a head_dim that the type cannot hold (quantized:
 * multiples of 32, K of i4kc at most 256). */
hr_status hr_kv_geom_init(hr_kv_geom *g, hr_kv_layout layout, uint32_t n_layers, uint32_t n_heads, uint32_t head_dim,
                          hr_dtype k_type, hr_dtype v_type, uint32_t capacity, uint32_t page_size);

/* Bytes of plane x in an extent (paged: in one page). */
HR_BOTH static inline size_t hr_kv_extent_bytes(const hr_kv_geom *g, int plane) {
    return g->extent_units * g->unit_bytes[plane];
}
const char *hr_kv_layout_name(hr_kv_layout layout); /* "head", "token", ... "zorder-h", "paged" ... */
/* Also takes "contiguous" for head. ERR_USAGE for an unknown name. */
hr_status hr_kv_layout_parse(const char *name, hr_kv_layout *out);

#endif
