/* kv_traffic.h - random traffic on a KV cache beside a plain model of it.
 *
 * The model knows, for each sequence, a number for each position: the chain of all tokens up to it, as K and V in truth
 * follow from all of them, and of the holes that were there when it was written. Rows are filled with bytes made from that
 * number, so that a row that was shared, moved or copied wrongly does not compare equal. */
#ifndef HR_KV_TRAFFIC_H
#define HR_KV_TRAFFIC_H

#include "tests/hr_test.h"

#include "engine/kv/kv_cache.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

enum { TRAFFIC_SEQS = 8, TRAFFIC_CAPACITY = 200, TRAFFIC_OPS = 7, TRAFFIC_ROW = 256 };
enum { T_OPEN, T_APPEND, T_CUT, T_FORK, T_EVICT, T_RESTORE, T_CLOSE };
static const char *const traffic_names[TRAFFIC_OPS] = {"open", "append", "cut", "fork", "evict", "restore", "close"};

typedef struct traffic_seq {
    bool open;
    uint32_t len, gone_from, gone_to;
    uint32_t n_prompt;
    int32_t tokens[TRAFFIC_CAPACITY];
    uint64_t content[TRAFFIC_CAPACITY];
} traffic_seq;

typedef struct traffic {
    hr_kv_cache *cache;
    traffic_seq seqs[TRAFFIC_SEQS];
    uint64_t rng;
    int step;
    uint64_t moved; /* bytes moved at the last look */
    uint32_t page_size;
} traffic;

static inline uint32_t traffic_below(traffic *t, uint32_t n) {
    return (uint32_t)(hr_random(&t->rng) % n);
}

/* The number of a position, from the one before it, its token, and the hole that it saw. */
static inline uint64_t traffic_content(const traffic_seq *s, uint32_t pos) {
    const uint64_t before = pos ? s->content[pos - 1] : 0;
    return hr_mix64(before ^ (uint64_t)(uint32_t)s->tokens[pos] << 1 ^
                    (s->gone_from < s->gone_to ? (uint64_t)s->gone_to << 40 | (uint64_t)s->gone_from << 20 : 0));
}

static inline void traffic_row(uint64_t content, uint32_t l, uint32_t h, int x, size_t bytes, uint8_t *out) {
    const uint64_t word = hr_mix64(content + (l * 64 + h) * 4 + (uint32_t)x);
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(word >> i % 8 * 8);
}

/* Writes or compares the rows of one position; false: one differs. */
static inline bool traffic_rows(const hr_kv_seq *view, uint32_t pos, uint64_t content, bool write) {
    uint8_t row[TRAFFIC_ROW];
    for (uint32_t l = 0; l < view->g->n_layers; l++) {
        for (uint32_t h = 0; h < view->g->n_heads; h++) {
            const hr_kv_rows run = hr_kv_run(view, l, h, pos);
            for (int x = 0; x < HR_KV_PLANES; x++) {
                const size_t bytes = view->g->row_bytes[x];
                if (!bytes) continue;
                traffic_row(content, l, h, x, bytes, row);
                if (write)
                    memcpy(run.at[x], row, bytes);
                else if (memcmp(run.at[x], row, bytes))
                    return false;
            }
        }
    }
    return true;
}

static inline void traffic_verify(traffic *t, uint32_t seq, const char *what) {
    const traffic_seq *s = &t->seqs[seq];
    const hr_kv_seq *view = hr_kv_cache_view(t->cache, seq);
    if (view->len != s->len || view->gone_from != s->gone_from || view->gone_to != s->gone_to)
        fail_msg("step %d (%s): sequence %u has %u positions (%u to %u gone), expected %u (%u to %u)", t->step, what,
                 seq, view->len, view->gone_from, view->gone_to, s->len, s->gone_from, s->gone_to);
    for (uint32_t pos = 0; pos < s->len; pos++) {
        if (pos >= s->gone_from && pos < s->gone_to) continue;
        if (!traffic_rows(view, pos, s->content[pos], false))
            fail_msg("step %d (%s): sequence %u, position %u of %u holds another row", t->step, what, seq, pos, s->len);
    }
}

