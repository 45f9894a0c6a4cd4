/* What belongs to a profiler in a sweep: the worker as a thread, where a capture begins and ends, recorded repetitions.
 *
 * The driver of NVIDIA is a library of three functions that this test compiles and HEADROOM_LIBCUDA names; each call adds a
 * line to the file that HR_TEST_CALLS names. */
#include "tests/nvtx_fixture.h"
#include "tests/sweep_fixture.h"

#include "harness/sweep/recorded.h"
#include "kernels/base/clock.h"

#include <pthread.h>

/* ---- the worker as a thread ---------------------------------------------------------------------------------------- */

static json_t *measured(hr_status start_worker(hr_worker *, const hr_measure_options *)) {
    const hr_measure_options options = fixed(2);
    hr_worker worker;
    assert_int_equal(start_worker(&worker, &options), HR_OK);
    json_t *ready = prepare(&worker);
    assert_string_equal(text_of(ready, "status"), "ok");
    json_decref(ready);
    json_t *result = ask(&worker, json_pack("{s:s, s:s}", "do", "measure", "name", "a cell"));
    assert_string_equal(text_of(result, "status"), "ok");
    hr_worker_stop(&worker, false);
    return result;
}

/* Everything but times: they differ from one measurement to the next. */
static json_t *without_times(const json_t *rows) {
    json_t *out = json_deep_copy(rows), *row;
    size_t i;
    static const char *const times[] = {"median_ns", "mean_ns", "imbalance_ns", "handoff_ns",
                                        "off_ns",    "on_ns",   "op_ns",        "probe_ns"};
    json_array_foreach(out, i, row) for (size_t t = 0; t < sizeof times / sizeof times[0]; t++)
        json_object_del(row, times[t]);
    return out;
}

static void equal(const json_t *a, const json_t *b, const char *what) {
    if (json_equal(a, b)) return;
    char *one = json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT), *other = json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT);
    fail_msg("%s: the process says %.300s, the thread %.300s", what, one, other);
}

