/* The gate: what is red, what is green, and which exit code comes of it. */
#include "tests/gate_fixture.h"

static json_t *tg(double shift, double half, const char *verdict) {
    return make_row("aaaa0001", "tg128", "tpot_excl_first_ms", shift, half, verdict);
}
static json_t *failing(json_t *row, const char *status_a, const char *status_b) {
    set(row, "status_a", json_string(status_a)), set(row, "status_b", json_string(status_b));
    set(row, "verdict", json_string("inconclusive")), set(row, "error_b", json_string("out of memory"));
    return row;
}
static json_t *alone(const char *test, const char *status) {
    return json_pack("{s:s, s:s, s:n, s:s, s:s}", "test", test, "cell_id", "bbbb0001", "state_class", "status", status,
                     "why", "the other side has no such cell");
}

static const char *outcome(const json_t *v, size_t i) {
    return hr_word(json_array_get(json_object_get(v, "cells"), i), "outcome");
}
static bool has_reason(const json_t *v, const char *part) {
    size_t i;
    json_t *reason;
    json_array_foreach(json_object_get(v, "reasons"), i, reason) {
        if (strstr(json_string_value(reason), part)) return true;
    }
    return false;
}
#define assert_reason(v, part)                                                      \
    do {                                                                            \
        if (!has_reason(v, part)) {                                                 \
            char *all_ = json_dumps(json_object_get(v, "reasons"), JSON_INDENT(1)); \
            fail_msg("line %d: no reason holds \"%s\": %s", __LINE__, part, all_);  \
        }                                                                           \
    } while (0)

/* ---- exit codes --------------------------------------------------------------------------------------------------- */

static void verdicts_become_codes(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    assert_code(one(tg(0, 1, "same")), &rule, 0);
    assert_code(one(tg(-5, 1, "faster")), &rule, 0);
    assert_code(one(tg(5, 1, "slower")), &rule, 1);
    assert_code(one(tg(1, 4, "inconclusive")), &rule, 3);
    assert_code(comparison_of(json_array()), &rule, 3);
}

static void the_worst_row_decides(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *good = tg(0, 1, "same"), *slow = tg(5, 1, "slower"), *open = tg(1, 4, "inconclusive");
    json_t *broken = failing(tg(0, 1, "same"), "ok", "failed");
    assert_code(comparison_of(json_pack("[OO]", good, open)), &rule, 3);
    assert_code(comparison_of(json_pack("[OOO]", good, open, broken)), &rule, 4);
    assert_code(comparison_of(json_pack("[OOOO]", broken, open, slow, good)), &rule, 1);
    json_t *ended = comparison_of(json_pack("[OO]", slow, good));
    set(ended, "interrupted", json_true());
    assert_code(ended, &rule, 130);
    json_decref(good), json_decref(slow), json_decref(open), json_decref(broken);
}

static void all_failed_is_never_green(void **state) {
    (void)state;
    hr_gate_rule rule = pairs_rule();
    assert_code(one(failing(tg(0, 1, "same"), "failed", "failed")), &rule, 4);
    assert_code(one(failing(tg(0, 1, "same"), "failed", "ok")), &rule, 4);
    json_t *lonely = comparison_of(json_array());
    set(lonely, "unmatched_b", json_pack("[o]", alone("tg128", "failed")));
    assert_code(lonely, &rule, 4);
    /* not even where every failure is allowed: nothing was compared */
    ok(hr_gate_allow_parse("* failed until 2030-01-01: known\n", "list", (json_t **)&rule.allowed));
    assert_code(one(failing(tg(0, 1, "same"), "ok", "failed")), &rule, 3);
    json_t *v = judge_it(one(failing(tg(0, 1, "same"), "ok", "failed")), &rule);
    assert_reason(v, "nothing was compared");
    json_decref(v);
    assert_code(comparison_of(json_pack("[oo]", failing(tg(0, 1, "same"), "ok", "failed"), tg(0, 1, "same"))), &rule,
                0);
    json_decref((json_t *)rule.allowed);
}

