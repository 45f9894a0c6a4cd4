/* A stored cell under nsys: the command line, the flow with a made-up nsys that does what the test says, what a profiler
 * that hangs leaves behind, and the real nsys where it is installed. */
#include "tests/command_fixture.h"

#include "harness/profilers/child.h"
#include "harness/profilers/profilers.h"
#include "harness/show/stored_cell.h"

#include <signal.h>
#include <sys/wait.h>

extern const hr_command hr_command_nsys, hr_command_ncu;

static char *run_id, old_path[4096], home[512];

#define TABLE                                                                                            \
    "Time (%%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\\n" \
    "60.0,600000,6,100000.0,100000.0,90000,110000,5.0,PushPop,headroom:decode\\n"                        \
    "40.0,400000,200,2000.0,2000.0,1900,2100,5.0,PushPop,headroom:qkv:decode\\n"

/* What the fake does is said by files in its folder: `code` (of the profiled sweep), `ending` of the report, `table`,
 * `name` of the report of ranges, `hang`. */
static const char fake_nsys[] =
    "#!/bin/sh\n"
    "here=$(dirname \"$0\")\n"
    "say() { [ -f \"$here/$1\" ] && cat \"$here/$1\" || printf '%s' \"$2\"; }\n"
    "case $1 in\n"
    "--version) echo 'NVIDIA Nsight Systems version 2099.1.2.3-fake' ;;\n"
    "profile)\n"
    "  printf '%s\\n' \"$@\" >\"$here/words\"\n"
    "  while [ $# -gt 0 ]; do [ \"$1\" = --output ] && base=$2; shift; done\n"
    "  [ -f \"$here/hang\" ] && { echo part >\"$base.qdstrm\"\n"
    "    sh -c 'echo $$ >\"$0/pid\"; exec sleep 60' \"$here\" & wait; }\n"
    "  code=$(say code 0)\n"
    "  [ \"$code\" = 0 ] || echo 'headroom: the model went away' >&2\n"
    "  ending=$(say ending .nsys-rep); [ \"$ending\" = none ] || echo report >\"$base$ending\"\n"
    "  echo 'Importer error status: nothing' >&2; exit \"$code\" ;;\n"
    "stats)\n"
    "  [ \"$2\" = --help-reports ] && { echo \"  $(say name nvtx_sum) -- NVTX Range Summary\"; exit 0; }\n"
    "  printf '%s\\n' \"$@\" >\"$here/stats_words\"\n"
    "  echo 'Processing...'; [ -f \"$here/table\" ] && cat \"$here/table\" || printf '" TABLE "' ;;\n"
    "esac\n";
static const char fake_importer[] = "#!/bin/sh\ncp \"$2\" \"${2%.qdstrm}.nsys-rep\"\n";

static void write_text(const char *name, const char *text, mode_t mode) {
    char file[600];
    snprintf(file, sizeof file, "%s/%s", home, name);
    write_file(file, text, strlen(text));
    assert_int_equal(chmod(file, mode), 0);
}

static bool there(const char *name) {
    char file[600];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    return access(file, F_OK) == 0;
}

