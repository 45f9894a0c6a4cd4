/* Choosing tokens: argmax, the k largest, and draws against exact probabilities. */
#include "hr_test.h"

#include "engine/sample.h"
#include "kernels/base/random.h"
#include <stdlib.h>

enum { N = 1000 };

static float uniform(uint64_t *rng) {
    return (float)(hr_random(rng) >> 40) * 0x1p-24f;
}
static void fill(float *logits, size_t n, float spread, uint64_t seed) {
    for (size_t i = 0; i < n; i++) logits[i] = (uniform(&seed) + uniform(&seed) + uniform(&seed) - 1.5f) * spread;
}

static void splitmix64_is_splitmix64(void **state) {
    (void)state;
    uint64_t zero = 0; /* the published sequence of seed 0 */
    assert_true(hr_random(&zero) == 0xe220a8397b1dcdafu);
    assert_true(hr_random(&zero) == 0x6e789e6aa1b965f4u);
    assert_true(hr_random(&zero) == 0x06c45d188009454fu);
}

static void argmax_corners(void **state) {
    (void)state;
    float v[40];
    for (size_t n = 1; n <= 40; n++)
        for (size_t at = 0; at < n; at++) { /* the largest at every place, once more behind it */
            for (size_t i = 0; i < n; i++) v[i] = -3;
            v[at] = v[n - 1] = 5;
            assert_int_equal(hr_argmax(v, n), at);
        }
    for (size_t i = 0; i < 40; i++) v[i] = NAN;
    assert_int_equal(hr_argmax(v, 40), 0);
    v[17] = -INFINITY;
    assert_int_equal(hr_argmax(v, 40), 17);
    v[21] = -1e30f;
    assert_int_equal(hr_argmax(v, 40), 21);
    v[9] = v[30] = INFINITY;
    assert_int_equal(hr_argmax(v, 40), 9);
    for (size_t i = 0; i < 40; i++) v[i] = -INFINITY;
    assert_int_equal(hr_argmax(v, 40), 0);
    v[0] = -0.0f, v[1] = 0.0f;
    assert_int_equal(hr_argmax(v, 2), 0);
    assert_int_equal(hr_argmax(v, 0), 0);
}

static int by_rank(const void *a, const void *b) {
    const hr_candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void top_k_against_sorting(void **state) {
    (void)state;
    static float v[N];
    static hr_candidate all[N], got[N];
    for (int round = 0; round < 20; round++) {
        fill(v, N, 4, (uint64_t)round);
        if (round % 2)
            for (size_t i = 0; i < N; i++) v[i] = roundf(v[i]); /* many equals */
        for (size_t i = 0; i < N; i++) all[i] = (hr_candidate){v[i], (int32_t)i};
        qsort(all, N, sizeof *all, by_rank);
        static const size_t ks[] = {0, 1, 2, 3, 40, 500, N - 1, N, N + 7};
        for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
            size_t k = hr_top_k(v, N, ks[j], got);
            assert_int_equal(k, ks[j] < N ? ks[j] : N);
            for (size_t i = 0; i < k; i++)
                if (got[i].id != all[i].id)
                    fail_msg("k %zu: index %zu: expected %d, got %d", ks[j], i, (int)all[i].id, (int)got[i].id);
        }
    }
    const float nans[] = {NAN, 1, NAN, -INFINITY, 2};
    assert_int_equal(hr_top_k(nans, 5, 2, got), 2);
    assert_int_equal(got[0].id, 4);
    assert_int_equal(got[1].id, 1);
}

static void logsumexp_is_stable(void **state) {
    (void)state;
    const float big[] = {1000, 1000}, small[] = {-1000, -1000}, one[] = {3}, none[] = {-INFINITY, -INFINITY};
    const float mixed[] = {-INFINITY, 2}, inf[] = {INFINITY, 0}, nan[] = {0, NAN};
    /* double: 1e-13 relative to 1000 */
    assert_true(fabs(hr_logsumexp(big, 2) - (1000 + log(2))) < 1e-10);
    assert_true(fabs(hr_logsumexp(small, 2) - (-1000 + log(2))) < 1e-10);
    assert_true(hr_logsumexp(one, 1) == 3 && hr_logsumexp(mixed, 2) == 2);
    assert_true(hr_logsumexp(none, 2) == -INFINITY && hr_logsumexp(one, 0) == -INFINITY);
    assert_true(hr_logsumexp(inf, 2) == INFINITY && isnan(hr_logsumexp(nan, 2)));
}

