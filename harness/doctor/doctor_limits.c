/* Limits and company: control groups, files, other processes, the disk that results go to. */
#include "harness/doctor/doctor_check.h"
#include "harness/doctor/doctor_judge.h"

#include "harness/roof/limits.h"
#include "kernels/base/memory.h"

#include <linux/magic.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

static const double GIB = 1073741824.0;

/* ---- control groups ---------------------------------------------------------------------------------------------- */

/* The path of the process's group: version 2 ("0::/path") with controller "", else that of the controller. */
static bool group_of(const hr_patient *p, const char *controller, char *out, size_t size) {
    char *text = hr_doctor_text(p, "/proc/self/cgroup"), *save = NULL;
    bool found = false;
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && !found; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0, names++;
        const size_t n = strlen(controller);
        const char *at = strstr(names, controller);
        if (!n ? *names : !at || (at > names && at[-1] != ',') || (at[n] && at[n] != ',')) continue;
        snprintf(out, size, "%.200s", strcmp(path, "/") ? path : "");
        found = true;
    }
    hr_free(text);
    return found;
}

/* The file, from the group upwards, that sets the limit; "" when none of those that are seen does. */
static void limiting_file(const hr_patient *p, const char *base, const char *group, const char *file, char *out,
                          size_t size) {
    char path[256], line[64];
    snprintf(path, sizeof path, "%s", group);
    for (*out = 0; !*out;) {
        char whole[400];
        snprintf(whole, sizeof whole, "%s%s/%s", base, path, file);
        if (hr_doctor_line(p, whole, line, sizeof line) && strncmp(line, "max", 3) && strncmp(line, "-1", 2))
            snprintf(out, size, "%s", whole);
        char *slash = strrchr(path, '/');
        if (!slash) break;
        *slash = 0;
    }
}

static void check_quota(const hr_patient *p, hr_finding *out) {
    if (!hr_doctor_exists(p, "/proc/self/cgroup")) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/self/cgroup is not there");
        return;
    }
    const double cpus = hr_cgroup_cpus(p->root);
    hr_cpu_list allowed;
    const unsigned n = hr_doctor_allowed(p, &allowed) ? allowed.n : 0;
    if (isinf(cpus) || (n && cpus >= n)) {
        hr_find(out, HR_FIT_OK,
                isinf(cpus) ? "no quota of CPU time" : "a quota of %.2f CPUs, enough for the usable ones", cpus);
        return;
    }
    const bool cuts = cpus < 1 || cpus != floor(cpus);
    hr_find(out, cuts ? HR_FIT_BAD : HR_FIT_WARN, "%.2f CPUs are granted%s: %s", cpus,
            n ? " of more that may be used" : "",
            cuts ? "threads are stopped in the middle of a period"
                 : "whatever runs beside the threads of a measurement stops them at the end of a period");
    char group[256] = "", file[400] = "";
    if (group_of(p, "cpu", group, sizeof group))
        limiting_file(p, "/sys/fs/cgroup/cpu", group, "cpu.cfs_quota_us", file, sizeof file);
    if (*file) {
        hr_find_fix(out, "echo -1 > %.300s (or start the container without a CPU limit)", file);
        return;
    }
    if (group_of(p, "", group, sizeof group)) limiting_file(p, "/sys/fs/cgroup", group, "cpu.max", file, sizeof file);
    hr_find_fix(out, "echo max > %.300s (or start the container without a CPU limit)",
                *file ? file : "/sys/fs/cgroup/cpu.max");
}

static void check_cpuset(const hr_patient *p, hr_finding *out) {
    char text[256];
    hr_cpu_list online, allowed;
    if (!hr_doctor_allowed(p, &allowed) || !hr_doctor_line(p, "/sys/devices/system/cpu/online", text, sizeof text) ||
        !hr_cpu_list_parse(text, &online) || !online.n) {
        hr_find(out, HR_FIT_UNKNOWN, "which CPUs this process may use cannot be read");
    } else if (allowed.n == 1 && online.n > 1) {
        hr_find(out, HR_FIT_WARN, "one of %u CPUs may be used: everything beside a measurement has to share it",
                online.n);
        hr_find_fix(out, "taskset -c %.200s headroom ...", text);
    } else if (allowed.n < online.n) {
        hr_find(out, HR_FIT_OK, "%u of %u CPUs may be used (affinity or container)", allowed.n, online.n);
    } else {
        hr_find(out, HR_FIT_OK, online.n == 1 ? "the only CPU may be used" : "all %u CPUs may be used", online.n);
    }
}

