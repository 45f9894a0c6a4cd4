/* The study of the KV cache without its measurements: points and keys, the loop and its store, ratios and verdicts, output. */
#include "tests/hr_test.h"

#include "harness/formats/json_get.h"
#include "harness/kv/study_arms.h"
#include "harness/kv/study_print.h"
#include "harness/store/store.h"
#include "kernels/base/memory.h"

#include <unistd.h>

/* ---- points and keys ---- */

static const hr_study_part *const real_parts[] = {&hr_study_layouts, &hr_study_operations, &hr_study_dtypes};
enum { REAL_PARTS = sizeof real_parts / sizeof *real_parts };

static void keys_are_unique(void **state) {
    (void)state;
    for (int quick = 0; quick < 2; quick++) {
        const hr_study_options o = {.quick = quick};
        json_t *seen = json_object(), *key;
        size_t n = 0, i;
        for (size_t p = 0; p < REAL_PARTS; p++)
            for (size_t point = 0; point < real_parts[p]->points(&o); point++) {
                json_t *keys = real_parts[p]->keys(&o, point);
                assert_true(json_array_size(keys) > 0);
                json_array_foreach(keys, i, key) {
                    assert_true(json_is_string(key));
                    if (json_object_get(seen, json_string_value(key)))
                        fail_msg("%s twice: %s", real_parts[p]->name, json_string_value(key));
                    json_object_set_new(seen, json_string_value(key), json_true());
                    n++;
                }
                json_decref(keys);
            }
        assert_int_equal(json_object_size(seen), n);
        json_decref(seen);
    }
}

static void every_layout_and_page_size_is_an_arm(void **state) {
    (void)state;
    hr_study_arm_kind kinds[HR_STUDY_ARMS_MAX];
    const size_t n = hr_study_arm_kinds(false, true, kinds);
    unsigned layouts = 0, pages = 0, best = 0;
    assert_true(n <= HR_STUDY_ARMS_MAX);
    assert_string_equal(kinds[0].name, "head");
    for (size_t i = 0; i < n; i++) {
        layouts |= 1u << kinds[i].layout;
        best += kinds[i].best;
        if (kinds[i].layout == HR_KV_PAGED) pages |= kinds[i].page;
        assert_int_equal(kinds[i].page > 0, hr_kv_is_paged(kinds[i].layout));
    }
    assert_int_equal(layouts, (1u << HR_KV_LAYOUT_COUNT) - 1);
    assert_int_equal(pages, 1 | 16 | 64 | 256);
    assert_int_equal(best, 1);
}

/* ---- ratios ---- */

