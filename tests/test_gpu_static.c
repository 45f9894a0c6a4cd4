/* test_gpu_static.c - what the compiler made of the kernels for GPUs: registers and memory against a committed table, instructions that must be
 * there, occupancy by NVIDIA's rules. `test_gpu_static --write FILE` writes the table (make cuda-resources). */
#include "kernels/cuda/image.h"
#include "kernels/cuda/occupancy.h"
#include "kernels/predict.h"
#include "tests/hr_test.h"

static const char golden[] = "tests/golden/cuda_resources.tsv";

/* ---- all kernels of all images ---- */

enum { MOST = 2048 };
typedef struct kept {
    hr_cuda_kernel_image k;
    const hr_cuda_image *image;
} kept;
static kept kernels[MOST];
static size_t n_kernels;
static const hr_cuda_image *image_now;

static hr_status keep(const hr_cuda_kernel_image *k, void *context) {
    (void)context;
    if (n_kernels == MOST) HR_FAIL(HR_ERR_INTERNAL, "more than %d kernels; raise MOST", MOST);
    kernels[n_kernels++] = (kept){*k, image_now};
    return HR_OK;
}

static int by_symbol(const void *a, const void *b) {
    const kept *x = a, *y = b;
    const int c = strcmp(x->k.symbol, y->k.symbol);
    return c ? c : (x->k.arch > y->k.arch) - (x->k.arch < y->k.arch);
}

static int read_images(void **state) {
    (void)state;
    for (image_now = hr_cuda_images; image_now->name; image_now++)
        if (hr_cuda_image_walk(image_now, 0, keep, NULL) != HR_OK) {
            print_error("%s\n", hr_error());
            return 1;
        }
    qsort(kernels, n_kernels, sizeof *kernels, by_symbol);
    return 0;
}

static const kept *find(const char *symbol, uint32_t arch) {
    kept key = {.k.arch = arch};
    snprintf(key.k.symbol, sizeof key.k.symbol, "%s", symbol);
    return bsearch(&key, kernels, n_kernels, sizeof *kernels, by_symbol);
}

static const uint32_t archs[] = {80, 90, 100};
enum { ARCHS = sizeof archs / sizeof *archs };

/* Whether the image that holds a symbol was built for an architecture (CUDA_ARCHS may leave some out). */
static bool is_built(const char *symbol, uint32_t arch) {
    for (size_t a = 0; a < ARCHS; a++) {
        const kept *any = find(symbol, archs[a]);
        if (any) return hr_cuda_image_arch(any->image, arch / 10, arch % 10) == arch;
    }
    return true; /* nowhere: it is missed */
}

/* ---- the table ---- */

static void write_table(FILE *to) {
    fprintf(to, "symbol\tsm\tregisters\tstack\tshared\tthreads\n");
    for (size_t i = 0; i < n_kernels; i++) {
        const hr_cuda_kernel_image *k = &kernels[i].k;
        fprintf(to, "%s\t%u\t%u\t%u\t%u\t%u\n", k->symbol, k->arch, k->registers, k->stack, k->shared, k->threads);
    }
}

/* Registers may differ by 8, the unit in which a warp gets them: another patch of the same toolkit allocates a little differently. */
enum { REGISTERS_EITHER_WAY = 8 };

static void test_resources_are_those_of_the_table(void **state) {
    (void)state;
    FILE *f = fopen(golden, "r");
    if (!f) fail_msg("%s cannot be opened; run from the repository's root, or make cuda-resources", golden);
    char line[256];
    bool seen[MOST] = {false};
    unsigned bad = 0, number = 0, left_out = 0;
    while (fgets(line, sizeof line, f)) {
        hr_cuda_kernel_image want = {.arch = 0};
        if (number++ == 0) continue;
        if (sscanf(line, "%63s %u %u %u %u %u", want.symbol, &want.arch, &want.registers, &want.stack, &want.shared,
                   &want.threads) != 6)
            fail_msg("%s: line %u has not six columns", golden, number);
        if (!is_built(want.symbol, want.arch)) {
            left_out++;
            continue;
        }
        const kept *found = find(want.symbol, want.arch);
        const hr_cuda_kernel_image *k = found ? &found->k : NULL;
        if (!k) {
            print_error("%s of sm_%u is in the table and not in the program\n", want.symbol, want.arch);
            bad++;
            continue;
        }
        seen[found - kernels] = true;
        if (abs((int)k->registers - (int)want.registers) <= REGISTERS_EITHER_WAY && k->stack == want.stack &&
            k->shared == want.shared && k->threads == want.threads)
            continue;
        print_error(
            "%s of sm_%u: expected %u registers (%d either way), %u bytes of stack, %u shared, %u threads; got %u, "
            "%u, %u, %u\n",
            want.symbol, want.arch, want.registers, REGISTERS_EITHER_WAY, want.stack, want.shared, want.threads,
            k->registers, k->stack, k->shared, k->threads);
        bad++;
    }
    fclose(f);
    if (left_out) print_message("not looked at: %u kernels of architectures that this build leaves out\n", left_out);
    for (size_t i = 0; i < n_kernels; i++)
        if (!seen[i]) {
            print_error("%s of sm_%u is in the program and not in the table\n", kernels[i].k.symbol, kernels[i].k.arch);
            bad++;
        }
    if (bad) fail_msg("%u differences from %s; where they are meant: make cuda-resources", bad, golden);
}

