/* The files and lines that a gate writes for other programs, with names as hostile as files allow. */
#include "tests/gate_fixture.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char hostile[] = "../a.b/m<o>d&e\"l'|`*@x\x01\x1b[31m,;%\n::error::\t]]>\xef\xbf\xbf\xc3\xa9.gguf";

/* A row of each outcome, two cells alone, one of them failed. */
static json_t *every_outcome(void) {
    json_t *rows =
        json_pack("[oooooo]", make_row("aaaa0001", "tg128", "tpot_excl_first_ms", 5, 1, "slower"),
                  make_row("aaaa0002", "pp512", "ttft_prefill_ms", 1, 4, "inconclusive"),
                  make_row("aaaa0003", "pp64", "ttft_prefill_ms", 0, 1, "same"),
                  make_row("aaaa0004", "isl8 osl8", "ttft_ms", 0, 1, "inconclusive"),
                  make_row("aaaa0005", "isl8 osl8", "tpot_excl_first_ms", 5, 1, "slower"),
                  make_row("aaaa0006", "pp64", "ttft_prefill_ms", 0, 1, "same")); /* as the third but for its id */
    json_t *broken = json_array_get(rows, 3);
    set(broken, "status_b", json_string("failed")), set(broken, "error_b", json_string(hostile));
    set(json_array_get(rows, 1), "why", json_string(hostile));
    json_t *c = comparison_of(rows);
    static const char *const status[] = {"ok", "failed"};
    for (int i = 0; i < 2; i++)
        set(c, i ? "unmatched_b" : "unmatched_a",
            json_pack("[{s:s, s:s, s:s, s:s, s:s, s:s}]", "test", hostile, "cell_id", "bbbb0001", "model_filename",
                      hostile, "quant", "int4", "status", status[i], "why", "the other side has no such cell"));
    return c;
}

static json_t *verdict_of_all(bool with_hostile_names) {
    hr_gate_rule rule = pairs_rule();
    json_t *c = every_outcome(), *allowed = NULL, *v, *row;
    size_t i;
    json_array_foreach(json_object_get(c, "cells"), i, row) {
        if (with_hostile_names) set(row, "model_filename", json_string(i == 2 ? "plain.gguf" : hostile));
    }
    ok(hr_gate_allow_parse("aaaa0005 tpot until 2030-01-01: <known> & \"wanted\"\n", "list", &allowed));
    rule.allowed = allowed;
    v = judge(c, &rule);
    json_decref(c), json_decref(allowed);
    return v;
}

static int exit_of(const char *command) {
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void junit_text(FILE *f, const json_t *verdict) {
    ok(hr_gate_junit(f, verdict));
}
static void summary_text(FILE *f, const json_t *verdict) {
    ok(hr_gate_summary(f, verdict));
}

/* The report passes the schema, and its counts are those of its cases. */
static void check_junit(const json_t *verdict, const char *counts) {
    char path[] = "/tmp/headroom-junit-XXXXXX", command[400], said[200] = "";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    junit_text(f, verdict);
    fclose(f);
    snprintf(command, sizeof command, "python3 tests/junit_check.py %s", path);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    if (!fgets(said, sizeof said, p)) said[0] = 0;
    assert_int_equal(pclose(p), 0);
    if (strncmp(said, counts, strlen(counts)) != 0) fail_msg("expected %s, got %s", counts, said);
    snprintf(command, sizeof command, "xmllint --noout --schema tests/junit.xsd %s 2>/dev/null", path);
    const bool there = exit_of("command -v xmllint >/dev/null") == 0;
    if (there) assert_int_equal(exit_of(command), 0);
    unlink(path);
    if (!there) hr_skip("no xmllint here: the report was not held to tests/junit.xsd");
}

static void junit_is_valid(void **state) {
    (void)state;
    json_t *v = verdict_of_all(false);
    check_junit(v, "tests 8 failures 1 errors 2 skipped 2 names 8");
    json_decref(v);
}

static void junit_survives_hostile_names(void **state) {
    (void)state;
    json_t *v = verdict_of_all(true);
    check_junit(v, "tests 8 failures 1 errors 2 skipped 2 names 8");
    char *text = written(junit_text, v);
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 && *c != '\n' && *c != '\t') fail_msg("byte %d at %zu", *c, (size_t)(c - text));
    lacks(text, "\xef\xbf\xbf");
    holds(text, "m&lt;o&gt;d&amp;e&quot;l");
    holds(text, "\xc3\xa9_gguf");
    free(text), json_decref(v);
}

static void an_empty_report_is_valid(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *c = comparison_of(json_array()), *v = judge(c, &rule);
    check_junit(v, "tests 0 failures 0 errors 0 skipped 0");
    json_decref(v), json_decref(c);
}

static void junit_says_what_is_asked_next(void **state) {
    (void)state;
    json_t *v = verdict_of_all(false);
    char *text = written(junit_text, v);
    holds(text,
          "<failure type=\"slower\" message=\"tg128 tpot: +5.0 % (4.0..6.0)\">tpot_excl_first_ms 10 ms to 10.5 ms");
    holds(text, "<property name=\"verdict\" value=\"regression\"/>");
    holds(text, "&lt;known&gt; &amp; \"wanted\"</system-out>");
    free(text), json_decref(v);
}

