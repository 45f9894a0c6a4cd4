/* From the numbers of rows to verdicts: p adjusted for how many rows there are, then the rule of harness/gate/README.md. Which of the
 * four words it is depends on the row's numbers alone, so the order of rows changes none. */
#include "harness/compare/compare_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "harness/stats/two_samples.h"
#include "kernels/base/memory.h"
#include "kernels/base/pairs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while comparing cells");
}

hr_compare_rule hr_compare_rule_default(void) {
    return (hr_compare_rule){.effect = 0.02, .level = 0.05};
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static double median_of(const double *v, size_t n) {
    double copy[HR_PAIRS_EXACT];
    memcpy(copy, v, n * sizeof *v);
    return n ? hr_median(copy, n) : NAN;
}

hr_status hr_compare_pairs(const json_t *cell, const char *metric, const double *a_ms, const double *b_ms, size_t n,
                           json_t **row) {
    double logs[HR_PAIRS_EXACT], p = NAN, shift = NAN, lo = NAN, hi = NAN;
    if (n > HR_PAIRS_EXACT) HR_FAIL(HR_ERR_INPUT, "%zu pairs: the exact test takes at most %d", n, HR_PAIRS_EXACT);
    for (size_t i = 0; i < n; i++) {
        if (!(a_ms[i] > 0 && b_ms[i] > 0 && isfinite(a_ms[i]) && isfinite(b_ms[i])))
            HR_FAIL(HR_ERR_INPUT, "%.60s: pair %zu holds a time that is not over zero", hr_cell_name(cell), i + 1);
        logs[i] = log(b_ms[i] / a_ms[i]);
    }
    if (n) p = hr_pairs_p(logs, n), shift = hr_pairs_shift(logs, n, &lo, &hi);
    json_t *out = hr_compare_row(cell, cell, metric);
    bool ok = out && hr_row_real(out, "a_median", median_of(a_ms, n)) &&
              hr_row_real(out, "b_median", median_of(b_ms, n)) && hr_row_real(out, "p", p);
    ok = ok && hr_row_real(out, "shift_pct", expm1(shift) * 100) && hr_row_real(out, "ci95_lo_pct", expm1(lo) * 100) &&
         hr_row_real(out, "ci95_hi_pct", expm1(hi) * 100);
    ok = ok && json_object_set_new(out, "n_a", json_integer((json_int_t)n)) == 0;
    ok = ok && json_object_set_new(out, "n_b", json_integer((json_int_t)n)) == 0;
    if (!ok) {
        json_decref(out);
        return no_memory();
    }
    *row = out;
    return HR_OK;
}

/* ---- the rule ---------------------------------------------------------------------------------------------------- */

static bool both_ok(const json_t *row) {
    return !strcmp(hr_word(row, "status_a"), "ok") && !strcmp(hr_word(row, "status_b"), "ok");
}

static bool counts(const json_t *row) {
    return both_ok(row) && !*hr_word(row, "blocked");
}

/* p of the rows that may be judged, adjusted; NaN of the others. */
static hr_status adjusted(const json_t *rows, const hr_compare_rule *rule, double **out) {
    const size_t n = json_array_size(rows);
    double *p = hr_malloc(hr_mul(n + 1, sizeof *p));
    if (!p) return no_memory();
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        p[i] = counts(row) ? hr_num(row, "p") : NAN;
    }
    (rule->holm ? hr_adjust_holm : hr_adjust_bh)(p, n);
    *out = p;
    return HR_OK;
}

/* Of n pairs the exact test gives no p under 2^(1 - n): where all of them agree, only more pairs help. */
static void unlikely_enough(const json_t *row, double p, const hr_compare_rule *rule, char *out, size_t size) {
    const double n = hr_num(row, "n_a"), alone = hr_num(row, "p");
    int wanted = (int)n + 1;
    snprintf(out, size, "p, adjusted for the number of rows, is %.3g, not under %g", p, rule->level);
    if (!(fabs(alone * exp2(n - 1) - 1) < 1e-9)) return; /* no row of pairs, or not all of them agree */
    while (wanted < HR_PAIRS_EXACT && p / alone * exp2(1 - wanted) >= rule->level) wanted++;
    snprintf(out + strlen(out), size - strlen(out), ": %.0f pairs cannot give a smaller one, take --pairs %d or more",
             n, wanted);
}

