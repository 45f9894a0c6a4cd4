/* op_fold.h - many records of ops become one row an op: (phase, layer, op, kernel) with count, times and work. */
#ifndef HR_OP_FOLD_H
#define HR_OP_FOLD_H

#include "engine/engine.h"

typedef struct hr_op_fold hr_op_fold;
hr_status hr_op_fold_create(hr_op_fold **out);
void hr_op_fold_destroy(hr_op_fold *fold);
/* Adds the records of one repetition. Allocates: never inside a timed region. */
hr_status hr_op_fold_add(hr_op_fold *fold, const hr_op_record *records, size_t n);
/* [{phase, layer, op, kernel, n, median_ns, bytes, flops, mean_ns, imbalance_ns, handoff_ns, unit}] in order of first
 * appearance; all but the median are means of one record, so that n * mean_ns and n * bytes are totals of all repetitions.
 * unit: that counts the flops. New reference. */
hr_status hr_op_fold_rows(const hr_op_fold *fold, json_t **out);
/* Sum of the times of the records given, in ns. */
double hr_op_sum_ns(const hr_op_record *records, size_t n);

#endif
