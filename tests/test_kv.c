/* Where KV rows lie, what the cache hands out, and that attention does not see either. */
#include "tests/hr_test.h"

#include "tests/kv_fixture.h"

static void names_parse(void **state) {
    (void)state;
    hr_kv_layout layout;
    for (int i = 0; i < HR_KV_LAYOUT_COUNT; i++) {
        assert_int_equal(hr_kv_layout_parse(hr_kv_layout_name((hr_kv_layout)i), &layout), HR_OK);
        assert_int_equal(layout, i);
    }
    assert_int_equal(hr_kv_layout_parse("contiguous", &layout), HR_OK);
    assert_int_equal(layout, HR_KV_HEAD);
    assert_int_equal(hr_kv_layout_parse("zorder_h", &layout), HR_ERR_USAGE);
    assert_int_equal(hr_kv_layout_parse("", &layout), HR_ERR_USAGE);
}

static void geometry_refuses(void **state) {
    (void)state;
    hr_kv_geom g;
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 65, 64, HR_BF16, HR_BF16, 64, 0), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 48, HR_Q8_0, HR_BF16, 64, 0), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 48, HR_BF16, HR_Q4_0, 64, 0), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 256, HR_Q6_K, HR_BF16, 64, 0), HR_ERR_UNSUPPORTED);
    static const uint32_t pages[] = {0, 3, 48, 257, 512};
    for (int i = 0; i < 5; i++)
        assert_int_equal(hr_kv_geom_init(&g, HR_KV_PAGED, 1, 1, 64, HR_BF16, HR_BF16, 64, pages[i]), HR_ERR_USAGE);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 64, HR_BF16, HR_BF16, 0, 0), HR_ERR_INPUT);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 64, HR_BF16, HR_BF16, UINT32_MAX, 0), HR_ERR_INPUT);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, UINT32_MAX, 64, 65536, HR_F32, HR_F32, 1u << 31, 0), HR_ERR_INPUT);
}

/* B is the largest power of two with which the larger tile has at most 4096 bytes. */
static void positions_a_tile(void **state) {
    (void)state;
    static const struct {
        hr_dtype k, v;
        uint32_t dim, block;
    } want[] = {{HR_BF16, HR_BF16, 64, 32}, {HR_BF16, HR_BF16, 128, 16}, {HR_F32, HR_BF16, 64, 16},
                {HR_Q8_0, HR_Q4_0, 64, 64}, {HR_Q4_0, HR_Q4_0, 128, 64}, {HR_F16, HR_F16, 80, 16},
                {HR_F32, HR_F32, 2000, 1},  {HR_Q8_0, HR_F16, 96, 16}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        hr_kv_geom g;
        assert_int_equal(hr_kv_geom_init(&g, HR_KV_BLOCK, 1, 1, want[i].dim, want[i].k, want[i].v, 100, 0), HR_OK);
        assert_int_equal(g.block, want[i].block);
        assert_true(g.n_blocks * g.block >= 100 && (g.n_blocks - 1) * g.block < 100);
    }
}

