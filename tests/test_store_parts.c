/* The store: what belongs to a cell (samples, ops, recorded repetitions, ranges of a profiler), and the cost of observing. */
#include "tests/store_fixture.h"

typedef hr_status get_of_cell(hr_store *store, const char *run_id, const char *cell_id, json_t **out);

static void rows_are_(hr_store *store, get_of_cell *get, const char *run, const char *cell, const char *want_text,
                      int line) {
    json_t *got, *want = parse(want_text);
    ok_(get(store, run, cell, &got), "get", line);
    if (!json_equal(got, want)) {
        char *text = json_dumps(got, JSON_COMPACT | JSON_ENCODE_ANY);
        print_error("line %d: expected %s\ngot %s\n", line, want_text, text);
        _fail(__FILE__, line);
    }
    json_decref(got), json_decref(want);
}
#define rows_are(get, cell, want) rows_are_(store, get, run, cell, want, __LINE__)

/* Puts cell c1 with these parts, NULL for none. */
static hr_status put_parts(hr_store *store, const char *run, const char *samples, const char *ops,
                           const char *recorded) {
    json_t *cell = make_cell("c1"), *s = samples ? parse(samples) : NULL, *o = ops ? parse(ops) : NULL,
           *r = recorded ? parse(recorded) : NULL;
    const hr_cell_parts parts = {.samples = s, .ops = o, .recorded = r};
    const hr_status status = hr_store_put_cell_parts(store, run, cell, &parts);
    json_decref(cell), json_decref(s), json_decref(o), json_decref(r);
    return status;
}

static hr_status put_ranges(hr_store *store, const char *run, const char *cell, const char *source, const char *rows) {
    json_t *list = parse(rows);
    const hr_status status = hr_store_put_ranges(store, run, cell, source, list);
    json_decref(list);
    return status;
}

/* ---- parts of a cell ---- */

#define OP                                                                                                           \
    "[{\"phase\": \"decode\", \"layer\": 3, \"op\": \"down\", \"kernel\": \"k\", \"n\": 64, \"median_ns\": 1500.5, " \
    "\"bytes\": 4096.0, \"flops\": 8192.0, \"mean_ns\": 1600.25, \"imbalance_ns\": 40.5, \"handoff_ns\": 0.125, "    \
    "\"unit\": \"int8\"}]"
#define PREFILL                                                                                                       \
    "{\"i\": 0, \"phase\": \"prefill\", \"n\": 1, \"off_ns\": null, \"on_ns\": 2.5e9, \"op_ns\": 2.25e9, \"n_ops\": " \
    "310.0, \"n_jobs\": 280.5, \"probe_ns\": 9000.5}"
#define DECODE                                                                                               \
    "{\"i\": 0, \"phase\": \"decode\", \"n\": 63, \"off_ns\": 1.5e6, \"on_ns\": 1.75e6, \"op_ns\": 1.25e6, " \
    "\"n_ops\": "                                                                                            \
    "310.0, \"n_jobs\": 280.0, \"probe_ns\": 8000.5}"
#define SECOND                                                                                                         \
    "{\"i\": 1, \"phase\": \"decode\", \"n\": 63, \"off_ns\": 1.5e6, \"on_ns\": 1.5e6, \"op_ns\": 1.25e6, \"n_ops\": " \
    "310.0, \"n_jobs\": 280.0, \"probe_ns\": 8000.5}"

static void parts_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put_parts(store, run, "[{\"ns\": 9, \"flags\": null}, {\"ns\": 9007199254740993, \"flags\": \"throttled\"}]", OP,
                 "[" SECOND ", " DECODE ", " PREFILL "]"));
    hr_store_close(store);
    store = open_store(false);
    rows_are(
        hr_store_samples, "c1",
        "[{\"i\": 0, \"ns\": 9, \"flags\": null}, {\"i\": 1, \"ns\": 9007199254740993, \"flags\": \"throttled\"}]");
    rows_are(hr_store_ops, "c1", OP);
    rows_are(hr_store_recorded, "c1", "[" PREFILL ", " DECODE ", " SECOND "]"); /* in the order in which they ran */
    assert_string_equal(ask(store, "SELECT on_ns - off_ns FROM recorded WHERE i = 0 AND phase = 'decode'"), "250000.0");
    rows_are(hr_store_samples, "c2", "[]");
    rows_are(hr_store_ops, "c2", "[]");
    rows_are(hr_store_recorded, "c2", "[]");
    rows_are(hr_store_ranges, "c2", "[]");
    hr_store_close(store);
    hr_free(run);
}

