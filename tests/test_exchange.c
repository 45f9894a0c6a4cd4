/* Files of other tools: what comes in, what goes out, what is said about the rest. */
#include "tests/store_fixture.h"

#include "harness/exchange/exchange_internal.h"
#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

#include <locale.h>

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

/* ---- the way back ---- */

static char *run_id;

/* Imports into a store of its own and exports again, into memory. */
static char *out_as(const char *text, const char *format, json_t **unmapped) {
    hr_imported imported;
    hr_store *store = open_store(true);
    char *exported = NULL;
    size_t n;
    in(text, &imported);
    ok(hr_import_store(store, &imported, &run_id));
    FILE *stream = open_memstream(&exported, &n);
    size_t n_cells;
    ok(hr_export(store, run_id, format, stream, &n_cells, unmapped));
    fclose(stream);
    hr_free(run_id);
    hr_imported_fini(&imported);
    hr_store_close(store);
    return exported;
}

static void cells_are(const char *got, const char *want, const char *what) {
    hr_imported a, b;
    in(got, &a), in(want, &b);
    assert_int_equal(json_array_size(a.cells), json_array_size(b.cells));
    for (size_t i = 0; i < json_array_size(a.cells); i++) {
        const char *key;
        json_t *x = json_array_get(a.cells, i), *y = json_array_get(b.cells, i), *value;
        json_object_set_new(x, "run_id", json_null()), json_object_set_new(y, "run_id", json_null());
        json_object_foreach(y, key, value) if (!json_equal(json_object_get(x, key), value))
            fail_msg("%s, cell %zu: %s: expected %s, got %s", what, i, key, json_dumps(value, JSON_ENCODE_ANY),
                     json_dumps(json_object_get(x, key), JSON_ENCODE_ANY));
    }
    hr_imported_fini(&a), hr_imported_fini(&b);
}

static void comes_back(const char *text, const char *format) {
    json_t *unmapped;
    char *exported = out_as(text, format, &unmapped);
    cells_are(exported, text, format);
    json_decref(unmapped);
    free(exported);
}

/* A name that every format has trouble with; a time of a century in ns; samples whose sum is over 2^53. */
#define ODD                                                                                                       \
    "{" PP ", \"n_prompt\": 0, \"n_gen\": 8, \"avg_ns\": 3000000000000000000, \"stddev_ns\": 0, \"samples_ns\": " \
    "[3000000000000000000, 3000000000000000000], \"samples_ts\": [2.6666666666666666e-9, 2.6666666666666666e-9]}"

static char *odd_file(void) {
    char *text = hr_strdup("[" ROW(64, 0, THREE) ", " ODD "]");
    char *name = strstr(strstr(text, "\"n_gen\": 0"), "models/m.gguf");
    memcpy(name, "a,'\\\"b\\n;cdef", 13); /* a,'"b, a line end, ;cdef: as many bytes as the name had */
    return text;
}

static void llama_files_come_back(void **state) {
    (void)state;
    char *text = odd_file();
    comes_back("[" ROW(64, 0, THREE) ", " ROW(0, 16, THREE) ", " ROW(64, 16, "[1]") "]", "llama-bench");
    comes_back(text, "llama-bench-json");
    comes_back(text, "llama-bench-jsonl");
    json_t *unmapped;
    char *csv = out_as(text, "llama-bench-csv", &unmapped);
    hr_imported a, b;
    in(csv, &a), in(text, &b);
    for (size_t i = 0; i < 2; i++) {
        const json_t *x = json_array_get(a.cells, i), *y = json_array_get(b.cells, i);
        assert_string_equal(hr_word(x, "cell_id"), hr_word(y, "cell_id"));
        assert_string_equal(hr_word(x, "model_filename"), hr_word(y, "model_filename"));
        number_is(x, "avg_ns", hr_num(y, "avg_ns"));
        assert_true(json_is_null(json_object_get(x, "samples_ns")));
        assert_true(json_is_null(json_object_get(x, "ttft_prefill_ms")));
        assert_string_equal(json_string_value(json_array_get(json_object_get(x, "flags"), 0)), "no_samples");
    }
    hr_imported_fini(&a), hr_imported_fini(&b);
    json_decref(unmapped);
    free(csv), hr_free(text);
}

