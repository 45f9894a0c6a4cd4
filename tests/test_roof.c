/* The ceilings: what can be checked without believing a clock. */
#include "tests/hr_test.h"

#include "harness/roof/limits.h"
#include "harness/roof/microarch.h"
#include "harness/roof/roof.h"
#include "kernels/base/knees.h"
#include "kernels/base/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const hr_roof_kernels *const kernels[] = {
    &hr_roof_generic,
#if defined(__x86_64__)
    &hr_roof_avx2,
    &hr_roof_avxvnni,
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
        assert_true(kernels[k]->n_patterns > 0 || kernels[k]->isa == HR_ISA_AVXVNNI);
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

/* The name of a way is printed beside what it reached: no two of a file may share one. */
static void patterns_have_names_of_their_own(void **state) {
    (void)state;
    char a[96], b[96];
    hr_roof_pattern_name(&(hr_roof_pattern){4, 1024, false, false, 512}, a, sizeof a);
    assert_string_equal(a, "4 streams, prefetchnta 1024, 512-bit");
    hr_roof_pattern_name(&(hr_roof_pattern){1, 0, true, true, 256}, a, sizeof a);
    assert_string_equal(a, "1 stream in neighbouring pages, no prefetch, 256-bit");
    for (int k = 0; k < N_KERNELS; k++)
        for (int i = 0; i < kernels[k]->n_patterns; i++)
            for (int j = 0; j < i; j++) {
                hr_roof_pattern_name(&kernels[k]->patterns[i], a, sizeof a);
                hr_roof_pattern_name(&kernels[k]->patterns[j], b, sizeof b);
                assert_string_not_equal(a, b);
            }
}

/* Operations of one loop, counted by hand from the instruction: lanes x 2, four or eight lanes in a dot product. */
static void operations_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *form;
        double ops;
    } counts[] = {
        {"fma zmm 12", 24 * 16 * 2},       {"fma zmm 24", 24 * 16 * 2},
        {"fma ymm 24", 24 * 8 * 2},        {"vdpbf16ps zmm 12", 24 * 32 * 2},
        {"vdpbf16ps zmm 24", 24 * 32 * 2}, {"vdpbf16ps ymm 24", 24 * 16 * 2},
        {"vpdpbusd zmm 12", 24 * 64 * 2},  {"vpdpbusd zmm 24", 24 * 64 * 2},
        {"vpdpbusd ymm 24", 24 * 32 * 2},  {"vpdpbusd ymm 12 (VEX)", 24 * 32 * 2},
        {"fma ymm 12", 24 * 8 * 2},        {"fma ymm 14", 14 * 8 * 2},
        {"vpmaddubsw ymm", 6 * 32 * 2},    {"vpmaddubsw ymm 16-bit sums", 64 * 32 * 2},
        {"mulps addps", 2 * 7 * 4 * 2},    {"pmaddwd paddd", 2 * 7 * 8 * 2},
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
    for (int k = 0; k < N_KERNELS; k++)
        if (kernels[k]->n_patterns) assert_non_null(kernels[k]->forms[HR_UNIT_FP32]);
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

/* A curve of two core caches and a last level of 16 MiB that keeps min(1, 16 MiB / size) of what is read again. */
static hr_curve made_up_curve(double waver) {
    hr_curve c = {0};
    for (double bytes = 16384; bytes < 400e6; bytes *= sqrt(2)) {
        double h = fmin(1, 16 * 1048576 / bytes);
        double rate = bytes <= 33000 ? 220 : bytes <= 1.1e6 ? 118 : 1 / (h / 100 + (1 - h) / 34);
        c.bytes[c.n] = (size_t)bytes;
        c.gb_s[c.n] = rate * (c.n % 2 ? 1 + waver : 1 - waver);
        c.n++;
    }
    return c;
}

static void knees_are_found(void **state) {
    (void)state;
    const double wavers[] = {0, 0.01, 0.02};
    for (size_t i = 0; i < sizeof wavers / sizeof *wavers; i++) {
        hr_curve c = made_up_curve(wavers[i]);
        assert_in_range(hr_knee_within(&c, 16384, 131072), 31000, 33000);
        double last = (double)hr_knee_last(&c) / 1048576;
        /* sizes are half an octave apart: a fifth of the value to either side */
        if (!(last > 16 / 1.2 && last < 16 * 1.2)) fail_msg("waver %g: expected 16 MiB, got %g", wavers[i], last);
    }
    hr_curve flat = {.n = 8};
    for (unsigned i = 0; i < flat.n; i++) flat.bytes[i] = 16384u << i, flat.gb_s[i] = 30 + (i & 1);
    assert_int_equal(hr_knee_last(&flat), 0);
    assert_int_equal(hr_knee_within(&flat, 0, SIZE_MAX), 0);
    hr_curve never_leaves = made_up_curve(0);
    while (never_leaves.bytes[never_leaves.n - 1] > 20 << 20) never_leaves.n--; /* no plateau of memory */
    size_t knee = hr_knee_last(&never_leaves);
    assert_true(knee < 2 << 20); /* then it sees the fall before that, or none */
}

static void check_row(const json_t *row) {
    double median = json_real_value(json_object_get(row, "median"));
    double lo = json_real_value(json_object_get(row, "ci95_lo")), hi = json_real_value(json_object_get(row, "ci95_hi"));
    assert_true(isfinite(median) && median > 0);
    assert_true(lo > 0 && lo <= median && median <= hi);
    assert_true(json_integer_value(json_object_get(row, "threads")) >= 1);
}

static json_int_t level_bytes(const json_t *rows, const char *level, json_int_t threads) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const bool same = !strcmp(json_string_value(json_object_get(row, "level")), level);
        if (same && json_integer_value(json_object_get(row, "threads")) == threads)
            return json_integer_value(json_object_get(row, "bytes_per_thread"));
    }
    fail_msg("no row %s with %d threads", level, (int)threads);
    return 0;
}