/* ---- rows and instructions ---- */

static void test_every_row_has_its_kernel(void **state) {
    (void)state;
    const hr_kernel *row;
    unsigned left_out = 0;
    for (size_t i = 0; (row = hr_cuda_kernel_at(i)) != NULL; i++) {
        const char *symbol = row->fn.cuda.symbol;
        for (size_t a = 0; a < ARCHS; a++) {
            const bool built = is_built(symbol, archs[a]);
            left_out += !built;
            if (built && !find(symbol, archs[a]))
                fail_msg("row %s: no image for sm_%u has its symbol %s", row->name, archs[a], symbol);
        }
    }
    if (left_out) print_message("not looked at: %u rows on architectures that this build leaves out\n", left_out);
}

static void test_one_kernel_by_name(void **state) {
    (void)state;
    hr_cuda_kernel_image k;
    const hr_cuda_kernel_image *first = &kernels[0].k;
    assert_true(hr_cuda_image_find(first->symbol, first->arch / 10, first->arch % 10, &k));
    assert_string_equal(k.symbol, first->symbol);
    assert_int_equal(k.registers, first->registers);
    assert_false(hr_cuda_image_find("no_such_kernel", 9, 0, &k));
    assert_false(hr_cuda_image_find(first->symbol, 7, 5, &k)); /* nothing is built for it */
    static const uint8_t nothing[64];
    assert_int_equal(hr_cuda_image_walk(&(hr_cuda_image){"nothing", nothing}, 0, keep, NULL), HR_ERR_INPUT);
}

/* What kernels whose name begins so must have: without it they would be slow and still right. */
static const struct {
    const char *begin;
    uint32_t loads16, copies, fragments, mma;
    bool dots; /* where the name says int8 */
} needs[] = {
    {"gemv_f32_", 4, 0, 0, 0, false},
    {"gemv_f16_", 4, 0, 0, 0, false},
    {"gemv_bf16_", 4, 0, 0, 0, false},
    {"gemv_i8_", 4, 0, 0, 0, true},
    {"gemv_i4_", 4, 0, 0, 0, true},
    {"gemv_block_", 0, 2, 0, 0, true},
    {"hr_attn_flash_64", 0, 4, 16, 64, false},
    {"hr_attn_flash_128", 0, 4, 16, 64, false},
    {"hr_attn_decode", 0, 4, 0, 0, false},
    {"gemm_bf16_i", 2, 2, 8, 16, false},
    {"gemm_bf16_", 0, 2, 8, 16, false},
    {"gemm_int8_", 0, 2, 3, 4, false},
    {"gemm_f32_", 4, 0, 0, 0, false},
};

static void test_instructions(void **state) {
    (void)state;
    unsigned bad = 0;
    for (size_t i = 0; i < n_kernels; i++) {
        const hr_cuda_kernel_image *k = &kernels[i].k;
        for (size_t j = 0; j < sizeof needs / sizeof *needs; j++) {
            if (strncmp(k->symbol, needs[j].begin, strlen(needs[j].begin)) != 0) continue;
            const bool dots = needs[j].dots && strstr(k->symbol, "_int8_");
            if (k->loads16 >= needs[j].loads16 && k->copies >= needs[j].copies && k->fragments >= needs[j].fragments &&
                k->mma >= needs[j].mma && (!dots || k->dots) && !k->local)
                continue;
            print_error(
                "%s of sm_%u: expected at least %u loads of 16 bytes, %u asynchronous copies, %u ldmatrix, %u mma%s "
                "and no local memory; got %u, %u, %u, %u, %u dp4a, %u\n",
                k->symbol, k->arch, needs[j].loads16, needs[j].copies, needs[j].fragments, needs[j].mma,
                dots ? ", dp4a" : "", k->loads16, k->copies, k->fragments, k->mma, k->dots, k->local);
            bad++;
        }
    }
    if (bad) fail_msg("%u kernels lack instructions that make them fast", bad);
}

