/* What allocators promise one by one: legal pairs and refusals by name, copies on write, shared prefixes, first fit, compaction, one
 * budget for both halves of the hybrid. */
#include "tests/hr_test.h"

#include "engine/kv/kv_internal.h"
#include "tests/kv_fixture.h"

enum { PAGE = 16, CAPACITY = 256, SEQS = 4 };

static hr_kv_cache_config config_of(hr_kv_alloc alloc, hr_kv_layout layout) {
    return (hr_kv_cache_config){.layout = layout,
                                .alloc = alloc,
                                .n_layers = 2,
                                .n_heads = 2,
                                .head_dim = 64,
                                .k_type = HR_BF16,
                                .v_type = HR_BF16,
                                .page_size = PAGE,
                                .max_seqs = SEQS,
                                .capacity = CAPACITY};
}

static hr_kv_cache *create(hr_kv_cache_config config) {
    hr_kv_cache *cache;
    if (hr_kv_cache_create(&config, &cache) != HR_OK) fail_msg("%s", hr_error());
    return cache;
}

/* The call was refused with that status, and the message names the rule. */
#define assert_refused(call, status, rule)                                                                      \
    do {                                                                                                        \
        assert_int_equal((call), (status));                                                                     \
        if (!strstr(hr_error(), (rule))) fail_msg("expected \"%s\" in the message, got: %s", rule, hr_error()); \
    } while (0)

static void sound(const hr_kv_cache *cache) {
    if (hr_kv_cache_check(cache) != HR_OK) fail_msg("%s", hr_error());
}

static void open_for(hr_kv_cache *cache, uint32_t seq, uint32_t max_len, uint32_t len) {
    if (hr_kv_cache_open(cache, seq, &(hr_kv_request){.max_len = max_len}, NULL) != HR_OK) fail_msg("%s", hr_error());
    assert_int_equal(hr_kv_cache_reserve(cache, seq, len), HR_OK);
}

/* ---- names, pairs, refusals ---- */

static void names_parse(void **state) {
    (void)state;
    hr_kv_alloc alloc;
    for (int i = HR_KV_PER_REQUEST; i < HR_KV_ALLOC_COUNT; i++) {
        assert_int_equal(hr_kv_alloc_parse(hr_kv_alloc_name((hr_kv_alloc)i), &alloc), HR_OK);
        assert_int_equal(alloc, i);
    }
    assert_refused(hr_kv_alloc_parse("slab", &alloc), HR_ERR_USAGE, "per-request, pool, paged or hybrid");
    assert_int_equal(hr_kv_alloc_parse("auto", &alloc), HR_ERR_USAGE);
}

static void pairs_are_those_of_the_table(void **state) {
    (void)state;
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
        for (int alloc = HR_KV_PER_REQUEST; alloc < HR_KV_ALLOC_COUNT; alloc++) {
            const bool whole = alloc == HR_KV_PER_REQUEST || alloc == HR_KV_POOL;
            const bool legal = alloc == HR_KV_HYBRID ? layout == HR_KV_PAGED : whole == (layout < HR_KV_PAGED);
            hr_kv_cache_config c = config_of((hr_kv_alloc)alloc, (hr_kv_layout)layout);
            uint64_t bytes;
            assert_int_equal(hr_kv_alloc_check((hr_kv_alloc)alloc, (hr_kv_layout)layout), legal ? HR_OK : HR_ERR_USAGE);
            assert_int_equal(hr_kv_cache_plan(&c, &bytes), legal ? HR_OK : HR_ERR_USAGE);
            if (!legal) assert_non_null(strstr(hr_error(), "does not go with"));
        }
        assert_int_equal(hr_kv_alloc_check(hr_kv_alloc_default((hr_kv_layout)layout), (hr_kv_layout)layout), HR_OK);
    }
}

