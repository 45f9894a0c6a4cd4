/* A stored claim holds all that its verdict rests on: each is judged once more from what the store gives back. */
#include "tests/store_fixture.h"

#include "harness/claims/claims.h"
#include "harness/store/store.h"

/* Through the store and back. */
static json_t *through_the_store(const json_t *rows) {
    json_t *back;
    hr_store *store;
    ok(hr_store_open(path, true, &store));
    char *run_id = begin(store);
    ok(hr_store_put_claims(store, run_id, rows));
    ok(hr_store_end_run(store, run_id, 0));
    hr_store_close(store);
    ok(hr_store_open(path, false, &store));
    ok(hr_store_claims(store, run_id, &back));
    hr_store_close(store);
    hr_free(run_id);
    return back;
}

static void judge_all(const json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        hr_verdict got;
        const char *id = json_string_value(json_object_get(row, "id"));
        const char *want = json_string_value(json_object_get(row, "verdict"));
        ok(hr_claim_judge_row(row, &got));
        if (strcmp(want, hr_verdict_names[got]))
            fail_msg("%s: stored as \"%s\", judged from its samples \"%s\"", id, want, hr_verdict_names[got]);
    }
}

/* What needs no clock, and one that cannot be tested. */
static void run_rows_are_judged_again(void **state) {
    (void)state;
    const char *const only[] = {"kv-size", "softmax-fp32", "quant-memory", "mbu-example", "intensity", "l2-hit"};
    const hr_claims_options options = {.quick = true, .only = only, .n_only = 6};
    json_t *rows = NULL;
    ok(hr_claims_run_all(&options, &rows));
    json_t *back = through_the_store(rows);
    assert_int_equal(json_array_size(back), json_array_size(rows));
    judge_all(back);
    size_t samples = 0, i;
    json_t *row;
    json_array_foreach(back, i, row) {
        const size_t n = json_array_size(json_object_get(row, "samples"));
        const json_t *said = json_object_get(row, "n");
        assert_int_equal(n, json_is_null(said) ? 0 : json_integer_value(said));
        samples += n;
    }
    assert_true(samples > 25); /* softmax-fp32 alone has 25 */
    json_decref(back), json_decref(rows);
}

/* Rows with samples of each kind of verdict; the judge's own words are held by test_claims. */
static json_t *made_row(const char *id, const char *kind, double lo, double hi, double null, double middle,
                        double spread, size_t n, hr_verdict verdict) {
    json_t *samples = json_array();
    for (size_t i = 0; i < n; i++) {
        const double at = n > 1 ? 2.0 * (double)((i * 7 + 3) % n) / (double)(n - 1) - 1 : 0;
        json_array_append_new(samples, json_real(middle * (1 + spread * at)));
    }
    json_t *rule = json_pack("{s:s, s:f, s:f, s:o}", "kind", kind, "lo", lo, "hi", hi, "null",
                             isfinite(null) ? json_real(null) : json_null());
    return json_pack("{s:s, s:f, s:o, s:o, s:b, s:s}", "id", id, "measured", middle, "samples", samples, "rule", rule,
                     "exact", 0, "verdict", hr_verdict_names[verdict]);
}

static json_t *made_rows(void) {
    json_t *rows = json_array();
    json_array_append_new(rows, made_row("a", "at least", 1.9, 0, 1, 2.1, 0.05, 13, HR_VERDICT_HOLDS));
    json_array_append_new(rows, made_row("b", "at least", 1.9, 0, 1, 1.3, 0.05, 13, HR_VERDICT_FAILS));
    json_array_append_new(rows, made_row("c", "at least", 1.9, 0, 1, 1, 0.01, 13, HR_VERDICT_SAME));
    json_array_append_new(rows, made_row("d", "at most", 0, 5, NAN, 5, 0.1, 13, HR_VERDICT_UNTESTED));
    json_array_append_new(rows, made_row("e", "between", 65, 79, NAN, 72, 0.02, 9, HR_VERDICT_HOLDS));
    json_array_append_new(rows, made_row("f", "between", 65, 79, NAN, 72, 0.02, 5, HR_VERDICT_UNTESTED));
    return rows;
}

static void every_verdict_comes_back(void **state) {
    (void)state;
    json_t *rows = made_rows(), *back = through_the_store(rows);
    assert_int_equal(json_array_size(back), 6);
    judge_all(back);
    json_decref(rows), json_decref(back);
}

/* The samples decide, not the words: other samples give another verdict. */
static void samples_decide(void **state) {
    (void)state;
    hr_verdict got;
    json_t *rows = made_rows(), *row = json_array_get(rows, 0), *other = json_array();
    for (int i = 0; i < 13; i++) json_array_append_new(other, json_real(1.2 + 0.001 * i));
    json_object_set_new(row, "samples", other);
    ok(hr_claim_judge_row(row, &got));
    assert_int_equal(got, HR_VERDICT_FAILS);
    json_object_del(row, "samples");
    assert_int_equal(hr_claim_judge_row(row, &got), HR_ERR_INPUT);
    json_t *rule = json_object_get(json_array_get(rows, 1), "rule");
    json_object_set_new(rule, "kind", json_string("about"));
    assert_int_equal(hr_claim_judge_row(json_array_get(rows, 1), &got), HR_ERR_INPUT);
    json_decref(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(run_rows_are_judged_again, setup, teardown),
        cmocka_unit_test_setup_teardown(every_verdict_comes_back, setup, teardown),
        cmocka_unit_test(samples_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
