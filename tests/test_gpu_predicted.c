/* test_gpu_predicted.c - predictions for kernels of GPUs as rows, and as the section of the report. */
#include "harness/predict/predict_rows.h"
#include "harness/report/report_page.h"
#include "tests/hr_test.h"

static void test_rows(void **state) {
    (void)state;
    hr_gpu_sheet gpu;
    json_t *rows, *row;
    size_t i, timed = 0;
    assert_true(hr_predict_sheet("h200", 0, NAN, &gpu));
    assert_int_equal(hr_predict_rows(&gpu, &rows), HR_OK);
    json_array_foreach(rows, i, row) {
        const double occupancy = hr_num(row, "occupancy");
        if (!json_is_true(json_object_get(row, "predicted")) || !*hr_word(row, "op") || !(occupancy > 0) ||
            occupancy > 1)
            fail_msg("row %zu (%s): expected an op, an occupancy in (0, 1] and \"predicted\": true; got %s, %g", i,
                     hr_word(row, "name"), hr_word(row, "op"), occupancy);
        timed += isfinite(hr_num(row, "roof_us"));
    }
    assert_true(i > 60 && timed > 50 && timed < i); /* norms and copies have no time */
    json_decref(rows);

    assert_true(hr_predict_sheet("NVIDIA H200", 66, 2400, &gpu)); /* half of one */
    assert_int_equal(gpu.sms, 66);
    assert_float_equal(gpu.read_gb_s, 2400, 0);
    assert_false(hr_predict_sheet("GeForce 256", 0, NAN, &gpu));
}

/* The section as Markdown; free it. */
static char *section(const char *gpu_name, const char *kernel) {
    char *text = NULL, *html = NULL;
    size_t n, n_html;
    hr_doc doc = {.md = open_memstream(&text, &n), .html = open_memstream(&html, &n_html)};
    hr_report report = {.machine = gpu_name ? json_pack("{s:{s:s, s:i, s:n}}", "gpu", "name", gpu_name, "sms", 132,
                                                        "datasheet_read_gb_s")
                                            : json_object(),
                        .cells = json_pack("[{s:{s:{s:s}}}]", "kernels", "decode", "qkv", kernel)};
    hr_report_gpu_predicted(&doc, &report);
    fclose(doc.md), fclose(doc.html);
    free(html);
    json_decref(report.machine), json_decref(report.cells);
    return text;
}

static void expect(char *text, const char *part, bool there) {
    if ((strstr(text, part) != NULL) != there)
        fail_msg("the section should %shave \"%s\": %s", there ? "" : "not ", part, text);
}

static void test_section(void **state) {
    (void)state;
    char *text = section("NVIDIA H200", "qkv_fused+gemv_bf16_bf16_1_cuda");
    expect(text, "predicted, not measured", true);
    expect(text, "gemv_bf16_bf16_1_cuda", true);
    expect(text, "24.47", true); /* us: 14336 * 4096 * 2 bytes at 4.8 TB/s */
    expect(text, "gemv_bf16_bf16_8_cuda", false);
    free(text);
    text = section("NVIDIA H200", "gemv_bf16_bf16_1_cuda_other");
    expect(text, "No row of the kernel table", true);
    free(text);
    text = section("Some Other GPU", "gemv_bf16_bf16_1_cuda");
    expect(text, "No datasheet of Some Other GPU", true);
    free(text);
    text = section(NULL, "gemv_bf16_bf16_1_cuda");
    assert_string_equal(text, ""); /* a report on a CPU */
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_section)};
    return cmocka_run_group_tests_name("gpu_predicted", tests, NULL, NULL);
}
