/* engine.c - an engine opened on a model: configuration, memory, and the steps that callers see. */
#include "engine/backend.h"
#include "engine/nvtx.h"

#include "kernels/base/memory.h"

#include <string.h>

hr_engine_config hr_engine_config_default(void) {
    return (hr_engine_config){.fusion = HR_FUSE_ALL,
                              .isa = HR_ISA_AUTO,
                              .act = -1,
                              .kv_layout = HR_KV_HEAD,
                              .page_size = 16,
                              .k_type = HR_BF16,
                              .v_type = HR_BF16,
                              .max_seqs = 1,
                              .ctx = 4096,
                              .ubatch = 512,
                              .batch = 2048,
                              .flash = true,
                              .pin = true,
                              .huge_pages = true,
                              .device = HR_DEVICE_CPU,
                              .graphs = true,
                              .cublaslt = true};
}

/* ---- opening ---- */

#ifdef HR_HAVE_CUDA
static const hr_backend *const cuda_backend = &hr_backend_cuda;
#else
static const hr_backend *const cuda_backend = NULL;
#endif

hr_status hr_backend_of(int device, const hr_backend **out) {
    *out = device < 0 ? &hr_backend_cpu : cuda_backend;
    if (!*out)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "cuda:%d: this build has no CUDA backend; build it where the CUDA toolkit is (make CUDA=FOLDER)",
                device);
    return HR_OK;
}

/* --act auto on a GPU: f32 for weights of f32, else bf16, which all of its products take. */
static hr_act resolve_gpu_act(const hr_model *m, int wanted) {
    const hr_mat *w = &m->layers[0].wq;
    if (wanted >= 0) return (hr_act)wanted;
    return w->dtype == HR_F32 && m->head.dtype == HR_F32 ? HR_ACT_F32 : HR_ACT_BF16;
}

/* --act auto: int8 for quantized weights (int8-row where their groups are longer than 32), bf16 for 16-bit weights where the ISA has the unit, else f32. */
static hr_act resolve_act(const hr_model *m, int wanted, hr_isa isa) {
    if (wanted >= 0) return (hr_act)wanted;
    bool quantized = false, half = false, wide = false;
    const hr_layer *l = &m->layers[0];
    const hr_mat *mats[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->gate, &l->up, &l->down, &m->head};
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++) {
        hr_dtype t = mats[i]->dtype;
        half |= t == HR_F16 || t == HR_BF16;
        wide |= t == HR_I8ROW || t == HR_I4G128;
        quantized |= t != HR_F32 && t != HR_F16 && t != HR_BF16;
    }
    if (wide) return HR_ACT_INT8_ROW;
    if (quantized) return HR_ACT_INT8;
    if (half && isa >= HR_ISA_AVX512 && (hr_cpu_features() & HR_CPU_BF16)) return HR_ACT_BF16;
    return HR_ACT_F32;
}

static hr_status check_config(const hr_model_info *info, hr_engine_config *c, hr_isa *isa) {
    HR_TRY(hr_isa_resolve(c->isa, isa));
    if (c->device >= 0) c->threads = 1; /* no team: the caller's thread launches */
    if (c->threads == 0) c->threads = hr_physical_cores();
    if (c->max_seqs < 1) HR_FAIL(HR_ERR_USAGE, "sequences: 0 is too few; at least 1");
    if (c->ubatch < 1 || c->batch < 1) HR_FAIL(HR_ERR_USAGE, "-b and -ub: at least 1 token");
    if (c->ctx < 1) HR_FAIL(HR_ERR_USAGE, "a context of 0 positions holds nothing; ask for at least 1");
    if (c->ctx > info->ctx)
        HR_FAIL(HR_ERR_INPUT, "%s: a context of %u tokens is longer than the model's %u", info->filename, c->ctx,
                info->ctx);
    if (hr_kv_is_paged(c->kv_layout) && c->page_size == 0) c->page_size = 16;
    if (!hr_kv_is_paged(c->kv_layout)) c->page_size = 0;
    if (c->kv_alloc == HR_KV_ALLOC_AUTO) c->kv_alloc = hr_kv_alloc_default(c->kv_layout);
    return hr_kv_alloc_check(c->kv_alloc, c->kv_layout);
}

