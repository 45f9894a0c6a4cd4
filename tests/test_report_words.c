/* What the report says: shares, circumstances, what a quantization buys, commands to measure again. */
#include "tests/report_fixture.h"

/* The made-up ops take 10 ms a step, of which down loses 3 ms; what is measured is roof_time_ms / roof_fraction. */
static void shares_are_of_the_measured_time(void **state) {
    (void)state;
    const struct {
        double measured_ms;
        const char *verdict, *row; /* row: NULL where there is none */
    } cases[] = {
        {10.2, "the largest loss is down (29 % of the step is above its roof time)", NULL},
        {12.5,
         "the recorded ops add up to 80 % of the measured step, so the cause is uncertain: the largest loss seen is "
         "down (24 % of the step above its roof time)",
         "outside the ops | – | 2.50 | 20 %"},
        {20,
         "the recorded ops add up to 50 % of the measured step, so the cause is uncertain: the largest loss seen is "
         "outside the ops (50 % of the step)",
         "outside the ops | – | 10.0 | 50 % | 0.00 | 10.0 | – | – | – |"},
        {5, "the recorded ops add up to 200 % of the measured step, so the cause is uncertain", NULL},
    };
    hide_gnuplot();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *cells[] = {step("b1", 1, 0, "head", 10)};
        json_object_set_new(cells[0], "roof_fraction", json_real(5 / cases[i].measured_ms));
        fill_run(cells, 1);
        ok(report());
        holds(file("report.md"), cases[i].verdict);
        if (cases[i].row) {
            holds(file("report.md"), cases[i].row);
            holds(file("data/ops_decode.tsv"), "outside the ops");
        } else
            lacks(file("data/ops_decode.tsv"), "outside the ops");
    }
    show_gnuplot();
}

/* Who measured, what, and how quiet the machine was. */
static void circumstances_are_said(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125), request("a2", 128, 125), request("a3", 256, 125)};
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(cells[i], "model_type", json_string("llama 135M Q4_1"));
        json_object_set_new(cells[i], "build_commit", json_string(i ? "abc1" : "abc12"));
        if (i) json_object_set_new(cells[i], "flags", parse("[\"noisy_neighbour\"]"));
    }
    fill_run(cells, 3);
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    const char *md = file("report.md");
    holds(md, ". Other work ran on this machine during 2 of 3 cells: repeat on an idle machine.");
    holds(md, "- **tiny bf16 (llama 135M Q4_1):** decode");
    holds(md, "| tiny bf16 | llama 135M Q4_1 | isl64");
    holds(md, "| measured by Headroom of commits | abc12, abc1 |");
    holds(md, "| built by | gcc |");
    holds(md, "3 cells of 1 run, newest");
    holds(md, "| 100 | 10.0 | 50 % |"); /* 100 MB in 10 ms */
}

static json_t *quantized(const char *id, const char *quant, const char *state, double tpot) {
    json_t *cell = step(id, 1, 0, "head", tpot);
    json_object_set_new(cell, "quant", json_string(quant));
    json_object_set_new(cell, "act", json_string(!strcmp(quant, "bf16") ? "bf16" : "int8"));
    json_object_set_new(cell, "state_class", json_string(state));
    return cell;
}

static void quantizations_are_weighed(void **state) {
    (void)state;
    hide_gnuplot();
    /* the yardstick is bf16 whatever was measured first; a row at another depth with fewer types does not count */
    json_t *same[] = {quantized("q1", "int8", "near", 5), quantized("q2", "bf16", "near", 9),
                      quantized("q3", "int4", "near", 2.9), quantized("q4", "int4-row", "near", 0.5),
                      step("q5", 1, 512, "head", 20)};
    fill_run(same, 5);
    ok(report());
    holds(file("report.md"), "- **tiny, tg32:** int8 decodes 1.8 x, int4 3.1 x, int4-row 18 x as fast as bf16.");
    lacks(file("report.md"), "Mind the state");
    json_t *apart[] = {quantized("q3", "int4", "far", 3), quantized("q4", "int4-row", "far", 0.5)};
    fill_run(apart, 2);
    ok(report());
    holds(file("report.md"), "int8 decodes 1.8 x as fast as bf16; not compared, since the state of the machine differs "
                             "(near): int4 (far), int4-row (far).");
    /* and the bars of one picture say it too */
    holds(strstr(file("report.md"), "as a share of the read bandwidth"),
          "Mind the state of the machine, which differed: 2 near, 2 far.");
    show_gnuplot();
}

