/* test_gpu_check.c - the script for a machine with a GPU takes its whole way on a driver that runs kernels on the CPU: every step
 * passes, every file is there, what was measured is marked, and nothing lands among the results of real machines. */
#include "tests/gpu_fixture.h"

#include <sys/stat.h>
#include <sys/wait.h>

static char text[1 << 20];

static const char *read_all(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("expected a file %s, there is none", path);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static unsigned lines_with(const char *file, const char *what) {
    unsigned n = 0;
    for (const char *at = read_all(file); (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void the_whole_way(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    hr_skip("its steps are tests of their own under sanitizers");
#endif
    struct stat before, after;
    const char *build = getenv("HEADROOM_BUILD");
    char line[512];
    if (!build) build = "build";
    snprintf(line, sizeof line, "tests/gpu_check.sh %s >%s/gpu-check.log 2>&1", build, build);
    assert_int_equal(stat("results/reference", &before), 0);
    const int how = system(line);
    snprintf(line, sizeof line, "%s/gpu-check.log", build);
    if (!WIFEXITED(how) || WEXITSTATUS(how)) fail_msg("expected status 0, got %d: %.2000s", how, read_all(line));
    assert_int_equal(stat("results/reference", &after), 0);
    assert_int_equal(before.st_mtime, after.st_mtime); /* no folder was made or removed */
    assert_int_equal(before.st_nlink, after.st_nlink);

    static const struct {
        const char *file, *has;
        unsigned least;
    } files[] = {{"units.tsv", "\tok\t", 30},          {"roof.json", "\"simulated\": true", 1},
                 {"bench.jsonl", "cublasLt", 3},       {"bench.jsonl", "attention", 3},
                 {"cells.jsonl", "simulated", 6},      {"measuring.txt", "gpu_driver", 1},
                 {"report/report.md", "simulated", 1}, {"README.md", "| passed |", 8}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(line, sizeof line, "%s/gpu-check/results/%s", build, files[i].file);
        const unsigned n = lines_with(line, files[i].has);
        if (n < files[i].least)
            fail_msg("%s: expected at least %u times '%s', got %u", line, files[i].least, files[i].has, n);
    }
    snprintf(line, sizeof line, "%s/gpu-check/results/units.tsv", build);
    assert_int_equal(lines_with(line, "\tnot ok\t"), 0);
    snprintf(line, sizeof line, "%s/gpu-check/results/bench.jsonl", build);
    assert_int_equal(lines_with(line, "\"error\""), 0);
}

static void without_a_gpu(void **state) {
    (void)state;
    char line[512];
    const char *build = getenv("HEADROOM_BUILD");
    snprintf(line, sizeof line, "HEADROOM_LIBCUDA=/nonexistent tests/gpu_check.sh %s 2>&1", build ? build : "build");
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    const int how = pclose(pipe);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 2 || !strstr(text, "cuda:0: "))
        fail_msg("expected status 2 and a line with 'cuda:0: ', got %d: %.500s", how, text);
}

int main(void) {
    gpu_use_fakes();
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_a_gpu), cmocka_unit_test(the_whole_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
