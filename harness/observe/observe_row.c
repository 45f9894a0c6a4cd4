/* From pairs to a row: shift, interval, and what that says of the target. */
#include "harness/observe/observe.h"
#include "harness/stats/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const hr_watch_names[HR_WATCH_COUNT + 1] = {"off",  "recorder",  "nvtx", "library",
                                                        "nsys", "no-probes", NULL};
static const char *const metric_names[HR_OBSERVE_METRICS] = {"ttft", "tpot"};
static const char *const what[HR_WATCH_COUNT] = {
    "nothing against nothing, decode steps in turns: what these pairs cannot tell apart",
    "the in-process recorder on, over off, decode steps in turns",
    "NVTX ranges at level op with no tool attached, over none",
    "the recorder library attached, ranges at level op, over none",
    "under nsys profile -t nvtx, ranges at level op, over none",
    "this build with nobody listening, over a build without probes"};

bool hr_watch_in_process(hr_watch watch) {
    return watch <= HR_WATCH_NVTX;
}

/* Of TPOT; NaN: none. A model under this size has steps so short that records weigh more. */
static const double SMALL_MODEL = 500e6;

typedef struct target {
    double lo, hi; /* percent */
    char text[24];
} target;

static target target_of(hr_watch watch, hr_observe_metric metric, uint64_t n_params) {
    target t = {NAN, NAN, ""};
    if (metric != HR_OBSERVE_TPOT) return t;
    if (watch == HR_WATCH_RECORDER) t.hi = (double)n_params < SMALL_MODEL ? 1.5 : 0.5;
    if (watch == HR_WATCH_NVTX) t.hi = 0.5;
    if (watch == HR_WATCH_NO_PROBES) t.lo = -0.5, t.hi = 0.5;
    if (isfinite(t.lo))
        snprintf(t.text, sizeof t.text, "within ±%.1f %%", t.hi);
    else if (isfinite(t.hi))
        snprintf(t.text, sizeof t.text, "< %.1f %%", t.hi);
    return t;
}

const char *hr_observe_verdict(double lo, double hi, double target_lo, double target_hi) {
    if (!isfinite(lo) || !isfinite(hi)) return "inconclusive";
    const bool above = isfinite(target_hi) && lo >= target_hi, below = isfinite(target_lo) && hi <= target_lo;
    if (above || below) return "missed";
    const bool under = !isfinite(target_hi) || hi < target_hi, over = !isfinite(target_lo) || lo > target_lo;
    return under && over ? "met" : "inconclusive";
}

static double percent(double log_ratio) {
    return 100 * expm1(log_ratio);
}

/* Sets the value, and counts what could not be set. */
static void put(json_t *row, const char *key, json_t *value, int *failed) {
    *failed += json_object_set_new(row, key, value) != 0;
}

static void put_figures(json_t *row, const hr_observe_pairs *pairs, hr_observe_metric metric, const target *t,
                        int *failed) {
    const size_t n = pairs->n;
    double d[HR_PAIRS_MAX], off[HR_PAIRS_MAX], on[HR_PAIRS_MAX], lo, hi;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        off[i] = pairs->ms[metric][0][i], on[i] = pairs->ms[metric][1][i];
        d[i] = log(on[i] / off[i]);
        *failed += json_array_append_new(list, json_pack("[f, f]", off[i], on[i])) != 0;
    }
    const double shift = hr_pairs_shift(d, n, &lo, &hi);
    lo = percent(lo), hi = percent(hi);
    put(row, "n", json_integer((json_int_t)n), failed);
    put(row, "median", hr_real_or_null(percent(shift)), failed);
    put(row, "ci95_lo", hr_real_or_null(lo), failed);
    put(row, "ci95_hi", hr_real_or_null(hi), failed);
    put(row, "p", n <= HR_PAIRS_EXACT ? json_real(hr_pairs_p(d, n)) : json_null(), failed);
    put(row, "off_ms", hr_real_or_null(hr_median(off, n)), failed);
    put(row, "on_ms", hr_real_or_null(hr_median(on, n)), failed);
    put(row, "verdict", *t->text ? json_string(hr_observe_verdict(lo, hi, t->lo, t->hi)) : json_null(), failed);
    put(row, "pairs", list, failed);
}

static void put_nothing(json_t *row, int *failed) {
    static const char *const keys[] = {"n", "median", "ci95_lo", "ci95_hi", "p", "off_ms", "on_ms", "verdict", "pairs"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) put(row, keys[i], json_null(), failed);
}

json_t *hr_observe_row(const hr_observe_options *o, hr_watch watch, hr_observe_metric metric,
                       const hr_observe_pairs *pairs, const char *reason) {
    const target t = target_of(watch, metric, o->info->n_params);
    char name[48], test[96];
    int failed = 0;
    snprintf(name, sizeof name, "%s:%s", hr_watch_names[watch], metric_names[metric]);
    hr_cell_test(o->cell, test, sizeof test);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", name, "arm", hr_watch_names[watch], "metric",
                            metric_names[metric], "model_filename", o->cell->model, "quant",
                            hr_quant_name(o->cell->quant), "act", hr_act_name((hr_act)o->cell->act), "test", test);
    if (!row) return NULL;
    if (reason)
        put_nothing(row, &failed);
    else
        put_figures(row, pairs, metric, &t, &failed);
    put(row, "unit", json_string("%"), &failed);
    put(row, "target", *t.text ? json_string(t.text) : json_null(), &failed);
    put(row, "target_lo", hr_real_or_null(t.lo), &failed);
    put(row, "target_hi", hr_real_or_null(t.hi), &failed);
    put(row, "what", json_string(what[watch]), &failed);
    put(row, "reason", reason ? json_string(reason) : json_null(), &failed);
    if (!failed) return row;
    json_decref(row);
    return NULL;
}
