/* Part "dtypes": the decode step of a real engine with each pair of K and V types, and the perplexity of a text. A point is one
 * model at one context: all pairs, interleaved. The caches are filled with random rows, saved and loaded as an off-loaded
 * sequence is; what they hold does not change what a step costs. */
#include "harness/kv/study_session.h"

#include "harness/formats/json_get.h"
#include "harness/kv/study_arms.h"
#include "harness/kv/study_ppl.h"
#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static const struct place {
    const char *model;
    uint32_t context;
    bool quick;
} places[] = {
    {"synth:smollm2-135m", 2048, true},
    {"synth:smollm2-135m", 6144, false},
    {"synth:llama-3.2-1b", 2048, false},
    {"synth:llama-3.2-1b", 8192, false},
};
enum { PLACES = sizeof places / sizeof *places, PAIRS_MAX = HR_STUDY_ARMS_MAX, STEPS = 4 /* of a sample */ };

/* The first is what the others are compared with. */
static const char *const pair_names[] = {"bf16", "f16",  "f32",       "q8_0",      "i8row",
                                         "q4_0", "i4kc", "q8_0/bf16", "q8_0/q4_0", "bf16/q8_0"};
enum { SINGLE = 7, ALL = sizeof pair_names / sizeof *pair_names }; /* quick: those with one type */

typedef struct pair {
    const char *name;
    hr_dtype k, v;
} pair;

/* Pairs that a cache may have. */
static size_t pairs_of(const hr_study_options *o, pair out[PAIRS_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < (size_t)(o->quick ? SINGLE : ALL); i++) {
        pair *p = &out[n];
        hr_kv_geom g;
        p->name = pair_names[i];
        if (hr_study_types_of(p->name, &p->k, &p->v) != HR_OK) continue;
        if (hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 64, p->k, p->v, 64, 0) == HR_OK) n++;
    }
    return n;
}

/* ---- points ---- */

static const struct place *place_at(const hr_study_options *o, size_t point) {
    for (size_t i = 0; i < PLACES; i++)
        if ((!o->quick || places[i].quick) && point-- == 0) return &places[i];
    return NULL;
}

static size_t points(const hr_study_options *o) {
    size_t n = 0;
    for (size_t i = 0; i < PLACES; i++) n += !o->quick || places[i].quick;
    return n;
}

static void key_of(const struct place *p, const char *name, char *out, size_t n) {
    snprintf(out, n, "step %s context=%u %s", p->model, p->context, name);
}

static json_t *keys(const hr_study_options *o, size_t point) {
    pair pairs[PAIRS_MAX];
    const size_t n = pairs_of(o, pairs);
    json_t *list = json_array();
    char key[256];
    for (size_t i = 0; list && i < n; i++) {
        key_of(place_at(o, point), pairs[i].name, key, sizeof key);
        json_array_append_new(list, json_string(key));
    }
    return list;
}

static hr_study_budget budget_of(const hr_study_options *o) {
    return o->quick ? (hr_study_budget){.max_seconds = 5, .min_seconds = 0.5, .max_samples = 30}
                    : (hr_study_budget){.max_seconds = 25, .min_seconds = 0.5, .max_samples = 100};
}

static double seconds(const hr_study_options *o, size_t point) {
    const double ppl = point == 0 && o->ppl_model && o->ppl_text ? (o->quick ? 8 : 150) : 0;
    return budget_of(o).max_seconds + 4 + ppl;
}

/* ---- engines ---- */

typedef struct steps {
    const hr_study_options *options;
    const struct place *place;
    size_t n;
    pair pairs[PAIRS_MAX];
    hr_model *model;
    hr_engine *engines[PAIRS_MAX];
    double bytes_token[PAIRS_MAX];
    cpu_set_t cpus; /* of the process: an engine pins the thread that opens it */
} steps;

