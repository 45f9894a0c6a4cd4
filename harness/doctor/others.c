#include "harness/doctor/others.h"

#include "harness/doctor/doctor_check.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct process {
    int pid, parent;
    uint64_t ticks, born; /* of the CPU, all threads; start, to tell a number that was used again */
    char name[64];
    bool ours;
} process;

struct hr_others_look {
    process *list; /* [n], by pid */
    size_t n, capacity;
    uint64_t cpu_ticks; /* of the CPUs that this process may use, in any work; 0: not known */
    uint64_t at_ns;
};

/* "pid (name) S parent ...": a name may hold blanks and brackets, so it ends at the last one. */
static bool parse_process(char *text, process *out) {
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open) return false;
    unsigned long long user, system, born;
    out->pid = atoi(text);
    if (out->pid <= 0 ||
        sscanf(close + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu",
               &out->parent, &user, &system, &born) != 4)
        return false;
    *close = 0;
    snprintf(out->name, sizeof out->name, "%s", open + 1);
    for (char *c = out->name; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    out->ticks = user + system, out->born = born;
    return true;
}

static hr_status add(hr_others_look *look, const process *one) {
    if (look->n == look->capacity) {
        const size_t capacity = look->capacity ? look->capacity * 2 : 256;
        process *list = hr_realloc(look->list, hr_mul(capacity, sizeof *list));
        if (!list) HR_FAIL(HR_ERR_MEMORY, "no memory for the list of processes");
        look->list = list, look->capacity = capacity;
    }
    look->list[look->n++] = *one;
    return HR_OK;
}

static int by_pid(const void *a, const void *b) {
    const int x = ((const process *)a)->pid, y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

static process *find(const hr_others_look *look, int pid) {
    const process key = {.pid = pid};
    return look->n ? bsearch(&key, look->list, look->n, sizeof key, by_pid) : NULL;
}

static hr_status read_processes(const char *root, hr_others_look *look) {
    char path[512], text[1024];
    snprintf(path, sizeof path, "%s/proc", root);
    DIR *folder = opendir(path);
    if (!folder) HR_FAIL(HR_ERR_UNSUPPORTED, "%s cannot be read, so other processes are not seen", path);
    hr_status status = HR_OK;
    for (struct dirent *entry; status == HR_OK && (entry = readdir(folder));) {
        if (*entry->d_name < '1' || *entry->d_name > '9') continue;
        snprintf(path, sizeof path, "%s/proc/%.20s/stat", root, entry->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        const size_t n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        text[n] = 0;
        process one = {0};
        if (parse_process(text, &one)) status = add(look, &one);
    }
    closedir(folder);
    if (look->n) qsort(look->list, look->n, sizeof *look->list, by_pid);
    return status;
}

/* Lines "cpuN user nice system idle iowait irq softirq ..." of the usable CPUs. */
static uint64_t read_cpus(const char *root) {
    const hr_patient patient = {.root = root};
    hr_cpu_list allowed;
    const bool known = hr_doctor_allowed(&patient, &allowed);
    char *text = hr_doctor_text(&patient, "/proc/stat"), *save = NULL;
    uint64_t sum = 0;
    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        unsigned cpu;
        unsigned long long v[7];
        if (sscanf(line, "cpu%u %llu %llu %llu %llu %llu %llu %llu", &cpu, v, v + 1, v + 2, v + 3, v + 4, v + 5,
                   v + 6) == 8 &&
            (!known || hr_cpu_list_has(&allowed, cpu)))
            sum += v[0] + v[1] + v[2] + v[5] + v[6];
    }
    hr_free(text);
    return sum;
}

hr_status hr_others_begin(const char *root, hr_others_look **out) {
    hr_others_look *look = hr_calloc(1, sizeof *look);
    if (!look) HR_FAIL(HR_ERR_MEMORY, "no memory for the list of processes");
    const hr_status status = read_processes(root, look);
    if (status != HR_OK) {
        hr_others_drop(look);
        return status;
    }
    look->cpu_ticks = read_cpus(root);
    look->at_ns = hr_now_ns();
    *out = look;
    return HR_OK;
}

void hr_others_drop(hr_others_look *begun) {
    if (begun) hr_free(begun->list);
    hr_free(begun);
}

/* A child may have a lower number than its parent, and a list that lies may hold a ring: passes until nothing changes. */
static void mark_ours(hr_others_look *look, int self) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < look->n; i++) {
            process *one = &look->list[i];
            const process *parent = one->ours ? NULL : find(look, one->parent);
            if (one->ours || (one->pid != self && !(parent && parent->ours))) continue;
            one->ours = changed = true;
        }
    }
}

/* What nobody accounts for is told of when it is more than rounding can be. */
static void add_unseen(const hr_others_look *begun, const hr_others_look *now, uint64_t seen, double percent_a_tick,
                       hr_others *out) {
    enum { ROUNDING_PCT = 15 };
    if (!begun->cpu_ticks || now->cpu_ticks <= begun->cpu_ticks + seen) return;
    const double percent = (double)(now->cpu_ticks - begun->cpu_ticks - seen) * percent_a_tick;
    if (percent <= ROUNDING_PCT) return;
    out->percent += percent;
    if (percent <= out->largest_percent) return;
    out->largest_percent = percent, out->pid = 0;
    snprintf(out->name, sizeof out->name, "short-lived or hidden processes");
}

static void compare(const hr_others_look *begun, const hr_others_look *now, double seconds, hr_others *out) {
    const double percent_a_tick = 100.0 / ((double)sysconf(_SC_CLK_TCK) * seconds);
    uint64_t seen = 0;
    for (size_t i = 0; i < now->n; i++) {
        const process *one = &now->list[i], *then = find(begun, one->pid);
        const uint64_t from = then && then->born == one->born ? then->ticks : 0;
        const uint64_t ticks = one->ticks > from ? one->ticks - from : 0;
        seen += ticks;
        if (one->ours) continue;
        const double percent = (double)ticks * percent_a_tick;
        out->percent += percent;
        if (percent <= out->largest_percent) continue;
        out->largest_percent = percent, out->pid = one->pid;
        snprintf(out->name, sizeof out->name, "%s", one->name);
    }
    add_unseen(begun, now, seen, percent_a_tick, out);
}

hr_status hr_others_end(hr_others_look *begun, const char *root, int self, double seconds, hr_others *out) {
    memset(out, 0, sizeof *out);
    hr_others_look *now = NULL;
    hr_status status = hr_others_begin(root, &now);
    if (status == HR_OK) {
        if (!(seconds > 0)) seconds = (double)(now->at_ns - begun->at_ns) * 1e-9;
        if (!(seconds > 1e-3)) seconds = 1e-3;
        mark_ours(now, self);
        compare(begun, now, seconds, out);
    }
    hr_others_drop(begun), hr_others_drop(now);
    return status;
}

hr_status hr_doctor_others(double seconds, double *percent, char name[64], int *pid) {
    hr_others_look *begun;
    hr_others others;
    HR_TRY(hr_others_begin("", &begun));
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
        NULL);
    HR_TRY(hr_others_end(begun, "", getpid(), 0, &others));
    *percent = others.percent, *pid = others.pid;
    memcpy(name, others.name, sizeof others.name);
    return HR_OK;
}
