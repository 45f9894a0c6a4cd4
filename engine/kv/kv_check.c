/* kv_check.c - sums over a cache, and the check of its invariants (numbers as in kv_cache.h). */
#include "engine/kv/kv_internal.h"

#include <string.h>

enum { OS_PAGE = 4096 };

/* ---- sums ---- */

/* Sets bits from..to-1 of a page's 256 and returns how many were clear. */
static uint32_t cover_bits(uint64_t bits[4], uint32_t from, uint32_t to) {
    uint32_t fresh = 0;
    for (uint32_t w = from / 64; w < 4 && w * 64 < to; w++) {
        const uint32_t lo = from > w * 64 ? from - w * 64 : 0, hi = to - w * 64 < 64 ? to - w * 64 : 64;
        const uint64_t mask = (hi == 64 ? UINT64_MAX : ((uint64_t)1 << hi) - 1) & (UINT64_MAX << lo);
        fresh += (uint32_t)__builtin_popcountll(mask & ~bits[w]);
        bits[w] |= mask;
    }
    return fresh;
}

static uint64_t cover_range(const hr_kv_cache *c, uint32_t seq, uint32_t from, uint32_t to) {
    const uint32_t p = c->geom.page_size, *table = hr_kv_table(c, seq);
    uint64_t fresh = 0;
    for (uint32_t pos = from, n; pos < to; pos += n) {
        n = p - pos % p < to - pos ? p - pos % p : to - pos;
        if (table[pos / p] != HR_KV_NONE)
            fresh += cover_bits(c->cover + (size_t)table[pos / p] * 4, pos % p, pos % p + n);
    }
    return fresh;
}

uint64_t hr_kv_cover(const hr_kv_cache *c) {
    uint64_t live = 0;
    if (!c->pages) return 0;
    memset(c->cover, 0, (size_t)c->n_pages * 4 * sizeof *c->cover);
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) {
        const hr_kv_seq *s = &c->seqs[seq];
        if (!c->slots[seq].paged) continue;
        live += cover_range(c, seq, 0, hr_kv_any_gone(s) ? s->gone_from : s->len);
        if (hr_kv_any_gone(s)) live += cover_range(c, seq, s->gone_to, s->len);
    }
    return live;
}

static uint64_t used_rows(const hr_kv_cache *c) {
    uint64_t rows = hr_kv_cover(c);
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++)
        if (!c->slots[seq].paged) rows += c->seqs[seq].len - (c->seqs[seq].gone_to - c->seqs[seq].gone_from);
    return rows;
}

static uint64_t used_bytes(const hr_kv_cache *c) {
    const hr_kv_geom *g = &c->geom;
    size_t row = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) row += g->row_bytes[x];
    return used_rows(c) * row * g->n_layers * g->n_heads;
}

static uint64_t reserved_bytes(const hr_kv_cache *c) {
    return (uint64_t)c->extent_granules * c->granule_total + (uint64_t)c->n_held * c->page_total;
}

/* Free bytes between extents, but for the largest piece. */
static uint64_t waste_between(const hr_kv_cache *c) {
    if (c->config.alloc != HR_KV_POOL && c->config.alloc != HR_KV_HYBRID) return 0;
    const uint32_t end = c->pages ? hr_kv_hybrid_floor(c, true) : c->n_granules;
    uint32_t at = 0, free = 0, largest = 0;
    for (uint32_t i = 0; i <= c->n_extents; i++) {
        const hr_kv_slot *slot = i < c->n_extents ? &c->slots[c->extents[i]] : NULL;
        const uint32_t piece = (slot ? slot->first : end) - at;
        free += piece;
        if (piece > largest) largest = piece;
        if (slot) at = slot->first + slot->n;
    }
    return (uint64_t)(free - largest) * c->granule_total;
}

