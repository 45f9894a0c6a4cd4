/* test_cuda_matmul_gemm.c - products for many tokens on GPUs: tiles, tails in all dimensions, splits. */
#include "tests/cuda_matmul_cases.h"

static bool is_gemm(const hr_kernel *k) {
    return strncmp(k->name, "gemm", 4) == 0;
}

static void test_gemm(void **state) {
    static const shape_case cases[] = {
        {{150}, 416, 45, 45, false, false, false, 0, -1},
        {{33, 70, 9}, 160, 33, 20, true, true, false, 0, -1},
        {{70, 70}, 288, 40, 37, true, false, true, HR_CUDA_GLU_SILU, HR_ACT_BF16},
        {{130, 130}, 32, 17, 17, false, true, false, HR_CUDA_GLU_GELU, -1},
        {{10}, 1024, 140, 131, false, false, false, 0, -1},
        {{65}, 96, 5, 3, true, false, false, 0, -1},
    };
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != NULL; i++)
        if (k->family == HR_FAM_MATMUL && is_gemm(k)) hr_case_run_row(k, cases, sizeof cases / sizeof *cases);
}

/* Few tiles: blocks share the columns of one and join through the workspace, to the same bits in every order. */
static void test_split(void **state) {
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != NULL; i++) {
        if (k->family != HR_FAM_MATMUL || !is_gemm(k)) continue;
        int t = 0;
        while (!(k->dtypes >> t & 1)) t++;
        const shape_case s = {{60}, 2048, k->n_min + 1, k->n_min + 1, false, true, false, 0, -1};
        run_case r;
        hr_case_make_case(&r, &s, (hr_dtype)t, (hr_act)k->act);
        hr_case_expect(&r, &s, ldexp(s.cols / 32.0 + 64, -24) + (t == HR_BF16 ? 0 : ldexp(1, -9)));
        hr_cuda_shape shape = {.grid = {0}};
        k->fn.cuda.shape(&r.p, &hr_cuda_test_caps, &shape);
        const bool f32 = k->act == HR_ACT_F32; /* sums in the order of columns: never split */
        if ((shape.grid[2] > 1) == f32) fail_msg("%s: 60 rows are shared by %u blocks", k->name, shape.grid[2]);
        float *once = hr_cuda_alloc((size_t)s.n * 60 * sizeof *once);
        bool first = true;
        for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
            memcpy(r.y[0], r.before[0], (size_t)s.n * 60 * sizeof(float));
            hr_cuda_run(k, &r.p);
            hr_case_check(&r, &s, k->name);
            if (first) memcpy(once, r.y[0], (size_t)s.n * 60 * sizeof *once);
            hr_cuda_assert_bytes(r.y[0], once, (size_t)s.n * 60 * sizeof *once, k->name);
            first = false;
        }
        hr_cuda_free(once);
        hr_case_free_case(&r);
    }
}

/* int8-row weights and activations: integers until the end, so that the result is the exact sum rounded a few times. */
static void test_row_scales_are_exact(void **state) {
    (void)state;
    const shape_case s = {{90}, 2048, 70, 70, false, false, false, 0, -1};
    static const char *const names[] = {"gemm_int8_row_64x32_cuda", "gemm_int8_row_128x128_cuda"};
    for (size_t i = 0; i < 2; i++) {
        run_case r;
        hr_case_make_case(&r, &s, HR_I8ROW, HR_ACT_INT8_ROW);
        hr_case_expect(&r, &s, 0);
        hr_cuda_matmul p = r.p;
        p.workspace = NULL; /* not split */
        hr_cuda_run(hr_cuda_row(names[i]), &p);
        for (size_t j = 0; j < (size_t)s.n * 90; j++) {
            const double limit = 3 * ldexp(fabs(r.want[0][j]), -24) + 1e-30; /* the sum, the scale, their product */
            hr_case_check_value((double)r.y[0][j], &r, &s, 0, j, limit, names[i]);
        }
        hr_case_free_case(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_row_scales_are_exact),
    };
    return cmocka_run_group_tests_name("cuda_matmul_gemm", tests, NULL, NULL);
}
