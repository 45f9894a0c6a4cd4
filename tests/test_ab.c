/* Two programs in pairs. The programs are scripts that say what the test wrote for their n-th run: times, states, failures,
 * nothing, nonsense, or that hang. */
#include "tests/store_fixture.h"

#include "harness/ab/ab_internal.h"
#include "harness/formats/json_get.h"

#include <signal.h>
#include <sys/wait.h>

extern const hr_command hr_command_ab;

/* The n-th run prints rows.n, or rows; copies `store` to where --db says; hangs where there is `hang`. */
static const char script[] =
    "#!/bin/sh\n"
    "here=$(dirname \"$0\")\n"
    "n=$(cat \"$here/count\" 2>/dev/null || echo 0)\n"
    "echo $((n + 1)) >\"$here/count\"\n"
    "basename \"$here\" >>\"$here/../order\"\n"
    "printf '%s\\n' \"$@\" >\"$here/words\"\n"
    "[ -f \"$here/hang\" ] && [ \"$n\" -ge \"$(cat \"$here/hang\")\" ] && { sh -c 'echo $$ >\"$0/pid\"; exec sleep 60' "
    "\"$here\" & wait; }\n"
    "while [ $# -gt 0 ]; do [ \"$1\" = --db ] && [ -f \"$here/store\" ] && cp \"$here/store\" \"$2\"; shift; done\n"
    "[ -f \"$here/say\" ] && cat \"$here/say\" >&2\n"
    "if [ -f \"$here/rows.$n\" ]; then cat \"$here/rows.$n\"; else cat \"$here/rows\" 2>/dev/null; fi\n"
    "exit \"$(cat \"$here/code\" 2>/dev/null || echo 0)\"\n";

static char programs[2][700];
static char base[64]; /* not in /dev/shm, from which a container may execute nothing */

static void side_file(int side, const char *name, const char *text) {
    char file[600];
    snprintf(file, sizeof file, "%s/%c/%s", base, side ? 'b' : 'a', name);
    write_file(file, text, strlen(text));
}
static double side_number(int side, const char *name) {
    char file[600], text[64] = "";
    snprintf(file, sizeof file, "%s/%c/%s", base, side ? 'b' : 'a', name);
    if (access(file, R_OK) == 0) text[read_file(file, text, sizeof text - 1)] = 0;
    return *text ? atof(text) : NAN;
}

static int setup_ab(void **state) {
    if (setup(state) != 0) return -1;
    snprintf(base, sizeof base, "/tmp/headroom-ab-XXXXXX");
    if (!mkdtemp(base)) return -1;
    for (int s = 0; s < 2; s++) {
        char home[600];
        snprintf(home, sizeof home, "%s/%c", base, s ? 'b' : 'a');
        if (mkdir(home, 0777) != 0) return -1;
        snprintf(programs[s], sizeof programs[s], "%s/headroom", home);
        side_file(s, "headroom", script);
        if (chmod(programs[s], 0755) != 0) return -1;
    }
    return 0;
}

