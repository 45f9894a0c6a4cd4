/* Runs in pairs: the sign-flip test and the interval by hand, the corrections for many rows, the four verdicts. */
#include "kernels/base/pairs.h"
#include "kernels/base/random.h"
#include "tests/hr_test.h"

static void near(double got, double want, const char *what) {
    if (!(fabs(got - want) <= 1e-12)) fail_msg("%s: expected %.15g, got %.15g, tolerance 1e-12", what, want, got);
}

static void sign_flips_are_counted_exactly(void **state) {
    (void)state;
    near(hr_pairs_p((double[]){1, 1, 1, 1, 1, 1}, 6), 2.0 / 64, "all alike");
    near(hr_pairs_p((double[]){-0.1, -0.2, -0.3}, 3), 2.0 / 8, "the smallest p of three");
    near(hr_pairs_p((double[]){1, -1}, 2), 1, "no shift");
    /* |sum| = 4 of 1, 2, -1, 2: sums of +-1 +-2 +-1 +-2 with |s| >= 4: +-6 (2), +-4 (one 1 flipped: 4) = 6 of 16 */
    near(hr_pairs_p((double[]){1, 2, -1, 2}, 4), 6.0 / 16, "mixed");
    near(hr_pairs_p((double[]){0, 0, 0}, 3), 1, "nothing");
}

/* All 2^n choices of signs, one by one; differences in few steps, so that many sums are equal. */
static void sign_flips_one_by_one(void **state) {
    (void)state;
    uint64_t seed = 5;
    for (size_t n = 1; n <= 15; n++)
        for (int kind = 0; kind < 6; kind++) {
            double d[15], sum = 0;
            size_t as_far = 0;
            char name[48];
            for (size_t i = 0; i < n; i++) {
                const double u = (double)(hr_random(&seed) >> 11) * 0x1p-53;
                d[i] = kind < 3 ? u - 0.3 : floor(5 * u) / 10 - 0.1;
                sum += d[i];
            }
            for (size_t signs = 0; signs < (size_t)1 << n; signs++) {
                double s = 0;
                for (size_t i = 0; i < n; i++) s += signs >> i & 1 ? -d[i] : d[i];
                as_far += fabs(s) >= fabs(sum) - 1e-13;
            }
            snprintf(name, sizeof name, "%zu pairs, case %d", n, kind);
            near(hr_pairs_p(d, n), (double)as_far / (double)((size_t)1 << n), name);
        }
    double most[HR_PAIRS_EXACT];
    for (size_t i = 0; i < HR_PAIRS_EXACT; i++) most[i] = 0.1 * (double)(i + 1);
    near(hr_pairs_p(most, HR_PAIRS_EXACT), ldexp(2, -HR_PAIRS_EXACT), "the smallest p of the most pairs");
}