/* The formulas of the layouts, written out a second time for 4 layers, 4 heads, D = 64 bf16, 512 positions. */
static void rows_lie_where_the_formulas_say(void **state) {
    (void)state;
    static const uint32_t rank[4][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}}; /* [h][b] */
    const size_t tile = 32 * 128;
    uint32_t table[16];
    for (uint32_t i = 0; i < 16; i++) table[i] = (i * 7 + 3) % 16;
    uint8_t *base = (uint8_t *)0x200000;
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
        hr_kv_geom g;
        assert_int_equal(hr_kv_geom_init(&g, (hr_kv_layout)layout, 4, 4, 64, HR_BF16, HR_BF16, 512, 32), HR_OK);
        assert_int_equal(g.pad_bytes, 0);
        const hr_kv_seq s = {.g = &g, .base = {base, base}, .table = table, .len = 512};
        for (uint32_t l = 0; l < 4; l++) {
            for (uint32_t h = 0; h < 4; h++) {
                for (uint32_t p = 0; p < 512; p++) {
                    const size_t b = p / 32, r = p % 32 * 128;
                    const size_t at = (size_t)(hr_kv_run(&s, l, h, p).at[HR_KV_K] - base);
                    size_t want = at;
                    switch (layout) {
                    case HR_KV_HEAD:
                        want = ((l * 4 + h) * 16 + b) * tile + r;
                        break;
                    case HR_KV_TOKEN:
                        want = (((size_t)p * 4 + l) * 4 + h) * 128;
                        break;
                    case HR_KV_BLOCK:
                        want = ((l * 16 + b) * 4 + h) * tile + r;
                        break;
                    case HR_KV_ZORDER:
                        want = l * 16 * 4 * tile + (b / 4 * 16 + rank[h][b % 4]) * tile + r;
                        break;
                    case HR_KV_ZORDER_H:
                        want = l * 16 * 4 * tile + (b / 4 * 16 + rank[b % 4][h]) * tile + r;
                        break;
                    case HR_KV_PAGED:
                        want = ((table[b] * (size_t)4 + l) * 4 + h) * tile + r;
                        break;
                    case HR_KV_PAGED_IDENTITY:
                        want = ((table[b] * (size_t)4 + l) * 4 + h) * tile + r;
                        break;
                    case HR_KV_PAGED_NHD:
                        want = ((table[b] * (size_t)4 + l) * 32 + p % 32) * 4 * 128 + h * 128;
                        break;
                    default: /* shuffled: some place in the same super-block */
                        assert_int_equal((at - l * 16 * 4 * tile) / (16 * tile), b / 4);
                    }
                    if (at != want)
                        fail_msg("%s: layer %u head %u pos %u lies at %zu, expected %zu", hr_kv_layout_name(g.layout),
                                 l, h, p, at, want);
                }
            }
        }
    }
}

static void morton_ranks_are_dense(void **state) {
    (void)state;
    static const hr_kv_layout layouts[] = {HR_KV_ZORDER, HR_KV_ZORDER_H, HR_KV_SHUFFLED};
    for (int i = 0; i < 3; i++) {
        for (uint32_t H = 1; H <= 64; H++) {
            hr_kv_geom g;
            assert_int_equal(hr_kv_geom_init(&g, layouts[i], 1, H, 64, HR_BF16, HR_BF16, 64, 0), HR_OK);
            const uint32_t n = g.super * H;
            assert_true(g.super >= H && g.super < 2 * H);
            bool taken[64 * 64] = {false};
            uint32_t last = 0;
            for (uint32_t b = 0; b < g.super; b++) {
                for (uint32_t h = 0; h < H; h++) {
                    const uint32_t r = g.rank[b * H + h];
                    assert_true(r < n && !taken[r]);
                    taken[r] = true;
                    uint32_t code = 0; /* for powers of two the rank is the Morton code itself */
                    for (int bit = 0; bit < 6; bit++)
                        code |= (b >> bit & 1) << 2 * bit | (h >> bit & 1) << (2 * bit + 1);
                    if (layouts[i] == HR_KV_ZORDER && H == g.super) assert_int_equal(r, code);
                    last = r > last ? r : last;
                }
            }
            assert_int_equal(last, n - 1);
        }
    }
}

/* No two rows overlap and none leaves the extent, in every layout, for any number of heads, in all planes; runs agree
 * with single look-ups and start on 128-byte lines where a unit is that long. */
