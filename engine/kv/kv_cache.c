/* kv_cache.c - names and legal pairs of allocators, the memory of a cache, and the life of a sequence from open to close. */
#include "engine/kv/kv_internal.h"

#include "kernels/base/memory.h"

#include <string.h>

enum { OS_PAGE = 4096, LINE = 128 };

/* ---- names ---- */

static const char *const names[HR_KV_ALLOC_COUNT] = {"auto", "per-request", "pool", "paged", "hybrid"};

const char *hr_kv_alloc_name(hr_kv_alloc alloc) {
    return (unsigned)alloc < HR_KV_ALLOC_COUNT ? names[alloc] : "unknown";
}

hr_status hr_kv_alloc_parse(const char *name, hr_kv_alloc *out) {
    for (int i = HR_KV_PER_REQUEST; i < HR_KV_ALLOC_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (hr_kv_alloc)i;
            return HR_OK;
        }
    }
    HR_FAIL(HR_ERR_USAGE, "KV allocator \"%s\" is unknown: use per-request, pool, paged or hybrid", name);
}

hr_kv_alloc hr_kv_alloc_default(hr_kv_layout layout) {
    return hr_kv_is_paged(layout) ? HR_KV_PAGES : HR_KV_PER_REQUEST;
}

static bool is_legal(hr_kv_alloc alloc, hr_kv_layout layout) {
    switch (alloc) {
    case HR_KV_PER_REQUEST:
    case HR_KV_POOL:
        return !hr_kv_is_paged(layout);
    case HR_KV_PAGES:
        return hr_kv_is_paged(layout);
    case HR_KV_HYBRID:
        return layout == HR_KV_PAGED;
    default:
        return alloc == HR_KV_ALLOC_AUTO;
    }
}

hr_status hr_kv_alloc_check(hr_kv_alloc alloc, hr_kv_layout layout) {
    if (is_legal(alloc, layout)) return HR_OK;
    HR_FAIL(HR_ERR_USAGE, "--kv-alloc %s does not go with --kv-layout %s; leave it out or say %s",
            hr_kv_alloc_name(alloc), hr_kv_layout_name(layout),
            layout == HR_KV_PAGED    ? "paged or hybrid"
            : hr_kv_is_paged(layout) ? "paged"
                                     : "per-request or pool");
}

/* ---- the plan: granules, and how many ---- */

/* Positions a granule of extents: whole blocks (super-blocks where the order of tiles needs them), so many that units of any
 * number of granules end on 128-byte lines, whole pages, and not more granules a sequence than there are geometries. */
static hr_status pool_rows(const hr_kv_geom *g, uint32_t page_size, uint32_t capacity, uint32_t *out) {
    uint64_t rows = g->block;
    if (g->layout >= HR_KV_ZORDER && !hr_kv_is_paged(g->layout)) rows *= g->super;
    for (int x = 0; x < HR_KV_PLANES; x++)
        while (rows * g->row_bytes[x] % LINE) rows *= 2;
    if (rows < page_size) rows = page_size; /* both are powers of two */
    const uint64_t n = (capacity + rows - 1) / rows;
    rows *= (n + HR_KV_GEOMS_MAX - 1) / HR_KV_GEOMS_MAX;
    if ((capacity + rows - 1) / rows * rows > UINT32_MAX / 2)
        HR_FAIL(HR_ERR_INPUT, "a KV cache of %u positions is too long", capacity);
    *out = (uint32_t)rows;
    return HR_OK;
}

static hr_kv_layout extent_layout(const hr_kv_cache_config *c) {
    return c->alloc == HR_KV_HYBRID ? HR_KV_HEAD : c->layout;
}

static hr_status geometry(const hr_kv_cache_config *c, hr_kv_layout layout, uint32_t capacity, hr_kv_geom *out) {
    return hr_kv_geom_init(out, layout, c->n_layers, c->n_heads, c->head_dim, c->k_type, c->v_type, capacity,
                           c->page_size);
}

