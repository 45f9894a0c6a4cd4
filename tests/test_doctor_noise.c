/* What others take of the CPUs, and what difference the noise lets one find. */
#include "tests/doctor_fixture.h"

#include "harness/doctor/busy.h"
#include "harness/doctor/doctor_judge.h"
#include "kernels/base/memory.h"
#include "kernels/base/pairs.h"
#include "kernels/base/random.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- others, on a made-up machine of 100 ticks a second -------------------------------------------------------------- */

static void put_process(int pid, const char *name, int parent, int ticks, int born) {
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int n =
        snprintf(text, sizeof text, "%d (%s) S %d 1 1 0 -1 4194304 1 0 0 0 %d %d 900 900 20 0 3 0 %d 4096 1\n", pid,
                 name, parent, ticks / 2, ticks - ticks / 2, born);
    put_bytes(path, text, (size_t)n, false);
}

static void put_cpus(int first, int second) {
    char text[256];
    const int n = snprintf(text, sizeof text,
                           "cpu  0 0 0 0 0 0 0 0\ncpu0 %d 0 0 900 5 0 0 7\ncpu1 0 0 %d 900 5 0 0 7\n", first, second);
    put_bytes("/proc/stat", text, (size_t)n, false);
}

enum { SELF = 100 };
static void put_own(int ticks) {
    put_process(1, "init", 0, 0, 1);
    put_process(SELF, "headroom", 1, ticks, 10);
    put_process(90, "worker", SELF, ticks, 10); /* numbers went round: lower than its parent's */
    put_process(120, "helper", 90, ticks, 10);
}

static hr_others_look *first_look(void) {
    hr_others_look *begun;
    if (hr_others_begin(root, &begun) != HR_OK) fail_msg("%s", hr_error());
    return begun;
}

/* 2 s later: a tick is half a percent of a core. */
static hr_others second_look(hr_others_look *begun) {
    hr_others others;
    if (hr_others_end(begun, root, SELF, 2, &others) != HR_OK) fail_msg("%s", hr_error());
    return others;
}

static void assert_others(const hr_others *got, double percent, double largest, const char *name, int pid) {
    if (fabs(got->percent - percent) > 0.01 || fabs(got->largest_percent - largest) > 0.01 || strcmp(got->name, name) ||
        got->pid != pid)
        fail_msg("expected %.1f %%, %.1f %% of %s (%d), got %.1f %%, %.1f %% of %s (%d)", percent, largest, name, pid,
                 got->percent, got->largest_percent, got->name, got->pid);
}

static void own_processes_do_not_count(void **state) {
    (void)state;
    fresh_root();
    put_own(0);
    hr_others_look *begun = first_look();
    put_own(150);
    const hr_others others = second_look(begun);
    assert_others(&others, 0, 0, "", 0);
}

static void the_largest_is_named(void **state) {
    (void)state;
    if (sysconf(_SC_CLK_TCK) != 100) hr_skip("the system counts other ticks");
    fresh_root();
    put_own(0), put_process(200, "a) (b c", 1, 40, 20), put_process(201, "idle", 1, 7, 20);
    put_process(202, "reused", 1, 500, 20);
    hr_others_look *begun = first_look();
    put_own(150), put_process(200, "a) (b c", 1, 100, 20);
    put_process(202, "reused", 1, 10, 99); /* another one with this number */
    put_process(203, "new", 1, 30, 98);    /* began between the looks */
    const hr_others others = second_look(begun);
    assert_others(&others, 30 + 5 + 15, 30, "a) (b c", 200);
}

static void names_are_printable(void **state) {
    (void)state;
    fresh_root();
    put_own(0);
    hr_others_look *begun = first_look();
    put_process(203, "new\x01\xff", 1, 300, 98);
    const hr_others others = second_look(begun);
    assert_string_equal(others.name, "new??");
}

/* Time that no process accounts for, of the CPUs that may be used alone. */
static void hidden_work_is_told_of(void **state) {
    (void)state;
    if (sysconf(_SC_CLK_TCK) != 100) hr_skip("the system counts other ticks");
    static const char status[] = "Cpus_allowed_list:\t0\n";
    fresh_root();
    put_bytes("/proc/self/status", status, sizeof status - 1, false);
    put_own(0), put_cpus(1000, 1000), put_process(200, "seen", 1, 0, 20);
    hr_others_look *begun = first_look();
    put_cpus(1120, 1200), put_process(200, "seen", 1, 20, 20);
    hr_others others = second_look(begun);
    assert_others(&others, 10 + 50, 50, "short-lived or hidden processes", 0);
    put_cpus(1000, 1000), begun = first_look();
    put_cpus(1020, 1200); /* as little as rounding makes */
    others = second_look(begun);
    assert_others(&others, 0, 0, "", 0);
}

