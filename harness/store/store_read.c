/* Reading rows back as JSON. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

static hr_status out_of_memory(const hr_store *store) {
    return hr_store_error(store->path, SQLITE_NOMEM, NULL);
}

/* Sets key to the value of a column: integer, real, text or null. */
static bool set_column(json_t *object, sqlite3_stmt *s, int column) {
    const char *key = sqlite3_column_name(s, column);
    json_t *value = NULL;
    switch (sqlite3_column_type(s, column)) {
    case SQLITE_NULL:
        value = json_null();
        break;
    case SQLITE_INTEGER:
        value = json_integer(sqlite3_column_int64(s, column));
        break;
    case SQLITE_FLOAT:
        value = json_real(sqlite3_column_double(s, column));
        if (!isfinite(sqlite3_column_double(s, column))) value = json_null(); /* JSON has no such number */
        break;
    default: {
        const char *text = (const char *)sqlite3_column_text(s, column);
        value = text ? json_string(text) : NULL;
    }
    }
    return key && json_object_set_new(object, key, value) == 0;
}

hr_status hr_store_list_json(hr_store *store, sqlite3_stmt *s, json_t **out) {
    json_t *list = json_array();
    hr_status status = list ? HR_OK : out_of_memory(store);
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        json_t *item;
        status = hr_store_column_json(store, s, 0, &item);
        if (status == HR_OK && json_array_append_new(list, item) != 0) status = out_of_memory(store);
    }
    if (status == HR_OK) status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

/* Array of one object a row, keys named as the columns; takes the statement. */
static hr_status list_of_rows(hr_store *store, sqlite3_stmt *s, json_t **out) {
    json_t *list = json_array();
    hr_status status = list ? HR_OK : out_of_memory(store);
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        json_t *row = json_object();
        bool ok = row != NULL;
        for (int i = 0; ok && i < sqlite3_column_count(s); i++) ok = set_column(row, s, i);
        if (!ok) json_decref(row);
        if (!ok || json_array_append_new(list, row) != 0) status = out_of_memory(store);
    }
    if (status == HR_OK) status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

/* Prepares and binds up to two texts. */
static hr_status query(hr_store *store, const char *sql, const char *a, const char *b, sqlite3_stmt **out) {
    HR_TRY(hr_store_prepare(store, sql, out));
    int rc = a ? hr_store_bind_text(*out, 1, a) : SQLITE_OK;
    if (rc == SQLITE_OK && b) rc = hr_store_bind_text(*out, 2, b);
    hr_status status = hr_store_check(store, rc);
    if (status != HR_OK) sqlite3_finalize(*out);
    return status;
}

/* Columns that hold JSON (args, tags, manifest) come back as they were given, from the record of the run. */
static hr_status add_given(hr_store *store, sqlite3_stmt *s, int column, json_t *row) {
    json_t *given;
    HR_TRY(hr_store_column_json(store, s, column, &given));
    const char *key;
    json_t *value;
    bool ok = true;
    json_object_foreach(given, key, value) {
        if (!json_object_get(row, key)) ok = ok && json_object_set(row, key, value) == 0;
    }
    static const char *const always[] = {"command", "args", "build_commit", "compiler", "tags", "manifest"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!json_object_get(row, always[i])) ok = ok && json_object_set_new(row, always[i], json_null()) == 0;
    json_decref(given);
    return ok ? HR_OK : out_of_memory(store);
}

hr_status hr_store_runs(hr_store *store, json_t **out) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store,
                            "SELECT run_id, started, ended, exit_code, machine_class, "
                            "(SELECT count(*) FROM cell WHERE cell.run_id = run.run_id) AS n_cells, "
                            "(SELECT count(*) FROM cell WHERE cell.run_id = run.run_id AND status = 'ok') AS n_ok, "
                            "json FROM run ORDER BY seq",
                            &s));
    enum { GIVEN = 7 };
    json_t *list = json_array();
    hr_status status = list ? HR_OK : out_of_memory(store);
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        json_t *row = json_object();
        bool ok = row != NULL;
        for (int i = 0; ok && i < GIVEN; i++) ok = set_column(row, s, i);
        status = ok ? add_given(store, s, GIVEN, row) : out_of_memory(store);
        if (status == HR_OK && json_array_append(list, row) != 0) status = out_of_memory(store);
        json_decref(row);
    }
    if (status == HR_OK) status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    if (status == HR_OK)
        *out = list;
    else
        json_decref(list);
    return status;
}