static hr_status plan_granules(hr_kv_cache *cache) {
    const hr_kv_cache_config *c = &cache->config;
    const hr_kv_geom *g = &cache->geom;
    cache->n_geoms = 1, cache->granule_pages = 1;
    if (cache->pages) {
        cache->seq_pages = g->n_blocks * g->block / g->page_size;
        cache->full_pages = c->capacity / g->page_size + (c->capacity % g->page_size != 0);
        for (int x = 0; x < HR_KV_PLANES; x++) cache->page_total += cache->page_bytes[x] = hr_kv_extent_bytes(g, x);
        cache->granule_rows = g->page_size;
    }
    if (c->alloc == HR_KV_PER_REQUEST) cache->granule_rows = g->n_blocks * g->block;
    if (c->alloc == HR_KV_POOL || c->alloc == HR_KV_HYBRID) {
        hr_kv_geom one; /* of any length: only its block and its rows count here */
        HR_TRY(geometry(c, extent_layout(c), c->capacity, &one));
        HR_TRY(pool_rows(&one, g->page_size, c->capacity, &cache->granule_rows));
        HR_TRY(geometry(c, extent_layout(c), cache->granule_rows, &one));
        cache->n_geoms = (c->capacity + cache->granule_rows - 1) / cache->granule_rows;
        if (cache->pages) cache->granule_pages = cache->granule_rows / g->page_size;
        for (int x = 0; x < HR_KV_PLANES; x++)
            cache->granule_bytes[x] =
                cache->pages ? cache->granule_pages * cache->page_bytes[x] : hr_kv_extent_bytes(&one, x);
    } else {
        for (int x = 0; x < HR_KV_PLANES; x++) cache->granule_bytes[x] = hr_kv_extent_bytes(g, x);
        if (cache->pages) cache->n_geoms = cache->full_pages;
    }
    for (int x = 0; x < HR_KV_PLANES; x++) cache->granule_total += cache->granule_bytes[x];
    return HR_OK;
}

static hr_status too_small(const hr_kv_cache *cache, size_t n, size_t need) {
    const double mb = (double)cache->granule_total / 1e6;
    const uint64_t budget = cache->config.budget_bytes;
    HR_FAIL(HR_ERR_MEMORY,
            "pool too small for one request: %.3f MB of KV memory are given, a sequence of %u positions needs %.3f MB; "
            "raise --kv-budget or shorten the context",
            budget ? (double)budget / 1e6 : (double)n * mb, cache->config.capacity, (double)need * mb);
}

static hr_status plan_amount(hr_kv_cache *cache) {
    const hr_kv_cache_config *c = &cache->config;
    const bool identity = c->layout == HR_KV_PAGED_IDENTITY;
    const size_t all = hr_mul(c->max_seqs, cache->n_geoms);
    size_t n = all;
    if (c->budget_bytes) {
        n = c->budget_bytes / cache->granule_total;
        if (n > all && !c->share_prefix) n = all; /* prefixes may fill more */
    }
    if (c->alloc == HR_KV_PAGES && c->pool_pages) n = c->pool_pages;
    if (n < cache->n_geoms) return too_small(cache, n, cache->n_geoms);
    if (identity && n < all)
        HR_FAIL(
            HR_ERR_MEMORY,
            "pages in order: paged-identity needs %.3f MB, room for %u full sequences, and %.3f MB are given; raise "
            "--kv-budget or use paged",
            (double)all * (double)cache->granule_total / 1e6, c->max_seqs,
            (double)n * (double)cache->granule_total / 1e6);
    if (n > UINT32_MAX / cache->granule_pages)
        HR_FAIL(HR_ERR_INPUT, "a KV cache of %u sequences of %u positions is too large", c->max_seqs, c->capacity);
    cache->n_granules = (uint32_t)n;
    if (cache->pages) cache->n_pages = cache->n_granules * cache->granule_pages;
    size_t total = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        const size_t bytes = cache->arena_bytes[x] = hr_mul(cache->granule_bytes[x], n);
        if (bytes == SIZE_MAX || __builtin_add_overflow(total, bytes, &total))
            HR_FAIL(HR_ERR_INPUT, "a KV cache of %u sequences of %u positions is too large", c->max_seqs, c->capacity);
    }
    return HR_OK;
}

