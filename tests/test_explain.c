/* explain: the terms of made-up cells, by hand; sums, reasons, differences. */
#include "tests/explain_fixture.h"

#include "harness/cli/options.h"

/* ---- by hand ---- */

static void decode_by_hand(void **state) {
    (void)state;
    json_t *e = usual();
    const json_t *m = metric(e, "tpot");
    near(hr_num(m, "measured_ms"), 10), near(hr_num(m, "recorded_ms"), 10.2), near(hr_num(m, "ideal_ms"), 6);
    /* the ideal: bytes at 20 GB/s */
    near(ms(e, "tpot", "weights"), 5), near(ms(e, "tpot", "kv_read"), 0.9), near(ms(e, "tpot", "kv_write"), 0.1);
    /* ops move 40 + 40 + 20 + 30 MB: 6.5 ms in turn, 0.5 more than the phase needs */
    near(ms(e, "tpot", "in_turn"), 0.5);
    near(ms(e, "tpot", "down"), 6 - 0.3 - 4); /* its waiting stands below */
    near(ms(e, "tpot", "head"), 2 - 1.5);
    near(ms(e, "tpot", "attention"), 0.5 - 1); /* faster than the ceiling: stays negative */
    near(ms(e, "tpot", "imbalance"), 0.2), near(ms(e, "tpot", "handoff"), 0.1);
    near(ms(e, "tpot", "gaps"), 10.2 - 8.5);
    near(ms(e, "tpot", "recording"), -0.1);
    near(ms(e, "tpot", "unexplained"), 10 - 10.2 + 0.1);
    near(hr_num(m, "unexplained_ms"), -0.1), near(hr_num(m, "unexplained_pct"), -1);
    adds_up(e);
    const json_t *down = term(e, "tpot", "down");
    near(hr_num(down, "gb_s"), 80e6 / 6e6), near(hr_num(down, "gflop_s"), 150e6 / 6e6);
    near(hr_num(down, "roof_fraction"), 4. / 6), near(hr_num(down, "calls"), 2);
    near(hr_num(term(e, "tpot", "weights"), "gb_s"), 20);
    assert_true(json_is_null(json_object_get(term(e, "tpot", "gaps"), "gb_s")));
    json_decref(e);
}

/* The second recorded repetition took twice as long: shares count, not times. */
static void prefill_is_free_of_drift(void **state) {
    (void)state;
    json_t *e = usual();
    const double scale = 102. / 153; /* ms of the phase for a recorded ms */
    near(hr_num(metric(e, "ttft"), "measured_ms"), 100), near(hr_num(metric(e, "ttft"), "ideal_ms"), 49.5);
    /* 36 G of int8 at 1000 G/s and 5 G of bf16 at 500 in the ratio 36 : 10 */
    near(ms(e, "ttft", "arithmetic_int8"), 49.5 * 36 / 46), near(ms(e, "ttft", "arithmetic_bf16"), 49.5 * 10 / 46);
    near(ms(e, "ttft", "in_turn"), 46 - 49.5);
    near(ms(e, "ttft", "qkv"), 22.5 * scale - 16), near(ms(e, "ttft", "attention"), 18 * scale - 10);
    near(ms(e, "ttft", "down"), 40.5 * scale - 20), near(ms(e, "ttft", "sample"), scale);
    near(ms(e, "ttft", "imbalance"), 3 * scale), near(ms(e, "ttft", "handoff"), 0.5 * scale);
    near(ms(e, "ttft", "gaps"), (153 - 85.5) * scale), near(ms(e, "ttft", "recording"), -1.5 * scale);
    near(ms(e, "ttft", "unexplained"), 100 - 102 + 1.5 * scale);
    adds_up(e);
    assert_string_equal(hr_word(term(e, "ttft", "down"), "kernel"), "e"); /* half a ms longer than the other */
    json_decref(e);
}

