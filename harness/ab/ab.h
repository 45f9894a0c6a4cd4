/* ab.h - two programs measured in pairs in one session: short runs of A and B in random order within a pair.
 *
 * 1. The number of pairs is fixed before it starts. 2. A pair in which the machine's state changed, or differs between its
 * two runs, is repeated and not counted: at most as many repeats as pairs, then the cells end inconclusive; so is one with a run
 * that hung or broke off, twice at most. 3. What is
 * measured so far is kept when it is interrupted, and judged when a limit of time ends it. */
#ifndef HR_AB_H
#define HR_AB_H

#include "harness/cli/output.h"
#include "harness/compare/compare.h"

typedef struct hr_ab_options {
    const char *a, *b;             /* programs; or revisions of this repository: built in work trees by hr_ab_build */
    const char *const *sweep_args; /* after --; NULL-ended */
    size_t pairs;                  /* 13 */
    size_t repetitions;            /* samples a run */
    uint64_t seed;
    double timeout_s; /* of one run */
    double limit_s;   /* no pair begins that would end later, counted from the first; 0: none */
    hr_compare_rule rule;
    hr_output output;
} hr_ab_options;

/* *out: as hr_compare_cells, with {pairs, repeated, a: {program, build_commit}, b: {...}, ops: {cell_id: hr_compare_ops rows}}.
 * ERR_INPUT when a program cannot run or measures nothing; ERR_INTERRUPTED keeps *out with the pairs that were whole. */
hr_status hr_ab_run(const hr_ab_options *options, json_t **out);
/* A program as it is, or a revision: built below `folder` (hr_malloc'ed path). */
hr_status hr_ab_program(const char *text, const char *folder, bool quiet, char **program);

#endif
