/* sweep.h - a whole sweep: cells in, rows out. The parent's side.
 *
 * Invariants:
 * 1. A row is in the store, with all its parts, before it is printed. When the store fails, the row is still printed
 *    and the sweep ends with 2.
 * 2. A worker's end, for whatever reason, costs the cell it was measuring and no other. A worker that is a thread does not
 *    keep this one: what ends it ends the sweep.
 * 3. After Ctrl-C or SIGTERM no further cell begins; what was finished stays; the exit code is 130. */
#ifndef HR_SWEEP_H
#define HR_SWEEP_H

#include "harness/cli/output.h"
#include "harness/store/store.h"
#include "harness/sweep/axes.h"
#include "harness/sweep/measure.h"

typedef struct hr_sweep_options {
    hr_measure_options measure;
    bool in_process;           /* the worker is a thread: a profiler watches (worker.h) */
    double timeout_s, delay_s; /* 0: none */
    const char *db;            /* NULL: no store */
    bool resume;
    const char
        *others; /* before the first cell another process took the CPUs: "warn", or none did: "ok"; NULL: unknown */
    const char *tags;   /* "key=value;key=value", or "" */
    const json_t *args; /* as given, for the record of the run */
    hr_output output;
} hr_sweep_options;

/* The exit code: 0, 2 (said on stderr), 4 when a cell failed, 130. */
int hr_sweep_run(const hr_sweep_plan *plan, const hr_machine *machine, const hr_sweep_options *options);

/* What a run was, to know whether another one continues it: {build_commit, machine, models, cells, config}. New
 * reference. */
json_t *hr_manifest(const hr_sweep_plan *plan, const hr_machine *machine, const json_t *args);
/* What the run of a plan says of its machine: hr_machine_json, the class that of the GPU when all cells run on it (then
 * cpu_class is the machine's own), and gpus: [{device, machine_class, name, uuid, memory_bytes, ..., simulated}], null without
 * any. New reference; NULL when out of memory. */
json_t *hr_sweep_machine(const hr_sweep_plan *plan, const hr_machine *machine);
/* Whether `stored` fits `now`; the reason, when it does not, is the message of ERR_USAGE. */
hr_status hr_manifest_fits(const json_t *stored, const json_t *now);
/* The newest sweep of the store, when its manifest fits: *run_id (hr_malloc'ed; NULL when the store holds no sweep) and
 * *done, an object whose keys are the ids of its cells with status ok. */
hr_status hr_resume_find(hr_store *store, const json_t *manifest, char **run_id, json_t **done);

/* The rows of --dry-run: [{test, model, quant, ..., memory_mb, seconds, status, reason}]. New reference. */
json_t *hr_dry_run(const hr_sweep_plan *plan, const hr_sweep_options *options);
/* Their columns, NULL-ended; unless all, axes with one value are left out. */
enum { HR_DRY_RUN_COLUMNS = 32 };
void hr_dry_run_columns(const json_t *rows, bool all, const char *keys[HR_DRY_RUN_COLUMNS]);

/* States seen in a sweep, as the object of `roof --json` with what a sweep knows: medians and intervals. */
typedef struct hr_state_log {
    hr_state *states;
    size_t n, capacity;
} hr_state_log;
hr_status hr_state_log_add(hr_state_log *log, const hr_state *state);
void hr_state_log_fini(hr_state_log *log);
json_t *hr_state_log_roof(const hr_state_log *log, const hr_machine *machine, unsigned threads, double llc_bytes);

/* Where rows go: the store, stdout or a file, stderr. */
typedef struct hr_sink hr_sink;
/* Opens everything before the first cell. machine (hr_sweep_machine) and manifest are kept with a new run. */
hr_status hr_sink_open(const hr_sweep_options *options, const json_t *machine, const json_t *manifest, hr_sink **out);
bool hr_sink_has(const hr_sink *sink, const char *cell_id); /* --resume: this cell is already there */
/* Stores, then prints. When storing fails the row is printed all the same and the failure returned. by_repetition
 * (distributions by key, or NULL) is what a table takes its spread from, where requests of a repetition are not
 * independent. */
hr_status hr_sink_put(hr_sink *sink, json_t *row, const hr_cell_parts *parts, const json_t *by_repetition);
hr_status hr_sink_roof(hr_sink *sink, const json_t *roof);
/* Ends the output and the run, and frees the sink; failure of either is returned. */
hr_status hr_sink_close(hr_sink *sink, int exit_code);

#endif