static void bad_caches_are_refused(void **state) {
    (void)state;
    static const uint32_t pages[] = {0, 3, 257, 512};
    hr_kv_cache *cache;
    hr_kv_cache_config c = config_of(HR_KV_PAGES, HR_KV_PAGED);
    for (int i = 0; i < 4; i++) {
        c.page_size = pages[i];
        assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_USAGE, "page size");
        assert_null(cache);
    }
    c = config_of(HR_KV_PAGES, HR_KV_PAGED);
    c.pool_pages = CAPACITY / PAGE - 1;
    assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_MEMORY, "pool too small for one request");
    static const struct {
        hr_kv_alloc alloc;
        hr_kv_layout layout;
    } all[] = {{HR_KV_PER_REQUEST, HR_KV_HEAD},
               {HR_KV_POOL, HR_KV_ZORDER},
               {HR_KV_PAGES, HR_KV_PAGED_NHD},
               {HR_KV_HYBRID, HR_KV_PAGED}};
    for (int i = 0; i < 4; i++) {
        c = config_of(all[i].alloc, all[i].layout);
        c.max_seqs = 1;
        uint64_t one, all_of_them;
        assert_int_equal(hr_kv_cache_plan(&c, &one), HR_OK);
        c.max_seqs = SEQS, c.budget_bytes = one - 1;
        assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_MEMORY, "pool too small for one request");
        c.budget_bytes = one;
        assert_int_equal(hr_kv_cache_plan(&c, &all_of_them), HR_OK);
        assert_int_equal(all_of_them, one);
        c.budget_bytes = 100 * one; /* nobody could fill it */
        assert_int_equal(hr_kv_cache_plan(&c, &all_of_them), HR_OK);
        assert_int_equal(all_of_them, SEQS * one);
    }
    c = config_of(HR_KV_PAGES, HR_KV_PAGED_IDENTITY);
    uint64_t full;
    assert_int_equal(hr_kv_cache_plan(&c, &full), HR_OK);
    c.budget_bytes = full - 1;
    assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_MEMORY, "pages in order");
    c.budget_bytes = 0, c.share_prefix = true;
    assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_USAGE, "shared prefixes");
    c = config_of(HR_KV_POOL, HR_KV_HEAD);
    c.share_prefix = true;
    assert_refused(hr_kv_cache_create(&c, &cache), HR_ERR_USAGE, "shared prefixes");
}

static void bad_calls_are_refused(void **state) {
    (void)state;
    static const struct {
        hr_kv_alloc alloc;
        hr_kv_layout layout;
    } all[] = {{HR_KV_PER_REQUEST, HR_KV_TOKEN},
               {HR_KV_POOL, HR_KV_HEAD},
               {HR_KV_PAGES, HR_KV_PAGED},
               {HR_KV_PAGES, HR_KV_PAGED_IDENTITY},
               {HR_KV_HYBRID, HR_KV_PAGED}};
    for (int i = 0; i < 5; i++) {
        hr_kv_cache_config config = config_of(all[i].alloc, all[i].layout);
        config.threshold = 100;
        hr_kv_cache *c = create(config);
        char memory[16];
        assert_refused(hr_kv_cache_close(c, 0), HR_ERR_INPUT, "double free");
        assert_refused(hr_kv_cache_fork(c, 0, 1, 0), HR_ERR_INPUT, "fork of a closed sequence");
        assert_refused(hr_kv_cache_evict(c, 0, 1, 1), HR_ERR_INPUT, "closed sequence");
        assert_refused(hr_kv_cache_load(c, 0, memory, 1, 0, 0), HR_ERR_INPUT, "closed sequence");
        assert_refused(hr_kv_cache_open(c, SEQS, &(hr_kv_request){0}, NULL), HR_ERR_INPUT, "made for");
        assert_refused(hr_kv_cache_close(c, SEQS), HR_ERR_INPUT, "made for");
        assert_refused(hr_kv_cache_reserve(c, 0, CAPACITY + 1), HR_ERR_INPUT, "context");
        assert_refused(hr_kv_cache_open(c, 0, &(hr_kv_request){.max_len = CAPACITY + 1}, NULL), HR_ERR_INPUT,
                       "context");
        assert_false(hr_kv_cache_is_open(c, 0));
        open_for(c, 0, 60, 50);
        assert_refused(hr_kv_cache_open(c, 0, &(hr_kv_request){0}, NULL), HR_ERR_INPUT, "open already");
        assert_refused(hr_kv_cache_fork(c, 0, 0, 10), HR_ERR_INPUT, "open sequence");
        assert_refused(hr_kv_cache_fork(c, 0, 1, 51), HR_ERR_INPUT, "only 50");
        assert_refused(hr_kv_cache_fork(c, 0, SEQS, 5), HR_ERR_INPUT, "made for");
        assert_refused(hr_kv_cache_load(c, 0, memory, 1, 0, 0), HR_ERR_INPUT, "empty");
        assert_refused(hr_kv_cache_evict(c, 0, 4, 0), HR_ERR_INPUT, "page in use");
        assert_int_equal(hr_kv_cache_evict(c, 0, 4, 20), HR_OK);
        assert_refused(hr_kv_cache_evict(c, 0, 5, 10), HR_ERR_INPUT, "cannot bring back");
        assert_refused(hr_kv_cache_fork(c, 0, 1, 5), HR_ERR_INPUT, "lost positions");
        assert_int_equal(hr_kv_cache_fork(c, 0, 1, 4), HR_OK);
        assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
        assert_refused(hr_kv_cache_close(c, 0), HR_ERR_INPUT, "double free");
        assert_refused(hr_kv_cache_fork(c, 0, 2, 0), HR_ERR_INPUT, "fork of a closed sequence");
        sound(c);
        assert_int_equal(hr_kv_cache_stats(c).open_seqs, 1);
        hr_kv_cache_destroy(c);
    }
}

