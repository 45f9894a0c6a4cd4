/* Rows that are kept whole: some columns for queries, the row as JSON beside them. Of the KV study, of claims, of what
 * observing costs, and the ranges that a profiler saw of a cell. */
#include "harness/store/store_internal.h"

#include <string.h>

enum { KEYS_MAX = 9, OWNERS_MAX = 3 };

/* The first n_needed of keys must be texts. */
typedef struct row_table {
    const char *name;
    size_t n_needed;
    const char *keys[KEYS_MAX + 1]; /* columns and keys of the row, ended by NULL */
    const char *insert;             /* whose the row is (texts that all rows share), keys, json */
} row_table;

static const row_table study_table = {
    "study",
    3,
    {"key", "part", "name", "n", "median", "ci95_lo", "ci95_hi", "unit", NULL},
    "INSERT OR REPLACE INTO study (run_id, key, part, name, n, median, ci95_lo, ci95_hi, unit, json) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};
static const row_table claim_table = {
    "claim",
    1,
    {"id", "measured", "ci95_lo", "ci95_hi", "unit", "n", "verdict", NULL},
    "INSERT OR REPLACE INTO claim (run_id, id, measured, ci95_lo, ci95_hi, unit, n, verdict, json) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"};
static const row_table observe_table = {
    "observe",
    1,
    {"name", "n", "median", "ci95_lo", "ci95_hi", "unit", NULL},
    "INSERT OR REPLACE INTO observe (run_id, name, n, median, ci95_lo, ci95_hi, unit, json) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"};
static const row_table range_table = {
    "range",
    1,
    {"name", "style", "n", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "stddev_ns", NULL},
    "INSERT INTO range (run_id, cell_id, source, name, style, n, total_ns, mean_ns, median_ns, min_ns, max_ns, "
    "stddev_ns, json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"};

/* owner: up to OWNERS_MAX texts, ended by NULL. */
static int bind_owner(sqlite3_stmt *s, const char *const *owner, int *n) {
    int rc = SQLITE_OK;
    for (*n = 0; *n < OWNERS_MAX && owner[*n] && rc == SQLITE_OK; ++*n) rc = hr_store_bind_text(s, *n + 1, owner[*n]);
    return rc;
}

static hr_status insert_row(hr_store *store, sqlite3_stmt *s, const row_table *t, const char *const *owner,
                            const json_t *row) {
    int i, rc = bind_owner(s, owner, &i);
    for (size_t k = 0; t->keys[k] && rc == SQLITE_OK; k++) {
        const json_t *value = json_object_get(row, t->keys[k]);
        if (k < t->n_needed && !json_is_string(value))
            HR_FAIL(HR_ERR_INTERNAL, "a row of table %s without %s cannot be stored", t->name, t->keys[k]);
        rc = hr_store_bind_json(s, ++i, value);
    }
    if (rc == SQLITE_OK) rc = hr_store_bind_dump(s, i + 1, row);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    if (rc == SQLITE_DONE) rc = sqlite3_reset(s);
    return hr_store_check(store, rc);
}

static hr_status insert_rows(hr_store *store, const row_table *t, const char *const *owner, const json_t *rows) {
    sqlite3_stmt *s;
    size_t index;
    json_t *row;
    HR_TRY(hr_store_prepare(store, t->insert, &s));
    hr_status status = HR_OK;
    json_array_foreach((json_t *)rows, index, row) {
        status = insert_row(store, s, t, owner, row);
        if (status != HR_OK) break;
    }
    sqlite3_finalize(s);
    return status;
}

static hr_status insert_of_run(hr_store *store, const row_table *t, const char *run_id, const json_t *rows) {
    HR_TRY(hr_store_require_run(store, run_id));
    return insert_rows(store, t, (const char *[]){run_id, NULL}, rows);
}

static hr_status put_rows(hr_store *store, const row_table *t, const char *run_id, const json_t *rows) {
    HR_TRY(hr_store_begin(store));
    return hr_store_end(store, insert_of_run(store, t, run_id, rows));
}

/* The JSON of the rows of a run (NULL is bound as null), and of a cell where the query has a second parameter. None in a
 * store of an older schema, which lacks the table. */
static hr_status get_rows(hr_store *store, const row_table *t, const char *sql, const char *run_id, const char *cell_id,
                          json_t **out) {
    bool has;
    sqlite3_stmt *s;
    HR_TRY(hr_store_has(store, t->name, NULL, &has));
    if (!has) {
        *out = json_array();
        return *out ? HR_OK : hr_store_error(store->path, SQLITE_NOMEM, NULL);
    }
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK && cell_id) rc = hr_store_bind_text(s, 2, cell_id);
    hr_status status = hr_store_check(store, rc);
    if (status == HR_OK) return hr_store_list_json(store, s, out);
    sqlite3_finalize(s);
    return status;
}

