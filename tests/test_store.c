#include "tests/hr_test.h"

#include "harness/formats/cell_keys.h"
#include "harness/store/store_internal.h"
#include "tests/fault_vfs.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a folder for each test ---- */

static char folder[256], path[300];

static int remove_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(name);
}
static int setup(void **state) {
    (void)state;
    /* memory where there is such a place: hundreds of syncs follow */
    snprintf(folder, sizeof folder, "%s/headroom-store-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/db/headroom.db", folder);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    for (int kind = 0; kind < HR_FAULT_COUNT; kind++) hr_fault_arm((hr_fault)kind, 0);
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void ok_(hr_status status, const char *what, int line) {
    if (status != HR_OK) {
        print_error("line %d: %s: %s\n", line, what, hr_error());
        _fail(__FILE__, line);
    }
}
#define ok(call) ok_((call), #call, __LINE__)

/* The call fails with this code, in one line that names the file and holds the word. */
static void fails_(hr_status status, hr_status want, const char *word, int line) {
    if (status != want || !strstr(hr_error(), word) || strchr(hr_error(), '\n')) {
        print_error("line %d: expected %s with \"%s\", got %s: %s\n", line, hr_status_text(want), word,
                    hr_status_text(status), hr_error());
        _fail(__FILE__, line);
    }
}
#define fails(call, want, word) fails_((call), (want), (word), __LINE__)

/* ---- rows ---- */

static json_t *parse(const char *text) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    if (!value) fail_msg("%s: %s", text, error.text);
    return value;
}

static json_t *make_cell(const char *id) {
    json_t *cell = parse(
        "{\"test\": \"tg128 @ d64\", \"status\": \"ok\", \"error\": null, \"n_gen\": 128, \"flash_attn\": true,"
        "\"huge_pages\": false, \"avg_ns\": 123456789.25, \"samples_ns\": [123456789, 123456790], \"seed\": 0,"
        "\"quant\": \"int4\", \"mbu\": 0.1, \"flags\": [\"throttled\", \"state_changed\"], \"ttft_ms\": null,"
        "\"flops_by_unit\": {\"fp32\": 1e9, \"bf16\": 0.0, \"int8\": null},"
        "\"kernels\": {\"prefill\": {\"qkv\": \"a_avx2\", \"norm\": \"b\"}, \"decode\": {\"qkv\": \"c\"}},"
        "\"tpot_excl_first_ms\": {\"n\": 2, \"min\": 1.5, \"p50\": 1.75, \"p90\": 1.95, \"p95\": 1.975, \"p99\": 1.995,"
        "\"max\": 2.0, \"mean\": 1.75, \"stddev\": null, \"mad\": 0.25, \"ci95_lo\": null, \"ci95_hi\": null,"
        "\"weak\": [\"p95\", \"p99\"]}}");
    assert_int_equal(json_object_set_new(cell, "cell_id", json_string(id)), 0);
    return cell;
}

static char *begin(hr_store *store) {
    json_t *run =
        parse("{\"command\": \"sweep\", \"args\": {\"-r\": 3}, \"build_commit\": \"abc\", \"compiler\": \"gcc\","
              "\"started\": \"2026-01-02T03:04:05Z\", \"tags\": \"a=b\", \"manifest\": \"f00d\"}");
    json_t *machine = parse("{\"machine_class\": \"epyc-2c-24g\", \"cores\": 2}");
    char *id = NULL;
    ok(hr_store_begin_run(store, run, machine, &id));
    json_decref(run), json_decref(machine);
    assert_int_equal(strlen(id), 16);
    return id;
}

