/* The rules of `headroom advise` on made-up cells: each on both sides of its condition, without its columns, with junk. */
#include "tests/advice_fixture.h"

#include "harness/stats/trend.h"

#define DIST(mid, lo, hi) \
    "\"tpot_excl_first_ms\": {\"n\": 20, \"p50\": " #mid ", \"mad\": 0.01, \"ci95_lo\": " #lo ", \"ci95_hi\": " #hi "}"
/* pp rows time the prefill alone */
#define PP "\"isl\": null, \"osl\": null, \"n_gen\": 0, \"tpot_excl_first_ms\": null, \"itl_step_ms\": null, "

/* Two patches a rule: it fires on the first, and on the second, just below, it does not. */
static const struct {
    const char *rule, *fires, *below;
} cases[] = {
    {"ttft-rising",
     "{\"cell\": {\"samples_ns\": [100e6, 101e6, 102e6, 103e6, 104e6, 105e6, 106e6, 107e6, 108e6, 109e6]}}",
     "{\"cell\": {\"samples_ns\": [100e6, 100.4e6, 100.9e6, 101.4e6, 102e6, 102.6e6, 103.1e6, 103.6e6, 104e6, "
     "104.4e6]}}"},
    {"ttft-rising", "{\"cell\": {" PP "\"samples_ns\": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6]}}",
     "{\"cell\": {" PP "\"samples_ns\": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6]}}"}, /* too few */
    {"ttft-rising", "{\"cell\": {" PP "\"samples_ns\": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6]}}",
     "{\"cell\": {" PP "\"samples_ns\": [1e6, 2e6, 3e6, 4e6, 8e6, 6e6, 5e6, 7e6]}}"}, /* rises, but p > .001 */
    {"ttft-rising", "{\"cell\": {" PP "\"samples_ns\": [1e6, 2e6, 3e6, 4e6, 5e6, 6e6, 7e6, 8e6]}}",
     "{\"cell\": {" PP "\"samples_ns\": [8e6, 7e6, 6e6, 5e6, 4e6, 3e6, 2e6, 1e6]}}"}, /* falls */
    {"ttft-rising",
     "{\"cell\": {\"samples_ttft_ms\": [1, 2, 3, 4, 5, 6, 7, 8, 90], \"samples_flags\": [null, null, null]}}",
     "{\"cell\": {\"samples_ttft_ms\": [1, 2, 3, 4, 5, 6, 7, 8], \"samples_flags\": [null, \"throttled\"]}}"}, /* 7 */
    {"tpot-unstable", "{\"cell\": {\"n_seqs\": 1, \"tpot_excl_first_ms\": {\"n\": 5, \"p50\": 10.0, \"mad\": 0.51}}}",
     "{\"cell\": {\"n_seqs\": 1, \"tpot_excl_first_ms\": {\"n\": 5, \"p50\": 10.0, \"mad\": 0.49}}}"},
    {"tpot-unstable",
     "{\"cell\": {\"isl\": null, \"itl_step_ms\": {\"n\": 300, \"p50\": 10.0, \"p95\": 11.0, \"p99\": 20.1}}}",
     "{\"cell\": {\"isl\": null, \"itl_step_ms\": {\"n\": 298, \"p50\": 10.0, \"p95\": 11.0, \"p99\": 20.1, \"weak\": "
     "[\"p99\"]}}}"},
    {"tpot-unstable",
     "{\"cell\": {\"n_seqs\": 1, \"itl_step_ms\": {\"n\": 60, \"p50\": 10.0, \"p95\": 15.1, \"weak\": [\"p99\"]}}}",
     "{\"cell\": {\"n_seqs\": 1, \"itl_step_ms\": {\"n\": 60, \"p50\": 10.0, \"p95\": 14.9, \"weak\": [\"p99\"]}}}"},
    {"tpot-unstable", "{\"cell\": {\"n_seqs\": 1, \"itl_step_ms\": {\"n\": 300, \"p50\": 10.0, \"p99\": 900.0}}}",
     "{\"cell\": {\"n_seqs\": 2, \"itl_step_ms\": {\"n\": 300, \"p50\": 10.0, \"p99\": 900.0}}}"}, /* the other's prefill */
    {"noise", "{\"cell\": {\"stop_reason\": \"timeout\", \"noise_rel\": 0.021}}",
     "{\"cell\": {\"stop_reason\": \"timeout\", \"noise_rel\": 0.019}}"},
    {"noise", "{\"cell\": {\"stop_reason\": \"max_samples\", \"noise_rel\": 0.1}}",
     "{\"cell\": {\"stop_reason\": \"fixed\", \"noise_rel\": 0.1}}"}, /* so many were ordered */
    {"gaps", "{\"recorded\": [{\"phase\": \"decode\", \"on_ns\": 100, \"op_ns\": 85, \"probe_ns\": 4}]}",
     "{\"recorded\": [{\"phase\": \"decode\", \"on_ns\": 100, \"op_ns\": 85, \"probe_ns\": 6}]}"},
    {"imbalance", "{\"ops\": [{\"phase\": \"decode\", \"n\": 2, \"mean_ns\": 100, \"imbalance_ns\": 16}]}",
     "{\"ops\": [{\"phase\": \"decode\", \"n\": 2, \"mean_ns\": 100, \"imbalance_ns\": 14}]}"},
    {"imbalance",
     "{\"ops\": [{\"phase\": \"decode\", \"n\": 2, \"mean_ns\": 100, \"imbalance_ns\": 8, \"handoff_ns\": 8}]}",
     "{\"ops\": [{\"phase\": \"decode\", \"n\": 2, \"mean_ns\": 100, \"imbalance_ns\": 8, \"handoff_ns\": 6}]}"},
    {"low-utilisation", "{\"cell\": {\"roof_fraction\": 0.49}}", "{\"cell\": {\"roof_fraction\": 0.51}}"},
    {"low-utilisation", "{\"cell\": {\"prefill_roof_fraction\": 0.34}}",
     "{\"cell\": {\"prefill_roof_fraction\": 0.36}}"},
    {"low-utilisation", "{\"cell\": {\"roof_fraction\": 0.2}}",
     "{\"cell\": {\"roof_fraction\": 0.2, \"cache_resident\": true}}"},
    {"low-utilisation", "{\"cell\": {\"roof_fraction\": 0.2}}",
     "{\"cell\": {\"roof_fraction\": 0.2, \"flags\": [\"noisy_neighbour\"]}}"},
    {"over-roof", "{\"cell\": {\"flags\": [\"over_roof\"]}}",
     "{\"cell\": {\"flags\": [\"roof_drift\"], \"mbu\": 1.0}}"},
    {"cache-resident", "{\"cell\": {\"cache_resident\": true}}", "{\"cell\": {\"cache_resident\": false}}"},
    /* of one token a tile of 12 computes twelve; where there is no row for so few tokens, the tile is right */
    {"tile-decode",
     "{\"cell\": {\"n_seqs\": 1, \"kernels\": {\"decode\": {\"down\": \"panel_gemm_i4g32_int8_avx512\"}}}}",
     "{\"cell\": {\"n_seqs\": 64, \"kernels\": {\"decode\": {\"down\": \"panel_gemm_i4g32_int8_avx512\"}}}}"},
    {"tile-decode",
     "{\"cell\": {\"n_seqs\": 1, \"kernels\": {\"decode\": {\"down\": "
     "\"residual_fused+panel_gemm_i8row_int8_avx512\"}}}}",
     "{\"cell\": {\"n_seqs\": 1, \"kernels\": {\"decode\": {\"down\": \"a_row_of_another_build\"}}}}"},
    {"tile-decode",
     "{\"cell\": {\"n_seqs\": 1, \"kernels\": {\"decode\": {\"down\": \"panel_gemm256_i4g32_int8_avx512\"}}}}",
     "{\"cell\": {\"n_seqs\": 1, \"kernels\": {\"decode\": {\"down\": \"panel_gemv_i4g32_int8_avx512\","
     "\"head\": \"panel_gemv256_i4g32_int8_avx512\", \"out\": \"panel_int8_avx2\", \"qkv\": "
     "\"panel_gemv_pairs_avx512\","
     "\"gate_up\": \"matmul_int8_generic\"}}}}"},
    {"isa-low", "{\"cell\": {\"isa\": \"avxvnni\"}}",
     "{\"cell\": {\"isa\": \"avx2\"}, \"machine\": {\"isas\": \"generic avx2\"}}"},
    {"kv-align", "{\"cell\": {\"kv_row_bytes\": 160}}", "{\"cell\": {\"kv_row_bytes\": 256}}"},
    {"kv-align", "{\"cell\": {\"kv_row_bytes\": 64}}", "{\"cell\": {\"kv_row_bytes\": 128}}"},
    {"page-size", "{\"cell\": {\"page_size\": 4}}", "{\"cell\": {\"page_size\": 8}}"},
    {"page-size", "{\"cell\": {\"page_size\": 1}}", "{\"cell\": {\"page_size\": 1, \"kv_layout\": \"head\"}}"},
    {"kv-reserved", "{\"cell\": {\"kv_bytes_reserved\": 60000001, \"kv_bytes_needed\": 30000000}}",
     "{\"cell\": {\"kv_bytes_reserved\": 60000000, \"kv_bytes_needed\": 30000000}}"},
    {"kv-reserved", "{\"cell\": {\"kv_bytes_reserved\": 16777316, \"kv_bytes_needed\": 100}}",
     "{\"cell\": {\"kv_bytes_reserved\": 16777315, \"kv_bytes_needed\": 100}}"}, /* under 16 MiB */
    {"softmax", "{\"cell\": {\"softmax\": \"f16\"}}", "{\"cell\": {\"softmax\": \"f32\"}}"},
    {"flash-off", "{\"cell\": {\"flash_attn\": false, \"isl\": 448}}",
     "{\"cell\": {\"flash_attn\": false, \"isl\": 447}}"},
    {"flash-off", "{\"cell\": {\"flash_attn\": false}, \"ops\": []}",
     "{\"cell\": {\"flash_attn\": true}, \"ops\": []}"},
    {"micro-batch", "{\"cell\": {\"n_ubatch\": 63}}", "{\"cell\": {\"n_ubatch\": 64}}"},
    {"micro-batch", "{\"cell\": {\"n_batch\": 32}}",
     "{\"cell\": {\"n_batch\": 32, \"isl\": 63}}"}, /* nearly all of it */
    {"no-warmup", "{\"cell\": {\"warmups\": 0}}", "{\"cell\": {\"warmups\": 1}}"},
    {"threads-idle", "{\"sibling\": {\"n_threads\": 1, " DIST(9.8, 9.7, 10.2) "}}",
     "{\"sibling\": {\"n_threads\": 1, " DIST(9.8, 9.7, 10.21) "}}"},
    {"threads-idle", "{\"sibling\": {\"n_threads\": 1, " DIST(8, 7.9, 8.1) "}}",
     "{\"sibling\": {\"n_threads\": 1, \"state_class\": \"far\", " DIST(8, 7.9, 8.1) "}}"},
    {"page-larger", "{\"sibling\": {\"page_size\": 64, " DIST(9.7, 9.6, 9.8) "}}",
     "{\"sibling\": {\"page_size\": 64, " DIST(9.85, 9.8, 9.89) "}}"}, /* under 2 % */
    {"page-larger", "{\"sibling\": {\"page_size\": 64, " DIST(9, 8.9, 9.1) "}}",
     "{\"sibling\": {\"page_size\": 64, " DIST(9, 8.0, 9.95) "}}"}, /* the intervals overlap */
    {"page-larger", "{\"sibling\": {\"page_size\": 64, " DIST(9, 8.9, 9.1) "}}",
     "{\"sibling\": {\"page_size\": 64, " DIST(9, null, null) "}}"},
    {"page-larger", "{\"sibling\": {\"page_size\": 64, " DIST(9, 8.9, 9.1) "}}",
     "{\"sibling\": {\"page_size\": 64, \"n_threads\": 1, " DIST(9, 8.9, 9.1) "}}"}, /* two axes differ */
    {"page-larger", "{\"sibling\": {\"page_size\": 64, " DIST(9, 8.9, 9.1) "}}",
     "{\"sibling\": {\"page_size\": 64, \"forced\": \"down=x\", " DIST(9, 8.9, 9.1) "}}"},
    {"batch", "{\"cell\": {\"n_seqs\": 1, \"mfu\": 0.05}}", "{\"cell\": {\"n_seqs\": 1, \"mfu\": 0.24}}"},
    {"batch", "{\"cell\": {\"n_seqs\": 1, \"mfu\": 0.05}}",
     "{\"cell\": {\"n_seqs\": 1, \"mfu\": 0.05}, \"sibling\": {\"n_seqs\": 8}}"}, /* more were measured */
    {"quant-slow",
     "{\"sibling\": {\"quant\": \"int4\", \"act\": \"int8\", \"bytes_step\": 1.25e9, " DIST(6.5, 6.4, 6.6) "}}",
     "{\"sibling\": {\"quant\": \"int4\", \"act\": \"int8\", \"bytes_step\": 1.25e9, " DIST(6.3, 6.2, 6.4) "}}"},
    {"threads", "{\"cell\": {\"n_threads\": 3}}", "{\"cell\": {\"n_threads\": 2}}"},
    {"huge-pages", "{\"cell\": {\"huge_pages\": false, \"rss_peak_bytes\": 33554432}}",
     "{\"cell\": {\"huge_pages\": false, \"rss_peak_bytes\": 33554431}}"},
    {"paging", "{\"cell\": {\"page_faults\": 100}}", "{\"cell\": {\"page_faults\": 99}}"},
    {"memory-tight", "{\"cell\": {\"rss_peak_bytes\": 21600000001}}", "{\"cell\": {\"rss_peak_bytes\": 21600000000}}"},
    {"neighbour", "{\"cell\": {\"psi_cpu_some_pct\": 5.1}}", "{\"cell\": {\"psi_cpu_some_pct\": 4.9}}"},
    {"neighbour", "{\"cell\": {\"flags\": [\"noisy_neighbour\"]}}", "{\"cell\": {\"flags\": []}}"},
    {"neighbour", "{\"cell\": {\"ctx_switches\": 10100}}", "{\"cell\": {\"ctx_switches\": 9900}}"},
    {"throttled", "{\"cell\": {\"clock_ratio\": 0.91}}", "{\"cell\": {\"clock_ratio\": 0.93}}"},
    {"throttled", "{\"cell\": {\"flags\": [\"throttled\"]}}", "{\"cell\": {\"flags\": [\"roof_drift\"]}}"},
    {"state-mixed", "{\"cell\": {\"state_class\": \"mixed\"}}",
     "{\"cell\": {\"state_class\": \"far\", \"flags\": [\"state_changed\"]}}"}, /* it was measured again */
    {"handoff-far", "{\"cell\": {\"state_class\": \"far\", \"handoff_ns\": 900}}",
     "{\"cell\": {\"state_class\": \"far\", \"handoff_ns\": 800}}"},
    {"governor", "{\"machine\": {\"governor\": \"powersave\"}}", "{\"machine\": {\"governor\": \"performance\"}}"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* A CPU of another make has no such rows. */
static bool has_row(const char *name) {
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++)
        if (!strcmp(k->name, name)) return true;
    return false;
}

static void each_rule_fires_and_just_below_does_not(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        if (!strcmp(cases[i].rule, "tile-decode") && !has_row("panel_gemm_i4g32_int8_avx512")) continue;
        json_t *fires = advise(cases[i].fires), *below = advise(cases[i].below);
        const json_t *row = finding(fires, cases[i].rule);
        if (!row) fail_msg("%s: expected on %s, got %s", cases[i].rule, cases[i].fires, rules_in(fires));
        if (finding(below, cases[i].rule)) fail_msg("%s: not expected on %s", cases[i].rule, cases[i].below);
        static const char *const texts[] = {"finding", "evidence", "todo"};
        for (size_t k = 0; k < 3; k++)
            if (strlen(json_string_value(json_object_get(row, texts[k]))) < 3)
                fail_msg("%s says no %s", cases[i].rule, texts[k]);
        json_decref(fires), json_decref(below);
    }
}

