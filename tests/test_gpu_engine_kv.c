/* The KV cache of an engine on a GPU: every layout and type, and what happens to sequences, against the same on the CPU. */
#include "tests/gpu_engine_fixture.h"

#define GPU_ONE "synth:tiny:layers=2:dim=64:heads=4:kv_heads=2:head_dim=32:ffn=64:vocab=320:ctx=512:seed=5"
enum { PAGE = 16 };

typedef struct way {
    hr_kv_alloc alloc;
    hr_kv_layout layout;
    uint32_t threshold, compact;
    bool share;
} way;
static const way ways[] = {
    {HR_KV_PER_REQUEST, HR_KV_HEAD, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_TOKEN, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_BLOCK, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_ZORDER, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_ZORDER_H, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_SHUFFLED, 0, 0, false},
    {HR_KV_POOL, HR_KV_HEAD, 0, 1, false},
    {HR_KV_POOL, HR_KV_BLOCK, 0, 1, false},
    {HR_KV_PAGES, HR_KV_PAGED, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED_NHD, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED_IDENTITY, 0, 0, false},
    {HR_KV_HYBRID, HR_KV_PAGED, 60, 1, true},
};
enum { WAYS = sizeof ways / sizeof *ways };

static const struct {
    hr_dtype k, v;
} types[] = {{HR_BF16, HR_BF16},  {HR_F32, HR_F32},   {HR_F16, HR_F16},   {HR_Q8_0, HR_Q8_0},
             {HR_I8ROW, HR_BF16}, {HR_Q4_0, HR_Q8_0}, {HR_I4KC, HR_I4KC}, {HR_I4KC, HR_BF16}};
enum { TYPES = sizeof types / sizeof *types };

static hr_engine_config config_of(const way *w, int type) {
    hr_engine_config c = gpu_config();
    c.kv_layout = w->layout, c.kv_alloc = w->alloc, c.kv_threshold = w->threshold, c.kv_compact = w->compact;
    c.kv_share = w->share, c.page_size = hr_kv_is_paged(w->layout) ? PAGE : 0;
    c.k_type = types[type].k, c.v_type = types[type].v, c.max_seqs = 4;
    return c;
}

static const char *name_of(const way *w, int type) {
    static char text[96];
    snprintf(text, sizeof text, "%s, %s, K %s, V %s", hr_kv_alloc_name(w->alloc), hr_kv_layout_name(w->layout),
             hr_kv_type_name(types[type].k), hr_kv_type_name(types[type].v));
    return text;
}

