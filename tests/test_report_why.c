/* Where the time went, advice and what observing costs, in the report of made-up stores; stores that lack them. */
#include "tests/report_fixture.h"

#include "harness/report/report_why.h"

/* A decode step of 10 ms and a prefill of 1000.1 ms (report_fixture.h), recorded: ops of a step take 9.6 ms of 10.1, those
 * of the prefill 990 of 1010. */
static json_t *timed_ops(void) {
    return parse(
        "[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"k\", \"n\": 62, \"median_ns\": 3e6,"
        "\"mean_ns\": 3e6, \"imbalance_ns\": 1e5, \"handoff_ns\": 5e4, \"bytes\": 40e6, \"flops\": 80e6,"
        "\"unit\": \"bf16\"},"
        "{\"phase\": \"decode\", \"layer\": 1, \"op\": \"down\", \"kernel\": \"k\", \"n\": 62, \"median_ns\": 3e6,"
        "\"mean_ns\": 3.2e6, \"imbalance_ns\": 1e5, \"handoff_ns\": 5e4, \"bytes\": 20e6, \"flops\": 40e6,"
        "\"unit\": \"bf16\"},"
        "{\"phase\": \"decode\", \"layer\": -1, \"op\": \"head\", \"kernel\": \"h\", \"n\": 62, \"median_ns\": 3.4e6,"
        "\"mean_ns\": 3.4e6, \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 40e6, \"flops\": 80e6,"
        "\"unit\": \"bf16\"},"
        "{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"k\", \"n\": 2, \"median_ns\": 990e6,"
        "\"mean_ns\": 990e6, \"imbalance_ns\": 0, \"handoff_ns\": 0, \"bytes\": 100e6, \"flops\": 1e9,"
        "\"unit\": \"bf16\"}]");
}

static json_t *recorded_rows(void) {
    return parse(
        "[{\"i\": 0, \"phase\": \"prefill\", \"n\": 1, \"off_ns\": 1000e6, \"on_ns\": 1010e6, \"op_ns\": 990e6,"
        "\"n_ops\": 1, \"n_jobs\": 1, \"probe_ns\": 100},"
        "{\"i\": 0, \"phase\": \"decode\", \"n\": 31, \"off_ns\": 10e6, \"on_ns\": 10.1e6, \"op_ns\": 9.6e6,"
        "\"n_ops\": 3, \"n_jobs\": 3, \"probe_ns\": 300},"
        "{\"i\": 1, \"phase\": \"prefill\", \"n\": 1, \"off_ns\": 1000e6, \"on_ns\": 1010e6, \"op_ns\": 990e6,"
        "\"n_ops\": 1, \"n_jobs\": 1, \"probe_ns\": 100},"
        "{\"i\": 1, \"phase\": \"decode\", \"n\": 31, \"off_ns\": 10e6, \"on_ns\": 10.1e6, \"op_ns\": 9.6e6,"
        "\"n_ops\": 3, \"n_jobs\": 3, \"probe_ns\": 300}]");
}

/* One request with ops, recorded repetitions and ranges of nsys. */
static void fill_recorded(void) {
    hr_store *store = open_store(true);
    char *run_id = begin(store);
    json_t *cell = request("a2", 512, 1000.1), *ops = timed_ops(), *recorded = recorded_rows();
    json_object_set_new(cell, "bytes_weights", json_real(90e6));
    json_object_set_new(cell, "bytes_kv_read", json_real(9e6));
    json_object_set_new(cell, "bytes_kv_write", json_real(1e6));
    const hr_cell_parts parts = {.ops = ops, .recorded = recorded};
    ok(hr_store_put_cell_parts(store, run_id, cell, &parts));
    json_t *ranges = parse("[{\"name\": \"down:decode\", \"style\": \"PushPop\", \"n\": 620, \"total_ns\": 2.046e9,"
                           "\"mean_ns\": 3.3e6, \"median_ns\": 3.15e6}, {\"name\": \"decode\", \"n\": 10, "
                           "\"total_ns\": 1e8, \"mean_ns\": 1e7}]");
    ok(hr_store_put_ranges(store, run_id, "a2", "nsys nvtxsum", ranges));
    ok(hr_store_end_run(store, run_id, 0));
    json_decref(cell), json_decref(ops), json_decref(recorded), json_decref(ranges);
    hr_free(run_id);
    hr_store_close(store);
}