/* What did not converge says so, whatever its outcome is; what did says nothing. */
static void an_unsettled_cell_is_marked(void **state) {
    (void)state;
    static const char *const verdicts[] = {"same", "slower", "inconclusive"};
    for (size_t i = 0; i < 3; i++)
        for (int doubt = 0; doubt < 2; doubt++) {
            json_t *row = make_row("aa", "pp64", "ttft_prefill_ms", i == 1 ? 10 : 0, 1, verdicts[i]);
            set(row, "converged_a", json_true()), set(row, "stop_reason_a", json_string("converged"));
            set(row, "converged_b", json_boolean(!doubt));
            set(row, "stop_reason_b", json_string(doubt ? "max_samples" : "fixed"));
            const hr_gate_rule rule = pairs_rule();
            json_t *comparison = one(row), *verdict = judge(comparison, &rule);
            check_junit(verdict, "tests 1");
            char *junit = written(junit_text, verdict), *summary = written(summary_text, verdict);
            assert_int_equal(strstr(junit, "did not converge in the candidate (max_samples)") != NULL, doubt);
            assert_int_equal(strstr(summary, ", not converged |") != NULL, doubt);
            free(junit), free(summary), json_decref(verdict), json_decref(comparison);
        }
}

/* Every line of the table has its seven cells, whatever the names hold. */
static void summary_is_markdown(void **state) {
    (void)state;
    json_t *v = verdict_of_all(true);
    char *text = written(summary_text, v);
    holds(text, "### Headroom gate: regression\n");
    holds(text, "6 rows: 1 red, 2 failed, 1 inconclusive, 1 allowed, 2 passed; 2 cells without a partner.");
    lacks(text, "<o>");
    lacks(text, "@x");
    lacks(text, "\x1b");
    size_t lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (*line != '|') continue;
        size_t bars = 0;
        for (const char *c = line; *c; c++) bars += *c == '|' && (c == line || c[-1] != '\\');
        if (bars != 8) fail_msg("%zu bars: %s", bars, line);
        lines++;
    }
    assert_int_equal(lines, 8); /* heading, rule, six rows */
    free(text), json_decref(v);
}

static void annotations_stay_on_their_lines(void **state) {
    (void)state;
    json_t *v = verdict_of_all(true);
    char *text = written(hr_gate_annotations, v);
    size_t lines = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1, lines++)
        if (strncmp(line, "::error title=", 14) != 0) fail_msg("no annotation: %s", line);
    assert_int_equal(lines, 2);
    holds(text, "%0A::error::"); /* a newline of the error's text is no new command */
    holds(text, "slower m<o>d&e\"l'|`*@x[31m%2C;%25%0A%3A%3Aerror%3A%3A");
    free(text), json_decref(v);
    json_t *rows = json_array();
    for (int i = 0; i < 30; i++) {
        char id[16];
        snprintf(id, sizeof id, "eeee%04d", i);
        json_array_append_new(rows, make_row(id, "pp64", "ttft_prefill_ms", 5, 1, "slower"));
    }
    const hr_gate_rule rule = pairs_rule();
    json_t *c = comparison_of(rows);
    v = judge(c, &rule);
    text = written(hr_gate_annotations, v);
    lines = 0;
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) lines++;
    assert_int_equal(lines, 10);
    free(text), json_decref(v), json_decref(c);
}

static void inconclusive_is_a_warning(void **state) {
    (void)state;
    const hr_gate_rule rule = pairs_rule();
    json_t *c = one(make_row("aaaa0001", "tg128", "tpot_excl_first_ms", 1, 4, "inconclusive")), *v = judge(c, &rule);
    char *text = written(hr_gate_annotations, v);
    assert_int_equal(strncmp(text, "::warning title=", 16), 0);
    free(text), json_decref(v), json_decref(c);
    c = one(make_row("aaaa0001", "tg128", "tpot_excl_first_ms", 0, 1, "same")), v = judge(c, &rule);
    text = written(hr_gate_annotations, v);
    assert_string_equal(text, "");
    free(text), json_decref(v), json_decref(c);
}

static void the_chat_gets_one_line(void **state) {
    (void)state;
    json_t *v = verdict_of_all(true);
    char *line = hr_gate_line(v);
    holds(line, "headroom gate: regression (1 red, 2 failed, 1 inconclusive, 1 allowed, 2 unmatched, 2 passed): ");
    assert_null(strchr(line, '\n'));
    hr_free(line), json_decref(v);
    const hr_gate_rule rule = pairs_rule();
    json_t *c = one(make_row("aaaa0001", "tg128", "tpot_excl_first_ms", 0, 1, "same"));
    v = judge(c, &rule);
    line = hr_gate_line(v);
    assert_string_equal(line, "headroom gate: pass (1 passed)");
    hr_free(line), json_decref(v), json_decref(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(junit_is_valid),
                                       cmocka_unit_test(junit_survives_hostile_names),
                                       cmocka_unit_test(an_empty_report_is_valid),
                                       cmocka_unit_test(junit_says_what_is_asked_next),
                                       cmocka_unit_test(an_unsettled_cell_is_marked),
                                       cmocka_unit_test(summary_is_markdown),
                                       cmocka_unit_test(annotations_stay_on_their_lines),
                                       cmocka_unit_test(inconclusive_is_a_warning),
                                       cmocka_unit_test(the_chat_gets_one_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