static hr_status put(hr_store *store, const char *run_id, const char *cell_id) {
    json_t *cell = make_cell(cell_id);
    json_t *samples = parse("[{\"ns\": 123456789, \"flags\": null}, {\"ns\": 123456790, \"flags\": \"throttled\"}]");
    json_t *ops = parse("[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"qkv\", \"kernel\": \"c\", \"n\": 640,"
                        "\"median_ns\": 1500.5, \"bytes\": 4096, \"flops\": 8192},"
                        "{\"phase\": \"decode\", \"layer\": -1, \"op\": \"head\", \"kernel\": \"c\", \"n\": 640,"
                        "\"median_ns\": 9.0, \"bytes\": 1, \"flops\": 2}]");
    hr_status status = hr_store_put_cell(store, run_id, cell, samples, ops);
    json_decref(cell), json_decref(samples), json_decref(ops);
    return status;
}

static hr_store *open_store(bool write) {
    hr_store *store = NULL;
    ok(hr_store_open(path, write, &store));
    return store;
}

/* First column of the first row of any SQL, as text; empty for null. */
static const char *ask(hr_store *store, const char *sql) {
    static char answer[512];
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(store->db, sql, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(store->db));
    if (sqlite3_step(s) != SQLITE_ROW) fail_msg("%s: no row", sql);
    const char *text = (const char *)sqlite3_column_text(s, 0);
    snprintf(answer, sizeof answer, "%s", text ? text : "");
    sqlite3_finalize(s);
    return answer;
}

static void raw_sql(const char *file, const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}
static size_t read_file(const char *name, void *bytes, size_t n) {
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    size_t got = fread(bytes, 1, n, f);
    fclose(f);
    return got;
}

static size_t n_entries;
static int count_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)name, (void)s, (void)kind, (void)at;
    n_entries++;
    return 0;
}
/* Files and folders below the test's folder, itself included. */
static size_t entries(void) {
    n_entries = 0;
    nftw(folder, count_entry, 16, FTW_PHYS);
    return n_entries;
}

/* The store opens, is sound, and holds these cells of the run, whole. */
static void assert_sound(const char *run_id, char (*cells)[32], size_t n) {
    hr_store *store = open_store(true);
    assert_string_equal(ask(store, "PRAGMA integrity_check"), "ok");
    for (size_t i = 0; i < n; i++) {
        json_t *got, *ops, *want = make_cell(cells[i]);
        json_object_set_new(want, "run_id", json_string(run_id));
        ok(hr_store_cell(store, cells[i], run_id, &got));
        assert_true(json_equal(got, want));
        ok(hr_store_ops(store, run_id, cells[i], &ops));
        assert_int_equal(json_array_size(ops), 2);
        json_decref(got), json_decref(want), json_decref(ops);
    }
    assert_string_equal(ask(store, "SELECT count(*) FROM cell c WHERE 2 <> (SELECT count(*) FROM sample s WHERE "
                                   "s.run_id = c.run_id AND s.cell_id = c.cell_id)"),
                        "0"); /* no half of a cell */
    hr_store_close(store);
}

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
    assert_string_equal(ask(store, "PRAGMA synchronous"), "2"); /* FULL: a commit survives loss of power too */
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
    fails(hr_store_resolve_run(store, "last", &id), HR_ERR_INPUT, "holds no runs yet");
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

/* ---- files that are not a store of ours ---- */

static void other_versions_are_refused(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    hr_store_close(store);
    for (int write = 0; write < 2; write++) {
        raw_sql(path, "PRAGMA user_version = 7");
        fails(hr_store_open(path, write, &store), HR_ERR_INPUT,
              "schema version 7, this program reads and writes version 1");
        assert_non_null(strstr(hr_error(), "newer program"));
        assert_non_null(strstr(hr_error(), path));
        raw_sql(path, "PRAGMA user_version = 0");
        fails(hr_store_open(path, write, &store), HR_ERR_INPUT, "older program");
    }
}

