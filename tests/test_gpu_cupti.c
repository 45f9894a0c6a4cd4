/* CUPTI without a GPU: activity records in buffers made by hand and read by the real library, names and passes of counters by
 * its host functions, and what is said where it cannot be had. */
#include "tests/hr_test.h"

#include "engine/cuda/cupti_counters.h"
#include "engine/cuda/cupti_library.h"
#include "engine/cuda/cupti_log.h"
#include "kernels/base/memory.h"

#include <cupti.h>
#include <unistd.h>

static CUptiResult (*get_next)(uint8_t *, size_t, CUpti_Activity **);

static int next_record(uint8_t *buffer, size_t bytes, void **record) {
    return (int)get_next(buffer, bytes, (CUpti_Activity **)record);
}

/* Whether the real library is on this machine; the reason is printed where it is not. */
static void need_cupti(void) {
    const hr_cupti_symbol symbol = {"cuptiActivityGetNextRecord", &get_next};
    if (hr_cupti_load(&symbol, 1) != HR_OK) hr_skip("%s", hr_error());
}

/* ---- activity ---------------------------------------------------------------------------------------------------- */

typedef struct made {
    _Alignas(8) uint8_t bytes[1 << 16];
    size_t n;
} made;

static void put(made *m, const void *record, size_t bytes) {
    assert_true(m->n + bytes <= sizeof m->bytes);
    memcpy(m->bytes + m->n, record, bytes);
    m->n += bytes;
}
static void put_call(made *m, uint32_t correlation, uint64_t id, CUpti_ExternalCorrelationKind kind) {
    CUpti_ActivityExternalCorrelation r = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
    r.externalKind = kind, r.externalId = id, r.correlationId = correlation;
    put(m, &r, sizeof r);
}
static void put_kernel(made *m, uint32_t correlation, uint64_t start, uint64_t end, const char *name) {
    CUpti_ActivityKernel10 r = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
    r.start = start, r.end = end, r.correlationId = correlation, r.name = name;
    put(m, &r, sizeof r);
}
static void put_copy(made *m, uint32_t correlation, uint64_t start, uint64_t end) {
    CUpti_ActivityMemcpy6 r = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY};
    r.start = start, r.end = end, r.correlationId = correlation;
    put(m, &r, sizeof r);
}
static void put_others(made *m) { /* kinds that do not concern us, or only as overhead */
    CUpti_ActivityAPI api = {.kind = CUPTI_ACTIVITY_KIND_DRIVER};
    api.start = 1, api.end = 2, api.correlationId = 5;
    put(m, &api, sizeof api);
    CUpti_ActivityOverhead3 overhead = {.kind = CUPTI_ACTIVITY_KIND_OVERHEAD};
    overhead.start = 100, overhead.end = 350;
    put(m, &overhead, sizeof overhead);
    CUpti_ActivityMarker2 marker = {.kind = CUPTI_ACTIVITY_KIND_MARKER};
    put(m, &marker, sizeof marker);
}

static void check_time(const hr_cupti_log *log, uint64_t id, uint64_t start, uint64_t end, uint64_t busy,
                       uint32_t kernels, uint32_t copies) {
    hr_kernel_time t;
    if (!hr_cupti_log_find(log, id, &t)) fail_msg("id %llu: expected a time, got none", (unsigned long long)id);
    assert_int_equal(t.id, id);
    assert_int_equal(t.start_ns, start);
    assert_int_equal(t.end_ns, end);
    assert_int_equal(t.busy_ns, busy);
    assert_int_equal(t.kernels, kernels);
    assert_int_equal(t.copies, copies);
}

/* Two kernels and a copy of op 77 in two buffers, the second before the call that it belongs to; op 78 alone; a kernel of
 * nobody; a call that another library's stack claims. */