static void a_cell_without_parts_has_none(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put_parts(store, run, NULL, NULL, NULL));
    rows_are(hr_store_samples, "c1", "[]");
    rows_are(hr_store_ops, "c1", "[]");
    rows_are(hr_store_recorded, "c1", "[]");
    ok(put_parts(store, run, NULL, "[{\"phase\": \"decode\", \"op\": \"qkv\"}]", NULL));
    rows_are(hr_store_ops, "c1",
             "[{\"phase\": \"decode\", \"layer\": null, \"op\": \"qkv\", \"kernel\": null, \"n\": null, \"median_ns\": "
             "null, \"bytes\": null, \"flops\": null, \"mean_ns\": null, \"imbalance_ns\": null, \"handoff_ns\": null, "
             "\"unit\": null}]");
    hr_store_close(store);
    hr_free(run);
}

static void a_cell_put_again_replaces_its_parts(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store), *other = begin(store);
    ok(put_parts(store, run, NULL, OP, "[" PREFILL ", " DECODE ", " SECOND "]"));
    ok(put_parts(store, other, NULL, OP, "[" PREFILL "]"));
    ok(put_ranges(store, run, "c1", "ncu", "[{\"name\": \"k\"}]"));
    ok(put_ranges(store, other, "c1", "ncu", "[{\"name\": \"k\"}]"));
    ok(put_parts(store, run, NULL, NULL, "[" DECODE "]"));
    rows_are(hr_store_ops, "c1", "[]");
    rows_are(hr_store_recorded, "c1", "[" DECODE "]");
    rows_are(hr_store_ranges, "c1", "[]"); /* they were of what was measured before */
    rows_are_(store, hr_store_recorded, other, "c1", "[" PREFILL "]", __LINE__);
    rows_are_(store, hr_store_ranges, other, "c1", "[{\"source\": \"ncu\", \"name\": \"k\"}]", __LINE__);
    ok(put(store, run, "c1")); /* the short form replaces just so */
    rows_are(hr_store_recorded, "c1", "[]");
    hr_store_close(store);
    hr_free(run), hr_free(other);
}

/* A part that cannot be stored leaves the cell as it was, whole. */
static void all_parts_of_a_cell_or_none(void **state) {
    (void)state;
    static const char *const bad[] = {
        "[" PREFILL ", {\"i\": 1}]",              /* no phase */
        "[" PREFILL ", {\"phase\": \"decode\"}]", /* no i */
        "[" PREFILL ", " PREFILL "]",             /* twice the same */
        "[" PREFILL ", null]",
        "[" PREFILL ", 7]",
        "[[]]",
    };
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put_parts(store, run, "[{\"ns\": 1}]", OP, "[" DECODE "]"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fails(put_parts(store, run, NULL, NULL, bad[i]), HR_ERR_INTERNAL, "recorded");
        assert_non_null(strstr(hr_error(), path));
    }
    fails(put_parts(store, run, "[{\"flags\": null}]", NULL, NULL), HR_ERR_INTERNAL, "sample.ns");
    fails(put_parts(store, run, NULL, "[{\"phase\": \"decode\"}]", NULL), HR_ERR_INTERNAL, "op.op");
    fails(put_parts(store, "0123", NULL, NULL, NULL), HR_ERR_INPUT, "no run 0123");
    rows_are(hr_store_samples, "c1", "[{\"i\": 0, \"ns\": 1, \"flags\": null}]");
    rows_are(hr_store_ops, "c1", OP);
    rows_are(hr_store_recorded, "c1", "[" DECODE "]");
    hr_store_close(store);
    hr_free(run);
}

/* What no caller should give, and a damaged measurement might: it comes back, or as null, and breaks nothing. */
static void odd_values_of_parts(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put_parts(store, run, "{\"ns\": 1}", "\"ops\"", "true")); /* no lists: no rows */
    rows_are(hr_store_samples, "c1", "[]");
    ok(put_parts(
        store, run, NULL, NULL,
        "[{\"i\": 9223372036854775807, \"phase\": \"'; DROP TABLE cell; --\", \"n\": -9223372036854775808, "
        "\"off_ns\": 1.7e308, \"on_ns\": \"soon\", \"op_ns\": {\"a\": [1]}, \"n_ops\": true, \"n_jobs\": []}]"));
    rows_are(hr_store_recorded, "c1",
             "[{\"i\": 9223372036854775807, \"phase\": \"'; DROP TABLE cell; --\", \"n\": -9223372036854775808, "
             "\"off_ns\": 1.7e308, \"on_ns\": \"soon\", \"op_ns\": \"{\\\"a\\\":[1]}\", \"n_ops\": 1.0, \"n_jobs\": "
             "\"[]\", \"probe_ns\": null}]");
    ok(hr_store_exec(store, "UPDATE recorded SET off_ns = 9e999, on_ns = -9e999, op_ns = x'00'")); /* by another hand */
    json_t *got;
    ok(hr_store_recorded(store, run, "c1", &got));
    assert_true(json_is_null(json_object_get(json_array_get(got, 0), "off_ns")));
    assert_true(json_is_null(json_object_get(json_array_get(got, 0), "on_ns")));
    json_decref(got);
    hr_store_close(store);
    hr_free(run);
}