static int teardown_ab(void **state) {
    const int removed = nftw(base, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return teardown(state) || removed;
}

/* One cell of prefill as `sweep -o json` prints it. */
static json_t *cell_of(const char *id, const char *state_class, double ms) {
    return json_pack("{s:s, s:s, s:s, s:s?, s:i, s:i, s:s, s:s, s:[], s:{s:f, s:i}}", "cell_id", id, "test", "pp64",
                     "status", "ok", "state_class", state_class, "n_prompt", 64, "n_gen", 0, "build_commit", "abc123",
                     "stop_reason", "fixed", "flags", "ttft_prefill_ms", "p50", ms, "n", 5);
}
static void side_rows(int side, const char *name, json_t *rows) {
    char *text = json_dumps(rows, 0);
    side_file(side, name, text);
    free(text);
    json_decref(rows);
}
/* The n-th run of a side measures one cell. */
static void side_run(int side, int n, const char *state_class, double ms) {
    char name[32];
    snprintf(name, sizeof name, "rows.%d", n);
    side_rows(side, name, json_pack("[o]", cell_of("c1", state_class, ms)));
}

static const char *const sweep_args[] = {"-p", "64", NULL};
static hr_ab_options options_of(size_t pairs) {
    return (hr_ab_options){.a = programs[0],
                           .b = programs[1],
                           .sweep_args = sweep_args,
                           .pairs = pairs,
                           .repetitions = 5,
                           .timeout_s = 60,
                           .rule = hr_compare_rule_default(),
                           .output = {.quiet = true}};
}
static json_t *measured(const hr_ab_options *options) {
    json_t *out = NULL;
    ok(hr_ab_run(options, &out));
    return out;
}
static const json_t *row_of(const json_t *r, size_t i) {
    const json_t *row = json_array_get(json_object_get(r, "cells"), i);
    if (!row) fail_msg("there is no row %zu", i);
    return row;
}
static void word_is_(const json_t *row, const char *key, const char *want, int line) {
    if (strcmp(hr_word(row, key), want)) {
        print_error("line %d: %s: expected \"%s\", got \"%s\" (%s)\n", line, key, want, hr_word(row, key),
                    hr_word(row, "why"));
        _fail(__FILE__, line);
    }
}
#define word_is(row, key, want) word_is_((row), (key), (want), __LINE__)
static void holds_(const char *text, const char *part, int line) {
    if (!strstr(text, part)) {
        print_error("line %d: expected \"%s\" in \"%s\"\n", line, part, text);
        _fail(__FILE__, line);
    }
}
#define holds(text, part) holds_((text), (part), __LINE__)
static void near_(double got, double want, double tolerance, const char *what, int line) {
    if (!(fabs(got - want) <= tolerance)) {
        print_error("line %d: %s: expected %.9g, got %.9g, tolerance %.3g\n", line, what, want, got, tolerance);
        _fail(__FILE__, line);
    }
}
#define near_to(got, want, tolerance) near_((got), (want), (tolerance), #got, __LINE__)
static double count(const json_t *r, const char *word) {
    return hr_num(json_object_get(r, "summary"), word);
}

/* A session in which the machine gets slower by 5 % a run; B is slower than A by `factor` in every pair. */
static void drifting(double factor) {
    for (int i = 0; i < 26; i++) {
        const double now = pow(1.05, i);
        side_run(0, i, "near", 100 * now * (1 + 0.002 * (i % 3)));
        side_run(1, i, "near", 100 * now * factor * (1 + 0.002 * (i % 2)));
    }
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------------ */

static void slower_in_every_pair(void **state) {
    (void)state;
    drifting(1.12);
    const hr_ab_options options = options_of(13);
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "slower");
    near_to(hr_num(row_of(r, 0), "shift_pct"), 12, 0.3);
    near_to(hr_num(row_of(r, 0), "p"), 2.0 / 8192, 1e-12);
    near_to(hr_num(row_of(r, 0), "n_a"), 13, 0);
    word_is(row_of(r, 0), "state_class", "near");
    near_to(hr_num(r, "pairs"), 13, 0);
    near_to(hr_num(r, "repeated"), 0, 0);
    word_is(json_object_get(r, "a"), "program", programs[0]);
    word_is(json_object_get(r, "b"), "build_commit", "abc123");
    near_to(side_number(0, "count"), 13, 0);
    near_to(side_number(1, "count"), 13, 0);
    json_decref(r);
}

static void a_program_against_itself(void **state) {
    (void)state;
    drifting(1);
    const hr_ab_options options = options_of(13);
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "same");
    json_decref(r);
}

/* Both orders occur, and a seed gives the same ones again. */
static void order_is_drawn(void **state) {
    (void)state;
    char order[2][256], file[600];
    size_t a_first = 0;
    drifting(1);
    snprintf(file, sizeof file, "%s/order", base);
    const hr_ab_options options = options_of(13);
    for (int k = 0; k < 2; k++) {
        unlink(file);
        json_decref(measured(&options));
        order[k][read_file(file, order[k], sizeof order[k] - 1)] = 0;
    }
    assert_int_equal(strlen(order[0]), 52); /* "a\nb\n" a pair */
    for (size_t i = 0; i < 13; i++) {
        a_first += order[0][4 * i] == 'a';
        assert_int_not_equal(order[0][4 * i], order[0][4 * i + 2]);
    }
    assert_in_range(a_first, 2, 11);
    assert_string_equal(order[0], order[1]);
}

