/* study_part.h - what a part of the study is to the loop that runs it, and what all parts share: rows, ratios, verdicts.
 *
 * Invariants of the loop (study.c):
 *  1. Points are measured one at a time, in order; the rows of a point are stored in one transaction before the next begins.
 *  2. A point whose keys are all in the store already (resume) is not measured: its rows are taken.
 *  3. An interruption, or a failure of a point, loses no row of another. */
#ifndef HR_STUDY_PART_H
#define HR_STUDY_PART_H

#include "harness/kv/study.h"
#include "harness/roof/gang.h"
#include "harness/roof/limits.h"
#include "harness/roof/roof.h"

/* What points share while a study runs; made once (study_session.c). */
typedef struct hr_study_session hr_study_session;

typedef struct hr_study_part {
    const char *name; /* "layouts" */
    size_t (*points)(const hr_study_options *options);
    /* Keys of the rows of a point, without measuring: [text]. New reference; NULL: out of memory. */
    json_t *(*keys)(const hr_study_options *options, size_t point);
    double (*seconds)(const hr_study_options *options, size_t point); /* about how long it takes; NULL: 5 */
    /* Measures a point and appends its rows. */
    hr_status (*measure)(hr_study_session *session, const hr_study_options *options, size_t point, json_t *rows);
} hr_study_part;

extern const hr_study_part hr_study_layouts, hr_study_operations, hr_study_dtypes, hr_study_allocators;

/* The loop over any list of parts (ended by NULL); session may be NULL when no part looks at it. */
hr_status hr_study_run_parts(const hr_study_options *options, const hr_study_part *const *parts,
                             hr_study_session *session, json_t **out, char **failed);

/* ---- rows (study_row.c): pure ---- */

/* {part, name, key, n, median, ci95_lo, ci95_hi, unit, samples}. New reference; NULL: out of memory. */
json_t *hr_study_row(const char *part, const char *name, const char *key, const double *samples, size_t n,
                     const char *unit);
/* {median, ci95_lo, ci95_hi, n, verdict} of a[i] / b[i]. New reference; NULL: out of memory. */
json_t *hr_study_ratio(const double *a, const double *b, size_t n);
/* "no difference": the whole interval within 2 % of 1; "slower", "faster": the interval on one side of 1 and the median over
 * 2 % away; else, or when the interval is NaN, "inconclusive". */
const char *hr_study_verdict(double median, double lo, double hi);
/* Samples of a point at the least. */
enum { HR_STUDY_LEAST = 10 };

#endif