static void every_failed_allocation_is_survived(void **state) {
    (void)state;
    static const struct {
        hr_kv_alloc alloc;
        hr_kv_layout layout;
        bool share;
    } all[] = {{HR_KV_PER_REQUEST, HR_KV_HEAD, false},
               {HR_KV_POOL, HR_KV_ZORDER, false},
               {HR_KV_PAGES, HR_KV_PAGED, true},
               {HR_KV_PAGES, HR_KV_PAGED_IDENTITY, false},
               {HR_KV_HYBRID, HR_KV_PAGED, true}};
    for (int i = 0; i < 5; i++) {
        hr_kv_cache_config config = config_of(all[i].alloc, all[i].layout);
        config.k_type = HR_Q8_0, config.share_prefix = all[i].share;
        const uint64_t before = hr_alloc_count();
        hr_kv_cache *cache = create(config);
        const uint64_t calls = hr_alloc_count() - before;
        hr_kv_cache_destroy(cache);
        assert_true(calls >= 6);
        for (uint64_t n = 1; n <= calls; n++) {
            hr_fault_arm(HR_FAULT_ALLOC, n);
            assert_int_equal(hr_kv_cache_create(&config, &cache), HR_ERR_MEMORY);
            assert_null(cache);
        }
        hr_fault_arm(HR_FAULT_ALLOC, 0);
    }
}

/* ---- pages ---- */

static void writers_get_copies(void **state) {
    (void)state;
    hr_kv_cache *c = create(config_of(HR_KV_PAGES, HR_KV_PAGED));
    const uint32_t all = hr_kv_cache_free_pages(c);
    open_for(c, 0, 0, 40); /* three pages, the last half full */
    assert_int_equal(hr_kv_cache_fork(c, 0, 1, 40), HR_OK);
    assert_int_equal(hr_kv_cache_fork(c, 0, 2, 33), HR_OK);
    assert_int_equal(hr_kv_cache_free_pages(c), all - 3);
    assert_int_equal(hr_kv_cache_stats(c).used_bytes, 40 * 2 * 2 * 2 * 128); /* each position once */
    const uint32_t last = hr_kv_cache_view(c, 0)->table[2];
    assert_int_equal(hr_kv_cache_reserve(c, 0, 41), HR_OK); /* 1 and 2 see the old one */
    assert_int_not_equal(hr_kv_cache_view(c, 0)->table[2], last);
    assert_int_equal(hr_kv_cache_reserve(c, 1, 41), HR_OK);
    assert_int_not_equal(hr_kv_cache_view(c, 1)->table[2], last);
    assert_int_equal(hr_kv_cache_reserve(c, 2, 40), HR_OK); /* alone with it by now */
    assert_int_equal(hr_kv_cache_view(c, 2)->table[2], last);
    assert_int_equal(hr_kv_cache_stats(c).copies, 2);
    assert_int_equal(hr_kv_cache_free_pages(c), all - 5);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_int_equal(hr_kv_cache_free_pages(c), all - 4);
    sound(c);
    hr_kv_cache_destroy(c);
}

