/* cpu_engine.c - an engine on the CPU: its team of threads, its memory, and tokens from its logits. */
#include "engine/backend.h"
#include "engine/cpu/cpu_pass.h"

#include "kernels/base/memory.h"

#include <string.h>

/* First touch by the thread that will use the part most: equal shares in order. */
static void touch_share(void *context, unsigned thread, unsigned n_threads) {
    hr_engine *e = context;
    size_t from, to;
    hr_share(e->arena_bytes, (size_t)2 << 20, thread, n_threads, &from, &to);
    memset(e->arena + from, 0, to - from);
    hr_kv_cache_touch(e->kv, thread, n_threads);
}

static hr_status open_memory(hr_engine *e) {
    const hr_model_info *info = &e->model->info;
    hr_buffers unused;
    e->sizes = hr_sizes_of(info, &e->config, e->act);
    e->arena_bytes = hr_buffers_place(&e->sizes, NULL, &unused);
    e->arena = hr_pages_alloc(e->arena_bytes, e->config.huge_pages);
    if (!e->arena)
        HR_FAIL(HR_ERR_MEMORY, "out of memory for %.1f MB of run state; try a smaller -ub",
                (double)e->arena_bytes / 1e6);
    hr_buffers_place(&e->sizes, e->arena, &e->b);
    hr_kv_cache_config cache;
    HR_TRY(hr_engine_cache_config(info, &e->config, &cache));
    HR_TRY(hr_kv_cache_create(&cache, &e->kv));
    uint64_t before = hr_huge_bytes();
    hr_pool_run(e->pool, touch_share, e);
    e->huge_pages = e->model->huge_pages || hr_huge_bytes() > before;
    return HR_OK;
}

hr_status hr_cpu_open(hr_engine *e) {
    e->keep = 1;
    HR_TRY(hr_pool_create(e->config.threads, e->config.pin, &e->pool));
    e->probe.pool = e->pool;
    return open_memory(e);
}

void hr_cpu_close(hr_engine *e) {
    hr_pool_destroy(e->pool);
    hr_kv_cache_destroy(e->kv);
    hr_pages_free(e->arena, e->arena_bytes);
}

size_t hr_cpu_run_bytes(const hr_sizes *sizes) {
    hr_buffers unused;
    return hr_buffers_place(sizes, NULL, &unused);
}

void hr_cpu_facts(const hr_engine *e, hr_engine_facts *out) {
    out->pinned = hr_pool_pinned(e->pool);
}

const float *hr_cpu_logits(hr_engine *e, size_t i) {
    return e->last_logits + i * e->sizes.vocab;
}

int32_t hr_cpu_sample(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng) {
    const bool draws = how->temperature > 0, kept = i < e->kept_rows;
    hr_probe_enter(&e->probe, HR_OP_SAMPLE, -1,
                   kept    ? (draws ? "sample_kept" : "argmax_kept")
                   : draws ? "sample"
                           : "argmax",
                   (hr_work){0});
    int32_t id = -1;
    if (kept)
        id = hr_sample_kept(e->b.kept + i, e->config.threads, e->sizes.kept_rows, e->sizes.vocab, how, rng,
                            e->b.candidates);
    if (id < 0) id = hr_sample(hr_cpu_logits(e, i), e->sizes.vocab, how, rng, e->b.candidates);
    if (draws && how->top_k > (int)e->keep && how->top_k <= HR_KEEP_MAX) e->keep = (uint32_t)how->top_k;
    hr_probe_leave(&e->probe);
    return id;
}
