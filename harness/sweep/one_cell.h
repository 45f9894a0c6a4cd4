/* one_cell.h - the cell that single-valued flags name: -m, --isl, --osl and HR_OPTS_AXES, for commands that measure one.
 * These three have a value, given or as the default of the flag. */
#ifndef HR_ONE_CELL_H
#define HR_ONE_CELL_H

#include "harness/cli/options.h"
#include "harness/sweep/axes.h"

/* A plan of one isl cell of one sequence, checked as a sweep would. ERR_USAGE with the reason for one that cannot be
 * measured. */
hr_status hr_one_cell_plan(const hr_args *args, const hr_machine *machine, hr_sweep_plan *out);
/* --mmap, --huge-pages, --pin and --kv-budget, --kv-threshold, --kv-compact, which are no axes, into axes. */
void hr_axes_read_settings(const hr_args *args, hr_axes *axes);
/* The flags of `sweep` that measure this cell: an array of texts. New reference; NULL when out of memory. */
json_t *hr_one_cell_words(const hr_args *args);

#endif