static void sums_over_2_to_the_53_are_right(void **state) {
    (void)state;
    hr_imported out;
    /* 3e18 ns twice: a sum of 64-bit integers is near its end, a sum of squares far behind it */
    const json_t *cell = json_array_get(in("[" ODD ", " ODD "]", &out), 0); /* joined: averages are made again */
    assert_int_equal(json_array_size(json_object_get(cell, "samples_ns")), 4);
    number_is(cell, "avg_ns", 3e18);
    number_is(cell, "stddev_ns", 0);
    number_is(json_object_get(cell, "tpot_excl_first_ms"), "mean", 3e12 / 8);
    hr_imported_fini(&out);
}

static void rows_that_come_twice(void **state) {
    (void)state;
    hr_imported out;
    json_t *cells = in("[" ROW(64, 0, "[10, 20]") ", " ROW(0, 16, THREE) ", " ROW(64, 0, "[30, 60]") "]", &out);
    assert_int_equal(json_array_size(cells), 2);
    assert_int_equal(json_array_size(json_object_get(json_array_get(cells, 0), "samples_ns")), 4);
    number_is(json_array_get(cells, 0), "avg_ns", 30);
    assert_true(noted(&out, "row 3: the same cell as row 1"));
    hr_imported_fini(&out);
    char *other = hr_strdup("[" ROW(64, 0, "[10, 20]") ", " ROW(64, 0, "[30, 60]") "]");
    memcpy(strstr(strstr(other, "[10"), "5c8a717"), "1234567", 7);
    refused(other, "another build");
    memcpy(strstr(other, "AMD"), "VIA", 3);
    refused(other, "another machine");
    hr_free(other);
}

static void many_rows(void **state) {
    (void)state;
    hr_imported out;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    for (int i = 1; i <= 256; i++)
        fprintf(f, "{\"model_filename\": \"m\", \"n_prompt\": %d, \"n_gen\": 0, \"avg_ns\": %d}\n", i, i);
    fclose(f);
    assert_int_equal(json_array_size(in(text, &out)), 256);
    hr_imported_fini(&out);
    free(text);
}

/* ---- Google Benchmark ---- */

#define CONTEXT                                                                                                        \
    "\"context\": {\"date\": \"2026-01-02T03:04:05+02:00\", \"host_name\": \"h\", \"executable\": \"./build/bench\", " \
    "\"num_cpus\": 2, \"caches\": [{\"type\": \"Unified\", \"level\": 3, \"size\": 33554432, \"num_sharing\": 2}]}"
#define REPETITION(name, i, time, unit)                                                                      \
    "{\"name\": \"" name "\", \"run_name\": \"" name "\", \"run_type\": \"iteration\", \"repetitions\": 2, " \
    "\"repetition_index\": " #i ", \"threads\": 1, \"iterations\": 1000, \"real_time\": " #time              \
    ", \"cpu_time\": 1.0, \"time_unit\": \"" unit "\"}"
#define AGGREGATE(name, what, time)                                                                               \
    "{\"name\": \"" name "_" what "\", \"run_name\": \"" name "\", \"run_type\": \"aggregate\", \"threads\": 1, " \
    "\"aggregate_name\": \"" what "\", \"real_time\": " #time ", \"cpu_time\": 1.0, \"time_unit\": \"us\"}"
#define GOOGLE                                                                                                        \
    "{" CONTEXT ", \"benchmarks\": [" REPETITION("BM_a/8", 0, 12.5, "ns") ", " REPETITION(                            \
        "BM_a/8", 1, 0.0135,                                                                                          \
        "us") ", " AGGREGATE("BM_a/8", "mean",                                                                        \
                             99) ", " AGGREGATE("BM_b", "mean",                                                       \
                                                2) ", " AGGREGATE("BM_b", "stddev",                                   \
                                                                  0.25) ", " AGGREGATE("BM_b", "cv",                  \
                                                                                       0.1) ", {\"name\": \"BM_c\", " \
                                                                                            "\"error_occurred\": "    \
                                                                                            "true, "                  \
                                                                                            "\"error_message\": "     \
                                                                                            "\"no, "                  \
                                                                                            "\\\"not\\\" here\", "    \
                                                                                            "\"real_time\": 0, "      \
                                                                                            "\"time_unit\": \"ns\"}]}"

