/* measure.h - the measuring loops of one cell, run in the worker.
 *
 * pp: prefill of n tokens behind `depth` others, logits of the last. tg: n steps of one token for each sequence. pg: the
 * one after the other. isl: whole requests, submitted together, prefilled in order, decoded together, greedy, end of
 * text ignored. The depth is filled before, and the sequences are cut back to it between repetitions.
 *
 * Inside a timed region nothing is allocated, printed or locked by this file; buffers are made by hr_bench_create. The
 * exception is a request's tokenization under --prompt, which belongs to its TTFT. */
#ifndef HR_MEASURE_H
#define HR_MEASURE_H

#include "harness/stats/stats.h"
#include "harness/sweep/cell.h"
#include "harness/sweep/recorded.h"
#include "harness/sweep/throttle.h"
#include <stdatomic.h>

typedef struct hr_measure_options {
    hr_stop_rule rule;
    bool no_warmup;
    uint64_t seed;
    const char *text; /* --prompt, or NULL */
    size_t text_bytes;
    double slo_ttft_ms, slo_tpot_ms; /* NaN: none */
    hr_capture capture;              /* not NONE: open (hr_capture_open) */
    hr_throttle_options throttle;    /* of a GPU; its stop is not asked */
    const atomic_bool *stop;         /* NULL, or: once true, no further repetition begins */
} hr_measure_options;

typedef struct hr_bench hr_bench;
/* The engine must have been opened with hr_cell_engine_config of this cell. Fills the depth. */
hr_status hr_bench_create(const hr_model *model, hr_engine *engine, const hr_cell_config *cell,
                          const hr_measure_options *options, hr_bench **out);
void hr_bench_destroy(hr_bench *bench);
/* Of the range that a profiler sees around the cell; without a name there is no such range. Copied. */
void hr_bench_name(hr_bench *bench, const char *name);

/* Warm-up, samples until the stop rule ends them, recorded repetitions beside the first of them. Ranges: the cell around
 * all; in it, under a capture, that around samples and recorded repetitions; in these every repetition as `request`
 * (payload: tokens in and out). Names are registered before a repetition is timed. ERR_INTERRUPTED after
 * `stop`. *out, a new reference:
 *   samples_ns [n], sample_flags [n: text or null], distributions by their public names (absent where undefined),
 *   prefill_ms, step_ms (medians, per request and per decode step), good (requests that met the SLO; isl with --slo),
 *   on a GPU: device_ms (median of the last pass by the device's own clock: a decode step, or a prefill of one pass), what
 *   throttle.h says (energy_mj: of a prompt token on pp rows, else of an output token), throttled (most samples were),
 *   stop_reason, noise_rel, warmups, probe_overhead_pct, page_faults, ctx_switches,
 *   op_sum_share (sum of the ops over the recorded time), timed_allocations, ops (op_fold.h), recorded (recorded.h) */
hr_status hr_bench_run(hr_bench *bench, json_t **out);
/* One repetition and no more, not recorded: for comparisons in pairs. */
hr_status hr_bench_once(hr_bench *bench, hr_phase_times *out);
/* What bytes_step and flops_step of a row are about, and no more, as often as it is called: the decode step at its mean
 * context (after hr_bench_run), or the prefill of a pp row. */
hr_status hr_bench_step(void *bench);

#endif