hr_status hr_store_cells(hr_store *store, const char *run_id, json_t **out) {
    sqlite3_stmt *s;
    HR_TRY(query(store, "SELECT json FROM cell WHERE run_id = ? ORDER BY seq", run_id, NULL, &s));
    return hr_store_list_json(store, s, out);
}

/* The single JSON of a query, or ERR_INPUT with advice. */
static hr_status one_json(hr_store *store, sqlite3_stmt *s, const char *what, const char *id, json_t **out) {
    int rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    if (status == HR_OK && rc == SQLITE_DONE)
        status =
            hr_fail(HR_ERR_INPUT, "store %s has no %s %s: `headroom runs` lists what it holds", store->path, what, id);
    if (status == HR_OK) status = hr_store_column_json(store, s, 0, out);
    sqlite3_finalize(s);
    return status;
}

hr_status hr_store_cell(hr_store *store, const char *cell_id, const char *run_id, json_t **out) {
    sqlite3_stmt *s;
    HR_TRY(query(store, "SELECT json FROM cell WHERE cell_id = ? AND run_id = ?", cell_id, run_id, &s));
    return one_json(store, s, "cell", cell_id, out);
}

hr_status hr_store_ops(hr_store *store, const char *run_id, const char *cell_id, json_t **out) {
    bool whole; /* false: a store of before version 4 */
    sqlite3_stmt *s;
    HR_TRY(hr_store_has(store, "op", "mean_ns", &whole));
    HR_TRY(query(store,
                 whole ? "SELECT phase, layer, op, kernel, n, median_ns, bytes, flops, mean_ns, imbalance_ns, "
                         "handoff_ns, unit FROM op WHERE run_id = ? AND cell_id = ? ORDER BY rowid"
                       : "SELECT phase, layer, op, kernel, n, median_ns, bytes, flops, NULL AS mean_ns, NULL AS "
                         "imbalance_ns, NULL AS handoff_ns, NULL AS unit FROM op WHERE run_id = ? AND cell_id = ? "
                         "ORDER BY rowid",
                 run_id, cell_id, &s));
    return list_of_rows(store, s, out);
}

hr_status hr_store_samples(hr_store *store, const char *run_id, const char *cell_id, json_t **out) {
    sqlite3_stmt *s;
    HR_TRY(query(store, "SELECT i, ns, flags FROM sample WHERE run_id = ? AND cell_id = ? ORDER BY i", run_id, cell_id,
                 &s));
    return list_of_rows(store, s, out);
}

/* Within a repetition prefill comes first, as it ran. */
hr_status hr_store_recorded(hr_store *store, const char *run_id, const char *cell_id, json_t **out) {
    bool has;
    sqlite3_stmt *s;
    HR_TRY(hr_store_has(store, "recorded", NULL, &has));
    if (!has) {
        *out = json_array();
        return *out ? HR_OK : out_of_memory(store);
    }
    HR_TRY(query(store,
                 "SELECT i, phase, n, off_ns, on_ns, op_ns, n_ops, n_jobs, probe_ns FROM recorded WHERE run_id = ? AND "
                 "cell_id = ? ORDER BY i, phase DESC",
                 run_id, cell_id, &s));
    return list_of_rows(store, s, out);
}

hr_status hr_store_roofs(hr_store *store, const char *run_id, json_t **out) {
    sqlite3_stmt *s;
    if (run_id)
        HR_TRY(query(store, "SELECT json FROM roof WHERE run_id = ? ORDER BY seq", run_id, NULL, &s));
    else
        HR_TRY(
            query(store,
                  "SELECT json FROM roof WHERE machine_class IS (SELECT machine_class FROM run ORDER BY seq DESC LIMIT "
                  "1) ORDER BY seq DESC LIMIT 1",
                  NULL, NULL, &s));
    return hr_store_list_json(store, s, out);
}

hr_status hr_store_machine(hr_store *store, const char *run_id, json_t **out) {
    sqlite3_stmt *s;
    HR_TRY(query(store, "SELECT machine FROM run WHERE run_id = ?", run_id, NULL, &s));
    return one_json(store, s, "run", run_id, out);
}
