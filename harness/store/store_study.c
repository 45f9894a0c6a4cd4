/* Rows of the KV study and of claims: some columns for queries, the whole row as JSON beside them. */
#include "harness/store/store_internal.h"

#include <string.h>

enum { KEYS_MAX = 8 };

/* A table whose rows belong to a run: the first n_needed of keys must be texts, the first of them names the row. */
typedef struct row_table {
    const char *name;
    size_t n_needed;
    const char *keys[KEYS_MAX + 1]; /* columns and keys of the row, ended by NULL */
    const char *insert;             /* run_id, keys, json */
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

static hr_status insert_row(hr_store *store, sqlite3_stmt *s, const row_table *t, const char *run_id,
                            const json_t *row) {
    int i = 1, rc = hr_store_bind_text(s, i++, run_id);
    for (size_t k = 0; t->keys[k] && rc == SQLITE_OK; k++) {
        const json_t *value = json_object_get(row, t->keys[k]);
        if (k < t->n_needed && !json_is_string(value))
            HR_FAIL(HR_ERR_INTERNAL, "a row of table %s without %s cannot be stored", t->name, t->keys[k]);
        rc = hr_store_bind_json(s, i++, value);
    }
    if (rc == SQLITE_OK) rc = hr_store_bind_dump(s, i, row);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    if (rc == SQLITE_DONE) rc = sqlite3_reset(s);
    return hr_store_check(store, rc);
}

static hr_status insert_rows(hr_store *store, const row_table *t, const char *run_id, const json_t *rows) {
    sqlite3_stmt *s;
    size_t index;
    json_t *row;
    HR_TRY(hr_store_require_run(store, run_id));
    HR_TRY(hr_store_prepare(store, t->insert, &s));
    hr_status status = HR_OK;
    json_array_foreach((json_t *)rows, index, row) {
        status = insert_row(store, s, t, run_id, row);
        if (status != HR_OK) break;
    }
    sqlite3_finalize(s);
    return status;
}

static hr_status put_rows(hr_store *store, const row_table *t, const char *run_id, const json_t *rows) {
    HR_TRY(hr_store_exec(store, "BEGIN IMMEDIATE"));
    return hr_store_end(store, insert_rows(store, t, run_id, rows));
}

/* A store of an older schema lacks the table: it has no rows of the kind. */
static hr_status has_table(hr_store *store, const char *name, bool *has) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", &s));
    int rc = hr_store_bind_text(s, 1, name);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    *has = rc == SQLITE_ROW;
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}

static hr_status get_rows(hr_store *store, const row_table *t, const char *run_id, const char *sql, json_t **out) {
    bool has;
    sqlite3_stmt *s;
    HR_TRY(has_table(store, t->name, &has));
    if (!has) {
        *out = json_array();
        return *out ? HR_OK : hr_store_error(store->path, SQLITE_NOMEM, NULL);
    }
    HR_TRY(hr_store_prepare(store, sql, &s));
    hr_status status = hr_store_check(store, hr_store_bind_text(s, 1, run_id));
    if (status == HR_OK) return hr_store_list_json(store, s, out);
    sqlite3_finalize(s);
    return status;
}

hr_status hr_store_put_study(hr_store *store, const char *run_id, const json_t *rows) {
    return put_rows(store, &study_table, run_id, rows);
}

hr_status hr_store_put_claims(hr_store *store, const char *run_id, const json_t *rows) {
    return put_rows(store, &claim_table, run_id, rows);
}

/* ?1 NULL: the newest run that has rows. */
#define ROWS_OF(table)                                                                                             \
    "SELECT json FROM " table " WHERE run_id = ifnull(?1, (SELECT run_id FROM run WHERE run_id IN (SELECT run_id " \
    "FROM " table ") ORDER BY seq DESC LIMIT 1)) ORDER BY seq"

hr_status hr_store_study(hr_store *store, const char *run_id, json_t **out) {
    return get_rows(store, &study_table, run_id, ROWS_OF("study"), out);
}

hr_status hr_store_claims(hr_store *store, const char *run_id, json_t **out) {
    return get_rows(store, &claim_table, run_id, ROWS_OF("claim"), out);
}