/* All invariants; the rows of the sequence that was used, and of all when something moved or now and then. */
static inline void traffic_check(traffic *t, uint32_t seq, const char *what) {
    if (hr_kv_cache_check(t->cache) != HR_OK) fail_msg("step %d (%s): %s", t->step, what, hr_error());
    const hr_kv_stats stats = hr_kv_cache_stats(t->cache);
    assert_true(stats.used_bytes <= stats.reserved_bytes && stats.reserved_bytes <= stats.budget_bytes);
    const bool all = stats.moved_bytes != t->moved || t->step % 8 == 0;
    t->moved = stats.moved_bytes;
    for (uint32_t s = 0; s < TRAFFIC_SEQS; s++) {
        assert_int_equal(hr_kv_cache_is_open(t->cache, s), t->seqs[s].open);
        if (all || s == seq) traffic_verify(t, s, what);
    }
}

/* What a call that fails must leave alone, in one number. */
static inline uint64_t traffic_visible(const traffic *t) {
    hr_kv_stats stats = hr_kv_cache_stats(t->cache);
    stats.failed_opens = 0;
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof stats / 8; i++) {
        uint64_t word;
        memcpy(&word, (const char *)&stats + i * 8, 8);
        h = hr_mix64(h ^ word);
    }
    for (uint32_t seq = 0; seq < TRAFFIC_SEQS; seq++) {
        const hr_kv_seq *v = hr_kv_cache_view(t->cache, seq);
        h = hr_mix64(h ^ (uintptr_t)v->base[HR_KV_K] ^ (uintptr_t)v->g);
        for (uint32_t i = 0; v->table && i < TRAFFIC_CAPACITY / t->page_size; i++) h = hr_mix64(h ^ v->table[i]);
    }
    return h;
}

/* ---- the steps; each returns whether the cache did it ---- */

/* Prompts of a few families with the same beginnings. */
static inline void traffic_prompt(traffic *t, traffic_seq *s) {
    const uint32_t family = traffic_below(t, 3), same = traffic_below(t, 120);
    for (uint32_t i = 0; i < TRAFFIC_CAPACITY; i++)
        s->tokens[i] = i < same ? (int32_t)(family * 1000 + i) : (int32_t)traffic_below(t, 50000);
    s->n_prompt = 1 + traffic_below(t, 120);
}

static inline void traffic_fill(traffic *t, uint32_t seq, uint32_t from, uint32_t to) {
    traffic_seq *s = &t->seqs[seq];
    for (uint32_t pos = from; pos < to; pos++) {
        s->content[pos] = traffic_content(s, pos);
        assert_true(traffic_rows(hr_kv_cache_view(t->cache, seq), pos, s->content[pos], true));
    }
}

static inline hr_status traffic_open(traffic *t, uint32_t seq) {
    traffic_seq next = {.open = true}; /* of the model; seq is closed */
    traffic_prompt(t, &next);
    const uint32_t rest = TRAFFIC_CAPACITY - next.n_prompt, promise = next.n_prompt + traffic_below(t, rest + 1);
    const hr_kv_request request = {.max_len = traffic_below(t, 4) ? promise : 0,
                                   .expect_len = traffic_below(t, 2) ? 0 : next.n_prompt + traffic_below(t, 20),
                                   .prompt = traffic_below(t, 8) ? next.tokens : NULL,
                                   .n_prompt = next.n_prompt};
    uint32_t shared;
    HR_TRY(hr_kv_cache_open(t->cache, seq, &request, &shared));
    assert_true(shared < next.n_prompt);
    t->seqs[seq] = next;
    for (uint32_t pos = 0; pos < shared; pos++) t->seqs[seq].content[pos] = traffic_content(&t->seqs[seq], pos);
    t->seqs[seq].len = shared;
    return HR_OK;
}

