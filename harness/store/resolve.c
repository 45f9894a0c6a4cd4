/* What a user types for a run or a cell: `last`, `last~k`, an id, an unambiguous prefix, ID@RUN. */
#include "harness/store/store_internal.h"

#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

/* `last` is 0, `last~3` is 3; false when the text is something else. */
static bool parse_last(const char *text, sqlite3_int64 *back) {
    if (strncmp(text, "last", 4) != 0) return false;
    *back = 0;
    if (text[4] == 0) return true;
    size_t digits = strspn(text + 5, "0123456789");
    if (text[4] != '~' || digits == 0 || digits > 18 || text[5 + digits] != 0) return false;
    *back = strtoll(text + 5, NULL, 10);
    return true;
}

static hr_status copy_column(const hr_store *store, sqlite3_stmt *s, int column, char **out) {
    const char *text = (const char *)sqlite3_column_text(s, column);
    *out = text ? hr_strdup(text) : NULL;
    return *out ? HR_OK : hr_store_error(store->path, SQLITE_NOMEM, NULL);
}

static hr_status count_rows(hr_store *store, const char *sql, sqlite3_int64 *count) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = sqlite3_step(s);
    if (rc == SQLITE_ROW) *count = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return hr_store_check(store, rc);
}

/* ERR_INPUT: nothing lies that far back. */
static hr_status too_far(hr_store *store, const char *text, const char *what, const char *sql) {
    sqlite3_int64 n = 0;
    HR_TRY(count_rows(store, sql, &n));
    if (n == 0)
        HR_FAIL(HR_ERR_INPUT, "store %s holds no %ss%s yet: measure something with `headroom sweep`", store->path, what,
                strcmp(what, "run") ? "" : " of cells");
    HR_FAIL(HR_ERR_INPUT, "%s lies before the first of the %lld %s%s in store %s: `headroom runs` lists what it holds",
            text, (long long)n, what, n == 1 ? "" : "s", store->path);
}

/* The row `back` before the newest: columns 0 and, when second is not NULL, 1. */
static hr_status take_back(hr_store *store, const char *sql, sqlite3_int64 back, bool *found, char **first,
                           char **second) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = sqlite3_bind_int64(s, 1, back);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    *found = rc == SQLITE_ROW;
    if (*found && second) status = copy_column(store, s, 1, second);
    if (*found && status == HR_OK) {
        status = copy_column(store, s, 0, first);
        if (status != HR_OK && second) hr_free(*second);
    }
    sqlite3_finalize(s);
    return status;
}

/* The only id that equals the prefix or begins with it. sql gives up to four distinct ids, an exact one first. */
static hr_status unique_id(hr_store *store, const char *sql, const char *what, const char *prefix, const char *run_id,
                           char **out) {
    sqlite3_stmt *s;
    HR_TRY(hr_store_prepare(store, sql, &s));
    int rc = hr_store_bind_text(s, 1, prefix);
    if (rc == SQLITE_OK && run_id) rc = hr_store_bind_text(s, 2, run_id);
    char *ids[4] = {NULL};
    int n = 0;
    hr_status status = hr_store_check(store, rc);
    while (status == HR_OK && n < 4) {
        rc = sqlite3_step(s);
        status = hr_store_check(store, rc);
        if (status != HR_OK || rc == SQLITE_DONE) break;
        status = copy_column(store, s, 0, &ids[n]);
        if (status == HR_OK) n++;
        if (n == 1 && strcmp(ids[0], prefix) == 0) break;
    }
    sqlite3_finalize(s);
    if (status == HR_OK && n == 0)
        status = hr_fail(HR_ERR_INPUT, "no %s in store %s%s%s begins with '%s': `headroom runs` lists what it holds",
                         what, store->path, run_id ? ", run " : "", run_id ? run_id : "", prefix);
    if (status == HR_OK && n > 1)
        status = hr_fail(HR_ERR_INPUT, "'%s' fits several %ss in store %s (%s, %s%s): give more digits", prefix, what,
                         store->path, ids[0], ids[1], n > 2 ? ", ..." : "");
    if (status == HR_OK) *out = ids[0];
    for (int i = status == HR_OK; i < n; i++) hr_free(ids[i]);
    return status;
}

