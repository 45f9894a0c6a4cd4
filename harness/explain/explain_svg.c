/* explain_svg.c - the waterfall: its data, and the picture by gnuplot. */
#include "harness/explain/explain_internal.h"

#include "harness/explain/explain_plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bars by series, as the script colours them. */
static const char *const kinds[] = {"ideal", "loss", "barrier", "gap", "probe", "unexplained", "measured"};
enum { MEASURED = 6, N_KINDS };

/* Losses of op classes under this share of the measured time stand together as "other ops". */
static const double SMALL_SHARE = 0.005;

typedef struct waterfall {
    FILE *f;
    double at; /* ms, where the next bar begins */
    int row;
    double lo, hi;
} waterfall;

static void put_bar(waterfall *w, size_t series, const char *label, double ms) {
    const double from = series == MEASURED ? 0 : w->at, to = series == MEASURED ? ms : w->at + ms;
    w->row++;
    if (w->f) {
        char row[16];
        snprintf(row, sizeof row, "%d", w->row);
        fprintf(w->f, "%zu\t%s\t%s\t%.9g\t%.9g\t%.9g\t%s\n", series + 1, kinds[series], row, from, to, ms, label);
    }
    w->at = to;
    w->lo = fmin(w->lo, fmin(from, to)), w->hi = fmax(w->hi, fmax(from, to));
}

static bool is_small_op(const json_t *term, double whole) {
    return json_object_get(term, "op_ms") && fabs(hr_num(term, "ms")) < SMALL_SHARE * fabs(whole);
}

/* Without a stream it measures: rows and the ends of the axis. */
static hr_status draw(const json_t *explanation, const char *metric, waterfall *w) {
    const json_t *m = json_object_get(json_object_get(explanation, "metrics"), metric), *terms;
    if (!json_is_object(m)) HR_FAIL(HR_ERR_INPUT, "the cell has no %s to draw", metric);
    const bool difference = hr_explain_is_difference(explanation);
    const double whole = hr_num(m, difference ? "b_measured_ms" : "measured_ms");
    terms = json_object_get(m, "terms");
    double small = 0;
    size_t n_small = 0, i;
    json_t *term;
    json_array_foreach((json_t *)terms, i, term) if (is_small_op(term, whole)) small += hr_num(term, "ms"), n_small++;
    for (size_t k = 0; k < MEASURED; k++) {
        json_array_foreach((json_t *)terms, i, term) {
            const double ms = hr_num(term, "ms");
            const bool joined = n_small > 1 && is_small_op(term, whole);
            if (!strcmp(hr_word(term, "kind"), kinds[k]) && !joined && isfinite(ms) && !(difference && ms == 0))
                put_bar(w, k, hr_word(term, "name"), ms);
        }
        if (n_small > 1 && !strcmp(kinds[k], "loss")) put_bar(w, k, "other ops", small);
    }
    put_bar(w, MEASURED, difference ? "difference" : "measured", hr_num(m, "measured_ms"));
    return HR_OK;
}

hr_status hr_explain_tsv(const json_t *explanation, const char *metric, FILE *stream) {
    waterfall w = {.f = stream};
    if (!json_is_object(json_object_get(json_object_get(explanation, "metrics"), metric)))
        HR_FAIL(HR_ERR_INPUT, "the cell has no %s to draw", metric);
    fputs("series\ttitle\trow\tfrom_ms\tto_ms\tms\tlabel\n", stream);
    HR_TRY(draw(explanation, metric, &w));
    return hr_stream_flush(stream);
}

/* ---- the picture ----------------------------------------------------------------------------------------------------- */

enum { ROW_PIXELS = 21, PANEL_PIXELS = 100, KEY_PIXELS = 30 };

/* A folder as a report has it: data/ and plots/ side by side. */
typedef struct folder {
    char root[300], data[320], plots[320];
} folder;

static hr_status make_folder(folder *at) {
    const char *tmp = getenv("TMPDIR");
    snprintf(at->root, sizeof at->root, "%.200s/headroom-explain-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(at->root)) HR_FAIL(HR_ERR_IO, "%s: cannot make a folder for the plot: %s", at->root, strerror(errno));
    snprintf(at->data, sizeof at->data, "%s/data", at->root);
    snprintf(at->plots, sizeof at->plots, "%s/plots", at->root);
    if (mkdir(at->data, 0700) || mkdir(at->plots, 0700))
        HR_FAIL(HR_ERR_IO, "%s: cannot make folders for the plot: %s", at->root, strerror(errno));
    return HR_OK;
}

static void remove_folder(const folder *at) {
    static const char *const files[] = {"data/waterfall_ttft.tsv", "data/waterfall_tpot.tsv", "plots/waterfall.gp",
                                        "plots/waterfall.svg", "plots/gnuplot.err"};
    char path[400];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", at->root, files[i]);
        unlink(path);
    }
    rmdir(at->data), rmdir(at->plots), rmdir(at->root);
}

static hr_status close_file(FILE *f, const char *path, hr_status status) {
    const bool lost = fclose(f) != 0;
    if (status == HR_OK && lost) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    return status;
}