static hr_status plan(const hr_kv_cache_config *config, hr_kv_cache *cache) {
    cache->config = *config;
    hr_kv_cache_config *c = &cache->config;
    if (!c->max_seqs) HR_FAIL(HR_ERR_INPUT, "a KV cache for 0 sequences holds nothing");
    if (c->alloc == HR_KV_ALLOC_AUTO) c->alloc = hr_kv_alloc_default(c->layout);
    if (c->alloc != HR_KV_POOL && c->alloc != HR_KV_HYBRID) c->compact_every = 0;
    HR_TRY(geometry(c, c->layout, c->capacity, &cache->geom)); /* names the layout and the page size */
    HR_TRY(hr_kv_alloc_check(c->alloc, c->layout));
    cache->pages = hr_kv_is_paged(c->layout);
    cache->open_bytes = hr_kv_open_bytes(&cache->geom);
    if (hr_mul(cache->open_bytes, c->max_seqs) > SIZE_MAX / 8)
        HR_FAIL(HR_ERR_INPUT, "a KV cache of %u sequences is too large", c->max_seqs);
    if (c->share_prefix && (!cache->pages || c->layout == HR_KV_PAGED_IDENTITY))
        HR_FAIL(HR_ERR_USAGE, "shared prefixes need pages in any order: use --kv-layout paged or paged-nhd, not %s",
                hr_kv_layout_name(c->layout));
    HR_TRY(plan_granules(cache));
    return plan_amount(cache);
}

hr_status hr_kv_cache_plan(const hr_kv_cache_config *config, uint64_t *bytes) {
    hr_kv_cache cache = {0};
    HR_TRY(plan(config, &cache));
    *bytes = hr_kv_cache_mapped(&cache);
    return HR_OK;
}

/* ---- memory ---- */

static void shuffle(uint32_t *list, uint32_t n, uint64_t seed) {
    for (uint32_t i = n; i-- > 1;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        const uint32_t j = (uint32_t)((seed >> 33) % (i + 1)), t = list[i];
        list[i] = list[j], list[j] = t;
    }
}

/* V of paged layouts begins half a memory page after its mapping. Pieces of pages lie at strides that are powers of two: those
 * of 16 bf16 rows of 64 come to one half of the sets of a first-level cache, and K and V of a chunk of positions want more
 * ways there than it has. Each in a half of its own, attention reads pages in order at 91 % of the speed of the layout head
 * instead of 78 % (Zen 5, 48 KB, keys and values from the third-level cache). */
static size_t arena_shift(const hr_kv_cache *cache, int plane) {
    if (cache->config.memory) return 0;
    return plane == HR_KV_V && hr_kv_is_paged(cache->config.layout) ? OS_PAGE / 2 : 0;
}

static hr_status allocate_arenas(hr_kv_cache *cache) {
    size_t largest = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        if (!cache->arena_bytes[x]) continue;
        cache->arena[x] = hr_kv_memory_alloc(cache, cache->arena_bytes[x], arena_shift(cache, x));
        if (!cache->arena[x])
            HR_FAIL(HR_ERR_MEMORY, "out of memory for %.1f MB of KV cache; try fewer sequences or a shorter context",
                    (double)hr_kv_cache_mapped(cache) / 1e6);
        largest = cache->arena_bytes[x] > largest ? cache->arena_bytes[x] : largest;
    }
    if (cache->open_bytes) {
        cache->open_arena = hr_kv_memory_alloc(cache, cache->open_bytes * cache->config.max_seqs, 0);
        if (!cache->open_arena) HR_FAIL(HR_ERR_MEMORY, "out of memory for the open groups of the KV cache");
        if (cache->open_bytes * cache->config.max_seqs > largest) largest = cache->open_bytes * cache->config.max_seqs;
    }
    cache->marks = hr_calloc(largest / OS_PAGE / 64 + 1, sizeof *cache->marks);
    cache->seqs = hr_calloc(cache->config.max_seqs, sizeof *cache->seqs);
    cache->slots = hr_calloc(cache->config.max_seqs, sizeof *cache->slots);
    cache->extents = hr_calloc(cache->config.max_seqs, sizeof *cache->extents);
    if (!cache->marks || !cache->seqs || !cache->slots || !cache->extents)
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of the KV cache");
    return HR_OK;
}

