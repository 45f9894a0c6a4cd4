/* The NVTX recorder, attached to programs that know nothing of it: what they emit comes out, nested, over threads; and
 * whatever goes wrong, the program ends as it would have. */
#include "tests/nvtx_fixture.h"

#ifdef HR_HAVE_NVTX
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#define JSON "headroom-nvtx.json"
#define TEXT "headroom-nvtx.txt"

static int app(const char *line, const char *env) {
    pid_t pid;
    return nvtx_start("tests/nvtx_app", (nvtx_run){.line = line, .env = env}, &pid);
}

/* stderr has n lines; returns them. */
static char *said(size_t n) {
    char *text = nvtx_read("err");
    size_t lines = 0;
    for (const char *at = text; *at; at++) lines += *at == '\n';
    if (lines != n) fail_msg("expected %zu lines on stderr, got %zu: %s", n, lines, text);
    return text;
}

static void silent(void) {
    free(said(0));
}

static size_t files_in_folder(const char *part) {
    DIR *folder = opendir(nvtx_folder);
    size_t n = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        n += strstr(entry->d_name, part) != NULL;
    closedir(folder);
    return n;
}

/* ---- what comes out ---------------------------------------------------------------------------------------------- */

enum { MIXED = 200 };

static void ranges_marks_and_payloads_come_out(void **state) {
    (void)state;
    assert_int_equal(app("mixed 200", NULL), 7);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_assert_nested(&t, NULL);
    const nvtx_event *outer = nvtx_find(&t, "outer"), *inner = nvtx_find(&t, "inner"),
                     *mark = nvtx_find(&t, "first token");
    assert_true(outer->start_ns <= inner->start_ns && inner->end_ns <= outer->end_ns);
    assert_true(inner->end_ns - inner->start_ns >= 50000); /* it spun for that long */
    assert_int_equal(mark->kind, 'i');
    assert_true(mark->start_ns >= inner->start_ns && mark->start_ns <= inner->end_ns);
    assert_string_equal(nvtx_find(&t, "request")->category, "requests");
    assert_string_equal(nvtx_find(&t, "step")->category, "steps");
    assert_string_equal(nvtx_find(&t, "step")->domain, "engine");
    assert_string_equal(nvtx_find(&t, "outer")->category, "default");
    assert_int_equal(nvtx_count(&t, "request"), 2);
    assert_int_equal(nvtx_count(&t, "step"), 4 * MIXED);
    assert_int_equal(nvtx_count(&t, "op 3"), 4 * MIXED / 5);

    size_t n = 0; /* payloads, in the order in which they were given */
    static const char *const want[] = {"4294967280", "-5", "-6", "1.5", "18446744073709551615", NULL};
    for (size_t i = 0; i < t.n; i++) {
        if (strcmp(t.events[i].name, "payload") != 0) continue;
        const json_t *payload = json_object_get(t.events[i].args, "payload");
        char number[32] = "";
        if (json_is_integer(payload)) snprintf(number, sizeof number, "%lld", (long long)json_integer_value(payload));
        const char *got = json_is_string(payload) ? json_string_value(payload) : payload ? number : NULL;
        assert_true(n < 6);
        if (want[n])
            assert_string_equal(got, want[n]);
        else
            assert_null(got);
        n++;
    }
    assert_int_equal(n, 6);

    assert_int_equal(nvtx_fact(&t, "ranges") + nvtx_fact(&t, "marks"), (json_int_t)t.n);
    assert_int_equal(nvtx_fact(&t, "dropped"), 0);
    /* A pop on an empty stack, the second end of a span, and two ends of ids that never were. */
    assert_int_equal(nvtx_fact(&t, "unmatched_ends"), 4);
    assert_int_equal(nvtx_fact(&t, "open_at_end"), 3);
    static const char *const open[] = {"never popped", "nor this", "never ended"};
    for (int i = 0; i < 3; i++) assert_non_null(json_object_get(nvtx_find(&t, open[i])->args, "open"));
    assert_null(json_object_get(outer->args, "open"));
    nvtx_drop(&t);
}

