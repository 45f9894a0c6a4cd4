/* store_fixture.h - what the tests of the store share: a folder for each test, rows to put, checks of a whole store. */
#ifndef HR_STORE_FIXTURE_H
#define HR_STORE_FIXTURE_H

#include "tests/hr_test.h"

#include "harness/store/store_internal.h"
#include "kernels/base/memory.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a folder for each test ---- */

static char folder[256], path[300];

static inline int remove_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(name);
}
static inline int setup(void **state) {
    (void)state;
    /* memory where there is such a place: hundreds of syncs follow */
    snprintf(folder, sizeof folder, "%s/headroom-store-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/db/headroom.db", folder);
    return 0;
}
static inline int teardown(void **state) {
    (void)state;
    for (int kind = 0; kind < HR_FAULT_COUNT; kind++) hr_fault_arm((hr_fault)kind, 0);
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void ok_(hr_status status, const char *what, int line) {
    if (status != HR_OK) {
        print_error("line %d: %s: %s\n", line, what, hr_error());
        _fail(__FILE__, line);
    }
}
#define ok(call) ok_((call), #call, __LINE__)

/* The call fails with this code, in one line that names the file and holds the word. */
static inline void fails_(hr_status status, hr_status want, const char *word, int line) {
    if (status != want || !strstr(hr_error(), word) || strchr(hr_error(), '\n')) {
        print_error("line %d: expected %s with \"%s\", got %s: %s\n", line, hr_status_text(want), word,
                    hr_status_text(status), hr_error());
        _fail(__FILE__, line);
    }
}
#define fails(call, want, word) fails_((call), (want), (word), __LINE__)

/* ---- rows ---- */

static inline json_t *parse(const char *text) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY, &error);
    if (!value) fail_msg("%s: %s", text, error.text);
    return value;
}

static inline json_t *make_cell(const char *id) {
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

static inline char *begin(hr_store *store) {
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

static inline hr_status put(hr_store *store, const char *run_id, const char *cell_id) {
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

static inline hr_store *open_store(bool write) {
    hr_store *store = NULL;
    ok(hr_store_open(path, write, &store));
    return store;
}

/* First column of the first row of any SQL, as text; empty for null. */
static inline const char *ask(hr_store *store, const char *sql) {
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

static inline void raw_sql(const char *file, const char *sql) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* What version 5 added to `cell`. */
static const char *const columns_of_gpus[] = {"gpu_memory",
                                              "graphs",
                                              "gemm",
                                              "device_ms",
                                              "power_w",
                                              "energy_mj_token",
                                              "energy_mj_token_prefill",
                                              "sm_mhz",
                                              "memory_mhz",
                                              "temperature_c",
                                              "clock_reasons",
                                              "power_limit_w",
                                              "dram_bytes_read",
                                              "dram_bytes_write",
                                              "tensor_pct",
                                              "l2_hit_pct",
                                              "warps_active_pct"};

/* Takes from the store at `path`, which is closed, what a version before this one lacked; all rows in the rest stay. */
static inline void make_older(int version) {
    if (version < 2) raw_sql(path, "ALTER TABLE cell DROP COLUMN forced");
    if (version < 3) raw_sql(path, "DROP TABLE study; DROP TABLE claim");
    if (version < 4)
        raw_sql(path, "DROP TABLE recorded; DROP TABLE range; DROP TABLE observe;"
                      "ALTER TABLE cell DROP COLUMN kv_bytes_reserved; ALTER TABLE cell DROP COLUMN kv_row_bytes;"
                      "ALTER TABLE cell DROP COLUMN softmax; ALTER TABLE op DROP COLUMN mean_ns;"
                      "ALTER TABLE op DROP COLUMN imbalance_ns; ALTER TABLE op DROP COLUMN handoff_ns;"
                      "ALTER TABLE op DROP COLUMN unit");
    char sql[96];
    for (size_t i = 0; version < 5 && i < sizeof columns_of_gpus / sizeof *columns_of_gpus; i++) {
        snprintf(sql, sizeof sql, "ALTER TABLE cell DROP COLUMN %s", columns_of_gpus[i]);
        raw_sql(path, sql);
    }
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", version);
    raw_sql(path, sql);
}

static inline void write_file(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}
static inline size_t read_file(const char *name, void *bytes, size_t n) {
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    size_t got = fread(bytes, 1, n, f);
    fclose(f);
    return got;
}

static size_t n_entries;
static inline int count_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)name, (void)s, (void)kind, (void)at;
    n_entries++;
    return 0;
}
/* Files and folders below the test's folder, itself included. */
static inline size_t entries(void) {
    n_entries = 0;
    nftw(folder, count_entry, 16, FTW_PHYS);
    return n_entries;
}

/* The store opens, is sound, and holds these cells of the run, whole. */
static inline void assert_sound(const char *run_id, char (*cells)[32], size_t n) {
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

/* In a child process, where cmocka has no say. */
#define child_wants(condition)                                                      \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, hr_error()); \
            _exit(1);                                                               \
        }                                                                           \
    } while (0)

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
