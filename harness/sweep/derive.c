#include "harness/sweep/derive.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

static const double STATE_NEAR_NS = 100, STATE_MIXED_SHARE = 0.15, DRIFT_SHARE = 0.05;
/* A neighbour on the CPUs is said to be noisy when some task waited for one during more of the cell than this. */
static const double PSI_NOISY_PCT = 5;
static const double CLOCK_THROTTLED = 0.9; /* share of the best clock seen */

hr_ratios hr_derive_ratios(const hr_step_work *work, double time_ms, const hr_peaks *peaks) {
    const double s = time_ms * 1e-3;
    double flops = 0, compute_s = 0;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        if (!work->flops[u]) continue;
        const double peak = isnan(peaks->gflop_s[u]) ? peaks->gflop_s[HR_UNIT_FP32] : peaks->gflop_s[u];
        flops += (double)work->flops[u];
        compute_s += (double)work->flops[u] / (peak * 1e9);
    }
    const double bytes = (double)work->bytes_weights + (double)work->bytes_kv_read + (double)work->bytes_kv_write;
    const double memory_s = bytes / (peaks->read_gb_s * 1e9);
    hr_ratios r = {.bytes = bytes, .flops = flops, .intensity = bytes > 0 ? flops / bytes : NAN};
    r.mbu = memory_s / s;
    r.mfu = compute_s / s;
    const bool known = !isnan(memory_s) && !isnan(compute_s);
    r.roof_time_ms = known ? fmax(memory_s, compute_s) * 1e3 : NAN;
    r.roof_fraction = r.roof_time_ms / time_ms;
    r.bound = !known ? NULL : compute_s > memory_s ? "compute" : "memory";
    return r;
}

static double higher(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : fmax(a, b);
}

hr_peaks hr_peaks_of(const hr_state *before, const hr_state *after) {
    hr_peaks p = {.read_gb_s = higher(before->read_gb_s, after->read_gb_s)};
    for (int u = 0; u < HR_UNIT_COUNT; u++) p.gflop_s[u] = higher(before->gflop_s[u], after->gflop_s[u]);
    return p;
}

/* |a - b| as a share of the smaller; 0 where one is unknown. */
static double differ(double a, double b) {
    return isnan(a) || isnan(b) ? 0 : fabs(a - b) / fmin(a, b);
}

const char *hr_state_class(const hr_state *before, const hr_state *after) {
    if (differ(before->read_gb_s, after->read_gb_s) > STATE_MIXED_SHARE) return "mixed";
    if (isnan(before->handoff_ns) || isnan(after->handoff_ns)) return NULL;
    const bool a = before->handoff_ns < STATE_NEAR_NS, b = after->handoff_ns < STATE_NEAR_NS;
    return a != b ? "mixed" : a ? "near" : "far";
}

bool hr_state_drifted(const hr_state *before, const hr_state *after, unsigned units) {
    bool drifted = differ(before->read_gb_s, after->read_gb_s) > DRIFT_SHARE;
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (units >> u & 1) drifted |= differ(before->gflop_s[u], after->gflop_s[u]) > DRIFT_SHARE;
    return drifted;
}

json_t *hr_work_json(const hr_step_work *w) {
    json_t *flops = json_array();
    for (int u = 0; u < HR_UNIT_COUNT; u++) json_array_append_new(flops, json_integer((json_int_t)w->flops[u]));
    return json_pack("{s:I, s:I, s:I, s:o}", "bytes_weights", (json_int_t)w->bytes_weights, "bytes_kv_read",
                     (json_int_t)w->bytes_kv_read, "bytes_kv_write", (json_int_t)w->bytes_kv_write, "flops", flops);
}

bool hr_work_parse(const json_t *json, hr_step_work *out) {
    json_int_t weights, reads, writes;
    json_t *flops;
    if (!json_is_object(json) || json_unpack((json_t *)json, "{s:I, s:I, s:I, s:o}", "bytes_weights", &weights,
                                             "bytes_kv_read", &reads, "bytes_kv_write", &writes, "flops", &flops))
        return false;
    *out = (hr_step_work){
        .bytes_weights = (uint64_t)weights, .bytes_kv_read = (uint64_t)reads, .bytes_kv_write = (uint64_t)writes};
    for (size_t u = 0; u < HR_UNIT_COUNT; u++) out->flops[u] = (uint64_t)json_integer_value(json_array_get(flops, u));
    return true;
}