static void rows_do_not_overlap(void **state) {
    (void)state;
    static const hr_dtype types[][2] = {{HR_BF16, HR_BF16}, {HR_F32, HR_Q8_0}, {HR_Q4_0, HR_F16}};
    static uint8_t taken[1 << 23];
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
        for (uint32_t H = 1; H <= 32; H++) {
            const hr_dtype *t = types[H % 3];
            const uint32_t L = 1 + H % 2, capacity = H % 5 ? 70 : 200;
            hr_kv_geom g;
            assert_int_equal(hr_kv_geom_init(&g, (hr_kv_layout)layout, L, H, 32, t[0], t[1], capacity, 16), HR_OK);
            const uint32_t rows = g.n_blocks * g.block, pages = g.page_size ? rows / g.page_size : 1;
            uint32_t table[256];
            for (uint32_t i = 0; i < pages; i++) table[i] = pages - 1 - i;
            size_t held = 0, all = 0;
            for (int x = 0; x < HR_KV_PLANES; x++) {
                if (!g.row_bytes[x]) continue;
                const size_t bytes = pages * hr_kv_extent_bytes(&g, x);
                assert_true(bytes <= sizeof taken);
                memset(taken, 0, bytes);
                hr_kv_seq s = {.g = &g, .table = table, .len = rows};
                for (int y = 0; y < HR_KV_PLANES; y++) s.base[y] = y == x ? taken : NULL;
                for (uint32_t l = 0; l < L; l++) {
                    for (uint32_t h = 0; h < H; h++) {
                        for (uint32_t pos = 0; pos < rows;) {
                            const hr_kv_rows run = hr_kv_run(&s, l, h, pos);
                            assert_true(run.n >= 1 && run.n <= rows - pos);
                            if (g.unit_bytes[x] >= 128 && (pos % g.unit_rows == 0))
                                assert_int_equal((run.at[x] - taken) % 128, 0);
                            for (uint32_t i = 0; i < run.n; i++) {
                                uint8_t *at = run.at[x] + i * run.stride[x];
                                assert_ptr_equal(at, hr_kv_run(&s, l, h, pos + i).at[x]);
                                assert_true(at + g.row_bytes[x] <= taken + bytes);
                                for (size_t b = 0; b < g.row_bytes[x]; b++) {
                                    if (at[b]) fail_msg("%s, %u heads: overlap", hr_kv_layout_name(g.layout), H);
                                    at[b] = 1;
                                }
                                held += g.row_bytes[x];
                            }
                            pos += run.n;
                        }
                    }
                }
                all += bytes;
            }
            assert_int_equal(all - held, pages * g.pad_bytes);
        }
    }
}

/* ---- the cache ---- */

static hr_kv_cache_config config_of(hr_kv_layout layout, uint32_t page_size) {
    return (hr_kv_cache_config){.layout = layout,
                                .n_layers = 2,
                                .n_heads = 3,
                                .head_dim = 64,
                                .k_type = HR_BF16,
                                .v_type = HR_BF16,
                                .page_size = page_size,
                                .max_seqs = 4,
                                .capacity = 300};
}

static void cache_refuses(void **state) {
    (void)state;
    hr_kv_cache *cache = fix_cache(config_of(HR_KV_HEAD, 0));
    assert_int_equal(hr_kv_cache_reserve(cache, 4, 1), HR_ERR_INPUT);
    assert_int_equal(hr_kv_cache_reserve(cache, 0, 301), HR_ERR_INPUT);
    assert_int_equal(hr_kv_cache_reserve(cache, 0, 300), HR_OK);
    hr_kv_cache_destroy(cache);
    hr_kv_cache_config c = config_of(HR_KV_PAGED, 16);
    c.pool_pages = 5, c.capacity = 80;
    cache = fix_cache(c);
    assert_int_equal(hr_kv_cache_reserve(cache, 0, 60), HR_OK);
    assert_int_equal(hr_kv_cache_free_pages(cache), 1);
    assert_int_equal(hr_kv_cache_reserve(cache, 1, 17), HR_ERR_MEMORY);
    assert_int_equal(hr_kv_cache_view(cache, 1)->len, 0);
    assert_int_equal(hr_kv_cache_free_pages(cache), 1);
    hr_kv_cache_cut(cache, 0, 49); /* still four pages */
    assert_int_equal(hr_kv_cache_free_pages(cache), 1);
    hr_kv_cache_cut(cache, 0, 48);
    assert_int_equal(hr_kv_cache_free_pages(cache), 2);
    assert_int_equal(hr_kv_cache_reserve(cache, 1, 17), HR_OK);
    hr_kv_cache_destroy(cache);
    c.max_seqs = 0;
    assert_int_equal(hr_kv_cache_create(&c, &cache), HR_ERR_INPUT);
    assert_null(cache);
    c.max_seqs = UINT32_MAX, c.capacity = 1u << 30, c.pool_pages = 0;
    assert_int_equal(hr_kv_cache_create(&c, &cache), HR_ERR_INPUT);
}

