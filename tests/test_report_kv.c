/* The section "KV cache" of the report, out of made-up rows of the study and of claims. */
#include "tests/report_fixture.h"

#include "harness/kv/study.h"
#include "harness/report/report_kv.h"
#include "harness/stats/stats.h"

/* ---- rows ------------------------------------------------------------------------------------------------------- */

static json_t *versus(double ratio, const char *verdict) {
    return json_pack("{s:f, s:f, s:f, s:i, s:s}", "median", ratio, "ci95_lo", ratio * 0.99, "ci95_hi", ratio * 1.01,
                     "n", 12, "verdict", verdict);
}

/* 4 KiB a position; us a read. ratio 0: it is what the others are compared with. */
static json_t *attention(const char *name, int page, int context, const char *state, double us, double ratio,
                         const char *verdict) {
    json_t *row = parse("{\"part\": \"layouts\", \"n\": 12, \"unit\": \"us\", \"op\": \"decode\", \"kv_heads\": 8,"
                        "\"head_dim\": 64, \"group\": 4, \"type_k\": \"bf16\", \"type_v\": \"bf16\", \"batch\": 1,"
                        "\"threads\": 2, \"layers\": 8, \"tokens\": null, \"kernel\": \"k\", \"freed_bytes\": null,"
                        "\"llc_misses\": null, \"tlb_misses\": null, \"counters\": \"no such counter\","
                        "\"samples\": [1, 2], \"flags\": []}");
    char key[120];
    const double bytes = 4096.0 * context;
    snprintf(key, sizeof key, "decode context=%d %s %s:%d", context, state, name, page);
    json_object_set_new(row, "name", json_string(name));
    json_object_set_new(row, "key", json_string(key));
    json_object_set_new(row, "page_size", page ? json_integer(page) : json_null());
    json_object_set_new(row, "context", json_integer(context));
    json_object_set_new(row, "state", json_string(state));
    json_object_set_new(row, "median", json_real(us));
    json_object_set_new(row, "ci95_lo", json_real(us * 0.8));
    json_object_set_new(row, "ci95_hi", json_real(us * 1.25));
    json_object_set_new(row, "bytes_needed", json_real(bytes));
    json_object_set_new(row, "bytes_touched", json_real(bytes));
    json_object_set_new(row, "gb_s", json_real(bytes / us * 1e-3));
    json_object_set_new(row, "vs_head", ratio > 0 ? versus(ratio, verdict) : json_null());
    json_object_set_new(row, "predicted",
                        json_pack("{s:i, s:i, s:i}", "runs", 8, "lines", 64 * context, "pages", context));
    json_object_set_new(row, "counted",
                        json_pack("{s:i, s:i, s:i}", "runs", 8, "lines", 64 * context, "pages", context));
    return row;
}

static json_t *type(const char *name, double bytes, double ms, double ratio, const char *verdict, double delta) {
    json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:s, s:s, s:i, s:f}", "part", "dtypes", "name", name,
                            "key", name, "n", 11, "median", ms, "ci95_lo", ms * 0.9, "ci95_hi", ms * 1.1, "unit", "ms",
                            "model", "tiny", "context", 2048, "bytes_token", bytes);
    json_object_set_new(row, "vs_bf16", ratio > 0 ? versus(ratio, verdict) : json_null());
    json_object_set_new(row, "ppl",
                        json_pack("[{s:i, s:f, s:f, s:s}, {s:i, s:f, s:f, s:s}]", "ctx", 512, "ppl", 10 + delta,
                                  "delta_pct", delta, "model", "small-real", "ctx", 2048, "ppl", 9 + delta, "delta_pct",
                                  2 * delta, "model", "small-real"));
    return row;
}