static void every_rule_has_such_a_case(void **state) {
    (void)state;
    for (const hr_rule *r = hr_rule_table; r->id; r++) {
        size_t i = 0;
        while (i < CASES && strcmp(cases[i].rule, r->id)) i++;
        if (i == CASES) fail_msg("no case of rule %s", r->id);
    }
}

static void a_sound_cell_gives_no_finding(void **state) {
    (void)state;
    json_t *rows = advise("{}");
    if (json_array_size(rows)) fail_msg("expected nothing, got %s", rules_in(rows));
    json_decref(rows);
    rows = advise("{\"cell\": {" PP "\"ttft_prefill_ms\": {\"n\": 10, \"p50\": 500.0}, \"bound\": \"compute\"}}");
    if (json_array_size(rows)) fail_msg("prefill: expected nothing, got %s", rules_in(rows));
    json_decref(rows);
}

/* ---- what is not known ------------------------------------------------------------------------------------------------ */

/* What the patch says becomes null, all of it or one key: all of it silences the rule, one key may, and nothing crashes. */
static void what_is_not_stored_fires_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        static const char *const parts[] = {"cell", "sibling", "machine"};
        json_t *patch = parse(cases[i].fires);
        for (size_t p = 0; p < 3; p++) {
            const char *key;
            json_t *value, *copy = json_deep_copy(json_object_get(patch, parts[p]));
            json_object_foreach(copy, key, value) {
                json_object_set_new(json_object_get(patch, parts[p]), key, json_null());
                facts f = facts_of(patch);
                json_decref(findings_of(&f));
                facts_fini(&f);
                json_object_set(json_object_get(patch, parts[p]), key, value);
            }
            json_object_foreach(copy, key, value)
                json_object_set_new(json_object_get(patch, parts[p]), key, json_null());
            json_decref(copy);
        }
        if (json_object_get(patch, "ops")) json_object_set_new(patch, "ops", json_null());
        if (json_object_get(patch, "recorded")) json_object_set_new(patch, "recorded", json_null());
        facts f = facts_of(patch);
        json_t *rows = findings_of(&f);
        if (finding(rows, cases[i].rule)) fail_msg("%s fires where its columns are null", cases[i].rule);
        facts_fini(&f), json_decref(rows), json_decref(patch);
    }
}

