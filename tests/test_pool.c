/* The team of threads: every share runs once, runs follow each other, sleepers wake, affinity comes back. */
#include "tests/hr_test.h"

#include "engine/pool.h"
#include "kernels/base/memory.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct count {
    _Atomic unsigned ran[8];
    _Atomic unsigned parts; /* PARTS a run, whoever ran it */
} count;

enum { PARTS = 60 }; /* divides by 1 to 5 */

static void count_fn(void *context, unsigned thread, unsigned n_threads) {
    count *c = context;
    c->ran[thread]++;
    c->parts += PARTS / n_threads;
}

static void every_thread_runs_once_a_run(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        hr_pool *pool;
        assert_int_equal(hr_pool_create(threads, false, &pool), HR_OK);
        count c = {0};
        for (int i = 0; i < 2000; i++) hr_pool_run(pool, count_fn, &c);
        /* while another process holds a CPU, the caller may run jobs alone */
        assert_int_equal(c.parts, 2000 * PARTS);
        assert_int_equal(c.ran[0], 2000);
        for (unsigned t = threads; t < 8; t++) assert_int_equal(c.ran[t], 0);
        hr_pool_destroy(pool);
    }
}

enum { PIECES = 1000 };
typedef struct pieces {
    hr_pool *pool;
    _Atomic unsigned taken[PIECES];
    size_t total;
} pieces;

static void take_fn(void *context, unsigned thread, unsigned n_threads) {
    (void)n_threads;
    pieces *p = context;
    size_t piece;
    while (hr_pool_next(p->pool, thread, p->total, &piece)) p->taken[piece]++;
}

static void every_piece_is_taken_once_a_job(void **state) {
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        static pieces p;
        assert_int_equal(hr_pool_create(threads, false, &p.pool), HR_OK);
        for (size_t i = 0; i < PIECES; i++) p.taken[i] = 0;
        unsigned want[PIECES] = {0};
        for (size_t run = 0; run < 1500; run++) {
            p.total = run % 3 == 0 ? run % 7 : run % PIECES;
            for (size_t i = 0; i < p.total; i++) want[i]++;
            if (run % 4)
                hr_pool_run_shared(p.pool, take_fn, &p);
            else
                hr_pool_run(p.pool, take_fn, &p);
        }
        for (size_t i = 0; i < PIECES; i++) assert_int_equal(p.taken[i], want[i]);
        hr_pool_destroy(p.pool);
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
    assert_int_equal(c.parts, 5 * PARTS);
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
    for (uint64_t nth = 1; nth <= 2; nth++) {
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        assert_int_equal(hr_pool_create(2, false, &pool), HR_ERR_MEMORY);
        assert_null(pool);
    }
    hr_fault_arm(HR_FAULT_ALLOC, 0);
    assert_true(hr_physical_cores() >= 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once_a_run),
        cmocka_unit_test(sleepers_wake),
        cmocka_unit_test(affinity_comes_back),
        cmocka_unit_test(more_threads_than_cpus_are_not_pinned),
        cmocka_unit_test(shares_cover_a_range_once),
        cmocka_unit_test(bad_counts_are_refused),
        cmocka_unit_test(every_piece_is_taken_once_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
