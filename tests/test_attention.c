/* Attention of every ISA against a double-precision reference that reads the rows back through hr_kv_run. */
#include "tests/hr_test.h"

#include "kernels/cpu/attn_plan.h"
#include "tests/kv_fixture.h"

/* Element d of a row of the cache in its type, as written down in dtype.h. */
static double element(hr_dtype t, const uint8_t *row, const uint8_t *scales, size_t d) {
    uint16_t h;
    float f;
    switch (t) {
    case HR_F32:
        memcpy(&f, row + 4 * d, 4);
        return f;
    case HR_F16:
    case HR_BF16:
        memcpy(&h, row + 2 * d, 2);
        return t == HR_F16 ? hr_f16_to_f32(h) : hr_bf16_to_f32(h);
    case HR_Q8_0:
        memcpy(&h, scales + d / 32 * 2, 2);
        return (double)((const int8_t *)row)[d] * hr_f16_to_f32(h);
    case HR_I8ROW:
        memcpy(&h, scales, 2);
        return (double)((const int8_t *)row)[d] * hr_f16_to_f32(h);
    default:
        memcpy(&h, scales + d / 32 * 2, 2);
        return (double)((row[d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8) * hr_f16_to_f32(h);
    }
}

/* Element d of K of a position, which may lie in the open group. */
static double key(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos, uint32_t d) {
    const hr_kv_geom *g = s->g;
    const hr_kv_rows r = hr_kv_run(s, layer, head, pos);
    if (g->type[0] != HR_I4KC) return element(g->type[0], r.at[HR_KV_K], r.at[HR_KV_KS], d);
    if (pos >= s->len / 32 * 32) return hr_bf16_to_f32(hr_kv_open_row(s, layer, head, pos)[d]);
    /* the scales of a group, 2 D of them, lie on its positions, 2 D / 32 on each */
    uint16_t f[2];
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t at = d / 16 * 32 + d % 16 + 16 * i, share = 2 * g->head_dim / 32;
        memcpy(&f[i], hr_kv_run(s, layer, head, pos / 32 * 32 + at / share).at[HR_KV_KS] + at % share * 2, 2);
    }
    const int level = (r.at[HR_KV_K][d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8;
    return (double)level * hr_f16_to_f32(f[0]) + hr_f16_to_f32(f[1]);
}

static bool is_gone(const hr_kv_seq *s, uint32_t pos) {
    return pos >= s->gone_from && pos < s->gone_to;
}

static void reference(const hr_attn *a, float *out, size_t ldo) {
    const hr_kv_geom *g = a->kv->g;
    const uint32_t n = a->pos0 + a->n_q;
    double *p = hr_malloc(n * sizeof *p);
    assert_non_null(p);
    for (uint32_t i = 0; i < a->n_q; i++) {
        for (uint32_t h = 0; h < a->n_heads; h++) {
            const uint32_t kv = h / (a->n_heads / a->n_kv_heads), last = a->pos0 + i;
            const uint32_t first = a->window && last + 1 > a->window ? last + 1 - a->window : 0;
            const float *q = a->q + i * a->ldq + h * a->head_dim;
            double top = -INFINITY, sum = 0;
            for (uint32_t pos = first; pos <= last; pos++) {
                if (is_gone(a->kv, pos)) continue;
                p[pos] = 0;
                for (uint32_t d = 0; d < a->head_dim; d++) p[pos] += (double)q[d] * key(a->kv, a->layer, kv, pos, d);
                p[pos] *= (double)a->scale;
                top = fmax(top, p[pos]);
            }
            for (uint32_t pos = first; pos <= last; pos++)
                if (!is_gone(a->kv, pos)) sum += p[pos] = exp(p[pos] - top);
            for (uint32_t d = 0; d < a->head_dim; d++) {
                double y = 0;
                for (uint32_t pos = first; pos <= last; pos++) {
                    if (is_gone(a->kv, pos)) continue;
                    const hr_kv_rows r = hr_kv_run(a->kv, a->layer, kv, pos);
                    y += p[pos] * element(g->type[1], r.at[HR_KV_V], r.at[HR_KV_VS], d);
                }
                out[i * ldo + h * a->head_dim + d] = (float)(y / sum);
            }
        }
    }
    hr_free(p);
}

typedef struct shape {
    hr_kv_layout layout;
    hr_dtype k, v;
    uint32_t heads, kv_heads, dim, pos0, n_q, window;
} shape;

/* Sums of up to ~1000 fp32 products of values below 1 and exp within an ulp: 1e-5 of the largest output (about 1). */
static const double TOLERANCE = 1e-5;
/* Rows on the bf16 unit round queries, weights and, where the cache is of another type, K and V to 8 bits: relative
 * errors of 0.8e-3 each (root mean square), squared and added 1e-6 to 3e-6 of the output for average scores. Those that
 * count in a softmax are large, and so are their errors, as queries here are large on purpose: 5e-6 is measured for caches
 * of bf16, 1.1e-5 for others, up to 8e-5 over the outputs of two heads alone. A single output stays within a few
 * roundings of the largest values (1). */
static const double NMSE_BF16 = 1e-5, NMSE_TO_BF16 = 1e-4, NEAR_BF16 = 5e-2;

static void compare(const hr_kernel *k, const hr_dtype types[2], const float *got, const float *want, size_t n,
                    const char *what) {
    if (k->unit == HR_UNIT_FP32) {
        hr_assert_near(got, want, n, TOLERANCE, what);
    } else {
        hr_assert_near(got, want, n, NEAR_BF16, what);
        hr_assert_nmse(got, want, n, types[0] == HR_BF16 && types[1] == HR_BF16 ? NMSE_BF16 : NMSE_TO_BF16, what);
    }
}

/* What was evicted may hold anything, and its pages may be gone: rows become no numbers, entries of the table no pages. */
static void poison(const hr_kv_seq *s, uint32_t *table) {
    const hr_kv_geom *g = s->g;
    for (uint32_t l = 0; l < g->n_layers; l++)
        for (uint32_t h = 0; h < g->n_heads; h++)
            for (uint32_t pos = s->gone_from; pos < s->gone_to; pos++) {
                const hr_kv_rows r = hr_kv_run(s, l, h, pos);
                for (int x = 0; x < HR_KV_PLANES; x++)
                    if (r.at[x]) memset(r.at[x], 0xff, g->row_bytes[x]);
            }
    for (uint32_t i = 0; g->page_size && i * g->page_size < s->gone_to; i++)
        if (i * g->page_size >= s->gone_from && (i + 1) * g->page_size <= s->gone_to) table[i] = UINT32_MAX;
}

static void check_hole(const shape *c, uint32_t gone_from, uint32_t gone_to) {
    const uint32_t n = c->pos0 + c->n_q;
    const size_t ldk = (size_t)c->kv_heads * c->dim + 3, ldq = (size_t)c->heads * c->dim + 5;
    hr_kv_cache *cache = fix_cache((hr_kv_cache_config){.layout = c->layout,
                                                        .n_layers = 2,
                                                        .n_heads = c->kv_heads,
                                                        .head_dim = c->dim,
                                                        .k_type = c->k,
                                                        .v_type = c->v,
                                                        .page_size = hr_kv_is_paged(c->layout) ? 8 : 0,
                                                        .max_seqs = 2,
                                                        .capacity = n,
                                                        .scatter = 5});
    assert_int_equal(hr_kv_cache_reserve(cache, 1, n), HR_OK);
    float *k = fix_floats(n * ldk, 1), *v = fix_floats(n * ldk, 2), *q = fix_floats(c->n_q * ldq, 3);
    for (size_t i = 0; i < c->n_q * ldq; i++) q[i] *= 4; /* scores that differ: some weights vanish */
    float *want = fix_floats(c->n_q * ldq, 4), *got = fix_floats(c->n_q * ldq, 4);
    const hr_kv_seq *view = hr_kv_cache_view(cache, 1);
    const size_t pages = hr_kv_is_paged(c->layout) ? (n + 7) / 8 : 0;
    uint32_t *table = hr_malloc((pages + 1) * sizeof *table);
    hr_kv_seq seq = *view;
    seq.table = table, seq.gone_from = gone_from, seq.gone_to = gone_to;
    hr_attn a = {.kv = &seq,
                 .layer = 1,
                 .n_heads = c->heads,
                 .n_kv_heads = c->kv_heads,
                 .head_dim = c->dim,
                 .n_q = c->n_q,
                 .pos0 = c->pos0,
                 .window = c->window,
                 .q = q,
                 .out = got,
                 .ldq = ldq,
                 .ldo = ldq,
                 .scale = 1 / sqrtf((float)c->dim)};
    const hr_kernel *attn;
    for (size_t i = 0; (attn = fix_kernel(HR_FAM_ATTN, i)); i++) {
        if (!fix_takes(attn, c->k, c->v, c->n_q)) continue;
        const hr_kernel *append = fix_kernel_of(HR_FAM_KV_APPEND, attn->isa, false);
        if (pages) memcpy(table, view->table, pages * sizeof *table);
        append->fn.kv_append(view, 1, 0, k, ldk, v, ldk, 0, n, 0, c->kv_heads);
        if (i == 0) reference(&a, want, ldq - 5);
        poison(&seq, table);
        memset(got, 0xff, c->n_q * ldq * sizeof *got);
        fix_attend(&a, attn, fix_kernel_of(HR_FAM_ATTN_MERGE, attn->isa, false), 2);
        char what[160];
        snprintf(what, sizeof what, "%s %s K %s V %s heads %u/%u dim %u pos0 %u n_q %u window %u gone %u-%u",
                 attn->name, hr_kv_layout_name(c->layout), hr_kv_type_name(c->k), hr_kv_type_name(c->v), c->heads,
                 c->kv_heads, c->dim, c->pos0, c->n_q, c->window, gone_from, gone_to);
        for (uint32_t t = 0; t < c->n_q; t++) /* close up the rows */
            memmove(got + t * (ldq - 5), got + t * ldq, (ldq - 5) * sizeof *got);
        compare(attn, a.kv->g->type, got, want, c->n_q * (ldq - 5), what);
    }
    hr_kv_cache_destroy(cache);
    hr_free(k), hr_free(v), hr_free(q), hr_free(want), hr_free(got), hr_free(table);
}
static void check(const shape *c) {
    check_hole(c, 0, 0);
}

static const hr_dtype types[] = {HR_F32, HR_F16, HR_BF16, HR_Q8_0, HR_I8ROW, HR_Q4_0, HR_I4KC};

static void types_of_k_and_v(void **state) {
    (void)state;
    for (int k = 0; k < 7; k++)
        for (int v = 0; v < 7; v++) {
            check(&(shape){HR_KV_ZORDER, types[k], types[v], 6, 2, 64, 40, 1, 0});
            check(&(shape){HR_KV_PAGED, types[k], types[v], 6, 2, 64, 100, 45, 0});
        }
}

static void odd_shapes(void **state) {
    (void)state;
    static const uint32_t dims[] = {2, 6, 20, 34, 80, 96, 128, 144};
    static const uint32_t groups[] = {1, 2, 3, 5, 8, 9, 17, 71};
    for (int i = 0; i < 8; i++) {
        for (int t = 0; t < 3; t++) {
            check(&(shape){HR_KV_HEAD, types[t], types[(t + 1) % 3], groups[i], 1, dims[i], 130, 1, 0});
            check(&(shape){HR_KV_TOKEN, types[t], types[t], 2 * groups[7 - i], 2, dims[i], 0, 67, 0});
        }
    }
}

/* Head dimensions and groups of models, every layout in turn, odd positions, with and without a window. */
static void shapes_of_models(void **state) {
    (void)state;
    static const uint32_t dims[] = {64, 80, 96, 128, 256};
    static const hr_dtype kv[] = {HR_BF16, HR_F16, HR_Q8_0, HR_I8ROW, HR_Q4_0, HR_I4KC};
    for (uint32_t i = 0; i < 5 * 8 * 6; i += hr_test_quick() ? 7 : 1) {
        const uint32_t dim = dims[i % 5], group = i / 5 % 8 + 1, window = i % 3 == 2 ? 70 : 0;
        const hr_dtype k = dim % 32 ? HR_BF16 : kv[i / 40], v = dim % 32 || i % 2 ? k : HR_BF16;
        const hr_kv_layout layout = (hr_kv_layout)(i % HR_KV_LAYOUT_COUNT);
        check(&(shape){layout, k, v, 2 * group, 2, dim, 141 + i, 1, window});
        check(&(shape){layout, k, v, 2 * group, 2, dim, i, 23, window});
    }
    for (uint32_t group = 1; group <= 8; group++)
        check(&(shape){HR_KV_PAGED, HR_BF16, HR_BF16, group, 1, 64, 1155 + group, 1, 0});
}

static void lengths_round_the_chunk_and_the_split(void **state) {
    (void)state;
    static const uint32_t n[] = {0, 1, 3, 127, 128, 129, 511, 512, 513, 1023, 1024, 1300};
    for (int i = 0; i < 12; i++) {
        check(&(shape){HR_KV_BLOCK, HR_BF16, HR_BF16, 8, 2, 64, n[i], 1, 0});
        check(&(shape){HR_KV_BLOCK, HR_F32, HR_BF16, 9, 1, 32, n[i], 1, 0});
        check(&(shape){HR_KV_SHUFFLED, HR_BF16, HR_F32, 4, 2, 32, n[i], 3, 0});
    }
    check(&(shape){HR_KV_HEAD, HR_F32, HR_F32, 2, 1, 16, 0, 300, 0});
}

static void windows(void **state) {
    (void)state;
    static const uint32_t w[] = {1, 2, 7, 128, 200, 5000};
    for (int i = 0; i < 6; i++) {
        check(&(shape){HR_KV_HEAD, HR_F32, HR_F32, 4, 2, 32, 300, 1, w[i]});
        check(&(shape){HR_KV_PAGED, HR_BF16, HR_BF16, 4, 2, 32, 1200, 1, w[i]});
        check(&(shape){HR_KV_PAGED, HR_BF16, HR_BF16, 20, 2, 32, 900, 1, w[i]});
        check(&(shape){HR_KV_PAGED, HR_F16, HR_Q8_0, 4, 2, 32, 250, 70, w[i]});
        check(&(shape){HR_KV_PAGED, HR_I4KC, HR_I4KC, 4, 2, 64, 650, 1, w[i]});
        check(&(shape){HR_KV_ZORDER, HR_I4KC, HR_I4KC, 4, 2, 64, 250, 70, w[i]});
    }
}

/* Holes that end at, round and beyond chunks (128), splits (512), pages (8) and windows, one query and many, groups whose
 * lanes are elements and groups whose lanes are queries. */
static void evicted_positions_are_not_read(void **state) {
    (void)state;
    static const uint32_t hole[][2] = {{0, 1},     {0, 128},     {4, 128},   {127, 129},  {130, 140},
                                       {128, 256}, {4, 600},     {100, 513}, {512, 1024}, {513, 1024},
                                       {4, 1199},  {1100, 1200}, {511, 512}, {0, 1200},   {640, 900}};
    static const hr_dtype kv[][2] = {{HR_BF16, HR_BF16}, {HR_F32, HR_F32}, {HR_Q8_0, HR_BF16}, {HR_F16, HR_Q4_0}};
    for (uint32_t i = 0; i < sizeof hole / sizeof *hole; i++) {
        const uint32_t from = hole[i][0], to = hole[i][1];
        const hr_dtype k = kv[i % 4][0], v = kv[i % 4][1];
        const hr_kv_layout layout = (hr_kv_layout)(i % HR_KV_LAYOUT_COUNT);
        check_hole(&(shape){layout, k, v, 8, 2, 64, 1200, 1, 0}, from, to);
        if (from / 32 < to / 32) { /* its groups go as a whole */
            const uint32_t a = from / 32 * 32, b = to / 32 * 32;
            check_hole(&(shape){layout, HR_I4KC, HR_I4KC, 8, 2, 64, 1200, 1, 0}, a, b);
            check_hole(&(shape){HR_KV_PAGED, HR_I4KC, HR_BF16, 6, 2, 64, b, 70, 0}, a, b);
        }
        check_hole(&(shape){HR_KV_PAGED, k, v, 3, 3, 32, 1290, 1, 250}, from, to);
        check_hole(&(shape){HR_KV_PAGED, HR_BF16, HR_BF16, 9, 1, 64, 1200, 1, 0}, from, to);
        check_hole(&(shape){layout, k, v, 6, 2, 64, to, 70, i % 2 ? 300 : 0}, from, to);
        check_hole(&(shape){HR_KV_PAGED, HR_BF16, HR_BF16, 6, 2, 64, to, 1, 0}, from, to);
    }
}

/* Only what is read counts. */
static void work_leaves_out_what_is_gone(void **state) {
    (void)state;
    hr_kv_geom g;
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 2, 64, HR_BF16, HR_BF16, 2000, 0), HR_OK);
    hr_kv_seq s = {.g = &g, .len = 2000};
    hr_attn a = {.kv = &s, .n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .n_q = 1, .pos0 = 1999};
    const hr_kernel *k = fix_kernel(HR_FAM_ATTN, 0);
    static const struct {
        uint32_t from, to, window, n_q;
        uint64_t rows, pairs;
    } want[] = {{0, 0, 0, 1, 2000, 2000},      {4, 1000, 0, 1, 1004, 1004}, {4, 1000, 1500, 1, 1000, 1000},
                {4, 1000, 100, 1, 100, 100},   {0, 1000, 0, 2, 1000, 1999}, {10, 20, 0, 3, 1990, 3 * 1989},
                {1900, 1950, 200, 1, 150, 150}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        s.gone_from = want[i].from, s.gone_to = want[i].to, a.window = want[i].window;
        a.n_q = want[i].n_q, a.pos0 = 2000 - a.n_q;
        const hr_work w = hr_work_attn(k, &a);
        if (w.bytes != want[i].rows * 2 * 256 || w.flops != want[i].pairs * 4 * 8 * 64)
            fail_msg("hole %u-%u window %u: expected %llu rows and %llu pairs, got %llu bytes and %llu flops",
                     s.gone_from, s.gone_to, a.window, (unsigned long long)want[i].rows,
                     (unsigned long long)want[i].pairs, (unsigned long long)w.bytes, (unsigned long long)w.flops);
    }
}

/* A value that a query does not see may be no number, also when it lies in the same tile of positions. */
static void what_is_not_seen_does_not_leak(void **state) {
    (void)state;
    const hr_kernel *attn;
    for (size_t i = 0; (attn = fix_kernel(HR_FAM_ATTN, i)); i++) {
        if (attn->n_max == 1) continue;
        const hr_dtype type = fix_takes(attn, HR_F32, HR_F32, 10) ? HR_F32 : HR_BF16;
        hr_kv_cache *cache = fix_cache((hr_kv_cache_config){.layout = HR_KV_HEAD,
                                                            .n_layers = 1,
                                                            .n_heads = 1,
                                                            .head_dim = 32,
                                                            .k_type = type,
                                                            .v_type = type,
                                                            .max_seqs = 1,
                                                            .capacity = 64});
        float *kv = fix_floats(64 * 32, 1), *q = fix_floats(10 * 32, 2), *out = fix_floats(10 * 32, 3);
        for (int d = 0; d < 32; d++) kv[6 * 32 + d] = NAN;
        const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
        fix_kernel_of(HR_FAM_KV_APPEND, attn->isa, false)->fn.kv_append(s, 0, 0, kv, 32, kv, 32, 0, 10, 0, 1);
        hr_attn a = {.kv = s,
                     .n_heads = 1,
                     .n_kv_heads = 1,
                     .head_dim = 32,
                     .n_q = 10,
                     .q = q,
                     .out = out,
                     .ldq = 32,
                     .ldo = 32,
                     .scale = .2f};
        fix_attend(&a, attn, NULL, 1);
        for (int t = 0; t < 10; t++)
            for (int d = 0; d < 32; d++)
                if (isnan(out[t * 32 + d]) != (t >= 6))
                    fail_msg("%s: query %d element %d is %g, position 6 holds no numbers", attn->name, t, d,
                             (double)out[t * 32 + d]);
        hr_kv_cache_destroy(cache);
        hr_free(kv), hr_free(q), hr_free(out);
    }
}

/* Decode through the run function and the kernel that looks nothing up do the same sums in the same order, whatever the layout
 * and the length of its runs. */
static void contiguous_decode_has_the_same_bits(void **state) {
    (void)state;
    const hr_kernel *decode = NULL, *contig = NULL, *k;
    for (size_t i = 0; (k = fix_kernel(HR_FAM_ATTN, i)); i++) {
        if (!strcmp(k->name, "attn_decode_bf16_avx512")) decode = k;
        if (!strcmp(k->name, "attn_contig_bf16_avx512")) contig = k;
    }
    if (!decode || !contig) hr_skip("this CPU has no AVX-512 with BF16");
    enum { HEADS = 3, GROUP = 4, N = 777 };
    static const uint32_t pages[] = {1, 2, 4, 16, 256};
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t dim = i % 2 ? 128 : 64, ld = HEADS * dim, ldq = GROUP * ld;
        float *kv = fix_floats((size_t)N * ld, 1), *q = fix_floats(ldq, 2), *want = fix_floats(ldq, 3),
              *got = fix_floats(ldq, 3);
        for (uint32_t layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
            for (uint32_t p = 0; p < (hr_kv_is_paged((hr_kv_layout)layout) ? 5 : 1); p++) {
                hr_kv_cache *cache =
                    fix_cache((hr_kv_cache_config){.layout = (hr_kv_layout)layout,
                                                   .alloc = hr_kv_alloc_default((hr_kv_layout)layout),
                                                   .n_layers = 1,
                                                   .n_heads = HEADS,
                                                   .head_dim = dim,
                                                   .k_type = i < 2 ? HR_BF16 : HR_Q8_0,
                                                   .v_type = i < 3 ? HR_BF16 : HR_Q8_0,
                                                   .page_size = hr_kv_is_paged((hr_kv_layout)layout) ? pages[p] : 0,
                                                   .max_seqs = 1,
                                                   .capacity = N,
                                                   .scatter = 3});
                assert_int_equal(hr_kv_cache_reserve(cache, 0, N), HR_OK);
                const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
                fix_kernel_of(HR_FAM_KV_APPEND, HR_ISA_GENERIC, false)
                    ->fn.kv_append(s, 0, 0, kv, ld, kv, ld, 0, N, 0, HEADS);
                hr_attn a = {.kv = s,
                             .n_heads = HEADS * GROUP,
                             .n_kv_heads = HEADS,
                             .head_dim = dim,
                             .n_q = 1,
                             .pos0 = N - 1,
                             .q = q,
                             .out = layout ? got : want,
                             .ldq = ldq,
                             .ldo = ldq,
                             .scale = .2f};
                const hr_kernel *merge = fix_kernel_of(HR_FAM_ATTN_MERGE, HR_ISA_AVX512, false);
                fix_attend(&a, layout ? decode : contig, merge, 2);
                a.out = got;
                if (!layout) fix_attend(&a, decode, merge, 1);
                if (memcmp(got, want, ldq * sizeof *got))
                    fail_msg("%s, page %u, dim %u, K %s: other bits than %s", hr_kv_layout_name((hr_kv_layout)layout),
                             pages[p], dim, hr_dtypes[s->g->type[0]].name, contig->name);
                hr_kv_cache_destroy(cache);
            }
        }
        hr_free(kv), hr_free(q), hr_free(want), hr_free(got);
    }
}