static void cache_survives_failed_allocations(void **state) {
    (void)state;
    hr_kv_cache_config c = config_of(HR_KV_PAGED, 16);
    c.k_type = HR_Q8_0;
    hr_kv_cache *cache;
    const uint64_t before = hr_alloc_count();
    assert_int_equal(hr_kv_cache_create(&c, &cache), HR_OK);
    const uint64_t calls = hr_alloc_count() - before;
    hr_kv_cache_destroy(cache);
    assert_true(calls >= 6); /* three planes and the tables at least */
    for (uint64_t i = 1; i <= calls; i++) {
        hr_fault_arm(HR_FAULT_ALLOC, i);
        assert_int_equal(hr_kv_cache_create(&c, &cache), HR_ERR_MEMORY);
        assert_null(cache);
    }
    hr_fault_arm(HR_FAULT_ALLOC, 0);
}

static void cache_counts_bytes(void **state) {
    (void)state;
    hr_kv_cache_config c = config_of(HR_KV_HEAD, 0);
    uint64_t planned, needed, touched;
    assert_int_equal(hr_kv_cache_plan(&c, &planned), HR_OK);
    hr_kv_cache *cache = fix_cache(c);
    assert_int_equal(hr_kv_cache_mapped(cache), planned);
    assert_int_equal(planned, 4 * 2 * 2 * 3 * 320 * 128); /* seqs, planes, layers, heads, positions, bytes */
    hr_kv_cache_bytes(cache, &needed, &touched);
    assert_true(needed == 0 && touched == 0);
    assert_int_equal(hr_kv_cache_reserve(cache, 2, 100), HR_OK);
    hr_kv_cache_bytes(cache, &needed, &touched);
    assert_int_equal(needed, 2 * 2 * 3 * 100 * 128);
    /* 12,800 bytes of each head and layer start every 40,960 bytes on a page: four pages each */
    assert_int_equal(touched, 2 * 2 * 3 * 4 * 4096);
    hr_kv_cache_destroy(cache);
    cache = fix_cache(config_of(HR_KV_TOKEN, 0));
    assert_int_equal(hr_kv_cache_reserve(cache, 0, 100), HR_OK);
    hr_kv_cache_bytes(cache, &needed, &touched);
    assert_int_equal(needed, 2 * 2 * 3 * 100 * 128);
    assert_int_equal(touched, 2 * ((100 * 768 + 4095) / 4096) * 4096); /* one dense piece a plane */
    hr_kv_cache_destroy(cache);
}

/* Pages of all sequences and the free list are one permutation of the pool, whatever happens. */
static void pages_are_never_shared(void **state) {
    (void)state;
    hr_kv_cache_config c = config_of(HR_KV_PAGED, 8);
    c.pool_pages = 90, c.scatter = 3;
    hr_kv_cache *cache = fix_cache(c);
    uint64_t rng = 9;
    const uint64_t allocations = hr_alloc_count();
    for (int step = 0; step < 4000; step++) {
        const uint32_t seq = fix_below(&rng, 4), len = hr_kv_cache_view(cache, seq)->len;
        if (fix_below(&rng, 3))
            (void)hr_kv_cache_reserve(cache, seq, len + fix_below(&rng, 40));
        else
            hr_kv_cache_cut(cache, seq, len ? fix_below(&rng, len + 1) : 0);
        bool taken[90] = {false};
        uint32_t used = 0;
        for (uint32_t s = 0; s < 4; s++) {
            const hr_kv_seq *view = hr_kv_cache_view(cache, s);
            for (uint32_t i = 0; i < (view->len + 7) / 8; i++, used++) {
                assert_true(view->table[i] < 90 && !taken[view->table[i]]);
                taken[view->table[i]] = true;
            }
        }
        assert_int_equal(used + hr_kv_cache_free_pages(cache), 90);
    }
    assert_int_equal(hr_alloc_count(), allocations);
    hr_kv_cache_destroy(cache);
}