static void expected_pages_are_prepared(void **state) {
    (void)state;
    hr_kv_cache_config config = config_of(HR_KV_PAGES, HR_KV_PAGED);
    config.pool_pages = CAPACITY / PAGE;
    hr_kv_cache *c = create(config);
    assert_int_equal(hr_kv_cache_open(c, 0, &(hr_kv_request){.expect_len = 100}, NULL), HR_OK);
    assert_int_equal(hr_kv_cache_free_pages(c), 16 - 7);
    assert_int_equal(hr_kv_cache_reserve(c, 0, 112), HR_OK); /* what is there */
    assert_int_equal(hr_kv_cache_reserve(c, 0, 120), HR_OK); /* and one more */
    assert_int_equal(hr_kv_cache_free_pages(c), 16 - 8);
    hr_kv_cache_cut(c, 0, 3);
    assert_int_equal(hr_kv_cache_free_pages(c), 16 - 7);
    assert_refused(hr_kv_cache_open(c, 1, &(hr_kv_request){.expect_len = 150}, NULL), HR_ERR_MEMORY, "pages");
    const hr_kv_stats s = hr_kv_cache_stats(c);
    assert_true(s.opens == 1 && s.failed_opens == 1 && s.free_pages == 9);
    sound(c);
    hr_kv_cache_destroy(c);
}

static void evicted_pages_go_back(void **state) {
    (void)state;
    hr_kv_cache *c = create(config_of(HR_KV_PAGES, HR_KV_PAGED));
    const uint32_t all = hr_kv_cache_free_pages(c);
    open_for(c, 0, 0, 100);                                  /* 7 pages */
    assert_int_equal(hr_kv_cache_evict(c, 0, 4, 20), HR_OK); /* gone: 4..79; pages 1..4 have nothing else */
    assert_int_equal(hr_kv_cache_free_pages(c), all - 3);
    assert_int_equal(hr_kv_cache_evict(c, 0, 4, 90), HR_OK); /* brings nothing back */
    assert_int_equal(hr_kv_cache_view(c, 0)->gone_to, 80);
    hr_kv_cache_cut(c, 0, 70); /* inside the hole: only page 0 holds a position */
    assert_int_equal(hr_kv_cache_free_pages(c), all - 1);
    assert_int_equal(hr_kv_cache_view(c, 0)->gone_to, 70);
    assert_int_equal(hr_kv_cache_reserve(c, 0, 71), HR_OK);
    assert_int_equal(hr_kv_cache_free_pages(c), all - 2);
    hr_kv_cache_cut(c, 0, 4);
    assert_true(hr_kv_cache_view(c, 0)->gone_to == 0 && hr_kv_cache_view(c, 0)->gone_from == 0);
    sound(c);
    hr_kv_cache_destroy(c);
}

/* ---- shared prefixes ---- */

static hr_kv_cache *sharing(hr_kv_alloc alloc) {
    hr_kv_cache_config config = config_of(alloc, HR_KV_PAGED);
    config.share_prefix = true, config.pool_pages = alloc == HR_KV_PAGES ? CAPACITY / PAGE : 0;
    return create(config);
}

static uint32_t shared_by(hr_kv_cache *c, uint32_t seq, const int32_t *prompt, uint32_t n) {
    uint32_t shared = 77;
    if (hr_kv_cache_open(c, seq, &(hr_kv_request){.prompt = prompt, .n_prompt = n}, &shared) != HR_OK)
        fail_msg("%s", hr_error());
    assert_int_equal(hr_kv_cache_view(c, seq)->len, shared);
    assert_int_equal(hr_kv_cache_reserve(c, seq, n), HR_OK);
    sound(c);
    return shared;
}

static void count_up(int32_t *prompt, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) prompt[i] = (int32_t)i;
}

