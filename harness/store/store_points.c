/* Cells by their columns alone, in the order of series over runs: a night of hundreds of cells is not parsed as JSON. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>

/* A file that was imported is one run, and its cells may be older than runs that were stored before it. */
#define MEASURED \
    "CASE WHEN r.command = 'import' AND julianday(c.test_time) IS NOT NULL THEN c.test_time ELSE r.started END"

enum { FIRST_VALUE = 12 };

static hr_status prepare(hr_store *store, const hr_store_filter *filter, const char *const *columns,
                         sqlite3_stmt **out) {
    char sql[1200];
    /* One cell is looked up run by run, by the index of both ids; all cells are scanned. */
    const bool one = filter->cell_id != NULL;
    snprintf(sql, sizeof sql,
             "SELECT c.cell_id, r.machine_class, c.state_class, c.status, c.stop_reason, c.flags, c.test, "
             "c.model_filename, c.quant, r.run_id, " MEASURED " AS measured, coalesce(r.build_commit, c.build_commit), "
             "%s, %s FROM %s ON c.run_id = r.run_id %s "
             "WHERE c.status IN ('ok', 'failed') "
             "AND (?2 IS NULL OR substr(c.cell_id, 1, length(?2)) = ?2 OR c.test = ?2) "
             "AND (?3 IS NULL OR r.machine_class = ?3) "
             "ORDER BY c.cell_id, r.machine_class, julianday(measured), r.seq",
             columns[0] ? columns[0] : "NULL", columns[1] ? columns[1] : "NULL",
             one ? "run r CROSS JOIN cell c" : "cell c JOIN run r", one ? "AND c.cell_id = ?1" : "");
    HR_TRY(hr_store_prepare(store, sql, out));
    int rc = one ? hr_store_bind_text(*out, 1, filter->cell_id) : SQLITE_OK;
    if (rc == SQLITE_OK) rc = hr_store_bind_text(*out, 2, filter->cell);
    if (rc == SQLITE_OK) rc = hr_store_bind_text(*out, 3, filter->machine_class);
    const hr_status status = hr_store_check(store, rc);
    if (status != HR_OK) sqlite3_finalize(*out);
    return status;
}

hr_status hr_store_points(hr_store *store, const hr_store_filter *filter, const char *const *columns,
                          hr_status (*each)(void *context, const hr_store_point *point), void *context) {
    sqlite3_stmt *s;
    HR_TRY(prepare(store, filter, columns, &s));
    hr_status status = HR_OK;
    int rc = SQLITE_DONE;
    while (status == HR_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        hr_store_point p;
        const char **const texts[FIRST_VALUE] = {&p.cell_id,     &p.machine_class, &p.state_class, &p.status,
                                                 &p.stop_reason, &p.flags,         &p.test,        &p.model_filename,
                                                 &p.quant,       &p.run_id,        &p.time,        &p.commit};
        for (int i = 0; i < FIRST_VALUE; i++) *texts[i] = (const char *)sqlite3_column_text(s, i);
        for (int i = 0; i < HR_STORE_POINT_VALUES; i++) {
            const int type = sqlite3_column_type(s, FIRST_VALUE + i);
            const bool number = type == SQLITE_FLOAT || type == SQLITE_INTEGER;
            p.values[i] = number ? sqlite3_column_double(s, FIRST_VALUE + i) : NAN;
        }
        status = p.cell_id && p.run_id && p.status ? each(context, &p) : hr_store_check(store, SQLITE_NOMEM);
    }
    if (status == HR_OK) status = hr_store_check(store, rc);
    sqlite3_finalize(s);
    return status;
}
