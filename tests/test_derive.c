/* Rates, ratios and flags against numbers worked out by hand from the definitions in the documentation. */
#include "tests/hr_test.h"

#include "harness/sweep/derive.h"
#include "harness/sweep/op_fold.h"
#include "harness/sweep/series.h"

/* Doubles through a few multiplications: far below any figure that is shown. */
static const double TOLERANCE = 1e-12;

static void near_(double got, double want, const char *what) {
    if (!(fabs(got - want) <= TOLERANCE * fabs(want))) fail_msg("%s: expected %.17g, got %.17g", what, want, got);
}
#define NEAR(got, want) near_((got), (want), #got)

static const hr_peaks peaks = {.read_gb_s = 50, .gflop_s = {200, 400, 800}};

static void decode_is_bound_by_memory(void **state) {
    (void)state;
    /* 1 GB of weights, 0.2 + 0.05 GB of KV at 50 GB/s: 25 ms. 2 GFLOP int8 at 800 and 1 fp32 at 200: 7.5 ms. */
    const hr_step_work w = {.bytes_weights = 1000000000,
                            .bytes_kv_read = 200000000,
                            .bytes_kv_write = 50000000,
                            .flops = {[HR_UNIT_FP32] = 1000000000, [HR_UNIT_INT8] = 2000000000}};
    const hr_ratios r = hr_derive_ratios(&w, 50, &peaks);
    NEAR(r.bytes, 1.25e9);
    NEAR(r.flops, 3e9);
    NEAR(r.intensity, 2.4);
    NEAR(r.mbu, 0.5);
    NEAR(r.mfu, 0.15);
    NEAR(r.roof_time_ms, 25);
    NEAR(r.roof_fraction, 0.5);
    assert_string_equal(r.bound, "memory");
}

static void prefill_is_bound_by_arithmetic(void **state) {
    (void)state;
    /* 100 GFLOP of bf16 at 400: 250 ms, against 20 ms of reading. */
    const hr_step_work w = {.bytes_weights = 1000000000, .flops = {[HR_UNIT_BF16] = 100000000000}};
    const hr_ratios r = hr_derive_ratios(&w, 500, &peaks);
    NEAR(r.mfu, 0.5);
    NEAR(r.mbu, 0.04);
    NEAR(r.roof_time_ms, 250);
    NEAR(r.roof_fraction, 0.5);
    assert_string_equal(r.bound, "compute");
}

static void a_unit_that_is_lacking_counts_as_fp32(void **state) {
    (void)state;
    const hr_peaks plain = {.read_gb_s = 50, .gflop_s = {200, NAN, NAN}};
    const hr_step_work w = {.bytes_weights = 1, .flops = {[HR_UNIT_BF16] = 100000000000}};
    NEAR(hr_derive_ratios(&w, 1000, &plain).mfu, 0.5);
}

static void unknown_bandwidth_is_no_ratio(void **state) {
    (void)state;
    const hr_peaks none = {.read_gb_s = NAN, .gflop_s = {NAN, NAN, NAN}};
    const hr_step_work w = {.bytes_weights = 1000, .flops = {10}};
    const hr_ratios r = hr_derive_ratios(&w, 1, &none);
    assert_true(isnan(r.mbu) && isnan(r.mfu) && isnan(r.roof_time_ms) && isnan(r.roof_fraction));
    assert_null(r.bound);
}

static hr_state state_of(double read, double handoff) {
    return (hr_state){
        .read_gb_s = read, .handoff_ns = handoff, .gflop_s = {100, NAN, NAN}, .clock_ghz = 3, .psi_some_us = 0};
}

static const char *class_of(double r0, double h0, double r1, double h1) {
    const hr_state a = state_of(r0, h0), b = state_of(r1, h1);
    const char *name = hr_state_class(&a, &b);
    return name ? name : "null";
}