/* A store with one cell that a sweep could measure, and a made-up nsys before everything else in PATH. */
static int setup_fake(void **state) {
    if (setup(state) != 0) return -1;
    hr_store *store = open_store(true);
    run_id = begin(store);
    json_t *cell = make_cell("c1a2b3c4d5e6"),
           *more = parse("{\"model_filename\": \"synth:tiny\", \"device\": \"cpu\", \"act\": \"int8\", \"n_threads\": "
                         "2, \"isa\": \"avx2\","
                         "\"kv_alloc\": \"per-request\", \"n_prompt\": 0, \"n_depth\": 64, \"n_seqs\": 1}");
    json_object_update(cell, more);
    json_t *ops = parse("[{\"phase\": \"decode\", \"layer\": 0, \"op\": \"qkv\", \"kernel\": \"c\", \"n\": 100,"
                        "\"median_ns\": 1500.5, \"bytes\": 4096, \"flops\": 8192, \"mean_ns\": 1600},"
                        "{\"phase\": \"decode\", \"layer\": 1, \"op\": \"qkv\", \"kernel\": \"c\", \"n\": 100,"
                        "\"median_ns\": 2499.5, \"bytes\": 4096, \"flops\": 8192, \"mean_ns\": 2400}]");
    ok(hr_store_put_cell(store, run_id, cell, NULL, ops));
    json_object_set_new(cell, "cell_id", json_string("c9gpu"));
    json_object_set_new(cell, "device", json_string("cuda:0"));
    ok(hr_store_put_cell(store, run_id, cell, NULL, ops));
    json_object_set_new(cell, "cell_id", json_string("c8skipped"));
    json_object_set_new(cell, "status", json_string("skipped"));
    json_object_set_new(cell, "error", json_string("too long"));
    ok(hr_store_put_cell(store, run_id, cell, NULL, NULL));
    json_decref(cell), json_decref(more), json_decref(ops);
    hr_store_close(store);
    char text[5000];
    snprintf(home, sizeof home, "%s/bin", folder), mkdir(home, 0755);
    snprintf(text, sizeof text, "%s/host-linux-x64", folder), mkdir(text, 0755);
    write_text("nsys", fake_nsys, 0755);
    write_text("../host-linux-x64/QdstrmImporter", fake_importer, 0755);
    snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
    snprintf(text, sizeof text, "%s:%s", home, old_path);
    return setenv("PATH", text, 1);
}
static int teardown_fake(void **state) {
    setenv("PATH", old_path, 1);
    hr_free(run_id);
    return teardown(state);
}

/* `nsys c1 --run` into the test's folder. */
static int run_it(const char *more) {
    char words[700];
    snprintf(words, sizeof words, "c1a --run -q --report %s/rep %s", folder, more);
    return call(&hr_command_nsys, words);
}

/* Without them a run is refused before nsys is called. */
static void need_ranges(const char *test) {
    if (hr_nvtx_built()) return;
    printf("skipped: %s: this build has no NVTX headers (nvtx3 of the CUDA toolkit), and so emits no ranges\n", test);
    skip();
}

static void works(int code) {
    if (code != 0) fail_msg("exit code %d: %s", code, hr_error());
}

static void says(const char *text) {
    if (!strstr(hr_error(), text)) fail_msg("\"%s\" does not say \"%s\"", hr_error(), text);
}

/* ---- the made-up nsys --------------------------------------------------------------------------------------------- */

static void the_table_lands_beside_the_cell(void **state) {
    (void)state;
    need_ranges(__func__);
    works(run_it("--json"));
    json_t *rows = parse(printed);
    assert_int_equal(json_array_size(rows), 2);
    json_t *op = json_array_get(rows, 1);
    assert_string_equal(json_string_value(json_object_get(op, "name")), "qkv:decode");
    assert_int_equal(json_integer_value(json_object_get(op, "recorded_n")), 200);
    /* layers of 1600 and 2400 ns; medians of 1500.5 and 2499.5 ns: 2000, as nsys has it */
    assert_true(json_number_value(json_object_get(op, "recorded_mean_ns")) == 2000);
    assert_true(json_number_value(json_object_get(op, "recorded_median_ns")) == 2000);
    assert_true(json_number_value(json_object_get(op, "difference_pct")) == 0);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "recorded_mean_ns"))); /* `decode` is no op */
    json_decref(rows);
    hr_store *store = open_store(false);
    ok(hr_store_ranges(store, run_id, "c1a2b3c4d5e6", &rows));
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "source")), "nsys nvtxsum");
    hr_store_close(store);
    json_decref(rows);
    assert_true(there("rep.nsys-rep"));
    works(run_it("--json")); /* again: the rows are replaced */
    store = open_store(false);
    ok(hr_store_ranges(store, run_id, "c1a2b3c4d5e6", &rows));
    assert_int_equal(json_array_size(rows), 2);
    hr_store_close(store);
    json_decref(rows);
}