static void threads_have_their_rows(void **state) {
    (void)state;
    assert_int_equal(app("mixed 200", NULL), 7);
    nvtx_trace t = nvtx_trace_of(JSON);
    size_t *parents = calloc(t.n, sizeof *parents), inside[4] = {0}, rows = 0;
    long seen[4] = {0};
    nvtx_assert_nested(&t, parents);
    for (size_t i = 0; i < t.n; i++) {
        const nvtx_event *e = &t.events[i];
        if (strncmp(e->name, "op ", 3) != 0) continue;
        size_t row = 0;
        while (row < rows && seen[row] != e->tid) row++;
        assert_true(row < 4);
        if (row == rows) seen[rows++] = e->tid;
        inside[row] += parents[i] != SIZE_MAX && !strcmp(t.events[parents[i]].name, "step");
    }
    assert_int_equal(rows, 4);
    for (size_t row = 0; row < 4; row++) assert_int_equal(inside[row], MIXED);
    free(parents);
    /* What overlaps can't share a row. */
    assert_int_not_equal(nvtx_find(&t, "crossing a")->tid, nvtx_find(&t, "crossing b")->tid);
    long requests[2];
    size_t n = 0;
    for (size_t i = 0; i < t.n; i++)
        if (!strcmp(t.events[i].name, "request")) requests[n++ % 2] = t.events[i].tid;
    const long front = nvtx_find(&t, "outer")->tid;
    assert_true(requests[0] != front && requests[1] != front);
    /* The names of rows: that which the program gave its first thread. */
    const json_t *all = json_object_get(t.root, "traceEvents");
    bool named = false;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *e = json_array_get(all, i), *name = json_object_get(json_object_get(e, "args"), "name");
        named |= json_is_string(name) && !strcmp(json_string_value(name), "front end") &&
                 json_integer_value(json_object_get(e, "tid")) == front;
    }
    assert_true(named);
    nvtx_drop(&t);
}

static void hostile_names_are_legal_json(void **state) {
    (void)state;
    assert_int_equal(app("mixed 1", NULL), 7);
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_find(&t, "quote \" backslash \\");
    nvtx_find(&t, "tab\tnewline\n");
    nvtx_find(&t, "broken ?? utf8");
    nvtx_find(&t, "</script>");
    nvtx_find(&t, "gr\u00fc\u00df \u4e16 \U0001f600");
    assert_int_equal(nvtx_count(&t, ""), 1);
    assert_int_equal(nvtx_count(&t, "(no name)"), 3); /* NULL, no attributes, attributes too small to hold a name */
    size_t longest = 0;
    for (size_t i = 0; i < t.n; i++)
        if (strlen(t.events[i].name) > longest) longest = strlen(t.events[i].name);
    assert_int_equal(longest, 1000);
    nvtx_drop(&t);
}

