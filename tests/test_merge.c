/* Stores that become one, and stores that become smaller. */
#include "tests/store_fixture.h"

#include "harness/exchange/exchange.h"
#include "harness/formats/json_get.h"

static char other[320];

static int setup_two(void **state) {
    if (setup(state)) return -1;
    snprintf(other, sizeof other, "%s/other.db", folder);
    return 0;
}
#define T2(f) cmocka_unit_test_setup_teardown(f, setup_two, teardown)

static void put_row(hr_store *store, const char *run_id, const char *text,
                    hr_status (*write)(hr_store *, const char *, const json_t *)) {
    json_t *row = parse(text);
    ok(write(store, run_id, row));
    json_decref(row);
}

/* A run with something in every table. */
static void fill(hr_store *store, const char *started, const char *cell_id) {
    json_t *run =
        parse("{\"command\": \"sweep\", \"args\": {\"-r\": 3}, \"build_commit\": \"abc\", \"tags\": \"a=b\"}");
    json_t *machine = parse("{\"machine_class\": \"epyc-2c-24g\", \"cores\": 2}"), *cell = make_cell(cell_id);
    json_t *samples = parse("[{\"ns\": 5, \"flags\": null}, {\"ns\": 9007199254740993, \"flags\": \"throttled\"}]");
    json_t *ops = parse("[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"qkv\", \"n\": 4, \"median_ns\": 1.5}]");
    json_t *recorded = parse("[{\"i\": 0, \"phase\": \"decode\", \"n\": 4, \"on_ns\": 7.5}]");
    json_t *ranges = parse("[{\"name\": \"qkv:decode\", \"n\": 4, \"total_ns\": 8}]");
    char *id;
    json_object_set_new(run, "started", json_string(started));
    ok(hr_store_begin_run(store, run, machine, &id));
    const hr_cell_parts parts = {.samples = samples, .ops = ops, .recorded = recorded};
    ok(hr_store_put_cell_parts(store, id, cell, &parts));
    ok(hr_store_put_ranges(store, id, cell_id, "ncu", ranges));
    put_row(store, id, "{\"llc_bytes\": 33554432}", hr_store_put_roof);
    put_row(store, id, "[{\"key\": \"k\", \"part\": \"layouts\", \"name\": \"head\"}]", hr_store_put_study);
    put_row(store, id, "[{\"id\": \"c1\", \"verdict\": \"holds\"}]", hr_store_put_claims);
    put_row(store, id, "[{\"name\": \"nvtx\", \"n\": 3}]", hr_store_put_observe);
    ok(hr_store_end_run(store, id, 0));
    json_decref(run), json_decref(machine), json_decref(cell), json_decref(samples), json_decref(ops);
    json_decref(recorded), json_decref(ranges);
    hr_free(id);
}

static void make(const char *file, int n) {
    hr_store *store;
    char started[32], id[32];
    ok(hr_store_open(file, true, &store));
    for (int i = 0; i < n; i++) {
        snprintf(started, sizeof started, "2026-01-%02dT03:04:05Z", i + 1);
        snprintf(id, sizeof id, "cell%d", i);
        fill(store, started, id);
    }
    hr_store_close(store);
}

static void counted(json_t *counts, const char *key, double want) {
    if (hr_num(counts, key) != want) fail_msg("%s: expected %g, got %g", key, want, hr_num(counts, key));
}

/* Every row of every table that names a run, without seq, as one text. */
static char *contents(const char *file) {
    hr_store *store;
    char *all = NULL;
    size_t n;
    ok(hr_store_open(file, false, &store));
    FILE *out = open_memstream(&all, &n);
    sqlite3_stmt *tables, *rows;
    assert_int_equal(
        sqlite3_prepare_v2(store->db,
                           "SELECT m.name, group_concat(c.name) FROM sqlite_schema m, pragma_table_info(m.name) c "
                           "WHERE m.type = 'table' AND c.name <> 'seq' GROUP BY m.name ORDER BY m.name",
                           -1, &tables, NULL),
        SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW) {
        char *sql = sqlite3_mprintf("SELECT %s FROM %s ORDER BY 1, 2, 3, 4", sqlite3_column_text(tables, 1),
                                    sqlite3_column_text(tables, 0));
        int n_rows = 0;
        assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &rows, NULL), SQLITE_OK);
        for (; sqlite3_step(rows) == SQLITE_ROW; n_rows++)
            for (int i = 0; i < sqlite3_column_count(rows); i++)
                if (strcmp(sqlite3_column_name(rows, i), "last_seen"))
                    fprintf(out, "%s.%s=%s\n", sqlite3_column_text(tables, 0), sqlite3_column_name(rows, i),
                            sqlite3_column_text(rows, i));
        if (!n_rows) fail_msg("%s: table %s is empty", file, sqlite3_column_text(tables, 0));
        sqlite3_finalize(rows);
        sqlite3_free(sql);
    }
    sqlite3_finalize(tables);
    fclose(out);
    hr_store_close(store);
    return all;
}

