/* test_cuda_shim.c - the machine that runs kernels for GPUs on the CPU: what its models give, and that it finds broken rules. */
#include "tests/cuda_fixture.h"
#include "tests/cuda_on_cpu/test_kernels.h"

static void test_sums_of_rows(void **state) {
    (void)state;
    const size_t rows = 5, cols = 333;
    float *x = hr_cuda_floats(rows * cols, 1), *y = hr_cuda_alloc(rows * sizeof *y);
    double want[5] = {0};
    for (size_t i = 0; i < rows * cols; i++) want[i / cols] += (double)x[i];
    const hr_test_sum p = {x, y, (uint32_t)cols};
    const hr_cuda_shape shape = {{(uint32_t)rows, 1, 1}, {256, 1, 1}, (uint32_t)(4 * cols)};
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(y);
        hr_cuda_launch("test_row_sum", &shape, &p);
        /* 333 additions of values below 1: each rounds by half of 2^-24 of a sum below 333. */
        hr_cuda_assert_near(y, want, rows, 0, 333 * 333 * 0x1p-25, "sum of a row");
    }
    hr_cuda_free(x), hr_cuda_free(y);
}

static void test_launches_that_no_gpu_accepts(void **state) {
    (void)state;
    const hr_test_sum p = {NULL, NULL, 0};
    assert_int_equal(hr_shim_params_bytes("test_row_sum"), sizeof p);
    assert_int_equal(hr_shim_params_bytes("no_such_kernel"), 0);
    const hr_cuda_shape good = {{1, 1, 1}, {32, 1, 1}, 0};
    assert_int_equal(hr_shim_launch("no_such_kernel", &good, &p), 1);
    const hr_cuda_shape bad[] = {
        {{0, 1, 1}, {32, 1, 1}, 0},        {{1, 65536, 1}, {32, 1, 1}, 0},  {{1, 1, 65536}, {32, 1, 1}, 0},
        {{1u << 31, 1, 1}, {32, 1, 1}, 0}, {{1, 1, 1}, {0, 1, 1}, 0},       {{1, 1, 1}, {288, 1, 1}, 0},
        {{1, 1, 1}, {1, 1, 65}, 0},        {{1, 1, 1}, {32, 1, 1}, 232449},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hr_shim_launch("test_row_sum", &bad[i], &p) != 2) fail_msg("shape %zu: expected 2", i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_of_rows),
        cmocka_unit_test(test_launches_that_no_gpu_accepts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
