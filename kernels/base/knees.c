#include "kernels/base/knees.h"

#include <math.h>

size_t hr_knee_within(const hr_curve *c, size_t lo, size_t hi) {
    double steepest = 1.05;
    size_t knee = 0;
    for (unsigned i = 0; i + 1 < c->n; i++) {
        if (c->bytes[i] < lo || c->bytes[i + 1] > hi) continue;
        double fall = c->gb_s[i] / c->gb_s[i + 1];
        if (fall > steepest) steepest = fall, knee = c->bytes[i];
    }
    return knee;
}

/* The largest index whose size is at most half of size i's; 0 when there is none. */
static unsigned octave_below(const hr_curve *c, unsigned i) {
    unsigned j = i;
    while (j > 0 && c->bytes[j] * 2 > c->bytes[i]) j--;
    return j;
}

size_t hr_knee_last(const hr_curve *c) {
    const double in_cache = 1.4;               /* memory's own rate wavers by some 10 % from size to size */
    const double still_rising = 1.08;          /* over an octave; a plateau wavers by less */
    const double h_least = 0.25, h_most = 0.9; /* outside, h is mostly noise of one of the plateaus */
    if (c->n < 4) return 0;
    double memory = 0;
    unsigned last = c->n - 1, i = c->n;
    for (unsigned k = last; k > octave_below(c, last); k--) memory = fmax(memory, c->gb_s[k]);
    while (i > 0 && c->gb_s[i - 1] < in_cache * memory) i--;
    if (i == 0 || c->bytes[last] < 2 * c->bytes[i - 1]) return 0;
    unsigned edge = i - 1, top = edge;
    while (top > 0 && c->gb_s[octave_below(c, top)] > still_rising * c->gb_s[top]) top--;
    double plateau = c->gb_s[top], held[HR_CURVE_MAX];
    unsigned n = 0;
    for (unsigned k = top; k <= last; k++) {
        double h = (1 / memory - 1 / c->gb_s[k]) / (1 / memory - 1 / plateau);
        if (h >= h_least && h <= h_most) held[n++] = h * (double)c->bytes[k];
    }
    if (n == 0) return c->bytes[edge]; /* the fall is steeper than the distance of two sizes */
    for (unsigned a = 1; a < n; a++)
        for (unsigned b = a; b && held[b] < held[b - 1]; b--) {
            double swap = held[b];
            held[b] = held[b - 1], held[b - 1] = swap;
        }
    return (size_t)(n % 2 ? held[n / 2] : (held[n / 2 - 1] + held[n / 2]) / 2);
}