/* The clock alone ends it: what was measured is a row, and says why it has no verdict. */
static void a_limit_of_time(void **state) {
    (void)state;
    drifting(1.12);
    hr_ab_options options = options_of(13);
    options.limit_s = 1e-6;
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(hr_word(row_of(r, 0), "why"), "the limit of time left room for 1 of 13 pairs");
    near_to(side_number(0, "count"), 1, 0);
    json_decref(r);
    options.limit_s = 600;
    r = measured(&options);
    word_is(row_of(r, 0), "verdict", "slower");
    json_decref(r);
}

/* A configuration that says how many repetitions is obeyed; one that says nothing leaves it to ab. */
static void repetitions_of_a_config(void **state) {
    (void)state;
    static const char *const texts[] = {"{\"repetitions\": 3}", "{\"seqs\": [1]}"};
    char file[600], words[2000];
    snprintf(file, sizeof file, "%s/config.json", base);
    const char *const args[] = {"--config", file, NULL};
    drifting(1);
    for (int k = 0; k < 2; k++) {
        write_file(file, texts[k], strlen(texts[k]));
        hr_ab_options options = options_of(6);
        options.sweep_args = args;
        json_decref(measured(&options));
        char said[600];
        snprintf(said, sizeof said, "%s/a/words", base);
        words[read_file(said, words, sizeof words - 1)] = 0;
        if ((strstr(words, "\n-r\n5\n") != NULL) != (k == 1))
            fail_msg("%s: -r 5 is %s among the words: %s", texts[k], k ? "not" : "also", words);
    }
}

/* ---- the machine's state ------------------------------------------------------------------------------------------------------ */

static void a_pair_in_two_states_is_repeated(void **state) {
    (void)state;
    drifting(1.12);
    side_run(1, 2, "far", 500);                             /* near for A, far for B */
    side_run(0, 4, "mixed", 900);                           /* the machine changed during A */
    side_run(0, 6, "far", 300), side_run(1, 6, "far", 336); /* another state, one and the same: counts */
    json_t *again = json_pack("[o]", cell_of("c1", "near", 112 * pow(1.05, 8)));
    json_object_set_new(json_array_get(again, 0), "flags", json_pack("[s]", "state_changed"));
    side_rows(1, "rows.8", again); /* measured once more, in one state: counts */
    const hr_ab_options options = options_of(13);
    json_t *r = measured(&options);
    near_to(hr_num(r, "repeated"), 2, 0);
    near_to(hr_num(row_of(r, 0), "n_a"), 13, 0);
    near_to(hr_num(row_of(r, 0), "shift_pct"), 12, 0.3);
    word_is(row_of(r, 0), "verdict", "slower");
    assert_true(json_is_null(json_object_get(row_of(r, 0), "state_class"))); /* of several */
    near_to(side_number(0, "count"), 15, 0);
    json_decref(r);
}

static void a_machine_that_never_rests(void **state) {
    (void)state;
    side_rows(0, "rows", json_pack("[o, o]", cell_of("c1", "near", 100), cell_of("c2", "near", 100)));
    side_rows(1, "rows", json_pack("[o, o]", cell_of("c1", "far", 150), cell_of("c2", "near", 100)));
    const hr_ab_options options = options_of(6);
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(hr_word(row_of(r, 0), "why"), "0 of 6 pairs count of the 12");
    holds(hr_word(row_of(r, 0), "why"), "near for A and far for B");
    word_is(row_of(r, 1), "verdict", "same"); /* the other cell does not pay for it */
    near_to(hr_num(row_of(r, 1), "n_a"), 6, 0);
    near_to(side_number(0, "count"), 12, 0); /* as many repeats as pairs, no more */
    json_decref(r);
}

