/* Rules on the times of one cell: a trend, a spread, and time that no op or not every thread works in. */
#include "harness/advice/advice_rules.h"

#include "harness/stats/stats.h"
#include "harness/stats/trend.h"
#include "kernels/base/memory.h"

#include <string.h>

static const double RISE_P = 0.001, RISE_PCT = 5; /* over the whole series */
enum { RISE_LEAST = 8, RISE_MOST = 100000 };
static const double MAD_SHARE = 0.05, P99_OVER_P50 = 2, P95_OVER_P50 = 1.5;
static const double NOISE_REL = 0.02;  /* half of the interval of the median over the median */
static const double GAP_SHARE = 0.10;  /* of a recorded step; the engine stays under 3 % on models of 1B and up */
static const double WAIT_SHARE = 0.15; /* of the time of all ops */

/* ---- ttft-rising ------------------------------------------------------------------------------------------------------ */

/* Where times of repetitions are stored, in units of unit_ns; requests have those of the first token since they keep them. */
typedef struct series {
    const json_t *rows;
    const json_t *flags; /* beside rows of plain numbers; NULL: none */
    double unit_ns;
    bool first_token;
} series;

static series series_of(const hr_case *c) {
    const json_t *first = json_object_get(c->cell, "samples_ttft_ms"),
                 *flags = json_object_get(c->cell, "samples_flags");
    if (json_array_size(first)) return (series){first, flags, 1e6, true};
    if (json_array_size(c->samples)) return (series){c->samples, NULL, 1, false};
    return (series){json_object_get(c->cell, "samples_ns"), flags, 1, false};
}

/* In ns and in order, without those that were flagged; NULL when there are too few, or one is no time. */
static double *times_of(const series *s, size_t *n) {
    const size_t all = json_array_size(s->rows);
    *n = 0;
    if (all < RISE_LEAST || all > RISE_MOST) return NULL;
    double *times = hr_calloc(all, sizeof *times);
    for (size_t i = 0; times && i < all; i++) {
        const json_t *row = json_array_get(s->rows, i);
        if (json_is_string(json_object_get(row, "flags")) || json_is_string(json_array_get(s->flags, i))) continue;
        const json_t *value = json_is_object(row) ? json_object_get(row, "ns") : row;
        const double ns = json_is_number(value) ? json_number_value(value) * s->unit_ns : NAN;
        if (!(ns > 0) || !isfinite(ns)) {
            hr_free(times);
            return NULL;
        }
        times[(*n)++] = ns;
    }
    return times;
}

bool hr_rule_ttft_rising(const hr_case *c, hr_finding *f) {
    const bool request = isfinite(hr_num(c->cell, "isl"));
    if (!request && !(hr_prompt(c->cell) > 0 && !(hr_num(c->cell, "n_gen") > 0))) return false;
    size_t n;
    const series s = series_of(c);
    double *times = times_of(&s, &n);
    hr_trend trend;
    const bool known = times && n >= RISE_LEAST && hr_trend_of(times, n, &trend) == HR_OK;
    const double median = known ? hr_median(times, n) : NAN;
    hr_free(times);
    const double rise = known ? trend.slope * (double)(n - 1) / median * 100 : NAN;
    if (!known || trend.s <= 0 || !(trend.p < RISE_P) || !(rise >= RISE_PCT)) return false;
    const double clock = hr_num(c->cell, "clock_ratio");
    f->value = rise, f->unit = "%", f->cost_pct = rise / 2;
    hr_say(f, finding, "each %s took longer than the one before: %.3g %% over %zu repetitions",
           s.first_token ? "first token"
           : request     ? "request"
                         : "prefill",
           rise, n);
    hr_say(f, evidence, "Mann-Kendall p = %.2g, Theil-Sen slope %.3g us a repetition, median %.4g ms", trend.p,
           trend.slope * 1e-3, median * 1e-6);
    hr_say(f, todo, "%s; measure again with --delay 5 between cells: what a pause cures is heat or a neighbour",
           clock < 0.95 ? "the clock fell too (clock_ratio): mend cooling or the power limit" : "the clock held");
    return true;
}

/* ---- spread ----------------------------------------------------------------------------------------------------------- */

static bool is_weak(const json_t *dist, const char *name) {
    size_t i;
    json_t *word;
    json_array_foreach(json_object_get(dist, "weak"), i, word) {
        const char *text = json_string_value(word);
        if (text && !strcmp(text, name)) return true;
    }
    return false;
}

/* A percentile over the median, NaN where it is weak or unknown. */
static double over_median(const json_t *dist, const char *percentile) {
    const double p50 = hr_num(dist, "p50");
    return p50 > 0 && !is_weak(dist, percentile) ? hr_num(dist, percentile) / p50 : NAN;
}

