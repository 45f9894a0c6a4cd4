/* kv_seq_ops.c - operations on whole sequences: fork, evict, save, load. All of them walk runs. */
#include "engine/kv/kv_internal.h"

#include "kernels/kv/kv_count.h"

#include <string.h>

void hr_kv_rows_copy(const hr_kv_cache *c, const hr_kv_seq *src, const hr_kv_seq *dst, uint32_t from, uint32_t to) {
    const hr_kv_geom *g = src->g;
    const hr_kv_memory *memory = c->config.memory;
    if (from >= to) return;
    if (memory && memory->copy_rows) {
        memory->copy_rows(memory->context, src, dst, from, to);
        return;
    }
    for (uint32_t l = 0; l < g->n_layers; l++) {
        for (uint32_t h = 0; h < g->n_heads; h++) {
            for (uint32_t pos = from, n; pos < to; pos += n) {
                const hr_kv_rows a = hr_kv_run(src, l, h, pos), b = hr_kv_run(dst, l, h, pos);
                n = a.n < b.n ? a.n : b.n;
                if (n > to - pos) n = to - pos;
                hr_kv_took(g, &a, ~0u, n), hr_kv_took(g, &b, ~0u, n);
                for (int x = 0; x < HR_KV_PLANES; x++) {
                    const size_t row = g->row_bytes[x];
                    if (!a.at[x]) continue;
                    if (a.stride[x] == row && b.stride[x] == row) {
                        hr_kv_memory_copy(c, b.at[x], a.at[x], n * row);
                    } else {
                        for (uint32_t i = 0; i < n; i++)
                            hr_kv_memory_copy(c, b.at[x] + i * b.stride[x], a.at[x] + i * a.stride[x], row);
                    }
                }
            }
        }
    }
}

/* ---- fork ---- */

static hr_status check_fork(const hr_kv_cache *c, uint32_t from, uint32_t to, uint32_t len) {
    const uint32_t n = c->config.max_seqs;
    if (from >= n || to >= n)
        HR_FAIL(HR_ERR_INPUT, "fork of sequence %u into %u: the KV cache was made for %u", from, to, n);
    const hr_kv_seq *s = &c->seqs[from];
    if (!c->slots[from].open) HR_FAIL(HR_ERR_INPUT, "fork of a closed sequence: %u is not open", from);
    if (c->slots[to].open) HR_FAIL(HR_ERR_INPUT, "fork into an open sequence: close %u first", to);
    if (len > s->len)
        HR_FAIL(HR_ERR_INPUT, "fork of %u positions of sequence %u, which has only %u", len, from, s->len);
    if (hr_kv_any_gone(s) && s->gone_from < len)
        HR_FAIL(HR_ERR_INPUT, "fork of lost positions: %u to %u of sequence %u were evicted", s->gone_from,
                s->gone_to - 1, from);
    return HR_OK;
}

hr_status hr_kv_cache_fork(hr_kv_cache *c, uint32_t from, uint32_t to, uint32_t len) {
    HR_TRY(check_fork(c, from, to, len));
    const hr_kv_slot *source = &c->slots[from];
    hr_kv_slot *slot = &c->slots[to];
    if (!source->paged) {
        HR_TRY(hr_kv_extent_open(c, to, source->n * c->granule_rows));
        hr_kv_rows_copy(c, &c->seqs[from], &c->seqs[to], 0, len);
    } else if (c->config.layout == HR_KV_PAGED_IDENTITY) { /* every page has its place: nothing can be shared */
        HR_TRY(hr_kv_pages_prepare(c, to, 0, len, 0, 0));
        hr_kv_rows_copy(c, &c->seqs[from], &c->seqs[to], 0, len);
    } else {
        for (uint32_t i = 0; i < hr_kv_pages_for(c, len); i++) {
            hr_kv_table(c, to)[i] = hr_kv_table(c, from)[i];
            hr_kv_page_acquire(c, hr_kv_table(c, to)[i]);
        }
    }
    hr_kv_memory_open_at(c, &c->seqs[from], len, c->seqs[to].open);
    slot->open = true, slot->paged = source->paged;
    c->seqs[to].len = len;
    return HR_OK;
}

/* ---- evict ---- */

hr_status hr_kv_cache_evict(hr_kv_cache *c, uint32_t seq, uint32_t sinks, uint32_t window) {
    if (!hr_kv_cache_is_open(c, seq)) HR_FAIL(HR_ERR_INPUT, "eviction from a closed sequence: %u is not open", seq);
    hr_kv_seq *s = &c->seqs[seq];
    hr_kv_slot *slot = &c->slots[seq];
    if (!window)
        HR_FAIL(HR_ERR_INPUT,
                "eviction of a page in use: sequence %u appends behind its last position; keep a window "
                "of at least 1",
                seq);
    const uint32_t granule = hr_kv_granule(s->g); /* a group of K is gone as a whole, or not at all */
    if (s->len < window || sinks >= s->len - window) return HR_OK;
    sinks = (sinks + granule - 1) / granule * granule;
    if (sinks >= hr_kv_closed(s->g, s->len - window)) return HR_OK;
    if (hr_kv_any_gone(s) && sinks > s->gone_from)
        HR_FAIL(HR_ERR_INPUT, "eviction cannot bring back: %u sinks were asked for, positions from %u on are gone",
                sinks, s->gone_from);
    if (slot->paged) hr_kv_prefix_offer(c, seq);
    if (slot->known > s->len) slot->known = s->len; /* what comes next has seen a hole */
    const uint32_t to = hr_kv_closed(s->g, s->len - window);
    s->gone_to = hr_kv_any_gone(s) && s->gone_to > to ? s->gone_to : to;
    s->gone_from = sinks;
    if (!slot->paged) return HR_OK;
    const uint32_t p = c->geom.page_size;
    uint32_t *table = hr_kv_table(c, seq);
    for (uint32_t i = s->gone_to / p; i-- > (s->gone_from + p - 1) / p;) {
        if (table[i] == HR_KV_NONE) continue;
        hr_kv_page_release(c, table[i], false);
        table[i] = HR_KV_NONE;
    }
    return HR_OK;
}

