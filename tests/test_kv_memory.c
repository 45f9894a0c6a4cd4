/* A cache in memory that the process cannot follow: every operation gives the bytes that it gives in the process's own. */
#include "tests/kv_fixture.h"

enum { LAYERS = 2, HEADS = 3, DIM = 64, SEQS = 4, CAPACITY = 160, PAGE = 16 };

/* Addresses are moved away from where the bytes are: who follows one faults. */
static const uintptr_t AWAY = (uintptr_t)1 << 52;

typedef struct far_memory {
    hr_kv_memory functions;
    size_t held, allocations, reads, writes, copies, row_copies;
} far_memory;

static uint8_t *near(const uint8_t *at) {
    return (uint8_t *)((uintptr_t)at - AWAY);
}
static hr_status far_alloc(void *context, size_t bytes, uint8_t **out) {
    far_memory *m = context;
    uint8_t *at = hr_pages_alloc(bytes, false);
    if (!at) HR_FAIL(HR_ERR_MEMORY, "no far memory");
    m->held += bytes, m->allocations++;
    *out = (uint8_t *)((uintptr_t)at + AWAY);
    return HR_OK;
}
static void far_free(void *context, uint8_t *at, size_t bytes) {
    ((far_memory *)context)->held -= bytes;
    hr_pages_free(near(at), bytes);
}
static void far_copy(void *context, uint8_t *to, const uint8_t *from, size_t bytes) {
    ((far_memory *)context)->copies++;
    memmove(near(to), near(from), bytes);
}
static void far_write(void *context, uint8_t *to, const void *from, size_t bytes) {
    ((far_memory *)context)->writes++;
    memcpy(near(to), from, bytes);
}
static void far_read(void *context, void *to, const uint8_t *from, size_t bytes) {
    ((far_memory *)context)->reads++;
    memcpy(to, near(from), bytes);
}
/* A view whose pointers can be followed. */
static hr_kv_seq near_view(const hr_kv_cache *cache, uint32_t seq) {
    hr_kv_seq s = *hr_kv_cache_view(cache, seq);
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (s.base[x]) s.base[x] = near(s.base[x]);
    if (s.open) s.open = near(s.open);
    return s;
}
static void far_copy_rows(void *context, const hr_kv_seq *source, const hr_kv_seq *target, uint32_t from, uint32_t to) {
    far_memory *m = context;
    m->row_copies++;
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t pos = from; pos < to; pos++) {
                const hr_kv_rows a = hr_kv_run(source, l, h, pos), b = hr_kv_run(target, l, h, pos);
                for (int x = 0; x < HR_KV_PLANES; x++)
                    if (a.at[x]) memcpy(near(b.at[x]), near(a.at[x]), source->g->row_bytes[x]);
            }
}

static hr_kv_cache *make(const hr_kv_cache_config *config) {
    hr_kv_cache *cache;
    if (hr_kv_cache_create(config, &cache) != HR_OK) fail_msg("%s", hr_error());
    hr_kv_cache_touch(cache, 0, 1);
    return cache;
}

/* The two caches, and a row of the table that appends. */
typedef struct pair {
    hr_kv_cache *here, *there;
    const hr_kernel *append;
    const float *x; /* [CAPACITY][HEADS * DIM] */
    const char *name;
} pair;

static void append(const pair *p, uint32_t seq, uint32_t to, size_t shift) {
    const uint32_t from = hr_kv_cache_view(p->here, seq)->len, ld = HEADS * DIM;
    assert_int_equal(hr_kv_cache_reserve(p->here, seq, to), HR_OK);
    assert_int_equal(hr_kv_cache_reserve(p->there, seq, to), HR_OK);
    const hr_kv_seq views[] = {*hr_kv_cache_view(p->here, seq), near_view(p->there, seq)};
    const float *rows = p->x + (from + shift) % 7 * ld;
    for (int i = 0; i < 2; i++)
        for (uint32_t l = 0; l < LAYERS; l++)
            p->append->fn.kv_append(&views[i], l, from, rows, ld, rows + l, ld, 0, to - from, 0, HEADS);
}

static void assert_same(const pair *p, const char *after) {
    for (uint32_t seq = 0; seq < SEQS; seq++) {
        const uint64_t n = hr_kv_cache_saved_bytes(p->here, seq);
        assert_int_equal(hr_kv_cache_saved_bytes(p->there, seq), n);
        if (!n) continue;
        uint8_t *a = malloc(n), *b = malloc(n);
        hr_kv_cache_save(p->here, seq, a), hr_kv_cache_save(p->there, seq, b);
        for (uint64_t i = 0; i < n; i++)
            if (a[i] != b[i])
                fail_msg("%s, sequence %u after %s: byte %llu of %llu: expected %u, got %u, tolerance 0", p->name, seq,
                         after, (unsigned long long)i, (unsigned long long)n, a[i], b[i]);
        free(a), free(b);
    }
    if (hr_kv_cache_check(p->there) != HR_OK) fail_msg("%s after %s: %s", p->name, after, hr_error());
}

#define BOTH(call, text)                                                                   \
    do {                                                                                   \
        hr_kv_cache *c = p->here;                                                          \
        if ((call) != HR_OK) fail_msg("%s: %s: %s", p->name, text, hr_error());            \
        c = p->there;                                                                      \
        if ((call) != HR_OK) fail_msg("%s, elsewhere: %s: %s", p->name, text, hr_error()); \
        assert_same(p, text);                                                              \
    } while (0)

static void cut(const pair *p, uint32_t seq, uint32_t len) {
    hr_kv_cache_cut(p->here, seq, len), hr_kv_cache_cut(p->there, seq, len);
    assert_same(p, "cut");
}

