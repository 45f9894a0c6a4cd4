/* gang.h - the threads of the probes: pinned, asleep between probes, started together. */
#ifndef HR_GANG_H
#define HR_GANG_H

#include "kernels/base/status.h"
#include <stdint.h>

typedef struct hr_gang hr_gang;
typedef void hr_gang_fn(void *context, unsigned thread);

/* n >= 1 threads, thread i on CPU cpus[i] (left where it is when pinning is refused). */
hr_status hr_gang_create(const unsigned *cpus, unsigned n, hr_gang **out);
void hr_gang_destroy(hr_gang *gang);
/* Runs fn in threads 0 .. active-1 and waits asleep. They meet before they start; returns nanoseconds from the first
 * start to the last end (at least 1). */
uint64_t hr_gang_run(hr_gang *gang, unsigned active, hr_gang_fn *fn, void *context);

/* For waiting loops inside a probe. */
static inline void hr_cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
