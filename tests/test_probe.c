/* The recorder: ops with what the team did in them, rings, and what is on when. */
#include "hr_test.h"

#include "engine/probe.h"
#include "kernels/base/clock.h"

#include <string.h>

#define OK(call) assert_int_equal(call, HR_OK)

static void one_op(hr_probe *p, hr_op op, int layer) {
    hr_probe_enter(p, op, layer, "k", (hr_work){.bytes = 10, .flops = 20});
    hr_probe_leave(p);
}

static void a_ring_keeps_the_newest_in_order(void **state) {
    (void)state;
    hr_probe p;
    OK(hr_probe_init(&p));
    for (size_t total = 0; total < 40; total++) {
        OK(hr_probe_record(&p, 7, 0, true));
        hr_probe_pass_begin(&p, HR_PHASE_DECODE, 1);
        for (size_t i = 0; i < total; i++) one_op(&p, HR_OP_DOWN, (int)i);
        for (int again = 0; again < 2; again++) { /* reading twice gives the same */
            size_t n, lost;
            const hr_op_record *r = hr_probe_read(&p.records, &n, &lost);
            assert_int_equal(n, total < 7 ? total : 7);
            assert_int_equal(lost, total - n);
            for (size_t i = 0; i < n; i++) assert_int_equal(r[i].layer, total - n + i);
        }
        one_op(&p, HR_OP_HEAD, -1); /* and goes on behind what was read */
        size_t n;
        const hr_op_record *r = hr_probe_read(&p.records, &n, NULL);
        assert_int_equal(r[n - 1].op, HR_OP_HEAD);
    }
    hr_probe_fini(&p);
}

static void without_a_ring_the_first_stay(void **state) {
    (void)state;
    hr_probe p;
    OK(hr_probe_init(&p));
    one_op(&p, HR_OP_DOWN, 0);
    OK(hr_probe_record(&p, 3, 0, false));
    for (int i = 0; i < 5; i++) one_op(&p, HR_OP_DOWN, i);
    size_t n, lost;
    const hr_op_record *r = hr_probe_read(&p.records, &n, &lost);
    assert_int_equal(n, 3);
    assert_int_equal(lost, 2);
    for (int i = 0; i < 3; i++) assert_int_equal(r[i].layer, i);
    OK(hr_probe_record(&p, 0, 0, false));
    assert_false(hr_probe_on(&p));
    hr_probe_fini(&p);
}

/* Each thread works for as long as the context says. */
static void spin_share(void *context, unsigned thread, unsigned n_threads) {
    const uint64_t *ns = context;
    (void)n_threads;
    const uint64_t until = hr_now_ns() + ns[thread];
    while (hr_now_ns() < until) {
    }
}

static void a_pause_keeps_what_there_is(void **state) {
    (void)state;
    hr_probe p;
    OK(hr_probe_init(&p));
    OK(hr_probe_record(&p, 8, 0, false));
    for (int i = 0; i < 6; i++) {
        hr_probe_pause(&p, i % 2 != 0);
        assert_int_equal(hr_probe_on(&p), i % 2 == 0);
        one_op(&p, HR_OP_DOWN, i);
    }
    size_t n, lost;
    const hr_op_record *r = hr_probe_read(&p.records, &n, &lost);
    assert_int_equal(n, 3);
    assert_int_equal(lost, 0);
    for (int i = 0; i < 3; i++) assert_int_equal(r[i].layer, 2 * i);
    OK(hr_probe_record(&p, 8, 0, false)); /* ends the pause */
    assert_true(hr_probe_on(&p));
    hr_probe_fini(&p);
}