/* All samples of a run at a reduced clock: the pair is measured again, and no such time enters. */
static void a_run_at_a_reduced_clock_is_repeated(void **state) {
    (void)state;
    drifting(1.12);
    json_t *slow = json_pack("[o]", cell_of("c1", "near", 900)), *also = json_pack("[o]", cell_of("c1", "near", 900));
    json_object_set_new(json_array_get(slow, 0), "samples_flags", json_pack("[s, s]", "throttled", "throttled"));
    json_object_set_new(json_array_get(also, 0), "stop_reason", json_string("throttled"));
    side_rows(1, "rows.3", slow), side_rows(0, "rows.5", also);
    const hr_ab_options options = options_of(13);
    json_t *r = measured(&options);
    near_to(hr_num(r, "repeated"), 2, 0);
    near_to(hr_num(row_of(r, 0), "n_a"), 13, 0);
    near_to(hr_num(row_of(r, 0), "shift_pct"), 12, 0.3);
    json_decref(r);
    for (int i = 0; i < 26; i++) { /* one that never gets out of it ends without a verdict */
        json_t *rows = json_pack("[o]", cell_of("c1", "near", 150));
        char name[24];
        snprintf(name, sizeof name, "rows.%d", i);
        json_object_set_new(json_array_get(rows, 0), "stop_reason", json_string("throttled"));
        side_rows(1, name, rows);
    }
    side_file(1, "count", "0"), side_file(0, "count", "0");
    side_run(0, 5, "near", 100);
    const hr_ab_options few = options_of(6);
    r = measured(&few);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(hr_word(row_of(r, 0), "why"), "the clock was reduced during B");
    json_decref(r);
}

/* ---- cells that fail, are skipped or are missing ----------------------------------------------------------------------------------- */

static json_t *broken(const char *id, const char *status) {
    json_t *cell = cell_of(id, NULL, 1);
    json_object_set_new(cell, "status", json_string(status));
    json_object_set_new(cell, "error", json_string("no memory left"));
    json_object_set_new(cell, "ttft_prefill_ms", json_null());
    return cell;
}

static void a_failed_cell_is_a_row(void **state) {
    (void)state;
    side_rows(0, "rows",
              json_pack("[o, o, o, o]", cell_of("c1", "near", 100), cell_of("c2", "near", 100),
                        cell_of("c3", "near", 100), cell_of("c4", "near", 100)));
    side_rows(1, "rows",
              json_pack("[o, o, o, o]", broken("c1", "failed"), cell_of("c2", "near", 100), broken("c3", "skipped"),
                        cell_of("c5", "near", 100)));
    side_file(1, "code", "4");
    const hr_ab_options options = options_of(6);
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "status_b", "failed");
    word_is(row_of(r, 0), "error_b", "no memory left");
    word_is(row_of(r, 0), "verdict", "inconclusive");
    word_is(row_of(r, 1), "verdict", "same");
    near_to(count(r, "failed"), 1, 0);
    near_to(count(r, "compared"), 1, 0);
    assert_int_equal(json_array_size(json_object_get(r, "unmatched_a")), 2); /* c3, c4 */
    assert_int_equal(json_array_size(json_object_get(r, "unmatched_b")), 2); /* c3, c5 */
    near_to(side_number(1, "count"), 6, 0);
    json_decref(r);
}

static void all_failing_ends_at_once(void **state) {
    (void)state;
    for (int s = 0; s < 2; s++)
        side_rows(s, "rows", json_pack("[o]", broken("c1", "failed"))), side_file(s, "code", "4");
    const hr_ab_options options = options_of(13);
    json_t *r = measured(&options);
    near_to(count(r, "compared"), 0, 0);
    near_to(count(r, "failed"), 1, 0);
    near_to(side_number(0, "count"), 1, 0);
    json_decref(r);
}

/* ---- programs that are none ------------------------------------------------------------------------------------------------------------ */