static void equal_prompts_share_pages(void **state) {
    (void)state;
    static const hr_kv_alloc allocs[] = {HR_KV_PAGES, HR_KV_HYBRID};
    for (int i = 0; i < 2; i++) {
        hr_kv_cache *c = sharing(allocs[i]);
        int32_t prompt[100];
        count_up(prompt, 100);
        assert_int_equal(shared_by(c, 0, prompt, 64), 0);
        assert_int_equal(shared_by(c, 1, prompt, 64), 48); /* never the whole prompt */
        assert_int_equal(shared_by(c, 2, prompt, 65), 64);
        assert_int_equal(hr_kv_cache_view(c, 2)->table[0], hr_kv_cache_view(c, 0)->table[0]);
        assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
        assert_int_equal(hr_kv_cache_close(c, 2), HR_OK);
        assert_int_equal(hr_kv_cache_close(c, 1), HR_OK);
        assert_int_equal(hr_kv_cache_stats(c).reserved_bytes, 0);
        assert_int_equal(hr_kv_cache_stats(c).cached_bytes, 4 * PAGE * 2 * 2 * 2 * 128);
        prompt[20] = -5; /* the second page differs, so all that follow do */
        assert_int_equal(shared_by(c, 0, prompt, 100), 16);
        const hr_kv_stats s = hr_kv_cache_stats(c);
        assert_int_equal(s.prefix_hits, 3);
        assert_int_equal(s.prefix_positions, 48 + 64 + 16);
        hr_kv_cache_destroy(c);
    }
}

/* The same tokens behind another beginning are another prefix, and equal hashes alone say nothing. */
static void hashes_are_not_believed(void **state) {
    (void)state;
    for (int weak = 0; weak < 2; weak++) {
        hr_kv_cache *c = sharing(HR_KV_PAGES);
        if (weak) c->hash_mask = 0;
        int32_t one[48], other[48];
        count_up(one, 48), count_up(other, 48);
        other[3] = 1000;
        assert_int_equal(shared_by(c, 0, one, 48), 0);
        assert_int_equal(shared_by(c, 1, other, 48), 0);
        assert_int_equal(shared_by(c, 2, other, 48), 32);
        assert_int_equal(hr_kv_cache_view(c, 2)->table[1], hr_kv_cache_view(c, 1)->table[1]);
        assert_int_equal(shared_by(c, 3, one, 40), 32);
        assert_int_equal(hr_kv_cache_view(c, 3)->table[1], hr_kv_cache_view(c, 0)->table[1]);
        hr_kv_cache_destroy(c);
    }
}

/* What is not the prompt, or was computed with a hole in sight, is not offered. */
static void only_the_prompt_is_shared(void **state) {
    (void)state;
    int32_t prompt[64], typed[64];
    count_up(prompt, 64), count_up(typed, 64);
    typed[20] = 9;
    hr_kv_cache *c = sharing(HR_KV_PAGES);
    assert_int_equal(shared_by(c, 0, prompt, 64), 0);
    hr_kv_cache_note(c, 0, 0, typed, 64);
    assert_int_equal(shared_by(c, 1, prompt, 64), 16);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_int_equal(hr_kv_cache_close(c, 1), HR_OK); /* the second page of this one is of the prompt */
    assert_int_equal(shared_by(c, 2, prompt, 64), 48);
    hr_kv_cache_destroy(c);

    c = sharing(HR_KV_PAGES);
    uint32_t shared;
    const hr_kv_request request = {.prompt = prompt, .n_prompt = 64};
    assert_int_equal(hr_kv_cache_open(c, 0, &request, &shared), HR_OK);
    assert_int_equal(hr_kv_cache_reserve(c, 0, 40), HR_OK);
    assert_int_equal(hr_kv_cache_evict(c, 0, 18, 8), HR_OK); /* 18..31 are gone; from 40 on a hole is seen */
    assert_int_equal(hr_kv_cache_reserve(c, 0, 64), HR_OK);
    assert_int_equal(shared_by(c, 1, prompt, 64), 32);
    hr_kv_cache_destroy(c);

    c = sharing(HR_KV_PAGES);
    assert_int_equal(hr_kv_cache_open(c, 0, &request, &shared), HR_OK);
    assert_int_equal(hr_kv_cache_reserve(c, 0, 30), HR_OK);
    hr_kv_cache_cut(c, 0, 20); /* what comes next need not be the prompt */
    assert_int_equal(hr_kv_cache_reserve(c, 0, 64), HR_OK);
    assert_int_equal(shared_by(c, 1, prompt, 64), 16);
    hr_kv_cache_destroy(c);
}

