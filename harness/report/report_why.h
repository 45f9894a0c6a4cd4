/* report_why.h - where the time went, what to do about it, and what looking cost: sections made of explanations, advice,
 * rows of `headroom observe` and ranges that a profiler saw. */
#ifndef HR_REPORT_WHY_H
#define HR_REPORT_WHY_H

#include "harness/report/report_page.h"

/* Explanations of the cells that stand for the others, advice on all, rows and ranges. Cells of an older store, or without
 * recorded repetitions, have no explanation; the reason is kept. */
hr_status hr_report_load_why(hr_store *store, hr_report *report);
void hr_report_why_fini(hr_report *report);

/* The explanation of the cell that stands for decode ("tpot") or prefill ("ttft"), where it has that metric; NULL: none. */
const json_t *hr_why_explained(const hr_report *report, const char *metric);
/* Why there is none, without a full stop. */
const char *hr_why_missing(const hr_report *report);

/* ---- the page (report_why.c, report_observe.c) */
void hr_report_waterfall(hr_doc *doc, const hr_report *report, const hr_page_plot *plots);
void hr_report_advice(hr_doc *doc, const hr_report *report);
void hr_report_observe(hr_doc *doc, const hr_report *report);

#endif