static void refused_(const char *part, int line) {
    const hr_ab_options options = options_of(6);
    json_t *r = NULL;
    const hr_status status = hr_ab_run(&options, &r);
    if (status != HR_ERR_INPUT || r || !strstr(hr_error(), part) || strchr(hr_error(), '\n')) {
        print_error("line %d: expected ERR_INPUT with \"%s\", got %s: %s\n", line, part, hr_status_text(status),
                    hr_error());
        _fail(__FILE__, line);
    }
}
#define refused(part) refused_((part), __LINE__)

static void programs_that_are_none(void **state) {
    (void)state;
    side_rows(0, "rows", json_pack("[o]", cell_of("c1", "near", 100)));
    refused("B ("); /* it printed nothing */
    side_file(1, "rows", "Segmentation fault\nor so");
    refused("begins with \"Segmentation fault\"");
    side_file(1, "rows", "{\"results\": []}");
    refused("no JSON array");
    side_file(1, "rows", "[]");
    refused("measured no cell");
    side_file(1, "rows", "[{\"name\": \"x\"}]");
    refused("row 1 of its JSON has no cell_id");
    side_file(1, "rows", "[{\"cell_id\": \"c1\", \"test\": \"pp64\", \"status\": \"ok\"");
    refused("no JSON array"); /* cut off */
    side_file(1, "code", "2");
    side_file(1, "say", "noise\nheadroom: unknown flag --qant; nearest is --quant\n");
    refused("ended with 2: headroom: unknown flag --qant");
    side_file(1, "code", "4");
    side_rows(1, "rows", json_pack("[o]", cell_of("c1", "near", 100)));
    json_t *r = NULL;
    const hr_ab_options options = options_of(6);
    ok(hr_ab_run(&options, &r));
    json_decref(r);
    chmod(programs[1], 0644);
    refused("may not be executed");
}

/* The process that hangs, and what it started, are gone afterwards. */
static void a_program_that_hangs(void **state) {
    (void)state;
    side_rows(0, "rows", json_pack("[o]", cell_of("c1", "near", 100)));
    side_file(1, "hang", "0");
    hr_ab_options options = options_of(6);
    json_t *r = NULL;
    options.timeout_s = 0.5;
    fails(hr_ab_run(&options, &r), HR_ERR_INPUT, "did not end within 0.5 s");
    const double pid = side_number(1, "pid");
    assert_true(pid > 1);
    assert_int_equal(kill((pid_t)pid, 0), -1);
}

/* From the third run of B on it hangs: two pairs are whole, and stay. */
static void a_program_that_hangs_later(void **state) {
    (void)state;
    drifting(1);
    side_file(1, "hang", "2");
    hr_ab_options options = options_of(6);
    options.timeout_s = 0.5;
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(hr_word(row_of(r, 0), "why"), "only 2 of 6 pairs count of the 5 that were measured");
    holds(hr_word(row_of(r, 0), "why"), "did not end within 0.5 s");
    near_to(hr_num(row_of(r, 0), "n_a"), 2, 0);
    json_decref(r);
}

/* ---- its ops ----------------------------------------------------------------------------------------------------------------------------- */

static void store_with_ops(int side, double gate_up_ns) {
    hr_store *store = open_store(true);
    char *run = begin(store), to[600], *bytes;
    json_t *cell = cell_of("c1", "near", 100);
    json_t *ops = json_pack("[{s:s, s:i, s:s, s:i, s:f}, {s:s, s:i, s:s, s:i, s:f}]", "phase", "prefill", "layer", 0,
                            "op", "gate_up", "n", 10, "median_ns", gate_up_ns, "phase", "prefill", "layer", -1, "op",
                            "head", "n", 5, "median_ns", 1e6);
    ok(hr_store_put_cell(store, run, cell, NULL, ops));
    ok(hr_store_end_run(store, run, 0));
    hr_free(run), json_decref(cell), json_decref(ops);
    hr_store_close(store);
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    assert_non_null(bytes = malloc((size_t)s.st_size));
    const size_t n = read_file(path, bytes, (size_t)s.st_size);
    snprintf(to, sizeof to, "%s/%c/store", base, side ? 'b' : 'a');
    write_file(to, bytes, n);
    free(bytes);
    unlink(path);
}

