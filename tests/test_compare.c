/* Which cells belong together, what is said of them, and that nothing is said that the samples do not bear. */
#include "tests/store_fixture.h"

#include "harness/compare/compare_internal.h"
#include "harness/compare/compare_options.h"
#include "harness/formats/json_get.h"

/* 100 +- 0.3: as ten repetitions of a quiet machine. */
static const double jitter[] = {0, .1, -.2, .3, -.3, .2, -.1, .05, -.05, .15};
enum { N = 10 };

static json_t *samples_around(double ms, size_t n, bool turned) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_real((ms + jitter[turned ? N - 1 - i : i]) * 1e6));
    return list;
}

/* A cell of prefill (n_gen 0) or decode (n_prompt 0). */
static json_t *cell_of(const char *id, const char *state, int n_prompt, int n_gen, json_t *samples_ns) {
    json_t *cell = json_pack("{s:s, s:s?, s:i, s:i, s:o, s:s, s:s, s:s, s:s}", "cell_id", id, "state_class", state,
                             "n_prompt", n_prompt, "n_gen", n_gen, "samples_ns", samples_ns, "status", "ok",
                             "stop_reason", "fixed", "model_filename", "m", "quant", "int8");
    char test[32];
    snprintf(test, sizeof test, n_prompt ? "pp%d" : "tg%d", n_prompt ? n_prompt : n_gen);
    json_object_set_new(cell, "test", json_string(test));
    return cell;
}
static json_t *prefill(const char *id, double ms, size_t n, bool turned) {
    return cell_of(id, "near", 64, 0, samples_around(ms, n, turned));
}

static json_t *list_of(json_t *a, json_t *b) {
    json_t *list = json_array();
    if (a) json_array_append_new(list, a);
    if (b) json_array_append_new(list, b);
    return list;
}

/* Takes both sides. */
static json_t *compared(json_t *a, json_t *b, const hr_compare_rule *rule) {
    const hr_compare_rule usual = hr_compare_rule_default();
    json_t *out = NULL;
    ok(hr_compare_cells(a, b, rule ? rule : &usual, &out));
    json_decref(a), json_decref(b);
    return out;
}

static const json_t *row_of(const json_t *comparison, size_t i) {
    const json_t *row = json_array_get(json_object_get(comparison, "cells"), i);
    if (!row) fail_msg("there is no row %zu", i);
    return row;
}

static void word_is_(const json_t *row, const char *key, const char *want, int line) {
    if (strcmp(hr_word(row, key), want)) {
        print_error("line %d: %s: expected \"%s\", got \"%s\" (%s)\n", line, key, want, hr_word(row, key),
                    hr_word(row, "why"));
        _fail(__FILE__, line);
    }
}
#define word_is(row, key, want) word_is_((row), (key), (want), __LINE__)
static void holds_(const json_t *row, const char *key, const char *part, int line) {
    if (!strstr(hr_word(row, key), part)) {
        print_error("line %d: %s: expected \"%s\" in \"%s\"\n", line, key, part, hr_word(row, key));
        _fail(__FILE__, line);
    }
}
#define holds(row, key, part) holds_((row), (key), (part), __LINE__)
static void near_(double got, double want, double tolerance, const char *what, int line) {
    if (!(fabs(got - want) <= tolerance)) {
        print_error("line %d: %s: expected %.9g, got %.9g, tolerance %.3g\n", line, what, want, got, tolerance);
        _fail(__FILE__, line);
    }
}
#define near_to(got, want, tolerance) near_((got), (want), (tolerance), #got, __LINE__)
static double count(const json_t *comparison, const char *word) {
    return hr_num(json_object_get(comparison, "summary"), word);
}

/* ---- verdicts -------------------------------------------------------------------------------------------------------- */

