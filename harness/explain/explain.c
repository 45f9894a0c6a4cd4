/* explain.c - the terms of a metric, from the facts of a cell, its ops and its recorded repetitions.
 *
 * Invariants:
 * 1. The terms add up to measured: ideal + in_turn + losses + barriers = what the ops take; + gaps = the recorded time;
 *    + recording (negative) + unexplained = the phase; + queue = measured.
 * 2. Drift between repetitions does not enter: ops count as shares of the recorded time that they are part of, and the
 *    recorded time is the measured one times what repetitions right beside each other differ by.
 * 3. Nothing is clamped: a negative loss says that a ceiling was beaten. */
#include "harness/explain/explain_internal.h"

#include "harness/stats/stats.h"

#include <string.h>

/* ---- facts ---------------------------------------------------------------------------------------------------------- */

/* A wait before the prefill that is less than this share of TTFT is the call of a function. */
static const double WAIT_SHARE = 1e-3;

static void split_ttft(hr_metric *m) {
    const json_t *cell = m->cell;
    const double whole = hr_explain_p50(cell, "ttft_ms"), wait = hr_explain_p50(cell, "ttft_queue_ms"),
                 seqs = hr_num(cell, "n_seqs");
    m->measured_ms = isnan(whole) ? hr_explain_p50(cell, "ttft_prefill_ms") : whole;
    m->base_ms = m->measured_ms;
    const double own = hr_explain_p50(cell, "ttft_prefill_ms") + hr_explain_p50(cell, "ttft_first_sample_ms");
    if (isnan(whole) || isnan(own) || !(seqs > 1 || wait > WAIT_SHARE * whole)) return;
    m->queue_name = seqs > 1 ? "queue" : "tokenize";
    m->base_ms = own, m->queue_ms = whole - own;
}

/* A step of several requests gives each a token; what TPOT is longer than a step is the wait for the prefills of others. */
static void split_tpot(hr_metric *m) {
    const double seqs = hr_num(m->cell, "n_seqs"), step = seqs * 1e3 / hr_num(m->cell, "decode_tok_s");
    m->measured_ms = m->base_ms = hr_explain_p50(m->cell, "tpot_excl_first_ms");
    if (!(seqs > 1) || isnan(step) || isnan(hr_num(m->cell, "isl"))) return;
    m->queue_name = "queue";
    m->base_ms = step, m->queue_ms = m->measured_ms - step;
}

static hr_explain_peaks peaks_of(const json_t *cell) {
    hr_explain_peaks peaks = {.read_gb_s = hr_num(cell, "peak_read_gb_s")};
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        peaks.gflop_s[u] = hr_num(json_object_get(cell, "peak_gflop_s"), hr_unit_names[u]);
    return peaks;
}

/* False: the cell has no such metric, or none that was recorded. */
static bool find_metric(const json_t *cell, const json_t *ops, const json_t *recorded, const char *name, hr_metric *m) {
    const bool ttft = !strcmp(name, "ttft");
    *m = (hr_metric){.cell = cell, .name = name, .phase = ttft ? "prefill" : "decode", .queue_ms = NAN};
    if (ttft)
        split_ttft(m);
    else
        split_tpot(m);
    hr_explain_recorded(recorded, m->phase, &m->recorded);
    if (!(m->measured_ms > 0) || !m->recorded.n) return false;
    m->peaks = peaks_of(cell);
    hr_explain_fold(ops, m->phase, m->recorded.times, &m->peaks, &m->ops);
    if (!m->ops.n) return false;
    hr_explain_ideal(cell, m->phase, &m->ops, &m->peaks, &m->ideal);

    const hr_recorded_sum *r = &m->recorded;
    const double pair = isnan(r->pair) ? r->median_on_ns * 1e-6 / m->base_ms : r->pair;
    m->scale = m->base_ms * pair / r->on_ns;
    m->gap_ms = m->scale * (r->on_ns - m->ops.all.ns);
    m->probe_ms = -m->scale * r->probe_ns;
    m->unexplained_ms = m->base_ms - m->scale * r->on_ns - m->probe_ms;
    return true;
}

