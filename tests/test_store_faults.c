/* The store when processes are killed and calls fail: no finished cell is lost. */
#include "tests/store_fixture.h"

#include "tests/fault_vfs.h"

#include <signal.h>
#include <sys/wait.h>

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
            json_t *cell = NULL, *samples = NULL, *ops = NULL, *recorded = NULL;
            cell = json_loads("{\"status\": \"ok\", \"mbu\": 0.5, \"flags\": [\"throttled\"], \"kernels\": "
                              "{\"decode\": {\"a\": \"b\"}}}",
                              0, NULL);
            samples = json_loads("[{\"ns\": 1, \"flags\": null}, {\"ns\": 2, \"flags\": \"throttled\"}]", 0, NULL);
            ops = json_loads("[{\"phase\": \"decode\", \"op\": \"qkv\"}, {\"phase\": \"decode\", \"op\": \"head\"}]", 0,
                             NULL);
            recorded = json_loads("[{\"i\": 0, \"phase\": \"prefill\"}, {\"i\": 0, \"phase\": \"decode\"}]", 0, NULL);
            hr_status status = HR_ERR_MEMORY;
            if (cell && samples && ops && recorded && json_object_set_new(cell, "cell_id", json_string(name)) == 0)
                status = hr_store_put_cell_parts(store, id, cell, &(hr_cell_parts){samples, ops, recorded});
            json_decref(cell), json_decref(samples), json_decref(ops), json_decref(recorded);
            if (status == HR_OK) memcpy(fault_cells[n_fault_cells++], name, sizeof name);
            if (first == HR_OK) first = status;
        }
        json_t *rows = json_loads("[{\"key\": \"a\", \"part\": \"p\", \"name\": \"x\"},"
                                  "{\"key\": \"b\", \"part\": \"p\", \"name\": \"y\"}]",
                                  0, NULL);
        hr_status put_rows = rows ? hr_store_put_study(store, id, rows) : HR_ERR_MEMORY;
        if (first == HR_OK) first = put_rows;
        put_rows = rows && n_fault_cells ? hr_store_put_ranges(store, id, fault_cells[0], "ncu", rows) : HR_ERR_MEMORY;
        if (first == HR_OK) first = put_rows;
        json_decref(rows);
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
    /* no half of a cell, replaced or refused ones included */
    if (strcmp(ask(store,
                   "SELECT count(*) FROM cell c WHERE 2 <> (SELECT count(*) FROM sample s WHERE s.run_id = c.run_id "
                   "AND s.cell_id = c.cell_id) OR 2 <> (SELECT count(*) FROM op o WHERE o.run_id = c.run_id AND "
                   "o.cell_id = c.cell_id) OR 2 <> (SELECT count(*) FROM recorded r WHERE r.run_id = c.run_id AND "
                   "r.cell_id = c.cell_id)"),
               "0") != 0)
        fail_msg("fault %llu left half of a cell", (unsigned long long)nth);
    if (!strchr("02", ask(store, "SELECT count(*) FROM study")[0]))
        fail_msg("fault %llu left half of a point of the study", (unsigned long long)nth);
    if (!strchr("02", ask(store, "SELECT count(*) FROM range")[0]))
        fail_msg("fault %llu left half of what a profiler saw", (unsigned long long)nth);
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
    json_t *ranges = parse("[{\"name\": \"down:decode\"}]");
    ok(hr_store_put_ranges(store, run, "c1", "ncu", ranges));
    json_decref(ranges);
    hr_store_close(store);
    for (int kind = 0; kind < 2; kind++) {
        hr_fault fault = kind ? HR_FAULT_READ : HR_FAULT_ALLOC;
        bool finished = false;
        for (uint64_t n = 1; !finished; n++) {
            uint64_t before = hr_fault_calls(fault);
            hr_fault_arm(fault, n);
            char *cell_id = NULL, *run_id = NULL;
            json_t *values[9] = {NULL};
            store = NULL;
            hr_status status = hr_store_open(path, false, &store);
            if (status == HR_OK) status = hr_store_resolve_cell(store, "c@last", &cell_id, &run_id);
            if (status == HR_OK) status = hr_store_cell(store, cell_id, run_id, &values[0]);
            if (status == HR_OK) status = hr_store_ops(store, run_id, cell_id, &values[1]);
            if (status == HR_OK) status = hr_store_runs(store, &values[2]);
            if (status == HR_OK) status = hr_store_cells(store, run_id, &values[3]);
            if (status == HR_OK) status = hr_store_study(store, NULL, &values[4]);
            if (status == HR_OK) status = hr_store_samples(store, run_id, cell_id, &values[5]);
            if (status == HR_OK) status = hr_store_recorded(store, run_id, cell_id, &values[6]);
            if (status == HR_OK) status = hr_store_ranges(store, run_id, cell_id, &values[7]);
            if (status == HR_OK) status = hr_store_observe(store, NULL, &values[8]);
            if (status == HR_OK) assert_int_equal(json_array_size(values[7]), 1);
            if (status == HR_OK) assert_int_equal(json_array_size(values[2]), 1);
            if (status == HR_OK) assert_int_equal(json_array_size(values[3]), 1);
            for (int i = 0; i < 9; i++) json_decref(values[i]);
            hr_free(cell_id), hr_free(run_id);
            hr_store_close(store);
            finished = status == HR_OK && hr_fault_calls(fault) - before < n;
            if (n > 20000) fail_msg("the faults never end");
        }
        hr_fault_arm(fault, 0);
    }
    hr_free(run);
}

/* ---- an upgrade that is cut short ---- */

static unsigned char older[1 << 19]; /* a store of an older version, to the byte */
static size_t older_bytes;
static char older_run[17];

