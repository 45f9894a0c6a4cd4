#include "harness/stats/stats.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A percentile is weak when, with more than 5 % probability, no sample lies beyond it: q^n >= 0.05. */
enum { WEAK_P99 = 299, WEAK_P95 = 59, WEAK_P90 = 29 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996). */
double hr_quantile_sorted(const double *sorted, size_t n, double q) {
    if (n == 0) return NAN;
    double at = q * (double)(n - 1);
    if (!(at > 0)) return sorted[0];
    size_t below = (size_t)at;
    if (below >= n - 1) return sorted[n - 1];
    return sorted[below] + (sorted[below + 1] - sorted[below]) * (at - (double)below);
}

double hr_median(double *samples, size_t n) {
    qsort(samples, n, sizeof *samples, ascending);
    return hr_quantile_sorted(samples, n, 0.5);
}

/* The interval between order statistics k and n-1-k misses the median with probability 2 P(B <= k), B binomial (n, 1/2).
 * Terms are taken relative to the largest, C(n, n/2), so that nothing underflows that matters, for any n. */
bool hr_median_ci_ranks(size_t n, size_t *lo, size_t *hi) {
    if (n < 6) return false;
    size_t middle = (n - 1) / 2;                            /* largest k below the centre of symmetry */
    double centre = n % 2 ? 0 : 1;                          /* the term at n/2, which odd n lacks */
    double first = n % 2 ? 1 : (double)n / (double)(n + 2); /* C(n, middle) relative to the largest */
    double term = first, below = 0;
    for (size_t k = middle;; k--) {
        below += term;
        if (k == 0 || term < 1e-18 * below) break;
        term *= (double)k / (double)(n - k + 1);
    }
    double limit = 0.025 * (2 * below + centre), tail = below;
    term = first;
    for (size_t k = middle;; k--) { /* tail: P(B <= k), unnormalised */
        if (tail <= limit) {
            *lo = k, *hi = n - 1 - k;
            return true;
        }
        if (k == 0) return false;
        tail -= term;
        term *= (double)k / (double)(n - k + 1);
    }
}

hr_status hr_dist_of(const double *samples, size_t n, hr_dist *out) {
    if (n == 0) HR_FAIL(HR_ERR_INPUT, "no samples to describe: measure at least one");
    for (size_t i = 0; i < n; i++)
        if (!isfinite(samples[i]))
            HR_FAIL(HR_ERR_INPUT, "sample %zu of %zu is not a finite number: leave it out or measure again", i, n);
    double *sorted = hr_malloc(hr_mul(n, sizeof *sorted));
    if (!sorted) HR_FAIL(HR_ERR_MEMORY, "out of memory while sorting %zu samples", n);
    memcpy(sorted, samples, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);

    hr_dist d = {.n = n, .min = sorted[0], .max = sorted[n - 1], .stddev = NAN, .ci95_lo = NAN, .ci95_hi = NAN};
    d.p50 = hr_quantile_sorted(sorted, n, 0.50);
    d.p90 = hr_quantile_sorted(sorted, n, 0.90);
    d.p95 = hr_quantile_sorted(sorted, n, 0.95);
    d.p99 = hr_quantile_sorted(sorted, n, 0.99);
    d.weak_p99 = n < WEAK_P99, d.weak_p95 = n < WEAK_P95, d.weak_p90 = n < WEAK_P90;
    size_t lo, hi;
    if (hr_median_ci_ranks(n, &lo, &hi)) d.ci95_lo = sorted[lo], d.ci95_hi = sorted[hi];

    /* Sums of differences from the median, so that large equal offsets cost no digits. */
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += sorted[i] - d.p50;
    d.mean = d.p50 + sum / (double)n;
    if (n > 1) {
        for (size_t i = 0; i < n; i++) squares += (sorted[i] - d.mean) * (sorted[i] - d.mean);
        d.stddev = sqrt(squares / (double)(n - 1));
    }
    for (size_t i = 0; i < n; i++) sorted[i] = fabs(sorted[i] - d.p50);
    d.mad = hr_median(sorted, n);
    hr_free(sorted);
    *out = d;
    return HR_OK;
}

json_t *hr_real_or_null(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static bool put_number(json_t *object, const char *key, double value) {
    return json_object_set_new(object, key, hr_real_or_null(value)) == 0;
}

json_t *hr_dist_json(const double *samples, size_t n) {
    if (n == 0) return json_null();
    hr_dist d;
    hr_status status = hr_dist_of(samples, n, &d);
    if (status == HR_ERR_MEMORY) return NULL;
    if (status != HR_OK) return json_null();
    json_t *object = json_object(), *weak = json_array();
    bool ok = object && weak && json_object_set_new(object, "n", json_integer((json_int_t)d.n)) == 0;
    ok = ok && put_number(object, "min", d.min) && put_number(object, "p50", d.p50) &&
         put_number(object, "p90", d.p90) && put_number(object, "p95", d.p95) && put_number(object, "p99", d.p99) &&
         put_number(object, "max", d.max) && put_number(object, "mean", d.mean) &&
         put_number(object, "stddev", d.stddev) && put_number(object, "mad", d.mad) &&
         put_number(object, "ci95_lo", d.ci95_lo) && put_number(object, "ci95_hi", d.ci95_hi);
    if (ok && d.weak_p90) ok = json_array_append_new(weak, json_string("p90")) == 0;
    if (ok && d.weak_p95) ok = json_array_append_new(weak, json_string("p95")) == 0;
    if (ok && d.weak_p99) ok = json_array_append_new(weak, json_string("p99")) == 0;
    ok = ok && json_object_set(object, "weak", weak) == 0;
    json_decref(weak);
    if (ok) return object;
    json_decref(object);
    return NULL;
}

hr_status hr_request_metrics_of(double t0, const double *times, size_t n, hr_request_metrics *out) {
    if (n == 0) HR_FAIL(HR_ERR_INPUT, "a request without tokens has no TTFT: at least one output token is needed");
    if (!isfinite(t0)) HR_FAIL(HR_ERR_INPUT, "the time of submission is not a finite number");
    size_t steps = 0, first_step = 1; /* distinct times after the first; tokens that came with the first */
    for (size_t i = 0; i < n; i++) {
        double before = i ? times[i - 1] : t0;
        if (!isfinite(times[i]) || times[i] < before)
            HR_FAIL(HR_ERR_INPUT, "time of token %zu of %zu is not finite or lies before the one before it", i, n);
        if (i == 0) continue;
        if (times[i] > before)
            steps++;
        else if (steps == 0)
            first_step++;
    }
    double span = times[n - 1] - times[0];
    *out = (hr_request_metrics){
        .ttft = times[0] - t0,
        .e2e = times[n - 1] - t0,
        .tpot = n < 2 ? NAN : span / (double)(n - 1),
        .itl_step = steps ? span / (double)steps : NAN,
        .itl_token = steps ? span / (double)(n - first_step) : NAN,
    };
    return HR_OK;
}
