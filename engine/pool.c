/* pool.c - a team of threads with bounded spinning.
 *
 * State of a run: the caller writes fn and context, sets `pending` to the number of helpers, raises `job` and wakes
 * sleepers. A helper waits for `job` to change, runs, lowers `pending`; the last one wakes the caller if it sleeps.
 * Invariants: fn and context change only while pending is 0; job changes only in hr_pool_run and hr_pool_destroy. */
#include "engine/pool.h"

#include "kernels/base/memory.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Turns of a pause (15 to 40 ns each) before a waiter sleeps: some 50 us, more than any gap inside a step. */
enum { SPINS = 2000, CACHE_LINE = 64 };

struct hr_pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t job; /* a number that changes with each run */
    _Atomic uint32_t job_sleepers;
    _Alignas(CACHE_LINE) _Atomic uint32_t pending; /* helpers that have not finished */
    _Atomic uint32_t caller_sleeps;
    _Alignas(CACHE_LINE) hr_pool_fn *fn; /* NULL: the team ends */
    void *context;
    unsigned threads, started;
    bool pinned;
    cpu_set_t caller_cpus;
    pthread_t *helpers; /* [threads - 1] */
    struct seat {
        hr_pool *pool;
        unsigned index;
    } * seats; /* [threads - 1] */
    void *memory;
};

static inline void relax(void) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Flush-to-zero and denormals-are-zero for this thread; returns what was set before. */
static unsigned flush_denormals(void) {
#if defined(__x86_64__)
    unsigned old = _mm_getcsr();
    _mm_setcsr(old | 0x8040);
    return old;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned old) {
#if defined(__x86_64__)
    _mm_setcsr(old);
#else
    (void)old;
#endif
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static uint32_t wait_for_job(hr_pool *p, uint32_t seen) {
    for (int i = 0; i < SPINS; i++, relax()) {
        uint32_t job = atomic_load_explicit(&p->job, memory_order_acquire);
        if (job != seen) return job;
    }
    atomic_fetch_add(&p->job_sleepers, 1);
    uint32_t job;
    while ((job = atomic_load(&p->job)) == seen) futex_wait(&p->job, seen);
    atomic_fetch_sub(&p->job_sleepers, 1);
    return job;
}

static void *help(void *argument) {
    struct seat *seat = argument;
    hr_pool *p = seat->pool;
    flush_denormals();
    for (uint32_t seen = 0;;) {
        seen = wait_for_job(p, seen);
        if (!p->fn) return NULL;
        p->fn(p->context, seat->index, p->threads);
        if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->caller_sleeps)) futex_wake(&p->pending);
    }
}

static void start_job(hr_pool *p, hr_pool_fn *fn, void *context) {
    p->fn = fn, p->context = context;
    atomic_store(&p->pending, p->started);
    atomic_fetch_add(&p->job, 1);
    if (atomic_load(&p->job_sleepers)) futex_wake(&p->job);
}

void hr_pool_run(hr_pool *p, hr_pool_fn *fn, void *context) {
    unsigned csr = flush_denormals();
    if (p->threads == 1) {
        fn(context, 0, 1);
    } else {
        start_job(p, fn, context);
        fn(context, 0, p->threads);
        bool done = false;
        for (int i = 0; i < SPINS && !done; i++, relax())
            done = atomic_load_explicit(&p->pending, memory_order_acquire) == 0;
        if (!done) {
            atomic_store(&p->caller_sleeps, 1);
            for (uint32_t left; (left = atomic_load(&p->pending)) != 0;) futex_wait(&p->pending, left);
            atomic_store(&p->caller_sleeps, 0);
        }
    }
    restore_denormals(csr);
}

/* Puts thread i on the i-th CPU of the caller's set. */
static bool pin(hr_pool *p) {
    unsigned i = 0;
    bool all = (unsigned)CPU_COUNT(&p->caller_cpus) >= p->threads;
    for (int cpu = 0; all && cpu < CPU_SETSIZE && i < p->threads; cpu++) {
        if (!CPU_ISSET(cpu, &p->caller_cpus)) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_t thread = i == 0 ? pthread_self() : p->helpers[i - 1];
        all = pthread_setaffinity_np(thread, sizeof one, &one) == 0;
        i++;
    }
    return all;
}

hr_status hr_pool_create(unsigned threads, bool want_pins, hr_pool **out) {
    *out = NULL;
    if (threads < 1 || threads > 1024) HR_FAIL(HR_ERR_USAGE, "threads: %u is not in 1..1024", threads);
    char *memory = hr_calloc(1, sizeof(hr_pool) + CACHE_LINE);
    if (!memory) HR_FAIL(HR_ERR_MEMORY, "out of memory for a team of %u threads", threads);
    hr_pool *p = (hr_pool *)hr_align_up((uintptr_t)memory, CACHE_LINE);
    p->memory = memory;
    p->threads = threads;
    p->helpers = hr_calloc(threads, sizeof *p->helpers);
    p->seats = hr_calloc(threads, sizeof *p->seats);
    if (!p->helpers || !p->seats) {
        hr_pool_destroy(p);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for a team of %u threads", threads);
    }
    CPU_ZERO(&p->caller_cpus);
    bool known = sched_getaffinity(0, sizeof p->caller_cpus, &p->caller_cpus) == 0;
    for (unsigned i = 1; i < threads; i++) {
        p->seats[i - 1] = (struct seat){p, i};
        int error = pthread_create(&p->helpers[i - 1], NULL, help, &p->seats[i - 1]);
        if (error) {
            hr_pool_destroy(p);
            HR_FAIL(HR_ERR_MEMORY, "cannot start thread %u of %u (error %d); try a smaller -t", i, threads, error);
        }
        p->started++;
    }
    p->pinned = want_pins && known && pin(p);
    *out = p;
    return HR_OK;
}

void hr_pool_destroy(hr_pool *p) {
    if (!p) return;
    if (p->started) start_job(p, NULL, NULL);
    for (unsigned i = 0; i < p->started; i++) pthread_join(p->helpers[i], NULL);
    if (p->pinned) pthread_setaffinity_np(pthread_self(), sizeof p->caller_cpus, &p->caller_cpus);
    hr_free(p->helpers);
    hr_free(p->seats);
    hr_free(p->memory);
}

bool hr_pool_pinned(const hr_pool *p) {
    return p->pinned;
}

unsigned hr_physical_cores(void) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    int allowed = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    int cores = 0;
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0) { /* of the allowed CPUs alone by default */
            int n = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
            for (int i = 0; i < n; i++) {
                hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
                bool usable = false;
                for (int cpu = 0; cpu < CPU_SETSIZE && !usable; cpu++)
                    usable = CPU_ISSET(cpu, &cpus) && hwloc_bitmap_isset(core->cpuset, (unsigned)cpu);
                cores += usable;
            }
        }
        hwloc_topology_destroy(topology);
    }
    if (cores < 1 || cores > allowed) cores = allowed;
    return cores > 0 ? (unsigned)cores : 1;
}