static void a_thread_measures_as_a_process_does(void **state) {
    (void)state;
    json_t *process = measured(hr_worker_start), *thread = measured(hr_worker_start_thread), *value;
    const char *key;
    json_object_foreach(process, key, value) if (!json_object_get(thread, key)) fail_msg("the thread lacks %s", key);
    assert_int_equal(json_object_size(process), json_object_size(thread));
    static const char *const same[] = {"kernels",          "prefill_work",      "decode_work",  "kv_bytes_needed",
                                       "kv_bytes_touched", "kv_bytes_reserved", "kv_row_bytes", "softmax",
                                       "stop_reason",      "timed_allocations"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        equal(json_object_get(process, same[i]), json_object_get(thread, same[i]), same[i]);
    static const char *const tables[] = {"ops", "recorded"};
    for (size_t i = 0; i < 2; i++) {
        json_t *a = without_times(json_object_get(process, tables[i]));
        json_t *b = without_times(json_object_get(thread, tables[i]));
        equal(a, b, tables[i]);
        json_decref(a), json_decref(b);
    }
    assert_int_equal(json_integer_value(json_object_get(thread, "timed_allocations")), 0);
    assert_int_equal(json_array_size(json_object_get(thread, "samples_ns")), 2);
    assert_int_equal(json_integer_value(json_object_get(thread, "kv_row_bytes")), 32 * 4); /* a head of 32, f32 */
    json_decref(process), json_decref(thread);
}

/* A prompt of 24 in passes of 16 is two passes of an embedding and 12 ops of the layer, then norm, head and sample; a step
 * is one such pass with a sample for each of two sequences. */
static void recorded_repetitions_add_up(void **state) {
    (void)state;
    json_t *result = measured(hr_worker_start_thread), *row;
    const json_t *rows = json_object_get(result, "recorded");
    assert_int_equal(json_array_size(rows), 4);
    size_t i;
    json_array_foreach(rows, i, row) {
        const bool decodes = i % 2;
        const double on = json_number_value(json_object_get(row, "on_ns"));
        const double ops = json_number_value(json_object_get(row, "op_ns"));
        assert_string_equal(text_of(row, "phase"), decodes ? "decode" : "prefill");
        assert_int_equal(json_integer_value(json_object_get(row, "i")), i / 2);
        assert_int_equal(json_integer_value(json_object_get(row, "n")), 2);
        assert_true(json_number_value(json_object_get(row, "n_ops")) == (decodes ? 17 : 29));
        assert_true(json_number_value(json_object_get(row, "off_ns")) > 0);
        assert_true(json_number_value(json_object_get(row, "probe_ns")) >= 0);
        if (!(ops > 0 && ops <= on)) fail_msg("row %zu: the ops take %.0f ns of %.0f", i, ops, on);
    }
    /* the same ops as the fold's, which knows no repetitions: 2 of 2 requests and of 4 steps */
    double in_ops[2] = {0, 0}, in_recorded[2] = {0, 0};
    json_array_foreach(rows, i, row) in_recorded[i % 2] +=
        json_number_value(json_object_get(row, "op_ns")) * (double)json_integer_value(json_object_get(row, "n"));
    json_array_foreach(json_object_get(result, "ops"), i, row) in_ops[!strcmp(text_of(row, "phase"), "decode")] +=
        json_number_value(json_object_get(row, "mean_ns")) * json_number_value(json_object_get(row, "n"));
    for (int p = 0; p < 2; p++)
        if (fabs(in_ops[p] - in_recorded[p]) > 1e-6 * in_ops[p])
            fail_msg("%s: ops of %.0f ns folded, of %.0f ns recorded", hr_phase_names[p], in_ops[p], in_recorded[p]);
    json_decref(result);
}

static void recorded_rows_are_of_one_request_and_one_step(void **state) {
    (void)state;
    const hr_op_record records[] = {{.phase = HR_PHASE_PREFILL, .start_ns = 10, .end_ns = 50, .jobs = 3},
                                    {.phase = HR_PHASE_PREFILL, .start_ns = 60, .end_ns = 80},
                                    {.phase = HR_PHASE_DECODE, .start_ns = 90, .end_ns = 96, .jobs = 6}};
    hr_recorded r[2] = {{.n = {2, 3}, .off = {{100, NAN}}, .on = {{110, 7}}}, {.n = {0, 3}, .on = {{NAN, 7}}}};
    hr_recorded_fold(&r[0], records, 3), hr_recorded_fold(&r[1], records + 2, 1);
    json_t *rows;
    assert_int_equal(hr_recorded_rows(r, 2, (hr_record_cost){.op_ns = 10, .job_ns = 100}, &rows), HR_OK);
    char *text = json_dumps(rows, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
    assert_string_equal(
        text, "[{\"i\":0,\"n\":2,\"n_jobs\":1.5,\"n_ops\":1.0,\"off_ns\":100.0,\"on_ns\":110.0,\"op_ns\":30.0,"
              "\"phase\":\"prefill\",\"probe_ns\":160.0},"
              "{\"i\":0,\"n\":3,\"n_jobs\":2.0,\"n_ops\":0.333333,\"off_ns\":null,\"on_ns\":7.0,"
              "\"op_ns\":2.0,\"phase\":\"decode\",\"probe_ns\":203.333},"
              "{\"i\":1,\"n\":3,\"n_jobs\":2.0,\"n_ops\":0.333333,\"off_ns\":0.0,\"on_ns\":7.0,"
              "\"op_ns\":2.0,\"phase\":\"decode\",\"probe_ns\":203.333}]");
    free(text); /* jansson's own memory */
    json_decref(rows);
}

/* ---- ending a thread ------------------------------------------------------------------------------------------------ */

static atomic_bool stop;

static void *stop_soon(void *unused) {
    (void)unused;
    usleep(50000);
    atomic_store(&stop, true);
    return NULL;
}

static void a_cell_stops_between_repetitions(void **state) {
    (void)state;
    hr_measure_options options = fixed(1000000);
    options.stop = &stop;
    const hr_load_options load = {.quant = HR_QUANT_F32, .threads = 1};
    hr_model *model;
    hr_engine *engine;
    hr_bench *bench;
    json_t *result = NULL;
    pthread_t other;
    assert_int_equal(hr_model_load(SMALL, &load, &model), HR_OK);
    const hr_engine_config config = hr_cell_engine_config(&isl_cell, hr_model_get_info(model)->ctx);
    assert_int_equal(hr_engine_create(model, &config, &engine), HR_OK);
    assert_int_equal(hr_bench_create(model, engine, &isl_cell, &options, &bench), HR_OK);
    assert_int_equal(pthread_create(&other, NULL, stop_soon, NULL), 0);
    assert_int_equal(hr_bench_run(bench, &result), HR_ERR_INTERRUPTED);
    assert_null(result);
    pthread_join(other, NULL);
    hr_bench_destroy(bench), hr_engine_destroy(engine), hr_model_destroy(model);
}

static void ctrl_c_ends_a_thread_and_keeps_what_is_stored(void **state) {
    (void)state;
    char line[256], again[300];
    snprintf(line, sizeof line, "-m synth:tiny -p 8-32+8 -r 1 --capture nvtx -o jsonl --db %s", db);
    snprintf(again, sizeof again, "%s --resume", line);
    setenv("HEADROOM_FAULT", "hang:2", 1);
    const pid_t pid = start(line, 0);
    unsetenv("HEADROOM_FAULT");
    wait_for_rows(pid, 2);
    kill(pid, SIGINT);
    assert_int_equal(code_of(pid), 130);
    assert_int_equal(lines_of(out_file), 2);
    json_t *rows = sweep(again, 0);
    assert_int_equal(json_array_size(rows), 2);
    json_decref(rows);
}

static void a_thread_over_its_time_fails_its_cell_alone(void **state) {
    (void)state;
    setenv("HEADROOM_FAULT", "hang:0", 1);
    json_t *rows = sweep("-m synth:tiny -p 8,16 -r 1 --timeout 10 --capture nvtx -o jsonl --db none", 4);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "failed");
    assert_non_null(strstr(text_of(json_array_get(rows, 0), "error"), "--timeout"));
    assert_string_equal(text_of(json_array_get(rows, 1), "status"), "ok");
    json_decref(rows);
}

/* ---- captures --------------------------------------------------------------------------------------------------------- */

static char driver[160], calls[160];

/* init_code: what cuInit of the driver answers. */
static void make_driver(int init_code) {
    char source[160], command[600];
    snprintf(driver, sizeof driver, "%s/libcuda.so", folder);
    snprintf(source, sizeof source, "%s/cuda.c", folder);
    snprintf(calls, sizeof calls, "%s/calls", folder);
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    fprintf(f,
            "#include <stdio.h>\n#include <stdlib.h>\n"
            "static int say(const char *what, int code) {\n"
            "    FILE *f = fopen(getenv(\"HR_TEST_CALLS\"), \"a\");\n"
            "    if (f) fprintf(f, \"%%s\\n\", what), fclose(f);\n    return code;\n}\n"
            "int cuInit(unsigned flags) { return say(\"init\", flags ? 1 : %d); }\n"
            "int cuProfilerStart(void) { return say(\"start\", 0); }\n"
            "int cuProfilerStop(void) { return say(\"stop\", 0); }\n",
            init_code);
    fclose(f);
    const char *cc = getenv("CC");
    snprintf(command, sizeof command, "%s -shared -fPIC -o %s %s", cc && *cc ? cc : "cc", driver, source);
    if (system(command)) fail_msg("cannot compile the driver: %s", command);
    setenv("HEADROOM_LIBCUDA", driver, 1);
    setenv("HR_TEST_CALLS", calls, 1);
}

static int clean_driver(void **state) {
    unsetenv("HEADROOM_LIBCUDA"), unsetenv("HR_TEST_CALLS");
    return clean_up(state);
}

/* Once a cell, however many samples it has; a cell that is skipped or fails to load is none. */
static void the_driver_hears_of_each_cell_once(void **state) {
    (void)state;
    make_driver(0);
    json_t *rows = sweep("-m synth:tiny -p 8,16 -n 4 -r 3 --capture cuda-profiler -o jsonl --db none", 0);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(read_text(calls), "init\nstart\nstop\nstart\nstop\nstart\nstop\n");
    assert_int_equal(lines_of(err_file), 0);
    json_decref(rows);
}

static void a_capture_that_cannot_be_is_exit_2(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, "-m synth:tiny -p 8 -r 1 --capture cuda-profiler -o jsonl --db %s", db);
    setenv("HEADROOM_LIBCUDA", "/nowhere/libcuda.so", 1);
    json_decref(sweep(line, 2));
    assert_non_null(strstr(read_text(err_file), "/nowhere/libcuda.so"));
    assert_non_null(strstr(read_text(err_file), "use --capture nvtx"));
    assert_int_equal(lines_of(err_file), 1);
    make_driver(100);
    json_decref(sweep(line, 2));
    assert_non_null(strstr(read_text(err_file), "100"));
    assert_int_equal(lines_of(err_file), 1);
    assert_string_equal(read_text(calls), "init\n");
    assert_int_equal(access(db, F_OK), -1); /* nothing was begun */
}

