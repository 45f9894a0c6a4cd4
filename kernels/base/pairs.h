/* pairs.h - whether two things differ, from runs in pairs: two builds, or runs that are watched and not. Pure functions,
 * doubles.
 *
 * One observation a pair: the logarithm of time of B over time of A. Pairs share the hour's neighbours and the machine's
 * state, samples of one process are not independent; so the pair is the replicate. */
#ifndef HR_PAIRS_H
#define HR_PAIRS_H

#include <stddef.h>

enum { HR_PAIRS_MAX = 64, HR_PAIRS_EXACT = 20 };

/* Exact two-sided sign-flip test: the share of all 2^n choices of signs for which |sum d| is at least what it is. The
 * smallest possible is 2 / 2^n. Time 2^(n/2). n in 1..HR_PAIRS_EXACT. */
double hr_pairs_p(const double *d, size_t n);
/* Hodges-Lehmann shift: the median of all averages of two observations (each with itself too), with its interval of at
 * least 95 % by the exact distribution of the signed-rank sum; *lo and *hi are NaN when n < 6. n in 1..HR_PAIRS_MAX. */
double hr_pairs_shift(const double *d, size_t n, double *lo, double *hi);
/* p[n] become adjusted for as many rows as are not NaN; NaN stays. Holm: the rate of any false alarm at all;
 * Benjamini-Hochberg: the share of false ones among the alarms. */
void hr_pairs_holm(double *p, size_t n);
void hr_pairs_bh(double *p, size_t n);

typedef enum hr_pairs_verdict {
    HR_PAIRS_SAME,
    HR_PAIRS_FASTER,
    HR_PAIRS_SLOWER,
    HR_PAIRS_INCONCLUSIVE
} hr_pairs_verdict;
extern const char *const hr_pairs_verdicts[]; /* "same", "faster", "slower", "inconclusive" */
/* About B seen from A. same: the interval lies inside +-effect; faster, slower: it lies beyond zero, p < 0.05 and the
 * shift is over effect; else inconclusive. All in logarithms. */
hr_pairs_verdict hr_pairs_judge(double shift, double lo, double hi, double p, double effect);

#endif
