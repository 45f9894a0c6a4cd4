/* ab_internal.h - what the parts of a paired comparison share. */
#ifndef HR_AB_INTERNAL_H
#define HR_AB_INTERNAL_H

#include "harness/ab/ab.h"

#include "kernels/base/pairs.h"

enum { HR_AB_METRICS = 3 };

/* One run of one program: what it printed, and the ops of its store by cell. */
typedef struct hr_ab_side {
    json_t *cells; /* array of cells of `sweep -o json` */
    json_t *ops;   /* {cell_id: [{phase, op, ms}]}; empty where the program kept none that can be read */
} hr_ab_side;
void hr_ab_side_fini(hr_ab_side *side);
/* Runs `program sweep ARGS` into a store of its own under `folder`, which is removed. name: "A" or "B", for messages.
 * ERR_INPUT when it cannot run, fails, takes longer than the limit or prints no cells; ERR_INTERRUPTED. */
hr_status hr_ab_once(const hr_ab_options *options, const char *name, const char *program, const char *folder,
                     hr_ab_side *out);
/* ERR_USAGE for a flag that ab sets itself. */
hr_status hr_ab_check_args(const char *const *sweep_args);

/* A cell over all pairs. */
typedef struct hr_ab_cell {
    json_t *cell;                                /* as A first measured it */
    const char *const *metrics;                  /* NULL-ended; at most HR_AB_METRICS */
    double ms[HR_AB_METRICS][2][HR_PAIRS_EXACT]; /* medians of the runs, by side and pair */
    size_t n, tried;                             /* pairs that count; that were measured while it needed more */
    json_t *failed[2];                           /* the cell as it failed on a side, or NULL */
    json_t *ops[2];                              /* lists of [{phase, op, ms}], one a pair that counts */
    bool several_states;                         /* pairs were measured in different states, each in one */
    char why[160];                               /* the last reason why a pair did not count */
} hr_ab_cell;
typedef struct hr_ab_cells {
    hr_ab_cell *v; /* [n] */
    size_t n;
    json_t *unmatched_a, *unmatched_b; /* of the first pair */
} hr_ab_cells;
/* The cells of the first pair. */
hr_status hr_ab_cells_init(hr_ab_cells *cells, const hr_ab_side *a, const hr_ab_side *b, const hr_compare_rule *rule);
void hr_ab_cells_fini(hr_ab_cells *cells);
/* Takes a pair for every cell that needs more; *repeat when one of them could not take it. */
hr_status hr_ab_cells_add(hr_ab_cells *cells, size_t wanted, const hr_ab_side *a, const hr_ab_side *b, bool *repeat);
/* A pair that could not be measured, for every cell that needs more. */
void hr_ab_cells_lose(hr_ab_cells *cells, size_t wanted, const char *why);
/* Whether a cell needs more pairs. */
bool hr_ab_cells_need(const hr_ab_cells *cells, size_t wanted);
/* Rows, verdicts and ops. interrupted: cells that are not whole say so. */
hr_status hr_ab_cells_result(const hr_ab_cells *cells, size_t wanted, bool interrupted, const hr_compare_rule *rule,
                             json_t **out);

#endif