static void state_classes(void **state) {
    (void)state;
    assert_string_equal(class_of(30, 40, 31, 45), "near");
    assert_string_equal(class_of(50, 170, 52, 165), "far");
    assert_string_equal(class_of(30, 40, 31, 165), "mixed");
    assert_string_equal(class_of(30, 40, 34.6, 40), "mixed"); /* 15.3 % */
    assert_string_equal(class_of(30, 40, 34.4, 40), "near");  /* 14.7 % */
    assert_string_equal(class_of(30, NAN, 30, NAN), "null");
    const hr_state a = state_of(30, 40), b = state_of(31.6, 40), c = state_of(31.4, 40); /* 5.3 %, 4.7 % */
    assert_true(hr_state_drifted(&a, &b, 1));
    assert_false(hr_state_drifted(&a, &c, 1));
    const hr_peaks p = hr_peaks_of(&a, &b);
    NEAR(p.read_gb_s, 31.6);
    NEAR(p.gflop_s[0], 100);
    assert_true(isnan(p.gflop_s[1]));
}

/* ---- whole rows ---------------------------------------------------------------------------------------------------- */

static double number(const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}
static bool flagged(const json_t *row, const char *flag) {
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(row, "flags"), i, v) if (!strcmp(json_string_value(v), flag)) return true;
    return false;
}

static json_t *row_of(const hr_cell_config *c, const char *result_text, const hr_surroundings *around) {
    const hr_model_info info = {.type = "llama 1B BF16", .weight_bytes = 100};
    const hr_machine machine = {.cpu = "test", .class_name = "test"};
    json_t *row = hr_cell_row(c, &info, &machine, "id", 0, "");
    json_t *result = json_loads(result_text, 0, NULL);
    assert_non_null(row);
    assert_non_null(result);
    assert_int_equal(hr_derive_row(row, c, result, around), HR_OK);
    json_decref(result);
    return row;
}

static const hr_surroundings quiet = {.before = {50, 40, {200, NAN, NAN}, 3, 0},
                                      .after = {50, 40, {200, NAN, NAN}, 3, 10000},
                                      .seconds = 1,
                                      .best_clock_ghz = 3,
                                      .units = 1,
                                      .llc_bytes = 1e6};

/* Two repetitions of 100 tokens, 1 s and 3 s: the rate of the median time is 50 a second; the mean of rates, 66.7, is
 * llama-bench's avg_ts and stands nowhere else. */
static void rates_come_from_times(void **state) {
    (void)state;
    const hr_cell_config c = {.kind = HR_CELL_PP, .n_prompt = 100, .n_seqs = -1, .isl = -1, .osl = -1};
    json_t *row = row_of(&c,
                         "{\"samples_ns\": [1000000000, 3000000000], \"sample_flags\": [null, null],"
                         " \"prefill_ms\": 2000, \"working_set_bytes\": 2e6, \"prefill_work\": {\"bytes_weights\":"
                         " 10000000000, \"bytes_kv_read\": 0, \"bytes_kv_write\": 0, \"flops\": [40000000000, 0, 0]}}",
                         &quiet);
    NEAR(number(row, "prefill_tok_s"), 50);
    NEAR(number(row, "avg_ns"), 2e9);
    NEAR(number(row, "stddev_ns"), sqrt(2) * 1e9);
    NEAR(number(row, "avg_ts"), 200.0 / 3);
    NEAR(number(row, "mbu"), 0.1);
    NEAR(number(row, "mfu"), 0.1);
    NEAR(number(row, "psi_cpu_some_pct"), 1);
    assert_string_equal(json_string_value(json_object_get(row, "state_class")), "near");
    assert_string_equal(json_string_value(json_object_get(row, "status")), "ok");
    assert_true(json_is_null(json_object_get(row, "decode_tok_s")));
    assert_int_equal(json_array_size(json_object_get(row, "flags")), 0);
    json_decref(row);
}

