/* explain: an explanation as a page, as rows of a waterfall and as a picture. */
#include "tests/explain_fixture.h"

static char text[1 << 18];

/* ---- printing ---- */

static const char *printed(const json_t *e, hr_format format) {
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_explain_print(format, f, e));
    fclose(f);
    return text;
}

static void table_fits_a_page(void **state) {
    (void)state;
    json_t *e = usual(), *d = NULL;
    ok(hr_explain_difference(e, e, &d));
    const json_t *both[] = {e, d};
    for (size_t k = 0; k < 2; k++) {
        size_t line = 0, width = 0;
        for (const char *c = printed(both[k], HR_FORMAT_TABLE); *c; c++) {
            width += ((unsigned char)*c & 0xc0) != 0x80;
            if (*c != '\n') continue;
            line++;
            if (width > 111) fail_msg("line %zu has %zu characters, expected at most 110:\n%s", line, width - 1, text);
            if (c > text && c[-1] == ' ') fail_msg("line %zu ends in a space:\n%s", line, text);
            width = 0;
        }
    }
    printed(e, HR_FORMAT_TABLE);
    holds(text, "tiny int8, isl64 osl11, KV paged, on epyc-2c-24g, cell 0123456789ab");
    holds(text, "TPOT  measured 10.00 ms, ideal 6.00 ms (60 % of it), with the recorder on 10.20 ms");
    holds(text, "down            loss             1.70   17.0    13.3     25.0     67");
    holds(text, "attention       loss            -0.50   -5.0");
    holds(text, "matrix products 75.4 % (published: 72), attention 23.4 % (published: 23)");
    holds(text, "decode:  memory 60.0 % (published: 65), arithmetic 2.5 % (published: 30)");
    holds(text, "note: the ceilings differed");
    printed(e, HR_FORMAT_MD);
    holds(text, "### TPOT");
    holds(text, "| down | loss | 1.70 | 17.0 | 13.3 | 25.0 | 67 | `down` moves");
    printed(d, HR_FORMAT_TABLE);
    holds(text, "TPOT  10.00 ms instead of 10.00 ms: +0.00 ms (+0.0 %)");
    json_decref(e), json_decref(d);
}

/* ---- the waterfall ---- */

static void waterfall_rows(void **state) {
    (void)state;
    json_t *e = usual();
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_explain_tsv(e, "tpot", f));
    fclose(f);
    holds(text, "series\ttitle\trow\tfrom_ms\tto_ms\tms\tlabel\n1\tideal\t1\t0\t5\t5\tweights\n");
    holds(text, "\t10\t10\tmeasured\n");
    double at = 0, from, to, value; /* each bar begins where the one before it ended */
    int series, row, rows = 0;
    char kind[32], label[64];
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        if (sscanf(line + 1, "%d\t%31s\t%d\t%lf\t%lf\t%lf\t%63[^\n]", &series, kind, &row, &from, &to, &value, label) !=
            7)
            fail_msg("no row: %.80s", line + 1);
        if (row != ++rows) fail_msg("expected row %d, got %d", rows, row);
        if (series == 7) {
            if (fabs(at - to) > 1e-6) fail_msg("expected the bars to end at %g, got %g", to, at);
            at = 0;
        }
        if (fabs(from - at) > 1e-6 || fabs(to - from - value) > 1e-6)
            fail_msg("%s: expected a bar of %g from %g, got %g to %g", label, value, at, from, to);
        at = to;
    }
    assert_true(rows >= 11);
    fails(hr_explain_tsv(json_null(), "tpot", stdout), HR_ERR_INPUT, "no tpot");
    json_decref(e);
}

/* Three op classes of 1 us lost each stand together. */
static void small_ops_stand_together(void **state) {
    (void)state;
    json_t *ops = made_ops();
    static const char *const names[] = {"norm", "rope", "embed"};
    for (size_t i = 0; i < 3; i++)
        json_array_append_new(ops, json_pack("{s:s, s:i, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:s}", "phase",
                                             "decode", "layer", -1, "op", names[i], "kernel", "k", "n", 20, "mean_ns",
                                             1000., "imbalance_ns", 0., "handoff_ns", 0., "bytes", 0., "flops", 0.,
                                             "unit", "fp32"));
    json_t *e = explained(request(), ops, made_recorded());
    FILE *f = fmemopen(text, sizeof text, "w");
    ok(hr_explain_tsv(e, "tpot", f));
    fclose(f);
    holds(text, "other ops");
    lacks(text, "rope");
    json_decref(e);
}

static void picture(void **state) {
    (void)state;
    char svg[320];
    json_t *e = usual();
    snprintf(svg, sizeof svg, "%s/deep/w.svg", folder);
    if (system("gnuplot --version >/dev/null 2>&1") != 0) {
        fails(hr_explain_svg(e, svg), HR_ERR_UNSUPPORTED, "apt-get install");
    } else {
        ok(hr_explain_svg(e, svg));
        text[read_file(svg, text, sizeof text - 1)] = 0;
        holds(text, "TTFT of tiny int8, isl64 osl11");
        holds(text, "TPOT of tiny int8");
        holds(text, "arithmetic_int8");
        holds(text, "</svg>");
    }
    char *saved = strdup(getenv("PATH"));
    setenv("PATH", "/nonexistent", 1);
    snprintf(svg, sizeof svg, "%s/none.svg", folder);
    fails(hr_explain_svg(e, svg), HR_ERR_UNSUPPORTED, "apt-get install");
    setenv("PATH", saved, 1);
    free(saved);
    assert_int_equal(access(svg, F_OK), -1);
    json_decref(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_fits_a_page),
        cmocka_unit_test(waterfall_rows),
        cmocka_unit_test(small_ops_stand_together),
        T(picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