static void nothing_at_all(void **state) {
    (void)state;
    json_t *out = NULL, *cells = parse("[{}, null, 3, \"x\", [], {\"status\": \"failed\", \"softmax\": \"f16\"},"
                                       "{\"flags\": [\"simulated\"], \"softmax\": \"f16\"}]");
    ok(hr_advice(&(hr_advice_facts){0}, &out));
    assert_int_equal(json_array_size(out), 0);
    json_decref(out);
    ok(hr_advice(&(hr_advice_facts){.cells = cells}, &out));
    if (json_array_size(out)) fail_msg("expected nothing, got %s", rules_in(out));
    json_decref(out), json_decref(cells);
}

/* Every key of the sound cell and of its rows takes each of these values in turn; the texts stay one line of whole
 * characters, the figures finite. */
static void hostile_values(void **state) {
    (void)state;
    static const char *const junk[] = {"null",
                                       "0",
                                       "-1",
                                       "1e308",
                                       "-1e308",
                                       "1e-308",
                                       "9223372036854775807",
                                       "true",
                                       "[]",
                                       "{}",
                                       "[[], {}, 3, null]",
                                       "\"\"",
                                       "\"%s%n%d\"",
                                       "\"a\\nb\\u0007\"",
                                       "{\"n\": -1, \"p50\": 1e308, \"mad\": 1e308, \"mean\": -1e308}",
                                       "{\"decode\": {\"down\": 3, \"%n\": \"+\"}, \"prefill\": 1}",
                                       "[0, -5, 1e308, 1, 2, 3, 4, 5, 6, 7]",
                                       "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"};
    char wide[4000] = "\"";
    while (strlen(wide) < 3000) strcat(wide, "\u00e9");
    strcat(wide, "\"");
    for (size_t k = 0; k <= sizeof junk / sizeof *junk; k++) {
        json_t *value = parse(k < sizeof junk / sizeof *junk ? junk[k] : wide), *sound = parse(SOUND_CELL), *unused;
        const char *key;
        json_object_foreach(sound, key, unused) {
            for (int sibling = 0; sibling < 2; sibling++) {
                facts f = facts_of(NULL);
                json_t *cell = json_array_get(f.cells, 0);
                if (sibling) json_array_append_new(f.cells, json_deep_copy(cell));
                json_object_set(cell, key, value);
                json_object_set(f.machine, "governor", value), json_object_set(f.machine, "isas", value);
                if (sibling)
                    json_object_set(f.machine, "cores", value), json_object_set(f.machine, "memory_bytes", value);
                if (k % 2) json_object_set(f.ops, "c0", value), json_object_set(f.recorded, "c0", value);
                json_t *rows = findings_of(&f), *row;
                size_t i;
                json_array_foreach(rows, i, row) {
                    char *line = json_dumps(row, JSON_ENCODE_ANY);
                    if (!line || strstr(line, "\\n") || strstr(line, "\\u0007"))
                        fail_msg("%s = %.60s: %s", key, junk[k % 18], line);
                    free(line);
                    assert_true(isfinite(hr_or(hr_num(row, "value"), 0)));
                }
                json_decref(rows), facts_fini(&f);
            }
        }
        json_decref(sound), json_decref(value);
    }
}

