/* The report of made-up stores: what lies in the folder, that figures are those of the cells, that names cannot break
 * out of the page, and that a report is whole or absent. */
#include "tests/store_fixture.h"

#include "harness/cli/options.h"
#include "harness/report/report_page.h"

#include <dirent.h>
#include <fcntl.h>

extern const hr_command hr_command_report;

static char out_dir[300], text[1 << 21];
static json_t *paths, *note;

static int setup_report(void **state) {
    if (setup(state) != 0) return -1;
    snprintf(out_dir, sizeof out_dir, "%s/deep/report", folder);
    return 0;
}
static int teardown_report(void **state) {
    json_decref(paths), json_decref(note);
    paths = note = NULL;
    return teardown(state);
}

/* ---- cells ------------------------------------------------------------------------------------------------------ */

static json_t *dist(double p50) {
    return json_pack("{s:i, s:f, s:f, s:f, s:n, s:n}", "n", 3, "min", p50 * 0.9, "p50", p50, "max", p50 * 1.25,
                     "ci95_lo", "ci95_hi");
}

/* A request of isl tokens: prefill at 2 ms a token over bf16, decode at 100 MB in 10 ms. */
static json_t *request(const char *id, double isl, double ttft) {
    json_t *cell = parse(
        "{\"status\": \"ok\", \"model_filename\": \"synth:tiny\", \"model_n_params\": 1000, \"quant\": \"bf16\","
        "\"act\": \"bf16\", \"n_seqs\": 1, \"osl\": 32, \"n_gen\": 32, \"n_threads\": 2, \"kv_layout\": \"head\","
        "\"type_k\": \"bf16\", \"type_v\": \"bf16\", \"stop_reason\": \"fixed\", \"state_class\": \"near\","
        "\"samples_ns\": [1, 2, 3], \"flags\": [\"weak_percentile\"], \"bytes_step\": 100e6, \"flops_step\": 200e6,"
        "\"mbu\": 0.5, \"mfu\": 0.1, \"roof_time_ms\": 5.0, \"roof_fraction\": 0.5, \"bound\": \"memory\","
        "\"prefill_bytes\": 100e6, \"prefill_flops\": 1e9, \"prefill_mfu\": 0.25, \"prefill_roof_fraction\": 0.25,"
        "\"prefill_bound\": \"compute\", \"peak_read_gb_s\": 20.0, \"flops_by_unit\": {\"fp32\": 0, \"bf16\": 200e6},"
        "\"peak_gflop_s\": {\"fp32\": 100.0, \"bf16\": 200.0, \"int8\": null}}");
    char test[40];
    snprintf(test, sizeof test, "isl%.0f osl32", isl);
    json_object_set_new(cell, "cell_id", json_string(id));
    json_object_set_new(cell, "test", json_string(test));
    json_object_set_new(cell, "isl", json_integer((json_int_t)isl));
    json_object_set_new(cell, "n_prompt", json_integer((json_int_t)isl));
    json_object_set_new(cell, "ttft_ms", dist(ttft));
    json_object_set_new(cell, "ttft_prefill_ms", dist(ttft));
    json_object_set_new(cell, "tpot_excl_first_ms", dist(10));
    json_object_set_new(cell, "e2e_ms", dist(ttft + 310));
    return cell;
}

static json_t *step(const char *id, double seqs, double depth, const char *layout, double tpot) {
    json_t *cell = request(id, 1, 1);
    json_object_set_new(cell, "test", json_string("tg32"));
    json_object_set_new(cell, "isl", json_null());
    json_object_set_new(cell, "osl", json_null());
    json_object_set_new(cell, "n_prompt", json_integer(0));
    json_object_set_new(cell, "n_depth", json_integer((json_int_t)depth));
    json_object_set_new(cell, "n_seqs", json_integer((json_int_t)seqs));
    json_object_set_new(cell, "kv_layout", json_string(layout));
    json_object_set_new(cell, "ttft_ms", json_null());
    json_object_set_new(cell, "ttft_prefill_ms", json_null());
    json_object_set_new(cell, "e2e_ms", json_null());
    json_object_set_new(cell, "prefill_flops", json_null());
    json_object_set_new(cell, "tpot_excl_first_ms", dist(tpot));
    return cell;
}

