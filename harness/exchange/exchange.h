/* exchange.h - results of other tools as runs of the store, and ours as their files. Parsers are fuzzed; what cannot be mapped is
 * listed, not guessed.
 *
 * formats: llama-bench-json, llama-bench-jsonl, llama-bench-csv, google-benchmark, headroom-json, -jsonl, -csv (what sweep
 * prints); llama-bench and headroom: import tells which of the three, export writes json;
 * export also customSmallerIsBetter (github-action-benchmark), googlecpp, cpp_google (bencher), benchstat. */
#ifndef HR_EXCHANGE_H
#define HR_EXCHANGE_H

#include "harness/store/store.h"
#include <stdio.h>

typedef struct hr_imported {
    json_t *
        cells; /* rows with every key of a cell that the file knows; cell_id by model, configuration and machine, without
                         the build, so that two files of different builds join */
    json_t *run; /* {command: "import", args: {file, format}, started, ...} */
    json_t *machine;
    json_t *unmapped; /* texts: keys and rows that have no place here */
} hr_imported;
/* format NULL: told by its content. ERR_INPUT with file, line or row and reason. */
hr_status hr_import_parse(const char *text, size_t n, const char *name, const char *format, hr_imported *out);
void hr_imported_fini(hr_imported *imported);
/* Stores one file as one run. */
hr_status hr_import_store(hr_store *store, const hr_imported *imported, char **run_id);
/* *cells: how many of the run's cells are in the file. ERR_INPUT, and nothing written, when none is. */
hr_status hr_export(hr_store *store, const char *run_id, const char *format, FILE *stream, size_t *cells,
                    json_t **unmapped);
const char *const *hr_exchange_formats(bool import); /* NULL-ended */

#endif
