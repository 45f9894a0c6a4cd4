/* pool.h - the engine's threads: a fixed team that runs one function together, with static shares.
 *
 * hr_pool_run returns when all have finished. Waiting is a bounded spin and then a futex, so that a busy neighbour does
 * not ruin a run and an idle engine costs nothing. Thread 0 is the caller. No allocation after create. While another process takes a helper's CPU
 * the caller runs jobs alone (n_threads 1). */
#ifndef HR_POOL_H
#define HR_POOL_H

#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_pool hr_pool;
typedef void hr_pool_fn(void *context, unsigned thread, unsigned n_threads);

/* threads >= 1. pin: thread i runs on the i-th CPU that the process may use (all of them: the caller's affinity is put
 * back by destroy). Denormals are flushed to zero in every thread of the pool (FTZ, DAZ), the caller's inside run. */
hr_status hr_pool_create(unsigned threads, bool pin, hr_pool **out);
void hr_pool_destroy(hr_pool *pool);
bool hr_pool_pinned(const hr_pool *pool); /* pinning was asked for and obtained */
void hr_pool_run(hr_pool *pool, hr_pool_fn *fn, void *context);

/* The same for a function that takes all its work by hr_pool_next: a helper that has not begun when nothing is left is not
 * waited for and does not run. */
void hr_pool_run_shared(hr_pool *pool, hr_pool_fn *fn, void *context);
/* The next of `total` pieces of the running job, each once: a thread's own (an equal part of them, in order, the same in
 * each run), then what others have not begun. One list a job. False: none is left. */
bool hr_pool_next(hr_pool *pool, unsigned thread, size_t total, size_t *piece);

/* What a watched job was like: when each thread was in fn (0, 0: it was left out) and when the caller had all of them back.
 * Called on the calling thread. While nobody watches a job costs a branch a thread. */
typedef struct hr_pool_span {
    uint64_t start_ns, end_ns; /* hr_now_ns */
} hr_pool_span;
typedef void hr_pool_watch(void *context, const hr_pool_span *spans, unsigned threads, uint64_t end_ns);
/* fn NULL: nobody watches. Not while a job runs. Jobs that the caller runs alone are not told. */
void hr_pool_set_watch(hr_pool *pool, hr_pool_watch *fn, void *context);

/* Share i of n of [0, count), bounds multiples of grain: *from .. *to - 1. */
static inline void hr_share(size_t count, size_t grain, unsigned i, unsigned n, size_t *from, size_t *to) {
    size_t pieces = (count + grain - 1) / grain, a = pieces * i / n * grain, b = pieces * (i + 1) / n * grain;
    *from = a < count ? a : count, *to = b < count ? b : count;
}

/* Physical cores among the CPUs that the process may use (at least 1). */
unsigned hr_physical_cores(void);

#endif