/* The pairs differ: 2, 2, 2, 2 and 60 %. One that met a neighbour decides nothing. */
static void one_bad_pair_decides_nothing(void **state) {
    (void)state;
    json_t *recorded = made_recorded();
    for (int i = 2; i < 5; i++)
        json_array_append_new(recorded, json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "i", i, "phase",
                                                  "decode", "n", 10, "off_ns", 10e6, "on_ns", i == 4 ? 16e6 : 10.2e6,
                                                  "op_ns", 8.5e6, "n_ops", 4., "n_jobs", 4., "probe_ns", 1e5));
    json_t *e = explained(request(), made_ops(), recorded);
    const double gap = ms(e, "tpot", "gaps");
    if (!(gap > 0 && hr_num(metric(e, "tpot"), "unexplained_pct") > -2.1))
        fail_msg("expected a pair of about 1.02, got gaps %g ms, %g %% unexplained", gap,
                 hr_num(metric(e, "tpot"), "unexplained_pct"));
    holds(reason(e, "tpot", "unexplained"), "5 of each: +2.00 % (95 %: +2.00 to +60.00)");
    adds_up(e);
    json_decref(e);
}

/* Five repetitions each that scatter by 5 % say nothing of 1 %; five that scatter by 0.1 % do. Calibration says 1 %. */
static void scatter_explains_nothing_and_hides_nothing(void **state) {
    (void)state;
    static const double scatter[] = {0.95, 1.05, 1, 0.97, 1.04};
    for (int quiet = 0; quiet < 2; quiet++) {
        json_t *recorded = json_array();
        for (int i = 0; i < 5; i++) {
            const double off = 10e6 * (quiet ? 1 + (scatter[i] - 1) / 50 : scatter[i]);
            const double on = 10.4e6 * (quiet ? 1 - (scatter[i] - 1) / 50 : scatter[4 - i]);
            json_array_append_new(recorded, json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "i", i, "phase",
                                                      "decode", "n", 10, "off_ns", off, "on_ns", on, "op_ns", 8.5e6,
                                                      "n_ops", 4., "n_jobs", 4., "probe_ns", on / 101));
        }
        json_t *e = explained(request(), made_ops(), recorded);
        const double percent = hr_num(metric(e, "tpot"), "unexplained_pct");
        if (quiet ? fabs(percent + 3) > 0.2 : fabs(percent) > 1e-9)
            fail_msg("%s: expected %s, got %g %% unexplained", quiet ? "quiet" : "scattered", quiet ? "-3" : "0",
                     percent);
        assert_int_equal(strstr(reason(e, "tpot", "unexplained"), "no more than they scatter") != NULL, !quiet);
        adds_up(e);
        json_decref(e);
    }
}

/* ---- kinds of rows ---- */

static void several_sequences_wait(void **state) {
    (void)state;
    json_t *cell = request();
    json_object_set_new(cell, "n_seqs", json_integer(4));
    json_object_set_new(cell, "ttft_ms", dist(250));
    json_object_set_new(cell, "ttft_queue_ms", dist(150));
    json_object_set_new(cell, "tpot_excl_first_ms", dist(40));
    json_object_set_new(cell, "decode_tok_s", json_real(400)); /* a step of 10 ms gives four tokens */
    json_t *e = explained(cell, made_ops(), made_recorded());
    near(ms(e, "ttft", "queue"), 150), near(ms(e, "tpot", "queue"), 30);
    assert_string_equal(hr_word(term(e, "ttft", "queue"), "kind"), "loss");
    near(ms(e, "ttft", "down"), 40.5 * 102 / 153 - 20); /* of one request, not of the four */
    holds(reason(e, "ttft", "queue"), "4 are submitted together");
    holds(reason(e, "tpot", "queue"), "4 requests are prefilled");
    holds(reason(e, "tpot", "queue"), "try fewer --seqs");
    adds_up(e);
    json_decref(e);
}

static void a_text_is_tokenized_first(void **state) {
    (void)state;
    json_t *cell = request();
    json_object_set_new(cell, "ttft_ms", dist(107));
    json_object_set_new(cell, "ttft_queue_ms", dist(7));
    json_t *e = explained(cell, made_ops(), made_recorded());
    near(ms(e, "ttft", "tokenize"), 7);
    holds(reason(e, "ttft", "tokenize"), "tokenization");
    adds_up(e);
    json_decref(e);
}

