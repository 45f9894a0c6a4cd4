/* Writing: each function is one transaction; when it returns OK, its rows are on the disk. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { RUN_ID_BYTES = 8 };

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static const char *class_of(const json_t *machine) {
    const char *name = text_of(machine, "machine_class");
    return name ? name : text_of(machine, "class_name");
}

static hr_status new_run_id(char **out) {
    unsigned char random[RUN_ID_BYTES];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        HR_FAIL(HR_ERR_IO, "no random numbers for a run id: %s", strerror(errno));
    char *id = hr_malloc(2 * sizeof random + 1);
    if (!id) HR_FAIL(HR_ERR_MEMORY, "out of memory for a run id");
    for (size_t i = 0; i < sizeof random; i++) sprintf(id + 2 * i, "%02x", random[i]);
    *out = id;
    return HR_OK;
}

static hr_status insert_machine(hr_store *store, const char *class_name, const json_t *machine) {
    sqlite3_stmt *s;
    char now[21];
    hr_store_now(now);
    HR_TRY(hr_store_prepare(store,
                            "INSERT INTO machine (machine_class, first_seen, last_seen, json) VALUES (?1, ?2, ?2, ?3) "
                            "ON CONFLICT (machine_class) DO UPDATE SET last_seen = ?2, json = ?3",
                            &s));
    int rc = hr_store_bind_text(s, 1, class_name);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, now);
    if (rc == SQLITE_OK) rc = hr_store_bind_dump(s, 3, machine);
    hr_status status = rc == SQLITE_OK ? HR_OK : hr_store_check(store, rc);
    if (status == HR_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return status;
}

static hr_status insert_run(hr_store *store, const char *run_id, const json_t *run, const json_t *machine) {
    static const char *const keys[] = {"command", "args", "build_commit", "compiler", "tags", "manifest"};
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store,
                            "INSERT INTO run (run_id, started, command, args, build_commit, compiler, tags, manifest, "
                            "machine_class, machine, json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            &s));
    char now[21];
    hr_store_now(now);
    const char *started = text_of(run, "started");
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, started ? started : now);
    for (int i = 0; i < 6 && rc == SQLITE_OK; i++) rc = hr_store_bind_json(s, 3 + i, json_object_get(run, keys[i]));
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 9, class_of(machine));
    if (rc == SQLITE_OK) rc = hr_store_bind_json(s, 10, machine);
    if (rc == SQLITE_OK) rc = hr_store_bind_dump(s, 11, run);
    hr_status status = hr_store_check(store, rc);
    if (status == HR_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return status;
}

hr_status hr_store_begin_run(hr_store *store, const json_t *run, const json_t *machine, char **run_id) {
    char *id = NULL;
    if (!json_is_object(run)) HR_FAIL(HR_ERR_INTERNAL, "a run without its record cannot be stored");
    HR_TRY(new_run_id(&id));
    hr_status status = hr_store_begin(store);
    if (status == HR_OK) {
        if (class_of(machine)) status = insert_machine(store, class_of(machine), machine);
        if (status == HR_OK) status = insert_run(store, id, run, machine);
        status = hr_store_end(store, status);
    }
    if (status == HR_OK)
        *run_id = id;
    else
        hr_free(id);
    return status;
}

static hr_status no_such_run(const hr_store *store, const char *run_id) {
    HR_FAIL(HR_ERR_INPUT, "store %s has no run %s: `headroom runs` lists what it holds", store->path, run_id);
}

hr_status hr_store_end_run(hr_store *store, const char *run_id, int exit_code) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "UPDATE run SET ended = ?, exit_code = ? WHERE run_id = ?", &s));
    char now[21];
    hr_store_now(now);
    int rc = hr_store_bind_text(s, 1, now);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(s, 2, exit_code);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 3, run_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK && sqlite3_changes(store->db) == 0) return no_such_run(store, run_id);
    return status;
}

hr_status hr_store_put_gate(hr_store *store, const char *run_id, const json_t *gate) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "UPDATE run SET json = json_set(json, '$.gate', json(?)) WHERE run_id = ?", &s));
    int rc = hr_store_bind_dump(s, 1, gate);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, run_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK && sqlite3_changes(store->db) == 0) return no_such_run(store, run_id);
    return status;
}

/* ---- cells ---- */

hr_status hr_store_require_run(hr_store *store, const char *run_id) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "SELECT 1 FROM run WHERE run_id = ?", &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status == HR_OK && rc == SQLITE_DONE ? no_such_run(store, run_id) : status;
}

hr_status hr_store_require_cell(hr_store *store, const char *run_id, const char *cell_id) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "SELECT 1 FROM cell WHERE run_id = ? AND cell_id = ?", &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, cell_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK && rc == SQLITE_DONE)
        HR_FAIL(HR_ERR_INPUT, "store %s has no cell %s in run %s: `headroom runs` lists what it holds", store->path,
                cell_id, run_id);
    return status;
}

