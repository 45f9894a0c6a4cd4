#include "tests/hr_test.h"

#include "harness/trace/chrome_trace.h"

#include <jansson.h>

/* A trace in memory, read back by jansson once it has ended. */
typedef struct made {
    hr_chrome chrome;
    char *text;
    size_t bytes;
    json_t *root, *events; /* events: borrowed */
} made;

enum { PID = 4711, ORIGIN = 1000000000 };

static void begin(made *m, const char *process) {
    memset(m, 0, sizeof *m);
    FILE *stream = open_memstream(&m->text, &m->bytes);
    assert_non_null(stream);
    hr_chrome_begin(&m->chrome, stream, PID, ORIGIN, process);
}

static void end(made *m, const hr_chrome_arg *other, size_t n_other) {
    json_error_t error;
    hr_chrome_end(&m->chrome, other, n_other);
    assert_int_equal(fclose(m->chrome.stream), 0);
    m->root = json_loadb(m->text, m->bytes, JSON_REJECT_DUPLICATES, &error);
    if (!m->root) fail_msg("line %d: %s in\n%s", error.line, error.text, m->text);
    m->events = json_object_get(m->root, "traceEvents");
    assert_true(json_is_array(m->events));
}

static void drop(made *m) {
    json_decref(m->root);
    free(m->text);
}

static json_t *event(const made *m, size_t i) {
    json_t *one = json_array_get(m->events, i);
    if (!one) fail_msg("expected an event %zu, got %zu events", i, json_array_size(m->events));
    return one;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("no text \"%s\"", key);
    return text;
}

static void an_empty_trace_is_valid(void **state) {
    (void)state;
    made m;
    begin(&m, "headroom");
    end(&m, NULL, 0);
    assert_int_equal(json_array_size(m.events), 1);
    assert_string_equal(text_of(event(&m, 0), "ph"), "M");
    assert_string_equal(text_of(event(&m, 0), "name"), "process_name");
    assert_string_equal(text_of(json_object_get(event(&m, 0), "args"), "name"), "headroom");
    assert_null(json_object_get(m.root, "otherData"));
    drop(&m);
}

static void events_carry_what_was_given(void **state) {
    (void)state;
    made m;
    const hr_chrome_arg args[] = {
        {.key = "layer", .number = 3}, {.key = "bytes", .number = 1234567890123u}, {.key = "kernel", .text = "gemv"}};
    begin(&m, "headroom");
    hr_chrome_thread(&m.chrome, 2, "team 2");
    hr_chrome_event(&m.chrome, "op", "down:decode", 2, ORIGIN + 1500, ORIGIN + 4000, args, 3);
    hr_chrome_mark(&m.chrome, "cell", "here", -1, ORIGIN + 7, args, 1);
    const hr_chrome_arg other = {.key = "events_dropped", .number = 12};
    end(&m, &other, 1);

    assert_int_equal(json_array_size(m.events), 4);
    const json_t *thread = event(&m, 1), *one = event(&m, 2), *mark = event(&m, 3);
    assert_string_equal(text_of(thread, "name"), "thread_name");
    assert_int_equal(json_integer_value(json_object_get(thread, "tid")), 2);
    assert_string_equal(text_of(json_object_get(thread, "args"), "name"), "team 2");
    assert_string_equal(text_of(one, "ph"), "X");
    assert_string_equal(text_of(one, "cat"), "op");
    assert_string_equal(text_of(one, "name"), "down:decode");
    assert_int_equal(json_integer_value(json_object_get(one, "pid")), PID);
    assert_int_equal(json_integer_value(json_object_get(one, "tid")), 2);
    const json_t *got = json_object_get(one, "args");
    assert_int_equal(json_integer_value(json_object_get(got, "layer")), 3);
    assert_int_equal(json_integer_value(json_object_get(got, "bytes")), 1234567890123);
    assert_string_equal(text_of(got, "kernel"), "gemv");
    assert_string_equal(text_of(mark, "ph"), "i");
    assert_null(json_object_get(mark, "dur"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(mark, "args"), "layer")), 3);
    assert_int_equal(json_integer_value(json_object_get(mark, "tid")), -1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(m.root, "otherData"), "events_dropped")), 12);
    drop(&m);
}