/* Two layers of down and one head in two recorded steps: 2 x 3 ms + 4 ms a step. */
static json_t *made_ops(void) {
    return parse("[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"none\", \"n\": 2,"
                 "\"median_ns\": 3e6, \"bytes\": 20e6, \"flops\": 40e6},"
                 "{\"phase\": \"decode\", \"layer\": 1, \"op\": \"down\", \"kernel\": \"none\", \"n\": 2,"
                 "\"median_ns\": 3e6, \"bytes\": 20e6, \"flops\": 400e6},"
                 "{\"phase\": \"decode\", \"layer\": -1, \"op\": \"head\", \"kernel\": \"none\", \"n\": 2,"
                 "\"median_ns\": 4e6, \"bytes\": 60e6, \"flops\": 120e6},"
                 "{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"norm\", \"kernel\": \"none\", \"n\": 2,"
                 "\"median_ns\": null, \"bytes\": null, \"flops\": null}]");
}

/* A run with these cells; takes them. */
static void fill_run(json_t *const *cells, size_t n) {
    hr_store *store = open_store(true);
    char *run_id = begin(store);
    for (size_t i = 0; i < n; i++) {
        json_t *ops = made_ops();
        ok(hr_store_put_cell(store, run_id, cells[i], NULL, ops));
        json_decref(ops), json_decref(cells[i]);
    }
    ok(hr_store_end_run(store, run_id, 0));
    hr_free(run_id);
    hr_store_close(store);
}

static void fill_usual(void) {
    json_t *cells[] = {request("a1", 64, 125.0625),      request("a2", 512, 1000.1),
                       step("b1", 1, 0, "head", 10),     step("b2", 4, 0, "head", 12.5),
                       step("b3", 1, 512, "head", 11.1), step("b4", 1, 512, "zorder", 10.9)};
    fill_run(cells, sizeof cells / sizeof *cells);
}

static hr_status report_of(const char *const *runs, size_t n_runs, bool simulated) {
    hr_store *store = open_store(false);
    json_decref(paths), json_decref(note);
    paths = note = NULL;
    hr_status status = hr_report_write(
        store, &(hr_report_options){.runs = runs, .n_runs = n_runs, .out_dir = out_dir, .allow_simulated = simulated},
        &paths, &note);
    hr_store_close(store);
    return status;
}
static hr_status report(void) {
    return report_of(NULL, 0, false);
}

/* Without a gnuplot in the way: most tests ask for words and data. */
static char *saved_path;
static void hide_gnuplot(void) {
    saved_path = strdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
}
static void show_gnuplot(void) {
    setenv("PATH", saved_path, 1);
    free(saved_path);
}

static const char *file(const char *name) {
    char at[700];
    snprintf(at, sizeof at, "%s/%s", out_dir, name);
    text[read_file(at, text, sizeof text - 1)] = 0;
    return text;
}
static bool there(const char *name) {
    char at[700];
    snprintf(at, sizeof at, "%s/%s", out_dir, name);
    return access(at, F_OK) == 0;
}
static void holds(const char *in, const char *word) {
    if (!strstr(in, word)) fail_msg("\"%s\" is not in:\n%.3000s", word, in);
}
static void lacks(const char *in, const char *word) {
    const char *at = strstr(in, word);
    if (at) fail_msg("\"%s\" is there: %.200s", word, at);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static bool have_gnuplot(void) {
    return system("gnuplot --version >/dev/null 2>&1") == 0;
}

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
    /* all but the size sweep and the prefill ops, which the store does not have */
    assert_int_equal(drawn, hr_plots_count - 2);
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
}

/* The n-th line of a TSV, its k-th field. */
static const char *field(const char *name, size_t line, size_t k) {
    static char copy[4096];
    const char *at = file(name);
    for (; line; line--) {
        at = strchr(at, '\n');
        assert_non_null(at);
        at++;
    }
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(at, "\n"), at);
    char *f = copy;
    for (; k; k--) {
        f = strchr(f, '\t');
        assert_non_null(f);
        f++;
    }
    f[strcspn(f, "\t")] = 0;
    return f;
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

