/* The study of allocators: traffic from seeds, the loop over a cache and a clock made for it, figures by hand. */
#include "tests/hr_test.h"

#include "harness/kv/study_alloc.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

/* ---- traffic ---- */

static void traffic_follows_its_seed(void **state) {
    (void)state;
    enum { N = 50 };
    hr_traffic_request a[N], b[N], c[N];
    const hr_traffic_spec s = hr_traffic_chat(10, N, 0.125, 1), other = hr_traffic_chat(10, N, 0.125, 2);
    hr_traffic_make(&s, a);
    hr_traffic_make(&s, b);
    hr_traffic_make(&other, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(hr_traffic_token(&s, &a[3], 3, i, 1000), hr_traffic_token(&s, &b[3], 3, i, 1000));
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians and P95 of 20000 draws; 4 standard errors of a quantile of this many are below 4 % and 7 %. */
static void lengths_are_as_stated(void **state) {
    (void)state;
    enum { N = 20000 };
    hr_traffic_spec s = hr_traffic_chat(1, N, 1, 7);
    s.ctx = 1 << 20; /* nothing is cut */
    s.prefix_share = 0;
    hr_traffic_request *q = hr_calloc(N, sizeof *q);
    double *v = hr_calloc(N, sizeof *v), sum = 0;
    hr_traffic_make(&s, q);
    for (int i = 0; i < N; i++) v[i] = q[i].n_prompt;
    qsort(v, N, sizeof *v, by_value);
    const double got[2] = {hr_quantile_sorted(v, N, 0.5), hr_quantile_sorted(v, N, 0.95)};
    if (fabs(got[0] / 100 - 1) > 0.04 || fabs(got[1] / 500 - 1) > 0.07)
        fail_msg("prompt: expected median 100, P95 500; got %.1f, %.1f", got[0], got[1]);
    for (int i = 0; i < N; i++) sum += q[i].n_output;
    if (fabs(sum / N / 338 - 1) > 0.05) fail_msg("output: expected a mean of 338, got %.1f", sum / N);
    hr_free(q), hr_free(v);
}

static void requests_fit_their_context(void **state) {
    (void)state;
    enum { N = 3000 };
    const hr_traffic_spec s = hr_traffic_chat(100, N, 0.125, 3);
    hr_traffic_request *q = hr_calloc(N, sizeof *q);
    hr_traffic_make(&s, q);
    double prefixed = 0, sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        assert_true(q[i].n_prompt >= 1 && q[i].n_output >= 1);
        assert_true(q[i].max_output >= q[i].n_output);
        assert_true(q[i].n_prompt + q[i].max_output <= s.ctx);
        assert_true(q[i].prefix <= s.n_prefixes);
        assert_true(!q[i].prefix || q[i].n_prompt > s.prefix_len);
        prefixed += q[i].prefix != 0;
        sum += q[i].n_prompt + q[i].max_output;
    }
    assert_true(fabs(prefixed / N - 0.5) < 0.04); /* 4 standard errors */
    assert_true(fabs(hr_traffic_demand(&s, q) - sum / 30) < 1e-6);
    hr_free(q);
}

static void prefixes_are_common(void **state) {
    (void)state;
    const hr_traffic_spec s = hr_traffic_chat(4, 4, 1, 9);
    const hr_traffic_request with = {.n_prompt = 300, .prefix = 2}, without = {.n_prompt = 300};
    uint32_t same = 0, after = 0, apart = 0;
    for (uint32_t i = 0; i < 300; i++) {
        const bool equal = hr_traffic_token(&s, &with, 0, i, 50000) == hr_traffic_token(&s, &with, 1, i, 50000);
        *(i < 256 ? &same : &after) += equal;
        apart += hr_traffic_token(&s, &without, 2, i, 50000) == hr_traffic_token(&s, &without, 3, i, 50000);
    }
    assert_int_equal(same, 256);
    assert_true(after < 3 && apart < 3);
}

/* ---- a cache and a clock made for the loop ---- */

enum { SEQS = 16, MS = 1000000, BYTES = 10 };

/* Positions are memory. A promise is reserved at once, or, with pages, room comes as it is needed. A token of prefill
 * takes 1 ms, a step 10 ms, nothing else any time. */
typedef struct made_cache {
    bool pages;
    uint32_t budget, held[SEQS], len[SEQS];
    bool open[SEQS];
    uint64_t clock;
    uint32_t opened[64], n_opened; /* lengths of the prompts that came in, in order */
    uint32_t look_ms;              /* time that looking at it takes */
    uint32_t stop_after;           /* opens until a failure of another kind; 0: none */
    int32_t last[SEQS];
} made_cache;

static uint32_t held(const made_cache *c) {
    uint32_t sum = 0;
    for (int i = 0; i < SEQS; i++) sum += c->held[i];
    return sum;
}

static hr_status made_open(void *context, uint32_t seq, const hr_kv_request *r, uint32_t *shared) {
    made_cache *c = context;
    assert_true(seq < SEQS && !c->open[seq]);
    const uint32_t want = c->pages ? r->expect_len : r->max_len;
    *shared = 0;
    if (c->stop_after && c->n_opened == c->stop_after) return hr_fail(HR_ERR_IO, "broken on purpose");
    if (held(c) + want > c->budget) return hr_fail(HR_ERR_MEMORY, "no room");
    c->open[seq] = true, c->held[seq] = want, c->len[seq] = 0;
    c->opened[c->n_opened++ % 64] = r->n_prompt;
    return HR_OK;
}

static hr_status made_prefill(void *context, uint32_t seq, const int32_t *tokens, uint32_t n) {
    made_cache *c = context;
    assert_true(c->open[seq] && tokens && n >= 1);
    c->clock += (uint64_t)n * MS;
    c->len[seq] += n;
    return HR_OK;
}

static hr_status made_decode(void *context, const uint32_t *seqs, const int32_t *tokens, uint32_t n) {
    made_cache *c = context;
    uint32_t more = 0;
    for (uint32_t i = 0; i < n; i++) more += c->len[seqs[i]] + 1 > c->held[seqs[i]];
    if (held(c) + more > c->budget) return hr_fail(HR_ERR_MEMORY, "no room");
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t s = seqs[i];
        assert_true(c->open[s]);
        c->last[s] = tokens[i];
        if (++c->len[s] > c->held[s]) c->held[s] = c->len[s];
    }
    c->clock += 10 * MS;
    return HR_OK;
}