/* The words that nsys got: the flags of the cell, this program, few repetitions, no store, the capture. */
static void nsys_gets_the_cell(void **state) {
    (void)state;
    char words[4096], file[700], self[300] = "";
    need_ranges(__func__);
    works(run_it("--nvtx-level layer"));
    snprintf(file, sizeof file, "%s/words", home);
    words[read_file(file, words, sizeof words - 1)] = 0;
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const want[] = {"profile\n--trace=nvtx\n",
                                "--capture-range=nvtx\n--nvtx-capture=capture@headroom\n",
                                "--capture-range-end=stop\n",
                                "-m\nsynth:tiny\n-n\n128\n-d\n64\n",
                                "--quant\nint4\n",
                                "--isa\navx2\n",
                                "--repetitions\n3\n--db\nnone\n--capture\nnvtx\n--nvtx-level\nlayer\n",
                                self};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(words, want[i])) fail_msg("\"%s\" is not in:\n%s", want[i], words);
}

static void older_names_and_a_stream_without_report(void **state) {
    (void)state;
    char words[2048], file[700];
    need_ranges(__func__);
    write_text("name", "nvtxsum", 0644);
    write_text("ending", ".qdstrm", 0644);
    works(run_it(""));
    assert_true(there("rep.nsys-rep") && !there("rep.qdstrm"));
    snprintf(file, sizeof file, "%s/stats_words", home);
    words[read_file(file, words, sizeof words - 1)] = 0;
    assert_non_null(strstr(words, "--report\nnvtxsum\n--format\ncsv\n"));
    write_text("ending", ".qdrep", 0644);
    works(run_it(""));
    write_text("name", "osrt_sum", 0644);
    assert_int_equal(run_it(""), 2);
    says("has no report nvtxsum or nvtx_sum");
}

/* nsys exports to REPORT.sqlite: a store of that name would be replaced. */
static void a_store_is_no_report_of_before(void **state) {
    (void)state;
    static char bytes[1 << 20];
    need_ranges(__func__);
    const size_t n = read_file(path, bytes, sizeof bytes);
    assert_in_range(n, 4096, sizeof bytes - 1);
    char file[700];
    snprintf(file, sizeof file, "%s/rep.sqlite", folder);
    write_file(file, bytes, n);
    assert_int_equal(run_it(""), 2);
    says("rep.sqlite is a store of results");
    assert_true(there("rep.sqlite"));
    bytes[68]++; /* another program's */
    write_file(file, bytes, n);
    works(run_it(""));
    assert_false(there("rep.sqlite"));
}

static void what_goes_wrong_is_one_line(void **state) {
    (void)state;
    need_ranges(__func__);
    write_text("code", "4", 0644);
    assert_int_equal(run_it(""), 2);
    says("the profiled sweep ended with 4: the model went away");
    assert_int_equal(call(&hr_command_nsys, "c1a --run -q --report /proc/headroom"), 2);
    says("/proc/headroom.nsys-rep cannot be written");
    write_text("code", "0", 0644);
    write_text("ending", "none", 0644);
    assert_int_equal(run_it(""), 2);
    says("wrote no report");
    write_text("ending", ".nsys-rep", 0644);
    write_text("table", "Time (%),Total Time (ns),Instances,Range\n50.0,1\n", 0644);
    assert_int_equal(run_it(""), 2);
    says("fields, its heading 4");
    write_text("nsys", "#!/bin/sh\necho something else\n", 0755);
    assert_int_equal(run_it(""), 2);
    says("does not say its version");
    assert_int_equal(call(&hr_command_nsys, "c8 --run"), 2);
    says("its status is skipped: too long");
    works(call(&hr_command_nsys, "c9 -q")); /* of a GPU: its kernels and copies too */
    assert_non_null(strstr(printed, "--trace=nvtx,cuda"));
    assert_non_null(strstr(printed, "--device cuda:0"));
    hr_store *store = open_store(false);
    json_t *rows;
    ok(hr_store_ranges(store, run_id, "c1a2b3c4d5e6", &rows));
    assert_int_equal(json_array_size(rows), 0); /* nothing of these was stored */
    json_decref(rows);
    hr_store_close(store);
}

