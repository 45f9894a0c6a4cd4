/* The sweep as a user runs it, in a process of its own: rows, store, crashes, time-outs, a full disk, Ctrl-C, resume.
 *
 * HEADROOM_FAULT=KIND:N is read by the worker: alloc, read: the N-th such call fails; crash, hang: at cell N. */
#include "tests/sweep_fixture.h"

#include "harness/sweep/sweep.h"

#include "harness/formats/cell_keys.h"
#include "kernels/base/clock.h"

/* ---- a quiet run ---------------------------------------------------------------------------------------------------- */

static void rows_have_every_key_and_are_in_the_store(void **state) {
    (void)state;
    char line[512];
    snprintf(line, sizeof line,
             "-m synth:tiny -p 16 -n 4 -pg 8,4 --isl 8 --osl 1,4 --seqs 2 -d 8 -r 2 -o jsonl --db %s", db);
    json_t *rows = sweep(line, 0), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), 5);
    json_array_foreach(rows, i, row) {
        assert_string_equal(text_of(row, "status"), "ok");
#define X(key, kind) \
    if (!json_object_get(row, #key)) fail_msg("%s has no key %s", text_of(row, "test"), #key);
        HR_CELL_KEYS(X)
#undef X
        assert_int_equal(json_array_size(json_object_get(row, "samples_ns")), 2);
        assert_string_equal(text_of(row, "stop_reason"), "fixed");
        const bool one_token = json_integer_value(json_object_get(row, "osl")) == 1;
        const bool decodes = strncmp(text_of(row, "test"), "pp16 ", 5) != 0 && !one_token;
        assert_true(json_is_object(json_object_get(row, "tpot_excl_first_ms")) == decodes);
        if (!one_token) assert_true(json_number_value(json_object_get(row, "bytes_step")) > 0);
        const bool requests = json_is_integer(json_object_get(row, "isl")),
                   both = requests || strchr(text_of(row, "test"), '+');
        assert_int_equal(json_array_size(json_object_get(row, "samples_ttft_ms")), requests ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(row, "samples_e2e_ms")), requests ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(row, "samples_prefill_ms")), both ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(row, "samples_tpot_ms")), both && !one_token ? 2 : 0);
    }
    assert_string_equal(text_of(json_array_get(rows, 0), "test"), "pp16 @ d8");
    hr_store *store;
    json_t *runs, *cells, *ops, *roofs, *recorded;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    assert_int_equal(json_array_size(runs), 1);
    const char *run = text_of(json_array_get(runs, 0), "run_id");
    assert_int_equal(hr_store_cells(store, run, &cells), HR_OK);
    assert_int_equal(json_array_size(cells), 5);
    assert_int_equal(hr_store_ops(store, run, text_of(json_array_get(rows, 0), "cell_id"), &ops), HR_OK);
    assert_true(json_array_size(ops) > 5);
    json_array_foreach(ops, i, row) {
        assert_true(json_number_value(json_object_get(row, "mean_ns")) > 0);
        assert_true(strlen(text_of(row, "unit")) > 0);
    }
    /* -r 2: two recorded repetitions, each of a prefill, of a decode, or of both */
    json_array_foreach(rows, i, row) {
        const char *test = text_of(row, "test");
        const size_t decodes = strcmp(test, "pp16 @ d8") && strcmp(test, "isl8 osl1") ? 2 : 0;
        const size_t prefills = strcmp(test, "tg4 @ d8") ? 2 : 0;
        size_t got = 0;
        assert_int_equal(hr_store_recorded(store, run, text_of(row, "cell_id"), &recorded), HR_OK);
        for (size_t r = 0; r < json_array_size(recorded); r++)
            got += !strcmp(text_of(json_array_get(recorded, r), "phase"), "decode");
        if (got != decodes || json_array_size(recorded) != decodes + prefills)
            fail_msg("%s: %zu recorded rows, %zu of decode; expected %zu and %zu", test, json_array_size(recorded), got,
                     decodes + prefills, decodes);
        json_decref(recorded);
        assert_true(json_integer_value(json_object_get(row, "kv_bytes_reserved")) >=
                    json_integer_value(json_object_get(row, "kv_bytes_needed")));
        assert_int_equal(json_integer_value(json_object_get(row, "kv_row_bytes")), 128); /* 64 of bf16 */
        assert_string_equal(text_of(row, "softmax"), "f32");
    }
    assert_int_equal(hr_store_roofs(store, run, &roofs), HR_OK);
    assert_int_equal(json_array_size(roofs), 1);
    json_decref(roofs), json_decref(ops), json_decref(cells), json_decref(runs), json_decref(rows);
    hr_store_close(store);
}

