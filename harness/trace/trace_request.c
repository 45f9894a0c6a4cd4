#include "harness/trace/trace_request.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

/* One run of the request. */
typedef struct traced {
    const hr_trace_request *r;
    int32_t *prompts; /* [seqs][isl] */
    int32_t *tokens;  /* [seqs] the last sampled ones */
    uint32_t *seqs;   /* [seqs] 0, 1, 2, ... */
    uint64_t start_ns, end_ns;
    bool whole;
} traced;

static void run_fini(traced *run) {
    hr_free(run->prompts);
    hr_free(run->tokens);
    hr_free(run->seqs);
}

static hr_status run_init(traced *run, const hr_trace_request *r) {
    uint64_t random = 0;
    const size_t n = (size_t)r->seqs * r->isl;
    *run = (traced){.r = r};
    run->prompts = hr_malloc(hr_mul(n, sizeof *run->prompts));
    run->tokens = hr_calloc(r->seqs, sizeof *run->tokens);
    run->seqs = hr_calloc(r->seqs, sizeof *run->seqs);
    if (!run->prompts || !run->tokens || !run->seqs) {
        run_fini(run);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for prompts of %zu tokens", n);
    }
    for (size_t i = 0; i < n; i++) run->prompts[i] = (int32_t)(hr_random(&random) % r->vocab);
    for (uint32_t s = 0; s < r->seqs; s++) run->seqs[s] = s;
    return HR_OK;
}

static bool is_stopped(const traced *run) {
    return run->r->stop && run->r->stop();
}

/* passes: of all seqs + osl - 1. */
static void show(const traced *run, bool warm_up, size_t passes) {
    const hr_trace_request *r = run->r;
    if (warm_up && r->progress) r->progress((double)passes / (double)(r->seqs + r->osl - 1), r->context);
}

static hr_status run_all(traced *run, bool warm_up) {
    static const hr_sampling greedy = {.temperature = 0, .top_p = 1};
    const hr_trace_request *r = run->r;
    uint64_t rng = 0;
    for (uint32_t s = 0; s < r->seqs; s++) {
        if (is_stopped(run)) return HR_OK;
        HR_TRY(hr_engine_prefill(r->engine, s, run->prompts + (size_t)s * r->isl, r->isl, true));
        run->tokens[s] = hr_engine_sample(r->engine, 0, &greedy, &rng);
        show(run, warm_up, s + 1);
    }
    for (uint32_t i = 1; i < r->osl; i++) {
        if (is_stopped(run)) return HR_OK;
        HR_TRY(hr_engine_decode(r->engine, run->seqs, run->tokens, r->seqs));
        for (uint32_t s = 0; s < r->seqs; s++) run->tokens[s] = hr_engine_sample(r->engine, s, &greedy, &rng);
        show(run, warm_up, r->seqs + i);
    }
    run->whole = true;
    return HR_OK;
}

/* Empty sequences, an empty ring of that size, and the request. */
static hr_status run_recorded(traced *run, bool warm_up, size_t ops, size_t jobs) {
    const hr_trace_request *r = run->r;
    for (uint32_t s = 0; s < r->seqs; s++) hr_engine_seq_cut(r->engine, s, 0);
    HR_TRY(hr_engine_record_ring(r->engine, ops, jobs));
    hr_engine_record_reset(r->engine);
    run->whole = false;
    run->start_ns = hr_now_ns();
    HR_TRY(run_all(run, warm_up));
    run->end_ns = hr_now_ns();
    return HR_OK;
}

typedef struct counts {
    size_t ops, jobs, ops_lost, jobs_lost;
} counts;

static void look(const traced *run, hr_trace *trace, counts *c) {
    const hr_op_record *records = hr_engine_records(run->r->engine, &c->ops, &c->ops_lost);
    const hr_thread_span *spans = hr_engine_thread_spans(run->r->engine, &c->jobs, &c->jobs_lost);
    hr_trace_init(trace, records, c->ops, c->ops_lost, spans, c->jobs, c->jobs_lost);
    trace->start_ns = run->start_ns, trace->end_ns = run->end_ns;
    trace->threads = hr_engine_get_facts(run->r->engine).threads;
}

/* Room for as many ops and jobs as the warm-up had, or for the share of them that fills max_bytes. */
static hr_status ring_size(const traced *warm, uint64_t max_bytes, size_t *ops, size_t *jobs) {
    hr_trace trace;
    counts c;
    uint64_t bytes;
    look(warm, &trace, &c);
    HR_TRY(hr_trace_bytes(&trace, &bytes));
    const double all = (double)(c.ops + c.ops_lost + c.jobs + c.jobs_lost);
    const double here = all - (double)trace.ops_dropped - (double)trace.jobs_dropped;
    double share = here > 0 ? (double)max_bytes / ((double)bytes * all / here) : 1;
    if (share > 1) share = 1;
    /* Jobs differ in number from run to run: those that find no work left are none. What is too much is cut to fit. */
    enum { SPARE = 16, FEW = 1024 };
    const double n_ops = (double)(c.ops + c.ops_lost) * share, n_jobs = (double)(c.jobs + c.jobs_lost) * share;
    *ops = (size_t)(n_ops + n_ops / SPARE) + FEW;
    *jobs = trace.threads > 1 ? (size_t)(n_jobs + n_jobs / SPARE) + FEW : 0;
    return HR_OK;
}

static hr_status warm_up(traced *run, uint64_t max_bytes, size_t *ops, size_t *jobs) {
    enum { SOME = 1 << 14 };
    HR_TRY(run_recorded(run, true, SOME, SOME));
    if (!run->whole)
        HR_FAIL(HR_ERR_INTERRUPTED, "interrupted during the warm-up: nothing was recorded, no trace is written");
    return ring_size(run, max_bytes, ops, jobs);
}

hr_status hr_trace_request_run(const hr_trace_request *request, uint64_t max_bytes, hr_trace *out, bool *whole) {
    traced run;
    counts c;
    size_t ops, jobs;
    HR_TRY(run_init(&run, request));
    hr_status status = warm_up(&run, max_bytes, &ops, &jobs);
    if (status == HR_OK) status = run_recorded(&run, false, ops, jobs);
    if (status == HR_OK) {
        look(&run, out, &c);
        *whole = run.whole;
    }
    run_fini(&run);
    return status;
}
