/* `headroom sweep --device` on a driver that runs kernels on the CPU: rows of a GPU from the flags to the store, what is refused of
 * them, exit codes, and that a GPU which fails costs its cell. Times mean nothing here. */
#include "tests/sweep_fixture.h"

extern const hr_command hr_command_gate, hr_command_report, hr_command_compare;

#define MODEL "-m " SMALL " -q -o jsonl "

static char fake[600];

static int set_up_fake(void **state) {
    const char *build = getenv("HEADROOM_BUILD");
    snprintf(fake, sizeof fake, "%s/tests/libcuda_fake.so", build ? build : "build");
    if (access(fake, R_OK)) {
        print_error("%s is not built\n", fake);
        return -1;
    }
    char whole[600];
    if (realpath(fake, whole)) memcpy(fake, whole, sizeof fake);
    setenv("HEADROOM_LIBCUDA", fake, 1);
    setenv("HEADROOM_LIBNVML", "/nonexistent", 1);
    setenv("HEADROOM_LIBCUPTI", "/nonexistent", 1);
    return set_up(state);
}

static int clean_up_fake(void **state) {
    unsetenv("HR_FAKE_CUDA"), unsetenv("HR_FAKE_CUDA_FAULT");
    return clean_up(state);
}

static json_t *at(const json_t *row, const char *key) {
    return json_object_get(row, key);
}

static bool has_flag(const json_t *row, const char *flag) {
    size_t i;
    json_t *item;
    json_array_foreach(at(row, "flags"), i, item) if (!strcmp(json_string_value(item), flag)) return true;
    return false;
}

static void is_ok(const json_t *row) {
    if (strcmp(text_of(row, "status"), "ok"))
        fail_msg("%s: %s: %s", text_of(row, "test"), text_of(row, "status"), text_of(row, "error"));
}

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

static void rows_of_a_gpu(void **state) {
    (void)state;
    char line[400];
    snprintf(line, sizeof line, MODEL "--device cuda:0 -p 8 -n 3 -r 2 --no-warmup --db %s", db);
    json_t *rows = sweep(line, 0), *row;
    size_t i;
    assert_int_equal(json_array_size(rows), 2);
    json_array_foreach(rows, i, row) {
        is_ok(row);
        if (!has_flag(row, "simulated")) fail_msg("%s is not flagged simulated", text_of(row, "test"));
        static const char *const nulls[] = {"n_threads", "isa",           "huge_pages",     "handoff_ns",
                                            "sm_mhz",    "clock_reasons", "dram_bytes_read"};
        for (size_t k = 0; k < sizeof nulls / sizeof *nulls; k++)
            if (!json_is_null(at(row, nulls[k]))) fail_msg("%s: %s must be null", text_of(row, "test"), nulls[k]);
        assert_string_equal(text_of(row, "device"), "cuda:0");
        assert_string_equal(text_of(row, "backends"), "CUDA");
        assert_string_equal(text_of(row, "gpu_memory"), "device");
        assert_string_equal(text_of(row, "weights"), "native");
        assert_true(*text_of(row, "gpu_info") && *text_of(row, "cpu_info"));
        assert_true(json_number_value(at(row, "device_ms")) > 0);
        assert_true(json_number_value(at(row, "bytes_step")) > 0 && json_number_value(at(row, "mbu")) > 0);
        const bool decodes = json_integer_value(at(row, "n_gen")) > 0;
        assert_true(json_is_true(at(row, "graphs")) == decodes && json_is_null(at(row, "graphs")) == !decodes);
        const char *kernel = json_string_value(at(at(at(row, "kernels"), decodes ? "decode" : "prefill"), "attention"));
        if (!kernel || !strstr(kernel, "cuda")) fail_msg("attention ran as %s", kernel ? kernel : "nothing");
    }
    json_decref(rows);
    hr_store *store;
    json_t *runs, *machine;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_runs(store, &runs), HR_OK);
    const char *run_id = text_of(json_array_get(runs, 0), "run_id");
    assert_int_equal(hr_store_machine(store, run_id, &machine), HR_OK);
    const json_t *gpu = json_array_get(at(machine, "gpus"), 0);
    assert_string_equal(text_of(machine, "machine_class"), text_of(gpu, "machine_class"));
    assert_true(json_is_true(at(gpu, "simulated")));
    assert_true(*text_of(machine, "cpu_class") && *text_of(machine, "cpu"));
    json_decref(runs), json_decref(machine);
    hr_store_close(store);
}