static hr_status made_close(void *context, uint32_t seq) {
    made_cache *c = context;
    assert_true(c->open[seq]);
    c->open[seq] = false, c->held[seq] = c->len[seq] = 0;
    return HR_OK;
}

static hr_kv_stats made_stats(void *context) {
    made_cache *c = context;
    uint64_t used = 0;
    for (int i = 0; i < SEQS; i++) used += c->len[i];
    c->clock += (uint64_t)c->look_ms * MS;
    return (hr_kv_stats){.budget_bytes = (uint64_t)c->budget * BYTES,
                         .reserved_bytes = (uint64_t)held(c) * BYTES,
                         .used_bytes = used * BYTES,
                         .waste_inside = (held(c) - used) * BYTES};
}

static uint64_t made_now(void *context) {
    return ((made_cache *)context)->clock;
}

static hr_status play(made_cache *c, const hr_traffic_request *q, uint32_t n, uint32_t concurrency,
                      hr_alloc_outcome *out) {
    const hr_traffic_spec s = {.concurrency = concurrency, .n_requests = n, .ctx = 64};
    const hr_alloc_ops ops = {made_open, made_prefill, made_decode, made_close, made_stats, made_now, NULL, c, 1000};
    const hr_status status = hr_alloc_loop(&s, q, 0, (hr_alloc_size){BYTES, 1}, &ops, out);
    for (int i = 0; i < SEQS; i++)
        if (c->open[i]) fail_msg("sequence %d was left open", i);
    return status;
}

