/* A series as one line of characters. */
#include "harness/history/history.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { LEVELS = 8, BYTES = 3 }; /* heights of a character; its bytes in UTF-8 */

static const char blocks[LEVELS][BYTES + 1] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char marks[LEVELS + 1] = "_.-:=+*#";
/* The heights span at least this share of the middle value: less than that between nights is noise. */
static const double LEAST_SPAN = 0.05;

/* Median of the finite ones; NaN: there is none. */
static double middle_of(const double *values, size_t n, double *scratch) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(values[i])) scratch[k++] = values[i];
    return k ? hr_median(scratch, k) : NAN;
}

char *hr_sparkline(const double *values, size_t n, size_t width, bool ascii) {
    const size_t columns = n < width ? n : width;
    char *line = hr_malloc(hr_mul(columns, BYTES) + 1), *at = line;
    double *heights = hr_malloc(hr_mul(columns, sizeof *heights)), *scratch = hr_malloc(hr_mul(n, sizeof *scratch));
    if (line && heights && scratch) {
        double lo = INFINITY, hi = -INFINITY;
        for (size_t i = 0; i < columns; i++) {
            const size_t from = i * n / columns, to = (i + 1) * n / columns;
            heights[i] = middle_of(values + from, to - from, scratch);
            lo = fmin(lo, heights[i]), hi = fmax(hi, heights[i]);
        }
        const double middle = (lo + hi) / 2, span = fmax(hi - lo, LEAST_SPAN * fabs(middle));
        for (size_t i = 0; i < columns; i++) {
            const double share = span > 0 ? (heights[i] - middle) / span + 0.5 : 0.5;
            const int level = isfinite(share) ? (int)fmin(LEVELS - 1, fmax(0, share * LEVELS)) : 0;
            if (!isfinite(heights[i]))
                at = stpcpy(at, " ");
            else if (ascii)
                *at++ = marks[level];
            else
                at = stpcpy(at, blocks[level]);
        }
        *at = 0;
    } else {
        hr_free(line);
        line = NULL;
    }
    hr_free(heights), hr_free(scratch);
    return line;
}
