/* cuda_pass.c - a pass from its batch to its results: the block that is sent first, the wait at the end, logits and tokens. */
#include "engine/cuda/cuda_ops.h"

#include "kernels/base/memory.h"

#include <string.h>

static CUdeviceptr device(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

/* ---- the block ---- */

/* Places in the block. */
typedef struct block {
    size_t logit_rows, tokens, pos, segment, segments, bytes;
} block;

static size_t take(size_t *used, size_t bytes) {
    const size_t at = *used;
    *used = hr_align_up(at + bytes, 16);
    return at;
}

static size_t batches_of(uint32_t tokens, uint32_t rows) {
    return (tokens + rows - 1) / rows;
}

/* most: tokens at most, rows: of logits at a time; n tokens, n_segments: of this pass. */
static block place(uint32_t most, uint32_t rows, uint32_t n, uint32_t n_segments) {
    block b;
    size_t used = batches_of(most, rows) * sizeof(hr_cuda_batch);
    used = hr_align_up(used, 16);
    b.logit_rows = take(&used, most * sizeof(uint32_t));
    b.tokens = take(&used, n * sizeof(int32_t));
    b.pos = take(&used, n * sizeof(uint32_t));
    b.segment = take(&used, n * sizeof(uint32_t));
    b.segments = take(&used, n_segments * sizeof(hr_cuda_segment));
    b.bytes = used;
    return b;
}

size_t hr_cuda_block_bytes(const hr_sizes *s, uint32_t rows) {
    return place(s->tokens, rows, s->tokens, s->max_seqs).bytes;
}

const uint32_t *hr_cuda_logit_rows(const hr_cuda *g) {
    return (const uint32_t *)(const void *)(g->b.block + place(g->e->sizes.tokens, g->b.rows, 0, 0).logit_rows);
}

static void fill_batches(hr_cuda *g, const hr_batch *batch, const block *at) {
    hr_cuda_batch *out = (hr_cuda_batch *)(void *)g->block_host;
    const uint32_t rows = g->b.rows;
    char *there = g->b.block;
    for (uint32_t first = 0; first == 0 || first < batch->n_logits; first += rows, out++) {
        const uint32_t left = batch->n_logits - first;
        out->n = batch->n, out->n_segments = batch->n_segments;
        out->n_logits = left < rows ? left : rows;
        out->tokens = (const int32_t *)(void *)(there + at->tokens);
        out->pos = (const uint32_t *)(void *)(there + at->pos);
        out->segment = (const uint32_t *)(void *)(there + at->segment);
        out->segments = (const hr_cuda_segment *)(void *)(there + at->segments);
        out->logit_rows = (const uint32_t *)(void *)(there + at->logit_rows) + first;
    }
}

/* Writes the block into pinned memory and sends it. */
static void send_block(hr_engine *e, const hr_batch *batch) {
    hr_cuda *g = e->cuda;
    const block at = place(e->sizes.tokens, g->b.rows, batch->n, batch->n_segments);
    char *here = g->block_host;
    uint32_t *pos = (uint32_t *)(void *)(here + at.pos), *segment = (uint32_t *)(void *)(here + at.segment);
    hr_cuda_segment *segments = (hr_cuda_segment *)(void *)(here + at.segments);
    memset(here, 0, at.bytes); /* what lies between members too */
    fill_batches(g, batch, &at);
    memcpy(here + at.tokens, batch->tokens, batch->n * sizeof *batch->tokens);
    if (batch->n_logits) memcpy(here + at.logit_rows, batch->logit_rows, batch->n_logits * sizeof *batch->logit_rows);
    for (uint32_t s = 0; s < batch->n_segments; s++) {
        const hr_segment *from = &batch->segments[s];
        hr_cuda_kv_view(g, from->kv, &segments[s].kv);
        segments[s].pos0 = from->pos0, segments[s].n = from->n, segments[s].row0 = from->row0;
        for (uint32_t i = 0; i < from->n; i++) pos[from->row0 + i] = from->pos0 + i, segment[from->row0 + i] = s;
    }
    (void)HR_CUDA_DO(g, cuMemcpyHtoDAsync(device(g->b.block), here, at.bytes, g->stream));
    g->batch = (const hr_cuda_batch *)(const void *)g->b.block;
}

/* ---- a pass ---- */

/* Positions that launches of a step are shaped for: few different ones, so that few graphs are captured. */
static uint32_t length_bucket(const hr_engine *e, uint32_t longest) {
    uint32_t bucket = 256;
    while (bucket < longest) bucket *= 2;
    return bucket < e->config.ctx ? bucket : e->config.ctx;
}

static void set_bounds(hr_engine *e, const hr_batch *batch) {
    hr_cuda *g = e->cuda;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < batch->n_segments; i++) {
        const uint32_t len = batch->segments[i].pos0 + batch->segments[i].n;
        longest = len > longest ? len : longest;
    }
    const bool decode = batch->phase == HR_PHASE_DECODE;
    g->n = decode ? hr_engine_bucket(e, batch->n) : batch->n;
    g->n_segments = decode ? g->n : batch->n_segments;
    g->n_q = decode ? 1 : batch->n;
    g->max_len = decode ? length_bucket(e, longest) : longest;
}

