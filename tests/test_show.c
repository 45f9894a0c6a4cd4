/* `runs` and `show`: what they print of a small store, through the same flags as on the command line. */
#include "tests/command_fixture.h"

#include "harness/formats/cell_keys.h"
#include "harness/show/cell_view.h"

extern const hr_command hr_command_runs, hr_command_show;

static char *run_ids[2];

/* Two runs; c2 only in the second. */
static int setup_cells(void **state) {
    if (setup(state) != 0) return -1;
    hr_store *store = open_store(true);
    for (int r = 0; r < 2; r++) {
        run_ids[r] = begin(store);
        ok(put(store, run_ids[r], "c1"));
        if (r) ok(put(store, run_ids[r], "c2"));
        ok(hr_store_end_run(store, run_ids[r], 0));
    }
    hr_store_close(store);
    return 0;
}
static int teardown_cells(void **state) {
    hr_free(run_ids[0]), hr_free(run_ids[1]);
    return teardown(state);
}

static void prints(const char *text) {
    if (!strstr(printed, text)) fail_msg("\"%s\" is not in:\n%s", text, printed);
}

static void runs_lists_runs(void **state) {
    (void)state;
    assert_int_equal(call(&hr_command_runs, "--json"), 0);
    json_t *runs = parse(printed);
    assert_int_equal(json_array_size(runs), 2);
    json_t *second = json_array_get(runs, 1);
    assert_string_equal(json_string_value(json_object_get(second, "run_id")), run_ids[1]);
    assert_int_equal(json_integer_value(json_object_get(second, "n_cells")), 2);
    assert_true(json_is_object(json_object_get(second, "args")));
    json_decref(runs);
    assert_int_equal(call(&hr_command_runs, "-o csv"), 0);
    prints("run_id,started,command,n_cells,n_ok,exit_code,machine_class,build_commit,tags");
    prints(",2026-01-02T03:04:05Z,sweep,1,1,0,epyc-2c-24g,abc,a=b");
}

static void runs_lists_cells_of_a_run(void **state) {
    (void)state;
    assert_int_equal(call(&hr_command_runs, "last~1 --json"), 0);
    json_t *cells = parse(printed);
    assert_int_equal(json_array_size(cells), 1);
    json_t *c = json_array_get(cells, 0);
    assert_string_equal(json_string_value(json_object_get(c, "cell_id")), "c1");
    assert_true(json_number_value(json_object_get(c, "tpot_excl_first_ms_p50")) == 1.75);
    assert_true(json_is_null(json_object_get(c, "ttft_ms_p50")));
    json_decref(cells);
    assert_int_equal(call(&hr_command_runs, "nope"), 2);
    assert_non_null(strstr(hr_error(), "begins with 'nope'"));
}

static void show_as_json_adds_the_ops(void **state) {
    (void)state;
    assert_int_equal(call(&hr_command_show, "c1@last~1 --json"), 0);
    json_t *got = parse(printed), *want = make_cell("c1");
    json_object_set_new(want, "run_id", json_string(run_ids[0]));
    json_t *ops = json_object_get(got, "ops");
    assert_int_equal(json_array_size(ops), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(ops, 1), "op")), "head");
    json_object_del(got, "ops");
    assert_true(json_equal(got, want));
    json_decref(got), json_decref(want);
}

static void show_is_readable(void **state) {
    (void)state;
    assert_int_equal(call(&hr_command_show, "last -o table"), 0);
    prints("cell_id");
    prints("c2");
    prints("throttled, state_changed");
    prints("flash_attn  yes");
    prints("10 %");                        /* mbu 0.1 */
    prints("fp32 1 GFLOP, bf16 0 FLOP\n"); /* int8 is null: not there */
    prints("qkv a_avx2, norm b");          /* kernels of prefill */
    prints("tpot_excl_first");
    prints("p95;p99");
    prints("Unknown or not concerned: ");
    prints(", ttft_ms,");
    assert_null(strstr(printed, "null"));
    assert_int_equal(call(&hr_command_show, "last -o md"), 0);
    prints("## Times, in ms\n\n| time | n |");
    assert_int_equal(call(&hr_command_show, "last -o csv"), 0);
    prints("tg128 @ d64");
}

