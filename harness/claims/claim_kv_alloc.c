/* Claims about allocators of KV: the same traffic of 100 requests at once under each of them, in half of the memory that the
 * requests ask for together. Measured once; each claim looks at another figure of it. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "harness/kv/study_alloc.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>

enum {
    PER_REQUEST = HR_CLAIM_PER_REQUEST,
    POOL = HR_CLAIM_POOL,
    PAGED = HR_CLAIM_PAGED,
    HYBRID = HR_CLAIM_HYBRID,
    ARMS
};
static const hr_alloc_arm arms[ARMS] = {
    [PER_REQUEST] = {.alloc = HR_KV_PER_REQUEST},
    [POOL] = {.alloc = HR_KV_POOL, .compact_every = 10},
    [PAGED] = {.alloc = HR_KV_PAGES},
    [HYBRID] = {.alloc = HR_KV_HYBRID, .compact_every = 10, .threshold = 64},
};
enum { CONCURRENT = 100, PAGE = 16, ROUNDS_QUICK = 12, ROUNDS_FULL = 25, FEW = 25 };
static const double BUDGET = 50, SCALE = 0.125;

/* Traffic that was measured, by how many requests were at once. */
enum { SETS = 2 };
struct hr_claim_traffic {
    struct set {
        uint32_t concurrency; /* 0: not yet */
        hr_alloc_result result;
    } sets[SETS];
};

void hr_claim_traffic_destroy(struct hr_claim_traffic *t) {
    for (int i = 0; t && i < SETS; i++) hr_alloc_result_fini(&t->sets[i].result);
    hr_free(t);
}

static void show(double share, void *context) {
    const hr_claims_run *run = context;
    if (run->options->progress)
        run->options->progress(run->share + run->share_step * share, run->id, run->options->context);
}

static hr_status measure(hr_claims_run *run, uint32_t concurrency, hr_alloc_result *out) {
    const bool quick = run->options->quick;
    const hr_alloc_point p = {.model = hr_alloc_model(quick),
                              .scale = SCALE,
                              .concurrency = concurrency,
                              .n_requests = concurrency,
                              .budget_pct = BUDGET,
                              .demand_of = CONCURRENT,
                              .page_size = PAGE,
                              .arms = arms,
                              .n_arms = ARMS,
                              .n_rounds = quick ? ROUNDS_QUICK : ROUNDS_FULL,
                              .threads = run->machine.cores,
                              .seed = 5,
                              .stop = run->options->stop,
                              .progress = show,
                              .progress_context = run};
    hr_model *model;
    HR_TRY(hr_claim_model(run, p.model, HR_QUANT_NATIVE, &model));
    hr_claim_unpin();
    return hr_alloc_point_run(&p, model, out);
}

static hr_status traffic_of(hr_claims_run *run, uint32_t concurrency, const hr_alloc_result **out) {
    if (!run->traffic) run->traffic = hr_calloc(1, sizeof *run->traffic);
    if (!run->traffic) HR_FAIL(HR_ERR_MEMORY, "no memory for traffic");
    struct set *set = run->traffic->sets;
    while (set->concurrency && set->concurrency != concurrency && set + 1 < run->traffic->sets + SETS) set++;
    if (set->concurrency != concurrency) {
        hr_alloc_result_fini(&set->result);
        set->concurrency = 0;
        HR_TRY(measure(run, concurrency, &set->result));
        set->concurrency = concurrency;
    }
    *out = &set->result;
    return HR_OK;
}

/* A figure of an arm in a round. */
typedef double figure(const hr_alloc_result *r, const hr_alloc_outcome *o);

static double figure_of(const hr_alloc_result *r, int arm, size_t round, figure *f) {
    return f(r, &r->outcomes[(size_t)arm * r->n_rounds + round]);
}

static double median_of(const hr_alloc_result *r, int arm, figure *f) {
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    for (; n < r->n_rounds && n < HR_CLAIM_SAMPLES; n++) v[n] = figure_of(r, arm, n, f);
    return hr_median(v, n);
}

/* Arm a's figure over arm b's, round by round. */
static hr_claim_measured ratio(const hr_alloc_result *r, int a, int b, figure *f) {
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    for (; n < r->n_rounds && n < HR_CLAIM_SAMPLES; n++) v[n] = figure_of(r, a, n, f) / figure_of(r, b, n, f);
    return hr_claim_of_samples(v, n);
}

static double wall(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    return o->wall_ms;
}
static double batch(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    return o->largest_batch;
}
static double p99(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    hr_dist d;
    return hr_dist_of(o->latency_ms, o->n_requests, &d) == HR_OK ? d.p99 : NAN;
}
static double step_p99(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    hr_dist d;
    return hr_dist_of(o->gap_ms, o->n_gaps, &d) == HR_OK ? d.p99 : NAN;
}
static double requests_s(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    return o->n_requests / o->wall_ms * 1e3;
}
/* Of what is taken or cut off, what nobody uses, %. */
static double wasted(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    (void)r;
    return 100 * (o->waste_inside + o->waste_between) / (o->reserved + o->waste_between);
}
static double between(const hr_alloc_result *r, const hr_alloc_outcome *o) {
    return 100 * o->waste_between / (double)r->budget_bytes;
}

static const char traffic_words[] =
    "100 requests at once, lengths of chats / 8, half of the memory they ask for, greedy first come, first served";

hr_status hr_test_alloc_waste(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, CONCURRENT, &r));
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    for (; n < r->n_rounds; n++) v[n] = figure_of(r, claim->arg, n, wasted);
    out->measured = hr_claim_of_samples(v, n);
    snprintf(out->note, sizeof out->note,
             "%s; %.1f %% of the budget are free but in pieces; the rest of it is reserved and unused", traffic_words,
             median_of(r, claim->arg, between));
    return HR_OK;
}

