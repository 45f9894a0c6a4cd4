/* The CPUs: at what clock they run, who shares them, and where their memory is. */
#include "harness/doctor/doctor_check.h"

#include <stdio.h>
#include <string.h>

static const char *hidden_by(const hr_patient *p) {
    return hr_doctor_is_virtual(p) ? "a virtual machine hides it" : "the kernel does not show it";
}

/* Intel's and AMD's own drivers move the clock by load also under the governor "powersave"; acpi-cpufreq then stays at
 * the lowest clock. */
static void check_governor(const hr_patient *p, hr_finding *out) {
    hr_cpu_list allowed;
    if (!hr_doctor_allowed(p, &allowed)) hr_cpu_list_parse("0", &allowed);
    char path[128], word[32], slow[32] = "", driver[32];
    unsigned seen = 0, other = 0;
    for (unsigned cpu = 0; cpu < HR_CPU_LIMIT; cpu++) {
        if (!hr_cpu_list_has(&allowed, cpu)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_governor", cpu);
        if (!hr_doctor_line(p, path, word, sizeof word)) continue;
        seen++;
        if (!strcmp(word, "performance")) continue;
        other++;
        if (!*slow || !strcmp(word, "powersave")) memcpy(slow, word, sizeof slow);
    }
    hr_doctor_line(p, "/sys/devices/system/cpu/cpufreq/policy0/scaling_driver", driver, sizeof driver);
    if (!*driver) hr_doctor_line(p, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", driver, sizeof driver);
    if (!seen) {
        hr_find(out, HR_FIT_UNKNOWN, "no frequency governor is shown: %s", hidden_by(p));
        return;
    }
    if (!other) {
        hr_find(out, HR_FIT_OK, "performance on %u CPU%s", seen, seen == 1 ? "" : "s");
        return;
    }
    const bool lowest = !strcmp(slow, "powersave") && !strstr(driver, "pstate");
    hr_find(out, lowest ? HR_FIT_BAD : HR_FIT_WARN, "%s on %u of %u CPUs (driver %s): %s", slow, other, seen,
            *driver ? driver : "unknown",
            lowest ? "they stay at the lowest clock" : "the clock follows the load and rises late in short samples");
    hr_find_fix(out, "cpupower frequency-set -g performance");
}

static void check_turbo(const hr_patient *p, hr_finding *out) {
    double value;
    if (hr_doctor_number(p, "/sys/devices/system/cpu/intel_pstate/no_turbo", &value)) {
        if (value == 1) {
            hr_find(out, HR_FIT_OK, "turbo is off (intel_pstate/no_turbo 1)");
            return;
        }
        hr_find(out, HR_FIT_WARN, "turbo is on: the clock depends on temperature and on what other cores do");
        hr_find_fix(out, "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo");
        return;
    }
    if (!hr_doctor_number(p, "/sys/devices/system/cpu/cpufreq/boost", &value)) {
        hr_find(out, HR_FIT_UNKNOWN, "whether the clock may rise above its base cannot be seen: %s", hidden_by(p));
        return;
    }
    if (value == 0) {
        hr_find(out, HR_FIT_OK, "boost is off (cpufreq/boost 0)");
        return;
    }
    hr_find(out, HR_FIT_WARN, "boost is on: the clock depends on temperature and on what other cores do");
    hr_find_fix(out, "echo 0 > /sys/devices/system/cpu/cpufreq/boost");
}

static void check_smt(const hr_patient *p, hr_finding *out) {
    char control[32];
    double active;
    if (!hr_doctor_number(p, "/sys/devices/system/cpu/smt/active", &active)) {
        hr_find(out, HR_FIT_UNKNOWN, "whether CPUs share a core cannot be seen: %s", hidden_by(p));
        return;
    }
    hr_doctor_line(p, "/sys/devices/system/cpu/smt/control", control, sizeof control);
    if (active == 1) {
        hr_find(out, HR_FIT_WARN, "on (%s): two CPUs share the units of a core, so work on one slows the other",
                *control ? control : "active");
        hr_find_fix(out, "echo off > /sys/devices/system/cpu/smt/control");
    } else if (hr_doctor_is_virtual(p)) {
        hr_find(out, HR_FIT_UNKNOWN, "a virtual machine does not say whether its CPUs are threads of one core");
    } else {
        hr_find(out, HR_FIT_OK, "off (%s): a core has one CPU", *control ? control : "not active");
    }
}

/* Nodes whose CPUs the process may use; *first is the lowest. 0: not known. */
static unsigned nodes_in_use(const hr_patient *p, const hr_cpu_list *online, const hr_cpu_list *allowed,
                             unsigned *first) {
    unsigned n = 0;
    char path[96], text[1024];
    hr_cpu_list cpus;
    for (unsigned node = HR_CPU_LIMIT; node-- > 0;) {
        if (!hr_cpu_list_has(online, node)) continue;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
        if (!hr_doctor_line(p, path, text, sizeof text) || !hr_cpu_list_parse(text, &cpus)) continue;
        bool meets = false;
        for (size_t i = 0; i < HR_CPU_LIMIT / 64; i++) meets |= (cpus.bits[i] & allowed->bits[i]) != 0;
        if (meets) n++, *first = node;
    }
    return n;
}

static void check_numa(const hr_patient *p, hr_finding *out) {
    char text[256];
    hr_cpu_list online, allowed;
    if (!hr_doctor_line(p, "/sys/devices/system/node/online", text, sizeof text) || !hr_cpu_list_parse(text, &online) ||
        !online.n) {
        hr_find(out, HR_FIT_UNKNOWN, "memory nodes are not shown: %s", hidden_by(p));
        return;
    }
    if (online.n == 1) {
        hr_find(out, HR_FIT_OK, "one memory node%s", hr_doctor_is_virtual(p) ? ", as the virtual machine says" : "");
        return;
    }
    unsigned first = 0;
    const unsigned used = hr_doctor_allowed(p, &allowed) ? nodes_in_use(p, &online, &allowed, &first) : 0;
    double balancing = 0;
    hr_doctor_number(p, "/proc/sys/kernel/numa_balancing", &balancing);
    if (!used) {
        hr_find(out, HR_FIT_UNKNOWN, "%u memory nodes, and which of them hold the usable CPUs is not shown", online.n);
    } else if (used > 1) {
        hr_find(out, HR_FIT_WARN, "the usable CPUs lie on %u of %u memory nodes: a read is fast or slow by chance",
                used, online.n);
        hr_find_fix(out, "numactl --cpunodebind=%u --membind=%u headroom ...", first, first);
    } else if (balancing > 0) {
        hr_find(out, HR_FIT_WARN, "all usable CPUs are on node %u, but the kernel moves pages between %u nodes", first,
                online.n);
        hr_find_fix(out, "sysctl -w kernel.numa_balancing=0");
    } else {
        hr_find(out, HR_FIT_OK, "all usable CPUs are on node %u of %u", first, online.n);
    }
}

/* Isolation is worth nothing to a process that runs elsewhere. None is no fault: the noise test says whether it is
 * needed. */
static void check_isolated(const hr_patient *p, hr_finding *out) {
    char text[256];
    hr_cpu_list isolated, allowed;
    if (!hr_doctor_exists(p, "/sys/devices/system/cpu/isolated")) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel does not say which CPUs are isolated");
        return;
    }
    hr_doctor_line(p, "/sys/devices/system/cpu/isolated", text, sizeof text);
    if (!hr_cpu_list_parse(text, &isolated)) {
        hr_find(out, HR_FIT_UNKNOWN, "the list of isolated CPUs cannot be read: %.40s", text);
        return;
    }
    if (!isolated.n) {
        hr_find(out, HR_FIT_OK,
                "none: other work may be put on any CPU, and the noise test says how much that matters");
        return;
    }
    if (!hr_doctor_allowed(p, &allowed)) {
        hr_find(out, HR_FIT_UNKNOWN, "%.60s are isolated, and which CPUs this process may use is not shown", text);
        return;
    }
    unsigned outside = 0;
    for (unsigned cpu = 0; cpu < HR_CPU_LIMIT; cpu++)
        outside += hr_cpu_list_has(&allowed, cpu) && !hr_cpu_list_has(&isolated, cpu);
    if (!outside) {
        hr_find(out, HR_FIT_OK, "all %u usable CPUs are among the isolated ones (%.60s)", allowed.n, text);
        return;
    }
    hr_find(out, HR_FIT_WARN, "%.60s are isolated, but %u of the %u CPUs that this process may use are not", text,
            outside, allowed.n);
    hr_find_fix(out, "taskset -c %.200s headroom ...", text);
}

const hr_check hr_checks_cpu[] = {{"governor", check_governor, false},
                                  {"turbo", check_turbo, false},
                                  {"smt", check_smt, false},
                                  {"numa", check_numa, false},
                                  {"isolated_cpus", check_isolated, false},
                                  {NULL, NULL, false}};
