/* cuda_engine.c - an engine on a GPU from open to close: what the device can do, whether all fits, its memory in order. */
#include "engine/cuda/cuda_ops.h"

#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 256 };

/* ---- run state ---- */

static void *take(char *base, size_t *used, size_t count, size_t bytes) {
    void *at = base ? base + *used : NULL;
    *used = hr_align_up(*used + hr_mul(count, bytes), ALIGN);
    return at;
}

static hr_cuda_acts place_acts(hr_act act, char *base, size_t *used, size_t T, size_t dim) {
    const size_t ld = hr_align_up(dim, 64);
    static const size_t value[HR_ACT_COUNT] = {
        [HR_ACT_F32] = 4, [HR_ACT_BF16] = 2, [HR_ACT_INT8] = 1, [HR_ACT_INT8_ROW] = 1};
    hr_cuda_acts a = {.ld = (uint32_t)ld, .type = act};
    a.data = take(base, used, hr_mul(T, ld), value[act]);
    if (act == HR_ACT_INT8) a.d = take(base, used, hr_mul(T, ld / 32), sizeof(float));
    if (act == HR_ACT_INT8_ROW) a.d = take(base, used, T, sizeof(float));
    return a;
}

/* All buffers from base on; base NULL: bytes alone. */
static size_t place(const hr_sizes *s, char *base, hr_cuda_buffers *b) {
    size_t used = 0;
    const size_t T = s->tokens;
    *b = (hr_cuda_buffers){0};
    b->rows = s->tokens < HR_CUDA_HEAD_ROWS ? s->tokens : HR_CUDA_HEAD_ROWS;
    if (b->rows < s->max_seqs) b->rows = s->max_seqs;
    b->x = take(base, &used, hr_mul(T, s->dim), sizeof(float));
    b->h = take(base, &used, hr_mul(T, s->dim), sizeof(float));
    b->qkv = take(base, &used, hr_mul(T, s->q_dim + 2 * (size_t)s->kv_dim), sizeof(float));
    b->att = take(base, &used, hr_mul(T, s->q_dim), sizeof(float));
    b->gate = take(base, &used, hr_mul(T, s->ffn), sizeof(float));
    b->up = take(base, &used, hr_mul(T, s->ffn), sizeof(float));
    b->logits = take(base, &used, hr_mul(b->rows, s->vocab), sizeof(float));
    b->partial = take(base, &used, hr_mul(hr_mul(s->max_seqs, s->n_heads), HR_CUDA_SPLITS),
                      (2 + (size_t)s->head_dim) * sizeof(float));
    b->angles = take(base, &used, hr_mul(s->ctx, s->head_dim), sizeof(float));
    b->acts_dim = place_acts(s->act, base, &used, T, s->dim);
    b->acts_q = place_acts(s->act, base, &used, T, s->q_dim);
    b->acts_ffn = place_acts(s->act, base, &used, T, s->ffn);
    b->ids = take(base, &used, b->rows + 1, sizeof(int32_t));
    b->rng = take(base, &used, 1, sizeof(uint64_t));
    b->workspace = take(base, &used, HR_CUDA_WORKSPACE, 1);
    b->library = take(base, &used, HR_CUDA_LIBRARY_SPACE, 1);
    b->block_bytes = hr_cuda_block_bytes(s, b->rows);
    b->block = take(base, &used, b->block_bytes, 1);
    return used;
}

size_t hr_cuda_run_bytes(const hr_sizes *sizes) {
    hr_cuda_buffers unused;
    return place(sizes, NULL, &unused);
}

static hr_status open_run_state(hr_engine *e) {
    hr_cuda *g = e->cuda;
    void *at = NULL;
    HR_TRY(hr_cuda_take(g, HR_GPU_DEVICE, e->arena_bytes, "run state; try a smaller -ub", &at));
    place(&e->sizes, at, &g->b);
    HR_CU(g->d, cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, 0, e->arena_bytes, g->stream));
    return HR_OK;
}

/* What the host keeps of a pass. */
static hr_status open_host_state(hr_engine *e) {
    hr_cuda *g = e->cuda;
    const hr_sizes *s = &e->sizes;
    void *at = NULL;
    e->b.segments = hr_calloc(s->max_seqs, sizeof *e->b.segments);
    e->b.logit_rows = hr_calloc(s->tokens, sizeof *e->b.logit_rows);
    e->b.candidates = hr_calloc(s->vocab, sizeof *e->b.candidates);
    if (!e->b.segments || !e->b.logit_rows || !e->b.candidates) HR_FAIL(HR_ERR_MEMORY, "out of memory for a batch");
    HR_TRY(hr_cuda_take_pinned(g, hr_mul(g->b.rows, s->vocab) * sizeof(float), &at));
    e->b.logits = at;
    HR_TRY(hr_cuda_take_pinned(g, g->b.block_bytes, &at));
    g->block_host = at;
    HR_TRY(hr_cuda_take_pinned(g, (g->b.rows + 1) * sizeof *g->ids_host, &at));
    g->ids_host = at;
    HR_TRY(hr_cuda_take_pinned(g, sizeof *g->rng_host, &at));
    g->rng_host = at;
    return HR_OK;
}

/* ---- the device ---- */

static hr_status attribute(const hr_cuda *g, CUdevice_attribute what, uint32_t *out) {
    int value = 0;
    HR_CU(g->d, cuDeviceGetAttribute(&value, what, g->device));
    *out = value > 0 ? (uint32_t)value : 0;
    return HR_OK;
}