static void known_samples_have_known_verdicts(void **state) {
    (void)state;
    static const struct {
        double a, b;
        size_t n;
        const char *verdict;
    } cases[] = {{100, 110, N, "slower"},       {110, 100, N, "faster"},
                 {100, 100, N, "same"},         {100, 101, N, "same"}, /* surely slower, and by less than matters */
                 {100, 110, 2, "inconclusive"},                        /* too few, however far apart */
                 {100, 110, 1, "inconclusive"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *r = compared(list_of(prefill("1", cases[i].a, cases[i].n, false), NULL),
                             list_of(prefill("1", cases[i].b, cases[i].n, true), NULL), NULL);
        const json_t *row = row_of(r, 0);
        word_is(row, "verdict", cases[i].verdict);
        word_is(row, "metric", "ttft_prefill_ms");
        near_to(hr_num(row, "n_a"), (double)cases[i].n, 0);
        near_to(count(r, cases[i].verdict), 1, 0);
        near_to(count(r, "compared"), 1, 0);
        if (cases[i].n < 4) holds(row, "why", "too few");
        json_decref(r);
    }
}

/* 100 against 110, jitter mirrored: the shift is 10 within the jitter, p is that of ten against ten that do not overlap,
 * 2 / C(20, 10). */
static void shift_and_p(void **state) {
    (void)state;
    json_t *r = compared(list_of(prefill("1", 100, N, false), NULL), list_of(prefill("1", 110, N, true), NULL), NULL);
    const json_t *row = row_of(r, 0);
    near_to(hr_num(row, "a_median"), 100.025, 1e-9);
    near_to(hr_num(row, "b_median"), 110.025, 1e-9);
    near_to(hr_num(row, "shift_pct"), 10, 0.1);
    near_to(hr_num(row, "p"), 2.0 / 184756, 1e-12);
    near_to(hr_num(row, "p_adjusted"), 2.0 / 184756, 1e-12);
    assert_true(hr_num(row, "ci95_lo_pct") > 9 && hr_num(row, "ci95_hi_pct") < 11);
    json_decref(r);
}

/* tg samples are of n_gen tokens. */
static void decode_is_by_token(void **state) {
    (void)state;
    json_t *r = compared(list_of(cell_of("1", NULL, 0, 16, samples_around(160, N, false)), NULL),
                         list_of(cell_of("1", NULL, 0, 16, samples_around(160, N, true)), NULL), NULL);
    word_is(row_of(r, 0), "metric", "tpot_excl_first_ms");
    near_to(hr_num(row_of(r, 0), "a_median"), 160.025 / 16, 1e-9);
    assert_true(json_is_null(json_object_get(row_of(r, 0), "state_class")));
    json_decref(r);
}

/* 256 slower rows stay 256; the correction counts rows, not their order. */
static void order_changes_no_verdict(void **state) {
    (void)state;
    enum { CELLS = 256 };
    json_t *sides[2][2] = {{json_array(), json_array()}, {json_array(), json_array()}};
    for (int turned = 0; turned < 2; turned++)
        for (int i = 0; i < CELLS; i++) {
            const int k = turned ? CELLS - 1 - i : i;
            char id[16];
            snprintf(id, sizeof id, "cell%d", k);
            const double b = k % 4 == 0 ? 100 : k % 4 == 1 ? 102.2 : k % 4 == 2 ? 110 : 90;
            json_array_append_new(sides[turned][0], prefill(id, 100, N, false));
            json_array_append_new(sides[turned][1], prefill(id, b, k % 8 == 2 ? 4 : N, true));
        }
    json_decref(sides[1][1]);
    sides[1][1] = json_deep_copy(sides[0][1]); /* A turned, B not */
    json_t *straight = compared(sides[0][0], sides[0][1], NULL), *turned = compared(sides[1][0], sides[1][1], NULL);
    assert_true(json_equal(json_object_get(straight, "summary"), json_object_get(turned, "summary")));
    for (size_t i = 0; i < CELLS; i++) assert_true(json_equal(row_of(straight, i), row_of(turned, CELLS - 1 - i)));
    near_to(count(straight, "same"), CELLS / 4, 0);
    near_to(count(straight, "faster"), CELLS / 4, 0);
    json_decref(straight), json_decref(turned);
}

/* Samples of 5 a side that do not overlap: p = 2 / 252. Alone it is under .05; in a family of ten by Holm it is not. */
static void families(void **state) {
    (void)state;
    hr_compare_rule rule = hr_compare_rule_default();
    for (int holm = 0; holm < 2; holm++) {
        json_t *a = json_array(), *b = json_array();
        for (int i = 0; i < 10; i++) {
            char id[16];
            snprintf(id, sizeof id, "%d", i);
            json_array_append_new(a, prefill(id, 100, 5, false));
            json_array_append_new(b, prefill(id, i ? 100 : 110, 5, true));
        }
        rule.holm = holm != 0;
        json_t *r = compared(a, b, &rule);
        near_to(hr_num(row_of(r, 0), "p"), 2.0 / 252, 1e-12);
        near_to(hr_num(row_of(r, 0), "p_adjusted"), 20.0 / 252, 1e-12);
        word_is(row_of(r, 0), "verdict", "inconclusive");
        holds(row_of(r, 0), "why", "not under 0.05");
        json_decref(r);
    }
    json_t *r = compared(list_of(prefill("0", 100, 5, false), NULL), list_of(prefill("0", 110, 5, true), NULL), &rule);
    word_is(row_of(r, 0), "verdict", "slower");
    json_decref(r);
}

/* ---- joining ------------------------------------------------------------------------------------------------------------ */

static void unmatched_cells_are_listed(void **state) {
    (void)state;
    json_t *r = compared(list_of(prefill("1", 100, N, false), prefill("2", 100, N, false)),
                         list_of(prefill("2", 100, N, true), prefill("3", 100, N, true)), NULL);
    assert_int_equal(json_array_size(json_object_get(r, "cells")), 1);
    word_is(json_array_get(json_object_get(r, "unmatched_a"), 0), "cell_id", "1");
    word_is(json_array_get(json_object_get(r, "unmatched_b"), 0), "cell_id", "3");
    near_to(count(r, "unmatched"), 2, 0);
    json_decref(r);
}

static void another_state_is_another_cell(void **state) {
    (void)state;
    json_t *far = cell_of("1", "far", 64, 0, samples_around(100, N, true));
    json_t *r = compared(list_of(prefill("1", 100, N, false), NULL), list_of(far, NULL), NULL);
    near_to(count(r, "compared"), 0, 0);
    holds(json_array_get(json_object_get(r, "unmatched_a"), 0), "why", "near here, far there");
    json_decref(r);
    /* one of each state on either side: each finds its own */
    far = cell_of("1", "far", 64, 0, samples_around(150, N, true));
    r = compared(list_of(prefill("1", 100, N, false), json_deep_copy(far)), list_of(far, prefill("1", 100, N, true)),
                 NULL);
    near_to(count(r, "same"), 2, 0);
    json_decref(r);
}

static void a_cell_that_stands_twice_is_not_guessed(void **state) {
    (void)state;
    json_t *r = compared(list_of(prefill("1", 100, N, false), prefill("1", 150, N, false)),
                         list_of(prefill("1", 100, N, true), NULL), NULL);
    near_to(count(r, "compared"), 0, 0);
    assert_int_equal(json_array_size(json_object_get(r, "unmatched_a")), 2);
    holds(json_array_get(json_object_get(r, "unmatched_b"), 0), "why", "several cells");
    json_decref(r);
}

static json_t *failed(const char *id, const char *status) {
    json_t *cell = prefill(id, 100, 0, false);
    json_object_set_new(cell, "status", json_string(status));
    json_object_set_new(cell, "error", json_string("out of memory"));
    json_object_set_new(cell, "state_class", json_null());
    return cell;
}

static void failed_cells_are_seen(void **state) {
    (void)state;
    json_t *r = compared(list_of(prefill("1", 100, N, false), prefill("2", 100, N, false)),
                         list_of(failed("1", "failed"), failed("3", "failed")), NULL);
    word_is(row_of(r, 0), "status_a", "ok");
    word_is(row_of(r, 0), "status_b", "failed");
    word_is(row_of(r, 0), "error_b", "out of memory");
    word_is(row_of(r, 0), "verdict", "inconclusive");
    near_to(count(r, "failed"), 2, 0);
    near_to(count(r, "inconclusive"), 0, 0);
    near_to(count(r, "compared"), 0, 0);
    holds(json_array_get(json_object_get(r, "unmatched_b"), 0), "why", "failed: out of memory");
    json_decref(r);
    r = compared(list_of(failed("1", "skipped"), NULL), list_of(prefill("1", 100, N, false), NULL), NULL);
    near_to(count(r, "failed"), 0, 0);
    holds(json_array_get(json_object_get(r, "unmatched_b"), 0), "why", "skipped on the other side");
    json_decref(r);
}

/* ---- samples ------------------------------------------------------------------------------------------------------------- */

static json_t *request_of(const char *id, double ttft) {
    json_t *cell = prefill(id, 1000, N, false), *list = json_array(), *tpot = json_array();
    json_object_set_new(cell, "isl", json_integer(64)), json_object_set_new(cell, "osl", json_integer(8));
    json_object_set_new(cell, "n_gen", json_integer(8));
    for (size_t i = 0; i < N; i++) {
        json_array_append_new(list, json_real(ttft + jitter[i]));
        json_array_append_new(tpot, i ? json_real(10 + jitter[i] / 100) : json_null());
    }
    json_object_set_new(cell, "samples_ttft_ms", list), json_object_set_new(cell, "samples_tpot_ms", tpot);
    json_object_set(cell, "samples_e2e_ms", list);
    return cell;
}

static void requests_have_three_metrics(void **state) {
    (void)state;
    json_t *r = compared(list_of(request_of("1", 100), NULL), list_of(request_of("1", 110), NULL), NULL);
    static const char *const metrics[] = {"ttft_ms", "tpot_excl_first_ms", "e2e_ms"};
    static const char *const verdicts[] = {"slower", "same", "slower"};
    for (size_t i = 0; i < 3; i++) {
        word_is(row_of(r, i), "metric", metrics[i]);
        word_is(row_of(r, i), "verdict", verdicts[i]);
    }
    near_to(hr_num(row_of(r, 1), "n_a"), N - 1, 0); /* one repetition had none */
    json_decref(r);
    json_t *cell = request_of("1", 100);
    assert_string_equal(hr_compare_metric_of("ttft", cell), "ttft_ms");
    assert_string_equal(hr_compare_metric_of("itl", cell), "tpot_excl_first_ms");
    assert_null(hr_compare_metric_of("pp", cell));
    json_object_set_new(cell, "osl", json_integer(1));
    assert_null(hr_compare_metric_of("tpot", cell)); /* no second token */
    json_decref(cell);
    cell = prefill("1", 1, N, false);
    assert_string_equal(hr_compare_metric_of("pp", cell), "ttft_prefill_ms");
    assert_null(hr_compare_metric_of("tg", cell));
    assert_null(hr_compare_metric_of("nonsense", cell));
    json_decref(cell);
}

/* A store of before raw samples of requests: medians are shown, no verdict. */
static void without_raw_samples(void **state) {
    (void)state;
    json_t *sides[2];
    for (int s = 0; s < 2; s++) {
        sides[s] = prefill("1", 1000, N, false);
        json_object_set_new(sides[s], "isl", json_integer(64)), json_object_set_new(sides[s], "osl", json_integer(1));
        json_object_set_new(sides[s], "ttft_ms", json_pack("{s:i, s:f}", "n", 12, "p50", s ? 150.0 : 100.0));
    }
    json_t *r = compared(list_of(sides[0], NULL), list_of(sides[1], NULL), NULL);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(row_of(r, 0), "why", "raw samples");
    near_to(hr_num(row_of(r, 0), "a_median"), 100, 0);
    near_to(hr_num(row_of(r, 0), "b_median"), 150, 0);
    near_to(hr_num(row_of(r, 0), "n_b"), 12, 0);
    assert_true(json_is_null(json_object_get(row_of(r, 0), "p")));
    json_decref(r);
}

/* Flagged samples are left out as long as others remain; a clock that was reduced all along gives no verdict. */
static void reduced_clocks(void **state) {
    (void)state;
    double *v;
    size_t n;
    json_t *cell = prefill("1", 100, 3, false);
    json_object_set_new(cell, "samples_flags", json_pack("[n, s, n]", "throttled"));
    ok(hr_compare_samples(cell, "ttft_prefill_ms", &v, &n));
    assert_int_equal(n, 2);
    near_to(v[1], 99.8, 1e-9);
    hr_free(v);
    json_object_set_new(cell, "samples_flags", json_pack("[s, s, s]", "throttled", "throttled", "throttled"));
    ok(hr_compare_samples(cell, "ttft_prefill_ms", &v, &n));
    assert_int_equal(n, 3);
    hr_free(v);
    json_decref(cell);
    cell = prefill("1", 150, N, true);
    json_object_set_new(cell, "stop_reason", json_string("throttled"));
    json_t *r = compared(list_of(prefill("1", 100, N, false), NULL), list_of(cell, NULL), NULL);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(row_of(r, 0), "why", "clock was reduced");
    near_to(hr_num(row_of(r, 0), "shift_pct"), 50, 1);
    json_decref(r);
}

static void cells_that_did_not_settle_are_marked(void **state) {
    (void)state;
    json_t *b = prefill("1", 110, N, true), *foreign = cell_of("2", NULL, 64, 0, samples_around(100, N, true));
    json_object_set_new(b, "stop_reason", json_string("max_samples"));
    json_object_del(foreign, "stop_reason"), json_object_del(foreign, "status");
    json_t *r = compared(list_of(prefill("1", 100, N, false), json_deep_copy(foreign)), list_of(b, foreign), NULL);
    assert_true(json_is_true(json_object_get(row_of(r, 0), "converged_a")));
    assert_true(json_is_false(json_object_get(row_of(r, 0), "converged_b")));
    word_is(row_of(r, 0), "verdict", "slower");
    assert_true(json_is_null(json_object_get(row_of(r, 1), "converged_a"))); /* another tool does not say */
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_compare_print(HR_FORMAT_TABLE, f, r));
    fclose(f);
    if (!strstr(text, "B did not converge (max_samples)")) fail_msg("the table does not mark it:\n%s", text);
    json_decref(r);
}

