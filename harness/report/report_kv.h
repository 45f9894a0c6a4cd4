/* report_kv.h - the section "KV cache": rows of the study (harness/kv/study.h) and of claims, chosen and put into words.
 *
 * A place is a shape and an operation at which layouts are compared; an arm is what is compared there: a layout with its
 * page size, or an allocator with its settings. Nothing here allocates but the functions that return a status. */
#ifndef HR_REPORT_KV_H
#define HR_REPORT_KV_H

#include "harness/report/report_page.h"

/* More of them than this are left to data/kv_study.tsv, and the page says so. */
enum { HR_KV_ARMS_MOST = 20, HR_KV_PLACES_MOST = 160 };

/* Rows of the runs of the report; all: every run of the store, to know of rows of other machines. */
hr_status hr_report_load_kv(hr_store *store, const json_t *all, hr_report *report);
void hr_report_kv_fini(hr_report *report);

const json_t *hr_kvr_rows(const hr_report *report, const char *part); /* a list, may be empty */
bool hr_kvr_studied(const hr_report *report);                         /* any row of any part */
/* Why a part has nothing to show, with the command that measures it; without a full stop. */
const char *hr_kvr_missing(const hr_report *report, char *out, size_t size);

/* ---- text: lives until 32 more calls of these on the thread */
const char *hr_text_arm(const json_t *row);       /* "paged:16" */
const char *hr_text_allocator(const json_t *row); /* "hybrid < 64, compact every 10, shared" */
const char *hr_text_ratio(double ratio);          /* two decimals, of small ones two digits */
/* "1.03 (1.02–1.05)"; the value alone where there is no interval, "" where there is no value. */
const char *hr_text_interval(double value, double lo, double hi, const char *(*number)(double));

/* ---- places and arms of the parts layouts and operations */
bool hr_kvr_same_place(const json_t *a, const json_t *b); /* the states may differ */
bool hr_kvr_in_state(const json_t *row, const char *state);
/* The first row of each place (and state), the first row of each arm, head first; in order of measurement. */
size_t hr_kvr_places(const json_t *rows, const json_t **out, size_t most, bool *more);
size_t hr_kvr_arms(const json_t *rows, const json_t **out, size_t most);
bool hr_kvr_same_arm(const json_t *a, const json_t *b);
bool hr_kvr_is_head(const json_t *row); /* what the others are compared with */
/* The row of the arm of a row at the place and in the state of another; NULL: none. arm NULL: head. */
const json_t *hr_kvr_find(const json_t *rows, const json_t *place, const json_t *arm);
/* A row of the shape whose cold decode is known at most contexts; NULL: none. contexts: [HR_KV_PLACES_MOST], ascending. */
const json_t *hr_kvr_usual_shape(const json_t *rows, double *contexts, size_t *n);
/* Same shape but for the context. */
bool hr_kvr_same_shape(const json_t *a, const json_t *b);

/* ---- the page (report_kv_page.c, report_kv_tables.c) */
void hr_report_kv(hr_doc *doc, const hr_report *report, const hr_page_plot *plots);
void hr_kvr_predicted(hr_doc *doc, const hr_report *report);
void hr_kvr_types(hr_doc *doc, const hr_report *report);
void hr_kvr_allocators(hr_doc *doc, const hr_report *report);
void hr_kvr_claims(hr_doc *doc, const hr_report *report);

/* data/kv_study.tsv and data/claims.tsv: all that is known of each row but its samples. */
void hr_kvr_write_study(const hr_report *report, FILE *stream);
void hr_kvr_write_claims(const hr_report *report, FILE *stream);

#endif