/* ---- what is said ----------------------------------------------------------------------------------------------------------- */

/* 0.05 of the arithmetic with one sequence: 16 sequences use what 0.8 of the bandwidth allows, less what KV takes. */
static void figures_of_a_finding(void **state) {
    (void)state;
    json_t *rows = advise("{\"cell\": {\"n_seqs\": 1, \"mfu\": 0.05}}");
    const double ridge = 0.8 * (2.4 / 2.5) / (0.05 - 0.8 * (1 - 2.4 / 2.5));
    assert_float_equal(hr_num(finding(rows, "batch"), "value"), ridge, 1e-9);
    json_decref(rows);
    rows = advise(
        "{\"sibling\": {\"quant\": \"int4\", \"act\": \"int8\", \"bytes_step\": 1.25e9, " DIST(8, 7.9, 8.1) "}}");
    assert_float_equal(hr_num(finding(rows, "quant-slow"), "value"), 0.8, 1e-9);
    assert_float_equal(hr_num(finding(rows, "quant-slow"), "cost_pct"), 37.5, 1e-9); /* 5 of 8 ms follow the bytes */
    assert_string_equal(hr_word(finding(rows, "quant-slow"), "cell_id"), "c1");
    json_decref(rows);
    rows = advise("{\"cell\": {\"flash_attn\": false}}");
    assert_float_equal(hr_num(finding(rows, "flash-off"), "value"), 30, 1e-9);
    json_decref(rows);
}