static void mixed_states_are_no_ground(void **state) {
    (void)state;
    json_t *r = compared(list_of(cell_of("1", "mixed", 64, 0, samples_around(100, N, false)), NULL),
                         list_of(cell_of("1", "mixed", 64, 0, samples_around(150, N, true)), NULL), NULL);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(row_of(r, 0), "why", "changed its state");
    json_decref(r);
}

/* A row of another tool that is neither prefill nor decode. */
static void other_rows_are_one_time(void **state) {
    (void)state;
    json_t *a = cell_of("1", NULL, 0, 0, samples_around(100, N, false));
    json_t *b = cell_of("1", NULL, 0, 0, samples_around(110, N, true));
    json_t *r = compared(list_of(a, NULL), list_of(b, NULL), NULL);
    word_is(row_of(r, 0), "metric", "time_ms");
    word_is(row_of(r, 0), "verdict", "slower");
    json_decref(r);
    /* prefill and decode in one time: not split, so not guessed */
    a = cell_of("1", NULL, 64, 16, samples_around(100, N, false));
    assert_string_equal(hr_compare_metrics(a)[0], "time_ms");
    json_object_set_new(a, "samples_tpot_ms", json_pack("[f]", 1.0));
    assert_string_equal(hr_compare_metrics(a)[0], "ttft_prefill_ms");
    json_decref(a);
}

