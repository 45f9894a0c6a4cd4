/* explain_fixture.h - made-up cells with ops and recorded repetitions, and looking into their explanations. */
#ifndef HR_EXPLAIN_FIXTURE_H
#define HR_EXPLAIN_FIXTURE_H

#include "tests/store_fixture.h"

#include "harness/explain/explain_internal.h"

static inline void holds(const char *in, const char *word) {
    if (!strstr(in, word)) fail_msg("\"%s\" is not in:\n%.3000s", word, in);
}
static inline void lacks(const char *in, const char *word) {
    const char *at = strstr(in, word);
    if (at) fail_msg("\"%s\" is there: %.200s", word, at);
}

/* Sums of some 20 doubles of up to 1e3 ms. */
static const double EXACT = 1e-9;
static inline void near_(double got, double want, const char *what, int line) {
    if (fabs(got - want) <= EXACT * fmax(1, fabs(want))) return;
    print_error("line %d: %s: expected %.12g, got %.12g\n", line, what, want, got);
    _fail(__FILE__, line);
}
#define near(got, want) near_((got), (want), #got, __LINE__)

/* ---- cells ----
 * One request: TTFT 100 ms, of which the prefill is 99 and the first sample 1; then steps of 10 ms. Ceilings: 20 GB/s,
 * 100, 500 and 1000 G/s. Recorded: two repetitions of one request and ten steps, 2 % longer than those right before. */

static inline json_t *dist(double p50) {
    return json_pack("{s:i, s:f}", "n", 5, "p50", p50);
}

static inline json_t *request(void) {
    json_t *cell = parse(
        "{\"cell_id\": \"0123456789abcdef0123456789abcdef\", \"test\": \"isl64 osl11\", \"status\": \"ok\","
        "\"model_filename\": \"synth:tiny\", \"quant\": \"int8\", \"act\": \"int8\", \"weights\": \"native\","
        "\"fusion\": \"none\", \"flash_attn\": false, \"kv_layout\": \"paged\", \"page_size\": 16, \"type_k\": "
        "\"bf16\","
        "\"type_v\": \"bf16\", \"n_threads\": 4, \"n_seqs\": 1, \"isl\": 64, \"osl\": 11, \"n_prompt\": 64,"
        "\"n_gen\": 11, \"n_ubatch\": 32, \"n_batch\": 2048, \"machine_class\": \"epyc-2c-24g\", \"huge_pages\": false,"
        "\"state_class\": \"near\", \"flags\": [\"roof_drift\"], \"handoff_ns\": 160, \"psi_cpu_some_pct\": 3.0,"
        "\"peak_read_gb_s\": 20.0, \"peak_gflop_s\": {\"fp32\": 100.0, \"bf16\": 500.0, \"int8\": 1000.0},"
        "\"bytes_weights\": 100e6, \"bytes_kv_read\": 18e6, \"bytes_kv_write\": 2e6, \"bytes_step\": 120e6,"
        "\"flops_step\": 200e6, \"flops_by_unit\": {\"fp32\": 0, \"bf16\": 50e6, \"int8\": 150e6}, \"mbu\": 0.6,"
        "\"mfu\": 0.025, \"roof_time_ms\": 6.0, \"roof_fraction\": 0.6, \"bound\": \"memory\","
        "\"prefill_bytes\": 240e6, \"prefill_flops\": 40e9, \"prefill_mfu\": 0.5, \"prefill_roof_fraction\": 0.5,"
        "\"prefill_bound\": \"compute\", \"decode_tok_s\": 100.0}");
    json_object_set_new(cell, "ttft_ms", dist(100));
    json_object_set_new(cell, "ttft_queue_ms", dist(0.00002));
    json_object_set_new(cell, "ttft_prefill_ms", dist(99));
    json_object_set_new(cell, "ttft_first_sample_ms", dist(1));
    json_object_set_new(cell, "tpot_excl_first_ms", dist(10));
    return cell;
}

/* Per request: qkv 2 x 12 ms, attention 20, down 2 x 20, sample 1; per step: down 2 x 3 ms, attention 1, head 2.
 * The first of each pair of layers waits; a row of another phase or without times must not matter. */
