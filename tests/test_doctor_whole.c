/* The doctor against hostile files, its form on any machine, and its verdicts on what is measured or asked of libraries. */
#include "tests/doctor_fixture.h"

#include "harness/doctor/doctor_judge.h"
#include "kernels/base/memory.h"

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static const char *const paths[] = {"/proc/cpuinfo",
                                    "/proc/stat",
                                    "/proc/meminfo",
                                    "/proc/self/status",
                                    "/proc/self/cgroup",
                                    "/proc/self/limits",
                                    "/proc/pressure/cpu",
                                    "/proc/pressure/memory",
                                    "/proc/pressure/io",
                                    "/proc/sys/kernel/perf_event_paranoid",
                                    "/proc/sys/kernel/randomize_va_space",
                                    "/proc/sys/kernel/numa_balancing",
                                    "/proc/driver/nvidia/version",
                                    "/proc/driver/nvidia/params",
                                    "/proc/7/stat",
                                    CPU "/online",
                                    CPU "/isolated",
                                    CPU "/smt/active",
                                    CPU "/smt/control",
                                    CPU "/intel_pstate/no_turbo",
                                    CPU "/cpufreq/boost",
                                    CPU "/cpu0/cpufreq/scaling_governor",
                                    CPU "/cpu0/cpufreq/scaling_driver",
                                    CPU "/cpu0/thermal_throttle/package_throttle_count",
                                    NODE "/online",
                                    NODE "/node0/cpulist",
                                    SOURCE "/current_clocksource",
                                    SOURCE "/available_clocksource",
                                    THP,
                                    "/sys/class/thermal/thermal_zone0/temp",
                                    "/sys/class/powercap/intel-rapl:0/energy_uj",
                                    "/sys/class/dmi/id/sys_vendor",
                                    "/sys/hypervisor/type",
                                    "/sys/fs/cgroup/cpu.max",
                                    "/sys/fs/cgroup/memory.max",
                                    PCI "/vendor",
                                    PCI "/class"};
enum { PATHS = sizeof paths / sizeof *paths };

/* Every check has its form whatever files hold: one line of printable text, a status, a fix only where something is
 * amiss. */
static void assert_form(const json_t *result, const char *what) {
    size_t i;
    json_t *check;
    const json_t *checks = json_object_get(result, "checks");
    if (json_array_size(checks) < 24) fail_msg("%s: %zu checks, expected 24 or more", what, json_array_size(checks));
    json_array_foreach(checks, i, check) {
        const char *name = json_string_value(json_object_get(check, "name"));
        const char *status = json_string_value(json_object_get(check, "status"));
        const char *why = json_string_value(json_object_get(check, "why"));
        const json_t *fix = json_object_get(check, "fix");
        assert_true(name && status && why && fix);
        const bool known =
            !strcmp(status, "ok") || !strcmp(status, "warn") || !strcmp(status, "bad") || !strcmp(status, "unknown");
        if (!known) fail_msg("%s: %s has the status %s", what, name, status);
        if (!*why) fail_msg("%s: %s gives no reason", what, name);
        for (const char *c = why; *c; c++)
            if (*c < ' ' || *c > '~') fail_msg("%s: the reason of %s holds byte %d", what, name, *c);
        if (!strcmp(status, "ok") && !json_is_null(fix)) fail_msg("%s: %s is ok and has a fix", what, name);
        if ((!strcmp(status, "bad") || !strcmp(status, "warn")) && !json_is_string(fix))
            fail_msg("%s: %s is %s and has no fix", what, name, status);
    }
    assert_true(json_is_null(json_object_get(result, "min_detectable_pct")));
    assert_true(json_is_null(json_object_get(result, "noise_pct")));
}

static void files_that_hold_anything(void **state) {
    (void)state;
    enum { HUGE_LINE = 300000 };
    char *line = malloc(HUGE_LINE), binary[256];
    for (size_t i = 0; i < sizeof binary; i++) binary[i] = (char)i;
    memset(line, '9', HUGE_LINE);
    const struct {
        const char *what, *bytes;
        size_t n;
    } contents[] = {{"empty", "", 0},
                    {"a newline", "\n", 1},
                    {"bytes", binary, sizeof binary},
                    {"a huge line", line, HUGE_LINE},
                    {"a huge line after a name", line, HUGE_LINE},
                    {"signs", "(((:::,,,---%n%s%s", 18},
                    {"not a number", "nan\n", 4},
                    {"endless", "inf\n", 4},
                    {"minus", "-5 -5 -5 -5\n", 12},
                    {"a large number", "1e300\n", 6},
                    {"keys without values", "some\nMemTotal:\nSwapTotal:\nflags\ncpu \nMax open files\n0::\n", 56},
                    {"a process without an end", "7 (a) b) R 7", 12}};
    for (size_t k = 0; k < sizeof contents / sizeof *contents; k++) {
        fresh_root();
        if (k == 4) memcpy(line, "cpu flags\t: ", 12);
        for (size_t i = 0; i < PATHS; i++) put_bytes(paths[i], contents[k].bytes, contents[k].n, false);
        json_t *result = examine(NULL);
        assert_form(result, contents[k].what);
        json_decref(result);
    }
    free(line);
}

