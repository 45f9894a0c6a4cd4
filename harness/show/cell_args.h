/* cell_args.h - from a stored cell back to the flags of `sweep` that measure this cell and no other. */
#ifndef HR_CELL_ARGS_H
#define HR_CELL_ARGS_H

#include "kernels/base/status.h"
#include <jansson.h>

/* An array of texts: ["-m", "synth:tiny", "--quant", ...]. run_args: the args of its run (hr_store_runs), for settings that
 * are no key of a cell (--mmap, --huge-pages, --pin, --kv-budget, --prompt, ...); may be NULL. A sweep with them has one
 * cell, of the same cell_id on the same machine class; one of a GPU names its device. ERR_INPUT for a cell of another tool. */
hr_status hr_cell_args(const json_t *cell, const json_t *run_args, json_t **out);
/* "a b 'c d'": words quoted for a shell where they need it; hr_malloc'ed. NULL when out of memory. */
char *hr_shell_line(const json_t *words);

#endif