static int by_value(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Each line of the summary out of the events of the trace. */
static void the_summary_is_that_of_the_trace(void **state) {
    (void)state;
    assert_int_equal(app("mixed 101", NULL), 7);
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_line lines[64];
    const size_t n = nvtx_summary(TEXT, lines, 64);
    uint64_t calls = 0;
    size_t compared = 0;
    for (size_t i = 0; i < n; i++) {
        const nvtx_line *l = &lines[i];
        calls += l->calls;
        if (i) assert_true(l->total_us <= lines[i - 1].total_us);
        int64_t durations[1024], total = 0;
        size_t m = 0;
        for (size_t k = 0; k < t.n; k++) {
            const nvtx_event *e = &t.events[k];
            if ((e->kind == 'i') != !strcmp(l->style, "mark") || strcmp(e->name, l->name) != 0) continue;
            if (strcmp(e->category, l->category) != 0 || (e->kind == 'X' && strcmp(e->domain, l->domain) != 0))
                continue;
            durations[m++] = e->end_ns - e->start_ns;
            total += e->end_ns - e->start_ns;
        }
        if (!m) continue; /* a name that the table shows in another way */
        qsort(durations, m, sizeof durations[0], by_value);
        const double median = ((double)durations[(m - 1) / 2] + (double)durations[m / 2]) / 2;
        if (l->calls != m) fail_msg("'%s': expected %zu calls, got %llu", l->name, m, (unsigned long long)l->calls);
        /* printed with three decimals of a microsecond */
        const double got[] = {l->total_us, l->mean_us, l->median_us, l->min_us, l->max_us};
        const double want[] = {(double)total, (double)total / (double)m, median, (double)durations[0],
                               (double)durations[m - 1]};
        for (int k = 0; k < 5; k++)
            if (!(fabs(got[k] - want[k] / 1e3) <= 0.00051))
                fail_msg("'%s', column %d: expected %.4f, got %.4f", l->name, k, want[k] / 1e3, got[k]);
        compared++;
    }
    assert_int_equal(calls, t.n);
    assert_true(compared >= 15 && compared + 4 >= n);
    nvtx_drop(&t);
}

static void two_modules_are_one_recording(void **state) {
    (void)state;
    char module[PATH_MAX], line[PATH_MAX + 16];
    snprintf(line, sizeof line, "modules %s", nvtx_built("tests/nvtx_module.so", module));
    assert_int_equal(app(line, NULL), 0);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    size_t *parents = calloc(t.n, sizeof *parents);
    nvtx_assert_nested(&t, parents);
    assert_int_equal(t.n, 101);
    assert_int_equal(nvtx_count(&t, "from the module"), 100);
    for (size_t i = 1; i < t.n; i++) assert_int_equal(parents[i], 0); /* of the range around the call */
    free(parents);
    nvtx_drop(&t);
}

static void nothing_but_the_entry_is_exported(void **state) {
    (void)state;
    char path[PATH_MAX];
    void *library = dlopen(nvtx_built("libheadroom-nvtx.so", path), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    int (*entry)(void *) = (int (*)(void *))dlsym(library, "InitializeInjectionNvtx2");
    assert_non_null(entry);
    assert_int_equal(entry(NULL), 0); /* refuses; the loader then uses no tool */
    assert_null(dlsym(library, "hr_rec_dump"));
    assert_null(dlsym(library, "hr_chrome_begin"));
}

static void no_ranges_are_an_empty_trace(void **state) {
    (void)state;
    assert_int_equal(app("many 0", NULL), 0);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    assert_int_equal(t.n, 0);
    assert_int_equal(nvtx_fact(&t, "ranges"), 0);
    nvtx_drop(&t);
    nvtx_line lines[8];
    assert_int_equal(nvtx_summary(TEXT, lines, 8), 0);
}

/* ---- how programs end -------------------------------------------------------------------------------------------- */

static void children_of_fork_have_files_of_their_own(void **state) {
    (void)state;
    assert_int_equal(app("forks 5", NULL), 0);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    assert_int_equal(t.n, 1);
    assert_string_equal(t.events[0].name, "parent");
    nvtx_drop(&t);
    /* Two children recorded something, the third nothing. */
    assert_int_equal(files_in_folder(".json"), 3);
    DIR *folder = opendir(nvtx_folder);
    size_t children = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!strstr(entry->d_name, ".json") || !strcmp(entry->d_name, JSON)) continue;
        t = nvtx_trace_of(entry->d_name);
        assert_int_equal(t.n, 5);
        assert_int_equal(nvtx_count(&t, "child"), 5);
        nvtx_drop(&t);
        children++;
    }
    closedir(folder);
    assert_int_equal(children, 2);
}

static void the_process_id_can_be_part_of_the_name(void **state) {
    (void)state;
    pid_t pid;
    const nvtx_run run = {.line = "many 10", .env = "HEADROOM_NVTX_OUT=a%p-b.trace HEADROOM_NVTX_SUMMARY=%p.tsv"};
    assert_int_equal(nvtx_start("tests/nvtx_app", run, &pid), 0);
    silent();
    char name[64];
    snprintf(name, sizeof name, "a%ld-b.trace", (long)pid);
    nvtx_trace t = nvtx_trace_of(name);
    assert_int_equal(nvtx_count(&t, "pair"), 10);
    nvtx_drop(&t);
    nvtx_line lines[8];
    snprintf(name, sizeof name, "%ld.tsv", (long)pid);
    assert_int_equal(nvtx_summary(name, lines, 8), 2);
}

static void trace_and_summary_never_share_a_file(void **state) {
    (void)state;
    assert_int_equal(app("many 10", "HEADROOM_NVTX_OUT=one.json HEADROOM_NVTX_SUMMARY=one.json"), 0);
    nvtx_trace t = nvtx_trace_of("one.json");
    assert_int_equal(nvtx_count(&t, "pair"), 10);
    nvtx_drop(&t);
    nvtx_line lines[8];
    assert_int_equal(nvtx_summary("one.txt", lines, 8), 2);
}

