/* `headroom sweep --device` on a driver that runs kernels on the CPU: rows of a GPU from the flags to the store, what is refused of
 * them, exit codes, and that a GPU which fails costs its cell. Times mean nothing here. */
#include "tests/sweep_fixture.h"

#include <math.h>

extern const hr_command hr_command_gate, hr_command_report, hr_command_compare, hr_command_kernels, hr_command_observe;

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
    unsetenv("HR_FAKE_CUDA"), unsetenv("HR_FAKE_NVML");
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

/* ---- what the GPU says of itself --------------------------------------------------------------------------------------- */

static void use_all_libraries(void) {
    static const char *const names[][2] = {{"HEADROOM_LIBNVML", "nvml"}, {"HEADROOM_LIBCUPTI", "cupti"}};
    char path[700];
    const size_t folder_bytes = (size_t)(strrchr(fake, '/') - fake);
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.*s/lib%s_fake.so", (int)folder_bytes, fake, names[i][1]);
        if (access(path, R_OK)) fail_msg("%s is not built", path);
        setenv(names[i][0], path, 1);
    }
}

static double number(const json_t *row, const char *key) {
    const json_t *v = at(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void power_clocks_and_counters(void **state) {
    (void)state;
    use_all_libraries();
    setenv("HR_FAKE_NVML", "power=350,limit=700,temperature=45,sm=1980,memory=3201", 1);
    json_t *rows = sweep(MODEL "--device cuda:0 -p 8 -n 3 -r 3 --no-warmup --db none", 0), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        is_ok(row);
        const bool decodes = json_integer_value(at(row, "n_gen")) > 0;
        assert_true(number(row, "sm_mhz") == 1980 && number(row, "memory_mhz") == 3201);
        assert_true(number(row, "temperature_c") == 45 && number(row, "power_limit_w") == 700);
        /* power times time is the library's energy: so the row's power is that power */
        if (!(fabs(number(row, "power_w") - 350) < 35)) fail_msg("power %g W, expected 350", number(row, "power_w"));
        const char *mine = decodes ? "energy_mj_token" : "energy_mj_token_prefill",
                   *other = decodes ? "energy_mj_token_prefill" : "energy_mj_token";
        assert_true(json_is_null(at(row, other)));
        /* 350 W for the time of a repetition, over its tokens: recorded ones and what lies between count too. Null where all of
         * them took under 0.2 s. */
        const double tokens = decodes ? 3 : 8, mj = 350 * number(row, "avg_ns") * 1e-6 / tokens;
        if (!json_is_null(at(row, mine)) && !(number(row, mine) > 0.3 * mj && number(row, mine) < 5 * mj))
            fail_msg("%s: %g mJ a token, expected about %g", text_of(row, "test"), number(row, mine), mj);
        assert_string_equal(text_of(row, "clock_reasons"), "");
        assert_false(has_flag(row, "throttled"));
        static const char *const counted[] = {"dram_bytes_read", "dram_bytes_write", "tensor_pct", "l2_hit_pct",
                                              "warps_active_pct"};
        for (size_t k = 0; k < sizeof counted / sizeof *counted; k++)
            if (!json_is_number(at(row, counted[k]))) fail_msg("%s: %s: not counted", text_of(row, "test"), counted[k]);
    }
    json_decref(rows);
}

/* Reason 0x40 is heat that hardware answers. All of a cell: its state, flagged as a whole. */
static void a_hot_gpu(void **state) {
    (void)state;
    use_all_libraries();
    setenv("HR_FAKE_NVML", "reasons=64", 1);
    json_t *rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 -r 4 --no-warmup --db none", 0);
    const json_t *row = json_array_get(rows, 0);
    is_ok(row);
    assert_string_equal(text_of(row, "stop_reason"), "throttled");
    assert_true(has_flag(row, "throttled"));
    assert_true(json_number_value(json_object_get(at(row, "tpot_excl_first_ms"), "n")) == 4);
    if (!strstr(text_of(row, "clock_reasons"), "hw_thermal")) fail_msg("reasons: %s", text_of(row, "clock_reasons"));
    json_decref(rows);
    rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 -r 50 --on-throttle stop --no-warmup --db none", 0);
    row = json_array_get(rows, 0);
    is_ok(row);
    assert_string_equal(text_of(row, "stop_reason"), "throttled");
    assert_int_equal(json_array_size(at(row, "samples_ns")), 1);
    json_decref(rows);
    rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 -r 2 --on-throttle wait --cool-down 0.02 --no-warmup --db none", 0);
    is_ok(json_array_get(rows, 0)); /* it never cools down: the cell ends all the same */
    json_decref(rows);
}

/* The limit is part of the cell, and of what it says. */
static void a_power_limit(void **state) {
    (void)state;
    use_all_libraries();
    setenv("HR_FAKE_NVML", "min=200,max=700,limit=700,default=700", 1);
    json_t *rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 --power-limit 300,500 -r 1 --no-warmup --db none", 0);
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        is_ok(json_array_get(rows, i));
        const double limit = number(json_array_get(rows, i), "power_limit_w");
        if (limit != (i ? 500 : 300)) fail_msg("cell %zu: limit %g W", i, limit);
    }
    assert_string_not_equal(text_of(json_array_get(rows, 0), "cell_id"), text_of(json_array_get(rows, 1), "cell_id"));
    json_decref(rows);
    setenv("HR_FAKE_NVML", "root=0", 1);
    rows = sweep(MODEL "--device cuda:0 -p 0 -n 2 --power-limit 300 -r 1 --no-warmup --db none", 0);
    assert_string_equal(text_of(json_array_get(rows, 0), "status"), "skipped");
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

static void kernels_of_a_gpu(void **state) {
    (void)state;
    if (run_command(&hr_command_kernels, "--device cuda:0 -m " SMALL " --json -q") != 0)
        fail_msg("%s", read_text(err_file));
    json_t *rows = json_loads(read_text(out_file), 0, NULL), *row;
    size_t i, n_chosen = 0;
    bool attention = false;
    json_array_foreach(rows, i, row) {
        assert_string_equal(text_of(row, "isa"), "cuda");
        if (!json_is_true(at(row, "chosen"))) continue;
        n_chosen++;
        attention |= !strcmp(text_of(row, "name"), "attn_decode_cuda") && json_number_value(at(row, "bytes_token")) > 0;
    }
    if (!attention || n_chosen < 6) fail_msg("%zu rows are chosen, attention %d", n_chosen, attention);
    json_decref(rows);
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

/* A run of each, and a run of both: side by side whatever order the weights lie in, and one report a device. */
static void beside_the_cpu(void **state) {
    (void)state;
    char line[600];
    static const char *const devices[] = {"cpu", "cuda:0", "cpu,cuda:0"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(line, sizeof line, MODEL "--device %s -t 1 -p 8 -n 2 -r 6 --no-warmup --db %s", devices[i], db);
        json_decref(sweep(line, 0));
    }
    snprintf(line, sizeof line, "last~2 last~1 --across-machines --allow-simulated --json --db %s", db);
    if (run_command(&hr_command_compare, line) != 0) fail_msg("%s", read_text(err_file));
    json_t *all = json_loads(read_text(out_file), 0, NULL), *row;
    assert_int_equal(json_array_size(at(all, "cells")), 2);
    size_t i;
    json_array_foreach(at(all, "cells"), i, row) {
        if (!strstr(text_of(row, "machine_b"), "simulated")) fail_msg("machine_b is %s", text_of(row, "machine_b"));
        assert_string_not_equal(text_of(row, "machine_a"), text_of(row, "machine_b"));
        assert_true(number(row, "a_median") > 0 && number(row, "b_median") > 0);
    }
    json_decref(all);
    snprintf(line, sizeof line, "--run last --device cpu --out %s.cpu --db %s", db,
             db); /* nothing simulated is in it */
    if (run_command(&hr_command_report, line) != 0) fail_msg("%s", read_text(err_file));
    snprintf(line, sizeof line, "--run last --device cuda:0 --out %s.gpu --db %s", db, db);
    assert_int_equal(run_command(&hr_command_report, line), 2);
    snprintf(line, sizeof line, "--run last --device cuda:0 --allow-simulated --out %s.gpu --db %s", db, db);
    if (run_command(&hr_command_report, line) != 0) fail_msg("%s", read_text(err_file));
    snprintf(line, sizeof line, "%s.gpu/report.md", db);
    const char *text = read_text(line);
    if (!strstr(text, "simulated-gpu") || !strstr(text, "of other devices")) fail_msg("%.800s", text);
    snprintf(line, sizeof line, "--run last --device cuda:5 --out %s.no --db %s", db, db);
    assert_int_equal(run_command(&hr_command_report, line), 2);
}

static void what_cannot_be_is_said_before_the_first_cell(void **state) {
    (void)state;
    static const struct {
        const char *line, *needle;
    } cases[] = {{"--device cuda:7", "cuda:7"},
                 {"--device cuda:0 -ngl 0", "leave one of the two out"},
                 {"-ngl 0,99 --device cpu", "leave one of the two out"},
                 {"--device cuda:0 --kernel down=matmul_f32_generic", "the CPU alone"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[300];
        snprintf(line, sizeof line, MODEL "-n 2 -p 0 %s --db %s", cases[i].line, db);
        json_decref(sweep(line, 2));
        if (!strstr(read_text(err_file), cases[i].needle))
            fail_msg("%s: expected \"%s\", got %s", cases[i].line, cases[i].needle, read_text(err_file));
        assert_int_not_equal(access(db, F_OK), 0);
    }
    char line[300];
    snprintf(line, sizeof line, "-m " SMALL " --isl 8 --osl 4 --device cuda:0 --arms recorder --db %s", db);
    assert_int_equal(run_command(&hr_command_observe, line), 2);
    if (!strstr(read_text(err_file), "is simulated")) fail_msg("observe: %s", read_text(err_file));
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
        T(power_clocks_and_counters),
        T(a_hot_gpu),
        T(a_power_limit),
        T(kernels_of_a_gpu),
        T(simulated_cells_are_no_evidence),
        T(beside_the_cpu),
        T(what_cannot_be_is_said_before_the_first_cell),
        T(too_large_for_the_gpu),
        T(interrupt_then_resume),
        T(a_lost_worker_costs_one_cell),
        T(a_power_limit_that_is_not_permitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
