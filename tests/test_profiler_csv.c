/* Tables of nsys and ncu: what versions write, what is corrupt, and the reader of CSV below them. */
#include "tests/hr_test.h"

#include "harness/formats/csv_read.h"
#include "harness/profilers/profilers.h"
#include "kernels/base/memory.h"

/* ---- the reader ---------------------------------------------------------------------------------------------------- */

/* All records as "[a][b]@1;", number of the line behind; the error's text instead. */
static const char *records(const char *text) {
    static char out[512];
    size_t used = 0;
    hr_csv csv;
    hr_csv_init(&csv, text, strlen(text));
    for (out[0] = 0;;) {
        if (hr_csv_next(&csv) != HR_OK) {
            snprintf(out, sizeof out, "%s", hr_error());
            break;
        }
        if (!csv.n_fields) break;
        for (size_t i = 0; i < csv.n_fields; i++)
            used += (size_t)snprintf(out + used, sizeof out - used, "[%s]", csv.fields[i]);
        used += (size_t)snprintf(out + used, sizeof out - used, "@%zu%s", csv.line, csv.ended ? ";" : "");
    }
    hr_csv_fini(&csv);
    return out;
}

static void records_as_rfc_4180(void **state) {
    (void)state;
    assert_string_equal(records(""), "");
    assert_string_equal(records("a,b\n"), "[a][b]@1;");
    assert_string_equal(records("a,b"), "[a][b]@1");
    assert_string_equal(records(",\r\n\r\nx\n"), "[][]@1;[]@2;[x]@3;");
    assert_string_equal(records("\"a, \"\"b\"\"\",\"\"\nc\n"), "[a, \"b\"][]@1;[c]@2;");
    assert_string_equal(records("\"two\nlines\",x\nnext\n"), "[two\nlines][x]@1;[next]@3;");
    assert_string_equal(records("a\"b,c\"d,e\n"), "[a\"b][c\"d][e]@1;"); /* a quote inside is none */
    assert_string_equal(records("\"\"\"\""), "[\"]@1");
    assert_string_equal(records("x\n\"a\"b,c\n"), "line 2: text behind a closing quote");
    assert_string_equal(records("x\n\"a,b\n"), "line 2: a quote that never ends: the table was cut");
}

static void a_nul_byte_is_refused(void **state) {
    (void)state;
    hr_csv csv;
    hr_csv_init(&csv, "a\0b\n", 4);
    assert_int_equal(hr_csv_next(&csv), HR_ERR_INPUT);
    hr_csv_fini(&csv);
}

static void numbers_of_fields(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool plain, grouped;
        double value;
    } cases[] = {{"12", true, true, 12},
                 {"-0.5", true, true, -0.5},
                 {"1.25e3", true, true, 1250},
                 {"1,234", false, true, 1234},
                 {"12,345,678.5", false, true, 12345678.5},
                 {"1,23", false, false, 0},
                 {"1234,567", false, false, 0},
                 {",123", false, false, 0},
                 {"1,", false, false, 0},
                 {"1.5,000", false, false, 0},
                 {"", false, false, 0},
                 {"nan", false, false, 0},
                 {"inf", false, false, 0},
                 {"0x10", false, false, 0},
                 {"1e999", false, false, 0},
                 {"1 2", false, false, 0},
                 {"27.595.520", false, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double a = 0, b = 0;
        const bool plain = hr_csv_number(cases[i].text, false, &a), grouped = hr_csv_number(cases[i].text, true, &b);
        if (plain != cases[i].plain || grouped != cases[i].grouped || (grouped && b != cases[i].value))
            fail_msg("\"%s\": expected %d %d %g, got %d %d %g", cases[i].text, cases[i].plain, cases[i].grouped,
                     cases[i].value, plain, grouped, b);
    }
}

/* ---- nsys ---------------------------------------------------------------------------------------------------------- */

/* What nsys 2022.4 printed of a program with the ranges capture > decode > down:decode, as it was. */
static const char nsys_2022[] =
    "Generating SQLite file t1.sqlite from t1.nsys-rep\n"
    "Processing [t1.sqlite] with [/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64/reports/nvtxsum.py]... \n"
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range\n"
    "33.8,31880396,1,31880396.0,31880396.0,31880396,31880396,0.0,PushPop,headroom:capture\n"
    "33.1,31256959,5,6251391.8,6255556.0,6229227,6269136,15902.0,PushPop,headroom:decode\n"
    "33.1,31245681,15,2083045.4,2084281.0,2071642,2094746,6845.4,PushPop,headroom:down:decode\n"
    "\n";

