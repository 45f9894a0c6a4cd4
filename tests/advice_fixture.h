/* advice_fixture.h - a sound cell and its rows, and patches on them. */
#ifndef HR_ADVICE_FIXTURE_H
#define HR_ADVICE_FIXTURE_H

#include "tests/store_fixture.h"

#include "harness/advice/advice_rules.h"

/* A request in which nothing is wrong: 8 sequences of bf16, near its roof. */
#define SOUND_CELL                                                                                                     \
    "{\"cell_id\": \"c0\", \"test\": \"isl512 osl64\", \"status\": \"ok\", \"model_filename\": \"synth:x\","           \
    "\"quant\": \"bf16\", \"act\": \"bf16\", \"isl\": 512, \"osl\": 64, \"n_prompt\": 512, \"n_gen\": 64,"             \
    "\"n_depth\": null, \"n_seqs\": 8, \"n_batch\": 2048, \"n_ubatch\": 512, \"n_threads\": 2, \"isa\": \"avx512\","   \
    "\"kv_layout\": \"paged\", \"page_size\": 16, \"kv_alloc\": \"paged\", \"flash_attn\": true, \"fusion\": \"all\"," \
    "\"type_k\": \"bf16\", \"type_v\": \"bf16\", \"weights\": \"repacked\", \"softmax\": \"f32\","                     \
    "\"kv_row_bytes\": 128, \"kv_bytes_needed\": 10000000, \"kv_bytes_reserved\": 12000000, \"huge_pages\": true,"     \
    "\"rss_peak_bytes\": 500000000, \"page_faults\": 3, \"ctx_switches\": 200, \"psi_cpu_some_pct\": 0.8,"             \
    "\"clock_ratio\": 0.99, \"handoff_ns\": 30, \"state_class\": \"near\", \"read_gb_s_before\": 30.0,"                \
    "\"read_gb_s_after\": 30.5, \"flags\": [\"weak_percentile\"], \"warmups\": 3, \"stop_reason\": \"converged\","     \
    "\"noise_rel\": 0.004, \"cache_resident\": false, \"roof_fraction\": 0.8, \"bound\": \"memory\","                  \
    "\"prefill_roof_fraction\": 0.7, \"prefill_bound\": \"compute\", \"mbu\": 0.8, \"mfu\": 0.4,"                      \
    "\"bytes_weights\": 2.4e9, \"bytes_step\": 2.5e9, \"intensity_flop_byte\": 8.0,"                                   \
    "\"samples_ns\": [500e6, 501e6, 500.5e6, 499e6, 500.2e6, 501.5e6, 499.5e6, 500.1e6, 500.7e6, 499.8e6],"            \
    "\"ttft_ms\": {\"n\": 80, \"p50\": 100.0, \"ci95_lo\": 99.0, \"ci95_hi\": 101.0},"                                 \
    "\"tpot_excl_first_ms\": {\"n\": 80, \"p50\": 10.0, \"mad\": 0.1, \"mean\": 10.0, \"ci95_lo\": 9.9,"               \
    "\"ci95_hi\": 10.1, \"weak\": []},"                                                                                \
    "\"itl_step_ms\": {\"n\": 630, \"p50\": 10.0, \"p95\": 10.5, \"p99\": 11.0, \"mean\": 10.05, \"weak\": []},"       \
    "\"kernels\": {\"prefill\": {\"down\": \"panel_gemm12_bf16_avx512\"},"                                             \
    "\"decode\": {\"down\": \"residual_fused+panel_gemv_pairs_avx512\"}}}"