/* ---- measuring ------------------------------------------------------------------------------------------------------ */

static void timed_regions_allocate_nothing(void **state) {
    (void)state;
    const hr_load_options load = {.quant = HR_QUANT_F32, .threads = 1};
    hr_model *model;
    hr_engine *engine;
    hr_bench *bench;
    json_t *result;
    assert_int_equal(hr_model_load("synth:tiny", &load, &model), HR_OK);
    const hr_engine_config config = hr_cell_engine_config(&isl_cell, hr_model_get_info(model)->ctx);
    const hr_measure_options options = fixed(3);
    assert_int_equal(hr_engine_create(model, &config, &engine), HR_OK);
    assert_int_equal(hr_bench_create(model, engine, &isl_cell, &options, &bench), HR_OK);
    assert_int_equal(hr_bench_run(bench, &result), HR_OK);
    assert_int_equal(json_integer_value(json_object_get(result, "timed_allocations")), 0);
    assert_int_equal(json_array_size(json_object_get(result, "samples_ns")), 3);
    /* 3 repetitions of 2 requests of 5 tokens, less those that a busy machine flagged; all meet an SLO that is no limit */
    json_int_t kept = 0;
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(result, "sample_flags"), i, flag) kept += json_is_null(flag);
    assert_in_range(kept, 1, 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(result, "ttft_ms"), "n")), 2 * kept);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(result, "itl_step_ms"), "n")), 8 * kept);
    assert_true(json_number_value(json_object_get(result, "good")) == 6);
    /* The ops lie inside the repetition and do not overlap. How near to 1 their sum is, is a measurement, not a test. */
    const double share = json_number_value(json_object_get(result, "op_sum_share"));
    if (!(share > 0 && share <= 1)) fail_msg("the ops add up to %.3f of the recorded time", share);
    json_decref(result);
    hr_bench_destroy(bench), hr_engine_destroy(engine), hr_model_destroy(model);
}

/* Each allocation in turn fails once: the worker says so and measures the next cell. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    hr_measure_options options = fixed(1);
    options.no_warmup = true;
    size_t failures = 0, first_without = 0;
    for (size_t n = 1; n < 400 && !first_without; n += n < 40 ? 1 : 7) {
        char fault[32];
        snprintf(fault, sizeof fault, "alloc:%zu", n);
        setenv("HEADROOM_FAULT", fault, 1);
        hr_worker worker;
        assert_int_equal(hr_worker_start(&worker, &options), HR_OK);
        bool failed = false;
        for (int round = 0; round < 2; round++) {
            json_t *answer = prepare(&worker);
            bool ok = !strcmp(text_of(answer, "status"), "ok");
            json_decref(answer);
            if (ok) {
                answer = ask(&worker, json_pack("{s:s}", "do", "measure"));
                ok = !strcmp(text_of(answer, "status"), "ok");
                if (!ok) assert_true(strlen(text_of(answer, "error")) > 5);
                json_decref(answer);
            }
            if (round == 1 && failed && !ok) fail_msg("allocation %zu: the cell after it fails too", n);
            failed |= !ok;
        }
        hr_worker_stop(&worker, false);
        failures += failed;
        if (!failed) first_without = n;
    }
    if (failures < 10) fail_msg("only %zu allocations could be made to fail", failures);
    if (!first_without) fail_msg("a worker makes more allocations for a cell than were tried");
}

/* ---- what goes wrong ------------------------------------------------------------------------------------------------- */