static void check_memory_limit(const hr_patient *p, hr_finding *out) {
    if (!hr_doctor_exists(p, "/proc/self/cgroup")) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/self/cgroup is not there");
        return;
    }
    const uint64_t limit = hr_cgroup_memory(p->root);
    if (limit == UINT64_MAX) {
        hr_find(out, HR_FIT_OK, "no limit of memory");
        return;
    }
    const double bytes = (double)limit;
    const hr_fitness fitness = bytes < GIB / 2 ? HR_FIT_BAD : bytes < 4 * GIB ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness, "%.1f GiB of memory are granted%s", bytes / GIB,
            fitness == HR_FIT_OK ? "" : ": near the limit the kernel takes pages of files back, weights among them");
    if (fitness != HR_FIT_OK)
        hr_find_fix(out, "start the container with a higher limit, as: docker run --memory 8g ...");
}

static void check_files(const hr_patient *p, hr_finding *out) {
    enum { ENOUGH = 256 };
    char text[64];
    double soft;
    if (!hr_doctor_value(p, "/proc/self/limits", "Max open files", text, sizeof text)) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/self/limits cannot be read");
    } else if (!strncmp(text, "unlimited", 9)) {
        hr_find(out, HR_FIT_OK, "any number of open files");
    } else if (sscanf(text, "%lf", &soft) != 1 || !(soft >= 0)) {
        hr_find(out, HR_FIT_UNKNOWN, "/proc/self/limits cannot be understood: %.40s", text);
    } else if (soft < ENOUGH) {
        hr_find(out, HR_FIT_WARN,
                "%.0f open files at most: a model of many parts, its store and a worker may need more", soft);
        hr_find_fix(out, "ulimit -n 1024");
    } else {
        hr_find(out, HR_FIT_OK, "%.0f open files at most", soft);
    }
}

/* ---- company ----------------------------------------------------------------------------------------------------- */

static void pressure(const hr_patient *p, const char *what, double warn, double bad, hr_finding *out) {
    char path[64];
    double avg10;
    snprintf(path, sizeof path, "/proc/pressure/%s", what);
    if (!hr_doctor_pressure(p, path, &avg10)) {
        hr_find(out, HR_FIT_UNKNOWN, "the kernel does not account for pressure");
        hr_find_fix(out, "boot with: psi=1");
        return;
    }
    const hr_fitness fitness = avg10 > bad ? HR_FIT_BAD : avg10 > warn ? HR_FIT_WARN : HR_FIT_OK;
    hr_find(out, fitness, "some work waited for %s in %.1f %% of the last 10 s",
            strcmp(what, "cpu") ? "a disk" : "a CPU", avg10);
    if (fitness != HR_FIT_OK)
        hr_find_fix(out, "ps -eo %%cpu,pid,stat,comm --sort=-%%cpu | head; end what is not needed");
}

static void check_psi_cpu(const hr_patient *p, hr_finding *out) {
    pressure(p, "cpu", 5, 30, out);
}
static void check_psi_io(const hr_patient *p, hr_finding *out) {
    pressure(p, "io", 10, 50, out);
}