/* Times of zero (a broken clock) give no share and no verdict. */
static void zero_times(void **state) {
    (void)state;
    json_t *a = cell_of("1", NULL, 64, 0, json_pack("[i,i,i,i,i]", 0, 0, 0, 0, 0));
    json_t *b = cell_of("1", NULL, 64, 0, json_pack("[i,i,i,i,i]", 5, 5, 5, 5, 5));
    json_t *r = compared(list_of(a, NULL), list_of(b, NULL), NULL);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    assert_true(json_is_null(json_object_get(row_of(r, 0), "shift_pct")));
    json_decref(r);
}

/* ---- what may not be compared ----------------------------------------------------------------------------------------------- */

static json_t *on_machine(json_t *cell, const char *name) {
    json_object_set_new(cell, "machine_class", json_string(name));
    return cell;
}

static void unlike_machines(void **state) {
    (void)state;
    hr_compare_rule rule = hr_compare_rule_default();
    json_t *a = list_of(on_machine(prefill("1", 100, N, false), "zen4"), NULL);
    json_t *b = list_of(on_machine(prefill("9", 50, N, true), "zen5"), NULL), *r = NULL;
    json_object_set_new(json_array_get(b, 0), "roof_fraction", json_real(0.5));
    fails(hr_compare_cells(a, b, &rule, &r), HR_ERR_INPUT, "--across-machines");
    rule.across_machines = true;
    r = compared(a, b, &rule); /* ids hold the machine: they join by what was measured */
    const json_t *row = row_of(r, 0);
    assert_true(json_is_null(json_object_get(row, "verdict")) && json_is_null(json_object_get(row, "p")));
    near_to(hr_num(row, "b_median"), 50.025, 1e-9);
    near_to(hr_num(row, "roof_fraction_b"), 0.5, 0);
    word_is(row, "machine_b", "zen5");
    near_to(count(r, "compared"), 1, 0);
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_compare_print(HR_FORMAT_MD, f, r));
    fclose(f);
    static const char *const verdicts[] = {"slower", "faster", "same", "inconclusive"};
    for (size_t i = 0; i < 4; i++)
        if (strstr(text, verdicts[i])) fail_msg("two machines and \"%s\":\n%s", verdicts[i], text);
    json_decref(r);
}