static void verdicts_of_ratios(void **state) {
    (void)state;
    static const struct {
        double median, lo, hi;
        const char *want;
    } cases[] = {
        {1, 0.99, 1.01, "no difference"},     {1.015, 1.012, 1.019, "no difference"},
        {1, 0.98, 1.02, "no difference"},     {1.05, 1.03, 1.08, "slower"},
        {1.03, 1.001, 1.2, "slower"},         {0.9, 0.85, 0.97, "faster"},
        {1.015, 1.001, 1.03, "inconclusive"}, {1.1, 0.9, 1.3, "inconclusive"},
        {0.99, 0.97, 1.01, "inconclusive"},   {NAN, NAN, NAN, "inconclusive"},
        {1.5, NAN, NAN, "inconclusive"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = hr_study_verdict(cases[i].median, cases[i].lo, cases[i].hi);
        if (strcmp(got, cases[i].want))
            fail_msg("%g in [%g, %g]: expected %s, got %s", cases[i].median, cases[i].lo, cases[i].hi, cases[i].want,
                     got);
    }
}

/* Drift that both share leaves the ratio of pairs alone. */
static void ratios_are_paired(void **state) {
    (void)state;
    double a[20], b[20];
    for (int i = 0; i < 20; i++) b[i] = 100 * (1 + i), a[i] = b[i] * (1.1 + 0.001 * (i % 3 - 1));
    json_t *r = hr_study_ratio(a, b, 20);
    assert_string_equal(hr_word(r, "verdict"), "slower");
    assert_true(fabs(hr_num(r, "median") - 1.1) < 1e-9);
    assert_true(hr_num(r, "ci95_lo") >= 1.098 && hr_num(r, "ci95_hi") <= 1.102);
    assert_int_equal(hr_num(r, "n"), 20);
    json_decref(r);
    r = hr_study_ratio(a, b, 3); /* too few for an interval */
    assert_string_equal(hr_word(r, "verdict"), "inconclusive");
    assert_true(json_is_null(json_object_get(r, "ci95_lo")));
    json_decref(r);
}

/* ---- the loop ---- */

static char folder[64], db[96];
static int setup(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/headroom-study-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(db, sizeof db, "%s/headroom.db", folder);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    unlink(db);
    return rmdir(folder);
}

enum { POINTS = 4 };
static int measured[POINTS], fail_at = -1, stop_after = -1;

static size_t fake_points(const hr_study_options *o) {
    (void)o;
    return POINTS;
}
static json_t *fake_keys(const hr_study_options *o, size_t point) {
    (void)o;
    return json_pack("[o, o]", json_sprintf("p%zu a", point), json_sprintf("p%zu b", point));
}
static hr_status fake_measure(hr_study_session *session, const hr_study_options *o, size_t point, json_t *rows) {
    (void)session;
    const double samples[] = {1.0 + (double)point, 2};
    json_t *keys = fake_keys(o, point), *key;
    size_t i;
    if ((int)point == fail_at) {
        json_decref(keys);
        HR_FAIL(HR_ERR_MEMORY, "no room");
    }
    measured[point]++;
    json_array_foreach(keys, i, key)
        json_array_append_new(rows, hr_study_row("layouts", i ? "b" : "a", json_string_value(key), samples, 2, "us"));
    json_decref(keys);
    return HR_OK;
}
static const hr_study_part fake = {"layouts", fake_points, fake_keys, NULL, fake_measure};
static const hr_study_part *const fakes[] = {&fake, NULL};

static bool fake_stop(void) {
    int n = 0;
    for (int i = 0; i < POINTS; i++) n += measured[i] > 0;
    return stop_after >= 0 && n >= stop_after;
}

static json_t *run_fakes(hr_study_options o, hr_status want, char **failed) {
    json_t *out = NULL;
    memset(measured, 0, sizeof measured);
    o.stop = fake_stop;
    const hr_status got = hr_study_run_parts(&o, fakes, NULL, &out, failed);
    if (got != want) fail_msg("expected %s, got %s: %s", hr_status_text(want), hr_status_text(got), hr_error());
    return out;
}

static size_t stored_rows(void) {
    hr_store *store;
    json_t *rows;
    assert_int_equal(hr_store_open(db, false, &store), HR_OK);
    assert_int_equal(hr_store_study(store, NULL, &rows), HR_OK);
    const size_t n = json_array_size(rows);
    json_decref(rows);
    hr_store_close(store);
    return n;
}

static void an_interrupted_study_goes_on(void **state) {
    (void)state;
    hr_study_options o = {.quick = true, .db = db};
    stop_after = 2;
    json_t *first = run_fakes(o, HR_ERR_INTERRUPTED, NULL);
    assert_int_equal(json_array_size(json_object_get(first, "layouts")), 4); /* two rows a point */
    assert_int_equal(stored_rows(), 4);

    stop_after = -1, o.resume = true;
    json_t *second = run_fakes(o, HR_OK, NULL);
    assert_int_equal(json_array_size(json_object_get(second, "layouts")), 2 * POINTS);
    assert_int_equal(measured[0] + measured[1], 0);
    assert_int_equal(measured[2] + measured[3], 2);
    assert_int_equal(stored_rows(), 2 * POINTS); /* of one run */
    for (size_t i = 0; i < 4; i++)
        assert_true(json_equal(json_array_get(json_object_get(first, "layouts"), i),
                               json_array_get(json_object_get(second, "layouts"), i)));
    json_decref(first), json_decref(second);

    json_t *third = run_fakes(o, HR_OK, NULL); /* nothing is unfinished now: a new one */
    for (int i = 0; i < POINTS; i++) assert_int_equal(measured[i], 1);
    json_decref(third);

    stop_after = 1, o.resume = false;
    json_decref(run_fakes(o, HR_ERR_INTERRUPTED, NULL));
    stop_after = -1, o.resume = true, o.quick = false; /* another study */
    json_decref(run_fakes(o, HR_OK, NULL));
    for (int i = 0; i < POINTS; i++) assert_int_equal(measured[i], 1);
}

static void a_failing_point_costs_itself(void **state) {
    (void)state;
    char *failed = NULL;
    hr_study_options o = {.quick = true, .db = db};
    stop_after = -1, fail_at = 1;
    json_t *out = run_fakes(o, HR_OK, &failed);
    fail_at = -1;
    assert_int_equal(json_array_size(json_object_get(out, "layouts")), 2 * (POINTS - 1));
    assert_non_null(failed);
    assert_non_null(strstr(failed, "point 2: no room"));
    hr_free(failed);
    json_decref(out);
    o.resume = true; /* and is tried again */
    out = run_fakes(o, HR_OK, &failed);
    assert_null(failed);
    assert_int_equal(measured[1], 1);
    assert_int_equal(measured[0], 0);
    json_decref(out);
}

static void only_the_part_that_is_asked_for(void **state) {
    (void)state;
    stop_after = -1;
    json_t *out = run_fakes((hr_study_options){.part = "dtypes", .db = "none"}, HR_OK, NULL);
    static const char *const lists[] = {"layouts", "operations", "dtypes", "allocators"};
    for (size_t i = 0; i < 4; i++) {
        assert_true(json_is_array(json_object_get(out, lists[i])));
        assert_int_equal(json_array_size(json_object_get(out, lists[i])), 0);
    }
    assert_int_equal(json_object_size(out), 4);
    json_decref(out);
}

/* ---- rounds ---- */

static size_t drawn[64], n_drawn;
static hr_status fake_sample(void *context, size_t arm, double *ns) {
    (void)context;
    if (n_drawn < 64) drawn[n_drawn++] = arm;
    *ns = arm ? 200 : 100;
    return HR_OK;
}

static void rounds_hold_every_arm_once(void **state) {
    (void)state;
    enum { ARMS = 4 };
    const hr_study_options o = {.seed = 1};
    const hr_study_budget budget = {.max_seconds = 10, .min_seconds = 0, .max_samples = 30};
    hr_study_series s;
    n_drawn = 0;
    assert_int_equal(hr_study_interleave(NULL, &o, &budget, ARMS, fake_sample, NULL, &s), HR_OK);
    assert_int_equal(s.n, HR_STUDY_LEAST); /* the ratios do not move: no more are taken */
    bool shuffled = false;
    for (size_t round = 1; round < s.n; round++) { /* the first is the warm-up */
        unsigned seen = 0;
        for (size_t i = 0; i < ARMS; i++) seen |= 1u << drawn[round * ARMS + i];
        assert_int_equal(seen, (1u << ARMS) - 1);
        shuffled |= drawn[round * ARMS] != drawn[ARMS];
    }
    assert_true(shuffled);
    for (size_t i = 0; i < s.n; i++) assert_true(s.ns[0 * s.stride + i] == 100 && s.ns[3 * s.stride + i] == 200);
    assert_string_equal(s.stop[1], "converged");
    hr_study_series_fini(&s);
}

/* ---- output ---- */

static json_t *made_up_study(void) {
    json_error_t error;
    json_t *study = json_loads(
        "{\"layouts\": ["
        "{\"part\": \"layouts\", \"name\": \"head\", \"key\": \"a head\", \"op\": \"decode\", \"kv_heads\": 8, "
        "\"head_dim\": 64, \"context\": 1024, \"batch\": 1, \"state\": \"cold\", \"page_size\": null, \"n\": 12, "
        "\"median\": 50.0, \"ci95_lo\": 49.0, \"ci95_hi\": 51.0, \"unit\": \"us\", \"samples\": [50.0], "
        "\"bytes_needed\": 2097152, \"gb_s\": 41.9, \"vs_head\": null},"
        "{\"part\": \"layouts\", \"name\": \"paged\", \"key\": \"a paged:16\", \"op\": \"decode\", \"kv_heads\": 8, "
        "\"head_dim\": 64, \"context\": 1024, \"batch\": 1, \"state\": \"cold\", \"page_size\": 16, \"n\": 12, "
        "\"median\": 65.0, \"ci95_lo\": 64.0, \"ci95_hi\": 66.0, \"unit\": \"us\", \"samples\": [65.0], "
        "\"bytes_needed\": 2097152, \"gb_s\": 32.3, \"vs_head\": {\"median\": 1.3, \"ci95_lo\": 1.28, "
        "\"ci95_hi\": 1.31, \"n\": 12, \"verdict\": \"slower\"}}],"
        "\"operations\": [], \"dtypes\": ["
        "{\"part\": \"dtypes\", \"name\": \"q8_0\", \"key\": \"q\", \"model\": \"synth:tiny\", \"context\": 2048, "
        "\"bytes_token\": 1024, \"n\": 12, \"median\": 3.0, \"unit\": \"ms\", \"samples\": [3.0], \"vs_bf16\": "
        "{\"median\": 0.9, \"ci95_lo\": 0.88, \"ci95_hi\": 0.92, \"n\": 12, \"verdict\": \"faster\"}, "
        "\"ppl\": [{\"ctx\": 512, \"ppl\": 20.5, \"delta_pct\": 0.125, \"model\": \"m\"}]}],"
        "\"allocators\": []}",
        0, &error);
    if (!study) fail_msg("%s", error.text);
    return study;
}

static char *written(hr_format format, const json_t *study) {
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    assert_int_equal(hr_study_write(format, stream, study), HR_OK);
    fclose(stream);
    return text;
}

static void holds_word(const char *text, const char *word) {
    if (!strstr(text, word)) fail_msg("\"%s\" is not in:\n%s", word, text);
}

static void json_is_strict(void **state) {
    (void)state;
    const double samples[] = {1, 2};
    json_t *study = made_up_study(), *row = hr_study_row("layouts", "head", "k", samples, 2, "us");
    assert_true(json_is_null(json_object_get(row, "ci95_lo"))); /* two samples have no interval */
    json_array_append_new(json_object_get(study, "layouts"), row);
    char *text = written(HR_FORMAT_JSON, study);
    json_t *back = json_loads(text, 0, NULL);
    assert_true(json_equal(back, study));
    json_decref(back), json_decref(study);
    free(text);
}

static void set_ratio(json_t *row, const char *which, double median, const char *verdict) {
    json_object_set_new(row, which,
                        json_pack("{s:f, s:f, s:f, s:i, s:s}", "median", median, "ci95_lo", median - 0.01, "ci95_hi",
                                  median + 0.01, "n", 12, "verdict", verdict));
}

static void other_formats(void **state) {
    (void)state;
    json_t *study = made_up_study();
    char *text = written(HR_FORMAT_CSV, study);
    holds_word(text, "vs_head_median");
    holds_word(text, "ppl_512_delta_pct");
    assert_null(strstr(text, "samples"));
    size_t lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, 4); /* the header and three rows */
    free(text);
    text = written(HR_FORMAT_JSONL, study);
    lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    assert_int_equal(lines, 3);
    free(text);
    text = written(HR_FORMAT_MD, study);
    holds_word(text, "| paged:16 |");
    holds_word(text, "1.30 +");
    holds_word(text, "0.90 -");
    holds_word(text, "20.500 (+0.1");
    holds_word(text, hr_study_legend);
    free(text);
    set_ratio(json_array_get(json_object_get(study, "layouts"), 1), "vs_head", 0.000088, "faster");
    text = written(HR_FORMAT_MD, study);
    holds_word(text, "| 0.000088 - |");
    free(text);
    json_decref(study);
}