static void foreign_files_stay_untouched(void **state) {
    (void)state;
    static unsigned char before[65536], after[65536];
    char name[300];
    hr_store *store = NULL;
    const char text[] = "model,ttft\nthis is my thesis\n";
    snprintf(name, sizeof name, "%s/notes.txt", folder);
    write_file(name, text, sizeof text);
    snprintf(path, sizeof path, "%s/long.bin", folder);
    memset(before, 'x', 5000);
    write_file(path, before, 5000);
    char database[300];
    snprintf(database, sizeof database, "%s/mail.sqlite", folder);
    raw_sql(database, "CREATE TABLE mail (a); INSERT INTO mail VALUES (1)");
    char wal_database[300];
    snprintf(wal_database, sizeof wal_database, "%s/wal.sqlite", folder);
    raw_sql(wal_database, "PRAGMA journal_mode = WAL; PRAGMA application_id = 42; CREATE TABLE mail (a)");
    const char *const files[] = {name, path, database, wal_database};
    for (size_t f = 0; f < 4; f++)
        for (int write = 0; write < 2; write++) {
            size_t n = read_file(files[f], before, sizeof before), were = entries();
            fails(hr_store_open(files[f], write, &store), HR_ERR_INPUT, files[f]);
            assert_non_null(strstr(hr_error(), f < 2 ? "not an SQLite file" : "another program"));
            assert_int_equal(read_file(files[f], after, sizeof after), n);
            assert_memory_equal(before, after, n);
            assert_int_equal(entries(), were);
        }
}

static void things_that_are_no_file(void **state) {
    (void)state;
    hr_store *store = NULL;
    fails(hr_store_open(folder, true, &store), HR_ERR_INPUT, "is not a file");
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    fails(hr_store_open(path, true, &store), HR_ERR_INPUT, "is not a file"); /* and does not wait for a writer */
    fails(hr_store_open("", true, &store), HR_ERR_INPUT, "empty");
    snprintf(path, sizeof path, "%s/file", folder);
    write_file(path, "x", 1);
    snprintf(path, sizeof path, "%s/file/headroom.db", folder); /* a file where a folder should be */
    fails(hr_store_open(path, true, &store), HR_ERR_IO, path);
}

static void reading_makes_no_store(void **state) {
    (void)state;
    hr_store *store = NULL;
    fails(hr_store_open(path, false, &store), HR_ERR_INPUT, "there is no store at");
    assert_int_equal(entries(), 1);
    snprintf(path, sizeof path, "%s/empty.db", folder);
    write_file(path, "", 0);
    fails(hr_store_open(path, false, &store), HR_ERR_INPUT, "there is no store at");
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_size, 0);
    hr_store_close(open_store(true)); /* an empty file may become one */
    hr_store_close(open_store(false));
    assert_int_equal(entries(), 2);
}

static void odd_names_are_names(void **state) {
    (void)state;
    const char *const names[] = {"a b?c#d%41.db", "file:x?mode=memory", "'quoted\".db", "\xc3\xa9.db"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        hr_store_close(open_store(true));
        assert_int_equal(access(path, F_OK), 0);
        hr_store_close(open_store(false));
    }
    assert_int_equal(chdir(folder), 0);
    hr_store *store = NULL;
    ok(hr_store_open(":memory:", true, &store));
    hr_store_close(store);
    assert_int_equal(access("./:memory:", F_OK), 0);
    ok(hr_store_open("bare.db", true, &store));
    hr_store_close(store);
    assert_int_equal(chdir("/"), 0);
}

static void damage_is_named(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    hr_store_close(store);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    FILE *f = fopen(path, "r+b"); /* everything but the header page */
    fseek(f, 4096, SEEK_SET);
    for (off_t i = 4096; i < s.st_size; i++) fputc(0xa5, f);
    fclose(f);
    store = open_store(false); /* the header is whole */
    json_t *cells;
    fails(hr_store_cells(store, run, &cells), HR_ERR_INPUT, "is damaged");
    hr_store_close(store);
    hr_free(run);
}

/* ---- rights, locks, full disks ---- */

/* Runs body in a child without root's powers; its exit status must be 0. */
static void as_nobody(void (*body)(void)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)) _exit(99);
        body();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99) hr_skip("root cannot become nobody here");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child said it failed (status %#x)", status);
}

#define child_wants(condition)                                                      \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, hr_error()); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

