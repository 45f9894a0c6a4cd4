/* kv_memory.c - memory of a cache that the process may not follow itself (hr_kv_memory): arenas in it, and open groups of K. */
#include "engine/kv/kv_internal.h"

#include "kernels/base/memory.h"

uint8_t *hr_kv_memory_alloc(const hr_kv_cache *c, size_t bytes, size_t shift) {
    const hr_kv_memory *m = c->config.memory;
    uint8_t *at = NULL;
    if (!m)
        at = hr_pages_alloc(bytes + shift, !c->config.no_huge_pages);
    else if (m->alloc(m->context, bytes + shift, &at) != HR_OK)
        return NULL;
    return at ? at + shift : NULL;
}

void hr_kv_memory_free(const hr_kv_cache *c, uint8_t *at, size_t bytes, size_t shift) {
    const hr_kv_memory *m = c->config.memory;
    if (!at) return;
    if (m)
        m->free(m->context, at - shift, bytes + shift);
    else
        hr_pages_free(at - shift, bytes + shift);
}

/* ---- open groups ---- */

/* One closed group of one head, brought here as a cache of its own: layer 0, head 0, positions 0..HR_KV_GROUP - 1. */
typedef struct group {
    hr_kv_geom g;
    hr_kv_seq seq;
    uint8_t rows[HR_KV_GROUP * HR_KV_GROUP_DIM / 2];
    uint8_t scales[HR_KV_GROUP_DIM * 4];
    uint16_t open[HR_KV_GROUP * HR_KV_GROUP_DIM];
} group;

static void fetch_group(const hr_kv_cache *c, const hr_kv_seq *from, uint32_t layer, uint32_t head, uint32_t first,
                        group *to) {
    for (uint32_t i = 0; i < HR_KV_GROUP;) {
        const hr_kv_rows run = hr_kv_run(from, layer, head, first + i), there = hr_kv_run(&to->seq, 0, 0, i);
        const uint32_t n = run.n < HR_KV_GROUP - i ? run.n : HR_KV_GROUP - i;
        for (int x = HR_KV_K; x <= HR_KV_KS; x += HR_KV_KS - HR_KV_K) {
            const size_t row = to->g.row_bytes[x];
            const uint32_t pieces = run.stride[x] == row ? 1 : n;
            for (uint32_t j = 0; j < pieces; j++)
                hr_kv_memory_read(c, there.at[x] + j * row, run.at[x] + j * run.stride[x], pieces == 1 ? n * row : row);
        }
        i += n;
    }
}

/* A position as the group counts them. */
static uint32_t within(uint32_t pos, uint32_t first) {
    return pos <= first ? 0 : pos - first < HR_KV_GROUP ? pos - first : HR_KV_GROUP;
}

/* The group that `len` cuts was closed: its rows are made again from what it holds. */
static void reopen(const hr_kv_cache *c, const hr_kv_seq *from, uint32_t len, hr_kv_seq *to) {
    const uint32_t first = hr_kv_closed(from->g, len), n = len - first;
    group made;
    if (hr_kv_geom_init(&made.g, HR_KV_HEAD, 1, 1, from->g->head_dim, HR_I4KC, HR_F32, HR_KV_GROUP, 0) != HR_OK) return;
    made.seq = (hr_kv_seq){.g = &made.g,
                           .base = {[HR_KV_K] = made.rows, [HR_KV_KS] = made.scales},
                           .len = HR_KV_GROUP,
                           .gone_from = within(from->gone_from, first),
                           .gone_to = within(from->gone_to, first)};
    for (uint32_t l = 0; l < from->g->n_layers; l++) {
        for (uint32_t h = 0; h < from->g->n_heads; h++) {
            fetch_group(c, from, l, h, first, &made);
            hr_kv_open_at(&made.seq, n, (uint8_t *)made.open);
            hr_kv_memory_write(c, (uint8_t *)hr_kv_open_row(to, l, h, first), made.open,
                               n * from->g->head_dim * sizeof(uint16_t));
        }
    }
}

static void copy_open(const hr_kv_cache *c, const hr_kv_seq *from, uint32_t len, hr_kv_seq *to) {
    const uint32_t first = hr_kv_closed(from->g, len);
    for (uint32_t l = 0; l < from->g->n_layers; l++)
        for (uint32_t h = 0; h < from->g->n_heads; h++)
            hr_kv_memory_copy(c, (uint8_t *)hr_kv_open_row(to, l, h, first),
                              (const uint8_t *)hr_kv_open_row(from, l, h, first),
                              (len - first) * from->g->head_dim * sizeof(uint16_t));
}

void hr_kv_memory_open_at(const hr_kv_cache *c, const hr_kv_seq *from, uint32_t len, uint8_t *open) {
    if (!c->config.memory) {
        hr_kv_open_at(from, len, open);
        return;
    }
    const uint32_t first = hr_kv_closed(from->g, len), was = hr_kv_closed(from->g, from->len);
    hr_kv_seq to = *from;
    to.open = open;
    if (!c->open_bytes || first == len || (first == was && open == from->open)) return;
    if (first == was)
        copy_open(c, from, len, &to);
    else
        reopen(c, from, len, &to);
}
