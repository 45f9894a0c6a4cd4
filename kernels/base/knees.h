/* knees.h - where a curve of reading rate over working set falls: the sizes of caches as programs see them. Pure. */
#ifndef HR_KNEES_H
#define HR_KNEES_H

#include <stddef.h>

enum { HR_CURVE_MAX = 96 };
typedef struct hr_curve {
    unsigned n;
    size_t bytes[HR_CURVE_MAX]; /* of one thread, ascending */
    double gb_s[HR_CURVE_MAX];
} hr_curve;

/* The last size before the steepest fall among sizes in [lo, hi]; 0 when nothing falls by 5 %. */
size_t hr_knee_within(const hr_curve *curve, size_t lo, size_t hi);
/* Bytes of a thread that the last level of cache holds. Reading S bytes again and again, a share h of them is found in
 * the cache: 1 / rate = h / plateau + (1 - h) / memory. h S hardly depends on S once S is larger than the cache; this is
 * its median over the fall. 0 when the curve has no fall, or no plateau of memory at its end. */
size_t hr_knee_last(const hr_curve *curve);

#endif
