/* Cells over nights: which series there are, where they change, how the page and the line of a curve look. */
#include "tests/store_fixture.h"

#include "harness/formats/json_get.h"
#include "harness/history/history.h"

/* ---- made-up nights ----------------------------------------------------------------------------------------------------- */

typedef struct night {
    int day;                                         /* from 2026-01-01 on */
    const char *command, *machine, *commit;          /* NULL: sweep, zen, "c" and the day */
    const char *cell, *test, *model, *state, *stop;  /* NULL: c1, tg8, m, near, converged */
    const char *status, *flags, *test_time, *metric; /* NULL: ok, none, none, roof_fraction */
    double value;                                    /* 0: null */
} night;

static const char *either(const char *given, const char *usual) {
    return given ? given : usual;
}

static char *begin_night(hr_store *store, const night *n) {
    char commit[20], started[40];
    char *id = NULL;
    const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int month = 0, day = n->day;
    while (day >= days[month]) day -= days[month++];
    snprintf(commit, sizeof commit, "c%03d", n->day);
    snprintf(started, sizeof started, "2026-%02d-%02dT03:00:00Z", month + 1, day + 1);
    json_t *run = json_pack("{s:s, s:s, s:s, s:{}}", "command", either(n->command, "sweep"), "started", started,
                            "build_commit", either(n->commit, commit), "args");
    json_t *machine = json_pack("{s:s}", "machine_class", either(n->machine, "zen"));
    if (n->commit && !*n->commit) json_object_del(run, "build_commit");
    ok(hr_store_begin_run(store, run, machine, &id));
    json_decref(run), json_decref(machine);
    return id;
}

static void put_cell_of(hr_store *store, const char *run_id, const night *n) {
    json_t *cell = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "cell_id", either(n->cell, "c1"), "test",
                             either(n->test, "tg8"), "model_filename", either(n->model, "m"), "quant", "int8", "status",
                             either(n->status, "ok"), "stop_reason", either(n->stop, "converged"));
    const char *metric = either(n->metric, "roof_fraction"), *state = either(n->state, "near");
    if (*state) json_object_set_new(cell, "state_class", json_string(state));
    if (n->flags) json_object_set_new(cell, "flags", json_pack("[s]", n->flags));
    if (n->test_time) json_object_set_new(cell, "test_time", json_string(n->test_time));
    if (n->value != 0) {
        const bool time = strstr(metric, "_ms") != NULL;
        json_object_set_new(cell, metric, time ? json_pack("{s:f}", "p50", n->value) : json_real(n->value));
    }
    ok(hr_store_put_cell(store, run_id, cell, NULL, NULL));
    json_decref(cell);
}

static void put_night(hr_store *store, night n) {
    char *id = begin_night(store, &n);
    put_cell_of(store, id, &n);
    hr_free(id);
}

/* Small noise that repeats itself after 7 nights. */
static double noisy(double level, int i) {
    return level * (1 + 0.001 * (i * 3 % 7 - 3));
}

static json_t *history; /* of the last call */

static hr_status look_as(hr_store *store, hr_history_options o) {
    if (o.rule.window == 0) o.rule = hr_changes_rule_default();
    json_decref(history);
    history = NULL;
    return hr_history(store, &o, &history);
}
#define look(store, ...) ok(look_as(store, (hr_history_options){__VA_ARGS__}))

static json_t *series(size_t i) {
    return json_array_get(history, i);
}
static json_t *points(size_t i) {
    return json_object_get(series(i), "points");
}
static json_t *changes(size_t i) {
    return json_object_get(series(i), "change_points");
}
static void n_are(const json_t *list, size_t want, int line) {
    if (json_array_size(list) == want) return;
    char *text = json_dumps(history, JSON_INDENT(1));
    print_error("line %d: expected %zu, got %zu in\n%.4000s\n", line, want, json_array_size(list), text);
    free(text);
    _fail(__FILE__, line);
}
#define n_are(list, want) n_are(list, want, __LINE__)
#define near(got, want, tolerance)                                                           \
    do {                                                                                     \
        if (!(fabs((got) - (want)) <= (tolerance)))                                          \
            fail_msg("expected %.9g, got %.9g, tolerance %.3g", (want), (got), (tolerance)); \
    } while (0)

