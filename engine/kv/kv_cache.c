#include "engine/kv/kv_cache.h"
#include "kernels/base/memory.h"

#include <string.h>

enum { OS_PAGE = 4096 };

struct hr_kv_cache {
    hr_kv_geom geom;
    uint32_t max_seqs, capacity; /* capacity as asked for: positions that a sequence may hold */
    uint32_t n_extents;          /* per-request: sequences; paged: pages */
    uint32_t pages_per_seq;      /* paged: entries of one table */
    uint8_t *arena[HR_KV_PLANES];
    size_t arena_bytes[HR_KV_PLANES];
    hr_kv_seq *seqs;  /* [max_seqs] */
    uint32_t *tables; /* [max_seqs][pages_per_seq] */
    uint32_t *free;   /* [n_extents] stack of free pages, the next one last */
    uint32_t n_free;
    uint64_t *marks; /* one bit for each 4 KiB of the largest arena, for hr_kv_cache_bytes */
};

/* Geometry, number of extents and bytes of each arena. */
static hr_status plan(const hr_kv_cache_config *c, hr_kv_cache *cache) {
    if (!c->max_seqs) HR_FAIL(HR_ERR_INPUT, "a KV cache for 0 sequences holds nothing");
    HR_TRY(hr_kv_geom_init(&cache->geom, c->layout, c->n_layers, c->n_heads, c->head_dim, c->k_type, c->v_type,
                           c->capacity, c->page_size));
    const hr_kv_geom *g = &cache->geom;
    cache->max_seqs = c->max_seqs, cache->capacity = c->capacity;
    size_t extents = c->max_seqs;
    if (g->page_size) {
        /* Full sequences end in the page of their last position; the geometry may be rounded further. */
        cache->pages_per_seq = g->n_blocks * g->block / g->page_size;
        const size_t full = ((size_t)c->capacity + g->page_size - 1) / g->page_size;
        extents = c->pool_pages ? c->pool_pages : full * c->max_seqs;
    }
    if (extents > UINT32_MAX) HR_FAIL(HR_ERR_INPUT, "a KV cache of %zu pages is too large", extents);
    cache->n_extents = (uint32_t)extents;
    size_t total = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        const size_t bytes = cache->arena_bytes[x] = hr_mul(hr_kv_extent_bytes(g, x), extents);
        if (bytes == SIZE_MAX || __builtin_add_overflow(total, bytes, &total))
            HR_FAIL(HR_ERR_INPUT, "a KV cache of %u sequences of %u positions is too large", c->max_seqs, c->capacity);
    }
    return HR_OK;
}

hr_status hr_kv_cache_plan(const hr_kv_cache_config *config, uint64_t *bytes) {
    hr_kv_cache cache = {0};
    HR_TRY(plan(config, &cache));
    *bytes = hr_kv_cache_mapped(&cache);
    return HR_OK;
}

static void shuffle(uint32_t *list, uint32_t n, uint64_t seed) {
    for (uint32_t i = n; i-- > 1;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        const uint32_t j = (uint32_t)((seed >> 33) % (i + 1)), t = list[i];
        list[i] = list[j], list[j] = t;
    }
}

static hr_status allocate(hr_kv_cache *cache, const hr_kv_cache_config *c) {
    const hr_kv_geom *g = &cache->geom;
    size_t largest = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!cache->arena_bytes[x]) continue;
        cache->arena[x] = hr_pages_alloc(cache->arena_bytes[x], !c->no_huge_pages);
        if (!cache->arena[x])
            HR_FAIL(HR_ERR_MEMORY, "out of memory for %.1f MB of KV cache; try fewer sequences or a shorter context",
                    (double)hr_kv_cache_mapped(cache) / 1e6);
        largest = cache->arena_bytes[x] > largest ? cache->arena_bytes[x] : largest;
    }
    cache->seqs = hr_calloc(cache->max_seqs, sizeof *cache->seqs);
    cache->marks = hr_calloc(largest / OS_PAGE / 64 + 1, sizeof *cache->marks);
    if (g->page_size) {
        cache->tables = hr_calloc(hr_mul(cache->max_seqs, cache->pages_per_seq), sizeof *cache->tables);
        cache->free = hr_calloc(cache->n_extents, sizeof *cache->free);
    }
    if (!cache->seqs || !cache->marks || (g->page_size && (!cache->tables || !cache->free)))
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of the KV cache");
    for (uint32_t s = 0; s < cache->max_seqs; s++) {
        hr_kv_seq *seq = &cache->seqs[s];
        seq->g = g;
        if (g->page_size) seq->table = cache->tables + (size_t)s * cache->pages_per_seq;
        for (int x = 0; x < HR_KV_PLANES; x++) {
            if (cache->arena[x])
                seq->base[x] = cache->arena[x] + (g->page_size ? 0 : (size_t)s * hr_kv_extent_bytes(g, x));
        }
    }
    if (g->page_size) {
        cache->n_free = cache->n_extents;
        for (uint32_t i = 0; i < cache->n_free; i++) cache->free[i] = cache->n_free - 1 - i;
        if (c->scatter) shuffle(cache->free, cache->n_free, c->scatter);
    }
    return HR_OK;
}

hr_status hr_kv_cache_create(const hr_kv_cache_config *config, hr_kv_cache **out) {
    *out = NULL;
    hr_kv_cache *cache = hr_calloc(1, sizeof *cache);
    if (!cache) HR_FAIL(HR_ERR_MEMORY, "out of memory for a KV cache");
    hr_status status = plan(config, cache);
    if (status == HR_OK) status = allocate(cache, config);
    if (status != HR_OK) {
        hr_kv_cache_destroy(cache);
        return status;
    }
    *out = cache;
    return HR_OK;
}