static void a_store_is_copied_whole(void **state) {
    (void)state;
    json_t *counts;
    make(other, 3);
    hr_store *store = open_store(true);
    ok(hr_store_merge(store, other, &counts));
    counted(counts, "runs", 3), counted(counts, "cells", 3), counted(counts, "skipped", 0);
    json_decref(counts);
    hr_store_close(store);
    char *want = contents(other), *got = contents(path);
    assert_string_equal(got, want);
    free(want), free(got);
}

static void what_is_there_is_skipped(void **state) {
    (void)state;
    json_t *counts;
    make(other, 2);
    make(path, 1);
    hr_store *store = open_store(true);
    ok(hr_store_merge(store, other, &counts));
    counted(counts, "runs", 2);
    json_decref(counts);
    raw_sql(other, "DELETE FROM cell WHERE cell_id = 'cell1'");
    ok(hr_store_merge(store, other, &counts));
    counted(counts, "runs", 0), counted(counts, "skipped", 2);
    assert_int_equal(json_array_size(json_object_get(counts, "unmapped")), 1); /* the run that differs */
    json_decref(counts);
    ok(hr_store_merge(store, path, &counts)); /* itself */
    counted(counts, "runs", 0), counted(counts, "skipped", 3);
    json_decref(counts);
    assert_string_equal(ask(store, "SELECT count(*) FROM sample"), "6");
    assert_string_equal(ask(store, "PRAGMA integrity_check"), "ok");
    hr_store_close(store);
}

static void older_stores_are_read_as_they_are(void **state) {
    (void)state;
    for (int version = HR_STORE_OLDEST; version < HR_STORE_VERSION; version++) {
        json_t *counts, *recorded;
        char before[65536], after[65536], file[340];
        make(path, 1);
        make_older(version);
        const size_t n = read_file(path, before, sizeof before);
        snprintf(file, sizeof file, "%s/all%d.db", folder, version);
        hr_store *all;
        ok(hr_store_open(file, true, &all));
        ok(hr_store_merge(all, path, &counts));
        counted(counts, "runs", 1);
        assert_string_equal(ask(all, "SELECT ns FROM sample WHERE i = 1"), "9007199254740993");
        assert_string_equal(ask(all, "SELECT median_ns FROM op"), "1.5");
        assert_string_equal(ask(all, "SELECT count(*) FROM study"), version < 3 ? "0" : "1");
        ok(hr_store_recorded(all, ask(all, "SELECT run_id FROM run"), "cell0", &recorded));
        assert_int_equal(json_array_size(recorded), version < 4 ? 0 : 1);
        json_decref(counts), json_decref(recorded);
        hr_store_close(all);
        assert_int_equal(read_file(path, after, sizeof after), n);
        assert_memory_equal(before, after, n);
        remove(path);
    }
}

static void a_failure_leaves_nothing(void **state) {
    (void)state;
    json_t *counts;
    make(other, 3);
    hr_store *store = open_store(true);
    ok(hr_store_exec(store, "CREATE TEMP TRIGGER no BEFORE INSERT ON main.op WHEN NEW.cell_id = 'cell2' BEGIN SELECT "
                            "RAISE(ABORT, 'enough'); END"));
    assert_int_not_equal(hr_store_merge(store, other, &counts), HR_OK);
    assert_string_equal(ask(store, "SELECT count(*) FROM run"), "0");
    assert_string_equal(ask(store, "SELECT count(*) FROM machine"), "0");
    ok(hr_store_exec(store, "DROP TRIGGER no"));
    ok(hr_store_merge(store, other, &counts));
    counted(counts, "runs", 3);
    json_decref(counts);
    hr_store_close(store);
}

static void others_are_refused(void **state) {
    (void)state;
    json_t *counts;
    hr_store *store = open_store(true);
    write_file(other, "no database", 11);
    fails(hr_store_merge(store, other, &counts), HR_ERR_INPUT, "other.db");
    remove(other);
    fails(hr_store_merge(store, other, &counts), HR_ERR_INPUT, "no store");
    assert_string_equal(ask(store, "SELECT count(*) FROM run"), "0");
    hr_store_close(store);
}