/* A cached page is overwritten only after it left the hash table; the least recently used prompt goes first, from its end. */
static void oldest_prompts_leave_first(void **state) {
    (void)state;
    hr_kv_cache *c = sharing(HR_KV_PAGES); /* 16 pages */
    int32_t prompts[3][80];
    for (int i = 0; i < 3; i++) {
        count_up(prompts[i], 80);
        prompts[i][0] = 100 + i;
        assert_int_equal(shared_by(c, 0, prompts[i], 80), 0);
        assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    }
    assert_int_equal(hr_kv_cache_free_pages(c), 1); /* 15 are cached */
    assert_int_equal(shared_by(c, 0, prompts[0], 80), 64);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK); /* now prompt 1 is the oldest */
    assert_int_equal(hr_kv_cache_reserve(c, 1, 4 * PAGE), HR_OK);
    assert_int_equal(hr_kv_cache_stats(c).evictions, 3);
    /* the last page of prompt 0, which its second reader computed anew, and the last two of prompt 1 */
    assert_int_equal(shared_by(c, 0, prompts[1], 80), 48);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_int_equal(shared_by(c, 0, prompts[0], 80), 64);
    sound(c);
    hr_kv_cache_destroy(c);
}

/* ---- extents ---- */

static void holes_are_filled_first_fit(void **state) {
    (void)state;
    hr_kv_cache_config config = config_of(HR_KV_POOL, HR_KV_HEAD); /* granules of 32 positions, 8 a full sequence */
    config.max_seqs = 8, config.budget_bytes = 0;
    uint64_t full;
    assert_int_equal(hr_kv_cache_plan(&config, &full), HR_OK);
    config.budget_bytes = full / 8; /* 8 granules */
    hr_kv_cache *c = create(config);
    const uint8_t *base = hr_kv_cache_view(c, 0)->base[HR_KV_K];
    for (uint32_t s = 0; s < 4; s++) open_for(c, s, 64, 64); /* 2 granules each */
    assert_refused(hr_kv_cache_open(c, 4, &(hr_kv_request){.max_len = 1}, NULL), HR_ERR_MEMORY, "in one piece");
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_int_equal(hr_kv_cache_close(c, 2), HR_OK);
    assert_int_equal(hr_kv_cache_stats(c).waste_between, full / 8 / 8 * 2);
    assert_refused(hr_kv_cache_open(c, 4, &(hr_kv_request){.max_len = 65}, NULL), HR_ERR_MEMORY, "smaller pieces");
    open_for(c, 4, 20, 20);
    assert_ptr_equal(hr_kv_cache_view(c, 4)->base[HR_KV_K], base);
    assert_int_equal(hr_kv_cache_stats(c).compactions, 0);
    sound(c);
    hr_kv_cache_destroy(c);

    config.compact_every = 100;
    c = create(config);
    for (uint32_t s = 0; s < 4; s++) open_for(c, s, 64, 64);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_int_equal(hr_kv_cache_close(c, 2), HR_OK);
    open_for(c, 4, 65, 65); /* for want of room */
    assert_int_equal(hr_kv_cache_stats(c).compactions, 1);
    assert_int_equal(hr_kv_cache_stats(c).moved_bytes, 2 * 2 * 2 * 2 * 64 * 128);
    assert_refused(hr_kv_cache_open(c, 5, &(hr_kv_request){.max_len = 65}, NULL), HR_ERR_MEMORY, "raise the budget");
    assert_int_equal(hr_kv_cache_stats(c).compactions, 1); /* it would not have helped */
    sound(c);
    hr_kv_cache_destroy(c);
}

