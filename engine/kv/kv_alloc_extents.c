/* kv_alloc_extents.c - sequences in one piece each: first fit over the sorted list of extents, growth by moving, compaction. */
#include "engine/kv/kv_internal.h"

#include "kernels/base/clock.h"

#include <string.h>

uint32_t hr_kv_extents_end(const hr_kv_cache *c) {
    if (!c->n_extents) return 0;
    const hr_kv_slot *last = &c->slots[c->extents[c->n_extents - 1]];
    return last->first + last->n;
}

void hr_kv_extent_place(const hr_kv_cache *c, hr_kv_seq *s, uint32_t first, uint32_t n) {
    s->g = &c->geoms[n];
    for (int x = 0; x < HR_KV_PLANES; x++)
        s->base[x] = c->arena[x] ? c->arena[x] + (size_t)first * c->granule_bytes[x] : NULL;
}

/* The lowest free piece of n granules that ends at `limit` or before. */
static uint32_t first_fit(const hr_kv_cache *c, uint32_t n, uint32_t limit) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n_extents; i++) {
        const hr_kv_slot *slot = &c->slots[c->extents[i]];
        if (slot->first - at >= n) return at;
        at = slot->first + slot->n;
    }
    return limit >= at && limit - at >= n ? at : HR_KV_NONE;
}

/* A place for n granules, or HR_KV_NONE when nothing that may be done makes one. */
static uint32_t take(hr_kv_cache *c, uint32_t n) {
    uint32_t at = first_fit(c, n, c->pages ? hr_kv_hybrid_floor(c, true) : c->n_granules);
    if (at != HR_KV_NONE) return at;
    if (c->n_cached) {
        at = first_fit(c, n, hr_kv_hybrid_floor(c, false));
        if (at != HR_KV_NONE) {
            hr_kv_hybrid_clear(c, at + n);
            return at;
        }
    }
    if (!c->config.compact_every) return HR_KV_NONE;
    const uint32_t held = c->pages ? (c->n_held + c->granule_pages - 1) / c->granule_pages : 0;
    if (c->n_granules - c->extent_granules - held < n) return HR_KV_NONE;
    hr_kv_extents_compact(c);
    at = hr_kv_extents_end(c);
    if (c->pages) hr_kv_hybrid_clear(c, at + n);
    return at;
}

static void list_insert(hr_kv_cache *c, uint32_t seq) {
    uint32_t i = c->n_extents++;
    for (; i && c->slots[c->extents[i - 1]].first > c->slots[seq].first; i--) c->extents[i] = c->extents[i - 1];
    c->extents[i] = seq;
    c->extent_granules += c->slots[seq].n;
}

static void list_remove(hr_kv_cache *c, uint32_t seq) {
    uint32_t i = 0;
    while (c->extents[i] != seq) i++;
    c->n_extents--;
    for (; i < c->n_extents; i++) c->extents[i] = c->extents[i + 1];
    c->extent_granules -= c->slots[seq].n;
}

static hr_status no_room(const hr_kv_cache *c, uint32_t seq, uint32_t len) {
    const uint32_t free = c->n_granules - c->extent_granules, n = hr_kv_granules_for(c, len);
    if (c->pages)
        HR_FAIL(HR_ERR_MEMORY, "sequence %u: no room for %u positions in one piece; end a sequence or raise the budget",
                seq, len);
    HR_FAIL(HR_ERR_MEMORY, "sequence %u: %u positions need %.1f MB of KV memory in one piece and %.1f MB are free%s",
            seq, len, (double)n * (double)c->granule_total / 1e6, (double)free * (double)c->granule_total / 1e6,
            free >= n ? ", in smaller pieces" : "; end a sequence or raise the budget");
}

hr_status hr_kv_extent_open(hr_kv_cache *c, uint32_t seq, uint32_t len) {
    const uint32_t n = hr_kv_granules_for(c, len), at = take(c, n);
    if (at == HR_KV_NONE) return no_room(c, seq, len);
    c->slots[seq].first = at, c->slots[seq].n = n;
    list_insert(c, seq);
    hr_kv_extent_place(c, &c->seqs[seq], at, n);
    return HR_OK;
}

