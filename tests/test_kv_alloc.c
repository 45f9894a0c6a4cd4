/* Random traffic over all allocators and layouts: after each step every invariant holds and every row is what its sequence wrote. */
#include "tests/hr_test.h"

#include "tests/kv_traffic.h"

typedef struct world {
    hr_kv_alloc alloc;
    hr_kv_layout layout;
    hr_dtype k, v;
    uint32_t page_size, threshold, compact_every;
    bool share;
} world;

static const world worlds[] = {
    {HR_KV_PER_REQUEST, HR_KV_HEAD, HR_BF16, HR_BF16, 0, 0, 0, false},
    {HR_KV_PER_REQUEST, HR_KV_ZORDER, HR_F32, HR_Q4_0, 0, 0, 0, false},
    {HR_KV_POOL, HR_KV_HEAD, HR_BF16, HR_BF16, 0, 0, 0, false},
    {HR_KV_POOL, HR_KV_HEAD, HR_Q8_0, HR_BF16, 0, 0, 3, false},
    {HR_KV_POOL, HR_KV_TOKEN, HR_BF16, HR_Q4_0, 0, 0, 4, false},
    {HR_KV_POOL, HR_KV_BLOCK, HR_F32, HR_BF16, 0, 0, 2, false},
    {HR_KV_POOL, HR_KV_ZORDER, HR_F32, HR_F32, 0, 0, 5, false},
    {HR_KV_POOL, HR_KV_ZORDER_H, HR_F32, HR_Q8_0, 0, 0, 1, false},
    {HR_KV_POOL, HR_KV_SHUFFLED, HR_F32, HR_F16, 0, 0, 7, false},
    {HR_KV_PAGES, HR_KV_PAGED, HR_BF16, HR_BF16, 1, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED, HR_BF16, HR_Q8_0, 4, 0, 0, false},
    {HR_KV_PAGES, HR_KV_PAGED, HR_Q8_0, HR_BF16, 8, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED, HR_F32, HR_Q4_0, 64, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED_NHD, HR_BF16, HR_BF16, 4, 0, 0, true},
    {HR_KV_PAGES, HR_KV_PAGED_NHD, HR_Q8_0, HR_Q8_0, 16, 0, 0, false},
    {HR_KV_PAGES, HR_KV_PAGED_IDENTITY, HR_BF16, HR_Q8_0, 8, 0, 0, false},
    {HR_KV_HYBRID, HR_KV_PAGED, HR_F32, HR_F32, 4, 60, 0, true},
    {HR_KV_HYBRID, HR_KV_PAGED, HR_F32, HR_Q8_0, 8, 60, 2, true},
    {HR_KV_HYBRID, HR_KV_PAGED, HR_BF16, HR_BF16, 1, 100, 4, false},
    {HR_KV_HYBRID, HR_KV_PAGED, HR_F32, HR_BF16, 32, 100, 1, true},
};

static hr_kv_cache_config config_of(const world *w, uint64_t scatter) {
    return (hr_kv_cache_config){.layout = w->layout,
                                .alloc = w->alloc,
                                .n_layers = 2,
                                .n_heads = 3,
                                .head_dim = 64,
                                .k_type = w->k,
                                .v_type = w->v,
                                .page_size = w->page_size,
                                .max_seqs = TRAFFIC_SEQS,
                                .capacity = TRAFFIC_CAPACITY,
                                .threshold = w->threshold,
                                .compact_every = w->compact_every,
                                .share_prefix = w->share,
                                .scatter = scatter};
}

/* The traffic is worth something: each kind of step was done and refused, and every way of an allocator was taken. */
static void assert_worth(const traffic_sum *sum) {
    for (int op = 0; op < TRAFFIC_OPS; op++) {
        print_message("%s: %llu done, %llu refused\n", traffic_names[op], (unsigned long long)sum->done[op][0],
                      (unsigned long long)sum->done[op][1]);
        assert_true(sum->done[op][0] > 100 && (op == T_CUT || sum->done[op][1] > 100));
    }
    const hr_kv_stats *s = &sum->stats;
    print_message("%llu shared prefixes, %llu evictions, %llu copies, %llu moves, %llu compactions\n",
                  (unsigned long long)s->prefix_hits, (unsigned long long)s->evictions, (unsigned long long)s->copies,
                  (unsigned long long)s->moves, (unsigned long long)s->compactions);
    assert_true(s->prefix_hits > 50 && s->evictions > 50 && s->copies > 50 && s->moves > 50 && s->compactions > 50);
}

static void random_traffic_keeps_every_row(void **state) {
    (void)state;
    static const uint32_t budgets[] = {25, 50, 100};
    const int steps = hr_test_quick() ? 60 : 500;
    traffic_sum sum = {0};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        for (int b = 0; b < 3; b++) {
            if (worlds[w].layout == HR_KV_PAGED_IDENTITY && budgets[b] < 100) continue;
            hr_kv_cache_config c = config_of(&worlds[w], w);
            uint64_t demand;
            assert_int_equal(hr_kv_cache_plan(&c, &demand), HR_OK);
            c.budget_bytes = demand * budgets[b] / 100;
            traffic_run(&c, 1000 * w + (uint64_t)b, steps, &sum);
        }
    }
    if (!hr_test_quick()) assert_worth(&sum);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_traffic_keeps_every_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
