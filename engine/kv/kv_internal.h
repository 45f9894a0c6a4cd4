/* kv_internal.h - what the parts of the KV cache share.
 *
 * All memory of a cache is one row of granules, in each plane at a fixed distance. What a granule is, follows from the
 * allocator:
 *     per-request  a whole sequence; every extent is one granule
 *     pool         some blocks of positions, so that extents of any number of granules start on 128-byte lines
 *     paged        a page
 *     hybrid       as many positions as make whole pages and whole blocks: page i lies in granule i / granule_pages.
 *                  Extents grow from the first granule upward, pages from the last one downward
 * Extents of n granules all have the geometry geoms[n]. */
#ifndef HR_KV_INTERNAL_H
#define HR_KV_INTERNAL_H

#include "engine/kv/kv_cache.h"
#include "kernels/kv/kv_open.h"

#include <string.h>

enum {
    HR_KV_NONE = UINT32_MAX, /* no page, no sequence */
    HR_KV_GEOMS_MAX = 128    /* lengths that extents of a pool come in */
};

/* A page: free (no reference, not cached), held (refs > 0) or cached (no reference, found by its hash). */
typedef struct hr_kv_page {
    uint32_t refs; /* entries of tables that name it */
    bool hashed;   /* in the hash table: whole, and its tokens are known */
    bool cached;
    uint32_t older, newer; /* cached: neighbours in the LRU list */
    uint32_t next;         /* hashed: next page of the same bucket */
    uint64_t serial;       /* hashed: number of this registration, from 1 on, never used twice */
    uint64_t parent;       /* hashed: serial of the page before it in its prompt, 0: it is the first */
    uint64_t hash;
} hr_kv_page;

/* What the allocator knows of a sequence; hr_kv_seq is what kernels see. */
typedef struct hr_kv_slot {
    bool open, paged;
    uint32_t keep;     /* pages that cut leaves: those prepared at open */
    uint32_t first, n; /* extent: granules first..first + n - 1 */
    uint32_t known;    /* positions at the start whose tokens are in prompts */
    uint32_t hashed;   /* pages at the start that were offered to the hash table */
} hr_kv_slot;

struct hr_kv_cache {
    hr_kv_cache_config config; /* alloc resolved */
    hr_kv_geom geom;           /* pages; without pages: of a sequence of full capacity */
    hr_kv_geom *geoms;         /* [n_geoms + 1] by granules; NULL with pages alone */
    uint32_t n_geoms;          /* granules of a sequence of full capacity */
    uint32_t granule_rows;     /* positions a granule */
    size_t granule_bytes[HR_KV_PLANES];
    size_t granule_total; /* all planes */
    uint32_t n_granules;
    uint8_t *arena[HR_KV_PLANES]; /* V of paged layouts: half a memory page after the mapping (kv_cache.c) */
    size_t arena_bytes[HR_KV_PLANES];
    uint8_t *open_arena; /* [max_seqs][open_bytes] open groups of K (kv_open.h), apart from granules and budget */
    size_t open_bytes;   /* 0 unless K is i4kc */
    hr_kv_seq *seqs;     /* [max_seqs] */
    hr_kv_slot *slots;   /* [max_seqs] */
    uint64_t *marks;     /* one bit for each 4 KiB of the largest arena */

    uint32_t *extents; /* [max_seqs] sequences that have an extent, by place */
    uint32_t n_extents, extent_granules;
    uint32_t closed; /* requests since the last compaction */

    bool pages;             /* paged or hybrid */
    uint32_t n_pages;       /* of the whole arena */
    uint32_t granule_pages; /* pages a granule */
    uint32_t seq_pages;     /* entries of one table */
    uint32_t full_pages;    /* pages of a sequence of full capacity */
    uint32_t *tables;       /* [max_seqs][seq_pages]; HR_KV_NONE: no page here */
    hr_kv_page *page;       /* [n_pages] */
    size_t page_bytes[HR_KV_PLANES];
    size_t page_total;                 /* all planes */
    uint32_t *free;                    /* [n_pages] stack of free pages, the next one last; paged in any order only */
    uint32_t n_held;                   /* pages with references */
    uint32_t n_cached, oldest, newest; /* the LRU list */
    uint32_t high;                     /* hybrid: pages from here on are taken */
    uint64_t *cover;                   /* [n_pages][4] one bit a position, for sums */

