/* Rows of the study: their common keys, ratios in pairs, and what a ratio says. Pure. */
#include "harness/kv/study_part.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

static const double SAME = 0.02; /* a smaller effect is none */

/* Median and interval; NaN where they are not defined. Leaves samples as they are. */
static void middle(const double *samples, size_t n, double out[3]) {
    size_t lo, hi;
    double *sorted = n ? hr_malloc(hr_mul(n, sizeof *sorted)) : NULL;
    out[0] = out[1] = out[2] = NAN;
    if (!sorted) return;
    memcpy(sorted, samples, n * sizeof *sorted);
    out[0] = hr_median(sorted, n); /* leaves them sorted */
    if (hr_median_ci_ranks(n, &lo, &hi)) out[1] = sorted[lo], out[2] = sorted[hi];
    hr_free(sorted);
}

json_t *hr_study_row(const char *part, const char *name, const char *key, const double *samples, size_t n,
                     const char *unit) {
    double m[3];
    middle(samples, n, m);
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_array_append_new(list, hr_real_or_null(samples[i]));
    return json_pack("{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:s, s:o}", "part", part, "name", name, "key", key, "n",
                     (json_int_t)n, "median", hr_real_or_null(m[0]), "ci95_lo", hr_real_or_null(m[1]), "ci95_hi",
                     hr_real_or_null(m[2]), "unit", unit, "samples", list);
}

const char *hr_study_verdict(double median, double lo, double hi) {
    if (!isfinite(median) || !isfinite(lo) || !isfinite(hi)) return "inconclusive";
    if (lo >= 1 - SAME && hi <= 1 + SAME) return "no difference";
    if (lo > 1 && median > 1 + SAME) return "slower";
    if (hi < 1 && median < 1 - SAME) return "faster";
    return "inconclusive";
}

json_t *hr_study_ratio(const double *a, const double *b, size_t n) {
    double m[3], *ratios = hr_malloc(hr_mul(n + 1, sizeof *ratios));
    if (!ratios) return NULL;
    for (size_t i = 0; i < n; i++) ratios[i] = a[i] / b[i];
    middle(ratios, n, m);
    hr_free(ratios);
    return json_pack("{s:o, s:o, s:o, s:I, s:s}", "median", hr_real_or_null(m[0]), "ci95_lo", hr_real_or_null(m[1]),
                     "ci95_hi", hr_real_or_null(m[2]), "n", (json_int_t)n, "verdict",
                     hr_study_verdict(m[0], m[1], m[2]));
}