/* Scores far apart: softmax must neither overflow nor lose the largest. */
static void large_scores(void **state) {
    (void)state;
    const hr_kernel *attn;
    for (size_t i = 0; (attn = fix_kernel(HR_FAM_ATTN, i)); i++) {
        if (!fix_takes(attn, HR_F32, HR_F32, 1)) continue; /* 1e4 and 700 are numbers of f32 alone */
        hr_kv_cache *cache = fix_cache((hr_kv_cache_config){
            .layout = HR_KV_BLOCK, .n_layers = 1, .n_heads = 1, .head_dim = 2, .max_seqs = 1, .capacity = 1000});
        float *k = fix_floats(2000, 1), *q = fix_floats(2, 2), out[2];
        for (int p = 0; p < 1000; p++) k[2 * p] = p == 700 ? 1e4f : -1e4f, k[2 * p + 1] = (float)p;
        q[0] = 100, q[1] = 0;
        const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
        fix_kernel_of(HR_FAM_KV_APPEND, attn->isa, false)->fn.kv_append(s, 0, 0, k, 2, k, 2, 0, 1000, 0, 1);
        hr_attn a = {.kv = s,
                     .n_heads = 1,
                     .n_kv_heads = 1,
                     .head_dim = 2,
                     .n_q = 1,
                     .pos0 = 999,
                     .q = q,
                     .out = out,
                     .ldq = 2,
                     .ldo = 2,
                     .scale = 1};
        fix_attend(&a, attn, fix_kernel_of(HR_FAM_ATTN_MERGE, attn->isa, false), 1);
        assert_true(out[0] == 1e4f && out[1] == 700); /* all weight on position 700, exactly */
        hr_kv_cache_destroy(cache);
        hr_free(k), hr_free(q);
    }
}

