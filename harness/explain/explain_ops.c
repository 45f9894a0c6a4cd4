/* explain_ops.c - rows of ops and of recorded repetitions, summed to one request or one step; the phase at its roof. */
#include "harness/explain/explain_internal.h"

#include "harness/stats/stats.h"
#include "harness/stats/two_samples.h"
#include "kernels/base/pairs.h"

#include <math.h>
#include <string.h>

static double or_zero(double v) {
    return isfinite(v) ? v : 0;
}

double hr_explain_peak(const hr_explain_peaks *peaks, hr_unit unit) {
    return isnan(peaks->gflop_s[unit]) ? peaks->gflop_s[HR_UNIT_FP32] : peaks->gflop_s[unit];
}

/* ---- ops ---------------------------------------------------------------------------------------------------------- */

static hr_unit unit_of(const json_t *row) {
    const char *name = hr_word(row, "unit");
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (!strcmp(name, hr_unit_names[u])) return (hr_unit)u;
    return HR_UNIT_FP32;
}

/* The class of an op's name, made when it is new; in a full table the last one takes what is left. */
static hr_op_class *class_of(hr_phase_ops *ops, const char *op) {
    for (size_t i = 0; i < ops->n; i++)
        if (!strcmp(ops->classes[i].op, op)) return &ops->classes[i];
    if (ops->n == HR_EXPLAIN_CLASSES) return &ops->classes[HR_EXPLAIN_CLASSES - 1];
    ops->classes[ops->n] = (hr_op_class){.op = op, .kernel = ""};
    return &ops->classes[ops->n++];
}

static void add(hr_op_class *c, double calls, const json_t *row, const hr_explain_peaks *peaks) {
    const hr_unit unit = unit_of(row);
    const double bytes = or_zero(hr_num(row, "bytes")), flops = or_zero(hr_num(row, "flops"));
    /* GB/s are bytes a ns. Without a ceiling nothing is known to be needed. */
    const double memory = or_zero(bytes / peaks->read_gb_s), compute = or_zero(flops / hr_explain_peak(peaks, unit));
    c->calls += calls;
    c->ns += calls * or_zero(hr_num(row, "mean_ns"));
    c->imbalance_ns += calls * or_zero(hr_num(row, "imbalance_ns"));
    c->handoff_ns += calls * or_zero(hr_num(row, "handoff_ns"));
    c->bytes += calls * bytes, c->flops += calls * flops;
    c->unit_flops[unit] += calls * flops;
    c->memory_ns += calls * memory, c->compute_ns += calls * compute;
    c->roof_ns += calls * fmax(memory, compute);
}

static double time_in(const json_t *ops, const char *phase, const char *op, const char *kernel) {
    double ns = 0;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) if (!strcmp(hr_word(row, "phase"), phase) &&
                                                  !strcmp(hr_word(row, "op"), op) &&
                                                  !strcmp(hr_word(row, "kernel"), kernel)) ns +=
        or_zero(hr_num(row, "n") * hr_num(row, "mean_ns"));
    return ns;
}

/* Layers may run different kernels (a mixed quantization): the class is named by the one with most of the time. */
static void name_kernels(const json_t *ops, const char *phase, hr_phase_ops *out) {
    double most[HR_EXPLAIN_CLASSES] = {0};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        const char *op = hr_word(row, "op"), *kernel = hr_word(row, "kernel");
        if (strcmp(hr_word(row, "phase"), phase)) continue;
        hr_op_class *c = class_of(out, op);
        if (!strcmp(c->kernel, kernel)) continue;
        const double ns = time_in(ops, phase, op, kernel);
        if (ns > most[c - out->classes]) most[c - out->classes] = ns, c->kernel = kernel;
    }
}

void hr_explain_fold(const json_t *ops, const char *phase, double times, const hr_explain_peaks *peaks,
                     hr_phase_ops *out) {
    *out = (hr_phase_ops){.all = {.op = "all", .kernel = ""}};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        if (strcmp(hr_word(row, "phase"), phase)) continue;
        const double calls = or_zero(hr_num(row, "n")) / times;
        add(class_of(out, hr_word(row, "op")), calls, row, peaks);
        add(&out->all, calls, row, peaks);
    }
    for (size_t k = 0; k < out->n; k++)
        for (int u = 0; u < HR_UNIT_COUNT; u++)
            if (out->classes[k].unit_flops[u] > out->classes[k].unit_flops[out->classes[k].unit])
                out->classes[k].unit = (hr_unit)u;
    name_kernels(ops, phase, out);
}

/* ---- recorded repetitions ------------------------------------------------------------------------------------------ */

/* With over without the recorder: the two-sample Hodges-Lehmann ratio and its 95 % interval. Repetitions stand in turns, so that
 * slow drift meets both sides alike; a repetition that met a neighbour decides nothing; and on a quiet virtual machine it
 * scatters by a sixth less than the shift of neighbouring pairs.
 *
 * The repetitions themselves scatter far more than recording costs. So the ratio counts as far as it is established: when what
 * calibration says lies outside the interval, or outside the range of the pairs (for five of them an interval of 94 %); else
 * the ratio is the calibrated one. Too few pairs for an interval: it counts as it is. */
static void set_ratio(const double *on, const double *off, hr_recorded_sum *out) {
    enum { ENOUGH = 5 };
    double with[HR_PAIRS_MAX], without[HR_PAIRS_MAX];
    hr_two_samples both;
    const double calibrated = out->on_ns / (out->on_ns - out->probe_ns);
    for (size_t i = 0; i < out->n_pairs; i++) with[i] = log(on[i]), without[i] = log(off[i]);
    out->pair = out->seen = out->seen_lo = out->seen_hi = NAN, out->established = true;
    if (!out->n_pairs || hr_two_samples_of(without, out->n_pairs, with, out->n_pairs, &both) != HR_OK) return;
    out->pair = out->seen = exp(both.shift), out->seen_lo = exp(both.lo), out->seen_hi = exp(both.hi);
    if (out->n_pairs < ENOUGH || isnan(both.lo)) return;
    const bool in_interval = calibrated >= out->seen_lo && calibrated <= out->seen_hi;
    out->established = !in_interval || calibrated < out->pair_lo || calibrated > out->pair_hi;
    if (!out->established) out->pair = calibrated;
}

