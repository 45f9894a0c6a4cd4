/* The kernels of an `ncu --csv` table. Two shapes are read: a line a metric (page details, or --metrics), and a line a
 * launch with a column a metric and the units in the line below the heading (page raw). */
#include "harness/formats/csv_read.h"
#include "harness/profilers/profilers.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct kernel {
    char *name;
    json_t *metrics; /* {name: {value, unit, n}}; value: the mean of the launches, or a text */
    double *ns;      /* [n_ns] times of launches */
    size_t n_ns, room;
    size_t n;        /* launches */
    char launch[32]; /* id of the last one, in tables of a line a metric */
} kernel;

typedef struct table {
    hr_csv csv;
    kernel *kernels;
    size_t n, room;
    size_t n_fields;
    int id, name, metric, unit, value; /* fields; -1: none */
    char **columns, **column_units;    /* [n_fields] of a raw table */
} table;

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory for the kernels");
}

/* Columns of a raw table that say which launch it was; the others are metrics. */
static bool is_identity(const char *heading) {
    static const char *const words[] = {"ID",          "Process ID",  "Process Name", "Host Name",
                                        "Kernel Name", "Kernel Time", "Context",      "Stream",
                                        "Block Size",  "Grid Size",   "Device",       "CC"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], heading)) return true;
    return strstr(heading, "Push/Pop_Range") || strstr(heading, "Start/Stop_Range");
}

static bool is_heading(const hr_csv *csv, void *context) {
    table *t = context;
    t->id = t->name = t->metric = t->unit = t->value = -1;
    for (size_t i = 0; i < csv->n_fields; i++) {
        const char *f = csv->fields[i];
        if (!strcmp(f, "ID")) t->id = (int)i;
        if (!strcmp(f, "Kernel Name")) t->name = (int)i;
        if (!strcmp(f, "Metric Name")) t->metric = (int)i;
        if (!strcmp(f, "Metric Unit")) t->unit = (int)i;
        if (!strcmp(f, "Metric Value")) t->value = (int)i;
    }
    t->n_fields = csv->n_fields;
    return t->id >= 0 && t->name >= 0 && (t->metric < 0) == (t->value < 0);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------- */

static hr_status kernel_of(table *t, const char *name, kernel **out) {
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->kernels[i].name, name)) {
            *out = &t->kernels[i];
            return HR_OK;
        }
    if (!*name) HR_FAIL(HR_ERR_INPUT, "line %zu: a kernel without a name", t->csv.line);
    if (t->n == t->room) {
        const size_t more = t->room ? t->room * 2 : 16;
        kernel *grown = hr_realloc(t->kernels, hr_mul(more, sizeof *grown));
        if (!grown) return no_memory();
        t->kernels = grown, t->room = more;
    }
    kernel *k = &t->kernels[t->n];
    *k = (kernel){.name = hr_strdup(name), .metrics = json_object()};
    t->n++;
    if (!k->name || !k->metrics) return no_memory();
    *out = k;
    return HR_OK;
}

/* NaN for what is no unit of time. */
static double unit_ns(const char *unit) {
    static const struct {
        const char *word;
        double ns;
    } units[] = {{"nsecond", 1},   {"ns", 1},   {"usecond", 1e3}, {"us", 1e3},
                 {"msecond", 1e6}, {"ms", 1e6}, {"second", 1e9},  {"s", 1e9}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(units[i].word, unit)) return units[i].ns;
    return NAN;
}

static hr_status add_time(kernel *k, double ns) {
    if (k->n_ns == k->room) {
        const size_t more = k->room ? k->room * 2 : 8;
        double *grown = hr_realloc(k->ns, hr_mul(more, sizeof *grown));
        if (!grown) return no_memory();
        k->ns = grown, k->room = more;
    }
    k->ns[k->n_ns++] = ns;
    return HR_OK;
}

static bool is_time(const char *metric) {
    return !strcmp(metric, "gpu__time_duration.sum") || !strcmp(metric, "Duration");
}