#define SOUND_OPS                                                                                      \
    "[{\"phase\": \"decode\", \"op\": \"down\", \"n\": 100, \"median_ns\": 1e5, \"mean_ns\": 1e5,"     \
    "\"imbalance_ns\": 4e3, \"handoff_ns\": 1e3},"                                                     \
    "{\"phase\": \"prefill\", \"op\": \"attention\", \"n\": 10, \"median_ns\": 3e6, \"mean_ns\": 3e6," \
    "\"imbalance_ns\": 1e5, \"handoff_ns\": 1e3},"                                                     \
    "{\"phase\": \"prefill\", \"op\": \"down\", \"n\": 10, \"median_ns\": 7e6, \"mean_ns\": 7e6,"      \
    "\"imbalance_ns\": 1e5, \"handoff_ns\": 1e3}]"
#define SOUND_RECORDED                                                                                     \
    "[{\"i\": 0, \"phase\": \"decode\", \"n\": 63, \"off_ns\": 10e6, \"on_ns\": 10.1e6, \"op_ns\": 9.9e6," \
    "\"n_ops\": 200, \"n_jobs\": 120, \"probe_ns\": 1e4}]"
#define SOUND_MACHINE                                                                                    \
    "{\"cores\": 2, \"isas\": \"generic avx2 avxvnni avx512 vnni bf16\", \"memory_bytes\": 24000000000," \
    "\"governor\": null}"

/* The sound facts with a patch on them: {"cell": {keys}, "sibling": {keys of a second cell, beside the first}, "machine":
 * {keys}, "ops": [...], "recorded": [...], "samples": [...]}. */
typedef struct facts {
    json_t *cells, *samples, *ops, *recorded, *machine;
} facts;

static inline json_t *patched(const char *sound, const json_t *patch) {
    json_t *object = parse(sound);
    if (patch) json_object_update(object, (json_t *)patch);
    return object;
}

static inline json_t *rows_of(const json_t *patch, const char *key, const char *sound) {
    json_t *rows = json_object_get(patch, key);
    return json_pack("{s:o}", "c0", rows ? json_incref(rows) : parse(sound));
}

static inline facts facts_of(const json_t *patch) {
    facts f = {.cells = json_array(),
               .samples = rows_of(patch, "samples", "[]"),
               .ops = rows_of(patch, "ops", SOUND_OPS),
               .recorded = rows_of(patch, "recorded", SOUND_RECORDED),
               .machine = patched(SOUND_MACHINE, json_object_get(patch, "machine"))};
    json_array_append_new(f.cells, patched(SOUND_CELL, json_object_get(patch, "cell")));
    const json_t *sibling = json_object_get(patch, "sibling");
    if (sibling) {
        json_t *cell = patched(SOUND_CELL, sibling);
        json_object_set_new(cell, "cell_id", json_string("c1"));
        json_array_append_new(f.cells, cell);
    }
    return f;
}

static inline void facts_fini(facts *f) {
    json_decref(f->cells), json_decref(f->samples), json_decref(f->ops), json_decref(f->recorded);
    json_decref(f->machine);
}

static inline json_t *findings_of(const facts *f) {
    json_t *out = NULL;
    ok(hr_advice(
        &(hr_advice_facts){
            .cells = f->cells, .samples = f->samples, .ops = f->ops, .recorded = f->recorded, .machine = f->machine},
        &out));
    return out;
}

static inline json_t *advise(const char *patch) {
    json_t *p = parse(patch);
    facts f = facts_of(p);
    json_t *out = findings_of(&f);
    facts_fini(&f), json_decref(p);
    return out;
}

static inline const json_t *finding(const json_t *rows, const char *rule) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        if (!strcmp(json_string_value(json_object_get(row, "rule")), rule)) return row;
    }
    return NULL;
}

/* Rules that found something, as text for a message. */
static inline const char *rules_in(const json_t *rows) {
    static char said[600];
    size_t n = 0, i;
    json_t *row;
    said[0] = 0;
    json_array_foreach((json_t *)rows, i, row) {
        if (n < sizeof said)
            n += (size_t)snprintf(said + n, sizeof said - n, "%s%s", n ? ", " : "",
                                  json_string_value(json_object_get(row, "rule")));
    }
    return n ? said : "nothing";
}

#endif
