/* The loads that make the roof of a GPU, on a driver that runs kernels on the CPU: each does the work that is claimed, whatever the
 * way; the roof has its keys; state and power limit where there is a management library and where not. */
#include "tests/gpu_fixture.h"

#include "engine/cuda/gpu_probe.h"
#include "engine/nvml.h"

#include <sqlite3.h>
#include <sys/wait.h>

enum { BYTES = 20000 / 16 * 16 }; /* of no tile a multiple */

static hr_gpu_probe probe;

static void ok(hr_status status) {
    if (status != HR_OK) fail_msg("expected ok, got: %s", hr_error());
}

static int open_probe(void **state) {
    (void)state;
    return hr_gpu_probe_open(0, BYTES, BYTES, true, &probe) != HR_OK;
}
static int close_probe(void **state) {
    (void)state;
    hr_gpu_probe_close(&probe);
    return 0;
}

static void download(CUdeviceptr from, uint32_t *out, size_t bytes) {
    ok(hr_driver_check(probe.driver->cuMemcpyDtoHAsync(out, from, bytes, probe.stream), "cuMemcpyDtoHAsync"));
    ok(hr_driver_check(probe.driver->cuStreamSynchronize(probe.stream), "cuStreamSynchronize"));
}

/* ---- memory: every word is read or written, by every way ---- */

static void each_word_is_read(void **state) {
    (void)state;
    enum { PASSES = 3 };
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(HR_GPU_READ, &n);
    for (size_t bytes = 16; bytes <= BYTES; bytes += bytes == 16 ? 4080 : BYTES - 4096)
        for (unsigned w = 0; w < n; w++) {
            uint32_t want = 0, got = 0, sums[2];
            double ns, work;
            for (size_t i = 0; i < bytes / 4; i++) want += hr_roof_word(i, 1);
            ok(hr_gpu_probe_run(&probe, HR_GPU_READ, &ways[w], bytes, PASSES, &ns, &work));
            ok(hr_gpu_probe_sums(&probe, sums, 2));
            got = sums[0] + sums[1];
            if (got != PASSES * want)
                fail_msg("%s, %zu bytes: expected a sum of %u, got %u", ways[w].kernel, bytes, PASSES * want, got);
            assert_float_equal(work, (double)bytes * PASSES, 0);
            assert_true(ns > 0);
        }
}

static void each_word_is_written(void **state) {
    (void)state;
    static uint32_t got[BYTES / 4];
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(HR_GPU_WRITE, &n);
    for (unsigned w = 0; w < n; w++) {
        double ns, work;
        ok(hr_driver_check(probe.driver->cuMemsetD8Async(probe.to, 0, BYTES, probe.stream), "cuMemsetD8Async"));
        ok(hr_gpu_probe_run(&probe, HR_GPU_WRITE, &ways[w], BYTES - 16, 1, &ns, &work));
        download(probe.to, got, BYTES);
        for (size_t i = 0; i < BYTES / 4; i++) {
            /* 64 threads side by side, 4 values each, over and over; the last word is beyond what was asked for */
            const uint32_t want = i < BYTES / 4 - 4 ? hr_roof_word(i % 256, 1) : 0;
            if (got[i] != want) fail_msg("%s: index %zu: expected %u, got %u", ways[w].kernel, i, want, got[i]);
        }
    }
}

static void each_word_is_copied(void **state) {
    (void)state;
    static uint32_t got[BYTES / 4];
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(HR_GPU_COPY, &n);
    for (unsigned w = 0; w < n; w++) {
        double ns, work;
        ok(hr_driver_check(probe.driver->cuMemsetD8Async(probe.to, 0, BYTES, probe.stream), "cuMemsetD8Async"));
        ok(hr_gpu_probe_run(&probe, HR_GPU_COPY, &ways[w], BYTES, 2, &ns, &work));
        download(probe.to, got, BYTES);
        for (size_t i = 0; i < BYTES / 4; i++)
            if (got[i] != hr_roof_word(i, 1))
                fail_msg("%s: index %zu: expected %u, got %u", ways[w].kernel, i, hr_roof_word(i, 1), got[i]);
        assert_float_equal(work, 2.0 * BYTES * 2, 0); /* read and written */
    }
}