static json_t *allocator(const char *name, int budget, int concurrency, double ms) {
    char key[80];
    snprintf(key, sizeof key, "%s %d %d", name, budget, concurrency);
    json_t *row = parse("{\"part\": \"allocators\", \"n\": 10, \"unit\": \"ms\", \"distribution\": \"log-normal\","
                        "\"reserved_bytes\": 4000000, \"used_bytes\": 1000000, \"waste_inside_pct\": 74.25,"
                        "\"waste_between_pct\": 0.5, \"failed_admissions\": 68.2, \"failed_by_pieces\": null,"
                        "\"largest_batch\": 17, \"compactions\": 3, \"compact_ms\": 1.5, \"moved_bytes\": 2048,"
                        "\"prefix_hits\": 46.4, \"evictions\": 82, \"p50_ms\": 122.5, \"p99_ms\": 237.4}");
    json_object_set_new(row, "name", json_string(name));
    json_object_set_new(row, "key", json_string(key));
    json_object_set_new(row, "budget_pct", json_real(budget));
    json_object_set_new(row, "budget_bytes", json_real(concurrency == 100 ? budget * 1e5 : 50e5));
    json_object_set_new(row, "concurrency", json_integer(concurrency));
    json_object_set_new(row, "requests", json_integer(100));
    json_object_set_new(row, "median", json_real(ms));
    json_object_set_new(row, "ci95_lo", json_real(ms * 0.98));
    json_object_set_new(row, "ci95_hi", json_real(ms * 1.02));
    json_object_set_new(row, "requests_s", json_real(1e5 / ms));
    json_object_set_new(row, "page_size", strcmp(name, "paged") ? json_null() : json_integer(16));
    json_object_set_new(row, "compact_every", strcmp(name, "pool") ? json_null() : json_integer(10));
    return row;
}

static json_t *claim(const char *id, const char *verdict, double measured) {
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "id", id, "claim", "pages are free", "source",
                            "guides", "published", "< 5 %", "unit", "x", "verdict", verdict, "reason", "as measured");
    json_object_set_new(row, "measured", hr_real_or_null(measured));
    json_object_set_new(row, "ci95_lo", hr_real_or_null(measured * 0.9));
    json_object_set_new(row, "ci95_hi", hr_real_or_null(measured * 1.1));
    json_object_set_new(row, "n", isfinite(measured) ? json_integer(12) : json_null());
    return row;
}

static json_t *usual_rows(void) {
    static const int contexts[] = {128, 1024, 4096};
    json_t *rows = json_array();
    for (int i = 0; i < 3; i++)
        for (int warm = 0; warm < 2; warm++) {
            const double us = contexts[i] / (warm ? 20.0 : 10.0);
            const char *state = warm ? "warm" : "cold";
            json_array_append_new(rows, attention("token", 0, contexts[i], state, us * 1.5, 1.5, "slower"));
            json_array_append_new(rows, attention("head", 0, contexts[i], state, us, 0, NULL));
            json_array_append_new(rows, attention("zorder", 0, contexts[i], state, us, 1, "no difference"));
            json_array_append_new(rows, attention("paged", 16, contexts[i], state, us * 0.9, 0.9, "faster"));
            json_array_append_new(rows, attention("paged", 64, contexts[i], state, us * 1.1, 1.1, "inconclusive"));
        }
    json_t *fork = attention("paged", 16, 2048, "cold", 2.5, 0.0012, "faster");
    json_object_set_new(fork, "part", json_string("operations"));
    json_object_set_new(fork, "op", json_string("fork"));
    json_object_set_new(fork, "key", json_string("fork paged"));
    json_object_set_new(json_object_get(fork, "counted"), "lines", json_integer(7));
    json_array_append_new(rows, fork);
    json_array_append_new(rows, type("bf16", 4096, 10, 0, NULL, 0));
    json_array_append_new(rows, type("q8_0", 2176, 9.5, 0.95, "faster", 0.125));
    static const int budgets[] = {25, 50, 100};
    for (int i = 0; i < 3; i++) {
        json_array_append_new(rows, allocator("pool", budgets[i], 100, 200 - budgets[i]));
        json_array_append_new(rows, allocator("paged", budgets[i], 100, 150 - budgets[i] / 2.0));
    }
    json_array_append_new(rows, allocator("pool", 500, 10, 100));
    json_array_append_new(rows, allocator("paged", 500, 10, 125));
    return rows;
}

static json_t *usual_claims(void) {
    return json_pack("[o, o, o, o]", claim("c-holds", "holds", 1.5), claim("c-not", "does not hold", 0.75),
                     claim("c-same", "no difference", 1), claim("c-untested", "not testable here", NAN));
}