static void google_rows_become_cells(void **state) {
    (void)state;
    hr_imported out;
    json_t *cells = in(GOOGLE, &out);
    assert_int_equal(json_array_size(cells), 3);
    const json_t *a = json_array_get(cells, 0), *failed = json_array_get(cells, 1), *b = json_array_get(cells, 2);
    assert_string_equal(hr_word(a, "test"), "BM_a/8");
    number_is(a, "avg_ns", 13); /* of repetitions, whatever the aggregate says */
    if (json_number_value(json_array_get(json_object_get(a, "samples_ns"), 1)) != 13.5) fail();
    assert_string_equal(hr_word(failed, "status"), "failed");
    assert_string_equal(hr_word(failed, "error"), "no, \"not\" here");
    number_is(b, "avg_ns", 2000);
    number_is(b, "stddev_ns", 250);
    assert_true(json_is_null(json_object_get(b, "samples_ns")));
    assert_true(noted(&out, "cpu_time") && noted(&out, "cv"));
    assert_string_equal(hr_word(out.run, "started"), "2026-01-02T01:04:05Z");
    assert_non_null(strstr(hr_word(out.machine, "machine_class"), "imported-2c-"));
    hr_imported_fini(&out);
    refused("{" CONTEXT ", \"benchmarks\": [" REPETITION("BM_a", 0, 1, "h") "]}", "time_unit");
    refused("{" CONTEXT ", \"benchmarks\": [{\"real_time\": 1}]}", "without a name");
    refused("{" CONTEXT ", \"benchmarks\": [" REPETITION("BM_a", 0, -1, "ns") "]}", "real_time");
}

static void google_files_come_back(void **state) {
    (void)state;
    json_t *unmapped;
    char *exported = out_as(GOOGLE, "google-benchmark", &unmapped);
    hr_imported a, b;
    in(exported, &a), in(GOOGLE, &b);
    for (size_t i = 0; i < 3; i++) /* in the order of the file: repetitions and failures stand before aggregates */
        assert_true(json_equal(json_array_get(a.cells, i), json_array_get(b.cells, i)));
    hr_imported_fini(&a), hr_imported_fini(&b);
    json_decref(unmapped);
    free(exported);
}

/* ---- for other readers ---- */

static void every_column_of_llama_bench_is_there(void **state) {
    (void)state;
    /* what compare-llama-bench.py (August 2025) asks of each row */
    static const char *const columns[] = {
        "cpu_info",       "gpu_info",      "backends",   "n_gpu_layers", "n_cpu_moe",    "tensor_buft_overrides",
        "model_filename", "model_type",    "n_batch",    "n_ubatch",     "embeddings",   "cpu_mask",
        "cpu_strict",     "poll",          "n_threads",  "type_k",       "type_v",       "use_mmap",
        "main_gpu",       "no_kv_offload", "split_mode", "tensor_split", "n_prompt",     "flash_attn",
        "n_gen",          "n_depth",       "fit_target", "fit_min_ctx",  "build_commit", "avg_ts",
        "test_time"};
    json_t *unmapped, *rows;
    char *text =
        out_as("[{\"model_filename\": \"m\", \"n_prompt\": 8, \"n_gen\": 0, \"avg_ns\": 5}]", "llama-bench", &unmapped);
    rows = parse(text);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const json_t *value = json_object_get(json_array_get(rows, 0), columns[i]);
        if (!value || json_is_null(value)) fail_msg("%s is missing, or null, which joins with nothing", columns[i]);
    }
    json_decref(rows), json_decref(unmapped);
    free(text);
}