static void simulated_cells(void **state) {
    (void)state;
    hr_compare_rule rule = hr_compare_rule_default();
    json_t *a = list_of(prefill("1", 100, N, false), NULL), *b = list_of(prefill("1", 100, N, true), NULL), *r = NULL;
    json_object_set_new(json_array_get(b, 0), "flags", json_pack("[s]", "simulated"));
    fails(hr_compare_cells(a, b, &rule, &r), HR_ERR_INPUT, "--allow-simulated");
    rule.allow_simulated = true;
    r = compared(a, b, &rule);
    word_is(row_of(r, 0), "verdict", "same");
    json_decref(r);
}

/* ---- pairs ---------------------------------------------------------------------------------------------------------------------- */

static json_t *paired(const double *a, const double *b, size_t n) {
    json_t *cell = prefill("1", 1, 1, false), *row = NULL;
    ok(hr_compare_pairs(cell, "ttft_prefill_ms", a, b, n, &row));
    json_t *r = json_pack("{s:[o], s:[], s:[]}", "cells", row, "unmatched_a", "unmatched_b");
    const hr_compare_rule rule = hr_compare_rule_default();
    ok(hr_compare_judge(r, &rule));
    json_decref(cell);
    return r;
}

/* Times that drift tenfold within the session, and B 12 % slower in each pair. */
static void pairs_see_through_drift(void **state) {
    (void)state;
    double a[13], b[13], same[13];
    for (size_t i = 0; i < 13; i++)
        a[i] = pow(10, (double)i / 12), b[i] = a[i] * 1.12 * (1 + jitter[i % N] / 100),
        same[i] = a[i] * (1 + jitter[i % N] / 100);
    json_t *r = paired(a, b, 13);
    word_is(row_of(r, 0), "verdict", "slower");
    near_to(hr_num(row_of(r, 0), "shift_pct"), 12, 0.2);
    near_to(hr_num(row_of(r, 0), "p"), 2.0 / 8192, 1e-12); /* every pair points the same way */
    json_decref(r);
    r = paired(a, same, 13);
    word_is(row_of(r, 0), "verdict", "same");
    json_decref(r);
    r = paired(b, a, 5); /* too few for an interval */
    word_is(row_of(r, 0), "verdict", "inconclusive");
    json_decref(r);
    r = paired(a, b, 0);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    json_decref(r);
    json_t *cell = prefill("1", 1, 1, false), *row = NULL;
    a[2] = 0;
    fails(hr_compare_pairs(cell, "ttft_prefill_ms", a, b, 13, &row), HR_ERR_INPUT, "pair 3");
    json_decref(cell);
}