/* ---- arithmetic: with known operands the accumulators hold what so many steps make ---- */

static void set_operands(int which, const uint32_t words[6]) {
    uint32_t all[32 * 6];
    for (int i = 0; i < 32 * 6; i++) all[i] = words[i % 6];
    const CUdeviceptr at = probe.operands + (CUdeviceptr)which * sizeof all;
    ok(hr_driver_check(probe.driver->cuMemcpyHtoDAsync(at, all, sizeof all, probe.stream), "cuMemcpyHtoDAsync"));
    ok(hr_driver_check(probe.driver->cuStreamSynchronize(probe.stream), "cuStreamSynchronize"));
}

static uint32_t sum_after(hr_gpu_load load, uint32_t loops, double *work) {
    unsigned n;
    double ns;
    uint32_t sums[2];
    ok(hr_gpu_probe_run(&probe, load, hr_gpu_ways(load, &n), 0, loops, &ns, work));
    ok(hr_gpu_probe_sums(&probe, sums, 2));
    assert_int_equal(sums[0], sums[1]);
    return sums[0];
}

static float as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void steps_of_fma(void **state) {
    (void)state;
    const float one[2] = {1, 2};
    uint32_t words[6] = {0};
    double work;
    memcpy(words, one, sizeof one);
    set_operands(0, words);
    /* chains start at 0..7, each step adds 2, 8 steps a loop; a sum over 8 chains and 32 lanes */
    const float want = 32 * (28 + 8 * (3 * 8 * 2)), got = as_float(sum_after(HR_GPU_FP32, 3, &work));
    assert_float_equal(got, want, 0);
    assert_float_equal(work, 2.0 * 64 * 3 * 64 * 2, 0); /* 2 blocks, 64 threads, 3 loops, 64 FMAs, 2 operations */
}

/* All ones: each of 16 x 8 results is k a step; 128 results, 8 chains, 5 loops. */
static void steps_of_mma(void **state) {
    (void)state;
    static const struct {
        hr_gpu_load load;
        int which;
        uint32_t one;
        unsigned k;
        bool integer;
    } cases[] = {{HR_GPU_BF16, 1, 0x3f803f80u, 16, false},
                 {HR_GPU_INT8, 2, 0x01010101u, 32, true},
                 {HR_GPU_FP8, 3, 0x38383838u, 32, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t words[6];
        double work;
        for (int w = 0; w < 6; w++) words[w] = cases[i].one;
        set_operands(cases[i].which, words);
        const uint32_t bits = sum_after(cases[i].load, 5, &work);
        const double got = cases[i].integer ? (double)(int32_t)bits : (double)as_float(bits);
        const double want = 128.0 * 8 * 5 * cases[i].k;
        if (got != want) fail_msg("load %d: expected %g, got %g", cases[i].load, want, got);
        /* 2 blocks of 2 warps, 5 loops of 8 instructions, each 16 x 8 x k multiplications and as many additions */
        assert_float_equal(work, 4.0 * 5 * 8 * 2 * 16 * 8 * cases[i].k, 0);
    }
}

/* ---- the roof ---- */

static double last_share;
static void progress(double share, void *context) {
    assert_true(share >= last_share && share <= 1);
    last_share = share;
    ++*(int *)context;
}

static void expect_rows(const json_t *roof, const char *key, const char *name, const char *const *want) {
    const json_t *rows = json_object_get(roof, key);
    size_t n = 0;
    while (want[n]) n++;
    if (json_array_size(rows) != n) fail_msg("%s: expected %zu rows, got %zu", key, n, json_array_size(rows));
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, name)), want[i]);
        const double lo = json_real_value(json_object_get(row, "ci95_lo")),
                     hi = json_real_value(json_object_get(row, "ci95_hi")),
                     median = json_real_value(json_object_get(row, "median"));
        if (!(lo > 0 && lo <= median && median <= hi))
            fail_msg("%s %s: expected 0 < lo <= median <= hi, got %g %g %g", key, want[i], lo, median, hi);
        assert_true(strlen(json_string_value(json_object_get(row, "pattern"))) > 0);
    }
}