/* ---- terms ---------------------------------------------------------------------------------------------------------- */

static json_t *add_term(json_t *terms, const char *name, const char *kind, double ms, double gb_s, double gflop_s,
                        double fraction, const char *reason) {
    json_t *term = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:s}", "name", name, "kind", kind, "ms",
                             hr_real_or_null(ms), "gb_s", hr_real_or_null(gb_s), "gflop_s", hr_real_or_null(gflop_s),
                             "roof_fraction", hr_real_or_null(fraction), "reason", reason);
    return json_array_append_new(terms, term) == 0 ? term : NULL;
}

static bool add_ideal(json_t *terms, const hr_metric *m, const char *name, double ms, double gb_s, double gflop_s) {
    char reason[HR_REASON_BYTES];
    if (!(ms > 0)) return true;
    hr_reason_ideal(m, name, ms, reason);
    return add_term(terms, name, "ideal", ms, gb_s, gflop_s, 1, reason) != NULL;
}

static bool add_ideals(json_t *terms, const hr_metric *m) {
    const hr_ideal *i = &m->ideal;
    if (isnan(i->ms)) return true;
    if (!i->compute) {
        const double peak = m->peaks.read_gb_s;
        return add_ideal(terms, m, "weights", i->weights_ms, peak, NAN) &&
               add_ideal(terms, m, "kv_read", i->kv_read_ms, peak, NAN) &&
               add_ideal(terms, m, "kv_write", i->kv_write_ms, peak, NAN);
    }
    bool ok = true;
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        char name[32];
        snprintf(name, sizeof name, "arithmetic_%s", hr_unit_names[u]);
        ok = ok && add_ideal(terms, m, name, i->unit_ms[u], NAN, hr_explain_peak(&m->peaks, (hr_unit)u));
    }
    return ok;
}

static bool add_op(json_t *terms, const hr_metric *m, const hr_op_class *op) {
    char reason[HR_REASON_BYTES];
    const double whole = op->ns * m->scale, roof = op->roof_ns * 1e-6;
    const double own = (op->ns - op->imbalance_ns - op->handoff_ns) * m->scale;
    hr_reason_op(m, op, own - roof, reason);
    json_t *term = add_term(terms, op->op, "loss", own - roof, op->bytes * 1e-6 / whole, op->flops * 1e-6 / whole,
                            roof > 0 ? roof / whole : NAN, reason);
    const char *bound = !(roof > 0) ? "" : op->compute_ns > op->memory_ns ? "compute" : "memory";
    json_t *more = json_pack("{s:o, s:o, s:o, s:s, s:s, s:s}", "op_ms", hr_real_or_null(whole), "roof_ms",
                             hr_real_or_null(roof), "calls", hr_real_or_null(op->calls), "kernel", op->kernel, "bound",
                             bound, "unit", hr_unit_names[op->unit]);
    const bool ok = term && more && json_object_update(term, more) == 0;
    json_decref(more);
    return ok;
}

static bool add_plain(json_t *terms, const hr_metric *m, const char *name, const char *kind, double ms) {
    char reason[HR_REASON_BYTES];
    if (isnan(ms)) return true;
    hr_reason_term(m, name, ms, reason);
    return add_term(terms, name, kind, ms, NAN, NAN, NAN, reason) != NULL;
}

