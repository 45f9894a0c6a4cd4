/* K of type i4kc: groups of 32 positions that are quantized together, the open one, and what operations on sequences do to it. */
#include "tests/kv_fixture.h"

enum { L = 2, H = 3, D = 64, LD = H * D, CAP = 300, ROW = D / 2, SHARE = D / 8 };

static const struct {
    hr_kv_layout layout;
    uint32_t page;
} places[] = {{HR_KV_HEAD, 0},   {HR_KV_TOKEN, 0}, {HR_KV_BLOCK, 0},     {HR_KV_ZORDER, 0},
              {HR_KV_PAGED, 64}, {HR_KV_PAGED, 4}, {HR_KV_PAGED_NHD, 16}};
enum { PLACES = sizeof places / sizeof *places };

static hr_kv_cache *cache_at(int i, bool share) {
    return fix_cache((hr_kv_cache_config){.layout = places[i].layout,
                                          .page_size = places[i].page,
                                          .n_layers = L,
                                          .n_heads = H,
                                          .head_dim = D,
                                          .k_type = HR_I4KC,
                                          .v_type = HR_I4KC,
                                          .max_seqs = 4,
                                          .capacity = CAP,
                                          .share_prefix = share && places[i].page});
}
static const hr_kernel *append_row(size_t i) {
    return fix_kernel(HR_FAM_KV_APPEND, i);
}
/* Positions from..to-1 of x, `step` at a time. */
static void append(hr_kv_cache *cache, const hr_kernel *k, uint32_t seq, const float *x, uint32_t to, uint32_t step) {
    for (uint32_t from = hr_kv_cache_view(cache, seq)->len, n; from < to; from += n) {
        n = step < to - from ? step : to - from;
        if (hr_kv_cache_reserve(cache, seq, from + n) != HR_OK) fail_msg("%s", hr_error());
        for (uint32_t l = 0; l < L; l++) {
            const float *at = x + (l * CAP + from) * LD;
            k->fn.kv_append(hr_kv_cache_view(cache, seq), l, from, at, LD, at, LD, 0, n, 0, H);
        }
    }
    if (hr_kv_cache_check(cache) != HR_OK) fail_msg("%s", hr_error());
}
/* All bits of a sequence, whatever its place. */
static void *saved(const hr_kv_cache *cache, uint32_t seq, uint64_t *bytes) {
    *bytes = hr_kv_cache_saved_bytes(cache, seq);
    void *out = hr_malloc(*bytes + 1);
    assert_non_null(out);
    memset(out, 0xff, *bytes + 1);
    hr_kv_cache_save(cache, seq, out);
    assert_int_equal(((uint8_t *)out)[*bytes], 0xff);
    return out;
}
static void assert_same(const hr_kv_cache *a, uint32_t sa, const hr_kv_cache *b, uint32_t sb, const char *what) {
    uint64_t na, nb;
    void *x = saved(a, sa, &na), *y = saved(b, sb, &nb);
    if (na != nb) fail_msg("%s: %llu bytes, expected %llu", what, (unsigned long long)nb, (unsigned long long)na);
    for (uint64_t i = 0; i < na; i++)
        if (((uint8_t *)x)[i] != ((uint8_t *)y)[i])
            fail_msg("%s: byte %llu is %02x, expected %02x", what, (unsigned long long)i, ((uint8_t *)y)[i],
                     ((uint8_t *)x)[i]);
    hr_free(x), hr_free(y);
}

