/* What of a cell is compared: its metrics, and the samples of each. */
#include "harness/compare/compare_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

static const char PREFILL[] = "ttft_prefill_ms", TPOT[] = "tpot_excl_first_ms", TIME[] = "time_ms";

typedef enum kind { PP, TG, PG, ISL, OTHER, KINDS } kind;

static bool positive(const json_t *cell, const char *key) {
    return hr_num(cell, key) > 0; /* NaN is not */
}
static bool has_list(const json_t *cell, const char *key) {
    return json_array_size(json_object_get(cell, key)) > 0;
}
static bool has_dist(const json_t *cell, const char *key) {
    return json_is_number(json_object_get(json_object_get(cell, key), "p50"));
}

/* Another tool's row of prefill and decode is one time; ours has both. */
static kind kind_of(const json_t *cell) {
    const bool p = positive(cell, "n_prompt"), g = positive(cell, "n_gen");
    if (positive(cell, "isl")) return ISL;
    if (p && g) return has_list(cell, "samples_tpot_ms") || has_dist(cell, TPOT) ? PG : OTHER;
    return p ? PP : g ? TG : OTHER;
}

const char *const *hr_compare_metrics(const json_t *cell) {
    static const char *const metrics[KINDS][4] = {
        [PP] = {PREFILL}, [TG] = {TPOT}, [PG] = {PREFILL, TPOT}, [ISL] = {"ttft_ms", TPOT, "e2e_ms"}, [OTHER] = {TIME}};
    static const char *const one_token[] = {"ttft_ms", "e2e_ms", NULL}; /* no second one: no TPOT */
    const kind k = kind_of(cell);
    return k == ISL && hr_num(cell, "osl") == 1 ? one_token : metrics[k];
}

/* A request's mean ITL is its TPOT, so that a budget of either is one of TPOT. */
const char *hr_compare_metric_of(const char *short_name, const json_t *cell) {
    static const struct {
        const char *name, *metric;
        unsigned kinds;
    } known[] = {{"ttft", "ttft_ms", 1u << ISL},
                 {"tpot", TPOT, 1u << ISL | 1u << PG | 1u << TG},
                 {"itl", TPOT, 1u << ISL | 1u << PG | 1u << TG},
                 {"e2e", "e2e_ms", 1u << ISL},
                 {"pp", PREFILL, 1u << PP | 1u << PG},
                 {"tg", TPOT, 1u << TG | 1u << PG}};
    const char *const *metrics = hr_compare_metrics(cell);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(short_name, known[i].name) || !(known[i].kinds >> kind_of(cell) & 1u)) continue;
        for (size_t m = 0; metrics[m]; m++)
            if (!strcmp(metrics[m], known[i].metric)) return metrics[m];
    }
    return NULL;
}

/* The list that holds a metric's samples, and by what its values are divided to give ms. */
static const json_t *list_of(const json_t *cell, const char *metric, double *divisor) {
    static const struct {
        const char *metric, *key;
    } of_requests[] = {{"ttft_ms", "samples_ttft_ms"},
                       {TPOT, "samples_tpot_ms"},
                       {"e2e_ms", "samples_e2e_ms"},
                       {PREFILL, "samples_prefill_ms"}};
    const kind k = kind_of(cell);
    if (k == PP || k == TG || k == OTHER) {
        *divisor = k == TG ? 1e6 * hr_num(cell, "n_gen") : 1e6;
        return json_object_get(cell, "samples_ns");
    }
    *divisor = 1;
    for (size_t i = 0; i < sizeof of_requests / sizeof *of_requests; i++)
        if (!strcmp(metric, of_requests[i].metric)) return json_object_get(cell, of_requests[i].key);
    return NULL;
}

static bool is_flagged(const json_t *flags, size_t i) {
    return json_is_string(json_array_get(flags, i));
}

hr_status hr_compare_samples(const json_t *cell, const char *metric, double **out, size_t *n) {
    double divisor;
    const json_t *list = list_of(cell, metric, &divisor), *flags = json_object_get(cell, "samples_flags");
    const size_t all = json_array_size(list);
    double *v = hr_malloc(hr_mul(all + 1, sizeof *v));
    *out = NULL, *n = 0;
    if (!v) HR_FAIL(HR_ERR_MEMORY, "no memory for the samples of a cell");
    for (int with_flagged = 0; with_flagged < 2 && *n == 0; with_flagged++)
        for (size_t i = 0; i < all; i++) {
            const json_t *value = json_array_get(list, i);
            if (json_is_number(value) && (with_flagged || !is_flagged(flags, i)))
                v[(*n)++] = json_number_value(value) / divisor;
        }
    *out = v;
    return HR_OK;
}