/* ---- ranges of a profiler ---- */

#define DOWN                                                                                                     \
    "\"name\": \"down:decode\", \"style\": \"PushPop\", \"n\": 64, \"total_ns\": 96032.0, \"mean_ns\": 1500.5, " \
    "\"median_ns\": 1499.0, \"min_ns\": 1400.0, \"max_ns\": 1700.0, \"stddev_ns\": 12.5, \"Time (%)\": \"61.2\""

static void ranges_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    ok(put(store, run, "c2"));
    ok(put_ranges(store, run, "c1", "nsys nvtxsum", "[{" DOWN "}, {\"name\": \"capture\"}]"));
    ok(put_ranges(store, run, "c1", "ncu", "[{\"name\": \"k1\"}]"));
    ok(put_ranges(store, run, "c2", "ncu", "[{\"name\": \"k2\"}]"));
    rows_are(hr_store_ranges, "c1",
             "[{\"source\": \"nsys nvtxsum\", " DOWN "}, {\"source\": \"nsys nvtxsum\", \"name\": \"capture\"},"
             "{\"source\": \"ncu\", \"name\": \"k1\"}]");
    assert_string_equal(ask(store,
                            "SELECT style || n || ',' || total_ns || ',' || mean_ns || ',' || median_ns || ',' || "
                            "min_ns || ',' || max_ns || ',' || stddev_ns FROM range WHERE name = 'down:decode' AND "
                            "source = 'nsys nvtxsum'"),
                        "PushPop64,96032.0,1500.5,1499.0,1400.0,1700.0,12.5");
    /* a new import of the same tool replaces its rows of the cell, and no others; "source" is ours to say */
    ok(put_ranges(store, run, "c1", "nsys nvtxsum", "[{\"name\": \"new\", \"source\": \"another\"}]"));
    rows_are(hr_store_ranges, "c1",
             "[{\"source\": \"ncu\", \"name\": \"k1\"}, {\"source\": \"nsys nvtxsum\", \"name\": \"new\"}]");
    ok(put_ranges(store, run, "c1", "ncu", "[]"));
    rows_are(hr_store_ranges, "c1", "[{\"source\": \"nsys nvtxsum\", \"name\": \"new\"}]");
    rows_are(hr_store_ranges, "c2", "[{\"source\": \"ncu\", \"name\": \"k2\"}]");
    hr_store_close(store);
    hr_free(run);
}