/* Closing one by one, in chunks and all at once gives the same bits, at every place and on every ISA. */
static void groups_close_alike(void **state) {
    (void)state;
    static const uint32_t steps[] = {1, 7, 32, 45, CAP};
    float *x = fix_floats(L * CAP * LD, 1);
    hr_kv_cache *want = cache_at(0, false);
    append(want, append_row(0), 0, x, 201, CAP);
    assert_int_equal(hr_kv_cache_saved_bytes(want, 0),
                     L * H * (192 * (ROW + SHARE) + 9 * 2 * D + 201 * (D / 2 + D / 16)));
    for (int i = 0; i < PLACES; i++) {
        const hr_kernel *k;
        for (size_t isa = 0; (k = append_row(isa)); isa++) {
            const uint32_t step = steps[(isa + (size_t)i) % 5];
            hr_kv_cache *cache = cache_at(i, false);
            append(cache, k, 2, x, 201, step);
            char what[80];
            snprintf(what, sizeof what, "%s, pages of %u, %s, %u at a time", hr_kv_layout_name(places[i].layout),
                     places[i].page, k->name, step);
            assert_same(want, 0, cache, 2, what);
            hr_kv_cache_destroy(cache);
        }
    }
    hr_kv_cache_destroy(want);
    hr_free(x);
}

/* A closed value is within half a step of its bf16 row (and the rounding of the centre to f16); steps are (max - min) / 15. */
static void levels_are_near(void **state) {
    (void)state;
    float *x = fix_floats(L * CAP * LD, 2);
    for (size_t i = 0; i < L * CAP * LD; i++)
        x[i] = x[i] * (float)(1 + i % D) + (float)(i % 5) * 10; /* channels differ */
    for (size_t p = 0; p < 32; p++) x[p * LD] = 3;              /* a channel of equal values */
    hr_kv_cache *cache = cache_at(0, false);
    append(cache, append_row(0), 0, x, 64, 64);
    const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
    uint16_t room[2 * D];
    for (uint32_t first = 0; first < 64; first += 32) {
        const uint16_t *scales = hr_kv_group_scales(s, 0, 0, first, room);
        for (uint32_t d = 0; d < D; d++) {
            const uint16_t *at = scales + d / 16 * 32 + d % 16;
            const double step = hr_f16_to_f32(at[0]), centre = hr_f16_to_f32(at[16]);
            for (uint32_t p = first; p < first + 32; p++) {
                const uint8_t byte = hr_kv_run(s, 0, 0, p).at[HR_KV_K][d / 32 * 16 + d % 16];
                const int level = (byte >> (d % 32 >= 16 ? 4 : 0) & 15) - 8;
                const double row = hr_bf16_to_f32(hr_f32_to_bf16(x[p * LD + d])), got = level * step + centre;
                const double most = step * 0.505 + fabs(centre) * 0x1p-10;
                if (!(fabs(got - row) <= most))
                    fail_msg("position %u channel %u: expected %g, got %g, tolerance %g", p, d, row, got, most);
            }
        }
    }
    hr_kv_cache_destroy(cache);
    hr_free(x);
}

/* What a cut leaves of a closed group are its values as bf16; then it goes on as if these had been appended. */
static void cut_reopens_a_group(void **state) {
    (void)state;
    float *x = fix_floats(L * CAP * LD, 3), *y = fix_floats(L * CAP * LD, 3);
    hr_kv_cache *want = cache_at(0, false);
    append(want, append_row(0), 0, x, 64, 64);
    uint16_t room[2 * D];
    for (uint32_t l = 0; l < L; l++)
        for (uint32_t h = 0; h < H; h++)
            for (uint32_t p = 32; p < 41; p++)
                for (uint32_t d = 0; d < D; d++) {
                    const hr_kv_seq *s = hr_kv_cache_view(want, 0);
                    const uint16_t *at = hr_kv_group_scales(s, l, h, 32, room) + d / 16 * 32 + d % 16;
                    const uint8_t byte = hr_kv_run(s, l, h, p).at[HR_KV_K][d / 32 * 16 + d % 16];
                    const int level = (byte >> (d % 32 >= 16 ? 4 : 0) & 15) - 8;
                    y[(l * CAP + p) * LD + h * D + d] = (float)level * hr_f16_to_f32(at[0]) + hr_f16_to_f32(at[16]);
                }
    /* K of these rows is y, V stays x: appended apart */
    append(want, append_row(0), 1, x, 32, 32);
    assert_int_equal(hr_kv_cache_reserve(want, 1, 41), HR_OK);
    for (uint32_t l = 0; l < L; l++)
        append_row(0)->fn.kv_append(hr_kv_cache_view(want, 1), l, 32, y + (l * CAP + 32) * LD, LD,
                                    x + (l * CAP + 32) * LD, LD, 0, 9, 0, H);
    append(want, append_row(0), 1, x, 100, 3);
    for (int i = 0; i < PLACES; i++) {
        hr_kv_cache *cache = cache_at(i, false);
        append(cache, append_row(0), 3, x, 77, 20);
        hr_kv_cache_cut(cache, 3, 70); /* within the open group */
        hr_kv_cache_cut(cache, 3, 41);
        append(cache, append_row(0), 3, x, 100, 11);
        assert_same(want, 1, cache, 3, hr_kv_layout_name(places[i].layout));
        hr_kv_cache_cut(cache, 3, 64);
        assert_int_equal(hr_kv_cache_saved_bytes(cache, 3), L * H * 64 * (ROW + SHARE + D / 2 + D / 16));
        hr_kv_cache_destroy(cache);
    }
    hr_kv_cache_destroy(want);
    hr_free(x), hr_free(y);
}

