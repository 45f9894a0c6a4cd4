#include "harness/roof/gang.h"

#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { SPINS_BEFORE_YIELD = 2000 };

typedef struct member {
    hr_gang *gang;
    pthread_t thread;
    unsigned index, cpu;
    uint64_t start_ns, end_ns; /* of the last job; written by the member, read after `finished` */
    char apart[128];           /* no cache line shared with the next member */
} member;

/* Invariant: a member touches `job` fields only between its wake-up for that generation and its count in `finished`;
 * the caller writes them only when finished == active. All under the mutex. */
struct hr_gang {
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    uint64_t generation;
    unsigned n, active, finished;
    bool quit;
    hr_gang_fn *fn;
    void *context;
    member *members; /* [n] */
    char apart[128];
    _Atomic unsigned arrived;
};

static void pin(unsigned cpu) {
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    if (!set) return;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    sched_setaffinity(0, bytes, set);
    CPU_FREE(set);
}

/* Yields after a while: on a machine with more work than CPUs a member may wait for the CPU that another one spins on. */
static void meet(hr_gang *gang, unsigned active) {
    atomic_fetch_add_explicit(&gang->arrived, 1, memory_order_acq_rel);
    for (unsigned spins = 0; atomic_load_explicit(&gang->arrived, memory_order_acquire) < active; spins++)
        if (spins < SPINS_BEFORE_YIELD)
            hr_cpu_relax();
        else
            sched_yield();
}

static void *live(void *argument) {
    member *me = argument;
    hr_gang *gang = me->gang;
    pin(me->cpu);
    uint64_t seen = 0;
    pthread_mutex_lock(&gang->mutex);
    for (;;) {
        while (!gang->quit && gang->generation == seen) pthread_cond_wait(&gang->wake, &gang->mutex);
        if (gang->quit) break;
        seen = gang->generation;
        if (me->index >= gang->active) continue;
        hr_gang_fn *fn = gang->fn;
        void *context = gang->context;
        unsigned active = gang->active;
        pthread_mutex_unlock(&gang->mutex);

        meet(gang, active);
        me->start_ns = hr_now_ns();
        fn(context, me->index);
        me->end_ns = hr_now_ns();

        pthread_mutex_lock(&gang->mutex);
        if (++gang->finished == active) pthread_cond_signal(&gang->done);
    }
    pthread_mutex_unlock(&gang->mutex);
    return NULL;
}

hr_status hr_gang_create(const unsigned *cpus, unsigned n, hr_gang **out) {
    hr_gang *gang = hr_calloc(1, sizeof *gang);
    member *members = hr_calloc(n, sizeof *members);
    if (!gang || !members) {
        hr_free(gang), hr_free(members);
        HR_FAIL(HR_ERR_MEMORY, "probes: no memory for %u threads", n);
    }
    gang->members = members;
    pthread_mutex_init(&gang->mutex, NULL);
    pthread_cond_init(&gang->wake, NULL);
    pthread_cond_init(&gang->done, NULL);
    for (unsigned i = 0; i < n; i++) {
        members[i] = (member){.gang = gang, .index = i, .cpu = cpus[i]};
        int error = pthread_create(&members[i].thread, NULL, live, &members[i]);
        if (error) {
            hr_gang_destroy(gang);
            HR_FAIL(HR_ERR_MEMORY, "probes: cannot start thread %u of %u (%s); use fewer with -t", i + 1, n,
                    strerror(error));
        }
        gang->n = i + 1;
    }
    *out = gang;
    return HR_OK;
}

void hr_gang_destroy(hr_gang *gang) {
    if (!gang) return;
    pthread_mutex_lock(&gang->mutex);
    gang->quit = true;
    pthread_cond_broadcast(&gang->wake);
    pthread_mutex_unlock(&gang->mutex);
    for (unsigned i = 0; i < gang->n; i++) pthread_join(gang->members[i].thread, NULL);
    pthread_cond_destroy(&gang->wake);
    pthread_cond_destroy(&gang->done);
    pthread_mutex_destroy(&gang->mutex);
    hr_free(gang->members);
    hr_free(gang);
}

uint64_t hr_gang_run(hr_gang *gang, unsigned active, hr_gang_fn *fn, void *context) {
    pthread_mutex_lock(&gang->mutex);
    gang->fn = fn, gang->context = context, gang->active = active, gang->finished = 0;
    atomic_store_explicit(&gang->arrived, 0, memory_order_relaxed);
    gang->generation++;
    pthread_cond_broadcast(&gang->wake);
    while (gang->finished < active) pthread_cond_wait(&gang->done, &gang->mutex);
    pthread_mutex_unlock(&gang->mutex);
    uint64_t first = UINT64_MAX, last = 0;
    for (unsigned i = 0; i < active; i++) {
        const member *m = &gang->members[i];
        if (m->start_ns < first) first = m->start_ns;
        if (m->end_ns > last) last = m->end_ns;
    }
    return last > first ? last - first : 1;
}