/* ---- advice ---- */

static void advice_says(const json_t *study, const char *word) {
    char *text = hr_study_advice(study);
    assert_non_null(text);
    assert_null(strchr(text, '\n'));
    holds_word(text, word);
    hr_free(text);
}

static void advice_follows_from_the_rows(void **state) {
    (void)state;
    json_t *study = made_up_study();
    advice_says(study, "Layout: head");
    advice_says(study, "Where pages are wanted: paged with pages of 16");
    json_decref(study);
}

/* Of several page sizes the figures are those of the one that is advised. */
static void advice_keeps_to_its_pages(void **state) {
    (void)state;
    json_t *study = made_up_study(), *ops = json_object_get(study, "operations");
    json_array_clear(ops);
    const struct {
        const char *op, *name;
        int page;
        double median, ratio;
    } rows[] = {{"fork", "head", 0, 1500, 1},  {"fork", "paged", 1, 44, 0.03},   {"fork", "paged", 16, 4, 0.003},
                {"offload", "head", 0, 10, 1}, {"offload", "paged", 1, 300, 30}, {"offload", "paged", 16, 25, 2.5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:f}", "op", rows[i].op, "name", rows[i].name, "state", "cold",
                                "context", 2048, "median", rows[i].median);
        if (rows[i].page) json_object_set_new(row, "page_size", json_integer(rows[i].page));
        set_ratio(row, "vs_head", rows[i].ratio, "slower");
        json_array_append_new(ops, row);
    }
    advice_says(study, "takes 4.00 us with pages and 1500 us with head, an off-load 2.50 times as long");
    json_decref(study);
}

