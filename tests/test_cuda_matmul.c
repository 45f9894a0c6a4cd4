/* test_cuda_matmul.c - products for few tokens on GPUs, and that every pair of types has a row. */
#include "tests/cuda_matmul_cases.h"

static bool is_gemm(const hr_kernel *k) {
    return strncmp(k->name, "gemm", 4) == 0;
}

/* Rows that share a kernel differ in the activations alone. */
static void test_gemv(void **state) {
    static const shape_case cases[] = {
        {{37}, 1056, 8, 8, false, false, false, 0, -1},
        {{9, 4, 6}, 544, 7, 6, true, true, false, 0, -1},
        {{5, 5}, 2080, 3, 3, true, false, true, HR_CUDA_GLU_SILU, HR_ACT_F32},
        {{70, 70}, 96, 13, 9, false, false, false, HR_CUDA_GLU_GELU, HR_ACT_BF16},
        {{11, 11}, 32, 2, 2, false, true, false, HR_CUDA_GLU_SILU, -1},
    };
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != NULL; i++)
        if (k->family == HR_FAM_MATMUL && !is_gemm(k)) hr_case_run_row(k, cases, sizeof cases / sizeof *cases);
}

/* Few rows and many columns: blocks share a row and join through the workspace; the result has the same bits every time. */
static void test_split(void **state) {
    (void)state;
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_cuda_kernel_at(i)) != NULL; i++) {
        if (k->family != HR_FAM_MATMUL || is_gemm(k) || strncmp(k->name, "matmul", 6) == 0) continue;
        for (int t = 0; t < HR_DTYPE_COUNT; t++) {
            if (!(k->dtypes >> t & 1)) continue;
            const shape_case s = {{6}, 16384, k->n_min ? k->n_min : 1, k->n_min ? k->n_min : 1, 0, 0, 0, 0, -1};
            run_case r;
            hr_case_make_case(&r, &s, (hr_dtype)t, (hr_act)k->act);
            hr_case_expect(&r, &s, ldexp(s.cols / 32.0 + 64, -24));
            hr_cuda_shape shape = {.grid = {0}};
            k->fn.cuda.shape(&r.p, &hr_cuda_test_caps, &shape);
            if (shape.grid[1] < 2) fail_msg("%s of %s does not split 6 rows over blocks", k->name, hr_dtypes[t].name);
            float *once = hr_cuda_alloc((size_t)s.n * 6 * sizeof *once);
            bool first = true;
            for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
                hr_cuda_poison(r.y[0]);
                hr_cuda_run(k, &r.p);
                hr_case_check(&r, &s, k->name);
                if (first) memcpy(once, r.y[0], (size_t)s.n * 6 * sizeof *once);
                hr_cuda_assert_bytes(r.y[0], once, (size_t)s.n * 6 * sizeof *once, k->name);
                first = false;
            }
            hr_cuda_free(once);
            hr_case_free_case(&r);
            break;
        }
    }
}

/* Every type of weights with every type of activations has a row for any number of tokens. */
static void test_every_pair_has_a_row(void **state) {
    (void)state;
    static const uint32_t counts[] = {1, 2, 5, 8, 9, 16, 100, 4096};
    for (int t = 0; t < HR_DTYPE_COUNT; t++)
        for (int act = 0; act < HR_ACT_COUNT; act++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                const hr_kernel *k = hr_kernel_choose(&(hr_kernel_query){
                    .family = HR_FAM_MATMUL, .dtype = (hr_dtype)t, .act = (hr_act)act, .n = counts[i], .cuda = true});
                if (!k)
                    fail_msg("no row for %s with activations of %s and %u tokens", hr_dtypes[t].name,
                             hr_act_name((hr_act)act), counts[i]);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_has_a_row),
        cmocka_unit_test(test_gemv),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests_name("cuda_matmul", tests, NULL, NULL);
}
