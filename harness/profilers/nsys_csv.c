/* The range table of nsys, out of the CSV that any version writes: columns are known by their words, units stand in the
 * heading. */
#include "harness/formats/csv_read.h"
#include "harness/profilers/profilers.h"
#include "harness/stats/stats.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static const double LONGEST_NS = 9e18; /* 285 years: what 64 bits of ns hold */

typedef enum column { SHARE, TOTAL, COUNT, MEAN, MEDIAN, LEAST, MOST, STDDEV, STYLE, RANGE, N_COLUMNS } column;

/* Words of a heading, small, without the unit; the older ones of some versions behind them. */
static const struct {
    column column;
    const char *word;
} headings[] = {{SHARE, "time"},   {TOTAL, "total time"}, {COUNT, "instances"}, {MEAN, "avg"},      {MEAN, "average"},
                {MEDIAN, "med"},   {MEDIAN, "median"},    {LEAST, "min"},       {LEAST, "minimum"}, {MOST, "max"},
                {MOST, "maximum"}, {STDDEV, "stddev"},    {STYLE, "style"},     {RANGE, "range"}};

static const struct {
    column column;
    const char *key;
} times[] = {{TOTAL, "total_ns"}, {MEAN, "mean_ns"}, {MEDIAN, "median_ns"},
             {LEAST, "min_ns"},   {MOST, "max_ns"},  {STDDEV, "stddev_ns"}};

static const struct {
    const char *word;
    double ns;
} units[] = {{"", 1},     {"ns", 1},     {"nsec", 1}, {"us", 1e3}, {"usec", 1e3}, {"\xc2\xb5s", 1e3},
             {"ms", 1e6}, {"msec", 1e6}, {"s", 1e9},  {"sec", 1e9}};

typedef struct table {
    hr_csv csv;
    int at[N_COLUMNS]; /* field of a column, -1: none */
    double ns[N_COLUMNS];
    size_t n_fields;
    bool other; /* a heading of another report of nsys was seen */
    double shares;
    json_t *rows;
} table;

/* "Total Time (ns)" as "total time" and "ns". */
static void split_heading(const char *field, char word[32], char unit[16]) {
    size_t n = 0, k = 0;
    for (; *field && *field != '(' && n < 31; field++) word[n++] = (char)tolower((unsigned char)*field);
    while (n && word[n - 1] == ' ') n--;
    word[n] = 0;
    if (*field == '(')
        for (field++; *field && *field != ')' && k < 15; field++) unit[k++] = *field;
    unit[k] = 0;
}

static double unit_ns(const char *unit) {
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(units[i].word, unit)) return units[i].ns;
    return NAN;
}

/* Whether the record just read is the heading of a range table. */
static bool is_heading(const hr_csv *csv, void *context) {
    table *t = context;
    bool named = false;
    for (int c = 0; c < N_COLUMNS; c++) t->at[c] = -1;
    for (size_t i = 0; i < csv->n_fields; i++) {
        char word[32], unit[16];
        split_heading(csv->fields[i], word, unit);
        for (size_t h = 0; h < sizeof headings / sizeof *headings; h++) {
            if (strcmp(headings[h].word, word)) continue;
            t->at[headings[h].column] = (int)i;
            t->ns[headings[h].column] = unit_ns(unit);
        }
        named |= !strcmp(word, "name");
    }
    t->n_fields = csv->n_fields;
    const bool sums = t->at[TOTAL] >= 0 && t->at[COUNT] >= 0;
    t->other |= sums && named;
    return sums && t->at[RANGE] >= 0;
}

static hr_status find_heading(table *t, const char *text, size_t n) {
    bool found;
    HR_TRY(hr_csv_find(&t->csv, text, n, is_heading, t, &found));
    if (found) return HR_OK;
    if (t->other)
        HR_FAIL(HR_ERR_INPUT, "a table of another report of nsys: export the ranges, `nsys stats --report nvtx_sum "
                              "--format csv FILE.nsys-rep` (nvtxsum before 2023)");
    HR_FAIL(HR_ERR_INPUT, "no table of NVTX ranges (columns Total Time, Instances, Range): export one with `nsys stats "
                          "--report nvtx_sum --format csv FILE.nsys-rep` (nvtxsum before 2023)");
}

static const char *field(const table *t, column c) {
    return t->at[c] < 0 ? "" : t->csv.fields[t->at[c]];
}

