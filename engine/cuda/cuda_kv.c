/* cuda_kv.c - the KV cache of an engine on a GPU: its arenas in device memory, and copies of what views point to.
 *
 * The cache itself (engine/kv) decides on the host. Geometries never change and are sent once; of page tables pinned memory holds
 * what the device has, and a view's entries are sent where they differ from it. */
#include "engine/cuda/cuda_state.h"

#include <string.h>

static CUdeviceptr device(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

/* ---- hr_kv_memory ---- */

static hr_status kv_alloc(void *context, size_t bytes, uint8_t **out) {
    hr_cuda *g = context;
    void *at = NULL;
    HR_TRY(hr_cuda_take(g, g->kv_kind, bytes, "the KV cache", &at));
    hr_status status = hr_driver_check(g->d->cuMemsetD8Async(device(at), 0, bytes, g->stream), "cuMemsetD8Async");
    if (status == HR_OK) status = hr_driver_check(g->d->cuStreamSynchronize(g->stream), "cuStreamSynchronize");
    if (status != HR_OK) hr_cuda_give(g, at);
    if (status == HR_OK) *out = at;
    return status;
}

static void kv_free(void *context, uint8_t *at, size_t bytes) {
    (void)bytes;
    hr_cuda_give(context, at);
}

/* Pieces of overlapping ranges that do not overlap, from the side where the source is read before it is written. */
static void kv_copy(void *context, uint8_t *to, const uint8_t *from, size_t bytes) {
    hr_cuda *g = context;
    const size_t apart = to > from ? (size_t)(to - from) : (size_t)(from - to);
    const size_t piece = apart < bytes ? apart : bytes;
    if (!apart || !bytes) return;
    for (size_t done = 0; done < bytes;) {
        const size_t n = bytes - done < piece ? bytes - done : piece, at = to > from ? bytes - done - n : done;
        if (!HR_CUDA_DO(g, cuMemcpyDtoDAsync(device(to + at), device(from + at), n, g->stream))) return;
        done += n;
    }
    hr_cuda_wait(g);
}

static void kv_write(void *context, uint8_t *to, const void *from, size_t bytes) {
    hr_cuda *g = context;
    if (HR_CUDA_DO(g, cuMemcpyHtoDAsync(device(to), from, bytes, g->stream))) hr_cuda_wait(g);
}

static void kv_read(void *context, void *to, const uint8_t *from, size_t bytes) {
    hr_cuda *g = context;
    if (HR_CUDA_DO(g, cuMemcpyDtoHAsync(to, device(from), bytes, g->stream))) hr_cuda_wait(g);
    if (g->status != HR_OK) memset(to, 0, bytes);
}

static void kv_copy_rows(void *context, const hr_kv_seq *source, const hr_kv_seq *target, uint32_t from, uint32_t to) {
    hr_cuda *g = context;
    hr_kv_seq views[] = {*source, *target};
    for (int i = 0; i < 2; i++) {
        if (views[i].len < to) views[i].len = to; /* a target has its pages before it has its length */
        hr_cuda_kv_view(g, &views[i], &g->kv.pair_host[i]);
    }
    (void)HR_CUDA_DO(g, cuMemcpyHtoDAsync(device(g->kv.pair), g->kv.pair_host, 2 * sizeof *g->kv.pair, g->stream));
    hr_cuda_kv_copy params = {.source = g->kv.pair,
                              .target = g->kv.pair + 1,
                              .from = from,
                              .to = to,
                              .n_layers = source->g->n_layers,
                              .n_heads = source->g->n_heads};
    hr_cuda_launch(g, g->kv.copy, &params);
    hr_cuda_wait(g);
}

void hr_cuda_kv_init(hr_cuda *g, hr_engine *e) {
    const hr_kernel_query q = {.family = HR_FAM_KV_COPY,
                               .dtype = e->config.k_type,
                               .dtype2 = e->config.v_type,
                               .act = e->act,
                               .n = 1,
                               .cuda = true};
    g->e = e, g->kv_kind = e->config.memory;
    g->kv.copy = hr_kernel_choose(&q);
    g->kv_memory = (hr_kv_memory){.context = g,
                                  .alloc = kv_alloc,
                                  .free = kv_free,
                                  .copy = kv_copy,
                                  .write = kv_write,
                                  .read = kv_read,
                                  .copy_rows = g->kv.copy ? kv_copy_rows : NULL};
}

/* ---- what views point to ---- */

static uint32_t count_geoms(const hr_kv_cache *cache) {
    uint32_t n = 0;
    while (hr_kv_cache_geom(cache, n)) n++;
    return n;
}

hr_status hr_cuda_kv_open(hr_cuda *g, hr_engine *e) {
    const uint32_t geoms = count_geoms(e->kv);
    g->kv.entries = hr_kv_cache_entries(e->kv);
    const size_t entries = (size_t)g->kv.entries * e->config.max_seqs, tables = entries * sizeof *g->kv.tables;
    void *at = NULL;
    HR_TRY(hr_cuda_take(g, HR_GPU_DEVICE, geoms * sizeof *g->kv.geoms, "geometries", &at));
    g->kv.geoms = at;
    for (uint32_t i = 0; i < geoms; i++)
        hr_cuda_upload(g, g->kv.geoms + i, hr_kv_cache_geom(e->kv, i), sizeof *g->kv.geoms);
    HR_TRY(hr_cuda_take(g, HR_GPU_DEVICE, tables + 2 * sizeof *g->kv.pair, "page tables", &at));
    g->kv.pair = at, g->kv.tables = (uint32_t *)(void *)(g->kv.pair + 2);
    HR_TRY(hr_cuda_take_pinned(g, tables + 2 * sizeof *g->kv.pair, &at));
    g->kv.pair_host = at, g->kv.known = (uint32_t *)(void *)(g->kv.pair_host + 2);
    memset(g->kv.pair_host, 0, 2 * sizeof *g->kv.pair);
    memset(g->kv.known, 0xff, tables);
    hr_cuda_upload(g, g->kv.tables, g->kv.known, tables);
    return HR_OK;
}

void hr_cuda_kv_close(hr_cuda *g) {
    hr_cuda_give_pinned(g, g->kv.pair_host);
    g->kv.pair_host = NULL;
}

/* Entries at..at + n - 1 of all tables, between the first and the last that the device does not have. */
static void send_table(hr_cuda *g, const uint32_t *now, size_t at, size_t n) {
    uint32_t *known = g->kv.known + at;
    size_t from = 0, to = n;
    while (from < to && known[from] == now[from]) from++;
    while (to > from && known[to - 1] == now[to - 1]) to--;
    if (from == to) return;
    memcpy(known + from, now + from, (to - from) * sizeof *now);
    (void)HR_CUDA_DO(
        g, cuMemcpyHtoDAsync(device(g->kv.tables + at + from), known + from, (to - from) * sizeof *now, g->stream));
}

void hr_cuda_kv_view(hr_cuda *g, const hr_kv_seq *view, hr_kv_seq *out) {
    out->g = g->kv.geoms + hr_kv_cache_geom_of(g->e->kv, view->g);
    for (int x = 0; x < HR_KV_PLANES; x++) out->base[x] = view->base[x];
    out->table = NULL, out->open = view->open;
    out->len = view->len, out->gone_from = view->gone_from, out->gone_to = view->gone_to;
    if (!view->table) return;
    const size_t at = (size_t)(view->table - hr_kv_cache_view(g->e->kv, 0)->table);
    const size_t pages = view->g->page_size ? (view->len + view->g->page_size - 1) / view->g->page_size : 0;
    send_table(g, view->table, at, pages < g->kv.entries ? pages : g->kv.entries);
    out->table = g->kv.tables + at;
}