/* A run of a machine class with these rows; takes them. Either may be NULL. */
static void fill_of(const char *class_name, json_t *study, json_t *claims) {
    hr_store *store = open_store(true);
    json_t *run =
        parse("{\"command\": \"kv study\", \"args\": {\"quick\": true, \"db\": \"my db\"}, \"build_commit\": \"abc\","
              "\"compiler\": \"gcc\", \"started\": \"2026-01-02T03:04:05Z\"}");
    json_t *machine = json_pack("{s:s, s:i}", "machine_class", class_name, "cores", 2);
    char *id = NULL;
    ok(hr_store_begin_run(store, run, machine, &id));
    if (study) ok(hr_store_put_study(store, id, study));
    if (claims) ok(hr_store_put_claims(store, id, claims));
    ok(hr_store_end_run(store, id, 0));
    json_decref(run), json_decref(machine), json_decref(study), json_decref(claims);
    hr_free(id);
    hr_store_close(store);
}
static void fill(json_t *study, json_t *claims) {
    fill_of("epyc-2c-24g", study, claims);
}

static void report_without_pictures(void) {
    hide_gnuplot();
    ok(report());
    show_gnuplot();
}

/* ---- what is shown ---------------------------------------------------------------------------------------------- */

static void section_holds_every_part(void **state) {
    (void)state;
    fill(usual_rows(), usual_claims());
    report_without_pictures();
    const char *page = file("report.md");
    static const char *const words[] = {
        "## KV cache",
        "### Attention time by KV layout and context, relative to the layout head",
        "| token | cold | 3 | 1.50 | 1.50 | 1.50 | 0 | 0 | 3 | 0 |",
        "| zorder | warm | 3 | 1.00 | 1.00 | 1.00 | 3 | 0 | 0 | 0 |",
        "1.50 (1.48–1.52) +",
        "1.00 (0.99–1.01) =",
        "0.90 (0.89–0.91) −",
        "1.10 (1.09–1.11) ?",
        "Both are known of 16 rows: equal in 15, different in 1.",
        "| 7 | 2048 | 2048 | 100 % off |",
        "| 4096 | 4096 | equal |",
        "not counted: no such counter.",
        "| fork | 8 × 64 | 2048 | 1 | cold |",
        "0.0012 (0.0012–0.0012) −",
        "| q8_0 | tiny | 2176 | 53 % | 10.125 (+0.12 %) | 9.125 (+0.25 %) |",
        "| 9.50 (8.55–",
        "| 0.95 (0.94–0.96) | faster |",
        "Perplexity is of small-real.",
        "| pool, compact every 10 | 25 | 100 | 100 | 10 | 571 (560–583) |",
        "74.2 | 0.500 | 3 | 1.50 | 2 KiB | 46.4 | 82 |",
        "4 claims: 1 hold, 1 do not hold, 1 show no difference, 1 are not testable here",
        "| c-same | pages are free | &lt; 5 % | 1.00 (0.900–1.10) | x | 12 | no difference | as measured |",
        "| c-untested | pages are free | &lt; 5 % |  |  |  | not testable here | as measured |",
        "headroom kv study --quick --db 'my db'",
        "data/kv_study.tsv, data/claims.tsv"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) holds(page, words[i]);
    lacks(page, "none was tested");
    lacks(page, "| head | cold |"); /* it is compared with nothing */
    holds(page, "this report holds the study of the KV cache and published claims");
}

static void advice_is_of_the_study(void **state) {
    (void)state;
    json_t *rows = usual_rows(),
           *study = parse("{\"layouts\": [], \"operations\": [], \"dtypes\": [], \"allocators\": []}");
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) json_array_append(json_object_get(study, hr_word(row, "part")), row);
    char *advice = hr_study_advice(study);
    fill(rows, NULL);
    report_without_pictures();
    /* Markdown and HTML escape little that stands in it; its first words are enough */
    char first[40];
    snprintf(first, sizeof first, "%.30s", advice);
    if (*advice) holds(strstr(file("report.md"), "## KV cache"), first);
    if (*advice) holds(strstr(file("index.html"), "KV cache</h2>"), "<p class=\"lead\">");
    hr_free(advice);
    json_decref(study);
}