void hr_row_flag(json_t *row, const char *flag) {
    json_t *flags = json_object_get(row, "flags"), *item;
    size_t i;
    json_array_foreach(flags, i, item) if (!strcmp(json_string_value(item), flag)) return;
    json_array_append_new(flags, json_string(flag));
}

static void set(json_t *row, const char *key, double value) {
    json_object_set_new(row, key, hr_real_or_null(value));
}

static double p50(const json_t *result, const char *key) {
    return hr_num(json_object_get(result, key), "p50");
}

/* Tokens that llama-bench would count for one repetition; isl rows: output tokens. */
static double tokens_of(const hr_cell_config *c) {
    const double seqs = c->n_seqs > 0 ? (double)c->n_seqs : 1;
    return c->kind == HR_CELL_ISL ? (double)c->osl * seqs : (double)(c->n_prompt + c->n_gen) * seqs;
}

/* Mean and sample standard deviation in two passes; NaN for no value and for one value. */
static void moments(const double *v, size_t n, double *mean, double *stddev) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += v[i];
    *mean = n ? sum / (double)n : NAN;
    for (size_t i = 0; i < n; i++) squares += (v[i] - *mean) * (v[i] - *mean);
    *stddev = n > 1 ? sqrt(squares / (double)(n - 1)) : NAN;
}

/* llama-bench's keys. Flagged samples are shown and left out of the figures, as long as others remain. */
static hr_status put_samples(json_t *row, const hr_cell_config *c, const json_t *result, double *median_s) {
    const json_t *samples = json_object_get(result, "samples_ns"), *flags = json_object_get(result, "sample_flags");
    const size_t n = json_array_size(samples);
    double *ns = hr_calloc(n + 1, sizeof *ns), *ts = hr_calloc(n + 1, sizeof *ts);
    json_t *all = json_array();
    size_t kept = 0, flagged = 0;
    for (size_t i = 0; ns && ts && i < n; i++) {
        const double v = json_number_value(json_array_get(samples, i));
        json_array_append_new(all, json_real(tokens_of(c) * 1e9 / v));
        if (json_is_string(json_array_get(flags, i))) {
            flagged++;
            continue;
        }
        ns[kept] = v, ts[kept++] = tokens_of(c) * 1e9 / v;
    }
    if (!ns || !ts || !all) {
        hr_free(ns), hr_free(ts), json_decref(all);
        HR_FAIL(HR_ERR_MEMORY, "no memory for %zu samples", n);
    }
    if (!kept) /* nothing but flagged ones: they are what there is */
        for (; kept < n; kept++) {
            ns[kept] = json_number_value(json_array_get(samples, kept));
            ts[kept] = tokens_of(c) * 1e9 / ns[kept];
        }
    double mean, stddev;
    moments(ns, kept, &mean, &stddev);
    set(row, "avg_ns", mean), set(row, "stddev_ns", stddev);
    moments(ts, kept, &mean, &stddev);
    set(row, "avg_ts", mean), set(row, "stddev_ts", stddev);
    json_object_set(row, "samples_ns", (json_t *)samples);
    json_object_set_new(row, "samples_ts", all);
    *median_s = kept ? hr_median(ns, kept) * 1e-9 : NAN;
    if (flagged) hr_row_flag(row, "throttled"), json_object_set(row, "samples_flags", (json_t *)flags);
    hr_free(ns), hr_free(ts);
    return HR_OK;
}

/* Samples of requests; of pp and tg rows samples_ns says it all. */
static void put_request_samples(json_t *row, const hr_cell_config *c, const json_t *result) {
    static const char *const keys[] = {"samples_ttft_ms", "samples_tpot_ms", "samples_e2e_ms", "samples_prefill_ms"};
    if (c->kind != HR_CELL_PG && c->kind != HR_CELL_ISL) return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(result, keys[i]);
        if (v) json_object_set(row, keys[i], v);
    }
}