static void two_read_roofs_when_they_differ(void **state) {
    (void)state;
    json_t *cells[] = {request("a1", 64, 125), request("a2", 128, 125)};
    json_object_set_new(cells[0], "peak_read_gb_s", json_real(17.1)); /* 14.5 % under the other */
    fill_run(cells, 2);
    hide_gnuplot();
    ok(report());
    lacks(file("plots/roofline.gp"), "read_low_gb_s = ");
    json_t *lower[] = {request("a1", 64, 125)};
    json_object_set_new(lower[0], "peak_read_gb_s", json_real(16.9));
    fill_run(lower, 1);
    ok(report());
    holds(file("plots/roofline.gp"), "read_low_gb_s = 16.9\n");
    holds(file("plots/roofline.gp"), "read_gb_s = 20.\n");
    show_gnuplot();
    if (have_gnuplot()) {
        ok(report());
        holds(file("plots/roofline.svg"), "lowest read roof: 17 GB/s");
    }
}

/* `headroom roof` alone is worth a page, without sections that would be empty. */
static void ceilings_alone_are_reported(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *run_id = begin(store);
    json_t *roof = parse("{\"machine_class\": \"epyc-2c-24g\", \"llc_bytes\": 15000000, \"machine\": {\"cores\": 2},"
                         "\"sweep\": [{\"bytes_per_thread\": 16384, \"threads\": 2, \"gb_s\": 400.5},"
                         "{\"bytes_per_thread\": 268435456, \"threads\": 2, \"gb_s\": 33.5}],"
                         "\"read_gb_s\": [{\"level\": \"DRAM\", \"bytes_per_thread\": 268435456, \"threads\": 2,"
                         "\"median\": 33.5}], \"gflop_s\": [{\"unit\": \"fp32\", \"threads\": 2, \"median\": 230}]}");
    ok(hr_store_put_roof(store, run_id, roof));
    ok(hr_store_end_run(store, run_id, 0));
    hr_free(run_id), json_decref(roof);
    hr_store_close(store);
    hide_gnuplot();
    ok(report());
    show_gnuplot();
    holds(file("report.md"), "holds the ceilings of the machine alone");
    holds(file("report.md"), "| read DRAM (256 MiB a thread) | 2 | 33.5 | GB/s |");
    assert_true(there("data/bandwidth.tsv"));
    static const char *const bad[] = {"How far to trust", "Where the time went", "All cells", " inf ", "nan",
                                      "beside a cell"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) lacks(file("report.md"), bad[i]);
}

static void commands_are_as_typed(void **state) {
    (void)state;
    char command[400];
    json_t *run =
        parse("{\"command\": \"sweep\", \"args\": {\"model\": [\"a b'c\"], \"isl\": [128, 512], \"quick\": true,"
              "\"db\": \"x\", \"max-time\": 0.5, \"repetitions\": 3}}");
    hr_report_command(run, command, sizeof command);
    assert_string_equal(
        command, "headroom sweep --model 'a b'\\''c' --isl 128,512 --quick --db x --max-time 0.5 --repetitions 3");
    json_decref(run);
    assert_string_equal(hr_text_num(1234567), "1\u202f234\u202f567");
    assert_string_equal(hr_text_num(0), "0.00");
    assert_string_equal(hr_text_num(99.96), "100");
    assert_string_equal(hr_text_num(NAN), "–");
    assert_string_equal(hr_text_pct(0.8349), "83 %");
    assert_string_equal(hr_text_size(32768), "32 KiB");
}

int main(void) {
#define R(f) cmocka_unit_test_setup_teardown(f, setup_report, teardown_report)
    const struct CMUnitTest tests[] = {
        R(shares_are_of_the_measured_time), R(circumstances_are_said),      R(quantizations_are_weighed),
        R(two_read_roofs_when_they_differ), R(ceilings_alone_are_reported), R(commands_are_as_typed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
