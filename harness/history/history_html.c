/* The page: a curve per cell, two side by side, and the table of changes. */
#include "harness/history/history.h"

#include "harness/formats/formats.h"
#include "harness/formats/json_get.h"
#include "harness/report/report_doc.h"
#include "harness/report/report_plots.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PANELS = 40, PANEL_PIXELS = 136, KEY_PIXELS = 30, DATE_DIGITS = 10, COMMIT_DIGITS = 12, HEAD_LETTERS = 56 };

static const char *const metric_words[][2] = {{"roof_fraction", "share of the roof"},
                                              {"prefill_roof_fraction", "share of the roof, prefill"},
                                              {"mbu", "MBU"},
                                              {"mfu", "MFU"},
                                              {"prefill_mfu", "MFU of prefill"},
                                              {"ttft_ms", "TTFT"},
                                              {"tpot_excl_first_ms", "TPOT"},
                                              {"itl_step_ms", "ITL"},
                                              {"e2e_ms", "E2E"},
                                              {"ttft_prefill_ms", "prefill"}};

static const char *metric_word(const json_t *series) {
    const char *key = hr_word(series, "metric");
    for (size_t i = 0; i < sizeof metric_words / sizeof *metric_words; i++)
        if (!strcmp(key, metric_words[i][0])) return metric_words[i][1];
    return key;
}

static const json_t *list_of(const json_t *series, const char *key) {
    return json_object_get(series, key);
}

/* ---- data of a panel ------------------------------------------------------------------------------------------------- */

/* A folder as a report has it: data/ and plots/ side by side. */
typedef struct folder {
    char root[300], data[320], plots[320];
} folder;

typedef struct panel {
    double scale; /* shares are drawn in percent */
    double lowest, highest;
    size_t nights;
} panel;

