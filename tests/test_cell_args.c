/* From a cell back to the flags of `sweep`: the flags, parsed and planned by the sweep itself, give one cell of the same id. */
#include "tests/hr_test.h"

#include "harness/cli/options.h"
#include "harness/show/cell_args.h"
#include "harness/sweep/axes.h"
#include "kernels/base/memory.h"

#include <unistd.h>

extern const hr_command hr_command_sweep;

#define WORDS(...) \
    ((hr_words){(const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)})
#define INTS(...) ((hr_ints){(const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

/* The defaults of the sweep's flags. */
static hr_axes base(void) {
    static const char *const tiny[] = {"synth:tiny"}, *const native[] = {"native"}, *const automatic[] = {"auto"};
    static const char *const bf16[] = {"bf16"}, *const head[] = {"head"}, *const rows[] = {"repacked"};
    static const char *const all[] = {"all"};
    static const int64_t zero[] = {0}, one[] = {1}, b[] = {2048}, ub[] = {512}, page[] = {16};
    return (hr_axes){.models = {tiny, 1},
                     .quant = {native, 1},
                     .act = {automatic, 1},
                     .k_type = {bf16, 1},
                     .v_type = {bf16, 1},
                     .kv_layout = {head, 1},
                     .isa = {automatic, 1},
                     .weights = {rows, 1},
                     .fusion = {all, 1},
                     .depth = {zero, 1},
                     .seqs = {one, 1},
                     .batch = {b, 1},
                     .ubatch = {ub, 1},
                     .page_size = {page, 1},
                     .flash = {one, 1},
                     .kv_budget = 100,
                     .kv_threshold = 1024,
                     .kv_compact = 16};
}

/* Ids of the cells that `sweep WORDS --dry-run` lists. */
static json_t *planned(const json_t *words) {
    char path[] = "/tmp/headroom-cell-args-XXXXXX", *argv[80];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    int argc = 0;
    size_t i;
    json_t *word;
    json_array_foreach((json_t *)words, i, word) argv[argc++] = (char *)json_string_value(word);
    static const char *const tail[] = {"--dry-run", "--json", "-q", "--db", "none", "--out"};
    for (i = 0; i < sizeof tail / sizeof *tail; i++) argv[argc++] = (char *)tail[i];
    argv[argc++] = path, argv[argc] = NULL;
    hr_args *args;
    char *line = hr_shell_line(words);
    if (hr_args_parse(&hr_command_sweep, argc, argv, &args) != HR_OK) fail_msg("sweep %s: %s", line, hr_error());
    if (hr_command_sweep.run(args) != 0) fail_msg("sweep %s: %s", line, hr_error());
    hr_args_destroy(args), hr_free(line);
    json_t *rows = json_load_file(path, 0, NULL);
    unlink(path);
    assert_non_null(rows);
    return rows;
}

/* Every cell of the axes comes back from its row and the run's settings. */
static void come_back(const hr_axes *axes, const char *run_args_text) {
    hr_machine machine;
    hr_sweep_plan plan;
    assert_int_equal(hr_machine_get(&machine), HR_OK);
    if (hr_sweep_plan_create(axes, &machine, &plan) != HR_OK) fail_msg("%s", hr_error());
    assert_true(plan.n > 0);
    json_t *run_args = run_args_text ? json_loads(run_args_text, 0, NULL) : NULL;
    assert_true(!run_args_text || run_args);
    for (size_t i = 0; i < plan.n; i++) {
        const hr_sweep_cell *c = &plan.cells[i];
        if (c->skip) fail_msg("the test plans a cell that is not legal: %s", c->skip);
        json_t *words, *cell = hr_cell_row(&c->config, &plan.infos[c->info], &machine, c->id, (int64_t)axes->seed, "");
        if (hr_cell_args(cell, run_args, &words) != HR_OK) fail_msg("cell %zu: %s", i, hr_error());
        json_t *rows = planned(words);
        const char *got = json_string_value(json_object_get(json_array_get(rows, 0), "cell_id"));
        if (json_array_size(rows) != 1 || strcmp(got, c->id))
            fail_msg("%s: expected one cell %s, got %zu, the first %s", hr_shell_line(words), c->id,
                     json_array_size(rows), got);
        json_decref(words), json_decref(rows), json_decref(cell);
    }
    json_decref(run_args);
    hr_sweep_plan_destroy(&plan);
}