static inline json_t *made_ops(void) {
    return parse(
        "[{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"qkv\", \"kernel\": \"q\", \"n\": 2, \"mean_ns\": 12e6,"
        " \"imbalance_ns\": 1e6, \"handoff_ns\": 0, \"bytes\": 20e6, \"flops\": 8e9, \"unit\": \"int8\"},"
        "{\"phase\": \"prefill\", \"layer\": 1, \"op\": \"qkv\", \"kernel\": \"q\", \"n\": 2, \"mean_ns\": 12e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 5e5, \"bytes\": 20e6, \"flops\": 8e9, \"unit\": \"int8\"},"
        "{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"attention\", \"kernel\": \"a\", \"n\": 2, \"mean_ns\": 20e6,"
        " \"imbalance_ns\": 2e6, \"handoff_ns\": 0, \"bytes\": 30e6, \"flops\": 5e9, \"unit\": \"bf16\"},"
        "{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"d\", \"n\": 2, \"mean_ns\": 20e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 30e6, \"flops\": 10e9, \"unit\": \"int8\"},"
        "{\"phase\": \"prefill\", \"layer\": 1, \"op\": \"down\", \"kernel\": \"e\", \"n\": 2, \"mean_ns\": 20.5e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 30e6, \"flops\": 10e9, \"unit\": \"int8\"},"
        "{\"phase\": \"prefill\", \"layer\": -1, \"op\": \"sample\", \"kernel\": \"\", \"n\": 2, \"mean_ns\": 1e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 0, \"flops\": 0, \"unit\": \"fp32\"},"
        "{\"phase\": \"decode\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"d\", \"n\": 20, \"mean_ns\": 3e6,"
        " \"imbalance_ns\": 2e5, \"handoff_ns\": 1e5, \"bytes\": 40e6, \"flops\": 75e6, \"unit\": \"int8\"},"
        "{\"phase\": \"decode\", \"layer\": 1, \"op\": \"down\", \"kernel\": \"d\", \"n\": 20, \"mean_ns\": 3e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 40e6, \"flops\": 75e6, \"unit\": \"int8\"},"
        "{\"phase\": \"decode\", \"layer\": 0, \"op\": \"attention\", \"kernel\": \"a\", \"n\": 20, \"mean_ns\": 5e5,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 20e6, \"flops\": 50e6, \"unit\": \"bf16\"},"
        "{\"phase\": \"decode\", \"layer\": -1, \"op\": \"head\", \"kernel\": \"h\", \"n\": 20, \"mean_ns\": 2e6,"
        " \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 30e6, \"flops\": 0, \"unit\": \"int8\"},"
        "{\"phase\": \"decode\", \"layer\": -1, \"op\": \"norm\", \"kernel\": \"n\", \"n\": null, \"mean_ns\": null}]");
}

static inline json_t *made_recorded(void) {
    return parse("[{\"i\": 0, \"phase\": \"prefill\", \"n\": 1, \"off_ns\": 100e6, \"on_ns\": 102e6, \"op_ns\": 85.5e6,"
                 "  \"n_ops\": 6, \"n_jobs\": 5, \"probe_ns\": 1e6},"
                 " {\"i\": 0, \"phase\": \"decode\", \"n\": 10, \"off_ns\": 10e6, \"on_ns\": 10.2e6, \"op_ns\": 8.5e6,"
                 "  \"n_ops\": 4, \"n_jobs\": 4, \"probe_ns\": 1e5},"
                 " {\"i\": 1, \"phase\": \"prefill\", \"n\": 1, \"off_ns\": 200e6, \"on_ns\": 204e6, \"op_ns\": 85.5e6,"
                 "  \"n_ops\": 6, \"n_jobs\": 5, \"probe_ns\": 2e6},"
                 " {\"i\": 1, \"phase\": \"decode\", \"n\": 10, \"off_ns\": 10e6, \"on_ns\": 10.2e6, \"op_ns\": 8.5e6,"
                 "  \"n_ops\": 4, \"n_jobs\": 4, \"probe_ns\": 1e5}]");
}

/* Explains; takes the three. */
static inline json_t *explained(json_t *cell, json_t *ops, json_t *recorded) {
    json_t *out = NULL;
    ok(hr_explain(cell, ops, recorded, &out));
    json_decref(cell), json_decref(ops), json_decref(recorded);
    return out;
}

static inline json_t *usual(void) {
    return explained(request(), made_ops(), made_recorded());
}

static inline const json_t *metric(const json_t *e, const char *name) {
    return json_object_get(json_object_get(e, "metrics"), name);
}

static inline const json_t *term(const json_t *e, const char *metric_name, const char *name) {
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(metric(e, metric_name), "terms"), i,
                       t) if (!strcmp(hr_word(t, "name"), name)) return t;
    return NULL;
}
static inline double ms(const json_t *e, const char *metric_name, const char *name) {
    const json_t *t = term(e, metric_name, name);
    if (!t) fail_msg("%s has no term %s", metric_name, name);
    return hr_num(t, "ms");
}
static inline const char *reason(const json_t *e, const char *metric_name, const char *name) {
    const json_t *t = term(e, metric_name, name);
    if (!t) fail_msg("%s has no term %s", metric_name, name);
    return hr_word(t, "reason");
}

static inline double sum(const json_t *e, const char *metric_name, const char *kind) {
    double all = 0;
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(metric(e, metric_name), "terms"), i, t) {
        if (!kind || !strcmp(hr_word(t, "kind"), kind)) all += hr_num(t, "ms");
    }
    return all;
}
static inline void adds_up(const json_t *e) {
    static const char *const names[] = {"ttft", "tpot"};
    for (size_t i = 0; i < 2; i++)
        if (json_is_object(metric(e, names[i])))
            near(sum(e, names[i], NULL), hr_num(metric(e, names[i]), "measured_ms"));
}

#endif
