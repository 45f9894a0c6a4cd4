/* What watching costs: the figures of a row, its target and verdict; pairs inside the process and of processes, which are
 * played by scripts; that nothing measured is lost. */
#include "tests/store_fixture.h"

#include "harness/observe/observe.h"
#include "harness/observe/observe_spawn.h"
#include "harness/store/store.h"
#include "harness/sweep/one_cell.h"

extern const hr_command hr_command_observe;

/* ---- one small cell ---- */

static hr_args *args;
static hr_sweep_plan plan;
static hr_observe_options options;
static json_t *words, *rows;
static size_t kept;
static char program[400];

static hr_status count_kept(const json_t *row, void *context) {
    (void)context;
    assert_non_null(json_object_get(row, "name"));
    kept++;
    return HR_OK;
}

static int setup_cell(void **state) {
    hr_machine machine;
    static char *line[] = {"-m", "synth:tiny", "--isl", "8", "--osl", "4", "--quant", "int8", "-fa", "0"};
    if (setup(state) != 0) return -1;
    ok(hr_machine_get(&machine));
    ok(hr_args_parse(&hr_command_observe, 10, line, &args));
    ok(hr_one_cell_plan(args, &machine, &plan));
    words = hr_one_cell_words(args);
    kept = 0;
    options = (hr_observe_options){.cell = &plan.cells[0].config,
                                   .info = &plan.infos[0],
                                   .pairs = 6,
                                   .repetitions = 1,
                                   .program = program,
                                   .sweep = words,
                                   .keep = count_kept};
    return 0;
}

static int teardown_cell(void **state) {
    json_decref(rows), json_decref(words);
    rows = words = NULL;
    hr_sweep_plan_destroy(&plan);
    hr_args_destroy(args);
    return teardown(state);
}

static const json_t *row_named(const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) if (!strcmp(json_string_value(json_object_get(row, "name")), name)) return row;
    fail_msg("no row %s", name);
    return NULL;
}
static double number(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}
static const char *word(const json_t *row, const char *key) {
    const char *value = json_string_value(json_object_get(row, key));
    return value ? value : "";
}
/* A few roundings of log and exp. */
static void near(double got, double want, const char *what) {
    if (!(fabs(got - want) <= 1e-9 * fmax(1, fabs(want)))) fail_msg("%s: expected %.12g, got %.12g", what, want, got);
}

/* ---- rows ---- */

static hr_observe_pairs made_pairs(size_t n, double percent) {
    hr_observe_pairs p = {.n = n};
    for (size_t i = 0; i < n; i++)
        for (int m = 0; m < HR_OBSERVE_METRICS; m++) {
            p.ms[m][0][i] = 10 + (double)i; /* drift that pairs take out */
            p.ms[m][1][i] = p.ms[m][0][i] * (1 + percent / 100);
        }
    return p;
}

static void figures_of_a_row(void **state) {
    (void)state;
    const hr_observe_pairs p = made_pairs(7, 2);
    json_t *row = hr_observe_row(&options, HR_WATCH_RECORDER, HR_OBSERVE_TPOT, &p, NULL);
    near(number(row, "median"), 2, "cost");
    near(number(row, "ci95_lo"), 2, "lower end: all pairs say the same");
    near(number(row, "ci95_hi"), 2, "upper end");
    near(number(row, "off_ms"), 13, "median of 10 .. 16");
    near(number(row, "on_ms"), 13.26, "watched");
    near(number(row, "p"), 2.0 / 128, "all signs alike");
    assert_int_equal(json_array_size(json_object_get(row, "pairs")), 7);
    assert_string_equal(word(row, "name"), "recorder:tpot");
    assert_string_equal(word(row, "test"), "isl8 osl4");
    assert_string_equal(word(row, "quant"), "int8");
    assert_string_equal(word(row, "unit"), "%");
    assert_true(json_is_null(json_object_get(row, "reason")));
    json_decref(row);
    const hr_observe_pairs few = made_pairs(5, 2);
    row = hr_observe_row(&options, HR_WATCH_RECORDER, HR_OBSERVE_TPOT, &few, NULL);
    assert_true(json_is_null(json_object_get(row, "ci95_lo")));
    assert_string_equal(word(row, "verdict"), "inconclusive");
    json_decref(row);
    const hr_observe_pairs many = made_pairs(HR_PAIRS_MAX, 2);
    row = hr_observe_row(&options, HR_WATCH_RECORDER, HR_OBSERVE_TPOT, &many, NULL);
    near(number(row, "median"), 2, "cost over as many pairs as there may be");
    assert_true(json_is_null(json_object_get(row, "p")));
    json_decref(row);
}