static inline hr_status traffic_append(traffic *t, uint32_t seq) {
    traffic_seq *s = &t->seqs[seq];
    const uint32_t left = TRAFFIC_CAPACITY - s->len, most = left < 90 ? left : 90;
    const uint32_t n = traffic_below(t, 2) || !most ? 1 : 1 + traffic_below(t, most), from = s->len;
    HR_TRY(hr_kv_cache_reserve(t->cache, seq, from + n));
    if (!s->open) *s = (traffic_seq){.open = true};
    if (traffic_below(t, 4) == 0) { /* not what the prompt said */
        s->tokens[from] = (int32_t)traffic_below(t, 50000);
        hr_kv_cache_note(t->cache, seq, from, s->tokens + from, n);
    }
    s->len += n;
    traffic_fill(t, seq, from, s->len);
    return HR_OK;
}

static inline void traffic_cut(traffic *t, uint32_t seq) {
    traffic_seq *s = &t->seqs[seq];
    const uint32_t len = traffic_below(t, s->len + 3);
    hr_kv_cache_cut(t->cache, seq, len);
    if (len >= s->len) return;
    s->len = len;
    if (len < TRAFFIC_CAPACITY && traffic_below(t, 2)) s->tokens[len] = (int32_t)traffic_below(t, 50000);
    if (s->gone_to > len) s->gone_to = len;
    if (s->gone_from >= s->gone_to) s->gone_from = s->gone_to = 0;
}

static inline hr_status traffic_fork(traffic *t, uint32_t from, uint32_t to) {
    const traffic_seq *s = &t->seqs[from];
    const uint32_t len = s->len ? traffic_below(t, s->len + 1) : 0;
    const hr_status status = hr_kv_cache_fork(t->cache, from, to, len);
    const bool legal = s->open && !t->seqs[to].open && !(s->gone_from < s->gone_to && s->gone_from < len);
    assert_true(legal ? status == HR_OK || status == HR_ERR_MEMORY : status == HR_ERR_INPUT);
    if (status != HR_OK) return status;
    traffic_seq *copy = &t->seqs[to];
    *copy = *s;
    copy->len = len, copy->gone_from = copy->gone_to = 0;
    return HR_OK;
}

static inline hr_status traffic_evict(traffic *t, uint32_t seq) {
    traffic_seq *s = &t->seqs[seq];
    const uint32_t sinks = traffic_below(t, 12), window = traffic_below(t, 60), gone = s->gone_to - s->gone_from;
    HR_TRY(hr_kv_cache_evict(t->cache, seq, sinks, window));
    assert_true(s->open && window);
    if (s->len < window || sinks >= s->len - window) return HR_OK;
    assert_true(!gone || sinks <= s->gone_from);
    if (!gone || s->gone_to < s->len - window) s->gone_to = s->len - window;
    s->gone_from = sinks;
    return HR_OK;
}

/* Off-load, close, open again (there or elsewhere), restore. When there is no room the sequence is lost, as in life. */
static inline hr_status traffic_restore(traffic *t, uint32_t seq, uint32_t other) {
    traffic_seq saved = t->seqs[seq];
    if (!saved.open) return HR_ERR_INPUT;
    const uint64_t bytes = hr_kv_cache_saved_bytes(t->cache, seq);
    char *memory = malloc(bytes + 1); /* exact, so that a sanitizer sees the first byte beyond */
    assert_non_null(memory);
    memory[bytes] = 77;
    hr_kv_cache_save(t->cache, seq, memory);
    assert_int_equal(memory[bytes], 77);
    assert_int_equal(hr_kv_cache_close(t->cache, seq), HR_OK);
    t->seqs[seq] = (traffic_seq){0};
    const uint32_t to = t->seqs[other].open ? seq : other;
    hr_status status =
        hr_kv_cache_open(t->cache, to, &(hr_kv_request){.max_len = 1 + traffic_below(t, TRAFFIC_CAPACITY)}, NULL);
    if (status == HR_OK) {
        t->seqs[to] = (traffic_seq){.open = true};
        const uint64_t before = traffic_visible(t);
        status = hr_kv_cache_load(t->cache, to, memory, saved.len, saved.gone_from, saved.gone_to);
        if (status == HR_OK)
            t->seqs[to] = saved;
        else
            assert_true(before == traffic_visible(t));
    }
    free(memory);
    traffic_check(t, to, "restore");
    return status;
}

static inline hr_status traffic_close(traffic *t, uint32_t seq) {
    HR_TRY(hr_kv_cache_close(t->cache, seq));
    t->seqs[seq] = (traffic_seq){0};
    return HR_OK;
}

