/* The rule that turns samples into a verdict, on samples made for it; the table; and a run of what needs no clock. */
#include "tests/hr_test.h"

#include "harness/claims/claim_tests.h"
#include "harness/claims/claims.h"

#include <jansson.h>

static const hr_claim_rule effect_of_two = {HR_RULE_AT_LEAST, 1.9, 0, 1};
static const hr_claim_rule over_ninety = {HR_RULE_AT_LEAST, 90, 0, NAN};
static const hr_claim_rule under_ten = {HR_RULE_AT_MOST, 0, 10, NAN};
static const hr_claim_rule a_share = {HR_RULE_BETWEEN, 65, 79, NAN};

/* n samples spread evenly over middle (1 +- spread), in an order that is not sorted. */
static hr_claim_measured made(double middle, double spread, size_t n) {
    double v[64];
    for (size_t i = 0; i < n; i++) {
        const size_t at = (i * 7 + 3) % n;
        v[i] = middle * (1 + spread * (n > 1 ? 2.0 * (double)at / (double)(n - 1) - 1 : 0));
    }
    return hr_claim_of_samples(v, n);
}

static void expect(const char *what, const hr_claim_rule *rule, hr_claim_measured m, hr_verdict want) {
    char reason[256] = "";
    const hr_verdict got = hr_claim_judge(rule, &m, reason, sizeof reason);
    if (got != want)
        fail_msg("%s: %.4g [%.4g, %.4g] of %zu: expected \"%s\", got \"%s\" (%s)", what, m.value, m.lo, m.hi, m.n,
                 hr_verdict_names[want], hr_verdict_names[got], reason);
    assert_true(strlen(reason) > 10);
}

static void effects(void **state) {
    (void)state;
    expect("as published", &effect_of_two, made(2.1, 0.05, 13), HR_VERDICT_HOLDS);
    expect("more than published", &effect_of_two, made(5, 0.1, 13), HR_VERDICT_HOLDS);
    expect("real, but smaller", &effect_of_two, made(1.3, 0.05, 13), HR_VERDICT_FAILS);
    expect("the other way round", &effect_of_two, made(0.5, 0.05, 13), HR_VERDICT_FAILS);
    expect("nothing", &effect_of_two, made(1, 0.01, 13), HR_VERDICT_SAME);
    expect("nothing, but noisy: surely no factor of two", &effect_of_two, made(1, 0.2, 13), HR_VERDICT_FAILS);
    expect("straddles", &effect_of_two, made(1.9, 0.1, 13), HR_VERDICT_UNTESTED);
    expect("a real 3 % is not nothing", &effect_of_two, made(1.03, 0.001, 13), HR_VERDICT_FAILS);
}

static void bounds(void **state) {
    (void)state;
    expect("over", &over_ninety, made(95, 0.01, 9), HR_VERDICT_HOLDS);
    expect("under", &over_ninety, made(80, 0.01, 9), HR_VERDICT_FAILS);
    expect("on the bound", &over_ninety, made(90, 0.02, 9), HR_VERDICT_UNTESTED);
    expect("1 means nothing here", &over_ninety, made(1, 0.001, 9), HR_VERDICT_FAILS);
    expect("below", &under_ten, hr_claim_exact(1.02), HR_VERDICT_HOLDS);
    expect("above", &under_ten, hr_claim_exact(12), HR_VERDICT_FAILS);
    expect("in", &a_share, made(72, 0.02, 9), HR_VERDICT_HOLDS);
    expect("too low", &a_share, made(40, 0.02, 9), HR_VERDICT_FAILS);
    expect("too high", &a_share, made(90, 0.02, 9), HR_VERDICT_FAILS);
    expect("over an edge", &a_share, made(79, 0.05, 9), HR_VERDICT_UNTESTED);
    expect("wider than the range", &a_share, made(72, 0.6, 9), HR_VERDICT_UNTESTED);
}

