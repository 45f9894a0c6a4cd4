/* Runs of another store, copied whole. The other store is read as it is, of whatever version, through a connection of its
 * own, so that it may lie where nothing can be written; what it lacks is null here. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* All tables with a run_id, parents first, and the order in which rows go in. */
static const struct {
    const char *name, *order;
} tables[] = {
    {"run", "seq"},   {"cell", "seq"},  {"sample", "cell_id, i"},          {"op", "rowid"},    {"roof", "seq"},
    {"study", "seq"}, {"claim", "seq"}, {"recorded", "cell_id, i, phase"}, {"range", "rowid"}, {"observe", "seq"},
};

static hr_status no_memory(const hr_store *store) {
    return hr_store_error(store->path, SQLITE_NOMEM, NULL);
}

/* "a, b, c" of the columns that both have, without seq, which each store counts by itself; their number in *n. */
static hr_status common_columns(hr_store *into, hr_store *from, const char *table, char **out, int *n) {
    sqlite3_stmt *s;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) return no_memory(into);
    *n = 0;
    hr_status status = hr_store_prepare(into, "SELECT name FROM pragma_table_info(?1) WHERE name <> 'seq'", &s);
    int rc = status == HR_OK ? hr_store_bind_text(s, 1, table) : SQLITE_OK;
    while (status == HR_OK && rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0);
        bool has = false;
        status = name ? hr_store_has(from, table, name, &has) : no_memory(into);
        if (has) fprintf(stream, "%s%s", (*n)++ ? ", " : "", name);
        rc = SQLITE_OK;
    }
    if (status == HR_OK) status = hr_store_check(into, rc);
    sqlite3_finalize(s);
    const bool bad = ferror(stream) != 0;
    if ((fclose(stream) != 0 || bad) && status == HR_OK) status = no_memory(into);
    if (status == HR_OK)
        *out = text;
    else
        free(text);
    return status;
}

/* SELECT and INSERT of one table, both by the same columns. */
static hr_status prepare_copy(hr_store *into, hr_store *from, size_t t, sqlite3_stmt **read, sqlite3_stmt **write,
                              int *n) {
    char *columns = NULL, *select, *insert;
    HR_TRY(common_columns(into, from, tables[t].name, &columns, n));
    select =
        sqlite3_mprintf("SELECT %s FROM %s WHERE run_id = ? ORDER BY %s", columns, tables[t].name, tables[t].order);
    insert = sqlite3_mprintf("INSERT INTO %s (%s) VALUES (?", tables[t].name, columns);
    for (int i = 1; insert && i < *n; i++) {
        char *longer = sqlite3_mprintf("%s, ?", insert);
        sqlite3_free(insert);
        insert = longer;
    }
    char *whole = insert ? sqlite3_mprintf("%s)", insert) : NULL;
    hr_status status = select && whole ? hr_store_prepare(from, select, read) : no_memory(into);
    if (status == HR_OK) status = hr_store_prepare(into, whole, write);
    sqlite3_free(select), sqlite3_free(insert), sqlite3_free(whole);
    free(columns);
    return status;
}

static hr_status copy_rows(hr_store *into, hr_store *from, size_t t, const char *run_id) {
    sqlite3_stmt *read = NULL, *write = NULL;
    int n = 0;
    bool has;
    HR_TRY(hr_store_has(from, tables[t].name, NULL, &has));
    if (!has) return HR_OK;
    hr_status status = prepare_copy(into, from, t, &read, &write, &n);
    if (status == HR_OK) status = hr_store_check(from, hr_store_bind_text(read, 1, run_id));
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(read)) == SQLITE_ROW) {
        for (int i = 0; i < n && status == HR_OK; i++)
            status = hr_store_check(into, sqlite3_bind_value(write, i + 1, sqlite3_column_value(read, i)));
        if (status == HR_OK) status = hr_store_check(into, sqlite3_step(write));
        if (status == HR_OK) status = hr_store_check(into, sqlite3_reset(write));
    }
    if (status == HR_OK) status = hr_store_check(from, rc);
    sqlite3_finalize(read), sqlite3_finalize(write);
    return status;
}

