/* compare_internal.h - what the parts of a comparison share. */
#ifndef HR_COMPARE_INTERNAL_H
#define HR_COMPARE_INTERNAL_H

#include "harness/compare/compare.h"

#include <stdbool.h>

/* False when out of memory; text NULL or empty: null. */
bool hr_row_text(json_t *row, const char *key, const char *text);
bool hr_row_real(json_t *row, const char *key, double value);
/* Copies the value of a key, null where it is absent. */
bool hr_row_copy(json_t *row, const char *key, const json_t *from, const char *from_key);

/* status is ok; cells of other tools carry none. */
bool hr_cell_is_ok(const json_t *cell);
bool hr_cell_has_flag(const json_t *cell, const char *flag);
/* Every unflagged sample is there, but the clock was reduced all along. */
bool hr_cell_all_throttled(const json_t *cell);
/* true, false, or null where a tool does not say why it stopped. New reference. */
json_t *hr_cell_converged(const json_t *cell);
/* p50 of the metric's distribution; NaN: it has none. *n its count. */
double hr_cell_stored_median(const json_t *cell, const char *metric, size_t *n);

/* A row that names the cell and the metric; what is measured is null, verdict inconclusive. a and b may be the same. */
json_t *hr_compare_row(const json_t *a, const json_t *b, const char *metric);
/* Why a row may not be judged (key "blocked"); NULL: it may. */
bool hr_row_block(json_t *row, const char *why);

/* Words of a cell for a message: "tg16 @ d64". */
const char *hr_cell_name(const json_t *cell);

#endif
