#include "tests/hr_test.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <stdlib.h>

/* Values computed in doubles from short decimal inputs: a few roundings, so 1e-12 relative. */
static const double ROUNDING = 1e-12;

static void near_to(double got, double want, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want)))) {
        print_error("%s: expected %.15g, got %.15g, relative tolerance %.3g\n", what, want, got, tolerance);
        fail();
    }
}

/* Rounds as the golden vectors are printed. */
static double rounded(double value, int decimals) {
    double scale = pow(10, decimals);
    return round(value * scale) / scale;
}

/* xorshift64*: seeded, so that a failure repeats. */
static uint64_t rng_state;
static double uniform(void) {
    rng_state ^= rng_state >> 12, rng_state ^= rng_state << 25, rng_state ^= rng_state >> 27;
    return ((double)((rng_state * 0x2545F4914F6CDD1Dull) >> 11) + 0.5) * 0x1p-53;
}
static double normal(void) {
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void every(double *times, size_t n, double first, double step) {
    for (size_t i = 0; i < n; i++) times[i] = first + step * (double)i;
}

/* ---- golden vectors ---- */

static void golden_1_long_request(void **state) {
    (void)state;
    double times[128];
    every(times, 128, 200, 20);
    hr_request_metrics m;
    assert_int_equal(hr_request_metrics_of(0, times, 128, &m), HR_OK);
    near_to(m.ttft, 200, ROUNDING, "TTFT ms");
    near_to(m.e2e, 2740, ROUNDING, "E2E ms");
    near_to(m.tpot, 20, ROUNDING, "TPOT ms");
    near_to(m.itl_step, 20, ROUNDING, "ITL ms");
    near_to(rounded(m.e2e / 128, 2), 21.41, ROUNDING, "time per token including the first");
    near_to(rounded(1000 / m.tpot, 1), 50.0, ROUNDING, "per-user rate 1/TPOT");
    near_to(rounded(128 * 1000 / m.e2e, 1), 46.7, ROUNDING, "per-user rate N/E2E");
}

static void golden_2_slow_first_token(void **state) {
    (void)state;
    double times[8];
    every(times, 8, 2000, 20);
    hr_request_metrics m;
    assert_int_equal(hr_request_metrics_of(0, times, 8, &m), HR_OK);
    near_to(m.e2e, 2140, ROUNDING, "E2E ms");
    near_to(m.tpot, 20, ROUNDING, "TPOT ms");
    near_to(rounded(m.e2e / 8, 1), 267.5, ROUNDING, "time per token including the first");
}

static void golden_3_single_token(void **state) {
    (void)state;
    const double times[] = {50};
    hr_request_metrics m;
    assert_int_equal(hr_request_metrics_of(0, times, 1, &m), HR_OK);
    assert_true(isnan(m.tpot));
    assert_true(isnan(m.itl_step) && isnan(m.itl_token));
    near_to(m.e2e, 50, ROUNDING, "E2E ms");
}

static void golden_4_two_tokens_a_step(void **state) {
    (void)state;
    double times[101];
    times[0] = 300;
    for (size_t i = 0; i < 100; i++) times[i + 1] = 300 + 40 * (double)(i / 2 + 1);
    hr_request_metrics m;
    assert_int_equal(hr_request_metrics_of(0, times, 101, &m), HR_OK);
    near_to(m.itl_step, 40, ROUNDING, "itl_step ms");
    near_to(m.itl_token, 20, ROUNDING, "itl_token ms");
    near_to(m.tpot, 20, ROUNDING, "TPOT ms");
}

static void golden_5_weighting(void **state) {
    (void)state;
    double two[2], many[101], tpots[2], gaps[101];
    every(two, 2, 500, 100);
    every(many, 101, 500, 10);
    hr_request_metrics a, b;
    assert_int_equal(hr_request_metrics_of(0, two, 2, &a), HR_OK);
    assert_int_equal(hr_request_metrics_of(0, many, 101, &b), HR_OK);
    tpots[0] = a.tpot, tpots[1] = b.tpot;
    gaps[0] = two[1] - two[0];
    for (size_t i = 0; i < 100; i++) gaps[i + 1] = many[i + 1] - many[i];
    hr_dist d;
    assert_int_equal(hr_dist_of(tpots, 2, &d), HR_OK);
    near_to(d.mean, 55.0, ROUNDING, "request-weighted mean TPOT");
    assert_int_equal(hr_dist_of(gaps, 101, &d), HR_OK);
    near_to(rounded(d.mean, 2), 10.89, ROUNDING, "token-weighted mean TPOT");
}

static void golden_6_rate_from_times(void **state) {
    (void)state;
    const double seconds[] = {1.0, 3.0};
    hr_dist d;
    assert_int_equal(hr_dist_of(seconds, 2, &d), HR_OK);
    near_to(rounded(100 / d.mean, 1), 50.0, ROUNDING, "rate of the mean time");
    near_to(rounded(100 / d.p50, 1), 50.0, ROUNDING, "rate of the median time");
    near_to(rounded((100 / seconds[0] + 100 / seconds[1]) / 2, 1), 66.7, ROUNDING, "mean of rates");
}

static void request_refuses_nonsense(void **state) {
    (void)state;
    hr_request_metrics m;
    const double back[] = {10, 9}, nan_time[] = {10, NAN}, early[] = {-1}, together[] = {10, 10, 10};
    assert_int_equal(hr_request_metrics_of(0, back, 0, &m), HR_ERR_INPUT);
    assert_int_equal(hr_request_metrics_of(0, back, 2, &m), HR_ERR_INPUT);
    assert_int_equal(hr_request_metrics_of(0, nan_time, 2, &m), HR_ERR_INPUT);
    assert_int_equal(hr_request_metrics_of(0, early, 1, &m), HR_ERR_INPUT);
    assert_int_equal(hr_request_metrics_of(NAN, back, 1, &m), HR_ERR_INPUT);
    assert_int_equal(hr_request_metrics_of(0, together, 3, &m), HR_OK);
    near_to(m.tpot, 0, ROUNDING, "TPOT of tokens that came at once");
    assert_true(isnan(m.itl_step)); /* there is no gap between distinct times */
}

/* ---- distributions ---- */

static void percentiles_by_hand(void **state) {
    (void)state;
    const double samples[] = {50, 15, 40, 35, 20}; /* sorted 15 20 35 40 50 */
    hr_dist d;
    assert_int_equal(hr_dist_of(samples, 5, &d), HR_OK);
    assert_int_equal(d.n, 5);
    near_to(d.min, 15, ROUNDING, "min");
    near_to(d.p50, 35, ROUNDING, "p50");
    near_to(d.p90, 46, ROUNDING, "p90"); /* 0.90 * 4 = 3.6: 40 + 0.6 * 10 */
    near_to(d.p95, 48, ROUNDING, "p95");
    near_to(d.p99, 49.6, ROUNDING, "p99");
    near_to(d.max, 50, ROUNDING, "max");
    near_to(d.mean, 32, ROUNDING, "mean");
    near_to(d.stddev, sqrt(207.5), ROUNDING, "stddev"); /* 289 + 144 + 9 + 64 + 324 = 830, over 4 */
    near_to(d.mad, 15, ROUNDING, "mad");                /* 20 15 0 5 15 */
    assert_true(isnan(d.ci95_lo) && isnan(d.ci95_hi));
    assert_true(samples[0] == 50); /* the input keeps its order */
    const double even[] = {4, 1, 3, 2};
    assert_int_equal(hr_dist_of(even, 4, &d), HR_OK);
    near_to(d.p50, 2.5, ROUNDING, "p50 of an even count");
    const double sorted[] = {1, 2};
    near_to(hr_quantile_sorted(sorted, 2, 0), 1, ROUNDING, "q 0");
    near_to(hr_quantile_sorted(sorted, 2, 1), 2, ROUNDING, "q 1");
    assert_true(isnan(hr_quantile_sorted(sorted, 0, 0.5)));
}

static void one_sample_has_no_spread(void **state) {
    (void)state;
    const double one = 7;
    hr_dist d;
    assert_int_equal(hr_dist_of(&one, 1, &d), HR_OK);
    assert_true(isnan(d.stddev));
    near_to(d.p99, 7, ROUNDING, "p99");
    near_to(d.mad, 0, ROUNDING, "mad");
    json_t *json = hr_dist_json(&one, 1);
    assert_non_null(json);
    assert_true(json_is_null(json_object_get(json, "stddev")));
    assert_true(json_is_null(json_object_get(json, "ci95_lo")));
    assert_int_equal(json_array_size(json_object_get(json, "weak")), 3);
    json_decref(json);
}

static void refuses_what_is_not_finite(void **state) {
    (void)state;
    hr_dist d;
    const double with_nan[] = {1, NAN, 2}, with_inf[] = {1, INFINITY};
    assert_int_equal(hr_dist_of(with_nan, 0, &d), HR_ERR_INPUT);
    assert_int_equal(hr_dist_of(with_nan, 3, &d), HR_ERR_INPUT);
    assert_non_null(strstr(hr_error(), "sample 1 of 3"));
    assert_int_equal(hr_dist_of(with_inf, 2, &d), HR_ERR_INPUT);
    json_t *json = hr_dist_json(with_nan, 3);
    assert_true(json_is_null(json));
    json_decref(json);
    json = hr_dist_json(NULL, 0);
    assert_true(json_is_null(json));
    json_decref(json);
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_int_equal(hr_dist_of(with_nan, 1, &d), HR_ERR_MEMORY);
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_null(hr_dist_json(with_nan, 1));
}

/* 2 s in ns: squares are 4e18, five of them are over 2^64, and a naive sum of squares in doubles loses the spread. */
static void large_values_keep_their_spread(void **state) {
    (void)state;
    double samples[5];
    for (int i = 0; i < 5; i++) samples[i] = 2e9 + i; /* stddev sqrt(2.5) */
    hr_dist d;
    assert_int_equal(hr_dist_of(samples, 5, &d), HR_OK);
    near_to(d.stddev, sqrt(2.5), ROUNDING, "stddev at 2e9");
    for (int i = 0; i < 5; i++) samples[i] = 1e15 + i;
    assert_int_equal(hr_dist_of(samples, 5, &d), HR_OK);
    near_to(d.stddev, sqrt(2.5), ROUNDING, "stddev at 1e15");
    near_to(d.mean, 1e15 + 2, 0, "mean at 1e15");
    for (int i = 0; i < 5; i++) samples[i] = 0.1;
    assert_int_equal(hr_dist_of(samples, 5, &d), HR_OK);
    near_to(d.stddev, 0, 0, "stddev of equal values");
    near_to(d.mean, 0.1, 0, "mean of equal values");
}

static void json_has_all_keys_in_order(void **state) {
    (void)state;
    double samples[60];
    every(samples, 60, 1, 1);
    json_t *json = hr_dist_json(samples, 60);
    assert_non_null(json);
    const char *const want[] = {"n",    "min",    "p50", "p90",     "p95",     "p99", "max",
                                "mean", "stddev", "mad", "ci95_lo", "ci95_hi", "weak"};
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value) {
        assert_true(i < sizeof want / sizeof *want);
        assert_string_equal(key, want[i++]);
    }
    assert_int_equal(i, sizeof want / sizeof *want);
    json_t *weak = json_object_get(json, "weak"); /* 60 is enough for p95, not for p99 */
    assert_int_equal(json_array_size(weak), 1);
    assert_string_equal(json_string_value(json_array_get(weak, 0)), "p99");
    json_decref(json);
}