/* Each key with one value or a list of words stands in a section as soon as it has a value. */
static void every_value_of_a_cell_is_shown(void **state) {
    (void)state;
    static const struct {
        const char *key, *kind;
    } keys[] = {
#define X(key, kind) {#key, #kind},
        HR_CELL_KEYS(X)
#undef X
    };
    json_t *cell = json_object();
    size_t n = 0, shown = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = strcmp(keys[i].kind, "TEXT") == 0                                       ? json_string("word")
                        : strcmp(keys[i].kind, "INT") == 0 || strcmp(keys[i].kind, "REAL") == 0 ? json_integer(7)
                        : strcmp(keys[i].kind, "BOOL") == 0                                     ? json_true()
                        : strcmp(keys[i].kind, "WORDS") == 0                                    ? parse("[\"word\"]")
                                                                                                : NULL;
        if (value) json_object_set_new(cell, keys[i].key, value), n++;
    }
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    ok(hr_cell_view(HR_FORMAT_TABLE, stream, cell));
    fclose(stream);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        char key[64] = "";
        sscanf(line, "%63s", key);
        shown += json_object_get(cell, key) != NULL && strstr(line, "  ") != NULL;
        json_object_del(cell, key);
    }
    const char *missing = json_object_iter_key(json_object_iter(cell));
    if (missing) fail_msg("%s is in no section of:\n%s", missing, text);
    assert_int_equal(shown, n);
    json_decref(cell);
    free(text);
}

static void ops_are_sorted_by_share(void **state) {
    (void)state;
    json_t *ops = parse("[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"norm\", \"kernel\": \"k\", \"n\": 10,"
                        "\"median_ns\": 100, \"bytes\": 50, \"flops\": 0},"
                        "{\"phase\": \"decode\", \"layer\": 0, \"op\": \"down\", \"kernel\": \"k\", \"n\": 10,"
                        "\"median_ns\": 1000, \"bytes\": 4000, \"flops\": 8000},"
                        "{\"phase\": \"decode\", \"layer\": 1, \"op\": \"down\", \"kernel\": \"k\", \"n\": 10,"
                        "\"median_ns\": 2000, \"bytes\": 5000, \"flops\": 8000},"
                        "{\"phase\": \"prefill\", \"layer\": 0, \"op\": \"norm\", \"kernel\": \"k\", \"n\": 0,"
                        "\"median_ns\": null, \"bytes\": null, \"flops\": null}]"),
           *rows;
    ok(hr_ops_by_time(ops, &rows));
    json_decref(ops);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "phase")), "prefill");
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "share"))); /* no time, no share */
    json_t *down = json_array_get(rows, 1);
    assert_string_equal(json_string_value(json_object_get(down, "op")), "down");
    assert_int_equal(json_integer_value(json_object_get(down, "calls")), 20);
    const struct {
        const char *key;
        double want;
    } sums[] = {{"time", 0.03}, {"share", 100 * 30.0 / 31}, {"per_call", 1.5}, {"traffic", 3}, {"compute", 160 / 30.0}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        double got = json_number_value(json_object_get(down, sums[i].key));
        if (!(fabs(got - sums[i].want) < 1e-12 * sums[i].want)) /* a few roundings of doubles */
            fail_msg("%s: expected %.15g, got %.15g", sums[i].key, sums[i].want, got);
    }
    json_decref(rows);
    ok(hr_ops_by_time(NULL, &rows));
    assert_int_equal(json_array_size(rows), 0);
    json_decref(rows);
}

static void bad_calls_are_named(void **state) {
    (void)state;
    assert_int_equal(call(&hr_command_show, ""), 2);
    assert_non_null(strstr(hr_error(), "show needs a cell"));
    assert_int_equal(call(&hr_command_show, "c9"), 2);
    assert_non_null(strstr(hr_error(), "no cell in store"));
    assert_int_equal(call(&hr_command_show, "last --json -o csv"), 2);
    snprintf(path, sizeof path, "none");
    assert_int_equal(call(&hr_command_show, "last"), 2);
    assert_non_null(strstr(hr_error(), "--db none"));
    assert_int_equal(call(&hr_command_runs, ""), 2);
    snprintf(path, sizeof path, "%s/absent.db", folder);
    assert_int_equal(call(&hr_command_runs, ""), 2);
    assert_non_null(strstr(hr_error(), "there is no store at"));
}

int main(void) {
#define C(f) cmocka_unit_test_setup_teardown(f, setup_cells, teardown_cells)
    const struct CMUnitTest tests[] = {
        C(runs_lists_runs),     C(runs_lists_cells_of_a_run),      C(show_as_json_adds_the_ops),
        C(show_is_readable),    C(every_value_of_a_cell_is_shown), C(ops_are_sorted_by_share),
        C(bad_calls_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
