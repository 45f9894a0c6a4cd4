/* headroom history: cells over nights, and where they changed. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/formats/json_get.h"
#include "harness/history/history.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { CURVE_WIDTH = 24, COMMIT_DIGITS = 9, DATE_DIGITS = 10 };

static const hr_opt opt_cell = {.name = "--cell",
                                .group = "What is shown",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "CELL",
                                .help = "`last`, an id, how ids begin, or a test such as tg128 (default: all)"};
static const hr_opt opt_metric = {.name = "--metric",
                                  .group = "What is shown",
                                  .kind = HR_OPT_WORD,
                                  .choices = hr_history_metrics,
                                  .metavar = "METRIC",
                                  .help = "one metric (default: the share of the roof, of each phase)"};
static const hr_opt opt_machine = {.name = "--machine-class",
                                   .group = "What is shown",
                                   .kind = HR_OPT_TEXT,
                                   .min = 1,
                                   .metavar = "CLASS",
                                   .help = "machines of this class alone (default: all, a series each)"};
static const hr_opt opt_magnitude = {.name = "--magnitude",
                                     .group = "What is a change",
                                     .kind = HR_OPT_TEXT,
                                     .min = 1,
                                     .fallback = "2%",
                                     .metavar = "X%",
                                     .help = "smallest shift of the medians"};
static const hr_opt opt_stayed = {.name = "--stayed",
                                  .group = "What is a change",
                                  .kind = HR_OPT_INT,
                                  .min = 0,
                                  .max = 9,
                                  .fallback = "5",
                                  .metavar = "K",
                                  .help = "so many newest nights beyond the old level are enough; 0: wait for ten"};
static const hr_opt opt_html = {.name = "--html",
                                .group = "Output",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "FILE",
                                .help = "also write a page: a curve per cell, changes marked (curves need gnuplot)"};
static const hr_opt *const options[] = {
    &opt_cell, &opt_metric, &opt_machine, &opt_magnitude, &opt_stayed, HR_OPTS_OUTPUT, &opt_html, &hr_opt_db, NULL};

/* ---- the table ------------------------------------------------------------------------------------------------------- */

static bool locale_is_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static bool set(json_t *row, const char *key, json_t *value) {
    return json_object_set_new(row, key, value) == 0;
}

/* "a..b" with short ids; the same commit on both sides means that something else changed. */
static json_t *short_commits(const char *commits) {
    const char *dots = strstr(commits, ".."), *b = dots ? dots + 2 : "";
    const int n = dots ? (int)(dots - commits) : 0;
    if (!dots) return json_string("");
    if (strlen(b) == (size_t)n && !strncmp(commits, b, (size_t)n) && *b != '?')
        return json_sprintf("both %.*s", COMMIT_DIGITS, b);
    return json_sprintf("%.*s..%.*s", n < COMMIT_DIGITS ? n : COMMIT_DIGITS, commits, COMMIT_DIGITS, b);
}

static bool add_change(json_t *row, const json_t *change, bool share) {
    const double shift = hr_num(change, "shift_pct");
    const bool better = share ? shift > 0 : shift < 0;
    return set(row, "change", json_sprintf("%.1f %% %s", fabs(shift), better ? "better" : "worse")) &&
           set(row, "since", json_sprintf("%.*s", DATE_DIGITS, hr_word(change, "time"))) &&
           set(row, "commits", short_commits(hr_word(change, "commits"))) &&
           set(row, "stayed", json_incref(json_object_get(change, "nights")));
}

/* What a reader must know of the newest night and of nights without a value. */
static bool add_note(json_t *row, const json_t *newest, size_t n_lost) {
    const char *stop = hr_word(newest, "stop_reason");
    const bool known = !*stop || !strcmp(stop, "converged") || !strcmp(stop, "fixed") || !strcmp(stop, "noise_stable");
    char note[100] = "";
    if (!strcmp(hr_word(newest, "status"), "failed"))
        snprintf(note, sizeof note, "newest failed");
    else if (!known)
        snprintf(note, sizeof note, "newest not converged (%.20s)", stop);
    if (n_lost) {
        const size_t n = strlen(note);
        snprintf(note + n, sizeof note - n, "%s%zu without a value", n ? ", " : "", n_lost);
    }
    return set(row, "note", json_string(note));
}

