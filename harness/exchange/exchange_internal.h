/* exchange_internal.h - what the readers and writers of this folder share.
 *
 * A file is read in three steps: its container (array, lines, CSV) into rows, its rows by one tool's keys into cells, the
 * cells into a run. What has no place goes into notes on the way. */
#ifndef HR_EXCHANGE_INTERNAL_H
#define HR_EXCHANGE_INTERNAL_H

#include "harness/exchange/exchange.h"

#include <stdbool.h>

/* ---- keys of a cell ---- */

typedef enum hr_kind {
    HR_KIND_TEXT,
    HR_KIND_INT,
    HR_KIND_REAL,
    HR_KIND_BOOL,
    HR_KIND_DIST,
    HR_KIND_WORDS,
    HR_KIND_UNITS,
    HR_KIND_MAP2,
    HR_KIND_SAMPLES
} hr_kind;
bool hr_key_kind(const char *key, hr_kind *out); /* false: no key of a cell */
const char *const *hr_key_names(void);           /* all, NULL-ended, in order */
const char *const *hr_key_parts(hr_kind kind);   /* of DIST, UNITS and MAP2, NULL-ended; else NULL */
/* The value as the key holds it, out of JSON or (text) a field of a CSV file, where "" is null for numbers; NULL when it
 * does not fit or there is no memory. New reference. */
json_t *hr_key_value(hr_kind kind, const json_t *given);
json_t *hr_key_from_text(hr_kind kind, const char *text);
json_t *hr_cell_blank(void); /* every key, null; flags an empty list */

/* ---- notes: what has no place, each text once with the number of rows it holds for ---- */

bool hr_note(json_t *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* [text or "text (N rows)"]; new reference. */
json_t *hr_notes_list(const json_t *notes);

/* ---- reading ---- */

typedef enum hr_tool { HR_TOOL_UNKNOWN, HR_TOOL_LLAMA_BENCH, HR_TOOL_GOOGLE, HR_TOOL_OWN } hr_tool;
typedef enum hr_container { HR_CONTAINER_ANY, HR_CONTAINER_JSON, HR_CONTAINER_JSONL, HR_CONTAINER_CSV } hr_container;

typedef struct hr_import {
    const char *name; /* of the file */
    hr_tool tool;
    hr_container container;
    json_t *rows;      /* objects; of CSV: texts as values */
    json_t *context;   /* Google Benchmark's, or NULL */
    size_t *at, n_at;  /* [n_at] number of each row for messages: as the file counts, from 1 */
    const char *place; /* "row" (arrays) or "line" */
    json_t *notes;
    json_t *cells;
    json_t *foreign; /* {cell_id: {key: value}}: keys that a cell lacks, for the way back */
    json_t *index;   /* {cell_id: place in cells} */
    json_t *from;    /* [cells] index of the row that a cell came from */
    json_t *machine;
} hr_import;

/* ERR_INPUT "NAME: row 3: ...". */
hr_status hr_import_fail(const hr_import *im, size_t row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
hr_status hr_import_read_rows(hr_import *im, const char *text, size_t n);
hr_status hr_import_llama(hr_import *im);
hr_status hr_import_google(hr_import *im);
hr_status hr_import_own(hr_import *im);

/* Takes the cell: the first of its cell_id is appended, a later one gives its samples to the first. extras may be NULL. */
hr_status hr_import_take(hr_import *im, size_t row, json_t *cell, json_t *extras);
/* What follows from samples_ns, n_prompt and n_gen: distributions, rates, and averages where the file has none. A cell
 * without samples is flagged no_samples. */
hr_status hr_import_derive(json_t *cell);
bool hr_cell_flag(json_t *cell, const char *flag);
/* Mean and sample standard deviation, in two passes; NaN where undefined. */
void hr_moments(const json_t *samples, double *mean, double *stddev);

/* Adds "key=value" of a value to words, unless it says nothing: null, 0, false, "", none, auto, off. */
bool hr_identity_add(json_t *words, const char *key, const json_t *value);
/* 32 hex digits out of the words in order of the alphabet. */
hr_status hr_identity(const json_t *words, char out[33]);
/* "imported-amd-epyc-9354-32-core-processor": never the class of a machine that measured here. */
void hr_imported_class(const char *cpu, const char *gpu, char *out, size_t size);
/* "2026-01-02T03:04:05Z" of an ISO 8601 time with or without an offset; false when it is none. */
bool hr_utc_of(const char *text, char out[21]);

/* ---- writing ---- */

typedef struct hr_export_job {
    const char *format;
    FILE *stream;
    const json_t *cells, *run, *machine;
    json_t *notes;
    size_t written; /* cells */
} hr_export_job;

/* Cells that another tool's file may hold: ok, and no simulation; what is left out is noted. */
bool hr_export_takes(hr_export_job *job, const json_t *cell);
/* Notes the keys of a cell that hold something and are not among `known` (NULL-ended). */
bool hr_export_note_rest(hr_export_job *job, const json_t *cell, const char *const *known);
/* "m.gguf int8 tg128 1a2b3c4d": short, the same every night, different for every cell; what had a name of its own in
 * another tool keeps it. hr_free it. */
char *hr_export_label(const json_t *cell);
/* Samples without those flagged throttled, as long as others remain. New reference; NULL when out of memory. */
json_t *hr_export_samples(hr_export_job *job, const json_t *cell, const char *key);
/* Names of the time distributions a cell has, NULL-ended; returns how many. */
enum { HR_EXPORT_TIMES = 7 };
size_t hr_export_times(const json_t *cell, const char *names[HR_EXPORT_TIMES + 1]);

hr_status hr_export_llama(hr_export_job *job, hr_container container);
hr_status hr_export_google(hr_export_job *job);
hr_status hr_export_medians(hr_export_job *job); /* googlecpp, cpp_google: a row a metric */
hr_status hr_export_custom(hr_export_job *job);
hr_status hr_export_benchstat(hr_export_job *job);

#endif
