/* The report of made-up stores: what lies in the folder, that figures are those of the cells, that names cannot break
 * out of the page, and that a report is whole or absent. */
#include "tests/report_fixture.h"

#include "harness/cli/options.h"

#include <dirent.h>
#include <fcntl.h>

extern const hr_command hr_command_report;

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static void every_plot_is_drawn_or_named(void **state) {
    (void)state;
    if (!have_gnuplot()) hr_skip("gnuplot is not installed (gnuplot-nox)");
    fill_usual();
    ok(report());
    assert_null(note);
    assert_true(strlen(file("index.html")) > 5000);
    size_t drawn = 0;
    for (size_t i = 0; i < hr_plots_count; i++) {
        char name[3][80];
        snprintf(name[0], 80, "data/%s.tsv", hr_plots[i].name);
        snprintf(name[1], 80, "plots/%s.gp", hr_plots[i].name);
        snprintf(name[2], 80, "plots/%s.svg", hr_plots[i].name);
        const bool here = there(name[0]);
        assert_int_equal(here, there(name[1]));
        assert_int_equal(here, there(name[2]));
        drawn += here;
        if (here) {
            holds(file(name[2]), "</svg>");
            holds(file("index.html"), name[0]);
        } else
            holds(strstr(file("index.html"), "What was not measured"), hr_plots[i].title);
    }
    /* all but the size sweep, two waterfalls, the prefill ops and four of the KV study, which the store does not have */
    assert_int_equal(drawn, hr_plots_count - 8);
    assert_false(there("data/bandwidth.tsv"));
    size_t i;
    json_t *path_;
    json_array_foreach(paths, i, path_) assert_int_equal(access(json_string_value(path_), F_OK), 0);
    assert_non_null(strstr(json_string_value(json_array_get(paths, 0)), "index.html"));
}

static void page_needs_nothing_from_outside(void **state) {
    (void)state;
    fill_usual();
    ok(report());
    static const char *const outside[] = {"http:", "https:", "src=", "<link", "<script", "@import", "xmlns", "<img"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) lacks(file("index.html"), outside[i]);
    if (!have_gnuplot()) return;
    const char *page = file("index.html");
    lacks(strstr(page, "<body"), "<title"); /* browsers show it at the pointer */
    lacks(page, "GNUPLOT");
    size_t pictures = 0, named = 0;
    for (const char *at = page; (at = strstr(at, "<svg")) != NULL; at++)
        pictures++, named += !strncmp(at, "<svg role=\"img\" aria-label=\"", 27);
    assert_true(pictures > 5);
    assert_int_equal(named, pictures);
}

static void data_are_the_cells(void **state) {
    (void)state;
    hide_gnuplot();
    fill_usual();
    ok(report());
    show_gnuplot();
    const struct {
        const char *name;
        size_t line, column;
        double want;
    } numbers[] = {{"data/ttft.tsv", 1, 2, 64},
                   {"data/ttft.tsv", 1, 3, 125.0625},
                   {"data/ttft.tsv", 1, 4, 125.0625 * 0.9}, /* three samples: lowest */
                   {"data/ttft.tsv", 2, 5, 1000.1 * 1.25},  /* and highest */
                   {"data/ttft.tsv", 2, 6, 3},              /* n */
                   {"data/tpot_batch.tsv", 2, 2, 4},
                   {"data/tpot_batch.tsv", 2, 3, 12.5},
                   {"data/tpot_depth.tsv", 2, 3, 11.1},
                   {"data/layouts.tsv", 2, 3, 10.9},
                   {"data/mbu.tsv", 1, 3, 50},
                   {"data/mbu.tsv", 1, 4, 50 / 1.25},
                   {"data/request.tsv", 1, 5, 125.0625},
                   {"data/request.tsv", 1, 3, 100 * 125.0625 / 435.0625},
                   {"data/roofline.tsv", 1, 2, 10}, /* 1e9 flop over 100e6 byte */
                   {"data/roofline.tsv", 1, 3, 1e9 / 125.0625 * 1e-6},
                   {"data/roofline.tsv", 3, 3, 20},      /* 200e6 flop in 5 ms / 0.5 */
                   {"data/ops_decode.tsv", 1, 3, 6},     /* down: two layers of 3 ms */
                   {"data/ops_decode.tsv", 1, 4, 1 + 2}, /* 20e6 byte at 20 GB/s; 400e6 flop at 200 GFLOP/s */
                   {"data/ops_decode.tsv", 2, 5, 1},     /* head: 4 - 60e6 / 20 GB/s */
                   {"data/peaks.tsv", 2, 3, 200}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double got = strtod(field(numbers[i].name, numbers[i].line, numbers[i].column), NULL);
        /* a few roundings of doubles */
        if (!(fabs(got - numbers[i].want) <= 1e-12 * fabs(numbers[i].want)))
            fail_msg("%s, line %zu, column %zu: expected %.17g, got %.17g", numbers[i].name, numbers[i].line,
                     numbers[i].column, numbers[i].want, got);
    }
    assert_string_equal(field("data/ttft.tsv", 1, 8), "a1");
    holds(file("data/cells.tsv"), "125.0625");
    holds(file("report.md"),
          "Decode of tiny bf16 runs at 50 % of the read bandwidth; prefill at 25 % of the bf16 peak; the "
          "largest loss is down (30 % of the step is above its roof time)");
    holds(file("report.md"), "Few repetitions");
    holds(file("report.md"), "    headroom sweep");
    holds(file("report.md"), "Axes with one value alone:** models (tiny), quantizations (bf16)");
    lacks(strstr(file("report.md"), "Axes with one value"), "KV layouts");
}