static void rows_of_one_phase(void **state) {
    (void)state;
    json_t *cell = request(); /* pp64: work of the cell is that of the prefill */
    static const char *const gone[] = {"ttft_ms", "ttft_queue_ms", "ttft_first_sample_ms",  "tpot_excl_first_ms", "isl",
                                       "osl",     "prefill_bytes", "prefill_roof_fraction", "prefill_bound"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) json_object_set_new(cell, gone[i], json_null());
    json_object_set_new(cell, "n_gen", json_integer(0));
    json_object_set_new(cell, "test", json_string("pp64"));
    json_t *e = explained(cell, made_ops(), made_recorded());
    assert_true(json_is_null(metric(e, "tpot")));
    near(hr_num(metric(e, "ttft"), "measured_ms"), 99), near(hr_num(metric(e, "ttft"), "ideal_ms"), 6);
    near(ms(e, "ttft", "weights"), 5);
    assert_true(json_is_null(json_object_get(json_object_get(e, "split"), "decode")));
    adds_up(e);
    json_decref(e);

    cell = request(); /* tg10: no prefill at all */
    static const char *const gone_tg[] = {"ttft_ms", "ttft_queue_ms", "ttft_prefill_ms", "ttft_first_sample_ms", "isl",
                                          "osl"};
    for (size_t i = 0; i < sizeof gone_tg / sizeof *gone_tg; i++) json_object_set_new(cell, gone_tg[i], json_null());
    json_object_set_new(cell, "n_seqs", json_integer(2)); /* no request waits in it */
    e = explained(cell, made_ops(), made_recorded());
    assert_true(json_is_null(metric(e, "ttft")));
    assert_null(term(e, "tpot", "queue"));
    near(hr_num(metric(e, "tpot"), "measured_ms"), 10);
    adds_up(e);
    json_decref(e);
}

/* A short prompt reads the weights once for few tokens: then bytes are the ideal of the prefill too. */
static void prefill_bound_by_memory(void **state) {
    (void)state;
    json_t *cell = request();
    json_object_set_new(cell, "prefill_bound", json_string("memory"));
    json_t *e = explained(cell, made_ops(), made_recorded());
    /* 240 MB: 2 MB a token written, times 64; attention's 30 MB read; the rest is weights */
    near(ms(e, "ttft", "kv_write"), 49.5 * 128 / 240), near(ms(e, "ttft", "kv_read"), 49.5 * 30 / 240);
    near(ms(e, "ttft", "weights"), 49.5 * 82 / 240);
    adds_up(e);
    json_decref(e);
}

/* ---- what is missing ---- */

static void unknown_ceilings(void **state) {
    (void)state;
    json_t *cell = request();
    json_object_set_new(cell, "peak_read_gb_s", json_null());
    json_t *e = explained(cell, made_ops(), made_recorded());
    assert_true(json_is_null(json_object_get(metric(e, "tpot"), "ideal_ms")));
    assert_null(term(e, "tpot", "weights"));
    adds_up(e);
    json_decref(e);

    cell = request(); /* int8 counts against fp32 where it has no ceiling of its own */
    json_object_set_new(json_object_get(cell, "peak_gflop_s"), "int8", json_null());
    e = explained(cell, made_ops(), made_recorded());
    near(hr_num(term(e, "ttft", "qkv"), "roof_ms"), 160);
    adds_up(e);
    json_decref(e);
}

static void no_pair(void **state) {
    (void)state;
    json_t *recorded = made_recorded(), *row;
    size_t i;
    json_array_foreach(recorded, i, row) json_object_set_new(row, "off_ns", json_null());
    json_t *e = explained(request(), made_ops(), recorded);
    near(ms(e, "tpot", "unexplained"), 10 - 10.2 + 0.1); /* the recorded time is taken as it is */
    holds(reason(e, "tpot", "unexplained"), "no repetition was measured right before");
    adds_up(e);
    json_decref(e);
}