static void advice_takes_what_wins(void **state) {
    (void)state;
    json_t *study = made_up_study();
    json_t *paged = json_array_get(json_object_get(study, "layouts"), 1);
    set_ratio(paged, "vs_head", 0.9, "faster");
    advice_says(study, "Layout: paged with pages of 16");
    set_ratio(paged, "vs_head", 0.99, "no difference"); /* within the noise: the simpler one */
    advice_says(study, "Layout: head");

    /* smaller pages are taken when they are as good */
    json_t *small = json_deep_copy(paged);
    json_object_set_new(small, "page_size", json_integer(4));
    set_ratio(small, "vs_head", 1.0, "no difference");
    json_array_append_new(json_object_get(study, "layouts"), small);
    advice_says(study, "Where pages are wanted: paged with pages of 4");
    set_ratio(small, "vs_head", 1.3, "slower");
    advice_says(study, "Where pages are wanted: paged with pages of 16");

    json_t *types = json_object_get(study, "dtypes"), *q8 = json_array_get(types, 0), *bf16 = json_deep_copy(q8);
    json_object_set_new(bf16, "name", json_string("bf16"));
    json_object_set_new(bf16, "bytes_token", json_integer(2048));
    json_object_set_new(bf16, "vs_bf16", json_null());
    json_object_set_new(json_array_get(json_object_get(bf16, "ppl"), 0), "delta_pct", json_real(0));
    json_array_insert_new(types, 0, bf16);
    advice_says(study, "Type: q8_0");
    json_object_set_new(json_array_get(json_object_get(q8, "ppl"), 0), "delta_pct",
                        json_real(3)); /* it costs quality */
    advice_says(study, "Type: bf16; every smaller one");
    json_object_set_new(q8, "ppl", json_null());
    json_object_set_new(bf16, "ppl", json_null());
    advice_says(study, "no perplexity was measured");

    json_t *allocators = json_object_get(study, "allocators");
    static const char *const names[] = {"paged", "pool"};
    for (int i = 0; i < 2; i++)
        json_array_append_new(allocators,
                              json_pack("{s:s, s:f, s:i, s:f, s:f, s:f, s:f, s:i}", "name", names[i], "budget_pct",
                                        25.0, "concurrency", 100, "median", 10.0 + i, "ci95_lo", 9.8 + i, "ci95_hi",
                                        10.2 + i, "requests_s", 5.0 - i, "largest_batch", 20));
    advice_says(study, "Allocator: paged; clearly first in 1 of 1 loads");
    json_object_set_new(json_array_get(allocators, 1), "ci95_lo", json_real(10.1)); /* it reaches into paged's */
    advice_says(study, "Allocator: none is clearly first in any of 1 loads; within the noise paged is in 1");
    json_decref(study);
}