/* ---- ops ------------------------------------------------------------------------------------------------------------------------ */

static void ops_that_moved(void **state) {
    (void)state;
    /* 10 steps of two layers against 5 steps: per step gate_up takes 2 ms, then 3 ms; head 1 ms on both */
    json_t *a = parse("[{\"phase\": \"decode\", \"op\": \"gate_up\", \"layer\": 0, \"n\": 10, \"median_ns\": 1e6},"
                      "{\"phase\": \"decode\", \"op\": \"gate_up\", \"layer\": 1, \"n\": 10, \"median_ns\": 1e6},"
                      "{\"phase\": \"decode\", \"op\": \"head\", \"layer\": -1, \"n\": 10, \"median_ns\": 1e6}]");
    json_t *b = parse("[{\"phase\": \"decode\", \"op\": \"head\", \"layer\": -1, \"n\": 5, \"median_ns\": 1e6},"
                      "{\"phase\": \"decode\", \"op\": \"gate_up\", \"layer\": 0, \"n\": 5, \"median_ns\": 1.5e6},"
                      "{\"phase\": \"decode\", \"op\": \"gate_up\", \"layer\": 1, \"n\": 5, \"median_ns\": 1.5e6},"
                      "{\"phase\": \"prefill\", \"op\": \"head\", \"layer\": -1, \"n\": 5, \"median_ns\": 4e5}]");
    json_t *rows = NULL, *none = json_array();
    ok(hr_compare_ops(a, b, &rows));
    assert_int_equal(json_array_size(rows), 3);
    const json_t *first = json_array_get(rows, 0), *second = json_array_get(rows, 1);
    word_is(first, "op", "gate_up");
    word_is(first, "phase", "decode");
    near_to(hr_num(first, "a_ms"), 2, 1e-9);
    near_to(hr_num(first, "b_ms"), 3, 1e-9);
    near_to(hr_num(first, "share_pct"), 100, 1e-9);
    word_is(second, "phase", "prefill"); /* on one side alone */
    near_to(hr_num(second, "shift_ms"), 0.4, 1e-9);
    near_to(hr_num(json_array_get(rows, 2), "shift_ms"), 0, 1e-9);
    json_decref(rows);
    ok(hr_compare_ops(a, none, &rows)); /* a side without op rows explains nothing */
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
    ok(hr_compare_fold_ops(a, &rows));
    near_to(hr_num(json_array_get(rows, 0), "ms"), 2, 1e-9);
    json_decref(rows), json_decref(a), json_decref(b), json_decref(none);
}

