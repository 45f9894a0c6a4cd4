/* report_page.h - the sections of the page, in words and tables. */
#ifndef HR_REPORT_PAGE_H
#define HR_REPORT_PAGE_H

#include "harness/report/report_doc.h"
#include "harness/report/report_plots.h"

/* A plot as far as the page needs it. */
typedef struct hr_page_plot {
    hr_plot_data data;
    char *svg; /* text of the picture; NULL: not drawn */
} hr_page_plot;

/* plots: [hr_plots_count]. note: NULL, or why there are no pictures. */
void hr_report_page(hr_doc *doc, const hr_report *report, const hr_page_plot *plots, const char *note);

/* The pictures of a section. */
void hr_page_plots(hr_doc *doc, const hr_page_plot *plots, const char *section);
void hr_report_verdict(hr_doc *doc, const hr_report *report);
void hr_report_quants(hr_doc *doc, const hr_report *report); /* items: how much faster than another each type decodes */
void hr_report_trust(hr_doc *doc, const hr_report *report);  /* what to know before believing it */
/* A sentence without its end when other work ran during most cells, else "". */
void hr_report_noise(const hr_report *report, char *out, size_t size);
double hr_report_samples(const json_t *cell); /* repetitions of the time that counts in the cell */
void hr_report_gpu_predicted(hr_doc *doc, const hr_report *report); /* kernels that cells on a GPU ran; else nothing */
void hr_report_method(hr_doc *doc, const hr_report *report);
/* The command line that a run was started with, as it would be typed. size bytes. */
void hr_report_command(const json_t *run, char *out, size_t size);

#endif