hr_kv_stats hr_kv_cache_stats(const hr_kv_cache *c) {
    hr_kv_stats s = c->counts;
    s.mapped_bytes = hr_kv_cache_mapped(c);
    s.budget_bytes = c->config.budget_bytes ? c->config.budget_bytes : s.mapped_bytes;
    s.reserved_bytes = reserved_bytes(c);
    s.used_bytes = used_bytes(c);
    s.waste_inside = s.reserved_bytes - s.used_bytes;
    s.waste_between = waste_between(c);
    s.cached_bytes = (uint64_t)c->n_cached * c->page_total;
    s.free_pages = hr_kv_cache_free_pages(c);
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) s.open_seqs += c->slots[seq].open;
    return s;
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

static uint64_t mark_rows(const hr_kv_cache *c, const hr_kv_seq *s, int x, uint32_t from, uint32_t to) {
    const hr_kv_geom *g = s->g;
    uint64_t fresh = 0;
    for (uint32_t l = 0; l < g->n_layers; l++) {
        for (uint32_t h = 0; h < g->n_heads; h++) {
            for (uint32_t pos = from, n; pos < to; pos += n) {
                const hr_kv_rows run = hr_kv_run(s, l, h, pos);
                const size_t at = (size_t)(run.at[x] - c->arena[x]);
                n = run.n < to - pos ? run.n : to - pos;
                if (run.stride[x] == g->row_bytes[x]) {
                    fresh += mark(c->marks, at, n * g->row_bytes[x]);
                } else {
                    for (uint32_t i = 0; i < n; i++) fresh += mark(c->marks, at + i * run.stride[x], g->row_bytes[x]);
                }
            }
        }
    }
    return fresh;
}

/* The open rows of all sequences. */
static uint64_t mark_open(const hr_kv_cache *c) {
    const hr_kv_geom *g = &c->geom;
    uint64_t fresh = 0;
    if (!c->open_arena) return 0;
    memset(c->marks, 0, (c->open_bytes * c->config.max_seqs / OS_PAGE / 64 + 1) * sizeof *c->marks);
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) {
        const hr_kv_seq *s = &c->seqs[seq];
        const uint32_t n = hr_kv_open_rows(s);
        for (uint32_t i = 0; n && i < g->n_layers * g->n_heads; i++) {
            const uint8_t *at = (const uint8_t *)hr_kv_open_row(s, i / g->n_heads, i % g->n_heads, s->len - n);
            fresh += mark(c->marks, (size_t)(at - c->open_arena), n * g->head_dim * sizeof(uint16_t));
        }
    }
    return fresh;
}

void hr_kv_cache_bytes(const hr_kv_cache *c, uint64_t *needed, uint64_t *touched) {
    *needed = used_bytes(c), *touched = 0;
    for (uint32_t seq = 0; c->open_arena && seq < c->config.max_seqs; seq++)
        *needed += hr_kv_open_rows(&c->seqs[seq]) * hr_kv_open_excess(&c->geom);
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!c->arena[x]) continue;
        memset(c->marks, 0, (c->arena_bytes[x] / OS_PAGE / 64 + 1) * sizeof *c->marks);
        for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) {
            const hr_kv_seq *s = &c->seqs[seq];
            const bool keys = x == HR_KV_K || x == HR_KV_KS, hole = hr_kv_any_gone(s);
            const uint32_t len = keys ? hr_kv_closed(s->g, s->len) : s->len;
            *touched += OS_PAGE * mark_rows(c, s, x, 0, hole && s->gone_from < len ? s->gone_from : len);
            if (hole) *touched += OS_PAGE * mark_rows(c, s, x, s->gone_to, len);
        }
    }
    *touched += OS_PAGE * mark_open(c);
}

/* ---- invariants ---- */

#define BROKEN(n, ...) HR_FAIL(HR_ERR_INPUT, "KV invariant " #n ": " __VA_ARGS__)