static void read_but_not_write(void) {
    hr_store *store;
    json_t *runs;
    child_wants(hr_store_open(path, true, &store) == HR_ERR_IO);
    child_wants(strstr(hr_error(), "cannot be written") && strstr(hr_error(), path));
    child_wants(hr_store_open(path, false, &store) == HR_OK);
    child_wants(hr_store_runs(store, &runs) == HR_OK && json_array_size(runs) == 1);
    child_wants(json_integer_value(json_object_get(json_array_get(runs, 0), "n_cells")) == 1);
    json_decref(runs);
    hr_store_close(store);
    char other[320];
    snprintf(other, sizeof other, "%s/new/headroom.db", folder);
    child_wants(hr_store_open(other, true, &store) == HR_ERR_IO);
    child_wants(strstr(hr_error(), "cannot be made") && strstr(hr_error(), other));
}

static void read_only_folders_can_be_read(void **state) {
    (void)state;
    char name[300];
    snprintf(name, sizeof name, "%s/db", folder);
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    hr_store_close(store);
    assert_int_equal(chmod(path, 0444) | chmod(name, 0555) | chmod(folder, 0555), 0);
    size_t were = entries();
    as_nobody(read_but_not_write);
    assert_int_equal(entries(), were);
    assert_int_equal(chmod(folder, 0755) | chmod(name, 0755), 0);
    hr_free(run);
}

static void refuse_to_read(void) {
    hr_store *store;
    child_wants(hr_store_open(path, false, &store) == HR_ERR_IO && strstr(hr_error(), path));
    child_wants(hr_store_open(path, true, &store) == HR_ERR_IO && strstr(hr_error(), path));
}

static void unreadable_files_are_named(void **state) {
    (void)state;
    hr_store_close(open_store(true));
    assert_int_equal(chmod(path, 0000), 0);
    if (geteuid() == 0) assert_int_equal(chmod(folder, 0755), 0);
    as_nobody(refuse_to_read);
}

/* A sweep was killed, then its folder became read-only: the log beside the file must not be overlooked. */
static void a_log_left_behind_is_read(void **state) {
    (void)state;
    char name[300];
    snprintf(name, sizeof name, "%s/db", folder);
    hr_store_close(open_store(true));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        hr_store *store = open_store(true);
        char *run = begin(store);
        ok(put(store, run, "c1"));
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    char log[320];
    snprintf(log, sizeof log, "%s-wal", path);
    struct stat s;
    assert_int_equal(stat(log, &s), 0);
    assert_true(s.st_size > 0);
    assert_int_equal(chmod(path, 0444) | chmod(name, 0555) | chmod(folder, 0755), 0);
    as_nobody(read_but_not_write);
    assert_int_equal(chmod(name, 0755), 0);
}

static void a_lock_is_waited_for_then_named(void **state) {
    (void)state;
    hr_store *store = open_store(true), *other = open_store(true), *reader;
    char *run = begin(store);
    ok(put(store, run, "c1"));
    ok(hr_store_exec(other, "BEGIN IMMEDIATE"));
    json_t *cells;
    reader = open_store(false); /* a reader is not held up by a writer */
    ok(hr_store_cells(reader, run, &cells));
    assert_int_equal(json_array_size(cells), 1);
    json_decref(cells);
    hr_store_close(reader);
    sqlite3_busy_timeout(store->db, 200); /* the default of 5 s is in the schema of things, not in the test's time */
    fails(put(store, run, "c2"), HR_ERR_IO, "is locked by another program");
    assert_non_null(strstr(hr_error(), path));
    ok(hr_store_exec(other, "ROLLBACK"));
    ok(put(store, run, "c2"));
    hr_store_close(other);
    hr_store_close(store);
    hr_free(run);
}