/* A machine is one row however often it was seen: its facts are those seen last. */
static hr_status copy_machines(hr_store *into, hr_store *from) {
    sqlite3_stmt *read = NULL, *write = NULL;
    hr_status status = hr_store_prepare(from, "SELECT machine_class, first_seen, last_seen, json FROM machine", &read);
    if (status == HR_OK)
        status = hr_store_prepare(
            into,
            "INSERT INTO machine (machine_class, first_seen, last_seen, json) VALUES (?, ?, ?, ?) ON CONFLICT "
            "(machine_class) DO UPDATE SET json = CASE WHEN excluded.last_seen > last_seen THEN excluded.json ELSE "
            "json "
            "END, first_seen = min(first_seen, excluded.first_seen), last_seen = max(last_seen, excluded.last_seen)",
            &write);
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(read)) == SQLITE_ROW) {
        for (int i = 0; i < 4 && status == HR_OK; i++)
            status = hr_store_check(into, sqlite3_bind_value(write, i + 1, sqlite3_column_value(read, i)));
        if (status == HR_OK) status = hr_store_check(into, sqlite3_step(write));
        if (status == HR_OK) status = hr_store_check(into, sqlite3_reset(write));
    }
    if (status == HR_OK) status = hr_store_check(from, rc);
    sqlite3_finalize(read), sqlite3_finalize(write);
    return status;
}

static hr_status count_cells(hr_store *store, const char *run_id, sqlite3_int64 *n) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store,
                            "SELECT CASE WHEN EXISTS (SELECT 1 FROM run WHERE run_id = ?1) THEN (SELECT count(*) FROM "
                            "cell WHERE run_id = ?1) ELSE -1 END",
                            &s));
    int rc = hr_store_bind_text(s, 1, run_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *n = sqlite3_column_int64(s, 0);
    const hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}

typedef struct counts {
    json_int_t runs, cells, skipped;
    json_t *unmapped;
} counts;

static hr_status copy_run(hr_store *into, hr_store *from, const char *run_id, counts *c) {
    sqlite3_int64 here = -1, there = 0;
    HR_TRY(count_cells(into, run_id, &here));
    HR_TRY(count_cells(from, run_id, &there));
    if (here >= 0) {
        c->skipped++;
        if (here == there) return HR_OK;
        json_t *note = json_sprintf("run %s has %lld cells here and %lld in %s: left as it is here", run_id,
                                    (long long)here, (long long)there, from->path);
        return json_array_append_new(c->unmapped, note) == 0 ? HR_OK : no_memory(into);
    }
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        HR_TRY(copy_rows(into, from, t, run_id));
    }
    c->runs++, c->cells += there;
    return HR_OK;
}

static hr_status copy_all(hr_store *into, hr_store *from, counts *c) {
    sqlite3_stmt *s;
    HR_TRY(copy_machines(into, from));
    HR_TRY(hr_store_prepare(from, "SELECT run_id FROM run ORDER BY seq", &s));
    hr_status status = HR_OK;
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        const char *run_id = (const char *)sqlite3_column_text(s, 0);
        status = run_id ? copy_run(into, from, run_id, c) : no_memory(into);
    }
    if (status == HR_OK) status = hr_store_check(from, rc);
    sqlite3_finalize(s);
    return status;
}

hr_status hr_store_merge(hr_store *into, const char *path, json_t **out) {
    hr_store *from = NULL;
    counts c = {.unmapped = json_array()};
    hr_status status = c.unmapped ? hr_store_open(path, false, &from) : no_memory(into);
    if (status == HR_OK && from) {
        status = hr_store_exec(from, "BEGIN"); /* one state of it, whoever writes to it meanwhile */
        if (status == HR_OK) status = hr_store_begin(into);
        if (status == HR_OK) status = hr_store_end(into, copy_all(into, from, &c));
        hr_store_close(from);
    }
    if (status == HR_OK) {
        *out = json_pack("{s:I, s:I, s:I, s:O}", "runs", c.runs, "cells", c.cells, "skipped", c.skipped, "unmapped",
                         c.unmapped);
        if (!*out) status = no_memory(into);
    }
    json_decref(c.unmapped);
    return status;
}
