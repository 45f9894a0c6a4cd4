#include "tests/hr_test.h"

#include "harness/formats/cell_keys.h"
#include "harness/formats/formats_internal.h"
#include "kernels/base/memory.h"

#include <locale.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/hr_formats_XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static json_t *dist(double p50, double lo, double hi) {
    return json_pack("{s:i,s:f,s:f,s:f,s:n,s:[s]}", "n", 5, "p50", p50, "ci95_lo", lo, "ci95_hi", hi, "stddev", "weak",
                     "p99");
}

static json_t *sample_cell(void) {
    json_t *cell = json_object();
#define X(key, kind) json_object_set_new(cell, #key, json_null());
    HR_CELL_KEYS(X)
#undef X
    json_object_set_new(cell, "test", json_string("tg128 @ d4096"));
    json_object_set_new(cell, "model_filename", json_string("/models/a, \"b\".gguf"));
    json_object_set_new(cell, "quant", json_string("int8"));
    json_object_set_new(cell, "act", json_string("int8"));
    json_object_set_new(cell, "status", json_string("ok"));
    json_object_set_new(cell, "n_threads", json_integer(2));
    json_object_set_new(cell, "n_gen", json_integer(128));
    json_object_set_new(cell, "n_seqs", json_integer(8));
    json_object_set_new(cell, "kv_layout", json_string("paged"));
    json_object_set_new(cell, "page_size", json_integer(16));
    json_object_set_new(cell, "flash_attn", json_true());
    json_object_set_new(cell, "avg_ns", json_real(0.1));
    json_object_set_new(cell, "samples_ns", json_pack("[i,i]", 1, 2));
    json_object_set_new(cell, "tpot_excl_first_ms", dist(12.345, 12.0, 12.6));
    json_object_set_new(cell, "decode_tok_s", json_real(648.03));
    json_object_set_new(cell, "mbu", json_real(0.834));
    json_object_set_new(cell, "bound", json_string("memory"));
    json_object_set_new(cell, "stop_reason", json_string("converged"));
    json_object_set_new(cell, "flags", json_pack("[s,s]", "throttled", "roof_drift"));
    json_object_set_new(cell, "flops_by_unit", json_pack("{s:f,s:n,s:i}", "fp32", 1.5, "bf16", "int8", 7));
    json_object_set_new(cell, "kernels", json_pack("{s:{s:s,s:s},s:{}}", "prefill", "qkv", "a", "out", "b", "decode"));
    return cell;
}

/* What a writer prints for the cells, as one string (free). */
static char *printed(hr_format format, const json_t *const *cells, size_t n) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    hr_cell_writer *writer;
    assert_int_equal(hr_cell_writer_create(format, stream, &writer), HR_OK);
    for (size_t i = 0; i < n; i++) assert_int_equal(hr_cell_writer_put(writer, cells[i]), HR_OK);
    assert_int_equal(hr_cell_writer_end(writer), HR_OK);
    fclose(stream);
    return text;
}

/* ---- CSV read back by RFC 4180, independently of the writer ---- */

/* Takes one field at *at into out; returns what ended it: ',' or '\n'; 0 for broken text. */
static int csv_take(const char **at, char *out, size_t size) {
    size_t n = 0;
    const char *c = *at;
    if (*c == '"') {
        for (c++; *c; c++) {
            if (*c == '"' && *++c != '"') break;
            if (n + 1 < size) out[n++] = *c;
        }
    } else {
        for (; *c && *c != ',' && *c != '\r'; c++) {
            if (*c == '"' || *c == '\n') return 0;
            if (n + 1 < size) out[n++] = *c;
        }
    }
    out[n] = 0;
    if (*c == ',') return *at = c + 1, ',';
    if (c[0] == '\r' && c[1] == '\n') return *at = c + 2, '\n';
    return 0;
}

