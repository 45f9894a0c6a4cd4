/* history.h - cells over nights: roof-normalised medians, change points, one series per machine class and cell. */
#ifndef HR_HISTORY_H
#define HR_HISTORY_H

#include "harness/stats/changes.h"
#include "harness/store/store.h"
#include <stdio.h>

typedef struct hr_history_options {
    const char *cell, *metric; /* NULL: all; metric: mbu, mfu, roof_fraction or a time (ttft, tpot, ...) */
    hr_changes_rule rule;
} hr_history_options;
/* [{cell_id, test, model_filename, quant, machine_class, state_class, metric, points: [{run_id, time, commit, median}],
 * change_points: [{run_id, from, to, shift_pct, commits, settled, nights}]}]; default metric roof_fraction. By columns of the store
 * alone: 400 nights in well under a second. */
hr_status hr_history(hr_store *store, const hr_history_options *options, json_t **out);
/* A line of blocks for a terminal, at most `width` characters; ASCII where the locale is not UTF-8. hr_malloc'ed. */
char *hr_sparkline(const double *values, size_t n, size_t width, bool ascii);
/* One page: a curve per cell (inline SVG by gnuplot), change points marked, table of changes. */
hr_status hr_history_html(const json_t *history, const char *path);
/* Medians of a metric over runs of one machine class, for gate: how far nights differ (MAD-based, relative) and how many. */
hr_status hr_history_spread(hr_store *store, const char *cell_id, const char *machine_class, const char *metric,
                            double *spread, size_t *nights);

#endif