static void data_are_the_rows(void **state) {
    (void)state;
    fill(usual_rows(), usual_claims());
    report_without_pictures();
    const struct {
        const char *name;
        size_t line, column;
        double want;
    } numbers[] = {{"data/kv_heatmap.tsv", 1, 4, 128}, /* head leads, at the shortest context */
                   {"data/kv_heatmap.tsv", 1, 5, 1},
                   {"data/kv_heatmap.tsv", 4, 5, 1.5}, /* token */
                   {"data/kv_heatmap.tsv", 4, 6, 1.5 * 0.99},
                   {"data/kv_heatmap.tsv", 4, 7, 1.5 * 1.01},
                   {"data/kv_heatmap.tsv", 4, 8, 12},
                   {"data/kv_heatmap.tsv", 15, 5, 1.1}, /* paged:64 at 4096 */
                   {"data/kv_curves.tsv", 1, 2, 128},
                   {"data/kv_curves.tsv", 1, 3, 4096 * 128 / 12.8 * 1e-3},
                   {"data/kv_curves.tsv", 1, 4, 4096 * 128 / 12.8 * 1e-3 / 1.25},
                   {"data/kv_curves.tsv", 1, 5, 4096 * 128 / 12.8 * 1e-3 / 0.8},
                   {"data/kv_allocators.tsv", 1, 3, 1e5 / 175},
                   {"data/kv_allocators.tsv", 1, 4, 1e5 / (175 * 1.02)},
                   {"data/kv_allocators.tsv", 4, 3, 1e5 / 137.5},
                   {"data/kv_concurrency.tsv", 1, 2, 10},
                   {"data/kv_concurrency.tsv", 1, 3, 1000},
                   {"data/kv_concurrency.tsv", 2, 3, 1e5 / 150},
                   {"data/kv_study.tsv", 1, 3, 12},
                   {"data/claims.tsv", 1, 4, 1.5}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const double got = strtod(field(numbers[i].name, numbers[i].line, numbers[i].column), NULL);
        /* a few roundings of doubles, and 15 digits in the tables of rows */
        if (!(fabs(got - numbers[i].want) <= 1e-12 * fabs(numbers[i].want)))
            fail_msg("%s, line %zu, column %zu: expected %.17g, got %.17g", numbers[i].name, numbers[i].line,
                     numbers[i].column, numbers[i].want, got);
    }
    assert_string_equal(field("data/kv_heatmap.tsv", 4, 1), "token");
    assert_string_equal(field("data/kv_heatmap.tsv", 4, 9), "slower");
    assert_string_equal(field("data/kv_heatmap.tsv", 1, 9), "base");
    assert_string_equal(field("data/kv_heatmap.tsv", 15, 1), "paged:64");
    assert_string_equal(field("data/kv_study.tsv", 0, 2), "key");
    assert_string_equal(field("data/claims.tsv", 3, 9), "no difference");
    holds(file("data/kv_study.tsv"), "fork paged");
    /* pool at 10 and 100 requests: pages are behind at 10 and ahead at 100, with intervals apart */
    holds(file("report.md"), "Pages against the pool, where intervals are apart: ahead at 100, behind at 10 requests.");
}

static void pictures_are_drawn(void **state) {
    (void)state;
    if (!have_gnuplot()) hr_skip("gnuplot is not installed (gnuplot-nox)");
    static const char *const names[] = {"plots/kv_heatmap.svg", "plots/kv_curves.svg", "plots/kv_allocators.svg",
                                        "plots/kv_concurrency.svg"};
    fill(usual_rows(), NULL);
    ok(report());
    for (size_t i = 0; i < 4; i++) holds(file(names[i]), "</svg>");
    holds(file("plots/kv_heatmap.svg"), "no difference");
    holds(file("plots/kv_curves.svg"), "paged:16");
    holds(file("index.html"), "<figure id=\"kv_heatmap\">");
}

