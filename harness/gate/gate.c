/* From the rows of a comparison to what each means for the gate, and one exit code. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { MOST_OPS = 3, MOST_NAMED = 20 };

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while judging");
}

hr_compare_rule hr_gate_limits(const hr_gate_rule *rule) {
    hr_compare_rule limits = hr_compare_rule_default();
    if (rule->effect > 0) limits.effect = rule->effect;
    if (rule->level > 0) limits.level = rule->level;
    return limits;
}

/* ---- names -------------------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static bool same_everywhere(const json_t *rows, const char *key) {
    const char *first = hr_word(json_array_get(rows, 0), key);
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        if (strcmp(first, hr_word(row, key))) return false;
    }
    return true;
}

/* Model and quantization only where they tell rows apart, the id where nothing else does. */
static bool put_names(json_t *rows) {
    const bool one_model = same_everywhere(rows, "model_filename"), one_quant = same_everywhere(rows, "quant");
    json_t *row, *seen = json_object(), *name;
    bool ok = seen != NULL;
    size_t i;
    json_array_foreach(rows, i, row) {
        const char *model = one_model ? "" : base_name(hr_word(row, "model_filename"));
        const char *quant = one_quant ? "" : hr_word(row, "quant"), *test = hr_word(row, "test");
        name = json_sprintf("%s%s%s%s%s%s%s", model, *model ? " " : "", quant, *quant ? " " : "",
                            *test ? test : hr_word(row, "cell_id"), " ", hr_gate_metric_word(row));
        ok = ok && name && json_object_set_new(row, "name", name) == 0;
        const char *text = hr_word(row, "name");
        const json_int_t times = json_integer_value(json_object_get(seen, text));
        ok = ok && json_object_set_new(seen, text, json_integer(times + 1)) == 0;
    }
    json_array_foreach(rows, i, row) {
        if (!ok || json_integer_value(json_object_get(seen, hr_word(row, "name"))) < 2) continue;
        name = json_sprintf("%s (%.8s)", hr_word(row, "name"), hr_word(row, "cell_id"));
        ok = name && json_object_set_new(row, "name", name) == 0;
    }
    json_decref(seen);
    return ok;
}

/* ---- which op got slower ------------------------------------------------------------------------------------------ */