static void most_costly_first(void **state) {
    (void)state;
    json_t *rows = advise("{\"cell\": {\"clock_ratio\": 0.9, \"softmax\": \"f16\", \"n_seqs\": 1, \"mfu\": 0.05,"
                          "\"roof_fraction\": 0.3, \"warmups\": 0}}");
    static const char *const want[] = {"low-utilisation", "softmax", "throttled", "no-warmup", "batch"};
    assert_int_equal(json_array_size(rows), 5);
    for (size_t i = 0; i < 5; i++) assert_string_equal(hr_word(json_array_get(rows, i), "rule"), want[i]);
    json_decref(rows);
}

static void cells_of_other_states_are_not_compared(void **state) {
    (void)state;
    static const char *const states[] = {"\"near\"", "\"far\"", "\"mixed\"", "null"};
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++) {
            char patch[400];
            snprintf(patch, sizeof patch,
                     "{\"cell\": {\"state_class\": %s}, \"sibling\": {\"page_size\": 64, \"state_class\": %s, %s}}",
                     states[a], states[b], DIST(8, 7.9, 8.1));
            json_t *rows = advise(patch);
            const bool want = a == b && a != 2;
            if ((finding(rows, "page-larger") != NULL) != want) fail_msg("%s against %s", states[a], states[b]);
            json_decref(rows);
        }
}

