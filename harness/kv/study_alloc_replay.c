/* The loop on a cache without a model: places are given and taken as in real traffic, nothing is computed, and the clock counts
 * steps. For questions that need thousands of requests and no times. */
#include "harness/kv/study_alloc.h"

typedef struct replay {
    hr_kv_cache *cache;
    bool promise;   /* an extent is made for all of it at once */
    uint64_t clock; /* 1 ms a step */
} replay;

static hr_status op_open(void *context, uint32_t seq, const hr_kv_request *request, uint32_t *shared) {
    const replay *r = context;
    hr_kv_request ask = *request;
    if (r->promise) ask.expect_len = 0;
    return hr_kv_cache_open(r->cache, seq, &ask, shared);
}

static uint32_t length(const replay *r, uint32_t seq) {
    return hr_kv_cache_view(r->cache, seq)->len;
}

static hr_status op_prefill(void *context, uint32_t seq, const int32_t *tokens, uint32_t n) {
    const replay *r = context;
    (void)tokens;
    return hr_kv_cache_reserve(r->cache, seq, length(r, seq) + n);
}

static hr_status op_decode(void *context, const uint32_t *seqs, const int32_t *tokens, uint32_t n) {
    replay *r = context;
    (void)tokens;
    for (uint32_t i = 0; i < n; i++) {
        const hr_status status = hr_kv_cache_reserve(r->cache, seqs[i], length(r, seqs[i]) + 1);
        if (status == HR_OK) continue;
        while (i-- > 0) hr_kv_cache_cut(r->cache, seqs[i], length(r, seqs[i]) - 1);
        return status;
    }
    r->clock += 1000000;
    return HR_OK;
}

static hr_status op_close(void *context, uint32_t seq) {
    return hr_kv_cache_close(((replay *)context)->cache, seq);
}
static hr_kv_stats op_stats(void *context) {
    return hr_kv_cache_stats(((replay *)context)->cache);
}
static uint64_t op_now(void *context) {
    return ((replay *)context)->clock;
}

hr_status hr_alloc_replay(const hr_kv_cache_config *config, const hr_traffic_spec *spec,
                          const hr_traffic_request *requests, uint32_t prepare, bool (*stop)(void),
                          hr_alloc_outcome *out) {
    replay r = {.promise = config->alloc == HR_KV_POOL && !prepare};
    HR_TRY(hr_kv_cache_create(config, &r.cache));
    const hr_kv_geom *g = hr_kv_cache_view(r.cache, 0)->g;
    hr_alloc_size size = {.round = g->block};
    for (int x = 0; x < HR_KV_PLANES; x++) size.bytes_position += (uint64_t)g->n_layers * g->n_heads * g->row_bytes[x];
    const hr_alloc_ops ops = {op_open, op_prefill, op_decode, op_close, op_stats, op_now, stop, &r, 1 << 20};
    const hr_status status = hr_alloc_loop(spec, requests, prepare, size, &ops, out);
    hr_kv_cache_destroy(r.cache);
    return status;
}