static bool add_curve(json_t *row, const json_t *points, double scale, bool ascii) {
    const size_t n = json_array_size(points);
    double *values = hr_malloc(hr_mul(n, sizeof *values)), newest = NAN;
    size_t n_lost = 0;
    if (!values) return false;
    for (size_t i = 0; i < n; i++) {
        values[i] = hr_num(json_array_get(points, i), "median");
        if (isfinite(values[i])) newest = values[i];
        n_lost += !isfinite(values[i]);
    }
    char *line = hr_sparkline(values, n, CURVE_WIDTH, ascii);
    const bool ok = line && set(row, "nights", json_integer((json_int_t)(n - n_lost))) &&
                    set(row, "newest", hr_real_or_null(newest * scale)) && set(row, "curve", json_string(line)) &&
                    add_note(row, json_array_get(points, n - 1), n_lost);
    hr_free(line), hr_free(values);
    return ok;
}

static json_t *table_row(const json_t *series, bool ascii) {
    const json_t *changes = json_object_get(series, "change_points");
    const char *metric = hr_word(series, "metric");
    const bool share = hr_history_is_share(metric);
    json_t *row = json_object();
    static const char *const same[] = {"cell_id", "machine_class", "state_class", "metric"};
    bool ok = row != NULL;
    for (size_t i = 0; ok && i < sizeof same / sizeof *same; i++)
        ok = set(row, same[i], json_incref(json_object_get(series, same[i])));
    ok = ok && set(row, "cell", json_incref(json_object_get(series, "title"))) &&
         add_curve(row, json_object_get(series, "points"), share ? 100 : 1, ascii);
    const size_t n = json_array_size(changes);
    if (ok && n) ok = add_change(row, json_array_get(changes, n - 1), share);
    if (ok) return row;
    json_decref(row);
    return NULL;
}

/* Whether the rows differ in the key: a column that says the same in each is left out. */
static bool differs(const json_t *rows, const char *key) {
    const json_t *first = json_object_get(json_array_get(rows, 0), key);
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) if (!json_equal(json_object_get(row, key), first)) return true;
    return false;
}

static hr_status write_table(hr_format format, FILE *stream, const json_t *history) {
    /* Markdown is UTF-8, whatever the terminal is */
    const bool ascii = format == HR_FORMAT_TABLE && !locale_is_utf8();
    const bool share = hr_history_is_share(hr_word(json_array_get(history, 0), "metric"));
    json_t *rows = json_array(), *series;
    bool ok = rows != NULL;
    size_t i, n = 0;
    json_array_foreach((json_t *)history, i, series) ok =
        ok && json_array_append_new(rows, table_row(series, ascii)) == 0;
    if (!ok) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the history");
    }
    const char *keys[16];
    keys[n++] = "cell_id", keys[n++] = "cell";
    if (differs(rows, "machine_class")) keys[n++] = "machine_class|=machine";
    if (differs(rows, "state_class")) keys[n++] = "state_class|=state";
    if (differs(rows, "metric")) keys[n++] = "metric";
    keys[n++] = "nights", keys[n++] = share ? "newest|=newest (%)" : "newest|=newest (ms)", keys[n++] = "curve";
    keys[n++] = "change", keys[n++] = "since", keys[n++] = "commits", keys[n++] = "stayed";
    if (differs(rows, "note") || *hr_word(json_array_get(rows, 0), "note")) keys[n++] = "note";
    keys[n] = NULL;
    const hr_status status = hr_rows_write(format, stream, rows, keys);
    json_decref(rows);
    return status;
}

/* ---- every point as a row, for other programs ------------------------------------------------------------------------ */

static const char *const point_keys[] = {"cell_id",     "test",   "model_filename", "quant",     "machine_class",
                                         "state_class", "metric", "run_id",         "time",      "commit",
                                         "median",      "status", "stop_reason",    "shift_pct", NULL};

static json_t *point_row(const json_t *series, const json_t *point) {
    json_t *row = json_copy((json_t *)point), *change;
    bool ok = row != NULL;
    size_t i;
    for (size_t k = 0; ok && k < 7; k++)
        ok = set(row, point_keys[k], json_incref(json_object_get(series, point_keys[k])));
    json_array_foreach(json_object_get(series, "change_points"), i, change) {
        if (ok && !strcmp(hr_word(change, "run_id"), hr_word(point, "run_id")))
            ok = set(row, "shift_pct", json_incref(json_object_get(change, "shift_pct")));
    }
    if (ok) return row;
    json_decref(row);
    return NULL;
}