static void ranges_need_a_cell_and_names(void **state) {
    (void)state;
    static const char *const bad[] = {"[{\"name\": \"b\"}, {\"n\": 1}]", "[{\"name\": \"b\"}, {\"name\": 7}]",
                                      "[{\"name\": \"b\"}, null]", "[[\"name\"]]"};
    hr_store *store = open_store(true);
    char *run = begin(store);
    ok(put(store, run, "c1"));
    ok(put_ranges(store, run, "c1", "ncu", "[{\"name\": \"a\"}]"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(put_ranges(store, run, "c1", "ncu", bad[i]), HR_ERR_INTERNAL);
    rows_are(hr_store_ranges, "c1", "[{\"source\": \"ncu\", \"name\": \"a\"}]");
    fails(put_ranges(store, run, "c9", "ncu", "[{\"name\": \"a\"}]"), HR_ERR_INPUT, "has no cell c9 in run");
    fails(put_ranges(store, run, "c9", "ncu", "[]"), HR_ERR_INPUT, path);
    fails(put_ranges(store, "0123", "c1", "ncu", "[{\"name\": \"a\"}]"), HR_ERR_INPUT, "in run 0123");
    assert_string_equal(ask(store, "SELECT count(*) FROM range"), "1");
    ok(put(store, run, "c2")); /* no refusal left a transaction open */
    hr_store_close(store);
    hr_free(run);
}

/* Names out of a file of a profiler may hold anything. */
static void odd_names_of_ranges(void **state) {
    (void)state;
    enum { LONG = 300000, MANY = 5000 };
    hr_store *store = open_store(true);
    char *run = begin(store), *text = hr_malloc(LONG + 1);
    ok(put(store, run, "c1"));
    memset(text, 'x', LONG);
    json_t *rows = json_array(), *got;
    json_array_append_new(rows, json_pack("{s:s%}", "name", text, (size_t)LONG));
    json_array_append_new(rows, json_pack("{s:o}", "name", json_stringn("a\0b", 3)));
    json_array_append_new(rows, json_pack("{s:s, s:o}", "name", "", "note", json_stringn("\0", 1)));
    json_array_append_new(rows, json_pack("{s:s, s:I, s:f, s:[i]}", "name", "\xf0\x9f\x94\xa5\"'\n", "n",
                                          (json_int_t)INT64_MAX, "total_ns", 1.7e308, "mean_ns", 1));
    for (int i = 0; i < MANY; i++) json_array_append_new(rows, json_pack("{s:s, s:i}", "name", "same", "n", i));
    assert_int_equal(json_array_size(rows), MANY + 4);
    ok(hr_store_put_ranges(store, run, "c1", "nsys 'nvtxsum'; --", rows));
    ok(hr_store_ranges(store, run, "c1", &got));
    assert_int_equal(json_array_size(got), MANY + 4);
    for (size_t i = 0; i < MANY + 4; i++) {
        json_t *row = json_array_get(got, i);
        assert_string_equal(json_string_value(json_object_get(row, "source")), "nsys 'nvtxsum'; --");
        json_object_del(row, "source");
        if (!json_equal(row, json_array_get(rows, i))) fail_msg("row %zu is not as it was put", i);
    }
    json_decref(got), json_decref(rows);
    hr_free(text), hr_free(run);
    hr_store_close(store);
}

/* ---- what observing costs ---- */

static void observe_rows_come_back_as_they_were_put(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *first = begin(store), *second = begin(store);
    json_t *got,
        *none = parse("[]"), *one = parse("[{\"name\": \"recorder\", \"n\": 9}]"),
        *rows = parse("[{\"name\": \"recorder\", \"n\": 20, \"median\": 0.25, \"ci95_lo\": -0.5, \"ci95_hi\": "
                      "1.0, \"unit\": \"%\", \"pairs\": [[1.0, 2.0]]}, {\"name\": \"nsys\", \"median\": null}]"),
        *bad = parse("[{\"name\": \"x\"}, {\"n\": 1}]");
    ok(hr_store_observe(store, NULL, &got));
    assert_true(json_equal(got, none));
    json_decref(got);
    ok(hr_store_put_observe(store, first, rows));
    ok(hr_store_observe(store, NULL, &got)); /* the second run has none */
    assert_true(json_equal(got, rows));
    json_decref(got);
    assert_string_equal(ask(store, "SELECT n || ',' || median || ',' || ci95_lo || ',' || ci95_hi || unit FROM observe "
                                   "WHERE name = 'recorder'"),
                        "20,0.25,-0.5,1.0%");
    ok(hr_store_put_observe(store, first, one)); /* replaces the row of that name */
    assert_string_equal(ask(store, "SELECT count(*) || ',' || sum(n) FROM observe"), "2,9");
    assert_int_equal(hr_store_put_observe(store, first, bad), HR_ERR_INTERNAL);
    assert_string_equal(ask(store, "SELECT count(*) FROM observe WHERE name = 'x'"), "0");
    fails(hr_store_put_observe(store, "0123", one), HR_ERR_INPUT, "no run 0123");
    ok(hr_store_put_observe(store, second, one));
    ok(hr_store_observe(store, NULL, &got));
    assert_true(json_equal(got, one));
    json_decref(got);
    json_decref(none), json_decref(one), json_decref(rows), json_decref(bad);
    hr_store_close(store);
    hr_free(first), hr_free(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        T(parts_come_back_as_they_were_put),
        T(a_cell_without_parts_has_none),
        T(a_cell_put_again_replaces_its_parts),
        T(all_parts_of_a_cell_or_none),
        T(odd_values_of_parts),
        T(ranges_come_back_as_they_were_put),
        T(ranges_need_a_cell_and_names),
        T(odd_names_of_ranges),
        T(observe_rows_come_back_as_they_were_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