static void every_kind_of_row(void **state) {
    (void)state;
    hr_axes a = base();
    a.n_prompt = INTS(16), a.n_gen = INTS(8), a.pg = INTS(32, 4), a.pg.n = 1, a.isl = INTS(24), a.osl = INTS(1, 6);
    a.depth = INTS(0, 64), a.seqs = INTS(1, 3);
    come_back(&a, NULL);
    come_back(&a, "{\"n-prompt\": [16, 32], \"quant\": [\"int8\"]}"); /* axes of the run are not the cell's */
}

static void every_layout_and_allocator(void **state) {
    (void)state;
    hr_axes a = base();
    a.n_gen = INTS(8), a.isl = INTS(8), a.osl = INTS(4);
    a.kv_layout = WORDS("head", "token", "block", "zorder", "zorder-h", "shuffled");
    a.kv_alloc = WORDS("per-request", "pool");
    come_back(&a, NULL);
    a.kv_layout = WORDS("paged", "paged-nhd", "paged-identity"), a.page_size = INTS(4, 16), a.kv_alloc = WORDS("paged");
    come_back(&a, NULL);
    a.kv_layout = WORDS("paged"), a.kv_alloc = WORDS("hybrid");
    come_back(&a, NULL);
}

static void every_weight_type(void **state) {
    (void)state;
    hr_axes a = base();
    a.n_gen = INTS(8), a.n_prompt = INTS(8);
    a.quant =
        WORDS("native", "f32", "bf16", "f16", "int8", "int4", "int8-row", "int4-g128", "int4-head8", "int4-g128-head8");
    a.weights = WORDS("native", "repacked");
    come_back(&a, NULL);
    a = base();
    a.n_gen = INTS(8), a.quant = WORDS("int8"), a.act = WORDS("auto", "f32", "int8-row");
    come_back(&a, NULL);
}

static void the_other_axes(void **state) {
    (void)state;
    hr_axes a = base();
    a.n_gen = INTS(8), a.n_prompt = INTS(40);
    a.k_type = WORDS("f32", "q8_0"), a.v_type = WORDS("f16", "bf16"), a.flash = INTS(0, 1), a.threads = INTS(1, 2);
    a.fusion = WORDS("none", "qkv+gate-up", "all"), a.isa = WORDS("generic"), a.batch = INTS(32, 2048);
    a.ubatch = INTS(16), a.seed = 7;
    come_back(&a, NULL);
    a = base();
    a.n_gen = INTS(8), a.isa = WORDS("generic"), a.quant = WORDS("f32"), a.weights = WORDS("native");
    a.kernel = WORDS("norm=rms_norm_generic", "rope=rope_generic");
    come_back(&a, NULL);
}

static void settings_of_the_run(void **state) {
    (void)state;
    hr_axes a = base();
    a.n_gen = INTS(8), a.copy = true, a.small_pages = true, a.free_threads = true;
    come_back(&a, "{\"mmap\": 0, \"huge-pages\": 0, \"pin\": 0, \"db\": \"x.db\", \"repetitions\": 9}");
    a = base();
    a.n_gen = INTS(8), a.kv_budget = 250;
    a.kv_layout = WORDS("paged"), a.kv_alloc = WORDS("hybrid"), a.kv_threshold = 32, a.kv_compact = 4;
    come_back(&a, "{\"kv-budget\": 250, \"kv-threshold\": 32, \"kv-compact\": 4}");
    char path[] = "/tmp/headroom-cell-args-XXXXXX", text[128], input[33];
    const int file = mkstemp(path);
    assert_int_equal(write(file, "some text", 9), 9);
    close(file);
    hr_fingerprint("some text", 9, input);
    a = base();
    a.n_prompt = INTS(8), a.input = input;
    snprintf(text, sizeof text, "{\"prompt\": \"%s\"}", path);
    come_back(&a, text);
    unlink(path);
}

/* ---- what cannot be measured again ---------------------------------------------------------------------------------- */

static void refused(const char *cell_text, const char *needle) {
    json_t *words = NULL, *cell = json_loads(cell_text, 0, NULL);
    assert_non_null(cell);
    const hr_status status = hr_cell_args(cell, NULL, &words);
    if (status != HR_ERR_INPUT || !strstr(hr_error(), needle))
        fail_msg("%s: expected a refusal with \"%s\", got %s: %s", cell_text, needle, hr_status_text(status),
                 hr_error());
    json_decref(cell);
}