/* A machine without a single file, and one whose files are all folders. */
static void files_that_are_not(void **state) {
    (void)state;
    fresh_root();
    json_t *result = examine(NULL);
    assert_form(result, "no files");
    json_decref(result);
    fresh_root();
    for (size_t i = 0; i < PATHS; i++) put_bytes(paths[i], NULL, 0, true);
    result = examine(NULL);
    assert_form(result, "folders");
    json_decref(result);
}

static void this_machine_has_its_form(void **state) {
    (void)state;
    json_t *result = NULL;
    const hr_doctor_options options = {.root = "", .pairs = 13, .db = "/tmp/none/x.db"};
    assert_int_equal(hr_doctor(&options, &result), HR_OK);
    assert_form(result, "this machine");
    assert_non_null(find(result, "disk"));
    json_decref(result);
}

/* What runs keep: each name with one of the four words, nothing that is slow, nothing that did not apply. */
static void summary_is_flat(void **state) {
    (void)state;
    json_t *summary = hr_doctor_summary(), *status;
    const char *name;
    assert_true(json_object_size(summary) >= 12);
    json_object_foreach(summary, name, status) {
        const char *word = json_string_value(status);
        if (!word || (strcmp(word, "ok") && strcmp(word, "warn") && strcmp(word, "bad") && strcmp(word, "unknown")))
            fail_msg("%s: %s", name, word ? word : "no word");
    }
    assert_null(json_object_get(summary, "noise"));
    assert_null(json_object_get(summary, "timer"));
    assert_null(json_object_get(summary, "others"));
    json_decref(summary);
}

static void lists_of_cpus(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        unsigned n;
    } lists[] = {{"0", true, 1},
                 {"0-3,8", true, 5},
                 {"", true, 0},
                 {"3,1-3", true, 3},
                 {"4095", true, 1},
                 {"4096", false, 0},
                 {"3-1", false, 0},
                 {"0-", false, 0},
                 {"-1", false, 0},
                 {"a", false, 0},
                 {"99999999999999999999", false, 0},
                 {"0;1", false, 0},
                 {"0-3:2", false, 0}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        hr_cpu_list list;
        const bool ok = hr_cpu_list_parse(lists[i].text, &list);
        if (ok != lists[i].ok || (ok && list.n != lists[i].n))
            fail_msg("\"%s\": expected %d, %u CPUs, got %d, %u", lists[i].text, lists[i].ok, lists[i].n, ok, list.n);
    }
}

