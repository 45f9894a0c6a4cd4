/* Admission, decode and preemption, in the order of arrival. A request's number is its place in that order, so the queue
 * needs no list: the oldest waiting request is the lowest number that waits. */
#include "harness/kv/study_alloc.h"

#include "kernels/base/memory.h"

#include <string.h>

enum { ABSENT, WAITS, RUNS, OVER };

typedef struct request {
    uint8_t state;
    uint32_t seq, produced; /* tokens of output so far; the last of them is not in the cache yet */
    uint64_t arrived, last; /* ns: arrival; last token */
} request;

typedef struct loop {
    const hr_traffic_spec *spec;
    const hr_traffic_request *traffic;
    const hr_alloc_ops *ops;
    hr_alloc_outcome *out;
    uint32_t prepare;
    hr_alloc_size size;
    request *requests; /* [n_requests] */
    uint32_t *running; /* [concurrency] numbers, oldest first */
    uint32_t *seqs;    /* [concurrency] of a step */
    uint32_t *free;    /* [concurrency] stack of sequences */
    int32_t *tokens;   /* [max(ctx, concurrency)] */
    uint32_t n_running, n_free, arrived, over;
    bool blocked;    /* rules 4 and 5: until a request ends */
    uint64_t looked; /* ns spent in looking at the cache: taken out of the clock */
    uint64_t start, inside;
    double waiting[4], all[4]; /* sums of reserved, used, inside, between */
    uint32_t n_waiting;
} loop;

static uint64_t now(const loop *l) {
    return l->ops->now(l->ops->context) - l->looked;
}

/* A call and the time inside of it. */
#define TIMED(l, result, call)           \
    do {                                 \
        const uint64_t before_ = now(l); \
        result = (call);                 \
        (l)->inside += now(l) - before_; \
    } while (0)

static double ms(uint64_t ns) {
    return (double)ns * 1e-6;
}

static hr_kv_stats look(loop *l) {
    const uint64_t before = l->ops->now(l->ops->context);
    const hr_kv_stats s = l->ops->stats(l->ops->context);
    l->looked += l->ops->now(l->ops->context) - before;
    return s;
}

/* ---- ends ---- */

static hr_status end(loop *l, uint32_t at, bool over, uint64_t t) {
    const uint32_t r = l->running[at];
    request *q = &l->requests[r];
    hr_status status;
    TIMED(l, status, l->ops->close(l->ops->context, q->seq));
    HR_TRY(status);
    l->free[l->n_free++] = q->seq;
    memmove(l->running + at, l->running + at + 1, (--l->n_running - at) * sizeof *l->running);
    q->state = over ? OVER : WAITS;
    if (!over) return HR_OK;
    l->out->latency_ms[r] = ms(t - q->arrived);
    l->over++, l->blocked = false;
    if (l->arrived < l->spec->n_requests) {
        l->requests[l->arrived].state = WAITS;
        l->requests[l->arrived++].arrived = t;
    }
    return HR_OK;
}

/* A token of the running request number `at` came at t. */
static void took(loop *l, uint32_t r, uint64_t t) {
    request *q = &l->requests[r];
    if (q->produced++)
        l->out->gap_ms[l->out->n_gaps++] = ms(t - q->last);
    else
        l->out->ttft_ms[r] = ms(t - q->arrived);
    q->last = t;
}

static bool is_over(const loop *l, uint32_t r) {
    return l->requests[r].produced >= l->traffic[r].n_output;
}

/* ---- admission ---- */

static uint32_t oldest_waiting(const loop *l) {
    for (uint32_t r = 0; r < l->arrived; r++)
        if (l->requests[r].state == WAITS) return r;
    return UINT32_MAX;
}

static void text_of(const loop *l, uint32_t r, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) l->tokens[i] = hr_traffic_token(l->spec, &l->traffic[r], r, i, l->ops->vocab);
}

/* Whether the free bytes would have held the promise of `longest` positions in one piece. */
static bool by_pieces(loop *l, uint32_t longest) {
    const hr_kv_stats s = look(l);
    const uint64_t need = hr_align_up(longest, l->size.round ? l->size.round : 1) * l->size.bytes_position;
    return s.budget_bytes - s.reserved_bytes >= need;
}

