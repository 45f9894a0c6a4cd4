/* The store and the file system: foreign files, rights, locks, full disks. */
#include "tests/store_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- files that are not a store of ours ---- */

static void other_versions_are_refused(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    hr_store_close(store);
    for (int write = 0; write < 2; write++) {
        raw_sql(path, "PRAGMA user_version = 7");
        fails(hr_store_open(path, write, &store), HR_ERR_INPUT, "schema version 7, this program knows versions 1 to 5");
        assert_non_null(strstr(hr_error(), "newer program"));
        assert_non_null(strstr(hr_error(), path));
        raw_sql(path, "PRAGMA user_version = 0");
        fails(hr_store_open(path, write, &store), HR_ERR_INPUT, "older program");
    }
}

/* Names and types of all columns of all tables, in the order of their names: where an upgrade puts a column is its own. */
static const char all_columns[] = "SELECT t.name || '.' || c.name || ' ' || c.type || c.\"notnull\" FROM sqlite_schema "
                                  "t, pragma_table_info(t.name) c "
                                  "WHERE t.type = 'table' ORDER BY 1";
/* The statements that made what versions 3 and 4 added as a whole. */
static const char new_tables[] =
    "SELECT sql FROM sqlite_schema WHERE tbl_name IN ('study', 'claim', 'recorded', 'range', "
    "'observe') AND sql IS NOT NULL ORDER BY name";

/* All rows of a query of one column, a line each. */
static void list(hr_store *store, const char *sql, char *text, size_t size) {
    sqlite3_stmt *s;
    size_t at = 0;
    text[0] = 0;
    assert_int_equal(sqlite3_prepare_v2(store->db, sql, -1, &s, NULL), SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) {
        at += (size_t)snprintf(text + at, size - at, "%s\n", (const char *)sqlite3_column_text(s, 0));
        assert_true(at < size);
    }
    sqlite3_finalize(s);
    assert_true(at > 0);
}

typedef hr_status get_of_cell(hr_store *store, const char *run_id, const char *cell_id, json_t **out);

static size_t count(hr_status status, json_t *rows) {
    ok(status);
    const size_t n = json_array_size(rows);
    json_decref(rows);
    return n;
}

/* The store as a reader sees it: its cell is whole, what its version lacks is null or empty. */
static void read_older(hr_store *store, const char *run, size_t n_study) {
    static get_of_cell *const none_of_cell[] = {hr_store_recorded, hr_store_ranges};
    static const char *const null_in_ops[] = {"mean_ns", "imbalance_ns", "handoff_ns", "unit"};
    json_t *got = NULL;
    hr_status status = hr_store_cells(store, run, &got);
    assert_int_equal(count(status, got), 1);
    status = hr_store_study(store, NULL, &got);
    assert_int_equal(count(status, got), n_study);
    status = hr_store_claims(store, run, &got);
    assert_int_equal(count(status, got), n_study);
    status = hr_store_observe(store, NULL, &got);
    assert_int_equal(count(status, got), 0);
    for (int i = 0; i < 2; i++) {
        status = none_of_cell[i](store, run, "old", &got);
        assert_int_equal(count(status, got), 0);
    }
    status = hr_store_samples(store, run, "old", &got);
    assert_int_equal(count(status, got), 2);
    ok(hr_store_ops(store, run, "old", &got));
    assert_int_equal(json_array_size(got), 2);
    json_t *op = json_array_get(got, 0);
    assert_true(json_number_value(json_object_get(op, "median_ns")) == 1500.5);
    for (int i = 0; i < 4; i++) assert_true(json_is_null(json_object_get(op, null_in_ops[i])));
    json_decref(got);
}

static void older_versions_are_read_and_upgraded(void **state) {
    (void)state;
    static char fresh[2][32768], upgraded[2][32768];
    for (int version = 1; version < HR_STORE_VERSION; version++) {
        char number[16], cells[2][32] = {"old", "new"};
        snprintf(path, sizeof path, "%s/v%d.db", folder, version);
        hr_store *store = open_store(true);
        list(store, all_columns, fresh[0], sizeof *fresh);
        list(store, new_tables, fresh[1], sizeof *fresh);
        char *run = begin(store);
        ok(put(store, run, cells[0]));
        json_t *row = parse("[{\"key\": \"k\", \"part\": \"p\", \"name\": \"x\", \"id\": \"c\"}]");
        ok(hr_store_put_study(store, run, row));
        ok(hr_store_put_claims(store, run, row));
        json_decref(row);
        hr_store_close(store);
        raw_sql(path, "PRAGMA journal_mode = DELETE");
        make_older(version);
        snprintf(number, sizeof number, "%d", version);

        store = open_store(false);
        read_older(store, run, version >= 3);
        hr_store_close(store);
        store = open_store(false); /* the reader left it as it was */
        assert_string_equal(ask(store, "PRAGMA user_version"), number);
        hr_store *writer = open_store(true); /* and reads on when another program upgrades it */
        read_older(store, run, version >= 3);
        hr_store_close(writer);
        hr_store_close(store);

        store = open_store(true);
        assert_string_equal(ask(store, "PRAGMA user_version"), "5");
        list(store, all_columns, upgraded[0], sizeof *upgraded);
        list(store, new_tables, upgraded[1], sizeof *upgraded);
        assert_string_equal(upgraded[0], fresh[0]);
        assert_string_equal(upgraded[1], fresh[1]);
        read_older(store, run, version >= 3);
        assert_string_equal(ask(store, "SELECT count(*) FROM cell WHERE forced IS NULL AND softmax IS NULL AND "
                                       "gpu_memory IS NULL AND warps_active_pct IS NULL"),
                            "1");
        ok(put(store, run, cells[1]));
        hr_store_close(store);
        assert_sound(run, cells, 2);
        hr_free(run);
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
    child_wants(strstr(hr_error(), "name another file") && strstr(hr_error(), folder));
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
    sqlite3_busy_timeout(store->db, 200); /* not the 5 s of the program, to save time */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        T(other_versions_are_refused),
        T(older_versions_are_read_and_upgraded),
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
