/* kept_run.h - a run of the store whose rows are put one by one: what was measured outlives whatever ends the program. */
#ifndef HR_KEPT_RUN_H
#define HR_KEPT_RUN_H

#include "harness/cli/options.h"
#include "harness/store/store.h"

typedef struct hr_kept_run {
    const char *command;                                                       /* for the record of the run */
    const hr_args *args;                                                       /* its flags; --db among them */
    hr_status (*put)(hr_store *store, const char *run_id, const json_t *rows); /* rows: an array of one */
    hr_store *store;                                                           /* NULL: --db none, or not open */
    char *run_id;                                                              /* NULL before the first row */
} hr_kept_run;

/* Opens the store that --db names: before anything is measured, so that a wrong one is said then. The first three fields
 * are set. Close it in any case. */
hr_status hr_kept_run_open(hr_kept_run *run);
/* The first row begins the run. Without a store nothing happens. */
hr_status hr_kept_run_put(hr_kept_run *run, const json_t *row);
/* Ends the run as hr_exit_code(status) and closes the store; a second call does nothing. Returns status, with the message
 * that it had, or else why the run could not be ended. */
hr_status hr_kept_run_close(hr_kept_run *run, hr_status status);

#endif
