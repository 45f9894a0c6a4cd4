/* Part "allocators": which points there are, and their rows. */
#include "harness/kv/study_alloc.h"

#include "harness/kv/study_session.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { ROUNDS = 10, PAGE = 16, CONCURRENT = 100 };
static const double SCALE = 0.125; /* of the lengths of real chats, so that a round takes a second and not minutes */

const char *hr_alloc_model(bool quick) {
    return quick ? "synth:tiny:layers=2" : "synth:smollm2-135m:layers=3:vocab=4096";
}

/* ---- points ---- */

/* Thresholds in positions of the scaled traffic: promises of half of the requests are below 64, of three quarters below 128. */
#define MAIN_ARMS                                                                                     \
    {.alloc = HR_KV_PER_REQUEST}, {.alloc = HR_KV_POOL, .compact_every = 10}, {.alloc = HR_KV_PAGES}, \
        {.alloc = HR_KV_PAGES, .share = true}, {                                                      \
        .alloc = HR_KV_HYBRID, .compact_every = 10, .threshold = 64, .share = true                    \
    }
static const hr_alloc_arm main_arms[] = {MAIN_ARMS};
static const hr_alloc_arm all_arms[] = {MAIN_ARMS,
                                        {.alloc = HR_KV_POOL},
                                        {.alloc = HR_KV_POOL, .compact_every = 1000},
                                        {.alloc = HR_KV_PAGES, .prepare = true},
                                        {.alloc = HR_KV_PAGES, .share = true, .prepare = true},
                                        {.alloc = HR_KV_HYBRID, .compact_every = 10, .threshold = 128, .share = true}};
/* Concurrency is swept in one memory, half of what CONCURRENT requests demand. */
static const hr_alloc_arm sweep_arms[] = {{.alloc = HR_KV_POOL, .compact_every = 10},
                                          {.alloc = HR_KV_PAGES},
                                          {.alloc = HR_KV_HYBRID, .compact_every = 10, .threshold = 64}};
static const uint32_t sweep_quick[] = {1, 25, 50, 200}, sweep_full[] = {1, 10, 25, 50, 100, 150, 200};
static const double budgets[] = {50, 25, 100};
enum {
    BUDGETS = sizeof budgets / sizeof *budgets,
    SWEEP_QUICK = sizeof sweep_quick / sizeof *sweep_quick,
    SWEEP_FULL = sizeof sweep_full / sizeof *sweep_full
};

static size_t points(const hr_study_options *o) {
    return BUDGETS + (o->quick ? SWEEP_QUICK : SWEEP_FULL);
}

static hr_alloc_point point_of(const hr_study_options *o, size_t i) {
    hr_alloc_point p = {.model = hr_alloc_model(o->quick),
                        .scale = SCALE,
                        .concurrency = CONCURRENT,
                        .page_size = PAGE,
                        .n_rounds = ROUNDS,
                        .threads = o->threads,
                        .seed = o->seed,
                        .stop = o->stop};
    if (i < BUDGETS) {
        const bool all = budgets[i] == 50;
        p.arms = all ? all_arms : main_arms;
        p.n_arms = all ? sizeof all_arms / sizeof *all_arms : sizeof main_arms / sizeof *main_arms;
        p.budget_pct = budgets[i];
    } else {
        p.concurrency = (o->quick ? sweep_quick : sweep_full)[i - BUDGETS];
        p.arms = sweep_arms, p.n_arms = sizeof sweep_arms / sizeof *sweep_arms;
        p.budget_pct = 50, p.demand_of = CONCURRENT;
    }
    /* Few at once: more of them one after the other, so that lengths are a sample of the distribution. */
    p.n_requests = p.concurrency < 20 ? 20 : p.concurrency;
    return p;
}

static void key_of(const hr_alloc_point *p, const hr_alloc_arm *a, char *out, size_t n) {
    char own[96] = "";
    if (a->alloc == HR_KV_POOL) snprintf(own, sizeof own, " compact=%u", a->compact_every);
    if (a->alloc == HR_KV_HYBRID) snprintf(own, sizeof own, " compact=%u threshold=%u", a->compact_every, a->threshold);
    snprintf(out, n, "allocators %s%s%s%s budget=%.4g%%%s concurrency=%u requests=%u %s", hr_kv_alloc_name(a->alloc),
             own, a->share ? " shared" : "", a->prepare ? " prepared" : "", p->budget_pct,
             p->demand_of ? "-of-100" : "", p->concurrency, p->n_requests, p->model);
}