/* *admitted false: no room. A request that comes again brings the output it has already. */
static hr_status admit(loop *l, uint32_t r, bool *admitted) {
    const hr_traffic_request *t = &l->traffic[r];
    request *q = &l->requests[r];
    const uint32_t n = t->n_prompt + q->produced, longest = t->n_prompt + t->max_output, seq = l->free[l->n_free - 1];
    uint32_t expect = t->n_prompt + (l->prepare > q->produced ? l->prepare : q->produced + 1), shared = 0;
    if (expect > longest) expect = longest;
    text_of(l, r, n);
    const hr_kv_request ask = {.max_len = longest, .expect_len = expect, .prompt = l->tokens, .n_prompt = n};
    hr_status status;
    TIMED(l, status, l->ops->open(l->ops->context, seq, &ask, &shared));
    *admitted = status == HR_OK;
    if (status == HR_ERR_MEMORY && l->n_running) {
        l->out->failed_admissions++, l->out->failed_by_pieces += by_pieces(l, longest);
        l->blocked = true;
        return HR_OK;
    }
    HR_TRY(status);
    TIMED(l, status, l->ops->prefill(l->ops->context, seq, l->tokens + shared, n - shared));
    if (status != HR_OK) {
        l->ops->close(l->ops->context, seq);
        if (status != HR_ERR_MEMORY || !l->n_running) return status;
        *admitted = false; /* opened without the promise of room, and there is none */
        l->out->failed_admissions++, l->blocked = true;
        return HR_OK;
    }
    l->n_free--;
    q->state = RUNS, q->seq = seq;
    uint32_t at = l->n_running++;
    for (; at && l->running[at - 1] > r; at--) l->running[at] = l->running[at - 1];
    l->running[at] = r;
    const uint64_t then = now(l);
    took(l, r, then);
    return is_over(l, r) ? end(l, at, true, then) : HR_OK;
}

static hr_status admit_all(loop *l) {
    while (!l->blocked && l->n_free) {
        const uint32_t r = oldest_waiting(l);
        bool admitted;
        if (r == UINT32_MAX) break;
        HR_TRY(admit(l, r, &admitted));
        if (!admitted) break;
    }
    if (l->n_running > l->out->largest_batch) l->out->largest_batch = l->n_running;
    return HR_OK;
}

/* ---- steps ---- */

static hr_status decode(loop *l) {
    for (uint32_t i = 0; i < l->n_running; i++) {
        const uint32_t r = l->running[i], at = l->traffic[r].n_prompt + l->requests[r].produced - 1;
        l->seqs[i] = l->requests[r].seq;
        l->tokens[i] = hr_traffic_token(l->spec, &l->traffic[r], r, at, l->ops->vocab);
    }
    hr_status status;
    TIMED(l, status, l->ops->decode(l->ops->context, l->seqs, l->tokens, l->n_running));
    return status;
}

static hr_status step(loop *l) {
    hr_status status = decode(l);
    while (status == HR_ERR_MEMORY && l->n_running > 1) {
        HR_TRY(end(l, l->n_running - 1, false, 0));
        l->out->preemptions++, l->blocked = true;
        status = decode(l);
    }
    HR_TRY(status);
    const uint64_t t = now(l);
    l->out->n_steps++;
    for (uint32_t i = 0; i < l->n_running; i++) took(l, l->running[i], t);
    for (uint32_t i = l->n_running; i-- > 0;)
        if (is_over(l, l->running[i])) HR_TRY(end(l, i, true, t));
    return HR_OK;
}

/* What the cache holds during a step. */
static void observe(loop *l) {
    const hr_kv_stats s = look(l);
    const double v[4] = {(double)s.reserved_bytes, (double)s.used_bytes, (double)s.waste_inside,
                         (double)s.waste_between};
    const bool waits = oldest_waiting(l) != UINT32_MAX;
    l->n_waiting += waits;
    for (int i = 0; i < 4; i++) l->all[i] += v[i], l->waiting[i] += waits ? v[i] : 0;
}

