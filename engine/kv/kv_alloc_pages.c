/* kv_alloc_pages.c - pages: references, copies before a write, and the list of cached pages, the least recently used first. */
#include "engine/kv/kv_internal.h"

#include <string.h>

static bool is_identity(const hr_kv_cache *c) {
    return c->config.layout == HR_KV_PAGED_IDENTITY;
}

/* The page goes back to those that nobody has a claim to. */
static void free_page(hr_kv_cache *c, uint32_t page) {
    if (c->free) c->free[hr_kv_pages_free(c) - 1] = page;
    if (page >= c->high) c->high = page + 1;
}

static void lru_remove(hr_kv_cache *c, uint32_t page) {
    hr_kv_page *p = &c->page[page];
    *(p->older == HR_KV_NONE ? &c->oldest : &c->page[p->older].newer) = p->newer;
    *(p->newer == HR_KV_NONE ? &c->newest : &c->page[p->newer].older) = p->older;
    p->cached = false;
    c->n_cached--;
}

static void lru_add(hr_kv_cache *c, uint32_t page) {
    hr_kv_page *p = &c->page[page];
    p->older = c->newest, p->newer = HR_KV_NONE;
    *(c->newest == HR_KV_NONE ? &c->oldest : &c->page[c->newest].newer) = page;
    c->newest = page;
    p->cached = true;
    c->n_cached++;
}

void hr_kv_page_evict(hr_kv_cache *c, uint32_t page) {
    lru_remove(c, page);
    hr_kv_prefix_forget(c, page);
    free_page(c, page);
    c->counts.evictions++;
}

void hr_kv_page_acquire(hr_kv_cache *c, uint32_t page) {
    hr_kv_page *p = &c->page[page];
    if (p->cached) lru_remove(c, page);
    if (!p->refs++) c->n_held++;
}

void hr_kv_page_release(hr_kv_cache *c, uint32_t page, bool keep) {
    hr_kv_page *p = &c->page[page];
    if (--p->refs) return;
    c->n_held--;
    if (keep && p->hashed) {
        lru_add(c, page);
    } else {
        if (p->hashed) hr_kv_prefix_forget(c, page);
        free_page(c, page);
    }
}

/* A free page for entry i of seq's table, with one reference; there is one, or a cached one. */
static uint32_t take(hr_kv_cache *c, uint32_t seq, uint32_t i) {
    uint32_t page;
    if (is_identity(c)) {
        page = seq * c->full_pages + i;
    } else if (!c->free) {
        page = hr_kv_hybrid_page(c);
    } else {
        if (!hr_kv_pages_free(c)) hr_kv_page_evict(c, c->oldest);
        page = c->free[hr_kv_pages_free(c) - 1];
    }
    hr_kv_page_acquire(c, page);
    return page;
}

void hr_kv_page_copy(hr_kv_cache *c, uint32_t from, uint32_t to) {
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (c->arena[x])
            hr_kv_memory_copy(c, c->arena[x] + to * c->page_bytes[x], c->arena[x] + from * c->page_bytes[x],
                              c->page_bytes[x]);
}

uint32_t hr_kv_pages_available(const hr_kv_cache *c) {
    return c->config.alloc == HR_KV_HYBRID ? hr_kv_hybrid_available(c) : hr_kv_pages_free(c) + c->n_cached;
}

/* A group of K that is not gone as a whole needs the pages of all its positions: they are written when it closes.
 * Whether page i of a sequence of `to` positions holds only positions gone_from..gone_to-1. */
static bool is_lost(const hr_kv_cache *c, uint32_t i, uint32_t to, uint32_t gone_from, uint32_t gone_to) {
    const uint32_t p = c->geom.page_size, begin = i * p, end = to - begin > p ? begin + p : to;
    return begin >= gone_from && end <= hr_kv_closed(&c->geom, gone_to);
}

static hr_status no_pages(uint32_t seq, uint32_t need, uint32_t have) {
    HR_FAIL(HR_ERR_MEMORY, "sequence %u: %u KV pages are needed and %u are free; shorten or end a sequence", seq, need,
            have);
}

hr_status hr_kv_pages_prepare(hr_kv_cache *c, uint32_t seq, uint32_t from, uint32_t to, uint32_t gone_from,
                              uint32_t gone_to) {
    if (from >= to) return HR_OK;
    const uint32_t p = c->geom.page_size, begin = hr_kv_closed(&c->geom, from) / p, end = hr_kv_pages_for(c, to);
    uint32_t *table = hr_kv_table(c, seq), need = 0;
    for (uint32_t i = begin; i < end; i++)
        if (!is_lost(c, i, to, gone_from, gone_to)) need += table[i] == HR_KV_NONE || c->page[table[i]].refs > 1;
    const uint32_t have = hr_kv_pages_available(c);
    if (need > have) return no_pages(seq, need, have);
    for (uint32_t i = begin; i < end; i++) {
        if (is_lost(c, i, to, gone_from, gone_to)) continue;
        const uint32_t old = table[i];
        if (old != HR_KV_NONE && c->page[old].refs == 1) {
            if (c->page[old].hashed) hr_kv_prefix_forget(c, old);
            continue;
        }
        table[i] = take(c, seq, i); /* may move other pages, but old is held by others too */
        if (old == HR_KV_NONE) continue;
        if (i * p < from) { /* rows before `from` stay */
            hr_kv_page_copy(c, old, table[i]);
            c->counts.copies++;
        }
        hr_kv_page_release(c, old, false);
    }
    return HR_OK;
}
