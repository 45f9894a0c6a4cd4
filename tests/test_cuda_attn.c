/* Attention for GPUs: every row of the table against double precision, over layouts, types, windows, what is gone, soft cap, batches of
 * unlike lengths. */
#include "tests/cuda_attn_fixture.h"

static unsigned cases_run;

/* Every row that takes the case (those of `only`, where given): in all modes, or in one that changes from case to case. */
static void check(attn_case c, const char *only, bool all_modes) {
    attn_setup s = attn_prepare(c);
    const hr_kernel *row;
    unsigned ran = 0;
    for (size_t i = 0; (row = hr_cuda_kernel_at(i)); i++) {
        if (!attn_takes(row, &s.c) || (only && !strstr(row->name, only))) continue;
        ran++;
        if (!all_modes) {
            hr_cuda_mode_now = hr_shim_modes[cases_run++ % hr_shim_n_modes];
            hr_shim_set_mode(&hr_cuda_mode_now);
            attn_run(&s, row), attn_check(&s, row);
            continue;
        }
        for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) attn_run(&s, row), attn_check(&s, row);
    }
    if (!ran) fail_msg("no row takes the case");
    attn_free(&s);
}

static const hr_dtype TYPES[] = {HR_F32, HR_F16, HR_BF16, HR_Q8_0, HR_I8ROW, HR_Q4_0, HR_I4KC};
enum { N_TYPES = sizeof TYPES / sizeof *TYPES };

/* Every layout with every type of K, V of another one; more than one tile a warp and a block, the last one not full. */
static void decode_layouts_and_types(void **state) {
    (void)state;
    for (unsigned l = 0; l < HR_KV_LAYOUT_COUNT; l++)
        for (unsigned t = 0; t < N_TYPES; t++) {
            if (hr_test_quick() && (l + t) % 3) continue;
            check((attn_case){.layout = (hr_kv_layout)l,
                              .k = TYPES[t],
                              .v = TYPES[(t + l) % N_TYPES],
                              .heads = 4,
                              .kv_heads = 2,
                              .dim = 64,
                              .pos0 = {150 + l},
                              .n_q = 1},
                  NULL, false);
        }
}

static void prefill_layouts_and_types(void **state) {
    (void)state;
    for (unsigned l = 0; l < HR_KV_LAYOUT_COUNT; l++)
        for (unsigned t = 0; t < N_TYPES; t++) {
            if ((l + t) % (hr_test_quick() ? 6 : 2)) continue;
            check((attn_case){.layout = (hr_kv_layout)l,
                              .k = TYPES[t],
                              .v = TYPES[(t + l / 2) % N_TYPES],
                              .heads = 4,
                              .kv_heads = 2,
                              .dim = 64,
                              .pos0 = {61 + l},
                              .n_q = 37},
                  "flash", false);
        }
}

/* The types of a benchmark, in all modes. */
static void decode_modes(void **state) {
    (void)state;
    const attn_case base = {.layout = HR_KV_PAGED, .heads = 4, .kv_heads = 1, .dim = 64, .pos0 = {300}, .n_q = 1};
    const hr_dtype types[] = {HR_BF16, HR_I4KC, HR_Q8_0};
    for (unsigned i = 0; i < 3; i++) {
        attn_case c = base;
        c.k = c.v = types[i];
        check(c, "decode_cuda", true);
    }
}
static void prefill_modes(void **state) {
    (void)state;
    attn_case c = {.layout = HR_KV_PAGED,
                   .k = HR_BF16,
                   .v = HR_BF16,
                   .heads = 2,
                   .kv_heads = 1,
                   .dim = 64,
                   .pos0 = {70},
                   .n_q = 45};
    check(c, "flash", true);
    c.k = HR_I4KC, c.v = HR_I8ROW;
    check(c, "flash_64", true);
    c = (attn_case){
        .layout = HR_KV_TOKEN, .k = HR_F16, .v = HR_F16, .heads = 2, .kv_heads = 1, .dim = 64, .pos0 = {70}, .n_q = 3};
    check(c, "naive", true);
}