/* Some panels of the curves are empty; one row alone has no curve. */
static void parts_of_a_study_are_drawn(void **state) {
    (void)state;
    if (!have_gnuplot()) hr_skip("gnuplot is not installed (gnuplot-nox)");
    json_t *only_pages = json_array(), *only_warm = json_array(), *one = json_array();
    for (int context = 64; context <= 128; context *= 2) {
        json_array_append_new(only_pages, attention("paged", 16, context, "cold", 5, 1.2, "slower"));
        json_array_append_new(only_warm, attention("token", 0, context, "warm", 5, 1.2, "slower"));
        json_array_append_new(only_warm, attention("head", 0, context, "cold", 5, 0, NULL));
    }
    json_array_append_new(one, attention("token", 0, 64, "cold", 5, 1.2, "slower"));
    fill(only_pages, NULL);
    ok(report());
    holds(file("plots/kv_curves.svg"), "paged:16");
    assert_int_equal(remove(path), 0);
    fill(only_warm, NULL);
    ok(report());
    holds(file("plots/kv_curves.svg"), "token");
    assert_int_equal(remove(path), 0);
    fill(one, NULL);
    ok(report());
    assert_false(there("plots/kv_curves.svg"));
    holds(file("plots/kv_heatmap.svg"), "1.20");
    holds(file("report.md"), "the layouts were read at one context alone");
}

/* ---- what is missing -------------------------------------------------------------------------------------------- */

static void without_rows_the_commands_are_named(void **state) {
    (void)state;
    fill_usual();
    report_without_pictures();
    const char *page = file("report.md");
    lacks(page, "## KV cache");
    holds(page, "“headroom kv study --quick” does so");
    holds(page, "“headroom claims --quick” does so");
    const char *first = strstr(page, "headroom kv study");
    assert_null(strstr(first + 1, "headroom kv study")); /* once, not for each picture */
    assert_false(there("data/kv_study.tsv"));
    assert_false(there("data/claims.tsv"));
}

static void claims_alone_are_a_report(void **state) {
    (void)state;
    fill(NULL, usual_claims());
    report_without_pictures();
    holds(file("report.md"), "this report holds published claims");
    holds(file("report.md"), "### Published claims, tested here");
    holds(file("report.md"), "“headroom kv study --quick” does so");
    assert_int_equal(remove(path), 0);
    fill(NULL, NULL);
    fails(report(), HR_ERR_INPUT, "is one of `headroom kv study` and holds no cells");
}

static void rows_with_nothing_in_them(void **state) {
    (void)state;
    static const char *const rows[] = {
        "{\"part\": \"layouts\", \"name\": \"\", \"key\": \"a\"}",
        "{\"part\": \"layouts\", \"name\": \"token\", \"key\": \"b\", \"op\": \"decode\", \"state\": \"cold\", "
        "\"context\": 5,"
        "\"vs_head\": {\"median\": null, \"verdict\": null}, \"median\": null, \"bytes_needed\": null}",
        "{\"part\": \"layouts\", \"name\": \"head\", \"key\": \"b2\", \"op\": \"decode\", \"state\": \"cold\", "
        "\"context\": 5,"
        "\"vs_head\": null, \"median\": null}",
        "{\"part\": \"layouts\", \"name\": \"zorder\", \"key\": \"b3\", \"op\": \"decode\", \"state\": \"cold\", "
        "\"context\": 7,"
        "\"vs_head\": {\"median\": 1.25}}",
        "{\"part\": \"operations\", \"name\": \"token\", \"key\": \"c\", \"vs_head\": [], \"predicted\": {}, "
        "\"counted\": 3}",
        "{\"part\": \"dtypes\", \"name\": \"bf16\", \"key\": \"d\", \"ppl\": null, \"ppl_reason\": \"no <text>\"}",
        "{\"part\": \"dtypes\", \"name\": \"q8_0\", \"key\": \"e\", \"ppl\": [{}, {\"ctx\": 512, \"ppl\": null}, 4]}",
        "{\"part\": \"allocators\", \"name\": \"pool\", \"key\": \"f\"}",
        "{\"part\": \"allocators\", \"name\": \"paged\", \"key\": \"g\", \"budget_pct\": 50, \"concurrency\": 100}",
        "{\"part\": \"unheard-of\", \"name\": \"x\", \"key\": \"h\"}"};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) json_array_append_new(list, parse(rows[i]));
    fill(list, json_pack("[{s:s}]", "id", "bare"));
    if (have_gnuplot())
        ok(report());
    else
        report_without_pictures();
    static const char *const bad[] = {"nan", "NaN", ">inf", "null", "(null)", "unheard"};
    const char *page = strstr(file("report.md"), "## KV cache");
    assert_non_null(page);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) lacks(page, bad[i]);
    holds(page, "no &lt;text>");
    holds(page, "| bare |");
    holds(page, "unnamed");
    /* each of them alone */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(remove(path), 0);
        fill(json_pack("[o]", parse(rows[i])), NULL);
        hide_gnuplot();
        const hr_status got = report();
        show_gnuplot();
        if (i + 1 < sizeof rows / sizeof *rows)
            ok(got);
        else
            assert_int_equal(got, HR_ERR_INPUT);
    }
}