/* One geometry for each length of extents. */
static hr_status make_geometries(hr_kv_cache *cache) {
    const hr_kv_cache_config *c = &cache->config;
    if (c->alloc == HR_KV_PAGES) return HR_OK;
    cache->geoms = hr_calloc(cache->n_geoms + 1, sizeof *cache->geoms);
    if (!cache->geoms) HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of the KV cache");
    for (uint32_t n = 1; n <= cache->n_geoms; n++)
        HR_TRY(geometry(c, extent_layout(c), n * cache->granule_rows, &cache->geoms[n]));
    return HR_OK;
}

static hr_status make_pages(hr_kv_cache *cache) {
    const hr_kv_cache_config *c = &cache->config;
    const size_t n = cache->n_pages, entries = hr_mul(c->max_seqs, cache->seq_pages);
    if (!cache->pages) return HR_OK;
    const bool stack = c->alloc == HR_KV_PAGES && c->layout != HR_KV_PAGED_IDENTITY;
    cache->tables = hr_malloc(hr_mul(entries, sizeof *cache->tables));
    cache->page = hr_calloc(n, sizeof *cache->page);
    cache->cover = hr_calloc(n, 4 * sizeof *cache->cover);
    if (stack) cache->free = hr_calloc(n, sizeof *cache->free);
    if (!cache->tables || !cache->page || !cache->cover || (stack && !cache->free))
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of the KV cache");
    for (size_t i = 0; i < entries; i++) cache->tables[i] = HR_KV_NONE;
    cache->oldest = cache->newest = HR_KV_NONE;
    cache->high = cache->n_pages;
    for (uint32_t i = 0; stack && i < n; i++) cache->free[i] = cache->n_pages - 1 - i;
    if (stack && c->scatter) shuffle(cache->free, cache->n_pages, c->scatter);
    return HR_OK;
}

static hr_status make_prefixes(hr_kv_cache *cache) {
    const hr_kv_cache_config *c = &cache->config;
    cache->hash_mask = UINT64_MAX;
    if (!c->share_prefix) return HR_OK;
    cache->n_buckets = 1;
    while (cache->n_buckets < cache->n_pages && cache->n_buckets < 1u << 30) cache->n_buckets *= 2;
    cache->buckets = hr_malloc(cache->n_buckets * sizeof *cache->buckets);
    cache->prompts = hr_calloc(hr_mul(c->max_seqs, c->capacity), sizeof *cache->prompts);
    cache->page_tokens = hr_calloc(hr_mul(cache->n_pages, c->page_size), sizeof *cache->page_tokens);
    if (!cache->buckets || !cache->prompts || !cache->page_tokens)
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of the KV cache");
    for (uint32_t i = 0; i < cache->n_buckets; i++) cache->buckets[i] = HR_KV_NONE;
    return HR_OK;
}

/* What kernels see of a sequence that is not open: no positions, the start of the arena. */
static void forget(hr_kv_cache *cache, uint32_t seq) {
    cache->slots[seq] = (hr_kv_slot){0};
    cache->seqs[seq] = (hr_kv_seq){.g = &cache->geom, .table = cache->pages ? hr_kv_table(cache, seq) : NULL};
    for (int x = 0; x < HR_KV_PLANES; x++) cache->seqs[seq].base[x] = cache->arena[x];
    if (cache->open_arena) cache->seqs[seq].open = cache->open_arena + seq * cache->open_bytes;
}

