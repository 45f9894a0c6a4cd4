/* changes.h - change points of a series of nights: E-divisive, deterministic (Student's t in place of permutations).
 * Matteson and James 2014; with the t-test as in the Hunter paper (Fleming et al. 2023). Pure functions. */
#ifndef HR_CHANGES_H
#define HR_CHANGES_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct hr_changes_rule {
    size_t window;    /* 50: points looked at together */
    size_t side;      /* 10: points a side at least */
    size_t stayed;    /* k: fewer points on the newer side are enough when all of them stayed beyond; 0: never */
    double p;         /* 0.001 */
    double magnitude; /* 0.02: smallest relative shift of the medians */
} hr_changes_rule;
hr_changes_rule hr_changes_rule_default(void);

typedef struct hr_change {
    size_t at;       /* first point of the new level */
    double from, to; /* medians before and after */
    double shift;    /* to / from - 1 */
    double p;
    bool settled; /* `side` points stand on either side; else it stayed for as many nights as there are */
} hr_change;
/* values[n], oldest first, finite and over zero. At most `most` changes, the newest, in order; returns ERR_INPUT, ERR_MEMORY. */
hr_status hr_changes_of(const double *values, size_t n, const hr_changes_rule *rule, hr_change *out, size_t most,
                        size_t *found);

#endif