static hr_status write_data(const json_t *explanation, const char *metric, const folder *at) {
    char path[400];
    snprintf(path, sizeof path, "%s/waterfall_%s.tsv", at->data, metric);
    FILE *f = fopen(path, "w");
    if (!f) HR_FAIL(HR_ERR_IO, "%s: %s", path, strerror(errno));
    return close_file(f, path, hr_explain_tsv(explanation, metric, f));
}

static void panel_title(const json_t *explanation, const char *metric, const json_t *m, char *out, size_t n) {
    const json_t *cell = json_object_get(explanation, "cell");
    const char *label = !strcmp(metric, "ttft") ? "TTFT" : "TPOT", *machine = hr_word(cell, "machine_class");
    if (hr_explain_is_difference(explanation))
        snprintf(out, n, "%s: %s minus %s%s%s", label, hr_text_title(cell),
                 hr_text_title(json_object_get(explanation, "vs")), *machine ? ", " : "", machine);
    else if (isfinite(hr_num(m, "ideal_ms")))
        snprintf(out, n, "%s of %s%s%s: %.0f %% of it is ideal", label, hr_text_title(cell), *machine ? ", " : "",
                 machine, hr_num(m, "ideal_ms") / hr_num(m, "measured_ms") * 100);
    else
        snprintf(out, n, "%s of %s%s%s", label, hr_text_title(cell), *machine ? ", " : "", machine);
}

hr_status hr_explain_add_panel(const json_t *explanation, const char *metric, const char *data_name, hr_plot_data *data,
                               int *height) {
    const json_t *m = json_object_get(json_object_get(explanation, "metrics"), metric);
    waterfall w = {.f = NULL};
    char title[400];
    HR_TRY(draw(explanation, metric, &w));
    panel_title(explanation, metric, m, title, sizeof title);
    hr_plot_list_word(data, "panels", data_name);
    hr_plot_list_word(data, "heads", title);
    hr_plot_list_number(data, "rows", w.row);
    hr_plot_list_number(data, "lowest", w.lo);
    hr_plot_list_number(data, "highest", w.hi);
    *height += PANEL_PIXELS + ROW_PIXELS * w.row;
    return HR_OK;
}

static hr_status write_folder(const json_t *explanation, const folder *at, hr_plot *plot) {
    hr_plot_data data = {.rows = json_array(), .titles = json_array(), .vars = json_object()};
    hr_status status = HR_OK;
    bool any = false;
    plot->height = KEY_PIXELS;
    for (size_t i = 0; i < HR_EXPLAIN_METRICS && status == HR_OK; i++) {
        char name[32];
        if (!json_is_object(json_object_get(json_object_get(explanation, "metrics"), hr_explain_metrics[i]))) continue;
        any = true;
        snprintf(name, sizeof name, "waterfall_%s", hr_explain_metrics[i]);
        status = write_data(explanation, hr_explain_metrics[i], at);
        if (status == HR_OK)
            status = hr_explain_add_panel(explanation, hr_explain_metrics[i], name, &data, &plot->height);
    }
    if (status == HR_OK && !any) status = hr_fail(HR_ERR_INPUT, "the cell has no metric to draw");
    if (status == HR_OK && data.failed) status = hr_fail(HR_ERR_MEMORY, "out of memory while drawing a cell");
    if (status == HR_OK) {
        char path[400];
        snprintf(path, sizeof path, "%s/waterfall.gp", at->plots);
        FILE *f = fopen(path, "w");
        status = f ? close_file(f, path, hr_plot_write_script(plot, &data, f))
                   : hr_fail(HR_ERR_IO, "%s: %s", path, strerror(errno));
    }
    json_decref(data.rows), json_decref(data.titles), json_decref(data.vars);
    return status;
}

static hr_status copy_picture(const folder *at, const char *path) {
    char from[400], bytes[16384];
    snprintf(from, sizeof from, "%s/waterfall.svg", at->plots);
    FILE *f = fopen(from, "rb");
    if (!f) HR_FAIL(HR_ERR_IO, "%s: %s", from, strerror(errno));
    hr_out out;
    hr_status status = hr_out_open(path, &out);
    if (status != HR_OK) {
        fclose(f);
        return status;
    }
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, f)) > 0;) fwrite(bytes, 1, n, out.stream);
    fclose(f);
    return hr_out_commit(&out);
}

hr_status hr_explain_svg(const json_t *explanation, const char *path) {
    folder at;
    hr_plot plot = {.name = "waterfall", .script = hr_plot_script_waterfall};
    bool missing = false;
    HR_TRY(make_folder(&at));
    hr_status status = write_folder(explanation, &at, &plot);
    if (status == HR_OK) status = hr_plot_draw(&plot, at.plots, &missing);
    if (status == HR_OK && missing)
        status = hr_fail(HR_ERR_UNSUPPORTED,
                         "%s: there is no gnuplot to draw it; on Debian: apt-get install "
                         "gnuplot-nox",
                         path);
    if (status == HR_OK) status = copy_picture(&at, path);
    remove_folder(&at);
    return status;
}