static void exit_code_is_no_count(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *rows = json_array();
    for (int i = 0; i < 256; i++) {
        char id[32];
        snprintf(id, sizeof id, "%08x", i * 2654435761u);
        json_array_append_new(rows, make_row(id, "pp64", "ttft_prefill_ms", 5, 1, "slower"));
    }
    json_t *v = judge_it(comparison_of(rows), &rule);
    assert_int_equal(code_of(v), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "counts"), "red")), 256);
    assert_reason(v, "and 236 more red");
    json_decref(v);
}

static void unmatched_cells_are_listed(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *c = one(tg(0, 1, "same"));
    set(c, "unmatched_a", json_pack("[o]", alone("pp512", "ok")));
    json_t *v = judge(c, &rule);
    assert_int_equal(code_of(v), 0);
    assert_reason(v, "pp512 of the baseline has no partner: the other side has no such cell");
    json_decref(v);
    set(c, "cells", json_array());
    v = judge(c, &rule);
    assert_int_equal(code_of(v), 3);
    assert_reason(v, "nothing was compared");
    json_decref(v), json_decref(c);
}

static void order_changes_nothing(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *rows = json_pack("[ooooo]", tg(5, 1, "slower"), tg(0, 1, "same"), tg(1, 4, "inconclusive"),
                             failing(tg(0, 1, "same"), "ok", "failed"), tg(-5, 1, "faster"));
    json_t *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        char id[32];
        snprintf(id, sizeof id, "cccc%04zu", i);
        set(row, "cell_id", json_string(id));
    }
    json_t *forth = comparison_of(rows), *turned = json_array();
    for (i = json_array_size(rows); i-- > 0;) json_array_append(turned, json_array_get(rows, i));
    json_t *back = comparison_of(turned), *a = judge(forth, &rule), *b = judge(back, &rule);
    for (i = 0; i < 5; i++) {
        const json_t *x = json_array_get(json_object_get(a, "cells"), i);
        const json_t *y = json_array_get(json_object_get(b, "cells"), 4 - i);
        if (!json_equal(x, y)) fail_msg("row %zu: %s and %s", i, json_dumps(x, 0), json_dumps(y, 0));
    }
    assert_true(json_equal(json_object_get(a, "counts"), json_object_get(b, "counts")));
    assert_int_equal(code_of(a), code_of(b));
    json_decref(a), json_decref(b), json_decref(forth), json_decref(back);
}

/* ---- through the comparison: Holm ---------------------------------------------------------------------------------- */

static json_t *cell(const char *id, double ms, double step) {
    json_t *samples = json_array();
    for (int i = 0; i < 6; i++) json_array_append_new(samples, json_real((ms + step * i) * 1e6));
    return json_pack("{s:s, s:s, s:s, s:i, s:o}", "test", "pp64", "cell_id", id, "status", "ok", "n_prompt", 64,
                     "samples_ns", samples);
}

/* Six samples a side: p = 0.0022 for one row that is slower through and through. Among 30 rows that is no proof. */
static void more_rows_need_more_proof(void **state) {
    (void)state;
    hr_compare_rule limits = hr_compare_rule_default();
    limits.holm = true;
    const hr_gate_rule rule = {.same_session = true, .spread = NAN};
    for (size_t n = 1; n <= 30; n += 29) {
        json_t *a = json_array(), *b = json_array(), *c;
        for (size_t i = 0; i < n; i++) {
            char id[32];
            snprintf(id, sizeof id, "dddd%04zu", i);
            json_array_append_new(a, cell(id, 100, 0.1)), json_array_append_new(b, cell(id, i ? 100 : 110, 0.1));
        }
        ok(hr_compare_cells(a, b, &limits, &c));
        json_t *v = judge(c, &rule);
        assert_string_equal(outcome(v, 0), n == 1 ? "red" : "inconclusive");
        assert_int_equal(code_of(v), n == 1 ? 1 : 3);
        json_decref(a), json_decref(b), json_decref(c), json_decref(v);
    }
}

/* ---- budgets ------------------------------------------------------------------------------------------------------ */

