/* From rows of ops to where the time of a phase went, and from a cell to its points on the roofline. */
#include "harness/report/report_data.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct op_sum {
    const char *phase, *op; /* borrowed */
    hr_unit unit;
    double calls, ns, bytes, flops, roof_ns;
} op_sum;

static bool multiplies_matrices(const char *op) {
    static const char *const ops[] = {"qkv", "out", "gate_up", "down", "head", "experts", "route"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i], op)) return true;
    return false;
}

static hr_unit unit_of_act(const json_t *cell) {
    const char *act = hr_word(cell, "act");
    return !strncmp(act, "int8", 4) ? HR_UNIT_INT8 : !strcmp(act, "bf16") ? HR_UNIT_BF16 : HR_UNIT_FP32;
}

/* As the row of the kernel, or of a joined op's product ("qkv_fused+row"), says; for kernels that this build does not have, by what they compute. */
static hr_unit unit_of(const json_t *cell, const char *op, const char *kernel) {
    const hr_kernel *k;
    const char *plus = strchr(kernel, '+'), *row = plus ? plus + 1 : kernel;
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++)
        if (!strcmp(k->name, row)) return k->unit;
    return multiplies_matrices(op) ? unit_of_act(cell) : HR_UNIT_FP32;
}

/* Flops of a unit whose ceiling was not measured count against fp32, as everywhere. */
static double peak_of(const json_t *cell, hr_unit unit) {
    const json_t *peaks = json_object_get(cell, "peak_gflop_s");
    const double peak = hr_num(peaks, hr_unit_names[unit]);
    return isnan(peak) ? hr_num(peaks, hr_unit_names[HR_UNIT_FP32]) : peak;
}

/* Least time of one call in ns: GB/s are bytes per ns. NaN when a ceiling that is needed is unknown. */
static double roof_ns(const json_t *cell, hr_unit unit, double bytes, double flops) {
    const double memory = bytes > 0 ? bytes / hr_num(cell, "peak_read_gb_s") : 0;
    const double compute = flops > 0 ? flops / peak_of(cell, unit) : 0;
    return isnan(memory) || isnan(compute) ? NAN : fmax(memory, compute);
}

static double or_zero(double v) {
    return isfinite(v) ? v : 0;
}

static size_t fold(const json_t *cell, const json_t *ops, op_sum *sums) {
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        const char *phase = hr_word(row, "phase"), *op = hr_word(row, "op");
        const hr_unit unit = unit_of(cell, op, hr_word(row, "kernel"));
        const double calls = or_zero(hr_num(row, "n")), bytes = or_zero(hr_num(row, "bytes")),
                     flops = or_zero(hr_num(row, "flops"));
        size_t k = 0;
        while (k < n && (strcmp(sums[k].phase, phase) || strcmp(sums[k].op, op))) k++;
        if (k == n) sums[n++] = (op_sum){.phase = phase, .op = op};
        if (flops > 0) sums[k].unit = unit;
        sums[k].calls += calls;
        sums[k].ns += calls * or_zero(hr_num(row, "median_ns"));
        sums[k].bytes += calls * bytes;
        sums[k].flops += calls * flops;
        sums[k].roof_ns += calls * roof_ns(cell, unit, bytes, flops);
    }
    return n;
}

/* Recorded steps of a phase: the head runs once in each; without one, the op that ran least. */
static double steps_of(const op_sum *sums, size_t n, const char *phase) {
    double steps = NAN;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(sums[i].phase, phase) || !(sums[i].calls > 0)) continue;
        if (!strcmp(sums[i].op, "head")) return sums[i].calls;
        steps = fmin(steps, sums[i].calls);
    }
    return steps;
}

static int by_phase_then_time(const void *a, const void *b) {
    const op_sum *x = a, *y = b;
    const int phase = strcmp(y->phase, x->phase); /* prefill before decode */
    return phase ? phase : (x->ns < y->ns) - (x->ns > y->ns);
}