static int teardown_history(void **state) {
    json_decref(history);
    history = NULL;
    return teardown(state);
}

/* ---- changes ------------------------------------------------------------------------------------------------------------ */

static void test_step(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 40; i++) put_night(s, (night){.day = i, .value = noisy(i < 22 ? 0.8 : 0.76, i)});
    look(s, .cell = NULL);
    n_are(history, 1);
    n_are(points(0), 40);
    n_are(changes(0), 1);
    const json_t *change = json_array_get(changes(0), 0), *first = json_array_get(points(0), 22);
    assert_string_equal(hr_word(change, "commits"), "c021..c022");
    assert_string_equal(hr_word(change, "run_id"), hr_word(first, "run_id"));
    assert_string_equal(hr_word(change, "time"), "2026-01-23T03:00:00Z");
    assert_true(json_is_true(json_object_get(change, "settled")));
    near(hr_num(change, "nights"), 18., 0);
    near(hr_num(change, "from"), 0.8, 1e-9); /* the noise is symmetric, and a week of it is in each half */
    near(hr_num(change, "to"), 0.76, 1e-3);
    near(hr_num(change, "shift_pct"), 100 * (hr_num(change, "to") / hr_num(change, "from") - 1), 1e-9);
    assert_string_equal(hr_word(first, "commit"), "c022");
    near(hr_num(first, "median"), noisy(0.76, 22), 1e-12);
    assert_string_equal(hr_word(series(0), "cell_id"), "c1");
    assert_string_equal(hr_word(series(0), "metric"), "roof_fraction");
    assert_string_equal(hr_word(series(0), "machine_class"), "zen");
    assert_string_equal(hr_word(series(0), "state_class"), "near");
    assert_string_equal(hr_word(series(0), "title"), "m int8, tg8");
    hr_changes_rule rule = hr_changes_rule_default();
    rule.magnitude = 0.06;
    look(s, .rule = rule);
    n_are(changes(0), 0);
    hr_store_close(s);
}

static void test_quiet_and_spikes(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 40; i++) {
        put_night(s, (night){.day = i, .cell = "c1", .value = 0.8});
        put_night(s, (night){.day = i, .cell = "c2", .value = i == 20 || i == 39 ? 0.5 : noisy(0.8, i)});
    }
    look(s, .cell = NULL);
    n_are(history, 2);
    n_are(changes(0), 0);
    n_are(changes(1), 0);
    hr_store_close(s);
}

static void test_stayed_for_k_nights(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 36; i++) put_night(s, (night){.day = i, .value = noisy(i < 30 ? 0.8 : 0.7, i)});
    look(s, .cell = NULL);
    n_are(changes(0), 1);
    const json_t *change = json_array_get(changes(0), 0);
    assert_true(json_is_false(json_object_get(change, "settled")));
    near(hr_num(change, "nights"), 6., 0);
    near(hr_num(change, "to"), 0.7, 1e-3);
    assert_string_equal(hr_word(change, "commits"), "c029..c030");
    hr_changes_rule rule = hr_changes_rule_default();
    rule.stayed = 0;
    look(s, .rule = rule);
    n_are(changes(0), 0);
    rule.stayed = 7;
    look(s, .rule = rule);
    n_are(changes(0), 0);
    hr_store_close(s);
}

/* ---- which nights make a series ------------------------------------------------------------------------------------------ */