static void the_op_that_moved_is_named(void **state) {
    (void)state;
    drifting(1.12);
    store_with_ops(0, 5e6), store_with_ops(1, 6e6);
    const hr_ab_options options = options_of(6);
    json_t *r = measured(&options);
    const json_t *op = json_array_get(json_object_get(json_object_get(r, "ops"), "c1"), 0);
    word_is(op, "op", "gate_up");
    near_to(hr_num(op, "a_ms"), 10, 1e-9); /* twice a request */
    near_to(hr_num(op, "shift_ms"), 2, 1e-9);
    near_to(hr_num(op, "share_pct"), 100, 1e-9);
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_compare_print(HR_FORMAT_MD, f, r));
    fclose(f);
    holds(text, "pp64 prefill: gate_up +2.000 ms");
    holds(text, "6 pairs, 0 repeated");
    json_decref(r);
}

/* A store that another version writes in another way costs the ops, not the verdict. */
static void a_store_that_cannot_be_read(void **state) {
    (void)state;
    drifting(1.12);
    side_file(1, "store", "no store at all, but a long enough text to look like a file of some kind");
    const hr_ab_options options = options_of(6);
    json_t *r = measured(&options);
    word_is(row_of(r, 0), "verdict", "slower");
    assert_int_equal(json_array_size(json_object_get(json_object_get(r, "ops"), "c1")), 0);
    json_decref(r);
}

/* ---- flags ---------------------------------------------------------------------------------------------------------------------------------- */

static void words_of_the_sweep(void **state) {
    (void)state;
    static const char *const with_r[] = {"-p", "64", "--repetitions=3", NULL};
    char words[1024], file[600];
    side_rows(0, "rows", json_pack("[o]", cell_of("c1", "near", 100)));
    side_rows(1, "rows", json_pack("[o]", cell_of("c1", "near", 100)));
    hr_ab_options options = options_of(1);
    snprintf(file, sizeof file, "%s/a/words", base);
    json_decref(measured(&options));
    words[read_file(file, words, sizeof words - 1)] = 0;
    holds(words, "sweep\n-p\n64\n-r\n5\n--db\n");
    holds(words, "\n-o\njson\n");
    options.sweep_args = with_r;
    json_decref(measured(&options));
    words[read_file(file, words, sizeof words - 1)] = 0;
    holds(words, "sweep\n-p\n64\n--repetitions=3\n--db\n");
    static const char *const wrong[] = {"--db", "--db=x", "-o", "--json", "--out", "--resume", "--dry-run"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const args[] = {"-p", "64", wrong[i], NULL};
        fails(hr_ab_check_args(args), HR_ERR_USAGE, wrong[i]);
    }
    static const char *const fine[] = {"-p", "64", "--order", "shuffled", "-b", "512", NULL};
    ok(hr_ab_check_args(fine));
}

/* ---- the command ----------------------------------------------------------------------------------------------------------------------------- */