static void a_crash_costs_one_cell(void **state) {
    (void)state;
    setenv("HEADROOM_FAULT", "crash:1", 1);
    json_t *rows = sweep("-m synth:tiny -p 8,16,24 -r 1 -o jsonl --db none", 4);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "ok");
    assert_string_equal(text_of(json_array_get(rows, 1), "status"), "failed");
    assert_non_null(strstr(text_of(json_array_get(rows, 1), "error"), "worker"));
    assert_string_equal(text_of(json_array_get(rows, 2), "status"), "ok");
    json_decref(rows);
}

static void a_cell_that_hangs_is_ended(void **state) {
    (void)state;
    setenv("HEADROOM_FAULT", "hang:0", 1);
    const uint64_t begin = hr_now_ns();
    json_t *rows = sweep("-m synth:tiny -p 8,16 -r 1 --timeout 10 -o jsonl --db none", 4);
    assert_true(hr_now_ns() - begin >= 10000000000u);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "failed");
    assert_non_null(strstr(text_of(json_array_get(rows, 0), "error"), "--timeout"));
    assert_string_equal(text_of(json_array_get(rows, 1), "status"), "ok");
    json_decref(rows);
}

static void a_full_disk_loses_no_finished_cell(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, "-m synth:tiny -p 1-64+1 -r 1 --no-warmup -o jsonl --db %s", db);
    const int code = code_of(start(line, 300000));
    if (code != 2) fail_msg("exit %d with a full disk, expected 2: %s", code, read_text(err_file));
    assert_int_equal(lines_of(err_file), 1);
    const size_t printed = lines_of(out_file);
    hr_store *store;
    json_t *runs;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    const json_int_t stored = json_integer_value(json_object_get(json_array_get(runs, 0), "n_ok"));
    /* the cell that could not be stored is still printed */
    assert_true(printed < 64);
    assert_int_equal(printed, stored + 1);
    json_decref(runs);
    hr_store_close(store);
}

static void nothing_that_can_be_measured_is_exit_2(void **state) {
    (void)state;
    json_t *rows = sweep("-m synth:tiny -p 8 --kv-layout head --kv-alloc paged -o jsonl --db none", 2);
    assert_int_equal(json_array_size(rows), 0);
    assert_int_equal(lines_of(err_file), 1);
    json_decref(rows);
    rows = sweep("-m synth:tiny -p 8 --kv-layout head,paged --kv-alloc paged -r 1 -o jsonl --db none", 0);
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "skipped");
    assert_true(strlen(text_of(json_array_get(rows, 0), "error")) > 10);
    assert_string_equal(text_of(json_array_get(rows, 1), "status"), "ok");
    json_decref(rows);
}

static void a_dry_run_measures_nothing(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, "-m synth:tiny -p 8,16 -n 4 --dry-run -o jsonl --db %s", db);
    json_t *rows = sweep(line, 0);
    assert_int_equal(json_array_size(rows), 3);
    assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "seconds")) > 0);
    assert_true(json_number_value(json_object_get(json_array_get(rows, 0), "memory_mb")) > 1);
    assert_int_equal(access(db, F_OK), -1);
    json_decref(rows);
}