static void a_summary_alone_on_stderr(void **state) {
    (void)state;
    assert_int_equal(app("many 10", "HEADROOM_NVTX_OUT=none HEADROOM_NVTX_SUMMARY=-"), 0);
    nvtx_line lines[8];
    assert_int_equal(nvtx_summary("err", lines, 8), 2);
    assert_string_equal(lines[0].name, "pair");
    assert_int_equal(lines[0].calls, 10);
    assert_int_equal(files_in_folder("headroom"), 0);
}

static void threads_may_run_on_at_the_end(void **state) {
    (void)state;
    assert_int_equal(app("running 4", "HEADROOM_NVTX_MAX_MB=2"), 7);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_assert_nested(&t, NULL);
    assert_true(nvtx_count(&t, "endless, inner") > 100);
    assert_true(nvtx_fact(&t, "open_at_end") <= 8);
    nvtx_drop(&t);
}

static void short_threads_leave_their_records(void **state) {
    (void)state;
    assert_int_equal(app("churn 300", NULL), 0);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_assert_nested(&t, NULL);
    assert_int_equal(nvtx_count(&t, "short"), 300);
    assert_int_equal(nvtx_count(&t, "left open"), 300);
    assert_int_equal(nvtx_fact(&t, "open_at_end"), 300);
    /* Closed when their thread ended, not when the program did. */
    const nvtx_event *first = nvtx_find(&t, "left open");
    int64_t last = 0;
    for (size_t i = 0; i < t.n; i++)
        if (t.events[i].end_ns > last) last = t.events[i].end_ns;
    assert_true(first->end_ns < last);
    nvtx_drop(&t);
}

