/* report_fixture.h - made-up stores for the tests of the report, and what lies in its folder. */
#ifndef HR_REPORT_FIXTURE_H
#define HR_REPORT_FIXTURE_H

#include "tests/store_fixture.h"

#include "harness/report/report_page.h"

static char out_dir[300], text[1 << 21];
static json_t *paths, *note;

static inline int setup_report(void **state) {
    if (setup(state) != 0) return -1;
    snprintf(out_dir, sizeof out_dir, "%s/deep/report", folder);
    return 0;
}
static inline int teardown_report(void **state) {
    json_decref(paths), json_decref(note);
    paths = note = NULL;
    return teardown(state);
}

/* ---- cells ------------------------------------------------------------------------------------------------------ */

static inline json_t *dist(double p50) {
    return json_pack("{s:i, s:f, s:f, s:f, s:n, s:n}", "n", 3, "min", p50 * 0.9, "p50", p50, "max", p50 * 1.25,
                     "ci95_lo", "ci95_hi");
}

/* A request of isl tokens: prefill at 2 ms a token over bf16, decode at 100 MB in 10 ms. */
static inline json_t *request(const char *id, double isl, double ttft) {
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

static inline json_t *step(const char *id, double seqs, double depth, const char *layout, double tpot) {
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
static inline json_t *made_ops(void) {
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
static inline void fill_run(json_t *const *cells, size_t n) {
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

static inline void fill_usual(void) {
    json_t *cells[] = {request("a1", 64, 125.0625),      request("a2", 512, 1000.1),
                       step("b1", 1, 0, "head", 10),     step("b2", 4, 0, "head", 12.5),
                       step("b3", 1, 512, "head", 11.1), step("b4", 1, 512, "zorder", 10.9)};
    fill_run(cells, sizeof cells / sizeof *cells);
}

static inline hr_status report_of(const char *const *runs, size_t n_runs, bool simulated) {
    hr_store *store = open_store(false);
    json_decref(paths), json_decref(note);
    paths = note = NULL;
    hr_status status = hr_report_write(
        store, &(hr_report_options){.runs = runs, .n_runs = n_runs, .out_dir = out_dir, .allow_simulated = simulated},
        &paths, &note);
    hr_store_close(store);
    return status;
}
static inline hr_status report(void) {
    return report_of(NULL, 0, false);
}

/* Without a gnuplot in the way: most tests ask for words and data. */
static char *saved_path;
static inline void hide_gnuplot(void) {
    saved_path = strdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
}
static inline void show_gnuplot(void) {
    setenv("PATH", saved_path, 1);
    free(saved_path);
}

static inline const char *file(const char *name) {
    char at[700];
    snprintf(at, sizeof at, "%s/%s", out_dir, name);
    text[read_file(at, text, sizeof text - 1)] = 0;
    return text;
}
/* The n-th line of a TSV, its k-th field. */
static inline const char *field(const char *name, size_t line, size_t k) {
    static char copy[8192];
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
static inline bool there(const char *name) {
    char at[700];
    snprintf(at, sizeof at, "%s/%s", out_dir, name);
    return access(at, F_OK) == 0;
}
static inline void holds(const char *in, const char *word) {
    if (!strstr(in, word)) fail_msg("\"%s\" is not in:\n%.3000s", word, in);
}
static inline void lacks(const char *in, const char *word) {
    const char *at = strstr(in, word);
    if (at) fail_msg("\"%s\" is there: %.200s", word, at);
}

static inline bool have_gnuplot(void) {
    return system("gnuplot --version >/dev/null 2>&1") == 0;
}

#endif
