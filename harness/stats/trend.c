/* Mann-Kendall (Mann 1945, Kendall 1975) and Theil-Sen (Theil 1950, Sen 1968). */
#include "harness/stats/trend.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>

enum { EXACT_MOST = 20, LOOKED_AT_MOST = 1000 };

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Share of the orders of n different values whose |S| is at least |s|. S is n (n-1) / 2 less twice the inversions, and
 * the orders of k+1 values with i inversions are those of k values with i-k .. i. */
static double exact_p(size_t n, double s) {
    enum { MOST = EXACT_MOST * (EXACT_MOST - 1) / 2 + 1 };
    double share[MOST] = {1}, next[MOST]; /* [inversions] share of all orders */
    size_t pairs = 0;
    for (size_t k = 1; k < n; k++) {
        for (size_t i = 0; i <= pairs + k; i++) {
            double sum = 0;
            for (size_t j = i > k ? i - k : 0; j <= i && j <= pairs; j++) sum += share[j];
            next[i] = sum / (double)(k + 1);
        }
        pairs += k;
        for (size_t i = 0; i <= pairs; i++) share[i] = next[i];
    }
    double p = 0;
    for (size_t i = 0; i <= pairs; i++)
        if (fabs((double)pairs - 2 * (double)i) >= fabs(s)) p += share[i];
    return fmin(p, 1);
}

/* Sum over groups of t equal values of t (t-1) (2t+5); sorts v. */
static double ties(double *v, size_t n) {
    double sum = 0;
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0; i < n;) {
        size_t t = 1;
        while (i + t < n && v[i + t] == v[i]) t++;
        sum += (double)t * (double)(t - 1) * (2 * (double)t + 5);
        i += t;
    }
    return sum;
}

static double normal_p(size_t n, double s, double tied) {
    const double m = (double)n, variance = (m * (m - 1) * (2 * m + 5) - tied) / 18;
    if (variance <= 0 || s == 0) return 1;
    return erfc((fabs(s) - 1) / sqrt(2 * variance));
}

/* v[n] in order, of which every step-th of the series; slopes: [n (n-1) / 2]. */
static void look(double *v, size_t n, size_t step, double *slopes, hr_trend *out) {
    size_t pairs = 0;
    double s = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            s += (v[j] > v[i]) - (v[j] < v[i]);
            slopes[pairs++] = (v[j] - v[i]) / (double)((j - i) * step);
        }
    const double tied = ties(v, n);
    *out = (hr_trend){.n = n, .s = s, .slope = hr_median(slopes, pairs)};
    out->p = n <= EXACT_MOST && tied == 0 ? exact_p(n, s) : normal_p(n, s, tied);
}

hr_status hr_trend_of(const double *v, size_t n, hr_trend *out) {
    if (n < 3) HR_FAIL(HR_ERR_INPUT, "a trend needs at least 3 values, here are %zu", n);
    const size_t step = (n + LOOKED_AT_MOST - 1) / LOOKED_AT_MOST, kept = (n + step - 1) / step;
    double *some = hr_malloc(hr_mul(kept, sizeof *some));
    double *slopes = hr_malloc(hr_mul(kept * (kept - 1) / 2, sizeof *slopes));
    hr_status status = HR_OK;
    if (!some || !slopes) status = hr_fail(HR_ERR_MEMORY, "no memory for the trend of %zu values", n);
    for (size_t i = 0; status == HR_OK && i < kept; i++) {
        some[i] = v[i * step];
        if (!isfinite(some[i])) status = hr_fail(HR_ERR_INPUT, "value %zu of a series is not finite", i * step);
    }
    if (status == HR_OK) look(some, kept, step, slopes, out);
    hr_free(some), hr_free(slopes);
    return status;
}