/* ---- rows of a run ---- */

/* ?1 NULL: the newest run that has rows. */
#define ROWS_OF(table)                                                                                             \
    "SELECT json FROM " table " WHERE run_id = ifnull(?1, (SELECT run_id FROM run WHERE run_id IN (SELECT run_id " \
    "FROM " table ") ORDER BY seq DESC LIMIT 1)) ORDER BY seq"

hr_status hr_store_put_study(hr_store *store, const char *run_id, const json_t *rows) {
    return put_rows(store, &study_table, run_id, rows);
}
hr_status hr_store_study(hr_store *store, const char *run_id, json_t **out) {
    return get_rows(store, &study_table, ROWS_OF("study"), run_id, NULL, out);
}

hr_status hr_store_put_claims(hr_store *store, const char *run_id, const json_t *rows) {
    return put_rows(store, &claim_table, run_id, rows);
}
hr_status hr_store_claims(hr_store *store, const char *run_id, json_t **out) {
    return get_rows(store, &claim_table, ROWS_OF("claim"), run_id, NULL, out);
}

hr_status hr_store_put_observe(hr_store *store, const char *run_id, const json_t *rows) {
    return put_rows(store, &observe_table, run_id, rows);
}
hr_status hr_store_observe(hr_store *store, const char *run_id, json_t **out) {
    return get_rows(store, &observe_table, ROWS_OF("observe"), run_id, NULL, out);
}

/* ---- ranges of a cell ---- */

/* Copies of the rows with source as their first key, whatever they held under that name. What is no object becomes a row
 * without a name, which is refused. */
static json_t *with_source(const json_t *rows, const char *source) {
    json_t *all = json_array(), *row, *value;
    const char *key;
    size_t index;
    json_array_foreach((json_t *)rows, index, row) {
        json_t *own = json_pack("{s:s}", "source", source);
        bool ok = own != NULL;
        json_object_foreach(row, key, value) {
            if (ok && strcmp(key, "source") != 0) ok = json_object_set(own, key, value) == 0;
        }
        if (!ok) json_decref(own);
        if (!ok || json_array_append_new(all, own) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static hr_status delete_ranges(hr_store *store, const char *const *owner) {
    sqlite3_stmt *s;
    int n;
    HR_TRY(hr_store_prepare(store, "DELETE FROM range WHERE run_id = ? AND cell_id = ? AND source = ?", &s));
    int rc = bind_owner(s, owner, &n);
    if (rc == SQLITE_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return hr_store_check(store, rc);
}

static hr_status replace_ranges(hr_store *store, const char *const *owner, const json_t *rows) {
    HR_TRY(hr_store_require_cell(store, owner[0], owner[1]));
    HR_TRY(delete_ranges(store, owner));
    return insert_rows(store, &range_table, owner, rows);
}

hr_status hr_store_put_ranges(hr_store *store, const char *run_id, const char *cell_id, const char *source,
                              const json_t *rows) {
    const char *const owner[OWNERS_MAX + 1] = {run_id, cell_id, source, NULL};
    json_t *own = with_source(rows, source);
    if (!own) return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    hr_status status = hr_store_begin(store);
    if (status == HR_OK) status = hr_store_end(store, replace_ranges(store, owner, own));
    json_decref(own);
    return status;
}

hr_status hr_store_ranges(hr_store *store, const char *run_id, const char *cell_id, json_t **out) {
    return get_rows(store, &range_table, "SELECT json FROM range WHERE run_id = ? AND cell_id = ? ORDER BY rowid",
                    run_id, cell_id, out);
}
