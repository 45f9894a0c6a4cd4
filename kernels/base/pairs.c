#include "kernels/base/pairs.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *const hr_pairs_verdicts[] = {"same", "faster", "slower", "inconclusive"};

/* All sums of +-d[0] .. +-d[n - 1], ascending: both signs of each further number shift a sorted list, and two sorted lists
 * merge. sums, other: [2^n] each; which of them holds the answer is returned. */
static double *sorted_sums(const double *d, size_t n, double *sums, double *other) {
    sums[0] = 0;
    for (size_t i = 0, count = 1; i < n; i++, count *= 2) {
        const double step = fabs(d[i]);
        size_t down = 0, up = 0;
        for (size_t k = 0; k < 2 * count; k++)
            other[k] = up == count || (down < count && sums[down] - step <= sums[up] + step) ? sums[down++] - step
                                                                                             : sums[up++] + step;
        double *swap = sums;
        sums = other, other = swap;
    }
    return sums;
}

/* Horowitz and Sahni, "Computing Partitions with Applications to the Knapsack Problem" (1974): the sums of all signs are
 * the sums of one half plus those of the other, so 2^(n/2) are listed. Signs are symmetric: both tails are alike. */
double hr_pairs_p(const double *d, size_t n) {
    enum { HALF = 1 << (HR_PAIRS_EXACT + 1) / 2 };
    double room[4][HALF], sum = 0, size = 0;
    for (size_t i = 0; i < n; i++) sum += d[i], size += fabs(d[i]);
    const double least =
        fabs(sum) - 1e-12 * size; /* sums of the same numbers in another order differ in the last bits */
    if (!(least > 0)) return 1;
    const size_t half = n / 2, n_x = (size_t)1 << half, n_y = (size_t)1 << (n - half);
    const double *x = sorted_sums(d, half, room[0], room[1]), *y = sorted_sums(d + half, n - half, room[2], room[3]);
    size_t as_far = 0, from = n_y; /* y[from ..] are far enough for this x: the greater x, the more of them */
    for (size_t i = 0; i < n_x; i++) {
        while (from > 0 && x[i] + y[from - 1] >= least) from--;
        as_far += n_y - from;
    }
    return 2 * (double)as_far / (double)((size_t)1 << n);
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

/* Of m sorted p-values the i-th (from 0) is multiplied by m - i and none lies below the one before it (Holm), or by
 * m / (i + 1) and none lies above the one behind it (Benjamini and Hochberg). */
static void adjust(double *p, size_t n, bool family) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++) m += !isnan(p[i]);
    double *sorted = malloc((2 * n + 1) * sizeof *sorted);
    if (!sorted) { /* the harder correction, which needs no memory */
        for (size_t i = 0; i < n; i++)
            if (!isnan(p[i])) p[i] = fmin(1, p[i] * (double)m);
        return;
    }
    double *adjusted = sorted + n, bound = family ? 0 : 1;
    m = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(p[i])) sorted[m++] = p[i];
    qsort(sorted, m, sizeof *sorted, by_value);
    if (family)
        for (size_t i = 0; i < m; i++) adjusted[i] = bound = fmax(bound, fmin(1, sorted[i] * (double)(m - i)));
    else
        for (size_t i = m; i-- > 0;) adjusted[i] = bound = fmin(bound, sorted[i] * (double)m / (double)(i + 1));
    for (size_t i = 0; i < n; i++) {
        if (isnan(p[i])) continue;
        size_t at = 0, end = m; /* of equals the first: the others have the same bound */
        while (at < end) {
            const size_t middle = (at + end) / 2;
            if (sorted[middle] < p[i])
                at = middle + 1;
            else
                end = middle;
        }
        p[i] = adjusted[at];
    }
    free(sorted);
}

void hr_pairs_holm(double *p, size_t n) {
    adjust(p, n, true);
}

void hr_pairs_bh(double *p, size_t n) {
    adjust(p, n, false);
}

hr_pairs_verdict hr_pairs_judge(double shift, double lo, double hi, double p, double effect) {
    if (lo > -effect && hi < effect) return HR_PAIRS_SAME; /* false for NaN */
    if (p < 0.05 && lo > 0 && shift > effect) return HR_PAIRS_SLOWER;
    if (p < 0.05 && hi < 0 && shift < -effect) return HR_PAIRS_FASTER;
    return HR_PAIRS_INCONCLUSIVE;
}
