/* store.h - the SQLite store: runs, machines, cells and what belongs to them, roofs, rows of the KV study, claims, ranges of
 * profilers, what observing costs. Schema: results/schema.sql.
 *
 * A cell is committed, with all that belongs to it, in one transaction before its line is printed. WAL, so that a reader
 * never blocks a sweep. An error says in one line what to do and loses no finished cell. */
#ifndef HR_STORE_H
#define HR_STORE_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct hr_store hr_store;

/* write: creates folders and the file when missing, upgrades a store of an older schema. A foreign file is ERR_INPUT and
 * stays untouched; a schema version that is not known is ERR_INPUT with both versions; read-only folder, locked or full
 * disk ERR_IO. */
hr_status hr_store_open(const char *path, bool write, hr_store **out);
void hr_store_close(hr_store *store);

/* run: {command, args: {...}, build_commit, compiler, started, tags, manifest} ; machine: hr_machine_json. *run_id is a
 * new hex id (hr_free it). */
hr_status hr_store_begin_run(hr_store *store, const json_t *run, const json_t *machine, char **run_id);
hr_status hr_store_end_run(hr_store *store, const char *run_id, int exit_code);
/* What a gate said of the run, kept in its record (key `gate` of hr_store_runs; the newest counts): {verdict, exit_code,
 * baseline, time}. */
hr_status hr_store_put_gate(hr_store *store, const char *run_id, const json_t *gate);
/* cell: keys of cell_keys.h (its run_id is set here). samples: [{"ns": n, "flags": text|null}]; ops: [{phase, layer,
 * op, kernel, n, median_ns, bytes, flops}]; both may be NULL. A cell of the same id in the run is replaced, and its
 * ranges go. */
hr_status hr_store_put_cell(hr_store *store, const char *run_id, const json_t *cell, const json_t *samples,
                            const json_t *ops);
/* The same with what else belongs to a cell, in the same transaction; each may be NULL.
 * ops rows may also hold mean_ns, imbalance_ns, handoff_ns (means of one call) and unit.
 * recorded: a row a recorded repetition and phase: {i, phase, n, off_ns, on_ns, op_ns, n_ops, n_jobs, probe_ns}, times of
 * one request (prefill) or one step (decode): off_ns without the recorder, right before or of the steps beside (null: none),
 * on_ns with it, op_ns the sum of the ops in it, probe_ns what recording costs by calibration; n requests or steps. */
typedef struct hr_cell_parts {
    const json_t *samples, *ops, *recorded;
} hr_cell_parts;
hr_status hr_store_put_cell_parts(hr_store *store, const char *run_id, const json_t *cell, const hr_cell_parts *parts);
/* roof: the object of `roof --json`, kept per machine class and run. */
hr_status hr_store_put_roof(hr_store *store, const char *run_id, const json_t *roof);

/* rows: an array of rows of the KV study (harness/kv/study.h), each with key, part and name; of one point, so that the
 * point is stored whole or not at all. A row of the same key in the run is replaced. */
hr_status hr_store_put_study(hr_store *store, const char *run_id, const json_t *rows);
/* rows: an array of rows of `headroom claims`, each with id; all or none. A row of the same id in the run is replaced. */
hr_status hr_store_put_claims(hr_store *store, const char *run_id, const json_t *rows);
/* As they were put, in order of insertion. run_id NULL: the newest run that has any. None: an empty array. */
hr_status hr_store_study(hr_store *store, const char *run_id, json_t **out);
hr_status hr_store_claims(hr_store *store, const char *run_id, json_t **out);

/* All writes between the two are one transaction: committed when `status` (that of the last of them) is HR_OK, else undone.
 * Returns status, or why the commit failed. */
hr_status hr_store_group_begin(hr_store *store);
hr_status hr_store_group_end(hr_store *store, hr_status status);

/* Runs in order of insertion, oldest first: [{run_id, started, command, args, build_commit, machine_class, n_cells,
 * n_ok, exit_code, manifest}]. */
