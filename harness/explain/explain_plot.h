/* explain_plot.h - a waterfall as a panel of a plot: for the command's own picture and for that of the report. */
#ifndef HR_EXPLAIN_PLOT_H
#define HR_EXPLAIN_PLOT_H

#include "harness/explain/explain.h"
#include "harness/report/report_plots.h"

/* Adds a panel to what plots/waterfall.gp reads: data_name is that of the TSV by hr_explain_tsv, without folder and
 * ending; *height grows by the panel's pixels. ERR_INPUT when the metric is null. */
hr_status hr_explain_add_panel(const json_t *explanation, const char *metric, const char *data_name, hr_plot_data *data,
                               int *height);

#endif
