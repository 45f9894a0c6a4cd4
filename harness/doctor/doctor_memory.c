/* Memory: pages, swap, placement, what is free. */
#include "harness/doctor/doctor_check.h"

#include <stdio.h>
#include <string.h>

static const double GIB = 1073741824.0;

/* The engine asks for huge pages where it wants them, so "madvise" is enough. */
static void check_thp(const hr_patient *p, hr_finding *out) {
    char line[96];
    if (!hr_doctor_line(p, "/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel has no transparent huge pages");
    } else if (strstr(line, "[madvise]") || strstr(line, "[always]")) {
        hr_find(out, HR_FIT_OK, "%s: weights and KV lie in pages of 2 MiB",
                strstr(line, "[madvise]") ? "madvise" : "always");
    } else if (strstr(line, "[never]")) {
        hr_find(out, HR_FIT_WARN, "never: a pass over the weights misses the TLB at every 4 KiB");
        hr_find_fix(out, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    } else {
        hr_find(out, HR_FIT_UNKNOWN, "transparent_hugepage/enabled cannot be understood: %.40s", line);
    }
}

/* A value of /proc/meminfo in bytes. */
static bool meminfo(const hr_patient *p, const char *key, double *bytes) {
    char text[64];
    if (!hr_doctor_value(p, "/proc/meminfo", key, text, sizeof text) || sscanf(text, "%lf", bytes) != 1 ||
        !(*bytes >= 0))
        return false;
    *bytes *= 1024;
    return true;
}

static void check_swap(const hr_patient *p, hr_finding *out) {
    double total, free_bytes;
    if (!meminfo(p, "SwapTotal", &total) || !meminfo(p, "SwapFree", &free_bytes) || free_bytes > total) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/meminfo does not tell of swap");
    } else if (total == 0) {
        hr_find(out, HR_FIT_OK, "none");
    } else if (total - free_bytes < 0.01 * total) {
        hr_find(out, HR_FIT_WARN, "%.1f GiB, unused: pages of weights may be written out while others need memory",
                total / GIB);
        hr_find_fix(out, "swapoff -a");
    } else {
        hr_find(out, HR_FIT_BAD, "%.1f of %.1f GiB are in use: reads of memory may wait for a disk",
                (total - free_bytes) / GIB, total / GIB);
        hr_find_fix(out, "swapoff -a");
    }
}

/* Without it, every process of a build gets the same addresses, and an accident of placement looks like a property of the
 * build in all pairs (Mytkowicz et al., ASPLOS 2009: wrong data without doing anything obviously wrong). */
static void check_aslr(const hr_patient *p, hr_finding *out) {
    double level;
    if (!hr_doctor_number(p, "/proc/sys/kernel/randomize_va_space", &level)) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/sys/kernel/randomize_va_space cannot be read");
    } else if (level > 0) {
        hr_find(out, HR_FIT_OK,
                "on (%.0f): addresses differ between processes, and pairs of processes average over that", level);
    } else {
        hr_find(out, HR_FIT_WARN,
                "off: an accident of placement is the same in every pair and looks like a difference");
        hr_find_fix(out, "sysctl -w kernel.randomize_va_space=2");
    }
}

static void check_free(const hr_patient *p, hr_finding *out) {
    double total, available;
    if (!meminfo(p, "MemTotal", &total) || !meminfo(p, "MemAvailable", &available) || !(total > 0)) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/meminfo does not say what is free");
        return;
    }
    const hr_fitness fitness = available < GIB / 4                         ? HR_FIT_BAD
                               : available < GIB || available < total / 10 ? HR_FIT_WARN
                                                                           : HR_FIT_OK;
    hr_find(out, fitness, "%.1f of %.1f GiB are available%s", available / GIB, total / GIB,
            fitness == HR_FIT_OK ? "" : ": the kernel begins to look for pages to take back");
    if (fitness != HR_FIT_OK) hr_find_fix(out, "ps -eo rss,pid,comm --sort=-rss | head; end what is not needed");
}

static void check_pressure(const hr_patient *p, hr_finding *out) {
    double avg10;
    if (!hr_doctor_pressure(p, "/proc/pressure/memory", &avg10)) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel does not account for pressure");
        hr_find_fix(out, "boot with: psi=1");
        return;
    }
    const hr_fitness fitness = avg10 > 10 ? HR_FIT_BAD : avg10 > 1 ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness, "some work waited for memory in %.1f %% of the last 10 s", avg10);
    if (fitness != HR_FIT_OK) hr_find_fix(out, "ps -eo rss,pid,comm --sort=-rss | head; end what is not needed");
}

const hr_check hr_checks_memory[] = {
    {"thp", check_thp, false},          {"swap", check_swap, false},           {"aslr", check_aslr, false},
    {"memory_free", check_free, false}, {"psi_memory", check_pressure, false}, {NULL, NULL, false}};