/* Three decimals of a microsecond, to the nanosecond, also hours after the origin and before it. */
static void nanoseconds_are_kept(void **state) {
    (void)state;
    static const struct {
        int64_t at;
        uint64_t lasts;
        const char *ts, *dur;
    } cases[] = {{0, 0, "0.000", "0.000"},       {1, 999, "0.001", "0.999"},
                 {1000, 1001, "1.000", "1.001"}, {7200000000123, 60000000007, "7200000000.123", "60000000.007"},
                 {-1, 1, "-0.001", "0.001"},     {-ORIGIN, 12345678, "-1000000.000", "12345.678"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made m;
        char want[100];
        const uint64_t start = (uint64_t)(ORIGIN + cases[i].at);
        begin(&m, "headroom");
        hr_chrome_event(&m.chrome, "op", "norm", 0, start, start + cases[i].lasts, NULL, 0);
        end(&m, NULL, 0);
        snprintf(want, sizeof want, "\"ts\":%s,\"dur\":%s}", cases[i].ts, cases[i].dur);
        if (!strstr(m.text, want)) fail_msg("case %zu: expected %s in\n%s", i, want, m.text);
        drop(&m);
    }
}

static void an_end_before_its_start_lasts_nothing(void **state) {
    (void)state;
    made m;
    begin(&m, "headroom");
    hr_chrome_event(&m.chrome, "op", "norm", 0, ORIGIN + 5000, ORIGIN + 4000, NULL, 0);
    end(&m, NULL, 0);
    assert_true(json_real_value(json_object_get(event(&m, 1), "dur")) == 0);
    assert_true(json_real_value(json_object_get(event(&m, 1), "ts")) == 5);
    drop(&m);
}

static void hostile_names_stay_json(void **state) {
    (void)state;
    static const struct {
        const char *given, *want;
    } cases[] = {
        {"", ""},
        {NULL, ""},
        {"a \"quoted\" \\ name/", "a \"quoted\" \\ name/"},
        {"\x01\t\n\r\x1f|\x7f", "\x01\t\n\r\x1f|\x7f"},
        {"</script>", "</script>"},
        {"Größe 漢 😀 \xf4\x8f\xbf\xbf", "Größe 漢 😀 \xf4\x8f\xbf\xbf"},
        {"\xff\xfe", "??"},
        {"\x80tail", "?tail"},
        {"cut\xc3", "cut?"},
        {"cut\xe6\xbc", "cut??"},
        {"cut\xf0\x9f\x98", "cut???"},
        {"\xc0\xaf", "??"},           /* overlong '/' */
        {"\xe0\x80\xaf", "???"},      /* again */
        {"\xf0\x80\x80\xaf", "????"}, /* again */
        {"\xed\xa0\x80", "???"},      /* half of a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* over U+10FFFF */
        {"\xf5\x80\x80\x80", "????"}, /* no lead */
        {"\xe6\xbc z", "?? z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made m;
        const hr_chrome_arg arg = {.key = "text", .text = cases[i].given ? cases[i].given : ""};
        begin(&m, cases[i].given);
        hr_chrome_thread(&m.chrome, 1, cases[i].given);
        hr_chrome_event(&m.chrome, cases[i].given, cases[i].given, 1, ORIGIN, ORIGIN + 1, &arg, 1);
        end(&m, &arg, 1);
        const char *got[] = {text_of(event(&m, 2), "name"),
                             text_of(event(&m, 2), "cat"),
                             text_of(json_object_get(event(&m, 2), "args"), "text"),
                             text_of(json_object_get(event(&m, 0), "args"), "name"),
                             text_of(json_object_get(event(&m, 1), "args"), "name"),
                             text_of(json_object_get(m.root, "otherData"), "text")};
        for (size_t k = 0; k < sizeof got / sizeof *got; k++)
            if (strcmp(got[k], cases[i].want)) fail_msg("case %zu: expected '%s', got '%s'", i, cases[i].want, got[k]);
        drop(&m);
    }
}

/* Longer than any buffer, with a character over each place where one could be cut. */
static void long_names_stay_whole(void **state) {
    (void)state;
    enum { BYTES = 30000 };
    char *name = malloc(BYTES + 1);
    assert_non_null(name);
    for (size_t shift = 0; shift < 5; shift++) {
        made m;
        memset(name, 'x', BYTES);
        for (size_t i = shift; i + 4 <= BYTES; i += 5) memcpy(name + i, i % 2 ? "\xf0\x9f\x98\x80" : "\"\\\"\\", 4);
        name[BYTES] = 0;
        begin(&m, "headroom");
        hr_chrome_event(&m.chrome, "op", name, 0, ORIGIN, ORIGIN, NULL, 0);
        end(&m, NULL, 0);
        assert_string_equal(text_of(event(&m, 1), "name"), name);
        drop(&m);
    }
    memset(name, 'y', BYTES);
    made m;
    begin(&m, name);
    end(&m, NULL, 0);
    assert_string_equal(text_of(json_object_get(event(&m, 0), "args"), "name"), name);
    drop(&m);
    free(name);
}

/* A reader of JSON may refuse an integer over INT64_MAX. */
static void large_numbers_are_read_back(void **state) {
    (void)state;
    made m;
    const hr_chrome_arg args[] = {{.key = "zero", .number = 0},
                                  {.key = "most", .number = INT64_MAX},
                                  {.key = "over", .number = (uint64_t)INT64_MAX + 1},
                                  {.key = "all", .number = UINT64_MAX}};
    begin(&m, "headroom");
    hr_chrome_event(&m.chrome, "op", "norm", 0, ORIGIN, ORIGIN, args, 4);
    end(&m, NULL, 0);
    const json_t *got = json_object_get(event(&m, 1), "args");
    assert_true(json_is_integer(json_object_get(got, "zero")));
    assert_int_equal(json_integer_value(json_object_get(got, "zero")), 0);
    assert_true(json_integer_value(json_object_get(got, "most")) == INT64_MAX);
    assert_string_equal(text_of(got, "over"), "9223372036854775808");
    assert_string_equal(text_of(got, "all"), "18446744073709551615");
    drop(&m);
}

static void a_failed_stream_says_so(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "wb");
    if (!full) hr_skip("no /dev/full here");
    hr_chrome chrome;
    hr_chrome_begin(&chrome, full, 1, 0, "headroom");
    for (uint64_t i = 0; i < 1000; i++) hr_chrome_event(&chrome, "op", "norm", 0, i, i + 1, NULL, 0);
    hr_chrome_end(&chrome, NULL, 0);
    fflush(full);
    assert_true(ferror(full));
    fclose(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_trace_is_valid),     cmocka_unit_test(events_carry_what_was_given),
        cmocka_unit_test(nanoseconds_are_kept),        cmocka_unit_test(an_end_before_its_start_lasts_nothing),
        cmocka_unit_test(hostile_names_stay_json),     cmocka_unit_test(long_names_stay_whole),
        cmocka_unit_test(large_numbers_are_read_back), cmocka_unit_test(a_failed_stream_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