static hr_status allocate(hr_kv_cache *cache) {
    HR_TRY(allocate_arenas(cache));
    HR_TRY(make_geometries(cache));
    HR_TRY(make_pages(cache));
    HR_TRY(make_prefixes(cache));
    for (uint32_t s = 0; s < cache->config.max_seqs; s++) forget(cache, s);
    return HR_OK;
}

hr_status hr_kv_cache_create(const hr_kv_cache_config *config, hr_kv_cache **out) {
    *out = NULL;
    hr_kv_cache *cache = hr_calloc(1, sizeof *cache);
    if (!cache) HR_FAIL(HR_ERR_MEMORY, "out of memory for a KV cache");
    hr_status status = plan(config, cache);
    if (status == HR_OK) status = allocate(cache);
    if (status != HR_OK) {
        hr_kv_cache_destroy(cache);
        return status;
    }
    *out = cache;
    return HR_OK;
}

void hr_kv_cache_destroy(hr_kv_cache *cache) {
    if (!cache) return;
    for (int x = 0; x < HR_KV_PLANES; x++)
        hr_kv_memory_free(cache, cache->arena[x], cache->arena_bytes[x], arena_shift(cache, x));
    hr_kv_memory_free(cache, cache->open_arena, cache->open_bytes * cache->config.max_seqs, 0);
    hr_free(cache->seqs), hr_free(cache->slots), hr_free(cache->extents), hr_free(cache->marks);
    hr_free(cache->geoms), hr_free(cache->tables), hr_free(cache->page), hr_free(cache->cover);
    hr_free(cache->free), hr_free(cache->buckets), hr_free(cache->prompts), hr_free(cache->page_tokens);
    hr_free(cache);
}

void hr_kv_cache_touch(hr_kv_cache *cache, unsigned thread, unsigned n_threads) {
    if (cache->config.memory) return;
    for (int x = 0; x < HR_KV_PLANES; x++) {
        const size_t pages = (cache->arena_bytes[x] + OS_PAGE - 1) / OS_PAGE;
        for (size_t p = pages * thread / n_threads; p < pages * (thread + 1) / n_threads; p++)
            *(volatile uint8_t *)(cache->arena[x] + p * OS_PAGE) = 0;
    }
    if (thread == 0 && cache->open_arena) memset(cache->open_arena, 0, cache->open_bytes * cache->config.max_seqs);
}

/* ---- the life of a sequence ---- */

bool hr_kv_cache_is_open(const hr_kv_cache *cache, uint32_t seq) {
    return seq < cache->config.max_seqs && cache->slots[seq].open;
}

static hr_status check_seq(const hr_kv_cache *cache, uint32_t seq) {
    if (seq >= cache->config.max_seqs)
        HR_FAIL(HR_ERR_INPUT, "sequence %u: the KV cache was made for %u", seq, cache->config.max_seqs);
    return HR_OK;
}

static hr_status check_request(const hr_kv_cache *cache, uint32_t seq, const hr_kv_request *r) {
    HR_TRY(check_seq(cache, seq));
    if (cache->slots[seq].open) HR_FAIL(HR_ERR_INPUT, "sequence %u is open already: close it first", seq);
    if (r->max_len > cache->config.capacity || r->expect_len > cache->config.capacity ||
        r->n_prompt > cache->config.capacity)
        HR_FAIL(HR_ERR_INPUT,
                "sequence %u: a request of %u positions (%u expected, prompt %u) is beyond the context of %u", seq,
                r->max_len, r->expect_len, r->n_prompt, cache->config.capacity);
    return HR_OK;
}