static void one_sample_has_no_deviation(void **state) {
    (void)state;
    const hr_cell_config c = {.kind = HR_CELL_PP, .n_prompt = 100, .n_seqs = -1};
    json_t *row = row_of(&c, "{\"samples_ns\": [1000], \"sample_flags\": [null], \"prefill_ms\": 0.001}", &quiet);
    assert_true(json_is_null(json_object_get(row, "stddev_ns")) && json_is_null(json_object_get(row, "stddev_ts")));
    assert_true(json_is_null(json_object_get(row, "mbu"))); /* no work was sent */
    json_decref(row);
}

/* 4 requests of 10 tokens; 2 repetitions of 2 s, 6 of 8 requests met the SLO. */
static void requests(void **state) {
    (void)state;
    const hr_cell_config c = {
        .kind = HR_CELL_ISL, .n_prompt = 100, .n_gen = 10, .isl = 100, .osl = 10, .n_seqs = 4, .depth = -1};
    json_t *row =
        row_of(&c,
               "{\"samples_ns\": [2000000000, 2000000000], \"sample_flags\": [null, null], \"prefill_ms\": 200,"
               " \"step_ms\": 100, \"good\": 6, \"tpot_excl_first_ms\": {\"p50\": 125, \"weak\": [\"p99\"]}}",
               &quiet);
    NEAR(number(row, "output_tok_s"), 20);
    NEAR(number(row, "avg_ts"), 20);
    NEAR(number(row, "requests_s"), 2);
    NEAR(number(row, "goodput_req_s"), 1.5);
    NEAR(number(row, "decode_tok_s"), 40);
    NEAR(number(row, "per_user_tok_s"), 8);
    NEAR(number(row, "prefill_tok_s"), 500);
    NEAR(number(row, "prefill_req_s_device"), 5);
    assert_true(flagged(row, "weak_percentile"));
    json_decref(row);
}

/* A ratio over 1 is flagged and never clamped; a working set inside the last-level cache explains it. */
static void over_the_roof(void **state) {
    (void)state;
    const hr_cell_config c = {.kind = HR_CELL_TG, .n_gen = 1, .n_seqs = 1};
    const char *const text = "{\"samples_ns\": [1000000], \"sample_flags\": [null], \"step_ms\": 1,"
                             " \"working_set_bytes\": %s, \"decode_work\": {\"bytes_weights\": 100000000,"
                             " \"bytes_kv_read\": 0, \"bytes_kv_write\": 0, \"flops\": [1, 0, 0]}}";
    char big[512], small[512];
    snprintf(big, sizeof big, text, "100000000"), snprintf(small, sizeof small, text, "100000");
    json_t *row = row_of(&c, big, &quiet);
    NEAR(number(row, "mbu"), 2);
    assert_true(flagged(row, "over_roof") && !flagged(row, "cache_resident"));
    json_decref(row);
    row = row_of(&c, small, &quiet);
    NEAR(number(row, "mbu"), 2);
    assert_true(!flagged(row, "over_roof") && flagged(row, "cache_resident"));
    assert_true(json_is_true(json_object_get(row, "cache_resident")));
    json_decref(row);
}