static void a_job_tells_who_waited(void **state) {
    (void)state;
    enum { THREADS = 2, JOBS = 5 };
    hr_probe p;
    OK(hr_probe_init(&p));
    OK(hr_pool_create(THREADS, false, &p.pool));
    uint64_t ns[THREADS] = {600000, 1200000};
    const hr_op_record *r = NULL;
    const hr_thread_span *s = NULL;
    size_t n = 0, n_spans = 0;
    for (int tries = 0; tries < 20 && !(r && r[0].jobs == JOBS);
         tries++) { /* a neighbour on the CPUs: the caller works alone */
        OK(hr_probe_record(&p, 4, 16, true));
        hr_probe_pass_begin(&p, HR_PHASE_PREFILL, 3);
        hr_probe_enter(&p, HR_OP_ATTENTION, 5, "k", (hr_work){0});
        for (int i = 0; i < JOBS; i++) hr_pool_run(p.pool, spin_share, ns);
        hr_probe_leave(&p);
        one_op(&p, HR_OP_OUT, 5);
        r = hr_probe_read(&p.records, &n, NULL);
        s = hr_probe_read(&p.spans, &n_spans, NULL);
    }
    assert_int_equal(n, 2);
    const uint64_t took = r[0].end_ns - r[0].start_ns;
    if (r[0].jobs < JOBS) {
        OK(hr_probe_record(&p, 0, 0, false));
        hr_pool_destroy(p.pool), hr_probe_fini(&p);
        hr_skip("the CPUs are shared with another process just now");
    }
    assert_true(took >= JOBS * ns[1]);
    /* the slower thread less the mean of both is half of what they differ, as long as both have a CPU; never more than the
     * slower one's whole time */
    assert_true(r[0].imbalance_ns > 0);
    assert_true(r[0].imbalance_ns + r[0].handoff_ns <= took);
    assert_int_equal(r[1].jobs, 0);
    assert_int_equal(r[1].imbalance_ns + r[1].handoff_ns, 0);
    assert_int_equal(n_spans, JOBS);
    for (size_t i = 0; i < n_spans; i++) {
        assert_true(s[i].start_ns >= r[0].start_ns && s[i].end_ns <= r[0].end_ns);
        assert_true(s[i].end_ns - s[i].start_ns >= ns[1]);
        assert_int_equal(s[i].thread, 1);
        assert_int_equal(s[i].layer, 5);
        assert_int_equal(s[i].op, HR_OP_ATTENTION);
        assert_int_equal(s[i].pass, r[0].pass);
    }
    OK(hr_probe_record(&p, 0, 0, false)); /* nobody watches any more */
    hr_pool_run(p.pool, spin_share, ns);
    assert_int_equal(p.spans.n, 0);
    hr_pool_destroy(p.pool);
    hr_probe_fini(&p);
}

static void recording_has_a_cost(void **state) {
    (void)state;
    const hr_record_cost c = hr_engine_record_cost();
    assert_true(c.op_ns > 0 && c.job_ns > 0); /* two clock reads at least */
    assert_true(c.op_ns < 1e6 && c.job_ns < 1e6);
}

static void names_are_op_and_phase(void **state) {
    (void)state;
    assert_string_equal(hr_op_range_name(HR_OP_DOWN, HR_PHASE_DECODE), "down:decode");
    assert_string_equal(hr_op_range_name(HR_OP_KV_APPEND, HR_PHASE_PREFILL), "kv_append:prefill");
    for (int op = 0; op < HR_OP_COUNT; op++) {
        const char *name = hr_op_range_name((hr_op)op, HR_PHASE_PREFILL);
        assert_int_equal(strcspn(name, ":"), strlen(hr_op_names[op]));
        assert_string_equal(strchr(name, ':') + 1, "prefill");
    }
}

static void a_capture_without_a_driver_says_what_is_missing(void **state) {
    (void)state;
    setenv("HEADROOM_LIBCUDA", "/nowhere/libcuda.so", 1);
    assert_int_equal(hr_capture_open(HR_CAPTURE_CUDA_PROFILER), HR_ERR_UNSUPPORTED);
    assert_non_null(strstr(hr_error(), "/nowhere/libcuda.so"));
    assert_non_null(strstr(hr_error(), "--capture nvtx"));
    unsetenv("HEADROOM_LIBCUDA");
    OK(hr_capture_open(HR_CAPTURE_NVTX));
    hr_capture_begin(); /* no tool is attached: nothing happens */
    hr_capture_end();
    OK(hr_capture_open(HR_CAPTURE_NONE));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_keeps_the_newest_in_order),
        cmocka_unit_test(without_a_ring_the_first_stay),
        cmocka_unit_test(a_pause_keeps_what_there_is),
        cmocka_unit_test(a_job_tells_who_waited),
        cmocka_unit_test(recording_has_a_cost),
        cmocka_unit_test(names_are_op_and_phase),
        cmocka_unit_test(a_capture_without_a_driver_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