/* Entries of tables that name each page, into the second word of its cover. */
static hr_status count_refs(const hr_kv_cache *c) {
    memset(c->cover, 0, (size_t)c->n_pages * 4 * sizeof *c->cover);
    for (size_t i = 0; i < (size_t)c->config.max_seqs * c->seq_pages; i++) {
        if (c->tables[i] == HR_KV_NONE) continue;
        if (c->tables[i] >= c->n_pages) BROKEN(4, "a table names page %u of %u", c->tables[i], c->n_pages);
        c->cover[(size_t)c->tables[i] * 4 + 1]++;
    }
    return HR_OK;
}

static bool in_bucket(const hr_kv_cache *c, uint32_t page) {
    uint32_t at = c->buckets[c->page[page].hash & (c->n_buckets - 1)];
    while (at != HR_KV_NONE && at != page) at = c->page[at].next;
    return at == page;
}

static hr_status check_lists(const hr_kv_cache *c) {
    uint32_t n = 0, last = HR_KV_NONE;
    for (uint32_t page = c->oldest; page != HR_KV_NONE; last = page, page = c->page[page].newer, n++) {
        if (n > c->n_cached || !c->page[page].cached || c->page[page].older != last)
            BROKEN(1, "page %u stands wrongly in the LRU list", page);
    }
    if (n != c->n_cached || c->newest != last) BROKEN(1, "the LRU list has %u pages, counted are %u", n, c->n_cached);
    const uint32_t end = hr_kv_extents_end(c) * c->granule_pages;
    for (uint32_t i = 0; c->free && i < hr_kv_pages_free(c); i++) {
        const uint32_t page = c->free[i];
        if (page >= c->n_pages || c->page[page].refs || c->page[page].cached || c->cover[(size_t)page * 4])
            BROKEN(1, "page %u is in the free list twice, or has an owner", page);
        c->cover[(size_t)page * 4] = 1;
    }
    for (uint32_t page = 0; page < end; page++)
        if (c->page[page].refs || c->page[page].cached) BROKEN(5, "page %u lies among the extents", page);
    return HR_OK;
}

static hr_status check_pages(const hr_kv_cache *c) {
    uint32_t held = 0, cached = 0, hashed = 0;
    HR_TRY(count_refs(c));
    for (uint32_t page = 0; page < c->n_pages; page++) {
        const hr_kv_page *p = &c->page[page];
        const uint32_t refs = (uint32_t)c->cover[(size_t)page * 4 + 1];
        if (refs != p->refs) BROKEN(2, "page %u has %u references, tables name it %u times", page, p->refs, refs);
        if (p->cached && (p->refs || !p->hashed)) BROKEN(1, "page %u is cached and has an owner or no name", page);
        if (p->hashed && !p->refs && !p->cached) BROKEN(1, "page %u is free and in the hash table", page);
        if (p->hashed && !in_bucket(c, page)) BROKEN(1, "page %u is not in its bucket", page);
        held += p->refs > 0, cached += p->cached, hashed += p->hashed;
    }
    if (held != c->n_held || cached != c->n_cached)
        BROKEN(1, "%u pages are held and %u cached, counted are %u and %u", held, cached, c->n_held, c->n_cached);
    uint32_t chained = 0;
    for (uint32_t b = 0; b < c->n_buckets; b++)
        for (uint32_t page = c->buckets[b]; page != HR_KV_NONE && chained <= hashed; page = c->page[page].next)
            chained++;
    if (chained != hashed) BROKEN(1, "%u pages have a name, %u are in buckets", hashed, chained);
    return check_lists(c);
}