/* ---- save and load ---- */

static const int saved_order[HR_KV_PLANES] = {HR_KV_K, HR_KV_KS, HR_KV_V, HR_KV_VS};

static size_t bytes_a_position(const hr_kv_geom *g) {
    size_t bytes = 0;
    for (int x = 0; x < HR_KV_PLANES; x++) bytes += g->row_bytes[x];
    return bytes * g->n_layers * g->n_heads;
}

uint64_t hr_kv_cache_saved_bytes(const hr_kv_cache *c, uint32_t seq) {
    const hr_kv_seq *s = &c->seqs[seq];
    return (uint64_t)(s->len - (s->gone_to - s->gone_from)) * bytes_a_position(s->g) +
           (uint64_t)hr_kv_open_rows(s) * hr_kv_open_excess(s->g);
}

/* n bytes of the cache's memory, to or from dense memory; returns the memory behind them. */
static uint8_t *move_bytes(const hr_kv_cache *c, uint8_t *at, uint8_t *dense, size_t n, bool load) {
    if (load)
        hr_kv_memory_write(c, at, dense, n);
    else
        hr_kv_memory_read(c, dense, at, n);
    return dense + n;
}

/* Rows from..to-1 of one plane, layer and head. */
static uint8_t *transfer(const hr_kv_cache *c, const hr_kv_seq *s, uint32_t l, uint32_t h, int x, uint32_t from,
                         uint32_t to, uint8_t *dense, bool load) {
    const size_t row = s->g->row_bytes[x];
    for (uint32_t pos = from, n; pos < to; pos += n) {
        const hr_kv_rows run = hr_kv_run(s, l, h, pos);
        n = run.n < to - pos ? run.n : to - pos;
        hr_kv_took(s->g, &run, 1u << x, n);
        const uint32_t pieces = run.stride[x] == row ? 1 : n;
        const size_t bytes = pieces == 1 ? n * row : row;
        for (uint32_t i = 0; i < pieces; i++) dense = move_bytes(c, run.at[x] + i * run.stride[x], dense, bytes, load);
    }
    return dense;
}

/* The open rows of K: they follow each other. */
static uint8_t *transfer_open(const hr_kv_cache *c, const hr_kv_seq *s, uint32_t l, uint32_t h, uint8_t *dense,
                              bool load) {
    const uint32_t n = hr_kv_open_rows(s);
    if (!n) return dense;
    uint8_t *at = (uint8_t *)hr_kv_open_row(s, l, h, s->len - n);
    return move_bytes(c, at, dense, n * s->g->head_dim * sizeof(uint16_t), load);
}

static void transfer_all(const hr_kv_cache *c, const hr_kv_seq *s, uint8_t *dense, bool load) {
    const bool hole = hr_kv_any_gone(s);
    for (uint32_t l = 0; l < s->g->n_layers; l++) {
        for (uint32_t h = 0; h < s->g->n_heads; h++) {
            for (int i = 0; i < HR_KV_PLANES; i++) {
                const int x = saved_order[i];
                const bool keys = x == HR_KV_K || x == HR_KV_KS;
                const uint32_t len = keys ? hr_kv_closed(s->g, s->len) : s->len;
                if (!s->g->row_bytes[x]) continue;
                dense = transfer(c, s, l, h, x, 0, hole && s->gone_from < len ? s->gone_from : len, dense, load);
                if (hole) dense = transfer(c, s, l, h, x, s->gone_to, len, dense, load);
                if (x == HR_KV_KS && s->open) dense = transfer_open(c, s, l, h, dense, load);
            }
        }
    }
}

void hr_kv_cache_save(const hr_kv_cache *c, uint32_t seq, void *out) {
    transfer_all(c, &c->seqs[seq], out, false);
}

hr_status hr_kv_cache_load(hr_kv_cache *c, uint32_t seq, const void *saved, uint32_t len, uint32_t gone_from,
                           uint32_t gone_to) {
    if (!hr_kv_cache_is_open(c, seq)) HR_FAIL(HR_ERR_INPUT, "load into a closed sequence: %u is not open", seq);
    hr_kv_seq *s = &c->seqs[seq];
    if (s->len) HR_FAIL(HR_ERR_INPUT, "load into sequence %u, which holds %u positions: it must be empty", seq, s->len);
    if (len > c->config.capacity || gone_from > gone_to || gone_to > len)
        HR_FAIL(HR_ERR_INPUT, "load of %u positions of which %u to %u are gone into a context of %u", len, gone_from,
                gone_to, c->config.capacity);
    if (c->slots[seq].paged)
        HR_TRY(hr_kv_pages_prepare(c, seq, 0, len, gone_from, gone_to));
    else
        HR_TRY(hr_kv_extent_grow(c, seq, len));
    s->len = len;
    s->gone_from = gone_from < gone_to ? gone_from : 0, s->gone_to = gone_from < gone_to ? gone_to : 0;
    c->slots[seq].known = c->slots[seq].hashed = 0; /* nobody says that these are the rows of the prompt */
    transfer_all(c, s, (uint8_t *)(uintptr_t)saved, true);
    return HR_OK;
}