static void test_pool_of_machines(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 60; i++) {
        const bool zen = i % 2 == 0;
        put_night(s, (night){.day = i,
                             .machine = zen ? "zen" : "xeon",
                             .value = noisy(zen ? (i < 30 ? 0.8 : 0.7) : 0.5, i / 2)});
    }
    look(s, .cell = NULL);
    n_are(history, 2);
    assert_string_equal(hr_word(series(0), "machine_class"), "zen"); /* changed, so it comes first */
    n_are(points(0), 30);
    n_are(changes(0), 1);
    assert_string_equal(hr_word(json_array_get(changes(0), 0), "commits"), "c028..c030");
    n_are(changes(1), 0);
    look(s, .machine_class = "xeon");
    n_are(history, 1);
    assert_string_equal(hr_word(series(0), "machine_class"), "xeon");
    fails(look_as(s, (hr_history_options){.machine_class = "xe"}), HR_ERR_INPUT, "machine class xe");
    hr_store_close(s);
}

static void test_states_stay_apart(void **state) {
    (void)state;
    static const char *const states[] = {"near", "far", "mixed", ""};
    hr_store *s = open_store(true);
    for (int i = 0; i < 48; i++)
        put_night(s, (night){.day = i, .state = states[i % 4], .value = i % 4 == 1 ? 0.9 : i < 24 ? 0.8 : 0.6});
    look(s, .cell = NULL);
    n_are(history, 4);
    for (size_t i = 0; i < 4; i++) {
        n_are(points(i), 12);
        n_are(changes(i), 0); /* six a side are too few, and in mixed ones no change is sought */
    }
    for (int i = 48; i < 130; i++)
        put_night(s, (night){.day = i, .state = states[i % 4], .value = i % 4 == 1 ? 0.9 : i < 88 ? 0.8 : 0.6});
    look(s, .cell = NULL);
    n_are(history, 4);
    size_t n_changed = 0;
    for (size_t i = 0; i < 4; i++) {
        const char *class = hr_word(series(i), "state_class");
        const bool may = !strcmp(class, "near") || !*class;
        if (!may) n_are(changes(i), 0);
        n_changed += json_array_size(changes(i)) > 0;
    }
    assert_int_equal(n_changed, 2);
    assert_true(json_is_null(json_object_get(series(1), "state_class")) ||
                json_is_null(json_object_get(series(0), "state_class")));
    hr_store_close(s);
}

static void test_lost_nights(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 40; i++) {
        night n = {.day = i, .value = noisy(i < 20 ? 0.8 : 0.7, i)};
        if (i % 10 == 3) n.value = 0;                                                              /* not measurable */
        if (i % 10 == 5) n = (night){.day = i, .status = "failed", .state = "", .stop = "failed"}; /* state unknown */
        if (i % 10 == 7) n.value = 0.1, n.stop = "throttled";
        if (i % 10 == 8) n.status = "skipped";
        if (i % 10 == 9) n.value = 3, n.flags = "simulated";
        put_night(s, n);
    }
    look(s, .cell = NULL);
    n_are(history, 1);
    n_are(points(0), 32); /* without skipped and simulated ones */
    n_are(changes(0), 1);
    const json_t *change = json_array_get(changes(0), 0);
    assert_string_equal(hr_word(change, "commits"), "c016..c020");
    near(hr_num(change, "nights"), 10., 0);
    size_t i, n_null = 0, n_failed = 0, n_throttled = 0;
    json_t *point;
    json_array_foreach(points(0), i, point) {
        n_null += json_is_null(json_object_get(point, "median"));
        n_failed += !strcmp(hr_word(point, "status"), "failed");
        n_throttled += !strcmp(hr_word(point, "stop_reason"), "throttled");
    }
    assert_int_equal(n_null, 8);
    assert_int_equal(n_failed, 4);
    assert_int_equal(n_throttled, 4);
    hr_store_close(s);
}

