/* cell_view.h - one cell as pages for people: sections of named values with units, distributions, ops by time. */
#ifndef HR_CELL_VIEW_H
#define HR_CELL_VIEW_H

#include "harness/formats/formats.h"

/* format is TABLE or MD. cell: keys of cell_keys.h, "ops" as the store gives them, and "ranges" as hr_ranges_beside_ops does, or
 * none. Keys that are null are named in one line at the end. */
hr_status hr_cell_view(hr_format format, FILE *stream, const json_t *cell);

/* Ops folded over layers: [{phase, op, kernel, calls, "time|ms", ...}], prefill first, then by falling share of the
 * phase's time. New reference. */
hr_status hr_ops_by_time(const json_t *ops, json_t **out);

#endif