void hr_judge_others(const hr_others *o, double seconds, hr_finding *out) {
    const hr_fitness fitness = o->percent > 50                           ? HR_FIT_BAD
                               : o->largest_percent > HR_OTHERS_BUSY_PCT ? HR_FIT_WARN
                                                                         : HR_FIT_OK;
    if (!*o->name) {
        hr_find(out, fitness, "other processes took nothing over %.1f s", seconds);
        return;
    }
    char who[96];
    if (o->pid > 0)
        snprintf(who, sizeof who, "%s (pid %d)", o->name, o->pid);
    else
        snprintf(who, sizeof who, "%s", o->name);
    hr_find(out, fitness, "other processes took %.0f %% of a core over %.1f s, most of it %s with %.0f %%", o->percent,
            seconds, who, o->largest_percent);
    if (fitness == HR_FIT_OK) return;
    if (o->pid > 0)
        hr_find_fix(out, "kill -STOP %d while measuring, then kill -CONT %d", o->pid, o->pid);
    else
        hr_find_fix(out, "top; end what is not needed");
}

static void check_others(const hr_patient *p, hr_finding *out) {
    const double seconds = *p->root ? 0.01 : 0.5;
    hr_others_look *begun;
    hr_others others;
    hr_status status = hr_others_begin(p->root, &begun);
    if (status == HR_OK) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
        status = hr_others_end(begun, p->root, getpid(), 0, &others);
    }
    if (status != HR_OK)
        hr_find(out, HR_FIT_UNKNOWN, "%.300s", hr_error());
    else
        hr_judge_others(&others, seconds, out);
}

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

void hr_judge_disk(const char *folder, double free_bytes, bool writable, bool network, hr_finding *out) {
    if (!writable) {
        hr_find(out, HR_FIT_BAD, "%.200s cannot be written to, so no result can be kept there", folder);
        hr_find_fix(out, "headroom sweep --db FILE, in a folder that is yours");
    } else if (free_bytes < 100e6) {
        hr_find(out, HR_FIT_BAD, "%.0f MB are free at %.200s: a night's samples may not fit", free_bytes * 1e-6,
                folder);
        hr_find_fix(out, "free some space, or: headroom sweep --db FILE on another disk");
    } else if (network) {
        hr_find(out, HR_FIT_WARN, "%.200s is on a network: locks of the store may fail, and writes wait for a server",
                folder);
        hr_find_fix(out, "headroom sweep --db FILE on a disk of this machine");
    } else if (free_bytes < 1e9) {
        hr_find(out, HR_FIT_WARN, "%.0f MB are free at %.200s", free_bytes * 1e-6, folder);
        hr_find_fix(out, "free some space, or: headroom sweep --db FILE on another disk");
    } else {
        hr_find(out, HR_FIT_OK, "%.1f GB are free at %.200s", free_bytes * 1e-9, folder);
    }
}

static void check_disk(const hr_patient *p, hr_finding *out) {
    if (!p->db) {
        hr_find(out, HR_FIT_ABSENT, "no store");
        return;
    }
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", p->db);
    struct statvfs space;
    do { /* the folder itself may be made later */
        char *slash = strrchr(folder, '/');
        if (!slash)
            snprintf(folder, sizeof folder, ".");
        else
            slash[slash == folder] = 0;
    } while (statvfs(folder, &space) && strcmp(folder, ".") && strcmp(folder, "/"));
    struct statfs kind;
    if (statvfs(folder, &space)) {
        hr_find(out, HR_FIT_UNKNOWN, "the disk of %.200s cannot be asked", folder);
        return;
    }
    const bool network =
        !statfs(folder, &kind) && (kind.f_type == NFS_SUPER_MAGIC || (unsigned)kind.f_type == 0xff534d42u ||
                                   (unsigned)kind.f_type == 0xfe534d42u); /* CIFS, SMB2 */
    for (char *c = folder; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    hr_judge_disk(folder, (double)space.f_bavail * (double)space.f_frsize,
                  !(space.f_flag & ST_RDONLY) && access(folder, W_OK) == 0, network, out);
}

const hr_check hr_checks_limits[] = {
    {"cpu_quota", check_quota, false},  {"cpuset", check_cpuset, false},   {"memory_limit", check_memory_limit, false},
    {"open_files", check_files, false}, {"psi_cpu", check_psi_cpu, false}, {"psi_io", check_psi_io, false},
    {"others", check_others, true},     {"disk", check_disk, false},       {NULL, NULL, false}};
