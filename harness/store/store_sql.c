/* Statements: preparing, binding, ending. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <string.h>
#include <time.h>

hr_status hr_store_prepare(hr_store *store, const char *sql, sqlite3_stmt **out) {
    *out = NULL;
    return hr_store_check(store, sqlite3_prepare_v2(store->db, sql, -1, out, NULL));
}

hr_status hr_store_finish(hr_store *store, sqlite3_stmt *statement) {
    hr_status status = hr_store_check(store, sqlite3_step(statement));
    sqlite3_finalize(statement);
    return status;
}

hr_status hr_store_exec(hr_store *store, const char *sql) {
    return hr_store_check(store, sqlite3_exec(store->db, sql, NULL, NULL, NULL));
}

hr_status hr_store_begin(hr_store *store) {
    return store->grouped ? HR_OK : hr_store_exec(store, "BEGIN IMMEDIATE");
}

hr_status hr_store_group_begin(hr_store *store) {
    HR_TRY(hr_store_exec(store, "BEGIN IMMEDIATE"));
    store->grouped = true;
    return HR_OK;
}

hr_status hr_store_group_end(hr_store *store, hr_status status) {
    store->grouped = false;
    return hr_store_end(store, status);
}

hr_status hr_store_end(hr_store *store, hr_status status) {
    if (store->grouped) return status;
    if (status == HR_OK) status = hr_store_exec(store, "COMMIT");
    if (status != HR_OK && !sqlite3_get_autocommit(store->db)) sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

int hr_store_bind_text(sqlite3_stmt *statement, int i, const char *text) {
    return text ? sqlite3_bind_text(statement, i, text, -1, SQLITE_TRANSIENT) : sqlite3_bind_null(statement, i);
}

/* By json_dumpb into memory of our own, twice: json_dumps overlooks a failed allocation and gives broken text. */
int hr_store_bind_dump(sqlite3_stmt *statement, int i, const json_t *value) {
    const size_t how = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17);
    size_t n = json_dumpb(value, NULL, 0, how);
    char *text = n ? hr_malloc(n) : NULL;
    int rc = SQLITE_NOMEM;
    if (text && json_dumpb(value, text, n, how) == n)
        rc = sqlite3_bind_text64(statement, i, text, n, SQLITE_TRANSIENT, SQLITE_UTF8);
    hr_free(text);
    return rc;
}

int hr_store_bind_json(sqlite3_stmt *statement, int i, const json_t *value) {
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_NULL:
        return sqlite3_bind_null(statement, i);
    case JSON_TRUE:
        return sqlite3_bind_int(statement, i, 1);
    case JSON_FALSE:
        return sqlite3_bind_int(statement, i, 0);
    case JSON_INTEGER:
        return sqlite3_bind_int64(statement, i, json_integer_value(value));
    case JSON_REAL:
        return sqlite3_bind_double(statement, i, json_real_value(value));
    case JSON_STRING:
        return hr_store_bind_text(statement, i, json_string_value(value));
    default:
        return hr_store_bind_dump(statement, i, value);
    }
}

hr_status hr_store_column_json(hr_store *store, sqlite3_stmt *statement, int column, json_t **out) {
    const char *text = (const char *)sqlite3_column_text(statement, column);
    if (!text && sqlite3_column_type(statement, column) != SQLITE_NULL)
        return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    json_error_t error;
    *out = text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error) : json_null();
    if (*out) return HR_OK;
    if (json_error_code(&error) == json_error_out_of_memory) return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    return hr_store_error(store->path, SQLITE_CORRUPT, error.text);
}

hr_status hr_store_has(hr_store *store, const char *table, const char *column, bool *has) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, "SELECT 1 FROM pragma_table_info(?1) WHERE ?2 IS NULL OR name = ?2", &s));
    int rc = hr_store_bind_text(s, 1, table);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(s, 2, column);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    *has = rc == SQLITE_ROW;
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}

void hr_store_now(char out[21]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