/* `last` counts runs that measure cells: a run of `roof` never holds one. */
#define MEASURES_CELLS " command IS NOT 'roof' "

hr_status hr_store_resolve_run(hr_store *store, const char *text, char **run_id) {
    sqlite3_int64 back;
    if (text[0] == 0)
        HR_FAIL(HR_ERR_INPUT, "a run is `last`, `last~1` or the first digits of its id, not an empty word");
    if (parse_last(text, &back)) {
        bool found = false;
        HR_TRY(take_back(store, "SELECT run_id FROM run WHERE" MEASURES_CELLS "ORDER BY seq DESC LIMIT 1 OFFSET ?",
                         back, &found, run_id, NULL));
        return found ? HR_OK : too_far(store, text, "run", "SELECT count(*) FROM run WHERE" MEASURES_CELLS);
    }
    return unique_id(store,
                     "SELECT run_id FROM run WHERE substr(run_id, 1, length(?1)) = ?1 ORDER BY run_id <> ?1, seq DESC "
                     "LIMIT 4",
                     "run", text, NULL, run_id);
}

static hr_status newest_run_with(hr_store *store, const char *cell_id, char **run_id) {
    sqlite3_stmt *s;
    HR_TRY(
        hr_store_prepare(store,
                         "SELECT cell.run_id FROM cell JOIN run USING (run_id) WHERE cell_id = ? ORDER BY run.seq DESC "
                         "LIMIT 1",
                         &s));
    int rc = hr_store_bind_text(s, 1, cell_id);
    if (rc == SQLITE_OK) rc = sqlite3_step(s);
    hr_status status = hr_store_check(store, rc);
    if (status == HR_OK) status = copy_column(store, s, 0, run_id);
    sqlite3_finalize(s);
    return status;
}

/* ID@RUN: the run first, then the cell within it. */
static hr_status resolve_within(hr_store *store, const char *text, const char *at, char **cell_id, char **run_id) {
    char *prefix = hr_strdup(text), *run = NULL;
    if (!prefix) return hr_store_error(store->path, SQLITE_NOMEM, NULL);
    prefix[at - text] = 0;
    hr_status status = hr_store_resolve_run(store, at + 1, &run);
    if (status == HR_OK)
        status = unique_id(store,
                           "SELECT cell_id FROM cell WHERE substr(cell_id, 1, length(?1)) = ?1 AND run_id = ?2 "
                           "ORDER BY cell_id <> ?1, seq DESC LIMIT 4",
                           "cell", prefix, run, cell_id);
    hr_free(prefix);
    if (status == HR_OK)
        *run_id = run;
    else
        hr_free(run);
    return status;
}

hr_status hr_store_resolve_cell(hr_store *store, const char *text, char **cell_id, char **run_id) {
    sqlite3_int64 back;
    const char *at = strrchr(text, '@');
    if (text[0] == 0 || at == text)
        HR_FAIL(HR_ERR_INPUT,
                "a cell is `last`, `last~1` or the first digits of its id, with @RUN after it for one run");
    if (parse_last(text, &back)) {
        bool found = false;
        HR_TRY(take_back(store, "SELECT cell_id, run_id FROM cell ORDER BY seq DESC LIMIT 1 OFFSET ?", back, &found,
                         cell_id, run_id));
        return found ? HR_OK : too_far(store, text, "cell", "SELECT count(*) FROM cell");
    }
    if (at) return resolve_within(store, text, at, cell_id, run_id);
    char *id = NULL;
    HR_TRY(unique_id(store,
                     "SELECT DISTINCT cell_id FROM cell WHERE substr(cell_id, 1, length(?1)) = ?1 "
                     "ORDER BY cell_id <> ?1, cell_id LIMIT 4",
                     "cell", text, NULL, &id));
    hr_status status = newest_run_with(store, id, run_id);
    if (status == HR_OK)
        *cell_id = id;
    else
        hr_free(id);
    return status;
}