static void csv_has_every_column(void **state) {
    (void)state;
    json_t *cell = sample_cell();
    const json_t *cells[] = {cell, cell};
    char *text = printed(HR_FORMAT_CSV, cells, 2), field[4096];
    const char *at = text;
    size_t n;
    const char *const *columns = hr_cell_columns(&n);
    for (int row = 0; row < 3; row++)
        for (size_t i = 0; i < n; i++) {
            int end = csv_take(&at, field, sizeof field);
            if (end != (i + 1 < n ? ',' : '\n')) fail_msg("row %d, column %zu ended with %d", row, i, end);
            const char *want = row ? hr_cell_column_text(cell, i) : columns[i];
            if (strcmp(field, want)) fail_msg("row %d, %s: expected %s, got %s", row, columns[i], want, field);
        }
    assert_string_equal(at, "");
    free(text);
    json_decref(cell);
}

static const char *column(const json_t *cell, const char *name) {
    size_t n;
    const char *const *columns = hr_cell_columns(&n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(columns[i], name)) return hr_cell_column_text(cell, i);
    fail_msg("no column %s", name);
    return NULL;
}

static void columns_flatten_as_the_contract_says(void **state) {
    (void)state;
    json_t *cell = sample_cell();
    assert_string_equal(column(cell, "tpot_excl_first_ms_p50"), "12.345");
    assert_string_equal(column(cell, "tpot_excl_first_ms_n"), "5");
    assert_string_equal(column(cell, "tpot_excl_first_ms_stddev"), "");
    assert_string_equal(column(cell, "tpot_excl_first_ms_weak"), "p99");
    assert_string_equal(column(cell, "ttft_ms_p50"), "");
    assert_string_equal(column(cell, "flags"), "throttled;roof_drift");
    assert_string_equal(column(cell, "flops_by_unit_fp32"), "1.5");
    assert_string_equal(column(cell, "flops_by_unit_bf16"), "");
    assert_string_equal(column(cell, "flops_by_unit_int8"), "7");
    assert_string_equal(column(cell, "kernels_prefill"), "qkv=a;out=b");
    assert_string_equal(column(cell, "kernels_decode"), "");
    assert_string_equal(column(cell, "avg_ns"), "0.1");
    assert_string_equal(column(cell, "flash_attn"), "1");
    size_t n;
    const char *const *columns = hr_cell_columns(&n);
    assert_null(columns[n]);
    for (size_t i = 0; i < n; i++) {
        assert_true(strncmp(columns[i], "samples_", 8) != 0);
        for (size_t j = 0; j < i; j++)
            if (!strcmp(columns[i], columns[j])) fail_msg("column %s stands twice", columns[i]);
    }
    json_decref(cell);
}

/* ---- JSON ---- */

static void json_is_strict_and_whole(void **state) {
    (void)state;
    json_t *cell = sample_cell();
    const json_t *cells[] = {cell, cell, cell};
    for (size_t n = 0; n <= 3; n++) {
        char *text = printed(HR_FORMAT_JSON, cells, n);
        json_error_t error;
        json_t *back = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        if (!back) fail_msg("%zu cells: %s in %s", n, error.text, text);
        assert_int_equal(json_array_size(back), n);
        for (size_t i = 0; i < n; i++) assert_true(json_equal(json_array_get(back, i), cell));
        json_decref(back);
        free(text);
    }
    char *text = printed(HR_FORMAT_JSONL, cells, 3);
    size_t lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *back = json_loads(line, 0, NULL);
        assert_true(back && json_equal(back, cell));
        json_decref(back);
    }
    assert_int_equal(lines, 3);
    free(text);
    json_decref(cell);
}

/* A line is on the stream when put returns: a program that reads along sees each cell as it ends. */
static void jsonl_is_flushed_per_cell(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    FILE *stream = fdopen(ends[1], "w");
    json_t *cell = json_pack("{s:s}", "test", "pp16");
    hr_cell_writer *writer;
    assert_int_equal(hr_cell_writer_create(HR_FORMAT_JSONL, stream, &writer), HR_OK);
    assert_int_equal(hr_cell_writer_put(writer, cell), HR_OK);
    char text[64] = {0};
    assert_int_equal(read(ends[0], text, sizeof text - 1), (ssize_t)strlen("{\"test\": \"pp16\"}\n"));
    assert_string_equal(text, "{\"test\": \"pp16\"}\n");
    assert_int_equal(hr_cell_writer_end(writer), HR_OK);
    fclose(stream);
    close(ends[0]);
    json_decref(cell);
}

