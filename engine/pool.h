/* pool.h - the engine's threads: a fixed team that runs one function together, with static shares.
 *
 * hr_pool_run returns when all have finished. Waiting is a bounded spin and then a futex, so that a busy neighbour does
 * not ruin a run and an idle engine costs nothing. Thread 0 is the caller. No allocation after create. */
#ifndef HR_POOL_H
#define HR_POOL_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct hr_pool hr_pool;
typedef void hr_pool_fn(void *context, unsigned thread, unsigned n_threads);

/* threads >= 1. pin: thread i runs on the i-th CPU that the process may use (all of them: the caller's affinity is put
 * back by destroy). Denormals are flushed to zero in every thread of the pool (FTZ, DAZ), the caller's inside run. */
hr_status hr_pool_create(unsigned threads, bool pin, hr_pool **out);
void hr_pool_destroy(hr_pool *pool);
bool hr_pool_pinned(const hr_pool *pool); /* pinning was asked for and obtained */
void hr_pool_run(hr_pool *pool, hr_pool_fn *fn, void *context);

/* Share i of n of [0, count), bounds multiples of grain: *from .. *to - 1. */
static inline void hr_share(size_t count, size_t grain, unsigned i, unsigned n, size_t *from, size_t *to) {
    size_t pieces = (count + grain - 1) / grain, a = pieces * i / n * grain, b = pieces * (i + 1) / n * grain;
    *from = a < count ? a : count, *to = b < count ? b : count;
}

/* Physical cores among the CPUs that the process may use (at least 1). */
unsigned hr_physical_cores(void);

#endif