static void note_progress(double share, void *context) {
    double *last = context;
    assert_true(share >= *last && share <= 1);
    *last = share;
}

static void measurement_has_its_shape(void **state) {
    (void)state;
    hr_roofs *r;
    json_t *roof, *row;
    double share = 0;
    size_t i;
    assert_int_equal(hr_roofs_create(0, &r), HR_OK);
    assert_int_equal(hr_roofs_measure(r, true, note_progress, &share, &roof), HR_OK);
    json_int_t n = hr_roofs_threads(r);
    assert_true(share > 0.5);
    json_t *reads = json_object_get(roof, "read_gb_s"), *flops = json_object_get(roof, "gflop_s");
    assert_true(json_array_size(reads) >= 2);
    json_array_foreach(reads, i, row) {
        check_row(row);
        assert_true(json_integer_value(json_object_get(row, "bytes_per_thread")) >= 4096);
    }
    json_array_foreach(flops, i, row) check_row(row);
    json_array_foreach(reads, i, row) assert_non_null(json_string_value(json_object_get(row, "pattern")));
    json_array_foreach(flops, i, row) assert_non_null(json_string_value(json_object_get(row, "pattern")));
    /* By size, not by rate: how fast a level reads depends on who else is running. */
    assert_true(level_bytes(reads, "L1", n) < level_bytes(reads, "DRAM", n));
    assert_true(level_bytes(reads, "L1", 1) < level_bytes(reads, "DRAM", 1));
    const char *unit = json_string_value(json_object_get(json_array_get(flops, 0), "unit"));
    assert_string_equal(unit, "fp32");
    assert_true(json_real_value(json_object_get(json_object_get(roof, "ridge_flop_byte"), "fp32")) > 0);
    assert_true(json_integer_value(json_object_get(roof, "llc_bytes")) > 0);
    assert_true(json_real_value(json_object_get(roof, "clock_ghz")) > 0);
    assert_true(json_array_size(json_object_get(roof, "sweep")) > 20);
    assert_non_null(json_object_get(roof, "handoff_ns"));
    assert_non_null(json_string_value(json_object_get(json_object_get(roof, "machine"), "machine_class")));
    uint64_t once, again;
    assert_int_equal(hr_roofs_llc(r, &once), HR_OK);
    assert_int_equal(hr_roofs_llc(r, &again), HR_OK);
    assert_true(once == again && once == (uint64_t)json_integer_value(json_object_get(roof, "llc_bytes")));
    char *text = json_dumps(roof, 0); /* strict: fails on a number that is not finite */
    assert_non_null(text);
    free(text);
    json_decref(roof);
    hr_roofs_destroy(r);
}