static void test_one_night_and_none(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    fails(look_as(s, (hr_history_options){0}), HR_ERR_INPUT, "headroom sweep");
    put_night(s, (night){.day = 0, .status = "failed"});
    fails(look_as(s, (hr_history_options){0}), HR_ERR_INPUT, "headroom sweep"); /* never a value: no series */
    put_night(s, (night){.day = 1, .value = 0.8});
    look(s, .cell = NULL);
    n_are(history, 1);
    n_are(points(0), 2);
    n_are(changes(0), 0);
    look(s, .cell = "tg8");
    n_are(history, 1);
    look(s, .cell = "c");
    n_are(history, 1);
    fails(look_as(s, (hr_history_options){.cell = "c1x"}), HR_ERR_INPUT, "c1x");
    fails(look_as(s, (hr_history_options){.metric = "mfu"}), HR_ERR_INPUT, "mfu");
    hr_store_close(s);
}

static void test_imported_nights_lie_where_they_were_measured(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 20; i < 30; i++) put_night(s, (night){.day = i, .value = 0.8});
    for (int i = 0; i < 10; i++) { /* stored last, measured first, in another zone */
        char time[40];
        snprintf(time, sizeof time, "2025-11-%02dT05:00:00+02:00", i + 1);
        put_night(s,
                  (night){.day = 60, .command = "import", .commit = i ? "" : "old", .test_time = time, .value = 0.9});
    }
    put_night(s, (night){.day = 61, .command = "import", .test_time = "yesterday", .value = 0.8});
    look(s, .cell = NULL);
    n_are(points(0), 21);
    assert_string_equal(hr_word(json_array_get(points(0), 0), "time"), "2025-11-01T05:00:00+02:00");
    assert_string_equal(hr_word(json_array_get(points(0), 20), "time"), "2026-03-03T03:00:00Z");
    n_are(changes(0), 1);
    assert_string_equal(hr_word(json_array_get(changes(0), 0), "commits"), "?..c020");
    hr_store_close(s);
}

/* ---- metrics --------------------------------------------------------------------------------------------------------------- */

static void test_metrics(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    put_night(s, (night){.cell = "c1", .test = "pp8", .metric = "ttft_prefill_ms", .value = 5});
    put_night(s, (night){.cell = "c2", .test = "isl8 osl4", .metric = "ttft_prefill_ms", .value = 6});
    put_night(s, (night){.cell = "c3", .test = "tg8", .metric = "tpot_excl_first_ms", .value = 7});
    put_night(s, (night){.cell = "c4", .test = "isl8 osl4", .metric = "tpot_excl_first_ms", .value = 8});
    put_night(s, (night){.cell = "c5", .test = "pp8+tg8", .metric = "tpot_excl_first_ms", .value = 9});
    put_night(s, (night){.cell = "c6", .test = "pp8+tg8", .metric = "prefill_roof_fraction", .value = 0.5});
    for (size_t i = 0; hr_history_metrics[i]; i++) { /* each is understood */
        const char *name = hr_history_metrics[i];
        const hr_status got = look_as(s, (hr_history_options){.metric = name});
        if (got != HR_OK) fails(got, HR_ERR_INPUT, "no cell of the store");
        const bool share = strstr("roof_fraction prefill_roof_fraction mbu mfu prefill_mfu", name) != NULL;
        assert_int_equal(hr_history_is_share(name), share);
    }
    look(s, .metric = "pp");
    n_are(history, 1);
    assert_string_equal(hr_word(series(0), "cell_id"), "c1");
    assert_string_equal(hr_word(series(0), "metric"), "ttft_prefill_ms");
    look(s, .metric = "ttft_prefill_ms");
    n_are(history, 1);
    look(s, .metric = "tg");
    n_are(history, 2);
    look(s, .metric = "tpot");
    n_are(history, 3);
    look(s, .cell = NULL);
    n_are(history, 1);
    assert_string_equal(hr_word(series(0), "metric"), "prefill_roof_fraction");
    static const char *const hostile[] = {
        "", "roof_fraction FROM cell; DROP TABLE run; --", "json", "ttft_ms_p50", "a\nb", "%s%n", "Roof_Fraction"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        double spread;
        size_t nights;
        fails(look_as(s, (hr_history_options){.metric = hostile[i]}), HR_ERR_INPUT, "no such metric");
        fails(hr_history_spread(s, "c1", "zen", hostile[i], &spread, &nights), HR_ERR_INPUT, "no such metric");
        assert_false(hr_history_is_share(hostile[i]));
    }
    fails(look_as(s, (hr_history_options){.cell = "x' OR '1'='1"}), HR_ERR_INPUT, "OR '1'='1");
    assert_string_equal(ask(s, "SELECT count(*) FROM run"), "6");
    hr_store_close(s);
}