/* Settings of a profiler are none of the cell: the same id, and the same args on record. */
static void a_capture_is_no_part_of_the_cell(void **state) {
    (void)state;
    char line[256];
    json_t *plain = sweep("-m synth:tiny -p 8 -r 1 -o jsonl --db none", 0);
    snprintf(line, sizeof line, "-m synth:tiny -p 8 -r 1 --capture nvtx --nvtx-level layer -o jsonl --db %s", db);
    json_t *captured = sweep(line, 0);
    assert_int_equal(lines_of(err_file), 1);
    assert_non_null(strstr(read_text(err_file), "--capture nvtx: nothing will be captured"));
    assert_string_equal(text_of(json_array_get(plain, 0), "cell_id"), text_of(json_array_get(captured, 0), "cell_id"));
    hr_store *store;
    json_t *runs;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    const json_t *args = json_object_get(json_array_get(runs, 0), "args");
    assert_string_equal(text_of(args, "capture"), "nvtx");
    assert_string_equal(text_of(args, "nvtx-level"), "layer");
    json_decref(plain), json_decref(captured), json_decref(runs);
    hr_store_close(store);
}

/* ---- what a listening tool hears --------------------------------------------------------------------------------------- */

#ifdef HR_HAVE_NVTX
static const char *around(const nvtx_trace *t, const size_t *parents, size_t i) {
    return parents[i] == SIZE_MAX ? "" : t->events[parents[i]].name;
}