static hr_status open_device(hr_cuda *g, int ordinal) {
    g->ordinal = ordinal;
    HR_TRY(hr_driver_open(&g->d));
    HR_TRY(hr_driver_context(ordinal, &g->device, NULL));
    g->opened = true;
    g->caps.workspace = HR_CUDA_WORKSPACE;
    HR_TRY(attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &g->caps.major));
    HR_TRY(attribute(g, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &g->caps.minor));
    HR_TRY(attribute(g, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &g->caps.sms));
    HR_TRY(attribute(g, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &g->caps.smem_optin));
    if (g->caps.major < 8)
        HR_FAIL(HR_ERR_UNSUPPORTED, "compute capability %u.%u is too old; 8.0 and later are supported", g->caps.major,
                g->caps.minor);
    HR_CU(g->d, cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING));
    HR_CU(g->d, cuEventCreate(&g->begun, CU_EVENT_DEFAULT));
    HR_CU(g->d, cuEventCreate(&g->ended, CU_EVENT_DEFAULT));
    for (int i = 0; i < 2; i++) {
        void *at = NULL;
        HR_CU(g->d, cuEventCreate(&g->staged[i], CU_EVENT_DISABLE_TIMING));
        HR_TRY(hr_cuda_take_pinned(g, HR_CUDA_STAGING, &at));
        g->staging[i] = at;
    }
    return HR_OK;
}

/* Without the library our own rows compute all products. */
static void open_library(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (!e->config.cublaslt || e->act != HR_ACT_BF16) return;
    if (hr_cublaslt_open(g, &g->blas, &e->gemm) == HR_OK) return;
    snprintf(g->gemm_why, sizeof g->gemm_why, "%s", hr_error());
    e->gemm = NULL;
}

/* ---- opening and closing ---- */

static hr_status open_cache(hr_engine *e, hr_kv_cache_config *cache, uint64_t *bytes) {
    HR_TRY(hr_engine_cache_config(&e->model->info, &e->config, cache));
    return hr_kv_cache_plan(cache, bytes);
}

static hr_status open_all(hr_engine *e) {
    hr_cuda *g = e->cuda;
    hr_kv_cache_config cache;
    uint64_t kv = 0;
    HR_TRY(open_device(g, e->config.device));
    e->sizes = hr_sizes_of(&e->model->info, &e->config, e->act);
    open_library(e);
    HR_TRY(hr_cuda_check_rows(e));
    e->arena_bytes = hr_cuda_run_bytes(&e->sizes);
    HR_TRY(open_cache(e, &cache, &kv));
    HR_TRY(hr_cuda_check_budget(g, e->config.memory, hr_cuda_weights_bytes(e->model), kv, e->arena_bytes));
    HR_TRY(open_run_state(e));
    HR_TRY(open_host_state(e));
    hr_cuda_kv_init(g, e);
    cache.memory = &g->kv_memory;
    HR_TRY(hr_kv_cache_create(&cache, &e->kv));
    HR_TRY(hr_cuda_kv_open(g, e));
    HR_TRY(hr_cuda_weights_open(e));
    hr_cuda_angles(e);
    hr_cuda_wait(g);
    return HR_OK;
}

hr_status hr_cuda_open(hr_engine *e) {
    hr_cuda *g = e->cuda = hr_calloc(1, sizeof *g);
    if (!g) HR_FAIL(HR_ERR_MEMORY, "out of memory for an engine");
    g->e = e;
    const hr_status status = open_all(e);
    if (status == HR_OK) return hr_cuda_told(g);
    char prefix[24];
    snprintf(prefix, sizeof prefix, "cuda:%d", e->config.device);
    return hr_fail_prefix(status, prefix);
}

static void destroy_event(hr_cuda *g, CUevent event) {
    if (event) g->d->cuEventDestroy(event);
}

/* What was opened so far, newest first. */
static void close_device(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (hr_driver_context(g->ordinal, NULL, NULL) != HR_OK) return;
    if (g->stream) g->d->cuStreamSynchronize(g->stream);
    hr_cuda_graphs_close(g);
    hr_cuda_record_close(g);
    hr_cublaslt_close(g->blas);
    hr_kv_cache_destroy(e->kv);
    hr_cuda_kv_close(g);
    hr_cuda_weights_close(g);
    for (int i = 0; i < HR_CUDA_AREAS; i++)
        if (g->areas[i].bytes) hr_cuda_give(g, (void *)(uintptr_t)g->areas[i].at);
    hr_cuda_give_pinned(g, e->b.logits), hr_cuda_give_pinned(g, g->block_host);
    hr_cuda_give_pinned(g, g->ids_host), hr_cuda_give_pinned(g, g->rng_host);
    for (int i = 0; i < 2; i++) {
        hr_cuda_give_pinned(g, g->staging[i]);
        destroy_event(g, g->staged[i]);
    }
    destroy_event(g, g->begun), destroy_event(g, g->ended);
    if (g->stream) g->d->cuStreamDestroy(g->stream);
}

void hr_cuda_close(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (!g) return;
    if (g->opened) close_device(e);
    hr_free(e->b.segments), hr_free(e->b.logit_rows), hr_free(e->b.candidates);
    hr_free(g);
    e->cuda = NULL;
}

void hr_cuda_facts(const hr_engine *e, hr_engine_facts *out) {
    const hr_cuda *g = e->cuda;
    out->simulated = g->d->simulated;
    out->graphs = e->config.graphs;
    out->gemm = e->gemm ? "cublasLt" : "own";
    out->gemm_why = g->gemm_why[0] ? g->gemm_why : NULL;
    out->device_ns = g->device_ns;
}
