/* test_cuda_rules.c - what the machine that runs kernels for GPUs on the CPU finds: each broken rule ends the process with its
 * status and one line that names kernel, block and thread; what only sanitizers see is seen by them; nothing right is reported. */
#include "tests/cuda_fixture.h"
#include "tests/cuda_on_cpu/test_kernels.h"

#include <sys/wait.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
/* The first race ends a process, with status 66. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "halt_on_error=1";
}
enum { TSAN_STATUS = 66 };
#endif

static char said[1 << 16]; /* by the child that ran last, on stderr */

/* The kernel in a process of its own, two blocks of 64 threads; its exit status, or minus a signal. */
static int run_rule(hr_test_rule rule, const hr_shim_mode *mode) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        uint32_t *in = hr_cuda_alloc(64 * sizeof *in),
                 *out = hr_cuda_alloc((rule == HR_TEST_WRITE_BEHIND ? 64 : 128) * sizeof *out);
        memset(in, 0, 64 * sizeof *in);
        memset(out, 0, 64 * sizeof *out);
        const hr_test_io p = {in, out, rule, 0};
        const hr_cuda_shape shape = {{2, 1, 1}, {64, 1, 1}, 0};
        hr_shim_set_mode(mode);
        _exit(hr_shim_launch("test_broken", &shape, &p));
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(ends[0], said + length, sizeof said - 1 - length)) > 0;) length += (size_t)n;
    said[length] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void expect(hr_test_rule rule, int status, const char *words) {
    for (unsigned m = 0; m < hr_shim_n_modes; m += hr_test_quick() ? 3 : 1) {
        hr_cuda_mode_now = hr_shim_modes[m];
        const int got = run_rule(rule, &hr_shim_modes[m]);
        if (got != status || !strstr(said, words))
            fail_msg("rule %d (%s): expected status %d and \"%s\", got %d: %s", rule, hr_cuda_mode_name(), status,
                     words, got, said);
        if (status == 0) continue;
        const char *line = strchr(said, '\n');
        if (!strstr(said, "kernel test_broken, block (") || !strstr(said, "thread (") || !line || line[1])
            fail_msg("rule %d (%s): one line with kernel, block and thread expected: %s", rule, hr_cuda_mode_name(),
                     said);
    }
}

static void test_broken_rules_end_the_process(void **state) {
    (void)state;
    expect(HR_TEST_NONE, 0, "");
    expect(HR_TEST_BARRIER_IN_HALF, HR_SHIM_DEADLOCK, "deadlock of 64 of 64 threads: it waits ");
    expect(HR_TEST_TWO_BARRIERS, HR_SHIM_DIVERGENT_BARRIER, "test_kernels.cu:");
    expect(HR_TEST_TWO_OPS, HR_SHIM_DIVERGENT_WARP, "__syncwarp");
    expect(HR_TEST_MISSING_LANE, HR_SHIM_DEADLOCK, "a vote with mask 0xffffffff");
    expect(HR_TEST_NOT_IN_MASK, HR_SHIM_MISUSE, "lacks its own lane 0");
    expect(HR_TEST_HALF_MMA, HR_SHIM_DIVERGENT_WARP, "mma.bf16 needs all 32 lanes; here are 0xffff0000");
    expect(HR_TEST_COPY_UNALIGNED, HR_SHIM_MISUSE, "cp.async: an address is not aligned to 16");
    expect(HR_TEST_COPY_TO_GLOBAL, HR_SHIM_MISUSE, "cp.async: the target is no shared memory");
    expect(HR_TEST_LDMATRIX_GLOBAL, HR_SHIM_MISUSE, "ldmatrix: a row lies outside");
    expect(HR_TEST_ATOMIC_UNALIGNED, HR_SHIM_MISUSE, "atomic operation on an address");
    expect(HR_TEST_TRAP, HR_SHIM_MISUSE, "__trap()");
    expect(HR_TEST_SHARED_TOO_LARGE, HR_SHIM_MISUSE, "more than 48 KiB of static shared memory");
}

static void test_a_stack_that_overflows(void **state) {
    (void)state;
    expect(HR_TEST_STACK, HR_SHIM_STACK_OVERFLOW, "its stack overflows");
}

static void test_the_report_names_the_thread(void **state) {
    (void)state;
    run_rule(HR_TEST_NOT_IN_MASK, &hr_shim_modes[0]);
    assert_string_equal(
        said, "cuda shim: kernel test_broken, block (0,0,0), thread (0,0,0): a vote with mask 0xfffffffe, which "
              "lacks its own lane 0\n");
    const hr_shim_mode backwards = {HR_SHIM_DESCENDING, 0, false};
    run_rule(HR_TEST_COPY_TO_GLOBAL, &backwards);
    assert_string_equal(
        said, "cuda shim: kernel test_broken, block (1,0,0), thread (63,0,0): cp.async: the target is no shared "
              "memory of the block\n");
}

static void test_what_address_sanitizer_finds(void **state) {
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    for (hr_test_rule rule = HR_TEST_READ_SHARED_BEHIND; rule <= HR_TEST_WRITE_BEHIND; rule++) {
        const int status = run_rule(rule, &hr_shim_modes[0]);
        if (status != 1 || !strstr(said, "heap-buffer-overflow") || !strstr(said, "test_broken"))
            fail_msg("rule %d: expected heap-buffer-overflow in test_broken, got status %d: %s", rule, status, said);
    }
#else
    hr_skip("this build is without AddressSanitizer");
#endif
}

static void test_what_thread_sanitizer_finds(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    for (hr_test_rule rule = HR_TEST_RACE_IN_WARP; rule <= HR_TEST_NO_FENCE; rule++) {
        /* In the order that hides them best: ascending. */
        const int status = run_rule(rule, &hr_shim_modes[0]);
        if (status != TSAN_STATUS || !strstr(said, "data race"))
            fail_msg("rule %d: expected a data race, got status %d: %s", rule, status, said);
    }
#else
    hr_skip("this build is without ThreadSanitizer");
#endif
}

static void test_nothing_right_is_reported(void **state) {
    (void)state;
    for (hr_test_rule rule = HR_TEST_RIGHT_WARP; rule <= HR_TEST_RIGHT_FENCE; rule++) expect(rule, 0, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_rules_end_the_process), cmocka_unit_test(test_a_stack_that_overflows),
        cmocka_unit_test(test_the_report_names_the_thread),  cmocka_unit_test(test_what_address_sanitizer_finds),
        cmocka_unit_test(test_what_thread_sanitizer_finds),  cmocka_unit_test(test_nothing_right_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