void hr_explain_recorded(const json_t *rows, const char *phase, hr_recorded_sum *out) {
    double on[HR_PAIRS_MAX], with[HR_PAIRS_MAX], without[HR_PAIRS_MAX];
    *out = (hr_recorded_sum){.pair_lo = INFINITY, .pair_hi = -INFINITY};
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const double n = hr_num(row, "n"), on_ns = hr_num(row, "on_ns"), off_ns = hr_num(row, "off_ns");
        if (strcmp(hr_word(row, "phase"), phase) || !(n > 0) || !(on_ns > 0) || out->n == HR_PAIRS_MAX) continue;
        on[out->n++] = on_ns;
        out->times += n;
        out->on_ns += n * on_ns, out->probe_ns += n * or_zero(hr_num(row, "probe_ns"));
        out->n_ops += n * or_zero(hr_num(row, "n_ops")), out->n_jobs += n * or_zero(hr_num(row, "n_jobs"));
        if (!(off_ns > 0)) continue;
        const double pair = on_ns / off_ns;
        with[out->n_pairs] = on_ns, without[out->n_pairs++] = off_ns;
        out->pair_lo = fmin(out->pair_lo, pair), out->pair_hi = fmax(out->pair_hi, pair);
    }
    out->on_ns /= out->times, out->probe_ns /= out->times;
    out->n_ops /= out->times, out->n_jobs /= out->times;
    out->median_on_ns = out->n ? hr_median(on, out->n) : NAN;
    set_ratio(with, without, out);
}

/* ---- the phase at its roof ----------------------------------------------------------------------------------------- */

static const hr_op_class *find(const hr_phase_ops *ops, const char *op) {
    for (size_t i = 0; i < ops->n; i++)
        if (!strcmp(ops->classes[i].op, op)) return &ops->classes[i];
    return NULL;
}

/* Shares out of `ms` in the ratio of the times that each unit would need. */
static void share_units(hr_ideal *out, const double *flops, const hr_explain_peaks *peaks, double ms) {
    double sum = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        out->unit_ms[u] = or_zero(or_zero(flops[u]) / hr_explain_peak(peaks, (hr_unit)u));
        sum += out->unit_ms[u];
    }
    for (int u = 0; u < HR_UNIT_COUNT; u++) out->unit_ms[u] *= sum > 0 ? ms / sum : 0;
}

/* The cell's own work: of its decode step, or of the whole prefill of a pp row. */
static void own_ideal(const json_t *cell, const hr_explain_peaks *peaks, hr_ideal *out) {
    const double per_byte = 1e-6 / peaks->read_gb_s; /* ms */
    double flops[HR_UNIT_COUNT], compute = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        flops[u] = hr_num(json_object_get(cell, "flops_by_unit"), hr_unit_names[u]);
        if (flops[u] > 0) compute += flops[u] / hr_explain_peak(peaks, (hr_unit)u) * 1e-6;
    }
    out->weights_ms = hr_num(cell, "bytes_weights") * per_byte;
    out->kv_read_ms = or_zero(hr_num(cell, "bytes_kv_read")) * per_byte;
    out->kv_write_ms = or_zero(hr_num(cell, "bytes_kv_write")) * per_byte;
    out->bytes = hr_num(cell, "bytes_step");
    const double memory = out->weights_ms + out->kv_read_ms + out->kv_write_ms;
    out->compute = compute > memory;
    out->ms = isnan(memory) || isnan(compute) ? NAN : fmax(memory, compute);
    share_units(out, flops, peaks, out->ms);
}

/* Of a prefill beside a decode the cell knows the sums; the ops share them out. */
static void prefill_ideal(const json_t *cell, const hr_phase_ops *ops, const hr_explain_peaks *peaks, hr_ideal *out) {
    const double ms = hr_num(cell, "prefill_roof_fraction") * hr_explain_p50(cell, "ttft_prefill_ms");
    const double seqs = fmax(1, or_zero(hr_num(cell, "n_seqs")));
    out->bytes = hr_num(cell, "prefill_bytes");
    out->compute = !strcmp(hr_word(cell, "prefill_bound"), "compute");
    out->ms = ms;
    const double per_byte = ms / out->bytes;
    const double written = or_zero(hr_num(cell, "bytes_kv_write")) / seqs * or_zero(hr_num(cell, "n_prompt"));
    const hr_op_class *attention = find(ops, "attention");
    const double read = fmax(0, fmin(attention ? attention->bytes : 0, out->bytes - written));
    out->kv_write_ms = fmin(written, out->bytes) * per_byte;
    out->kv_read_ms = read * per_byte;
    out->weights_ms = ms - out->kv_write_ms - out->kv_read_ms;
    share_units(out, ops->all.unit_flops, peaks, ms);
}

void hr_explain_ideal(const json_t *cell, const char *phase, const hr_phase_ops *ops, const hr_explain_peaks *peaks,
                      hr_ideal *out) {
    *out = (hr_ideal){.ms = NAN};
    const bool decodes = hr_num(cell, "n_gen") > 0 || hr_num(cell, "osl") > 0;
    if (!strcmp(phase, "prefill") && decodes)
        prefill_ideal(cell, ops, peaks, out);
    else
        own_ideal(cell, peaks, out);
}
