/* Raw samples, ops and ranges of old runs go; runs, cells and their distributions stay for ever. */
#include "harness/store/store_internal.h"

#include "harness/formats/cell_keys.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

enum { IS_TEXT, IS_INT, IS_REAL, IS_BOOL, IS_DIST, IS_WORDS, IS_UNITS, IS_MAP2, IS_SAMPLES };
static const struct {
    const char *name;
    int kind;
} keys[] = {
#define X(key, kind) {#key, IS_##kind},
    HR_CELL_KEYS(X)
#undef X
};

#define OLD "(SELECT run_id FROM run WHERE started < ?1)"
static const char *const raw_tables[] = {"sample", "op", "recorded", "range"};
enum { N_RAW = 4 };

static hr_status no_memory(const hr_store *store) {
    return hr_store_error(store->path, SQLITE_NOMEM, NULL);
}

/* One integer of a statement with at most one parameter. */
static hr_status ask(hr_store *store, const char *sql, const char *before, sqlite3_int64 *n) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = before ? hr_store_bind_text(s, 1, before) : SQLITE_OK;
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *n = sqlite3_column_int64(s, 0);
    const hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}

static hr_status bytes_of(hr_store *store, sqlite3_int64 *bytes) {
    return ask(store, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", NULL, bytes);
}

/* ---- cells: the samples inside their JSON ---- */

static hr_status update_cell(hr_store *store, sqlite3_int64 seq, json_t *cell) {
    sqlite3_stmt *s;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].kind == IS_SAMPLES && json_object_get(cell, keys[i].name))
            json_object_set_new(cell, keys[i].name, json_null());
    HR_TRY(hr_store_prepare(store, "UPDATE cell SET json = ?1 WHERE seq = ?2", &s));
    int rc = hr_store_bind_dump(s, 1, cell);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(s, 2, seq);
    if (rc == SQLITE_OK) return hr_store_finish(store, s);
    sqlite3_finalize(s);
    return hr_store_check(store, rc);
}

/* The next cell behind `seq` that has samples; *found false: none. */
static hr_status next_cell(hr_store *store, const char *before, sqlite3_int64 *seq, json_t **cell, bool *found) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(
        store,
        "SELECT seq, json FROM cell WHERE seq > ?2 AND json LIKE '%\"samples_ns\":[%' AND run_id IN " OLD
        " ORDER BY seq LIMIT 1",
        &s));
    int rc = hr_store_bind_text(s, 1, before);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(s, 2, *seq);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    *found = status == HR_OK && rc == SQLITE_ROW;
    if (*found) {
        *seq = sqlite3_column_int64(s, 0);
        status = hr_store_column_json(store, s, 1, cell);
    }
    sqlite3_finalize(s);
    return status;
}

static hr_status strip_cells(hr_store *store, const char *before) {
    sqlite3_int64 seq = 0;
    for (bool found = true; found;) {
        json_t *cell = NULL;
        HR_TRY(next_cell(store, before, &seq, &cell, &found));
        const hr_status status = found ? update_cell(store, seq, cell) : HR_OK;
        json_decref(cell);
        HR_TRY(status);
    }
    return HR_OK;
}

static hr_status drop(hr_store *store, const char *before) {
    sqlite3_stmt *s;
    for (size_t i = 0; i < N_RAW; i++) {
        char sql[160];
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE run_id IN " OLD, raw_tables[i]);
        HR_TRY(hr_store_prepare(store, sql, &s));
        const int rc = hr_store_bind_text(s, 1, before);
        if (rc != SQLITE_OK) sqlite3_finalize(s);
        HR_TRY(rc == SQLITE_OK ? hr_store_finish(store, s) : hr_store_check(store, rc));
    }
    return strip_cells(store, before);
}

/* ---- */

static bool is_date(const char *text) {
    static const char shape[] = "dddd-dd-ddTdd:dd:ddZ";
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const size_t n = strlen(text);
    int year, month, day, hour = 0, minute = 0, second = 0;
    if (n != 10 && n != sizeof shape - 1) return false;
    for (size_t i = 0; i < n; i++)
        if (shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i]) return false;
    sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ", &year, &month, &day, &hour, &minute, &second);
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month < 1 || month > 12 || day < 1 || day > days[month - 1] + (month == 2 && leap)) return false;
    return hour < 24 && minute < 60 && second < 60;
}

static hr_status count(hr_store *store, const char *before, json_t *counts) {
    sqlite3_int64 n = 0;
    bool ok;
    HR_TRY(
        ask(store,
            "SELECT count(DISTINCT run_id) FROM cell WHERE (json LIKE '%\"samples_ns\":[%' OR EXISTS (SELECT 1 FROM op "
            "WHERE op.run_id = cell.run_id AND op.cell_id = cell.cell_id)) AND run_id IN " OLD,
            before, &n));
    ok = json_object_set_new(counts, "runs", json_integer(n)) == 0;
    HR_TRY(ask(store, "SELECT count(*) FROM cell WHERE json LIKE '%\"samples_ns\":[%' AND run_id IN " OLD, before, &n));
    ok = json_object_set_new(counts, "cells", json_integer(n)) == 0 && ok;
    for (size_t i = 0; i < N_RAW; i++) {
        char sql[160], key[32];
        bool has;
        n = 0;
        HR_TRY(hr_store_has(store, raw_tables[i], NULL, &has));
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE run_id IN " OLD, raw_tables[i]);
        snprintf(key, sizeof key, "%s%s", raw_tables[i], strcmp(raw_tables[i], "recorded") ? "s" : "");
        if (has) HR_TRY(ask(store, sql, before, &n));
        ok = json_object_set_new(counts, key, json_integer(n)) == 0 && ok;
    }
    return ok ? HR_OK : no_memory(store);
}

static hr_status prune(hr_store *store, const char *before, bool dry, json_t *counts) {
    sqlite3_int64 bytes = 0, left = 0;
    HR_TRY(bytes_of(store, &bytes));
    HR_TRY(count(store, before, counts));
    json_t *freed = json_null();
    if (!dry) {
        HR_TRY(hr_store_begin(store));
        HR_TRY(hr_store_end(store, drop(store, before)));
        HR_TRY(hr_store_exec(store, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"));
        HR_TRY(bytes_of(store, &left));
        freed = json_integer(bytes - left);
    }
    return json_object_set_new(counts, "bytes_freed", freed) == 0 ? HR_OK : no_memory(store);
}

hr_status hr_store_prune(hr_store *store, const char *before, bool dry, json_t **out) {
    if (!is_date(before))
        HR_FAIL(HR_ERR_USAGE, "%.60s is no date: write one that exists as 2026-01-31 or 2026-01-31T23:59:59Z (UTC)",
                before);
    json_t *counts = json_object();
    const hr_status status = counts ? prune(store, before, dry, counts) : no_memory(store);
    if (status == HR_OK)
        *out = counts;
    else
        json_decref(counts);
    return status;
}

hr_status hr_store_night(hr_store *store, int64_t k, char out[11]) {
    sqlite3_stmt *s;
    strcpy(out, "0000-01-01");
    HR_TRY(hr_store_prepare(
        store, "SELECT DISTINCT substr(started, 1, 10) AS night FROM run ORDER BY night DESC LIMIT 1 OFFSET ?", &s));
    int rc = sqlite3_bind_int64(s, 1, k - 1);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    const char *night = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (night && strlen(night) == 10) strcpy(out, night);
    const hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}