static void a_full_disk_loses_nothing(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store), sql[64];
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %d", atoi(ask(store, "PRAGMA page_count")) + 6);
    ask(store, sql);
    static char cells[100][32];
    size_t n = 0;
    hr_status status = HR_OK;
    for (; status == HR_OK && n < 100; n += status == HR_OK) {
        snprintf(cells[n], sizeof cells[n], "cell-%zu", n);
        status = put(store, run, cells[n]);
    }
    fails(status, HR_ERR_IO, "the disk is full");
    assert_non_null(strstr(hr_error(), "finished cells are safe"));
    assert_true(n > 0);
    ask(store, "PRAGMA max_page_count = 100000"); /* space was freed: the same connection goes on */
    ok(put(store, run, cells[n]));
    hr_store_close(store);
    assert_sound(run, cells, n + 1);
    hr_free(run);
}

/* A limit on the size of files: SQLite sees a short write, as on a quota. */
static void a_file_size_limit_loses_nothing(void **state) {
    (void)state;
    hr_store_close(open_store(true));
    int tell[2];
    assert_int_equal(pipe(tell), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        hr_store *store = open_store(true);
        char *run = begin(store), id[32];
        child_wants(write(tell[1], run, 16) == 16);
        struct stat s;
        child_wants(stat(path, &s) == 0);
        struct rlimit limit = {(rlim_t)s.st_size + 200000, RLIM_INFINITY};
        child_wants(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        for (unsigned char n = 0; n < 200; n++) {
            snprintf(id, sizeof id, "cell-%d", n);
            if (put(store, run, id) == HR_OK) {
                child_wants(write(tell[1], &n, 1) == 1);
                continue;
            }
            child_wants(strstr(hr_error(), path) && strstr(hr_error(), "finished cells are safe"));
            _exit(0);
        }
        _exit(2);
    }
    close(tell[1]);
    static char run[17], cells[256][32];
    unsigned char byte;
    size_t n = 0;
    assert_int_equal(read(tell[0], run, 16), 16);
    while (read(tell[0], &byte, 1) == 1) snprintf(cells[n++], sizeof cells[0], "cell-%d", byte);
    close(tell[0]);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_true(n > 0);
    assert_sound(run, cells, n);
}

/* ---- several processes, kill -9 ---- */

static void two_sweeps_share_a_store(void **state) {
    (void)state;
    enum { WRITERS = 2, CELLS = 40 };
    fflush(NULL);
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) { /* they also race to make the store */
        children[w] = fork();
        assert_true(children[w] >= 0);
        if (children[w] != 0) continue;
        hr_store *store;
        child_wants(hr_store_open(path, true, &store) == HR_OK);
        char *run = begin(store), id[32];
        for (int n = 0; n < CELLS; n++) {
            snprintf(id, sizeof id, "cell-%d", n);
            child_wants(put(store, run, id) == HR_OK);
        }
        child_wants(hr_store_end_run(store, run, 0) == HR_OK);
        hr_store_close(store);
        _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        waitpid(children[w], &status, 0);
        assert_int_equal(status, 0);
    }
    hr_store *store = open_store(false);
    json_t *runs;
    ok(hr_store_runs(store, &runs));
    assert_int_equal(json_array_size(runs), WRITERS);
    for (size_t w = 0; w < WRITERS; w++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(runs, w), "n_ok")), CELLS);
    json_decref(runs);
    assert_string_equal(ask(store, "PRAGMA integrity_check"), "ok");
    hr_store_close(store);
}

static void kill_9_loses_no_finished_cell(void **state) {
    (void)state;
    for (int round = 0; round < 12; round++) {
        int tell[2];
        assert_int_equal(pipe(tell), 0);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) { /* says which cells are finished until it is killed */
            hr_store *store;
            child_wants(hr_store_open(path, true, &store) == HR_OK);
            char *run = begin(store), id[32];
            child_wants(write(tell[1], run, 16) == 16);
            for (unsigned char n = 0; n < 255; n++) {
                snprintf(id, sizeof id, "cell-%d", n);
                child_wants(put(store, run, id) == HR_OK);
                child_wants(write(tell[1], &n, 1) == 1);
            }
            pause();
        }
        close(tell[1]);
        static char run[17], cells[256][32];
        assert_int_equal(read(tell[0], run, 16), 16);
        usleep((useconds_t)(round * 3700)); /* somewhere within a put */
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        unsigned char byte;
        size_t n = 0;
        while (read(tell[0], &byte, 1) == 1) snprintf(cells[n++], sizeof cells[0], "cell-%d", byte);
        close(tell[0]);
        assert_sound(run, cells, n);
    }
}

