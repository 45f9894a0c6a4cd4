/* stats.h - numbers out of samples: distributions, intervals, and when to stop measuring. Pure functions, doubles. */
#ifndef HR_STATS_H
#define HR_STATS_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Percentiles by linear interpolation between order statistics; stddev with n-1 (NaN for n = 1); mad: median absolute
 * deviation from the median, unscaled; ci95: distribution-free interval of the median from order statistics (NaN when n
 * is too small for 95 %: n < 6). NaN means undefined. */
typedef struct hr_dist {
    size_t n;
    double min, p50, p90, p95, p99, max, mean, stddev, mad, ci95_lo, ci95_hi;
    bool weak_p99, weak_p95, weak_p90; /* p99 n < 299, p95 n < 59, p90 n < 29 */
} hr_dist;

/* ERR_INPUT for n = 0 or a value that is not finite; ERR_MEMORY. */
hr_status hr_dist_of(const double *samples, size_t n, hr_dist *out);
/* The object of cell_keys.h; JSON null when samples are none. New reference; NULL when out of memory. */
json_t *hr_dist_json(const double *samples, size_t n);
/* A JSON real, or null when the value is not finite. */
json_t *hr_real_or_null(double value);
double hr_quantile_sorted(const double *sorted, size_t n, double q);
double hr_median(double *samples, size_t n); /* reorders samples */
/* Ranks (0-based, inclusive) of the order statistics that bound the median with at least 95 %; false when n < 6. */
bool hr_median_ci_ranks(size_t n, size_t *lo, size_t *hi);

/* Golden definitions of one request: t0 submitted, times[i] when token i was available (seconds or ms, any unit). */
typedef struct hr_request_metrics {
    double ttft, e2e;
    double tpot;      /* (tN - t1) / (N - 1); NaN for N < 2 */
    double itl_step;  /* mean gap between distinct token times; NaN for N < 2 */
    double itl_token; /* gap over tokens that came with it */
} hr_request_metrics;
hr_status hr_request_metrics_of(double t0, const double *times, size_t n, hr_request_metrics *out);

/* The stop rule of sweeps. Feed times in ns as they come; ask after each. */
typedef enum hr_stop {
    HR_STOP_NOT,
    HR_STOP_CONVERGED,
    HR_STOP_NOISE_STABLE,
    HR_STOP_MAX_SAMPLES,
    HR_STOP_TIMEOUT,
    HR_STOP_FIXED,
    HR_STOP_THROTTLED,
    HR_STOP_FAILED,
    HR_STOP_COUNT
} hr_stop;
extern const char
    *const hr_stop_names[HR_STOP_COUNT]; /* "", "converged", "noise_stable", "max_samples", "timeout", ... */
typedef struct hr_stop_rule {
    size_t fixed;       /* > 0: exactly so many */
    size_t min_samples; /* 10; 3 when time runs out earlier */
    size_t max_samples; /* 1000 */
    double min_seconds; /* 0.5 */
    double max_seconds; /* 30 */
    double half_width;  /* 0.005 of the median */
} hr_stop_rule;
/* samples[n] so far (ns), seconds since the first began. *noise_rel: half-width of the interval over the median, NaN
 * where undefined. noise_stable: that width moved by less than 5 % of itself over the last third of at least 30
 * samples. */
hr_stop hr_stop_ask(const hr_stop_rule *rule, const double *samples, size_t n, double seconds, double *noise_rel);
/* Warm-up is over when the last three times no longer fall: their first derivative has died out (or n >= 20). */
bool hr_warm(const double *times, size_t n);

#endif
