/* clock.h - one monotonic clock for everything that is timed. */
#ifndef HR_CLOCK_H
#define HR_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC; about 25 ns a call through the vDSO, no system call. */
static inline uint64_t hr_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