/* ---- faults at the n-th call ---- */

static char fault_run[17], fault_cells[4][32];
static size_t n_fault_cells;

/* A short sweep that goes on after a failure, as long as it has a store. Notes what was said to be stored. */
static hr_status short_sweep(size_t n_cells) {
    hr_store *store = NULL;
    n_fault_cells = 0, fault_run[0] = 0;
    hr_status first = hr_store_open(path, true, &store);
    if (first != HR_OK) return first;
    json_t *run = json_pack("{s:s}", "command", "sweep");
    char *id = NULL;
    first = run ? hr_store_begin_run(store, run, NULL, &id) : HR_ERR_MEMORY;
    json_decref(run);
    if (first == HR_OK) {
        memcpy(fault_run, id, sizeof fault_run);
        for (size_t n = 0; n < n_cells; n++) {
            char name[32];
            snprintf(name, sizeof name, "cell-%zu", n);
            json_t *cell = NULL, *samples = NULL, *ops = NULL;
            cell = json_loads("{\"status\": \"ok\", \"mbu\": 0.5, \"flags\": [\"throttled\"], \"kernels\": "
                              "{\"decode\": {\"a\": \"b\"}}}",
                              0, NULL);
            samples = json_loads("[{\"ns\": 1, \"flags\": null}, {\"ns\": 2, \"flags\": \"throttled\"}]", 0, NULL);
            ops = json_loads("[{\"phase\": \"decode\", \"op\": \"qkv\"}, {\"phase\": \"decode\", \"op\": \"head\"}]", 0,
                             NULL);
            hr_status status = HR_ERR_MEMORY;
            if (cell && samples && ops && json_object_set_new(cell, "cell_id", json_string(name)) == 0)
                status = hr_store_put_cell(store, id, cell, samples, ops);
            json_decref(cell), json_decref(samples), json_decref(ops);
            if (status == HR_OK) memcpy(fault_cells[n_fault_cells++], name, sizeof name);
            if (first == HR_OK) first = status;
        }
        hr_status ended = hr_store_end_run(store, id, 0);
        if (first == HR_OK) first = ended;
    }
    hr_free(id);
    hr_store_close(store);
    return first;
}

static void assert_fault_sound(hr_fault kind, uint64_t nth) {
    hr_fault_arm(kind, 0);
    hr_store *store = NULL;
    if (hr_store_open(path, true, &store) != HR_OK) fail_msg("fault %llu: %s", (unsigned long long)nth, hr_error());
    if (strcmp(ask(store, "PRAGMA integrity_check"), "ok") != 0)
        fail_msg("fault %llu: damaged", (unsigned long long)nth);
    for (size_t i = 0; i < n_fault_cells; i++) {
        json_t *cell = NULL, *ops = NULL;
        if (hr_store_cell(store, fault_cells[i], fault_run, &cell) != HR_OK ||
            hr_store_ops(store, fault_run, fault_cells[i], &ops) != HR_OK || json_array_size(ops) != 2)
            fail_msg("fault %llu: %s was stored and is gone: %s", (unsigned long long)nth, fault_cells[i], hr_error());
        json_decref(cell), json_decref(ops);
    }
    hr_store_close(store);
}

static void start_anew(bool with_store) {
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(folder, 0755), 0);
    if (with_store) hr_store_close(open_store(true));
}

