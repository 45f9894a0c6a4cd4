/* study_counters.h - misses of the last-level cache and of the data TLB, of user code, where the hardware shows them. */
#ifndef HR_STUDY_COUNTERS_H
#define HR_STUDY_COUNTERS_H

#include "harness/roof/gang.h"
#include <jansson.h>
#include <stdbool.h>

typedef enum hr_miss { HR_MISS_LLC, HR_MISS_TLB, HR_MISSES } hr_miss;

typedef struct hr_counters {
    unsigned threads;
    int *fds;         /* [threads][HR_MISSES]; -1: none */
    bool open;        /* at least one kind is counted in all threads */
    char reason[160]; /* why the others are not; "" when both are */
} hr_counters;

/* Opens them in the first `threads` threads of the gang. Without counters it succeeds and `reason` says why. */
hr_status hr_counters_init(hr_counters *counters, hr_gang *gang, unsigned threads);
void hr_counters_fini(hr_counters *counters);
/* Sums over the threads since init; NaN for what is not counted. */
void hr_counters_read(const hr_counters *counters, double out[HR_MISSES]);
/* Adds llc_misses, tlb_misses (medians of samples; NaN: null) and counters (the reason, or null) to a row. */
void hr_counters_put(const hr_counters *counters, const double median[HR_MISSES], json_t *row);

#endif