static void interrupt_then_resume(void **state) {
    (void)state;
    char line[256], other[300], again[300];
    snprintf(line, sizeof line, "-m synth:tiny -p 8-64+8 -r 1 -o jsonl --db %s", db);
    snprintf(again, sizeof again, "%s --resume", line);
    snprintf(other, sizeof other, "-m synth:tiny -p 8-64+8 -r 2 -o jsonl --db %s --resume", db);
    setenv("HEADROOM_FAULT", "hang:3", 1); /* waits there, so that the signal never comes too late */
    const pid_t pid = start(line, 0);
    unsetenv("HEADROOM_FAULT");
    wait_for_rows(pid, 3);
    kill(pid, SIGINT);
    assert_int_equal(code_of(pid), 130);
    const size_t before = lines_of(out_file);
    assert_int_equal(before, 3);
    assert_non_null(strstr(read_text(err_file), " of 8 cells stored; the same command with --resume goes on"));
    json_t *rows = sweep(other, 2);
    assert_non_null(strstr(read_text(err_file), "had --repetitions 1, this one has --repetitions 2"));
    assert_non_null(strstr(read_text(err_file), "headroom sweep --model synth:tiny --n-prompt 8-64+8 --repetitions 1"));
    json_decref(rows);
    rows = sweep(again, 0);
    assert_int_equal(json_array_size(rows), 8 - before);
    json_decref(rows);
    rows = sweep(again, 0);
    assert_int_equal(json_array_size(rows), 0);
    assert_non_null(strstr(read_text(err_file), "nothing left to measure: 8 of 8 cells"));
    json_decref(rows);
    hr_store *store;
    json_t *runs;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    assert_int_equal(json_array_size(runs), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(runs, 0), "n_ok")), 8);
    json_decref(runs);
    hr_store_close(store);
}

static json_t *only_run(hr_store *store) {
    json_t *runs;
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    assert_int_equal(json_array_size(runs), 1);
    return runs;
}

/* Nothing can be tidied up after SIGKILL: what was committed is there, and the rest is measured by the next call. */
static void kill_9_then_resume(void **state) {
    (void)state;
    char line[256], again[300];
    snprintf(line, sizeof line, "-m synth:tiny -p 8-40+8 -r 1 -o jsonl --db %s", db);
    snprintf(again, sizeof again, "%s --resume", line);
    setenv("HEADROOM_FAULT", "hang:2", 1);
    const pid_t pid = start(line, 0);
    unsetenv("HEADROOM_FAULT");
    wait_for_rows(pid, 2);
    kill(pid, SIGKILL);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    json_t *rows = sweep(again, 0);
    assert_int_equal(json_array_size(rows), 3);
    json_decref(rows);
    hr_store *store;
    json_t *cells;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    json_t *runs = only_run(store);
    assert_int_equal(hr_store_cells(store, text_of(json_array_get(runs, 0), "run_id"), &cells), HR_OK);
    json_decref(runs);
    assert_int_equal(json_array_size(cells), 5);
    json_decref(cells);
    hr_store_close(store);
}

/* The same commit built again, or another compiler: what was measured before does not go on with it. */
static void a_changed_program_does_not_resume(void **state) {
    (void)state;
    char line[256];
    snprintf(line, sizeof line, "-m synth:tiny -p 8,16 -r 1 -o jsonl --db %s", db);
    json_decref(sweep(line, 0));
    hr_store *store;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    json_t *runs = only_run(store), *stored = json_object_get(json_array_get(runs, 0), "manifest");
    assert_int_equal(strlen(text_of(stored, "program")), 32);
    json_t *now = json_deep_copy(stored);
    assert_int_equal(hr_manifest_fits(stored, now), HR_OK);
    json_object_set_new(now, "program", json_string("0123456789abcdef0123456789abcdef"));
    assert_int_equal(hr_manifest_fits(stored, now), HR_ERR_USAGE);
    assert_non_null(strstr(hr_error(), "had the program "));
    json_decref(now), json_decref(runs);
    hr_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_have_every_key_and_are_in_the_store, set_up, clean_up),
        cmocka_unit_test(timed_regions_allocate_nothing),
        cmocka_unit_test_setup_teardown(any_allocation_may_fail, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_crash_costs_one_cell, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_cell_that_hangs_is_ended, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_full_disk_loses_no_finished_cell, set_up, clean_up),
        cmocka_unit_test_setup_teardown(nothing_that_can_be_measured_is_exit_2, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_dry_run_measures_nothing, set_up, clean_up),
        cmocka_unit_test_setup_teardown(interrupt_then_resume, set_up, clean_up),
        cmocka_unit_test_setup_teardown(kill_9_then_resume, set_up, clean_up),
        cmocka_unit_test_setup_teardown(a_changed_program_does_not_resume, set_up, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