/* Sizes of heads and of groups, of which some leave lanes, columns or warps without work. */
static void shapes(void **state) {
    (void)state;
    static const struct {
        uint32_t heads, kv_heads, dim;
    } s[] = {{1, 1, 8},   {3, 1, 24}, {7, 1, 80},  {6, 2, 96}, {8, 1, 128},
             {10, 1, 40}, {5, 5, 64}, {2, 1, 256}, {2, 2, 192}};
    for (unsigned i = 0; i < sizeof s / sizeof *s; i++) {
        if (hr_test_quick() && i % 2) continue;
        const hr_dtype k = i % 2 ? HR_F16 : HR_BF16;
        attn_case c = {.layout = HR_KV_BLOCK,
                       .k = k,
                       .v = HR_BF16,
                       .heads = s[i].heads,
                       .kv_heads = s[i].kv_heads,
                       .dim = s[i].dim,
                       .pos0 = {90 + i},
                       .n_q = 1};
        check(c, NULL, false);
        c.n_q = 1 + 70 / (c.heads / c.kv_heads), c.act = 1 + (i % 2 ? HR_ACT_BF16 : HR_ACT_F32);
        check(c, "flash", false);
        if (i < 4) c.k = c.v = HR_F32, check(c, "flash", false);
    }
}

static void splits(void **state) {
    (void)state;
    attn_case c = {.layout = HR_KV_ZORDER,
                   .k = HR_BF16,
                   .v = HR_Q4_0,
                   .heads = 2,
                   .kv_heads = 1,
                   .dim = 64,
                   .pos0 = {700},
                   .n_q = 1};
    check(c, "decode", false);
    c.act = 1 + HR_ACT_BF16, c.window = 300;
    check(c, "decode", false);
    c.act = 1 + HR_ACT_F32, c.window = 0, c.gone_from = 32, c.gone_to = 640;
    check(c, "decode", false);
}

/* Batches whose sequences are long, short, and of one position. */
static void batches(void **state) {
    (void)state;
    attn_case c = {.layout = HR_KV_PAGED_NHD,
                   .k = HR_BF16,
                   .v = HR_BF16,
                   .heads = 6,
                   .kv_heads = 2,
                   .dim = 64,
                   .n_segments = 4,
                   .pos0 = {520, 0, 33, 127},
                   .n_q = 1};
    check(c, NULL, false);
    c.k = HR_I4KC, c.v = HR_I4KC, c.act = 1 + HR_ACT_BF16;
    check(c, "decode", false);
}

static void windows_and_holes(void **state) {
    (void)state;
    static const struct {
        uint32_t window, gone_from, gone_to;
        float softcap;
    } s[] = {{50, 0, 0, 0},    {1, 0, 0, 0},        {0, 4, 130, 0}, {0, 0, 64, 2},
             {100, 60, 75, 0}, {0, 100, 101, 0.5f}, {0, 3, 149, 0}};
    for (unsigned i = 0; i < sizeof s / sizeof *s; i++)
        for (unsigned prefill = 0; prefill < 2; prefill++) {
            if (hr_test_quick() && (i + prefill) % 2) continue;
            attn_case c = {.layout = s[i].gone_to ? HR_KV_PAGED : HR_KV_HEAD,
                           .k = HR_BF16,
                           .v = i % 3 ? HR_BF16 : HR_Q8_0,
                           .heads = 3,
                           .kv_heads = 1,
                           .dim = 64,
                           .pos0 = {150},
                           .n_q = prefill ? 40 : 1,
                           .window = s[i].window,
                           .gone_from = s[i].gone_from,
                           .gone_to = s[i].gone_to,
                           .softcap = s[i].softcap,
                           .page_size = 8};
            check(c, NULL, false);
            if (i != 0 && i != 2 && i != 3) continue;
            c.k = HR_I4KC, c.gone_from = (c.gone_from + 31) / 32 * 32, c.gone_to = c.gone_to / 32 * 32;
            check(c, NULL, false);
        }
}