bool hr_cell_all_throttled(const json_t *cell) {
    const json_t *flags = json_object_get(cell, "samples_flags");
    size_t flagged = 0, n = json_array_size(flags);
    for (size_t i = 0; i < n; i++) flagged += is_flagged(flags, i);
    return !strcmp(hr_word(cell, "stop_reason"), "throttled") || (n > 0 && flagged == n);
}

double hr_cell_stored_median(const json_t *cell, const char *metric, size_t *n) {
    const json_t *dist = json_object_get(cell, metric);
    const double count = hr_num(dist, "n");
    *n = count > 0 ? (size_t)count : 0;
    return hr_num(dist, "p50");
}

bool hr_cell_is_ok(const json_t *cell) {
    const char *status = hr_word(cell, "status");
    return !*status || !strcmp(status, "ok");
}

bool hr_cell_has_flag(const json_t *cell, const char *flag) {
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(cell, "flags"), i, word) {
        const char *text = json_string_value(word);
        if (text && !strcmp(text, flag)) return true;
    }
    return false;
}

json_t *hr_cell_converged(const json_t *cell) {
    static const char *const good[] = {"converged", "noise_stable", "fixed"};
    const char *reason = hr_word(cell, "stop_reason");
    if (!*reason) return json_null();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!strcmp(reason, good[i])) return json_true();
    return json_false();
}

const char *hr_cell_name(const json_t *cell) {
    const char *test = hr_word(cell, "test");
    return *test ? test : hr_word(cell, "cell_id");
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

bool hr_row_text(json_t *row, const char *key, const char *text) {
    return json_object_set_new(row, key, text && *text ? json_string(text) : json_null()) == 0;
}
bool hr_row_real(json_t *row, const char *key, double value) {
    return json_object_set_new(row, key, hr_real_or_null(value)) == 0;
}
bool hr_row_copy(json_t *row, const char *key, const json_t *from, const char *from_key) {
    json_t *value = json_object_get(from, from_key);
    return json_object_set(row, key, value ? value : json_null()) == 0;
}
bool hr_row_block(json_t *row, const char *why) {
    return hr_row_text(row, "blocked", why);
}

/* The share of the roof is that of the phase the metric is of; a whole request has none. */
static bool put_roofs(json_t *row, const json_t *cell, const char *metric, const char *side) {
    char fraction[32], mbu[32];
    const kind k = kind_of(cell);
    const bool prefill = k != PP && (!strcmp(metric, PREFILL) || !strcmp(metric, "ttft_ms"));
    const bool none = !strcmp(metric, "e2e_ms");
    snprintf(fraction, sizeof fraction, "roof_fraction_%s", side), snprintf(mbu, sizeof mbu, "mbu_%s", side);
    return hr_row_copy(row, fraction, none ? NULL : cell, prefill ? "prefill_roof_fraction" : "roof_fraction") &&
           hr_row_copy(row, mbu, none || prefill ? NULL : cell, "mbu");
}

static bool put_side(json_t *row, const json_t *cell, const char *metric, const char *side) {
    char key[32];
    snprintf(key, sizeof key, "status_%s", side);
    bool ok = hr_row_text(row, key, *hr_word(cell, "status") ? hr_word(cell, "status") : "ok");
    snprintf(key, sizeof key, "converged_%s", side);
    ok = ok && json_object_set_new(row, key, hr_cell_converged(cell)) == 0;
    snprintf(key, sizeof key, "stop_reason_%s", side);
    ok = ok && hr_row_copy(row, key, cell, "stop_reason");
    snprintf(key, sizeof key, "error_%s", side);
    ok = ok && hr_row_text(row, key, hr_cell_is_ok(cell) ? NULL : hr_word(cell, "error"));
    return ok && put_roofs(row, cell, metric, side);
}

json_t *hr_compare_row(const json_t *a, const json_t *b, const char *metric) {
    static const char *const from_a[] = {"test", "cell_id", "state_class", "model_filename", "quant"};
    static const char *const unknown[] = {"a_median",    "b_median", "shift_pct",  "ci95_lo_pct",
                                          "ci95_hi_pct", "p",        "p_adjusted", "blocked"};
    json_t *row = json_object();
    bool ok = row != NULL;
    for (size_t i = 0; ok && i < sizeof from_a / sizeof *from_a; i++) ok = hr_row_copy(row, from_a[i], a, from_a[i]);
    ok = ok && hr_row_text(row, "metric", metric);
    for (size_t i = 0; ok && i < sizeof unknown / sizeof *unknown; i++) ok = hr_row_text(row, unknown[i], NULL);
    ok = ok && json_object_set_new(row, "n_a", json_integer(0)) == 0;
    ok = ok && json_object_set_new(row, "n_b", json_integer(0)) == 0;
    ok = ok && hr_row_text(row, "verdict", "inconclusive") && hr_row_text(row, "why", NULL);
    ok = ok && put_side(row, a, metric, "a") && put_side(row, b, metric, "b");
    if (ok) return row;
    json_decref(row);
    return NULL;
}
