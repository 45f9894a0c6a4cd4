/* pool.c - a team of threads with bounded spinning.
 *
 * The caller writes fn and context and raises `job`; helpers wait for that. Each helper has a cache line of its own with
 * its state, which only it and the caller write:
 *
 *   2 j      job j is over for this helper       --helper sees job j + 1-->  2 (j + 1) - 1
 *   2 j - 1  it runs job j                       --fn has returned------->  2 j
 *   2 j      and job j + 1 has nothing left      --caller leaves it out-->  2 (j + 1)   (shared jobs alone)
 *
 * Invariants: fn and context change only while every helper's state is 2 job; so a helper that enters job j by its
 * compare-and-swap sees j's fn. A helper that sleeps, or whose CPU does other work, cannot hold up a shared job that it has
 * not entered.
 *
 * A helper that is put off its CPU within a job does hold it up, for a time slice. When that is seen (the caller waits far
 * longer than it worked), the caller works alone for a while: one thread on a CPU of its own does more than two that wait
 * for each other's time slices, and two tenths of a second later the team is tried again. */
#include "engine/pool.h"

#include "kernels/base/clock.h"
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
/* A wait of this length and this many times the caller's own part of the job is another process. */
enum { PUT_OFF_NS = 300000, PUT_OFF_TIMES = 4 };
/* Seen twice within this time the caller works alone, */
enum { TWICE_NS = 20000000 };
/* for so long: doubled each time until a trial of the team lasts as long. */
enum { ALONE_NS = 25000000, ALONE_MOST_NS = 200000000 };

