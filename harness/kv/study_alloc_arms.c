/* The loop on engines: one engine an arm, all open at once, traffic in rounds. */
#include "harness/kv/study_alloc.h"

#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <sched.h>
#include <string.h>

/* ---- an engine as the loop sees it ---- */

typedef struct seat {
    hr_engine *engine;
    const hr_alloc_arm *arm;
} seat;

/* An extent is made for the promise at once; pages come for what is there. */
static hr_status op_open(void *context, uint32_t seq, const hr_kv_request *request, uint32_t *shared) {
    const seat *s = context;
    hr_kv_request ask = *request;
    const bool extent =
        s->arm->alloc == HR_KV_POOL || (s->arm->alloc == HR_KV_HYBRID && ask.max_len < s->arm->threshold);
    if (extent && !s->arm->prepare) ask.expect_len = 0;
    return hr_engine_seq_open(s->engine, seq, &ask, shared);
}
static hr_status op_prefill(void *context, uint32_t seq, const int32_t *tokens, uint32_t n) {
    return hr_engine_prefill(((seat *)context)->engine, seq, tokens, n, true);
}
static hr_status op_decode(void *context, const uint32_t *seqs, const int32_t *tokens, uint32_t n) {
    return hr_engine_decode(((seat *)context)->engine, seqs, tokens, n);
}
static hr_status op_close(void *context, uint32_t seq) {
    return hr_engine_seq_close(((seat *)context)->engine, seq);
}
static hr_kv_stats op_stats(void *context) {
    return hr_engine_kv_stats(((seat *)context)->engine);
}
static uint64_t op_now(void *context) {
    (void)context;
    return hr_now_ns();
}

/* ---- a point ---- */

typedef struct bench {
    const hr_alloc_point *point;
    const hr_model *model;
    hr_engine **engines;          /* [n_arms] */
    hr_traffic_request *requests; /* [n_requests] */
    hr_alloc_result *out;
    cpu_set_t all_cpus;
} bench;

static hr_traffic_spec traffic_of(const hr_alloc_point *p, uint64_t round) {
    return hr_traffic_chat(p->concurrency, p->n_requests, p->scale, hr_mix64(p->seed * 1000003 + round + 1));
}

static hr_engine_config config_of(const hr_alloc_point *p, const hr_alloc_arm *arm, uint64_t budget) {
    hr_engine_config c = hr_engine_config_default();
    const bool pages = arm->alloc == HR_KV_PAGES || arm->alloc == HR_KV_HYBRID;
    c.threads = p->threads;
    c.kv_layout = pages ? HR_KV_PAGED : HR_KV_HEAD;
    c.page_size = p->page_size;
    c.kv_alloc = arm->alloc;
    c.kv_budget = budget;
    c.kv_threshold = arm->threshold, c.kv_compact = arm->compact_every, c.kv_share = arm->share;
    c.max_seqs = p->concurrency;
    c.ctx = hr_traffic_chat(1, 1, p->scale, 0).ctx;
    return c;
}

static hr_status size_of(const hr_model_info *info, const hr_engine_config *c, hr_alloc_size *out) {
    hr_kv_geom g;
    HR_TRY(hr_kv_geom_init(&g, HR_KV_HEAD, info->n_layers, info->n_kv_heads, info->head_dim, c->k_type, c->v_type,
                           c->ctx, 0));
    *out = (hr_alloc_size){.round = g.block};
    for (int x = 0; x < HR_KV_PLANES; x++) out->bytes_position += (uint64_t)g.n_layers * g.n_heads * g.row_bytes[x];
    return HR_OK;
}

/* Mean demand over the rounds' traffic, so that the budget is one for all of them. */
static double demand(bench *b, uint32_t concurrency) {
    double sum = 0;
    for (size_t round = 0; round < b->point->n_rounds; round++) {
        hr_traffic_spec s = traffic_of(b->point, round);
        hr_traffic_make(&s, b->requests);
        s.concurrency = concurrency;
        sum += hr_traffic_demand(&s, b->requests);
    }
    return sum / (double)b->point->n_rounds;
}

/* An engine pins the thread that opens it; the next one must see all CPUs again. */
static hr_status open_engines(bench *b) {
    const hr_alloc_point *p = b->point;
    hr_status status = HR_OK;
    for (size_t a = 0; a < p->n_arms && status == HR_OK; a++) {
        const hr_engine_config c = config_of(p, &p->arms[a], b->out->budget_bytes);
        sched_setaffinity(0, sizeof b->all_cpus, &b->all_cpus);
        status = hr_engine_create(b->model, &c, &b->engines[a]);
    }
    return status;
}