/* Only digits and what stands between them: meant as a number. */
static bool looks_like_a_number(const char *text) {
    return *text && text[strspn(text, "0123456789.,-")] == 0 && strpbrk(text, "0123456789");
}

/* A metric of one launch joins the mean of the kernel's launches; a text ("CachePreferNone", "n/a") stays as it is. */
static hr_status add_metric(table *t, kernel *k, const char *name, const char *unit, const char *text) {
    double value;
    if (!*text) return HR_OK;
    json_t *metric = json_object_get(k->metrics, name);
    if (!hr_csv_number(text, true, &value)) {
        if (looks_like_a_number(text))
            HR_FAIL(HR_ERR_INPUT, "line %zu: %.80s is \"%.40s\", which is no number: run ncu with LC_ALL=C",
                    t->csv.line, name, text);
        if (metric) return HR_OK;
        metric = json_pack("{s:s, s:s}", "value", text, "unit", unit);
        if (!metric) HR_FAIL(HR_ERR_INPUT, "line %zu: a metric's text is not UTF-8", t->csv.line);
    } else {
        if (is_time(name) && isfinite(unit_ns(unit))) {
            if (value < 0 || value * unit_ns(unit) > 9e18)
                HR_FAIL(HR_ERR_INPUT, "line %zu: %s is \"%.40s\": no kernel takes that long", t->csv.line, name, text);
            HR_TRY(add_time(k, value * unit_ns(unit)));
        }
        const double n = json_number_value(json_object_get(metric, "n"));
        const double mean = json_number_value(json_object_get(metric, "value"));
        value = mean + (value - mean) / (n + 1);
        if (!isfinite(value)) HR_FAIL(HR_ERR_INPUT, "line %zu: %.80s is out of range", t->csv.line, name);
        metric = json_pack("{s:f, s:s, s:I}", "value", value, "unit", unit, "n", (json_int_t)n + 1);
        if (!metric) HR_FAIL(HR_ERR_INPUT, "line %zu: a metric's unit is not UTF-8", t->csv.line);
    }
    if (json_object_set_new(k->metrics, name, metric) != 0)
        HR_FAIL(HR_ERR_INPUT, "line %zu: a metric's name is not UTF-8", t->csv.line);
    return HR_OK;
}

/* ---- the two shapes ------------------------------------------------------------------------------------------------ */

static hr_status metric_line(table *t) {
    const char *const *f = t->csv.fields;
    kernel *k;
    HR_TRY(kernel_of(t, f[t->name], &k));
    if (k->n == 0 || strncmp(k->launch, f[t->id], sizeof k->launch - 1)) k->n++;
    snprintf(k->launch, sizeof k->launch, "%s", f[t->id]);
    if (!*f[t->metric]) return HR_OK; /* a rule's advice */
    return add_metric(t, k, f[t->metric], t->unit < 0 ? "" : f[t->unit], f[t->value]);
}

static void drop_columns(table *t) {
    for (size_t i = 0; t->columns && i < t->n_fields; i++) hr_free(t->columns[i]);
    for (size_t i = 0; t->column_units && i < t->n_fields; i++) hr_free(t->column_units[i]);
    hr_free(t->columns), hr_free(t->column_units);
    t->columns = t->column_units = NULL;
}

static hr_status copy_record(const hr_csv *csv, char ***out) {
    *out = hr_calloc(csv->n_fields, sizeof **out);
    if (!*out) return no_memory();
    for (size_t i = 0; i < csv->n_fields; i++)
        if (!((*out)[i] = hr_strdup(csv->fields[i]))) return no_memory();
    return HR_OK;
}