static void test_newest_change_first(void **state) {
    (void)state;
    static const char *const cells[] = {"c1", "c2", "c3"};
    const int at[] = {15, 25, 99};
    hr_store *s = open_store(true);
    for (int i = 0; i < 40; i++) {
        night n = {.day = i};
        char *id = begin_night(s, &n);
        for (int k = 0; k < 3; k++) {
            n.cell = cells[k], n.value = i < at[k] ? 0.8 : 0.7;
            put_cell_of(s, id, &n);
        }
        hr_free(id);
    }
    look(s, .cell = NULL);
    n_are(history, 3);
    assert_string_equal(hr_word(series(0), "cell_id"), "c2");
    assert_string_equal(hr_word(series(1), "cell_id"), "c1");
    assert_string_equal(hr_word(series(2), "cell_id"), "c3");
    hr_store_close(s);
}

static void test_old_store(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    put_night(s, (night){.value = 0.8});
    hr_store_close(s);
    make_older(1);
    s = open_store(false);
    look(s, .cell = NULL);
    n_are(points(0), 1);
    hr_store_close(s);
}

static void test_out_of_memory(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    for (int i = 0; i < 30; i++) put_night(s, (night){.day = i, .value = i < 15 ? 0.8 : 0.7});
    look(s, .cell = NULL);
    const uint64_t before = hr_fault_calls(HR_FAULT_ALLOC);
    look(s, .cell = NULL);
    const uint64_t calls = hr_fault_calls(HR_FAULT_ALLOC) - before;
    assert_true(calls > 0);
    for (uint64_t nth = 1; nth <= calls; nth++) {
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        fails(look_as(s, (hr_history_options){0}), HR_ERR_MEMORY, "out of memory");
        hr_fault_arm(HR_FAULT_ALLOC, 0);
    }
    look(s, .cell = NULL);
    n_are(changes(0), 1);
    hr_store_close(s);
}

/* ---- how far nights differ ------------------------------------------------------------------------------------------------- */

static void test_spread(void **state) {
    (void)state;
    hr_store *s = open_store(true);
    double spread = 0;
    size_t nights = 9;
    ok(hr_history_spread(s, "c1", "zen", "roof_fraction", &spread, &nights));
    assert_int_equal(nights, 0);
    assert_true(isnan(spread));
    /* 12 nights at 0.5, then 100 97 103 98 102 and so on: deviations 0 3 3 2 2 of 100, the median is 2 */
    static const double ring[] = {1, 0.97, 1.03, 0.98, 1.02};
    for (int i = 0; i < 12; i++) put_night(s, (night){.day = i, .value = 0.5});
    for (int i = 12; i < 27; i++) put_night(s, (night){.day = i, .value = ring[i % 5]});
    put_night(s, (night){.day = 27, .machine = "xeon", .value = 9});
    put_night(s, (night){.day = 28, .state = "mixed", .value = 9});
    put_night(s, (night){.day = 29, .stop = "throttled", .value = 9});
    put_night(s, (night){.day = 30, .cell = "c12", .value = 9}); /* begins alike */
    put_night(s, (night){.day = 31, .value = 0});
    ok(hr_history_spread(s, "c1", "zen", "roof_fraction", &spread, &nights));
    assert_int_equal(nights, 15);
    near(spread, 1.4826 * 0.02, 1e-12);
    for (int i = 32; i < 92; i++) put_night(s, (night){.day = i, .value = 1});
    ok(hr_history_spread(s, "c1", "zen", "roof_fraction", &spread, &nights));
    assert_int_equal(nights, 50);
    near(spread, 0., 0);
    hr_store_close(s);
}