static void too_little_is_no_verdict(void **state) {
    (void)state;
    for (size_t n = 0; n < 6; n++) expect("few", &effect_of_two, made(3, 0.01, n), HR_VERDICT_UNTESTED);
    expect("six", &effect_of_two, made(3, 0.01, 6), HR_VERDICT_HOLDS);
    hr_claim_measured broken = made(3, 0.01, 9);
    broken.value = NAN;
    expect("not a number", &effect_of_two, broken, HR_VERDICT_UNTESTED);
    expect("exact needs no samples", &effect_of_two, hr_claim_exact(2), HR_VERDICT_HOLDS);
}

static void intervals_are_of_the_median(void **state) {
    (void)state;
    double v[] = {9, 1, 8, 2, 7, 3, 6, 4, 5};
    const hr_claim_measured m = hr_claim_of_samples(v, 9);
    assert_true(m.value == 5);
    assert_true(m.lo == 2 && m.hi == 8); /* second and eighth of nine: 96 % */
}

static void the_table_is_whole(void **state) {
    (void)state;
    static const char *const wanted[] = {"flash-256",     "flash-1024",      "flash-2048",       "flash-short",
                                         "flash-tile",    "fuse-qkv",        "fuse-head",        "fuse-ffn",
                                         "zorder",        "small-params",    "restrict",         "layout-token",
                                         "alloc-frag",    "alloc-p99",       "alloc-qps",        "alloc-cross",
                                         "alloc-waste",   "compaction",      "kv-size",          "kv-int8",
                                         "kv-4bit",       "quant-speed",     "quant-loss",       "quant-memory",
                                         "prefill-split", "prefill-peak",    "decode-bandwidth", "decode-memory-share",
                                         "intensity",     "compose-512",     "compose-2048",     "mbu-example",
                                         "l2-hit",        "threads",         "tile-decode",      "align-128",
                                         "softmax-fp32",  "prefill-parallel"};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        size_t found = 0;
        for (const hr_claim *c = hr_claim_table; c->id; c++) found += !strcmp(c->id, wanted[i]);
        if (found != 1) fail_msg("claim %s: expected 1 row, got %zu", wanted[i], found);
    }
    for (const hr_claim *c = hr_claim_table; c->id; c++) {
        assert_true(strlen(c->claim) > 10 && *c->published && *c->unit && strlen(c->how) > 5);
        if (c->test && c->rule.kind == HR_RULE_BETWEEN) assert_true(c->rule.lo < c->rule.hi);
    }
    assert_true(hr_claim_named(&hr_claim_table[0], "flash"));
    assert_true(hr_claim_named(&hr_claim_table[0], "flash-256"));
    assert_false(hr_claim_named(&hr_claim_table[0], "fla"));
    assert_false(hr_claim_named(&hr_claim_table[0], ""));
    assert_false(hr_claim_named(&hr_claim_table[0], "flash-2"));
}

static bool stop_now(void) {
    return true;
}

static void rows_have_their_keys(void **state) {
    (void)state;
    const char *const only[] = {"kv-size", "softmax-fp32", "quant-memory", "mbu-example", "l2-hit"};
    hr_claims_options options = {.quick = true, .only = only, .n_only = 5};
    json_t *rows = NULL, *row;
    size_t i;
    assert_int_equal(hr_claims_run_all(&options, &rows), HR_OK);
    assert_int_equal(json_array_size(rows), 7); /* kv-size-token and quant-memory-int4 come along */
    json_array_foreach(rows, i, row) {
        static const char *const keys[] = {"id",      "claim", "source", "published", "measured", "ci95_lo",
                                           "ci95_hi", "unit",  "n",      "verdict",   "reason",   "how"};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) assert_non_null(json_object_get(row, keys[k]));
        const char *id = json_string_value(json_object_get(row, "id")),
                   *verdict = json_string_value(json_object_get(row, "verdict"));
        const double value = json_number_value(json_object_get(row, "measured"));
        if (!strcmp(id, "kv-size")) { /* 2 * 32 layers * 32 heads * 128 * 2 bytes * 4096 */
            assert_true(fabs(value - 2.147483648) < 1e-9);
            assert_string_equal(verdict, "holds");
        }
        if (!strcmp(id, "quant-memory")) { /* 16 bits over 8.5 */
            assert_true(fabs(value - 16 / 8.5) < 0.001);
            assert_string_equal(verdict, "does not hold");
        }
        if (!strcmp(id, "l2-hit")) {
            assert_true(json_is_null(json_object_get(row, "measured")));
            assert_string_equal(verdict, "not testable here");
        }
    }
    json_decref(rows);
    options.stop = stop_now;
    assert_int_equal(hr_claims_run_all(&options, &rows), HR_ERR_INTERRUPTED);
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
    const char *const wrong[] = {"kv-sise"};
    options = (hr_claims_options){.only = wrong, .n_only = 1};
    assert_int_equal(hr_claims_run_all(&options, &rows), HR_ERR_USAGE);
    assert_non_null(strstr(hr_error(), "kv-size"));
}

