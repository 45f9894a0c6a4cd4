/* Opening and closing. Invariants:
 *   1. A file that is not ours is never opened as a database, so it stays as it is to the byte.
 *   2. Schema, application_id and user_version appear in one transaction: a file is empty or complete.
 *   3. A cell with its samples, ops and recorded rows is one transaction (store_write.c), synced when it ends.
 *   4. A store of an older version is brought up to date in one transaction, by the first that opens it for writing.
 *   5. Reading needs no right to write, and makes no store where there is none.
 *
 *   absent, empty --create_schema--> ours --upgrade--> --journal_mode=WAL--> open for writing
 *   ours --open_to_read--> open; where nothing may be written and no log is left behind: open as immutable */
#include "harness/store/store_internal.h"

#include "harness/formats/formats.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *join(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b) + 1;
    char *text = hr_malloc(n + m);
    if (text) memcpy(text, a, n), memcpy(text + n, b, m);
    return text;
}

/* The folder that holds path: "." for a bare name. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = hr_strdup(slash ? path : ".");
    if (folder && slash) folder[slash == path ? 1 : slash - path] = 0;
    return folder;
}

static hr_status make_folders(const char *path) {
    hr_status status = hr_make_folders(path);
    if (status == HR_OK) return HR_OK;
    char why[512];
    snprintf(why, sizeof why, "%s", hr_error());
    return hr_fail(status, "store %s: name another file with --db", why);
}

static bool writable(const char *path, bool file_exists) {
    char *folder = folder_of(path);
    bool yes = folder && access(folder, W_OK) == 0 && (!file_exists || access(path, W_OK) == 0);
    hr_free(folder);
    return yes;
}

static bool has_log(const char *path) {
    char *log = join(path, "-wal");
    struct stat s;
    bool yes = log && stat(log, &s) == 0 && s.st_size > 0;
    hr_free(log);
    return yes;
}

static hr_status connect_to(hr_store *store, const char *name, int flags) {
    int rc = sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_EXRESCODE, NULL);
    if (rc != SQLITE_OK) return hr_store_check(store, rc);
    sqlite3_busy_timeout(store->db, HR_STORE_BUSY_MS);
    return hr_store_exec(store, "PRAGMA foreign_keys = ON");
}

/* file:PATH?immutable=1 with what URIs reserve escaped. */
static char *immutable_uri(const char *path) {
    static const char hex[] = "0123456789ABCDEF";
    char *uri = hr_malloc(hr_mul(strlen(path), 3) + 32), *at = uri;
    if (!uri) return NULL;
    at = stpcpy(at, "file:");
    for (const char *c = path; *c; c++) {
        if (strchr("%?#", *c))
            *at++ = '%', *at++ = hex[(unsigned char)*c >> 4], *at++ = hex[*c & 15];
        else
            *at++ = *c;
    }
    strcpy(at, "?immutable=1");
    return uri;
}

static hr_status open_to_read(hr_store *store, const char *name) {
    if (writable(name, true)) { /* so that a log left by a killed sweep is taken in; nothing else is written */
        HR_TRY(connect_to(store, name, SQLITE_OPEN_READWRITE));
        return hr_store_exec(store, "PRAGMA query_only = ON");
    }
    if (has_log(name)) {
        hr_status status = connect_to(store, name, SQLITE_OPEN_READONLY);
        if (status == HR_OK) status = hr_store_exec(store, "SELECT 1 FROM sqlite_schema LIMIT 1");
        if (status == HR_ERR_IO)
            HR_FAIL(HR_ERR_IO,
                    "store %s has changes in %s-wal that cannot be read in a read-only folder: copy both "
                    "files where they may be written",
                    store->path, store->path);
        return status;
    }
    char *uri = immutable_uri(name);
    if (!uri) HR_FAIL(HR_ERR_MEMORY, "store %s: out of memory", store->path);
    hr_status status = connect_to(store, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    hr_free(uri);
    return status;
}

static hr_status read_pragma(hr_store *store, const char *sql, sqlite3_int64 *value) {
    sqlite3_stmt *statement;
    HR_TRY(hr_store_prepare(store, sql, &statement));
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) *value = sqlite3_column_int64(statement, 0);
    hr_status status = hr_store_check(store, rc);
    sqlite3_finalize(statement);
    return status;
}