static void own_axes_keep_rows_apart(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    json_t *run = parse("{\"command\": \"sweep\"}"), *unmapped;
    char *id, *text = NULL;
    size_t n;
    static const char *const cells[] = {
        "{\"cell_id\": \"a\", \"status\": \"ok\", \"test\": \"tg8\", \"backends\": \"CPU\", \"n_prompt\": 0, "
        "\"n_gen\": 8, "
        "\"avg_ns\": 2.5, \"kv_layout\": \"head\", \"n_seqs\": 1, \"flags\": []}",
        "{\"cell_id\": \"b\", \"status\": \"ok\", \"test\": \"tg8\", \"backends\": \"CPU\", \"n_prompt\": 0, "
        "\"n_gen\": 8, "
        "\"avg_ns\": 2, \"kv_layout\": \"paged\", \"page_size\": 16, \"n_seqs\": 8, \"flags\": []}",
        "{\"cell_id\": \"c\", \"status\": \"ok\", \"test\": \"isl8 osl8\", \"isl\": 8, \"osl\": 8, \"n_prompt\": 8, "
        "\"n_gen\": 8, "
        "\"flags\": []}",
        "{\"cell_id\": \"d\", \"status\": \"failed\", \"error\": \"killed\", \"test\": \"tg9\", \"n_gen\": 9, "
        "\"flags\": []}",
        "{\"cell_id\": \"e\", \"status\": \"ok\", \"test\": \"tg10\", \"n_gen\": 10, \"flags\": [\"simulated\"]}"};
    ok(hr_store_begin_run(store, run, NULL, &id));
    for (size_t i = 0; i < 5; i++) {
        json_t *cell = parse(cells[i]);
        ok(hr_store_put_cell(store, id, cell, NULL, NULL));
        json_decref(cell);
    }
    FILE *stream = open_memstream(&text, &n);
    size_t n_cells;
    ok(hr_export(store, id, "llama-bench", stream, &n_cells, &unmapped));
    assert_int_equal(n_cells, 2);
    fclose(stream);
    json_t *rows = parse(text);
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(hr_word(json_array_get(rows, 0), "backends"), "CPU kv_layout=head");
    assert_string_equal(hr_word(json_array_get(rows, 1), "backends"), "CPU kv_layout=paged page_size=16 n_seqs=8");
    const hr_imported seen = {.unmapped = unmapped};
    assert_true(noted(&seen, "isl8") && noted(&seen, "killed") && noted(&seen, "simulated"));
    json_decref(rows), json_decref(unmapped);
    free(text);
    /* nothing that fits is no empty file */
    stream = open_memstream(&text, &n);
    raw_sql(path, "DELETE FROM cell WHERE cell_id IN ('a', 'b', 'c', 'e')");
    fails(hr_export(store, id, "benchstat", stream, &n_cells, &unmapped), HR_ERR_INPUT, "killed");
    fclose(stream);
    assert_int_equal(n, 0);
    free(text);
    hr_free(id);
    json_decref(run);
    hr_store_close(store);
}

static void texts_hold(const char *format, const char *const *words) {
    json_t *unmapped;
    char *text = out_as(
        "[" ROW(64, 0, "[98000000, 100000000, 102000000, 101000000, 99000000, 100500000]") ", " ROW(0, 16, THREE) "]",
        format, &unmapped);
    for (; *words; words++)
        if (!strstr(text, *words)) fail_msg("%s lacks %s in\n%s", format, *words, text);
    json_decref(unmapped);
    free(text);
}

static void medians_for_other_readers(void **state) {
    (void)state;
    texts_hold("customSmallerIsBetter",
               (const char *const[]){"\"name\": \"m.gguf pp64 ", " ttft_prefill_ms\"", "\"unit\": \"ms\"",
                                     "\"value\": 100.25", "98.00 to 102.0", " tpot_excl_first_ms\"", "\"value\": 6.25",
                                     "commit: 5c8a717", NULL});
    static const char *const google[] = {"\"caches\": []", "\"real_time\": 100.25", "\"time_unit\": \"ms\"", NULL};
    texts_hold("googlecpp", google);
    texts_hold("cpp_google", google);
    texts_hold("benchstat", (const char *const[]){"\ncpu: AMD EPYC 9354\n",
                                                  "\nBenchmarkPp64/model=m.gguf/cell=", "\t1\t98000000 ns/op\n",
                                                  "\t1\t102000000 ns/op\t6375000 tpot-ns\n", NULL});
    texts_hold("google-benchmark", (const char *const[]){"\"real_time\": 98000000", "\"aggregate_name\": \"median\"",
                                                         "\"iterations\": 1,", NULL});
}