static const char hostile[] = "/x/\"><script>alert('1')</script>|`&{$(id)}\\n'@#[]<img src=http://e>\n%s%n\t__";

static void names_cannot_break_out(void **state) {
    (void)state;
    if (!have_gnuplot()) hr_skip("gnuplot is not installed (gnuplot-nox)");
    json_t *cells[4] = {request("<b>1", 64, 125), request("c'2", 512, 1000), step("c3", 1, 0, hostile, 9),
                        request("c4", 1, 1)};
    for (size_t i = 0; i < 4; i++) {
        json_object_set_new(cells[i], "model_filename", json_string(hostile));
        json_object_set_new(cells[i], "quant", json_string("q'`<i>\n"));
        json_object_set_new(cells[i], "act", json_string(hostile));
        json_object_set_new(cells[i], "stop_reason", json_string(hostile));
        json_object_set_new(cells[i], "bound", json_string(hostile));
        json_object_set_new(cells[i], "tags", json_string(hostile));
    }
    json_object_set_new(cells[3], "status", json_string("failed"));
    json_object_set_new(cells[3], "error", json_string("<iframe src=x>\r\n| broke"));
    fill_run(cells, 4);
    ok(report());
    static const char *const bad[] = {"<script", "<img", "<iframe", "<b>1", "<i>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) lacks(file("index.html"), bad[i]);
    lacks(file("report.md"), "<script");
    lacks(file("report.md"), "<iframe");
    holds(file("index.html"), "&lt;script&gt;");
    /* rows of a table keep their number of columns: no pipe of a name ends a cell */
    const char *row = strstr(file("data/ttft.tsv"), "\n");
    size_t lines = 0;
    for (const char *c = row; (c = strchr(c, '\n')) != NULL; c++) lines++;
    assert_int_equal(lines, 3); /* heading and two cells: no line end of a name ends a row */
}

static void long_names_are_cut_between_characters(void **state) {
    (void)state;
    char name[400] = "";
    for (int i = 0; i < 90; i++) strcat(name, i % 2 ? "\u20ac" : "\U0001F600"); /* 3 and 4 bytes */
    json_t *cells[] = {request("a1", 64, 125), request("a2", 128, 125), request("a3", 64, 125)};
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(cells[i], "model_filename", json_string(name + (i == 2 ? 4 : 0)));
        json_object_set_new(cells[i], "quant", json_string(name));
        json_object_set_new(cells[i], "act", json_string(name));
        json_object_set_new(cells[i], "tags", json_string(name));
        json_object_set_new(cells[i], "stop_reason", json_string(name));
        json_object_set_new(cells[i], "test", json_string(name));
        json_object_set_new(cells[i], "kv_layout", json_string(name + 4));
        json_object_set_new(cells[i], "page_size", json_integer(16));
    }
    fill_run(cells, 3);
    ok(report());
    static const char *const names[] = {"index.html", "report.md", "data/ttft.tsv", "plots/ttft.gp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *as_text = json_string(file(names[i])); /* jansson takes valid UTF-8 alone */
        if (!as_text) fail_msg("%s is not UTF-8", names[i]);
        json_decref(as_text);
    }
}