static void expect_times(const char *what, const double *got, const double *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (fabs(got[i] - want[i]) > 1e-9) fail_msg("%s %zu: expected %.3f ms, got %.3f ms", what, i, want[i], got[i]);
}

/* A (4 in, 3 out, asks for 4), B (2, 2, 2), C (3, 1, 1) in 12 positions. At 0 A comes in, its first token at 4; B's at 6; C is
 * refused. A step ends at 16 and B with it; C's only token comes at 19; A's last at 29. */
static void figures_by_hand(void **state) {
    (void)state;
    const hr_traffic_request q[] = {{4, 3, 4, 0}, {2, 2, 2, 0}, {3, 1, 1, 0}};
    for (uint32_t look = 0; look < 2; look++) { /* the time of looking is nobody's */
        made_cache c = {.budget = 12, .look_ms = look * 7};
        hr_alloc_outcome out = {0};
        assert_int_equal(play(&c, q, 3, 3, &out), HR_OK);
        expect_times("latency", out.latency_ms, (const double[]){29, 16, 19}, 3);
        expect_times("first token", out.ttft_ms, (const double[]){4, 6, 19}, 3);
        assert_int_equal(out.n_gaps, 3);
        expect_times("gap", out.gap_ms, (const double[]){12, 10, 13}, 3);
        expect_times("wall", &out.wall_ms, (const double[]){29}, 1);
        expect_times("calls", &out.calls_ms, (const double[]){29}, 1);
        assert_int_equal(out.n_steps, 2);
        assert_int_equal(out.failed_admissions, 1);
        assert_int_equal(out.failed_by_pieces, 0);
        assert_int_equal(out.largest_batch, 2);
        assert_int_equal(out.preemptions, 0);
        /* while C waited: 8 + 4 positions reserved, 4 + 2 used */
        assert_true(out.reserved == 120 && out.used == 60 && out.waste_inside == 60);
        hr_dist d;
        assert_int_equal(hr_dist_of(out.latency_ms, 3, &d), HR_OK);
        assert_true(fabs(d.p99 - 28.8) < 1e-9); /* 19 + 0.98 * 10 */
        hr_alloc_outcome_fini(&out);
    }
}

/* Two that grow in 8 positions: at the second step the younger one gives way at 16 ms with two tokens, and comes back when
 * the other has ended at 36, with its text of 5 tokens. */
static void the_youngest_gives_way(void **state) {
    (void)state;
    const hr_traffic_request q[] = {{3, 4, 4, 0}, {3, 3, 4, 0}};
    made_cache c = {.budget = 8, .pages = true};
    hr_alloc_outcome out = {0};
    assert_int_equal(play(&c, q, 2, 2, &out), HR_OK);
    assert_int_equal(out.preemptions, 1);
    assert_int_equal(out.failed_admissions, 0);
    expect_times("latency", out.latency_ms, (const double[]){36, 41}, 2);
    assert_int_equal(out.n_gaps, 5);
    expect_times("gap", out.gap_ms, (const double[]){13, 10, 10, 10, 25}, 5);
    assert_int_equal(c.n_opened, 3);
    assert_int_equal(c.opened[2], 5);
    hr_alloc_outcome_fini(&out);
}