static void weak_percentiles_at_their_limits(void **state) {
    (void)state;
    double samples[299];
    every(samples, 299, 1, 1);
    hr_dist d;
    hr_dist_of(samples, 298, &d);
    assert_true(d.weak_p99 && !d.weak_p95 && !d.weak_p90);
    hr_dist_of(samples, 299, &d);
    assert_false(d.weak_p99);
    hr_dist_of(samples, 58, &d);
    assert_true(d.weak_p95 && !d.weak_p90);
    hr_dist_of(samples, 59, &d);
    assert_false(d.weak_p95);
    hr_dist_of(samples, 28, &d);
    assert_true(d.weak_p90);
    hr_dist_of(samples, 29, &d);
    assert_false(d.weak_p90);
}

/* ---- interval of the median ---- */

/* Ranks of the sign-test interval in the usual tables, made 0-based. */
static void interval_ranks_by_table(void **state) {
    (void)state;
    const struct {
        size_t n, lo, hi;
    } rows[] = {{6, 0, 5}, {8, 0, 7}, {9, 1, 7}, {10, 1, 8}, {15, 3, 11}, {20, 5, 14}, {50, 17, 32}, {100, 39, 60}};
    size_t lo, hi;
    for (size_t n = 0; n < 6; n++) assert_false(hr_median_ci_ranks(n, &lo, &hi));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(hr_median_ci_ranks(rows[i].n, &lo, &hi));
        if (lo != rows[i].lo || hi != rows[i].hi)
            fail_msg("n %zu: expected [%zu, %zu], got [%zu, %zu]", rows[i].n, rows[i].lo, rows[i].hi, lo, hi);
    }
}

