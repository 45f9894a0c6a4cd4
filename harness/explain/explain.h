/* explain.h - from a stored cell to a waterfall: where every millisecond of TTFT and TPOT went. Pure functions.
 *
 * ideal:       what the measured ceilings allow the whole phase: weights, KV, arithmetic
 * loss:        each op class over its own roof; ops that cannot overlap (memory-bound beside compute-bound ones); waiting
 *              for other requests
 * barrier:     threads that wait for the slowest, and handing work to the team and back
 * gap:         time of the phase in no op
 * probe:       what recording added to the recorded times, by calibration: negative, as measured times are free of it
 * unexplained: measured less all the others, so that the terms add up to measured */
#ifndef HR_EXPLAIN_H
#define HR_EXPLAIN_H

#include "harness/formats/formats.h"

/* cell: a row of the store; ops, recorded: hr_store_ops, hr_store_recorded. *out, a new reference:
 *   {cell: {cell_id, run_id, test, model_filename, quant, act, ...: what identifies it, machine_class, flags},
 *    metrics: {ttft: METRIC | null, tpot: METRIC | null}, split: {prefill: {gemm_pct, attention_pct, other_pct,
 *    published_gemm_pct, published_attention_pct}, decode: {memory_pct, compute_pct, published_...}}, notes: [texts]}
 *   METRIC {measured_ms, recorded_ms, ideal_ms, terms: [{name, kind, ms, gb_s, gflop_s, roof_fraction, reason}],
 *           unexplained_ms, unexplained_pct}
 * ERR_INPUT, saying how to record, for a cell without op rows or without the recorded repetitions of schema 4. */
hr_status hr_explain(const json_t *cell, const json_t *ops, const json_t *recorded, json_t **out);
/* Term by term `a` minus `b`; the same shape. Terms are joined by name and kind; one that is missing counts 0. */
hr_status hr_explain_difference(const json_t *a, const json_t *b, json_t **out);
/* For reading: heading, the terms as a table with bars, the reasons, the split. TABLE or MD. */
hr_status hr_explain_print(hr_format format, FILE *stream, const json_t *explanation);
/* The rows of a waterfall for plots/waterfall.gp: metric "ttft" or "tpot". ERR_INPUT when the metric is null. */
hr_status hr_explain_tsv(const json_t *explanation, const char *metric, FILE *stream);
/* Draws the waterfalls of all metrics that are there into one SVG file, by gnuplot. ERR_UNSUPPORTED, saying how to get it,
 * where there is none. */
hr_status hr_explain_svg(const json_t *explanation, const char *path);

#endif