    int32_t *prompts;     /* [max_seqs][capacity]; shared prefixes only, as all that follows */
    int32_t *page_tokens; /* [n_pages][page_size] of hashed pages */
    uint32_t *buckets;    /* [n_buckets] first page, a power of two */
    uint32_t n_buckets;
    uint64_t serial;    /* of the last registration */
    uint64_t hash_mask; /* bits of hashes that count: all; tests leave few, so that different pages meet */

    hr_kv_stats counts; /* the counters; the rest is summed when asked for */
};

static inline uint32_t *hr_kv_table(const hr_kv_cache *c, uint32_t seq) {
    return c->tables + (size_t)seq * c->seq_pages;
}
/* Pages that hold positions 0..len-1. */
static inline uint32_t hr_kv_pages_for(const hr_kv_cache *c, uint32_t len) {
    return len / c->geom.page_size + (len % c->geom.page_size != 0);
}
static inline uint32_t hr_kv_granules_for(const hr_kv_cache *c, uint32_t len) {
    return len ? (len - 1) / c->granule_rows + 1 : 1;
}
/* Free pages of the whole arena, those below the last extent included. */
static inline uint32_t hr_kv_pages_free(const hr_kv_cache *c) {
    return c->n_pages - c->n_held - c->n_cached - c->extent_granules * c->granule_pages;
}
static inline bool hr_kv_any_gone(const hr_kv_seq *s) {
    return s->gone_from < s->gone_to;
}
/* Whether all positions from..to-1 are gone. */
static inline bool hr_kv_all_gone(const hr_kv_seq *s, uint32_t from, uint32_t to) {
    return from >= s->gone_from && to <= s->gone_to;
}

/* Live positions in the open group, and what each has more bytes than a closed one, in all layers and heads. */
static inline uint32_t hr_kv_open_rows(const hr_kv_seq *s) {
    const uint32_t closed = hr_kv_closed(s->g, s->len), from = s->gone_to > closed ? s->gone_to : closed;
    return s->len - from;
}
static inline uint64_t hr_kv_open_excess(const hr_kv_geom *g) {
    return (uint64_t)g->n_layers * g->n_heads *
           (2 * (size_t)g->head_dim - g->row_bytes[HR_KV_K] - g->row_bytes[HR_KV_KS]);
}

/* ---- extents: kv_alloc_extents.c ---- */

/* Gives seq an extent for len positions. ERR_MEMORY: nothing has changed. */
hr_status hr_kv_extent_open(hr_kv_cache *c, uint32_t seq, uint32_t len);
void hr_kv_extent_close(hr_kv_cache *c, uint32_t seq);
/* Moves seq into a longer extent if len positions do not fit into its own. */
hr_status hr_kv_extent_grow(hr_kv_cache *c, uint32_t seq, uint32_t len);
/* Slides all extents down to the first granule. */
void hr_kv_extents_compact(hr_kv_cache *c);
/* First granule behind the last extent. */
uint32_t hr_kv_extents_end(const hr_kv_cache *c);
/* Places *base of an extent that starts at granule first. */
void hr_kv_extent_place(const hr_kv_cache *c, hr_kv_seq *s, uint32_t first, uint32_t n);

/* ---- pages: kv_alloc_pages.c ---- */

/* Makes every page of positions from..to-1 that are not in gone_from..gone_to-1 seq's own, to be written: takes free ones,
 * copies those that others see, and takes changed ones out of the hash table. ERR_MEMORY: nothing has changed. */
hr_status hr_kv_pages_prepare(hr_kv_cache *c, uint32_t seq, uint32_t from, uint32_t to, uint32_t gone_from,
                              uint32_t gone_to);
