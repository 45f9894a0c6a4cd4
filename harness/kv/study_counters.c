/* Counters by perf_event_open, one set a thread. A thread opens its own; the caller reads them between samples, so that no
 * system call stands in a timed region. */
#include "harness/kv/study_counters.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct job {
    hr_counters *c;
    int *errors; /* [threads][HR_MISSES] */
} job;

static int open_one(hr_miss miss) {
    struct perf_event_attr a = {.size = sizeof a, .exclude_kernel = 1, .exclude_hv = 1};
    a.type = miss == HR_MISS_LLC ? PERF_TYPE_HARDWARE : PERF_TYPE_HW_CACHE;
    a.config = miss == HR_MISS_LLC ? (uint64_t)PERF_COUNT_HW_CACHE_MISSES
                                   : PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                                         PERF_COUNT_HW_CACHE_RESULT_MISS << 16;
    return (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static void open_mine(void *context, unsigned thread) {
    job *j = context;
    for (int m = 0; m < HR_MISSES; m++) {
        const size_t i = thread * HR_MISSES + (size_t)m;
        j->c->fds[i] = open_one((hr_miss)m);
        j->errors[i] = j->c->fds[i] < 0 ? errno : 0;
    }
}

static bool in_virtual_machine(void) {
    char line[4096];
    bool yes = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !yes && fgets(line, sizeof line, f)) yes = strstr(line, " hypervisor") != NULL;
    if (f) fclose(f);
    return yes;
}

static void say_why(int error, char *out, size_t n) {
    int level = 0;
    FILE *f = fopen("/proc/sys/kernel/perf_event_paranoid", "r");
    const bool known = f && fscanf(f, "%d", &level) == 1;
    if (f) fclose(f);
    if ((error == EACCES || error == EPERM) && known)
        snprintf(out, n, "perf_event_paranoid is %d", level);
    else if (error == EACCES || error == EPERM)
        snprintf(out, n, "perf_event_open is not allowed here");
    else if (error == ENOSYS)
        snprintf(out, n, "the kernel has no perf_event_open");
    else
        snprintf(out, n, "no such counter%s", in_virtual_machine() ? ": virtual machine" : "");
}

hr_status hr_counters_init(hr_counters *c, hr_gang *gang, unsigned threads) {
    *c = (hr_counters){.threads = threads};
    c->fds = hr_calloc(threads * (size_t)HR_MISSES, sizeof *c->fds);
    job j = {c, hr_calloc(threads * (size_t)HR_MISSES, sizeof *j.errors)};
    if (!c->fds || !j.errors) {
        hr_free(j.errors), hr_free(c->fds);
        c->fds = NULL;
        HR_FAIL(HR_ERR_MEMORY, "no memory for the counters of %u threads", threads);
    }
    hr_gang_run(gang, threads, open_mine, &j);
    for (int m = 0; m < HR_MISSES; m++) {
        int error = 0;
        for (unsigned t = 0; t < threads && !error; t++) error = j.errors[t * HR_MISSES + (unsigned)m];
        if (error) say_why(error, c->reason, sizeof c->reason);
        c->open |= !error;
        for (unsigned t = 0; t < threads && error; t++) { /* part of the threads would be a wrong sum */
            int *fd = &c->fds[t * HR_MISSES + (unsigned)m];
            if (*fd >= 0) close(*fd);
            *fd = -1;
        }
    }
    hr_free(j.errors);
    return HR_OK;
}

void hr_counters_fini(hr_counters *c) {
    for (size_t i = 0; c->fds && i < c->threads * (size_t)HR_MISSES; i++)
        if (c->fds[i] >= 0) close(c->fds[i]);
    hr_free(c->fds);
    *c = (hr_counters){0};
}

void hr_counters_read(const hr_counters *c, double out[HR_MISSES]) {
    for (int m = 0; m < HR_MISSES; m++) {
        out[m] = 0;
        for (unsigned t = 0; t < c->threads; t++) {
            uint64_t count;
            const int fd = c->fds[t * HR_MISSES + (unsigned)m];
            out[m] += fd >= 0 && read(fd, &count, sizeof count) == sizeof count ? (double)count : NAN;
        }
    }
}

void hr_counters_put(const hr_counters *c, const double median[HR_MISSES], json_t *row) {
    json_object_set_new(row, "llc_misses", hr_real_or_null(median[HR_MISS_LLC]));
    json_object_set_new(row, "tlb_misses", hr_real_or_null(median[HR_MISS_TLB]));
    json_object_set_new(row, "counters", c->reason[0] ? json_string(c->reason) : json_null());
}