bool hr_rule_tpot_unstable(const hr_case *c, hr_finding *f) {
    const json_t *tpot = json_object_get(c->cell, "tpot_excl_first_ms"), *itl = json_object_get(c->cell, "itl_step_ms");
    const double p50 = hr_num(tpot, "p50"), mad = hr_num(tpot, "n") >= 5 ? hr_num(tpot, "mad") / p50 : NAN;
    const double p99 = over_median(itl, "p99"), p95 = over_median(itl, "p95");
    /* requests submitted together: gaps of one hold the prefills of the others, which is no want of steadiness */
    if (isfinite(hr_num(c->cell, "isl")) && hr_seqs(c->cell) > 1) return false;
    const double excess = (hr_num(itl, "mean") / hr_num(itl, "p50") - 1) * 100;
    if (p99 > P99_OVER_P50) {
        f->value = p99, f->unit = "x";
        hr_say(f, finding, "one step in a hundred takes over %.3g times the usual time", p99);
        hr_say(f, evidence, "itl_step p99 %.4g ms, median %.4g ms, n = %.0f", hr_num(itl, "p99"), hr_num(itl, "p50"),
               hr_num(itl, "n"));
    } else if (p95 > P95_OVER_P50) {
        f->value = p95, f->unit = "x";
        hr_say(f, finding, "one step in twenty takes over %.3g times the usual time", p95);
        hr_say(f, evidence, "itl_step p95 %.4g ms, median %.4g ms, n = %.0f", hr_num(itl, "p95"), hr_num(itl, "p50"),
               hr_num(itl, "n"));
    } else if (p50 > 0 && mad > MAD_SHARE) {
        f->value = mad * 100, f->unit = "%";
        hr_say(f, finding, "the time of a step differs by %.3g %% from one repetition to another", mad * 100);
        hr_say(f, evidence, "median absolute deviation of TPOT over its median; median %.4g ms, n = %.0f", p50,
               hr_num(tpot, "n"));
    } else {
        return false;
    }
    if (excess > 0) f->cost_pct = excess;
    hr_say(f, todo,
           "end other work on the machine, keep --pin 1, use one thread less than there are cores, measure "
           "again; `headroom trace` shows which steps are long");
    return true;
}

bool hr_rule_noise(const hr_case *c, hr_finding *f) {
    const double noise = hr_num(c->cell, "noise_rel");
    const bool gave_up =
        hr_is_word(c->cell, "stop_reason", "timeout") || hr_is_word(c->cell, "stop_reason", "max_samples");
    if (!gave_up || !(noise > NOISE_REL)) return false;
    f->value = noise * 100, f->unit = "%";
    hr_say(f, finding, "measuring ended (%.20s) before the median was known: it may be %.3g %% off",
           hr_word(c->cell, "stop_reason"), noise * 100);
    hr_say(f, evidence, "half of the 95 %% interval of the median over the median");
    hr_say(f, todo, "give it more time (--max-time 120) on an idle machine, and compare with nothing until then");
    return true;
}

/* ---- where recorded time goes --------------------------------------------------------------------------------------- */

/* Median over the recorded repetitions of a phase of the share that no op holds; NaN: none recorded. */
static double gap_share(const json_t *recorded, const char *phase, double *ms) {
    enum { MOST = 64 };
    double shares[MOST], lost[MOST];
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)recorded, i, row) {
        const double on = hr_num(row, "on_ns"), ops = hr_num(row, "op_ns"), probe = hr_num(row, "probe_ns");
        if (n == MOST || !hr_is_word(row, "phase", phase) || !(on > 0) || !(ops > 0)) continue;
        const double gap = on - ops - hr_or(probe, 0);
        if (!isfinite(gap)) continue;
        shares[n] = gap / on, lost[n++] = gap * 1e-6;
    }
    *ms = n ? hr_median(lost, n) : NAN;
    return n ? hr_median(shares, n) : NAN;
}

bool hr_rule_gaps(const hr_case *c, hr_finding *f) {
    const char *phase = "decode";
    double ms, share = gap_share(c->recorded, phase, &ms);
    if (!isfinite(share)) share = gap_share(c->recorded, phase = "prefill", &ms);
    if (!(share > GAP_SHARE)) return false;
    f->value = share * 100, f->unit = "%", f->cost_pct = share * 100;
    hr_say(f, finding, "%.3g %% of a %s lies in no op: the work is too small for what starts it", share * 100,
           strcmp(phase, "decode") ? "prefill" : "decode step");
    hr_say(f, evidence, "%.4g ms between the recorded ops, cost of recording taken off", ms);
    hr_say(f, todo, "join ops (--fusion all), decode more sequences together (--seqs), and see `headroom explain`");
    return true;
}

bool hr_rule_imbalance(const hr_case *c, hr_finding *f) {
    double all[2] = {0}, waited[2] = {0}, handed[2] = {0}; /* [decode, prefill] ns */
    size_t i;
    json_t *op;
    json_array_foreach((json_t *)c->ops, i, op) {
        const double n = hr_num(op, "n"), mean = hr_num(op, "mean_ns"), wait = hr_num(op, "imbalance_ns");
        if (!(n > 0) || !(mean > 0) || !(wait >= 0)) continue;
        const int p = hr_is_word(op, "phase", "prefill");
        all[p] += n * mean, waited[p] += n * wait, handed[p] += n * hr_or(hr_num(op, "handoff_ns"), 0);
    }
    const int p = all[0] > 0 ? 0 : 1;
    const double share = (waited[p] + handed[p]) / all[p];
    if (!(share > WAIT_SHARE) || !isfinite(share) || !(hr_num(c->cell, "n_threads") > 1)) return false;
    f->value = share * 100, f->unit = "%", f->cost_pct = share * 100;
    hr_say(f, finding, "threads wait for each other during %.3g %% of a %s", share * 100,
           p ? "prefill" : "decode step");
    hr_say(f, evidence, "of the recorded ops %.3g %% is waiting for the slowest, %.3g %% handing work over",
           waited[p] / all[p] * 100, handed[p] / all[p] * 100);
    hr_say(f, todo,
           "a thread shares its core with other work or another thread: end that work, keep --pin 1, try one "
           "thread less (-t)");
    return true;
}