static json_t *observe_row(const char *arm, const char *metric, const char *rest) {
    char text_[900];
    snprintf(
        text_, sizeof text_,
        "{\"name\": \"%s:%s\", \"arm\": \"%s\", \"metric\": \"%s\", \"model_filename\": \"synth:tiny\","
        "\"quant\": \"bf16\", \"act\": \"bf16\", \"test\": \"isl8 osl4\", \"unit\": \"%%\", \"what\": \"a way\", %s}",
        arm, metric, arm, metric, rest);
    return parse(text_);
}

/* Two runs: the newer figure counts; a way that could not be had later does not displace one that was measured. */
static void fill_observed(void) {
    static const char *const measured[] = {
        "\"n\": 8, \"median\": 1.0, \"ci95_lo\": 0.5, \"ci95_hi\": 2.0, \"off_ms\": 10, \"on_ms\": 10.1,"
        "\"target\": \"< 1.5 %\", \"verdict\": \"inconclusive\", \"reason\": null",
        "\"n\": 20, \"median\": 0.25, \"ci95_lo\": -0.125, \"ci95_hi\": 0.5, \"off_ms\": 10, \"on_ms\": 10.025,"
        "\"target\": \"< 1.5 %\", \"verdict\": \"met\", \"reason\": null"};
    hr_store *store = open_store(true);
    for (int i = 0; i < 2; i++) {
        char *run_id = begin(store);
        json_t *rows = json_array();
        json_array_append_new(rows, observe_row("recorder", "tpot", measured[i]));
        json_array_append_new(rows, observe_row("library", "tpot",
                                                i ? "\"median\": null, \"reason\": \"not here\""
                                                  : "\"n\": 8, \"median\": 3.5, \"ci95_lo\": 3, \"ci95_hi\": 4,"
                                                    "\"target\": null, \"verdict\": null, \"reason\": null"));
        json_array_append_new(rows,
                              observe_row("nsys", "tpot", "\"median\": null, \"reason\": \"nsys is not installed\""));
        ok(hr_store_put_observe(store, run_id, rows));
        ok(hr_store_end_run(store, run_id, 0));
        json_decref(rows);
        hr_free(run_id);
    }
    hr_store_close(store);
}