static void names_cannot_break_out(void **state) {
    (void)state;
    static const char hostile[] = "a'\",|<script>alert(1)</script>`$(id)\n\t{b}_^@#\\n%s%n";
    json_t *rows = usual_rows(), *claims = usual_claims(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        static const char *const keys[] = {"op", "model", "distribution", "counters", "ppl_reason", "kernel", "state"};
        const bool head = !strcmp(hr_word(row, "name"), "head");
        if (!head && i % 2) json_object_set_new(row, "name", json_string(hostile));
        for (size_t k = 1; k < 6; k++) json_object_set_new(row, keys[k], json_string(hostile));
        json_t *versus_head = json_object_get(row, "vs_head");
        if (i % 3 == 0 && json_is_object(versus_head))
            json_object_set_new(versus_head, "verdict", json_string(hostile));
        if (i % 5 == 0) json_object_set_new(row, keys[6], json_string(hostile));
        if (i % 7 == 0) json_object_set_new(row, keys[0], json_string(hostile));
    }
    json_array_foreach(claims, i, row) {
        static const char *const keys[] = {"claim", "published", "unit", "verdict", "reason", "how"};
        for (size_t k = 0; k < 6; k++) json_object_set_new(row, keys[k], json_string(hostile));
    }
    fill(rows, claims);
    if (have_gnuplot())
        ok(report());
    else
        report_without_pictures();
    lacks(file("index.html"), "<script");
    lacks(file("report.md"), "<script");
    holds(file("index.html"), "&lt;script&gt;");
    /* a row of a table is a line, whatever its words are */
    static const struct {
        const char *name;
        size_t rows;
    } tables[] = {{"data/kv_study.tsv", 42}, {"data/claims.tsv", 5}};
    for (size_t t = 0; t < 2; t++) {
        size_t lines = 0, tabs = 0, tabs_first = 0;
        for (const char *c = file(tables[t].name); *c; c++) {
            tabs += *c == '\t';
            if (*c != '\n') continue;
            if (!lines++) tabs_first = tabs;
            assert_int_equal(tabs, tabs_first);
            tabs = 0;
        }
        assert_int_equal(lines, tables[t].rows);
    }
}

static void long_names_are_cut_between_characters(void **state) {
    (void)state;
    char name[400] = "";
    for (int i = 0; i < 90; i++) strcat(name, i % 2 ? "\u20ac" : "\U0001F600"); /* 3 and 4 bytes */
    json_t *rows = usual_rows(), *claims = usual_claims(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        if (i % 2) json_object_set_new(row, "name", json_string(name + (i % 4 == 1 ? 4 : 0)));
        json_object_set_new(row, "model", json_string(name));
        json_object_set_new(row, "distribution", json_string(name));
        json_object_set_new(row, "type_k", json_string(name));
    }
    json_array_foreach(claims, i, row) json_object_set_new(row, "id", json_string(name + 4 * (i % 2)));
    fill(rows, claims);
    report_without_pictures();
    static const char *const names[] = {"index.html",
                                        "report.md",
                                        "data/kv_heatmap.tsv",
                                        "plots/kv_heatmap.gp",
                                        "data/kv_allocators.tsv",
                                        "plots/kv_allocators.gp"};
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *as_text = json_string(file(names[i])); /* jansson takes valid UTF-8 alone */
        if (!as_text) fail_msg("%s is not UTF-8", names[i]);
        json_decref(as_text);
    }
}

/* ---- which rows count ------------------------------------------------------------------------------------------- */

