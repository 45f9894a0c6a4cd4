/* advice.h - rules over a stored run: what is wrong, by what evidence, and what to do. Each rule is a condition on stored
 * columns (advice_table.c); nothing is measured here. */
#ifndef HR_ADVICE_H
#define HR_ADVICE_H

#include "harness/store/store.h"

/* What the rules see of a run. samples, ops, recorded: objects from cell_id to the rows of the store. */
typedef struct hr_advice_facts {
    const json_t *cells; /* array */
    const json_t *samples, *ops, *recorded;
    const json_t *machine; /* hr_machine_json of the run; may be NULL */
} hr_advice_facts;

/* Findings, most costly first: [{rule, cell_id, test, finding, evidence, value, unit, todo, severity, cost_pct}], an array
 * (empty: nothing was found). value: the evidence figure; severity: "note", "medium", "high"; cost_pct: of the time of a step
 * or prefill, null: unknown. New reference. */
hr_status hr_advice(const hr_advice_facts *facts, json_t **out);
/* The same for a run of the store; only: a cell_id, or NULL for all cells of the run. */
hr_status hr_advice_of_run(hr_store *store, const char *run_id, const char *only, json_t **out);
/* The table of rules: [{rule, asks, columns, source, live}]; live: how a sweep provokes it. New reference. */
json_t *hr_advice_rules(void);

#endif