hr_status hr_engine_cache_config(const hr_model_info *info, const hr_engine_config *c, hr_kv_cache_config *out) {
    *out = (hr_kv_cache_config){.layout = c->kv_layout,
                                .alloc = c->kv_alloc,
                                .budget_bytes = c->kv_budget,
                                .threshold = c->kv_threshold,
                                .compact_every = c->kv_compact,
                                .share_prefix = c->kv_share,
                                .n_layers = info->n_layers,
                                .n_heads = info->n_kv_heads,
                                .head_dim = info->head_dim,
                                .k_type = c->k_type,
                                .v_type = c->v_type,
                                .page_size = c->page_size,
                                .max_seqs = c->max_seqs,
                                .capacity = c->ctx,
                                .no_huge_pages = !c->huge_pages};
    if (c->kv_budget || !c->kv_budget_pct || c->kv_budget_pct == 100) return HR_OK;
    uint64_t demand;
    HR_TRY(hr_kv_cache_plan(out, &demand));
    out->budget_bytes = (uint64_t)((double)demand * c->kv_budget_pct / 100);
    return HR_OK;
}

hr_status hr_engine_plan(const hr_model_info *info, const hr_engine_config *config, uint64_t *arena, uint64_t *kv) {
    hr_engine_config c = *config;
    hr_isa isa;
    HR_TRY(check_config(info, &c, &isa));
    const hr_backend *backend;
    HR_TRY(hr_backend_of(c.device, &backend));
    *arena = 0;
    for (int act = 0; act < HR_ACT_COUNT; act++) { /* auto: the largest, as the weights' types are not known here */
        if (c.act >= 0 && c.act != act) continue;
        hr_sizes sizes = hr_sizes_of(info, &c, (hr_act)act);
        const size_t bytes = backend->run_bytes(&sizes);
        if (bytes > *arena) *arena = bytes;
    }
    hr_kv_cache_config cache;
    HR_TRY(hr_engine_cache_config(info, &c, &cache));
    return hr_kv_cache_plan(&cache, kv);
}

static hr_status open_engine(hr_engine *e) {
    HR_TRY(check_config(&e->model->info, &e->config, &e->isa));
    if (e->model->n_unmade && !hr_engine_on_gpu(e))
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: its weights are made on a GPU; the CPU needs them loaded",
                e->model->info.filename);
    e->act =
        hr_engine_on_gpu(e) ? resolve_gpu_act(e->model, e->config.act) : resolve_act(e->model, e->config.act, e->isa);
    HR_TRY(hr_kernel_forces_fit(&e->config, &e->model->info, e->isa, e->act));
    HR_TRY(hr_probe_init(&e->probe));
    if (e->probe.level >= HR_NVTX_LAYER) hr_nvtx_name_layers(e->model->info.n_layers);
    return e->backend->open(e);
}

hr_status hr_engine_create(const hr_model *model, const hr_engine_config *config, hr_engine **out) {
    *out = NULL;
    const hr_backend *backend;
    HR_TRY(hr_backend_of(config->device, &backend));
    if (config->device < 0) HR_TRY(hr_tune(NULL));
    hr_engine *e = hr_calloc(1, sizeof *e);
    if (!e) HR_FAIL(HR_ERR_MEMORY, "out of memory for an engine");
    e->model = model;
    e->config = *config;
    e->backend = backend;
    hr_status status = open_engine(e);
    if (status != HR_OK) {
        hr_engine_destroy(e);
        return status;
    }
    *out = e;
    return HR_OK;
}

void hr_engine_destroy(hr_engine *e) {
    if (!e) return;
    e->backend->close(e);
    hr_probe_fini(&e->probe);
    hr_free(e);
}

hr_engine_facts hr_engine_get_facts(const hr_engine *e) {
    hr_engine_facts f = {.act = e->act,
                         .isa = e->isa,
                         .threads = e->config.threads,
                         .arena_bytes = e->arena_bytes,
                         .kv_bytes = hr_kv_cache_mapped(e->kv),
                         .huge_pages = e->huge_pages,
                         .device = e->config.device};
    e->backend->facts(e, &f);
    hr_kv_cache_bytes(e->kv, &f.kv_bytes_needed, &f.kv_bytes_touched);
    return f;
}

/* ---- steps ---- */

size_t hr_engine_next_pass(const hr_engine *e, size_t done, size_t n) {
    size_t left_in_batch = e->config.batch - done % e->config.batch, step = n - done;
    if (step > left_in_batch) step = left_in_batch;
    if (step > e->config.ubatch) step = e->config.ubatch;
    return step < e->sizes.tokens ? step : e->sizes.tokens;
}