static void budgets_are_read(void **state) {
    (void)state;
    hr_gate_rule rule = {0};
    ok(hr_gate_budgets_parse("ttft=+5%,tpot=3%", &rule));
    ok(hr_gate_budgets_parse("pp=0.25 %", &rule));
    assert_int_equal(rule.n_budgets, 3);
    assert_string_equal(rule.budgets[1].metric, "tpot");
    assert_true(rule.budgets[0].share == 0.05 && rule.budgets[1].share == 0.03);
    assert_true(fabs(rule.budgets[2].share - 0.0025) < 1e-15);
    static const char *const wrong[] = {"",          "ttft",      "ttft=",         "ttft=5",    "ttft=-5%",
                                        "ttft=nan%", "ttft=5,5%", "speed=5%",      "ttft=0x5%", "ttft=2000%",
                                        "e2e=5%,",   ",e2e=5%",   "e2e=5%,e2e=6%", "ttft=5%%",  "ttft=1e1%",
                                        "e2e=%",     "e2e=+%",    "e2e= 5%"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hr_gate_rule other = {0};
        if (hr_gate_budgets_parse(wrong[i], &other) != HR_ERR_USAGE) fail_msg("taken: --budget %s", wrong[i]);
        holds(hr_error(), "--budget");
    }
    fails(hr_gate_budgets_parse("tpot=4%", &rule), HR_ERR_USAGE, "twice");
}

static void a_budget_replaces_the_rule(void **state) {
    (void)state;
    hr_gate_rule rule = pairs_rule();
    ok(hr_gate_budgets_parse("tpot=+3%", &rule));
    assert_code(one(tg(5, 1, "slower")), &rule, 1);         /* 4..6 is over 3 */
    assert_code(one(tg(2.5, 0.3, "slower")), &rule, 0);     /* 2.2..2.8 is within */
    assert_code(one(tg(3.2, 0.5, "slower")), &rule, 3);     /* 2.7..3.7: may or may not be */
    assert_code(one(tg(1, 1.9, "inconclusive")), &rule, 0); /* up to 2.9 */
    assert_code(one(tg(1, 4, "inconclusive")), &rule, 3);
    assert_code(one(tg(-9, 20, "inconclusive")), &rule, 3);
    json_t *unproven = tg(5, 1, "inconclusive");
    set(unproven, "p_adjusted", json_real(0.2));
    assert_code(one(unproven), &rule, 3);
    json_t *other = make_row("aaaa0002", "isl64 osl8", "ttft_ms", 2.5, 0.3, "slower");
    assert_code(one(other), &rule, 1); /* it has no budget */
    json_t *v = judge_it(one(tg(5, 1, "slower")), &rule);
    assert_reason(v, "tg128 tpot: +5.0 % (4.0..6.0), over the budget of 3 %");
    json_decref(v);
    rule.n_budgets = 0;
    ok(hr_gate_budgets_parse("tg=0.5%,tpot=3%,e2e=9%", &rule)); /* the smaller one, under the smallest effect */
    v = judge_it(one(tg(1, 0.2, "same")), &rule);
    assert_int_equal(code_of(v), 1);
    assert_reason(v, "the budget of e2e meets no row");
    json_decref(v);
    assert_code(one(make_row("aaaa0003", "isl8 osl8", "tpot_excl_first_ms", 1, 0.2, "same")), &rule, 0); /* no tg row */
}

static void blocked_rows_are_not_judged(void **state) {
    (void)state;
    hr_gate_rule rule = pairs_rule();
    ok(hr_gate_budgets_parse("tpot=3%", &rule));
    for (int budget = 0; budget < 2; budget++) {
        json_t *row = tg(9, 1, "inconclusive");
        set(row, "blocked", json_string("the clock was reduced")),
            set(row, "why", json_string("the clock was reduced"));
        json_t *v = judge_it(one(row), &rule);
        assert_int_equal(code_of(v), 3);
        assert_reason(v, "the clock was reduced");
        json_decref(v);
        rule.n_budgets = 0;
    }
}