/* ---- the line of a curve ------------------------------------------------------------------------------------------------------ */

static void line_is(const double *values, size_t n, size_t width, bool ascii, const char *want) {
    char *got = hr_sparkline(values, n, width, ascii);
    assert_non_null(got);
    assert_string_equal(got, want);
    hr_free(got);
}

static void test_sparkline(void **state) {
    (void)state;
    const double up[] = {1, 2, 3, 4, 5, 6, 7, 8}, flat[] = {3, 3, 3}, noise[] = {100, 101, 99.5},
                 gaps[] = {1, NAN, 2, INFINITY}, none[] = {NAN, NAN}, zero[] = {0, 0}, below[] = {-2, -1};
    line_is(up, 8, 8, false, "▁▂▃▄▅▆▇█");
    line_is(up, 8, 8, true, "_.-:=+*#");
    line_is(up, 8, 100, true, "_.-:=+*#");
    line_is(up, 8, 4, true, "_-+#"); /* medians of neighbours: 1.5 3.5 5.5 7.5 */
    line_is(up, 8, 1, true, "=");
    line_is(up, 8, 0, true, "");
    line_is(up, 0, 8, false, "");
    line_is(flat, 3, 8, true, "===");
    line_is(noise, 3, 8, true, ":+-"); /* the heights span 5 % at least */
    line_is(gaps, 4, 8, false, "▁ █ ");
    line_is(none, 2, 8, true, "  ");
    line_is(zero, 2, 8, true, "==");
    line_is(below, 2, 8, true, "_#");
    hr_fault_arm(HR_FAULT_ALLOC, 2);
    assert_null(hr_sparkline(up, 8, 8, true));
}

/* ---- the page ------------------------------------------------------------------------------------------------------------------ */

static char page[1 << 20], page_path[300];

static const char *read_page(void) {
    page[read_file(page_path, page, sizeof page - 1)] = 0;
    return page;
}

/* Each tag is closed in order, attributes are quoted, no bare '<' or '&' stands in the text. */
static void assert_well_formed(const char *html) {
    static const char *const alone[] = {"!DOCTYPE", "meta", "br", "hr", "?xml"};
    static char open[256][32];
    size_t depth = 0;
    for (const char *c = html; *c; c++) {
        if (*c == '&') {
            const size_t n = strspn(c + 1, "abcdefghijklmnopqrstuvwxyz#0123456789");
            if (!n || c[n + 1] != ';') fail_msg("a bare '&' at %.60s", c);
        }
        if (*c != '<') continue;
        if (!strncmp(c, "<!--", 4)) {
            c = strstr(c, "-->");
            assert_non_null(c);
            continue;
        }
        const bool closes = c[1] == '/';
        char name[32] = "";
        const char *at = c + 1 + closes;
        size_t n = strcspn(at, " \t\n/>");
        assert_true(n > 0 && n < sizeof name);
        memcpy(name, at, n);
        char quote = 0;
        const char *begin = c;
        for (at += n; *at && (quote || *at != '>'); at++) {
            if (!quote && *at == '<') fail_msg("'<' within a tag at %.60s", begin);
            if (quote ? *at == quote : *at == '"' || *at == '\'') quote = quote ? 0 : *at;
        }
        if (!*at) fail_msg("a tag without an end at %.60s", begin);
        bool single = at[-1] == '/';
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) single |= !strcmp(name, alone[i]);
        if (closes) {
            if (!depth || strcmp(open[depth - 1], name))
                fail_msg("expected </%s>, got </%s> at %.60s", depth ? open[depth - 1] : "nothing", name, begin);
            depth--;
        } else if (!single) {
            assert_true(depth < 256);
            strcpy(open[depth++], name);
        }
        c = at;
        if (!strcmp(name, "style") && !closes) c = strstr(c, "</style>") - 1;
    }
    if (depth) fail_msg("<%s> is not closed", open[depth - 1]);
}

