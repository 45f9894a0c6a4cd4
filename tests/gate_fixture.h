/* gate_fixture.h - comparisons made by hand for the tests of the gate. */
#ifndef HR_GATE_FIXTURE_H
#define HR_GATE_FIXTURE_H

#include "tests/hr_test.h"

#include "harness/formats/json_get.h"
#include "harness/gate/gate_internal.h"
#include "kernels/base/memory.h"

#define ok(call)                                                                                      \
    do {                                                                                              \
        const hr_status got_ = (call);                                                                \
        if (got_ != HR_OK) fail_msg("line %d: %s: expected ok, got %s", __LINE__, #call, hr_error()); \
    } while (0)
#define fails(call, want, word)                                                                              \
    do {                                                                                                     \
        const hr_status got_ = (call);                                                                       \
        if (got_ != (want) || !strstr(hr_error(), (word)) || strchr(hr_error(), '\n'))                       \
            fail_msg("line %d: expected %s with \"%s\", got %s: %s", __LINE__, hr_status_text(want), (word), \
                     hr_status_text(got_), hr_error());                                                      \
    } while (0)

static inline void set(json_t *row, const char *key, json_t *value) {
    assert_int_equal(json_object_set_new(row, key, value), 0);
}

/* A row of a comparison: shift in percent with an interval of +- half. */
static inline json_t *make_row(const char *id, const char *test, const char *metric, double shift, double half,
                               const char *verdict) {
    json_t *row = json_pack("{s:s, s:s, s:n, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:i, s:s, s:n, s:n,"
                            "s:s, s:s, s:f, s:f}",
                            "test", test, "cell_id", id, "state_class", "model_filename", "m.gguf", "quant", "int8",
                            "metric", metric, "a_median", 10.0, "b_median", 10 * (1 + shift / 100), "shift_pct", shift,
                            "ci95_lo_pct", shift - half, "ci95_hi_pct", shift + half, "p", 0.0001, "p_adjusted", 0.001,
                            "n_a", 13, "n_b", 13, "verdict", verdict, "why", "blocked", "status_a", "ok", "status_b",
                            "ok", "roof_fraction_a", 0.8, "roof_fraction_b", 0.8 / (1 + shift / 100));
    assert_non_null(row);
    return row;
}

static inline json_t *comparison_of(json_t *rows) {
    json_t *c = json_pack("{s:o, s:[], s:[]}", "cells", rows, "unmatched_a", "unmatched_b");
    assert_non_null(c);
    return c;
}

/* One row as a comparison. */
static inline json_t *one(json_t *row) {
    return comparison_of(json_pack("[o]", row));
}

static inline hr_gate_rule pairs_rule(void) {
    return (hr_gate_rule){.pairs = true, .spread = NAN, .now = 1800000000}; /* 2027-01-15 */
}

static inline json_t *judge(json_t *comparison, const hr_gate_rule *rule) {
    json_t *v = NULL;
    ok(hr_gate_judge(comparison, rule, &v));
    return v;
}

/* Takes the comparison. */
static inline json_t *judge_it(json_t *comparison, const hr_gate_rule *rule) {
    json_t *v = judge(comparison, rule);
    json_decref(comparison);
    return v;
}

static inline int code_of(const json_t *verdict) {
    return (int)json_integer_value(json_object_get(verdict, "exit_code"));
}

/* Judges and forgets: the exit code. Takes the comparison. */
static inline int code(json_t *comparison, const hr_gate_rule *rule) {
    json_t *v = judge_it(comparison, rule);
    const int got = code_of(v);
    json_decref(v);
    return got;
}

static inline void assert_code_(int got, int want, const char *what, int line) {
    if (got != want) fail_msg("line %d: %s: expected exit code %d, got %d", line, what, want, got);
}
#define assert_code(comparison, rule, want) assert_code_(code((comparison), (rule)), (want), #comparison, __LINE__)

/* What a writer writes; free it. */
static inline char *written(void (*write)(FILE *, const json_t *), const json_t *verdict) {
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    write(f, verdict);
    fclose(f);
    return text;
}

static inline void holds_(const char *text, const char *part, int line) {
    if (!strstr(text, part)) fail_msg("line %d: expected to hold: %s\ngot: %s", line, part, text);
}
#define holds(text, part) holds_((text), (part), __LINE__)
static inline void lacks_(const char *text, const char *part, int line) {
    if (strstr(text, part)) fail_msg("line %d: expected not to hold: %s\ngot: %s", line, part, text);
}
#define lacks(text, part) lacks_((text), (part), __LINE__)

#endif
