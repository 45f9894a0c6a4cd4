/* Stored runs of two sessions: only what is divided by the roof measured beside it may be judged, and only against how far
 * such nights differ anyway.
 *
 * The shift of a row is log(share of the roof in A / in B), positive where B is slower. Two nights of one level differ by
 * spread * sqrt(2) as a standard deviation; the spread is known from few nights, so the yardstick is Student's t with nights
 * - 1 degrees of freedom. Under NIGHTS of them nothing is judged. A whole request (e2e_ms) has no roof: its parts are
 * judged instead. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "harness/stats/two_samples.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { NIGHTS = 10 };

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while judging");
}

/* Abramowitz and Stegun 26.7.3 and 26.7.4: finite sums for whole degrees of freedom. */
double hr_gate_student_p(double t, size_t df) {
    const double theta = atan(fabs(t) / sqrt((double)df)), c = cos(theta), s = sin(theta);
    if (df % 2) {
        double term = c, sum = df > 1 ? c : 0;
        for (size_t k = 3; k + 2 <= df; k += 2) term *= c * c * (double)(k - 1) / (double)k, sum += term;
        return 1 - 2 / M_PI * (theta + s * sum);
    }
    double term = 1, sum = 1;
    for (size_t k = 2; k + 2 <= df; k += 2) term *= c * c * (double)(k - 1) / (double)k, sum += term;
    return 1 - s * sum;
}

/* t beyond which lies 5 % on both sides together. */
static double student_95(size_t df) {
    double lo = 1.9, hi = 13;
    for (int i = 0; i < 60; i++) {
        const double middle = (lo + hi) / 2;
        if (hr_gate_student_p(middle, df) > 0.05)
            lo = middle;
        else
            hi = middle;
    }
    return hi;
}

typedef struct night {
    double shift, lo, hi, p; /* logarithms */
    char why[160];           /* not judged because */
} night;

static night look(const json_t *row, const hr_gate_rule *rule) {
    const double own = hr_num(row, "spread"), counted = hr_num(row, "nights");
    const double spread = isnan(own) ? rule->spread : own;
    const size_t nights = counted >= 0 ? (size_t)counted : rule->nights;
    const double a = hr_num(row, "roof_fraction_a"), b = hr_num(row, "roof_fraction_b");
    night n = {NAN, NAN, NAN, NAN, ""};
    if (a > 0 && b > 0) n.shift = log(a / b);
    if (*hr_word(row, "blocked"))
        snprintf(n.why, sizeof n.why, "%.150s", hr_word(row, "blocked"));
    else if (isnan(n.shift))
        snprintf(n.why, sizeof n.why, "runs of two sessions are compared by shares of the roof, and a side has none");
    else if (nights < NIGHTS)
        snprintf(n.why, sizeof n.why, "%zu nights of this cell and machine class: a stored baseline needs %d", nights,
                 NIGHTS);
    else if (!(spread >= 0))
        snprintf(n.why, sizeof n.why, "how far nights differ is not known");
    if (n.why[0]) return n;
    const double deviation = fmax(spread, 1e-6) * M_SQRT2, reach = student_95(nights - 1) * deviation;
    n.lo = n.shift - reach, n.hi = n.shift + reach, n.p = hr_gate_student_p(n.shift / deviation, nights - 1);
    return n;
}

static const char *verdict_of(const night *n, double p, const hr_compare_rule *rule) {
    if (n->why[0]) return "inconclusive";
    if (n->lo > -log1p(rule->effect) && n->hi < log1p(rule->effect)) return "same";
    if (n->lo > 0 && p < rule->level && n->shift > log1p(rule->effect)) return "slower";
    if (n->hi < 0 && p < rule->level && n->shift < -log1p(rule->effect)) return "faster";
    return "inconclusive";
}

static bool put_real(json_t *row, const char *key, double value) {
    return json_object_set_new(row, key, hr_real_or_null(value)) == 0;
}

static bool put(json_t *row, const night *n, double p, const hr_compare_rule *rule) {
    const char *verdict = verdict_of(n, p, rule);
    json_t *by_samples = json_object_get(row, "verdict");
    bool ok = json_object_set(row, "verdict_samples", by_samples ? by_samples : json_null()) == 0;
    ok = ok && put_real(row, "night_shift_pct", expm1(n->shift) * 100) &&
         put_real(row, "night_lo_pct", expm1(n->lo) * 100) && put_real(row, "night_hi_pct", expm1(n->hi) * 100) &&
         put_real(row, "night_p", p) && json_object_set_new(row, "verdict", json_string(verdict)) == 0;
    json_t *why = json_null();
    if (n->why[0])
        why = json_string(n->why);
    else if (!strcmp(verdict, "inconclusive"))
        why = json_sprintf("%+.1f %% of the roof is not beyond what nights differ by (%.1f..%.1f)",
                           expm1(n->shift) * 100, expm1(n->lo) * 100, expm1(n->hi) * 100);
    return ok && json_object_set_new(row, "why", why) == 0;
}

static bool both_ok(const json_t *row) {
    return !strcmp(hr_word(row, "status_a"), "ok") && !strcmp(hr_word(row, "status_b"), "ok");
}

hr_status hr_gate_judge_nights(json_t *comparison, const hr_gate_rule *rule) {
    const hr_compare_rule limits = hr_gate_limits(rule);
    json_t *rows = json_object_get(comparison, "cells"), *row;
    const size_t n = json_array_size(rows);
    night *nights = hr_calloc(n + 1, sizeof *nights);
    double *p = hr_calloc(n + 1, sizeof *p);
    bool ok = nights && p;
    size_t i;
    if (ok) json_array_foreach(rows, i, row) {
            nights[i] = look(row, rule);
            p[i] = both_ok(row) ? nights[i].p : NAN;
        }
    if (ok) hr_adjust_holm(p, n);
    json_array_foreach(rows, i, row) {
        if (ok && both_ok(row)) ok = put(row, &nights[i], p[i], &limits);
    }
    hr_free(nights), hr_free(p);
    return ok ? HR_OK : no_memory();
}