/* Ops of the metric's phase (of all for a whole request) that got slower, largest first. New reference or NULL. */
static json_t *slower_ops(const json_t *comparison, const json_t *row) {
    const json_t *ops = json_object_get(json_object_get(comparison, "ops"), hr_word(row, "cell_id"));
    const char *phase = hr_compare_phase(hr_word(row, "metric"));
    json_t *out = json_array(), *op;
    bool ok = out != NULL;
    size_t i;
    json_array_foreach((json_t *)ops, i, op) {
        if (!ok || json_array_size(out) == MOST_OPS || !(hr_num(op, "shift_ms") > 0)) continue;
        if (!phase || !strcmp(phase, hr_word(op, "phase"))) ok = json_array_append(out, op) == 0;
    }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* ", gate_up:decode +0.9 ms of +1 ms" */
static void name_op(const json_t *row, const json_t *ops, char *out, size_t size) {
    const json_t *op = json_array_get(ops, 0);
    const double whole = hr_num(row, "b_median") - hr_num(row, "a_median");
    if (!op)
        *out = 0;
    else if (whole > 0)
        snprintf(out, size, ", %s:%s %+.2g ms of %+.2g ms", hr_word(op, "op"), hr_word(op, "phase"),
                 hr_num(op, "shift_ms"), whole);
    else
        snprintf(out, size, ", %s:%s %+.2g ms", hr_word(op, "op"), hr_word(op, "phase"), hr_num(op, "shift_ms"));
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

typedef struct shift {
    double shift, lo, hi, p; /* percent; p adjusted over all rows */
} shift;

static shift shift_of(const json_t *row) {
    if (json_object_get(row, "night_p"))
        return (shift){hr_num(row, "night_shift_pct"), hr_num(row, "night_lo_pct"), hr_num(row, "night_hi_pct"),
                       hr_num(row, "night_p")};
    return (shift){hr_num(row, "shift_pct"), hr_num(row, "ci95_lo_pct"), hr_num(row, "ci95_hi_pct"),
                   hr_num(row, "p_adjusted")};
}

static bool failed(const json_t *row) {
    return strcmp(hr_word(row, "status_a"), "ok") != 0 || strcmp(hr_word(row, "status_b"), "ok") != 0;
}

/* What the numbers say, before the allow-list. */
static const char *outcome_of(const json_t *row, const shift *s, double budget, double level, bool nights) {
    const char *verdict = hr_word(row, "verdict");
    if (failed(row)) return "failed";
    if (nights && !strcmp(hr_word(row, "metric"), "e2e_ms")) return "apart";
    if (*hr_word(row, "blocked")) return "inconclusive";
    if (!strcmp(verdict, "same") || !strcmp(verdict, "faster")) {
        if (isnan(budget) || !(s->lo > budget)) return "passed"; /* a budget under the smallest effect may be broken */
    }
    if (isnan(budget)) return !strcmp(verdict, "slower") ? "red" : "inconclusive";
    if (s->lo > budget && s->p < level) return "red";
    return s->hi <= budget ? "passed" : "inconclusive"; /* false for NaN */
}

static json_t *reason_of(const json_t *row, const char *outcome, const shift *s, double budget, const json_t *ops) {
    char limit[80] = "", op[160];
    const char *name = hr_word(row, "name"), *why = hr_word(row, "why");
    name_op(row, ops, op, sizeof op);
    if (!isnan(budget)) snprintf(limit, sizeof limit, ", over the budget of %g %%", budget);
    if (!strcmp(outcome, "red"))
        return json_sprintf("%s: %+.1f %% (%.1f..%.1f)%s%s", name, s->shift, s->lo, s->hi, limit, op);
    if (!strcmp(outcome, "failed")) {
        const bool in_b = strcmp(hr_word(row, "status_b"), "ok") != 0;
        const char *error = hr_word(row, in_b ? "error_b" : "error_a");
        return json_sprintf("%s: failed in the %s%s%s", name, in_b ? "candidate" : "baseline", *error ? ": " : "",
                            error);
    }
    if (!strcmp(outcome, "apart")) return json_sprintf("%s: a whole request has no roof; its parts are judged", name);
    if (!isnan(budget) && s->lo <= budget && s->hi > budget && !*hr_word(row, "blocked"))
        return json_sprintf("%s: %+.1f %% (%.1f..%.1f) may or may not be over the budget of %g %%", name, s->shift,
                            s->lo, s->hi, budget);
    return json_sprintf("%s: %s", name, *why ? why : "no verdict");
}

/* A slowdown that is allowed says what it is allowed to be. */
static json_t *allowed_reason(const json_t *row, const char *outcome, const shift *s, const json_t *entry) {
    const char *until = hr_word(entry, "expires"), *why = hr_word(entry, "reason"), *name = hr_word(row, "name");
    if (!strcmp(outcome, "failed")) return json_sprintf("%s: failed, allowed until %s: %s", name, until, why);
    if (isnan(s->shift)) return json_sprintf("%s: allowed until %s: %s", name, until, why);
    return json_sprintf("%s: %+.1f %%, allowed until %s: %s", name, s->shift, until, why);
}

static hr_status judge_row(const json_t *comparison, json_t *row, const hr_gate_rule *rule, bool nights) {
    const shift s = shift_of(row);
    const double budget = 100 * hr_gate_budget_of(rule, row);
    const char *outcome = outcome_of(row, &s, budget, hr_gate_limits(rule).level, nights);
    const bool bad = !strcmp(outcome, "red") || !strcmp(outcome, "inconclusive") || !strcmp(outcome, "failed");
    const json_t *entry = bad ? hr_gate_allowed(rule, row, !strcmp(outcome, "failed")) : NULL;
    json_t *ops = !strcmp(outcome, "red") ? slower_ops(comparison, row) : NULL, *reason = json_null();
    if (entry)
        reason = allowed_reason(row, outcome, &s, entry);
    else if (strcmp(outcome, "passed") != 0)
        reason = reason_of(row, outcome, &s, budget, ops);
    bool ok = json_object_set_new(row, "outcome", json_string(entry ? "allowed" : outcome)) == 0;
    ok = json_object_set_new(row, "reason", reason) == 0 && ok;
    ok = ok && json_object_set_new(row, "budget_pct", hr_real_or_null(budget)) == 0;
    ok = ok && json_object_set(row, "allowed", entry ? json_object_get(entry, "reason") : json_null()) == 0;
    ok = ok && (!ops || json_object_set(row, "slower_ops", ops) == 0);
    json_decref(ops);
    return ok ? HR_OK : no_memory();
}

/* ---- all of them -------------------------------------------------------------------------------------------------- */

typedef struct counts {
    size_t rows, red, passed, allowed, inconclusive, failed, apart, unmatched;
} counts;

static size_t count(const json_t *rows, const char *key, const char *word) {
    size_t n = 0, i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) n += !strcmp(hr_word(row, key), word);
    return n;
}

static counts count_all(const json_t *v) {
    const json_t *rows = json_object_get(v, "cells");
    const json_t *a = json_object_get(v, "unmatched_a"), *b = json_object_get(v, "unmatched_b");
    return (counts){.rows = json_array_size(rows),
                    .red = count(rows, "outcome", "red"),
                    .passed = count(rows, "outcome", "passed"),
                    .allowed = count(rows, "outcome", "allowed"),
                    .inconclusive = count(rows, "outcome", "inconclusive"),
                    .failed =
                        count(rows, "outcome", "failed") + count(a, "status", "failed") + count(b, "status", "failed"),
                    .apart = count(rows, "outcome", "apart"),
                    .unmatched = json_array_size(a) + json_array_size(b)};
}

/* Whether any row has times of both sides: a failure that is allowed is no measurement. */
static bool nothing_measured(const json_t *v) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(v, "cells"), i, row) {
        if (!failed(row) && strcmp(hr_word(row, "outcome"), "apart") != 0) return false;
    }
    return true;
}