void hr_kv_cache_destroy(hr_kv_cache *cache) {
    if (!cache) return;
    for (int x = 0; x < HR_KV_PLANES; x++) hr_pages_free(cache->arena[x], cache->arena_bytes[x]);
    hr_free(cache->seqs);
    hr_free(cache->tables);
    hr_free(cache->free);
    hr_free(cache->marks);
    hr_free(cache);
}

void hr_kv_cache_touch(hr_kv_cache *cache, unsigned thread, unsigned n_threads) {
    for (int x = 0; x < HR_KV_PLANES; x++) {
        const size_t pages = (cache->arena_bytes[x] + OS_PAGE - 1) / OS_PAGE;
        for (size_t p = pages * thread / n_threads; p < pages * (thread + 1) / n_threads; p++)
            *(volatile uint8_t *)(cache->arena[x] + p * OS_PAGE) = 0;
    }
}

/* Pages that hold positions 0..len-1. */
static uint32_t pages_for(const hr_kv_cache *cache, uint32_t len) {
    const uint32_t p = cache->geom.page_size;
    return len / p + (len % p != 0);
}

hr_status hr_kv_cache_reserve(hr_kv_cache *cache, uint32_t seq, uint32_t new_len) {
    if (seq >= cache->max_seqs)
        HR_FAIL(HR_ERR_INPUT, "sequence %u: the KV cache was made for %u", seq, cache->max_seqs);
    hr_kv_seq *s = &cache->seqs[seq];
    if (new_len > cache->capacity)
        HR_FAIL(HR_ERR_INPUT, "sequence %u: %u positions do not fit into a context of %u", seq, new_len,
                cache->capacity);
    if (new_len <= s->len) return HR_OK;
    if (cache->geom.page_size) {
        const uint32_t have = pages_for(cache, s->len), want = pages_for(cache, new_len);
        if (want - have > cache->n_free)
            HR_FAIL(HR_ERR_MEMORY, "sequence %u: %u KV pages are needed and %u are free; shorten or end a sequence",
                    seq, want - have, cache->n_free);
        uint32_t *table = cache->tables + (size_t)seq * cache->pages_per_seq;
        for (uint32_t i = have; i < want; i++) table[i] = cache->free[--cache->n_free];
    }
    s->len = new_len;
    return HR_OK;
}

void hr_kv_cache_cut(hr_kv_cache *cache, uint32_t seq, uint32_t len) {
    hr_kv_seq *s = &cache->seqs[seq];
    if (len >= s->len) return;
    if (cache->geom.page_size) {
        /* last page first, so that an append after the cut gets the same page again */
        for (uint32_t i = pages_for(cache, s->len); i-- > pages_for(cache, len);)
            cache->free[cache->n_free++] = s->table[i];
    }
    s->len = len;
}

const hr_kv_seq *hr_kv_cache_view(const hr_kv_cache *cache, uint32_t seq) {
    return &cache->seqs[seq];
}

uint64_t hr_kv_cache_mapped(const hr_kv_cache *cache) {
    uint64_t total = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) total += cache->arena_bytes[x];
    return total;
}

uint32_t hr_kv_cache_free_pages(const hr_kv_cache *cache) {
    return cache->n_free;
}

/* Marks the memory pages of `bytes` from `offset` on and returns how many had no mark yet. */
static uint64_t mark(uint64_t *marks, size_t offset, size_t bytes) {
    uint64_t fresh = 0;
    for (size_t p = offset / OS_PAGE; p <= (offset + bytes - 1) / OS_PAGE; p++) {
        const uint64_t bit = (uint64_t)1 << p % 64;
        fresh += !(marks[p / 64] & bit);
        marks[p / 64] |= bit;
    }
    return fresh;
}

void hr_kv_cache_bytes(const hr_kv_cache *cache, uint64_t *needed, uint64_t *touched) {
    const hr_kv_geom *g = &cache->geom;
    *needed = *touched = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!cache->arena[x]) continue;
        memset(cache->marks, 0, (cache->arena_bytes[x] / OS_PAGE / 64 + 1) * sizeof *cache->marks);
        for (uint32_t s = 0; s < cache->max_seqs; s++) {
            const hr_kv_seq *seq = &cache->seqs[s];
            *needed += (uint64_t)seq->len * g->n_layers * g->n_heads * g->row_bytes[x];
            for (uint32_t l = 0; l < g->n_layers; l++) {
                for (uint32_t h = 0; h < g->n_heads; h++) {
                    for (uint32_t pos = 0; pos < seq->len;) {
                        const hr_kv_rows run = hr_kv_run(seq, l, h, pos);
                        const uint32_t n = run.n < seq->len - pos ? run.n : seq->len - pos;
                        const size_t at = (size_t)(run.at[x] - cache->arena[x]);
                        if (run.stride[x] == g->row_bytes[x]) {
                            *touched += OS_PAGE * mark(cache->marks, at, n * g->row_bytes[x]);
                        } else {
                            for (uint32_t i = 0; i < n; i++)
                                *touched += OS_PAGE * mark(cache->marks, at + i * run.stride[x], g->row_bytes[x]);
                        }
                        pos += n;
                    }
                }
            }
        }
    }
}