/* NULL when out of memory. */
static json_t *metric_json(const hr_metric *m) {
    json_t *terms = json_array();
    const double ideal = isnan(m->ideal.ms) ? 0 : m->ideal.ms;
    bool ok = terms && add_ideals(terms, m);
    if (ok && m->queue_name) ok = add_plain(terms, m, m->queue_name, "loss", m->queue_ms);
    ok = ok && add_plain(terms, m, "in_turn", "loss", m->ops.all.roof_ns * 1e-6 - ideal);
    for (size_t i = 0; ok && i < m->ops.n; i++) ok = add_op(terms, m, &m->ops.classes[i]);
    if (ok && !hr_cell_on_gpu(m->cell)) /* a GPU has no team of threads */
        ok = add_plain(terms, m, "imbalance", "barrier", m->ops.all.imbalance_ns * m->scale) &&
             add_plain(terms, m, "handoff", "barrier", m->ops.all.handoff_ns * m->scale);
    ok = ok && add_plain(terms, m, "gaps", "gap", m->gap_ms) &&
         add_plain(terms, m, "recording", "probe", m->probe_ms) &&
         add_plain(terms, m, "unexplained", "unexplained", m->unexplained_ms);
    json_t *json = json_pack("{s:f, s:o, s:o, s:o, s:o, s:o}", "measured_ms", m->measured_ms, "recorded_ms",
                             hr_real_or_null(m->recorded.median_on_ns * 1e-6), "ideal_ms", hr_real_or_null(m->ideal.ms),
                             "terms", terms, "unexplained_ms", hr_real_or_null(m->unexplained_ms), "unexplained_pct",
                             hr_real_or_null(m->unexplained_ms / m->measured_ms * 100));
    if (ok) return json;
    json_decref(json);
    return NULL;
}

/* ---- split ---------------------------------------------------------------------------------------------------------- */

static bool multiplies_matrices(const char *op) {
    static const char *const ops[] = {"qkv", "out", "gate_up", "down", "head", "experts", "route"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!strcmp(ops[i], op)) return true;
    return false;
}

/* Published figures: claims prefill-split and decode-memory-share. */
static json_t *prefill_split(const hr_metric *m) {
    double products = 0, attention = 0;
    for (size_t i = 0; i < m->ops.n; i++) {
        const hr_op_class *c = &m->ops.classes[i];
        if (multiplies_matrices(c->op)) products += c->ns;
        if (!strcmp(c->op, "attention")) attention += c->ns;
    }
    const double pct = 100 / m->ops.all.ns;
    return json_pack("{s:o, s:o, s:o, s:i, s:i}", "gemm_pct", hr_real_or_null(products * pct), "attention_pct",
                     hr_real_or_null(attention * pct), "other_pct",
                     hr_real_or_null((m->ops.all.ns - products - attention) * pct), "published_gemm_pct", 72,
                     "published_attention_pct", 23);
}

/* What the cell's bytes and arithmetic need at the ceilings: less than this cannot be spent on them. */
static json_t *decode_split(const json_t *cell) {
    return json_pack("{s:o, s:o, s:i, s:i}", "memory_pct", hr_real_or_null(hr_num(cell, "mbu") * 100), "compute_pct",
                     hr_real_or_null(hr_num(cell, "mfu") * 100), "published_memory_pct", 65, "published_compute_pct",
                     30);
}

/* ---- the cell, notes ------------------------------------------------------------------------------------------------ */

