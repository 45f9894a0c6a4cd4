/* limits.h - the CPUs and the memory that this process may use: affinity, topology, control groups. */
#ifndef HR_LIMITS_H
#define HR_LIMITS_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct hr_cpus {
    unsigned n;        /* CPUs that the calling thread may use, at most so many as its control group grants */
    unsigned cores;    /* distinct physical cores among them */
    unsigned *ids;     /* [n] operating-system numbers: one of each core first, then their siblings */
    unsigned numa;     /* memory nodes behind them */
    uint64_t cache[3]; /* L1d and L2 of the first core, sum of the distinct L3; bytes, 0 unknown; only a hint in a VM */
} hr_cpus;
hr_status hr_cpus_get(hr_cpus *out);
void hr_cpus_fini(hr_cpus *cpus);

/* CPU time a control group grants, in CPUs (2.5); INFINITY without a limit. root is "" or a folder that stands in for
 * the root of the file system (tests). Version 1 and 2; the tightest of the group and its parents. */
double hr_cgroup_cpus(const char *root);
uint64_t hr_cgroup_memory(const char *root); /* bytes; UINT64_MAX without a limit */
uint64_t hr_memory_total(void);              /* of the machine, bytes; 0 unknown */

#endif