/* ---- our own rows ---- */

static json_t *own_cell(const char *id) {
    json_t *cell = make_cell(id), *all = json_object();
    for (const char *const *k = hr_key_names(); *k; k++) {
        json_t *value = json_object_get(cell, *k);
        json_object_set_new(all, *k, value ? json_incref(value) : json_null());
    }
    json_decref(cell);
    return all;
}

static void own_rows_come_back(void **state) {
    (void)state;
    static const char *const formats[] = {"headroom", "headroom-json", "headroom-jsonl", "headroom-csv"};
    json_t *a = own_cell("0123456789abcdef0123456789abcdef"), *b = own_cell("b"), *list = json_array();
    json_object_set_new(b, "status", json_string("failed"));
    json_object_set_new(b, "error", json_string("line 1\nline \"2\", 3"));
    json_object_set_new(b, "samples_ns", json_null());
    json_array_append_new(list, a), json_array_append_new(list, b);
    char *text = json_dumps(list, JSON_REAL_PRECISION(17));
    for (size_t i = 0; i < 4; i++) {
        json_t *unmapped;
        char *exported = out_as(text, formats[i], &unmapped);
        if (i == 3) json_object_set_new(a, "samples_ns", json_null()); /* CSV has none */
        char *want = json_dumps(list, JSON_REAL_PRECISION(17));
        cells_are(exported, want, formats[i]);
        free(want), free(exported);
        json_decref(unmapped);
    }
    free(text);
    json_decref(list);
}

static void own_rows_know_their_machine(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    char *id = begin(store);
    ok(put(store, id, "abc"));
    hr_imported out;
    in("{\"cell_id\": \"abc\", \"status\": \"ok\"}", &out);
    hr_free(id);
    ok(hr_import_store(store, &out, &id));
    assert_string_equal(ask(store, "SELECT machine_class FROM run ORDER BY seq DESC LIMIT 1"), "epyc-2c-24g");
    hr_imported_fini(&out);
    hr_free(id);
    in("{\"cell_id\": \"abd\", \"status\": \"failed\"}", &out);
    ok(hr_import_store(store, &out, &id));
    assert_string_equal(ask(store, "SELECT machine_class FROM run ORDER BY seq DESC LIMIT 1"), "");
    assert_string_equal(ask(store, "SELECT exit_code FROM run ORDER BY seq DESC LIMIT 1"), "4");
    hr_imported_fini(&out);
    hr_free(id);
    hr_store_close(store);
    refused("{\"cell_id\": \"a\", \"status\": \"fine\"}", "status");
    refused("{\"cell_id\": \"a\", \"status\": \"ok\", \"mbu\": \"high\"}", "mbu");
    refused("{\"cell_id\": \"a\", \"status\": \"ok\", \"ttft_ms\": {\"p50\": \"1\"}}", "ttft_ms");
    refused("{\"cell_id\": \"a\", \"status\": \"ok\"}\n{\"cell_id\": \"a\", \"status\": \"ok\"}",
            "line 2: the same cell as line 1");
    refused("cell_id,status,mbu\na,ok,\"0,5\"\n", "line 2: mbu");
}