/* Alone on its cache line. */
typedef struct seat {
    _Alignas(CACHE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t asleep;   /* waits for `job` in the kernel */
    _Atomic uint64_t slept_ns; /* since when */
    hr_pool *pool;
    unsigned index;
    uint32_t span_job; /* the job that span is of */
    hr_pool_span span;
} seat;

/* Pieces of a shared job that a thread owns: (job << 32) + how many are taken. */
typedef struct hand {
    _Alignas(CACHE_LINE) _Atomic uint64_t taken;
} hand;

struct hr_pool {
    _Alignas(CACHE_LINE) _Atomic uint32_t job; /* a number that changes with each run */
    _Atomic uint32_t caller_sleeps;
    hr_pool_fn *fn; /* NULL: the team ends */
    void *context;
    unsigned threads, started;
    bool fits;            /* there is a CPU for each thread */
    bool pinned, alone;   /* alone: the caller runs this job by itself */
    uint64_t alone_until; /* hr_now_ns */
    uint64_t put_off_ns;  /* when a thread was last seen to be put off its CPU */
    uint64_t alone_ns;    /* how long it was last */
    size_t next;          /* of a job run alone: the next piece */
    bool moved;           /* the caller is off its own CPU as long as it works alone */
    cpu_set_t caller_cpus, own_cpu;
    hr_pool_watch *watch;
    void *watcher;
    hr_pool_span *spans; /* [threads], for the watcher */
    pthread_t *helpers;  /* [threads - 1] */
    seat *seats;         /* [threads - 1] */
    hand *hands;         /* [threads] */
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

/* Enters the next job: true when it runs, false when the caller went on without this helper. */
static bool enter_job(seat *s, uint32_t *job) {
    uint32_t state = atomic_load(&s->state);
    *job = atomic_load(&s->pool->job);
    return state != 2 * *job && atomic_compare_exchange_strong(&s->state, &state, 2 * *job - 1);
}

static uint32_t wait_for_job(seat *s) {
    uint32_t job;
    for (int i = 0; i < SPINS; i++, relax())
        if (2 * atomic_load_explicit(&s->pool->job, memory_order_acquire) !=
                atomic_load_explicit(&s->state, memory_order_relaxed) &&
            enter_job(s, &job))
            return job;
    for (;;) {
        atomic_store_explicit(&s->slept_ns, hr_now_ns(), memory_order_relaxed);
        atomic_store(&s->asleep, 1);
        const uint32_t seen = atomic_load(&s->pool->job);
        if (atomic_load(&s->state) == 2 * seen) futex_wait(&s->pool->job, seen);
        atomic_store(&s->asleep, 0);
        if (enter_job(s, &job)) return job;
    }
}

/* Built without probes nobody ever watches (probe.h). */
#ifdef HR_NO_PROBES
static inline bool watched(const hr_pool *p) {
    (void)p;
    return false;
}
#else
static inline bool watched(const hr_pool *p) {
    return p->watch != NULL;
}
#endif

/* The span is written before the state says that the job is over. */
static void run_watched(seat *s, hr_pool_fn *fn, uint32_t job) {
    s->span.start_ns = hr_now_ns();
    fn(s->pool->context, s->index, s->pool->threads);
    s->span.end_ns = hr_now_ns();
    s->span_job = job;
}

static void *help(void *argument) {
    seat *s = argument;
    hr_pool *p = s->pool;
    flush_denormals();
    for (;;) {
        const uint32_t job = wait_for_job(s);
        hr_pool_fn *fn = p->fn;
        if (fn && watched(p))
            run_watched(s, fn, job);
        else if (fn)
            fn(p->context, s->index, p->threads);
        atomic_store(&s->state, 2 * job);
        if (atomic_load(&p->caller_sleeps)) futex_wake(&s->state);
        if (!fn) return NULL;
    }
}

static uint32_t start_job(hr_pool *p, hr_pool_fn *fn, void *context) {
    p->fn = fn, p->context = context;
    const uint32_t job = atomic_load_explicit(&p->job, memory_order_relaxed) + 1;
    atomic_store(&p->job, job);
    bool sleepers = false;
    for (unsigned i = 0; i < p->started; i++) sleepers |= atomic_load(&p->seats[i].asleep) != 0;
    if (sleepers) futex_wake(&p->job);
    return job;
}

static void set_cpus(const cpu_set_t *cpus) {
    pthread_setaffinity_np(pthread_self(), sizeof *cpus, cpus);
}

/* The caller may leave its CPU meanwhile: it may be the one that is shared. */
static void go_alone(hr_pool *p, uint64_t now) {
    if (!p->fits || now < p->alone_until) return;
    const bool again = now - p->put_off_ns < TWICE_NS;
    p->put_off_ns = now;
    if (!again) return; /* once may be anything; a process that computes does it with each time slice */
    const bool soon = now - p->alone_until < p->alone_ns;
    p->alone_ns = !soon ? ALONE_NS : p->alone_ns < ALONE_MOST_NS / 2 ? 2 * p->alone_ns : ALONE_MOST_NS;
    p->alone_until = now + p->alone_ns;
    if (p->pinned) set_cpus(&p->caller_cpus);
    p->moved = p->pinned;
}

/* A helper that found nothing left to do sleeps since long: the caller was put off its CPU within its last piece. */
static bool was_put_off(const hr_pool *p, uint64_t from, uint64_t now) {
    for (unsigned i = 0; i < p->started; i++) {
        const seat *s = &p->seats[i];
        const uint64_t slept = atomic_load_explicit(&s->slept_ns, memory_order_relaxed);
        if (atomic_load_explicit(&s->asleep, memory_order_acquire) && slept > from && now - slept > PUT_OFF_NS &&
            now - slept > PUT_OFF_TIMES * (slept - from))
            return true;
    }
    return false;
}

/* Until a helper has finished job; left_out: one that has not begun need not. busy: ns that the caller worked. */
static void await(hr_pool *p, seat *s, uint32_t job, bool left_out, uint64_t busy) {
    const uint32_t over = 2 * job;
    uint32_t state = atomic_load_explicit(&s->state, memory_order_acquire);
    if (left_out && state != over && state != over - 1 && atomic_compare_exchange_strong(&s->state, &state, over))
        return;
    for (int i = 0; i < SPINS; i++, relax())
        if (atomic_load_explicit(&s->state, memory_order_acquire) == over) return;
    const uint64_t from = hr_now_ns();
    atomic_store(&p->caller_sleeps, 1);
    while ((state = atomic_load(&s->state)) != over) futex_wait(&s->state, state);
    atomic_store(&p->caller_sleeps, 0);
    const uint64_t now = hr_now_ns();
    if (now - from > PUT_OFF_NS && now - from > PUT_OFF_TIMES * busy) go_alone(p, now);
}

static void tell(hr_pool *p, uint32_t job, uint64_t from, uint64_t busy) {
    const uint64_t end = hr_now_ns();
    p->spans[0] = (hr_pool_span){from, from + busy};
    for (unsigned i = 0; i < p->started; i++) {
        const seat *s = &p->seats[i];
        p->spans[i + 1] = s->span_job == job ? s->span : (hr_pool_span){0, 0};
    }
    p->watch(p->watcher, p->spans, p->started + 1, end);
}

void hr_pool_set_watch(hr_pool *p, hr_pool_watch *fn, void *context) {
    p->watch = fn, p->watcher = context;
}

static void run(hr_pool *p, hr_pool_fn *fn, void *context, bool shared) {
    unsigned csr = flush_denormals();
    const uint64_t from = p->threads > 1 ? hr_now_ns() : 0;
    p->alone = p->threads == 1 || from < p->alone_until;
    if (p->moved && !p->alone) set_cpus(&p->own_cpu), p->moved = false;
    if (p->alone) {
        p->next = 0;
        fn(context, 0, 1);
    } else {
        const uint32_t job = start_job(p, fn, context);
        fn(context, 0, p->threads);
        const uint64_t busy = hr_now_ns() - from;
        if (shared && busy > PUT_OFF_NS && was_put_off(p, from, from + busy)) go_alone(p, from + busy);
        for (unsigned i = 0; i < p->started; i++) await(p, &p->seats[i], job, shared, busy);
        if (watched(p)) tell(p, job, from, busy);
    }
    restore_denormals(csr);
}

void hr_pool_run(hr_pool *p, hr_pool_fn *fn, void *context) {
    run(p, fn, context, false);
}

void hr_pool_run_shared(hr_pool *p, hr_pool_fn *fn, void *context) {
    run(p, fn, context, true);
}

/* The next piece of what thread `owner` owns. */
static bool take(hr_pool *p, unsigned owner, size_t total, size_t *piece) {
    const uint64_t job = (uint64_t)atomic_load_explicit(&p->job, memory_order_relaxed) << 32;
    const size_t from = total * owner / p->threads, n = total * (owner + 1) / p->threads - from;
    _Atomic uint64_t *taken = &p->hands[owner].taken;
    uint64_t old = atomic_load_explicit(taken, memory_order_relaxed);
    for (;;) {
        const uint64_t count = (old & ~(uint64_t)UINT32_MAX) == job ? old & UINT32_MAX : 0;
        if (count >= n) return false;
        if (atomic_compare_exchange_weak_explicit(taken, &old, job + count + 1, memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            *piece = from + count;
            return true;
        }
    }
}

bool hr_pool_next(hr_pool *p, unsigned thread, size_t total, size_t *piece) {
    if (p->alone) {
        *piece = p->next++;
        return *piece < total;
    }
    for (unsigned i = 0; i < p->threads; i++)
        if (take(p, (thread + i) % p->threads, total, piece)) return true;
    return false;
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
        if (i == 0) p->own_cpu = one;
        i++;
    }
    return all;
}

hr_status hr_pool_create(unsigned threads, bool want_pins, hr_pool **out) {
    *out = NULL;
    if (threads < 1 || threads > 1024) HR_FAIL(HR_ERR_USAGE, "threads: %u is not in 1..1024", threads);
    char *memory =
        hr_calloc(1, sizeof(hr_pool) + threads * (sizeof(seat) + sizeof(hand) + sizeof(hr_pool_span)) + CACHE_LINE);
    if (!memory) HR_FAIL(HR_ERR_MEMORY, "out of memory for a team of %u threads", threads);
    hr_pool *p = (hr_pool *)hr_align_up((uintptr_t)memory, CACHE_LINE);
    p->memory = memory;
    p->threads = threads;
    p->helpers = hr_calloc(threads, sizeof *p->helpers);
    p->seats = (seat *)(p + 1);
    p->hands = (hand *)(p->seats + threads);
    p->spans = (hr_pool_span *)(p->hands + threads);
    if (!p->helpers) {
        hr_pool_destroy(p);
        HR_FAIL(HR_ERR_MEMORY, "out of memory for a team of %u threads", threads);
    }
    CPU_ZERO(&p->caller_cpus);
    bool known = sched_getaffinity(0, sizeof p->caller_cpus, &p->caller_cpus) == 0;
    p->fits = known && (unsigned)CPU_COUNT(&p->caller_cpus) >= threads;
    for (unsigned i = 1; i < threads; i++) {
        p->seats[i - 1].pool = p, p->seats[i - 1].index = i;
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