static void advice_has_no_exponents(void **state) {
    (void)state;
    json_t *study = made_up_study(), *operations = json_array();
    static const char *const rows[][2] = {{"fork", "head"}, {"fork", "paged"}, {"offload", "paged"}};
    static const double medians[] = {17812.3, 2.5, 7};
    for (int i = 0; i < 3; i++) {
        json_array_append_new(operations, json_pack("{s:s, s:s, s:s, s:i, s:f}", "op", rows[i][0], "name", rows[i][1],
                                                    "state", "cold", "context", 4096, "median", medians[i]));
        set_ratio(json_array_get(operations, (size_t)i), "vs_head", 110, "slower");
    }
    json_object_set_new(study, "operations", operations);
    advice_says(study, "A fork of 4096 positions takes 2.50 us with pages and 17812 us with head");
    advice_says(study, "an off-load 110 times as long");
    json_object_set_new(json_array_get(operations, 2), "vs_head", json_null()); /* no pair of it was measured */
    advice_says(study, "17812 us with head.");
    json_object_set_new(json_array_get(operations, 0), "median", json_null());
    char *text = hr_study_advice(study);
    assert_null(strstr(text, "fork"));
    assert_null(strstr(text, "nan"));
    hr_free(text);
    json_array_append_new(json_object_get(study, "allocators"),
                          json_pack("{s:s, s:f, s:i, s:f, s:f, s:f, s:f, s:i}", "name", "paged", "budget_pct", 25.0,
                                    "concurrency", 100, "median", 10.0, "ci95_lo", 9.8, "ci95_hi", 10.2, "requests_s",
                                    1780.0, "largest_batch", 20));
    advice_says(study, "1780 a second");
    json_decref(study);
}

static void advice_without_rows_is_empty(void **state) {
    (void)state;
    json_t *study = json_pack("{s:[], s:[], s:[], s:[]}", "layouts", "operations", "dtypes", "allocators");
    char *text = hr_study_advice(study);
    assert_string_equal(text, "");
    hr_free(text);
    json_decref(study);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_unique),
        cmocka_unit_test(every_layout_and_page_size_is_an_arm),
        cmocka_unit_test(verdicts_of_ratios),
        cmocka_unit_test(ratios_are_paired),
        cmocka_unit_test_setup_teardown(an_interrupted_study_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failing_point_costs_itself, setup, teardown),
        cmocka_unit_test(only_the_part_that_is_asked_for),
        cmocka_unit_test(rounds_hold_every_arm_once),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(other_formats),
        cmocka_unit_test(advice_follows_from_the_rows),
        cmocka_unit_test(advice_keeps_to_its_pages),
        cmocka_unit_test(advice_takes_what_wins),
        cmocka_unit_test(advice_has_no_exponents),
        cmocka_unit_test(advice_without_rows_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