static void check_target(hr_watch watch, hr_observe_metric metric, uint64_t n_params, double percent,
                         const char *target, const char *verdict) {
    hr_model_info info = {.n_params = n_params};
    hr_observe_options o = options;
    o.info = &info;
    const hr_observe_pairs p = made_pairs(8, percent);
    json_t *row = hr_observe_row(&o, watch, metric, &p, NULL);
    if (strcmp(word(row, "target"), target) || strcmp(word(row, "verdict"), verdict))
        fail_msg("%s %.1f %%: expected \"%s\" %s, got \"%s\" %s", hr_watch_names[watch], percent, target, verdict,
                 word(row, "target"), word(row, "verdict"));
    json_decref(row);
}

static void targets_by_way_and_size(void **state) {
    (void)state;
    const uint64_t small = 135000000, large = 1200000000;
    check_target(HR_WATCH_RECORDER, HR_OBSERVE_TPOT, small, 1.2, "< 1.5 %", "met");
    check_target(HR_WATCH_RECORDER, HR_OBSERVE_TPOT, large, 1.2, "< 0.5 %", "missed");
    check_target(HR_WATCH_NVTX, HR_OBSERVE_TPOT, small, 0.4, "< 0.5 %", "met");
    check_target(HR_WATCH_NVTX, HR_OBSERVE_TPOT, small, -3, "< 0.5 %", "met");
    check_target(HR_WATCH_NO_PROBES, HR_OBSERVE_TPOT, small, 0.4, "within ±0.5 %", "met");
    check_target(HR_WATCH_NO_PROBES, HR_OBSERVE_TPOT, small, -0.6, "within ±0.5 %", "missed");
    check_target(HR_WATCH_RECORDER, HR_OBSERVE_TTFT, small, 1, "", "");
    check_target(HR_WATCH_OFF, HR_OBSERVE_TPOT, small, 0, "", "");
    check_target(HR_WATCH_NSYS, HR_OBSERVE_TPOT, small, 30, "", "");
    assert_string_equal(hr_observe_verdict(-0.1, 0.7, NAN, 0.5), "inconclusive");
    assert_string_equal(hr_observe_verdict(0.5, 0.7, NAN, 0.5), "missed");
    assert_string_equal(hr_observe_verdict(-0.7, 0.2, -0.5, 0.5), "inconclusive");
    assert_string_equal(hr_observe_verdict(-0.9, -0.5, -0.5, 0.5), "missed");
    assert_string_equal(hr_observe_verdict(NAN, NAN, -0.5, 0.5), "inconclusive");
}

static void flags_of_the_sweep(void **state) {
    (void)state;
    char *text = json_dumps(words, JSON_COMPACT);
    assert_string_equal(text, "[\"--model\",\"synth:tiny\",\"--isl\",\"8\",\"--osl\",\"4\",\"--quant\",\"int8\","
                              "\"--flash-attn\",\"0\"]");
    free(text);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.cells[0].config.quant, HR_QUANT_INT8);
    assert_false(plan.cells[0].config.flash);
}

/* ---- inside this process ---- */

static void engine_pairs(void **state) {
    (void)state;
    options.watches = 1u << HR_WATCH_OFF | 1u << HR_WATCH_RECORDER | 1u << HR_WATCH_NVTX;
    ok(hr_observe_run(&options, &rows));
    assert_int_equal(json_array_size(rows), 6);
    assert_int_equal(kept, 6);
    static const char *const measured[] = {"off:ttft", "off:tpot", "recorder:ttft", "recorder:tpot"};
    for (size_t i = 0; i < 4; i++) {
        const json_t *row = row_named(measured[i]);
        assert_int_equal(number(row, "n"), 6);
        assert_true(number(row, "off_ms") > 0 && number(row, "on_ms") > 0);
        assert_true(number(row, "ci95_lo") <= number(row, "median") && number(row, "median") <= number(row, "ci95_hi"));
    }
    const json_t *nvtx = row_named("nvtx:tpot");
    if (hr_nvtx_built())
        assert_int_equal(number(nvtx, "n"), 6);
    else
        assert_non_null(strstr(word(nvtx, "reason"), "headers"));
}

