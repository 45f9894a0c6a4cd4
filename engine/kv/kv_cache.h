/* kv_cache.h - the KV memory of an engine: planes (K, V, their scales) as arenas, an allocator that gives sequences
 * their places in them, and the operations on a sequence: open, grow, cut, fork, evict, save, load, close.
 *
 * Allocators (kv_alloc_*.c), legal with the layouts that hr_kv_alloc_check names:
 *     per-request  one extent of full capacity a sequence
 *     pool         one contiguous arena; an extent as long as the request promises, first fit; an extent that outgrows
 *                  its promise moves; compaction after every N closed requests, and where else a request would be refused
 *     paged        pages of a pool, a table a sequence, reference counts, copy on write, full pages of prompts shared by
 *                  hash, pages of closed prompts kept until the least recently used is wanted
 *     hybrid       requests that promise less than the threshold lie in a pool, as `head`; the others in pages. Both
 *                  halves share one budget
 *
 * States of a page:
 *
 *                    reserve                     fork, shared prefix
 *          +-------+ --------> +--------------+ -------------------> +---------------+
 *          | free  |           | owned, ref 1 |                      | shared, ref>1 |
 *          +-------+ <-------- +--------------+ <------------------- +---------------+
 *              ^    cut, close,      |    ^       the others let go,        |
 *              |    evict            |    |       copy on write             | the last one lets go
 *              |            close of |    | found by hash                   v
 *              |  a prompt's page    v    |                           (as from owned)
 *              |              +---------------+
 *              +------------- | cached, ref 0 |   LRU: taken when no page is free
 *                 LRU         +---------------+
 *
 * Invariants, checked by hr_kv_cache_check:
 *  1. Every page is in exactly one state; free pages are in the free list and in no table; cached pages are in the hash
 *     table and in the LRU list and in no sequence's table.
 *  2. The reference count of a page is the number of entries of tables that name it.
 *  3. A page with more than one reference is never written: the writer gets a copy first.
 *  4. Positions [0, len) of a sequence but those gone (gone_from..gone_to - 1) lie on a page or in the extent; a page all of
 *     whose positions are gone is given back.
 *  5. Extents of a pool do not overlap, lie in the arena, and the free ranges between them are maximal.
 *  6. Bytes reserved <= budget at every moment; used <= reserved.
 *  7. A call that fails changes nothing that can be seen.
 *  8. No allocation of memory after create.
 *
 * K of type i4kc (kernels/kv/kv_open.h): the rows of the last, incomplete group of a sequence lie in a plane of their own, one
 * place a sequence, apart from extents, pages and the budget. Prefixes are shared, and positions evicted, by whole groups.
 *
 * Not thread-safe; kernels read views while nobody changes them. */
#ifndef HR_KV_CACHE_H
#define HR_KV_CACHE_H

#include "kernels/kv/kv_run.h"

typedef enum hr_kv_alloc {
    HR_KV_ALLOC_AUTO, /* 0: what the layout needs (hr_kv_alloc_default) */
    HR_KV_PER_REQUEST,
    HR_KV_POOL,
    HR_KV_PAGES,
    HR_KV_HYBRID,
    HR_KV_ALLOC_COUNT
} hr_kv_alloc;
const char *hr_kv_alloc_name(hr_kv_alloc alloc); /* "auto", "per-request", "pool", "paged", "hybrid" */
/* Every name but "auto". ERR_USAGE for another word. */
hr_status hr_kv_alloc_parse(const char *name, hr_kv_alloc *out);
/* What the layout needs when nothing is said: paged layouts pages, the others per-request. */
hr_kv_alloc hr_kv_alloc_default(hr_kv_layout layout);
/* ERR_USAGE naming the rule and what is legal. */
hr_status hr_kv_alloc_check(hr_kv_alloc alloc, hr_kv_layout layout);

/* Memory that arenas lie in: NULL in the configuration is the process's own. Else addresses that only these functions and the
 * owner's kernels may follow; all calls are in order with the owner's work and complete when they return. */