/* Found pages of the prompt come first. Whether the others can be had is known before anything changes. */
static hr_status open_pages(hr_kv_cache *cache, uint32_t seq, const hr_kv_request *r, uint32_t expect) {
    hr_kv_slot *slot = &cache->slots[seq];
    uint32_t *table = hr_kv_table(cache, seq), found = 0;
    const bool prompt = cache->prompts && r->prompt && r->n_prompt;
    if (prompt) {
        for (uint32_t s = 0; s < cache->config.max_seqs; s++)
            if (cache->slots[s].open) hr_kv_prefix_offer(cache, s);
        found = hr_kv_prefix_find(cache, r->prompt, r->n_prompt, table);
    }
    const uint32_t all = hr_kv_pages_for(cache, expect), need = all > found ? all - found : 0;
    uint32_t have = hr_kv_pages_available(cache);
    for (uint32_t i = 0; i < found; i++) have -= cache->page[table[i]].cached;
    if (need > have) {
        for (uint32_t i = 0; i < found; i++) table[i] = HR_KV_NONE;
        HR_FAIL(HR_ERR_MEMORY, "sequence %u: %u KV pages are needed and %u are free; end a sequence", seq, need, have);
    }
    for (uint32_t i = 0; i < found; i++) hr_kv_page_acquire(cache, table[i]);
    const uint32_t start = found * cache->geom.page_size;
    HR_TRY(hr_kv_pages_prepare(cache, seq, start, expect, 0, 0));
    slot->paged = true;
    slot->keep = all;
    cache->seqs[seq].len = start;
    if (prompt) {
        memcpy(cache->prompts + (size_t)seq * cache->config.capacity, r->prompt, r->n_prompt * sizeof *r->prompt);
        slot->known = r->n_prompt, slot->hashed = found;
        cache->counts.prefix_hits += found > 0;
        cache->counts.prefix_positions += start;
    }
    return HR_OK;
}

static hr_status open_request(hr_kv_cache *cache, uint32_t seq, const hr_kv_request *r) {
    const uint32_t most = r->max_len ? r->max_len : cache->config.capacity;
    const uint32_t expect = r->expect_len < most ? r->expect_len : most;
    const bool paged =
        cache->config.alloc == HR_KV_PAGES || (cache->config.alloc == HR_KV_HYBRID && most >= cache->config.threshold);
    const hr_status status =
        paged ? open_pages(cache, seq, r, expect) : hr_kv_extent_open(cache, seq, expect ? expect : most);
    if (status != HR_OK) {
        cache->counts.failed_opens++;
        return status;
    }
    cache->slots[seq].open = true;
    cache->counts.opens++;
    return HR_OK;
}

hr_status hr_kv_cache_open(hr_kv_cache *cache, uint32_t seq, const hr_kv_request *request, uint32_t *shared) {
    if (shared) *shared = 0;
    HR_TRY(check_request(cache, seq, request));
    HR_TRY(open_request(cache, seq, request));
    if (shared) *shared = cache->seqs[seq].len;
    return HR_OK;
}

hr_status hr_kv_cache_close(hr_kv_cache *cache, uint32_t seq) {
    HR_TRY(check_seq(cache, seq));
    if (!cache->slots[seq].open) HR_FAIL(HR_ERR_INPUT, "double free: sequence %u is not open", seq);
    if (cache->slots[seq].paged) {
        hr_kv_prefix_offer(cache, seq);
        uint32_t *table = hr_kv_table(cache, seq);
        for (uint32_t i = cache->full_pages; i-- > 0;) { /* the first page last: a prompt is taken away from its end */
            if (table[i] == HR_KV_NONE) continue;
            hr_kv_page_release(cache, table[i], true);
            table[i] = HR_KV_NONE;
        }
    } else {
        hr_kv_extent_close(cache, seq);
    }
    forget(cache, seq);
    return HR_OK;
}