/* Two cells of -r 2: in each a capture of 2 samples and 2 recorded repetitions, and the warm-up outside of it. */
static void a_capture_holds_the_samples_and_no_warm_up(void **state) {
    (void)state;
    pid_t pid;
    const char *line =
        "sweep -m synth:tiny -p 16 -n 0 --isl 8 --osl 4 --seqs 2 -r 2 -t 2 --capture nvtx --nvtx-level phase"
        " --db none -o csv --on-busy ignore";
    assert_int_equal(nvtx_start("headroom", (nvtx_run){.line = line}, &pid), 0);
    char *said = nvtx_read("err");
    assert_string_equal(said, ""); /* a tool is attached: there is nothing to warn of */
    free(said);
    nvtx_trace t = nvtx_trace_of("headroom-nvtx.json");
    size_t *parents = calloc(t.n + 1, sizeof *parents), captured = 0, warm = 0, cells = 0, decodes = 0;
    nvtx_assert_nested(&t, parents);
    for (size_t i = 0; i < t.n; i++) {
        const nvtx_event *e = &t.events[i];
        const json_int_t payload = json_integer_value(json_object_get(e->args, "payload"));
        if (!strcmp(e->category, "layer") || !strcmp(e->category, "op")) fail_msg("'%s' is below level phase", e->name);
        const bool cell = !strncmp(e->name, "synth:tiny native ", 18);
        cells += cell;
        if (cell) assert_int_equal(strlen(strrchr(e->name, ' ') + 1), 8); /* of the cell_id */
        if (!strcmp(e->name, "capture"))
            assert_ptr_equal(strstr(around(&t, parents, i), "synth:tiny"), around(&t, parents, i));
        if (!strcmp(e->name, "decode")) assert_string_equal(around(&t, parents, i), "request"), decodes++;
        if (strcmp(e->name, "request")) continue;
        if (payload != 16 && payload != 24)
            fail_msg("a request has %lld tokens, expected 16 or 24", (long long)payload);
        if (!strcmp(around(&t, parents, i), "capture"))
            captured++;
        else
            warm += !strncmp(around(&t, parents, i), "synth:tiny", 10);
    }
    assert_int_equal(cells, 2);
    assert_int_equal(nvtx_count(&t, "capture"), 2);
    assert_int_equal(captured, 2 * (2 + 2));
    if (warm < 2 || warm + captured != nvtx_count(&t, "request"))
        fail_msg("%zu requests in captures, %zu of warm-up, %zu in all", captured, warm, nvtx_count(&t, "request"));
    assert_true(decodes >= 3 * 4); /* a request of 4 tokens has 3 steps */
    free(parents);
    nvtx_drop(&t);
}

