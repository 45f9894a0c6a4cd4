/* When a cell has been measured enough (statistics of the samples alone; throttled and failed are the caller's). */
#include "harness/stats/stats.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum {
    MIN_AT_TIMEOUT = 3, /* samples that a cell gets even when its time is over */
    MIN_FOR_STABLE = 30,
    MAX_WARMUPS = 20,
};
static const double STABLE_MOVE = 0.05; /* of the width itself, over the last third of the samples */
static const double WARM_FALL = 0.01;   /* per repetition, of the time itself */

const char *const hr_stop_names[HR_STOP_COUNT] = {
    [HR_STOP_NOT] = "",
    [HR_STOP_CONVERGED] = "converged",
    [HR_STOP_NOISE_STABLE] = "noise_stable",
    [HR_STOP_MAX_SAMPLES] = "max_samples",
    [HR_STOP_TIMEOUT] = "timeout",
    [HR_STOP_FIXED] = "fixed",
    [HR_STOP_THROTTLED] = "throttled",
    [HR_STOP_FAILED] = "failed",
};

/* Half-width of the 95 % interval of the median over the median, of the first n samples; scratch [n]. */
static double relative_width(const double *samples, size_t n, double *scratch) {
    size_t lo, hi;
    if (!hr_median_ci_ranks(n, &lo, &hi)) return NAN;
    memcpy(scratch, samples, n * sizeof *samples);
    double median = hr_median(scratch, n); /* leaves scratch sorted */
    return median > 0 ? (scratch[hi] - scratch[lo]) / 2 / median : NAN;
}

/* The width wanders by chance, so it is compared at the start, in the middle and at the end of the last third. */
static bool width_settled(const double *samples, size_t n, double width, double *scratch) {
    if (n < MIN_FOR_STABLE || !(width > 0)) return false;
    const size_t at[] = {n - n / 3, n - n / 6};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        if (!(fabs(relative_width(samples, at[i], scratch) - width) < STABLE_MOVE * width)) return false;
    return true;
}

hr_stop hr_stop_ask(const hr_stop_rule *rule, const double *samples, size_t n, double seconds, double *noise_rel) {
    double *scratch = n ? hr_malloc(hr_mul(n, sizeof *scratch)) : NULL;
    double width = scratch ? relative_width(samples, n, scratch) : NAN;
    if (noise_rel) *noise_rel = width;

    hr_stop stop = HR_STOP_NOT;
    bool enough = n >= rule->min_samples && seconds >= rule->min_seconds;
    if (rule->fixed > 0)
        stop = n >= rule->fixed ? HR_STOP_FIXED : HR_STOP_NOT;
    else if (enough && width <= rule->half_width)
        stop = HR_STOP_CONVERGED;
    else if (n >= rule->max_samples)
        stop = HR_STOP_MAX_SAMPLES;
    else if (enough && scratch && width_settled(samples, n, width, scratch))
        stop = HR_STOP_NOISE_STABLE;
    else if (seconds >= rule->max_seconds && n >= MIN_AT_TIMEOUT)
        stop = HR_STOP_TIMEOUT;
    hr_free(scratch);
    return stop;
}

/* The slope of a straight line through the last three times. */
bool hr_warm(const double *times, size_t n) {
    if (n >= MAX_WARMUPS) return true;
    if (n < 3) return false;
    const double *last = times + n - 3;
    return (last[2] - last[0]) / 2 >= -WARM_FALL * last[1];
}
