/* Clocks, heat and counters: what times are taken with, what slows a CPU down, what can be read from it. */
#include "harness/doctor/doctor_check.h"
#include "harness/doctor/doctor_judge.h"

#include "kernels/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sources that are read without a system call on x86-64 and arm64 are the fast ones. */
static void check_clocksource(const hr_patient *p, hr_finding *out) {
    static const char *const fast[] = {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"};
    static const char folder[] = "/sys/devices/system/clocksource/clocksource0";
    char now[48], all[128], path[96];
    snprintf(path, sizeof path, "%s/current_clocksource", folder);
    if (!hr_doctor_line(p, path, now, sizeof now)) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel does not say where it takes the time from");
        return;
    }
    for (size_t i = 0; i < sizeof fast / sizeof *fast; i++)
        if (!strcmp(now, fast[i])) {
            hr_find(out, HR_FIT_OK, "%s, read without a system call", now);
            return;
        }
    hr_find(out, HR_FIT_BAD, "%s: each look at the clock is a slow system call", now);
    snprintf(path, sizeof path, "%s/available_clocksource", folder);
    hr_doctor_line(p, path, all, sizeof all);
    if (!strncmp(all, "tsc", 3) || strstr(all, " tsc"))
        hr_find_fix(out, "echo tsc > %s/current_clocksource", folder);
    else
        hr_find_fix(out, "boot with: clocksource=tsc tsc=reliable");
}

void hr_judge_timer(double ns, double step_ns, hr_finding *out) {
    const hr_fitness fitness = ns > 1000 || step_ns > 1000 ? HR_FIT_BAD : ns > 100 ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness, "a look at the clock takes %.0f ns and its smallest step is %.0f ns%s", ns, step_ns,
            fitness == HR_FIT_OK ? "" : ": small ops cannot be timed apart");
    if (fitness != HR_FIT_OK)
        hr_find_fix(out, "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource");
}

/* The best of some rounds: what a call costs when nothing comes between. */
static void check_timer(const hr_patient *p, hr_finding *out) {
    if (*p->root) {
        hr_find(out, HR_FIT_UNKNOWN, "the clock of another machine cannot be timed");
        return;
    }
    enum { ROUNDS = 20, CALLS = 500 };
    double best = 1e18;
    uint64_t step = UINT64_MAX;
    for (int r = 0; r < ROUNDS; r++) {
        const uint64_t start = hr_now_ns();
        uint64_t last = start;
        for (int i = 0; i < CALLS; i++) {
            const uint64_t now = hr_now_ns();
            if (now > last && now - last < step) step = now - last;
            last = now;
        }
        const double each = (double)(last - start) / CALLS;
        if (each < best) best = each;
    }
    hr_judge_timer(best, step == UINT64_MAX ? 0 : (double)step, out);
}

static void check_hypervisor(const hr_patient *p, hr_finding *out) {
    char vendor[64], type[32];
    if (!hr_doctor_exists(p, "/proc/cpuinfo")) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/cpuinfo is not there");
        return;
    }
    hr_doctor_line(p, "/sys/hypervisor/type", type, sizeof type);
    if (!hr_doctor_is_virtual(p) && !*type) {
        hr_find(out, HR_FIT_OK, "none: the CPU is this system's own");
        return;
    }
    hr_doctor_line(p, "/sys/class/dmi/id/sys_vendor", vendor, sizeof vendor);
    hr_find(out, HR_FIT_UNKNOWN,
            "a virtual machine (%s): clock, neighbours and placement are the host's and cannot be seen from here",
            *type     ? type
            : *vendor ? vendor
                      : "no vendor named");
}

/* "cpu user nice system idle iowait irq softirq steal guest guest_nice": guest is in user already. */
static void check_steal(const hr_patient *p, hr_finding *out) {
    char text[256];
    double v[8], all = 0;
    if (!hr_doctor_value(p, "/proc/stat", "cpu", text, sizeof text) ||
        sscanf(text, "%lf %lf %lf %lf %lf %lf %lf %lf", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) != 8) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/stat does not say what the hypervisor took");
        return;
    }
    for (int i = 0; i < 8; i++) all += v[i];
    if (!(all > 0) || !(v[7] >= 0)) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/stat counts no time");
        return;
    }
    const double percent = 100 * v[7] / all;
    const hr_fitness fitness = percent > 5 ? HR_FIT_BAD : percent > 1 ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness, "the hypervisor gave %.2f %% of the CPU time since boot to others", percent);
    if (fitness != HR_FIT_OK) hr_find_fix(out, "move to a machine with CPUs of its own (dedicated, or bare metal)");
}