/* ---- from a store ------------------------------------------------------------------------------------------------------------------- */

static void stored_runs(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    for (int s = 0; s < 2; s++) {
        char *run = begin(store);
        json_t *cell = prefill("1", s ? 110 : 100, N, s != 0);
        ok(hr_store_put_cell(store, run, cell, NULL, NULL));
        hr_free(run), json_decref(cell);
    }
    json_t *a, *b, *run;
    ok(hr_compare_load(store, "last~1", &a, &run));
    word_is(run, "command", "sweep");
    word_is(json_array_get(a, 0), "machine_class", "epyc-2c-24g");
    json_decref(run);
    ok(hr_compare_load(store, "last", &b, &run));
    json_decref(run);
    json_t *r = compared(a, b, NULL);
    word_is(row_of(r, 0), "verdict", "slower");
    json_decref(r);
    fails(hr_compare_load(store, "there/is/none.json", &a, &run), HR_ERR_INPUT, "no such file");
    fails(hr_compare_load(NULL, "last", &a, &run), HR_ERR_INPUT, "--db");
    hr_store_close(store);
}

/* Rows of before samples_flags: the table of samples knows which are throttled. */
static void flags_of_an_older_store(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    json_t *cell = prefill("1", 100, 2, false), *cells, *row;
    json_object_set_new(cell, "flags", json_pack("[s]", "throttled"));
    json_t *samples = parse("[{\"ns\": 100000000, \"flags\": null}, {\"ns\": 100100000, \"flags\": \"throttled\"}]");
    ok(hr_store_put_cell(store, run, cell, samples, NULL));
    ok(hr_compare_load(store, "last", &cells, &row));
    double *v;
    size_t n;
    ok(hr_compare_samples(json_array_get(cells, 0), "ttft_prefill_ms", &v, &n));
    assert_int_equal(n, 1);
    near_to(v[0], 100, 1e-9);
    hr_free(v), hr_free(run);
    json_decref(cell), json_decref(samples), json_decref(cells), json_decref(row);
    hr_store_close(store);
}