static hr_status make_folder(folder *at) {
    const char *tmp = getenv("TMPDIR");
    snprintf(at->root, sizeof at->root, "%.200s/headroom-history-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(at->root)) HR_FAIL(HR_ERR_IO, "%s: cannot make a folder for the plots: %s", at->root, strerror(errno));
    snprintf(at->data, sizeof at->data, "%s/data", at->root);
    snprintf(at->plots, sizeof at->plots, "%s/plots", at->root);
    if (mkdir(at->data, 0700) || mkdir(at->plots, 0700))
        HR_FAIL(HR_ERR_IO, "%s: cannot make folders for the plots: %s", at->root, strerror(errno));
    return HR_OK;
}

static void remove_folder(const folder *at) {
    static const char *const files[] = {"history.gp", "history.svg", "gnuplot.err"};
    char path[400];
    for (size_t i = 0; i < PANELS; i++) {
        snprintf(path, sizeof path, "%s/history_%zu.tsv", at->data, i);
        unlink(path);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", at->plots, files[i]);
        unlink(path);
    }
    rmdir(at->data), rmdir(at->plots), rmdir(at->root);
}

static const json_t *change_at(const json_t *series, const json_t *point) {
    size_t i;
    json_t *change;
    json_array_foreach((json_t *)list_of(series, "change_points"), i, change) {
        if (!strcmp(hr_word(change, "run_id"), hr_word(point, "run_id"))) return change;
    }
    return NULL;
}

/* The level before the first change and after each; of all nights where there was none. */
static double level_of(const json_t *series, const json_t *change, double before, double all) {
    if (change) return hr_num(change, "to");
    if (isfinite(before)) return before;
    const json_t *first = json_array_get(list_of(series, "change_points"), 0);
    return first ? hr_num(first, "from") : all;
}

/* NaN: no memory, or no value. */
static double median_of(const json_t *series) {
    const json_t *points = list_of(series, "points");
    double *values = hr_malloc(hr_mul(json_array_size(points), sizeof *values)), middle = NAN;
    size_t i, n = 0;
    json_t *point;
    if (!values) return NAN;
    json_array_foreach((json_t *)points, i, point) {
        const double value = hr_num(point, "median");
        if (isfinite(value)) values[n++] = value;
    }
    if (n) middle = hr_median(values, n);
    hr_free(values);
    return middle;
}

/* x, median, level, kind of a change that begins there (0 none, 1 settled, 2 stays), whether it is better, its figure. A line
 * of nothing before a change ends the line of the level. */
static void put_points(const json_t *series, panel *p, FILE *f) {
    const bool share = hr_history_is_share(hr_word(series, "metric"));
    const double all = median_of(series);
    double level = NAN;
    size_t i;
    json_t *point;
    *p = (panel){.scale = share ? 100 : 1, .lowest = INFINITY, .highest = -INFINITY};
    fputs("night\tmedian\tlevel\tchange\tbetter\tfigure\n", f);
    json_array_foreach((json_t *)list_of(series, "points"), i, point) {
        const json_t *change = change_at(series, point);
        const double value = hr_num(point, "median") * p->scale, shift = hr_num(change, "shift_pct");
        if (change) fprintf(f, "\n");
        level = level_of(series, change, level, all);
        char figure[40] = "";
        if (change) snprintf(figure, sizeof figure, "%+.1f %%", shift);
        char text[2][40] = {"NaN", "NaN"};
        if (isfinite(value)) snprintf(text[0], sizeof text[0], "%.9g", value);
        if (isfinite(level)) snprintf(text[1], sizeof text[1], "%.9g", level * p->scale);
        fprintf(f, "%zu\t%s\t%s\t%d\t%d\t%s\n", i + 1, text[0], text[1],
                !change                                            ? 0
                : json_is_true(json_object_get(change, "settled")) ? 1
                                                                   : 2,
                change && (share ? shift > 0 : shift < 0), figure);
        if (isfinite(value)) p->lowest = fmin(p->lowest, value), p->highest = fmax(p->highest, value);
    }
    p->nights = json_array_size(list_of(series, "points"));
}

static void panel_title(const json_t *series, bool machines, char *out, size_t n) {
    const char *title = hr_word(series, "title"), *state = hr_word(series, "state_class");
    char rest[120];
    snprintf(rest, sizeof rest, "%s%s%s%.60s", *state ? ", " : "", state, machines ? ", " : "",
             machines ? hr_word(series, "machine_class") : "");
    const int room = HEAD_LETTERS - (int)strlen(rest);
    if ((int)strlen(title) > room)
        snprintf(out, n, "%.*s...%s", room > 10 ? room - 3 : 7, title, rest);
    else
        snprintf(out, n, "%s%s", title, rest);
    hr_text_whole(out);
}

static hr_status add_panel(const json_t *series, size_t k, bool machines, const folder *at, hr_plot_data *data) {
    char path[400], name[40], head[300], unit[80], date[2][16];
    const json_t *points = list_of(series, "points");
    panel p;
    snprintf(name, sizeof name, "history_%zu", k);
    snprintf(path, sizeof path, "%s/%s.tsv", at->data, name);
    FILE *f = fopen(path, "w");
    if (!f) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    put_points(series, &p, f);
    const bool lost = ferror(f) != 0;
    if (fclose(f) != 0 || lost) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    panel_title(series, machines, head, sizeof head);
    snprintf(unit, sizeof unit, "%s, %s", metric_word(series), p.scale == 1 ? "ms" : "%");
    snprintf(date[0], sizeof date[0], "%.*s", DATE_DIGITS, hr_word(json_array_get(points, 0), "time"));
    snprintf(date[1], sizeof date[1], "%.*s", DATE_DIGITS, hr_word(json_array_get(points, p.nights - 1), "time"));
    hr_plot_list_word(data, "panels", name);
    hr_plot_list_word(data, "heads", head);
    hr_plot_list_word(data, "units", unit);
    hr_plot_list_word(data, "first", date[0]);
    hr_plot_list_word(data, "last", strcmp(date[0], date[1]) ? date[1] : "");
    hr_plot_list_number(data, "nights", (double)p.nights);
    hr_plot_list_number(data, "lowest", p.lowest);
    hr_plot_list_number(data, "highest", p.highest);
    return HR_OK;
}

/* ---- a picture ---------------------------------------------------------------------------------------------------------- */

static hr_status write_script(const hr_plot *plot, const hr_plot_data *data, const folder *at) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s.gp", at->plots, plot->name);
    FILE *f = fopen(path, "w");
    if (!f) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    const hr_status status = hr_plot_write_script(plot, data, f);
    const bool lost = ferror(f) != 0;
    if (fclose(f) != 0 || lost) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    return status;
}