/* The exact coverage by logarithms of factorials, another way than the program's, is at least 95 % and one rank
 * narrower would be less. lgamma is good to about 1e-14 of its value (8e4 at n = 10000): 1e-9 in a probability. */
static void interval_ranks_are_exact_and_tight(void **state) {
    (void)state;
    const size_t sizes[] = {6, 7, 11, 33, 64, 299, 1000, 1075, 4096, 10000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s], lo, hi;
        assert_true(hr_median_ci_ranks(n, &lo, &hi));
        assert_int_equal(lo + hi, n - 1);
        double tail = 0, next = 0;
        for (size_t k = 0; k <= lo + 1; k++) {
            double p =
                exp(lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) - (double)n * log(2));
            if (k <= lo) tail += p;
            next += p;
        }
        if (!(tail <= 0.025 + 1e-9 && next > 0.025 - 1e-9))
            fail_msg("n %zu, lo %zu: tail %.6g must be <= 0.025 and the next one %.6g over it", n, lo, tail, next);
    }
}

/* Share of 4000 seeded repetitions in which the interval holds the true median. The true coverage is at least 95 %, so
 * less than 94 % has a chance of about 0.2 % (standard error 0.34 %) and cannot come from the seed used here. */
static double coverage(size_t n, double (*draw)(void), double true_median) {
    double samples[64];
    size_t held = 0, repetitions = 4000;
    for (size_t r = 0; r < repetitions; r++) {
        for (size_t i = 0; i < n; i++) samples[i] = draw();
        hr_dist d;
        assert_int_equal(hr_dist_of(samples, n, &d), HR_OK);
        held += d.ci95_lo <= true_median && true_median <= d.ci95_hi;
    }
    return (double)held / (double)repetitions;
}
static double skewed(void) { /* like times: a floor and a long tail; median exp(0) + 10 */
    return 10 + exp(1.5 * normal());
}
static double heavy(void) { /* Cauchy */
    return tan(3.141592653589793 * (uniform() - 0.5));
}
static void interval_covers_the_median(void **state) {
    (void)state;
    rng_state = 20240607;
    const size_t sizes[] = {6, 10, 25, 60};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double a = coverage(sizes[s], normal, 0), b = coverage(sizes[s], skewed, 11), c = coverage(sizes[s], heavy, 0);
        if (!(a >= 0.94 && b >= 0.94 && c >= 0.94))
            fail_msg("n %zu: coverage %.4f normal, %.4f skewed, %.4f heavy; expected 0.95", sizes[s], a, b, c);
        if (sizes[s] == 60 && a > 0.975) fail_msg("n 60: coverage %.4f: wider than needed", a); /* exact: 0.9578 */
    }
}