/* The distribution by definition: top-k, softmax with temperature, top-p, min-p, renormalized. */
static void exact(const float *v, size_t n, const hr_sampling *how, double *p) {
    hr_candidate *c = malloc(n * sizeof *c);
    double sum = 0, mass = 0;
    for (size_t i = 0; i < n; i++) c[i] = (hr_candidate){v[i], (int32_t)i}, p[i] = 0;
    qsort(c, n, sizeof *c, by_rank);
    size_t k = how->top_k > 0 && (size_t)how->top_k < n ? (size_t)how->top_k : n, kept = 0;
    for (size_t i = 0; i < k; i++) sum += exp((c[i].logit - c[0].logit) / (double)how->temperature);
    double best = 1 / sum;
    for (size_t i = 0; i < k; i++) {
        double q = exp((c[i].logit - c[0].logit) / (double)how->temperature) / sum;
        if (i && mass >= how->top_p) break;
        mass += q;
        if (i && q < how->min_p * best) continue;
        p[c[i].id] = q;
        kept++;
    }
    sum = 0;
    for (size_t i = 0; i < n; i++) sum += p[i];
    for (size_t i = 0; i < n; i++) p[i] /= sum;
    assert_true(kept > 0);
    free(c);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    static const hr_sampling ways[] = {{1, 0, 1, 0},        {0.7f, 0, 1, 0},         {2, 5, 1, 0},
                                       {1, 0, 0.8f, 0},     {1, 0, 1, 0.1f},         {1, 12, 0.9f, 0},
                                       {1.5f, 20, 1, 0.2f}, {0.9f, 0, 0.95f, 0.05f}, {1, 999, 0.5f, 0},
                                       {1, 1, 1, 0}};
    enum { TOKENS = 30, DRAWS = 40000 };
    float v[TOKENS];
    double p[TOKENS];
    hr_candidate scratch[TOKENS];
    fill(v, TOKENS, 4, 11);
    v[3] = -INFINITY;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        uint64_t rng = 1234 + w;
        int count[TOKENS] = {0};
        exact(v, TOKENS, &ways[w], p);
        for (int i = 0; i < DRAWS; i++) {
            int32_t id = hr_sample(v, TOKENS, &ways[w], &rng, scratch);
            assert_true(id >= 0 && id < TOKENS);
            count[id]++;
        }
        /* chi-square over tokens expected 5 times or more, the rarer ones as one class */
        double chi = 0, rare = 0, rare_count = 0;
        int classes = 0;
        for (int i = 0; i < TOKENS; i++) {
            double expected = p[i] * DRAWS;
            if (p[i] == 0 && count[i])
                fail_msg("way %zu: token %d has probability 0 and came %d times", w, i, count[i]);
            if (expected < 5) {
                rare += expected, rare_count += count[i];
                continue;
            }
            chi += (count[i] - expected) * (count[i] - expected) / expected;
            classes++;
        }
        if (rare >= 1) chi += (rare_count - rare) * (rare_count - rare) / rare, classes++;
        /* mean + 5 sigma of chi-square with classes - 1 degrees of freedom: a right sampler exceeds it about once in
         * 10^5 seeds, and the seeds are fixed */
        double df = classes - 1, limit = df + 5 * sqrt(2 * df) + 1e-9;
        if (chi > limit) fail_msg("way %zu: chi-square %.1f over %.0f degrees, limit %.1f", w, chi, df, limit);
    }
}