static hr_status check_table(const hr_kv_cache *c, uint32_t seq) {
    const hr_kv_seq *s = &c->seqs[seq];
    const uint32_t p = c->geom.page_size, *table = hr_kv_table(c, seq);
    const uint32_t end = c->slots[seq].paged ? hr_kv_pages_for(c, s->len) : 0; /* an extent needs no page */
    for (uint32_t i = 0; i < c->seq_pages; i++) {
        const bool held = table[i] != HR_KV_NONE;
        const uint32_t to = (i + 1) * p < s->len ? (i + 1) * p : s->len;
        const bool lost = i < end && hr_kv_any_gone(s) && hr_kv_all_gone(s, i * p, to);
        if (i < end && !lost && !held) BROKEN(4, "sequence %u has no page for position %u", seq, i * p);
        /* a cut into the hole leaves part of a group, which its next append closes */
        if (held && lost && to <= hr_kv_closed(&c->geom, s->gone_to))
            BROKEN(4, "sequence %u holds page %u, all of whose positions are gone", seq, table[i]);
        if (held && i >= end && i >= c->slots[seq].keep)
            BROKEN(4, "sequence %u holds page %u for no position", seq, table[i]);
        if (held && c->config.layout == HR_KV_PAGED_IDENTITY && table[i] != seq * c->full_pages + i)
            BROKEN(4, "sequence %u: page %u is not in order", seq, table[i]);
    }
    return HR_OK;
}

static hr_status check_seqs(const hr_kv_cache *c) {
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) {
        const hr_kv_seq *s = &c->seqs[seq];
        const hr_kv_slot *slot = &c->slots[seq];
        if (!slot->open && (s->len || slot->n || slot->paged)) BROKEN(4, "sequence %u is closed and holds memory", seq);
        if (s->len > c->config.capacity || s->gone_from > s->gone_to || s->gone_to > s->len)
            BROKEN(4, "sequence %u: %u positions, %u to %u gone", seq, s->len, s->gone_from, s->gone_to);
        if (c->pages) HR_TRY(check_table(c, seq));
        if (!slot->open || slot->paged) continue;
        if (s->len > slot->n * c->granule_rows) BROKEN(4, "sequence %u is longer than its extent", seq);
        if (s->g != &c->geoms[slot->n] ||
            s->base[HR_KV_K] != c->arena[HR_KV_K] + slot->first * c->granule_bytes[HR_KV_K])
            BROKEN(5, "sequence %u is seen at another place than its extent", seq);
    }
    return HR_OK;
}

static hr_status check_extents(const hr_kv_cache *c) {
    uint32_t at = 0, sum = 0, n = 0;
    for (uint32_t i = 0; i < c->n_extents; i++) {
        const hr_kv_slot *slot = &c->slots[c->extents[i]];
        if (!slot->open || slot->paged || !slot->n || slot->first < at)
            BROKEN(5, "the extent of sequence %u overlaps or has no owner", c->extents[i]);
        at = slot->first + slot->n, sum += slot->n;
    }
    if (at > c->n_granules || sum != c->extent_granules) BROKEN(5, "extents end at %u of %u", at, c->n_granules);
    for (uint32_t seq = 0; seq < c->config.max_seqs; seq++) n += c->slots[seq].open && !c->slots[seq].paged;
    if (n != c->n_extents) BROKEN(5, "%u sequences have extents, %u are listed", n, c->n_extents);
    return HR_OK;
}

hr_status hr_kv_cache_check(const hr_kv_cache *c) {
    if (c->pages) HR_TRY(check_pages(c));
    HR_TRY(check_extents(c));
    HR_TRY(check_seqs(c));
    const uint64_t reserved = reserved_bytes(c), used = used_bytes(c);
    const uint64_t budget = c->config.budget_bytes ? c->config.budget_bytes : hr_kv_cache_mapped(c);
    const bool pool = c->config.pool_pages && c->config.alloc == HR_KV_PAGES;
    if (reserved > (pool ? hr_kv_cache_mapped(c) : budget) || hr_kv_cache_mapped(c) < reserved)
        BROKEN(6, "%llu bytes are reserved, the budget is %llu", (unsigned long long)reserved,
               (unsigned long long)budget);
    if (used > reserved)
        BROKEN(6, "%llu bytes are used, %llu reserved", (unsigned long long)used, (unsigned long long)reserved);
    return HR_OK;
}