static hr_status run(loop *l) {
    l->out->before = look(l);
    l->start = now(l);
    for (; l->arrived < l->spec->concurrency && l->arrived < l->spec->n_requests; l->arrived++)
        l->requests[l->arrived].state = WAITS, l->requests[l->arrived].arrived = l->start;
    while (l->over < l->spec->n_requests) {
        if (l->ops->stop && l->ops->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        HR_TRY(admit_all(l));
        if (!l->n_running) continue; /* all that were admitted wanted one token */
        observe(l);
        HR_TRY(step(l));
    }
    l->out->wall_ms = ms(now(l) - l->start), l->out->calls_ms = ms(l->inside);
    l->out->after = look(l);
    const double *sums = l->n_waiting ? l->waiting : l->all;
    const double n = l->n_waiting ? l->n_waiting : l->out->n_steps ? l->out->n_steps : 1;
    l->out->reserved = sums[0] / n, l->out->used = sums[1] / n;
    l->out->waste_inside = sums[2] / n, l->out->waste_between = sums[3] / n;
    return HR_OK;
}

/* After a failure all sequences are given back, so that the cache can serve the next traffic. */
static void give_back(loop *l) {
    while (l->n_running && end(l, l->n_running - 1, false, 0) == HR_OK) {
    }
}

/* ---- memory ---- */

static hr_status outcome_init(const hr_traffic_spec *spec, const hr_traffic_request *requests, hr_alloc_outcome *out) {
    size_t gaps = 0;
    for (uint32_t r = 0; r < spec->n_requests; r++) gaps += requests[r].n_output;
    hr_alloc_outcome_fini(out);
    out->n_requests = spec->n_requests;
    out->latency_ms = hr_calloc(spec->n_requests, sizeof *out->latency_ms);
    out->ttft_ms = hr_calloc(spec->n_requests, sizeof *out->ttft_ms);
    out->gap_ms = hr_calloc(gaps + 1, sizeof *out->gap_ms);
    if (out->latency_ms && out->ttft_ms && out->gap_ms) return HR_OK;
    hr_alloc_outcome_fini(out);
    HR_FAIL(HR_ERR_MEMORY, "no memory for the times of %u requests", spec->n_requests);
}

void hr_alloc_outcome_fini(hr_alloc_outcome *out) {
    hr_free(out->latency_ms), hr_free(out->ttft_ms), hr_free(out->gap_ms);
    *out = (hr_alloc_outcome){0};
}

hr_status hr_alloc_loop(const hr_traffic_spec *spec, const hr_traffic_request *requests, uint32_t prepare,
                        hr_alloc_size size, const hr_alloc_ops *ops, hr_alloc_outcome *out) {
    if (!spec->concurrency || !spec->n_requests) HR_FAIL(HR_ERR_INPUT, "traffic of no requests has no outcome");
    HR_TRY(outcome_init(spec, requests, out));
    const size_t c = spec->concurrency, n_tokens = spec->ctx > c ? spec->ctx : c;
    loop l = {.spec = spec, .traffic = requests, .ops = ops, .out = out, .prepare = prepare, .size = size};
    l.requests = hr_calloc(spec->n_requests, sizeof *l.requests);
    l.running = hr_calloc(3 * c, sizeof *l.running);
    l.tokens = hr_calloc(n_tokens + 1, sizeof *l.tokens);
    hr_status status = HR_OK;
    if (l.requests && l.running && l.tokens) {
        l.seqs = l.running + c, l.free = l.seqs + c;
        for (uint32_t i = 0; i < c; i++) l.free[l.n_free++] = (uint32_t)c - 1 - i;
        status = run(&l);
        if (status != HR_OK) give_back(&l);
    } else
        status = hr_fail(HR_ERR_MEMORY, "no memory for a traffic of %u requests", spec->n_requests);
    hr_free(l.requests), hr_free(l.running), hr_free(l.tokens);
    return status;
}