static void quick_exit_writes_too(void **state) {
    (void)state;
    assert_int_equal(app("quick-exit 10", NULL), 7);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    assert_int_equal(nvtx_count(&t, "pair"), 10);
    nvtx_drop(&t);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void a_ring_keeps_the_newest(void **state) {
    (void)state;
    assert_int_equal(app("many 100000", "HEADROOM_NVTX_MAX_MB=1"), 0);
    silent();
    char path[128];
    struct stat info;
    assert_int_equal(stat(nvtx_path(JSON, path), &info), 0);
    if (info.st_size > 1000000 || info.st_size < 500000)
        fail_msg("expected 500000 to 1000000 bytes, got %lld", (long long)info.st_size);
    nvtx_trace t = nvtx_trace_of(JSON);
    assert_int_equal(nvtx_count(&t, "event 0"), 0);
    assert_int_equal(nvtx_count(&t, "event 99900"), 1);
    /* All pairs and a mark at each hundredth: kept or dropped. */
    assert_int_equal((json_int_t)t.n + nvtx_fact(&t, "dropped"), 101000);
    assert_int_equal(nvtx_fact(&t, "dropped"), nvtx_fact(&t, "dropped_oldest"));
    char *text = nvtx_read(TEXT), want[64];
    snprintf(want, sizeof want, "# dropped: the oldest %lld,", (long long)nvtx_fact(&t, "dropped"));
    if (!strstr(text, want)) fail_msg("expected '%s' in %.300s", want, text);
    free(text);
    nvtx_drop(&t);
}

static void what_has_no_place_is_counted(void **state) {
    (void)state;
    enum { N = 70000, DEPTH = 256, SPANS = 65536 };
    assert_int_equal(app("deep 70000", NULL), 0);
    silent();
    nvtx_trace t = nvtx_trace_of(JSON);
    nvtx_assert_nested(&t, NULL);
    assert_int_equal(nvtx_count(&t, "deep"), DEPTH);
    assert_int_equal(nvtx_count(&t, "after"), 1);
    assert_int_equal((json_int_t)t.n + nvtx_fact(&t, "dropped"), 2 * N + 1);
    assert_int_equal(nvtx_fact(&t, "unmatched_ends"), 0);
    nvtx_drop(&t);
}

static void no_memory_is_one_warning(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    hr_skip("sanitizers need address space without a limit");
#endif
    assert_int_equal(app("no-memory 200000", NULL), 7);
    char *text = said(1);
    assert_non_null(strstr(text, "headroom-nvtx: out of memory"));
    free(text);
    nvtx_trace t = nvtx_trace_of(JSON);
    assert_int_equal(nvtx_count(&t, "before"), 1);
    assert_true(nvtx_count(&t, "pair") < 200000);
    const json_t *early = json_object_get(json_object_get(t.root, "otherData"), "stopped_early");
    assert_string_equal(json_string_value(early), "out of memory");
    nvtx_drop(&t);
}

static void a_wrong_limit_is_one_warning(void **state) {
    (void)state;
    static const char *const wrong[] = {"HEADROOM_NVTX_MAX_MB=lots", "HEADROOM_NVTX_MAX_MB=0",
                                        "HEADROOM_NVTX_MAX_MB=-1", "HEADROOM_NVTX_MAX_MB=99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(app("mixed 3", wrong[i]), 7);
        char *text = said(1);
        assert_non_null(strstr(text, "HEADROOM_NVTX_MAX_MB"));
        free(text);
        nvtx_trace t = nvtx_trace_of(JSON);
        assert_int_equal(nvtx_count(&t, "step"), 12);
        nvtx_drop(&t);
    }
}

/* ---- files that can't be written --------------------------------------------------------------------------------- */

static void an_unwritable_path_is_one_warning(void **state) {
    (void)state;
    char folder[128], env[256];
    const struct {
        const char *out, *reason;
    } cases[] = {{"/dev/full", "No space left on device"},
                 {"/nowhere/at/all/t.json", "No such file or directory"},
                 {"/proc/t.json", ""}, /* whatever the kernel says */
                 {nvtx_path("", folder), "is a folder"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(env, sizeof env, "HEADROOM_NVTX_OUT=%s", cases[i].out);
        assert_int_equal(app("mixed 1000", env), 7);
        char *text = said(1);
        if (!strstr(text, cases[i].out) || !strstr(text, cases[i].reason))
            fail_msg("expected '%s' and '%s', got: %s", cases[i].out, cases[i].reason, text);
        free(text);
        assert_int_equal(files_in_folder("tmp"), 0);
    }
    assert_int_not_equal(access("/dev/full.txt", F_OK), 0); /* nothing is made beside a device */
}

static void a_full_disk_is_one_warning(void **state) {
    (void)state;
    pid_t pid;
    /* A limit of the size of files stands for the disk: its signal would end a program that isn't told otherwise. */
    const nvtx_run run = {.line = "many 20000", .file_limit = 100000};
    assert_int_equal(nvtx_start("tests/nvtx_app", run, &pid), 0);
    char *text = said(1);
    assert_non_null(strstr(text, "no trace written"));
    free(text);
    assert_int_equal(files_in_folder(".json"), 0);
    assert_int_equal(files_in_folder("tmp"), 0);
}

static void an_old_trace_is_replaced_whole(void **state) {
    (void)state;
    assert_int_equal(app("many 1000", NULL), 0);
    const nvtx_run run = {.line = "many 20000", .file_limit = 100000};
    pid_t pid;
    assert_int_equal(nvtx_start("tests/nvtx_app", run, &pid), 0);
    nvtx_trace t = nvtx_trace_of(JSON); /* the first one still, as the second failed */
    assert_int_equal(nvtx_count(&t, "pair"), 1000);
    nvtx_drop(&t);
    assert_int_equal(app("many 5", NULL), 0);
    t = nvtx_trace_of(JSON);
    assert_int_equal(nvtx_count(&t, "pair"), 5);
    nvtx_drop(&t);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, nvtx_set_up, nvtx_clean_up)

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(ranges_marks_and_payloads_come_out),
        EACH(threads_have_their_rows),
        EACH(hostile_names_are_legal_json),
        EACH(the_summary_is_that_of_the_trace),
        EACH(two_modules_are_one_recording),
        EACH(no_ranges_are_an_empty_trace),
        EACH(nothing_but_the_entry_is_exported),
        EACH(children_of_fork_have_files_of_their_own),
        EACH(the_process_id_can_be_part_of_the_name),
        EACH(trace_and_summary_never_share_a_file),
        EACH(a_summary_alone_on_stderr),
        EACH(threads_may_run_on_at_the_end),
        EACH(short_threads_leave_their_records),
        EACH(quick_exit_writes_too),
        EACH(a_ring_keeps_the_newest),
        EACH(what_has_no_place_is_counted),
        EACH(no_memory_is_one_warning),
        EACH(a_wrong_limit_is_one_warning),
        EACH(an_unwritable_path_is_one_warning),
        EACH(a_full_disk_is_one_warning),
        EACH(an_old_trace_is_replaced_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void the_recorder(void **state) {
    (void)state;
    hr_skip("this build has no NVTX headers (nvtx3 of the CUDA toolkit), and so no recorder");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_recorder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