static void flags_of_the_surroundings(void **state) {
    (void)state;
    const hr_cell_config c = {.kind = HR_CELL_PP, .n_prompt = 1, .n_seqs = -1};
    const char *const text = "{\"samples_ns\": [1000, 9000], \"sample_flags\": [null, \"throttled\"]}";
    hr_surroundings around = quiet;
    around.after = (hr_state){60, 150, {200, NAN, NAN}, 2.5, 100000};
    json_t *row = row_of(&c, text, &around);
    assert_true(flagged(row, "roof_drift") && flagged(row, "state_changed") && flagged(row, "noisy_neighbour") &&
                flagged(row, "throttled"));
    assert_string_equal(json_string_value(json_object_get(row, "state_class")), "mixed");
    NEAR(number(row, "clock_ratio"), 2.5 / 3);
    NEAR(number(row, "peak_read_gb_s"), 60);
    NEAR(number(row, "psi_cpu_some_pct"), 10);
    json_t *crowded;
    around.after.psi_some_us = 3.5 * around.seconds * 1e6; /* of two seconds, in a cell of less */
    crowded = row_of(&c, text, &around);
    NEAR(number(crowded, "psi_cpu_some_pct"), 100);
    json_decref(crowded);
    NEAR(number(row, "avg_ns"), 1000); /* the flagged sample is shown and left out */
    assert_int_equal(json_array_size(json_object_get(row, "samples_ns")), 2);
    json_t *flags = json_pack("[n, s]", "throttled");
    assert_true(json_equal(json_object_get(row, "samples_flags"), flags));
    json_decref(flags), json_decref(row);
}

/* Of requests a value a repetition is kept; pp and tg rows have it in samples_ns. */
static void samples_of_requests_are_kept(void **state) {
    (void)state;
    const char *const text = "{\"samples_ns\": [1000, 2000], \"sample_flags\": [null, null],"
                             " \"samples_ttft_ms\": [1, 2], \"samples_tpot_ms\": [3, null],"
                             " \"samples_e2e_ms\": [5, 6], \"samples_prefill_ms\": [0.5, 1.5]}";
    const hr_cell_config isl = {.kind = HR_CELL_ISL, .n_prompt = 1, .n_gen = 2, .isl = 1, .osl = 2, .n_seqs = 1};
    const hr_cell_config pp = {.kind = HR_CELL_PP, .n_prompt = 1, .n_seqs = -1};
    static const char *const keys[] = {"samples_ttft_ms", "samples_tpot_ms", "samples_e2e_ms", "samples_prefill_ms"};
    json_t *want = json_loads(text, 0, NULL), *row = row_of(&isl, text, &quiet), *other = row_of(&pp, text, &quiet);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!json_equal(json_object_get(row, keys[i]), json_object_get(want, keys[i]))) fail_msg("%s", keys[i]);
        if (!json_is_null(json_object_get(other, keys[i]))) fail_msg("pp row has %s", keys[i]);
    }
    assert_true(json_is_null(json_object_get(row, "samples_flags"))); /* none is flagged */
    json_decref(want), json_decref(row), json_decref(other);
}

static void flagged_samples_leave_every_distribution(void **state) {
    (void)state;
    hr_bench_series all = {0};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(hr_series_put(&all.of[HR_SERIES_SAMPLE], 1e6 * (i + 1), i), HR_OK);
        assert_int_equal(hr_series_put(&all.of[HR_SERIES_TTFT], i + 1, i), HR_OK);
        assert_int_equal(hr_series_put(&all.of[HR_SERIES_STEP], i + 1, i), HR_OK);
    }
    assert_int_equal(hr_bench_series_flags(&all), HR_OK);
    all.flagged[3] = true;
    json_t *out = json_object();
    assert_int_equal(hr_bench_series_json(&all, out), HR_OK);
    NEAR(number(json_object_get(out, "ttft_ms"), "max"), 3);
    NEAR(number(json_object_get(out, "ttft_ms"), "n"), 3);
    NEAR(number(out, "step_ms"), 2);
    assert_int_equal(json_array_size(json_object_get(out, "samples_ns")), 4);
    assert_null(json_object_get(out, "e2e_ms"));
    json_decref(out);
    hr_bench_series_reset(&all);
}