static void refusals_say_how(void **state) {
    (void)state;
    json_t *cell = request(), *ops = made_ops(), *recorded = made_recorded(), *none = json_array(), *out = NULL;
    fails(hr_explain(cell, none, recorded, &out), HR_ERR_INPUT, "`headroom sweep`");
    fails(hr_explain(cell, ops, none, &out), HR_ERR_INPUT, "measure it again");
    json_object_set_new(cell, "status", json_string("failed"));
    json_object_set_new(cell, "error", json_string("the worker was ended by signal 9"));
    fails(hr_explain(cell, none, none, &out), HR_ERR_INPUT, "signal 9");
    json_object_set_new(cell, "status", json_string("ok"));
    json_object_set_new(cell, "ttft_ms", json_null()), json_object_set_new(cell, "ttft_prefill_ms", json_null());
    json_object_set_new(cell, "tpot_excl_first_ms", json_null());
    fails(hr_explain(cell, ops, recorded, &out), HR_ERR_INPUT, "neither TTFT nor TPOT");
    assert_null(out);
    json_decref(cell), json_decref(ops), json_decref(recorded), json_decref(none);
}

/* One phase was not recorded: the other is explained, and a note says so. */
static void half_recorded(void **state) {
    (void)state;
    json_t *recorded = made_recorded();
    json_array_remove(recorded, 3), json_array_remove(recorded, 1);
    json_t *e = explained(request(), made_ops(), recorded);
    assert_true(json_is_null(metric(e, "tpot")));
    char *notes = json_dumps(json_object_get(e, "notes"), 0);
    holds(notes, "tpot: no repetition of it was recorded");
    free(notes);
    json_decref(e);
}

/* ---- reasons ---- */

static void reasons_state_figures(void **state) {
    (void)state;
    json_t *e = usual();
    holds(reason(e, "tpot", "down"), "`down` moves 13.33 of 20 GB/s, 2 calls of 3 ms (d)");
    holds(reason(e, "ttft", "qkv"), "of 1000 int8 GOP/s");
    holds(reason(e, "ttft", "attention"), "of 500 bf16 GFLOP/s");
    holds(reason(e, "tpot", "attention"), "over the ceiling of DRAM");
    holds(reason(e, "ttft", "imbalance"), "slowest of 4");
    holds(reason(e, "ttft", "imbalance"), "67 % of it in `attention`");
    holds(reason(e, "ttft", "imbalance"), "waited for a CPU during 3 %");
    holds(reason(e, "ttft", "handoff"), "100 % of it in `qkv`");
    holds(reason(e, "ttft", "handoff"), "160 ns from core to core");
    holds(reason(e, "tpot", "weights"), "100 MB of weights");
    holds(reason(e, "ttft", "arithmetic_int8"), "at the measured peak of 1000 GOP/s");
    holds(reason(e, "tpot", "unexplained"), "recorded over not recorded, 2 of each");
    json_decref(e);
}

/* Every rule speaks in a cell where it applies, and is silent where its value is set. */
static void rules_hold_their_tongue(void **state) {
    (void)state;
    json_t *e = usual();
    holds(reason(e, "ttft", "down"), "try --weights repacked");
    holds(reason(e, "ttft", "qkv"), "at the ceiling but for the waiting");
    holds(reason(e, "ttft", "attention"), "try -fa 1");
    holds(reason(e, "ttft", "attention"), "or --kv-layout head");
    holds(reason(e, "ttft", "sample"), "--fusion head-sample");
    holds(reason(e, "tpot", "weights"), "--quant int4");
    holds(reason(e, "tpot", "kv_read"), "-ctk q8_0");
    holds(reason(e, "tpot", "gaps"), "--fusion all");
    holds(reason(e, "tpot", "handoff"), "--fusion all");
    lacks(reason(e, "tpot", "attention"), "try"); /* it loses nothing */
    json_decref(e);

    json_t *cell = request();
    json_object_set_new(cell, "weights", json_string("repacked"));
    json_object_set_new(cell, "fusion", json_string("all"));
    json_object_set_new(cell, "flash_attn", json_true());
    json_object_set_new(cell, "kv_layout", json_string("head"));
    json_object_set_new(cell, "page_size", json_null());
    json_object_set_new(cell, "quant", json_string("int4"));
    json_object_set_new(cell, "type_k", json_string("q8_0"));
    json_object_set_new(cell, "n_ubatch", json_integer(512));
    json_object_set_new(cell, "n_threads", json_integer(1));
    e = explained(cell, made_ops(), made_recorded());
    lacks(reason(e, "ttft", "down"), "repacked");
    holds(reason(e, "ttft", "down"), "try --quant int4-g128");
    lacks(reason(e, "ttft", "attention"), "try");
    lacks(reason(e, "ttft", "sample"), "try");
    lacks(reason(e, "tpot", "kv_read"), "try");
    lacks(reason(e, "tpot", "gaps"), "try");
    lacks(reason(e, "tpot", "handoff"), "try");
    json_decref(e);
}