/* ---- the allow-list ----------------------------------------------------------------------------------------------- */

static json_t *allow(const char *text) {
    json_t *list = NULL;
    ok(hr_gate_allow_parse(text, "allow.txt", &list));
    return list;
}

static void allowances_are_read(void **state) {
    (void)state;
    json_t *list =
        allow("# known ones\r\n\n  tg128 @ d64   tpot until 2027-02-28: wider head: see 12\r\n* * until 2028-02-29:x");
    assert_int_equal(json_array_size(list), 2);
    const json_t *first = json_array_get(list, 0);
    assert_string_equal(hr_word(first, "cell"), "tg128 @ d64");
    assert_string_equal(hr_word(first, "metric"), "tpot");
    assert_string_equal(hr_word(first, "expires"), "2027-02-28");
    assert_string_equal(hr_word(first, "reason"), "wider head: see 12");
    json_decref(list);
    static const char *const wrong[][2] = {{"tg128 tpot: no date", "line 1"},
                                           {"\n\ntg128 tpot until 2027-02-29: x", "line 3"}, /* no leap year */
                                           {"tg128 tpot until 2027-13-01: x", "is no date"},
                                           {"tg128 tpot until 2027-00-10: x", "is no date"},
                                           {"tg128 tpot until 2027-04-31: x", "is no date"},
                                           {"tg128 tpot until 2100-02-29: x", "is no date"},
                                           {"tg128 tpot until 27-1-1: x", "is no date"},
                                           {"tg128 tpot until 2027-1-011: x", "is no date"},
                                           {"tg128 tpot until 2027-01-01 12:00: x", "is no date"},
                                           {"tg128 tpot until 1969-12-31: x", "is no date"},
                                           {"tg128 tpot until tomorrow: x", "is no date"},
                                           {"tg128 tpot until 2027-01-01:  ", "no reason"},
                                           {"tg128 tpot until 2027-01-01", "must be"},
                                           {"tg128 speed until 2027-01-01: x", "is no metric"},
                                           {"tpot until 2027-01-01: x", "not both"},
                                           {"tg\xff tpot until 2027-01-01: x", "UTF-8"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *none = NULL;
        fails(hr_gate_allow_parse(wrong[i][0], "allow.txt", &none), HR_ERR_INPUT, wrong[i][1]);
        assert_null(none);
    }
}

static int code_allowed(json_t *comparison, const char *list, time_t now) {
    hr_gate_rule rule = pairs_rule();
    json_t *allowed = allow(list);
    rule.allowed = allowed, rule.now = now;
    const int got = code(comparison, &rule);
    json_decref(allowed);
    return got;
}

static void allowances_expire(void **state) {
    (void)state;
    static const char list[] = "tg128 tpot until 2027-01-15: known";
    const time_t last_second = 1800057599, midnight = 1800057600; /* of 2027-01-15 */
    assert_int_equal(code_allowed(one(tg(5, 1, "slower")), list, last_second), 0);
    assert_int_equal(code_allowed(one(tg(5, 1, "slower")), list, midnight), 1);
    hr_gate_rule rule = pairs_rule();
    json_t *allowed = allow(list);
    rule.allowed = allowed, rule.now = midnight;
    json_t *c = one(tg(5, 1, "slower")), *v = judge(c, &rule);
    assert_reason(v, "the allowance for tg128 tpot expired on 2027-01-15: known");
    json_decref(v);
    rule.now = last_second;
    v = judge(c, &rule);
    assert_string_equal(outcome(v, 0), "allowed");
    assert_reason(v, "tg128 tpot: +5.0 %, allowed until 2027-01-15: known");
    json_decref(v), json_decref(c), json_decref(allowed);
}

static void allowances_meet_their_rows_alone(void **state) {
    (void)state;
    const time_t now = 1800000000;
    static const struct {
        const char *list;
        int want;
    } cases[] = {
        {"tg128 tpot until 2030-01-01: x", 0},    {"tg128 tg until 2030-01-01: x", 0},
        {"tg128 itl until 2030-01-01: x", 0},     {"tg128 tpot_excl_first_ms until 2030-01-01: x", 0},
        {"aaaa0001 * until 2030-01-01: x", 0},    {"aaaa tpot until 2030-01-01: x", 0},
        {"* * until 2030-01-01: x", 0},           {"aaa tpot until 2030-01-01: x", 1}, /* too short for a prefix */
        {"tg12 tpot until 2030-01-01: x", 1},     {"tg128 ttft until 2030-01-01: x", 1},
        {"bbbb0001 tpot until 2030-01-01: x", 1}, {"tg128 failed until 2030-01-01: x", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int got = code_allowed(one(tg(5, 1, "slower")), cases[i].list, now);
        if (got != cases[i].want) fail_msg("%s: expected %d, got %d", cases[i].list, cases[i].want, got);
    }
    assert_int_equal(code_allowed(one(tg(1, 4, "inconclusive")), "* * until 2030-01-01: noisy", now), 0);
    /* what is allowed to be slow may not fail */
    assert_int_equal(code_allowed(one(failing(tg(0, 1, "same"), "ok", "failed")), "* * until 2030-01-01: x", now), 4);
}

/* ---- which op ----------------------------------------------------------------------------------------------------- */

static void a_red_row_names_the_op(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *row = make_row("aaaa0001", "isl512 osl64", "tpot_excl_first_ms", 4.1, 0.9, "slower");
    set(row, "a_median", json_real(24.4)), set(row, "b_median", json_real(25.4));
    json_t *c = one(row);
    set(c, "ops",
        json_pack("{s:[{s:s, s:s, s:f, s:f, s:f}, {s:s, s:s, s:f, s:f, s:f}, {s:s, s:s, s:f, s:f, s:f}]}", "aaaa0001",
                  "op", "head", "phase", "prefill", "a_ms", 1.0, "b_ms", 9.0, "shift_ms", 8.0, "op", "down", "phase",
                  "decode", "a_ms", 9.0, "b_ms", 7.0, "shift_ms", -2.0, "op", "gate_up", "phase", "decode", "a_ms", 6.0,
                  "b_ms", 6.9, "shift_ms", 0.9));
    json_t *v = judge(c, &rule);
    assert_reason(v, "isl512 osl64 tpot: +4.1 % (3.2..5.0), gate_up:decode +0.9 ms of +1 ms");
    json_decref(v), json_decref(c);
}

static void names_tell_rows_apart(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *x = tg(5, 1, "slower"), *y = tg(6, 1, "slower"),
           *z = make_row("aaaa0003", "pp64", "ttft_prefill_ms", 0, 1, "same");
    set(y, "quant", json_string("bf16")), set(y, "cell_id", json_string("aaaa0002"));
    json_t *c = comparison_of(json_pack("[OOO]", x, y, z)), *v = judge(c, &rule);
    assert_reason(v, "bf16 tg128 tpot: +6.0 %");
    json_decref(v);
    set(y, "quant", json_string("int8")); /* now only the id differs */
    v = judge(c, &rule);
    assert_reason(v, "tg128 tpot (aaaa0001): +5.0 %");
    assert_reason(v, "tg128 tpot (aaaa0002): +6.0 %");
    json_decref(v), json_decref(c), json_decref(x), json_decref(y), json_decref(z);
}

/* ---- two sessions ------------------------------------------------------------------------------------------------- */

static void student_is_right(void **state) {
    (void)state;
    /* two-sided p, from tables of the distribution */
    static const struct {
        double t, p;
        size_t df;
    } known[] = {{12.706204736432095, 0.05, 1},  {4.302652729911275, 0.05, 2},  {2.2621571627409915, 0.05, 9},
                 {2.2281388519649385, 0.05, 10}, {4.780912585931112, 0.001, 9}, {0, 1, 7},
                 {2.0095752371292397, 0.05, 49}, {2.0085591121007615, 0.05, 50}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const double got = hr_gate_student_p(known[i].t, known[i].df);
        if (fabs(got - known[i].p) > 1e-10)
            fail_msg("t %g, %zu degrees: expected %.12g, got %.12g", known[i].t, known[i].df, known[i].p, got);
    }
}

static void nights_judge_stored_runs(void **state) {
    (void)state;
    hr_gate_rule rule = {.nights = 20, .spread = 0.003, .now = 1800000000};
    assert_code(one(tg(5, 0.1, "slower")), &rule, 1);
    assert_code(one(tg(0.2, 0.1, "same")), &rule, 0);
    assert_code(one(tg(-5, 0.1, "faster")), &rule, 0);
    json_t *c = one(tg(5, 0.1, "slower"));
    rule.spread = 0.03; /* 5 % is less than nights differ by */
    assert_code_(code(json_incref(c), &rule), 3, "wide spread", __LINE__);
    rule.spread = 0.003, rule.nights = 9;
    assert_code_(code(json_incref(c), &rule), 3, "nine nights", __LINE__);
    rule.nights = 0, rule.spread = NAN;
    assert_code_(code(json_incref(c), &rule), 3, "no nights", __LINE__);
    rule.same_session = true; /* then the samples speak */
    assert_code_(code(json_incref(c), &rule), 1, "same session", __LINE__);
    rule.same_session = false;
    json_t *row = json_array_get(json_object_get(c, "cells"), 0);
    set(row, "nights", json_integer(20)), set(row, "spread", json_real(0.003)); /* the row knows its own */
    assert_code_(code(json_incref(c), &rule), 1, "its own nights", __LINE__);
    /* times that grew while the share of the roof stayed: the machine was slower, not the program */
    set(row, "roof_fraction_b", json_real(0.8));
    assert_code_(code(json_incref(c), &rule), 0, "slower machine", __LINE__);
    set(row, "roof_fraction_b", json_null());
    assert_code_(code(json_incref(c), &rule), 3, "no roof", __LINE__);
    json_decref(c);
}

static void whole_requests_stand_apart(void **state) {
    (void)state;
    const hr_gate_rule rule = {.nights = 20, .spread = 0.003};
    json_t *e2e = make_row("aaaa0001", "isl8 osl8", "e2e_ms", 5, 1, "slower"), *good = tg(0, 0.1, "same");
    assert_code(comparison_of(json_pack("[OO]", e2e, good)), &rule, 0);
    assert_code(comparison_of(json_pack("[O]", e2e)), &rule, 3); /* nothing else was compared */
    json_decref(e2e), json_decref(good);
}

static void budgets_hold_for_nights(void **state) {
    (void)state;
    hr_gate_rule rule = {.nights = 20, .spread = 0.003};
    ok(hr_gate_budgets_parse("tpot=8%", &rule));
    assert_code(one(tg(5, 0.1, "slower")), &rule, 0);
    assert_code(one(tg(12, 0.1, "slower")), &rule, 1);
    assert_code(one(tg(8, 0.1, "slower")), &rule, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts_become_codes),
                                       cmocka_unit_test(the_worst_row_decides),
                                       cmocka_unit_test(all_failed_is_never_green),
                                       cmocka_unit_test(exit_code_is_no_count),
                                       cmocka_unit_test(unmatched_cells_are_listed),
                                       cmocka_unit_test(order_changes_nothing),
                                       cmocka_unit_test(more_rows_need_more_proof),
                                       cmocka_unit_test(budgets_are_read),
                                       cmocka_unit_test(a_budget_replaces_the_rule),
                                       cmocka_unit_test(blocked_rows_are_not_judged),
                                       cmocka_unit_test(allowances_are_read),
                                       cmocka_unit_test(allowances_expire),
                                       cmocka_unit_test(allowances_meet_their_rows_alone),
                                       cmocka_unit_test(a_red_row_names_the_op),
                                       cmocka_unit_test(names_tell_rows_apart),
                                       cmocka_unit_test(student_is_right),
                                       cmocka_unit_test(nights_judge_stored_runs),
                                       cmocka_unit_test(whole_requests_stand_apart),
                                       cmocka_unit_test(budgets_hold_for_nights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