typedef hr_status parser(const char *text, size_t n, const char *name, json_t **rows);

static json_t *parsed(parser *parse, const char *text) {
    json_t *rows;
    if (parse(text, strlen(text), "f.csv", &rows) != HR_OK) fail_msg("%s\n%s", hr_error(), text);
    return rows;
}

static void refused(parser *parse, const char *text, const char *needle) {
    json_t *rows = NULL;
    const hr_status status = parse(text, strlen(text), "f.csv", &rows);
    if (status != HR_ERR_INPUT || rows || strncmp(hr_error(), "f.csv: ", 7) || !strstr(hr_error(), needle))
        fail_msg("expected a refusal with \"%s\", got %s: %s\n%s", needle, hr_status_text(status), hr_error(), text);
}

static double number(const json_t *rows, size_t i, const char *key) {
    const json_t *value = json_object_get(json_array_get(rows, i), key);
    if (!json_is_number(value)) fail_msg("row %zu: no number \"%s\"", i, key);
    return json_number_value(value);
}

static const char *text_of(const json_t *rows, size_t i, const char *key) {
    return json_string_value(json_object_get(json_array_get(rows, i), key));
}

static void the_table_of_nsys_2022(void **state) {
    (void)state;
    json_t *rows = parsed(hr_nsys_csv_parse, nsys_2022);
    assert_int_equal(json_array_size(rows), 3);
    assert_string_equal(text_of(rows, 0, "name"), "capture");
    assert_string_equal(text_of(rows, 2, "name"), "down:decode"); /* the domain goes, the op's own colon stays */
    assert_string_equal(text_of(rows, 2, "style"), "PushPop");
    static const struct {
        const char *key;
        double value;
    } want[] = {{"n", 15},           {"total_ns", 31245681}, {"mean_ns", 2083045.4}, {"median_ns", 2084281},
                {"min_ns", 2071642}, {"max_ns", 2094746},    {"stddev_ns", 6845.4},  {"share_pct", 33.1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (number(rows, 2, want[i].key) != want[i].value)
            fail_msg("%s: expected %.10g, got %.10g", want[i].key, want[i].value, number(rows, 2, want[i].key));
    json_decref(rows);
}

/* Other versions: no Style column, columns in another order, older words, other units, \r\n, names in quotes. */
static void tables_of_other_versions(void **state) {
    (void)state;
    json_t *rows =
        parsed(hr_nsys_csv_parse, "NOTICE: Existing SQLite export found: a.sqlite\n"
                                  "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,StdDev,Range\r\n"
                                  "100.0,300,3,100.0,90,110,10.0,\"headroom:a, \"\"b\"\"\"\r\n");
    assert_string_equal(text_of(rows, 0, "name"), "a, \"b\"");
    assert_true(number(rows, 0, "mean_ns") == 100 && number(rows, 0, "min_ns") == 90 &&
                number(rows, 0, "max_ns") == 110);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "median_ns")));
    assert_true(json_is_null(json_object_get(json_array_get(rows, 0), "style")));
    json_decref(rows);
    rows =
        parsed(hr_nsys_csv_parse, "Range,Style,PID,Time (%),Instances,Total Time (usec),Avg (ms)\n"
                                  ":other,StartEnd,7,100.0,2,5.5,0.00275\n\nTime (%),Total Time (ns),Num Calls,Name\n");
    assert_string_equal(text_of(rows, 0, "name"), ":other");
    assert_true(number(rows, 0, "total_ns") == 5500 && fabs(number(rows, 0, "mean_ns") - 2750) < 1e-9);
    json_decref(rows);
    rows = parsed(hr_nsys_csv_parse, "Total Time (s),Instances,Range\n1.5,4,x\n");
    assert_true(number(rows, 0, "total_ns") == 1.5e9);
    json_decref(rows);
}