static void newest_row_of_a_key_counts(void **state) {
    (void)state;
    fill(json_pack("[o, o]", attention("head", 0, 64, "cold", 5, 0, NULL),
                   attention("token", 0, 64, "cold", 5, 2, "slower")),
         json_pack("[o]", claim("c", "holds", 3)));
    fill(json_pack("[o]", attention("token", 0, 64, "cold", 5, 1, "no difference")),
         json_pack("[o]", claim("c", "does not hold", 0.5)));
    report_without_pictures();
    holds(file("report.md"), "1.00 (0.99–1.01) =");
    lacks(file("report.md"), "2.00 (1.98–2.02)");
    holds(file("report.md"), "1 older row of the same points is left out.");
    holds(file("report.md"), "1 claim: 0 hold, 1 do not hold");
}

static void rows_of_another_machine_are_named(void **state) {
    (void)state;
    fill_of("xeon-64c", usual_rows(), NULL);
    fill_usual();
    report_without_pictures();
    lacks(file("report.md"), "## KV cache");
    holds(file("report.md"), "the store has rows of another machine alone, xeon-64c (run ");
    fill(json_pack("[o]", attention("head", 0, 64, "cold", 5, 0, NULL)), NULL);
    report_without_pictures();
    holds(file("report.md"), "all on this machine class (epyc-2c-24g)");
    lacks(file("report.md"), "xeon-64c");
}

static void simulated_rows_are_refused(void **state) {
    (void)state;
    json_t *row = attention("head", 0, 64, "cold", 5, 0, NULL);
    json_object_set_new(row, "flags", parse("[\"simulated\"]"));
    fill(json_pack("[o]", row), NULL);
    hide_gnuplot();
    fails(report(), HR_ERR_INPUT, "--allow-simulated");
    ok(report_of(NULL, 0, true));
    show_gnuplot();
}

static void a_report_without_rows_leaves_none_of_an_older_one(void **state) {
    (void)state;
    fill(usual_rows(), usual_claims());
    report_without_pictures();
    assert_true(there("data/kv_study.tsv") && there("data/claims.tsv") && there("plots/kv_heatmap.gp"));
    fill_usual();
    static const char *const runs[] = {"last"};
    hide_gnuplot();
    ok(report_of(runs, 1, false));
    show_gnuplot();
    assert_false(there("data/kv_study.tsv") || there("data/claims.tsv") || there("plots/kv_heatmap.gp"));
}

/* Each allocation and each write fails in turn. */
static void report_is_whole_or_absent(void **state) {
    (void)state;
    fill(usual_rows(), usual_claims());
    hide_gnuplot();
    for (int kind = 0; kind < HR_FAULT_COUNT; kind++) {
        if (kind == HR_FAULT_READ) continue;
        hr_store *store = open_store(false);
        for (uint64_t n = 1;; n++) {
            hr_fault_arm((hr_fault)kind, n);
            json_t *p = NULL, *t = NULL;
            const hr_status status = hr_report_write(store, &(hr_report_options){.out_dir = out_dir}, &p, &t);
            hr_fault_arm((hr_fault)kind, 0);
            json_decref(p), json_decref(t);
            if (status == HR_OK) break;
            if (there("index.html") || there("data"))
                fail_msg("fault %d at %llu left something", kind, (unsigned long long)n);
            if (n > 5000) fail_msg("fault %d does not end", kind);
        }
        char command[400];
        snprintf(command, sizeof command, "/bin/rm -r '%s'", out_dir);
        assert_int_equal(system(command), 0);
        hr_store_close(store);
    }
    show_gnuplot();
}

int main(void) {
#define R(f) cmocka_unit_test_setup_teardown(f, setup_report, teardown_report)
    const struct CMUnitTest tests[] = {
        R(section_holds_every_part),   R(advice_is_of_the_study),
        R(data_are_the_rows),          R(pictures_are_drawn),
        R(parts_of_a_study_are_drawn), R(without_rows_the_commands_are_named),
        R(claims_alone_are_a_report),  R(rows_with_nothing_in_them),
        R(names_cannot_break_out),     R(long_names_are_cut_between_characters),
        R(newest_row_of_a_key_counts), R(rows_of_another_machine_are_named),
        R(simulated_rows_are_refused), R(a_report_without_rows_leaves_none_of_an_older_one),
        R(report_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