static void put_rates(json_t *row, const hr_cell_config *c, const json_t *result, double median_s) {
    const double seqs = c->n_seqs > 0 ? (double)c->n_seqs : 1;
    const double prefill_s = hr_num(result, "prefill_ms") * 1e-3, step_s = hr_num(result, "step_ms") * 1e-3;
    set(row, "prefill_tok_s", (double)c->n_prompt / prefill_s);
    set(row, "prefill_req_s_device", 1 / prefill_s);
    set(row, "decode_tok_s", seqs / step_s);
    set(row, "decode_tok_s_device", seqs / step_s);
    set(row, "per_user_tok_s", 1e3 / p50(result, "tpot_excl_first_ms"));
    if (c->kind == HR_CELL_PG || c->kind == HR_CELL_ISL) set(row, "output_tok_s", (double)c->n_gen * seqs / median_s);
    if (c->kind != HR_CELL_ISL) return;
    set(row, "requests_s", seqs / median_s);
    const json_t *samples = json_object_get(result, "samples_ns"), *good = json_object_get(result, "good");
    double wall = 0;
    for (size_t i = 0; i < json_array_size(samples); i++) wall += json_number_value(json_array_get(samples, i)) * 1e-9;
    if (json_is_number(good)) set(row, "goodput_req_s", json_number_value(good) / wall);
}

static void put_units(json_t *row, const char *key, const double *value) {
    json_t *units = json_object();
    for (int u = 0; u < HR_UNIT_COUNT; u++) json_object_set_new(units, hr_unit_names[u], hr_real_or_null(value[u]));
    json_object_set_new(row, key, units);
}

static bool over(const hr_ratios *r) {
    return r->mbu > 1 || r->mfu > 1 || r->roof_fraction > 1;
}

static void put_work(json_t *row, const hr_cell_config *c, const json_t *result, const hr_surroundings *around) {
    const hr_peaks peaks = hr_peaks_of(&around->before, &around->after);
    set(row, "peak_read_gb_s", peaks.read_gb_s);
    put_units(row, "peak_gflop_s", peaks.gflop_s);
    const double working_set = hr_num(result, "working_set_bytes");
    const bool known = isfinite(working_set) && isfinite(around->llc_bytes);
    const bool resident = known && working_set < around->llc_bytes;
    if (known) json_object_set_new(row, "cache_resident", json_boolean(resident));
    if (resident) hr_row_flag(row, "cache_resident");

    hr_step_work work, prefill;
    bool too_good = false;
    const bool is_pp = c->kind == HR_CELL_PP;
    if (hr_work_parse(json_object_get(result, is_pp ? "prefill_work" : "decode_work"), &work)) {
        const hr_ratios r = hr_derive_ratios(&work, hr_num(result, is_pp ? "prefill_ms" : "step_ms"), &peaks);
        double flops[HR_UNIT_COUNT];
        for (int u = 0; u < HR_UNIT_COUNT; u++) flops[u] = (double)work.flops[u];
        set(row, "bytes_weights", (double)work.bytes_weights);
        set(row, "bytes_kv_read", (double)work.bytes_kv_read);
        set(row, "bytes_kv_write", (double)work.bytes_kv_write);
        set(row, "bytes_step", r.bytes), set(row, "flops_step", r.flops);
        put_units(row, "flops_by_unit", flops);
        set(row, "intensity_flop_byte", r.intensity);
        set(row, "mbu", r.mbu), set(row, "mfu", r.mfu);
        set(row, "roof_time_ms", r.roof_time_ms), set(row, "roof_fraction", r.roof_fraction);
        if (r.bound) json_object_set_new(row, "bound", json_string(r.bound));
        too_good |= over(&r);
    }
    if (!is_pp && hr_work_parse(json_object_get(result, "prefill_work"), &prefill)) {
        const hr_ratios r = hr_derive_ratios(&prefill, hr_num(result, "prefill_ms"), &peaks);
        set(row, "prefill_bytes", r.bytes), set(row, "prefill_flops", r.flops);
        set(row, "prefill_mfu", r.mfu), set(row, "prefill_roof_fraction", r.roof_fraction);
        if (r.bound) json_object_set_new(row, "prefill_bound", json_string(r.bound));
        too_good |= over(&r);
    }
    if (too_good && !resident) hr_row_flag(row, "over_roof");
}