#define HEAD "Time (%),Total Time (ns),Instances,Range\n"
static void corrupt_tables_of_nsys(void **state) {
    (void)state;
    refused(hr_nsys_csv_parse, "", "no table of NVTX ranges");
    refused(hr_nsys_csv_parse, "SKIPPED: t.sqlite does not contain NV Tools Extension (NVTX) data.\n", "no table");
    refused(hr_nsys_csv_parse,
            "\x7f"
            "ELF\n\x01\xff\n",
            "no table");
    refused(hr_nsys_csv_parse, "Time (%),Total Time (ns),Instances,Avg (ns),Name\n1,2,3,4,k\n", "another report");
    refused(hr_nsys_csv_parse, HEAD, "nothing was captured");
    refused(hr_nsys_csv_parse, HEAD "50.0,10,1,a\n50.0,10\n", "line 3 has 2 fields, its heading 4");
    refused(hr_nsys_csv_parse, HEAD "50.0,10,1,a\n50.0,10,1,headroom:do", "line 3 has no end");
    refused(hr_nsys_csv_parse, "noise\n" HEAD "100.0,ten,1,a\n", "line 3: total_ns is \"ten\"");
    refused(hr_nsys_csv_parse, HEAD "100.0,-10,1,a\n", "\"-10\"");
    refused(hr_nsys_csv_parse, HEAD "100.0,nan,1,a\n", "\"nan\"");
    refused(hr_nsys_csv_parse, HEAD "100.0,1e300,1,a\n", "no run takes that long");
    refused(hr_nsys_csv_parse, HEAD "100.0,99999999999999999999999999999999,1,a\n", "no run takes that long");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,1e300,a\n", "no count");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,1.5,a\n", "no count");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,0,a\n", "no count");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,,a\n", "no count");
    refused(hr_nsys_csv_parse, HEAD "100.0,,1,a\n", "Total Time is empty");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,1,headroom:\n", "without a name");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,1,\xff\xfe\n", "not UTF-8");
    refused(hr_nsys_csv_parse, HEAD "100.0,1,1,\"a\n", "never ends");
    refused(hr_nsys_csv_parse, HEAD "60.0,6,1,a\n30.0,3,1,b\n", "add up to 90.0 %");
    refused(hr_nsys_csv_parse, "Total Time (weeks),Instances,Range\n1,1,a\n", "--timeunit");
}

/* ---- ncu ----------------------------------------------------------------------------------------------------------- */

#define LAUNCH                                                                                        \
    "\"7\",\"headroom\",\"host\",\"gemv(const float *, int)\",\"1\",\"7\",\"(256, 1, 1)\",\"(64, 1, " \
    "1)\",\"0\",\"9.0\","
static const char ncu_details[] =
    "==PROF== Connected to process 7 (/usr/bin/headroom)\n==PROF== Profiling \"gemv\" - 0: 0%....100% - 8 passes\n"
    "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid "
    "Size\","
    "\"Device\",\"CC\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\",\"Rule Type\","
    "\"Rule Description\"\n"
    "\"0\"," LAUNCH "\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"12.50\",\"\",\"\",\"\"\n"
    "\"0\"," LAUNCH "\"GPU Speed Of Light Throughput\",\"Memory Throughput\",\"%\",\"80\",\"\",\"\",\"\"\n"
    "\"0\"," LAUNCH
    "\"GPU Speed Of Light Throughput\",\"\",\"\",\"\",\"SOLBottleneck\",\"INF\",\"Low, \"\"very\"\" low.\"\n"
    "\"1\"," LAUNCH "\"GPU Speed Of Light Throughput\",\"Duration\",\"us\",\"13.50\",\"\",\"\",\"\"\n"
    "\"1\"," LAUNCH "\"GPU Speed Of Light Throughput\",\"Memory Throughput\",\"%\",\"90\",\"\",\"\",\"\"\n"
    "\"1\"," LAUNCH "\"Launch Statistics\",\"Function Cache Configuration\",\"\",\"CachePreferNone\",\"\",\"\",\"\"\n";

static void ncu_a_line_a_metric(void **state) {
    (void)state;
    json_t *rows = parsed(hr_ncu_csv_parse, ncu_details);
    assert_int_equal(json_array_size(rows), 1);
    assert_string_equal(text_of(rows, 0, "name"), "gemv(const float *, int)");
    assert_true(number(rows, 0, "n") == 2);
    assert_true(number(rows, 0, "total_ns") == 26000 && number(rows, 0, "mean_ns") == 13000);
    assert_true(number(rows, 0, "min_ns") == 12500 && number(rows, 0, "max_ns") == 13500);
    json_t *metrics = json_object_get(json_array_get(rows, 0), "metrics");
    assert_true(json_number_value(json_object_get(json_object_get(metrics, "Memory Throughput"), "value")) == 85);
    json_t *text = json_object_get(json_object_get(metrics, "Function Cache Configuration"), "value");
    assert_string_equal(json_string_value(text), "CachePreferNone");
    json_decref(rows);
}