/* A fork has the bits of its source, cut where it was cut; neither changes the other. */
static void forks_have_their_own_open_group(void **state) {
    (void)state;
    static const uint32_t lengths[] = {96, 90, 70, 64, 41, 5};
    float *x = fix_floats(L * CAP * LD, 4), *y = fix_floats(L * CAP * LD, 5);
    for (int i = 0; i < PLACES; i++) {
        for (int j = 0; j < 6; j++) {
            const uint32_t len = lengths[j];
            hr_kv_cache *cache = cache_at(i, false), *alone = cache_at(0, false);
            append(cache, append_row(0), 0, x, 99, 99);
            append(alone, append_row(0), 0, x, 99, 99);
            assert_int_equal(hr_kv_cache_fork(cache, 0, 1, len), HR_OK);
            hr_kv_cache_cut(alone, 0, len);
            assert_same(alone, 0, cache, 1, "fork");
            append(cache, append_row(0), 0, y, 140, 9);
            append(alone, append_row(0), 0, x, 150, 50);
            append(cache, append_row(0), 1, x, 150, 4);
            assert_same(alone, 0, cache, 1, "fork, extended");
            append(alone, append_row(0), 1, x, 99, 99);
            append(alone, append_row(0), 1, y, 140, 1);
            assert_same(alone, 1, cache, 0, "source");
            hr_kv_cache_destroy(cache), hr_kv_cache_destroy(alone);
        }
    }
    hr_free(x), hr_free(y);
}

/* Evicted positions are whole groups; saved bytes go into any place and come back; then both go on alike. */
static void save_and_load(void **state) {
    (void)state;
    float *x = fix_floats(L * CAP * LD, 6);
    for (int i = 0; i < PLACES; i++) {
        hr_kv_cache *cache = cache_at(i, false), *other = cache_at((i + 1) % PLACES, false);
        append(cache, append_row(0), 0, x, 215, 215);
        assert_int_equal(hr_kv_cache_evict(cache, 0, 4, 60), HR_OK); /* 4..154 */
        const hr_kv_seq *s = hr_kv_cache_view(cache, 0);
        assert_true(s->gone_from == 32 && s->gone_to == 128);
        if (hr_kv_cache_check(cache) != HR_OK) fail_msg("%s", hr_error());
        uint64_t bytes;
        void *all = saved(cache, 0, &bytes);
        assert_int_equal(hr_kv_cache_open(other, 2, &(hr_kv_request){0}, NULL), HR_OK);
        assert_int_equal(hr_kv_cache_load(other, 2, all, 215, 32, 128), HR_OK);
        assert_same(cache, 0, other, 2, "loaded");
        append(cache, append_row(0), 0, x, 240, 1);
        append(other, append_row(0), 2, x, 240, 25);
        assert_same(cache, 0, other, 2, "loaded, extended");
        for (uint32_t cut = 239; cut > 110; cut -= 13) { /* into the hole, too */
            hr_kv_cache_cut(cache, 0, cut), hr_kv_cache_cut(other, 2, cut);
            assert_same(cache, 0, other, 2, "cut");
            if (hr_kv_cache_check(cache) != HR_OK) fail_msg("%s", hr_error());
        }
        append(cache, append_row(0), 0, x, 170, 5);
        append(other, append_row(0), 2, x, 170, 60);
        assert_same(cache, 0, other, 2, "cut and extended");
        hr_free(all);
        hr_kv_cache_destroy(cache), hr_kv_cache_destroy(other);
    }
    hr_free(x);
}