/* Ctrl-C while nsys hangs: 130, and neither it nor what it started is left. */
static void an_interrupt_leaves_nothing_behind(void **state) {
    (void)state;
    char file[700], text[32] = "";
    need_ranges(__func__);
    write_text("hang", "", 0644);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) _exit(run_it(""));
    snprintf(file, sizeof file, "%s/pid", home);
    for (int i = 0; i < 200 && !strchr(text, '\n'); i++) {
        usleep(50000);
        if (access(file, R_OK) == 0) text[read_file(file, text, sizeof text - 1)] = 0;
    }
    const int grandchild = atoi(text);
    if (grandchild <= 1) fail_msg("the made-up nsys did not begin");
    kill(child, SIGINT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 130);
    assert_false(there("rep.qdstrm") || there("rep.nsys-rep")); /* the made-up nsys had begun the stream */
    if (kill(grandchild, 0) == 0) {
        kill(grandchild, SIGKILL);
        fail_msg("process %d, which nsys had started, is still there", grandchild);
    }
}

static void output_and_exit_codes_of_a_child(void **state) {
    (void)state;
    hr_child child;
    json_t *words =
        parse("[\"sh\", \"-c\", \"echo a; echo b; echo 'c d' >&2; printf '\\\\n 10%%\\\\r 20%%\\\\n' >&2; exit 9\"]");
    ok(hr_child_run(words, &child));
    assert_int_equal(child.code, 9);
    assert_string_equal(child.out, "a\nb\n");
    assert_int_equal(child.n_out, 4);
    assert_string_equal(child.last, " 20%");
    assert_non_null(strstr(child.err, "c d"));
    hr_child_fini(&child), json_decref(words);
    words = parse("[\"sh\", \"-c\", \"kill -9 $$\"]");
    ok(hr_child_run(words, &child));
    assert_int_equal(child.code, 128 + SIGKILL);
    hr_child_fini(&child), json_decref(words);
    words = parse("[\"sh\", \"-c\", \"i=0; while [ $i -lt 3000 ]; do echo $i aaaaaaaaaaaaaaaaaaaa; i=$((i+1)); done | "
                  "tee /dev/stderr\"]");
    ok(hr_child_run(words, &child)); /* more than pipes hold, on both */
    assert_non_null(strstr(child.out, "\n2999 a"));
    assert_string_equal(child.last, "2999 aaaaaaaaaaaaaaaaaaaa");
    hr_child_fini(&child), json_decref(words);
    words = parse("[\"/nowhere/at-all\"]");
    fails(hr_child_run(words, &child), HR_ERR_IO, "/nowhere/at-all: No such file");
    json_decref(words);
}

static void ncu_names_the_slowest_op(void **state) {
    (void)state;
    works(call(&hr_command_ncu, "c9"));
    const char *const want[] = {"ncu --csv --page raw", "--nvtx --nvtx-include headroom@qkv:decode/", "-m synth:tiny",
                                "--device cuda:0"};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(printed, want[i])) fail_msg("\"%s\" is not in: %s", want[i], printed);
    works(call(&hr_command_ncu, "c9 --op down:prefill --json"));
    json_t *object = parse(printed);
    assert_non_null(strstr(json_string_value(json_object_get(object, "line")), "headroom@down:prefill/"));
    assert_true(json_array_size(json_object_get(object, "command")) > 10);
    json_decref(object);
    assert_int_equal(call(&hr_command_ncu, "c1a"), 2);
    says("headroom nsys");
}