/* Kernels of products keep at least this many bytes of weights under way on a multiprocessor, as a card with 4.8 TB/s and 600 ns of
 * latency needs on each of 132: 4.8e12 * 600e-9 / 132 = 22 KB; the target of the design is 32 KB. A warp of gemv.cuh has loads of
 * its rows twice under way, 16 bytes a lane. */
static void test_gemv_bytes_under_way(void **state) {
    (void)state;
    enum { TARGET = 32 << 10 };
    for (size_t i = 0; i < n_kernels; i++) {
        const hr_cuda_kernel_image *k = &kernels[i].k;
        const size_t n = strlen(k->symbol);
        if (strncmp(k->symbol, "gemv_", 5) != 0 || strncmp(k->symbol, "gemv_block", 10) == 0) continue;
        hr_sm_limits sm;
        assert_true(hr_sm_limits_of(k->arch / 10, k->arch % 10, &sm));
        const hr_occupancy o = hr_occupancy_of(&sm, k->threads, k->registers, k->shared);
        const bool one = k->symbol[n - 1] == '1', small = strncmp(k->symbol, "gemv_i", 6) == 0 && !one;
        const uint32_t rows = small ? 2 : 4, bytes = o.warps * 32 * 16 * rows * 2;
        const uint32_t target = k->symbol[n - 1] == '8' ? TARGET / 2 : TARGET; /* eight tokens: bound by arithmetic */
        if (bytes < target)
            fail_msg("%s of sm_%u: %u warps keep %u bytes under way, fewer than %u", k->symbol, k->arch, o.warps, bytes,
                     target);
    }
}

/* ---- occupancy: values of NVIDIA's calculator ---- */

static void test_occupancy(void **state) {
    (void)state;
    static const struct {
        uint32_t major, minor, threads, registers, shared, blocks, warps;
        hr_occupancy_bound bound;
    } cases[] = {
        {8, 0, 256, 32, 0, 8, 64, HR_OCCUPANCY_WARPS},          {8, 0, 256, 33, 0, 6, 48, HR_OCCUPANCY_REGISTERS},
        {8, 0, 256, 64, 0, 4, 32, HR_OCCUPANCY_REGISTERS},      {8, 0, 256, 128, 0, 2, 16, HR_OCCUPANCY_REGISTERS},
        {8, 0, 128, 255, 0, 2, 8, HR_OCCUPANCY_REGISTERS},      {8, 0, 1024, 40, 0, 1, 32, HR_OCCUPANCY_REGISTERS},
        {8, 0, 32, 16, 0, 32, 32, HR_OCCUPANCY_BLOCKS},         {8, 6, 32, 16, 0, 16, 16, HR_OCCUPANCY_BLOCKS},
        {8, 6, 256, 32, 0, 6, 48, HR_OCCUPANCY_WARPS},          {8, 9, 128, 32, 49152, 2, 8, HR_OCCUPANCY_SHARED},
        {8, 0, 256, 32, 98304, 1, 8, HR_OCCUPANCY_SHARED},      {9, 0, 256, 32, 98304, 2, 16, HR_OCCUPANCY_SHARED},
        {9, 0, 128, 168, 49152, 3, 12, HR_OCCUPANCY_REGISTERS}, {9, 0, 128, 32, 232448, 1, 4, HR_OCCUPANCY_SHARED},
        {9, 0, 128, 32, 232449, 0, 0, HR_OCCUPANCY_NONE},       {10, 0, 96, 72, 0, 9, 27, HR_OCCUPANCY_REGISTERS},
        {9, 0, 1025, 32, 0, 0, 0, HR_OCCUPANCY_NONE},           {9, 0, 1024, 65, 0, 0, 0, HR_OCCUPANCY_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hr_sm_limits sm;
        assert_true(hr_sm_limits_of(cases[i].major, cases[i].minor, &sm));
        const hr_occupancy o = hr_occupancy_of(&sm, cases[i].threads, cases[i].registers, cases[i].shared);
        if (o.blocks == cases[i].blocks && o.warps == cases[i].warps && o.bound == cases[i].bound) continue;
        fail_msg("%u.%u, %u threads, %u registers, %u bytes: expected %u blocks, %u warps, bound by %s; got %u, %u, %s",
                 cases[i].major, cases[i].minor, cases[i].threads, cases[i].registers, cases[i].shared, cases[i].blocks,
                 cases[i].warps, hr_occupancy_bounds[cases[i].bound], o.blocks, o.warps, hr_occupancy_bounds[o.bound]);
    }
    hr_sm_limits sm;
    assert_false(hr_sm_limits_of(7, 0, &sm));
}

/* ---- predictions ---- */

static const hr_kernel_prediction *prediction_of(const hr_kernel_prediction *all, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].row->name, name) == 0) return &all[i];
    fail_msg("nothing is predicted of %s", name);
    return NULL;
}

