/* harness/ci: the suite, the script that every CI system calls, and their files. A program made up for the test stands in
 * for headroom, so that each exit code can be seen to come through. */
#include "tests/hr_test.h"

#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];

static int remove_entry(const char *name, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(name);
}
static int setup(void **state) {
    (void)state;
    strcpy(folder, "/tmp/headroom-ci-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int shell(const char *format, ...) {
    char command[1600];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static const char *text_of(const char *name) {
    static char text[8000];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    return text;
}
static void holds_(const char *text, const char *part, int line) {
    if (!strstr(text, part)) fail_msg("line %d: expected to hold: %s\ngot: %s", line, part, text);
}
#define holds(text, part) holds_((text), (part), __LINE__)

/* Logs its words; `gate` ends with $GATE and writes what it was told to. */
static void make_program(void) {
    char path[160];
    snprintf(path, sizeof path, "%s/headroom", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "#!/bin/sh\n"
            "echo \"$*\" >>%s/log\n"
            "[ \"$1\" = gate ] || exit ${OTHERS:-0}\n"
            "while [ $# -gt 0 ]; do case $1 in --junit|--summary) echo \"$1\" >\"$2\"; shift;; esac; shift; done\n"
            "exit $GATE\n",
            folder);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
}

static int nightly(const char *environment, const char *base) {
    return shell(
        "cd %s && env -u BASE -u BUDGET -u ALLOW -u PAIRS -u DB -u SUITE -u GITHUB_STEP_SUMMARY HEADROOM=%s/headroom "
        "OUT=%s/out %s \"$OLDPWD/harness/ci/nightly.sh\" '%s' >stdout 2>stderr",
        folder, folder, folder, environment, base);
}

static void exit_codes_come_through(void **state) {
    (void)state;
    make_program();
    for (int code = 0; code <= 4; code++) {
        char environment[32], want[16];
        snprintf(environment, sizeof environment, "GATE=%d", code), snprintf(want, sizeof want, "%d\n", code);
        const int got = nightly(environment, "HEAD");
        if (got != code) fail_msg("the gate ended with %d, the script with %d: %s", code, got, text_of("stderr"));
        assert_string_equal(text_of("out/exit_code"), want);
    }
    assert_int_equal(nightly("GATE=130", "HEAD"), 130);
    assert_int_equal(nightly("GATE=0 OTHERS=3", "HEAD"), 0); /* a report that fails is no verdict */
    assert_int_equal(nightly("GATE=1 OTHERS=2", "HEAD"), 1);
}

static void it_calls_what_it_says(void **state) {
    (void)state;
    make_program();
    char environment[200];
    snprintf(environment, sizeof environment,
             "GATE=1 BUDGET=tpot=+3%% ALLOW=a.txt PAIRS=7 GITHUB_STEP_SUMMARY=%s/steps", folder);
    assert_int_equal(nightly(environment, "v1.0"), 1);
    const char *log = text_of("log");
    holds(log, "gate --ab v1.0 --pairs 7 --junit ");
    holds(log, "--budget tpot=+3% --allow a.txt -- --config harness/ci/suite.json\n");
    holds(log, "sweep --config harness/ci/suite.json --db ");
    holds(log, "report --run last --db ");
    holds(log, "history --db ");
    assert_string_equal(text_of("steps"), "--summary\n");
    holds(text_of("stdout"), "nightly: REGRESSION against v1.0; ");
    /* what could not run leaves the store alone, and nothing of the night before */
    assert_int_equal(shell("rm %s/log", folder), 0);
    assert_int_equal(nightly("GATE=2", "v1.0"), 2);
    assert_null(strstr(text_of("log"), "sweep"));
    assert_null(strstr(text_of("log"), "--budget"));
}

static void it_says_what_is_missing(void **state) {
    (void)state;
    assert_int_equal(nightly("GATE=0", "HEAD"), 2);
    holds(text_of("stderr"), "is not built: make first");
    make_program();
    assert_int_equal(nightly("GATE=0 SUITE=absent.json", "HEAD"), 2);
    holds(text_of("stderr"), "absent.json cannot be read");
}

static void the_suite_has_twenty_cells(void **state) {
    (void)state;
    const char *build = getenv("HEADROOM_BUILD");
    assert_int_equal(
        shell("%s/headroom sweep --config harness/ci/suite.json --dry-run --db none -o json >%s/cells 2>/dev/null",
              build ? build : "build", folder),
        0);
    assert_int_equal(shell("python3 -c 'import json, sys; c = json.load(open(sys.argv[1])); "
                           "assert len({x[\"cell_id\"] for x in c}) == 20, len(c); "
                           "assert {x[\"status\"] for x in c} == {\"planned\"}' %s/cells",
                           folder),
                     0);
}

/* The files parse and call the script. */
static void files_are_sound(void **state) {
    (void)state;
    assert_int_equal(shell("sh -n harness/ci/nightly.sh"), 0);
    static const char *const files[] = {"github-actions.yml", "gitlab-ci.yml", "Jenkinsfile"};
    for (size_t i = 0; i < 3; i++) {
        if (shell("grep -q 'harness/ci/nightly.sh' harness/ci/%s", files[i]))
            fail_msg("%s calls no nightly.sh", files[i]);
        if (shell("grep -q 'junit\\|build/nightly' harness/ci/%s", files[i])) fail_msg("%s keeps no results", files[i]);
        if (!shell("grep -qP '\\t' harness/ci/%s", files[i])) fail_msg("%s holds a tab", files[i]);
    }
    assert_int_equal(shell("python3 -c 't = open(\"harness/ci/Jenkinsfile\").read(); "
                           "assert all(t.count(a) == t.count(b) for a, b in (\"{}\", \"()\", \"[]\"))'"),
                     0);
    if (shell("python3 -c 'import yaml' 2>/dev/null"))
        hr_skip("no yaml module of Python here: two files were not parsed");
    assert_int_equal(
        shell("python3 -c 'import yaml\n"
              "g = yaml.safe_load(open(\"harness/ci/github-actions.yml\"))\n"
              "assert any(\"nightly.sh\" in s.get(\"run\", \"\") for s in g[\"jobs\"][\"gate\"][\"steps\"])\n"
              "l = yaml.safe_load(open(\"harness/ci/gitlab-ci.yml\"))[\"nightly\"]\n"
              "assert l[\"artifacts\"][\"reports\"][\"junit\"] == \"build/nightly/junit.xml\"\n"
              "assert l[\"allow_failure\"][\"exit_codes\"] == [3]'"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(exit_codes_come_through, setup, teardown),
                                       cmocka_unit_test_setup_teardown(it_calls_what_it_says, setup, teardown),
                                       cmocka_unit_test_setup_teardown(it_says_what_is_missing, setup, teardown),
                                       cmocka_unit_test_setup_teardown(the_suite_has_twenty_cells, setup, teardown),
                                       cmocka_unit_test_setup_teardown(files_are_sound, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