static void json_layout(void **state) {
    (void)state;
    json_t *value = json_pack("{s:[i,i],s:[[i,f],[i,n]],s:{},s:[],s:{s:s}}", "a", 1, 2, "b", 1, 0.5, 2, "c", "d", "e",
                              "k\"", "v\n");
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_int_equal(hr_json_write(stream, value), HR_OK);
    fclose(stream);
    assert_string_equal(text, "{\n  \"a\": [1, 2],\n  \"b\": [\n    [1, 0.5],\n    [2, null]\n  ],\n  \"c\": {},\n"
                              "  \"d\": [],\n  \"e\": {\n    \"k\\\"\": \"v\\n\"\n  }\n}\n");
    free(text);
    json_decref(value);
}

static void reals_read_back_exactly(void **state) {
    (void)state;
    static const double values[] = {0.1, 1.0 / 3, 1e300, 5e-324, 123456789012345678.0, -0.0, 2.5, 100, 1e22};
    char text[40];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        hr_real_text(values[i], text, sizeof text);
        if (strtod(text, NULL) != values[i]) fail_msg("%.17g printed as %s", values[i], text);
    }
    hr_real_text(0.1, text, sizeof text);
    assert_string_equal(text, "0.1");
}

/* A locale with a decimal comma changes nothing. It is made here where none is installed and localedef can. */
static bool decimal_comma(void) {
    char line[128];
    if (setlocale(LC_ALL, "de_DE.UTF-8")) return true;
    snprintf(line, sizeof line, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", folder);
    int made = system(line); /* it warns with 1 and makes the locale all the same */
    setenv("LOCPATH", folder, 1);
    bool done = made >= 0 && setlocale(LC_ALL, "de_DE.UTF-8");
    unsetenv("LOCPATH");
    snprintf(line, sizeof line, "rm -rf %s/de_DE.UTF-8", folder);
    return system(line) == 0 && done;
}

static void numbers_keep_their_point(void **state) {
    (void)state;
    if (!decimal_comma()) hr_skip("no locale with a decimal comma is installed, and none could be made");
    assert_string_equal(localeconv()->decimal_point, ",");
    json_t *cell = sample_cell();
    const json_t *cells[] = {cell};
    char *text = printed(HR_FORMAT_JSONL, cells, 1), real[40], brief[40];
    hr_real_text(0.1, real, sizeof real);
    hr_short_text(12.345, brief, sizeof brief);
    setlocale(LC_ALL, "C");
    json_t *back = json_loads(text, 0, NULL);
    assert_true(back && json_equal(back, cell));
    assert_string_equal(real, "0.1");
    assert_string_equal(brief, "12.35");
    json_decref(back);
    json_decref(cell);
    free(text);
}

/* ---- tables ---- */

static void tables_show_the_short_view(void **state) {
    (void)state;
    json_t *cell = sample_cell(), *skipped = sample_cell();
    json_object_set_new(skipped, "status", json_string("skipped"));
    json_object_set_new(skipped, "error", json_string("too | long"));
    const json_t *cells[] = {cell, skipped};
    char *table = printed(HR_FORMAT_TABLE, cells, 2), *md = printed(HR_FORMAT_MD, cells, 2);
    static const char *const words[] = {
        "tg128 @ d4096", "int8/int8", "t2 x8 paged:16", "12.35 ±2.4%", "648.0",    "83.4",
        "mem",           "skipped",   "TPOT ms",        "tok/s",       "a, \"b\"", "throttled drift"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strstr(table, words[i])) fail_msg("the table lacks %s:\n%s", words[i], table);
        if (!strstr(md, words[i])) fail_msg("the Markdown lacks %s:\n%s", words[i], md);
    }
    assert_non_null(strstr(md, "too \\| long"));
    size_t lines = 0, widest = 0;
    for (char *line = strtok(table, "\n"); line; line = strtok(NULL, "\n"), lines++)
        if (lines == 0) widest = (size_t)hr_text_width(line);
    assert_int_equal(lines, 5); /* heading, two rows, two words explained */
    if (widest > 110) fail_msg("the heading is %zu characters wide", widest);
    lines = 0;
    size_t bars = 0;
    for (char *line = strtok(md, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        size_t n = 0;
        if (!strncmp(line, "- ", 2)) break; /* the words explained */
        for (char *c = line; *c; c++) n += *c == '|' && (c == line || c[-1] != '\\');
        if (lines == 0) bars = n;
        assert_int_equal(n, bars);
    }
    assert_int_equal(lines, 4);
    free(table);
    free(md);
    json_decref(cell);
    json_decref(skipped);
}

/* Few samples show their range, and say so; requests together show none unless the values are of repetitions. */
static void spread_of_few_and_of_requests(void **state) {
    (void)state;
    json_t *cell = sample_cell(), *few = json_pack("{s:i, s:f, s:f, s:f, s:n, s:n}", "n", 2, "p50", 10.0, "min", 9.0,
                                                   "max", 11.0, "ci95_lo", "ci95_hi");
    json_object_set_new(cell, "flags", json_pack("[s]", "weak_percentile"));
    json_object_set_new(cell, "tpot_excl_first_ms", few);
    const json_t *cells[] = {cell};
    char *text = printed(HR_FORMAT_TABLE, cells, 1);
    assert_non_null(strstr(text, "10.00 ±10%*"));
    assert_non_null(strstr(text, "fewer than 6"));
    assert_null(strstr(text, "weak"));
    free(text);
    json_object_set_new(cell, "isl", json_integer(64)); /* two values, two samples: one a repetition */
    text = printed(HR_FORMAT_TABLE, cells, 1);
    assert_non_null(strstr(text, "10.00 ±10%*"));
    free(text);
    json_object_set_new(few, "n", json_integer(16)); /* eight requests a repetition */
    text = printed(HR_FORMAT_TABLE, cells, 1);
    assert_non_null(strstr(text, "10.00"));
    assert_null(strstr(text, "10.00 ±"));
    free(text);
    json_decref(cell);
}

static char *rows_printed(hr_format format) {
    static const char *const keys[] = {"name", "median|GB/s", "n", "list", NULL};
    json_t *rows = json_pack("[{s:s,s:f,s:i,s:[s,s]},{s:s,s:n}]", "name", "o'ne", "median", 12.5, "n", 3, "list", "x",
                             "y", "name", "two\nlines", "median");
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_int_equal(hr_rows_write(format, stream, rows, keys), HR_OK);
    fclose(stream);
    json_decref(rows);
    return text;
}

static void rows_in_every_format(void **state) {
    (void)state;
    static const struct {
        hr_format format;
        const char *want;
    } cases[] = {
        {HR_FORMAT_CSV, "name,median,n,list\r\no'ne,12.5,3,x;y\r\n\"two\nlines\",,,\r\n"},
        {HR_FORMAT_MD, "| name | median (GB/s) | n | list |\n|---|---:|---:|---|\n| o'ne | 12.50 | 3 | x;y |\n"
                       "| two lines |  |  |  |\n"},
        {HR_FORMAT_TABLE, "name        median (GB/s)  n list\no'ne                12.50  3 x;y\ntwo lines\n"},
        {HR_FORMAT_SQL,
         "CREATE TABLE IF NOT EXISTS result (\"name\" TEXT, \"median\" REAL, \"n\" INTEGER, \"list\" "
         "TEXT);\nINSERT INTO result (\"name\", \"median\", \"n\", \"list\") VALUES ('o''ne', 12.5, 3, "
         "'x;y');\nINSERT INTO result (\"name\", \"median\", \"n\", \"list\") VALUES ('two\nlines', NULL, "
         "NULL, NULL);\n"},
        {HR_FORMAT_JSONL, "{\"name\": \"o'ne\", \"median\": 12.5, \"n\": 3, \"list\": [\"x\", \"y\"]}\n"
                          "{\"name\": \"two\\nlines\", \"median\": null}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = rows_printed(cases[i].format);
        assert_string_equal(text, cases[i].want);
        free(text);
    }
}

static void sql_of_cells_names_every_column(void **state) {
    (void)state;
    json_t *cell = sample_cell();
    json_object_set_new(cell, "error", json_string("it's; DROP TABLE cell"));
    const json_t *cells[] = {cell};
    char *text = printed(HR_FORMAT_SQL, cells, 1);
    assert_non_null(strstr(text, "CREATE TABLE IF NOT EXISTS cell (build_commit TEXT, build_number INTEGER"));
    assert_non_null(strstr(text, "'it''s; DROP TABLE cell'"));
    free(text);
    json_decref(cell);
}

/* ---- files ---- */

static void path_in(char *path, size_t size, const char *name) {
    snprintf(path, size, "%s/%s", folder, name);
}
static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}
static size_t entries(void) {
    char command[128];
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *p = popen(command, "r");
    unsigned n = 0;
    assert_int_equal(fscanf(p, "%u", &n), 1);
    pclose(p);
    return n;
}

static void files_appear_whole_or_not_at_all(void **state) {
    (void)state;
    char path[128];
    hr_out out;
    path_in(path, sizeof path, "deep/er/file.txt");
    assert_int_equal(hr_out_open(path, &out), HR_OK);
    fputs("one", out.stream);
    assert_false(exists(path));
    assert_int_equal(hr_out_commit(&out), HR_OK);
    assert_true(exists(path));

    /* each write that can fail: the old file stays, nothing is left beside it */
    for (uint64_t nth = 1; nth <= 2; nth++) {
        hr_fault_arm(HR_FAULT_WRITE, nth);
        hr_status status = hr_out_open(path, &out);
        if (status == HR_OK) {
            fputs("two", out.stream);
            status = hr_out_commit(&out);
        }
        hr_fault_arm(HR_FAULT_WRITE, 0);
        assert_int_equal(status, HR_ERR_IO);
        assert_non_null(strstr(hr_error(), "file.txt"));
    }
    assert_int_equal(hr_out_open(path, &out), HR_OK);
    fputs("three", out.stream);
    hr_out_abandon(&out);
    FILE *file = fopen(path, "r");
    char text[16] = {0};
    assert_int_equal(fread(text, 1, 15, file), 3);
    fclose(file);
    assert_string_equal(text, "one");
    unlink(path);
    path_in(path, sizeof path, "deep/er");
    assert_int_equal(rmdir(path), 0); /* fails when a temporary file is left */
    path_in(path, sizeof path, "deep");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(entries(), 0);
}

static void bad_places_are_said(void **state) {
    (void)state;
    hr_out out;
    assert_int_equal(hr_out_open(folder, &out), HR_ERR_IO);
    assert_non_null(strstr(hr_error(), "folder"));
    assert_int_equal(hr_out_open("/proc/none/x", &out), HR_ERR_IO);
    assert_int_equal(hr_out_open("/dev/null/x", &out), HR_ERR_IO);
    assert_int_equal(hr_out_open("/dev/null", &out), HR_OK); /* a device is written to, never replaced */
    fputs("x", out.stream);
    assert_int_equal(hr_out_commit(&out), HR_OK);
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

static void a_full_disk_is_an_error(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full) hr_skip("no /dev/full here");
    hr_cell_writer *writer;
    assert_int_equal(hr_cell_writer_create(HR_FORMAT_CSV, full, &writer), HR_ERR_IO);
    assert_non_null(strstr(hr_error(), "No space left"));
    fclose(full);
    json_t *cell = sample_cell();
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    assert_int_equal(hr_cell_writer_create(HR_FORMAT_CSV, stream, &writer), HR_OK);
    hr_fault_arm(HR_FAULT_WRITE, 1);
    assert_int_equal(hr_cell_writer_put(writer, cell), HR_ERR_IO);
    assert_int_equal(hr_cell_writer_end(writer), HR_OK);
    fclose(stream);
    free(text);
    json_decref(cell);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_has_every_column),
        cmocka_unit_test(columns_flatten_as_the_contract_says),
        cmocka_unit_test(json_is_strict_and_whole),
        cmocka_unit_test(jsonl_is_flushed_per_cell),
        cmocka_unit_test(json_layout),
        cmocka_unit_test(reals_read_back_exactly),
        cmocka_unit_test(numbers_keep_their_point),
        cmocka_unit_test(tables_show_the_short_view),
        cmocka_unit_test(spread_of_few_and_of_requests),
        cmocka_unit_test(rows_in_every_format),
        cmocka_unit_test(sql_of_cells_names_every_column),
        cmocka_unit_test(files_appear_whole_or_not_at_all),
        cmocka_unit_test(bad_places_are_said),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