hr_status hr_store_runs(hr_store *store, json_t **out);
/* RUN: an id, an unambiguous prefix, `last`, `last~k`. ERR_INPUT with advice. *run_id is hr_malloc'ed. */
hr_status hr_store_resolve_run(hr_store *store, const char *text, char **run_id);
/* CELL: ID[@RUN], `last`, `last~k`; *cell_id and *run_id are hr_malloc'ed. */
hr_status hr_store_resolve_cell(hr_store *store, const char *text, char **cell_id, char **run_id);
/* Cells of a run in order of insertion, as they were put, samples_ns included. */
hr_status hr_store_cells(hr_store *store, const char *run_id, json_t **out);
hr_status hr_store_cell(hr_store *store, const char *cell_id, const char *run_id, json_t **out);
hr_status hr_store_ops(hr_store *store, const char *run_id, const char *cell_id, json_t **out);
/* By i, prefill first; an empty array for cells of an older store. */
hr_status hr_store_recorded(hr_store *store, const char *run_id, const char *cell_id, json_t **out);
/* Wall times of the repetitions in order: [{i, ns, flags}]. */
hr_status hr_store_samples(hr_store *store, const char *run_id, const char *cell_id, json_t **out);
/* Ranges that a profiler saw of a cell: rows {name, style, n, total_ns, mean_ns, median_ns, min_ns, max_ns, stddev_ns} and
 * what else the tool says. source: "nsys nvtxsum", "ncu". Rows of the same source of the cell are replaced. ERR_INPUT when
 * there is no such cell. */
hr_status hr_store_put_ranges(hr_store *store, const char *run_id, const char *cell_id, const char *source,
                              const json_t *rows);
/* [{source, name, ...}], of all sources. */
hr_status hr_store_ranges(hr_store *store, const char *run_id, const char *cell_id, json_t **out);
/* Rows of `headroom observe`, each with name; as put_claims, and read back the same way. */
hr_status hr_store_put_observe(hr_store *store, const char *run_id, const json_t *rows);
hr_status hr_store_observe(hr_store *store, const char *run_id, json_t **out);
/* One stored cell by its columns alone, for series over runs; texts may be NULL and live during the call. */
enum { HR_STORE_POINT_VALUES = 2 };
typedef struct hr_store_point {
    const char *cell_id, *machine_class, *state_class, *status, *stop_reason, *flags, *test, *model_filename, *quant;
    const char *run_id, *time, *commit;   /* time: when the run started; of imported cells when they were measured */
    double values[HR_STORE_POINT_VALUES]; /* NaN: null */
} hr_store_point;
typedef struct hr_store_filter {
    const char *cell_id;       /* whole: the fast way to one cell; NULL: all */
    const char *cell;          /* an id, how ids begin, or a test name ("tg128"); NULL: all */
    const char *machine_class; /* whole; NULL: all */
} hr_store_filter;
/* Calls `each` for every cell that was measured or failed, in the order of cell_id, machine class, time, insertion.
 * columns: [HR_STORE_POINT_VALUES] names of columns of numbers, never a user's text; NULL: none. Ends at the first status
 * that is not HR_OK. */
hr_status hr_store_points(hr_store *store, const hr_store_filter *filter, const char *const *columns,
                          hr_status (*each)(void *context, const hr_store_point *point), void *context);
/* Roofs of a run (run_id NULL: the newest of the machine class of the newest run): [{...}]. */
hr_status hr_store_roofs(hr_store *store, const char *run_id, json_t **out);
hr_status hr_store_machine(hr_store *store, const char *run_id, json_t **out);

/* Runs of another store, of any version that is read, copied whole in one transaction; a run that is there already is
 * skipped. {runs, cells, skipped, unmapped: [texts]}: runs that differ from ours are named. */
hr_status hr_store_merge(hr_store *into, const char *path, json_t **counts);
/* Drops samples, ops, recorded repetitions and ranges of runs that started before `before` (UTC: 2026-01-31, or with
 * T23:59:59Z); runs, cells and their distributions stay. Gives the room back to the disk. dry: counts only.
 * {runs, cells, samples, ops, recorded, ranges, bytes_freed}. */
hr_status hr_store_prune(hr_store *store, const char *before, bool dry, json_t **counts);
/* The first day of the newest k days with runs, for `before`; a day before all when there are fewer. */
hr_status hr_store_night(hr_store *store, int64_t k, char out[11]);

#endif
