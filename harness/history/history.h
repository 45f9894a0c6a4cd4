/* history.h - cells over nights: roof-normalised medians, change points, one series per machine class and cell. */
#ifndef HR_HISTORY_H
#define HR_HISTORY_H

#include "harness/stats/changes.h"
#include "harness/store/store.h"
#include <stdio.h>

typedef struct hr_history_options {
    const char *cell; /* an id, how ids begin, or a test name; NULL: all */
    const char *
        metric; /* of hr_history_metrics, or the key of a cell that it stands for; NULL: share of the roof, each phase */
    const char *machine_class; /* NULL: all */
    hr_changes_rule rule;
} hr_history_options;
/* Names for --metric, NULL-ended: roof_fraction, mbu, ..., ttft, tpot, itl, e2e, pp, tg. */
extern const char *const hr_history_metrics[];
/* [{cell_id, test, model_filename, quant, machine_class, state_class, metric, points: [{run_id, time, commit, median, status,
 * stop_reason}], change_points: [{run_id, time, from, to, shift_pct, commits, settled, nights}]}], newest change first, then by
 * name; metric is the key of a cell. A night that failed or has no value is a point whose median is null; a series without
 * any value is left out, and so are simulated cells. Cells whose machine changed state while they were measured (mixed) and
 * points all of whose samples were throttled are shown, but no change is sought among them. By columns of the store alone.
 * ERR_INPUT when nothing fits the options, with what does. */
hr_status hr_history(hr_store *store, const hr_history_options *options, json_t **out);
/* A character for each value, or for the median of neighbours where there are more than `width`; blanks for NaN. Noise of a few
 * percent looks flat. ASCII where the locale is not UTF-8. hr_malloc'ed; NULL: out of memory. */
char *hr_sparkline(const double *values, size_t n, size_t width, bool ascii);
/* Whether a larger value of the metric is better: shares of peaks and roofs; else it is a time. */
bool hr_history_is_share(const char *metric);
/* One page: a curve per cell (inline SVG by gnuplot), change points marked, table of changes. *missing: there was no gnuplot,
 * and the page says so. */
hr_status hr_history_html(const json_t *history, const char *path, bool *missing);
/* For gate: how far nights of one level differ, relative, as a standard deviation by the MAD (NaN under two nights), and how
 * many nights that is: those since the last settled change of the cell on that machine class, 50 at most. */
hr_status hr_history_spread(hr_store *store, const char *cell_id, const char *machine_class, const char *metric,
                            double *spread, size_t *nights);

#endif