/* Split and whole decode are two orders of the same sums. */
static void split_agrees_with_whole(void **state) {
    (void)state;
    const hr_kernel *attn;
    for (size_t i = 0; (attn = fix_kernel(HR_FAM_ATTN, i)); i++) {
        if (!fix_takes(attn, HR_BF16, HR_BF16, 1) || !fix_takes(attn, HR_BF16, HR_BF16, 2)) continue;
        hr_kv_cache *cache = fix_cache((hr_kv_cache_config){.layout = HR_KV_ZORDER_H,
                                                            .n_layers = 1,
                                                            .n_heads = 3,
                                                            .head_dim = 64,
                                                            .k_type = HR_BF16,
                                                            .v_type = HR_BF16,
                                                            .max_seqs = 1,
                                                            .capacity = 2000});
        float *kv = fix_floats(2000 * 192, 1), *q = fix_floats(2 * 576, 2), *one = fix_floats(576, 3),
              *two = fix_floats(2 * 576, 3);
        const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
        fix_kernel_of(HR_FAM_KV_APPEND, attn->isa, false)->fn.kv_append(s, 0, 0, kv, 192, kv, 192, 0, 2000, 0, 3);
        hr_attn a = {.kv = s,
                     .n_heads = 9,
                     .n_kv_heads = 3,
                     .head_dim = 64,
                     .n_q = 1,
                     .pos0 = 1999,
                     .q = q + 576,
                     .out = one,
                     .ldq = 576,
                     .ldo = 576,
                     .scale = .125f};
        assert_true(hr_attn_is_split(&a));
        fix_attend(&a, attn, fix_kernel_of(HR_FAM_ATTN_MERGE, attn->isa, false), 3);
        a.n_q = 2, a.pos0 = 1998, a.q = q, a.out = two;
        assert_false(hr_attn_is_split(&a));
        fix_attend(&a, attn, NULL, 1);
        compare(attn, s->g->type, one, two + 576, 576, attn->name);
        hr_kv_cache_destroy(cache);
        hr_free(kv), hr_free(q), hr_free(one), hr_free(two);
    }
}