/* Every n-th call of the sweep fails once; step skips some where there are thousands. */
static void every_fault(hr_fault kind, bool with_store, size_t n_cells, uint64_t dense, uint64_t step) {
    start_anew(with_store);
    uint64_t before = hr_fault_calls(kind);
    ok(short_sweep(n_cells));
    uint64_t calls = hr_fault_calls(kind) - before, failures = 0;
    assert_true(calls > 3);
    for (uint64_t n = 1; n <= calls; n += n < dense ? 1 : step) {
        start_anew(with_store);
        hr_fault_arm(kind, n);
        hr_status status = short_sweep(n_cells);
        failures += status != HR_OK;
        if (status != HR_OK && (!hr_error()[0] || strchr(hr_error(), '\n'))) fail_msg("no line for fault %d", (int)n);
        assert_fault_sound(kind, n);
    }
    assert_true(failures > 0);
}

static void any_write_may_fail(void **state) {
    (void)state;
    fault_write_error = SQLITE_IOERR_WRITE;
    every_fault(HR_FAULT_WRITE, false, 3, UINT64_MAX, 1);
    fault_write_error = SQLITE_FULL;
    every_fault(HR_FAULT_WRITE, false, 3, UINT64_MAX, 1);
}
static void any_read_may_fail(void **state) {
    (void)state;
    every_fault(HR_FAULT_READ, true, 2, UINT64_MAX, 1);
}
static void any_allocation_may_fail(void **state) {
    (void)state;
    every_fault(HR_FAULT_ALLOC, true, 2, 400, 11);
}

static void reading_survives_any_fault(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    hr_store_close(store);
    for (int kind = 0; kind < 2; kind++) {
        hr_fault fault = kind ? HR_FAULT_READ : HR_FAULT_ALLOC;
        bool finished = false;
        for (uint64_t n = 1; !finished; n++) {
            uint64_t before = hr_fault_calls(fault);
            hr_fault_arm(fault, n);
            char *cell_id = NULL, *run_id = NULL;
            json_t *values[4] = {NULL};
            store = NULL;
            hr_status status = hr_store_open(path, false, &store);
            if (status == HR_OK) status = hr_store_resolve_cell(store, "c@last", &cell_id, &run_id);
            if (status == HR_OK) status = hr_store_cell(store, cell_id, run_id, &values[0]);
            if (status == HR_OK) status = hr_store_ops(store, run_id, cell_id, &values[1]);
            if (status == HR_OK) status = hr_store_runs(store, &values[2]);
            if (status == HR_OK) status = hr_store_cells(store, run_id, &values[3]);
            if (status == HR_OK) assert_int_equal(json_array_size(values[2]), 1);
            if (status == HR_OK) assert_int_equal(json_array_size(values[3]), 1);
            for (int i = 0; i < 4; i++) json_decref(values[i]);
            hr_free(cell_id), hr_free(run_id);
            hr_store_close(store);
            finished = status == HR_OK && hr_fault_calls(fault) - before < n;
            if (n > 20000) fail_msg("the faults never end");
        }
        hr_fault_arm(fault, 0);
    }
    hr_free(run);
}

int main(void) {
    if (fault_vfs_install() != 0) return 1;
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(schema_lists_the_keys_of_a_cell),
        T(the_file_says_whose_it_is),
        T(cells_come_back_as_they_were_put),
        T(columns_are_flat),
        T(a_cell_put_again_replaces_the_first),
        T(runs_tell_their_story),
        T(roofs_belong_to_a_run_and_a_machine),
        T(names_of_runs),
        T(names_of_cells),
        T(other_versions_are_refused),
        T(foreign_files_stay_untouched),
        T(things_that_are_no_file),
        T(reading_makes_no_store),
        T(odd_names_are_names),
        T(damage_is_named),
        T(read_only_folders_can_be_read),
        T(unreadable_files_are_named),
        T(a_log_left_behind_is_read),
        T(a_lock_is_waited_for_then_named),
        T(a_full_disk_loses_nothing),
        T(a_file_size_limit_loses_nothing),
        T(two_sweeps_share_a_store),
        T(kill_9_loses_no_finished_cell),
        T(any_write_may_fail),
        T(any_read_may_fail),
        T(any_allocation_may_fail),
        T(reading_survives_any_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
