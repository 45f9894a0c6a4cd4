/* compare.h - two sets of cells: which match, how each metric moved, and a verdict about B seen from A. Pure functions over
 * rows of the store; what is compared and printed is cli.md's.
 *
 * 1. Cells join on (cell_id, state_class), null equal to null. Those without a partner are listed, never averaged over.
 * 2. Metrics are times, so that a positive shift is slower: pp ttft_prefill_ms, tg tpot_excl_first_ms, isl ttft_ms,
 *    tpot_excl_first_ms, e2e_ms; pg prefill and tpot. Rows of other tools that are none of these: time_ms (samples_ns).
 * 3. Stored samples inform (two_samples.h); pairs judge (kernels/base/pairs.h). */
#ifndef HR_COMPARE_H
#define HR_COMPARE_H

#include "harness/formats/formats.h"
#include "harness/store/store.h"

/* Metrics of a row kind, NULL-ended; cells of other tools: from n_prompt and n_gen. */
const char *const *hr_compare_metrics(const json_t *cell);
/* Short names of budgets: ttft tpot itl e2e pp tg; itl is tpot_excl_first_ms, the mean of a request's gaps. NULL: the cell
 * has none. */
const char *hr_compare_metric_of(const char *short_name, const json_t *cell);
/* Samples of a metric in ms, one a repetition, without those flagged throttled (when others remain); hr_malloc'ed. n 0: the
 * cell has none. */
hr_status hr_compare_samples(const json_t *cell, const char *metric, double **out, size_t *n);

typedef struct hr_compare_rule {
    double effect; /* 0.02: smallest shift that matters */
    double level;  /* 0.05 */
    bool holm;     /* family-wise; else Benjamini-Hochberg */
    bool allow_simulated, across_machines;
} hr_compare_rule;
hr_compare_rule hr_compare_rule_default(void);

/* a, b: arrays of cells. *out: {cells: [{test, cell_id, state_class, model_filename, quant, metric, a_median, b_median,
 * shift_pct, ci95_lo_pct, ci95_hi_pct, p, p_adjusted, n_a, n_b, verdict, why, blocked, status_a, status_b, converged_a,
 * converged_b, stop_reason_a, stop_reason_b, error_a, error_b, roof_fraction_a, roof_fraction_b, mbu_a, mbu_b}],
 * unmatched_a, unmatched_b: [{test, cell_id, state_class, model_filename, quant, status, why}],
 * summary: {compared, same, faster, slower, inconclusive, failed, unmatched}}. ERR_INPUT for unlike machines without
 * across_machines (then rows carry no verdict but machine_a and machine_b, and join by what is measured), and for simulated
 * cells that are not allowed.
 *   blocked     why the numbers may not be judged (a mixed state, a reduced clock, no raw samples); null: they may be
 *   why         of inconclusive rows
 *   a failed cell with a partner is one row with its status and error, inconclusive, in summary.failed alone; without a
 *   partner it is unmatched, and in failed too */
hr_status hr_compare_cells(const json_t *a, const json_t *b, const hr_compare_rule *rule, json_t **out);

/* One row out of pairs (ab): logs[n] = log(time B / time A) of each pair. The same keys. */
hr_status hr_compare_pairs(const json_t *cell, const char *metric, const double *a_ms, const double *b_ms, size_t n,
                           json_t **row);
/* Adjusts p of rows, sets p_adjusted and verdict, fills summary. */
hr_status hr_compare_judge(json_t *comparison, const hr_compare_rule *rule);

/* Which op classes explain a shift: from the op rows of both sides, by phase: [{op, phase, a_ms, b_ms, shift_ms,
 * share_pct}], largest first; ms of one request (prefill) or one step (decode), share_pct of the phase's shift. An empty
 * array when a side has no rows. */
hr_status hr_compare_ops(const json_t *ops_a, const json_t *ops_b, json_t **out);

/* Op rows added up: [{phase, op, ms}] of one request or step. */
hr_status hr_compare_fold_ops(const json_t *ops, json_t **out);
/* The phase whose ops explain a metric; NULL: it has several. */
const char *hr_compare_phase(const char *metric);

/* Whether the text names a file that is there; `last` and `last~k` are runs. */
bool hr_compare_is_file(const char *text);
/* RUN of the store or a file (any format that import reads): *cells an array with samples and machine_class, *run its row or
 * NULL. store may be NULL for a file. */
hr_status hr_compare_load(hr_store *store, const char *text, json_t **cells, json_t **run);
/* Table and Markdown of a comparison, slower first; Markdown is what a pull request shows. */
hr_status hr_compare_print(hr_format format, FILE *stream, const json_t *comparison);

#endif