static void verdicts_on_others(void **state) {
    (void)state;
    hr_finding f = {0};
    hr_judge_others(&(hr_others){0}, 0.5, &f);
    assert_int_equal(f.fitness, HR_FIT_OK);
    hr_judge_others(&(hr_others){.percent = 12, .largest_percent = 4, .name = "a", .pid = 7}, 0.5, &f);
    assert_int_equal(f.fitness, HR_FIT_OK); /* many that take little each */
    hr_judge_others(&(hr_others){.percent = 12, .largest_percent = 8, .name = "a", .pid = 7}, 0.5, &f);
    assert_int_equal(f.fitness, HR_FIT_WARN);
    assert_non_null(strstr(f.why, "a (pid 7) with 8 %"));
    assert_non_null(strstr(f.fix, "kill -STOP 7"));
    hr_judge_others(&(hr_others){.percent = 80, .largest_percent = 60, .name = "hidden"}, 0.5, &f);
    assert_int_equal(f.fitness, HR_FIT_BAD);
    assert_null(strstr(f.fix, "kill"));
}

/* ---- others, really --------------------------------------------------------------------------------------------------- */

static void spin(void) {
    alarm(60); /* ends by itself should the test die */
    for (volatile unsigned i = 0;; i++) {
    }
}

/* A process that is no descendant: its parent has ended. */
static pid_t busy_stranger(void) {
    int ends[2];
    pid_t pid = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t between = fork();
    assert_true(between >= 0);
    if (between == 0) {
        pid = fork();
        if (pid == 0) setsid(), spin();
        _exit(write(ends[1], &pid, sizeof pid) != sizeof pid);
    }
    assert_int_equal(read(ends[0], &pid, sizeof pid), sizeof pid);
    assert_int_equal(waitpid(between, NULL, 0), between);
    close(ends[0]), close(ends[1]);
    assert_true(pid > 0);
    return pid;
}

static void own_children_are_not_blamed(void **state) {
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) spin();
    double percent;
    char name[64];
    int pid;
    const hr_status status = hr_doctor_others(0.3, &percent, name, &pid);
    kill(child, SIGKILL), waitpid(child, NULL, 0);
    assert_int_equal(status, HR_OK);
    assert_int_not_equal(pid, child);
}

static void a_stranger_is_seen(void **state) {
    (void)state;
    const pid_t stranger = busy_stranger();
    double percent = 0;
    char name[64], message[300];
    int pid;
    const hr_status status = hr_doctor_others(0.5, &percent, name, &pid);
    hr_busy warn = {.on_busy = HR_BUSY_WARN}, fail = {.on_busy = HR_BUSY_FAIL}, ignore = {.on_busy = HR_BUSY_IGNORE},
            wait = {.on_busy = HR_BUSY_WAIT, .timeout_s = 0.4};
    hr_busy_begin(&warn);
    const hr_status warned = hr_busy_end(&warn);
    hr_busy_begin(&fail);
    const hr_status failed = hr_busy_end(&fail);
    snprintf(message, sizeof message, "%s", hr_error());
    hr_busy_begin(&ignore);
    const hr_status ignored = hr_busy_end(&ignore);
    hr_busy_begin(&wait);
    const hr_status waited = hr_busy_end(&wait);
    kill(stranger, SIGKILL);

    assert_int_equal(status, HR_OK);
    assert_true(percent > 0 && *name);
    assert_int_equal(warned, HR_OK);
    assert_true(warn.looked && warn.busy && strstr(warn.warning, "of a core"));
    assert_int_equal(failed, HR_ERR_UNSUPPORTED);
    if (!strstr(message, "--on-busy fail: ")) fail_msg("%s", message);
    assert_int_equal(ignored, HR_OK);
    assert_true(!ignore.looked && !ignore.busy);
    assert_int_equal(waited, HR_OK); /* it goes on all the same */
    assert_true(wait.looked && wait.busy);
}

/* ---- noise ------------------------------------------------------------------------------------------------------------- */

/* Quantiles of a normal distribution by bisection: differences of a known spread, without a generator. */
static void normal(double *d, size_t n, double sigma) {
    for (size_t i = 0; i < n; i++) {
        const double p = ((double)i + 0.5) / (double)n;
        double lo = -9, hi = 9;
        for (int k = 0; k < 80; k++) {
            const double mid = (lo + hi) / 2;
            *(0.5 * erfc(-mid / sqrt(2)) < p ? &lo : &hi) = mid;
        }
        d[i] = sigma * lo;
    }
}