#define RAW "\"ID\",\"Kernel Name\",\"Stream\",\"dram__bytes.sum\",\"gpu__time_duration.sum\"\n"
static void ncu_a_column_a_metric(void **state) {
    (void)state;
    json_t *rows =
        parsed(hr_ncu_csv_parse, RAW "\"\",\"\",\"\",\"Mbyte\",\"msecond\"\n\"0\",\"gemv\",\"7\",\"1,234.5\",\"2\"\n"
                                     "\"1\",\"norm\",\"7\",\"1\",\"0.5\"\n\"2\",\"gemv\",\"7\",\"1,235.5\",\"4\"\n"
                                     "==PROF== Disconnected\n");
    assert_int_equal(json_array_size(rows), 2);
    assert_true(number(rows, 0, "n") == 2 && number(rows, 0, "total_ns") == 6e6 && number(rows, 1, "n") == 1);
    json_t *metrics = json_object_get(json_array_get(rows, 0), "metrics");
    assert_int_equal(json_object_size(metrics), 2); /* the stream is no metric */
    json_t *bytes = json_object_get(metrics, "dram__bytes.sum");
    assert_true(json_number_value(json_object_get(bytes, "value")) == 1235);
    assert_string_equal(json_string_value(json_object_get(bytes, "unit")), "Mbyte");
    json_decref(rows);
}

static void corrupt_tables_of_ncu(void **state) {
    (void)state;
    static const char units[] = "\"\",\"\",\"\",\"byte\",\"ns\"\n";
    char text[1024];
    refused(hr_ncu_csv_parse, "", "no table of kernels");
    refused(hr_ncu_csv_parse, "==ERROR== No kernels were profiled\n", "no table of kernels");
    refused(hr_ncu_csv_parse, nsys_2022, "no table of kernels");
    refused(hr_ncu_csv_parse, RAW, "nothing was profiled");
    refused(hr_ncu_csv_parse, RAW "0,gemv,7,1,1\n", "units below the heading");
    snprintf(text, sizeof text, RAW "%s0,gemv,7\n", units);
    refused(hr_ncu_csv_parse, text, "line 3 has 3 fields, its heading 5");
    snprintf(text, sizeof text, RAW "%s0,gemv,7,1,1", units);
    refused(hr_ncu_csv_parse, text, "line 3 has no end");
    snprintf(text, sizeof text, RAW "%s0,gemv,7,27.595.520,1\n", units);
    refused(hr_ncu_csv_parse, text, "LC_ALL=C");
    snprintf(text, sizeof text, RAW "%s0,gemv,7,1,1e300\n", units);
    refused(hr_ncu_csv_parse, text, "no kernel takes that long");
    snprintf(text, sizeof text, RAW "%s0,,7,1,1\n", units);
    refused(hr_ncu_csv_parse, text, "without a name");
    snprintf(text, sizeof text, RAW "%s0,\xff,7,1,1\n", units);
    refused(hr_ncu_csv_parse, text, "not UTF-8");
}

/* Every allocation of ours fails once: an error each time, or all rows. */
static void no_memory_is_an_error(void **state) {
    (void)state;
    static const struct {
        parser *parse;
        const char *text;
    } all[] = {{hr_nsys_csv_parse, nsys_2022}, {hr_ncu_csv_parse, ncu_details}};
    for (size_t i = 0; i < 2; i++) {
        const uint64_t before = hr_fault_calls(HR_FAULT_ALLOC);
        json_decref(parsed(all[i].parse, all[i].text));
        const uint64_t calls = hr_fault_calls(HR_FAULT_ALLOC) - before;
        assert_true(calls > 0);
        for (uint64_t n = 1; n <= calls; n++) {
            json_t *rows = NULL;
            hr_fault_arm(HR_FAULT_ALLOC, n);
            const hr_status status = all[i].parse(all[i].text, strlen(all[i].text), "f.csv", &rows);
            hr_fault_arm(HR_FAULT_ALLOC, 0);
            if (status != HR_ERR_MEMORY || rows)
                fail_msg("allocation %d of %d: %s: %s", (int)n, (int)calls, hr_status_text(status), hr_error());
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_as_rfc_4180),      cmocka_unit_test(a_nul_byte_is_refused),
        cmocka_unit_test(numbers_of_fields),        cmocka_unit_test(the_table_of_nsys_2022),
        cmocka_unit_test(tables_of_other_versions), cmocka_unit_test(corrupt_tables_of_nsys),
        cmocka_unit_test(ncu_a_line_a_metric),      cmocka_unit_test(ncu_a_column_a_metric),
        cmocka_unit_test(corrupt_tables_of_ncu),    cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