hr_status hr_kv_cache_reserve(hr_kv_cache *cache, uint32_t seq, uint32_t new_len) {
    HR_TRY(check_seq(cache, seq));
    hr_kv_seq *s = &cache->seqs[seq];
    if (new_len > cache->config.capacity)
        HR_FAIL(HR_ERR_INPUT, "sequence %u: %u positions do not fit into a context of %u", seq, new_len,
                cache->config.capacity);
    if (new_len <= s->len) return HR_OK;
    const bool opened = !cache->slots[seq].open;
    if (opened) HR_TRY(open_request(cache, seq, &(hr_kv_request){0}));
    const hr_status status = cache->slots[seq].paged
                                 ? hr_kv_pages_prepare(cache, seq, s->len, new_len, s->gone_from, s->gone_to)
                                 : hr_kv_extent_grow(cache, seq, new_len);
    if (status != HR_OK) {
        if (opened) { /* in pages: it holds none yet */
            forget(cache, seq);
            cache->counts.opens--, cache->counts.failed_opens++;
        }
        return status;
    }
    s->len = new_len;
    return HR_OK;
}

void hr_kv_cache_note(hr_kv_cache *cache, uint32_t seq, uint32_t pos, const int32_t *tokens, uint32_t n) {
    hr_kv_slot *slot = &cache->slots[seq];
    if (pos >= slot->known) return;
    const int32_t *prompt = cache->prompts + (size_t)seq * cache->config.capacity;
    for (uint32_t i = 0; i < n && pos + i < slot->known; i++)
        if (prompt[pos + i] != tokens[i]) slot->known = pos + i;
}

void hr_kv_cache_cut(hr_kv_cache *cache, uint32_t seq, uint32_t len) {
    hr_kv_seq *s = &cache->seqs[seq];
    hr_kv_slot *slot = &cache->slots[seq];
    if (len >= s->len) return;
    const uint32_t had = s->len;
    hr_kv_memory_open_at(cache, s, len, s->open);
    s->len = len;
    if (s->gone_to > len) s->gone_to = len;
    if (s->gone_from >= s->gone_to) s->gone_from = s->gone_to = 0;
    if (!slot->paged) return;
    const uint32_t p = cache->geom.page_size, end = hr_kv_pages_for(cache, len);
    if (slot->known > len) slot->known = len; /* what is appended next need not be the prompt */
    if (slot->hashed > slot->known / p) slot->hashed = slot->known / p;
    uint32_t *table = hr_kv_table(cache, seq);
    /* last page first, so that an append after the cut gets the same page again */
    for (uint32_t i = hr_kv_pages_for(cache, had); i-- > 0;) {
        const bool lost = i + 1 == end && hr_kv_any_gone(s) && hr_kv_all_gone(s, i * p, len);
        if ((i < slot->keep || i < end) && !lost) continue;
        if (table[i] != HR_KV_NONE) hr_kv_page_release(cache, table[i], false);
        table[i] = HR_KV_NONE;
    }
}

const hr_kv_seq *hr_kv_cache_view(const hr_kv_cache *cache, uint32_t seq) {
    return &cache->seqs[seq];
}

const hr_kv_geom *hr_kv_cache_geom(const hr_kv_cache *cache, uint32_t i) {
    if (i == 0) return &cache->geom;
    return cache->geoms && i <= cache->n_geoms ? &cache->geoms[i] : NULL;
}

uint32_t hr_kv_cache_geom_of(const hr_kv_cache *cache, const hr_kv_geom *g) {
    return g == &cache->geom ? 0 : (uint32_t)(g - cache->geoms);
}

uint32_t hr_kv_cache_entries(const hr_kv_cache *cache) {
    return cache->pages ? cache->seq_pages : 0;
}

uint64_t hr_kv_cache_mapped(const hr_kv_cache *cache) {
    uint64_t total = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) total += cache->arena_bytes[x];
    return total + (uint64_t)cache->open_bytes * cache->config.max_seqs;
}

uint32_t hr_kv_cache_free_pages(const hr_kv_cache *cache) {
    return cache->pages ? hr_kv_pages_free(cache) : 0;
}