static void put_surroundings(json_t *row, const hr_surroundings *a) {
    const char *class_name = hr_state_class(&a->before, &a->after);
    /* The kernel adds to its total every two seconds: a short cell may see more than its own. */
    const double stalled = (a->after.psi_some_us - a->before.psi_some_us) / (a->seconds * 1e6) * 100;
    const double psi = stalled > 100 ? 100 : stalled;
    const double clock = a->after.clock_ghz / a->best_clock_ghz;
    set(row, "read_gb_s_before", a->before.read_gb_s), set(row, "read_gb_s_after", a->after.read_gb_s);
    set(row, "handoff_ns", (a->before.handoff_ns + a->after.handoff_ns) / 2);
    if (class_name) json_object_set_new(row, "state_class", json_string(class_name));
    set(row, "psi_cpu_some_pct", psi), set(row, "clock_ratio", clock);
    if (psi > PSI_NOISY_PCT) hr_row_flag(row, "noisy_neighbour");
    if (clock < CLOCK_THROTTLED) hr_row_flag(row, "throttled");
    if (hr_state_drifted(&a->before, &a->after, a->units)) hr_row_flag(row, "roof_drift");
    if (a->state_changed || (class_name && !strcmp(class_name, "mixed"))) hr_row_flag(row, "state_changed");
}

/* energy_mj is of a prompt token on pp rows, else of an output token (prefill of pg and isl rows included). */
static void put_gpu(json_t *row, const hr_cell_config *c, const json_t *result) {
    json_t *energy = json_object_get(result, "energy_mj");
    if (energy) json_object_set(row, c->kind == HR_CELL_PP ? "energy_mj_token_prefill" : "energy_mj_token", energy);
    if (json_is_true(json_object_get(result, "throttled"))) hr_row_flag(row, "throttled");
}

hr_status hr_derive_row(json_t *row, const hr_cell_config *c, const json_t *result, const hr_surroundings *around) {
    static const char *const dists[] = {"ttft_ms",     "ttft_queue_ms", "ttft_prefill_ms",   "ttft_first_sample_ms",
                                        "itl_step_ms", "e2e_ms",        "tpot_excl_first_ms"};
    static const char *const copied[] = {"stop_reason",      "noise_rel",       "warmups",        "probe_overhead_pct",
                                         "page_faults",      "ctx_switches",    "kernels",        "kv_bytes_needed",
                                         "kv_bytes_touched", "huge_pages",      "rss_peak_bytes", "kv_bytes_reserved",
                                         "kv_row_bytes",     "softmax",         "device_ms",      "power_w",
                                         "sm_mhz",           "memory_mhz",      "temperature_c",  "clock_reasons",
                                         "power_limit_w",    "tensor_pct",      "l2_hit_pct",     "warps_active_pct",
                                         "dram_bytes_read",  "dram_bytes_write"};
    double median_s = NAN;
    HR_TRY(put_samples(row, c, result, &median_s));
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++) {
        json_t *v = json_object_get(result, copied[i]);
        if (v) json_object_set(row, copied[i], v);
    }
    bool weak = false;
    for (size_t i = 0; i < sizeof dists / sizeof dists[0]; i++) {
        json_t *v = json_object_get(result, dists[i]);
        if (!v) continue;
        json_object_set(row, dists[i], v);
        weak |= json_array_size(json_object_get(v, "weak")) > 0;
    }
    if (weak) hr_row_flag(row, "weak_percentile");
    put_request_samples(row, c, result);
    put_rates(row, c, result, median_s);
    put_work(row, c, result, around);
    put_surroundings(row, around);
    put_gpu(row, c, result);
    json_object_set_new(row, "status", json_string("ok"));
    return HR_OK;
}