static json_t *keys(const hr_study_options *o, size_t i) {
    const hr_alloc_point p = point_of(o, i);
    json_t *list = json_array();
    char key[256];
    for (size_t a = 0; a < p.n_arms; a++) {
        key_of(&p, &p.arms[a], key, sizeof key);
        json_array_append_new(list, json_string(key));
    }
    return list;
}

/* ---- rows ---- */

static void put_real(json_t *row, const char *key, double v) {
    json_object_set_new(row, key, hr_real_or_null(v));
}
static void put_count(json_t *row, const char *key, uint64_t v) {
    json_object_set_new(row, key, json_integer((json_int_t)v));
}
static void put_axis(json_t *row, const char *key, bool concerns, json_int_t v) {
    json_object_set_new(row, key, concerns ? json_integer(v) : json_null());
}

static const hr_alloc_outcome *outcome(const hr_alloc_result *r, size_t arm, size_t round) {
    return &r->outcomes[arm * r->n_rounds + round];
}

/* All values of a kind of time over the rounds: median and P99. */
typedef struct times {
    size_t offset_values, offset_n; /* in hr_alloc_outcome */
    const char *p50, *p99;
} times;
static const times all_times[] = {
    {offsetof(hr_alloc_outcome, latency_ms), offsetof(hr_alloc_outcome, n_requests), "p50_ms", "p99_ms"},
    {offsetof(hr_alloc_outcome, ttft_ms), offsetof(hr_alloc_outcome, n_requests), "ttft_p50_ms", "ttft_p99_ms"},
    {offsetof(hr_alloc_outcome, gap_ms), offsetof(hr_alloc_outcome, n_gaps), "token_p50_ms", "token_p99_ms"}};

static void put_times(json_t *row, const hr_alloc_result *r, size_t arm, const times *t) {
    size_t n = 0;
    for (size_t i = 0; i < r->n_rounds; i++) n += *(const uint32_t *)((const char *)outcome(r, arm, i) + t->offset_n);
    double *all = hr_malloc(hr_mul(n + 1, sizeof *all));
    size_t used = 0;
    for (size_t i = 0; i < r->n_rounds && all; i++) {
        const char *o = (const char *)outcome(r, arm, i);
        const uint32_t m = *(const uint32_t *)(o + t->offset_n);
        memcpy(all + used, *(double *const *)(o + t->offset_values), m * sizeof *all);
        used += m;
    }
    hr_dist d = {.p50 = NAN, .p99 = NAN};
    if (all && n) hr_dist_of(all, n, &d);
    put_real(row, t->p50, d.p50), put_real(row, t->p99, d.p99);
    hr_free(all);
}

/* Means of a traffic. */
static void put_counts(json_t *row, const hr_alloc_result *r, size_t arm, bool pieces) {
    double failed = 0, by_pieces = 0, preempted = 0, hits = 0, evictions = 0, compactions = 0, compact_ms = 0,
           moved = 0;
    uint32_t largest = 0;
    const double n = (double)r->n_rounds;
    for (size_t i = 0; i < r->n_rounds; i++) {
        const hr_alloc_outcome *o = outcome(r, arm, i);
        const hr_kv_stats *a = &o->before, *b = &o->after;
        failed += o->failed_admissions, by_pieces += o->failed_by_pieces, preempted += o->preemptions;
        if (o->largest_batch > largest) largest = o->largest_batch;
        hits += (double)(b->prefix_hits - a->prefix_hits), evictions += (double)(b->evictions - a->evictions);
        compactions += (double)(b->compactions - a->compactions), moved += (double)(b->moved_bytes - a->moved_bytes);
        compact_ms += (double)(b->compact_ns - a->compact_ns) * 1e-6;
    }
    put_real(row, "failed_admissions", failed / n);
    put_real(row, "failed_by_pieces", pieces ? by_pieces / n : NAN);
    put_count(row, "largest_batch", largest);
    put_real(row, "preemptions", preempted / n);
    put_real(row, "compactions", compactions / n), put_real(row, "compact_ms", compact_ms / n);
    put_real(row, "moved_bytes", moved / n);
    put_real(row, "prefix_hits", hits / n), put_real(row, "evictions", evictions / n);
}