static void nulls_are_not_figures(void **state) {
    (void)state;
    json_t *cells[] = {parse("{\"status\": \"ok\", \"cell_id\": \"n1\", \"test\": null, \"flags\": []}"),
                       parse("{\"status\": \"skipped\", \"cell_id\": \"n2\", \"error\": \"longer than the context\"}")};
    fill_run(cells, 2);
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    static const char *const bad[] = {"nan", "NaN", ">inf", "null", "(null)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) lacks(file("index.html"), bad[i]);
    holds(file("report.md"), "No cell has both its work and its ceilings");
    holds(file("report.md"), "longer than the context");
    for (size_t i = 0; i < hr_plots_count; i++) holds(file("report.md"), hr_plots[i].title);
}

static void one_cell_is_enough(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125)};
    fill_run(cells, 1);
    ok(report());
    holds(file("report.md"), "Decode of tiny bf16 runs at 50 %");
    assert_false(there("data/ttft.tsv")); /* one point is no line */
    assert_true(there("data/mbu.tsv"));
}

static void nothing_to_report_is_said(void **state) {
    (void)state;
    hr_store_close(open_store(true));
    fails(report(), HR_ERR_INPUT, "nothing to report");
    json_t *cells[] = {request("a1", 64, 125)};
    json_object_set_new(cells[0], "status", json_string("failed"));
    fill_run(cells, 1);
    fails(report(), HR_ERR_INPUT, "no cell was measured");
    assert_false(there(""));
}

static void simulated_cells_are_refused(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125)};
    json_object_set_new(cells[0], "flags", parse("[\"simulated\"]"));
    fill_run(cells, 1);
    hide_gnuplot();
    fails(report(), HR_ERR_INPUT, "--allow-simulated");
    assert_false(there(""));
    ok(report_of(NULL, 0, true));
    show_gnuplot();
    holds(file("report.md"), "no real device ran them");
}

static void newest_measurement_counts(void **state) {
    (void)state;
    json_t *first[] = {request("a1", 64, 100), request("a2", 128, 200)}, *second[] = {request("a1", 64, 150)},
           *third[] = {request("a1", 64, 1)};
    json_object_set_new(third[0], "status", json_string("failed")); /* a failure does not displace a measurement */
    fill_run(first, 2), fill_run(second, 1), fill_run(third, 1);
    hide_gnuplot();
    ok(report());
    assert_true(strtod(field("data/ttft.tsv", 1, 3), NULL) == 150);
    holds(file("report.md"), "1 older measurement of the same cells is left out");
    static const char *const runs[] = {"last~2"};
    ok(report_of(runs, 1, false));
    assert_true(strtod(field("data/ttft.tsv", 1, 3), NULL) == 100);
    static const char *const none[] = {"nope"};
    fails(report_of(none, 1, false), HR_ERR_INPUT, "nope");
    show_gnuplot();
}

static void largest_model_leads(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125), request("a2", 64, 125), request("a3", 64, 125)};
    json_object_set_new(cells[1], "model_filename", json_string("large"));
    json_object_set_new(cells[1], "model_n_params", json_integer(2000));
    json_object_set_new(cells[2], "quant", json_string("int8"));
    fill_run(cells, 3);
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    holds(file("report.md"), "Decode of large bf16 runs at");
    holds(file("data/ops_decode.tsv"), "large bf16, isl64 osl32");
    assert_string_equal(field("data/mbu.tsv", 1, 1), "large");
    assert_string_equal(field("data/mbu.tsv", 3, 6), "int8");
}

static void no_gnuplot_is_a_note(void **state) {
    (void)state;
    fill_usual();
    if (have_gnuplot()) {
        ok(report());
        assert_true(there("plots/ttft.svg"));
    }
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    holds(json_string_value(note), "apt-get install gnuplot-nox");
    assert_true(there("plots/ttft.gp"));
    assert_false(there("plots/ttft.svg")); /* the picture of the earlier report is not that of this one */
    holds(file("index.html"), "apt-get install gnuplot-nox");
    holds(file("report.md"), "apt-get install gnuplot-nox");
}

