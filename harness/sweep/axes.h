/* axes.h - from lists of values to the cells of a sweep: product, nulls, legality, duplicates, order. Measures nothing.
 *
 * 1. The product of all lists, model and quantization outermost, so that neighbours share a worker.
 * 2. An axis that does not concern the row kind or layout becomes null; cells equal after that are kept once.
 * 3. What is not legal, longer than the model's context or bigger than memory stays as a skipped cell with a reason. */
#ifndef HR_AXES_H
#define HR_AXES_H

#include "harness/sweep/cell.h"

typedef struct hr_ints {
    const int64_t *v;
    size_t n;
} hr_ints;
typedef struct hr_words {
    const char *const *v;
    size_t n;
} hr_words;

typedef struct hr_axes {
    hr_words models, quant, act, k_type, v_type, kv_layout, kv_alloc, isa; /* kv_alloc empty: what the layout needs */
    hr_words weights;
    hr_words fusion, kernel; /* kernel: OP=NAME, all of them in every cell */
    hr_ints n_prompt, n_gen; /* zeros are left out */
    hr_ints pg;              /* pairs: 2 * n numbers, n counts pairs */
    hr_ints isl, osl, depth, seqs, batch, ubatch, page_size, flash, threads; /* threads empty: physical cores */
    bool shuffled; /* groups, and cells inside a group, in an order drawn from seed */
    uint64_t seed;
    bool copy, small_pages, free_threads; /* of all cells */
    int64_t kv_budget, kv_threshold, kv_compact;
    const char *input; /* fingerprint of --prompt's text, "" for random tokens */
} hr_axes;

typedef struct hr_sweep_cell {
    hr_cell_config config;
    char id[33];
    size_t info;                    /* index in hr_sweep_plan.infos */
    uint64_t arena_bytes, kv_bytes; /* of the engine */
    char *skip;                     /* reason, or NULL: to be measured */
} hr_sweep_cell;

typedef struct hr_sweep_plan {
    hr_sweep_cell *cells; /* [n] */
    size_t n, n_skipped;
    hr_model_info *infos; /* one a (model, quantization, order of weights) */
    size_t n_infos;
    char input[33]; /* fingerprint of the prompt's text, "" for random tokens */
} hr_sweep_plan;

/* ERR_USAGE: nothing to measure, a list that is wrong, more than 100000 cells. Model errors are passed on. */
hr_status hr_sweep_plan_create(const hr_axes *axes, const hr_machine *machine, hr_sweep_plan *out);
void hr_sweep_plan_destroy(hr_sweep_plan *plan);
/* Cells of one worker: same model, quantization and order of weights. */
bool hr_sweep_plan_same_group(const hr_sweep_cell *a, const hr_sweep_cell *b);
/* Rough seconds that a cell takes, for --dry-run and the bar before anything was measured: reading at 20 GB/s,
 * computing at 150 GFLOP/s. fixed: -r or 0. */
double hr_sweep_plan_seconds(const hr_sweep_plan *plan, size_t cell, size_t fixed, double max_seconds);
/* Rough seconds to load a group's model. */
double hr_sweep_plan_load_seconds(const hr_sweep_plan *plan, size_t cell);

#endif