static void fill_page(hr_store *s, const char *model) {
    for (int i = 0; i < 40; i++) {
        put_night(s, (night){.day = i, .model = model, .value = noisy(i < 22 ? 0.8 : 0.76, i)});
        put_night(s, (night){.day = i, .cell = "c2", .test = "pp8", .value = noisy(i < 34 ? 0.5 : 0.6, i)});
        put_night(s, (night){.day = i, .cell = "c3", .test = "pp9", .value = i % 9 == 4 ? 0 : noisy(0.7, i)});
    }
    put_night(s, (night){.day = 41, .cell = "c4", .test = "pp10", .value = 0.3});
}

static void test_page(void **state) {
    (void)state;
    bool missing = true;
    snprintf(page_path, sizeof page_path, "%s/deep/history.html", folder);
    hr_store *s = open_store(true);
    fill_page(s, "a<script>alert('&x')</script>\"b|`*\t.gguf");
    hr_store_close(s);
    s = open_store(false);
    look(s, .cell = NULL);
    hr_store_close(s);
    n_are(history, 4);
    const size_t files = entries();
    char *saved = strdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    ok(hr_history_html(history, page_path, &missing));
    setenv("PATH", saved, 1);
    free(saved);
    assert_true(missing);
    assert_well_formed(read_page());
    assert_non_null(strstr(page, "Not drawn: gnuplot"));
    static const char *const words[] = {
        "4 curves, 2 changes",    "c021..c022", "c033..c034", "better, not settled", "+20.1", "-5.", "2026-01-23",
        "<td class=\"n\">18</td>"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(page, words[i])) fail_msg("\"%s\" is not in the page", words[i]);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "href=\"")); /* it stands alone */
    assert_int_equal(entries(), files + 2);
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        print_message("no gnuplot: the curves are not drawn here\n");
        return;
    }
    ok(hr_history_html(history, page_path, &missing));
    assert_false(missing);
    assert_well_formed(read_page());
    assert_non_null(strstr(page, "<svg role=\"img\""));
    assert_non_null(strstr(page, "worse from here"));
    assert_non_null(strstr(page, "-5."));
    assert_null(strstr(page, "<script"));
    assert_int_equal(entries(), files + 2);
    if (getenv("HR_HISTORY_PAGE")) write_file(getenv("HR_HISTORY_PAGE"), page, strlen(page)); /* to look at */
}

static void test_page_that_cannot_be_written(void **state) {
    (void)state;
    bool missing;
    hr_store *s = open_store(true);
    put_night(s, (night){.value = 0.8});
    look(s, .cell = NULL);
    hr_store_close(s);
    snprintf(page_path, sizeof page_path, "%s/file", folder);
    write_file(page_path, "x", 1);
    snprintf(page_path, sizeof page_path, "%s/file/history.html", folder);
    assert_int_equal(hr_history_html(history, page_path, &missing), HR_ERR_IO);
    assert_non_null(strstr(hr_error(), "file"));
}

int main(void) {
#define U(f) cmocka_unit_test_setup_teardown(f, setup, teardown_history)
    const struct CMUnitTest tests[] = {
        U(test_step),
        U(test_quiet_and_spikes),
        U(test_stayed_for_k_nights),
        U(test_pool_of_machines),
        U(test_states_stay_apart),
        U(test_lost_nights),
        U(test_one_night_and_none),
        U(test_imported_nights_lie_where_they_were_measured),
        U(test_metrics),
        U(test_newest_change_first),
        U(test_old_store),
        U(test_out_of_memory),
        U(test_spread),
        U(test_sparkline),
        U(test_page),
        U(test_page_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
