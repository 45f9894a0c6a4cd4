/* Threads: what it costs to run an empty function in all of them and to wait for the last (the barrier of a step), and to
 * hand a word from one core to another. */
#include "bench/bench.h"
#include "engine/pool.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct run {
    hr_pool *pool;
    unsigned threads;
    uint64_t iterations;
    _Alignas(64) _Atomic uint64_t word;
    _Alignas(64) _Atomic uint64_t ran;
} run;

static void teardown(void *context) {
    run *r = context;
    if (r->pool) hr_pool_destroy(r->pool);
    free(r);
}

static void count(void *context, unsigned thread, unsigned n_threads) {
    (void)thread, (void)n_threads;
    ((run *)context)->ran++;
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    (void)context;
    run *r = aligned_alloc(64, hr_align_up(sizeof *r, 64));
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    *r = (run){.threads = (unsigned)args[0]};
    hr_status status = hr_pool_create(r->threads, true, &r->pool);
    if (status == HR_OK) {
        hr_pool_run(r->pool, count, r);
        if (r->ran != r->threads)
            status = hr_fail(HR_ERR_INTERNAL, "the pool ran %lu of %u threads", (unsigned long)r->ran, r->threads);
    }
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static void nothing(void *context, unsigned thread, unsigned n_threads) {
    (void)context, (void)thread, (void)n_threads;
}

static void body_barrier(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) hr_pool_run(r->pool, nothing, NULL);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* The word goes round: thread i waits for a value that is i modulo the threads, and writes the next. One iteration is one
 * handoff. */
static void hand_on(void *context, unsigned thread, unsigned n_threads) {
    run *r = context;
    for (uint64_t at = thread; at < r->iterations; at += n_threads) {
        while (atomic_load_explicit(&r->word, memory_order_acquire) != at) relax();
        atomic_store_explicit(&r->word, at + 1, memory_order_release);
    }
}

static void body_handoff(void *context, uint64_t iterations) {
    run *r = context;
    r->iterations = iterations, r->word = 0;
    hr_pool_run(r->pool, hand_on, r);
}

static hr_bench_cost cost(const void *context) {
    (void)context;
    return (hr_bench_cost){.items = 1, .item = "calls/s"};
}

void hr_bench_register_pool(bool smoke) {
    static const char *const names[] = {"threads"};
    (void)smoke;
    int64_t counts[16];
    size_t n = 0;
    const unsigned cores = hr_physical_cores();
    for (unsigned t = 1; t < cores && n < 15; t *= 2) counts[n++] = t;
    counts[n++] = cores;
    hr_bench_family f = {.name = "pool/barrier",
                         .arg_names = names,
                         .n_args = 1,
                         .values = counts,
                         .n_values = n,
                         .own_threads = true,
                         .setup = setup,
                         .body = body_barrier,
                         .teardown = teardown,
                         .cost = cost};
    hr_bench_add(&f);
    f.name = "pool/handoff", f.body = body_handoff, f.values = counts + (counts[0] == 1),
    f.n_values = n - (counts[0] == 1);
    hr_bench_add(&f); /* one thread hands nothing on */
}