typedef struct hr_kv_memory {
    void *context;
    hr_status (*alloc)(void *context, size_t bytes, uint8_t **out); /* 256-byte aligned; zeroed */
    void (*free)(void *context, uint8_t *at, size_t bytes);
    void (*copy)(void *context, uint8_t *to, const uint8_t *from, size_t bytes); /* both in it; they may overlap */
    void (*write)(void *context, uint8_t *to, const void *from, size_t bytes);   /* from the process's memory */
    void (*read)(void *context, void *to, const uint8_t *from, size_t bytes);    /* to it */
    /* Positions from..to - 1, all layers and heads; NULL: run by run through copy. Views are as the process sees them. */
    void (*copy_rows)(void *context, const hr_kv_seq *source, const hr_kv_seq *target, uint32_t from, uint32_t to);
} hr_kv_memory;

typedef struct hr_kv_cache_config {
    const hr_kv_memory *memory;
    hr_kv_layout layout;
    hr_kv_alloc alloc;
    uint32_t n_layers, n_heads, head_dim; /* n_heads: KV heads */
    hr_dtype k_type, v_type;
    uint32_t page_size;     /* paged layouts only */
    uint32_t max_seqs;      /* sequences that may live at once */
    uint32_t capacity;      /* positions each may hold */
    uint32_t pool_pages;    /* paged: pages in the pool; 0: what the budget holds */
    uint64_t budget_bytes;  /* of all planes; 0: enough for max_seqs full sequences */
    uint32_t threshold;     /* hybrid: promises below it lie in the pool */
    uint32_t compact_every; /* pool, hybrid: closed requests between compactions; 0: never, not even for want of room */
    bool share_prefix;      /* paged, hybrid: full pages of equal prompts are shared */
    bool no_huge_pages;     /* do not ask for huge pages */
    uint64_t scatter;       /* paged: not 0: the free list starts in an order shuffled by this seed */
} hr_kv_cache_config;

typedef struct hr_kv_cache hr_kv_cache;

/* Bytes that create would map. ERR_USAGE for an illegal pair, ERR_MEMORY for a budget that holds no request of full capacity. */
hr_status hr_kv_cache_plan(const hr_kv_cache_config *config, uint64_t *bytes);
/* Arenas are 2 MiB aligned and not touched. ERR_MEMORY with the figure. */
hr_status hr_kv_cache_create(const hr_kv_cache_config *config, hr_kv_cache **out);
void hr_kv_cache_destroy(hr_kv_cache *cache);
/* First touch of share `thread` of `n_threads` of every arena: writes a zero into each page. Before the first use. */
void hr_kv_cache_touch(hr_kv_cache *cache, unsigned thread, unsigned n_threads);

/* What is known of a request before it runs. A promise is no limit: a sequence may grow up to the capacity. */
typedef struct hr_kv_request {
    uint32_t max_len; /* positions it may come to; 0: the capacity */
    /* Positions to prepare at once (prompt and, say, the median output), max_len at most; 0: max_len, in pages none. */
    uint32_t expect_len;
    const int32_t *prompt; /* [n_prompt], for shared prefixes; may be NULL */
    uint32_t n_prompt;
} hr_kv_request;
/* Admits a request as sequence seq, which must be closed. *shared (may be NULL): positions at the start that a cached prefix
 * already holds; len starts there. Never the whole prompt: its last position is left to compute. ERR_MEMORY when there is no
 * room (counted in failed_opens): nothing has changed. ERR_INPUT for an open seq or lengths beyond the capacity. */
hr_status hr_kv_cache_open(hr_kv_cache *cache, uint32_t seq, const hr_kv_request *request, uint32_t *shared);
/* Ends a sequence. ERR_INPUT when it is not open (a double free). */
hr_status hr_kv_cache_close(hr_kv_cache *cache, uint32_t seq);
bool hr_kv_cache_is_open(const hr_kv_cache *cache, uint32_t seq);

/* Makes room for positions up to new_len of seq and sets its len to new_len (never shorter than it is): the caller
 * appends K and V of the new ones next. Opens a closed seq as a request of full capacity. A page that others share is copied
 * first. ERR_INPUT beyond the capacity, ERR_MEMORY when no page is left; then nothing has changed. */
hr_status hr_kv_cache_reserve(hr_kv_cache *cache, uint32_t seq, uint32_t new_len);
/* Says which tokens stand at pos..pos + n - 1: where they are not those of the request's prompt, nothing from there on is
 * shared with others. Who appends what it said at open need not call it. */
