/* The store: its schema, rows put and got, names of runs and cells. */
#include "tests/store_fixture.h"

#include "harness/formats/cell_keys.h"
#include "harness/formats/formats.h"

/* ---- schema ---- */

typedef struct column_list {
    char text[16384];
    size_t at;
} column_list;

static void add_column(column_list *list, const char *key, const char *part, const char *type) {
    list->at += (size_t)snprintf(list->text + list->at, sizeof list->text - list->at, "%s%s%s %s\n", key,
                                 part[0] ? "_" : "", part, type);
    assert_true(list->at < sizeof list->text);
}

#define COLUMN_TEXT(key)    add_column(&want, key, "", "TEXT");
#define COLUMN_INT(key)     add_column(&want, key, "", "INTEGER");
#define COLUMN_REAL(key)    add_column(&want, key, "", "REAL");
#define COLUMN_BOOL(key)    add_column(&want, key, "", "INTEGER");
#define COLUMN_WORDS(key)   add_column(&want, key, "", "TEXT");
#define COLUMN_SAMPLES(key) (void)key;
#define COLUMN_UNITS(key)                   \
    add_column(&want, key, "fp32", "REAL"); \
    add_column(&want, key, "bf16", "REAL"); \
    add_column(&want, key, "int8", "REAL");
#define COLUMN_MAP2(key)                       \
    add_column(&want, key, "prefill", "TEXT"); \
    add_column(&want, key, "decode", "TEXT");
#define COLUMN_DIST(key) add_dist(&want, key);

static void add_dist(column_list *list, const char *key) {
#define X(part) add_column(list, key, #part, strcmp(#part, "n") == 0 ? "INTEGER" : "REAL");
    HR_DIST_KEYS(X)
#undef X
    add_column(list, key, "weak", "TEXT");
}

static void schema_lists_the_keys_of_a_cell(void **state) {
    (void)state;
    static column_list want, got;
    want.at = got.at = 0;
    add_column(&want, "seq", "", "INTEGER");
#define X(key, kind) COLUMN_##kind(#key)
    HR_CELL_KEYS(X)
#undef X
    add_column(&want, "json", "", "TEXT");
    hr_store *store = open_store(true);
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(store->db, "SELECT name, type FROM pragma_table_info('cell')", -1, &s, NULL),
                     0);
    while (sqlite3_step(s) == SQLITE_ROW)
        add_column(&got, (const char *)sqlite3_column_text(s, 0), "", (const char *)sqlite3_column_text(s, 1));
    sqlite3_finalize(s);
    hr_store_close(store);
    assert_string_equal(got.text, want.text);
}

static void the_file_says_whose_it_is(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char number[16];
    snprintf(number, sizeof number, "%d", HR_STORE_APPLICATION);
    assert_string_equal(ask(store, "PRAGMA application_id"), number);
    snprintf(number, sizeof number, "%d", HR_STORE_VERSION);
    assert_string_equal(ask(store, "PRAGMA user_version"), number);
    assert_string_equal(ask(store, "PRAGMA journal_mode"), "wal");
    assert_string_equal(ask(store, "PRAGMA synchronous"), "2");     /* FULL: a commit survives loss of power too */
    assert_string_equal(ask(store, "PRAGMA busy_timeout"), "5000"); /* ms that a lock is waited for */
    hr_store_close(store);
    assert_int_equal(entries(), 3); /* folder, db/, headroom.db: the log is gone after a close */
}

/* ---- round trips ---- */

static void cells_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    ok(put(store, run, "c2"));
    hr_store_close(store);
    store = open_store(false);
    json_t *cells, *want = make_cell("c2"), *missing;
    json_object_set_new(want, "run_id", json_string(run));
    ok(hr_store_cells(store, run, &cells));
    assert_int_equal(json_array_size(cells), 2);
    assert_true(json_equal(json_array_get(cells, 1), want)); /* all digits of all numbers */
    fails(hr_store_cell(store, "c3", run, &missing), HR_ERR_INPUT, "no cell c3");
    json_decref(cells), json_decref(want);
    hr_store_close(store);
    hr_free(run);
}