/* The made-up ops take 10 ms a step, of which down loses 3 ms; what is measured is roof_time_ms / roof_fraction. */
static void shares_are_of_the_measured_time(void **state) {
    (void)state;
    const struct {
        double measured_ms;
        const char *verdict, *row; /* row: NULL where there is none */
    } cases[] = {
        {10.2, "the largest loss is down (29 % of the step is above its roof time)", NULL},
        {12.5,
         "the recorded ops add up to 80 % of the measured step, so the cause is uncertain: the largest loss seen is "
         "down (24 % of the step above its roof time)",
         "outside the ops | – | 2.50 | 20 %"},
        {20,
         "the recorded ops add up to 50 % of the measured step, so the cause is uncertain: the largest loss seen is "
         "outside the ops (50 % of the step)",
         "outside the ops | – | 10.0 | 50 % | 0.00 | 10.0 | – | – | – |"},
        {5, "the recorded ops add up to 200 % of the measured step, so the cause is uncertain", NULL},
    };
    hide_gnuplot();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *cells[] = {step("b1", 1, 0, "head", 10)};
        json_object_set_new(cells[0], "roof_fraction", json_real(5 / cases[i].measured_ms));
        fill_run(cells, 1);
        ok(report());
        holds(file("report.md"), cases[i].verdict);
        if (cases[i].row) {
            holds(file("report.md"), cases[i].row);
            holds(file("data/ops_decode.tsv"), "outside the ops");
        } else
            lacks(file("data/ops_decode.tsv"), "outside the ops");
    }
    show_gnuplot();
}

/* Who measured, what, and how quiet the machine was. */
static void circumstances_are_said(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125), request("a2", 128, 125), request("a3", 256, 125)};
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(cells[i], "model_type", json_string("llama 135M Q4_1"));
        json_object_set_new(cells[i], "build_commit", json_string(i ? "abc1" : "abc12"));
        if (i) json_object_set_new(cells[i], "flags", parse("[\"noisy_neighbour\"]"));
    }
    fill_run(cells, 3);
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    const char *md = file("report.md");
    holds(md, ". Other work ran on this machine during 2 of 3 cells: repeat on an idle machine.");
    holds(md, "- **tiny bf16 (llama 135M Q4_1):** decode");
    holds(md, "| tiny bf16 | llama 135M Q4_1 | isl64");
    holds(md, "| measured by Headroom of commits | abc12, abc1 |");
    holds(md, "| built by | gcc |");
    holds(md, "3 cells of 1 run, newest");
    holds(md, "| 100 | 10.0 | 50 % |"); /* 100 MB in 10 ms */
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

static void commands_are_as_typed(void **state) {
    (void)state;
    char command[400];
    json_t *run =
        parse("{\"command\": \"sweep\", \"args\": {\"model\": [\"a b'c\"], \"isl\": [128, 512], \"quick\": true,"
              "\"db\": \"x\", \"max-time\": 0.5, \"repetitions\": 3}}");
    hr_report_command(run, command, sizeof command);
    assert_string_equal(
        command, "headroom sweep --model 'a b'\\''c' --isl 128,512 --quick --db x --max-time 0.5 --repetitions 3");
    json_decref(run);
    assert_string_equal(hr_text_num(1234567), "1\u202f234\u202f567");
    assert_string_equal(hr_text_num(0), "0.00");
    assert_string_equal(hr_text_num(99.96), "100");
    assert_string_equal(hr_text_num(NAN), "–");
    assert_string_equal(hr_text_pct(0.8349), "83 %");
    assert_string_equal(hr_text_size(32768), "32 KiB");
}

int main(void) {
#define R(f) cmocka_unit_test_setup_teardown(f, setup_report, teardown_report)
    const struct CMUnitTest tests[] = {
        R(every_plot_is_drawn_or_named),
        R(page_needs_nothing_from_outside),
        R(data_are_the_cells),
        R(shares_are_of_the_measured_time),
        R(circumstances_are_said),
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
        R(commands_are_as_typed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