/* ---- the trend --------------------------------------------------------------------------------------------------------------- */

static void trends(void **state) {
    (void)state;
    hr_trend t;
    /* Kendall's table: for n = 4 S = 6 has one of 24 orders, S >= 4 four of them; two-sided. */
    ok(hr_trend_of((double[]){1, 2, 3, 4}, 4, &t));
    assert_float_equal(t.s, 6, 0), assert_float_equal(t.p, 2.0 / 24, 1e-12), assert_float_equal(t.slope, 1, 0);
    ok(hr_trend_of((double[]){2, 1, 3, 4}, 4, &t));
    assert_float_equal(t.s, 4, 0), assert_float_equal(t.p, 8.0 / 24, 1e-12);
    ok(hr_trend_of((double[]){8, 7, 6, 5, 4, 3, 2, 1}, 8, &t));
    assert_float_equal(t.s, -28, 0), assert_float_equal(t.p, 2.0 / 40320, 1e-12);
    ok(hr_trend_of((double[]){5, 5, 5, 5, 5}, 5, &t));
    assert_float_equal(t.p, 1, 0), assert_float_equal(t.slope, 0, 0);
    /* ties: variance (5 * 4 * 15 - 2 * 1 * 9) / 18 */
    ok(hr_trend_of((double[]){1, 2, 2, 3, 4}, 5, &t));
    assert_float_equal(t.p, erfc(8 / sqrt(2 * 282.0 / 18)), 1e-12);
    double many[5000];
    for (int i = 0; i < 5000; i++) many[i] = 3 * i + (i % 7);
    ok(hr_trend_of(many, 5000, &t));
    assert_int_equal(t.n, 1000);
    assert_float_equal(t.slope, 3, 0.01);
    fails(hr_trend_of(many, 2, &t), HR_ERR_INPUT, "at least 3");
    many[1] = NAN;
    fails(hr_trend_of(many, 9, &t), HR_ERR_INPUT, "not finite");
}