/* ---- heat -------------------------------------------------------------------------------------------------------- */

/* The hottest sensor in degrees Celsius; false without one. Values are in thousandths. */
static bool hottest(const hr_patient *p, double *out) {
    enum { SENSORS = 32 };
    char path[96];
    double value;
    bool any = false;
    for (int i = 0; i < 2 * SENSORS; i++) {
        if (i < SENSORS)
            snprintf(path, sizeof path, "/sys/class/thermal/thermal_zone%d/temp", i);
        else
            snprintf(path, sizeof path, "/sys/class/hwmon/hwmon%d/temp1_input", i - SENSORS);
        if (!hr_doctor_number(p, path, &value) || value < -50e3 || value > 200e3) continue;
        if (!any || value * 1e-3 > *out) *out = value * 1e-3;
        any = true;
    }
    return any;
}

static void check_thermal(const hr_patient *p, hr_finding *out) {
    double celsius = 0, count = 0;
    const bool warm = hottest(p, &celsius);
    const bool counted =
        hr_doctor_number(p, "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", &count);
    if (warm && celsius >= 90) {
        hr_find(out, celsius >= 100 ? HR_FIT_BAD : HR_FIT_WARN,
                "the hottest sensor is at %.0f C: the clock is lowered from here on", celsius);
        hr_find_fix(out, "let it cool (headroom sweep --delay 10), or mend the cooling");
    } else if (counted && count > 0) {
        hr_find(out, HR_FIT_WARN, "the CPU was slowed down for heat %.0f times since boot", count);
        hr_find_fix(out, "let it cool (headroom sweep --delay 10), or mend the cooling");
    } else if (warm) {
        hr_find(out, HR_FIT_OK, "the hottest sensor is at %.0f C", celsius);
    } else if (counted) {
        hr_find(out, HR_FIT_OK, "the CPU was not slowed down for heat since boot");
    } else {
        hr_find(out, HR_FIT_UNKNOWN, "no temperature is shown: %s",
                hr_doctor_is_virtual(p) ? "a virtual machine hides it" : "no sensor has a driver");
    }
}

static void check_rapl(const hr_patient *p, hr_finding *out) {
    static const char path[] = "/sys/class/powercap/intel-rapl:0/energy_uj"; /* AMD's has this name too */
    double value;
    if (hr_doctor_number(p, path, &value)) {
        hr_find(out, HR_FIT_OK, "energy of the package can be read");
    } else if (hr_doctor_exists(p, path)) {
        hr_find(out, HR_FIT_WARN, "the counter of energy is there and cannot be read");
        hr_find_fix(out, "chmod a+r %s", path);
    } else {
        hr_find(out, HR_FIT_UNKNOWN, "no counter of energy: %s",
                hr_doctor_is_virtual(p) ? "a virtual machine hides it" : "the kernel has no driver for it");
    }
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

enum { CAP_SYS_ADMIN_BIT = 21, CAP_PERFMON_BIT = 38 };

static void check_perf(const hr_patient *p, hr_finding *out) {
    double level;
    if (!hr_doctor_number(p, "/proc/sys/kernel/perf_event_paranoid", &level)) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel has no performance events");
        return;
    }
    const bool root = hr_doctor_capable(p, CAP_SYS_ADMIN_BIT) || hr_doctor_capable(p, CAP_PERFMON_BIT);
    if (level > 2 && !root) {
        hr_find(out, HR_FIT_WARN, "perf_event_paranoid is %.0f: no counters for this user", level);
        hr_find_fix(out, "sysctl -w kernel.perf_event_paranoid=2");
    } else if (!hr_doctor_exists(p, "/sys/bus/event_source/devices/cpu") &&
               !hr_doctor_exists(p, "/sys/bus/event_source/devices/armv8_pmuv3_0")) {
        hr_find(out, HR_FIT_UNKNOWN, "events are allowed (perf_event_paranoid %.0f), but the CPU shows no counters%s",
                level, hr_doctor_is_virtual(p) ? " in this virtual machine" : "");
    } else {
        hr_find(out, HR_FIT_OK, "perf_event_paranoid is %.0f%s: the program's own counters can be read", level,
                level > 2 ? ", which does not hold for this user" : "");
    }
}

const hr_check hr_checks_clock[] = {{"clocksource", check_clocksource, false}, {"timer", check_timer, true},
                                    {"hypervisor", check_hypervisor, false},   {"steal", check_steal, false},
                                    {"thermal", check_thermal, false},         {"rapl", check_rapl, false},
                                    {"perf_events", check_perf, false},        {NULL, NULL, false}};