static void spread_is_that_of_a_normal(void **state) {
    (void)state;
    double d[999];
    normal(d, 999, 0.01);
    const double got = hr_noise_spread_pct(d, 999); /* 100 (e^0.01 - 1) = 1.005 */
    if (fabs(got - 1.005) > 0.005) fail_msg("expected 1.005 %%, got %.4f %%", got);
    d[0] = -5, d[998] = 5; /* two outliers do not matter */
    assert_true(fabs(hr_noise_spread_pct(d, 999) - 1.005) < 0.02);
    assert_true(isnan(hr_noise_spread_pct(d, 0)));
}

/* The share of cases in which `pairs` pairs with this shift have an interval beyond zero; other draws than the function's. */
static double power_of(const double *d, size_t n, size_t pairs, double shift) {
    enum { CASES = 2000 };
    uint64_t random = 7;
    unsigned found = 0;
    for (int i = 0; i < CASES; i++) {
        double drawn[HR_PAIRS_MAX], lo, hi;
        for (size_t k = 0; k < pairs; k++) {
            const uint64_t bits = hr_random(&random);
            drawn[k] = shift + (bits & 1 ? 1 : -1) * d[(bits >> 1) % n];
        }
        hr_pairs_shift(drawn, pairs, &lo, &hi);
        found += lo > 0;
    }
    return found / (double)CASES;
}

/* 80 % by definition; binomial samples of 1000 and of 2000 differ by under 5 %, three standard deviations. */
static void what_is_promised_is_found(void **state) {
    (void)state;
    double d[301], before = INFINITY;
    const size_t pairs[] = {6, 13, 26, 64};
    normal(d, 301, 0.01);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const double pct = hr_noise_detectable_pct(d, 301, pairs[i]);
        const double power = power_of(d, 301, pairs[i], log1p(pct / 100));
        if (fabs(power - 0.8) > 0.05)
            fail_msg("%zu pairs: %.3f %% is found in %.3f of the cases", pairs[i], pct, power);
        if (!(pct < before)) fail_msg("%zu pairs find %.3f %%, fewer found %.3f %%", pairs[i], pct, before);
        before = pct;
    }
    /* A t interval of 13 has the half-width 2.18 / sqrt(13) of 1 %, and 80 % power adds 0.84 / sqrt(13). */
    const double got = hr_noise_detectable_pct(d, 301, 13);
    if (fabs(got - 0.84) > 0.08) fail_msg("13 pairs: expected about 0.84 %%, got %.3f %%", got);
}

static void noise_scales_and_has_limits(void **state) {
    (void)state;
    double d[51], twice[51];
    normal(d, 51, 0.004);
    for (size_t i = 0; i < 51; i++) twice[i] = 2 * d[i];
    const double one = log1p(hr_noise_detectable_pct(d, 51, 13) / 100);
    const double two = log1p(hr_noise_detectable_pct(twice, 51, 13) / 100);
    if (fabs(two - 2 * one) > 1e-9) fail_msg("twice the noise: expected %.6g, got %.6g", 2 * one, two);
    assert_true(isnan(hr_noise_detectable_pct(d, 51, 5)));
    assert_true(isnan(hr_noise_detectable_pct(d, 5, 13)));
    assert_true(isnan(hr_noise_detectable_pct(d, 51, HR_PAIRS_MAX + 1)));
    hr_finding f = {0};
    hr_judge_noise(0.3, 0.8, 13, 75, &f);
    assert_int_equal(f.fitness, HR_FIT_OK);
    hr_judge_noise(1.5, 3, 13, 75, &f);
    assert_int_equal(f.fitness, HR_FIT_WARN);
    assert_non_null(strstr(f.fix, "--pairs 26"));
    hr_judge_noise(9, 12, 64, 75, &f);
    assert_int_equal(f.fitness, HR_FIT_BAD);
    assert_null(strstr(f.fix, "--pairs"));
    hr_judge_noise(NAN, NAN, 13, 2, &f);
    assert_int_equal(f.fitness, HR_FIT_UNKNOWN);
}

static void the_test_runs(void **state) {
    (void)state;
    double *d;
    size_t n;
    assert_int_equal(hr_noise_measure(0.3, &d, &n), HR_OK);
    assert_true(n >= 1);
    for (size_t i = 0; i < n; i++) assert_true(isfinite(d[i]));
    hr_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(own_processes_do_not_count),
                                       cmocka_unit_test(the_largest_is_named),
                                       cmocka_unit_test(names_are_printable),
                                       cmocka_unit_test(hidden_work_is_told_of),
                                       cmocka_unit_test(verdicts_on_others),
                                       cmocka_unit_test(own_children_are_not_blamed),
                                       cmocka_unit_test(a_stranger_is_seen),
                                       cmocka_unit_test(spread_is_that_of_a_normal),
                                       cmocka_unit_test(what_is_promised_is_found),
                                       cmocka_unit_test(noise_scales_and_has_limits),
                                       cmocka_unit_test(the_test_runs)};
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