static hr_status delete_cell(hr_store *store, const char *run_id, const char *cell_id) {
    sqlite3_stmt *s; /* what belongs to it goes with it */
    HR_TRY(hr_store_prepare(store, "DELETE FROM cell WHERE run_id = ? AND cell_id = ?", &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, cell_id);
    if (rc == SQLITE_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return hr_store_check(store, rc);
}

static hr_status insert_cell(hr_store *store, const json_t *cell) {
    char *sql = hr_store_cell_sql();
    if (!sql) return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    sqlite3_stmt *s;
    hr_status status = hr_store_prepare(store, sql, &s);
    hr_free(sql);
    if (status != HR_OK) return status;
    int rc = hr_store_cell_bind(s, cell);
    if (rc == SQLITE_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return hr_store_check(store, rc);
}

/* Rows of a child table: run_id, cell_id, then for each of keys the value of the object; a NULL key binds the index. */
static hr_status insert_list(hr_store *store, const char *sql, const char *run_id, const char *cell_id,
                             const json_t *list, const char *const *keys, int n_keys) {
    if (!list) return HR_OK;
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, cell_id);
    size_t index;
    json_t *row, *rows = (json_t *)list;
    json_array_foreach(rows, index, row) {
        for (int k = 0; k < n_keys && rc == SQLITE_OK; k++)
            rc = keys[k] ? hr_store_bind_json(s, 3 + k, json_object_get(row, keys[k]))
                         : sqlite3_bind_int64(s, 3 + k, (sqlite3_int64)index);
        if (rc == SQLITE_OK) rc = sqlite3_step(s);
        if (rc == SQLITE_DONE) rc = sqlite3_reset(s);
        if (rc != SQLITE_OK) break;
    }
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}

static hr_status insert_parts(hr_store *store, const char *run_id, const char *cell_id, const hr_cell_parts *parts) {
    static const char *const sample_keys[] = {NULL, "ns", "flags"};
    static const char *const op_keys[] = {"phase", "layer", "op",      "kernel",       "n",          "median_ns",
                                          "bytes", "flops", "mean_ns", "imbalance_ns", "handoff_ns", "unit"};
    static const char *const recorded_keys[] = {"i",     "phase", "n",      "off_ns",  "on_ns",
                                                "op_ns", "n_ops", "n_jobs", "probe_ns"};
    HR_TRY(insert_list(store, "INSERT INTO sample (run_id, cell_id, i, ns, flags) VALUES (?, ?, ?, ?, ?)", run_id,
                       cell_id, parts->samples, sample_keys, 3));
    HR_TRY(insert_list(store,
                       "INSERT INTO op (run_id, cell_id, phase, layer, op, kernel, n, median_ns, bytes, flops, "
                       "mean_ns, imbalance_ns, handoff_ns, unit) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                       run_id, cell_id, parts->ops, op_keys, 12));
    return insert_list(store,
                       "INSERT INTO recorded (run_id, cell_id, i, phase, n, off_ns, on_ns, op_ns, n_ops, n_jobs, "
                       "probe_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                       run_id, cell_id, parts->recorded, recorded_keys, 9);
}

static hr_status insert_all(hr_store *store, const char *run_id, const json_t *cell, const hr_cell_parts *parts) {
    const char *cell_id = text_of(cell, "cell_id");
    HR_TRY(hr_store_require_run(store, run_id));
    HR_TRY(delete_cell(store, run_id, cell_id));
    HR_TRY(insert_cell(store, cell));
    return insert_parts(store, run_id, cell_id, parts);
}

hr_status hr_store_put_cell_parts(hr_store *store, const char *run_id, const json_t *cell, const hr_cell_parts *parts) {
    if (!text_of(cell, "cell_id")) HR_FAIL(HR_ERR_INTERNAL, "a cell without cell_id cannot be stored");
    json_t *own = json_copy((json_t *)cell); /* shallow: the values stay shared */
    if (!own || json_object_set_new(own, "run_id", json_string(run_id)) != 0) {
        json_decref(own);
        return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    }
    hr_status status = hr_store_begin(store);
    if (status == HR_OK) status = hr_store_end(store, insert_all(store, run_id, own, parts));
    json_decref(own);
    return status;
}

hr_status hr_store_put_cell(hr_store *store, const char *run_id, const json_t *cell, const json_t *samples,
                            const json_t *ops) {
    const hr_cell_parts parts = {.samples = samples, .ops = ops};
    return hr_store_put_cell_parts(store, run_id, cell, &parts);
}

/* ---- roofs ---- */

hr_status hr_store_put_roof(hr_store *store, const char *run_id, const json_t *roof) {
    static const char *const keys[] = {"llc_bytes", "clock_ghz", "handoff_ns"};
    sqlite3_stmt *s;
    HR_TRY(
        hr_store_prepare(store,
                         "INSERT INTO roof (run_id, machine_class, measured, llc_bytes, clock_ghz, handoff_ns, json) "
                         "SELECT run_id, machine_class, ?2, ?3, ?4, ?5, ?6 FROM run WHERE run_id = ?1",
                         &s));
    char now[21];
    hr_store_now(now);
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, now);
    for (int i = 0; i < 3 && rc == SQLITE_OK; i++) rc = hr_store_bind_json(s, 3 + i, json_object_get(roof, keys[i]));
    if (rc == SQLITE_OK) rc = hr_store_bind_dump(s, 6, roof);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK && sqlite3_changes(store->db) == 0) return no_such_run(store, run_id);
    return status;
}
