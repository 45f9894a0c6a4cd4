/* csv_read.h - CSV of other programs, record by record (RFC 4180): quotes, quotes inside quotes, line ends inside quotes,
 * \n or \r\n. Everything an error says names the line. */
#ifndef HR_CSV_READ_H
#define HR_CSV_READ_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct hr_csv {
    const char *text; /* [n] borrowed */
    size_t n, at;
    size_t line;         /* from 1: where the record last read begins */
    size_t next_line;    /* where the next one begins */
    size_t n_fields;     /* of the record last read; 0: there was none */
    const char **fields; /* [n_fields] each ended by NUL; valid until the next record */
    bool ended;          /* the record last read had a line end: without one a file may have been cut inside it */
    char *bytes;
    size_t n_bytes, n_slots; /* room */
} hr_csv;

/* `line` is the number of the text's first line. A second init after fini or for another text of the same reader is
 * hr_csv_restart, which keeps the memory. */
void hr_csv_init(hr_csv *csv, const char *text, size_t n);
void hr_csv_restart(hr_csv *csv, const char *text, size_t n, size_t line);
void hr_csv_fini(hr_csv *csv);
/* Reads a record; n_fields is 0 at the end of the text, and 1 with an empty field for an empty line. ERR_INPUT for a
 * quote that never ends, text behind a closing quote, a NUL byte; ERR_MEMORY. */
hr_status hr_csv_next(hr_csv *csv);
/* A table somewhere in the text of a report, whose other lines are no CSV: reads line by line until is_heading says that the
 * record just read is its head. Then *found, with the head's fields still there, and hr_csv_next reads on behind it.
 * ERR_MEMORY. */
hr_status hr_csv_find(hr_csv *csv, const char *text, size_t n, bool (*is_heading)(const hr_csv *csv, void *context),
                      void *context, bool *found);
/* Whether the record last read is whole: as many fields as its heading, and a line end. Else ERR_INPUT. */
hr_status hr_csv_whole(const hr_csv *csv, size_t n_fields);
/* The number of a field: digits, a point, an exponent; with `grouped` also commas between groups of three digits. False
 * for anything else: empty, not finite, hexadecimal. */
bool hr_csv_number(const char *field, bool grouped, double *out);

#endif
