/* gate_internal.h - what the parts of a gate share. */
#ifndef HR_GATE_INTERNAL_H
#define HR_GATE_INTERNAL_H

#include "harness/gate/gate.h"

/* "tpot" of a row: the word that people use for its metric. */
const char *hr_gate_metric_word(const json_t *row);
/* Whether a word of a budget or of an allow-list means the row's metric; "*" means any. */
bool hr_gate_metric_is(const char *word, const json_t *row);
/* The smallest budget for the row's metric as a share; NaN: none. */
double hr_gate_budget_of(const hr_gate_rule *rule, const json_t *row);
/* The entry that covers the row and has not expired, or NULL. failed: only entries of the word `failed`. */
const json_t *hr_gate_allowed(const hr_gate_rule *rule, const json_t *row, bool failed);
/* Through the last day of the entry, UTC. */
bool hr_gate_expired(const json_t *entry, time_t now);

hr_compare_rule hr_gate_limits(const hr_gate_rule *rule);
/* Judges the rows of two sessions: see gate_nights.c. */
hr_status hr_gate_judge_nights(json_t *comparison, const hr_gate_rule *rule);
/* Two-sided p of Student's t with df degrees of freedom. */
double hr_gate_student_p(double t, size_t df);

#endif