/* A nucleus larger than the first selection, so that the selection has to grow. */
static void wide_nucleus(void **state) {
    (void)state;
    static float v[N];
    static double p[N];
    static hr_candidate scratch[N];
    fill(v, N, 0.5f, 5);
    const hr_sampling how = {1, 0, 0.6f, 0};
    exact(v, N, &how, p);
    uint64_t rng = 0;
    size_t support = 0, seen = 0;
    static int count[N];
    for (int i = 0; i < 100000; i++) count[hr_sample(v, N, &how, &rng, scratch)]++;
    for (size_t i = 0; i < N; i++) {
        support += p[i] > 0, seen += count[i] > 0;
        if (p[i] == 0) assert_int_equal(count[i], 0);
        if (p[i] > 0) assert_true(count[i] > 0); /* expected over 100 times each */
    }
    assert_true(support > 300);
    assert_int_equal(seen, support);
}

static void seeds_reproduce(void **state) {
    (void)state;
    static float v[N];
    static hr_candidate scratch[N];
    fill(v, N, 3, 2);
    const hr_sampling how = {1, 40, 0.95f, 0.01f};
    for (uint64_t seed = 0; seed < 3; seed++) {
        uint64_t a = seed, b = seed, other = seed + 1;
        int same = 0;
        for (int i = 0; i < 200; i++) {
            int32_t x = hr_sample(v, N, &how, &a, scratch);
            assert_int_equal(x, hr_sample(v, N, &how, &b, scratch));
            same += x == hr_sample(v, N, &how, &other, scratch);
        }
        assert_true(same < 150);
        assert_true(a == b && a != seed);
    }
}

static void corners_of_sampling(void **state) {
    (void)state;
    hr_candidate scratch[8];
    uint64_t rng = 0;
    float v[8] = {1, 5, 5, 0, -2, NAN, -INFINITY, 4};
    const hr_sampling greedy = {0, 3, 0.5f, 0.5f}, negative = {-1, 0, 1, 0}, no_p = {1, 0, 0, 0}, below = {1, 0, -2, 0};
    const hr_sampling k_over = {1, 100, 1, 0}, all_min = {1, 0, 1, 2}, tiny = {1e-30f, 0, 1, 0},
                      hot = {INFINITY, 0, 1, 0};
    const hr_sampling nan_t = {NAN, 0, 1, 0}, nan_p = {1, 4, NAN, NAN};
    for (int i = 0; i < 500; i++) {
        assert_int_equal(hr_sample(v, 8, &greedy, &rng, scratch), 1);
        assert_int_equal(hr_sample(v, 8, &negative, &rng, scratch), 1);
        assert_int_equal(hr_sample(v, 8, &no_p, &rng, scratch), 1);
        assert_int_equal(hr_sample(v, 8, &below, &rng, scratch), 1);
        assert_int_equal(hr_sample(v, 8, &nan_t, &rng, scratch), 1);
        assert_int_equal(hr_sample(v, 8, &all_min, &rng, scratch), 1);
        int32_t id = hr_sample(v, 8, &tiny, &rng, scratch);
        assert_true(id == 1 || id == 2);
        id = hr_sample(v, 8, i % 3 ? &k_over : i % 2 ? &hot : &nan_p, &rng, scratch);
        assert_true(id >= 0 && id < 8 && id != 5 && id != 6);
    }
    const float none[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, nans[3] = {NAN, NAN, NAN},
                inf[3] = {0, INFINITY, 1};
    assert_int_equal(hr_sample(none, 4, &k_over, &rng, scratch), 0);
    assert_int_equal(hr_sample(nans, 3, &k_over, &rng, scratch), 0);
    assert_int_equal(hr_sample(inf, 3, &k_over, &rng, scratch), 1);
    assert_int_equal(hr_sample(v, 1, &k_over, &rng, scratch), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splitmix64_is_splitmix64),
        cmocka_unit_test(argmax_corners),
        cmocka_unit_test(top_k_against_sorting),
        cmocka_unit_test(logsumexp_is_stable),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(wide_nucleus),
        cmocka_unit_test(seeds_reproduce),
        cmocka_unit_test(corners_of_sampling),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