static json_t *row_of(const json_t *cell, const op_sum *s, double steps, double whole_ms) {
    const double ms = s->ns / steps * 1e-6, roof_ms = s->roof_ns / steps * 1e-6;
    const double memory = s->bytes / hr_num(cell, "peak_read_gb_s"), compute = s->flops / peak_of(cell, s->unit);
    const char *bound = s->flops <= 0 && s->bytes <= 0 ? "" : s->flops > 0 && compute > memory ? "compute" : "memory";
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "phase", s->phase, "op", s->op, "unit",
                     hr_unit_names[s->unit], "calls", hr_real_or_null(s->calls / steps), "ms", hr_real_or_null(ms),
                     "bytes", hr_real_or_null(s->bytes / steps), "flops", hr_real_or_null(s->flops / steps), "roof_ms",
                     hr_real_or_null(roof_ms), "loss_ms", hr_real_or_null(ms - roof_ms), "share",
                     hr_real_or_null(ms / whole_ms), "bound", bound);
}

/* Less than this share of the measured time is a gap to show, not noise of medians. */
static const double EXPLAINED = 0.97;

/* Time of a phase in ms: as measured, else the sum of its ops. */
static double whole_of(const json_t *cell, const op_sum *sums, size_t n, const char *phase) {
    hr_report_point p;
    if (hr_report_point_of(cell, phase, &p) && p.ms > 0) return p.ms;
    double ns = 0;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(sums[i].phase, phase)) ns += sums[i].ns;
    return ns / steps_of(sums, n, phase) * 1e-6;
}

/* Appends what the ops of each phase leave unexplained; sums has room for a row a phase. */
static size_t add_outside(const json_t *cell, op_sum *sums, size_t n) {
    static const char *const phases[] = {"prefill", "decode"};
    size_t all = n;
    for (size_t k = 0; k < 2; k++) {
        const double steps = steps_of(sums, n, phases[k]), whole = whole_of(cell, sums, n, phases[k]) * 1e6 * steps;
        double ns = 0;
        for (size_t i = 0; i < n; i++)
            if (!strcmp(sums[i].phase, phases[k])) ns += sums[i].ns;
        if (ns > 0 && ns < EXPLAINED * whole)
            sums[all++] = (op_sum){.phase = phases[k], .op = HR_OUTSIDE_OPS, .calls = NAN, .ns = whole - ns};
    }
    return all;
}

hr_status hr_report_fold_ops(const json_t *cell, const json_t *ops, json_t **out) {
    op_sum *sums = hr_calloc(json_array_size(ops) + 2, sizeof *sums);
    json_t *rows = json_array();
    bool ok = sums && rows;
    const size_t n = ok ? add_outside(cell, sums, fold(cell, ops, sums)) : 0;
    if (ok) qsort(sums, n, sizeof *sums, by_phase_then_time);
    for (size_t i = 0; ok && i < n; i++) {
        const char *phase = sums[i].phase;
        const double steps = steps_of(sums, n, phase), whole = whole_of(cell, sums, n, phase);
        ok = json_array_append_new(rows, row_of(cell, &sums[i], steps, whole)) == 0;
    }
    hr_free(sums);
    if (!ok) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while adding up the ops of cell %.32s", hr_word(cell, "cell_id"));
    }
    *out = rows;
    return HR_OK;
}

double hr_report_phase_sum(const json_t *cell, const char *phase, const char *key) {
    double sum = NAN;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(cell, "op_sums"), i, row) {
        const double v = hr_num(row, key);
        if (!strcmp(hr_word(row, "phase"), phase) && strcmp(hr_word(row, "op"), HR_OUTSIDE_OPS) && isfinite(v))
            sum = isnan(sum) ? v : sum + v;
    }
    return sum;
}

/* ---- points ----------------------------------------------------------------------------------------------------- */

static hr_unit main_unit(const json_t *cell) {
    const json_t *flops = json_object_get(cell, "flops_by_unit");
    hr_unit best = unit_of_act(cell);
    double most = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        const double v = hr_num(flops, hr_unit_names[u]);
        if (v > most) most = v, best = (hr_unit)u;
    }
    return best;
}