/* What older versions lack is read as null or as no rows: no reading statement names the columns of `cell` that came
 * later, and readers of later tables and of later columns of `op` ask whether there are any (hr_store_has). So older
 * stores are read as they are; writing adds what is missing first. */
static hr_status check_version(hr_store *store, sqlite3_int64 *version) {
    HR_TRY(read_pragma(store, "PRAGMA user_version", version));
    if (*version >= HR_STORE_OLDEST && *version <= HR_STORE_VERSION) return HR_OK;
    HR_FAIL(HR_ERR_INPUT,
            "store %s has schema version %lld, this program knows versions %d to %d: use the %s program that made it, "
            "or name another file with --db",
            store->path, (long long)*version, HR_STORE_OLDEST, HR_STORE_VERSION,
            *version > HR_STORE_VERSION ? "newer" : "older");
}

/* Columns that came later, by the version that brought them; tables come from the text of the schema. */
static const struct {
    int version;
    const char *sql;
} later_columns[] = {
    {2, "ALTER TABLE cell ADD COLUMN forced TEXT"},
    {4, "ALTER TABLE cell ADD COLUMN kv_bytes_reserved INTEGER"},
    {4, "ALTER TABLE cell ADD COLUMN kv_row_bytes INTEGER"},
    {4, "ALTER TABLE cell ADD COLUMN softmax TEXT"},
    {4, "ALTER TABLE op ADD COLUMN mean_ns REAL"},
    {4, "ALTER TABLE op ADD COLUMN imbalance_ns REAL"},
    {4, "ALTER TABLE op ADD COLUMN handoff_ns REAL"},
    {4, "ALTER TABLE op ADD COLUMN unit TEXT"},
    {5, "ALTER TABLE cell ADD COLUMN gpu_memory TEXT"},
    {5, "ALTER TABLE cell ADD COLUMN graphs INTEGER"},
    {5, "ALTER TABLE cell ADD COLUMN gemm TEXT"},
    {5, "ALTER TABLE cell ADD COLUMN device_ms REAL"},
    {5, "ALTER TABLE cell ADD COLUMN power_w REAL"},
    {5, "ALTER TABLE cell ADD COLUMN energy_mj_token REAL"},
    {5, "ALTER TABLE cell ADD COLUMN energy_mj_token_prefill REAL"},
    {5, "ALTER TABLE cell ADD COLUMN sm_mhz REAL"},
    {5, "ALTER TABLE cell ADD COLUMN memory_mhz REAL"},
    {5, "ALTER TABLE cell ADD COLUMN temperature_c REAL"},
    {5, "ALTER TABLE cell ADD COLUMN clock_reasons TEXT"},
    {5, "ALTER TABLE cell ADD COLUMN power_limit_w REAL"},
    {5, "ALTER TABLE cell ADD COLUMN dram_bytes_read REAL"},
    {5, "ALTER TABLE cell ADD COLUMN dram_bytes_write REAL"},
    {5, "ALTER TABLE cell ADD COLUMN tensor_pct REAL"},
    {5, "ALTER TABLE cell ADD COLUMN l2_hit_pct REAL"},
    {5, "ALTER TABLE cell ADD COLUMN warps_active_pct REAL"},
};

static hr_status add_what_came_after(hr_store *store, sqlite3_int64 version) {
    for (size_t i = 0; i < sizeof later_columns / sizeof *later_columns; i++)
        if (version < later_columns[i].version) HR_TRY(hr_store_exec(store, later_columns[i].sql));
    const char *tables = version < 3 ? "CREATE TABLE study" : version < 4 ? "CREATE TABLE recorded" : NULL;
    if (tables) HR_TRY(hr_store_exec(store, strstr(hr_store_schema, tables)));
    return hr_store_exec(store, "PRAGMA user_version = 5");
}