/* A shared prefix ends with a closed group. */
static void prefixes_share_closed_groups(void **state) {
    (void)state;
    float *x = fix_floats(L * CAP * LD, 7);
    int32_t prompt[CAP];
    for (int i = 0; i < CAP; i++) prompt[i] = i;
    for (int i = 0; i < PLACES; i++) {
        if (!places[i].page) continue;
        hr_kv_cache *cache = cache_at(i, true), *alone = cache_at(0, false);
        const hr_kv_request request = {.prompt = prompt, .n_prompt = 120};
        uint32_t shared;
        assert_int_equal(hr_kv_cache_open(cache, 0, &request, NULL), HR_OK);
        append(cache, append_row(0), 0, x, 120, 120);
        assert_int_equal(hr_kv_cache_open(cache, 1, &request, &shared), HR_OK);
        assert_int_equal(shared, places[i].page == 64 ? 64 : 96);
        append(cache, append_row(0), 1, x, 150, 7);
        append(cache, append_row(0), 0, x, 151, 1);
        append(alone, append_row(0), 0, x, 150, 150);
        assert_same(alone, 0, cache, 1, "shared prefix");
        hr_kv_cache_cut(cache, 1, 50);
        append(cache, append_row(0), 1, x, 60, 1);
        append(alone, append_row(0), 1, x, 151, 20);
        assert_same(alone, 1, cache, 0, "the other after a cut");
        hr_kv_cache_destroy(cache), hr_kv_cache_destroy(alone);
    }
    hr_free(x);
}

static void open_rows_are_counted(void **state) {
    (void)state;
    float *x = fix_floats(L * CAP * LD, 8);
    hr_kv_cache *cache = cache_at(0, false);
    uint64_t needed, touched;
    append(cache, append_row(0), 0, x, 40, 40);
    hr_kv_cache_bytes(cache, &needed, &touched);
    assert_int_equal(needed, L * H * (32 * (ROW + SHARE) + 8 * 2 * D + 40 * (D / 2 + D / 16)));
    assert_true(touched >= needed);
    hr_kv_cache_destroy(cache);
    hr_free(x);
}

static void too_wide_heads_are_refused(void **state) {
    (void)state;
    hr_kv_geom g;
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 288, HR_I4KC, HR_BF16, 64, 0), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 48, HR_I4KC, HR_BF16, 64, 0), HR_ERR_UNSUPPORTED);
    assert_int_equal(hr_kv_geom_init(&g, HR_KV_HEAD, 1, 1, 288, HR_BF16, HR_I4KC, 64, 0), HR_OK);
    hr_dtype t;
    assert_int_equal(hr_kv_type_parse("i4kc", &t), HR_OK);
    assert_true(t == HR_I4KC && strcmp(hr_kv_type_name(t), "i4kc") == 0);
    assert_int_equal(hr_kv_type_parse("int3", &t), HR_ERR_USAGE);
    assert_non_null(strstr(hr_error(), "int3 is unknown"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_close_alike),    cmocka_unit_test(levels_are_near),
        cmocka_unit_test(cut_reopens_a_group),   cmocka_unit_test(forks_have_their_own_open_group),
        cmocka_unit_test(save_and_load),         cmocka_unit_test(prefixes_share_closed_groups),
        cmocka_unit_test(open_rows_are_counted), cmocka_unit_test(too_wide_heads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