void hr_kv_extent_close(hr_kv_cache *c, uint32_t seq) {
    list_remove(c, seq);
    c->slots[seq].first = c->slots[seq].n = 0;
    c->closed++;
    if (!c->config.compact_every || c->closed < c->config.compact_every) return;
    c->closed = 0;
    hr_kv_extents_compact(c);
}

/* Half as long again, so that a sequence that goes on past its promise does not move at every step; else just enough. */
hr_status hr_kv_extent_grow(hr_kv_cache *c, uint32_t seq, uint32_t len) {
    hr_kv_slot *slot = &c->slots[seq];
    const uint32_t need = hr_kv_granules_for(c, len);
    if (need <= slot->n) return HR_OK;
    uint32_t n = slot->n + slot->n / 2;
    n = n < need ? need : n > c->n_geoms ? c->n_geoms : n;
    uint32_t at = take(c, n);
    if (at == HR_KV_NONE && n > need) at = take(c, n = need);
    if (at == HR_KV_NONE) return no_room(c, seq, len);
    hr_kv_seq *s = &c->seqs[seq]; /* a compaction may have moved it */
    const hr_kv_seq old = *s;
    hr_kv_extent_place(c, s, at, n);
    hr_kv_rows_copy(c, &old, s, 0, s->gone_from < s->gone_to ? s->gone_from : s->len);
    if (hr_kv_any_gone(s)) hr_kv_rows_copy(c, &old, s, s->gone_to, s->len);
    list_remove(c, seq);
    slot->first = at, slot->n = n;
    list_insert(c, seq);
    c->counts.moves++;
    return HR_OK;
}

/* How the rows 0..len-1 of an extent lie in a plane: n stripes of equal length one after the other, each with rows at its start. */
typedef struct stripes {
    size_t n, bytes, live;
} stripes;

static stripes stripes_of(const hr_kv_seq *s, int x) {
    const hr_kv_geom *g = s->g;
    const size_t L = g->n_layers, H = g->n_heads, P = g->super, unit = g->unit_bytes[x];
    const size_t blocks = (s->len + g->block - 1) / g->block;
    switch (g->layout) {
    case HR_KV_HEAD:
        return (stripes){L * H, unit, s->len * g->row_bytes[x]};
    case HR_KV_TOKEN:
        return (stripes){1, g->extent_units * unit, s->len * L * H * unit};
    case HR_KV_BLOCK:
        return (stripes){L, g->n_blocks * H * unit, blocks * H * unit};
    default: /* whole super-blocks */
        return (stripes){L, g->extent_units / L * unit, (blocks + P - 1) / P * P * H * unit};
    }
}

/* Downward only: stripes in rising order, so that none is overwritten before it has moved. */
static void slide(hr_kv_cache *c, uint32_t seq, uint32_t to) {
    hr_kv_seq *s = &c->seqs[seq];
    const hr_kv_seq old = *s;
    hr_kv_extent_place(c, s, to, c->slots[seq].n);
    c->slots[seq].first = to;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!c->arena[x]) continue;
        const stripes move = stripes_of(s, x);
        for (size_t i = 0; i < move.n; i++)
            hr_kv_memory_copy(c, s->base[x] + i * move.bytes, old.base[x] + i * move.bytes, move.live);
        c->counts.moved_bytes += move.n * move.live;
    }
}

void hr_kv_extents_compact(hr_kv_cache *c) {
    const uint64_t start = hr_now_ns();
    uint32_t at = 0;
    bool moved = false;
    for (uint32_t i = 0; i < c->n_extents; i++) {
        const hr_kv_slot *slot = &c->slots[c->extents[i]];
        if (slot->first != at) {
            slide(c, c->extents[i], at);
            moved = true;
        }
        at += slot->n;
    }
    if (!moved) return;
    c->counts.compactions++;
    c->counts.compact_ns += hr_now_ns() - start;
}
