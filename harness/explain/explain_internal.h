/* explain_internal.h - what the files of this folder share: the facts of a metric, from which terms and reasons are made. */
#ifndef HR_EXPLAIN_INTERNAL_H
#define HR_EXPLAIN_INTERNAL_H

#include "harness/explain/explain.h"
#include "harness/formats/cell_device.h"
#include "kernels/table.h"

enum { HR_EXPLAIN_METRICS = 2 };
extern const char *const hr_explain_metrics[HR_EXPLAIN_METRICS], *const hr_explain_phases[HR_EXPLAIN_METRICS];

bool hr_explain_is_difference(const json_t *explanation);
/* The p50 of a distribution of the cell; NaN: it has none. */
double hr_explain_p50(const json_t *cell, const char *key);
bool hr_explain_flagged(const json_t *cell, const char *flag);
/* A text behind the others; one that there is no memory for is missing. */
__attribute__((format(printf, 2, 3))) void hr_explain_note(json_t *notes, const char *format, ...);

/* What a cell's own ceilings allow. NaN: unknown. A unit without a ceiling of its own counts against fp32. */
typedef struct hr_explain_peaks {
    double read_gb_s, gflop_s[HR_UNIT_COUNT];
} hr_explain_peaks;

/* An op class of one phase, summed over layers, kernels and calls; of one request (prefill) or one step (decode). */
typedef struct hr_op_class {
    const char *op, *kernel; /* borrowed; the kernel that most of the time is spent in */
    hr_unit unit;            /* that most of its arithmetic needs */
    double calls, ns;        /* ns: the whole, waiting and handing over included */
    double imbalance_ns, handoff_ns;
    double bytes, flops, unit_flops[HR_UNIT_COUNT];
    double roof_ns;               /* sum over the calls of max(bytes / read, flops / peak); 0 without ceilings */
    double memory_ns, compute_ns; /* the two sides, summed */
} hr_op_class;

enum { HR_EXPLAIN_CLASSES = HR_OP_COUNT + 4 }; /* names that this build does not know share the room behind */
typedef struct hr_phase_ops {
    hr_op_class classes[HR_EXPLAIN_CLASSES]; /* in order of the forward pass */
    size_t n;
    hr_op_class all; /* their sum */
} hr_phase_ops;

/* ops: rows of the store; times: requests or steps that they were recorded in. */
void hr_explain_fold(const json_t *ops, const char *phase, double times, const hr_explain_peaks *peaks,
                     hr_phase_ops *out);
double hr_explain_peak(const hr_explain_peaks *peaks, hr_unit unit);

/* The recorded repetitions of a phase. */
typedef struct hr_recorded_sum {
    size_t n, n_pairs;
    double times;                  /* requests or steps in all of them */
    double on_ns, probe_ns;        /* of one, mean over all */
    double n_ops, n_jobs;          /* of one */
    double median_on_ns;           /* over the repetitions */
    double pair_lo, pair_hi;       /* with over without the recorder: of neighbours the lowest, the highest */
    double seen, seen_lo, seen_hi; /* of all with over all without, and its 95 % interval; NaN: none */
    bool established;              /* it is another than calibration says */
    double pair;                   /* what counts: seen, or as calibration says; NaN: none */
} hr_recorded_sum;
void hr_explain_recorded(const json_t *rows, const char *phase, hr_recorded_sum *out);

/* A phase at the roof, ms. ideal is NaN where a ceiling is unknown; its parts add up to it. */
typedef struct hr_ideal {
    double ms;
    bool compute; /* bound by arithmetic: unit_ms, else by memory: the other three */
    double weights_ms, kv_read_ms, kv_write_ms, unit_ms[HR_UNIT_COUNT];
    double bytes; /* of the phase */
} hr_ideal;
void hr_explain_ideal(const json_t *cell, const char *phase, const hr_phase_ops *ops, const hr_explain_peaks *peaks,
                      hr_ideal *out);

typedef struct hr_metric {
    const json_t *cell;
    const char *name, *phase; /* "ttft" of "prefill", "tpot" of "decode" */
    double measured_ms;
    double queue_ms;        /* of measured_ms: waiting before or between; NaN: none */
    const char *queue_name; /* "queue", "tokenize" */
    double base_ms;         /* the rest: one request's prefill and first sample, one step */
    double scale;           /* ms of base_ms, recorder included, that a recorded ns stands for */
    double gap_ms, probe_ms, unexplained_ms;
    hr_recorded_sum recorded;
    hr_ideal ideal;
    hr_phase_ops ops;
    hr_explain_peaks peaks;
} hr_metric;

enum { HR_REASON_BYTES = 640 };
/* Sentences, one per term: what was measured, and flags of this program to try whose value is not set yet. out:
 * [HR_REASON_BYTES]. */
void hr_reason_ideal(const hr_metric *m, const char *term, double ms, char *out);
void hr_reason_op(const hr_metric *m, const hr_op_class *op, double lost_ms, char *out);
void hr_reason_term(const hr_metric *m, const char *term, double ms, char *out);
/* The same for the difference of two terms of one name. */
void hr_reason_difference(const json_t *a, const json_t *b, char *out);
/* The rules of what to try: [{terms, phase, bound, key, test, value, advice}]; for tests and the documentation. */
json_t *hr_reason_rules(void);

#endif