/* The line of units has no launch. */
static hr_status launch_line(table *t) {
    const char *const *f = t->csv.fields;
    kernel *k;
    if (!*f[t->id] && !*f[t->name] && !t->column_units) return copy_record(&t->csv, &t->column_units);
    if (!t->column_units) HR_FAIL(HR_ERR_INPUT, "line %zu: the units below the heading are missing", t->csv.line);
    HR_TRY(kernel_of(t, f[t->name], &k));
    k->n++;
    for (size_t i = 0; i < t->n_fields; i++)
        if (!is_identity(t->columns[i])) HR_TRY(add_metric(t, k, t->columns[i], t->column_units[i], f[i]));
    return HR_OK;
}

/* What ncu says about itself stands before and behind the table, each line with "==PROF==" or the like. */
static hr_status read_lines(table *t, const char *text, size_t n) {
    bool found;
    HR_TRY(hr_csv_find(&t->csv, text, n, is_heading, t, &found));
    if (!found)
        HR_FAIL(HR_ERR_INPUT, "no table of kernels (columns ID, Kernel Name): write one with `ncu --csv --page raw`");
    if (t->metric < 0) HR_TRY(copy_record(&t->csv, &t->columns));
    for (;;) {
        HR_TRY(hr_csv_next(&t->csv));
        const char *first = t->csv.n_fields ? t->csv.fields[0] : "";
        if (t->csv.n_fields == 0 || (t->csv.n_fields == 1 && (!*first || !strncmp(first, "==", 2)))) break;
        HR_TRY(hr_csv_whole(&t->csv, t->n_fields));
        HR_TRY(t->metric < 0 ? launch_line(t) : metric_line(t));
    }
    if (!t->n) HR_FAIL(HR_ERR_INPUT, "the table has a heading and no kernels: nothing was profiled");
    return HR_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static hr_status set_times(const kernel *k, json_t *row) {
    hr_dist d = {.mean = NAN, .p50 = NAN, .min = NAN, .max = NAN, .stddev = NAN};
    double total = k->n_ns ? 0 : NAN;
    for (size_t i = 0; i < k->n_ns; i++) total += k->ns[i];
    if (k->n_ns) HR_TRY(hr_dist_of(k->ns, k->n_ns, &d));
    const struct {
        const char *key;
        double value;
    } times[] = {{"total_ns", total}, {"mean_ns", d.mean}, {"median_ns", d.p50},
                 {"min_ns", d.min},   {"max_ns", d.max},   {"stddev_ns", d.stddev}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (json_object_set_new(row, times[i].key, hr_real_or_null(times[i].value)) != 0) return no_memory();
    return HR_OK;
}

static hr_status fill_rows(const table *t, json_t *rows) {
    for (size_t i = 0; i < t->n; i++) {
        const kernel *k = &t->kernels[i];
        json_t *row =
            json_pack("{s:s, s:n, s:I, s:O}", "name", k->name, "style", "n", (json_int_t)k->n, "metrics", k->metrics);
        if (!row) HR_FAIL(HR_ERR_INPUT, "the name of a kernel is not UTF-8");
        if (json_array_append_new(rows, row) != 0) return no_memory();
        HR_TRY(set_times(k, row));
    }
    return HR_OK;
}

static hr_status to_rows(const table *t, json_t **out) {
    json_t *rows = json_array();
    const hr_status status = rows ? fill_rows(t, rows) : no_memory();
    if (status == HR_OK)
        *out = rows;
    else
        json_decref(rows);
    return status;
}

hr_status hr_ncu_csv_parse(const char *text, size_t n, const char *name, json_t **rows) {
    table t = {0};
    *rows = NULL;
    hr_csv_init(&t.csv, text, 0);
    hr_status status = read_lines(&t, text, n);
    if (status == HR_OK) status = to_rows(&t, rows);
    drop_columns(&t);
    for (size_t i = 0; i < t.n; i++)
        hr_free(t.kernels[i].name), hr_free(t.kernels[i].ns), json_decref(t.kernels[i].metrics);
    hr_free(t.kernels);
    hr_csv_fini(&t.csv);
    return status == HR_OK ? HR_OK : hr_fail_prefix(status, name);
}