/* Why the numbers are no verdict. */
static void reason(const json_t *row, double p, const hr_compare_rule *rule, char *out, size_t size) {
    const double shift = hr_num(row, "shift_pct"), lo = hr_num(row, "ci95_lo_pct"), hi = hr_num(row, "ci95_hi_pct");
    const double effect = rule->effect * 100;
    if (isnan(lo) || isnan(hi) || isnan(p))
        snprintf(out, size, "%g and %g samples are too few for an interval", hr_num(row, "n_a"), hr_num(row, "n_b"));
    else if (lo <= 0 && hi >= 0)
        snprintf(out, size, "the interval %+.2f to %+.2f %% holds 0 and reaches beyond %g %%", lo, hi, effect);
    else if (fabs(shift) <= effect)
        snprintf(out, size, "the shift of %+.2f %% is no more than %g %%, its interval reaches beyond", shift, effect);
    else
        unlikely_enough(row, p, rule, out, size);
}

static const char *judge(const json_t *row, double p, const hr_compare_rule *rule) {
    const double shift = hr_num(row, "shift_pct"), lo = hr_num(row, "ci95_lo_pct"), hi = hr_num(row, "ci95_hi_pct");
    const double effect = rule->effect * 100;
    if (lo > -effect && hi < effect) return "same"; /* each comparison is false for NaN */
    if (lo > 0 && p < rule->level && shift > effect) return "slower";
    if (hi < 0 && p < rule->level && shift < -effect) return "faster";
    return "inconclusive";
}

static bool judge_row(json_t *row, double p, const hr_compare_rule *rule) {
    char why[200] = "";
    const char *verdict = "inconclusive";
    if (rule->across_machines)
        return hr_row_real(row, "p_adjusted", NAN) && json_object_set(row, "verdict", json_null()) == 0;
    if (!both_ok(row))
        snprintf(why, sizeof why, "%s",
                 !strcmp(hr_word(row, "status_b"), "ok") ? "the cell failed in A" : "the cell failed in B");
    else if (*hr_word(row, "blocked"))
        snprintf(why, sizeof why, "%s", hr_word(row, "blocked"));
    else if (!strcmp(verdict = judge(row, p, rule), "inconclusive"))
        reason(row, p, rule, why, sizeof why);
    return hr_row_real(row, "p_adjusted", p) && hr_row_text(row, "verdict", verdict) && hr_row_text(row, "why", why);
}

/* ---- the summary ------------------------------------------------------------------------------------------------- */

static size_t failed_alone(const json_t *unmatched) {
    size_t i, n = 0;
    json_t *row;
    json_array_foreach((json_t *)unmatched, i, row) n += !strcmp(hr_word(row, "status"), "failed");
    return n;
}

/* A cell that failed on either side counts once, however many metrics it would have had. */
static json_t *summary_of(const json_t *comparison) {
    static const char *const words[] = {"same", "faster", "slower", "inconclusive"};
    size_t n[4] = {0}, compared = 0, i;
    const json_t *a = json_object_get(comparison, "unmatched_a"), *b = json_object_get(comparison, "unmatched_b");
    size_t failed = failed_alone(a) + failed_alone(b);
    json_t *row;
    json_array_foreach(json_object_get(comparison, "cells"), i, row) {
        const bool whole = both_ok(row);
        compared += whole, failed += !whole;
        for (size_t w = 0; whole && w < 4; w++) n[w] += !strcmp(hr_word(row, "verdict"), words[w]);
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "compared", (json_int_t)compared, "same", (json_int_t)n[0],
                     "faster", (json_int_t)n[1], "slower", (json_int_t)n[2], "inconclusive", (json_int_t)n[3], "failed",
                     (json_int_t)failed, "unmatched", (json_int_t)(json_array_size(a) + json_array_size(b)));
}

hr_status hr_compare_judge(json_t *comparison, const hr_compare_rule *rule) {
    json_t *rows = json_object_get(comparison, "cells"), *row;
    double *p = NULL;
    size_t i;
    HR_TRY(adjusted(rows, rule, &p));
    bool ok = true;
    json_array_foreach(rows, i, row) ok = ok && judge_row(row, p[i], rule);
    hr_free(p);
    json_t *summary = ok ? summary_of(comparison) : NULL;
    if (!summary || json_object_set_new(comparison, "summary", summary) != 0) return no_memory();
    return HR_OK;
}