/* ---- prune ---- */

static void medians_stay(void **state) {
    (void)state;
    json_t *counts, *cells;
    char night[11];
    make(path, 4); /* nights 1 to 4 */
    hr_store *store = open_store(true);
    ok(hr_store_night(store, 2, night));
    assert_string_equal(night, "2026-01-03");
    char *before = contents(path);
    ok(hr_store_prune(store, night, true, &counts));
    counted(counts, "runs", 2), counted(counts, "cells", 2), counted(counts, "samples", 4), counted(counts, "ops", 2);
    counted(counts, "ranges", 2), counted(counts, "recorded", 2);
    json_decref(counts);
    char *after = contents(path);
    assert_string_equal(after, before);
    free(before), free(after);
    ok(hr_store_prune(store, night, false, &counts));
    counted(counts, "samples", 4);
    json_decref(counts);
    assert_string_equal(ask(store, "SELECT count(*) FROM sample"), "4");
    assert_string_equal(ask(store, "SELECT count(*) FROM cell"), "4");
    assert_string_equal(ask(store, "SELECT count(*) FROM claim"), "4");
    assert_string_equal(ask(store, "SELECT count(*) FROM cell WHERE tpot_excl_first_ms_p50 = 1.75"), "4");
    ok(hr_store_cells(store, ask(store, "SELECT run_id FROM run WHERE started LIKE '2026-01-02%'"), &cells));
    assert_true(json_is_null(json_object_get(json_array_get(cells, 0), "samples_ns")));
    if (hr_num(json_object_get(json_array_get(cells, 0), "tpot_excl_first_ms"), "p50") != 1.75) fail();
    json_decref(cells);
    ok(hr_store_cells(store, ask(store, "SELECT run_id FROM run WHERE started LIKE '2026-01-03%'"), &cells));
    assert_int_equal(json_array_size(json_object_get(json_array_get(cells, 0), "samples_ns")), 2);
    json_decref(cells);
    ok(hr_store_prune(store, night, false, &counts)); /* nothing is left to go */
    counted(counts, "runs", 0), counted(counts, "cells", 0), counted(counts, "samples", 0);
    json_decref(counts);
    hr_store_close(store);
}

static void room_goes_back(void **state) {
    (void)state;
    json_t *run = parse("{\"command\": \"sweep\", \"started\": \"2026-01-01T00:00:00Z\"}"), *counts;
    json_t *cell = make_cell("big"), *samples = json_array(), *list = json_array();
    char *id;
    hr_store *store = open_store(true);
    for (int i = 0; i < 20000; i++) {
        json_array_append_new(samples, json_pack("{s:i, s:n}", "ns", 100000000 + i, "flags"));
        json_array_append_new(list, json_integer(100000000 + i));
    }
    json_object_set_new(cell, "samples_ns", list);
    ok(hr_store_begin_run(store, run, NULL, &id));
    ok(hr_store_put_cell(store, id, cell, samples, NULL));
    json_decref(run), json_decref(cell), json_decref(samples);
    hr_free(id);
    ok(hr_store_prune(store, "2026-01-02", false, &counts));
    /* a sample takes more than 10 bytes in its table and as many in the cell */
    if (!(hr_num(counts, "bytes_freed") > 20000 * 20)) fail_msg("bytes_freed: got %g", hr_num(counts, "bytes_freed"));
    json_decref(counts);
    hr_store_close(store);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    if (s.st_size > 300000) fail_msg("the file still has %lld bytes", (long long)s.st_size);
}

static void dates_are_checked(void **state) {
    (void)state;
    json_t *counts;
    hr_store *store = open_store(true);
    static const char *const bad[] = {
        "",           "yesterday",  "2026-1-1",   "2026-01-01 00:00:00", "2026-01-01T00:00:00+01:00", "2026-02-30",
        "2026-13-01", "2026-00-10", "2026-01-00", "2025-02-29",          "2026-01-01T24:00:00Z"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fails(hr_store_prune(store, bad[i], true, &counts), HR_ERR_USAGE, "date");
    static const char *const good[] = {"2026-01-01T00:00:00Z", "2024-02-29", "2026-12-31T23:59:59Z"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ok(hr_store_prune(store, good[i], true, &counts));
        json_decref(counts);
    }
    hr_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T2(a_store_is_copied_whole),  T2(what_is_there_is_skipped), T2(older_stores_are_read_as_they_are),
        T2(a_failure_leaves_nothing), T2(others_are_refused),       T2(medians_stay),
        T2(room_goes_back),           T2(dates_are_checked),
    };
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