/* Each write and each allocation fails in turn: one line, and either the old report or none. */
static void report_is_whole_or_absent(void **state) {
    (void)state;
    fill_usual();
    hide_gnuplot();
    for (int kind = 0; kind < HR_FAULT_COUNT; kind++) {
        if (kind == HR_FAULT_READ) continue;
        hr_store *store = open_store(false);
        uint64_t n = 1;
        for (;; n++) {
            hr_fault_arm((hr_fault)kind, n);
            json_t *p = NULL, *t = NULL;
            hr_status status = hr_report_write(store, &(hr_report_options){.out_dir = out_dir}, &p, &t);
            hr_fault_arm((hr_fault)kind, 0);
            json_decref(p), json_decref(t);
            if (status == HR_OK) break;
            if (there("index.html") || there("data") || there("plots"))
                fail_msg("fault %d at call %llu left something", kind, (unsigned long long)n);
            if (strchr(hr_error(), '\n')) fail_msg("more than one line: %s", hr_error());
            if (n > 5000) fail_msg("fault %d does not end", kind);
        }
        assert_true(n > 5); /* faults were met */
        assert_true(there("index.html"));
        char command[400];
        snprintf(command, sizeof command, "rm -r '%s'", out_dir);
        setenv("PATH", saved_path, 1);
        assert_int_equal(system(command), 0);
        setenv("PATH", "/nonexistent", 1);
        hr_store_close(store);
    }
    ok(report());
    const size_t before = entries();
    char *old = strdup(file("index.html"));
    hr_fault_arm(HR_FAULT_WRITE, 9);
    fails(report(), HR_ERR_IO, "No space left");
    show_gnuplot();
    assert_int_equal(entries(), before);
    assert_string_equal(file("index.html"), old);
    free(old);
}

static void bad_folders_are_named(void **state) {
    (void)state;
    fill_usual();
    snprintf(out_dir, sizeof out_dir, "%s/file", folder);
    write_file(out_dir, "kept", 4);
    fails(report(), HR_ERR_IO, "is a file; name a folder");
    text[read_file(out_dir, text, 100)] = 0;
    assert_string_equal(text, "kept");
    snprintf(out_dir, sizeof out_dir, "%s/file/in", folder);
    fails(report(), HR_ERR_IO, "file");
}

/* The subcommand: exit code; what it printed lands in `text`. */
static int call(const char *words) {
    char line[1400], printed[320], *argv[24];
    int argc = 0;
    snprintf(printed, sizeof printed, "%s/printed", folder);
    snprintf(line, sizeof line, "%s --db %s --out %s", words, path, out_dir);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    hr_args *args;
    ok(hr_args_parse(&hr_command_report, argc, argv, &args));
    fflush(stdout), fflush(stderr);
    const int saved[2] = {dup(1), dup(2)};
    const int to = open(printed, O_WRONLY | O_CREAT | O_TRUNC, 0666), nothing = open("/dev/null", O_WRONLY);
    dup2(to, 1), dup2(nothing, 2);
    const int code = hr_command_report.run(args);
    fflush(stdout);
    dup2(saved[0], 1), dup2(saved[1], 2);
    close(saved[0]), close(saved[1]), close(to), close(nothing);
    hr_args_destroy(args);
    text[read_file(printed, text, sizeof text - 1)] = 0;
    return code;
}

static void command_prints_paths(void **state) {
    (void)state;
    hide_gnuplot();
    hr_store_close(open_store(true));
    assert_int_equal(call(""), 2);
    assert_string_equal(text, "");
    assert_non_null(strstr(hr_error(), "nothing to report"));
    fill_usual();
    assert_int_equal(call(""), 0);
    size_t lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++)
        if (access(line, F_OK) != 0) fail_msg("not there: %s", line);
    assert_true(lines > 10);
    assert_int_equal(call("--json --run last"), 0);
    json_t *list = parse(text);
    assert_int_equal(json_array_size(list), lines);
    json_decref(list);
    assert_int_equal(call("last"), 2);
    assert_non_null(strstr(hr_error(), "--run last"));
    assert_int_equal(call("--run nope"), 2);
    show_gnuplot();
}

int main(void) {
#define R(f) cmocka_unit_test_setup_teardown(f, setup_report, teardown_report)
    const struct CMUnitTest tests[] = {
        R(every_plot_is_drawn_or_named),
        R(page_needs_nothing_from_outside),
        R(data_are_the_cells),
        R(names_cannot_break_out),
        R(long_names_are_cut_between_characters),
        R(nulls_are_not_figures),
        R(one_cell_is_enough),
        R(nothing_to_report_is_said),
        R(simulated_cells_are_refused),
        R(newest_measurement_counts),
        R(largest_model_leads),
        R(no_gnuplot_is_a_note),
        R(report_is_whole_or_absent),
        R(bad_folders_are_named),
        R(command_prints_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