static void compaction_comes_every_n_requests(void **state) {
    (void)state;
    hr_kv_cache_config config = config_of(HR_KV_POOL, HR_KV_BLOCK);
    config.compact_every = 2;
    hr_kv_cache *c = create(config);
    for (uint32_t s = 0; s < 4; s++) open_for(c, s, 64, 10);
    assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
    assert_true(hr_kv_cache_stats(c).compactions == 0 && hr_kv_cache_stats(c).waste_between > 0);
    assert_int_equal(hr_kv_cache_close(c, 2), HR_OK);
    assert_true(hr_kv_cache_stats(c).compactions == 1 && hr_kv_cache_stats(c).waste_between == 0);
    hr_kv_cache_destroy(c);
}

static void extents_outgrow_their_promise(void **state) {
    (void)state;
    hr_kv_cache *c = create(config_of(HR_KV_POOL, HR_KV_ZORDER));
    open_for(c, 0, 30, 30);
    const hr_kv_geom *short_one = hr_kv_cache_view(c, 0)->g;
    assert_int_equal(hr_kv_cache_reserve(c, 0, CAPACITY), HR_OK);
    assert_ptr_not_equal(hr_kv_cache_view(c, 0)->g, short_one);
    assert_int_equal(hr_kv_cache_stats(c).moves, 1);
    assert_true(hr_kv_cache_view(c, 0)->g->n_blocks > short_one->n_blocks);
    sound(c);
    hr_kv_cache_destroy(c);
}

/* ---- hybrid ---- */

static void both_halves_share_the_budget(void **state) {
    (void)state;
    hr_kv_cache_config config = config_of(HR_KV_HYBRID, HR_KV_PAGED);
    config.threshold = 100, config.max_seqs = 8;
    uint64_t full;
    assert_int_equal(hr_kv_cache_plan(&config, &full), HR_OK);
    config.budget_bytes = full / 8; /* 256 positions: 8 granules of 32, 16 pages */
    for (uint32_t compact = 0; compact < 2; compact++) {
        config.compact_every = compact;
        hr_kv_cache *c = create(config);
        assert_int_equal(hr_kv_cache_free_pages(c), 16);
        open_for(c, 0, 99, 99);   /* in the pool: four granules */
        open_for(c, 1, 100, 100); /* in pages: seven */
        assert_int_equal(hr_kv_cache_view(c, 0)->g->layout, HR_KV_HEAD);
        assert_int_equal(hr_kv_cache_view(c, 1)->g->layout, HR_KV_PAGED);
        assert_int_equal(hr_kv_cache_free_pages(c), 1);
        assert_refused(hr_kv_cache_open(c, 2, &(hr_kv_request){.max_len = 1}, NULL), HR_ERR_MEMORY, "one piece");
        assert_refused(hr_kv_cache_reserve(c, 1, 130), HR_ERR_MEMORY, "pages");
        assert_int_equal(hr_kv_cache_reserve(c, 1, 128), HR_OK);
        assert_int_equal(hr_kv_cache_close(c, 0), HR_OK);
        open_for(c, 2, 200, 120); /* pages where the extent was */
        sound(c);
        assert_int_equal(hr_kv_cache_close(c, 1), HR_OK); /* holes above: only moving makes room below */
        const hr_status status = hr_kv_cache_open(c, 3, &(hr_kv_request){.max_len = 90}, NULL);
        assert_int_equal(status, compact ? HR_OK : HR_ERR_MEMORY);
        sound(c);
        hr_kv_cache_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_parse),
        cmocka_unit_test(pairs_are_those_of_the_table),
        cmocka_unit_test(bad_caches_are_refused),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(writers_get_copies),
        cmocka_unit_test(expected_pages_are_prepared),
        cmocka_unit_test(evicted_pages_go_back),
        cmocka_unit_test(equal_prompts_share_pages),
        cmocka_unit_test(hashes_are_not_believed),
        cmocka_unit_test(only_the_prompt_is_shared),
        cmocka_unit_test(oldest_prompts_leave_first),
        cmocka_unit_test(holes_are_filled_first_fit),
        cmocka_unit_test(compaction_comes_every_n_requests),
        cmocka_unit_test(extents_outgrow_their_promise),
        cmocka_unit_test(both_halves_share_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
