#include "kernels/base/pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *const hr_pairs_verdicts[] = {"same", "faster", "slower", "inconclusive"};

double hr_pairs_p(const double *d, size_t n) {
    double sum = 0, size = 0;
    for (size_t i = 0; i < n; i++) sum += d[i], size += fabs(d[i]);
    const double least =
        fabs(sum) - 1e-12 * size; /* sums of the same numbers in another order differ in the last bits */
    size_t as_far = 0;
    for (size_t signs = 0; signs < (size_t)1 << n; signs++) {
        double s = 0;
        for (size_t i = 0; i < n; i++) s += signs >> i & 1 ? -d[i] : d[i];
        as_far += fabs(s) >= least;
    }
    return (double)as_far / (double)((size_t)1 << n);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest c with P(W <= c - 1) <= 0.025, W the sum of ranks 1..n each taken with probability one half; 0: none. */
static size_t signed_rank_bound(size_t n) {
    enum { SUMS = HR_PAIRS_MAX * (HR_PAIRS_MAX + 1) / 2 + 1 };
    double ways[SUMS] = {1}, below = 0;
    const size_t all = n * (n + 1) / 2;
    for (size_t rank = 1; rank <= n; rank++)
        for (size_t s = all; s >= rank; s--) ways[s] += ways[s - rank];
    size_t c = 0;
    while (c <= all && (below += ways[c]) <= 0.025 * ldexp(1, (int)n)) c++;
    return c;
}

double hr_pairs_shift(const double *d, size_t n, double *lo, double *hi) {
    double w[HR_PAIRS_MAX * (HR_PAIRS_MAX + 1) / 2];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) w[count++] = (d[i] + d[j]) / 2;
    qsort(w, count, sizeof *w, by_value);
    const size_t c = signed_rank_bound(n);
    *lo = c ? w[c - 1] : NAN;
    *hi = c ? w[count - c] : NAN;
    return (w[(count - 1) / 2] + w[count / 2]) / 2;
}

void hr_pairs_holm(double *p, size_t n) {
    double *sorted = malloc(2 * n * sizeof *sorted);
    if (!sorted) { /* the harder correction, which needs no memory */
        for (size_t i = 0; i < n; i++) p[i] = fmin(1, p[i] * (double)n);
        return;
    }
    double *adjusted = sorted + n, most = 0;
    memcpy(sorted, p, n * sizeof *p);
    qsort(sorted, n, sizeof *sorted, by_value);
    for (size_t i = 0; i < n; i++) adjusted[i] = most = fmax(most, fmin(1, sorted[i] * (double)(n - i)));
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (sorted[at] != p[i]) at++; /* of equals the first, which has the largest factor; the others follow it */
        p[i] = adjusted[at];
    }
    free(sorted);
}

hr_pairs_verdict hr_pairs_judge(double shift, double lo, double hi, double p, double effect) {
    if (lo > -effect && hi < effect) return HR_PAIRS_SAME; /* false for NaN */
    if (p < 0.05 && lo > 0 && shift > effect) return HR_PAIRS_SLOWER;
    if (p < 0.05 && hi < 0 && shift < -effect) return HR_PAIRS_FASTER;
    return HR_PAIRS_INCONCLUSIVE;
}
