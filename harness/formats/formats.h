/* formats.h - results on stdout: table, md, csv, json, jsonl, sql, for cells and for any array of flat objects. */
#ifndef HR_FORMATS_H
#define HR_FORMATS_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

typedef enum hr_format {
    HR_FORMAT_TABLE,
    HR_FORMAT_MD,
    HR_FORMAT_CSV,
    HR_FORMAT_JSON,
    HR_FORMAT_JSONL,
    HR_FORMAT_SQL,
    HR_FORMAT_COUNT
} hr_format;
const char *hr_format_name(hr_format format);

/* A writer of cells, row by row: JSONL is flushed after each row, csv and md and table print the header at once and
 * each row as it comes, json prints one array. The stream stays open. Numbers are in the C locale; non-finite becomes
 * null. */
typedef struct hr_cell_writer hr_cell_writer;
hr_status hr_cell_writer_create(hr_format format, FILE *stream, hr_cell_writer **out);
hr_status hr_cell_writer_put(hr_cell_writer *writer, const json_t *cell); /* ERR_IO when the stream failed */
hr_status hr_cell_writer_end(hr_cell_writer *writer);                     /* closes the array; destroys the writer */

/* Flushes the stream: ERR_IO, which says what the system said, when anything written so far was lost. */
hr_status hr_stream_flush(FILE *stream);
/* A write failed because the reader of a pipe had gone (`| head`): the program ends without a word. */
bool hr_stream_reader_gone(void);

/* An array of flat objects with the given keys as columns (NULL-ended; headings may carry units after a '|':
 * "median|GB/s", or "mbu|=MBU %|100": heading and factor in tables). Tables cut ids. json and jsonl print the objects as they are; elsewhere a list of words joins with ';', deeper things
 * are compact JSON, null is empty. */
hr_status hr_rows_write(hr_format format, FILE *stream, const json_t *rows, const char *const *keys);
/* A paragraph from column `indent` on, where the cursor stands, broken at spaces before column `page`; later lines are
 * indented. Ends the line. */
void hr_wrapped(FILE *stream, const char *text, int indent, int page);
/* Strict JSON (non-finite numbers become null), 2 spaces indented, newline at the end. */
/* Lists of scalars stay on one line. */
hr_status hr_json_write(FILE *stream, const json_t *value);

/* Flat columns of a cell by cell_keys.h: the names (NULL-ended, static) and the value of column i as text (csv rules
 * not yet applied; empty for null) into a buffer that lives until the next call on this thread. */
const char *const *hr_cell_columns(size_t *n);
const char *hr_cell_column_text(const json_t *cell, size_t i);

/* A file written beside and renamed: hr_out_open makes folders and opens PATH.tmp.PID, hr_out_commit flushes, syncs and
 * renames (ERR_IO keeps the old file and removes the temporary one), hr_out_abandon drops it. path NULL: stdout. A path
 * that names a device or a pipe is written to directly. */
typedef struct hr_out {
    FILE *stream;
    char *path, *temporary;
} hr_out;
hr_status hr_out_open(const char *path, hr_out *out);
hr_status hr_out_commit(hr_out *out);
void hr_out_abandon(hr_out *out);
hr_status hr_make_folders(const char *path_of_file); /* all parents of the file */

#endif