/* Also without a capture the worker is a thread when a tool listens, and level none leaves nothing to hear. */
static void a_level_of_none_is_silent(void **state) {
    (void)state;
    pid_t pid;
    const char *line = "sweep -m synth:tiny -p 16 -n 0 -r 1 -t 1 --nvtx-level %s --db none -o csv --on-busy ignore";
    char text[128];
    snprintf(text, sizeof text, line, "none");
    assert_int_equal(nvtx_start("headroom", (nvtx_run){.line = text}, &pid), 0);
    nvtx_trace t = nvtx_trace_of("headroom-nvtx.json");
    assert_int_equal(t.n, 0);
    nvtx_drop(&t);
    snprintf(text, sizeof text, line, "cell");
    assert_int_equal(nvtx_start("headroom", (nvtx_run){.line = text}, &pid), 0);
    t = nvtx_trace_of("headroom-nvtx.json");
    assert_int_equal(nvtx_count(&t, "capture"), 0);
    assert_true(nvtx_count(&t, "request") >= 2); /* a warm-up, a sample, a recorded one */
    for (size_t i = 0; i < t.n; i++) assert_string_equal(t.events[i].category, "cell");
    size_t cells = 0; /* two when the machine changed its state meanwhile, so that it is measured again */
    for (size_t i = 0; i < t.n; i++) cells += !strncmp(t.events[i].name, "synth:tiny native pp16 ", 23);
    assert_in_range(cells, 1, 2);
    assert_int_equal(t.n, nvtx_count(&t, "request") + cells);
    nvtx_drop(&t);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_measures_as_a_process_does),
        cmocka_unit_test(recorded_repetitions_add_up),
        cmocka_unit_test(recorded_rows_are_of_one_request_and_one_step),
        cmocka_unit_test(a_cell_stops_between_repetitions),
        cmocka_unit_test_setup_teardown(ctrl_c_ends_a_thread_and_keeps_what_is_stored, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_thread_over_its_time_fails_its_cell_alone, set_up, clean_up),
        cmocka_unit_test_setup_teardown(the_driver_hears_of_each_cell_once, set_up, clean_driver),
        cmocka_unit_test_setup_teardown(a_capture_that_cannot_be_is_exit_2, set_up, clean_driver),
        cmocka_unit_test_setup_teardown(a_capture_is_no_part_of_the_cell, set_up, clean_up),
#ifdef HR_HAVE_NVTX
        cmocka_unit_test_setup_teardown(a_capture_holds_the_samples_and_no_warm_up, nvtx_set_up, nvtx_clean_up),
        cmocka_unit_test_setup_teardown(a_level_of_none_is_silent, nvtx_set_up, nvtx_clean_up),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