hr_status hr_cuda_begin(hr_pass *p) {
    hr_engine *e = p->e;
    hr_cuda *g = e->cuda;
    const hr_batch *batch = p->batch;
    HR_TRY(hr_driver_context(g->ordinal, NULL, NULL));
    HR_TRY(hr_cuda_told(g)); /* what failed since the last pass */
    set_bounds(e, batch);
    p->plan = hr_engine_plan_for(e, g->n, g->n_q);
    const bool kept = batch->logits == e->b.logits; /* they stay on the device until somebody asks */
    g->logits_rows = kept ? batch->n_logits : 0, g->logits_here = false;
    g->ids_known = kept && batch->n_logits && hr_pass_fuses(p, HR_FUSE_HEAD_SAMPLE) && p->plan->sample;
    g->last_kernel = NULL;
    hr_cuda_record_begin(e);
    (void)HR_CUDA_DO(g, cuEventRecord(g->begun, g->stream));
    send_block(e, batch);
    const bool plain = !hr_cuda_recording(e) && !e->probe.planted && kept;
    hr_cuda_graph_begin(e, e->config.graphs && plain && batch->phase == HR_PHASE_DECODE);
    return HR_OK;
}

/* The library failed: no plan names it any more. */
static void leave_library(hr_engine *e) {
    if (!e->cuda->blas_failed) return;
    e->cuda->blas_failed = false, e->gemm = NULL;
    memset(e->plan, 0, sizeof e->plan);
}

hr_status hr_cuda_end(hr_pass *p) {
    hr_engine *e = p->e;
    hr_cuda *g = e->cuda;
    const size_t ids = p->batch->n_logits * sizeof *g->ids_host;
    float ms = 0;
    hr_cuda_graph_end(g);
    if (g->ids_known) (void)HR_CUDA_DO(g, cuMemcpyDtoHAsync(g->ids_host, device(g->b.ids), ids, g->stream));
    (void)HR_CUDA_DO(g, cuEventRecord(g->ended, g->stream));
    hr_cuda_wait(g);
    g->device_ns = HR_CUDA_DO(g, cuEventElapsedTime(&ms, g->begun, g->ended)) ? (double)ms * 1e6 : 0;
    hr_cuda_record_end(e);
    leave_library(e);
    const hr_status status = hr_cuda_told(g);
    e->last_logits = status == HR_OK ? p->batch->logits : NULL;
    if (status != HR_OK) g->ids_known = false, g->logits_rows = 0;
    return status;
}

/* ---- results ---- */