/* ---- store and README ------------------------------------------------------------------------------------------------------ */

static void out_of_a_store(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run_id = begin(store);
    static const char *const patches[] = {"{\"cell_id\": \"aa\", \"warmups\": 0}",
                                          "{\"cell_id\": \"bb\", \"softmax\": \"f16\"}",
                                          "{\"cell_id\": \"cc\", \"status\": \"failed\", \"softmax\": \"f16\"}"};
    for (size_t i = 0; i < 3; i++) {
        json_t *patch = parse(patches[i]), *cell = patched(SOUND_CELL, patch), *ops = parse(SOUND_OPS);
        json_t *samples = parse("[{\"ns\": 100, \"flags\": null}, {\"ns\": 110, \"flags\": \"throttled\"}]");
        json_t *recorded = parse(SOUND_RECORDED);
        ok(hr_store_put_cell_parts(store, run_id, cell, &(hr_cell_parts){samples, ops, recorded}));
        json_decref(patch), json_decref(cell), json_decref(ops), json_decref(samples), json_decref(recorded);
    }
    json_t *rows = NULL;
    ok(hr_advice_of_run(store, run_id, NULL, &rows));
    assert_non_null(finding(rows, "no-warmup")), assert_non_null(finding(rows, "softmax"));
    if (json_array_size(rows) != 2) fail_msg("expected no-warmup and softmax, got %s", rules_in(rows));
    json_decref(rows);
    ok(hr_advice_of_run(store, run_id, "aa", &rows));
    if (json_array_size(rows) != 1) fail_msg("expected no-warmup alone, got %s", rules_in(rows));
    json_decref(rows);
    fails(hr_advice_of_run(store, run_id, "dd", &rows), HR_ERR_INPUT, "dd");
    fails(hr_advice_of_run(store, "nope", NULL, &rows), HR_ERR_INPUT, "nope");
    hr_store_close(store);
    hr_free(run_id);
}

/* Rows "| `id` | ..." of the README are the rules, in order, and each says what the table of rules says about live tests. */
static void the_readme_lists_these_rules(void **state) {
    (void)state;
    static char book[1 << 16];
    book[read_file("harness/advice/README.md", book, sizeof book - 1)] = 0;
    json_t *rules = hr_advice_rules();
    size_t n = 0;
    char *save = NULL;
    for (char *line = strtok_r(book, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "| `", 3) || strstr(line, ".c` |")) continue; /* the other table lists files */
        const json_t *rule = json_array_get(rules, n++);
        char want[100];
        snprintf(want, sizeof want, "| `%s` |", hr_word(rule, "rule"));
        if (strncmp(line, want, strlen(want))) fail_msg("row %zu of README.md: expected %s, got %.60s", n, want, line);
        if (!strstr(line, hr_word(rule, "live"))) fail_msg("%s: README.md lacks \"%s\"", want, hr_word(rule, "live"));
    }
    assert_int_equal(n, json_array_size(rules));
    json_decref(rules);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_fires_and_just_below_does_not),
        cmocka_unit_test(every_rule_has_such_a_case),
        cmocka_unit_test(a_sound_cell_gives_no_finding),
        cmocka_unit_test(what_is_not_stored_fires_nothing),
        cmocka_unit_test(nothing_at_all),
        cmocka_unit_test(hostile_values),
        cmocka_unit_test(figures_of_a_finding),
        cmocka_unit_test(most_costly_first),
        cmocka_unit_test(cells_of_other_states_are_not_compared),
        cmocka_unit_test(trends),
        T(out_of_a_store),
        cmocka_unit_test(the_readme_lists_these_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