static void columns_are_flat(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    assert_string_equal(ask(store, "SELECT run_id FROM cell"), run);
    assert_string_equal(ask(store, "SELECT test FROM cell"), "tg128 @ d64");
    assert_string_equal(ask(store, "SELECT typeof(n_gen) || n_gen FROM cell"), "integer128");
    assert_string_equal(ask(store, "SELECT flash_attn || huge_pages FROM cell"), "10");
    assert_string_equal(ask(store, "SELECT flags FROM cell"), "throttled;state_changed");
    assert_string_equal(ask(store, "SELECT tpot_excl_first_ms_n FROM cell"), "2");
    assert_string_equal(ask(store, "SELECT tpot_excl_first_ms_p50 FROM cell"), "1.75");
    assert_string_equal(ask(store, "SELECT tpot_excl_first_ms_stddev IS NULL FROM cell"), "1");
    assert_string_equal(ask(store, "SELECT tpot_excl_first_ms_weak FROM cell"), "p95;p99");
    assert_string_equal(ask(store, "SELECT ttft_ms_n IS NULL AND ttft_ms_weak IS NULL AND isl IS NULL FROM cell"), "1");
    assert_string_equal(ask(store,
                            "SELECT flops_by_unit_fp32 = 1e9 AND flops_by_unit_bf16 = 0 AND flops_by_unit_int8 IS "
                            "NULL FROM cell"),
                        "1");
    assert_string_equal(ask(store, "SELECT kernels_prefill FROM cell"), "qkv=a_avx2;norm=b");
    assert_string_equal(ask(store, "SELECT kernels_decode FROM cell"), "qkv=c");
    assert_string_equal(ask(store, "SELECT ns || ',' || flags FROM sample WHERE i = 1"), "123456790,throttled");
    hr_store_close(store);
    hr_free(run);
}

/* Every column holds what CSV says of the same cell; numbers are compared as numbers. */
static void columns_agree_with_csv(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    json_t *cell;
    ok(hr_store_cell(store, "c1", run, &cell));
    size_t n, filled = 0;
    const char *const *names = hr_cell_columns(&n);
    for (size_t i = 0; i < n; i++) {
        char sql[160];
        snprintf(sql, sizeof sql, "SELECT %s FROM cell", names[i]);
        const char *got = ask(store, sql), *want = hr_cell_column_text(cell, i);
        char *end;
        double value = strtod(want, &end);
        if (want[0] && !*end && strtod(got, NULL) == value) want = got;
        if (strcmp(got, want) != 0) fail_msg("column %s: expected \"%s\", got \"%s\"", names[i], want, got);
        filled += got[0] != 0;
    }
    assert_true(filled > 20);
    assert_int_equal(atoi(ask(store, "SELECT count(*) - 2 FROM pragma_table_info('cell')")),
                     n); /* seq and json apart */
    json_decref(cell);
    hr_store_close(store);
    hr_free(run);
}

static void a_cell_put_again_replaces_the_first(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    ok(put(store, run, "c2"));
    ok(put(store, run, "c1"));
    assert_string_equal(ask(store, "SELECT count(*) FROM cell"), "2");
    assert_string_equal(ask(store, "SELECT count(*) FROM sample"), "4");
    assert_string_equal(ask(store, "SELECT count(*) FROM op"), "4");
    assert_string_equal(ask(store, "SELECT cell_id FROM cell ORDER BY seq DESC LIMIT 1"), "c1"); /* now the newest */
    fails(put(store, "0123456789abcdef", "c1"), HR_ERR_INPUT, "no run 0123456789abcdef");
    ok(put(store, run, "c3")); /* the refusal left no transaction open */
    hr_store_close(store);
    hr_free(run);
}

static void runs_tell_their_story(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *first = begin(store), *second = begin(store);
    assert_string_not_equal(first, second);
    ok(put(store, first, "c1"));
    json_t *failed = parse("{\"cell_id\": \"c2\", \"status\": \"failed\", \"error\": \"out of memory\"}"), *runs,
           *machine;
    ok(hr_store_put_cell(store, first, failed, NULL, NULL));
    json_decref(failed);
    ok(hr_store_end_run(store, first, 4));
    fails(hr_store_end_run(store, "nope", 0), HR_ERR_INPUT, "no run nope");
    ok(hr_store_runs(store, &runs));
    assert_int_equal(json_array_size(runs), 2);
    json_t *r = json_array_get(runs, 0);
    assert_string_equal(json_string_value(json_object_get(r, "run_id")), first);
    assert_string_equal(json_string_value(json_object_get(r, "started")), "2026-01-02T03:04:05Z");
    assert_string_equal(json_string_value(json_object_get(r, "manifest")), "f00d");
    assert_string_equal(json_string_value(json_object_get(r, "machine_class")), "epyc-2c-24g");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(r, "args"), "-r")), 3);
    assert_int_equal(json_integer_value(json_object_get(r, "n_cells")), 2);
    assert_int_equal(json_integer_value(json_object_get(r, "n_ok")), 1);
    assert_int_equal(json_integer_value(json_object_get(r, "exit_code")), 4);
    assert_true(json_is_string(json_object_get(r, "ended")));
    assert_true(json_is_null(json_object_get(json_array_get(runs, 1), "exit_code")));
    json_decref(runs);
    ok(hr_store_machine(store, second, &machine));
    assert_int_equal(json_integer_value(json_object_get(machine, "cores")), 2);
    json_decref(machine);
    assert_string_equal(ask(store, "SELECT count(*) FROM machine"), "1");
    hr_store_close(store);
    hr_free(first), hr_free(second);
}