hr_status hr_test_alloc_p99(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, CONCURRENT, &r));
    out->measured = ratio(r, claim->arg, PAGED, p99);
    snprintf(
        out->note, sizeof out->note,
        "%s; P99 of a request, queueing included: per-request %.0f, pool %.0f, paged %.0f, hybrid %.0f ms; of a gap "
        "between tokens: %.1f, %.1f, %.1f, %.1f ms",
        "100 requests at once, chats / 8, half of the demand", median_of(r, PER_REQUEST, p99), median_of(r, POOL, p99),
        median_of(r, PAGED, p99), median_of(r, HYBRID, p99), median_of(r, PER_REQUEST, step_p99),
        median_of(r, POOL, step_p99), median_of(r, PAGED, step_p99), median_of(r, HYBRID, step_p99));
    return HR_OK;
}

hr_status hr_test_alloc_qps(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, CONCURRENT, &r));
    out->measured = ratio(r, claim->arg, PAGED, wall);
    snprintf(out->note, sizeof out->note, "%s; requests/s: per-request %.1f, pool %.1f, paged %.1f, hybrid %.1f",
             traffic_words, median_of(r, PER_REQUEST, requests_s), median_of(r, POOL, requests_s),
             median_of(r, PAGED, requests_s), median_of(r, HYBRID, requests_s));
    return HR_OK;
}

hr_status hr_test_alloc_cross(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, (uint32_t)claim->arg, &r));
    out->measured = ratio(r, POOL, PAGED, wall);
    snprintf(
        out->note, sizeof out->note,
        "%d requests at once in half of what 100 ask for; batches of at most %.0f (pool) and %.0f (paged); the sweep "
        "over 1 to 200 is part of `headroom kv study`",
        claim->arg, median_of(r, POOL, batch), median_of(r, PAGED, batch));
    return HR_OK;
}

hr_status hr_test_alloc_hybrid(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, CONCURRENT, &r));
    const int better = median_of(r, POOL, wall) < median_of(r, PAGED, wall) ? POOL : PAGED;
    out->measured = ratio(r, better, HYBRID, wall);
    snprintf(out->note, sizeof out->note, "%s; time of %s, the better of the two, over time of hybrid (threshold %u)",
             traffic_words, better == POOL ? "the pool" : "pages", arms[HYBRID].threshold);
    return HR_OK;
}

hr_status hr_test_alloc_batch(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    const hr_alloc_result *r;
    HR_TRY(traffic_of(run, CONCURRENT, &r));
    out->measured = ratio(r, PAGED, PER_REQUEST, batch);
    snprintf(out->note, sizeof out->note, "%s; per-request %.0f, pool %.0f, paged %.0f, hybrid %.0f", traffic_words,
             median_of(r, PER_REQUEST, batch), median_of(r, POOL, batch), median_of(r, PAGED, batch),
             median_of(r, HYBRID, batch));
    return HR_OK;
}

/* ---- compaction: thousands of requests, nothing computed ---- */

static hr_status refusals(hr_claims_run *run, uint64_t seed, uint32_t every, hr_traffic_request *requests,
                          hr_traffic_spec *spec, hr_alloc_outcome *out) {
    *spec = hr_traffic_chat(CONCURRENT, spec->n_requests, SCALE, seed);
    hr_traffic_make(spec, requests);
    const hr_kv_cache_config c = {.layout = HR_KV_HEAD,
                                  .alloc = HR_KV_POOL,
                                  .n_layers = 1,
                                  .n_heads = 1,
                                  .head_dim = 64,
                                  .k_type = HR_BF16,
                                  .v_type = HR_BF16,
                                  .max_seqs = CONCURRENT,
                                  .capacity = spec->ctx,
                                  .budget_bytes =
                                      (uint64_t)(BUDGET / 100 * hr_traffic_demand(spec, requests)) * 2 * 64 * 2,
                                  .compact_every = every};
    return hr_alloc_replay(&c, spec, requests, 0, run->options->stop, out);
}

hr_status hr_test_compaction(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    hr_traffic_spec spec = {.n_requests = run->options->quick ? 2000 : 10000};
    hr_traffic_request *requests = hr_calloc(spec.n_requests, sizeof *requests);
    hr_alloc_outcome with = {0}, without = {0};
    double v[HR_CLAIM_SAMPLES], most = 0, all = 0;
    size_t n = 0;
    hr_status status = requests ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for %u requests", spec.n_requests);
    for (; n < 10 && status == HR_OK; n++) {
        status = refusals(run, n + 1, 0, requests, &spec, &without);
        if (status == HR_OK) status = refusals(run, n + 1, (uint32_t)claim->arg, requests, &spec, &with);
        v[n] = without.failed_by_pieces ? 100.0 * with.failed_by_pieces / without.failed_by_pieces : NAN;
        most = fmax(most, without.failed_by_pieces), all += without.failed_admissions / 10.0;
        if (without.failed_by_pieces == 0)
            snprintf(out->reason, sizeof out->reason, "no request was refused by fragmentation in this traffic");
    }
    hr_alloc_outcome_fini(&with), hr_alloc_outcome_fini(&without), hr_free(requests);
    HR_TRY(status);
    out->measured = hr_claim_of_samples(v, n);
    snprintf(
        out->note, sizeof out->note,
        "%u requests, 100 at once, nothing computed; without compaction up to %.0f of %.0f refusals a traffic were by "
        "fragmentation; this pool compacts after every %d requests and before it would refuse one",
        spec.n_requests, most, all, claim->arg);
    return HR_OK;
}
