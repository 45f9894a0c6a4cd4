/* formats_internal.h - what the writers of this folder share. */
#ifndef HR_FORMATS_INTERNAL_H
#define HR_FORMATS_INTERNAL_H

#include "harness/formats/formats.h"

/* ---- values as text */

/* Shortest decimal that reads back as the same double. size >= 32. */
void hr_real_text(double value, char *text, size_t size);
/* About four significant digits, for people. size >= 32. */
void hr_short_text(double value, char *text, size_t size);
/* A value of a flat object as text, exact; "" for null. New string (hr_free); NULL when out of memory. */
char *hr_value_text(const json_t *value);
/* The same for people: reals are short. */
char *hr_value_short(const json_t *value);

/* ---- flat columns of a cell */

typedef enum hr_column_type { HR_COLUMN_TEXT, HR_COLUMN_INT, HR_COLUMN_REAL } hr_column_type;
hr_column_type hr_cell_column_type(size_t i);

/* ---- writers; none checks the stream, the caller flushes */

void hr_csv_field(FILE *stream, const char *text, bool first); /* quoted where RFC 4180 asks for it */
void hr_csv_end(FILE *stream);
void hr_json_inline(FILE *stream, const json_t *value); /* on one line, strict */

void hr_sql_name(FILE *stream, const char *name);
void hr_sql_text(FILE *stream, const char *text); /* quoted, or NULL for "" */

/* The short view of cells: what people look at. */
enum { HR_SHORT_COLUMNS = 12 };
extern const char *const hr_short_headings[HR_SHORT_COLUMNS];
extern const int hr_short_widths[HR_SHORT_COLUMNS]; /* negative: left-aligned */
/* Texts of one cell, each at most HR_SHORT_BYTES; *used collects the words that the legend explains. */
enum { HR_SHORT_BYTES = 160 };
void hr_short_cell(const json_t *cell, char texts[HR_SHORT_COLUMNS][HR_SHORT_BYTES], unsigned *used);
/* A line a word that was used. */
void hr_short_legend(FILE *stream, const char *before, unsigned used);

/* One row of a table: columns two spaces apart, width in characters, negative: left-aligned. */
void hr_table_row(FILE *stream, const char *const *texts, const int *widths, size_t n);
void hr_md_row(FILE *stream, const char *const *texts, size_t n);
void hr_md_rule(FILE *stream, const int *widths, size_t n);
int hr_text_width(const char *text);        /* characters of UTF-8 */
const char *hr_text_next(const char *text); /* behind the first character */

#endif
