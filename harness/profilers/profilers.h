/* profilers.h - Nsight Systems and Nsight Compute around one stored cell: command lines, running, importing tables. */
#ifndef HR_PROFILERS_H
#define HR_PROFILERS_H

#include "harness/store/store.h"
#include <stdio.h>

/* The words of "nsys profile ... PROGRAM sweep ... --capture nvtx" for a cell; out: name of the report without ending. */
hr_status hr_nsys_command(const json_t *cell, const json_t *run_args, const char *program, const char *level,
                          const char *out_base, json_t **words);
/* Reads what `nsys stats --report nvtxsum|nvtx_sum --format csv` wrote, of any version whose columns are known: rows as
 * hr_store_put_ranges takes them, names without the domain. Lines before the header are skipped. ERR_INPUT, with line and
 * reason, for a table that is cut, has no known header, or holds what is no number; fuzzed. */
hr_status hr_nsys_csv_parse(const char *text, size_t n, const char *name, json_t **rows);
/* The same for `ncu --csv` (page raw or details): rows by kernel, with metrics. */
hr_status hr_ncu_csv_parse(const char *text, size_t n, const char *name, json_t **rows);
/* Where nsys, its importer and its version are. ERR_UNSUPPORTED, saying how to get it, where there is none. */
typedef struct hr_nsys_tools {
    char nsys[512], importer[512], version[64];
} hr_nsys_tools;
hr_status hr_nsys_find(hr_nsys_tools *out);
/* Profiles, imports the .qdstrm where nsys left it so, and reads the table. The report is out_base and the ending of that
 * version of nsys; one of before is removed. Interrupted by Ctrl-C it leaves no process behind. */
hr_status hr_nsys_run(const hr_nsys_tools *tools, const json_t *words, const char *out_base, json_t **rows);

#endif