static void names_of_cores(void **state) {
    (void)state;
    static const struct {
        const char *vendor;
        unsigned family, model, stepping;
        const char *name;
    } known[] = {
        {"AuthenticAMD", 0x17, 0x31, 0, "zen2"},  {"AuthenticAMD", 0x19, 0x01, 1, "zen3"},
        {"AuthenticAMD", 0x19, 0x11, 1, "zen4"},  {"AuthenticAMD", 0x1a, 0x02, 1, "zen5"},
        {"GenuineIntel", 6, 0x55, 4, "skylake"},  {"GenuineIntel", 6, 0x55, 7, "cascadelake"},
        {"GenuineIntel", 6, 0x6a, 6, "icelake"},  {"GenuineIntel", 6, 0x8f, 8, "sapphirerapids"},
        {"AuthenticAMD", 0x30, 0x01, 0, "f48m1"}, {"SomethingElse", 6, 0x55, 0, "f6m85"},
    };
    char name[32];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        hr_microarch_name(known[i].vendor, known[i].family, known[i].model, known[i].stepping, name, sizeof name);
        assert_string_equal(name, known[i].name);
    }
    assert_string_equal(hr_product_line("AMD EPYC 9B14"), "epyc");
    assert_string_equal(hr_product_line("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"), "xeon");
    assert_string_equal(hr_product_line("13th Gen Intel(R) Core(TM) i7-13700K"), "core");
    assert_string_equal(hr_product_line(""), "cpu");
}

static void write_file(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *c = full + strlen(root) + 1; *c; c++)
        if (*c == '/') *c = 0, mkdir(full, 0700), *c = '/';
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void limits_of_control_groups(void **state) {
    (void)state;
    char two[] = "/tmp/hr_cgroup2_XXXXXX", one[] = "/tmp/hr_cgroup1_XXXXXX", none[] = "/tmp/hr_cgroup0_XXXXXX";
    assert_non_null(mkdtemp(two));
    write_file(two, "/proc/self/cgroup", "0::/slice/job\n");
    write_file(two, "/sys/fs/cgroup/slice/cpu.max", "250000 100000\n"); /* the parent is the tighter one */
    write_file(two, "/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
    write_file(two, "/sys/fs/cgroup/slice/job/memory.max", "1073741824\n");
    assert_true(hr_cgroup_cpus(two) == 2.5);
    assert_true(hr_cgroup_memory(two) == 1073741824);
    assert_non_null(mkdtemp(one));
    write_file(one, "/proc/self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/pod\n0::/\n");
    write_file(one, "/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "150000\n");
    write_file(one, "/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
    write_file(one, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write_file(one, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(hr_cgroup_cpus(one) == 1.5);
    assert_true(hr_cgroup_memory(one) == UINT64_MAX);
    assert_non_null(mkdtemp(none));
    assert_true(isinf(hr_cgroup_cpus(none)));
    assert_true(hr_cgroup_memory(none) == UINT64_MAX);
    char remove[256];
    snprintf(remove, sizeof remove, "rm -rf %s %s %s", two, one, none);
    assert_int_equal(system(remove), 0);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_read_each_line_once), cmocka_unit_test(patterns_have_names_of_their_own),
        cmocka_unit_test(operations_are_counted),       cmocka_unit_test(state_of_all_units),
        cmocka_unit_test(one_cpu_has_no_handoff),       cmocka_unit_test(knees_are_found),
        cmocka_unit_test(measurement_has_its_shape),    cmocka_unit_test(names_of_cores),
        cmocka_unit_test(limits_of_control_groups),     cmocka_unit_test(out_of_memory_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
