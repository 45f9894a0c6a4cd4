/* Which op classes explain a shift, from what the recorder saw on both sides. */
#include "harness/compare/compare_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 }; /* op classes times phases */

typedef struct op_time {
    const char *phase, *op; /* borrowed */
    double calls, ns;       /* of all that was recorded */
    double ms[2];           /* of one request (prefill) or one step (decode), by side */
} op_time;

static op_time *find(op_time *all, size_t *n, const char *phase, const char *op) {
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(all[i].phase, phase) && !strcmp(all[i].op, op)) return &all[i];
    if (*n == MOST) return NULL;
    all[*n] = (op_time){.phase = phase, .op = op};
    return &all[(*n)++];
}

/* Requests or steps that were recorded: the head runs once in each; where there is none, what ran least often does. */
static double units(const op_time *all, size_t n, const char *phase) {
    double least = NAN;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].phase, phase) || !(all[i].calls > 0)) continue;
        if (!strcmp(all[i].op, "head")) return all[i].calls;
        least = fmin(least, all[i].calls); /* fmin leaves NaN out */
    }
    return least;
}

static size_t fold(const json_t *ops, op_time *all) {
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        op_time *at = find(all, &n, hr_word(row, "phase"), hr_word(row, "op"));
        const double calls = hr_num(row, "n"), ns = hr_num(row, "median_ns");
        if (at && calls > 0 && ns >= 0) at->calls += calls, at->ns += calls * ns;
    }
    for (size_t k = 0; k < n; k++) all[k].ms[0] = all[k].ns / units(all, n, all[k].phase) / 1e6;
    return n;
}

static int by_size_of_shift(const void *a, const void *b) {
    const op_time *x = a, *y = b;
    const double s = fabs(x->ms[1] - x->ms[0]), t = fabs(y->ms[1] - y->ms[0]);
    const int phase = strcmp(x->phase, y->phase), op = strcmp(x->op, y->op);
    return s != t ? (s < t) - (s > t) : phase ? phase : op;
}

static double whole_shift(const op_time *all, size_t n, const char *phase) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(all[i].phase, phase)) sum += all[i].ms[1] - all[i].ms[0];
    return sum;
}

static bool put(json_t *rows, const op_time *t, double whole) {
    const double shift = t->ms[1] - t->ms[0];
    return json_array_append_new(rows, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "op", t->op, "phase", t->phase,
                                                 "a_ms", hr_real_or_null(t->ms[0]), "b_ms", hr_real_or_null(t->ms[1]),
                                                 "shift_ms", hr_real_or_null(shift), "share_pct",
                                                 hr_real_or_null(whole != 0 ? shift / whole * 100 : NAN))) == 0;
}

/* An op that only one side has (another fusion) takes no time on the other. */
hr_status hr_compare_ops(const json_t *ops_a, const json_t *ops_b, json_t **out) {
    op_time all[MOST] = {0}, b[MOST] = {0};
    json_t *rows = json_array();
    size_t n = fold(ops_a, all);
    const size_t n_b = fold(ops_b, b);
    bool ok = rows != NULL;
    const bool known = n > 0 && n_b > 0;
    for (size_t i = 0; known && i < n_b; i++) {
        op_time *at = find(all, &n, b[i].phase, b[i].op);
        if (at) at->ms[1] = b[i].ms[0];
    }
    if (known) qsort(all, n, sizeof *all, by_size_of_shift);
    for (size_t i = 0; known && ok && i < n; i++) ok = put(rows, &all[i], whole_shift(all, n, all[i].phase));
    if (!ok) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while comparing ops");
    }
    *out = rows;
    return HR_OK;
}

hr_status hr_compare_fold_ops(const json_t *ops, json_t **out) {
    op_time all[MOST] = {0};
    const size_t n = fold(ops, all);
    json_t *rows = json_array();
    bool ok = rows != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(rows, json_pack("{s:s, s:s, s:f}", "phase", all[i].phase, "op", all[i].op, "ms",
                                                   isfinite(all[i].ms[0]) ? all[i].ms[0] : 0)) == 0;
    if (!ok) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while adding up ops");
    }
    *out = rows;
    return HR_OK;
}

const char *hr_compare_phase(const char *metric) {
    if (!strcmp(metric, "ttft_ms") || !strcmp(metric, "ttft_prefill_ms")) return "prefill";
    return !strcmp(metric, "tpot_excl_first_ms") ? "decode" : NULL;
}