static int exit_of(const json_t *v, const counts *n) {
    if (json_is_true(json_object_get(v, "interrupted"))) return 130;
    if (n->red) return 1;
    if (n->failed) return 4;
    return n->inconclusive || nothing_measured(v) ? 3 : 0;
}

static const char *word_of(int code) {
    return code == 130 ? "interrupted"
           : code == 1 ? "regression"
           : code == 4 ? "failed"
           : code == 3 ? "inconclusive"
                       : "pass";
}

static bool add(json_t *reasons, json_t *text) {
    return text && json_array_append_new(reasons, text) == 0;
}

static bool add_rows(json_t *reasons, const json_t *rows, const char *outcome) {
    size_t i, n = 0;
    json_t *row;
    bool ok = true;
    json_array_foreach((json_t *)rows, i, row) {
        if (strcmp(hr_word(row, "outcome"), outcome) != 0) continue;
        if (n++ < MOST_NAMED) ok = ok && json_array_append(reasons, json_object_get(row, "reason")) == 0;
    }
    if (n > MOST_NAMED) ok = ok && add(reasons, json_sprintf("and %zu more %s", n - MOST_NAMED, outcome));
    return ok;
}

static bool add_unmatched(json_t *reasons, const json_t *cells, const char *side) {
    size_t i;
    json_t *cell;
    bool ok = true;
    json_array_foreach((json_t *)cells, i, cell) {
        if (i < MOST_NAMED)
            ok = ok &&
                 add(reasons, json_sprintf("%s %s of the %s has no partner: %s", hr_word(cell, "quant"),
                                           *hr_word(cell, "test") ? hr_word(cell, "test") : hr_word(cell, "cell_id"),
                                           side, hr_word(cell, "why")));
    }
    if (json_array_size(cells) > MOST_NAMED)
        ok = ok && add(reasons, json_sprintf("and %zu more cells of the %s without a partner",
                                             json_array_size(cells) - MOST_NAMED, side));
    return ok;
}