/* ---- bit identity ---- */

enum { SEQS = 3, LAYERS = 2, HEADS = 3, GROUP = 2, DIM = 64, POSITIONS = 640, STEPS = 24 };
/* 640 positions: more than a super-block (4 tiles of 32) and than the largest page (256). */

/* Runs the same random appends and cuts, attends after each, and hashes all bits of all outputs. */
static uint64_t outputs_of(hr_kv_layout layout, uint32_t page_size, const hr_kernel *attn, hr_dtype k_type,
                           hr_dtype v_type, size_t shares, uint64_t scatter) {
    hr_kv_cache *cache = fix_cache((hr_kv_cache_config){.layout = layout,
                                                        .n_layers = LAYERS,
                                                        .n_heads = HEADS,
                                                        .head_dim = DIM,
                                                        .k_type = k_type,
                                                        .v_type = v_type,
                                                        .page_size = page_size,
                                                        .max_seqs = SEQS,
                                                        .capacity = POSITIONS,
                                                        .scatter = scatter});
    const hr_kernel *append = fix_kernel_of(HR_FAM_KV_APPEND, attn->isa, false);
    const hr_kernel *merge = fix_kernel_of(HR_FAM_ATTN_MERGE, attn->isa, false);
    const size_t ldk = HEADS * DIM, ldq = HEADS * GROUP * DIM;
    float *k = fix_floats(POSITIONS * ldk, 5), *v = fix_floats(POSITIONS * ldk, 6), *q = fix_floats(100 * ldq, 7),
          *out = fix_floats(100 * ldq, 8);
    uint64_t rng = 77, hash = 14695981039346656037u;
    for (int step = 0; step < STEPS; step++) {
        const uint32_t seq = fix_below(&rng, SEQS), layer = fix_below(&rng, LAYERS);
        const uint32_t len = hr_kv_cache_view(cache, seq)->len, how = fix_below(&rng, 6), amount = fix_below(&rng, 100);
        const uint32_t jump = fix_below(&rng, POSITIONS);
        uint32_t n = how == 0 ? 1 : amount + 1;
        if (how == 1 && len > 1) {
            hr_kv_cache_cut(cache, seq, jump % len);
            continue;
        }
        if (how >= 4) { /* a long piece that nobody attends */
            const uint32_t to = len + jump < POSITIONS - 101 ? len + jump : POSITIONS - 101;
            if (to > len) {
                assert_int_equal(hr_kv_cache_reserve(cache, seq, to), HR_OK);
                for (uint32_t l = 0; l < LAYERS; l++)
                    append->fn.kv_append(hr_kv_cache_view(cache, seq), l, len, k + len * ldk, ldk, v + len * ldk, ldk,
                                         0, to - len, 0, HEADS);
            }
            if (how == 4) n = 1;
        }
        const uint32_t pos0 = hr_kv_cache_view(cache, seq)->len;
        if (pos0 + n > POSITIONS) continue;
        assert_int_equal(hr_kv_cache_reserve(cache, seq, pos0 + n), HR_OK);
        for (uint32_t l = 0; l < LAYERS; l++) { /* shares of positions, heads and planes, as threads would */
            const hr_kv_seq *s = hr_kv_cache_view(cache, seq);
            if (k_type == HR_I4KC) { /* no shares of positions */
                append->fn.kv_append(s, l, pos0, k + pos0 * ldk, ldk, v + pos0 * ldk, ldk, 0, n, 1, HEADS);
                append->fn.kv_append(s, l, pos0, k + pos0 * ldk, ldk, NULL, 0, 0, n, 0, 1);
                append->fn.kv_append(s, l, pos0, NULL, 0, v + pos0 * ldk, ldk, 0, n, 0, 1);
                continue;
            }
            append->fn.kv_append(s, l, pos0, k + pos0 * ldk, ldk, v + pos0 * ldk, ldk, n / 2, n, 0, HEADS);
            append->fn.kv_append(s, l, pos0, k + pos0 * ldk, ldk, NULL, 0, 0, n / 2, 0, HEADS - 1);
            append->fn.kv_append(s, l, pos0, NULL, 0, v + pos0 * ldk, ldk, 0, n / 2, 0, HEADS - 1);
            append->fn.kv_append(s, l, pos0, k + pos0 * ldk, ldk, v + pos0 * ldk, ldk, 0, n / 2, HEADS - 1, HEADS);
        }
        hr_attn a = {.kv = hr_kv_cache_view(cache, seq),
                     .layer = layer,
                     .n_heads = HEADS * GROUP,
                     .n_kv_heads = HEADS,
                     .head_dim = DIM,
                     .n_q = n,
                     .pos0 = pos0,
                     .q = q,
                     .out = out,
                     .ldq = ldq,
                     .ldo = ldq,
                     .scale = .125f};
        if (!fix_takes(attn, k_type, v_type, n)) continue;
        fix_attend(&a, attn, merge, shares);
        for (size_t i = 0; i < n * ldq; i++) {
            uint32_t bits;
            memcpy(&bits, out + i, sizeof bits);
            if (isnan(out[i])) fail_msg("%s: output %zu of step %d is no number", hr_kv_layout_name(layout), i, step);
            hash = (hash ^ bits) * 1099511628211u;
        }
    }
    hr_kv_cache_destroy(cache);
    hr_free(k), hr_free(v), hr_free(q), hr_free(out);
    return hash;
}