#define BOTH(p, call)                                                                   \
    do {                                                                                \
        hr_engine *e = (p)->cpu;                                                        \
        if ((call) != HR_OK) fail_msg("%s: " #call ": %s", (p)->what, hr_error());      \
        e = (p)->gpu;                                                                   \
        if ((call) != HR_OK) fail_msg("%s, GPU: " #call ": %s", (p)->what, hr_error()); \
    } while (0)

static void step(const gpu_pair *p, const int32_t *tokens) {
    uint32_t seqs[4], n = 0;
    for (uint32_t s = 0; s < 4; s++)
        if (hr_engine_seq_len(p->cpu, s)) seqs[n++] = s;
    gpu_decode(p, seqs, tokens, n);
}

/* What can happen to sequences: growth past a promise, forks that write shared pages, groups of K that close and are opened again,
 * holes, what is put away and brought back, extents that slide. */
static void life(const hr_model *m, const way *w, int type) {
    const hr_engine_config c = config_of(w, type);
    gpu_pair pair = gpu_open(m, &c, name_of(w, type)), *p = &pair;
    int32_t tokens[400];
    gpu_ids(tokens, 400, 11);
    static const uint32_t promise[] = {50, 70, 90};
    for (uint32_t s = 0; s < 3; s++) {
        BOTH(p, hr_engine_seq_open(e, s, &(hr_kv_request){.max_len = promise[s]}, NULL));
        gpu_prefill(p, s, tokens + s, 30 + 9 * s);
    }
    for (int i = 0; i < 3; i++) step(p, tokens + 100 + 4 * i); /* K of i4kc: a group closes */
    BOTH(p, hr_engine_seq_fork(e, 1, 3, 36));
    step(p, tokens + 120);
    gpu_prefill(p, 3, tokens + 130, 40);
    gpu_prefill(p, 0, tokens + 180, 31); /* outgrows its promise */
    hr_engine_seq_cut(p->cpu, 3, 60), hr_engine_seq_cut(p->gpu, 3, 60);
    step(p, tokens + 220);
    BOTH(p, hr_engine_seq_evict(e, 2, 4, 11));
    step(p, tokens + 230);
    const uint64_t bytes = hr_engine_seq_saved_bytes(p->gpu, 2);
    assert_int_equal(bytes, hr_engine_seq_saved_bytes(p->cpu, 2));
    char *there = malloc(bytes), *here = malloc(bytes);
    hr_engine_seq_save(p->gpu, 2, there), hr_engine_seq_save(p->cpu, 2, here);
    const uint32_t len = hr_engine_seq_len(p->gpu, 2);
    const uint32_t granule = types[type].k == HR_I4KC ? 32 : 1;
    const uint32_t gone_to = (len - 1 - 11) / granule * granule, sinks = (4 + granule - 1) / granule * granule;
    BOTH(p, hr_engine_seq_close(e, 2));
    BOTH(p, hr_engine_seq_close(e, 0)); /* with compaction the others slide down */
    step(p, tokens + 240);
    BOTH(p, hr_engine_seq_open(e, 2, &(hr_kv_request){.max_len = 80}, NULL));
    const uint32_t from = sinks < gone_to ? sinks : 0, to = sinks < gone_to ? gone_to : 0;
    OK(hr_engine_seq_load(p->cpu, 2, there, len, from,
                          to)); /* what the GPU put away, on the CPU, and the other way round */
    OK(hr_engine_seq_load(p->gpu, 2, here, len, from, to));
    free(there), free(here);
    for (int i = 0; i < 2; i++) step(p, tokens + 250 + 4 * i);
    const hr_kv_stats a = hr_engine_kv_stats(p->cpu), b = hr_engine_kv_stats(p->gpu);
    assert_int_equal(a.used_bytes, b.used_bytes);
    assert_int_equal(a.free_pages, b.free_pages);
    assert_int_equal(a.copies + a.moves, b.copies + b.moves);
    assert_int_equal(a.compactions, b.compactions);
    gpu_close(p);
}

/* Every layout and allocator with a type or two, every type in one piece and in pages. */
static void every_layout(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_ONE, HR_QUANT_F32);
    for (int w = 0; w < WAYS; w++) life(m, &ways[w], w % 2 ? 6 : w % 4 / 2);
    hr_model_destroy(m);
}
static void every_type(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_ONE, HR_QUANT_F32);
    for (int t = 2; t < TYPES; t++) life(m, &ways[t % 2 ? 0 : 8], t);
    life(m, &ways[11], 7);
    hr_model_destroy(m);
}

/* Steps are replayed from graphs while pages are taken, shared and copied. */
static void a_prefix_is_shared(void **state) {
    (void)state;
    hr_model *m = gpu_load(GPU_TINY, HR_QUANT_BF16);
    int32_t prompt[84];
    gpu_ids(prompt, 84, 2);
    for (int w = 8; w < 10; w++) {
        for (int type = 0; type < TYPES; type += 6) {
            const hr_engine_config c = config_of(&ways[w], type);
            gpu_pair pair = gpu_open(m, &c, name_of(&ways[w], type)), *p = &pair;
            const hr_kv_request request = {.max_len = 120, .prompt = prompt, .n_prompt = 84};
            uint32_t shared = 0;
            BOTH(p, hr_engine_seq_open(e, 0, &request, &shared));
            assert_int_equal(shared, 0);
            gpu_prefill(p, 0, prompt, 84);
            for (uint32_t seq = 1; seq < 3; seq++) {
                BOTH(p, hr_engine_seq_open(e, seq, &request, &shared));
                assert_int_equal(shared, type == 6 ? 64 : 80);
                gpu_prefill(p, seq, prompt + shared, 84 - shared);
                for (int i = 0; i < 3; i++) step(p, prompt + 3 * (int)seq + 4 * i);
            }
            assert_int_equal(hr_engine_kv_stats(p->gpu).prefix_hits, 2);
            gpu_close(p);
        }
    }
    hr_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout),
        cmocka_unit_test(every_type),
        cmocka_unit_test(a_prefix_is_shared),
    };
    return cmocka_run_group_tests(tests, use_fake_driver, NULL);
}