/* One token out has no time per output token; of one step there is nothing to take turns with. */
static void requests_of_few_tokens(void **state) {
    (void)state;
    for (int osl = 1; osl <= 3; osl++) {
        hr_cell_config cell = plan.cells[0].config;
        cell.osl = cell.n_gen = osl;
        options.cell = &cell, options.watches = 1u << HR_WATCH_RECORDER;
        ok(hr_observe_run(&options, &rows));
        assert_int_equal(json_array_size(rows), osl < 3 ? 1 : 2);
        assert_true(number(row_named("recorder:ttft"), "off_ms") > 0);
        json_decref(rows);
    }
    rows = NULL;
}

static size_t runs_left;
static bool stop_soon(void) {
    return runs_left == 0 || --runs_left == 0;
}

static void interrupted_pairs_are_kept(void **state) {
    (void)state;
    options.watches = 1u << HR_WATCH_OFF, options.pairs = 20, options.stop = stop_soon, runs_left = 8;
    assert_int_equal(hr_observe_run(&options, &rows), HR_ERR_INTERRUPTED);
    assert_int_equal(number(row_named("off:tpot"), "n"), 7);
    assert_int_equal(kept, 2);
    json_decref(rows);
    runs_left = 3;
    assert_int_equal(hr_observe_run(&options, &rows), HR_ERR_INTERRUPTED);
    assert_int_equal(json_array_size(rows), 0); /* too few for an interval */
}

static void rows_come_back_from_the_store(void **state) {
    (void)state;
    options.watches = 1u << HR_WATCH_OFF, options.pairs = 2;
    ok(hr_observe_run(&options, &rows));
    hr_store *store;
    json_t *back;
    ok(hr_store_open(path, true, &store));
    char *run_id = begin(store);
    ok(hr_store_put_observe(store, run_id, rows));
    ok(hr_store_observe(store, run_id, &back));
    assert_true(json_equal(rows, back));
    json_decref(back);
    hr_free(run_id);
    hr_store_close(store);
}

/* ---- processes ---- */

/* A program that plays `headroom sweep`: TPOT is 10 ms, 11 ms with ranges, 12 ms with the library, 13 ms under nsys; TTFT
 * ten times as much. */