/* An entry that has expired may be why a row is red; a budget that meets no row may be a mistake. */
static bool add_rule(json_t *reasons, const json_t *rows, const hr_gate_rule *rule) {
    size_t i, k;
    json_t *entry, *row;
    bool ok = true;
    json_array_foreach((json_t *)rule->allowed, i, entry) {
        if (hr_gate_expired(entry, rule->now))
            ok = ok && add(reasons,
                           json_sprintf("the allowance for %s %s expired on %s: %s", hr_word(entry, "cell"),
                                        hr_word(entry, "metric"), hr_word(entry, "expires"), hr_word(entry, "reason")));
    }
    for (i = 0; i < rule->n_budgets; i++) {
        bool used = false;
        json_array_foreach((json_t *)rows, k, row) used = used || hr_gate_metric_is(rule->budgets[i].metric, row);
        if (!used) ok = ok && add(reasons, json_sprintf("the budget of %s meets no row", rule->budgets[i].metric));
    }
    return ok;
}

static json_t *reasons_of(const json_t *v, const hr_gate_rule *rule, const counts *n) {
    static const char *const worst_first[] = {"red", "failed", "inconclusive", "allowed"};
    const json_t *rows = json_object_get(v, "cells");
    json_t *out = json_array();
    bool ok = out != NULL;
    if (json_is_true(json_object_get(v, "interrupted"))) ok = ok && add(out, json_string("interrupted before the end"));
    if (nothing_measured(v)) ok = ok && add(out, json_string("nothing was compared"));
    for (size_t i = 0; i < sizeof worst_first / sizeof *worst_first; i++)
        ok = ok && add_rows(out, rows, worst_first[i]);
    ok = ok && add_unmatched(out, json_object_get(v, "unmatched_a"), "baseline");
    ok = ok && add_unmatched(out, json_object_get(v, "unmatched_b"), "candidate");
    ok = ok && add_rule(out, rows, rule);
    if (ok && json_array_size(out) == 0)
        ok = add(out, json_sprintf("all %zu rows: %zu same, %zu faster, the others within their budgets", n->rows,
                                   count(rows, "verdict", "same"), count(rows, "verdict", "faster")));
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static hr_status finish(json_t *v, const hr_gate_rule *rule) {
    const counts n = count_all(v);
    const int code = exit_of(v, &n);
    json_t *reasons = reasons_of(v, rule, &n);
    json_t *numbers = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "rows", (json_int_t)n.rows, "red",
                                (json_int_t)n.red, "passed", (json_int_t)n.passed, "allowed", (json_int_t)n.allowed,
                                "inconclusive", (json_int_t)n.inconclusive, "failed", (json_int_t)n.failed, "apart",
                                (json_int_t)n.apart, "unmatched", (json_int_t)n.unmatched);
    bool ok = reasons && json_object_set_new(v, "reasons", reasons) == 0;
    ok = numbers && json_object_set_new(v, "counts", numbers) == 0 && ok;
    ok = ok && json_object_set_new(v, "verdict", json_string(word_of(code))) == 0;
    return ok && json_object_set_new(v, "exit_code", json_integer(code)) == 0 ? HR_OK : no_memory();
}

hr_status hr_gate_judge(const json_t *comparison, const hr_gate_rule *rule, json_t **out) {
    const bool nights = !rule->pairs && !rule->same_session;
    json_t *v = json_deep_copy(comparison), *row;
    if (!v) return no_memory();
    json_t *rows = json_object_get(v, "cells");
    size_t i;
    hr_status status = nights ? hr_gate_judge_nights(v, rule) : HR_OK;
    if (status == HR_OK && !put_names(rows)) status = no_memory();
    json_array_foreach(rows, i, row) {
        if (status == HR_OK) status = judge_row(v, row, rule, nights);
    }
    if (status == HR_OK) status = finish(v, rule);
    if (status == HR_OK)
        *out = v;
    else
        json_decref(v);
    return status;
}
