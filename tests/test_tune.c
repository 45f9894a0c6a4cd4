/* The width of int8 products: the rule, the file that keeps the answer, and what forces it. */
#include "tests/hr_test.h"

#include "engine/tune.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const hr_kernel narrow_row = {.name = "narrow", .lanes = 256}, wide_row = {.name = "wide", .lanes = 512};
static const hr_width_pair made_pair = {&narrow_row, &wide_row};
static char folder[256];

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hr_tune_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char line[512];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

static void the_faster_width_is_taken(void **state) {
    (void)state;
    assert_int_equal(hr_tune_decide(900, 1000), 512);
    assert_int_equal(hr_tune_decide(1000, 900), 256);
    assert_int_equal(hr_tune_decide(1000, 1000), 512); /* a tie never changes */
    assert_int_equal(hr_tune_decide(1005, 1000), 512);
    assert_int_equal(hr_tune_decide(1020, 1000), 256);
}

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void the_file_is_believed_only_whole_and_of_this_cpu(void **state) {
    (void)state;
    char path[512], text[1024];
    const char *key = "vendor 25 17 1 0xa10";
    hr_tuning in = {.lanes = 256, .narrow_gop_s = 451.5, .wide_gop_s = 448}, out = {0};
    snprintf(path, sizeof path, "%s/a/b/lanes", folder);
    assert_false(hr_tune_load(path, key, &out));
    assert_true(hr_tune_store(path, key, &in)); /* folders are made */
    assert_true(hr_tune_load(path, key, &out));
    assert_int_equal(out.lanes, 256);
    assert_true(out.narrow_gop_s == 451.5 && out.wide_gop_s == 448);
    assert_false(hr_tune_load(path, "vendor 25 17 1 0xa11", &out)); /* another microcode */
    assert_false(hr_tune_load(path, "vendor 25 17 1 0xa1", &out));
    const char *const wrong[] = {"",
                                 "headroom-tune 1\n%s\n",
                                 "headroom-tune 1\n%s\nlanes 256 narrow 451.5 wide 44", /* cut */
                                 "headroom-tune 1\n%s\nlanes 128 narrow 1 wide 2 end\n",
                                 "headroom-tune 1\n%s\nlanes 512 narrow nan wide 2 end\n",
                                 "headroom-tune 1\n%s\nlanes 512 narrow -1 wide 2 end\n",
                                 "headroom-tune 9\n%s\nlanes 512 narrow 1 wide 2 end\n",
                                 "\xff\xfe junk"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(wrong[i], "%s");
        if (at)
            snprintf(text, sizeof text, "%.*s%s%s", (int)(at - wrong[i]), wrong[i], key, at + 2);
        else
            snprintf(text, sizeof text, "%s", wrong[i]);
        write_text(path, text);
        if (hr_tune_load(path, key, &out)) fail_msg("a wrong file was believed: %zu", i);
    }
}

static void where_it_lies(void **state) {
    (void)state;
    char path[512], other[512], key[512];
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    assert_true(hr_tune_path("a", path, sizeof path));
    assert_int_equal(strncmp(path, "/x/cache/headroom/lanes-", 24), 0);
    assert_true(hr_tune_path("b", other, sizeof other));
    assert_string_not_equal(path, other); /* two CPUs that share a home folder */
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/someone", 1);
    assert_true(hr_tune_path("a", path, sizeof path));
    assert_int_equal(strncmp(path, "/home/someone/.cache/headroom/lanes-", 36), 0);
    unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    assert_false(hr_tune_path("a", path, sizeof path));
    hr_tune_key(&made_pair, key, sizeof key);
    assert_non_null(strstr(key, "narrow wide"));
    assert_null(strchr(key, '\n'));
}

static void a_place_that_cannot_be_written_is_no_error(void **state) {
    (void)state;
    char path[512];
    const hr_tuning in = {.lanes = 512, .narrow_gop_s = 1, .wide_gop_s = 2};
    assert_false(hr_tune_store("/proc/nowhere/lanes", "key", &in));
    snprintf(path, sizeof path, "%s/file", folder);
    write_text(path, "x");
    snprintf(path, sizeof path, "%s/file/lanes", folder); /* a file where a folder should be */
    assert_false(hr_tune_store(path, "key", &in));
}

/* Many processes at once: whatever moment a reader picks, the file is whole. */
static void writers_at_once_leave_a_whole_file(void **state) {
    (void)state;
    enum { WRITERS = 4, ROUNDS = 200 };
    char path[512];
    snprintf(path, sizeof path, "%s/shared/lanes", folder);
    hr_tuning t = {.lanes = 512, .narrow_gop_s = 1, .wide_gop_s = 2}, got;
    assert_true(hr_tune_store(path, "key", &t));
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            t.narrow_gop_s = 1e6 * (w + 1);
            for (int i = 0; i < ROUNDS; i++)
                if (!hr_tune_store(path, "key", &t)) _exit(1);
            _exit(0);
        }
    for (int i = 0; i < 500; i++) assert_true(hr_tune_load(path, "key", &got));
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_true(hr_tune_load(path, "key", &got) && got.narrow_gop_s >= 1e6);
}

/* Runs first: the answer is found once a process. A wrong word is refused, and is not remembered as the answer. */
static void the_environment_decides(void **state) {
    (void)state;
    hr_tuning t;
    setenv("HEADROOM_LANES", "1024", 1);
    assert_int_equal(hr_tune(&t), HR_ERR_USAGE);
    assert_non_null(strstr(hr_error(), "256 or 512"));
    setenv("HEADROOM_LANES", "256", 1);
    assert_int_equal(hr_tune(&t), HR_OK);
    assert_int_equal(t.lanes, 256);
    assert_int_equal(t.how, HR_TUNED_FORCED);
    assert_int_equal(hr_kernel_preferred_lanes(), 256);
    unsetenv("HEADROOM_LANES");
}

static void the_rows_of_this_cpu_are_measured(void **state) {
    (void)state;
    const hr_width_pair pair = hr_tune_pair(hr_isa_best(), 64);
    if (!pair.narrow) hr_skip("no two widths of int8 products run here");
    double narrow, wide;
    assert_int_equal(hr_tune_measure(&pair, &narrow, &wide), HR_OK);
    assert_true(narrow > 0 && wide > 0);
    print_message("%s %.0f Gop/s, %s %.0f Gop/s\n", pair.narrow->name, narrow, pair.wide->name, wide);
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_int_equal(hr_tune_measure(&pair, &narrow, &wide), HR_ERR_MEMORY);
    hr_fault_arm(HR_FAULT_ALLOC, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_decides),
        cmocka_unit_test(the_faster_width_is_taken),
        cmocka_unit_test(the_file_is_believed_only_whole_and_of_this_cpu),
        cmocka_unit_test(where_it_lies),
        cmocka_unit_test(a_place_that_cannot_be_written_is_no_error),
        cmocka_unit_test(writers_at_once_leave_a_whole_file),
        cmocka_unit_test(the_rows_of_this_cpu_are_measured),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