/* Rules name only op classes and terms that there are, and flags that `sweep` has. */
static void rules_name_what_exists(void **state) {
    (void)state;
    static const char *const terms = " weights kv_read kv_write arithmetic_fp32 arithmetic_bf16 arithmetic_int8 "
                                     "imbalance handoff gaps queue tokenize in_turn ";
    extern const hr_command hr_command_sweep;
    json_t *rules = hr_reason_rules(), *rule;
    size_t i;
    assert_true(json_array_size(rules) > 20);
    json_array_foreach(rules, i, rule) {
        char words[200], flags[400];
        snprintf(words, sizeof words, "%s", hr_word(rule, "terms"));
        for (char *rest = words, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
            char padded[60];
            snprintf(padded, sizeof padded, " %s ", word);
            bool known = strstr(terms, padded) != NULL;
            for (int op = 0; op < HR_OP_COUNT; op++) known |= !strcmp(word, hr_op_names[op]);
            if (!known) fail_msg("rule %zu: there is no term %s", i, word);
        }
        snprintf(flags, sizeof flags, "%s", hr_word(rule, "advice"));
        size_t n = 0;
        for (char *rest = flags, *word; (word = strtok_r(rest, " ,()", &rest)) != NULL;) {
            if (*word != '-') continue;
            bool known = false;
            for (const hr_opt *const *o = hr_command_sweep.options; *o; o++)
                known |= !strcmp(word, (*o)->name) || ((*o)->alias && strstr((*o)->alias, word));
            if (!known) fail_msg("rule %zu: sweep has no flag %s", i, word);
            n++;
        }
        if (!n) fail_msg("rule %zu names no flag: %s", i, hr_word(rule, "advice"));
    }
    json_decref(rules);
}

/* Every op class gets a sentence with its kernel, and none a cause. */
static void every_op_class_has_a_reason(void **state) {
    (void)state;
    for (int op = 0; op < HR_OP_COUNT; op++) {
        json_t *ops = made_ops(), *row = json_array_get(ops, 6);
        json_object_set_new(row, "op", json_string(hr_op_names[op]));
        json_object_set_new(row, "kernel", json_string("kernel_of_it"));
        json_t *e = explained(request(), ops, made_recorded());
        char start[40];
        snprintf(start, sizeof start, "`%s` ", hr_op_names[op]);
        holds(reason(e, "tpot", hr_op_names[op]), start);
        if (strcmp(hr_op_names[op], "down")) holds(reason(e, "tpot", hr_op_names[op]), "kernel_of_it");
        adds_up(e);
        json_decref(e);
    }
}

/* ---- split, notes ---- */

