/* study_print.h - a study in any output format. */
#ifndef HR_STUDY_PRINT_H
#define HR_STUDY_PRINT_H

#include "harness/formats/formats.h"

/* json: the object; jsonl: one row a line; csv, sql: one table of all rows, maps flattened, samples left out; table, md: for
 * people: one table a part, and the advice. */
hr_status hr_study_write(hr_format format, FILE *stream, const json_t *study);

/* The tables for people, out of the rows: [{...}] with keys (a NULL-ended list, hr_free it and nothing in it) in the manner
 * of hr_rows_write. part: "layouts", "operations", "dtypes", "allocators". Layouts: one row a point, one column a layout that holds
 * the ratio to head and a mark of the verdict. New references. */
hr_status hr_study_table(const json_t *study, const char *part, json_t **rows, const char ***keys);
/* "= no difference (within 2 %), + slower, - faster, ? inconclusive" */
extern const char hr_study_legend[];
const char *hr_study_mark(const char *verdict); /* "=", "+", "-", "?" */

#endif