static void a_file_is_stored_whole_or_not_at_all(void **state) {
    (void)state;
    hr_store *store = open_store(true);
    hr_imported out;
    char *id;
    in("[" ROW(64, 0, THREE) ", " ROW(0, 16, THREE) "]", &out);
    ok(hr_store_exec(store, "CREATE TEMP TRIGGER no BEFORE INSERT ON main.cell WHEN NEW.test = 'tg16' BEGIN SELECT "
                            "RAISE(ABORT, 'enough'); END"));
    assert_int_not_equal(hr_import_store(store, &out, &id), HR_OK);
    assert_null(id);
    assert_string_equal(ask(store, "SELECT count(*) FROM run"), "0");
    ok(hr_store_exec(store, "DROP TRIGGER no"));
    ok(hr_import_store(store, &out, &id));
    hr_free(id);
    hr_imported_fini(&out);
    id = begin(store); /* single writes are transactions of their own again */
    ok(put(store, id, "abc"));
    hr_free(id);
    hr_store_close(store);
    store = open_store(false);
    assert_string_equal(ask(store, "SELECT count(*) FROM cell"), "3");
    assert_string_equal(ask(store, "SELECT count(*) FROM sample"), "8");
    hr_store_close(store);
}

/* ---- hostile files ---- */

static void files_cut_anywhere(void **state) {
    (void)state;
    char *json = odd_file();
    hr_imported out;
    for (size_t n = 0; n < strlen(json); n++)
        if (hr_import_parse(json, n, "bench.json", NULL, &out) == HR_OK) fail_msg("taken when cut after %zu bytes", n);
    hr_free(json);
    json_t *unmapped;
    char *csv = out_as("[" ROW(64, 0, THREE) ", " ROW(0, 16, THREE) "]", "llama-bench-csv", &unmapped);
    const char *first = strstr(csv, "\r\n") + 2, *second = strstr(first, "\r\n") + 2;
    for (size_t n = 0; n < strlen(csv); n++) {
        const bool whole = csv + n == second; /* a file cut between rows is a shorter file */
        const hr_status status = hr_import_parse(csv, n, "bench.csv", NULL, &out);
        if ((status == HR_OK) != whole) fail_msg("after %zu bytes: %s: %s", n, hr_status_text(status), hr_error());
        if (status == HR_OK) hr_imported_fini(&out);
    }
    json_decref(unmapped);
    free(csv);
}

static void hostile_texts(void **state) {
    (void)state;
    const size_t deep = 1000000;
    char *nested = hr_malloc(deep + 1);
    memset(nested, '[', deep), nested[deep] = 0;
    refused(nested, "depth");
    hr_free(nested);
    refused("[{\"n_prompt\": 1e400, \"n_gen\": 0}]", "JSON");
    refused("[{\"n_prompt\": 99999999999999999999, \"n_gen\": 0}]", "JSON");
    refused("[{\"a\": 1, \"a\": 2}]", "JSON");
    refused("\xff\xfe", "bench.json");
    refused("a,b\n1,2,3\n", "3 fields");
    refused("a,a\n1,2\n", "two columns");
    refused("a,b\n1,\"2\n", "never ends");
    refused("n_prompt,n_gen,model_filename,avg_ns\n8,0,m,\"5,0\"\n", "avg_ns");
    refused("n_prompt,n_gen,model_filename,avg_ns\n8,0,m,nan\n", "avg_ns");
    refused("n_prompt,n_gen,model_filename,avg_ns\n8,0,m,0x10\n", "avg_ns");
    refused("[" ROW(64, 0, "[1, -5]") "]", "sample 2");
    refused("[" ROW(64, 0, "[1, null]") "]", "sample 2");
    hr_imported out;
    fails(hr_import_parse("[]", 2, "bench.json", "word", &out), HR_ERR_USAGE, "word");
    fails(hr_import_parse(GOOGLE, strlen(GOOGLE), "bench.json", "llama-bench", &out), HR_ERR_INPUT, "--format");
}

static void no_memory_is_an_error(void **state) {
    (void)state;
    const char *texts[] = {"[" ROW(64, 0, THREE) ", " ROW(0, 16, THREE) "]", GOOGLE};
    for (size_t t = 0; t < 2; t++) {
        hr_imported out;
        const uint64_t before = hr_fault_calls(HR_FAULT_ALLOC);
        in(texts[t], &out);
        const uint64_t calls = hr_fault_calls(HR_FAULT_ALLOC) - before;
        hr_imported_fini(&out);
        assert_true(calls > 4);
        for (uint64_t nth = 1; nth <= calls; nth++) {
            hr_fault_arm(HR_FAULT_ALLOC, nth);
            const hr_status status = hr_import_parse(texts[t], strlen(texts[t]), "bench.json", NULL, &out);
            hr_fault_arm(HR_FAULT_ALLOC, 0);
            if (status == HR_OK) fail_msg("allocation %d failed and nobody said so", (int)nth);
            assert_int_equal(status, HR_ERR_MEMORY);
        }
    }
}