/* Looks again under the lock: another process may have been faster. */
static hr_status upgrade(hr_store *store) {
    sqlite3_int64 version = 0;
    HR_TRY(check_version(store, &version));
    if (version == HR_STORE_VERSION) return HR_OK;
    HR_TRY(hr_store_exec(store, "BEGIN IMMEDIATE"));
    hr_status status = check_version(store, &version);
    if (status == HR_OK && version < HR_STORE_VERSION) status = add_what_came_after(store, version);
    return hr_store_end(store, status);
}

/* False for an empty database, which is also what a creation that was cut short rolls back to. */
static hr_status is_made(hr_store *store, bool *made) {
    sqlite3_int64 application = 0;
    HR_TRY(read_pragma(store, "PRAGMA application_id", &application));
    *made = application != 0;
    return HR_OK;
}

/* Another process may have made the schema between our look at the file and the lock. */
static hr_status create_schema(hr_store *store) {
    HR_TRY(hr_store_exec(store, "BEGIN IMMEDIATE"));
    bool made = false;
    hr_status status = is_made(store, &made);
    if (status == HR_OK && !made) status = hr_store_exec(store, hr_store_schema);
    return hr_store_end(store, status);
}

/* The change to WAL needs the file alone for a moment and does not wait for it by itself. A file system without shared
 * memory answers with another mode, which is as safe. */
static hr_status use_log(hr_store *store) {
    for (int waited_ms = 0;; waited_ms += 10) {
        int rc = sqlite3_exec(store->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", NULL, NULL, NULL);
        if ((rc & 0xff) != SQLITE_BUSY || waited_ms >= HR_STORE_BUSY_MS) return hr_store_check(store, rc);
        sqlite3_sleep(10);
    }
}

static hr_status open_to_write(hr_store *store, const char *name, hr_store_file found) {
    if (found == HR_STORE_ABSENT) HR_TRY(make_folders(name));
    if (!writable(name, found != HR_STORE_ABSENT)) return hr_store_error(store->path, SQLITE_READONLY, NULL);
    HR_TRY(connect_to(store, name, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    bool made;
    HR_TRY(is_made(store, &made));
    if (!made) HR_TRY(create_schema(store));
    HR_TRY(upgrade(store));
    return use_log(store);
}

static hr_status no_store(const hr_store *store) {
    HR_FAIL(HR_ERR_INPUT, "there is no store at %s: measure something with `headroom sweep` or name one with --db",
            store->path);
}

static hr_status open_found(hr_store *store, const char *name, bool write) {
    hr_store_file found;
    HR_TRY(hr_store_classify(name, &found));
    if (write) return open_to_write(store, name, found);
    if (found != HR_STORE_OURS) return no_store(store);
    HR_TRY(open_to_read(store, name));
    bool made;
    HR_TRY(is_made(store, &made));
    if (!made) return no_store(store);
    sqlite3_int64 version;
    return check_version(store, &version);
}

hr_status hr_store_open(const char *path, bool write, hr_store **out) {
    hr_store *store = hr_calloc(1, sizeof *store);
    char *name = join(path[0] == ':' ? "./" : "", path); /* ":memory:" is a file like any other */
    if (store) store->path = hr_strdup(path);
    hr_status status = store && name && store->path ? open_found(store, name, write)
                                                    : hr_fail(HR_ERR_MEMORY, "store %s: out of memory", path);
    hr_free(name);
    if (status == HR_OK)
        *out = store;
    else
        hr_store_close(store);
    return status;
}

void hr_store_close(hr_store *store) {
    if (!store) return;
    sqlite3_close(store->db);
    hr_free(store->path);
    hr_free(store);
}