/* The second one does not fit beside the first; the third would, but came later. */
static void nobody_overtakes(void **state) {
    (void)state;
    const hr_traffic_request q[] = {{6, 2, 2, 0}, {7, 2, 2, 0}, {1, 2, 2, 0}};
    made_cache c = {.budget = 12};
    hr_alloc_outcome out = {0};
    assert_int_equal(play(&c, q, 3, 3, &out), HR_OK);
    const uint32_t order[] = {6, 7, 1};
    assert_int_equal(c.n_opened, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(c.opened[i], order[i]);
    assert_int_equal(out.failed_admissions, 1); /* asked once, not at each step */
    /* 4 positions were free, the second wants 9 */
    assert_int_equal(out.failed_by_pieces, 0);
    hr_alloc_outcome_fini(&out);
}

/* Two at a time: each later one arrives when an earlier one ends. */
static void the_system_stays_full(void **state) {
    (void)state;
    const hr_traffic_request q[] = {{1, 2, 2, 0}, {1, 3, 4, 0}, {2, 2, 2, 0}, {3, 1, 1, 0}, {4, 1, 1, 0}};
    made_cache c = {.budget = 1000};
    hr_alloc_outcome out = {0};
    assert_int_equal(play(&c, q, 5, 2, &out), HR_OK);
    /* 0 ends at 12, and 2 comes: its first token at 14. 1 and 2 end at 24; 3 and 4 are one token each: at 27, at 31. 4 came
     * at 24, as 3 did. */
    expect_times("latency", out.latency_ms, (const double[]){12, 24, 12, 3, 7}, 5);
    assert_int_equal(out.largest_batch, 2);
    hr_alloc_outcome_fini(&out);
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    const hr_traffic_request big[] = {{2, 2, 2, 0}, {10, 2, 4, 0}};
    made_cache c = {.budget = 12};
    hr_alloc_outcome out = {0};
    assert_int_equal(play(&c, big, 2, 2, &out), HR_ERR_MEMORY);
    made_cache grows = {.budget = 12, .pages = true}; /* room for the prompt, never for the output */
    const hr_traffic_request long_one[] = {{10, 8, 8, 0}};
    assert_int_equal(play(&grows, long_one, 1, 1, &out), HR_ERR_MEMORY);
    made_cache broken = {.budget = 100, .stop_after = 1};
    assert_int_equal(play(&broken, big, 2, 2, &out), HR_ERR_IO);
    assert_int_equal(play(&c, big, 0, 2, &out), HR_ERR_INPUT);
    hr_alloc_outcome_fini(&out);
}

static void memory_may_run_out(void **state) {
    (void)state;
    const hr_traffic_request q[] = {{4, 3, 4, 0}, {2, 2, 2, 0}};
    for (uint64_t nth = 1; nth <= 6; nth++) {
        made_cache c = {.budget = 12};
        hr_alloc_outcome out = {0};
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        assert_int_equal(play(&c, q, 2, 2, &out), HR_ERR_MEMORY);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        hr_alloc_outcome_fini(&out);
    }
}

/* ---- the arms on a real engine ---- */

enum { ARMS = 5, ROUNDS = 2, AT_ONCE = 12 };
static const hr_alloc_arm arms[ARMS] = {{.alloc = HR_KV_PER_REQUEST},
                                        {.alloc = HR_KV_POOL, .compact_every = 3},
                                        {.alloc = HR_KV_PAGES},
                                        {.alloc = HR_KV_PAGES, .share = true, .prepare = true},
                                        {.alloc = HR_KV_HYBRID, .compact_every = 3, .threshold = 64}};

static void check_outcome(const hr_alloc_result *r, size_t arm, size_t round) {
    const hr_alloc_outcome *o = &r->outcomes[arm * r->n_rounds + round];
    const hr_kv_stats *a = &o->before, *b = &o->after;
    assert_int_equal(o->n_requests, AT_ONCE);
    for (uint32_t i = 0; i < o->n_requests; i++) {
        assert_true(o->ttft_ms[i] > 0 && o->latency_ms[i] >= o->ttft_ms[i]);
        assert_true(o->latency_ms[i] <= o->wall_ms + 1e-9);
    }
    assert_true(o->calls_ms > 0 && o->calls_ms <= o->wall_ms);
    assert_true(o->largest_batch >= 1 && o->largest_batch <= AT_ONCE);
    assert_true(o->used > 0 && o->used <= o->reserved && o->reserved <= (double)r->budget_bytes);
    assert_true(fabs(o->reserved - o->used - o->waste_inside) <= 1e-6 * o->reserved);
    assert_true(o->waste_between >= 0 && o->failed_by_pieces <= o->failed_admissions);
    assert_int_equal(b->open_seqs, 0);
    assert_int_equal(b->reserved_bytes, 0);
    assert_true(b->opens - a->opens == AT_ONCE + o->preemptions);
}

/* The same traffic under all of them, in memory for half of it; all requests end, and what is said of the memory adds up. */
static void arms_run_on_engines(void **state) {
    (void)state;
    const hr_load_options load = {.order = HR_ORDER_PANELS};
    hr_model *model;
    assert_int_equal(hr_model_load("synth:tiny:layers=1:vocab=256", &load, &model), HR_OK);
    const hr_alloc_point p = {.scale = 0.0625,
                              .concurrency = AT_ONCE,
                              .n_requests = AT_ONCE,
                              .budget_pct = 50,
                              .page_size = 8,
                              .arms = arms,
                              .n_arms = ARMS,
                              .n_rounds = ROUNDS,
                              .threads = 1,
                              .seed = 4};
    hr_alloc_result r;
    const hr_status status = hr_alloc_point_run(&p, model, &r);
    if (status != HR_OK) fail_msg("%s", hr_error());
    uint32_t gaps[ROUNDS], per_request = 0, paged = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t a = 0; a < ARMS; a++) {
            check_outcome(&r, a, round);
            if (a == 0) gaps[round] = r.outcomes[round].n_gaps;
            assert_int_equal(r.outcomes[a * ROUNDS + round].n_gaps, gaps[round]); /* the same tokens */
        }
        per_request += r.outcomes[round].largest_batch, paged += r.outcomes[2 * ROUNDS + round].largest_batch;
    }
    if (paged <= per_request) fail_msg("largest batches: %u with pages, %u per request", paged, per_request);
    hr_alloc_result_fini(&r);
    hr_model_destroy(model);
}