/* Those that stayed on the device; false after a failure, which is kept. */
static bool fetch_logits(hr_engine *e) {
    hr_cuda *g = e->cuda;
    if (!g->logits_rows || g->logits_here) return true;
    const size_t bytes = (size_t)g->logits_rows * e->sizes.vocab * sizeof(float);
    hr_cuda_keep(g, hr_driver_context(g->ordinal, NULL, NULL));
    (void)HR_CUDA_DO(g, cuMemcpyDtoHAsync(e->b.logits, device(g->b.logits), bytes, g->stream));
    hr_cuda_wait(g);
    return g->logits_here = g->status == HR_OK;
}

const float *hr_cuda_logits(hr_engine *e, size_t i) {
    hr_cuda *g = e->cuda;
    if (!e->last_logits) {
        hr_fail(HR_ERR_INTERNAL, "cuda:%d: the last pass failed and left no logits", g->ordinal);
        return NULL;
    }
    if (!fetch_logits(e)) {
        (void)hr_cuda_told(g);
        return NULL;
    }
    return e->last_logits + i * e->sizes.vocab;
}

/* On the device; -1 where its rules do not reach, or after a failure. */
static int32_t sample_there(hr_engine *e, const hr_kernel *row, size_t i, const hr_sampling *how, uint64_t *rng) {
    hr_cuda *g = e->cuda;
    const uint32_t last = g->b.rows; /* place of a draw's token */
    hr_cuda_sample params = {.logits = g->b.logits + i * e->sizes.vocab,
                             .out = g->b.ids + last,
                             .rng = g->b.rng,
                             .workspace = g->b.workspace,
                             .n = 1,
                             .vocab = e->sizes.vocab,
                             .top_k = how->top_k > 0 ? (uint32_t)how->top_k : 0,
                             .temperature = how->temperature,
                             .top_p = how->top_p,
                             .min_p = how->min_p};
    if (hr_driver_context(g->ordinal, NULL, NULL) != HR_OK) return -1;
    g->rng_host[0] = *rng;
    (void)HR_CUDA_DO(g, cuMemcpyHtoDAsync(device(g->b.rng), g->rng_host, sizeof *rng, g->stream));
    hr_cuda_launch(g, row, &params);
    (void)HR_CUDA_DO(g, cuMemcpyDtoHAsync(g->ids_host + last, device(g->b.ids + last), sizeof *g->ids_host, g->stream));
    (void)HR_CUDA_DO(g, cuMemcpyDtoHAsync(g->rng_host, device(g->b.rng), sizeof *rng, g->stream));
    hr_cuda_wait(g);
    if (g->status != HR_OK) return -1; /* the next pass tells */
    if (g->ids_host[last] >= 0) *rng = g->rng_host[0];
    return g->ids_host[last];
}

int32_t hr_cuda_sample_row(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng) {
    hr_cuda *g = e->cuda;
    const bool draws = how->temperature > 0, known = !draws && g->ids_known && i < g->logits_rows;
    const hr_kernel *row = hr_engine_plan_for(e, 1, 1)->sample;
    const bool there =
        !known && row && i < g->logits_rows && (!draws || (how->top_k > 0 && how->top_k <= HR_CUDA_TOP_K));
    hr_probe_enter(&e->probe, HR_OP_SAMPLE, -1,
                   known   ? "argmax_kept"
                   : there ? row->name
                   : draws ? "sample"
                           : "argmax",
                   (hr_work){0});
    int32_t id = known ? g->ids_host[i] : there ? sample_there(e, row, i, how, rng) : -1;
    if (id < 0 && e->last_logits && fetch_logits(e)) /* else the next pass tells */
        id = hr_sample(e->last_logits + i * e->sizes.vocab, e->sizes.vocab, how, rng, e->b.candidates);
    hr_probe_leave(&e->probe);
    return id < 0 ? 0 : id;
}
