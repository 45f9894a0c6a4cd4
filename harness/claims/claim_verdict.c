#include "harness/claims/claims.h"

#include "harness/stats/stats.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const hr_verdict_names[] = {"holds", "does not hold", "no difference", "not testable here"};

enum { LEAST_SAMPLES = 6 }; /* fewer have no 95 % interval of the median */
static const double SAME_WITHIN = 0.02;

hr_claim_measured hr_claim_exact(double value) {
    return (hr_claim_measured){.value = value, .lo = value, .hi = value, .n = 1, .exact = true, .samples = {value}};
}

hr_claim_measured hr_claim_of_samples(double *v, size_t n) {
    hr_claim_measured m = {.value = NAN, .lo = NAN, .hi = NAN, .n = n};
    if (n == 0) return m;
    if (n > HR_CLAIM_SAMPLES) n = m.n = HR_CLAIM_SAMPLES;
    size_t lo, hi;
    memcpy(m.samples, v, n * sizeof *v);
    m.value = hr_median(v, n); /* sorts */
    if (hr_median_ci_ranks(n, &lo, &hi)) m.lo = v[lo], m.hi = v[hi];
    return m;
}

/* -1: the whole interval is outside, 1: the whole interval is inside, 0: it holds both. */
static int inside(const hr_claim_rule *r, const hr_claim_measured *m) {
    switch (r->kind) {
    case HR_RULE_AT_LEAST:
        return m->lo >= r->lo ? 1 : m->hi < r->lo ? -1 : 0;
    case HR_RULE_AT_MOST:
        return m->hi <= r->hi ? 1 : m->lo > r->hi ? -1 : 0;
    case HR_RULE_BETWEEN:
        return m->hi < r->lo || m->lo > r->hi ? -1 : m->lo >= r->lo && m->hi <= r->hi ? 1 : 0;
    }
    return 0;
}

static void say_rule(const hr_claim_rule *r, char *out, size_t n) {
    if (r->kind == HR_RULE_AT_LEAST)
        snprintf(out, n, "at least %.4g", r->lo);
    else if (r->kind == HR_RULE_AT_MOST)
        snprintf(out, n, "at most %.4g", r->hi);
    else
        snprintf(out, n, "%.4g to %.4g", r->lo, r->hi);
}

hr_verdict hr_claim_judge(const hr_claim_rule *r, const hr_claim_measured *m, char *reason, size_t n) {
    char rule[64];
    say_rule(r, rule, sizeof rule);
    if (!isfinite(m->value) || (!m->exact && m->n < LEAST_SAMPLES) || !isfinite(m->lo) || !isfinite(m->hi)) {
        snprintf(reason, n, "%zu samples are too few for an interval; %d are needed", m->n, LEAST_SAMPLES);
        return HR_VERDICT_UNTESTED;
    }
    const bool effect = isfinite(r->null) && r->null != 0;
    if (effect && fabs(m->lo / r->null - 1) <= SAME_WITHIN && fabs(m->hi / r->null - 1) <= SAME_WITHIN) {
        snprintf(reason, n, "the interval lies within %.0f %% of %.4g, which means no effect", SAME_WITHIN * 100,
                 r->null);
        return HR_VERDICT_SAME;
    }
    switch (inside(r, m)) {
    case 1:
        if (m->exact)
            snprintf(reason, n, "%.4g is what is claimed (%s)", m->value, rule);
        else
            snprintf(reason, n, "the whole interval is within what is claimed (%s)", rule);
        return HR_VERDICT_HOLDS;
    case -1:
        if (m->exact)
            snprintf(reason, n, "%.4g is outside of what is claimed (%s)", m->value, rule);
        else
            snprintf(reason, n, "the whole interval is outside of what is claimed (%s)", rule);
        return HR_VERDICT_FAILS;
    default:
        snprintf(reason, n, "the interval holds both answers (the claim asks for %s); a quieter machine, or no --quick",
                 rule);
        return HR_VERDICT_UNTESTED;
    }
}

/* ---- a stored row ---- */

const char *const hr_claim_rule_names[] = {"at least", "at most", "between"};

static bool rule_of(const json_t *json, hr_claim_rule *out) {
    const json_t *null = json_object_get(json, "null");
    const char *kind = json_string_value(json_object_get(json, "kind"));
    out->lo = json_number_value(json_object_get(json, "lo")), out->hi = json_number_value(json_object_get(json, "hi"));
    out->null = json_is_number(null) ? json_number_value(null) : NAN;
    for (int k = 0; kind && k <= HR_RULE_BETWEEN; k++)
        if (!strcmp(kind, hr_claim_rule_names[k])) {
            out->kind = (hr_rule_kind)k;
            return true;
        }
    return false;
}

hr_status hr_claim_judge_row(const json_t *row, hr_verdict *out) {
    const json_t *list = json_object_get(row, "samples");
    hr_claim_rule rule;
    double v[HR_CLAIM_SAMPLES];
    const size_t n = json_array_size(list);
    *out = HR_VERDICT_UNTESTED;
    if (json_is_null(json_object_get(row, "measured"))) return HR_OK;
    if (!json_is_array(list) || n > HR_CLAIM_SAMPLES || !rule_of(json_object_get(row, "rule"), &rule))
        HR_FAIL(HR_ERR_INPUT, "a stored claim without its samples or its rule");
    for (size_t i = 0; i < n; i++) v[i] = json_number_value(json_array_get(list, i));
    char reason[256];
    const bool exact = json_is_true(json_object_get(row, "exact"));
    const hr_claim_measured m = exact && n == 1 ? hr_claim_exact(v[0]) : hr_claim_of_samples(v, n);
    *out = hr_claim_judge(&rule, &m, reason, sizeof reason);
    return HR_OK;
}