/* ---- the real one --------------------------------------------------------------------------------------------------- */

/* The program beside the folder of the tests. */
static bool find_program(char out[512]) {
    char self[400] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) return false;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (slash) *slash = 0;
    }
    snprintf(out, 512, "%s/headroom", self);
    return access(out, X_OK) == 0;
}

static json_t *load_json(const char *name) {
    char file[600];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    json_t *value = json_load_file(file, 0, NULL);
    if (!value) fail_msg("%s is no JSON", file);
    return value;
}

static void run_line(const char *program, const char *arguments) {
    char line[1500];
    snprintf(line, sizeof line, "cd %s && %s %s --db %s >said 2>&1 </dev/null", folder, program, arguments, path);
    const int code = system(line);
    if (code == 0) return;
    char text[2000], file[600];
    snprintf(file, sizeof file, "%s/said", folder);
    text[read_file(file, text, sizeof text - 1)] = 0;
    fail_msg("%s\nended with %d: %s", line, WEXITSTATUS(code), text);
}

static json_int_t calls_of(const json_t *rows, const char *name) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const char *got = json_string_value(json_object_get(row, "name"));
        if (got && !strcmp(got, name)) return json_integer_value(json_object_get(row, "n"));
    }
    return 0;
}

/* Every op that the recorder saw is a range of the real nsys, the same number of times a repetition. */
static void the_real_nsys_sees_every_op(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    hr_skip("nsys cannot be loaded before the runtime of a sanitizer");
#endif
    char program[512];
    hr_nsys_tools tools;
    if (hr_nsys_find(&tools) != HR_OK) hr_skip("%s", hr_error());
    if (!hr_nvtx_built()) hr_skip("this build has no NVTX ranges");
    if (!find_program(program)) hr_skip("%s is not built", program);
    run_line(program, "sweep -m synth:tiny --isl 24 --osl 4 --fusion none -r 2 -o json --out cells.json");
    run_line(program, "nsys last --run -o json --out ranges.json");
    run_line(program, "show last -o json --out cell.json");
    json_t *rows = load_json("ranges.json"), *cell = load_json("cell.json"), *op;
    const json_int_t requests = calls_of(rows, "request");
    size_t i, n = 0;
    assert_int_equal(calls_of(rows, "capture"), 1);
    assert_true(requests > 0); /* with and without the recorder */
    json_array_foreach(json_object_get(cell, "ops"), i, op) {
        char name[64];
        snprintf(name, sizeof name, "%s:%s", json_string_value(json_object_get(op, "op")),
                 json_string_value(json_object_get(op, "phase")));
        json_int_t recorded = 0; /* of the cell's two recorded requests, all layers and kernels of the op */
        size_t k;
        json_t *other;
        json_array_foreach(json_object_get(cell, "ops"), k,
                           other) if (json_equal(json_object_get(op, "op"), json_object_get(other, "op")) &&
                                      json_equal(json_object_get(op, "phase"), json_object_get(other, "phase")))
            recorded += json_integer_value(json_object_get(other, "n"));
        if (2 * calls_of(rows, name) != requests * recorded)
            fail_msg("%s: %d calls in 2 requests, %d ranges in %d", name, (int)recorded, (int)calls_of(rows, name),
                     (int)requests);
        n++;
    }
    assert_true(n >= 10);
    json_decref(rows), json_decref(cell);
}

#define F(f) cmocka_unit_test_setup_teardown(f, setup_fake, teardown_fake)
int main(void) {
    const struct CMUnitTest tests[] = {
        F(the_table_lands_beside_the_cell),  F(nsys_gets_the_cell),          F(older_names_and_a_stream_without_report),
        F(a_store_is_no_report_of_before),   F(what_goes_wrong_is_one_line), F(an_interrupt_leaves_nothing_behind),
        F(output_and_exit_codes_of_a_child), F(ncu_names_the_slowest_op),    T(the_real_nsys_sees_every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