/* Two files of llama-bench, as other programs write them: the build is no part of a cell, so they join. */
static void files_of_another_tool(void **state) {
    (void)state;
    char name[2][400], text[4096];
    json_t *cells[2], *run;
    for (int s = 0; s < 2; s++) {
        size_t used = (size_t)snprintf(
            text, sizeof text,
            "[{\"build_commit\": \"%d\", \"cpu_info\": \"c\", \"model_filename\": \"m.gguf\", \"model_type\": \"t\","
            "\"n_batch\": 1, \"n_ubatch\": 1, \"n_threads\": 2, \"n_prompt\": 0, \"n_gen\": 16, \"samples_ns\": [",
            s);
        for (size_t i = 0; i < N; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.0f", i ? ", " : "",
                                     ((s ? 110 : 100) + jitter[i]) * 1e6);
        used += (size_t)snprintf(text + used, sizeof text - used, "]}]");
        snprintf(name[s], sizeof name[s], "%s/%d.json", folder, s);
        write_file(name[s], text, used);
        assert_true(hr_compare_is_file(name[s]));
        ok(hr_compare_load(NULL, name[s], &cells[s], &run));
        json_decref(run);
    }
    json_t *r = compared(cells[0], cells[1], NULL);
    word_is(row_of(r, 0), "verdict", "slower");
    word_is(row_of(r, 0), "metric", "tpot_excl_first_ms");
    near_to(hr_num(row_of(r, 0), "a_median"), 100.025 / 16, 1e-9);
    json_decref(r);
    write_file(name[0], "{", 1);
    fails(hr_compare_load(NULL, name[0], &cells[0], &run), HR_ERR_INPUT, "0.json");
    assert_false(hr_compare_is_file("last"));
    assert_false(hr_compare_is_file(folder));
}

static void shares(void **state) {
    (void)state;
    double v = 0;
    ok(hr_share_of("2%", "--effect", &v));
    near_to(v, 0.02, 1e-12);
    ok(hr_share_of("0.035", "--effect", &v));
    near_to(v, 0.035, 1e-12);
    static const char *const wrong[] = {"", "%", "2", "-1%", "0", "nan", "2%%", "1,5%", "x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        fails(hr_share_of(wrong[i], "--effect", &v), HR_ERR_USAGE, "--effect");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_samples_have_known_verdicts),
        cmocka_unit_test(shift_and_p),
        cmocka_unit_test(decode_is_by_token),
        cmocka_unit_test(order_changes_no_verdict),
        cmocka_unit_test(families),
        cmocka_unit_test(unmatched_cells_are_listed),
        cmocka_unit_test(another_state_is_another_cell),
        cmocka_unit_test(a_cell_that_stands_twice_is_not_guessed),
        cmocka_unit_test(failed_cells_are_seen),
        cmocka_unit_test(requests_have_three_metrics),
        cmocka_unit_test(without_raw_samples),
        cmocka_unit_test(reduced_clocks),
        cmocka_unit_test(cells_that_did_not_settle_are_marked),
        cmocka_unit_test(mixed_states_are_no_ground),
        cmocka_unit_test(other_rows_are_one_time),
        cmocka_unit_test(zero_times),
        cmocka_unit_test(unlike_machines),
        cmocka_unit_test(simulated_cells),
        cmocka_unit_test(pairs_see_through_drift),
        cmocka_unit_test(ops_that_moved),
        T(stored_runs),
        T(flags_of_an_older_store),
        T(files_of_another_tool),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