/* An allocation that fails is an error or a check that knows less, and nothing is lost on the way. */
static void out_of_memory(void **state) {
    (void)state;
    fresh_root();
    for (size_t i = 0; i < PATHS; i++) put_bytes(paths[i], "1\n", 2, false);
    const hr_doctor_options options = {.root = root, .pairs = 13};
    for (uint64_t nth = 1; nth < 60; nth++) {
        json_t *result = NULL;
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        const hr_status status = hr_doctor(&options, &result);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        assert_true(status == HR_ERR_MEMORY || (status == HR_OK && result));
        json_decref(result);
    }
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------ */

static void expect(const hr_finding *got, hr_fitness fitness, const char *why) {
    if (got->fitness != fitness || !strstr(got->why, why))
        fail_msg("expected %s with \"%s\", got %s: %s", hr_fitness_names[fitness], why, hr_fitness_names[got->fitness],
                 got->why);
    const bool amiss = fitness == HR_FIT_WARN || fitness == HR_FIT_BAD;
    if (amiss != (*got->fix != 0)) fail_msg("%s: the fix is \"%s\"", why, got->fix);
}

static void verdicts_on_timers(void **state) {
    (void)state;
    static const struct {
        double ns, step;
        hr_fitness fitness;
        const char *why;
    } timers[] = {{24, 20, HR_FIT_OK, "24 ns"},
                  {300, 1, HR_FIT_WARN, "300 ns"},
                  {1500, 300, HR_FIT_BAD, "1500 ns"},
                  {30, 4e6, HR_FIT_BAD, "step is 4000000 ns"}};
    for (size_t i = 0; i < sizeof timers / sizeof *timers; i++) {
        hr_finding f = {0};
        hr_judge_timer(timers[i].ns, timers[i].step, &f);
        expect(&f, timers[i].fitness, timers[i].why);
    }
}

static void verdicts_on_disks(void **state) {
    (void)state;
    static const struct {
        double free_bytes;
        bool writable, network;
        hr_fitness fitness;
        const char *why;
    } disks[] = {{50e9, true, false, HR_FIT_OK, "50.0 GB"},  {0.5e9, true, false, HR_FIT_WARN, "500 MB"},
                 {5e6, true, false, HR_FIT_BAD, "5 MB"},     {50e9, false, false, HR_FIT_BAD, "cannot be written"},
                 {50e9, true, true, HR_FIT_WARN, "network"}, {5e6, true, true, HR_FIT_BAD, "5 MB"}};
    for (size_t i = 0; i < sizeof disks / sizeof *disks; i++) {
        hr_finding f = {0};
        hr_judge_disk("results", disks[i].free_bytes, disks[i].writable, disks[i].network, &f);
        expect(&f, disks[i].fitness, disks[i].why);
    }
}

/* Two cards in good order, of which each case spoils the second. */
enum spoil { WELL, OFF, MUTE, HOT, POWER, FREE, IDLE, BUSY, NO_DRIVER, NO_ANSWER, NO_DEVICE };

static hr_gpu_facts two_gpus(enum spoil spoil) {
    hr_gpu_facts f = {.driver = "550.54.15", .asked = true, .n = 2, .cuda = 12040};
    for (int i = 0; i < 2; i++)
        f.devices[i] =
            (hr_gpu_listed){.name = "H", .persistence = 1, .ecc = 1, .sm_mhz = 1200, .max_sm_mhz = 1980, .reasons = 2};
    hr_gpu_listed *second = &f.devices[1];
    static const int64_t bits[] = {[WELL] = 2, [OFF] = 2, [HOT] = 0x40, [POWER] = 4, [IDLE] = 1, [NO_DEVICE] = 2};
    second->reasons = bits[spoil];
    if (spoil == OFF) second->persistence = second->ecc = 0;
    if (spoil == MUTE) *second = (hr_gpu_listed){.persistence = -1, .ecc = -1, .busy_pct = -1, .reasons = -1};
    if (spoil == BUSY) second->busy_pct = 80;
    if (spoil == NO_DRIVER) *f.driver = 0;
    if (spoil == NO_ANSWER) f.asked = false;
    if (spoil == NO_DEVICE) f.n = 0;
    return f;
}

static void verdicts_on_gpus(void **state) {
    (void)state;
    static const struct {
        enum spoil spoil;
        hr_gpu_judge *judge;
        hr_fitness fitness;
        const char *why;
    } cases[] = {{WELL, hr_judge_gpu_clocks, HR_FIT_OK, "set (1200 MHz"},
                 {HOT, hr_judge_gpu_clocks, HR_FIT_BAD, "GPU 1 is slowed down to 1200 of 1980 MHz by heat"},
                 {POWER, hr_judge_gpu_clocks, HR_FIT_WARN, "power cap"},
                 {FREE, hr_judge_gpu_clocks, HR_FIT_WARN, "clock of GPU 1 is free"},
                 {IDLE, hr_judge_gpu_clocks, HR_FIT_WARN, "clock of GPU 1 is free"},
                 {MUTE, hr_judge_gpu_clocks, HR_FIT_UNKNOWN, "GPU 1 does not say"},
                 {NO_DRIVER, hr_judge_gpu_clocks, HR_FIT_ABSENT, "no NVIDIA driver"},
                 {NO_ANSWER, hr_judge_gpu_clocks, HR_FIT_UNKNOWN, "does not answer"},
                 {NO_DEVICE, hr_judge_gpu_clocks, HR_FIT_UNKNOWN, "lists no GPU"},
                 {WELL, hr_judge_gpu_persistence, HR_FIT_OK, "on"},
                 {OFF, hr_judge_gpu_persistence, HR_FIT_WARN, "off on GPU 1"},
                 {MUTE, hr_judge_gpu_persistence, HR_FIT_UNKNOWN, "GPU 1 does not tell"},
                 {WELL, hr_judge_gpu_ecc, HR_FIT_OK, "on"},
                 {OFF, hr_judge_gpu_ecc, HR_FIT_WARN, "off on GPU 1"},
                 {MUTE, hr_judge_gpu_ecc, HR_FIT_UNKNOWN, "GPU 1 has no ECC"},
                 {WELL, hr_judge_gpu_others, HR_FIT_OK, "busy for 0 %"},
                 {BUSY, hr_judge_gpu_others, HR_FIT_BAD, "GPU 1 is busy for 80 %"},
                 {WELL, hr_judge_gpu_cuda, HR_FIT_OK, "CUDA 12.4"},
                 {NO_DRIVER, hr_judge_gpu_cuda, HR_FIT_UNKNOWN, "no driver is loaded"},
                 {NO_DRIVER, hr_judge_gpu_counters, HR_FIT_ABSENT, "no NVIDIA driver"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const hr_gpu_facts f = two_gpus(cases[i].spoil);
        hr_finding got = {0};
        cases[i].judge(&f, &got);
        expect(&got, cases[i].fitness, cases[i].why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(files_that_hold_anything),
                                       cmocka_unit_test(files_that_are_not),
                                       cmocka_unit_test(this_machine_has_its_form),
                                       cmocka_unit_test(summary_is_flat),
                                       cmocka_unit_test(lists_of_cpus),
                                       cmocka_unit_test(out_of_memory),
                                       cmocka_unit_test(verdicts_on_timers),
                                       cmocka_unit_test(verdicts_on_disks),
                                       cmocka_unit_test(verdicts_on_gpus)};
    return cmocka_run_group_tests(tests, fixture_set_up, fixture_tear_down);
}