/* The median of the requests of each repetition, in order and flagged or not; null where a repetition has none. */
static void every_repetition_has_its_median(void **state) {
    (void)state;
    hr_bench_series all = {0};
    static const double ttft[3][2] = {{5, 7}, {1, 2}, {30, 10}};
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(hr_series_put(&all.of[HR_SERIES_SAMPLE], 1e6, i), HR_OK);
        for (size_t s = 0; s < 2; s++) assert_int_equal(hr_series_put(&all.of[HR_SERIES_TTFT], ttft[i][s], i), HR_OK);
        if (i != 1) assert_int_equal(hr_series_put(&all.of[HR_SERIES_TPOT], i + 4, i), HR_OK);
    }
    assert_int_equal(hr_bench_series_flags(&all), HR_OK);
    all.flagged[0] = true;
    json_t *out = json_object(), *want = json_loads("[[6.0, 1.5, 20.0], [4.0, null, 6.0]]", 0, NULL);
    assert_int_equal(hr_bench_series_json(&all, out), HR_OK);
    assert_true(json_equal(json_object_get(out, "samples_ttft_ms"), json_array_get(want, 0)));
    assert_true(json_equal(json_object_get(out, "samples_tpot_ms"), json_array_get(want, 1)));
    assert_null(json_object_get(out, "samples_e2e_ms"));
    json_decref(out), json_decref(want);
    hr_bench_series_reset(&all);
}

static void records_fold_into_rows(void **state) {
    (void)state;
    hr_op_record records[6];
    for (size_t i = 0; i < 6; i++)
        records[i] = (hr_op_record){.phase = HR_PHASE_DECODE,
                                    .op = i % 2 ? HR_OP_DOWN : HR_OP_QKV,
                                    .layer = 3,
                                    .kernel = "k",
                                    .start_ns = 100,
                                    .end_ns = 110 + (i == 5 ? 8 : i),
                                    .unit = i % 2 ? HR_UNIT_BF16 : HR_UNIT_FP32,
                                    .imbalance_ns = i,
                                    .handoff_ns = 10 * i,
                                    .bytes = i,
                                    .flops = 2 * i};
    hr_op_fold *fold;
    json_t *rows;
    assert_int_equal(hr_op_fold_create(&fold), HR_OK);
    assert_int_equal(hr_op_fold_add(fold, records, 6), HR_OK);
    assert_int_equal(hr_op_fold_rows(fold, &rows), HR_OK);
    assert_int_equal(json_array_size(rows), 2);
    const json_t *down = json_array_get(rows, 1); /* records 1, 3, 5: 11, 13, 18 ns; bytes 1, 3, 5 */
    assert_string_equal(json_string_value(json_object_get(down, "op")), "down");
    assert_string_equal(json_string_value(json_object_get(down, "phase")), "decode");
    NEAR(number(down, "n"), 3);
    NEAR(number(down, "median_ns"), 13);
    NEAR(number(down, "mean_ns"), 14);
    NEAR(number(down, "imbalance_ns"), 3);
    NEAR(number(down, "handoff_ns"), 30);
    assert_string_equal(json_string_value(json_object_get(down, "unit")), "bf16");
    NEAR(number(down, "bytes"), 3);
    NEAR(number(down, "flops"), 6);
    NEAR(hr_op_sum_ns(records, 6), 10 + 11 + 12 + 13 + 14 + 18);
    json_decref(rows);
    hr_op_fold_destroy(fold);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_is_bound_by_memory),
        cmocka_unit_test(prefill_is_bound_by_arithmetic),
        cmocka_unit_test(a_unit_that_is_lacking_counts_as_fp32),
        cmocka_unit_test(unknown_bandwidth_is_no_ratio),
        cmocka_unit_test(state_classes),
        cmocka_unit_test(rates_come_from_times),
        cmocka_unit_test(one_sample_has_no_deviation),
        cmocka_unit_test(requests),
        cmocka_unit_test(over_the_roof),
        cmocka_unit_test(flags_of_the_surroundings),
        cmocka_unit_test(flagged_samples_leave_every_distribution),
        cmocka_unit_test(samples_of_requests_are_kept),
        cmocka_unit_test(every_repetition_has_its_median),
        cmocka_unit_test(records_fold_into_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
