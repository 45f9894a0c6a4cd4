/* Files of other tools: what comes in, what goes out, what is said about the rest. */
#include "tests/store_fixture.h"

#include "harness/exchange/exchange.h"
#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

/* What a build of late 2025 writes for `-p 64 -n 0 -r 3 -o json`, less the keys that say nothing here. */
#define PP                                                                                                         \
    "\"build_commit\": \"5c8a717\", \"build_number\": 6900, \"cpu_info\": \"AMD EPYC 9354\", \"gpu_info\": \"\", " \
    "\"backends\": \"CPU\", \"model_filename\": \"models/m.gguf\", \"model_type\": \"llama 1B Q8_0\", "            \
    "\"model_size\": 1321079808, \"model_n_params\": 1235814432, \"n_batch\": 2048, \"n_ubatch\": 512, "           \
    "\"n_threads\": 2, \"cpu_mask\": \"0x0\", \"cpu_strict\": false, \"poll\": 50, \"type_k\": \"f16\", "          \
    "\"type_v\": \"f16\", \"n_gpu_layers\": 99, \"split_mode\": \"layer\", \"main_gpu\": 0, "                      \
    "\"no_kv_offload\": false, \"flash_attn\": false, \"devices\": \"auto\", \"tensor_split\": \"0.00\", "         \
    "\"tensor_buft_overrides\": \"none\", \"use_mmap\": true, \"embeddings\": false, \"no_op_offload\": 0, "       \
    "\"n_depth\": 0, \"test_time\": \"2026-01-02T03:04:05Z\", \"avg_ts\": 640.0, \"stddev_ts\": 12.8"
#define ROW(p, n, samples)                          \
    "{" PP ", \"n_prompt\": " #p ", \"n_gen\": " #n \
    ", \"avg_ns\": 100000000, \"stddev_ns\": 2000000, \"samples_ns\": " samples "}"
#define THREE "[98000000, 100000000, 102000000]"

static json_t *in(const char *text, hr_imported *out) {
    ok(hr_import_parse(text, strlen(text), "bench.json", NULL, out));
    return out->cells;
}

static bool noted(const hr_imported *imported, const char *word) {
    size_t i;
    json_t *note;
    json_array_foreach(imported->unmapped, i, note) if (strstr(json_string_value(note), word)) return true;
    return false;
}

static void refused(const char *text, const char *word) {
    hr_imported out;
    fails(hr_import_parse(text, strlen(text), "bench.json", NULL, &out), HR_ERR_INPUT, word);
    if (!strstr(hr_error(), "bench.json")) fail_msg("no file in: %s", hr_error());
}

static void number_is(const json_t *cell, const char *key, double want) {
    const double got = hr_num(cell, key);
    if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%s: expected %.17g, got %.17g", key, want, got);
}

static void llama_rows_become_cells(void **state) {
    (void)state;
    hr_imported out;
    json_t *cells = in("[" ROW(64, 0, THREE) ", " ROW(0, 16, THREE) ", " ROW(64, 16, THREE) "]", &out);
    assert_int_equal(json_array_size(cells), 3);
    json_t *pp = json_array_get(cells, 0), *tg = json_array_get(cells, 1), *pg = json_array_get(cells, 2);
    assert_string_equal(hr_word(pp, "test"), "pp64");
    assert_string_equal(hr_word(tg, "test"), "tg16");
    assert_string_equal(hr_word(pg, "test"), "pp64+tg16");
    number_is(json_object_get(pp, "ttft_prefill_ms"), "p50", 100);
    number_is(json_object_get(tg, "tpot_excl_first_ms"), "p50", 100.0 / 16);
    number_is(json_object_get(tg, "tpot_excl_first_ms"), "max", 102.0 / 16);
    assert_true(json_is_null(json_object_get(tg, "ttft_prefill_ms")));
    assert_true(json_is_null(json_object_get(pg, "tpot_excl_first_ms")));
    number_is(pp, "prefill_tok_s", 640);
    number_is(tg, "decode_tok_s", 160);
    number_is(pg, "output_tok_s", 160);
    assert_string_equal(hr_word(out.machine, "machine_class"), "imported-amd-epyc-9354");
    assert_string_equal(hr_word(out.run, "started"), "2026-01-02T03:04:05Z");
    assert_string_equal(hr_word(out.run, "command"), "import");
    assert_true(noted(&out, "poll"));
    hr_imported_fini(&out);
}

static void two_builds_join(void **state) {
    (void)state;
    hr_imported a, b;
    in("[" ROW(64, 0, THREE) "]", &a);
    char *other = hr_strdup("[" ROW(64, 0, "[1, 2, 3]") "]");
    memcpy(strstr(other, "5c8a717"), "1234567", 7);
    memcpy(strstr(other, "03:04:05"), "09:09:09", 8);
    /* a key that a newer build adds, at its default */
    memcpy(strstr(other, "\"devices\": \"auto\""), "\"newkeys\": \"none\"", 17);
    in(other, &b);
    hr_free(other);
    const json_t *x = json_array_get(a.cells, 0), *y = json_array_get(b.cells, 0);
    assert_string_equal(hr_word(x, "cell_id"), hr_word(y, "cell_id"));
    assert_string_not_equal(hr_word(x, "build_commit"), hr_word(y, "build_commit"));
    hr_imported_fini(&a), hr_imported_fini(&b);
    char *threads = hr_strdup("[" ROW(64, 0, THREE) "]");
    *(strstr(threads, "\"n_threads\": 2") + 13) = '4';
    in(threads, &b), in("[" ROW(64, 0, THREE) "]", &a);
    hr_free(threads);
    assert_string_not_equal(hr_word(json_array_get(a.cells, 0), "cell_id"),
                            hr_word(json_array_get(b.cells, 0), "cell_id"));
    hr_imported_fini(&a), hr_imported_fini(&b);
}

static void broken_files_are_refused(void **state) {
    (void)state;
    refused("", "empty");
    refused("[]", "no rows");
    refused("[" ROW(64, 0, THREE), "cut");
    refused("[" ROW(0, 0, THREE) "]", "row 1");
    refused("[" ROW(64, 0, "[1, NaN]") "]", "JSON");
    refused("[" ROW(64, 0, "[1, 0]") "]", "sample 2");
    refused("[" ROW(64, 0, "\"many\"") "]", "samples_ns");
    refused("[" ROW(64.5, 0, THREE) "]", "n_prompt");
    refused("[1, 2]", "row 1");
    refused("{\"a\": 1}", "neither");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_rows_become_cells),
        cmocka_unit_test(two_builds_join),
        cmocka_unit_test(broken_files_are_refused),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
