/* store_internal.h - shared by the files of the store and by nobody else. */
#ifndef HR_STORE_INTERNAL_H
#define HR_STORE_INTERNAL_H

#include "harness/store/store.h"

#include <sqlite3.h>

enum {
    HR_STORE_APPLICATION = 0x48525354, /* "HRST", as in results/schema.sql */
    HR_STORE_VERSION = 5,
    HR_STORE_OLDEST = 1, /* that is read, and upgraded when written to */
    HR_STORE_BUSY_MS = 5000,
};

struct hr_store {
    sqlite3 *db;
    char *path;   /* as given, for messages */
    bool grouped; /* inside hr_store_group_begin */
};

extern const char hr_store_schema[]; /* results/schema.sql */

/* What lies at a path, found without opening it as a database. */
typedef enum hr_store_file { HR_STORE_ABSENT, HR_STORE_EMPTY, HR_STORE_OURS } hr_store_file;
/* ERR_INPUT for a folder, a foreign database or no database at all; ERR_IO when it cannot be read. */
hr_status hr_store_classify(const char *path, hr_store_file *out);

/* The one line for an SQLite result code. */
hr_status hr_store_error(const char *path, int rc, const char *detail);
hr_status hr_store_check(hr_store *store, int rc); /* OK, ROW and DONE are HR_OK */

/* Statements. hr_store_finish steps a statement that returns no row and finalizes it, whatever happens. */
hr_status hr_store_prepare(hr_store *store, const char *sql, sqlite3_stmt **out);
hr_status hr_store_finish(hr_store *store, sqlite3_stmt *statement);
hr_status hr_store_exec(hr_store *store, const char *sql);
/* A transaction of one write; inside a group both are the group's business. */
hr_status hr_store_begin(hr_store *store);
/* Ends a transaction that was begun with hr_store_begin or BEGIN IMMEDIATE: COMMIT after HR_OK, else ROLLBACK; the first failure counts. */
hr_status hr_store_end(hr_store *store, hr_status status);
/* NULL binds null. The text is copied. */
int hr_store_bind_text(sqlite3_stmt *statement, int i, const char *text);
/* null, booleans, numbers and texts as they are; anything else as compact JSON. */
int hr_store_bind_json(sqlite3_stmt *statement, int i, const json_t *value);
/* The whole value as compact JSON; out of memory is SQLITE_NOMEM. */
int hr_store_bind_dump(sqlite3_stmt *statement, int i, const json_t *value);

/* Parses a column that holds JSON; null gives JSON null. */
hr_status hr_store_column_json(hr_store *store, sqlite3_stmt *statement, int column, json_t **out);

/* Array of the JSON of column 0 of every row; takes the statement. */
hr_status hr_store_list_json(hr_store *store, sqlite3_stmt *statement, json_t **out);

/* Whether the store has the column (NULL: the table at all); one of an older schema may lack both. */
hr_status hr_store_has(hr_store *store, const char *table, const char *column, bool *has);

/* ERR_INPUT unless the store has the run, the cell in it. */
hr_status hr_store_require_run(hr_store *store, const char *run_id);
hr_status hr_store_require_cell(hr_store *store, const char *run_id, const char *cell_id);

/* Cells as rows: the SQL of the insertion (hr_malloc'ed) and its values; the last parameter is the whole JSON. */
char *hr_store_cell_sql(void);
int hr_store_cell_bind(sqlite3_stmt *statement, const json_t *cell);

void hr_store_now(char out[21]); /* "2026-01-31T23:59:59Z" */

#endif