/* Nothing is computed; compaction leaves no refusal that a free piece would have prevented. */
static void replay_counts(void **state) {
    (void)state;
    const hr_traffic_spec s = hr_traffic_chat(40, 400, 0.125, 3);
    hr_traffic_request *q = hr_calloc(s.n_requests, sizeof *q);
    hr_traffic_make(&s, q);
    hr_kv_cache_config c = {.layout = HR_KV_HEAD,
                            .alloc = HR_KV_POOL,
                            .n_layers = 1,
                            .n_heads = 1,
                            .head_dim = 64,
                            .k_type = HR_BF16,
                            .v_type = HR_BF16,
                            .max_seqs = 40,
                            .capacity = s.ctx,
                            .budget_bytes = (uint64_t)(0.5 * hr_traffic_demand(&s, q)) * 256};
    hr_alloc_outcome without = {0}, with = {0}, again = {0};
    assert_int_equal(hr_alloc_replay(&c, &s, q, 0, NULL, &without), HR_OK);
    assert_int_equal(hr_alloc_replay(&c, &s, q, 0, NULL, &again), HR_OK);
    c.compact_every = 10;
    assert_int_equal(hr_alloc_replay(&c, &s, q, 0, NULL, &with), HR_OK);
    assert_true(without.wall_ms == again.wall_ms && without.failed_admissions == again.failed_admissions);
    assert_true(without.failed_by_pieces > 0);
    assert_int_equal(with.failed_by_pieces, 0);
    assert_true(with.after.compactions > 0 && without.after.compactions == 0);
    assert_int_equal(with.preemptions, 0); /* a promise holds */
    hr_alloc_outcome_fini(&with), hr_alloc_outcome_fini(&without), hr_alloc_outcome_fini(&again);
    hr_free(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traffic_follows_its_seed),
        cmocka_unit_test(lengths_are_as_stated),
        cmocka_unit_test(requests_fit_their_context),
        cmocka_unit_test(prefixes_are_common),
        cmocka_unit_test(figures_by_hand),
        cmocka_unit_test(the_youngest_gives_way),
        cmocka_unit_test(nobody_overtakes),
        cmocka_unit_test(the_system_stays_full),
        cmocka_unit_test(what_cannot_be_is_said),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(arms_run_on_engines),
        cmocka_unit_test(replay_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