static void the_roof_has_its_keys(void **state) {
    (void)state;
    json_t *roof = NULL;
    int calls = 0;
    last_share = 0;
    ok(hr_gpu_roofs_measure(0, true, progress, &calls, &roof));
    assert_true(calls > 10 && last_share == 1);
    static const char *const levels[] = {"L2", "DRAM", NULL}, *const units[] = {"fp32", "bf16", "int8", "fp8", NULL};
    expect_rows(roof, "read_gb_s", "level", levels);
    expect_rows(roof, "write_gb_s", "level", levels);
    expect_rows(roof, "copy_gb_s", "level", levels);
    expect_rows(roof, "gflop_s", "unit", units);
    assert_string_equal(json_string_value(json_object_get(roof, "device")), "cuda:0");
    assert_true(json_is_true(json_object_get(roof, "simulated")));
    assert_true(json_object_size(json_object_get(roof, "ridge_flop_byte")) == 4);
    assert_true(json_integer_value(json_object_get(roof, "llc_bytes")) > 0);
    assert_true(json_array_size(json_object_get(roof, "sweep")) > 4);
    assert_true(json_real_value(json_object_get(roof, "launch_us")) > 0);
    char *text = json_dumps(roof, 0);
    assert_non_null(text);
    free(text);
    json_decref(roof);
}

/* ---- the command ---- */