static void make_program(const char *name, const char *text) {
    char at[400];
    snprintf(at, sizeof at, "%s/%s", folder, name);
    FILE *f = fopen(at, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    chmod(at, 0755);
}

static const char player[] =
    "#!/bin/sh\n"
    "[ \"$1\" = --version ] && { echo 'headroom 0 (commit x)'; echo 'probes: none'; exit 0; }\n"
    "[ \"$1\" = sweep ] || exit 3\n"
    "tpot=10\n"
    "case \"$*\" in *'--quant int8'*) ;; *) exit 4 ;; esac\n"
    "case \"$*\" in *'--nvtx-level op'*) tpot=11 ;; esac\n"
    "[ -z \"$NVTX_INJECTION64_PATH\" ] || tpot=12\n"
    "[ -z \"$UNDER_NSYS\" ] || tpot=13\n"
    "while [ \"$1\" != --out ]; do shift; done\n"
    "echo '[{\"status\": \"ok\", \"ttft_ms\": {\"p50\": '${tpot}0'}, \"tpot_excl_first_ms\": {\"p50\": '$tpot'}}]' "
    ">\"$2\"\n";
static const char nsys_player[] = "#!/bin/sh\n"
                                  "while [ \"$1\" != -o ]; do shift; done\n"
                                  "shift 2\n"
                                  "UNDER_NSYS=1 exec \"$@\"\n";

static void play(const char *text) {
    make_program("headroom", text);
    snprintf(program, sizeof program, "%s/headroom", folder);
}

static void process_pairs(void **state) {
    (void)state;
    char saved[4096], with[4600];
    snprintf(saved, sizeof saved, "%s", getenv("PATH"));
    snprintf(with, sizeof with, "%s:%s", folder, saved);
    play(player);
    make_program("nsys", nsys_player);
    make_program("libheadroom-nvtx.so", "");
    setenv("PATH", with, 1);
    setenv("NVTX_INJECTION64_PATH", "/a/tool/of/this/process", 1); /* is not passed on */
    options.watches = 1u << HR_WATCH_LIBRARY | 1u << HR_WATCH_NSYS | 1u << HR_WATCH_NO_PROBES;
    options.without = program;
    const hr_status status = hr_observe_run(&options, &rows);
    unsetenv("NVTX_INJECTION64_PATH");
    setenv("PATH", saved, 1);
    ok(status);
    if (hr_nvtx_built()) {
        near(number(row_named("library:tpot"), "median"), 20, "12 over 10 ms");
        near(number(row_named("library:ttft"), "on_ms"), 120, "TTFT with the library");
        near(number(row_named("nsys:tpot"), "median"), 30, "13 over 10 ms");
    }
    near(number(row_named("no-probes:tpot"), "median"), 0, "the same program twice");
    assert_string_equal(word(row_named("no-probes:tpot"), "verdict"), "met");
}

static void what_cannot_be_had_says_why(void **state) {
    (void)state;
    char saved[4096];
    snprintf(saved, sizeof saved, "%s", getenv("PATH"));
    play("#!/bin/sh\necho one line >&2\necho headroom: no such model >&2\nexit 2\n");
    setenv("PATH", "/nonexistent", 1);
    options.watches = 1u << HR_WATCH_LIBRARY | 1u << HR_WATCH_NSYS | 1u << HR_WATCH_NO_PROBES;
    ok(hr_observe_run(&options, &rows));
    setenv("PATH", saved, 1);
    assert_int_equal(json_array_size(rows), 6);
    assert_true(json_is_null(json_object_get(row_named("nsys:tpot"), "median")));
    assert_non_null(strstr(word(row_named("no-probes:tpot"), "reason"), "make probe-cost"));
    if (!hr_nvtx_built()) return;
    assert_non_null(strstr(word(row_named("library:tpot"), "reason"), "libheadroom-nvtx.so"));
    assert_non_null(strstr(word(row_named("nsys:ttft"), "reason"), "nsys is not installed"));
}

static void a_run_that_fails_says_why(void **state) {
    (void)state;
    play("#!/bin/sh\necho one line >&2\necho headroom: no such model >&2\nexit 2\n");
    options.watches = 1u << HR_WATCH_NO_PROBES, options.without = program;
    ok(hr_observe_run(&options, &rows));
    assert_non_null(strstr(word(row_named("no-probes:tpot"), "reason"), "headroom: no such model"));
    fails(hr_observe_check_without(program, program), HR_ERR_USAGE, "is no headroom built without probes");
    fails(hr_observe_check_without(program, "/nonexistent/headroom"), HR_ERR_USAGE, "No such file");
    play(player);
    ok(hr_observe_check_without(program, program));
    make_program("other", "#!/bin/sh\necho 'headroom 0 (commit y)'\necho 'probes: none'\n");
    char other[400];
    snprintf(other, sizeof other, "%s/other", folder);
    fails(hr_observe_check_without(program, other), HR_ERR_USAGE, "another version");
}

static bool always(void) {
    return true;
}

/* A program that would run for a minute is told to end, and waited for. */
static void spawned_program_is_stopped(void **state) {
    (void)state;
    char said[80];
    play("#!/bin/sh\necho begun >&2\nexec sleep 60\n");
    json_t *line = json_pack("[s]", program);
    fails(hr_spawn(line, NULL, NULL, always, said, sizeof said), HR_ERR_INTERRUPTED, "interrupted");
    json_decref(line);
}

int main(void) {
#define O(f) cmocka_unit_test_setup_teardown(f, setup_cell, teardown_cell)
    const struct CMUnitTest tests[] = {O(figures_of_a_row),
                                       O(targets_by_way_and_size),
                                       O(flags_of_the_sweep),
                                       O(engine_pairs),
                                       O(requests_of_few_tokens),
                                       O(interrupted_pairs_are_kept),
                                       O(process_pairs),
                                       O(what_cannot_be_had_says_why),
                                       O(a_run_that_fails_says_why),
                                       O(spawned_program_is_stopped),
                                       O(rows_come_back_from_the_store)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