static hr_status write_points(hr_format format, FILE *stream, const json_t *history) {
    json_t *rows = json_array(), *series, *point;
    bool ok = rows != NULL;
    size_t i, k;
    json_array_foreach((json_t *)history, i, series) {
        json_array_foreach(json_object_get(series, "points"), k, point) ok =
            ok && json_array_append_new(rows, point_row(series, point)) == 0;
    }
    const hr_status status = ok ? hr_rows_write(format, stream, rows, point_keys)
                                : hr_fail(HR_ERR_MEMORY, "out of memory while printing the history");
    json_decref(rows);
    return status;
}

static hr_status write_one(hr_format format, FILE *stream, const json_t *history) {
    switch (format) {
    case HR_FORMAT_JSON:
        return hr_json_write(stream, history);
    case HR_FORMAT_JSONL:
        return hr_rows_write(format, stream, history, point_keys);
    case HR_FORMAT_TABLE:
    case HR_FORMAT_MD:
        return write_table(format, stream, history);
    default:
        return write_points(format, stream, history);
    }
}

static hr_status print(const hr_output *output, const json_t *history) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = write_one(output->format, out.stream, history);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? write_one(output->err_format, stderr, history) : HR_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------------- */

static hr_status parse_magnitude(const char *text, double *out) {
    char *end;
    const double percent = strtod(text, &end);
    if (end == text || (strcmp(end, "%") && strcmp(end, "")) || !(percent > 0 && percent < 100))
        HR_FAIL(HR_ERR_USAGE, "--magnitude %.40s: a percentage between 0 and 100, as 2%%", text);
    *out = percent / 100;
    return HR_OK;
}

/* `last` and ID@RUN name one cell; any other text is looked for as it is. */
static hr_status resolve_cell(hr_store *store, const char *text, char **cell_id) {
    char *run_id = NULL;
    if (!text || (strncmp(text, "last", 4) && !strchr(text, '@'))) return HR_OK;
    HR_TRY(hr_store_resolve_cell(store, text, cell_id, &run_id));
    hr_free(run_id);
    return HR_OK;
}

static hr_status load(const hr_args *args, hr_history_options *o, json_t **out) {
    const char *db = hr_args_text(args, "--db");
    hr_store *store = NULL;
    char *cell_id = NULL;
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none holds no nights: name a store");
    HR_TRY(hr_store_open(db, false, &store));
    hr_status status = resolve_cell(store, o->cell, &cell_id);
    if (cell_id) o->cell = cell_id;
    if (status == HR_OK) status = hr_history(store, o, out);
    hr_free(cell_id);
    hr_store_close(store);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_history_options o = {.cell = hr_args_text(args, "--cell"),
                            .metric = hr_args_text(args, "--metric"),
                            .machine_class = hr_args_text(args, "--machine-class"),
                            .rule = hr_changes_rule_default()};
    const char *html = hr_args_text(args, "--html");
    json_t *history = NULL;
    bool missing = false;
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK) status = parse_magnitude(hr_args_text(args, "--magnitude"), &o.rule.magnitude);
    o.rule.stayed = (size_t)hr_args_int(args, "--stayed");
    if (status == HR_OK) status = hr_output_check_all(args, (const char *const[]){"--html", "--out", NULL});
    if (status == HR_OK) status = load(args, &o, &history);
    if (status == HR_OK && html) status = hr_history_html(history, html, &missing);
    if (missing && !output.quiet)
        fprintf(stderr, "headroom: %s has no curves, for there is no gnuplot; on Debian: apt-get install gnuplot-nox\n",
                html);
    if (status == HR_OK) status = print(&output, history);
    json_decref(history);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const char *const examples[] = {"headroom history",
                                       "every cell of the store over its nights, newest change first",
                                       "headroom history --cell tg128 --metric tpot --magnitude 3%",
                                       "a time in place of the share of the roof, and only shifts of 3 % or more",
                                       "headroom history --html history.html -o csv --out points.csv",
                                       "a page with curves, and every point as a row for other programs",
                                       NULL};

const hr_command hr_command_history = {
    .name = "history",
    .task = "Judge",
    .summary = "show cells over nights: curves, change points, the commits between",
    .synopsis =
        "headroom history [--cell CELL] [--metric METRIC] [--machine-class CLASS] [--magnitude X%] [--stayed K]\n"
        "                        [--html FILE] [--db FILE] [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run,
};