/* The exit code; what was printed, errors too, in `printed`. */
static char printed[32768];
static int command(const char *words) {
    const char *build = getenv("HEADROOM_BUILD");
    char line[1024];
    snprintf(line, sizeof line, "%s/headroom roof %s %s", build ? build : "build", words,
             strstr(words, "2>") ? "" : "2>&1");
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    printed[fread(printed, 1, sizeof printed - 1, pipe)] = 0;
    const int how = pclose(pipe);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void roof_of_a_device(void **state) {
    (void)state;
    hr_device_info info;
    json_error_t error;
    ok(hr_device_get_info(0, &info));
    assert_int_equal(command("--device cuda:0 --quick --json --db none 2>/dev/null"), 0);
    json_t *roof = json_loads(printed, 0, &error), *machine = json_object_get(roof, "machine");
    if (!roof) fail_msg("expected JSON, got: %.300s", printed);
    assert_string_equal(json_string_value(json_object_get(machine, "machine_class")), info.class_name);
    assert_non_null(json_string_value(json_object_get(machine, "cpu_class")));
    const json_t *gpu = json_array_get(json_object_get(machine, "gpus"), 0);
    assert_string_equal(json_string_value(json_object_get(gpu, "name")), info.name);
    json_decref(roof);
    assert_int_equal(command("--device cuda:0 --quick -o csv --db none"), 0);
    static const char *const lines[] = {
        "read L2",           "copy DRAM", "compute fp32 by fma", "compute fp8 by mma", "compute fp8 by cublasLt",
        "launch of a kernel"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(printed, lines[i])) fail_msg("expected a line of %s, got: %.500s", lines[i], printed);
}

/* Times of a simulated device are never stored; what cannot be is one line. */
static void roofs_that_are_not(void **state) {
    (void)state;
    char folder[] = "/tmp/hr_roof_XXXXXX", file[64], words[128];
    sqlite3 *db;
    sqlite3_stmt *count;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/x.db", folder);
    snprintf(words, sizeof words, "--device cuda:0 --quick -q --db %s", file);
    assert_int_equal(command(words), 0);
    assert_non_null(strstr(printed, "nothing is stored"));
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT (SELECT count(*) FROM roof) + (SELECT count(*) FROM run)", -1, &count, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(count), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(count, 0), 0);
    sqlite3_finalize(count);
    sqlite3_close(db);
    snprintf(words, sizeof words, "rm -r %s", folder);
    assert_int_equal(system(words), 0);
    static const char *const wrong[][2] = {{"--device cuda:0 --threads 2 --db none", "--threads"},
                                           {"--device cuda:63 --db none", "cuda:63"},
                                           {"--device gpu --db none", "gpu"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(command(wrong[i][0]), 2);
        const char *end = strchr(printed, '\n');
        if (!strstr(printed, wrong[i][1]) || !end || end[1])
            fail_msg("%s: expected one line with '%s', got: %s", wrong[i][0], wrong[i][1], printed);
    }
}

/* ---- failures: each call of the driver fails once ---- */

typedef hr_status work(void);
static hr_status roof_of_gpu(void) {
    json_t *roof = NULL;
    const hr_status status = hr_gpu_roofs_measure(0, true, NULL, NULL, &roof);
    json_decref(roof);
    return status;
}
static hr_status state_of_gpu(void) {
    hr_gpu_state s;
    return hr_gpu_state_get(0, 7, &s);
}

/* Of up to `most` calls, each once with that code: an error in one line that names a function of the driver (or the code is
 * want of memory for buffers, and the state is unknown), and as much is alive afterwards as before. */
static void fail_each(work *run, const char *what, int code, unsigned most) {
    hr_fake_cuda_counts before, after;
    gpu_driver()->arm("");
    ok(run());
    const uint64_t calls = gpu_driver()->calls();
    uint64_t last = calls; /* that is not part of releasing everything, of which failures are not told */
    while (last && (strstr(gpu_driver()->call(last - 1), "Free") || strstr(gpu_driver()->call(last - 1), "Destroy")))
        last--;
    last--; /* and of waiting before that */
    for (uint64_t n = 1; n <= calls && n <= most; n++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%llu:ANY:%d", (unsigned long long)n, code);
        before = gpu_counts();
        assert_int_equal(gpu_driver()->arm(fault), 0);
        const hr_status status = run();
        gpu_driver()->arm("");
        gpu_driver()->revive();
        after = gpu_counts();
        if (status != HR_OK && (!strstr(hr_error(), "cu") || strchr(hr_error(), '\n')))
            fail_msg("%s, fault %s: expected one line that names a call, got: %s", what, fault, hr_error());
        if (status == HR_OK && code != CUDA_ERROR_OUT_OF_MEMORY && n <= last)
            fail_msg("%s, fault %s: expected an error, got none", what, fault);
        gpu_assert_same(&before, &after, fault);
    }
    ok(run());
}

static void failures_of_the_driver(void **state) {
    (void)state;
    const unsigned most = hr_test_quick() ? 30 : 60;
    fail_each(state_of_gpu, "state", CUDA_ERROR_OUT_OF_MEMORY, most);
    fail_each(state_of_gpu, "state", CUDA_ERROR_LAUNCH_FAILED, most);
    fail_each(roof_of_gpu, "roof", CUDA_ERROR_LAUNCH_FAILED, hr_test_quick() ? 12 : 30);
}

/* ---- state and power limit ---- */

static void state_of_a_gpu(void **state) {
    (void)state;
    hr_gpu_state s;
    ok(hr_gpu_state_get(0, 1u << HR_UNIT_BF16, &s));
    assert_true(s.read_gb_s > 0 && s.gflop_s[HR_UNIT_BF16] > 0);
    assert_true(isnan(s.gflop_s[HR_UNIT_FP32]));
    ok(hr_gpu_state_get(0, 0, &s));
    assert_true(isnan(s.read_gb_s) && isnan(s.gflop_s[HR_UNIT_BF16]));
}

static void names_of_reasons(void **state) {
    (void)state;
    char text[128], small[10];
    hr_gpu_reasons_text(0, text, sizeof text);
    assert_string_equal(text, "");
    hr_gpu_reasons_text(0x4 | 0x40, text, sizeof text);
    assert_string_equal(text, "sw_power_cap;hw_thermal");
    hr_gpu_reasons_text(1ull << 20 | 1, text, sizeof text);
    assert_string_equal(text, "gpu_idle;0x100000");
    hr_gpu_reasons_text(0x4 | 0x40, small, sizeof small);
    assert_string_equal(small, "sw_power_");
}

int main(void) {
    gpu_use_fakes();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_is_read),      cmocka_unit_test(each_word_is_written),
        cmocka_unit_test(each_word_is_copied),    cmocka_unit_test(steps_of_fma),
        cmocka_unit_test(steps_of_mma),           cmocka_unit_test(the_roof_has_its_keys),
        cmocka_unit_test(roof_of_a_device),       cmocka_unit_test(roofs_that_are_not),
        cmocka_unit_test(failures_of_the_driver), cmocka_unit_test(state_of_a_gpu),
        cmocka_unit_test(names_of_reasons)};
    return cmocka_run_group_tests(tests, open_probe, close_probe);
}