static hr_status run_arm(bench *b, size_t a, const hr_traffic_spec *spec, hr_alloc_outcome *out) {
    const hr_alloc_point *p = b->point;
    seat at = {b->engines[a], &p->arms[a]};
    const hr_alloc_ops ops = {
        op_open, op_prefill, op_decode, op_close, op_stats, op_now, p->stop, &at, hr_model_get_info(b->model)->vocab};
    const uint32_t prepare = p->arms[a].prepare ? (uint32_t)spec->output_median : 0;
    return hr_alloc_loop(spec, b->requests, prepare, b->out->size, &ops, out);
}

/* A few requests on each engine: memory is touched, kernels are chosen. */
static hr_status warm_up(bench *b) {
    hr_traffic_spec s = traffic_of(b->point, b->point->n_rounds);
    if (s.concurrency > 8) s.concurrency = 8;
    if (s.n_requests > 8) s.n_requests = 8;
    hr_traffic_make(&s, b->requests);
    hr_alloc_outcome out = {0};
    hr_status status = HR_OK;
    for (size_t a = 0; a < b->point->n_arms && status == HR_OK; a++) status = run_arm(b, a, &s, &out);
    hr_alloc_outcome_fini(&out);
    return status;
}

static hr_status rounds(bench *b, size_t *order) {
    const hr_alloc_point *p = b->point;
    uint64_t rng = p->seed + 11;
    for (size_t round = 0; round < p->n_rounds; round++) {
        const hr_traffic_spec s = traffic_of(p, round);
        hr_traffic_make(&s, b->requests);
        for (size_t i = 0; i < p->n_arms; i++) order[i] = i;
        for (size_t i = p->n_arms; i-- > 1;) {
            const size_t j = hr_random(&rng) % (i + 1), t = order[i];
            order[i] = order[j], order[j] = t;
        }
        for (size_t i = 0; i < p->n_arms; i++) {
            HR_TRY(run_arm(b, order[i], &s, &b->out->outcomes[order[i] * p->n_rounds + round]));
            const size_t done = round * p->n_arms + i + 1;
            if (p->progress) p->progress((double)done / (double)(p->n_arms * p->n_rounds), p->progress_context);
        }
    }
    return HR_OK;
}

static hr_status measure(bench *b) {
    const hr_alloc_point *p = b->point;
    const hr_engine_config c = config_of(p, &p->arms[0], 0);
    HR_TRY(size_of(hr_model_get_info(b->model), &c, &b->out->size));
    const double positions = p->budget_pct / 100 * demand(b, p->demand_of ? p->demand_of : p->concurrency);
    b->out->budget_bytes = (uint64_t)(positions * (double)b->out->size.bytes_position);
    b->out->budget_pct = 100 * positions / demand(b, p->concurrency);
    HR_TRY(open_engines(b));
    HR_TRY(warm_up(b));
    size_t *order = hr_calloc(p->n_arms, sizeof *order);
    if (!order) HR_FAIL(HR_ERR_MEMORY, "no memory for the order of %zu allocators", p->n_arms);
    const hr_status status = rounds(b, order);
    hr_free(order);
    return status;
}

hr_status hr_alloc_point_run(const hr_alloc_point *p, const hr_model *model, hr_alloc_result *out) {
    *out = (hr_alloc_result){.spec = traffic_of(p, 0), .n_arms = p->n_arms, .n_rounds = p->n_rounds};
    bench b = {.point = p, .model = model, .out = out};
    sched_getaffinity(0, sizeof b.all_cpus, &b.all_cpus);
    b.engines = hr_calloc(p->n_arms, sizeof *b.engines);
    b.requests = hr_calloc(p->n_requests, sizeof *b.requests);
    out->outcomes = hr_calloc(hr_mul(p->n_arms, p->n_rounds), sizeof *out->outcomes);
    hr_status status = b.engines && b.requests && out->outcomes
                           ? measure(&b)
                           : hr_fail(HR_ERR_MEMORY, "no memory for the study of %zu allocators", p->n_arms);
    for (size_t a = 0; b.engines && a < p->n_arms; a++) hr_engine_destroy(b.engines[a]);
    hr_free(b.engines), hr_free(b.requests);
    sched_setaffinity(0, sizeof b.all_cpus, &b.all_cpus);
    if (status != HR_OK) hr_alloc_result_fini(out);
    return status;
}

void hr_alloc_result_fini(hr_alloc_result *r) {
    for (size_t i = 0; r->outcomes && i < r->n_arms * r->n_rounds; i++) hr_alloc_outcome_fini(&r->outcomes[i]);
    hr_free(r->outcomes);
    *r = (hr_alloc_result){0};
}