/* ---- numbers in a locale with a decimal comma ---- */

static bool use_comma(void) {
    char command[700];
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    if (system(command) != 0) return false;
    setenv("LOCPATH", folder, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") && !strcmp(localeconv()->decimal_point, ",");
}

static void a_decimal_comma_changes_nothing(void **state) {
    (void)state;
    static const char *const formats[] = {"llama-bench",           "llama-bench-csv", "google-benchmark",
                                          "customSmallerIsBetter", "benchstat",       "headroom-csv"};
    const char *text = "[" ROW(64, 0, "[98000001, 100000000]") ", " ROW(0, 16, THREE) "]";
    char *want[6];
    json_t *unmapped;
    for (size_t i = 0; i < 6; i++) want[i] = out_as(text, formats[i], &unmapped), json_decref(unmapped);
    const bool comma = use_comma();
    char *cut;
    for (size_t i = 0; comma && i < 6; i++) {
        char *got = out_as(text, formats[i], &unmapped);
        json_decref(unmapped);
        if (i != 4 && i != 5) assert_string_equal(got, want[i]); /* those two name their run */
        if (i == 4 && strcmp(strchr(got, '\n'), strchr(want[i], '\n'))) fail_msg("expected %s, got %s", want[i], got);
        if (i == 1 || i == 5) comes_back(got, i == 1 ? "llama-bench-csv" : "headroom-csv");
        cut = got;
        free(cut);
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    for (size_t i = 0; i < 6; i++) free(want[i]);
    if (!comma) hr_skip("no locale de_DE.UTF-8, and localedef cannot make one");
}

/* Every format that the headers name is known to the code behind it. */
static void formats_are_known(void **state) {
    (void)state;
    hr_imported out;
    for (const char *const *f = hr_exchange_formats(true); *f; f++)
        fails(hr_import_parse("", 0, "bench.json", *f, &out), HR_ERR_INPUT, "empty");
    for (const char *const *f = hr_exchange_formats(false); *f; f++) {
        json_t *unmapped;
        free(out_as("[" ROW(64, 0, THREE) "]", *f, &unmapped));
        json_decref(unmapped);
    }
}

static void times_are_utc(void **state) {
    (void)state;
    static const char *const good[][2] = {{"2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"},
                                          {"2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"},
                                          {"2026-01-01 23:59:59.25-0100", "2026-01-02T00:59:59Z"},
                                          {"2026-03-01T00:30:00+01:00", "2026-02-28T23:30:00Z"}};
    static const char *const bad[] = {"", "now", "2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05 CET"};
    char out[21];
    for (size_t i = 0; i < 4; i++) {
        assert_true(hr_utc_of(good[i][0], out));
        assert_string_equal(out, good[i][1]);
    }
    for (size_t i = 0; i < 5; i++)
        if (hr_utc_of(bad[i], out)) fail_msg("%s: expected no time, got %s", bad[i], out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_rows_become_cells),
        cmocka_unit_test(two_builds_join),
        cmocka_unit_test(broken_files_are_refused),
        T(llama_files_come_back),
        cmocka_unit_test(sums_over_2_to_the_53_are_right),
        cmocka_unit_test(rows_that_come_twice),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(google_rows_become_cells),
        T(google_files_come_back),
        T(every_column_of_llama_bench_is_there),
        T(own_axes_keep_rows_apart),
        T(medians_for_other_readers),
        T(own_rows_come_back),
        T(own_rows_know_their_machine),
        T(a_file_is_stored_whole_or_not_at_all),
        T(files_cut_anywhere),
        cmocka_unit_test(hostile_texts),
        cmocka_unit_test(no_memory_is_an_error),
        T(a_decimal_comma_changes_nothing),
        T(formats_are_known),
        cmocka_unit_test(times_are_utc),
    };
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
