/* baseline.h - the products of the table's matrix kernels by other people's libraries, under the same names and with the
 * same counters. A library is opened at run time; what is not there is said once. */
#ifndef HR_BENCH_BASELINE_H
#define HR_BENCH_BASELINE_H

#include "bench/bench.h"

typedef struct hr_baseline_job {
    size_t rows, cols, n;
    hr_dtype type;                   /* F32, BF16, I8ROW: plain arrays, int8 without scales */
    const hr_bench_weights *weights; /* copies of [rows][cols] */
    const void *x;                   /* [n][cols] of the type */
    void *y;                         /* [n][rows] floats; int8: int32 */
    void *own;                       /* what prepare made */
} hr_baseline_job;

typedef struct hr_baseline {
    const char *name;  /* of the row, "openblas_sgemm" */
    const char *order; /* "rows", "packed" */
    hr_dtype type;
    hr_unit unit;
    bool slow;                                  /* small shapes alone */
    hr_status (*prepare)(hr_baseline_job *job); /* NULL: nothing to do */
    void (*call)(hr_baseline_job *job, size_t copy);
    void (*finish)(hr_baseline_job *job); /* NULL */
} hr_baseline;

void hr_baseline_add(const hr_baseline *b, bool smoke);

#endif