static void roofs_belong_to_a_run_and_a_machine(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *first = begin(store), *second = begin(store);
    json_t *roof = parse("{\"llc_bytes\": 33554432, \"clock_ghz\": 3.7, \"handoff_ns\": null, \"read_gb_s\": []}"),
           *got;
    ok(hr_store_put_roof(store, first, roof));
    fails(hr_store_put_roof(store, "nope", roof), HR_ERR_INPUT, "no run nope");
    ok(hr_store_roofs(store, first, &got));
    assert_int_equal(json_array_size(got), 1);
    assert_true(json_equal(json_array_get(got, 0), roof));
    json_decref(got);
    ok(hr_store_roofs(store, second, &got));
    assert_int_equal(json_array_size(got), 0);
    json_decref(got);
    ok(hr_store_roofs(store, NULL, &got)); /* newest run has none, its machine class has */
    assert_int_equal(json_array_size(got), 1);
    json_decref(got);
    assert_string_equal(ask(store, "SELECT machine_class || llc_bytes FROM roof"), "epyc-2c-24g33554432");
    json_decref(roof);
    hr_store_close(store);
    hr_free(first), hr_free(second);
}

/* ---- RUN and CELL ---- */

static void run_is(hr_store *store, const char *text, const char *want) {
    char *got = NULL;
    ok(hr_store_resolve_run(store, text, &got));
    assert_string_equal(got, want);
    hr_free(got);
}
static void cell_is(hr_store *store, const char *text, const char *want_cell, const char *want_run) {
    char *cell = NULL, *run = NULL;
    ok(hr_store_resolve_cell(store, text, &cell, &run));
    assert_string_equal(cell, want_cell);
    assert_string_equal(run, want_run);
    hr_free(cell), hr_free(run);
}

static void names_of_runs(void **state) {
    (void)state;
    char *id = NULL;
    hr_store *store = open_store(true);
    fails(hr_store_resolve_run(store, "last", &id), HR_ERR_INPUT, "holds no runs of cells yet");
    ok(hr_store_exec(store, "INSERT INTO run (run_id, started, json) VALUES ('aa11', '', '{}'), ('aa22', '', '{}'), "
                            "('bb33', '', '{}'), ('aa', '', '{}'), ('%_', '', '{}')"));
    run_is(store, "last", "%_");
    run_is(store, "last~0", "%_");
    run_is(store, "last~4", "aa11");
    run_is(store, "aa2", "aa22");
    run_is(store, "b", "bb33");
    run_is(store, "aa", "aa"); /* an exact id wins over ids that begin with it */
    run_is(store, "%", "%_");
    fails(hr_store_resolve_run(store, "a", &id), HR_ERR_INPUT, "'a' fits several runs");
    fails(hr_store_resolve_run(store, "_", &id), HR_ERR_INPUT, "begins with '_'");
    fails(hr_store_resolve_run(store, "last~5", &id), HR_ERR_INPUT, "before the first of the 5 runs");
    fails(hr_store_resolve_run(store, "last~999999999999999999", &id), HR_ERR_INPUT, "before the first");
    fails(hr_store_resolve_run(store, "last~", &id), HR_ERR_INPUT, "begins with 'last~'");
    fails(hr_store_resolve_run(store, "last~-1", &id), HR_ERR_INPUT, "begins with 'last~-1'");
    fails(hr_store_resolve_run(store, "last~99999999999999999999", &id), HR_ERR_INPUT, "begins with");
    fails(hr_store_resolve_run(store, "", &id), HR_ERR_INPUT, "empty word");
    fails(hr_store_resolve_run(store, "aa111", &id), HR_ERR_INPUT, path);
    hr_store_close(store);
}

static void names_of_cells(void **state) {
    (void)state;
    char *cell = NULL, *run = NULL;
    hr_store *store = open_store(true);
    char *first = begin(store), *second = begin(store);
    fails(hr_store_resolve_cell(store, "last", &cell, &run), HR_ERR_INPUT, "holds no cells yet");
    ok(put(store, second, "c0ffee"));
    ok(put(store, first, "c0ffee"));
    ok(put(store, first, "c0de"));
    cell_is(store, "last", "c0de", first);
    cell_is(store, "last~1", "c0ffee", first);
    cell_is(store, "last~2", "c0ffee", second);
    cell_is(store, "c0f", "c0ffee", second); /* the newest run that holds it */
    cell_is(store, "c0de", "c0de", first);
    char text[64];
    snprintf(text, sizeof text, "c0f@%.12s", first);
    cell_is(store, text, "c0ffee", first);
    cell_is(store, "c@last", "c0ffee", second);
    fails(hr_store_resolve_cell(store, "c0de@last", &cell, &run), HR_ERR_INPUT, second);
    fails(hr_store_resolve_cell(store, "c0", &cell, &run), HR_ERR_INPUT, "fits several cells");
    fails(hr_store_resolve_cell(store, "c0@last~1", &cell, &run), HR_ERR_INPUT, "fits several cells");
    fails(hr_store_resolve_cell(store, "c0@last~2", &cell, &run), HR_ERR_INPUT, "before the first of the 2 runs");
    fails(hr_store_resolve_cell(store, "last~3", &cell, &run), HR_ERR_INPUT, "before the first of the 3 cells");
    fails(hr_store_resolve_cell(store, "@last", &cell, &run), HR_ERR_INPUT, "a cell is");
    fails(hr_store_resolve_cell(store, "", &cell, &run), HR_ERR_INPUT, "a cell is");
    hr_store_close(store);
    hr_free(first), hr_free(second);
}

