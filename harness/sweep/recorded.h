/* recorded.h - the rows `recorded` of a cell: what a repetition took with the recorder on, beside what it takes without (the
 * repetition right before; of decode, every other step), in times of one request (prefill) and of one step (decode). Pure functions; the rows are those of store.h. */
#ifndef HR_RECORDED_H
#define HR_RECORDED_H

#include "engine/engine.h"

/* How long a phase of a repetition took, in ns; NaN where the repetition has no such phase, or nobody measured it.
 * prefill: from where a request is begun to its first token (rows without sampling: to its logits), mean of the requests.
 * decode: the steps from the first to the end, over their number. */
typedef struct hr_phase_times {
    double ns[HR_PHASE_COUNT];
} hr_phase_times;

typedef struct hr_recorded {
    size_t n[HR_PHASE_COUNT]; /* requests, steps that were recorded; 0: no such phase */
    hr_phase_times off, on;
    double op_ns[HR_PHASE_COUNT]; /* these three: sums over the repetition, as hr_recorded_fold left them */
    double n_ops[HR_PHASE_COUNT], n_jobs[HR_PHASE_COUNT];
} hr_recorded;

/* Sums the records of the repetition. */
void hr_recorded_fold(hr_recorded *recorded, const hr_op_record *records, size_t n);
/* How much longer a repetition of so many requests and steps is with the recorder on; NaN where a phase has nothing to
 * compare with. */
double hr_recorded_overhead_pct(const hr_recorded *recorded, const size_t whole[HR_PHASE_COUNT]);
/* Sum of the ops over the time that they were recorded in. */
double hr_recorded_op_share(const hr_recorded *recorded);
/* [{i, phase, n, off_ns, on_ns, op_ns, n_ops, n_jobs, probe_ns}] of n repetitions, i from 0; unknown is null. New
 * reference. */
hr_status hr_recorded_rows(const hr_recorded *recorded, size_t n, hr_record_cost cost, json_t **out);

#endif