static void life(const pair *p) {
    static const uint32_t promise[] = {40, 60, 100};
    for (uint32_t s = 0; s < 3; s++) {
        BOTH(hr_kv_cache_open(c, s, &(hr_kv_request){.max_len = promise[s]}, NULL), "open");
        append(p, s, 37 + 11 * s, s);
    }
    assert_same(p, "append");
    append(p, 0, 70, 3); /* outgrows its promise */
    assert_same(p, "growth");
    BOTH(hr_kv_cache_fork(c, 0, 3, 45), "fork");
    append(p, 3, 66, 4); /* writes a page that is shared, closes a group */
    assert_same(p, "append to a fork");
    cut(p, 3, 64 - 5); /* reopens a closed group */
    append(p, 3, 64, 5);
    cut(p, 3, 40);
    BOTH(hr_kv_cache_evict(c, 2, 4, 9), "evict");
    append(p, 2, 64, 6);
    cut(p, 2, 50); /* reopens a group some of which is gone */
    BOTH(hr_kv_cache_close(c, 0), "close");
    BOTH(hr_kv_cache_close(c, 1), "close"); /* what is left slides down where compaction is on */
    const uint64_t n = hr_kv_cache_saved_bytes(p->here, 3);
    uint8_t *saved = malloc(n);
    hr_kv_cache_save(p->there, 3, saved);
    BOTH(hr_kv_cache_open(c, 1, &(hr_kv_request){.max_len = 80}, NULL), "open again");
    BOTH(hr_kv_cache_load(c, 1, saved, 40, 0, 0), "load");
    append(p, 1, 75, 2);
    assert_same(p, "append after load");
    free(saved);
}

static void every_operation_gives_the_same_bytes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        hr_kv_layout layout;
        hr_kv_alloc alloc;
        uint32_t compact;
    } ways[] = {
        {"head", HR_KV_HEAD, HR_KV_PER_REQUEST, 0},     {"token", HR_KV_TOKEN, HR_KV_PER_REQUEST, 0},
        {"zorder", HR_KV_ZORDER, HR_KV_PER_REQUEST, 0}, {"block, pool", HR_KV_BLOCK, HR_KV_POOL, 1},
        {"head, pool", HR_KV_HEAD, HR_KV_POOL, 1},      {"paged", HR_KV_PAGED, HR_KV_PAGES, 0},
        {"paged-nhd", HR_KV_PAGED_NHD, HR_KV_PAGES, 0}, {"paged-identity", HR_KV_PAGED_IDENTITY, HR_KV_PAGES, 0},
        {"hybrid", HR_KV_PAGED, HR_KV_HYBRID, 1}};
    static const hr_dtype types[][2] = {{HR_BF16, HR_BF16}, {HR_Q8_0, HR_Q4_0}, {HR_I4KC, HR_I4KC}};
    float *x = fix_floats((CAPACITY + 8) * HEADS * DIM + LAYERS, 11);
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (size_t t = 0; t < 3; t++) {
            for (int rows = 0; rows < 2; rows++) {
                far_memory far = {.functions = {.context = &far,
                                                .alloc = far_alloc,
                                                .free = far_free,
                                                .copy = far_copy,
                                                .write = far_write,
                                                .read = far_read,
                                                .copy_rows = rows ? far_copy_rows : NULL}};
                hr_kv_cache_config config = {.layout = ways[w].layout,
                                             .alloc = ways[w].alloc,
                                             .n_layers = LAYERS,
                                             .n_heads = HEADS,
                                             .head_dim = DIM,
                                             .k_type = types[t][0],
                                             .v_type = types[t][1],
                                             .page_size = hr_kv_is_paged(ways[w].layout) ? PAGE : 0,
                                             .max_seqs = SEQS,
                                             .capacity = CAPACITY,
                                             .threshold = 50,
                                             .compact_every = ways[w].compact,
                                             .no_huge_pages = true};
                pair p = {
                    .x = x, .name = ways[w].name, .append = fix_kernel_of(HR_FAM_KV_APPEND, HR_ISA_GENERIC, true)};
                p.here = make(&config);
                config.memory = &far.functions;
                p.there = make(&config);
                assert_true(far.allocations >= 2);
                life(&p);
                assert_true(far.reads > 0 && far.writes > 0);
                assert_true(!rows || far.row_copies > 0 || ways[w].alloc == HR_KV_PAGES);
                hr_kv_cache_destroy(p.here), hr_kv_cache_destroy(p.there);
                assert_int_equal(far.held, 0);
            }
        }
    }
    hr_free(x);
}

static void memory_that_cannot_be_had_is_said(void **state) {
    (void)state;
    hr_kv_memory none = {.alloc = NULL};
    far_memory far = {.held = 0};
    none = (hr_kv_memory){&far, far_alloc, far_free, far_copy, far_write, far_read, NULL};
    const hr_kv_cache_config config = {.memory = &none,
                                       .layout = HR_KV_HEAD,
                                       .n_layers = LAYERS,
                                       .n_heads = HEADS,
                                       .head_dim = DIM,
                                       .k_type = HR_BF16,
                                       .v_type = HR_BF16,
                                       .max_seqs = 2,
                                       .capacity = CAPACITY};
    for (uint64_t nth = 1; nth < 6; nth++) {
        hr_kv_cache *cache = NULL;
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        const hr_status status = hr_kv_cache_create(&config, &cache);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
        if (status == HR_OK)
            hr_kv_cache_destroy(cache);
        else
            assert_int_equal(status, HR_ERR_MEMORY);
        assert_int_equal(far.held, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_gives_the_same_bytes),
        cmocka_unit_test(memory_that_cannot_be_had_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