static json_t *cell_json(const json_t *cell) {
    static const char *const keys[] = {
        "cell_id",   "run_id",  "test",     "model_filename", "model_type",    "quant",        "act",      "weights",
        "fusion",    "forced",  "type_k",   "type_v",         "kv_layout",     "page_size",    "kv_alloc", "flash_attn",
        "n_threads", "isa",     "device",   "n_seqs",         "isl",           "osl",          "n_prompt", "n_gen",
        "n_depth",   "n_batch", "n_ubatch", "state_class",    "machine_class", "build_commit", "flags"};
    json_t *out = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(cell, keys[i]);
        if (out && json_object_set(out, keys[i], value ? value : json_null()) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static void add_notes(json_t *notes, const json_t *cell, const hr_metric *m) {
    static const struct {
        const char *flag, *text;
    } flags[] = {
        {"state_changed", "the machine changed its state during the cell: its ceilings hold for a part of it"},
        {"roof_drift", "the ceilings differed by over 5 % before and after the cell; the higher ones count"},
        {"noisy_neighbour", "other tasks wanted the CPUs during the cell"},
        {"throttled", "the clock was reduced during the cell"},
        {"over_roof", "a ratio to a ceiling is over 1: the ceiling or the count of bytes is wrong"},
        {"cache_resident", "the working set fits in the last-level cache: reads are faster than the ceiling of DRAM"},
        {"simulated", "the device is simulated: times say nothing about a real one"},
    };
    const char *machine = hr_word(cell, "machine_class"), *here = hr_word(cell, "this_machine_class");
    if (*machine && *here && strcmp(machine, here))
        hr_explain_note(notes, "ceilings are those of %s, where the cell was measured; this machine is %s", machine,
                        here);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (hr_explain_flagged(cell, flags[i].flag)) hr_explain_note(notes, "%s", flags[i].text);
    const char *planted = hr_word(cell, "planted");
    if (*planted) hr_explain_note(notes, "losses were planted: HEADROOM_PLANT=%s", planted);
    for (int k = 0; k < 2; k++) {
        if (!m[k].name) continue;
        const hr_recorded_sum *r = &m[k].recorded;
        if (isnan(m[k].ideal.ms)) hr_explain_note(notes, "%s: a ceiling is unknown, and with it the ideal", m[k].name);
        if (r->n < 3)
            hr_explain_note(notes, "%s: %zu recorded repetition%s; more samples (-r 5) make it surer", m[k].name, r->n,
                            r->n == 1 ? "" : "s");
    }
}

static hr_status check(const json_t *cell, const json_t *ops, const json_t *recorded) {
    const char *id = hr_word(cell, "cell_id"), *test = hr_word(cell, "test"), *status = hr_word(cell, "status");
    const char *error = hr_word(cell, "error");
    if (*status && strcmp(status, "ok"))
        HR_FAIL(HR_ERR_INPUT, "cell %.12s (%.60s) was not measured: %s%s%.200s", id, test, status, *error ? ": " : "",
                error);
    if (!json_array_size(ops))
        HR_FAIL(HR_ERR_INPUT,
                "cell %.12s (%.60s) has no ops: it is another tool's; `headroom sweep` records them by itself, so "
                "measure it there, or by `headroom explain -m MODEL ...`",
                id, test);
    if (!json_array_size(recorded))
        HR_FAIL(HR_ERR_INPUT,
                "cell %.12s (%.60s) has ops but no recorded repetitions: it was stored by an older program; measure it "
                "again with `headroom sweep`",
                id, test);
    return HR_OK;
}

hr_status hr_explain(const json_t *cell, const json_t *ops, const json_t *recorded, json_t **out) {
    HR_TRY(check(cell, ops, recorded));
    hr_metric m[2];
    json_t *metrics = json_object(), *split = json_object(), *notes = json_array();
    bool ok = metrics && split && notes, any = false;
    for (int k = 0; ok && k < 2; k++) {
        const bool there = find_metric(cell, ops, recorded, hr_explain_metrics[k], &m[k]);
        any |= there;
        ok = json_object_set_new(metrics, hr_explain_metrics[k], there ? metric_json(&m[k]) : json_null()) == 0;
        if (!ok) break;
        if (!there && m[k].measured_ms > 0)
            hr_explain_note(notes, "%s: no repetition of it was recorded", hr_explain_metrics[k]);
        json_t *part = !there ? json_null() : k == 0 ? prefill_split(&m[k]) : decode_split(cell);
        ok = json_object_set_new(split, m[k].phase, part) == 0;
        if (!there) m[k].name = NULL;
    }
    if (ok) add_notes(notes, cell, m);
    json_t *json =
        json_pack("{s:o, s:o, s:o, s:o}", "cell", cell_json(cell), "metrics", metrics, "split", split, "notes", notes);
    if (!ok || !json) {
        json_decref(json);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while explaining a cell");
    }
    if (!any) {
        json_decref(json);
        HR_FAIL(HR_ERR_INPUT, "cell %.12s (%.60s) has neither TTFT nor TPOT to explain; measure it again",
                hr_word(cell, "cell_id"), hr_word(cell, "test"));
    }
    *out = json;
    return HR_OK;
}