static void shift_and_interval(void **state) {
    (void)state;
    double lo, hi;
    near(hr_pairs_shift((double[]){3}, 1, &lo, &hi), 3, "one");
    assert_true(isnan(lo) && isnan(hi));
    /* averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6 */
    near(hr_pairs_shift((double[]){6, 1, 2}, 3, &lo, &hi), 2.75, "three");
    near(hr_pairs_shift((double[]){1, 2, 3, 4, 5, 6}, 6, &lo, &hi), 3.5, "six");
    near(lo, 1, "P(W <= 0) = 1/64: the least average");
    near(hi, 6, "and the largest");
    /* n = 10: P(W <= 8) = 25/1024 <= .025 < P(W <= 9): the 9th of 55 averages from either end */
    near(hr_pairs_shift((double[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 100}, 10, &lo, &hi), 0, "ten");
    near(lo, 0, "ten low");
    near(hi, 50, "ten high: 100 and nine times 50 are the largest");
    hr_pairs_shift((double[]){1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10, &lo, &hi);
    near(lo, 3, "the 9th of 1 1.5 2 2 2.5 2.5 3 3 3 ...");
    near(hi, 8, "and from above");
}

/* Many pairs: the rank of the lower end among the averages is where the normal approximation of the signed-rank sum puts
 * it, n(n + 1) / 4 - 1.96 sqrt(n(n + 1)(2n + 1) / 24) = 746.9; the exact distribution is discrete: within two ranks. */
static void interval_of_many(void **state) {
    (void)state;
    enum { N = HR_PAIRS_MAX };
    double d[N], lo, hi;
    size_t below = 0, above = 0;
    for (int i = 0; i < N; i++) d[i] = sqrt(i + 1.0); /* no two averages are equal */
    hr_pairs_shift(d, N, &lo, &hi);
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++) below += (d[i] + d[j]) / 2 <= lo, above += (d[i] + d[j]) / 2 >= hi;
    if (below < 745 || below > 749) fail_msg("rank of the lower end: expected 745 to 749, got %zu", below);
    assert_int_equal(below, above);
}

static void holm(void **state) {
    (void)state;
    double p[] = {0.04, 0.01, 0.03, 0.01};
    hr_pairs_holm(p, 4);
    near(p[1], 0.04, "0.01 x 4");
    near(p[3], 0.04, "its equal");
    near(p[2], 0.06, "0.03 x 2");
    near(p[0], 0.06, "never below the one before");
    double one[] = {0.6, 0.9};
    hr_pairs_holm(one, 2);
    near(one[0], 1, "at most 1");
    near(one[1], 1, "at most 1");
}

static void benjamini_hochberg(void **state) {
    (void)state;
    double p[] = {0.04, 0.01, NAN, 0.03, 0.01};
    hr_pairs_bh(p, 5);
    near(p[1], 0.02, "0.01 x 4 / 2, of both equals");
    near(p[4], 0.02, "its equal");
    near(p[3], 0.04, "0.03 x 4 / 3");
    near(p[0], 0.04, "0.04 x 4 / 4");
    assert_true(isnan(p[2]));
    double q[] = {NAN, 0.02, 0.03};
    hr_pairs_holm(q, 3);
    near(q[1], 0.04, "0.02 x 2: what is unknown is not counted");
    near(q[2], 0.04, "never below the one before");
    assert_true(isnan(q[0]));
}

static void verdicts(void **state) {
    (void)state;
    assert_int_equal(hr_pairs_judge(0.001, -0.01, 0.015, 0.9, 0.02), HR_PAIRS_SAME);
    assert_int_equal(hr_pairs_judge(0.01, 0.005, 0.015, 0.001, 0.02), HR_PAIRS_SAME);
    assert_int_equal(hr_pairs_judge(0.05, 0.03, 0.07, 0.001, 0.02), HR_PAIRS_SLOWER);
    assert_int_equal(hr_pairs_judge(-0.05, -0.07, -0.03, 0.001, 0.02), HR_PAIRS_FASTER);
    assert_int_equal(hr_pairs_judge(-0.05, -0.07, -0.03, 0.2, 0.02), HR_PAIRS_INCONCLUSIVE);
    assert_int_equal(hr_pairs_judge(0.05, -0.01, 0.07, 0.001, 0.02), HR_PAIRS_INCONCLUSIVE);
    assert_int_equal(hr_pairs_judge(0.05, NAN, NAN, 0.001, 0.02), HR_PAIRS_INCONCLUSIVE);
    assert_string_equal(hr_pairs_verdicts[HR_PAIRS_FASTER], "faster");
    assert_string_equal(hr_pairs_verdicts[HR_PAIRS_INCONCLUSIVE], "inconclusive");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign_flips_are_counted_exactly),
        cmocka_unit_test(sign_flips_one_by_one),
        cmocka_unit_test(shift_and_interval),
        cmocka_unit_test(interval_of_many),
        cmocka_unit_test(holm),
        cmocka_unit_test(benjamini_hochberg),
        cmocka_unit_test(verdicts),
    };
    return cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
}