static hr_status check_seq(const hr_engine *e, uint32_t seq, size_t n) {
    if (seq >= e->config.max_seqs)
        HR_FAIL(HR_ERR_INPUT, "sequence %u of %u: the engine was opened for fewer", seq, e->config.max_seqs);
    const uint32_t len = hr_engine_seq_len(e, seq);
    if (n > e->config.ctx - len)
        HR_FAIL(HR_ERR_INPUT, "sequence %u: %zu tokens more than %u of %u positions do not fit", seq, n, len,
                e->config.ctx);
    return HR_OK;
}

static hr_status check_tokens(const hr_engine *e, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->sizes.vocab)
            HR_FAIL(HR_ERR_INPUT, "token %zu: id %d is outside the vocabulary of %u", i, tokens[i], e->sizes.vocab);
    return HR_OK;
}

/* n checked tokens of one sequence; logits of all of them into `all`, or of the last into the engine's, or none. */
static hr_status prefill_passes(hr_engine *e, uint32_t seq, const int32_t *tokens, size_t n, bool last, float *all) {
    const size_t vocab = e->sizes.vocab;
    for (size_t done = 0; done < n;) {
        const size_t step = hr_engine_next_pass(e, done, n);
        const uint32_t pos0 = hr_engine_seq_len(e, seq);
        HR_TRY(hr_kv_cache_reserve(e->kv, seq, pos0 + (uint32_t)step));
        hr_kv_cache_note(e->kv, seq, pos0, tokens + done, (uint32_t)step);
        hr_segment segment = {.kv = hr_kv_cache_view(e->kv, seq), .pos0 = pos0, .n = (uint32_t)step};
        hr_batch batch = {.phase = HR_PHASE_PREFILL,
                          .tokens = tokens + done,
                          .n = (uint32_t)step,
                          .n_segments = 1,
                          .segments = &segment,
                          .logit_rows = e->b.logit_rows,
                          .logits = e->b.logits};
        if (all) {
            batch.n_logits = (uint32_t)step, batch.logits = all + done * vocab;
            for (uint32_t i = 0; i < step; i++) e->b.logit_rows[i] = i;
        } else if (last && done + step == n) {
            batch.n_logits = 1;
            e->b.logit_rows[0] = (uint32_t)step - 1;
        }
        HR_TRY(hr_forward(e, &batch));
        done += step;
    }
    return HR_OK;
}

/* All passes, or none that can be seen. */
static hr_status prefill(hr_engine *e, uint32_t seq, const int32_t *tokens, size_t n, bool last, float *all) {
    const uint32_t len = hr_engine_seq_len(e, seq);
    const bool open = hr_kv_cache_is_open(e->kv, seq);
    const hr_status status = prefill_passes(e, seq, tokens, n, last, all);
    if (status == HR_OK) return HR_OK;
    hr_kv_cache_cut(e->kv, seq, len);
    if (!open && hr_kv_cache_is_open(e->kv, seq)) hr_kv_cache_close(e->kv, seq);
    return status;
}

hr_status hr_engine_prefill(hr_engine *e, uint32_t seq, const int32_t *tokens, size_t n, bool want_logits) {
    HR_TRY(check_seq(e, seq, n));
    HR_TRY(check_tokens(e, tokens, n));
    return prefill(e, seq, tokens, n, want_logits, NULL);
}

hr_status hr_engine_prefill_all(hr_engine *e, uint32_t seq, const int32_t *tokens, size_t n, float *out) {
    HR_TRY(check_seq(e, seq, n));
    HR_TRY(check_tokens(e, tokens, n));
    return prefill(e, seq, tokens, n, false, out);
}

/* A position more for each sequence, or for none of them: those before the one that finds no room give theirs back. */
static hr_status reserve_step(hr_engine *e, const uint32_t *seqs, const int32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t pos = hr_engine_seq_len(e, seqs[i]);
        const bool open = hr_kv_cache_is_open(e->kv, seqs[i]);
        const hr_status status = hr_kv_cache_reserve(e->kv, seqs[i], pos + 1);
        if (status != HR_OK) {
            for (size_t j = 0; j < i; j++) {
                hr_kv_cache_cut(e->kv, seqs[j], e->b.segments[j].pos0);
                if (e->b.segments[j].n == 0) hr_kv_cache_close(e->kv, seqs[j]);
            }
            return status;
        }
        e->b.segments[i] =
            (hr_segment){.kv = hr_kv_cache_view(e->kv, seqs[i]), .pos0 = pos, .n = open, .row0 = (uint32_t)i};
    }
    for (size_t i = 0; i < n; i++) {
        e->b.segments[i].n = 1;
        hr_kv_cache_note(e->kv, seqs[i], e->b.segments[i].pos0, tokens + i, 1);
        e->b.logit_rows[i] = (uint32_t)i;
    }
    return HR_OK;
}

