/* The team of threads: every share runs once, runs follow each other, sleepers wake, affinity comes back. */
#include "tests/hr_test.h"

#include "engine/pool.h"
#include "kernels/base/memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct count {
    _Atomic unsigned ran[8];
    unsigned n_threads;
} count;

static void count_fn(void *context, unsigned thread, unsigned n_threads) {
    count *c = context;
    c->ran[thread]++;
    if (thread == 0) c->n_threads = n_threads;
}

static void every_thread_runs_once_a_run(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        hr_pool *pool;
        assert_int_equal(hr_pool_create(threads, false, &pool), HR_OK);
        count c = {0};
        for (int i = 0; i < 2000; i++) hr_pool_run(pool, count_fn, &c);
        for (unsigned t = 0; t < 8; t++) assert_int_equal(c.ran[t], t < threads ? 2000 : 0);
        assert_int_equal(c.n_threads, threads);
        hr_pool_destroy(pool);
    }
}

static void sleepers_wake(void **state) {
    (void)state;
    hr_pool *pool;
    assert_int_equal(hr_pool_create(2, false, &pool), HR_OK);
    count c = {0};
    for (int i = 0; i < 5; i++) {
        usleep(3000); /* longer than the spin, so that the helper sleeps */
        hr_pool_run(pool, count_fn, &c);
    }
    assert_int_equal(c.ran[1], 5);
    hr_pool_destroy(pool);
}

static void affinity_comes_back(void **state) {
    (void)state;
    cpu_set_t before, after;
    CPU_ZERO(&before);
    CPU_ZERO(&after);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    hr_pool *pool;
    assert_int_equal(hr_pool_create(1, true, &pool), HR_OK);
    assert_true(hr_pool_pinned(pool));
    hr_pool_destroy(pool);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void more_threads_than_cpus_are_not_pinned(void **state) {
    (void)state;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    hr_pool *pool;
    unsigned threads = (unsigned)CPU_COUNT(&cpus) + 1;
    assert_int_equal(hr_pool_create(threads, true, &pool), HR_OK);
    assert_false(hr_pool_pinned(pool));
    hr_pool_destroy(pool);
}

static void shares_cover_a_range_once(void **state) {
    (void)state;
    for (size_t count_ = 0; count_ < 70; count_++)
        for (size_t grain = 1; grain <= 33; grain += 8)
            for (unsigned n = 1; n <= 5; n++) {
                size_t next = 0;
                for (unsigned i = 0; i < n; i++) {
                    size_t from, to;
                    hr_share(count_, grain, i, n, &from, &to);
                    assert_int_equal(from, next);
                    assert_true(from == count_ || from % grain == 0);
                    next = to;
                }
                assert_int_equal(next, count_);
            }
}

static void bad_counts_are_refused(void **state) {
    (void)state;
    hr_pool *pool;
    assert_int_equal(hr_pool_create(0, false, &pool), HR_ERR_USAGE);
    assert_int_equal(hr_pool_create(100000, false, &pool), HR_ERR_USAGE);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        assert_int_equal(hr_pool_create(2, false, &pool), HR_ERR_MEMORY);
        assert_null(pool);
    }
    hr_fault_arm(HR_FAULT_ALLOC, 0);
    assert_true(hr_physical_cores() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once_a_run), cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(affinity_comes_back),          cmocka_unit_test(more_threads_than_cpus_are_not_pinned),
        cmocka_unit_test(shares_cover_a_range_once),    cmocka_unit_test(bad_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