/* Pages that could be had: free or cached. */
uint32_t hr_kv_pages_available(const hr_kv_cache *c);
/* One reference less. keep: a page that its hash can find becomes cached. */
void hr_kv_page_release(hr_kv_cache *c, uint32_t page, bool keep);
/* One reference more to a page in whatever state. */
void hr_kv_page_acquire(hr_kv_cache *c, uint32_t page);
/* Takes the cached page out of the LRU list and frees it. */
void hr_kv_page_evict(hr_kv_cache *c, uint32_t page);
void hr_kv_page_copy(hr_kv_cache *c, uint32_t from, uint32_t to);

/* ---- prefixes: kv_prefix.c ---- */

/* Cached or held pages that hold the start of the prompt, in order, into pages[]; returns how many (never all of the prompt). */
uint32_t hr_kv_prefix_find(const hr_kv_cache *c, const int32_t *prompt, uint32_t n, uint32_t *pages);
/* Offers the whole pages of seq whose tokens are known to the hash table. */
void hr_kv_prefix_offer(hr_kv_cache *c, uint32_t seq);
/* Takes a page out of the hash table. */
void hr_kv_prefix_forget(hr_kv_cache *c, uint32_t page);

/* ---- both: kv_hybrid.c ---- */

/* The highest free page behind the last extent. Where there is none, the oldest cached page or a compaction makes one: the
 * caller knows from hr_kv_hybrid_available that it can. */
uint32_t hr_kv_hybrid_page(hr_kv_cache *c);
/* Pages that could be had: free or cached ones, and what a compaction would free if one is allowed. */
uint32_t hr_kv_hybrid_available(const hr_kv_cache *c);
/* The first granule with a page in use; cached ones count if said. */
uint32_t hr_kv_hybrid_floor(const hr_kv_cache *c, bool with_cached);
/* No page stays below that granule: cached ones are evicted, held ones move up. The caller knows that there is room. */
void hr_kv_hybrid_clear(hr_kv_cache *c, uint32_t granule);

/* ---- sums: kv_check.c ---- */

/* Marks the live positions of pages in c->cover and returns how many there are, a shared one once. */
uint64_t hr_kv_cover(const hr_kv_cache *c);

/* ---- rows: kv_seq_ops.c ---- */

/* Copies rows and scales of positions from..to-1, run by run. */
void hr_kv_rows_copy(const hr_kv_cache *c, const hr_kv_seq *from_seq, const hr_kv_seq *to_seq, uint32_t from,
                     uint32_t to);

/* ---- memory: kv_memory.c ---- */

/* Zeroed memory for an arena, `shift` bytes after the start of what is mapped; NULL: there is none. */
uint8_t *hr_kv_memory_alloc(const hr_kv_cache *c, size_t bytes, size_t shift);
void hr_kv_memory_free(const hr_kv_cache *c, uint8_t *at, size_t bytes, size_t shift);
/* hr_kv_open_at for views of this cache; open lies in its memory. */
void hr_kv_memory_open_at(const hr_kv_cache *c, const hr_kv_seq *from, uint32_t len, uint8_t *open);

/* Within the cache's memory; they may overlap. */
static inline void hr_kv_memory_copy(const hr_kv_cache *c, uint8_t *to, const uint8_t *from, size_t bytes) {
    if (c->config.memory)
        c->config.memory->copy(c->config.memory->context, to, from, bytes);
    else
        memmove(to, from, bytes);
}
/* Between it and the process's memory. */
static inline void hr_kv_memory_write(const hr_kv_cache *c, uint8_t *to, const void *from, size_t bytes) {
    if (c->config.memory)
        c->config.memory->write(c->config.memory->context, to, from, bytes);
    else
        memcpy(to, from, bytes);
}
static inline void hr_kv_memory_read(const hr_kv_cache *c, void *to, const uint8_t *from, size_t bytes) {
    if (c->config.memory)
        c->config.memory->read(c->config.memory->context, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

#endif
