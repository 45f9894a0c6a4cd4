/* kv_hybrid.c - extents and pages in one row of granules, and so under one budget: extents from below, pages from above.
 *
 * No page lies below the end of the last extent. Either side takes what is free between them; where that does not suffice,
 * cached pages go, extents slide down and pages move up, so that with compaction allowed a request fails only when the
 * bytes are truly not there. */
#include "engine/kv/kv_internal.h"

#include <string.h>

static bool is_free(const hr_kv_cache *c, uint32_t page) {
    return !c->page[page].refs && !c->page[page].cached;
}

/* The highest free page from `low` on, or HR_KV_NONE. */
static uint32_t highest(hr_kv_cache *c, uint32_t low) {
    while (c->high > low && !is_free(c, c->high - 1)) c->high--;
    return c->high > low ? --c->high : HR_KV_NONE; /* the caller takes it */
}

uint32_t hr_kv_hybrid_page(hr_kv_cache *c) {
    for (;;) {
        const uint32_t page = highest(c, hr_kv_extents_end(c) * c->granule_pages);
        if (page != HR_KV_NONE) return page;
        if (c->n_cached)
            hr_kv_page_evict(c, c->oldest);
        else
            hr_kv_extents_compact(c);
    }
}

uint32_t hr_kv_hybrid_available(const hr_kv_cache *c) {
    const uint32_t extents = c->config.compact_every ? c->extent_granules : hr_kv_extents_end(c);
    return c->n_pages - c->n_held - extents * c->granule_pages;
}

uint32_t hr_kv_hybrid_floor(const hr_kv_cache *c, bool with_cached) {
    uint32_t page = hr_kv_extents_end(c) * c->granule_pages;
    while (page < c->n_pages && !c->page[page].refs && !(with_cached && c->page[page].cached)) page++;
    return page / c->granule_pages;
}

/* A held page gets the place of a free one: rows, entries of tables, name. */
static void move(hr_kv_cache *c, uint32_t from, uint32_t to) {
    hr_kv_page_copy(c, from, to);
    c->counts.moved_bytes += c->page_total;
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) {
        if (!c->slots[seq].open || !c->slots[seq].paged) continue;
        uint32_t *table = hr_kv_table(c, seq);
        for (uint32_t i = 0; i < c->full_pages; i++)
            if (table[i] == from) table[i] = to;
    }
    if (c->page[from].hashed) {
        uint32_t *link = &c->buckets[c->page[from].hash & (c->n_buckets - 1)];
        while (*link != from) link = &c->page[*link].next;
        *link = to;
        memcpy(c->page_tokens + (size_t)to * c->geom.page_size, c->page_tokens + (size_t)from * c->geom.page_size,
               c->geom.page_size * sizeof *c->page_tokens);
    }
    c->page[to] = c->page[from];
    c->page[from] = (hr_kv_page){0};
}

void hr_kv_hybrid_clear(hr_kv_cache *c, uint32_t granule) {
    const uint32_t end = granule * c->granule_pages;
    for (uint32_t page = 0; page < end; page++)
        if (c->page[page].cached) hr_kv_page_evict(c, page);
    for (uint32_t page = 0; page < end; page++) {
        if (!c->page[page].refs) continue;
        uint32_t to = highest(c, end);
        if (to == HR_KV_NONE) {
            hr_kv_page_evict(c, c->oldest);
            to = highest(c, end);
        }
        move(c, page, to);
    }
}
