/* derive.h - from times, work and peaks to the rates, ratios and flags of a row. Pure functions; definitions: the report, "How it was measured". */
#ifndef HR_DERIVE_H
#define HR_DERIVE_H

#include "harness/sweep/cell.h"

/* NaN: unknown, or a unit that this machine lacks. */
typedef struct hr_peaks {
    double read_gb_s, gflop_s[HR_UNIT_COUNT];
} hr_peaks;

typedef struct hr_ratios {
    double bytes, flops;
    double intensity; /* flop/byte */
    double mbu, mfu;
    double roof_time_ms, roof_fraction;
    const char *bound; /* "memory", "compute"; NULL when unknown */
} hr_ratios;

/* work done in time_ms. Flops of a unit without a peak of its own count against the fp32 peak. NaN where undefined. */
hr_ratios hr_derive_ratios(const hr_step_work *work, double time_ms, const hr_peaks *peaks);

/* The higher of before and after, per figure. */
hr_peaks hr_peaks_of(const hr_state *before, const hr_state *after);
/* "near" (handoff under 100 ns), "far", "mixed" (class differs, or bandwidth by over 15 %); NULL when unknown. */
const char *hr_state_class(const hr_state *before, const hr_state *after);
/* Bandwidth, or a flop rate of the units asked for, differs by over 5 %. */
bool hr_state_drifted(const hr_state *before, const hr_state *after, unsigned units);

/* What was seen around the cell by the parent. */
typedef struct hr_surroundings {
    hr_state before, after;
    double seconds;        /* between the two, for psi */
    double best_clock_ghz; /* highest seen in this sweep */
    unsigned units;        /* bit set of hr_unit that was probed */
    double llc_bytes;      /* NaN: unknown */
    bool state_changed;    /* the cell was measured a second time */
} hr_surroundings;

/* Fills a row (hr_cell_row) from a worker's result (worker.h) and the surroundings: every key that was measured. */
hr_status hr_derive_row(json_t *row, const hr_cell_config *c, const json_t *result, const hr_surroundings *around);

/* Work as the worker sends it: {"bytes_weights", "bytes_kv_read", "bytes_kv_write", "flops": [by unit]}. */
json_t *hr_work_json(const hr_step_work *work);
bool hr_work_parse(const json_t *json, hr_step_work *out);
void hr_row_flag(json_t *row, const char *flag); /* once each */

#endif