/* ---- rows of the KV study and of claims ---- */

static void study_rows_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *first = begin(store), *second = begin(store);
    json_t *got, *none = parse("[]");
    ok(hr_store_study(store, NULL, &got));
    assert_true(json_equal(got, none));
    json_decref(got);

    json_t *a = parse("[{\"key\": \"k1\", \"part\": \"layouts\", \"name\": \"head\", \"n\": 2, \"median\": 1.25, "
                      "\"ci95_lo\": null, \"ci95_hi\": null, \"unit\": \"us\", \"samples\": [1.0, 1.5]},"
                      "{\"key\": \"k2\", \"part\": \"layouts\", \"name\": \"paged\", \"vs_head\": {\"median\": 1.1}}]");
    json_t *b = parse("[{\"key\": \"k2\", \"part\": \"layouts\", \"name\": \"paged\", \"n\": 7}]");
    ok(hr_store_put_study(store, first, a));
    ok(hr_store_study(store, NULL, &got)); /* the second run has none */
    assert_true(json_equal(got, a));
    json_decref(got);
    ok(hr_store_study(store, second, &got));
    assert_true(json_equal(got, none));
    json_decref(got);
    ok(hr_store_put_study(store, first, b)); /* replaces k2 */
    assert_string_equal(ask(store, "SELECT count(*) FROM study"), "2");
    assert_string_equal(ask(store, "SELECT n FROM study WHERE key = 'k2'"), "7");
    assert_string_equal(ask(store, "SELECT median || unit FROM study WHERE key = 'k1'"), "1.25us");
    ok(hr_store_put_study(store, second, b));
    ok(hr_store_study(store, NULL, &got));
    assert_true(json_equal(got, b));
    json_decref(got);

    /* all rows of a point or none */
    json_t *bad = parse("[{\"key\": \"k3\", \"part\": \"layouts\", \"name\": \"head\"}, {\"key\": \"k4\"}]");
    assert_int_equal(hr_store_put_study(store, first, bad), HR_ERR_INTERNAL);
    assert_string_equal(ask(store, "SELECT count(*) FROM study WHERE key = 'k3'"), "0");
    fails(hr_store_put_study(store, "0123", b), HR_ERR_INPUT, "no run 0123");
    json_decref(a), json_decref(b), json_decref(bad), json_decref(none);
    hr_store_close(store);
    hr_free(first), hr_free(second);
}

static void claims_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    json_t *got, *rows = parse("[{\"id\": \"kv-size\", \"measured\": 2.5, \"ci95_lo\": 2.0, \"ci95_hi\": 3.0, \"n\": 9,"
                               "\"verdict\": \"no difference\", \"samples\": [2.5]},"
                               "{\"id\": \"l2-hit\", \"measured\": null, \"verdict\": \"not testable here\"}]");
    ok(hr_store_put_claims(store, run, rows));
    ok(hr_store_put_claims(store, run, rows));
    ok(hr_store_claims(store, NULL, &got));
    assert_true(json_equal(got, rows));
    assert_string_equal(ask(store, "SELECT verdict FROM claim WHERE id = 'kv-size' AND measured = 2.5"),
                        "no difference");
    assert_string_equal(ask(store, "SELECT count(*) FROM claim WHERE measured IS NULL"), "1");
    json_decref(got), json_decref(rows);
    hr_store_close(store);
    hr_free(run);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(schema_lists_the_keys_of_a_cell),
        T(the_file_says_whose_it_is),
        T(cells_come_back_as_they_were_put),
        T(columns_are_flat),
        T(columns_agree_with_csv),
        T(a_cell_put_again_replaces_the_first),
        T(runs_tell_their_story),
        T(roofs_belong_to_a_run_and_a_machine),
        T(names_of_runs),
        T(names_of_cells),
        T(study_rows_come_back_as_they_were_put),
        T(claims_come_back_as_they_were_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