hr_status hr_engine_decode(hr_engine *e, const uint32_t *seqs, const int32_t *tokens, size_t n) {
    if (n < 1 || n > e->config.max_seqs)
        HR_FAIL(HR_ERR_INPUT, "a step of %zu sequences: the engine was opened for 1..%u", n, e->config.max_seqs);
    HR_TRY(check_tokens(e, tokens, n));
    for (size_t i = 0; i < n; i++) {
        HR_TRY(check_seq(e, seqs[i], 1));
        for (size_t j = 0; j < i; j++)
            if (seqs[j] == seqs[i]) HR_FAIL(HR_ERR_INPUT, "sequence %u stands twice in one step", seqs[i]);
    }
    HR_TRY(reserve_step(e, seqs, tokens, n));
    hr_batch batch = {.phase = HR_PHASE_DECODE,
                      .tokens = tokens,
                      .n = (uint32_t)n,
                      .n_segments = (uint32_t)n,
                      .segments = e->b.segments,
                      .logit_rows = e->b.logit_rows,
                      .n_logits = (uint32_t)n,
                      .logits = e->b.logits};
    const hr_status status = hr_forward(e, &batch);
    for (size_t i = 0; status != HR_OK && i < n; i++) hr_kv_cache_cut(e->kv, seqs[i], e->b.segments[i].pos0);
    return status;
}

const float *hr_engine_logits(const hr_engine *e, size_t i) {
    return e->backend->logits((hr_engine *)(uintptr_t)e, i);
}

uint32_t hr_engine_seq_len(const hr_engine *e, uint32_t seq) {
    return hr_kv_cache_view(e->kv, seq)->len;
}

void hr_engine_seq_cut(hr_engine *e, uint32_t seq, uint32_t len) {
    if (seq < e->config.max_seqs && len < hr_engine_seq_len(e, seq)) hr_kv_cache_cut(e->kv, seq, len);
}

/* ---- requests ---- */

hr_status hr_engine_seq_open(hr_engine *e, uint32_t seq, const hr_kv_request *request, uint32_t *shared) {
    if (request->prompt) HR_TRY(check_tokens(e, request->prompt, request->n_prompt));
    return hr_kv_cache_open(e->kv, seq, request, shared);
}

hr_status hr_engine_seq_close(hr_engine *e, uint32_t seq) {
    return hr_kv_cache_close(e->kv, seq);
}

hr_status hr_engine_seq_fork(hr_engine *e, uint32_t from, uint32_t to, uint32_t len) {
    return hr_kv_cache_fork(e->kv, from, to, len);
}

hr_status hr_engine_seq_evict(hr_engine *e, uint32_t seq, uint32_t sinks, uint32_t window) {
    return hr_kv_cache_evict(e->kv, seq, sinks, window);
}

uint64_t hr_engine_seq_saved_bytes(const hr_engine *e, uint32_t seq) {
    return hr_kv_cache_saved_bytes(e->kv, seq);
}

void hr_engine_seq_save(const hr_engine *e, uint32_t seq, void *out) {
    hr_kv_cache_save(e->kv, seq, out);
}

hr_status hr_engine_seq_load(hr_engine *e, uint32_t seq, const void *saved, uint32_t len, uint32_t gone_from,
                             uint32_t gone_to) {
    return hr_kv_cache_load(e->kv, seq, saved, len, gone_from, gone_to);
}

hr_kv_stats hr_engine_kv_stats(const hr_engine *e) {
    return hr_kv_cache_stats(e->kv);
}

int32_t hr_engine_sample(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng) {
    return e->backend->sample(e, i, how, rng);
}

/* ---- records ---- */

hr_status hr_engine_record(hr_engine *e, size_t capacity) {
    return hr_probe_record(&e->probe, capacity, 0, false);
}

hr_status hr_engine_record_ring(hr_engine *e, size_t ops, size_t spans) {
    return hr_probe_record(&e->probe, ops, spans, true);
}

void hr_engine_record_pause(hr_engine *e, bool paused) {
    hr_probe_pause(&e->probe, paused);
}

void hr_engine_record_reset(hr_engine *e) {
    hr_probe_reset(&e->probe);
}

const hr_op_record *hr_engine_records(hr_engine *e, size_t *n, size_t *lost) {
    return hr_probe_read(&e->probe.records, n, lost);
}

const hr_thread_span *hr_engine_thread_spans(hr_engine *e, size_t *n, size_t *lost) {
    return hr_probe_read(&e->probe.spans, n, lost);
}