static void put_bytes(json_t *row, const hr_alloc_result *r, size_t arm) {
    double reserved = 0, used = 0, inside = 0, between = 0, wall = 0, calls = 0;
    const double n = (double)r->n_rounds;
    for (size_t i = 0; i < r->n_rounds; i++) {
        const hr_alloc_outcome *o = outcome(r, arm, i);
        reserved += o->reserved / n, used += o->used / n, inside += o->waste_inside / n,
            between += o->waste_between / n;
        wall += o->wall_ms, calls += o->calls_ms;
    }
    put_count(row, "budget_bytes", r->budget_bytes);
    put_real(row, "reserved_bytes", reserved), put_real(row, "used_bytes", used);
    put_real(row, "waste_inside_pct", reserved > 0 ? 100 * inside / reserved : NAN);
    put_real(row, "waste_between_pct", 100 * between / (double)r->budget_bytes);
    put_real(row, "overhead_pct", 100 * (wall - calls) / wall);
}

static double *walls(const hr_alloc_result *r, size_t arm, double v[ROUNDS]) {
    for (size_t i = 0; i < r->n_rounds; i++) v[i] = outcome(r, arm, i)->wall_ms;
    return v;
}

static size_t plain_pages(const hr_alloc_point *p) {
    for (size_t a = 0; a < p->n_arms; a++)
        if (p->arms[a].alloc == HR_KV_PAGES && !p->arms[a].share && !p->arms[a].prepare) return a;
    return p->n_arms;
}

static json_t *row_of(const hr_alloc_point *p, const hr_alloc_result *r, size_t arm) {
    const hr_alloc_arm *a = &p->arms[arm];
    const bool pieces = a->alloc == HR_KV_POOL || a->alloc == HR_KV_HYBRID;
    const bool pages = a->alloc == HR_KV_PAGES || a->alloc == HR_KV_HYBRID;
    char key[256], text[256];
    double wall[ROUNDS], other[ROUNDS];
    key_of(p, a, key, sizeof key);
    hr_traffic_text(&r->spec, text, sizeof text);
    json_t *row = hr_study_row("allocators", hr_kv_alloc_name(a->alloc), key, walls(r, arm, wall), r->n_rounds, "ms");
    if (!row) return NULL;
    json_object_set_new(row, "model", json_string(p->model));
    json_object_set_new(row, "distribution", json_string(text));
    put_real(row, "budget_pct", r->budget_pct);
    put_count(row, "concurrency", p->concurrency), put_count(row, "requests", p->n_requests);
    put_axis(row, "threshold", a->alloc == HR_KV_HYBRID, a->threshold);
    put_axis(row, "compact_every", pieces, a->compact_every);
    json_object_set_new(row, "share_prefix", pages ? json_boolean(a->share) : json_null());
    json_object_set_new(row, "prepared", pages ? json_boolean(a->prepare) : json_null());
    put_axis(row, "page_size", pages, p->page_size);
    put_bytes(row, r, arm);
    put_counts(row, r, arm, pieces);
    for (size_t i = 0; i < sizeof all_times / sizeof *all_times; i++) put_times(row, r, arm, &all_times[i]);
    put_real(row, "requests_s", p->n_requests / json_number_value(json_object_get(row, "median")) * 1e3);
    const size_t base = plain_pages(p);
    const bool compared = base != arm && base < p->n_arms;
    json_object_set_new(row, "vs_paged",
                        compared ? hr_study_ratio(wall, walls(r, base, other), r->n_rounds) : json_null());
    return row;
}

static hr_status measure(hr_study_session *session, const hr_study_options *o, size_t i, json_t *rows) {
    const hr_alloc_point p = point_of(o, i);
    const hr_load_options load = {.quant = HR_QUANT_NATIVE, .order = HR_ORDER_PANELS, .huge_pages = true};
    hr_model *model;
    hr_alloc_result result = {0};
    const size_t first = json_array_size(rows);
    if (session) HR_TRY(hr_study_state_before(session));
    HR_TRY(hr_model_load(p.model, &load, &model));
    hr_status status = hr_alloc_point_run(&p, model, &result);
    for (size_t a = 0; status == HR_OK && a < p.n_arms; a++)
        if (json_array_append_new(rows, row_of(&p, &result, a)))
            status = hr_fail(HR_ERR_MEMORY, "no memory for a row of the study");
    if (session && status == HR_OK) status = hr_study_state_after(session, rows, first);
    hr_alloc_result_fini(&result);
    hr_model_destroy(model);
    return status;
}

/* About; of the reference machine, 2 cores. */
static double seconds(const hr_study_options *o, size_t i) {
    const hr_alloc_point p = point_of(o, i);
    return (double)(p.n_requests * p.n_arms * p.n_rounds) * (o->quick ? 0.001 : 0.008);
}

const hr_study_part hr_study_allocators = {"allocators", points, keys, seconds, measure};