static void test_predictions(void **state) {
    (void)state;
    static hr_kernel_prediction all[HR_PREDICTIONS_MOST];
    size_t n = 0;
    const hr_gpu_sheet *h200 = hr_gpu_sheet_find("h200");
    assert_non_null(h200);
    assert_int_equal(hr_kernels_predict(h200, all, HR_PREDICTIONS_MOST, &n), HR_OK);
    assert_null(hr_cuda_kernel_at(n));

    const hr_kernel_prediction *gemv = prediction_of(all, n, "gemv_bf16_bf16_1_cuda");
    assert_int_equal(gemv->bytes, 2ull * HR_PREDICT_ROWS * HR_PREDICT_COLS);
    assert_int_equal(gemv->flops, 2ull * HR_PREDICT_ROWS * HR_PREDICT_COLS);
    assert_float_equal(gemv->roof_us, 2.0 * 14336 * 4096 / 4800e9 * 1e6, 1e-9); /* 24.5 us: memory alone */
    assert_false(gemv->compute_bound);
    hr_sm_limits sm;
    assert_true(hr_sm_limits_of(9, 0, &sm));
    const hr_occupancy o = hr_occupancy_of(&sm, 256, gemv->registers, gemv->shared);
    assert_int_equal(gemv->blocks, o.blocks);
    const double blocks = (double)gemv->shape.grid[0] * gemv->shape.grid[1] * gemv->shape.grid[2];
    assert_float_equal(gemv->waves, blocks / (o.blocks * 132.0), 1e-9);

    const hr_kernel_prediction *gemm = prediction_of(all, n, "gemm_bf16_128x128_cuda");
    assert_int_equal(gemm->n, 512);
    assert_true(gemm->compute_bound);
    assert_float_equal(gemm->roof_us, 2.0 * 14336 * 4096 * 512 / 989e12 * 1e6, 1e-9);
    const hr_kernel_prediction *decode = prediction_of(all, n, "attn_decode_cuda");
    assert_int_equal(decode->bytes, 2ull * 8 * 128 * 2 * HR_PREDICT_DEPTH); /* K and V, 8 heads, bf16 */
    for (size_t i = 0; i < n; i++)
        if (all[i].blocks == 0)
            fail_msg("%s does not fit on a multiprocessor of an H200: %u registers, %u bytes of shared memory",
                     all[i].row->name, all[i].registers, all[i].shared);
}

static void test_sheets(void **state) {
    (void)state;
    assert_string_equal(hr_gpu_sheet_find("NVIDIA H200")->name, "h200");
    assert_string_equal(hr_gpu_sheet_find("NVIDIA A100-SXM4-80GB")->name, "a100");
    assert_string_equal(hr_gpu_sheet_find("NVIDIA H100 80GB HBM3")->name, "h100");
    assert_null(hr_gpu_sheet_find("NVIDIA H2000"));
    assert_null(hr_gpu_sheet_find("Tesla V100"));
    for (size_t i = 0; hr_gpu_sheet_at(i); i++) {
        const hr_gpu_sheet *s = hr_gpu_sheet_at(i);
        hr_sm_limits sm;
        assert_ptr_equal(hr_gpu_sheet_find(s->name), s);
        assert_ptr_equal(hr_gpu_sheet_find(s->title), s);
        assert_true(hr_sm_limits_of(s->major, s->minor, &sm));
        assert_int_equal(sm.shared_block, s->smem_optin);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_occupancy),
        cmocka_unit_test(test_every_row_has_its_kernel),
        cmocka_unit_test(test_one_kernel_by_name),
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_gemv_bytes_under_way),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_sheets),
        cmocka_unit_test(test_resources_are_those_of_the_table),
    };
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        FILE *to = read_images(NULL) ? NULL : fopen(argv[2], "w");
        if (!to) return 1;
        write_table(to);
        return fclose(to) != 0;
    }
    return cmocka_run_group_tests_name("gpu_static", tests, read_images, NULL);
}
