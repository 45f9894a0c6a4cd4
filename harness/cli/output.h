/* output.h - what the output flags say, resolved once: formats, file, quiet, progress. */
#ifndef HR_OUTPUT_H
#define HR_OUTPUT_H

#include "harness/cli/options.h"
#include "harness/formats/formats.h"

typedef struct hr_output {
    hr_format format;  /* of stdout, or of file; unset: table on a terminal, md elsewhere */
    bool format_given; /* -o or --json */
    bool to_stderr;    /* -oe was given: the same rows in err_format on stderr */
    hr_format err_format;
    const char *file; /* --out; NULL: stdout */
    bool quiet, verbose;
    bool progress; /* a progress bar may be shown: see progress.h */
} hr_output;

/* Reads -o, -oe, --json, --out, -q, -v, --no-progress of args; ERR_USAGE when they contradict each other. */
hr_status hr_output_resolve(const hr_args *args, hr_output *out);

/* Before long work: can --out be written? Makes its folders and leaves a file that is there as it is. */
hr_status hr_output_check(const hr_output *output);
/* The same for all flags that name a file to write (NULL at the end); ERR_USAGE when two of them name one file. */
hr_status hr_output_check_all(const hr_args *args, const char *const *flags);
/* Prints the rows (keys as in hr_rows_write) in the chosen formats to stdout or the file, and to stderr with -oe. */
hr_status hr_output_rows(const hr_output *output, const json_t *rows, const char *const *keys);
/* One object: as JSON with json and jsonl, else as a table of one row whose columns are its keys. */
hr_status hr_output_object(const hr_output *output, const json_t *object);
/* A line to copy, a command: alone for people, with json and jsonl as the object that it stands in. */
hr_status hr_output_line(const hr_output *output, const char *line, const json_t *object);

#endif