static void make_older_bytes(int version, const char *journal) {
    start_anew(false);
    hr_store *store = open_store(true);
    char *run = begin(store), sql[64];
    memcpy(older_run, run, sizeof older_run);
    hr_free(run);
    ok(put(store, older_run, "old"));
    hr_store_close(store);
    make_older(version);
    snprintf(sql, sizeof sql, "PRAGMA journal_mode = %s", journal);
    raw_sql(path, sql);
    older_bytes = read_file(path, older, sizeof older);
    assert_in_range(older_bytes, 4096, sizeof older - 1);
}

static void bring_older(void) {
    char db[300];
    start_anew(false);
    snprintf(db, sizeof db, "%s/db", folder);
    assert_int_equal(mkdir(db, 0755), 0);
    write_file(path, older, older_bytes);
}

static hr_status upgrade_only(void) {
    hr_store *store = NULL;
    const hr_status status = hr_store_open(path, true, &store);
    hr_store_close(store);
    return status;
}

/* All of the new or nothing of it, the old cell as it was, and the next writer brings the store up to date. */
static void assert_old_or_new(int version, uint64_t nth) {
    hr_store *store = NULL;
    json_t *ops = NULL;
    if (hr_store_open(path, false, &store) != HR_OK) fail_msg("fault %llu: %s", (unsigned long long)nth, hr_error());
    const int is = atoi(ask(store, "PRAGMA user_version"));
    const char *news = ask(store, "SELECT (SELECT count(*) FROM sqlite_schema WHERE name IN ('study', 'claim', "
                                  "'recorded', 'range', 'range_of_cell', 'observe')) + (SELECT count(*) FROM "
                                  "pragma_table_info('cell') WHERE name IN ('forced', 'kv_bytes_reserved', "
                                  "'kv_row_bytes', 'softmax', 'gpu_memory', 'graphs', 'gemm', 'device_ms', 'power_w', "
                                  "'energy_mj_token', 'energy_mj_token_prefill', 'sm_mhz', 'memory_mhz', "
                                  "'temperature_c', 'clock_reasons', 'power_limit_w', 'dram_bytes_read', "
                                  "'dram_bytes_write', 'tensor_pct', 'l2_hit_pct', 'warps_active_pct')) + (SELECT "
                                  "count(*) FROM pragma_table_info('op') WHERE "
                                  "name IN ('mean_ns', 'imbalance_ns', 'handoff_ns', 'unit'))");
    static const int news_of[] = {[1] = 0, [2] = 1, [3] = 3, [4] = 14, [5] = 31};
    if ((is != version && is != HR_STORE_VERSION) || atoi(news) != news_of[is])
        fail_msg("fault %llu: version %d became %d with %s of what is new", (unsigned long long)nth, version, is, news);
    assert_string_equal(ask(store, "PRAGMA integrity_check"), "ok");
    ok(hr_store_ops(store, older_run, "old", &ops));
    assert_int_equal(json_array_size(ops), 2);
    json_decref(ops);
    hr_store_close(store);
    char cells[2][32] = {"old", "new"};
    store = open_store(true);
    assert_int_equal(atoi(ask(store, "PRAGMA user_version")), HR_STORE_VERSION);
    ok(put(store, older_run, "new"));
    hr_store_close(store);
    assert_sound(older_run, cells, 2);
}

/* Every n-th call of an upgrade fails, or kills the process. */
static void cut_upgrades(int version, hr_fault kind, uint64_t dense, uint64_t step) {
    bring_older();
    const uint64_t before = hr_fault_calls(kind);
    ok(upgrade_only());
    const uint64_t calls = hr_fault_calls(kind) - before;
    uint64_t failures = 0;
    assert_true(calls > 3);
    for (uint64_t n = 1; n <= calls; n += n < dense ? 1 : step) {
        bring_older();
        fflush(NULL);
        const pid_t child = kind == HR_FAULT_WRITE && fault_write_kills ? fork() : -1;
        if (child <= 0) {
            hr_fault_arm(kind, n);
            const hr_status status = upgrade_only();
            if (child == 0) _exit(0);
            hr_fault_arm(kind, 0);
            failures += status != HR_OK;
        } else {
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            failures += WIFSIGNALED(status);
        }
        assert_old_or_new(version, n);
    }
    assert_true(failures > 0);
}

static void an_upgrade_cut_short_loses_nothing(void **state) {
    (void)state;
    static const char *const journals[] = {"DELETE", "WAL"};
    for (int version = 1; version < HR_STORE_VERSION; version++)
        for (int j = 0; j < 2; j++) {
            make_older_bytes(version, journals[j]);
            fault_write_error = SQLITE_FULL;
            cut_upgrades(version, HR_FAULT_WRITE, UINT64_MAX, 1);
            fault_write_kills = true;
            cut_upgrades(version, HR_FAULT_WRITE, UINT64_MAX, 1);
            fault_write_kills = false;
            if (version > 1) continue; /* the first has most to do */
            fault_write_error = SQLITE_IOERR_WRITE;
            cut_upgrades(version, HR_FAULT_WRITE, UINT64_MAX, 1);
            cut_upgrades(version, HR_FAULT_READ, UINT64_MAX, 1);
            cut_upgrades(version, HR_FAULT_ALLOC, 40, 97);
        }
}

int main(void) {
    if (fault_vfs_install() != 0) return 1;
    const struct CMUnitTest tests[] = {
        T(two_sweeps_share_a_store),
        T(kill_9_loses_no_finished_cell),
        T(any_write_may_fail),
        T(any_read_may_fail),
        T(any_allocation_may_fail),
        T(reading_survives_any_fault),
        T(an_upgrade_cut_short_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
