/* two_samples.h - whether two stored sets of samples differ, for information: samples of one process are not independent
 * of each other, so a gate wants pairs. Pure functions, doubles. */
#ifndef HR_TWO_SAMPLES_H
#define HR_TWO_SAMPLES_H

#include "kernels/base/status.h"
#include <stddef.h>

typedef struct hr_two_samples {
    double p; /* Mann-Whitney, two-sided: exact for n_a, n_b <= 20 (with ties: over the tied ranks), else normal
                             with correction for ties and continuity */
    double shift, lo,
        hi; /* Hodges-Lehmann: median of all b - a, and its interval of at least 95 % by the same distribution;
                             NaN where there are too few */
} hr_two_samples;
/* ERR_INPUT for an empty side or a value that is not finite; ERR_MEMORY. Time n log n beyond some thousands of samples:
 * the shift is then found without listing all pairs. */
hr_status hr_two_samples_of(const double *a, size_t n_a, const double *b, size_t n_b, hr_two_samples *out);

/* Adjusted p-values for n rows, in place; NaN stays NaN and is not counted. Holm: family-wise; BH: false discovery rate. */
void hr_adjust_holm(double *p, size_t n);
void hr_adjust_bh(double *p, size_t n);

#endif