static void kernels_are_joined_to_ops(void **state) {
    (void)state;
    static made a, b;
    need_cupti();
    a.n = b.n = 0;
    put_kernel(&a, 6, 4000, 4700, "merge");
    put_others(&a);
    put_kernel(&a, 5, 1000, 3500, "split");
    put_copy(&a, 7, 5000, 5100);
    put_kernel(&a, 90, 10, 20, "of_nobody");
    put_call(&b, 6, 77, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    put_call(&b, 5, 77, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    put_call(&b, 7, 77, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    put_call(&b, 90, 5, CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC);
    put_call(&b, 9, 78, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    put_kernel(&b, 9, 6000, 6001, "norm");
    hr_cupti_log log = {0};
    assert_int_equal(hr_cupti_log_add(&log, a.bytes, a.n, next_record), 7);
    assert_int_equal(hr_cupti_log_add(&log, b.bytes, b.n, next_record), 6);
    assert_int_equal(hr_cupti_log_join(&log), HR_OK);
    check_time(&log, 77, 1000, 5100, 2500 + 700 + 100, 2, 1);
    check_time(&log, 78, 6000, 6001, 1, 1, 0);
    hr_kernel_time none;
    assert_false(hr_cupti_log_find(&log, 5, &none));
    assert_int_equal(log.n_times, 2);
    assert_int_equal(log.n_work, 5);
    static const char *const names[] = {"of_nobody", "split", "merge", "", "norm"};
    for (size_t i = 0; i < log.n_work; i++) assert_string_equal(log.spans[i].name, names[i]);
    assert_int_equal(log.spans[0].id, 0);
    assert_int_equal(log.overhead_ns, 250);
    assert_int_equal(log.lost, 0);
    hr_cupti_log_fini(&log);
}

/* A record that was cut off ends the buffer; times that CUPTI could not tell are counted as lost. */
static void broken_buffers(void **state) {
    (void)state;
    static made m;
    need_cupti();
    m.n = 0;
    hr_cupti_log log = {0};
    assert_int_equal(hr_cupti_log_add(&log, m.bytes, 0, next_record), 0);
    put_kernel(&m, 5, 0, 0, "untimed");
    put_kernel(&m, 6, 9, 8, "backwards");
    assert_int_equal(hr_cupti_log_add(&log, m.bytes, m.n, next_record), 2);
    assert_int_equal(log.lost, 2);
    assert_int_equal(log.n_work, 0);
    assert_int_equal(hr_cupti_log_join(&log), HR_OK);
    hr_cupti_log_fini(&log);
}

/* Without memory records are counted as lost, and join says so; nothing leaks. */
static void out_of_memory(void **state) {
    (void)state;
    static made m;
    need_cupti();
    m.n = 0;
    for (uint32_t i = 1; i <= 3; i++) {
        put_call(&m, i, i, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
        put_kernel(&m, i, i, i + 1, "k");
    }
    for (uint64_t nth = 1; nth <= 4; nth++) {
        hr_cupti_log log = {0};
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        hr_cupti_log_add(&log, m.bytes, m.n, next_record);
        const hr_status joined = hr_cupti_log_join(&log);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        if (nth <= 2) {
            assert_int_equal(joined, HR_OK);
            assert_int_equal(log.lost, 1);
        } else {
            assert_int_equal(joined, HR_ERR_MEMORY);
        }
        hr_cupti_log_fini(&log);
    }
}

static void many_records(void **state) {
    (void)state;
    static made m;
    need_cupti();
    hr_cupti_log log = {0};
    uint32_t correlation = 0;
    for (int buffer = 0; buffer < 60; buffer++) {
        m.n = 0;
        for (int i = 0; i < 200; i++) {
            correlation++;
            put_kernel(&m, correlation, 1000000u - correlation, 1000001u - correlation, "k"); /* newest first */
            put_call(&m, correlation, correlation / 3 + 1, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
        }
        hr_cupti_log_add(&log, m.bytes, m.n, next_record);
    }
    assert_int_equal(hr_cupti_log_join(&log), HR_OK);
    assert_int_equal(log.n_work, 12000);
    for (size_t i = 1; i < log.n_work; i++) assert_true(log.spans[i - 1].start_ns <= log.spans[i].start_ns);
    check_time(&log, 2, 1000000u - 5, 1000001u - 3, 3, 3, 0);
    hr_cupti_log_reset(&log);
    assert_int_equal(hr_cupti_log_join(&log), HR_OK);
    assert_int_equal(log.n_times, 0);
    hr_cupti_log_fini(&log);
}

/* The host functions open a library with RTLD_DEEPBIND, which the runtimes of these sanitizers end a process for. */
static void need_host_functions(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    hr_skip("CUPTI opens a library in a way that this sanitizer refuses");
#endif
    need_cupti();
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static void counters_and_their_passes(void **state) {
    (void)state;
    static const char *const chips[] = {"GA100", "GH100", "GB100"};
    need_host_functions();
    for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
        unsigned passes, mask;
        assert_int_equal(hr_counters_passes(chips[i], HR_COUNTERS_ONE_PASS, &passes, &mask), HR_OK);
        if (passes != 1 || mask != 0x1f)
            fail_msg("%s: expected all of 5 counters in 1 pass, got mask %#x in %u", chips[i], mask, passes);
        assert_int_equal(hr_counters_passes(chips[i], HR_COUNTERS_ALL, &passes, &mask), HR_OK);
        if (passes != 2 || mask != 0x7f)
            fail_msg("%s: expected all of 7 counters in 2 passes, got mask %#x in %u", chips[i], mask, passes);
    }
}

/* What a chip lacks is left out: GB202 does not tell reads of its memory from writes. */
static void counters_that_a_chip_lacks(void **state) {
    (void)state;
    unsigned passes, mask;
    need_host_functions();
    assert_int_equal(hr_counters_passes("GB202", HR_COUNTERS_ALL, &passes, &mask), HR_OK);
    assert_int_equal(mask, 0x7f & ~0x6);
    assert_int_equal(hr_counters_passes("XY999", HR_COUNTERS_ALL, &passes, &mask), HR_ERR_UNSUPPORTED);
    assert_null(strchr(hr_error(), '\n'));
    assert_non_null(strstr(hr_error(), "cuptiProfilerHostInitialize"));
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refusals_say_what_helps(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *says;
    } cases[] = {{CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "NVreg_RestrictProfilingToAdminUsers=0"},
                 {CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, "nsys, ncu"},
                 {CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED, "virtual GPU"},
                 {CUPTI_ERROR_UNKNOWN, "driver"},
                 {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, "MIG"},
                 {77777, "(77777)"}};
    assert_int_equal(hr_cupti_check(0, "x"), HR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(hr_cupti_check(cases[i].code, "counters: f"), HR_ERR_UNSUPPORTED);
        if (!strstr(hr_error(), cases[i].says) || strncmp(hr_error(), "counters: f: ", 13) || strchr(hr_error(), '\n'))
            fail_msg("code %d: expected one line with '%s', got '%s'", cases[i].code, cases[i].says, hr_error());
    }
}

static hr_status never(void *context) {
    (void)context;
    fail_msg("run was called though nothing can be counted");
    return HR_OK;
}

/* Another tool in the process is known by its variables; then nothing of CUPTI is touched. */
static void beside_another_tool(void **state) {
    (void)state;
    hr_gpu_counters c;
    assert_null(hr_cupti_other_tool());
    setenv("CUDA_INJECTION64_PATH", "/x/libinjection.so", 1);
    assert_string_equal(hr_cupti_other_tool(), "CUDA_INJECTION64_PATH");
    assert_int_equal(hr_gpu_counters_measure(0, never, NULL, &c), HR_ERR_UNSUPPORTED);
    assert_non_null(strstr(hr_error(), "CUDA_INJECTION64_PATH"));
    assert_true(isnan(c.time_ns) && isnan(c.warps_active_pct));
    hr_gpu_want_kernel_times(true);
    hr_cupti_before_init();
    assert_false(hr_cupti_ready());
    assert_non_null(strstr(hr_gpu_kernel_times_missing(), "CUDA_INJECTION64_PATH"));
    unsetenv("CUDA_INJECTION64_PATH");
    hr_gpu_want_kernel_times(false);
}

/* Without a driver the real library refuses; kernel times are missing, in one line, and every function is a no-op. */
static void without_a_driver(void **state) {
    (void)state;
    need_cupti();
    if (access("/dev/nvidiactl", F_OK) == 0) hr_skip("there is an NVIDIA driver here");
    hr_gpu_want_kernel_times(true);
    hr_cupti_before_init();
    hr_cupti_after_context();
    hr_gpu_want_kernel_times(false);
    hr_kernel_time t;
    size_t n = 9;
    hr_cupti_push(1);
    hr_cupti_pop();
    if (!hr_cupti_ready()) {
        assert_null(strchr(hr_gpu_kernel_times_missing(), '\n'));
        assert_non_null(strstr(hr_gpu_kernel_times_missing(), "kernel times: "));
        assert_int_equal(hr_cupti_start(), HR_OK);
        assert_int_equal(hr_cupti_collect(), HR_OK);
        assert_int_equal(hr_cupti_stop(), HR_OK);
    }
    assert_false(hr_cupti_find(1, &t));
    hr_cupti_spans(&n);
    assert_int_equal(n, 0);
    print_message("%s\n", hr_gpu_kernel_times_missing());
}

int main(void) {
    unsetenv("NSYS_PROFILING_SESSION_ID"), unsetenv("CUDA_INJECTION64_PATH"), unsetenv("NV_TPS_LAUNCH_TOKEN");
    unsetenv("HEADROOM_LIBCUPTI");
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_are_joined_to_ops),
                                       cmocka_unit_test(broken_buffers),
                                       cmocka_unit_test(out_of_memory),
                                       cmocka_unit_test(many_records),
                                       cmocka_unit_test(counters_and_their_passes),
                                       cmocka_unit_test(counters_that_a_chip_lacks),
                                       cmocka_unit_test(refusals_say_what_helps),
                                       cmocka_unit_test(beside_another_tool),
                                       cmocka_unit_test(without_a_driver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
