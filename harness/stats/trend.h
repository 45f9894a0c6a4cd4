/* trend.h - does a series of times, in the order of measurement, rise? Pure functions. */
#ifndef HR_TREND_H
#define HR_TREND_H

#include "kernels/base/status.h"
#include <stddef.h>

typedef struct hr_trend {
    size_t n;     /* values looked at */
    double s;     /* Mann-Kendall: pairs that rise less pairs that fall */
    double p;     /* two-sided; exact for n <= 20 without ties, else normal with correction for ties and continuity */
    double slope; /* Theil-Sen: median slope of all pairs, per step of the order */
} hr_trend;

/* v[n] finite, n >= 3. Of more than 1000 values every k-th is looked at; slope stays per step of the whole series.
 * ERR_INPUT for fewer or a value that is not finite; ERR_MEMORY. */
hr_status hr_trend_of(const double *v, size_t n, hr_trend *out);

#endif