/* ---- stop rule and warm-up ---- */

static const hr_stop_rule RULE = {
    .min_samples = 10, .max_samples = 1000, .min_seconds = 0.5, .max_seconds = 30, .half_width = 0.005};

/* Feeds samples of `spread` (relative) one by one, `each` seconds apart; returns why and when it stopped. */
static hr_stop run_rule(const hr_stop_rule *rule, double spread, double each, size_t *n_out, double *noise) {
    static double samples[2000];
    for (size_t n = 0; n < 2000; n++) {
        hr_stop stop = hr_stop_ask(rule, samples, n, each * (double)n, noise);
        if (stop != HR_STOP_NOT) {
            *n_out = n;
            return stop;
        }
        samples[n] = 1e7 * (1 + spread * normal());
    }
    fail_msg("the rule never stopped");
    return HR_STOP_NOT;
}

static void quiet_samples_converge(void **state) {
    (void)state;
    rng_state = 1;
    size_t n;
    double noise;
    assert_int_equal(run_rule(&RULE, 0.0005, 0.1, &n, &noise), HR_STOP_CONVERGED);
    assert_int_equal(n, 10); /* as soon as there are ten */
    assert_true(noise < 0.005);
    assert_int_equal(run_rule(&RULE, 0.0005, 0.01, &n, &noise), HR_STOP_CONVERGED);
    assert_int_equal(n, 50); /* as soon as 0.5 s have passed */
    assert_int_equal(run_rule(&RULE, 0, 0.1, &n, &noise), HR_STOP_CONVERGED);
}

static void noisy_samples_end_noise_stable(void **state) {
    (void)state;
    rng_state = 2;
    size_t n, runs = 50, stable = 0;
    double noise;
    for (size_t r = 0; r < runs; r++) {
        hr_stop stop = run_rule(&RULE, 0.2, 0.02, &n, &noise); /* 0.5 % would need about 2500 samples */
        stable += stop == HR_STOP_NOISE_STABLE;
        if (stop == HR_STOP_NOISE_STABLE) assert_true(n >= 30 && noise > 0.005);
        assert_true(stop != HR_STOP_CONVERGED);
    }
    assert_true(stable >= 45); /* chance decides when, not whether: the rest ran into 1000 samples */
}