/* Parses and runs in a child; the result goes to a file. */
static pid_t start_command(const char *out, char *sweep_word) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    char *line[] = {programs[0], programs[1], "--json", "--out", (char *)out, "--pairs", "6", "--", "-p", sweep_word};
    hr_args *args;
    if (hr_args_parse(&hr_command_ab, 10, line, &args) != HR_OK) _exit(99);
    if (!freopen("/dev/null", "w", stderr)) _exit(98);
    _exit(hr_command_ab.run(args));
}
static int code_of(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void exit_codes(void **state) {
    (void)state;
    char out[600];
    snprintf(out, sizeof out, "%s/out.json", folder);
    drifting(1.12);
    assert_int_equal(code_of(start_command(out, "64")), 0); /* a verdict is no failure */
    side_rows(1, "rows.6", json_pack("[o]", cell_of("c9", "near", 100)));
    assert_int_equal(code_of(start_command(out, "64")), 3); /* nothing in common */
    side_file(1, "code", "2");
    assert_int_equal(code_of(start_command(out, "64")), 2);
}

/* Ctrl-C in the third pair: two are whole and printed, without a verdict; nothing is left running. */
static void interrupted(void **state) {
    (void)state;
    char out[600];
    json_error_t error;
    snprintf(out, sizeof out, "%s/out.json", folder);
    drifting(1.12);
    side_file(1, "hang", "2");
    const pid_t pid = start_command(out, "64");
    for (int i = 0; i < 600 && isnan(side_number(1, "pid")); i++) usleep(50000);
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(code_of(pid), 130);
    assert_int_equal(kill((pid_t)side_number(1, "pid"), 0), -1);
    json_t *r = json_load_file(out, 0, &error);
    if (!r) fail_msg("%s: %s", out, error.text);
    word_is(row_of(r, 0), "verdict", "inconclusive");
    holds(hr_word(row_of(r, 0), "why"), "interrupted after 2 of 6 pairs");
    near_to(hr_num(row_of(r, 0), "n_a"), 2, 0);
    json_decref(r);
}

/* ---- revisions ------------------------------------------------------------------------------------------------------------------------------ */

static void shell(const char *line) {
    char whole[2000];
    snprintf(whole, sizeof whole, "cd '%s' && { %s; } >/dev/null 2>&1", base, line);
    if (system(whole) != 0) fail_msg("%s", line);
}

static void revisions_are_built(void **state) {
    (void)state;
    char *program = NULL, *again = NULL, old[4096], text[64];
    if (system("git --version >/dev/null 2>&1") != 0) hr_skip("git is not installed");
    shell("mkdir repo && cd repo && git init -q && git config user.email t@example.org && git config user.name t && "
          "printf 'build/headroom:\\n\\tmkdir -p build; cp program build/headroom\\n' >Makefile && "
          "printf '#!/bin/sh\\necho one\\n' >program && chmod +x program && git add -A && git commit -qm one && "
          "printf '#!/bin/sh\\necho two\\n' >program && git commit -qam two && "
          "echo 'build/headroom:; @echo it is broken >&2; false' >Makefile && git commit -qam broken");
    assert_non_null(getcwd(old, sizeof old));
    char repo[400];
    snprintf(repo, sizeof repo, "%s/repo", base);
    assert_int_equal(chdir(repo), 0);
    const hr_status first = hr_ab_program("HEAD~2", "build/ab", true, &program);
    const hr_status second = hr_ab_program("HEAD~2", "build/ab", true, &again); /* it is there already */
    ok(first), ok(second);
    assert_string_equal(program, again);
    assert_int_equal(program[0], '/');
    const size_t n = read_file(program, text, sizeof text - 1);
    text[n] = 0;
    holds(text, "echo one"); /* the commit, not the work tree */
    hr_free(program), hr_free(again);
    fails(hr_ab_program("HEAD", "build/ab", true, &program), HR_ERR_INPUT, "does not build");
    holds(hr_error(), "make -C");
    fails(hr_ab_program("no-such-branch", "build/ab", true, &program), HR_ERR_INPUT,
          "neither a program nor a revision");
    fails(hr_ab_program("--help", "build/ab", true, &program), HR_ERR_INPUT, "neither a program nor a revision");
    assert_int_equal(chdir(old), 0);
}

#define AB(f) cmocka_unit_test_setup_teardown(f, setup_ab, teardown_ab)

int main(void) {
    const struct CMUnitTest tests[] = {
        AB(slower_in_every_pair),
        AB(a_program_against_itself),
        AB(order_is_drawn),
        AB(a_limit_of_time),
        AB(repetitions_of_a_config),
        AB(a_pair_in_two_states_is_repeated),
        AB(a_machine_that_never_rests),
        AB(a_run_at_a_reduced_clock_is_repeated),
        AB(a_failed_cell_is_a_row),
        AB(all_failing_ends_at_once),
        AB(programs_that_are_none),
        AB(a_program_that_hangs),
        AB(a_program_that_hangs_later),
        AB(the_op_that_moved_is_named),
        AB(a_store_that_cannot_be_read),
        AB(words_of_the_sweep),
        AB(exit_codes),
        AB(interrupted),
        AB(revisions_are_built),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