/* The axes of a GPU, beside the CPU in one sweep; what does not concern a device makes no cells of it. */
static void axes_of_both(void **state) {
    (void)state;
    json_t *rows = sweep(MODEL "--device cpu,cuda:0 -n 2 -p 0 -t 1 --isa generic,auto --graphs 0,1 --gpu-memory "
                               "device,pinned --weights native,repacked -r 1 --no-warmup --dry-run --db none",
                         0);
    json_decref(rows);
    char line[400];
    snprintf(line, sizeof line,
             MODEL "--device cpu,cuda:0 -n 2 -p 0 -t 1 --graphs 0,1 --weights native,repacked -r 1 --no-warmup --db %s",
             db);
    rows = sweep(line, 0);
    size_t n_gpu = 0, n_simulated = 0, i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        is_ok(row);
        n_gpu += !strcmp(text_of(row, "device"), "cuda:0"), n_simulated += has_flag(row, "simulated");
    }
    assert_int_equal(json_array_size(rows), 4); /* two orders of weights on the CPU; with and without graphs */
    assert_int_equal(n_gpu, 2);
    assert_int_equal(n_simulated, 2);
    json_decref(rows);
}

/* ---- what is refused ----------------------------------------------------------------------------------------------------- */

static int run_command(const hr_command *command, const char *line) {
    fflush(NULL);
    const pid_t pid = fork();
    if (pid) return code_of(pid);
    dup2(open(out_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    dup2(open(err_file, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    char text[1024], *argv[64];
    int argc = 0, code = 2;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    hr_args *args;
    if (hr_args_parse(command, argc, argv, &args) == HR_OK)
        code = command->run(args);
    else
        hr_report_failure();
    fflush(NULL);
    _exit(code);
}

static void simulated_cells_are_no_evidence(void **state) {
    (void)state;
    char line[600];
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, MODEL "--device cuda:0 -p 0 -n 2 -r 6 --no-warmup --db %s", db);
        json_decref(sweep(line, 0));
    }
    static const struct {
        const hr_command *command;
        const char *line, *needle;
    } refused[] = {{&hr_command_gate, "--baseline last~1 --same-session --db %s", "simulated"},
                   {&hr_command_compare, "last~1 last --db %s", "simulated"},
                   {&hr_command_report, "--out %s.report --db %s", "--allow-simulated"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(line, sizeof line, refused[i].line, db, db);
        const int code = run_command(refused[i].command, line);
        if (code != 2) fail_msg("%s %s: exit %d, expected 2", refused[i].command->name, line, code);
        if (!strstr(read_text(err_file), refused[i].needle))
            fail_msg("%s does not say \"%s\": %s", refused[i].command->name, refused[i].needle, read_text(err_file));
    }
    snprintf(line, sizeof line, "last~1 last --allow-simulated --db %s", db);
    const int compared = run_command(&hr_command_compare, line); /* 3: what passes for a machine's state differs */
    if (compared != 0 && compared != 3) fail_msg("compare: exit %d: %s", compared, read_text(err_file));
    snprintf(line, sizeof line, "--out %s.report --allow-simulated --db %s", db, db);
    if (run_command(&hr_command_report, line) != 0) fail_msg("%s", read_text(err_file));
}

static void what_cannot_be_is_said_before_the_first_cell(void **state) {
    (void)state;
    static const struct {
        const char *line, *needle;
    } cases[] = {{"--device cuda:7", "cuda:7"},
                 {"--device cuda:0 -ngl 0", "leave one of the two out"},
                 {"-ngl 0,99 --device cpu", "leave one of the two out"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[300];
        snprintf(line, sizeof line, MODEL "-n 2 -p 0 %s --db %s", cases[i].line, db);
        json_decref(sweep(line, 2));
        if (!strstr(read_text(err_file), cases[i].needle))
            fail_msg("%s: expected \"%s\", got %s", cases[i].line, cases[i].needle, read_text(err_file));
        assert_int_not_equal(access(db, F_OK), 0);
    }
    setenv("HEADROOM_LIBCUDA", "/nonexistent", 1);
    json_decref(sweep(MODEL "-n 2 -p 0 --device cuda:0 --db none", 2));
    assert_non_null(strstr(read_text(err_file), "headroom: cuda:0: "));
    assert_int_equal(lines_of(err_file), 1);
}

/* A model that is larger than the GPU is a skipped cell with both figures; the others are measured. */
static void too_large_for_the_gpu(void **state) {
    (void)state;
    setenv("HR_FAKE_CUDA", "memory=200e6", 1);
    json_t *rows =
        sweep("-m synth:smollm2-135m," SMALL " -q -o jsonl --device cuda:0 -p 0 -n 2 -r 1 --no-warmup --db none", 0);
    assert_int_equal(json_array_size(rows), 2);
    const json_t *large = json_array_get(rows, 0);
    assert_string_equal(text_of(large, "status"), "skipped");
    if (!strstr(text_of(large, "error"), "cuda:0 has 0.2 GB")) fail_msg("the reason is %s", text_of(large, "error"));
    is_ok(json_array_get(rows, 1));
    json_decref(rows);
}

/* ---- interruptions and failures ------------------------------------------------------------------------------------------- */

static void interrupt_then_resume(void **state) {
    (void)state;
    char line[400];
    snprintf(line, sizeof line, MODEL "--device cuda:0 -p 0 -n 2 -d 0-10+2 -r 1 --no-warmup --db %s", db);
    const pid_t pid = start(line, 0);
    wait_for_rows(pid, 1);
    kill(pid, SIGINT);
    assert_int_equal(code_of(pid), 130);
    const size_t had = lines_of(out_file);
    assert_in_range(had, 1, 5);
    strcat(line, " --resume");
    json_t *rows = sweep(line, 0);
    assert_int_equal(json_array_size(rows) + had, 6);
    json_decref(rows);
}

/* A worker that dies with its GPU costs the cell, and the next one has another process and another context. */
static void a_lost_worker_costs_one_cell(void **state) {
    (void)state;
    setenv("HEADROOM_FAULT", "crash:1", 1);
    json_t *rows = sweep(MODEL "--device cuda:0 -p 0 -n 2,3,4 -r 1 --no-warmup --db none", 4);
    assert_int_equal(json_array_size(rows), 3);
    is_ok(json_array_get(rows, 0));
    assert_string_equal(text_of(json_array_get(rows, 1), "status"), "failed");
    is_ok(json_array_get(rows, 2));
    json_decref(rows);
}

/* --power-limit where nobody may set it: skipped, with the reason. */
static void a_power_limit_that_is_not_permitted(void **state) {
    (void)state;
    json_t *rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 --power-limit 300 -r 1 --no-warmup --db none", 0);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "skipped");
    assert_true(*text_of(json_array_get(rows, 0), "error"));
    json_decref(rows);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, set_up_fake, clean_up_fake)
    const struct CMUnitTest tests[] = {
        T(rows_of_a_gpu),
        T(axes_of_both),
        T(simulated_cells_are_no_evidence),
        T(what_cannot_be_is_said_before_the_first_cell),
        T(too_large_for_the_gpu),
        T(interrupt_then_resume),
        T(a_lost_worker_costs_one_cell),
        T(a_power_limit_that_is_not_permitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
