/* Sequences under every allocator: what is forked, shared, moved, off-loaded or evicted is computed on to the same bits. */
#include "tests/hr_test.h"

#include "engine/engine.h"
#include "kernels/base/memory.h"

enum { VOCAB = 320, SEQS = 4, CTX = 320, PAGE = 16 };

#define OK(call)                                                    \
    do {                                                            \
        if ((call) != HR_OK) fail_msg("%s: %s", #call, hr_error()); \
    } while (0)

static hr_model *load(int layers) {
    hr_model *m = NULL;
    char spec[160];
    snprintf(spec, sizeof spec,
             "synth:tiny:layers=%d:dim=192:heads=6:kv_heads=2:head_dim=32:ffn=352:vocab=320:ctx=1024:seed=5", layers);
    const hr_load_options o = {.quant = HR_QUANT_BF16};
    OK(hr_model_load(spec, &o, &m));
    return m;
}

typedef struct way {
    hr_kv_alloc alloc;
    hr_kv_layout layout;
    uint32_t threshold, compact;
    bool share;
} way;
static const way ways[] = {
    {HR_KV_PER_REQUEST, HR_KV_HEAD, 0, 0, false}, {HR_KV_PER_REQUEST, HR_KV_ZORDER, 0, 0, false},
    {HR_KV_POOL, HR_KV_HEAD, 0, 1, false},        {HR_KV_POOL, HR_KV_TOKEN, 0, 1, false},
    {HR_KV_POOL, HR_KV_BLOCK, 0, 1, false},       {HR_KV_POOL, HR_KV_ZORDER_H, 0, 1, false},
    {HR_KV_POOL, HR_KV_SHUFFLED, 0, 1, false},    {HR_KV_PAGES, HR_KV_PAGED, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED_NHD, 0, 0, true},   {HR_KV_PAGES, HR_KV_PAGED_IDENTITY, 0, 0, false},
    {HR_KV_HYBRID, HR_KV_PAGED, 100, 1, true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static hr_engine *open_as(const hr_model *m, const way *w, hr_dtype type) {
    hr_engine_config c = hr_engine_config_default();
    c.threads = 2, c.pin = false, c.max_seqs = SEQS, c.ctx = CTX, c.page_size = PAGE, c.act = HR_ACT_F32;
    c.kv_layout = w->layout, c.kv_alloc = w->alloc, c.kv_threshold = w->threshold, c.kv_compact = w->compact;
    c.kv_share = w->share, c.k_type = c.v_type = type;
    hr_engine *e = NULL;
    if (hr_engine_create(m, &c, &e) != HR_OK)
        fail_msg("%s, %s: %s", hr_kv_alloc_name(w->alloc), hr_kv_layout_name(w->layout), hr_error());
    return e;
}

static hr_engine *open_way(const hr_model *m, const way *w) {
    return open_as(m, w, HR_BF16);
}

static void ids(int32_t *out, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((seed >> 33) % VOCAB);
    }
}

/* Logits of row i, copied, and compared to the bit. */
static void take(const hr_engine *e, size_t row, float out[VOCAB]) {
    memcpy(out, hr_engine_logits(e, row), VOCAB * sizeof *out);
}
static void assert_same_bits(const float *got, const float *want, const char *what, const way *w) {
    for (int i = 0; i < VOCAB; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s (%s, %s): logit %d: expected %.9g, got %.9g, tolerance 0 bits", what,
                     hr_kv_alloc_name(w->alloc), hr_kv_layout_name(w->layout), i, (double)want[i], (double)got[i]);
}
static void decode(hr_engine *e, uint32_t seq, int32_t token) {
    OK(hr_engine_decode(e, &seq, &token, 1));
}

static void a_fork_decodes_like_its_origin(void **state) {
    (void)state;
    hr_model *m = load(3);
    int32_t tokens[200];
    ids(tokens, 200, 1);
    for (int i = 0; i < WAYS; i++) {
        hr_engine *e = open_way(m, &ways[i]);
        float want[VOCAB], got[VOCAB], kept[VOCAB];
        for (uint32_t seq = 0; seq < 2; seq++) {
            OK(hr_engine_seq_open(e, seq, &(hr_kv_request){.max_len = 90 + seq * 60}, NULL));
            OK(hr_engine_prefill(e, seq, tokens, 70, false));
        }
        OK(hr_engine_seq_fork(e, 0, 2, 70)); /* to see that the fork of the fork leaves it alone */
        OK(hr_engine_seq_fork(e, 0, 3, 53));
        hr_engine_seq_cut(e, 1, 53);
        for (int n = 0; n < 60; n++) {
            decode(e, 1, tokens[100 + n]), take(e, 0, want);
            decode(e, 3, tokens[100 + n]), take(e, 0, got);
            assert_same_bits(got, want, "fork", &ways[i]);
            decode(e, 0, tokens[30 + n]), take(e, 0, want);
            decode(e, 2, tokens[30 + n]), take(e, 0, kept);
            assert_same_bits(kept, want, "origin of a fork", &ways[i]);
        }
        hr_engine_destroy(e);
    }
    hr_model_destroy(m);
}

static void a_shared_prefix_is_what_would_be_computed(void **state) {
    (void)state;
    hr_model *m = load(3);
    int32_t prompt[84];
    ids(prompt, 84, 2);
    for (int i = 0; i < WAYS; i++) {
        if (!ways[i].share) continue;
        hr_engine *e = open_way(m, &ways[i]);
        const hr_kv_request request = {.max_len = 120, .prompt = prompt, .n_prompt = 84};
        float want[VOCAB], got[VOCAB];
        uint32_t shared;
        OK(hr_engine_seq_open(e, 0, &request, &shared));
        assert_int_equal(shared, 0);
        OK(hr_engine_prefill(e, 0, prompt, 80, false));
        OK(hr_engine_prefill(e, 0, prompt + 80, 4, true));
        take(e, 0, want);
        for (uint32_t seq = 1; seq < 3; seq++) {
            OK(hr_engine_seq_open(e, seq, &request, &shared));
            assert_int_equal(shared, 80);
            OK(hr_engine_prefill(e, seq, prompt + shared, 4, true));
            take(e, 0, got);
            assert_same_bits(got, want, "shared prefix", &ways[i]);
            if (seq == 1) OK(hr_engine_seq_close(e, 0)); /* the next one finds pages that nobody holds any more */
            if (seq == 1) OK(hr_engine_seq_close(e, 1));
        }
        assert_int_equal(hr_engine_kv_stats(e).prefix_hits, 2);
        hr_engine_destroy(e);
    }
    hr_model_destroy(m);
}

/* From each way to the next one: other engine, other layout, other sequence. */
static void a_restored_sequence_goes_on(void **state) {
    (void)state;
    hr_model *m = load(3);
    int32_t tokens[200];
    ids(tokens, 200, 3);
    for (int i = 0; i < WAYS; i++) {
        const way *there = &ways[(i + 1) % WAYS];
        hr_engine *e = open_way(m, &ways[i]), *other = open_way(m, there);
        OK(hr_engine_prefill(e, 0, tokens, 90, false));
        decode(e, 0, tokens[90]);
        const uint64_t bytes = hr_engine_seq_saved_bytes(e, 0);
        assert_int_equal(bytes, 91 * 3 * 2 * 2 * 32 * 2);
        void *saved = malloc(bytes);
        assert_non_null(saved);
        hr_engine_seq_save(e, 0, saved);
        OK(hr_engine_seq_open(other, 2, &(hr_kv_request){.max_len = 60}, NULL));
        OK(hr_engine_seq_load(other, 2, saved, 91, 0, 0));
        free(saved);
        for (int n = 0; n < 30; n++) {
            float want[VOCAB], got[VOCAB];
            decode(e, 0, tokens[100 + n]), take(e, 0, want);
            decode(other, 2, tokens[100 + n]), take(other, 0, got);
            assert_same_bits(got, want, "restored", there);
        }
        hr_engine_destroy(e), hr_engine_destroy(other);
    }
    hr_model_destroy(m);
}

/* All of it together, in batches; returns a hash of all logits. */
static uint64_t life(const hr_model *m, const way *w) {
    hr_engine *e = open_way(m, w);
    int32_t tokens[400];
    ids(tokens, 400, 4);
    uint64_t hash = 14695981039346656037u;
    char *saved = NULL;
    static const uint32_t promise[] = {80, 150, 300};
    for (uint32_t s = 0; s < 3; s++) {
        OK(hr_engine_seq_open(e, s, &(hr_kv_request){.max_len = promise[s]}, NULL));
        OK(hr_engine_prefill(e, s, tokens + s, 40 + 30 * s, true));
    }
    for (int step = 0; step < 60; step++) {
        if (step == 10) OK(hr_engine_seq_fork(e, 1, 3, 60));
        if (step == 15) OK(hr_engine_prefill(e, 3, tokens + 200, 100, true)); /* outgrows the promise that it has */
        if (step == 20) {
            saved = realloc(saved, hr_engine_seq_saved_bytes(e, 2));
            hr_engine_seq_save(e, 2, saved);
            const uint32_t len = hr_engine_seq_len(e, 2);
            OK(hr_engine_seq_close(e, 2));
            OK(hr_engine_seq_close(e, 0)); /* leaves a hole; others slide */
            OK(hr_engine_seq_open(e, 2, &(hr_kv_request){.max_len = 140}, NULL));
            OK(hr_engine_seq_load(e, 2, saved, len, 0, 0));
            OK(hr_engine_prefill(e, 0, tokens + 77, 33, true));
        }
        if (step == 30) OK(hr_engine_seq_evict(e, 3, 4, 50));
        if (step == 35) OK(hr_engine_seq_evict(e, 1, 0, 7 + PAGE));
        if (step == 38) OK(hr_engine_prefill(e, 1, tokens + 150, 70, true));
        if (step == 40) hr_engine_seq_cut(e, 3, 155); /* inside what is left behind the hole */
        if (step == 45) OK(hr_engine_seq_evict(e, 3, 4, 20));
        uint32_t seqs[SEQS], n = 0;
        int32_t next[SEQS];
        for (uint32_t s = 0; s < SEQS; s++) {
            if (!hr_engine_seq_len(e, s)) continue;
            seqs[n] = s, next[n++] = tokens[step * 5 + (int)s];
        }
        OK(hr_engine_decode(e, seqs, next, n));
        for (uint32_t i = 0; i < n; i++) {
            for (int x = 0; x < VOCAB; x++) {
                uint32_t bits;
                memcpy(&bits, hr_engine_logits(e, i) + x, sizeof bits);
                hash = (hash ^ bits) * 1099511628211u;
            }
        }
    }
    free(saved);
    hr_engine_destroy(e);
    return hash;
}

static void every_allocator_gives_the_same_bits(void **state) {
    (void)state;
    hr_model *m = load(3);
    const uint64_t want = life(m, &ways[0]);
    for (int i = 1; i < WAYS; i++) {
        const uint64_t got = life(m, &ways[i]);
        if (got != want)
            fail_msg("%s, %s: expected hash %016llx, got %016llx", hr_kv_alloc_name(ways[i].alloc),
                     hr_kv_layout_name(ways[i].layout), (unsigned long long)want, (unsigned long long)got);
    }
    hr_model_destroy(m);
}

/* In a model of one layer K and V of a position follow from its token alone, and rotated positions act by their distance: with
 * no sinks, what is computed behind an evicted beginning is what a sequence of the window alone would give. The tolerance is
 * that of f32 rows: rotations by other angles and sums in another order. */
static void eviction_is_attention_with_a_hole(void **state) {
    (void)state;
    hr_model *m = load(1);
    int32_t tokens[260];
    ids(tokens, 260, 7);
    for (int i = 0; i < WAYS; i++) {
        for (uint32_t window = 5; window < 100; window += 30) {
            hr_engine *e = open_as(m, &ways[i], HR_F32);
            float want[VOCAB], got[VOCAB], all[VOCAB];
            OK(hr_engine_prefill(e, 0, tokens, 150, false));
            OK(hr_engine_prefill(e, 2, tokens, 150, false));
            OK(hr_engine_seq_evict(e, 0, 0, window));
            OK(hr_engine_prefill(e, 1, tokens + 150 - window, window, false));
            for (int n = 0; n < 20; n++) {
                decode(e, 0, tokens[150 + n]), take(e, 0, got);
                decode(e, 1, tokens[150 + n]), take(e, 0, want);
                hr_assert_near(got, want, VOCAB, 1e-3, "evicted");
            }
            OK(hr_engine_prefill(e, 0, tokens + 170, 40, true));
            take(e, 0, got);
            OK(hr_engine_prefill(e, 1, tokens + 170, 40, true));
            take(e, 0, want);
            OK(hr_engine_prefill(e, 2, tokens + 150, 60, true));
            take(e, 0, all);
            hr_assert_near(got, want, VOCAB, 1e-3, "evicted, a chunk");
            double far = 0;
            for (int x = 0; x < VOCAB; x++) far = fmax(far, fabs((double)all[x] - (double)want[x]));
            assert_true(far > 0.05 || window > 90); /* what was evicted mattered */
            hr_engine_destroy(e);
        }
    }
    hr_model_destroy(m);
}

/* No room for a step: no sequence has grown, none was opened, and what goes on is what would have been. */
static void a_step_without_room_changes_nothing(void **state) {
    (void)state;
    hr_model *m = load(2);
    int32_t tokens[CTX];
    ids(tokens, CTX, 6);
    const way *w = &ways[7];
    hr_engine_config c = hr_engine_config_default();
    c.threads = 1, c.pin = false, c.max_seqs = SEQS, c.ctx = CTX, c.page_size = PAGE, c.act = HR_ACT_F32;
    c.kv_layout = w->layout, c.kv_budget_pct = 25, c.ubatch = 64; /* 20 pages: one full sequence */
    hr_engine *e = NULL;
    OK(hr_engine_create(m, &c, &e));
    OK(hr_engine_prefill(e, 0, tokens, 144, false));
    OK(hr_engine_prefill(e, 1, tokens, 160, false));
    hr_kv_stats before = hr_engine_kv_stats(e);
    assert_int_equal(before.free_pages, 1);
    assert_int_equal(hr_engine_decode(e, (uint32_t[]){0, 1}, tokens, 2), HR_ERR_MEMORY);
    assert_int_equal(hr_engine_decode(e, (uint32_t[]){2, 0}, tokens, 2), HR_ERR_MEMORY);
    assert_int_equal(hr_engine_prefill(e, 3, tokens, 100, true), HR_ERR_MEMORY); /* in its second pass */
    hr_kv_stats after = hr_engine_kv_stats(e);
    assert_true(after.failed_opens > 0 || before.failed_opens == after.failed_opens);
    assert_true(after.free_pages == 1 && after.open_seqs == 2 && after.used_bytes == before.used_bytes);
    assert_true(hr_engine_seq_len(e, 0) == 144 && hr_engine_seq_len(e, 1) == 160);
    OK(hr_engine_seq_close(e, 1));
    OK(hr_engine_prefill(e, 3, tokens, 100, true));
    assert_int_equal(hr_engine_seq_close(e, 1), HR_ERR_INPUT);
    hr_engine_destroy(e);
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_decodes_like_its_origin),
        cmocka_unit_test(a_shared_prefix_is_what_would_be_computed),
        cmocka_unit_test(a_restored_sequence_goes_on),
        cmocka_unit_test(every_allocator_gives_the_same_bits),
        cmocka_unit_test(eviction_is_attention_with_a_hole),
        cmocka_unit_test(a_step_without_room_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