static inline hr_status traffic_do(traffic *t, int op, uint32_t seq, uint32_t other) {
    switch (op) {
    case T_OPEN:
        return traffic_open(t, seq);
    case T_APPEND:
        return traffic_append(t, seq);
    case T_CUT:
        traffic_cut(t, seq);
        return HR_OK;
    case T_FORK:
        return traffic_fork(t, seq, other);
    case T_EVICT:
        return traffic_evict(t, seq);
    case T_RESTORE:
        return traffic_restore(t, seq, other);
    default:
        return traffic_close(t, seq);
    }
}

/* A sequence at random, mostly one that is open (or not, as wanted). */
static inline uint32_t traffic_pick(traffic *t, bool open) {
    uint32_t seq = traffic_below(t, TRAFFIC_SEQS);
    for (uint32_t tries = traffic_below(t, 12); tries && t->seqs[seq].open != open; tries--)
        seq = (seq + 1) % TRAFFIC_SEQS;
    return seq;
}

/* What all traffic so far came to. */
typedef struct traffic_sum {
    uint64_t done[TRAFFIC_OPS][2]; /* done, refused */
    hr_kv_stats stats;
} traffic_sum;

static inline void traffic_add(hr_kv_stats *sum, const hr_kv_stats *s) {
    sum->opens += s->opens, sum->failed_opens += s->failed_opens;
    sum->prefix_hits += s->prefix_hits, sum->prefix_positions += s->prefix_positions;
    sum->evictions += s->evictions, sum->copies += s->copies, sum->moves += s->moves;
    sum->compactions += s->compactions, sum->moved_bytes += s->moved_bytes;
}

static inline void traffic_run(const hr_kv_cache_config *config, uint64_t seed, int steps, traffic_sum *sum) {
    static const int weights[] = {T_OPEN,   T_OPEN, T_OPEN, T_APPEND, T_APPEND, T_APPEND, T_APPEND,  T_APPEND, T_APPEND,
                                  T_APPEND, T_CUT,  T_CUT,  T_FORK,   T_FORK,   T_EVICT,  T_RESTORE, T_CLOSE,  T_CLOSE};
    static traffic t;
    t = (traffic){.rng = seed, .page_size = config->page_size};
    print_message("%s, %s, pages of %u, budget %.2f MB, seed %llu\n", hr_kv_alloc_name(config->alloc),
                  hr_kv_layout_name(config->layout), config->page_size, (double)config->budget_bytes / 1e6,
                  (unsigned long long)seed);
    if (hr_kv_cache_create(config, &t.cache) != HR_OK) fail_msg("%s", hr_error());
    const uint64_t allocations = hr_alloc_count();
    for (t.step = 0; t.step < steps; t.step++) {
        const int op = weights[traffic_below(&t, sizeof weights / sizeof *weights)];
        const uint32_t seq = traffic_pick(&t, op != T_OPEN), other = traffic_pick(&t, false);
        const uint64_t before = traffic_visible(&t);
        const hr_status status = traffic_do(&t, op, seq, other);
        sum->done[op][status != HR_OK]++;
        if (status != HR_OK && op != T_RESTORE && before != traffic_visible(&t))
            fail_msg("step %d: %s was refused (%s) and changed something", t.step, traffic_names[op], hr_error());
        traffic_check(&t, seq, traffic_names[op]);
        if (op == T_FORK) traffic_check(&t, other, "fork");
    }
    assert_int_equal(hr_alloc_count(), allocations);
    for (uint32_t s = 0; s < TRAFFIC_SEQS; s++)
        if (t.seqs[s].open) assert_int_equal(hr_kv_cache_close(t.cache, s), HR_OK);
    const hr_kv_stats stats = hr_kv_cache_stats(t.cache);
    traffic_add(&sum->stats, &stats);
    assert_true(stats.reserved_bytes == 0 && stats.used_bytes == 0 && stats.open_seqs == 0);
    assert_int_equal(hr_kv_cache_check(t.cache), HR_OK);
    hr_kv_cache_destroy(t.cache);
}

#endif