static void foreign_cells_are_refused(void **state) {
    (void)state;
    refused("{}", "model");
    refused("{\"model_filename\": \"a.gguf\"}", "another tool");
    refused("{\"model_filename\": \"a.gguf\", \"device\": \"tpu:0\"}", "tpu:0");
    refused("{\"model_filename\": \"a,b.gguf\", \"device\": \"cpu\"}", "comma");
    refused("{\"model_filename\": \"a.gguf\", \"device\": \"cpu\"}", "tokens");
    refused("{\"model_filename\": \"a.gguf\", \"device\": \"cpu\", \"n_gen\": 4}", "`act`");
}

/* The flags of a cell of a GPU: those of the CPU alone are not there, and the device is. */
static void a_cell_of_a_gpu(void **state) {
    (void)state;
    static const struct {
        const char *more, *run_args, *want;
    } cases[] = {{"", NULL, "-m synth:tiny -n 8 --device cuda:1 --act bf16 --kv-alloc per-request"},
                 {", \"graphs\": false, \"gpu_memory\": \"managed\", \"gemm\": \"own\", \"n_seqs\": 16", NULL,
                  "-m synth:tiny -n 8 --seqs 16 --device cuda:1 --graphs 0 --gpu-memory managed --gemm own --act bf16 "
                  "--kv-alloc "
                  "per-request"},
                 {", \"graphs\": true, \"gpu_memory\": \"device\", \"power_limit_w\": 450.0",
                  "{\"huge-pages\": 0, \"pin\": 0}",
                  "-m synth:tiny -n 8 --device cuda:1 --act bf16 --kv-alloc per-request"},
                 {", \"power_limit_w\": 450.0", "{\"power-limit\": [300, 450]}",
                  "-m synth:tiny -n 8 --device cuda:1 --act bf16 --kv-alloc per-request --power-limit 450"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_filename\": \"synth:tiny\", \"device\": \"cuda:1\", \"n_prompt\": 0, \"n_gen\": 8, "
                 "\"weights\": \"native\", \"act\": \"bf16\", \"kv_alloc\": \"per-request\", \"n_threads\": null, "
                 "\"isa\": null%s}",
                 cases[i].more);
        json_t *words = NULL, *cell = json_loads(text, 0, NULL);
        json_t *run_args = cases[i].run_args ? json_loads(cases[i].run_args, 0, NULL) : NULL;
        assert_non_null(cell);
        if (hr_cell_args(cell, run_args, &words) != HR_OK) fail_msg("%s: %s", text, hr_error());
        char *line = hr_shell_line(words);
        assert_string_equal(line, cases[i].want);
        hr_free(line);
        json_decref(words), json_decref(cell), json_decref(run_args);
    }
}

/* What the line says, a shell reads back to the same words. */
static void a_shell_reads_the_words_back(void **state) {
    (void)state;
    static const char *const list[] = {"printf", "%s|", "plain-1.2_x=y,z", "a b",         "it's", "",
                                       "$HOME",  "`x`", "\"q\"",           "back\\slash", "*",    "tab\there",
                                       "~",      "''",  "new\nline"};
    char want[256] = "", got[256] = "";
    json_t *words = json_array();
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        json_array_append_new(words, json_string(list[i]));
        if (i > 1) strcat(want, list[i]), strcat(want, "|");
    }
    char *line = hr_shell_line(words);
    assert_non_null(line);
    FILE *shell = popen(line, "r");
    got[fread(got, 1, sizeof got - 1, shell)] = 0;
    pclose(shell);
    assert_string_equal(got, want);
    hr_free(line);
    json_decref(words);
    words = json_pack("[s,s,s]", "headroom", "-m", "synth:tiny:layers=1");
    line = hr_shell_line(words);
    assert_string_equal(line, "headroom -m synth:tiny:layers=1");
    hr_free(line);
    json_decref(words);
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    json_t *words = json_pack("[s]", "a");
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_null(hr_shell_line(words));
    hr_fault_arm(HR_FAULT_ALLOC, 0);
    json_decref(words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_row),     cmocka_unit_test(every_layout_and_allocator),
        cmocka_unit_test(every_weight_type),     cmocka_unit_test(the_other_axes),
        cmocka_unit_test(settings_of_the_run),   cmocka_unit_test(foreign_cells_are_refused),
        cmocka_unit_test(a_cell_of_a_gpu),       cmocka_unit_test(a_shell_reads_the_words_back),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