static void fixed_is_exact(void **state) {
    (void)state;
    rng_state = 3;
    hr_stop_rule rule = RULE;
    size_t n;
    double noise;
    for (size_t fixed = 1; fixed <= 12; fixed += 11) {
        rule.fixed = fixed;
        assert_int_equal(run_rule(&rule, 0.0001, 100, &n, &noise), HR_STOP_FIXED);
        assert_int_equal(n, fixed);
        assert_true(fixed >= 6 ? noise > 0 : isnan(noise));
    }
}

static void timeout_gives_three_samples(void **state) {
    (void)state;
    rng_state = 4;
    size_t n;
    double noise;
    assert_int_equal(run_rule(&RULE, 0.01, 20, &n, &noise), HR_STOP_TIMEOUT);
    assert_int_equal(n, 3);
    assert_true(isnan(noise));
    assert_int_equal(run_rule(&RULE, 0.01, 5, &n, &noise), HR_STOP_TIMEOUT);
    assert_int_equal(n, 6);
    assert_false(isnan(noise));
}

static void max_samples_ends_it(void **state) {
    (void)state;
    rng_state = 5;
    hr_stop_rule rule = RULE;
    rule.max_samples = 25;
    size_t n;
    double noise;
    assert_int_equal(run_rule(&rule, 0.3, 0.1, &n, &noise), HR_STOP_MAX_SAMPLES);
    assert_int_equal(n, 25);
    assert_int_equal(run_rule(&rule, 0.3, 0.0001, &n, &noise), HR_STOP_MAX_SAMPLES); /* before 0.5 s too */
}

static void stop_survives_lack_of_memory(void **state) {
    (void)state;
    const double samples[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    double noise;
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_int_equal(hr_stop_ask(&RULE, samples, 12, 1, &noise), HR_STOP_NOT);
    assert_true(isnan(noise));
    assert_int_equal(hr_stop_ask(&RULE, samples, 12, 1, &noise), HR_STOP_CONVERGED);
}

static void names_of_stop_reasons(void **state) {
    (void)state;
    const char *const want[HR_STOP_COUNT] = {"",        "converged", "noise_stable", "max_samples",
                                             "timeout", "fixed",     "throttled",    "failed"};
    for (int i = 0; i < HR_STOP_COUNT; i++) assert_string_equal(hr_stop_names[i], want[i]);
}

static void warm_when_times_no_longer_fall(void **state) {
    (void)state;
    const double falling[] = {100, 80, 70, 65, 64.8, 64.7}, noisy[] = {100, 98, 100.5}, rising[] = {90, 95, 99};
    double endless[20];
    for (size_t i = 0; i < 20; i++) endless[i] = pow(0.9, (double)i);
    assert_false(hr_warm(falling, 0));
    assert_false(hr_warm(falling, 2));
    for (size_t n = 3; n <= 5; n++) assert_false(hr_warm(falling, n));
    assert_true(hr_warm(falling, 6));
    assert_true(hr_warm(noisy, 3));
    assert_true(hr_warm(rising, 3));
    assert_false(hr_warm(endless, 19));
    assert_true(hr_warm(endless, 20));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_1_long_request),
        cmocka_unit_test(golden_2_slow_first_token),
        cmocka_unit_test(golden_3_single_token),
        cmocka_unit_test(golden_4_two_tokens_a_step),
        cmocka_unit_test(golden_5_weighting),
        cmocka_unit_test(golden_6_rate_from_times),
        cmocka_unit_test(request_refuses_nonsense),
        cmocka_unit_test(percentiles_by_hand),
        cmocka_unit_test(one_sample_has_no_spread),
        cmocka_unit_test(refuses_what_is_not_finite),
        cmocka_unit_test(large_values_keep_their_spread),
        cmocka_unit_test(json_has_all_keys_in_order),
        cmocka_unit_test(weak_percentiles_at_their_limits),
        cmocka_unit_test(interval_ranks_by_table),
        cmocka_unit_test(interval_ranks_are_exact_and_tight),
        cmocka_unit_test(interval_covers_the_median),
        cmocka_unit_test(quiet_samples_converge),
        cmocka_unit_test(noisy_samples_end_noise_stable),
        cmocka_unit_test(fixed_is_exact),
        cmocka_unit_test(timeout_gives_three_samples),
        cmocka_unit_test(max_samples_ends_it),
        cmocka_unit_test(stop_survives_lack_of_memory),
        cmocka_unit_test(names_of_stop_reasons),
        cmocka_unit_test(warm_when_times_no_longer_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