static void every_layout_gives_the_same_bits(void **state) {
    (void)state;
    static const hr_dtype types[][2] = {{HR_BF16, HR_BF16}, {HR_F32, HR_Q4_0},    {HR_Q8_0, HR_F16},
                                        {HR_Q4_0, HR_Q8_0}, {HR_I8ROW, HR_I8ROW}, {HR_I4KC, HR_I4KC}};
    static const uint32_t pages[] = {1, 2, 16, 32, 256};
    const hr_kernel *attn;
    for (size_t i = 0; (attn = fix_kernel(HR_FAM_ATTN, i)); i++) {
        for (int t = 0; t < 6; t++) {
            const hr_dtype k = types[t][0], v = types[t][1];
            if (attn->isa == HR_ISA_GENERIC && t != 0) continue; /* the body is the same; keep the test short */
            if (!fix_takes(attn, k, v, attn->n_min)) continue;
            const uint64_t want = outputs_of(HR_KV_HEAD, 0, attn, k, v, 1, 0);
            for (int layout = HR_KV_TOKEN; layout < HR_KV_PAGED; layout++)
                if (outputs_of((hr_kv_layout)layout, 0, attn, k, v, 1 + (size_t)layout % 3, 0) != want)
                    fail_msg("%s, %s: bits differ from head", hr_kv_layout_name((hr_kv_layout)layout), attn->name);
            for (int p = 0; p < 5; p++)
                if (outputs_of(HR_KV_PAGED, pages[p], attn, k, v, 2, (uint64_t)p) != want)
                    fail_msg("pages of %u, %s: bits differ from head", pages[p], attn->name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_parse),
        cmocka_unit_test(geometry_refuses),
        cmocka_unit_test(positions_a_tile),
        cmocka_unit_test(rows_lie_where_the_formulas_say),
        cmocka_unit_test(morton_ranks_are_dense),
        cmocka_unit_test(rows_do_not_overlap),
        cmocka_unit_test(cache_refuses),
        cmocka_unit_test(cache_survives_failed_allocations),
        cmocka_unit_test(cache_counts_bytes),
        cmocka_unit_test(pages_are_never_shared),
        cmocka_unit_test(every_layout_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