static hr_status read_picture(const folder *at, char **svg) {
    char path[400];
    struct stat info;
    snprintf(path, sizeof path, "%s/history.svg", at->plots);
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &info) != 0) {
        const int error = errno;
        if (f) fclose(f);
        HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(error));
    }
    char *text = hr_malloc((size_t)info.st_size + 1);
    const size_t n = text ? fread(text, 1, (size_t)info.st_size, f) : 0;
    fclose(f);
    if (!text) HR_FAIL(HR_ERR_MEMORY, "out of memory while drawing the history");
    text[n] = 0;
    *svg = text;
    return HR_OK;
}

/* The series from begin on, PANELS at most, as one picture; *svg NULL: there is no gnuplot. */
static hr_status draw(const json_t *history, size_t begin, bool machines, const folder *at, char **svg) {
    hr_plot_data data = {.rows = json_array(), .titles = json_array(), .vars = json_object()};
    const size_t left = json_array_size(history) - begin, n = left < PANELS ? left : PANELS;
    hr_plot plot = {.name = "history", .script = hr_plot_script_history};
    bool missing = false;
    hr_status status = HR_OK;
    plot.height = KEY_PIXELS + PANEL_PIXELS * (int)((n + 1) / 2);
    for (size_t i = 0; i < n && status == HR_OK; i++)
        status = add_panel(json_array_get(history, begin + i), i, machines, at, &data);
    if (status == HR_OK && data.failed) status = hr_fail(HR_ERR_MEMORY, "out of memory while drawing the history");
    if (status == HR_OK) status = write_script(&plot, &data, at);
    if (status == HR_OK) status = hr_plot_draw(&plot, at->plots, &missing);
    if (status == HR_OK && !missing) status = read_picture(at, svg);
    json_decref(data.rows), json_decref(data.titles), json_decref(data.vars);
    return status;
}

/* ---- words ---------------------------------------------------------------------------------------------------------------- */

typedef struct mark {
    const json_t *series, *change;
} mark;

static int newest_first(const void *a, const void *b) {
    const mark *x = a, *y = b;
    const int order = strcmp(hr_word(y->change, "time"), hr_word(x->change, "time"));
    if (order) return order;
    const double p = fabs(hr_num(x->change, "shift_pct")), q = fabs(hr_num(y->change, "shift_pct"));
    return p < q ? 1 : p > q ? -1 : strcmp(hr_word(x->series, "cell_id"), hr_word(y->series, "cell_id"));
}

static bool is_better(const mark *m) {
    const double shift = hr_num(m->change, "shift_pct");
    return hr_history_is_share(hr_word(m->series, "metric")) ? shift > 0 : shift < 0;
}

static const char *value_text(const mark *m, const char *key) {
    const double value = hr_num(m->change, key);
    return hr_history_is_share(hr_word(m->series, "metric")) ? hr_text_num(value * 100) : hr_text_num(value);
}