/* The figures of the cell's own row: of the decode step, or of the prefill in a row without decode. */
static bool own_point(const json_t *cell, hr_report_point *p) {
    *p = (hr_report_point){.ms = hr_num(cell, "roof_time_ms") / hr_num(cell, "roof_fraction"),
                           .bytes = hr_num(cell, "bytes_step"),
                           .flops = hr_num(cell, "flops_step"),
                           .mbu = hr_num(cell, "mbu"),
                           .mfu = hr_num(cell, "mfu"),
                           .roof_fraction = hr_num(cell, "roof_fraction"),
                           .bound = hr_word(cell, "bound"),
                           .unit = main_unit(cell)};
    return isfinite(p->ms) && isfinite(p->flops) && isfinite(p->bytes);
}

bool hr_report_point_of(const json_t *cell, const char *phase, hr_report_point *out) {
    const bool decodes = hr_num(cell, "n_gen") > 0 || hr_num(cell, "osl") > 0;
    if (!strcmp(phase, "decode")) return decodes && own_point(cell, out);
    if (!decodes) return own_point(cell, out);
    const double ms = hr_p50(cell, "ttft_prefill_ms"), bytes = hr_num(cell, "prefill_bytes");
    *out = (hr_report_point){.ms = ms,
                             .bytes = bytes,
                             .flops = hr_num(cell, "prefill_flops"),
                             .mbu = bytes / (ms * 1e6) / hr_num(cell, "peak_read_gb_s"),
                             .mfu = hr_num(cell, "prefill_mfu"),
                             .roof_fraction = hr_num(cell, "prefill_roof_fraction"),
                             .bound = hr_word(cell, "prefill_bound"),
                             .unit = unit_of_act(cell)};
    return isfinite(ms) && isfinite(bytes) && isfinite(out->flops);
}

/* ---- cells that stand for others -------------------------------------------------------------------------------- */

static double rank_decode(const json_t *cell) {
    hr_report_point p;
    if (!hr_report_point_of(cell, "decode", &p)) return -1;
    const double seqs = fmax(1, or_zero(hr_num(cell, "n_seqs"))), depth = or_zero(hr_num(cell, "n_depth"));
    const bool request = isfinite(hr_num(cell, "isl")), usual = !strcmp(hr_word(cell, "kv_layout"), "head");
    return 1e6 / seqs + 1e4 * !request + 1e3 * usual + 1e2 / (1 + depth);
}

static double rank_prefill(const json_t *cell) {
    hr_report_point p;
    if (!hr_report_point_of(cell, "prefill", &p)) return -1;
    return hr_num(cell, "n_prompt") + 0.5 * !strcmp(hr_word(cell, "kv_layout"), "head");
}

static bool same_weights(const json_t *a, const json_t *b) {
    return !strcmp(hr_word(a, "model_filename"), hr_word(b, "model_filename")) &&
           !strcmp(hr_word(a, "quant"), hr_word(b, "quant")) && !strcmp(hr_word(a, "act"), hr_word(b, "act"));
}

static double size_of(const hr_report_pair *pair) {
    return or_zero(hr_num(pair->decode ? pair->decode : pair->prefill, "model_n_params"));
}

size_t hr_report_pairs(const hr_report *r, hr_report_pair *pairs, size_t most) {
    hr_report_pair all[HR_PAIRS_MOST];
    size_t n = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        const double d = rank_decode(cell), p = rank_prefill(cell);
        if (d < 0 && p < 0) continue;
        size_t k = 0;
        while (k < n && !same_weights(all[k].decode ? all[k].decode : all[k].prefill, cell)) k++;
        if (k == n && n == HR_PAIRS_MOST) continue;
        if (k == n) all[n++] = (hr_report_pair){NULL, NULL};
        if (d >= 0 && (!all[k].decode || d > rank_decode(all[k].decode))) all[k].decode = cell;
        if (p >= 0 && (!all[k].prefill || p > rank_prefill(all[k].prefill))) all[k].prefill = cell;
    }
    /* insertion sort: stable, and there are few */
    for (size_t a = 1; a < n; a++)
        for (size_t b = a; b > 0 && size_of(&all[b - 1]) < size_of(&all[b]); b--) {
            const hr_report_pair swap = all[b];
            all[b] = all[b - 1], all[b - 1] = swap;
        }
    if (n > most) n = most;
    memcpy(pairs, all, n * sizeof *pairs);
    return n;
}