static void split_and_notes(void **state) {
    (void)state;
    json_t *cell = request();
    json_object_set_new(cell, "this_machine_class", json_string("ryzen-8c-64g"));
    json_t *e = explained(cell, made_ops(), made_recorded());
    const json_t *p = json_object_get(json_object_get(e, "split"), "prefill");
    const json_t *d = json_object_get(json_object_get(e, "split"), "decode");
    near(hr_num(p, "gemm_pct"), 64.5 / 85.5 * 100), near(hr_num(p, "attention_pct"), 20 / 85.5 * 100);
    near(hr_num(p, "other_pct"), 1 / 85.5 * 100);
    near(hr_num(p, "published_gemm_pct"), 72), near(hr_num(p, "published_attention_pct"), 23);
    near(hr_num(d, "memory_pct"), 60), near(hr_num(d, "compute_pct"), 2.5);
    near(hr_num(d, "published_memory_pct"), 65), near(hr_num(d, "published_compute_pct"), 30);
    char *notes = json_dumps(json_object_get(e, "notes"), 0);
    holds(notes, "ceilings are those of epyc-2c-24g");
    holds(notes, "differed by over 5 %");
    holds(notes, "ttft: 2 recorded repetitions");
    free(notes);
    json_decref(e);
}

/* ---- differences ---- */

static void difference_by_hand(void **state) {
    (void)state;
    json_t *cell = request(), *ops = made_ops(), *recorded = made_recorded(), *d = NULL;
    json_object_set_new(cell, "tpot_excl_first_ms", dist(13));
    json_object_set_new(cell, "quant", json_string("int4"));
    json_object_set_new(cell, "state_class", json_string("far"));
    json_object_set_new(json_array_get(ops, 8), "mean_ns", json_real(3.5e6)); /* attention of a step */
    json_object_set_new(json_array_get(ops, 9), "op", json_string("experts"));
    size_t i;
    json_t *row;
    json_array_foreach(recorded, i, row) if (i % 2) {
        json_object_set_new(row, "off_ns", json_real(13e6));
        json_object_set_new(row, "on_ns", json_real(13.26e6));
    }
    json_t *a = explained(cell, ops, recorded), *b = usual();
    ok(hr_explain_difference(a, b, &d));
    near(hr_num(metric(d, "tpot"), "measured_ms"), 3), near(hr_num(metric(d, "ttft"), "measured_ms"), 0);
    near(ms(d, "tpot", "attention"), ms(a, "tpot", "attention") - ms(b, "tpot", "attention"));
    near(ms(d, "tpot", "experts"), ms(a, "tpot", "experts")); /* in one of them alone */
    near(ms(d, "tpot", "head"), -ms(b, "tpot", "head"));
    adds_up(d);
    near(sum(d, "tpot", "ideal"), 0);
    holds(reason(d, "tpot", "attention"), "`attention` takes 3.5 ms instead of 0.5 ms");
    holds(reason(d, "tpot", "head"), "only in the second cell");
    assert_string_equal(hr_word(json_object_get(d, "vs"), "quant"), "int8");
    char *notes = json_dumps(json_object_get(d, "notes"), 0);
    holds(notes, "states of the machine differ");
    lacks(notes, "models differ");
    free(notes);
    json_decref(d);

    json_object_set_new(json_object_get(b, "metrics"), "tpot", json_null());
    json_object_set_new(json_object_get(a, "metrics"), "ttft", json_null());
    fails(hr_explain_difference(a, b, &d), HR_ERR_INPUT, "no metric in common");
    json_decref(a), json_decref(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_by_hand),
        cmocka_unit_test(prefill_is_free_of_drift),
        cmocka_unit_test(one_bad_pair_decides_nothing),
        cmocka_unit_test(scatter_explains_nothing_and_hides_nothing),
        cmocka_unit_test(several_sequences_wait),
        cmocka_unit_test(a_text_is_tokenized_first),
        cmocka_unit_test(rows_of_one_phase),
        cmocka_unit_test(prefill_bound_by_memory),
        cmocka_unit_test(unknown_ceilings),
        cmocka_unit_test(no_pair),
        cmocka_unit_test(refusals_say_how),
        cmocka_unit_test(half_recorded),
        cmocka_unit_test(reasons_state_figures),
        cmocka_unit_test(rules_hold_their_tongue),
        cmocka_unit_test(rules_name_what_exists),
        cmocka_unit_test(every_op_class_has_a_reason),
        cmocka_unit_test(split_and_notes),
        cmocka_unit_test(difference_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
