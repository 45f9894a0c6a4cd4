/* axes.h - from lists of values to the cells of a sweep: product, nulls, legality, duplicates, order. Measures nothing.
 *
 * 1. The product of all lists, model, quantization and device outermost, so that neighbours share a worker.
 * 2. An axis that does not concern the row kind or layout becomes null; cells equal after that are kept once.
 * 3. What is not legal, longer than the model's context or bigger than memory stays as a skipped cell with a reason.
 * 4. A device that is not there ends it: nothing is planned. GPUs are asked in a process of their own (device.h). */
#ifndef HR_AXES_H
#define HR_AXES_H

#include "harness/cli/device_args.h"
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
    hr_ints device;            /* HR_DEVICE_CPU and ordinals of GPUs; empty: the CPU */
    hr_ints graphs;            /* as the next: on GPUs alone */
    hr_words gpu_memory, gemm; /* gemm empty: what is best on the device */
    hr_ints power_limit;       /* watts; empty: as it is */
    bool shuffled;             /* groups, and cells inside a group, in an order drawn from seed */
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
    hr_model_info *infos; /* one a (model, quantization, device, order of weights) */
    size_t n_infos;
    struct hr_plan_gpu {
        int device;
        hr_device_info info;
    } gpus[HR_DEVICES_MAX]; /* that cells run on */
    size_t n_gpus;
    bool on_cpu;     /* cells run on the CPU, too */
    bool gemm_asked; /* --gemm was given: what it names must be had */
    char input[33];  /* fingerprint of the prompt's text, "" for random tokens */
} hr_sweep_plan;

/* ERR_USAGE: nothing to measure, a list that is wrong, more than 100000 cells. Model errors are passed on. */
hr_status hr_sweep_plan_create(const hr_axes *axes, const hr_machine *machine, hr_sweep_plan *out);
void hr_sweep_plan_destroy(hr_sweep_plan *plan);
/* Cells of one worker: same model, quantization, device and order of weights. */
bool hr_sweep_plan_same_group(const hr_sweep_cell *a, const hr_sweep_cell *b);
/* The GPU of a cell; NULL: the CPU. */
const hr_device_info *hr_sweep_plan_gpu(const hr_sweep_plan *plan, const hr_cell_config *c);
/* That of the GPU that all cells run on, or of the machine. */
const char *hr_sweep_plan_class(const hr_sweep_plan *plan, const hr_machine *machine);
/* Rough seconds that a cell takes, for --dry-run and the bar before anything was measured: reading at 20 GB/s,
 * computing at 150 GFLOP/s; on a GPU two thirds of its datasheet, 100 TFLOP/s. fixed: -r or 0. */
double hr_sweep_plan_seconds(const hr_sweep_plan *plan, size_t cell, size_t fixed, double max_seconds);
/* Rough seconds to load a group's model. */
double hr_sweep_plan_load_seconds(const hr_sweep_plan *plan, size_t cell);

#endif
