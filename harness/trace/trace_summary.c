/* The ops of a trace by phase and class. */
#include "harness/stats/stats.h"
#include "harness/trace/trace.h"
#include "kernels/base/memory.h"

#include <math.h>

const char *const hr_trace_summary_keys[] = {"name",         "phase",      "op",        "calls", "total_ms",
                                             "mean_us",      "median_us",  "share_pct", "gb_s",  "gop_s",
                                             "imbalance_ms", "handoff_ms", NULL};
const char *const hr_trace_summary_shown[] = {"name|=op",
                                              "calls",
                                              "total_ms|=total ms",
                                              "mean_us|=mean us",
                                              "median_us|=median us",
                                              "share_pct|=share %",
                                              "gb_s|=GB/s",
                                              "gop_s|=GOP/s",
                                              NULL};

typedef struct row {
    size_t n, filled;
    double *us; /* [n] of each call */
    double total_ns, bytes, flops, imbalance_ns, handoff_ns;
    size_t first; /* index of its first record: the order of the rows */
} row;

static double rate(double work, double ns) {
    return work > 0 && ns > 0 ? work / ns : NAN;
}

static json_t *row_json(row *r, hr_op op, hr_phase phase, double span_ns) {
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", hr_op_range_name(op, phase), "phase",
        hr_phase_names[phase], "op", hr_op_names[op], "calls", (json_int_t)r->n, "total_ms",
        hr_real_or_null(r->total_ns * 1e-6), "mean_us", hr_real_or_null(r->total_ns * 1e-3 / (double)r->n), "median_us",
        hr_real_or_null(hr_median(r->us, r->n)), "share_pct", hr_real_or_null(r->total_ns / span_ns * 100), "gb_s",
        hr_real_or_null(rate(r->bytes, r->total_ns)), "gop_s", hr_real_or_null(rate(r->flops, r->total_ns)),
        "imbalance_ms", hr_real_or_null(r->imbalance_ns * 1e-6), "handoff_ms", hr_real_or_null(r->handoff_ns * 1e-6));
}

static json_t *between_json(double ns, double span_ns) {
    return json_pack("{s:s, s:n, s:n, s:n, s:o, s:n, s:n, s:o, s:n, s:n, s:n, s:n}", "name", "between ops", "phase",
                     "op", "calls", "total_ms", hr_real_or_null(ns * 1e-6), "mean_us", "median_us", "share_pct",
                     hr_real_or_null(ns / span_ns * 100), "gb_s", "gop_s", "imbalance_ms", "handoff_ms");
}

static void add_up(const hr_trace *t, row rows[HR_PHASE_COUNT][HR_OP_COUNT]) {
    for (size_t i = 0; i < t->n_records; i++) {
        const hr_op_record *o = &t->records[i];
        row *r = &rows[o->phase][o->op];
        if (!r->n++) r->first = i;
        r->total_ns += (double)(o->end_ns - o->start_ns);
        r->bytes += (double)o->bytes, r->flops += (double)o->flops;
        r->imbalance_ns += (double)o->imbalance_ns, r->handoff_ns += (double)o->handoff_ns;
    }
}

/* The row that begins next after record `after` (-1: the first one); false: none. */
static bool next_row(row rows[HR_PHASE_COUNT][HR_OP_COUNT], ptrdiff_t after, int *phase, int *op) {
    size_t best = SIZE_MAX;
    for (int p = 0; p < HR_PHASE_COUNT; p++)
        for (int o = 0; o < HR_OP_COUNT; o++) {
            const row *r = &rows[p][o];
            if (r->n && (ptrdiff_t)r->first > after && r->first < best) best = r->first, *phase = p, *op = o;
        }
    return best != SIZE_MAX;
}

hr_status hr_trace_summary(const hr_trace *t, json_t **out) {
    row rows[HR_PHASE_COUNT][HR_OP_COUNT] = {0};
    json_t *list = *out = json_array();
    double *us = hr_malloc(hr_mul(t->n_records + 1, sizeof *us)), ops_ns = 0;
    if (!us || !list) {
        hr_free(us);
        json_decref(list);
        *out = NULL;
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the table of %zu ops", t->n_records);
    }
    add_up(t, rows);
    double *next = us;
    for (int p = 0; p < HR_PHASE_COUNT; p++)
        for (int o = 0; o < HR_OP_COUNT; o++) {
            rows[p][o].us = next, next += rows[p][o].n;
            ops_ns += rows[p][o].total_ns;
        }
    for (size_t i = 0; i < t->n_records; i++) {
        const hr_op_record *o = &t->records[i];
        row *r = &rows[o->phase][o->op];
        r->us[r->filled++] = (double)(o->end_ns - o->start_ns) * 1e-3;
    }
    const double span_ns = t->n_records ? (double)(t->records[t->n_records - 1].end_ns - t->records[0].start_ns) : 0;
    int phase, op;
    for (ptrdiff_t at = -1; next_row(rows, at, &phase, &op); at = (ptrdiff_t)rows[phase][op].first)
        json_array_append_new(list, row_json(&rows[phase][op], (hr_op)op, (hr_phase)phase, span_ns));
    if (t->n_records) json_array_append_new(list, between_json(span_ns - ops_ns, span_ns));
    hr_free(us);
    return HR_OK;
}
