/* The table of ranges in engine/README.md against the ranges that a sweep emits, in both directions; how they nest; and
 * that the recorder's summary and `headroom trace` call the ops the same. */
#include "tests/nvtx_fixture.h"

#ifdef HR_HAVE_NVTX
#include <ctype.h>

#define SWEEP "sweep -m synth:tiny --isl 24 --osl 6 -t 2 -r 2 --no-warmup --db none"
enum { ISL = 24, OSL = 6, ROWS_MOST = 80 };

typedef struct row {
    char category[16], name[48], payload[32], when[160];
    size_t seen;
} row;

static row table[ROWS_MOST];
static size_t n_rows;

/* A cell without blanks and backquotes around it. */
static void take_cell(char *out, size_t space, const char *cell) {
    while (*cell == ' ' || *cell == '`') cell++;
    size_t n = strlen(cell);
    while (n && (cell[n - 1] == ' ' || cell[n - 1] == '`')) n--;
    snprintf(out, space, "%.*s", (int)n, cell);
}

/* The rows under "| level and category | range | payload | when |". */
static int read_table(void **state) {
    (void)state;
    FILE *file = fopen("engine/README.md", "r");
    char line[512];
    bool inside = false;
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "| level and category | range | payload |", 40)) {
            inside = true;
            continue;
        }
        if (!inside || line[0] != '|') {
            if (inside) break;
            continue;
        }
        if (line[1] == '-') continue;
        char *at = line + 1, *cells[4];
        size_t n = 0;
        while (n < 4 && (cells[n] = strsep(&at, "|")) != NULL) n++;
        if (n < 4 || n_rows == ROWS_MOST) return -1;
        row *r = &table[n_rows++];
        take_cell(r->category, sizeof r->category, cells[0]);
        take_cell(r->name, sizeof r->name, cells[1]);
        take_cell(r->payload, sizeof r->payload, cells[2]);
        take_cell(r->when, sizeof r->when, cells[3]);
        if (!strcmp(r->when, "the same") && n_rows > 1) memcpy(r->when, r[-1].when, sizeof r->when);
    }
    if (file) fclose(file);
    if (n_rows < 20)
        print_error("engine/README.md has a table of %zu ranges: run the tests in the project's folder\n", n_rows);
    return n_rows < 20 ? -1 : 0;
}

static bool in_capitals(const char *word, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isupper((unsigned char)word[i])) return false;
    return n > 0;
}

/* A word in capitals stands for any text of at least one character, as a test may have blanks in its name. */
static bool matches(const char *pattern, const char *name) {
    const size_t n = strcspn(pattern, " ");
    const bool any = in_capitals(pattern, n);
    if (!pattern[n]) return any ? *name != 0 : !strcmp(pattern, name);
    for (const char *blank = strchr(name, ' '); blank; blank = strchr(blank + 1, ' ')) {
        const size_t m = (size_t)(blank - name);
        if ((any ? m > 0 : m == n && !memcmp(pattern, name, n)) && matches(pattern + n + 1, blank + 1)) return true;
        if (!any) return false;
    }
    return false;
}

static row *row_of(const nvtx_event *e) {
    for (size_t i = 0; i < n_rows; i++)
        if (!strcmp(table[i].category, e->category) && matches(table[i].name, e->name)) return &table[i];
    return NULL;
}

static nvtx_trace sweep(const char *more) {
    char line[256];
    pid_t pid;
    snprintf(line, sizeof line, SWEEP "%s%s", *more ? " " : "", more);
    const int code = nvtx_start("headroom", (nvtx_run){.line = line, .env = "HEADROOM_NVTX_OUT=t.json"}, &pid);
    if (code != 0) fail_msg("headroom %s: exit code %d: %.300s", line, code, nvtx_read("err"));
    return nvtx_trace_of("t.json");
}

/* ---- checks of one trace ----------------------------------------------------------------------------------------- */

static json_int_t payload(const nvtx_event *e) {
    const json_t *value = json_object_get(e->args, "payload");
    if (!json_is_integer(value)) fail_msg("'%s' of category %s has no payload", e->name, e->category);
    return json_integer_value(value);
}

static bool is(const nvtx_event *e, const char *category) {
    return e && !strcmp(e->category, category);
}

/* What the column "payload" says of this row. */
static void check_payload(const nvtx_event *e, const nvtx_event *parent, const row *r) {
    const json_int_t got = payload(e);
    json_int_t want = got;
    if (!strcmp(r->payload, "0"))
        want = 0;
    else if (!strcmp(r->payload, "tokens in and out"))
        want = ISL + OSL;
    else if (!strcmp(r->payload, "tokens") && is(e, "layer"))
        want = payload(parent);
    else if (!strcmp(r->payload, "tokens"))
        want = !strcmp(e->name, "prefill") ? ISL : 1;
    else if (strcmp(r->payload, "bytes") != 0)
        fail_msg("the table's payload '%s' of '%s' is unknown to this test", r->payload, r->name);
    if (got != want) fail_msg("'%s': expected payload %lld, got %lld", e->name, (long long)want, (long long)got);
}

/* cell > request > phase > layer > op; embed, head and the last norm stand in the phase, sample in the request. */
static void check_parent(const nvtx_event *e, const nvtx_event *parent, bool captured) {
    bool ok = false;
    if (is(e, "op"))
        ok = !strncmp(e->name, "sample:", 7) ? is(parent, "cell") && !strcmp(parent->name, "request")
                                             : is(parent, "layer") || is(parent, "phase");
    else if (is(e, "layer"))
        ok = is(parent, "phase");
    else if (is(e, "phase"))
        ok = is(parent, "cell") && !strcmp(parent->name, "request");
    else if (!strcmp(e->name, "request"))
        ok = is(parent, "cell") && !strcmp(parent->name, "capture") == captured;
    else if (!strcmp(e->name, "capture"))
        ok = is(parent, "cell") && strcmp(parent->name, "request") != 0;
    else
        ok = parent == NULL;
    if (!ok)
        fail_msg("'%s' of category %s stands in '%s' of category %s", e->name, e->category,
                 parent ? parent->name : "nothing", parent ? parent->category : "none");
    /* An op and its layer are of the phase that they stand in. */
    if (is(e, "op") && is(parent, "phase")) assert_string_equal(strchr(e->name, ':') + 1, parent->name);
}

