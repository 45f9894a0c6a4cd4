/* kv_cache.h - the KV memory of an engine: planes (K, V, their scales) as arenas, and where each sequence lies in them.
 *
 * Allocators. per-request: one extent of full capacity per sequence, for every layout but paged. paged: pages of a pool
 * with a free list and a table per sequence, for the layout paged; a page is handed out when its first position is
 * reserved and goes back when the sequence is cut below it.
 *
 * Invariants: (1) every page is free or in exactly one table; (2) a paged sequence holds ceil(len / page) pages;
 * (3) no allocation after create. Not thread-safe; kernels read views while nobody reserves or cuts. */
#ifndef HR_KV_CACHE_H
#define HR_KV_CACHE_H

#include "kernels/kv/kv_run.h"

typedef struct hr_kv_cache_config {
    hr_kv_layout layout;
    uint32_t n_layers, n_heads, head_dim; /* n_heads: KV heads */
    hr_dtype k_type, v_type;
    uint32_t page_size;  /* paged only */
    uint32_t max_seqs;   /* sequences that may live at once */
    uint32_t capacity;   /* positions each may hold */
    uint32_t pool_pages; /* paged: pages in the pool; 0: enough for max_seqs full sequences */
    bool no_huge_pages;  /* do not ask for huge pages */
    uint64_t scatter;    /* paged: not 0: the free list starts in an order shuffled by this seed (for tests) */
} hr_kv_cache_config;

typedef struct hr_kv_cache hr_kv_cache;

/* Bytes that create would map. */
hr_status hr_kv_cache_plan(const hr_kv_cache_config *config, uint64_t *bytes);
/* Arenas are 2 MiB aligned and not touched. ERR_MEMORY with the figure. */
hr_status hr_kv_cache_create(const hr_kv_cache_config *config, hr_kv_cache **out);
void hr_kv_cache_destroy(hr_kv_cache *cache);
/* First touch of share `thread` of `n_threads` of every arena: writes a zero into each page. Before the first use. */
void hr_kv_cache_touch(hr_kv_cache *cache, unsigned thread, unsigned n_threads);

/* Makes room for positions up to new_len of seq and sets its len to new_len (never shorter than it is): the caller
 * appends K and V of the new ones next. ERR_INPUT beyond the capacity, ERR_MEMORY when no page is left; then nothing
 * has changed. */
hr_status hr_kv_cache_reserve(hr_kv_cache *cache, uint32_t seq, uint32_t new_len);
/* Shortens seq to len (a longer len changes nothing) and returns pages that hold no position. */
void hr_kv_cache_cut(hr_kv_cache *cache, uint32_t seq, uint32_t len);
/* Borrowed; follows every reserve and cut. */
const hr_kv_seq *hr_kv_cache_view(const hr_kv_cache *cache, uint32_t seq);

uint64_t hr_kv_cache_mapped(const hr_kv_cache *cache);     /* bytes of all arenas */
uint32_t hr_kv_cache_free_pages(const hr_kv_cache *cache); /* 0 unless paged */
/* needed: bytes of the rows and scales of all live positions. touched: the 4 KiB pages of memory that these rows lie
 * on, each counted once. */
void hr_kv_cache_bytes(const hr_kv_cache *cache, uint64_t *needed, uint64_t *touched);

#endif