/* Two rows are kept, then the store is full. */
static hr_status keep_two(const json_t *row, void *context) {
    unsigned *n = context;
    assert_non_null(json_object_get(row, "verdict"));
    if (++*n == 2) HR_FAIL(HR_ERR_IO, "no space left");
    return HR_OK;
}

static void rows_are_kept_one_by_one(void **state) {
    (void)state;
    const char *const only[] = {"kv-size", "mbu-example", "l2-hit"};
    unsigned n = 0;
    const hr_claims_options options = {.quick = true, .only = only, .n_only = 3, .keep = keep_two, .context = &n};
    json_t *rows = NULL;
    assert_int_equal(hr_claims_run_all(&options, &rows), HR_ERR_IO);
    assert_int_equal(n, 2);
    assert_int_equal(json_array_size(rows), 2); /* both can still be printed */
    json_decref(rows);
}

/* One comparison of whole passes on the real path: an interval that holds its median, and a verdict of the four. */
static void a_comparison_runs(void **state) {
    (void)state;
    const char *const only[] = {"flash-256", "decode-bandwidth-compute"};
    const hr_claims_options options = {.quick = true, .only = only, .n_only = 2};
    json_t *rows = NULL, *row;
    size_t i;
    assert_int_equal(hr_claims_run_all(&options, &rows), HR_OK);
    assert_int_equal(json_array_size(rows), 2);
    json_array_foreach(rows, i, row) {
        const double value = json_number_value(json_object_get(row, "measured"));
        assert_true(value > 0);
        assert_true(json_number_value(json_object_get(row, "ci95_lo")) <= value);
        assert_true(json_number_value(json_object_get(row, "ci95_hi")) >= value);
        assert_true(json_integer_value(json_object_get(row, "n")) >= 6);
    }
    json_decref(rows);
}

/* The two loops of `restrict` must do the same, or the comparison means nothing. */
static void the_variants_agree(void **state) {
    (void)state;
#if defined(__x86_64__)
    if (hr_isa_best() < HR_ISA_AVX2) hr_skip("no AVX2");
    enum { PANELS = 3, K = 37 };
    float w[PANELS * K * 16], x[K], a[PANELS * 16] = {0}, b[PANELS * 16] = {0};
    for (int i = 0; i < PANELS * K * 16; i++) w[i] = (float)(i % 29) * 0.1f - 1;
    for (int i = 0; i < K; i++) x[i] = (float)(i % 5) - 2;
    hr_claim_gemv_plain(w, x, a, PANELS, K);
    hr_claim_gemv_restrict(w, x, b, PANELS, K);
    hr_assert_near(b, a, PANELS * 16, 1e-5, "with and without restrict");
    for (int r = 0; r < 16; r++) {
        double want = 0;
        for (int c = 0; c < K; c++) want += (double)w[(2 * K + c) * 16 + r] * x[c];
        assert_true(fabs(want - (double)a[32 + r]) < 1e-3);
    }
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(effects),
        cmocka_unit_test(bounds),
        cmocka_unit_test(too_little_is_no_verdict),
        cmocka_unit_test(intervals_are_of_the_median),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(rows_have_their_keys),
        cmocka_unit_test(the_variants_agree),
        cmocka_unit_test(rows_are_kept_one_by_one),
        cmocka_unit_test(a_comparison_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
