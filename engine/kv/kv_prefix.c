/* kv_prefix.c - whole pages of prompts, found again by what they hold.
 *
 * K and V of a position follow from all tokens up to it, so a page is named by its own tokens and by the page before it. Each
 * registration has a serial that is never used twice; the name of a page is (serial of the page before it, its tokens).
 * The hash of that name finds candidates; parent and tokens of a candidate are compared in full, so that equal names
 * mean equal prompts from the first token on, whatever the hash does. A page whose parent was taken away is not found
 * again and leaves by the LRU list. */
#include "engine/kv/kv_internal.h"

#include "kernels/base/random.h"

#include <string.h>

static uint64_t hash_of(const hr_kv_cache *c, uint64_t parent, const int32_t *tokens) {
    uint64_t h = hr_mix64(parent + HR_GOLDEN);
    for (uint32_t i = 0; i < c->geom.page_size; i++) h = hr_mix64(h ^ (uint32_t)tokens[i]) + HR_GOLDEN;
    return h & c->hash_mask;
}

static int32_t *tokens_of(const hr_kv_cache *c, uint32_t page) {
    return c->page_tokens + (size_t)page * c->geom.page_size;
}

/* The page of that name, or HR_KV_NONE. */
static uint32_t find(const hr_kv_cache *c, uint64_t hash, uint64_t parent, const int32_t *tokens) {
    uint32_t page = c->buckets[hash & (c->n_buckets - 1)];
    for (; page != HR_KV_NONE; page = c->page[page].next) {
        const hr_kv_page *p = &c->page[page];
        if (p->hash == hash && p->parent == parent &&
            memcmp(tokens_of(c, page), tokens, c->geom.page_size * sizeof *tokens) == 0)
            return page;
    }
    return HR_KV_NONE;
}

uint32_t hr_kv_prefix_find(const hr_kv_cache *c, const int32_t *prompt, uint32_t n, uint32_t *pages) {
    const uint32_t p = c->geom.page_size;
    uint64_t parent = 0;
    uint32_t found = 0;
    while (n - found * p > p) { /* a position is left to compute */
        const int32_t *tokens = prompt + found * p;
        const uint32_t page = find(c, hash_of(c, parent, tokens), parent, tokens);
        if (page == HR_KV_NONE) break;
        pages[found++] = page;
        parent = c->page[page].serial;
    }
    return hr_kv_closed(&c->geom, found * p) / p; /* an open group of K is not shared */
}

void hr_kv_prefix_forget(hr_kv_cache *c, uint32_t page) {
    hr_kv_page *p = &c->page[page];
    uint32_t *link = &c->buckets[p->hash & (c->n_buckets - 1)];
    while (*link != page) link = &c->page[*link].next;
    *link = p->next;
    p->hashed = false;
}

static void enter(hr_kv_cache *c, uint32_t page, uint64_t hash, uint64_t parent, const int32_t *tokens) {
    hr_kv_page *p = &c->page[page];
    if (p->hashed) hr_kv_prefix_forget(c, page); /* under a parent that is no longer known */
    memcpy(tokens_of(c, page), tokens, c->geom.page_size * sizeof *tokens);
    uint32_t *bucket = &c->buckets[hash & (c->n_buckets - 1)];
    p->hashed = true, p->hash = hash, p->parent = parent, p->serial = ++c->serial;
    p->next = *bucket, *bucket = page;
}

void hr_kv_prefix_offer(hr_kv_cache *c, uint32_t seq) {
    hr_kv_slot *slot = &c->slots[seq];
    const hr_kv_seq *s = &c->seqs[seq];
    if (!c->prompts || !slot->paged) return;
    const uint32_t p = c->geom.page_size, known = slot->known < s->len ? slot->known : s->len;
    const uint32_t whole = hr_kv_closed(s->g, known) / p;
    if (slot->hashed >= whole) return;
    const int32_t *prompt = c->prompts + (size_t)seq * c->config.capacity;
    const uint32_t *table = hr_kv_table(c, seq);
    uint64_t parent = 0;
    for (uint32_t i = 0; i < whole && table[i] != HR_KV_NONE; i++) {
        const int32_t *tokens = prompt + i * p;
        const uint64_t hash = hash_of(c, parent, tokens);
        uint32_t page = find(c, hash, parent, tokens);
        if (page == HR_KV_NONE) enter(c, page = table[i], hash, parent, tokens);
        parent = c->page[page].serial;
    }
    slot->hashed = whole;
}
