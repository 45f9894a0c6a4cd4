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

/* Pass by pass, as the engine would cut the prompt: a long one need not end before the user is heard. */
static hr_status prefill(const traced *run, uint32_t seq, bool *stopped) {
    const hr_trace_request *r = run->r;
    const int32_t *prompt = run->prompts + (size_t)seq * r->isl;
    for (uint32_t done = 0, step; done < r->isl; done += step) {
        *stopped = is_stopped(run);
        if (*stopped) return HR_OK;
        step = r->isl - done;
        if (r->batch && step > r->batch - done % r->batch) step = r->batch - done % r->batch;
        if (r->ubatch && step > r->ubatch) step = r->ubatch;
        HR_TRY(hr_engine_prefill(r->engine, seq, prompt + done, step, done + step == r->isl));
    }
    return HR_OK;
}

static hr_status run_all(traced *run, bool warm_up) {
    static const hr_sampling greedy = {.temperature = 0, .top_p = 1};
    const hr_trace_request *r = run->r;
    uint64_t rng = 0;
    bool stopped = false;
    for (uint32_t s = 0; s < r->seqs; s++) {
        HR_TRY(prefill(run, s, &stopped));
        if (stopped) return HR_OK;
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

static void look(const traced *run, hr_trace *trace) {
    size_t ops, jobs, ops_lost, jobs_lost;
    const hr_op_record *records = hr_engine_records(run->r->engine, &ops, &ops_lost);
    const hr_thread_span *spans = hr_engine_thread_spans(run->r->engine, &jobs, &jobs_lost);
    hr_trace_init(trace, records, ops, ops_lost, spans, jobs, jobs_lost);
    trace->start_ns = run->start_ns, trace->end_ns = run->end_ns;
    trace->threads = hr_engine_get_facts(run->r->engine).threads;
}

/* Room for all ops of the warm-up and for the jobs that they may have at most (how many a helper gets depends on what
 * else the machine does), but for no more than a file of max_bytes can hold: hr_trace_fit cuts what is still too much. */
static void size_ring(const traced *warm, uint64_t max_bytes, size_t *ops, size_t *jobs) {
    enum { OP_BYTES = 128, JOB_BYTES = 100, JOBS_AN_OP = 2, FEW = 1024 }; /* bytes: of the shortest events */
    size_t n, lost;
    const unsigned threads = hr_engine_get_facts(warm->r->engine).threads; /* 0: a GPU alone */
    const unsigned helpers = threads ? threads - 1 : 0;
    hr_engine_records(warm->r->engine, &n, &lost);
    const uint64_t all = (uint64_t)n + lost, most_ops = max_bytes / OP_BYTES, most_jobs = max_bytes / JOB_BYTES;
    *ops = (size_t)(all < most_ops ? all : most_ops) + FEW;
    *jobs = (size_t)(all * JOBS_AN_OP * helpers < most_jobs ? all * JOBS_AN_OP * helpers : most_jobs);
}

static hr_status warm_up(traced *run, uint64_t max_bytes, size_t *ops, size_t *jobs) {
    enum { SOME = 1 << 12 };
    HR_TRY(run_recorded(run, true, SOME, SOME));
    if (!run->whole)
        HR_FAIL(HR_ERR_INTERRUPTED, "interrupted during the warm-up: nothing was recorded, no trace is written");
    size_ring(run, max_bytes, ops, jobs);
    return HR_OK;
}

hr_status hr_trace_request_run(const hr_trace_request *request, uint64_t max_bytes, hr_trace *out, bool *whole) {
    traced run;
    size_t ops, jobs;
    HR_TRY(run_init(&run, request));
    hr_status status = warm_up(&run, max_bytes, &ops, &jobs);
    if (status == HR_OK) status = run_recorded(&run, false, ops, jobs);
    if (status == HR_OK) {
        look(&run, out);
        *whole = run.whole;
    }
    run_fini(&run);
    return status;
}