void hr_kv_cache_note(hr_kv_cache *cache, uint32_t seq, uint32_t pos, const int32_t *tokens, uint32_t n);
/* Shortens seq to len (a longer len changes nothing) and returns pages that hold no position, but for those prepared at open. */
void hr_kv_cache_cut(hr_kv_cache *cache, uint32_t seq, uint32_t len);

/* `to` (closed) becomes a copy of the first len positions of `from`: pages are shared, extents are copied by runs. ERR_INPUT when
 * from is closed, shorter, or has lost some of these positions, or to is open. */
hr_status hr_kv_cache_fork(hr_kv_cache *cache, uint32_t from, uint32_t to, uint32_t len);
/* Drops positions [sinks, len - window), so that attention sees the first `sinks` and the last `window` positions; positions
 * keep their numbers. Pages without a position left go back. ERR_INPUT for a closed seq, for a window of 0 (the page that
 * is appended to is in use) and for more sinks than there still are: calls may only widen what is gone. */
hr_status hr_kv_cache_evict(hr_kv_cache *cache, uint32_t seq, uint32_t sinks, uint32_t window);

/* Off-load and restore: rows and scales of all positions that are not gone, layer by layer, head by head, K then V, densely:
 * the same bytes from every layout and allocator. */
uint64_t hr_kv_cache_saved_bytes(const hr_kv_cache *cache, uint32_t seq);
void hr_kv_cache_save(const hr_kv_cache *cache, uint32_t seq, void *out);
/* seq must be open and empty, and gets len positions of which gone_from..gone_to - 1 are gone (0, 0: none). */
hr_status hr_kv_cache_load(hr_kv_cache *cache, uint32_t seq, const void *saved, uint32_t len, uint32_t gone_from,
                           uint32_t gone_to);

/* Borrowed; follows every change. */
const hr_kv_seq *hr_kv_cache_view(const hr_kv_cache *cache, uint32_t seq);
/* What views point to, for whoever keeps copies of it elsewhere. Geometry i, NULL past the end; the table of a sequence: entries
 * of all sequences lie one after the other, hr_kv_cache_entries each (0: no pages). */
const hr_kv_geom *hr_kv_cache_geom(const hr_kv_cache *cache, uint32_t i);
uint32_t hr_kv_cache_geom_of(const hr_kv_cache *cache, const hr_kv_geom *g); /* its i */
uint32_t hr_kv_cache_entries(const hr_kv_cache *cache);

typedef struct hr_kv_stats {
    uint64_t mapped_bytes, budget_bytes;
    uint64_t reserved_bytes; /* of extents and of pages that sequences hold; a shared page once */
    uint64_t used_bytes;     /* of rows and scales of live positions; a shared one once */
    uint64_t waste_inside;   /* reserved - used */
    uint64_t waste_between;  /* free bytes between extents that are not one piece: free - largest free piece */
    uint64_t cached_bytes;   /* pages kept for their prefix */
    uint32_t free_pages, open_seqs;
    uint64_t opens, failed_opens;                      /* all counts since create */
    uint64_t prefix_hits, prefix_positions, evictions; /* evictions: cached pages taken for something else */
    uint64_t copies, moves, compactions,
        moved_bytes;     /* copies: pages, on write; moves: extents that outgrew a promise */
    uint64_t compact_ns; /* time spent in compactions */
} hr_kv_stats;
hr_kv_stats hr_kv_cache_stats(const hr_kv_cache *cache);
/* All invariants. ERR_INPUT with the number of the broken one and the page, extent or sequence. */
hr_status hr_kv_cache_check(const hr_kv_cache *cache);

uint64_t hr_kv_cache_mapped(const hr_kv_cache *cache);     /* bytes of all arenas */
uint32_t hr_kv_cache_free_pages(const hr_kv_cache *cache); /* 0 unless paged */
/* needed: bytes of the rows and scales of all live positions. touched: the 4 KiB pages of memory that these rows lie
 * on, each counted once. */
void hr_kv_cache_bytes(const hr_kv_cache *cache, uint64_t *needed, uint64_t *touched);

#endif