/* Random rows of all positions in the form in which a sequence is off-loaded. */
static hr_status random_rows(const hr_model_info *info, const pair *p, uint32_t n, uint8_t **out, size_t *bytes) {
    const hr_kv_cache_config config = {.layout = HR_KV_HEAD,
                                       .alloc = HR_KV_PER_REQUEST,
                                       .n_layers = info->n_layers,
                                       .n_heads = info->n_kv_heads,
                                       .head_dim = info->head_dim,
                                       .k_type = p->k,
                                       .v_type = p->v,
                                       .max_seqs = 1,
                                       .capacity = n};
    hr_study_arms arms = {.n = 1};
    memset(&arms.shape, 0, sizeof arms.shape);
    arms.shape.layers = info->n_layers, arms.shape.heads = info->n_kv_heads, arms.shape.dim = info->head_dim;
    arms.shape.k_type = p->k, arms.shape.v_type = p->v;
    HR_TRY(hr_study_random_rows(&arms));
    hr_status status = hr_kv_cache_create(&config, &arms.caches[0]);
    if (status == HR_OK) status = hr_kv_cache_reserve(arms.caches[0], 0, n);
    if (status == HR_OK) {
        hr_study_fill(&arms, 0, 0, 0, n);
        *bytes = hr_kv_cache_saved_bytes(arms.caches[0], 0);
        *out = hr_pages_alloc(*bytes, true);
        if (!*out) status = hr_fail(HR_ERR_MEMORY, "kv study: no memory for %zu MiB of rows", *bytes >> 20);
    }
    if (status == HR_OK) hr_kv_cache_save(arms.caches[0], 0, *out);
    hr_kv_cache_destroy(arms.caches[0]);
    hr_free(arms.rows);
    return status;
}

static hr_status load_rows(steps *s, size_t i) {
    const hr_model_info *info = hr_model_get_info(s->model);
    const hr_kv_request request = {0};
    uint8_t *rows = NULL;
    size_t bytes = 0;
    HR_TRY(random_rows(info, &s->pairs[i], s->place->context, &rows, &bytes));
    hr_status status = hr_engine_seq_open(s->engines[i], 0, &request, NULL);
    if (status == HR_OK) status = hr_engine_seq_load(s->engines[i], 0, rows, s->place->context, 0, 0);
    hr_pages_free(rows, bytes);
    s->bytes_token[i] = (double)hr_engine_get_facts(s->engines[i]).kv_bytes_needed / s->place->context;
    return status;
}