/* q4_0 rows of a cache, written out: the scale is the largest magnitude over 7, the levels are -7 .. 7 plus 8, element i
 * of a group shares a byte with element i + 16. */
static void q4_0_reference(const float *x, size_t dim, uint8_t *row, uint16_t *scales) {
    for (size_t b = 0; b < dim / 32; b++, x += 32) {
        float top = 0;
        int level[32];
        for (int i = 0; i < 32; i++) top = fmaxf(top, fabsf(x[i]));
        scales[b] = hr_f32_to_f16(top / 7);
        const float d = hr_f16_to_f32(scales[b]);
        for (int i = 0; i < 32; i++) level[i] = d > 0 ? (int)fminf(7, fmaxf(-7, nearbyintf(x[i] / d))) + 8 : 8;
        for (int i = 0; i < 16; i++) row[16 * b + i] = (uint8_t)(level[i] | level[i + 16] << 4);
    }
}

/* The bits of a stored row are the same on every ISA: those of hr_quantize_row, for q4_0 those of q4_0_reference. (int4
 * weights take more time to find a better scale than a decode step has.) */
static void append_has_the_bits_of_the_reference(void **state) {
    (void)state;
    enum { DIM = 96, N = 9 };
    float *k = fix_floats(N * DIM, 11);
    for (int d = 0; d < 32; d++) k[d] = 0; /* a group of zeros */
    for (int d = 32; d < 64; d++) k[d] *= 1e-6f, k[d + DIM] *= 1e4f;
    for (int t = 0; t < 6; t++) {
        const hr_dtype plane = types[t] == HR_Q8_0 ? HR_I8G32 : types[t];
        const hr_kernel *append;
        for (size_t i = 0; (append = fix_kernel(HR_FAM_KV_APPEND, i)); i++) {
            hr_kv_cache *cache = fix_cache((hr_kv_cache_config){.layout = HR_KV_HEAD,
                                                                .n_layers = 1,
                                                                .n_heads = 1,
                                                                .head_dim = DIM,
                                                                .k_type = types[t],
                                                                .v_type = types[t],
                                                                .max_seqs = 1,
                                                                .capacity = N});
            const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
            append->fn.kv_append(s, 0, 0, k, DIM, k, DIM, 0, N, 0, 1);
            for (uint32_t p = 0; p < N; p++) {
                uint8_t row[DIM * 4];
                uint16_t scales[DIM / 32];
                if (types[t] == HR_Q4_0)
                    q4_0_reference(k + p * DIM, DIM, row, scales);
                else
                    assert_int_equal(hr_quantize_row(plane, k + p * DIM, DIM, row, scales), HR_OK);
                const hr_kv_rows r = hr_kv_run(s, 0, 0, p);
                for (int x = 0; x < 2; x++) {
                    assert_memory_equal(r.at[x], row, s->g->row_bytes[x]);
                    if (r.at[x + 2]) assert_memory_equal(r.at[x + 2], scales, s->g->row_bytes[x + 2]);
                }
            }
            hr_kv_cache_destroy(cache);
        }
    }
    hr_free(k);
}