static void put_changes(hr_doc *doc, const mark *marks, size_t n) {
    static const char *const headings[] = {"since",  "cell",    "metric",  ">before",   ">after",  ">shift (%)",
                                           "is now", "commits", ">nights", "first run", "machine", NULL};
    hr_doc_heading(doc, 2, "Changes");
    if (!n) {
        hr_doc_para(doc, "None: within each series all nights lie on one level.");
        return;
    }
    hr_doc_table(doc, headings);
    for (size_t i = 0; i < n; i++) {
        const mark *m = &marks[i];
        const char *commits = hr_word(m->change, "commits"), *dots = strstr(commits, "..");
        const int before = dots && dots - commits < COMMIT_DIGITS ? (int)(dots - commits) : COMMIT_DIGITS;
        hr_doc_cell(doc, "%.*s", DATE_DIGITS, hr_word(m->change, "time"));
        hr_doc_cell(doc, "%s%s%s", hr_word(m->series, "title"), *hr_word(m->series, "state_class") ? ", " : "",
                    hr_word(m->series, "state_class"));
        hr_doc_cell(doc, "%s", metric_word(m->series));
        hr_doc_cell(doc, "%s", value_text(m, "from"));
        hr_doc_cell(doc, "%s", value_text(m, "to"));
        hr_doc_cell(doc, "%+.1f", hr_num(m->change, "shift_pct"));
        hr_doc_cell(doc, "%s%s", is_better(m) ? "better" : "worse",
                    json_is_true(json_object_get(m->change, "settled")) ? "" : ", not settled");
        hr_doc_cell(doc, "%.*s..%.*s", before, commits, COMMIT_DIGITS, dots ? dots + 2 : "");
        hr_doc_cell(doc, "%.0f", hr_num(m->change, "nights"));
        hr_doc_cell(doc, "%s", hr_word(m->change, "run_id"));
        hr_doc_cell(doc, "%s", hr_word(m->series, "machine_class"));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
    hr_doc_para(
        doc,
        "Shares are in percent, times in ms; before and after are medians of the nights on either side. Commits are "
        "those of the last night before and of the first night after: the same on both sides means that "
        "something else than the code changed. Not settled: fewer than ten nights so far, all beyond the old "
        "level.");
}

static void put_lead(hr_doc *doc, const json_t *history, const mark *marks, size_t n) {
    if (!n) {
        hr_doc_lead(doc, "%s, no change.", hr_text_of((double)json_array_size(history), "curve"));
        return;
    }
    hr_doc_lead(doc, "%s, %s. Newest: %s, %s %+.1f %% since %.*s, which is %s; it has stayed for %s.",
                hr_text_of((double)json_array_size(history), "curve"), hr_text_of((double)n, "change"),
                hr_word(marks->series, "title"), metric_word(marks->series), hr_num(marks->change, "shift_pct"),
                DATE_DIGITS, hr_word(marks->change, "time"), is_better(marks) ? "better" : "worse",
                hr_text_of(hr_num(marks->change, "nights"), "night"));
}

static bool several_machines(const json_t *history) {
    const char *first = hr_word(json_array_get(history, 0), "machine_class");
    size_t i;
    json_t *series;
    json_array_foreach((json_t *)history, i, series) if (strcmp(first, hr_word(series, "machine_class"))) return true;
    return false;
}

static hr_status put_curves(hr_doc *doc, const json_t *history, const folder *at, bool *missing) {
    hr_doc_heading(doc, 2, "Curves");
    for (size_t begin = 0; begin < json_array_size(history); begin += PANELS) {
        char name[40], *svg = NULL;
        HR_TRY(draw(history, begin, several_machines(history), at, &svg));
        snprintf(name, sizeof name, "curves-%zu", begin / PANELS + 1);
        hr_doc_picture(
            doc, name, "Cells over nights",
            "Those that changed last come first. A vertical line is where a level ends, dashed while the new one is "
            "not settled; the axis spans at least 5 %, so that noise between nights looks flat.",
            svg);
        *missing |= svg == NULL;
        hr_free(svg);
    }
    return HR_OK;
}

static hr_status collect(const json_t *history, mark **out, size_t *n) {
    size_t i, k;
    json_t *series, *change;
    *n = 0;
    json_array_foreach((json_t *)history, i, series) *n += json_array_size(list_of(series, "change_points"));
    mark *marks = hr_malloc(hr_mul(*n + 1, sizeof *marks)), *m = marks;
    if (!marks) HR_FAIL(HR_ERR_MEMORY, "out of memory while writing the history");
    json_array_foreach((json_t *)history, i, series) {
        json_array_foreach((json_t *)list_of(series, "change_points"), k, change) *m++ = (mark){series, change};
    }
    qsort(marks, *n, sizeof *marks, newest_first);
    *out = marks;
    return HR_OK;
}

static hr_status write_page(const json_t *history, const folder *at, FILE *html, FILE *md, bool *missing) {
    hr_doc doc = {.html = html, .md = md};
    mark *marks;
    size_t n;
    HR_TRY(collect(history, &marks, &n));
    hr_doc_begin(&doc, "Headroom: cells over nights");
    put_lead(&doc, history, marks, n);
    hr_status status = put_curves(&doc, history, at, missing);
    put_changes(&doc, marks, n);
    hr_doc_end(&doc);
    hr_free(marks);
    return status;
}

hr_status hr_history_html(const json_t *history, const char *path, bool *missing) {
    folder at;
    hr_out out;
    *missing = false;
    HR_TRY(make_folder(&at));
    hr_status status = hr_out_open(path, &out);
    if (status == HR_OK) {
        FILE *md = fopen("/dev/null", "w"); /* a document is always written both ways */
        status = md ? write_page(history, &at, out.stream, md, missing)
                    : hr_fail(HR_ERR_IO, "/dev/null: %s", strerror(errno));
        if (md) fclose(md);
        if (status == HR_OK)
            status = hr_out_commit(&out);
        else
            hr_out_abandon(&out);
    }
    remove_folder(&at);
    return status;
}