static void check(const nvtx_trace *t, bool captured) {
    size_t *parents = calloc(t->n + 1, sizeof *parents);
    nvtx_assert_nested(t, parents);
    assert_true(t->n > 0);
    assert_int_equal(nvtx_fact(t, "dropped") + nvtx_fact(t, "unmatched_ends") + nvtx_fact(t, "open_at_end"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(t->root, "otherData"), "domain")),
                        "headroom");
    for (size_t i = 0; i < t->n; i++) {
        const nvtx_event *e = &t->events[i], *parent = parents[i] == SIZE_MAX ? NULL : &t->events[parents[i]];
        row *r = row_of(e);
        if (!r) fail_msg("'%s' of category %s is not in the table of engine/README.md", e->name, e->category);
        r->seen++;
        check_payload(e, parent, r);
        check_parent(e, parent, captured);
    }
    free(parents);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void the_table_and_the_ranges_are_the_same(void **state) {
    (void)state;
    for (size_t i = 0; i < n_rows; i++) table[i].seen = 0;
    nvtx_trace t = sweep("");
    check(&t, false);
    assert_int_equal(nvtx_count(&t, "capture"), 0);
    nvtx_drop(&t);
    t = sweep("--fusion none --capture nvtx");
    check(&t, true);
    nvtx_drop(&t);
    for (size_t i = 0; i < n_rows; i++) {
        const bool not_here = strstr(table[i].when, "none is built yet") != NULL;
        if (!table[i].seen != not_here)
            fail_msg("'%s' of category %s is in the table%s and was emitted %zu times", table[i].name,
                     table[i].category, not_here ? " as of models that can't be run" : "", table[i].seen);
    }
}

static void the_level_sets_the_depth(void **state) {
    (void)state;
    static const char *const levels[] = {"cell", "phase", "layer", "op"};
    for (size_t level = 0; level < 3; level++) { /* op: the test before */
        char more[48];
        snprintf(more, sizeof more, "--nvtx-level %s", levels[level]);
        nvtx_trace t = sweep(more);
        check(&t, false);
        size_t counts[4] = {0};
        for (size_t i = 0; i < t.n; i++)
            for (size_t k = 0; k < 4; k++) counts[k] += is(&t.events[i], levels[k]);
        for (size_t k = 0; k < 4; k++)
            if ((counts[k] > 0) != (k <= level))
                fail_msg("--nvtx-level %s: %zu ranges of category %s", levels[level], counts[k], levels[k]);
        nvtx_drop(&t);
    }
}

/* Calls a request of every phase, layer and op: of a sweep by the recorder, of one request by `headroom trace`. */
static void the_recorder_and_trace_agree(void **state) {
    (void)state;
    static nvtx_line lines[128];
    nvtx_trace ranges = sweep("");
    const size_t n = nvtx_summary("t.txt", lines, 128), requests = nvtx_count(&ranges, "request");
    pid_t pid;
    const nvtx_run run = {.line = "trace -m synth:tiny --isl 24 --osl 6 -t 2 --out own.json", .detached = true};
    assert_int_equal(nvtx_start("headroom", run, &pid), 0);
    nvtx_trace own = nvtx_trace_of("own.json");
    size_t events = 0, compared = 0;
    for (size_t i = 0; i < own.n; i++)
        events += is(&own.events[i], "phase") + is(&own.events[i], "layer") + is(&own.events[i], "op");
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(lines[i].category, "cell")) continue;
        size_t calls = 0;
        for (size_t k = 0; k < own.n; k++)
            calls += is(&own.events[k], lines[i].category) && !strcmp(own.events[k].name, lines[i].name);
        if (lines[i].calls != calls * requests)
            fail_msg("'%s': %llu calls in %zu requests by the recorder, %zu in one by headroom trace", lines[i].name,
                     (unsigned long long)lines[i].calls, requests, calls);
        compared += calls;
    }
    assert_int_equal(compared, events); /* nothing of the trace is unknown to the recorder */
    assert_true(compared > 100);
    nvtx_drop(&own);
    nvtx_drop(&ranges);
}

static void capitals_stand_for_anything(void **state) {
    (void)state;
    assert_true(matches("layer N", "layer 31"));
    assert_false(matches("layer N", "layer"));
    assert_false(matches("layer N", "layers 3"));
    assert_true(matches("MODEL QUANT TEST ID", "synth:tiny native isl24 osl6 814a9e78"));
    assert_false(matches("MODEL QUANT TEST ID", "synth:tiny native isl24"));
    assert_true(matches("down:decode", "down:decode"));
    assert_false(matches("down:decode", "down:decode 2"));
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, nvtx_set_up, nvtx_clean_up)

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(the_table_and_the_ranges_are_the_same),
        EACH(the_level_sets_the_depth),
        EACH(the_recorder_and_trace_agree),
        cmocka_unit_test(capitals_stand_for_anything),
    };
    return cmocka_run_group_tests(tests, read_table, NULL);
}
#else
static void names_of_ranges(void **state) {
    (void)state;
    hr_skip("this build has no NVTX headers (nvtx3 of the CUDA toolkit), and so emits no ranges");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_of_ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