/* 2^x against the C library's: the polynomial is within 8.3e-8, its evaluation and the last rounding add 1.5 ulp at most
 * (2^-24 each of 1 to 2). */
static void exp2_is_within_its_bound(void **state) {
    (void)state;
    if (!(hr_cpu_features() & HR_CPU_BF16)) hr_skip("this CPU has no AVX-512 with BF16");
#ifdef __x86_64__
    enum { N = 1 << 16 };
    float *x = hr_malloc(N * sizeof *x), *y = hr_malloc(N * sizeof *y);
    for (int i = 0; i < N; i++) x[i] = -125 + 126 * (float)i / N;
    hr_attn_exp2_avx512(x, y, N);
    for (int i = 0; i < N; i++) {
        const double want = exp2((double)x[i]), error = fabs((double)y[i] - want) / want;
        if (!(error <= 2.5e-7))
            fail_msg("2^%g: expected %.9g, got %.9g, relative error %.3g, tolerance 2.5e-7", (double)x[i], want,
                     (double)y[i], error);
    }
    const float odd[] = {0, -INFINITY, NAN, -1000, -149};
    hr_attn_exp2_avx512(odd, y, 5);
    assert_true(y[0] == 1 && y[1] == 0 && isnan(y[2]) && y[3] == 0 && y[4] >= 0 && y[4] < 1e-38f);
    hr_free(x), hr_free(y);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_of_k_and_v),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(shapes_of_models),
        cmocka_unit_test(exp2_is_within_its_bound),
        cmocka_unit_test(lengths_round_the_chunk_and_the_split),
        cmocka_unit_test(windows),
        cmocka_unit_test(evicted_positions_are_not_read),
        cmocka_unit_test(work_leaves_out_what_is_gone),
        cmocka_unit_test(what_is_not_seen_does_not_leak),
        cmocka_unit_test(contiguous_decode_has_the_same_bits),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(split_agrees_with_whole),
        cmocka_unit_test(append_has_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
