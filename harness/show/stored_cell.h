/* stored_cell.h - one cell of a store with what commands ask of it: its ops, its ranges, the flags of its run. */
#ifndef HR_STORED_CELL_H
#define HR_STORED_CELL_H

#include "harness/store/store.h"

typedef struct hr_stored_cell {
    hr_store *store;
    char *cell_id, *run_id; /* whole */
    json_t *cell, *ops, *ranges;
    json_t *run_args;    /* as given to the command that measured it, or NULL */
    char *machine_class; /* of the machine that measured it, or NULL */
} hr_stored_cell;

/* db: the value of --db ("none" is ERR_USAGE); text: CELL of the command line, NULL: ERR_USAGE that says how `command` is
 * called. write: rows will be put. fini in any case. */
hr_status hr_stored_cell_load(const char *command, const char *db, const char *text, bool write, hr_stored_cell *out);
void hr_stored_cell_fini(hr_stored_cell *c);

/* Ranges as the store gives them, the longest first, each with what the recorder says of the op of that name: recorded_n,
 * recorded_mean_ns and recorded_median_ns of one call, difference_pct (the profiler's median over the recorder's; means
 * where it says no median); null for what is no op. New reference. */
hr_status hr_ranges_beside_ops(const json_t *ranges, const json_t *ops, json_t **out);
/* Columns for hr_rows_write. */
extern const char *const hr_ranges_columns[];

/* Mean time of a call of the recorded ops in ns; NaN when none is stored. */
double hr_ops_mean_ns(const json_t *ops);

#endif
