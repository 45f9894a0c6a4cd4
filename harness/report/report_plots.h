/* report_plots.h - the plots: what each shows, the data that it is drawn from, and how it is drawn. */
#ifndef HR_REPORT_PLOTS_H
#define HR_REPORT_PLOTS_H

#include "harness/report/report_label.h"

/* What a plot is drawn from. A row is an array: the number of its series (from 1), then the values of the columns. */
typedef struct hr_plot_data {
    json_t *rows;
    json_t *tsv;    /* a text that is the data instead of the rows; NULL: the rows are */
    json_t *titles; /* of the series, for the key */
    json_t *vars;   /* settings that the script reads: numbers and texts */
    char why[400];  /* why it is not drawn; "" when it is */
    char more[400]; /* added to the caption, "" for nothing */
    int height;     /* of the picture; 0: the plot's own */
    bool failed;    /* out of memory */
} hr_plot_data;

typedef struct hr_plot {
    const char *name; /* of data/NAME.tsv, plots/NAME.gp, plots/NAME.svg */
    const char *section, *title, *caption;
    const char *const *columns; /* NULL-ended headings of the columns, after `series` and `title` */
    void (*fill)(const hr_report *report, hr_plot_data *data);
    const char *script; /* text of plots/SCRIPT.gp */
    int height;         /* of the picture; it is 900 wide */
} hr_plot;

extern const hr_plot hr_plots[];
extern const size_t hr_plots_count;
extern const char hr_plot_style[];            /* text of plots/style.gp: what all plots share */
extern const char hr_plot_script_waterfall[]; /* text of plots/waterfall.gp: harness/explain/ draws it, too */
extern const char hr_plot_script_history[];   /* text of plots/history.gp: harness/history/ draws it */

/* Series that differ in one axis only: (x, y, lo, hi) of cells by `line` (report_series.c) and friends. */
void hr_fill_bandwidth(const hr_report *report, hr_plot_data *data);
void hr_fill_peaks(const hr_report *report, hr_plot_data *data);
void hr_fill_roofline(const hr_report *report, hr_plot_data *data);
void hr_fill_roofline_ops(const hr_report *report, hr_plot_data *data);
void hr_fill_ttft(const hr_report *report, hr_plot_data *data);
void hr_fill_tpot_batch(const hr_report *report, hr_plot_data *data);
void hr_fill_tpot_depth(const hr_report *report, hr_plot_data *data);
void hr_fill_mbu(const hr_report *report, hr_plot_data *data);
void hr_fill_layouts(const hr_report *report, hr_plot_data *data);
void hr_fill_request(const hr_report *report, hr_plot_data *data);
void hr_fill_ops_prefill(const hr_report *report, hr_plot_data *data);
void hr_fill_ops_decode(const hr_report *report, hr_plot_data *data);
void hr_fill_kv_heatmap(const hr_report *report, hr_plot_data *data); /* report_kv_plots.c */
void hr_fill_kv_curves(const hr_report *report, hr_plot_data *data);
void hr_fill_kv_allocators(const hr_report *report, hr_plot_data *data);
void hr_fill_kv_concurrency(const hr_report *report, hr_plot_data *data);
void hr_fill_waterfall_tpot(const hr_report *report, hr_plot_data *data); /* report_why.c */
void hr_fill_waterfall_ttft(const hr_report *report, hr_plot_data *data);

/* ---- for the functions that fill */

size_t hr_plot_series(hr_plot_data *data, const char *title); /* a new one; its number */
/* A row of numbers (NaN: unknown); texts follow by hr_plot_text. Borrowed; may be NULL after a failure. */
json_t *hr_plot_row(hr_plot_data *data, size_t series, const double *values, size_t n);
void hr_plot_text(hr_plot_data *data, json_t *row, const char *text);
/* The settings of the script; lists grow by one call each. */
void hr_plot_number(hr_plot_data *data, const char *name, double value);
void hr_plot_count(hr_plot_data *data, const char *name, size_t value); /* for gnuplot 3 / 2 is 1, 3. / 2 is 1.5 */
void hr_plot_list_count(hr_plot_data *data, const char *name, size_t value);
void hr_plot_list_number(hr_plot_data *data, const char *name, double value);
void hr_plot_list_word(hr_plot_data *data, const char *name, const char *text);
/* Adds a sentence to the caption. */
void hr_plot_more(hr_plot_data *data, const char *format, ...) __attribute__((format(printf, 2, 3)));
void hr_plot_why(hr_plot_data *data, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The 95 % interval of the median, or min..max where it is undefined. NaN: unknown. */
void hr_plot_interval(const json_t *cell, const char *dist, double *lo, double *hi);

/* Times of different states of the machine do not compare; a plot that joins them says so in its caption. */
enum { HR_STATES = 4 };
typedef struct hr_plot_states {
    size_t n[HR_STATES];
} hr_plot_states;
void hr_plot_see_state(hr_plot_states *states, const json_t *cell);
void hr_plot_note_states(const hr_plot_states *states, hr_plot_data *data);
/* Values of all axes but those named (NULL-ended): cells of equal keys differ in these alone. key: [HR_KEY_BYTES]. */
enum { HR_KEY_BYTES = 1024 };
void hr_report_key(const json_t *cell, const char *const *without, char *key);

/* ---- writing */

hr_status hr_plot_write_tsv(const hr_plot *plot, const hr_plot_data *data, FILE *stream);
hr_status hr_plot_write_script(const hr_plot *plot, const hr_plot_data *data, FILE *stream);
/* Runs gnuplot on plots/NAME.gp in that folder; *missing: there is no gnuplot. */
hr_status hr_plot_draw(const hr_plot *plot, const char *folder, bool *missing);

#endif