/* Layouts give the same bits: everything goes by position. */
static void same_bits(void **state) {
    (void)state;
    for (uint32_t n_q = 1; n_q <= 34; n_q += 33) {
        float *first = NULL;
        const attn_case base = {
            .k = HR_Q8_0, .v = HR_BF16, .heads = 2, .kv_heads = 1, .dim = 64, .pos0 = {200}, .n_q = n_q};
        const hr_kernel_query query = {
            .family = HR_FAM_ATTN, .dtype = base.k, .dtype2 = base.v, .n = n_q, .flash = true, .cuda = true};
        const hr_kernel *row = hr_kernel_choose(&query);
        assert_non_null(row);
        for (unsigned l = 0; l < HR_KV_LAYOUT_COUNT; l += 2) {
            attn_case c = base;
            c.layout = (hr_kv_layout)l, c.page_size = l == HR_KV_PAGED ? 4 : 32;
            attn_setup s = attn_prepare(c);
            attn_run(&s, row);
            if (first) hr_cuda_assert_bytes(s.got, first, n_q * 128 * sizeof *first, row->name);
            if (!first) {
                first = hr_malloc(n_q * 128 * sizeof *first);
                assert_non_null(first);
                memcpy(first, s.got, n_q * 128 * sizeof *first);
            }
            attn_free(&s);
        }
        hr_free(first);
    }
}

/* The work of a call does not depend on who does it. */
static void work(void **state) {
    (void)state;
    attn_setup s = attn_prepare((attn_case){.layout = HR_KV_HEAD,
                                            .k = HR_I4KC,
                                            .v = HR_Q8_0,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .dim = 64,
                                            .pos0 = {100},
                                            .n_q = 5,
                                            .gone_from = 32,
                                            .gone_to = 64});
    const hr_attn a = {.kv = &s.batch.segments[0].kv,
                       .layer = 1,
                       .n_heads = 4,
                       .n_kv_heads = 2,
                       .head_dim = 64,
                       .n_q = 5,
                       .pos0 = 100};
    const hr_kernel *cpu = fix_kernel_of(HR_FAM_ATTN, HR_ISA_GENERIC, true), *row;
    const hr_work want = hr_work_attn(cpu, &a);
    for (size_t i = 0; (row = hr_cuda_kernel_at(i)); i++) {
        if (row->family != HR_FAM_ATTN) continue;
        const hr_work got = hr_work_attn(row, &a);
        assert_true(got.bytes == want.bytes && got.flops == want.flops && got.unit == row->unit);
    }
    attn_free(&s);
}

/* Every pair of types has a row for decode, prefill and without flash; caches of f32 never one on the bf16 unit. */
static void every_case_has_a_row(void **state) {
    (void)state;
    for (unsigned k = 0; k < N_TYPES; k++)
        for (unsigned v = 0; v < N_TYPES; v++)
            for (unsigned i = 0; i < 6; i++) {
                const hr_kernel_query q = {.family = HR_FAM_ATTN,
                                           .dtype = TYPES[k],
                                           .dtype2 = TYPES[v],
                                           .n = i % 3 == 2 ? 2048 : 1 + i % 3,
                                           .flash = i < 3,
                                           .cuda = true};
                const hr_kernel *row = hr_kernel_choose(&q);
                assert_non_null(row);
                if (TYPES[k] == HR_F32 || TYPES[v] == HR_F32) assert_int_equal(row->unit, HR_UNIT_FP32);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_has_a_row),
        cmocka_unit_test(work),
        cmocka_unit_test(decode_layouts_and_types),
        cmocka_unit_test(prefill_layouts_and_types),
        cmocka_unit_test(decode_modes),
        cmocka_unit_test(prefill_modes),
        cmocka_unit_test(shapes),
        cmocka_unit_test(splits),
        cmocka_unit_test(batches),
        cmocka_unit_test(windows_and_holes),
        cmocka_unit_test(same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
