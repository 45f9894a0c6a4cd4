/* report.h - a report of what the store holds: one HTML page, the same as Markdown, plots, and the data behind them. */
#ifndef HR_REPORT_H
#define HR_REPORT_H

#include "harness/store/store.h"

typedef struct hr_report_options {
    const char *const *runs; /* names of runs as the store resolves them; none: all of the newest run's machine class */
    size_t n_runs;
    const char *out_dir;
    const char *device; /* "cuda:0": cells of its class alone; NULL: of the class of the newest cell */
    bool allow_simulated;
} hr_report_options;

/* Writes index.html, report.md, data/NAME.tsv, plots/NAME.gp and plots/NAME.svg under out_dir. The report is whole or
 * absent: files are made in a folder beside and renamed when all are there. *paths: the files written, index.html
 * first; *note: one line for the user (gnuplot is missing, other work ran), or NULL; both are new references. ERR_INPUT when the store
 * holds no cell to report, or simulated ones that were not asked for; ERR_IO. */
hr_status hr_report_write(hr_store *store, const hr_report_options *options, json_t **paths, json_t **note);

#endif
