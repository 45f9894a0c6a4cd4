/* The ceilings: what can be checked without believing a clock. */
#include "tests/hr_test.h"

#include "harness/roof/limits.h"
#include "harness/roof/roof.h"
#include "kernels/base/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const hr_roof_kernels *const kernels[] = {
    &hr_roof_generic,
#if defined(__x86_64__)
    &hr_roof_avx2,
    &hr_roof_avx512,
#endif
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

/* Random words: a line that is skipped, or read twice, changes the exclusive or (it would go unseen once in 2^64). */
static void patterns_read_each_line_once(void **state) {
    (void)state;
    const size_t sizes[] = {4096, 8192, 5 * 4096, 16384, 7 * 4096, 32768, 1 << 20, (1 << 20) + 3 * 4096};
    size_t bytes = (1 << 20) + 3 * 4096;
    uint64_t *p = hr_pages_alloc(bytes, false), x = 88172645463325252u;
    assert_non_null(p);
    for (size_t i = 0; i < bytes / 8; i++) p[i] = next_random(&x);
    for (int k = 0; k < N_KERNELS; k++) {
        if (kernels[k]->isa > hr_isa_best()) continue;
        assert_true(kernels[k]->n_patterns > 0);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            uint64_t want = 0;
            for (size_t i = 0; i < sizes[s] / 8; i++) want ^= p[i];
            for (int pattern = 0; pattern < kernels[k]->n_patterns; pattern++) {
                uint64_t got = kernels[k]->read(p, sizes[s], pattern);
                if (got != want)
                    fail_msg("%s pattern %d, %zu bytes: expected %016llx, got %016llx", hr_isa_name(kernels[k]->isa),
                             pattern, sizes[s], (unsigned long long)want, (unsigned long long)got);
            }
        }
    }
    hr_pages_free(p, bytes);
}

/* Operations of one loop, counted by hand from the instruction: lanes x 2, four or eight lanes in a dot product. */
static void operations_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *form;
        double ops;
    } counts[] = {
        {"fma zmm 12", 24 * 16 * 2},
        {"fma zmm 24", 24 * 16 * 2},
        {"fma ymm 24", 24 * 8 * 2},
        {"vdpbf16ps zmm 12", 24 * 32 * 2},
        {"vdpbf16ps zmm 24", 24 * 32 * 2},
        {"vdpbf16ps ymm 24", 24 * 16 * 2},
        {"vpdpbusd zmm 12", 24 * 64 * 2},
        {"vpdpbusd zmm 24", 24 * 64 * 2},
        {"vpdpbusd ymm 24", 24 * 32 * 2},
        {"fma ymm 12", 24 * 8 * 2},
        {"fma ymm 14", 14 * 8 * 2},
        {"vpmaddubsw ymm", 6 * 32 * 2},
        {"vpmaddubsw ymm 16-bit sums", 64 * 32 * 2},
        {"mulps addps", 2 * 7 * 4 * 2},
        {"pmaddwd paddd", 2 * 7 * 8 * 2},
        {"multiply add", 64 * 2},
    };
    unsigned forms = 0;
    for (int k = 0; k < N_KERNELS; k++)
        for (int u = 0; u < HR_UNIT_COUNT; u++)
            for (const hr_roof_form *f = kernels[k]->forms[u]; f && f->name; f++) {
                double want = 0;
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                    if (!strcmp(counts[i].form, f->name)) want = counts[i].ops;
                if (want == 0) fail_msg("form \"%s\" has no row in this test", f->name);
                forms++;
                if (kernels[k]->isa > hr_isa_best() || f->needs & ~hr_cpu_features()) continue;
                assert_true(f->run(1) == want);
                assert_true(f->run(777) == 777 * want);
            }
    assert_true(forms >= 2);
    for (int k = 0; k < N_KERNELS; k++) assert_non_null(kernels[k]->forms[HR_UNIT_FP32]);
}

static void check_state(const hr_state *s, unsigned units) {
    assert_true(isfinite(s->read_gb_s) && s->read_gb_s > 0);
    assert_true(isfinite(s->clock_ghz) && s->clock_ghz > 0);
    assert_true(isnan(s->psi_some_us) || s->psi_some_us >= 0);
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        if (!(units & (1u << u)))
            assert_true(isnan(s->gflop_s[u]));
        else
            assert_true(isnan(s->gflop_s[u]) || s->gflop_s[u] > 0);
    if (units & (1u << HR_UNIT_FP32)) assert_true(s->gflop_s[HR_UNIT_FP32] > 0);
}

static void state_of_all_units(void **state) {
    (void)state;
    hr_roofs *r;
    assert_int_equal(hr_roofs_create(0, &r), HR_OK);
    hr_machine machine;
    assert_int_equal(hr_machine_get(&machine), HR_OK);
    assert_int_equal(hr_roofs_threads(r), machine.cores);
    hr_state s;
    unsigned all = (1u << HR_UNIT_COUNT) - 1;
    uint64_t allocations = hr_alloc_count();
    assert_int_equal(hr_roofs_state(r, all, &s), HR_OK);
    check_state(&s, all);
    assert_int_equal(hr_alloc_count(), allocations); /* a probe beside a measurement allocates nothing */
    assert_int_equal(hr_roofs_state(r, 1u << HR_UNIT_FP32, &s), HR_OK);
    check_state(&s, 1u << HR_UNIT_FP32);
    if (machine.threads > 1) assert_true(isnan(s.handoff_ns) || s.handoff_ns > 0);
    hr_roofs_destroy(r);
    assert_int_equal(hr_roofs_create(100000, &r), HR_OK); /* more threads than CPUs */
    assert_int_equal(hr_roofs_threads(r), machine.threads);
    hr_roofs_destroy(r);
}

static void one_cpu_has_no_handoff(void **state) {
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &old)) {
            CPU_SET(cpu, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    hr_roofs *r;
    hr_machine machine;
    hr_state s;
    assert_int_equal(hr_machine_get(&machine), HR_OK);
    assert_int_equal(machine.threads, 1);
    assert_int_equal(machine.cores, 1);
    assert_non_null(strstr(machine.class_name, "-1c-"));
    assert_int_equal(hr_roofs_create(2, &r), HR_OK);
    assert_int_equal(hr_roofs_threads(r), 1);
    assert_int_equal(hr_roofs_state(r, 1u << HR_UNIT_FP32, &s), HR_OK);
    check_state(&s, 1u << HR_UNIT_FP32);
    assert_true(isnan(s.handoff_ns));
    hr_roofs_destroy(r);
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    hr_roofs *r = NULL;
    for (unsigned nth = 1; nth <= 6; nth++) {
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        hr_status status = hr_roofs_create(1, &r);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        if (nth <= 5)
            assert_int_equal(status, HR_ERR_MEMORY); /* roofs, CPUs, gang, members, list of buffers */
        else if (status == HR_OK)
            hr_roofs_destroy(r);
        else
            assert_int_equal(status, HR_ERR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns_read_each_line_once),
                                       cmocka_unit_test(operations_are_counted), cmocka_unit_test(state_of_all_units),
                                       cmocka_unit_test(one_cpu_has_no_handoff),
                                       cmocka_unit_test(out_of_memory_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