static hr_status open_all(hr_study_session *session, steps *s) {
    const hr_load_options load = {.order = HR_ORDER_PANELS, .huge_pages = true, .threads = session->threads};
    HR_TRY(hr_model_load(s->place->model, &load, &s->model));
    for (size_t i = 0; i < s->n; i++) {
        hr_engine_config config = hr_engine_config_default();
        config.threads = session->threads;
        config.k_type = s->pairs[i].k, config.v_type = s->pairs[i].v;
        config.ctx = s->place->context + (STEPS + 1) * ((uint32_t)budget_of(s->options).max_samples + 2);
        config.ubatch = config.batch = 64;
        sched_setaffinity(0, sizeof s->cpus, &s->cpus);
        HR_TRY(hr_engine_create(s->model, &config, &s->engines[i]));
        HR_TRY(load_rows(s, i));
        if (s->options->stop && s->options->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
    }
    return HR_OK;
}

/* A mean of some steps in a row, as a request makes them; the step before wakes the threads. The context grows with each step,
 * in all engines alike. */
static hr_status sample(void *context, size_t arm, double *ns) {
    steps *s = context;
    const uint32_t seq = 0;
    const int32_t token = 1;
    HR_TRY(hr_engine_decode(s->engines[arm], &seq, &token, 1));
    const uint64_t start = hr_now_ns();
    for (int i = 0; i < STEPS; i++) HR_TRY(hr_engine_decode(s->engines[arm], &seq, &token, 1));
    *ns = (double)(hr_now_ns() - start) / STEPS;
    return HR_OK;
}

/* ---- rows ---- */

static json_t *row_of(const hr_study_session *session, const steps *s, const hr_study_series *series, size_t i) {
    const pair *p = &s->pairs[i];
    char key[256], k[16], v[16];
    double *ms = hr_malloc(hr_mul(series->n, sizeof *ms));
    if (!ms) return NULL;
    for (size_t j = 0; j < series->n; j++) ms[j] = series->ns[i * series->stride + j] * 1e-6;
    key_of(s->place, p->name, key, sizeof key);
    snprintf(k, sizeof k, "%.*s", (int)strcspn(p->name, "/"), p->name);
    snprintf(v, sizeof v, "%s", strchr(p->name, '/') ? strchr(p->name, '/') + 1 : p->name);
    json_t *row = hr_study_row("dtypes", p->name, key, ms, series->n, "ms");
    hr_free(ms);
    json_t *versus = i ? hr_study_ratio(series->ns + i * series->stride, series->ns, series->n) : json_null();
    json_t *more = json_pack("{s:s, s:i, s:s, s:s, s:o, s:i, s:s, s:o}", "model", s->place->model, "context",
                             (int)s->place->context, "type_k", k, "type_v", v, "bytes_token",
                             hr_real_or_null(s->bytes_token[i]), "threads", (int)session->threads, "stop_reason",
                             series->stop[i] ? series->stop[i] : "", "vs_bf16", versus);
    json_object_update(row, more);
    json_decref(more);
    return row;
}

/* Perplexities stand in the rows of the first point. */
static hr_status add_ppl(hr_study_session *session, const steps *s, size_t point, json_t *rows, size_t first) {
    char reason[256] = "";
    if (point > 0)
        snprintf(reason, sizeof reason, "stands in the rows of %s at context %u", places[0].model, places[0].context);
    const char *names[PAIRS_MAX];
    json_t *lists = NULL;
    for (size_t i = 0; i < s->n; i++) names[i] = s->pairs[i].name;
    hr_status status = HR_OK;
    if (!reason[0]) status = hr_study_ppl(s->options, session->threads, names, s->n, &lists, reason, sizeof reason);
    if (status != HR_OK) snprintf(reason, sizeof reason, "%s", hr_error());
    for (size_t i = 0; i < s->n; i++) {
        json_t *row = json_array_get(rows, first + i), *list = json_array_get(lists, i);
        json_object_set(row, "ppl", list ? list : json_null());
        json_object_set_new(row, "ppl_reason", list ? json_null() : json_string(reason));
        if (status != HR_OK) json_object_set_new(row, "partial", json_true());
    }
    json_decref(lists);
    return status;
}

static hr_status measure_steps(hr_study_session *session, steps *s, json_t *rows) {
    const hr_study_budget budget = budget_of(s->options);
    const size_t first = json_array_size(rows);
    hr_study_series series;
    HR_TRY(hr_study_state_before(session));
    HR_TRY(open_all(session, s));
    HR_TRY(hr_study_interleave(NULL, s->options, &budget, s->n, sample, s, &series));
    for (size_t i = 0; i < s->n; i++) json_array_append_new(rows, row_of(session, s, &series, i));
    hr_study_series_fini(&series);
    return hr_study_state_after(session, rows, first);
}

static hr_status measure(hr_study_session *session, const hr_study_options *o, size_t point, json_t *rows) {
    steps s = {.options = o, .place = place_at(o, point)};
    const size_t first = json_array_size(rows);
    s.n = pairs_of(o, s.pairs);
    sched_getaffinity(0, sizeof s.cpus, &s.cpus);
    hr_study_arms_destroy(session->arms); /* their memory is wanted here */
    session->arms = NULL;
    hr_status status = measure_steps(session, &s, rows);
    for (size_t i = s.n; i-- > 0;) hr_engine_destroy(s.engines[i]);
    hr_model_destroy(s.model);
    sched_setaffinity(0, sizeof s.cpus, &s.cpus);
    if (status != HR_OK) return status;
    return add_ppl(session, &s, point, rows, first);
}

const hr_study_part hr_study_dtypes = {"dtypes", points, keys, seconds, measure};
