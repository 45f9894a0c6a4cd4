/* report_data.h - what a report is made of: the cells chosen from the store, their ops, the machine and its ceilings. */
#ifndef HR_REPORT_DATA_H
#define HR_REPORT_DATA_H

#include "harness/formats/json_get.h"
#include "harness/report/report.h"
#include "kernels/table.h"

typedef struct hr_report {
    json_t *cells;   /* ok, the newest measurement of each cell_id, oldest first; with "op_sums" (hr_report_fold_ops) */
    json_t *others;  /* failed and skipped cells that no ok cell of the same id stands for */
    json_t *runs;    /* the runs they are from, oldest first */
    json_t *machine; /* of the newest run */
    json_t *roof;    /* the newest object of `roof --json` with a size sweep; NULL: none */
    double read_gb_s;     /* highest ceiling measured beside a cell; NaN: none */
    double read_low_gb_s; /* and the lowest */
    double gflop_s[HR_UNIT_COUNT];
    size_t n_elsewhere; /* cells of these runs that another device ran: a report is about one */
    size_t n_replaced;  /* older measurements of the same cells */
    json_t
        *study; /* {layouts, operations, dtypes, allocators}: rows as harness/kv/study.h says, the newest of each key */
    json_t *claims;  /* rows of `headroom claims`, the newest of each id */
    char *kv_advice; /* out of the study; "" without one */
    char kv_elsewhere
        [100]; /* the study has rows of this machine class alone, which is not the one of the report; "": no */
    size_t n_kv_replaced, n_kv_simulated;
    json_t *explained;     /* cell_id -> hr_explain of cells that stand for others */
    json_t *advice;        /* findings on the cells of the report, as hr_advice_of_run gives them */
    json_t *observed;      /* rows of `headroom observe`, the newest of each */
    json_t *ranges;        /* [{cell, rows}]: ranges of ops that nsys saw, as hr_ranges_beside_ops gives them */
    char unexplained[400]; /* why a cell could not be explained; "": all could */
} hr_report;

hr_status hr_report_load(hr_store *store, const hr_report_options *options, hr_report *out);
void hr_report_fini(hr_report *report);

/* The row of what the recorded ops leave unexplained. */
#define HR_OUTSIDE_OPS "outside the ops"

/* Ops of a cell folded over layers and kernels: [{phase, op, unit, calls, ms, bytes, flops, roof_ms, loss_ms, share,
 * bound}], per decode step or per prefill, in falling order of ms, prefill first. ms is the sum over the calls of each
 * one's median time; roof_ms (null without ceilings) is the sum of max(bytes / read, flops / peak of the unit); loss_ms
 * is ms - roof_ms; share is ms as a share of the time measured with the recorder off (of the sum of the ops where that
 * is unknown). Where the ops add up to under 97 % of it, a row HR_OUTSIDE_OPS holds the rest. New reference. */
hr_status hr_report_fold_ops(const json_t *cell, const json_t *ops, json_t **out);
/* Sum of a key over the op sums of a phase, without HR_OUTSIDE_OPS; NaN when there are none. */
double hr_report_phase_sum(const json_t *cell, const char *phase, const char *key);

/* One point on the roofline: a phase of a cell. */
typedef struct hr_report_point {
    double ms, bytes, flops, mbu, mfu, roof_fraction;
    const char *bound; /* "memory", "compute", "" */
    hr_unit unit;      /* the unit that does most of the work */
} hr_report_point;
/* phase: "decode" or "prefill". False where the cell has none. */
bool hr_report_point_of(const json_t *cell, const char *phase, hr_report_point *out);

/* The cell that stands for a model and quantization in words: decode of one sequence at the smallest depth, prefill of
 * the longest prompt. */
typedef struct hr_report_pair {
    const json_t *decode, *prefill; /* either may be NULL */
} hr_report_pair;
enum { HR_PAIRS_MOST = 64 };
/* Largest model first, within it in order of first measurement; at most `most`, which is at most HR_PAIRS_MOST. */
size_t hr_report_pairs(const hr_report *report, hr_report_pair *pairs, size_t most);

static inline double hr_p50(const json_t *cell, const char *key) {
    return hr_num(json_object_get(cell, key), "p50");
}
bool hr_report_flagged(const json_t *cell, const char *flag);

#endif