static void report_without_pictures(void) {
    hide_gnuplot();
    const hr_status status = report();
    show_gnuplot();
    ok(status);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

/* The bars of data/waterfall_NAME.tsv lie end to end from 0 to what was measured. */
static void bars_add_up(const char *name, double measured) {
    double at = 0;
    size_t n = 0;
    for (size_t line = 1;; line++, n++) {
        char kind[40];
        snprintf(kind, sizeof kind, "%s", field(name, line, 1));
        const double from = strtod(field(name, line, 3), NULL), to = strtod(field(name, line, 4), NULL);
        if (!strcmp(kind, "measured")) {
            if (fabs(to - measured) > 1e-6 * measured) fail_msg("%s: expected %g, got %g", name, measured, to);
            break;
        }
        if (fabs(from - at) > 1e-6 * measured) fail_msg("%s, line %zu: expected %g, got %g", name, line, at, from);
        at = to;
    }
    assert_true(n >= 5);
    if (fabs(at - measured) > 1e-6 * measured) fail_msg("%s: bars end at %g, expected %g", name, at, measured);
}

static void waterfall_and_its_terms(void **state) {
    (void)state;
    fill_recorded();
    report_without_pictures();
    const char *page = file("report.md");
    holds(page, "## Where the time went");
    holds(page,
          "TPOT of tiny bf16, isl512 osl32: 10.0 ms with the recorder off, 10.1 ms with it on; the ceilings allow "
          "5.00 ms;");
    holds(page, "TTFT of tiny bf16, isl512 osl32: 1000 ms with the recorder off");
    holds(page, "| weights | ideal |");
    holds(page, "| unexplained | unexplained |");
    holds(page, "Of the ops of this prefill: matrix products 100 % (published: 72 %), attention 0 % (23 %)");
    holds(page, "### By op class");
    lacks(page, "`down`");
    bars_add_up("data/waterfall_tpot.tsv", 10);
    bars_add_up("data/waterfall_ttft.tsv", 1000.1);
    assert_true(there("plots/waterfall_tpot.gp"));
}

static void waterfall_is_drawn(void **state) {
    (void)state;
    if (!have_gnuplot()) hr_skip("gnuplot is not installed (gnuplot-nox)");
    fill_recorded();
    ok(report());
    holds(file("plots/waterfall_tpot.svg"), "</svg>");
    holds(file("plots/waterfall_ttft.svg"), "unexplained");
    holds(file("index.html"), "data/waterfall_tpot.tsv");
}

/* Cells of an older program have ops but no recorded repetitions. */
static void older_cells_say_how_to_explain(void **state) {
    (void)state;
    fill_usual();
    report_without_pictures();
    const char *missing = strstr(file("report.md"), "## What was not measured");
    assert_non_null(missing);
    holds(missing, "From the ideal to the measured time");
    holds(missing, "headroom sweep");
    holds(missing, "headroom observe");
    lacks(file("report.md"), "## Cost of observing");
    lacks(file("report.md"), "term by term");
    assert_false(there("data/waterfall_tpot.tsv"));
}

static void newest_cost_of_observing(void **state) {
    (void)state;
    fill_usual();
    fill_observed();
    report_without_pictures();
    const char *page = file("report.md");
    holds(page, "## Cost of observing");
    holds(page,
          "| recorder | TPOT | tiny bf16 | isl8 osl4 | 20 | +0.25 (-0.12 to +0.50) | 10.0 | 10.0 | &lt; 1.5 % | met |");
    holds(page, "| library | TPOT | tiny bf16 | isl8 osl4 | 8 | +3.50 (+3.00 to +4.00) |");
    holds(page, "| nsys | TPOT | tiny bf16 | isl8 osl4 |  | not measured |");
    holds(page, "nsys is not installed");
    lacks(page, "inconclusive |");
    lacks(strstr(page, "## What was not measured"), "headroom observe");
}

static void cost_of_observing_alone_is_reported(void **state) {
    (void)state;
    fill_observed();
    report_without_pictures();
    holds(file("report.md"), "this report holds what observing costs");
    holds(file("report.md"), "## Cost of observing");
    lacks(file("report.md"), "## Advice");
}

/* down:decode: the recorder has a median of 3 ms, nsys one of 3.15 ms: 5 % more. A range that is no op of the
 * recorder has nothing beside it and is left out. */
static void ranges_beside_the_recorder(void **state) {
    (void)state;
    fill_recorded();
    report_without_pictures();
    const char *at = strstr(file("report.md"), "### The same ops by a profiler");
    assert_non_null(at);
    holds(at, "isl512 osl32, ranges imported from nsys nvtxsum.");
    holds(at, "| down:decode | 620 | 2046 | 3150 | 3300 | 124 | 3000 | 3100 | +5.0 |");
    lacks(at, "| decode |");
}

static const char *flash_line(void) {
    static char line[900];
    const char *at = strstr(file("report.md"), "## Advice");
    at = at ? strstr(at, "flash attention is off") : NULL;
    if (!at) fail_msg("no advice on flash attention in:\n%.3000s", file("report.md"));
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

/* Two cells without flash attention at a context that is long: the rule is said once. An older measurement of a cell is not
 * spoken of. */
static void advice_is_said_once_a_rule(void **state) {
    (void)state;
    json_t *old = request("a1", 2048, 5000), *cells[] = {request("a1", 2048, 4000), request("a2", 4096, 9000)};
    json_object_set_new(old, "flash_attn", json_false());
    json_object_set_new(cells[0], "flash_attn", json_true());
    json_object_set_new(cells[1], "flash_attn", json_false());
    fill_run(&old, 1);
    fill_run(cells, 2);
    report_without_pictures();
    holds(flash_line(), "(isl4096 osl32)");
    lacks(flash_line(), "Also in");
    json_t *more[] = {request("a1", 2048, 4000), request("a2", 4096, 9000)};
    for (int i = 0; i < 2; i++) json_object_set_new(more[i], "flash_attn", json_false());
    fill_run(more, 2);
    report_without_pictures();
    holds(flash_line(), "Also in 1 other cell.");
    assert_null(strstr(strstr(file("report.md"), "flash attention is off") + 1, "flash attention is off"));
}

int main(void) {
#define R(f) cmocka_unit_test_setup_teardown(f, setup_report, teardown_report)
    const struct CMUnitTest tests[] = {R(waterfall_and_its_terms),
                                       R(waterfall_is_drawn),
                                       R(older_cells_say_how_to_explain),
                                       R(newest_cost_of_observing),
                                       R(cost_of_observing_alone_is_reported),
                                       R(ranges_beside_the_recorder),
                                       R(advice_is_said_once_a_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
