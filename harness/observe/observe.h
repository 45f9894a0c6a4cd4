/* observe.h - what watching a cell costs: off against each way of watching, in interleaved pairs on one cell.
 *
 * A pair is two short runs in random order, one of them watched; where the recorder can be turned between steps, every other
 * step of both. Its observation is the logarithm of watched over not watched. A row is the Hodges-Lehmann shift over the pairs with its 95 % interval, in percent: above 0 is what it costs. */
#ifndef HR_OBSERVE_H
#define HR_OBSERVE_H

#include "harness/sweep/cell.h"
#include "kernels/base/pairs.h"

/* Ways of watching, in the order in which they are measured. */
typedef enum hr_watch {
    HR_WATCH_OFF,       /* nothing against nothing: what these pairs cannot tell apart */
    HR_WATCH_RECORDER,  /* the in-process recorder */
    HR_WATCH_NVTX,      /* ranges on, no tool attached */
    HR_WATCH_LIBRARY,   /* the recorder library attached by NVTX_INJECTION64_PATH */
    HR_WATCH_NSYS,      /* run under nsys */
    HR_WATCH_NO_PROBES, /* a build without probes: what probes cost while nobody listens */
    HR_WATCH_COUNT
} hr_watch;
extern const char *const hr_watch_names[HR_WATCH_COUNT + 1]; /* "off", "recorder", ..., then NULL */
bool hr_watch_in_process(hr_watch watch);

typedef enum hr_observe_metric { HR_OBSERVE_TTFT, HR_OBSERVE_TPOT, HR_OBSERVE_METRICS } hr_observe_metric;

typedef struct hr_observe_options {
    const hr_cell_config *cell; /* an isl row */
    const hr_model_info *info;
    unsigned watches;    /* bits: 1u << HR_WATCH_... */
    size_t pairs;        /* at most HR_PAIRS_MAX */
    size_t repetitions;  /* of a run; their median counts */
    uint64_t seed;       /* of the order within pairs, and of the prompts */
    const char *program; /* this program: for what needs a process of its own */
    const json_t *sweep; /* words after `PROGRAM sweep` that measure the cell */
    const char *without; /* a build without probes; NULL: not given */
    bool (*stop)(void);  /* NULL, or: asked between runs */
    void (*progress)(double share, const char *name, void *context); /* NULL: none */
    hr_status (*keep)(const json_t *row, void *context);             /* NULL, or: each row as it is measured */
    void *context;
} hr_observe_options;

/* *rows: what was measured, whatever is returned; a way that cannot be had here is a row with null and the reason.
 * ERR_INTERRUPTED after `stop`; what keep returns. New reference; NULL when out of memory. */
hr_status hr_observe_run(const hr_observe_options *options, json_t **rows);

/* ---- rows (observe_row.c) ---- */

/* Times in ms: [0] not watched, [1] watched. */
typedef struct hr_observe_pairs {
    size_t n;
    double ms[HR_OBSERVE_METRICS][2][HR_PAIRS_MAX];
} hr_observe_pairs;

/* {name: "recorder:tpot", arm, metric, model_filename, quant, act, test, n, median, ci95_lo, ci95_hi, unit "%", p, off_ms,
 * on_ms, target, target_lo, target_hi, verdict, what, reason, pairs}. reason NULL: measured. verdict: "met", "missed",
 * "inconclusive", null without a target. New reference; NULL when out of memory. */
json_t *hr_observe_row(const hr_observe_options *options, hr_watch watch, hr_observe_metric metric,
                       const hr_observe_pairs *pairs, const char *reason);
/* What an interval says of a target; NaN: no limit on that side. */
const char *hr_observe_verdict(double lo, double hi, double target_lo, double target_hi);

/* ---- the two ways to take a pair ---- */

/* Fill pairs up to options->pairs; n counts whole pairs, also after a failure. ERR_UNSUPPORTED, with the reason, for a way
 * that cannot be had here. */
hr_status hr_observe_engine(const hr_observe_options *options, const hr_model *model, hr_watch watch,
                            hr_observe_pairs *pairs);
hr_status hr_observe_processes(const hr_observe_options *options, hr_watch watch, hr_observe_pairs *pairs);
/* ERR_USAGE when `without` is not this program built without probes. */
hr_status hr_observe_check_without(const char *program, const char *without);
/* Between runs: the progress, and ERR_INTERRUPTED when it is time to end. */
hr_status hr_observe_next(const hr_observe_options *options, hr_watch watch, size_t done);

#endif