/* A number of 0 or above, or NaN for an empty field. */
static hr_status number(const table *t, column c, const char *heading, double *out) {
    const char *text = field(t, c);
    *out = NAN;
    if (!*text) return HR_OK;
    if (!hr_csv_number(text, true, out) || *out < 0)
        HR_FAIL(HR_ERR_INPUT, "line %zu: %s is \"%.40s\", which is no number of 0 or above", t->csv.line, heading,
                text);
    return HR_OK;
}

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory for the ranges");
}

/* Ranges of our domain go by their bare names, which are those of the ops. */
static const char *bare(const char *name) {
    static const char domain[] = "headroom:";
    return !strncmp(name, domain, sizeof domain - 1) ? name + sizeof domain - 1 : name;
}

static hr_status set(json_t *row, const char *key, json_t *value) {
    return json_object_set_new(row, key, value) == 0 ? HR_OK : no_memory();
}

static hr_status set_text(const table *t, json_t *row, const char *key, const char *text) {
    json_t *value = *text ? json_string(text) : json_null();
    if (!value) HR_FAIL(HR_ERR_INPUT, "line %zu: the %s of the range is not UTF-8", t->csv.line, key);
    return set(row, key, value);
}

static hr_status add_row(table *t) {
    const char *name = bare(field(t, RANGE));
    double count, share;
    if (!*name) HR_FAIL(HR_ERR_INPUT, "line %zu: a range without a name", t->csv.line);
    HR_TRY(number(t, COUNT, "Instances", &count));
    HR_TRY(number(t, SHARE, "Time (%)", &share));
    if (!(count >= 1 && count <= 9007199254740992.0) || count != floor(count))
        HR_FAIL(HR_ERR_INPUT, "line %zu: Instances is \"%.40s\", which is no count", t->csv.line, field(t, COUNT));
    t->shares += share; /* NaN where a version does not say */
    json_t *row = json_object();
    if (!row || json_array_append_new(t->rows, row) != 0) return no_memory();
    HR_TRY(set_text(t, row, "name", name));
    HR_TRY(set_text(t, row, "style", field(t, STYLE)));
    HR_TRY(set(row, "n", json_integer((json_int_t)count)));
    HR_TRY(set(row, "share_pct", hr_real_or_null(share)));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        double value;
        HR_TRY(number(t, times[i].column, times[i].key, &value));
        value *= t->ns[times[i].column];
        if (value > LONGEST_NS)
            HR_FAIL(HR_ERR_INPUT, "line %zu: %s is \"%.40s\": no run takes that long", t->csv.line, times[i].key,
                    field(t, times[i].column));
        if (times[i].column == TOTAL && !isfinite(value))
            HR_FAIL(HR_ERR_INPUT, "line %zu: Total Time is empty", t->csv.line);
        HR_TRY(set(row, times[i].key, hr_real_or_null(value)));
    }
    return HR_OK;
}

static hr_status check_units(const table *t) {
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (t->at[times[i].column] >= 0 && !isfinite(t->ns[times[i].column]))
            HR_FAIL(HR_ERR_INPUT, "a unit of time that is not known: export with `--timeunit nsec`");
    return HR_OK;
}

/* Shares are rounded to a tenth of a percent each. */
static hr_status check_whole(const table *t) {
    const size_t n = json_array_size(t->rows);
    if (!n) HR_FAIL(HR_ERR_INPUT, "the table has a heading and no ranges: nothing was captured");
    if (isfinite(t->shares) && fabs(t->shares - 100) > 0.5 + 0.05 * (double)n)
        HR_FAIL(HR_ERR_INPUT, "the shares of the ranges add up to %.1f %%, not to 100: rows are missing or changed",
                t->shares);
    return HR_OK;
}

static hr_status read_table(table *t, const char *text, size_t n) {
    HR_TRY(find_heading(t, text, n));
    HR_TRY(check_units(t));
    for (;;) {
        HR_TRY(hr_csv_next(&t->csv));
        if (t->csv.n_fields == 0 || (t->csv.n_fields == 1 && !*t->csv.fields[0])) break; /* the end, or an empty line */
        HR_TRY(hr_csv_whole(&t->csv, t->n_fields));
        HR_TRY(add_row(t));
    }
    return check_whole(t);
}

hr_status hr_nsys_csv_parse(const char *text, size_t n, const char *name, json_t **rows) {
    table t = {.rows = json_array()};
    *rows = NULL;
    hr_csv_init(&t.csv, text, 0);
    hr_status status = t.rows ? read_table(&t, text, n) : no_memory();
    hr_csv_fini(&t.csv);
    if (status == HR_OK) {
        *rows = t.rows;
        return HR_OK;
    }
    json_decref(t.rows);
    return hr_fail_prefix(status, name);
}
