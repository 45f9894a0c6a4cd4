/* Two stored sets of samples against SciPy, the smallest p that a sample size allows, large sides against all pairs listed,
 * and the corrections for many rows. */
#include "harness/stats/two_samples.h"
#include "kernels/base/memory.h"
#include "kernels/base/pairs.h"
#include "kernels/base/random.h"
#include "tests/golden/scipy_stats.h"
#include "tests/hr_test.h"

/* Sums of integers and a few roundings on both sides. */
static const double ROUNDING = 1e-12;

static void near(double got, double want, const char *name, const char *what) {
    if (isnan(got) && isnan(want)) return;
    if (!(fabs(got - want) <= ROUNDING * fmax(1, fabs(want))))
        fail_msg("%s, %s: expected %.15g, got %.15g, relative tolerance %.3g", name, what, want, got, ROUNDING);
}

/* A p-value far below one is compared by its own size: erfc of both libraries is right to some units in the last place. */
static void near_p(double got, double want, const char *name) {
    if (!(fabs(got - want) <= ROUNDING * want))
        fail_msg("%s, p: expected %.15g, got %.15g, relative tolerance %.3g", name, want, got, ROUNDING);
}

static double uniform(uint64_t *seed) {
    return ((double)(hr_random(seed) >> 11) + 0.5) * 0x1p-53;
}

static void as_scipy_says(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scipy_two / sizeof *scipy_two; i++) {
        const struct scipy_two *c = &scipy_two[i];
        hr_two_samples got;
        assert_int_equal(hr_two_samples_of(c->a, c->n_a, c->b, c->n_b, &got), HR_OK);
        near_p(got.p, c->p, c->name);
        near(got.shift, c->shift, c->name, "shift");
        near(got.lo, c->lo, c->name, "lower end");
        near(got.hi, c->hi, c->name, "upper end");
    }
}

/* Swapping the sides turns the shift round and leaves p; moving B by 7 moves the shift by 7; order does not matter. */
static void symmetries(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scipy_two / sizeof *scipy_two; i++) {
        const struct scipy_two *c = &scipy_two[i];
        double moved[64], reversed[64];
        for (size_t j = 0; j < c->n_b; j++) moved[j] = c->b[j] + 7;
        for (size_t j = 0; j < c->n_a; j++) reversed[j] = c->a[c->n_a - 1 - j];
        hr_two_samples ab, ba, far;
        assert_int_equal(hr_two_samples_of(c->a, c->n_a, c->b, c->n_b, &ab), HR_OK);
        assert_int_equal(hr_two_samples_of(c->b, c->n_b, reversed, c->n_a, &ba), HR_OK);
        assert_int_equal(hr_two_samples_of(reversed, c->n_a, moved, c->n_b, &far), HR_OK);
        near_p(ba.p, ab.p, c->name);
        near(ba.shift, -ab.shift, c->name, "shift of A from B");
        near(ba.lo, -ab.hi, c->name, "lower end of A from B");
        near(ba.hi, -ab.lo, c->name, "upper end of A from B");
        near(far.shift, ab.shift + 7, c->name, "moved by 7");
        near(far.lo, ab.lo + 7, c->name, "lower end moved by 7");
    }
}

static void smallest_p(void **state) {
    (void)state;
    const struct {
        size_t n;
        double p; /* two out of all choices of n out of 2n */
    } row[] = {{4, 2.0 / 70}, {5, 2.0 / 252}, {6, 2.0 / 924}, {8, 2.0 / 12870}, {20, 2.0 / 137846528820}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double a[20], b[20];
        char name[32];
        for (size_t j = 0; j < row[i].n; j++) a[j] = (double)j, b[j] = 100 + (double)j;
        hr_two_samples got;
        assert_int_equal(hr_two_samples_of(b, row[i].n, a, row[i].n, &got), HR_OK);
        snprintf(name, sizeof name, "%zu a side", row[i].n);
        near_p(got.p, row[i].p, name);
    }
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sides too large to list are narrowed down: the same numbers as all pairs in order. Smooth, in steps, far apart in size,
 * and with a value that lies away by 300 powers of ten. */
static void large_sides(void **state) {
    (void)state;
    enum { N_A = 700, N_B = 901 };
    static double a[N_A], b[N_B], all[N_A * N_B];
    const double z = 1.959963984540054, m = (double)N_A * N_B;
    const size_t c = (size_t)(m / 2 - z * sqrt(m * (N_A + N_B + 1) / 12) + 0.5);
    for (int kind = 0; kind < 5; kind++) {
        uint64_t seed = 7 + (uint64_t)kind;
        for (size_t i = 0; i < N_A + N_B; i++) {
            double x = uniform(&seed), *to = i < N_A ? &a[i] : &b[i - N_A];
            *to = kind == 0 ? x : kind == 1 ? floor(6 * x) : kind == 2 ? exp(60 * x - 30) : kind == 3 ? 1 / x : 4;
        }
        if (kind == 3) b[17] = 1e300;
        size_t n = 0;
        for (size_t i = 0; i < N_A; i++)
            for (size_t j = 0; j < N_B; j++) all[n++] = b[j] - a[i];
        qsort(all, n, sizeof *all, ascending);
        const char *const names[] = {"uniform", "six values", "sixty powers of e", "one far away", "one value"};
        hr_two_samples got;
        assert_int_equal(hr_two_samples_of(a, N_A, b, N_B, &got), HR_OK);
        near(got.shift, (all[(n - 1) / 2] + all[n / 2]) / 2, names[kind], "shift");
        near(got.lo, all[c - 1], names[kind], "lower end");
        near(got.hi, all[n - c], names[kind], "upper end");
    }
}

/* 100,000 a side have 10^10 differences: of two straight lines they are known. */
static void very_large_sides(void **state) {
    (void)state;
    enum { N = 100000 };
    double *a = hr_malloc(2 * N * sizeof *a), *b = a + N;
    assert_non_null(a);
    for (size_t i = 0; i < N; i++) a[i] = (double)((i * 7919) % N), b[i] = 0.25 + (double)((i * 104729) % N);
    hr_two_samples got;
    assert_int_equal(hr_two_samples_of(a, N, b, N, &got), HR_OK);
    near(got.shift, 0.25, "lines", "shift");
    /* The ends lie z N sqrt(N / 6) ranks from the middle, and near it N differences fall on each step of 1: 1.96 sqrt(N / 6)
     * = 253.03 steps away. */
    if (!(fabs(got.lo + 252.75) <= 1 && fabs(got.hi - 253.25) <= 1))
        fail_msg("interval: expected -252.75 to 253.25 to the next step, got %.9g to %.9g", got.lo, got.hi);
    if (!(got.p > 0.99 && got.p <= 1)) fail_msg("p: expected nearly 1, got %.9g", got.p);
    hr_free(a);
}

/* The interval holds the shift in 95 % of cases at least: 2000 seeded cases, four standard errors. */
static void coverage(void **state) {
    (void)state;
    enum { CASES = 2000 };
    const size_t sizes[][2] = {{6, 6}, {10, 14}, {25, 30}};
    for (size_t k = 0; k < 3; k++) {
        uint64_t seed = 99;
        int held = 0;
        for (int i = 0; i < CASES; i++) {
            double a[32], b[32];
            for (size_t j = 0; j < sizes[k][0]; j++) a[j] = -log(uniform(&seed));
            for (size_t j = 0; j < sizes[k][1]; j++) b[j] = 0.5 - log(uniform(&seed));
            hr_two_samples got;
            assert_int_equal(hr_two_samples_of(a, sizes[k][0], b, sizes[k][1], &got), HR_OK);
            held += got.lo <= 0.5 && 0.5 <= got.hi;
        }
        const double least = 0.95 - 4 * sqrt(0.95 * 0.05 / CASES);
        if (held < least * CASES)
            fail_msg("%zu and %zu: expected the shift inside in %.1f %% at least, got %.1f %%", sizes[k][0],
                     sizes[k][1], 100 * least, 100.0 * held / CASES);
    }
}

static void refusals(void **state) {
    (void)state;
    hr_two_samples got;
    const double one = 1, nan = NAN;
    assert_int_equal(hr_two_samples_of(&one, 0, &one, 1, &got), HR_ERR_INPUT);
    assert_string_equal(hr_error(), "side A has no samples to compare: measure at least one");
    assert_int_equal(hr_two_samples_of(&one, 1, &nan, 1, &got), HR_ERR_INPUT);
    assert_string_equal(hr_error(), "sample 0 of 1 of side B is not a finite number: leave it out");
    hr_fault_arm(HR_FAULT_ALLOC, 1);
    assert_int_equal(hr_two_samples_of(&one, 1, &one, 1, &got), HR_ERR_MEMORY);
    hr_fault_arm(HR_FAULT_ALLOC, 0);
}

static void corrections(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scipy_adjust / sizeof *scipy_adjust; i++) {
        const struct scipy_adjust *c = &scipy_adjust[i];
        double holm[64], bh[64], pairs[64];
        char name[48];
        for (size_t j = 0; j < c->n; j++) holm[j] = bh[j] = pairs[j] = c->p[j];
        hr_adjust_holm(holm, c->n);
        hr_adjust_bh(bh, c->n);
        hr_pairs_holm(pairs, c->n);
        for (size_t j = 0; j < c->n; j++) {
            snprintf(name, sizeof name, "row %zu of set %zu", j, i);
            near(holm[j], c->holm[j], name, "Holm");
            near(bh[j], c->bh[j], name, "Benjamini-Hochberg");
            near(pairs[j], c->holm[j], name, "Holm of pairs");
            assert_int_equal(isnan(holm[j]), isnan(c->p[j]));
        }
    }
    hr_adjust_holm(NULL, 0);
    hr_adjust_bh(NULL, 0);
}

/* The order of the rows does not matter, equal ones included. */
static void order_of_rows(void **state) {
    (void)state;
    enum { N = 60 };
    double p[N], holm[N], bh[N], turned_holm[N], turned_bh[N];
    uint64_t seed = 21;
    for (size_t i = 0; i < N; i++) p[i] = holm[i] = bh[i] = i % 11 == 0 ? NAN : floor(20 * uniform(&seed)) / 400;
    for (size_t i = 0; i < N; i++) turned_holm[i] = turned_bh[i] = p[(i * 7 + 3) % N];
    hr_adjust_holm(holm, N);
    hr_adjust_bh(bh, N);
    hr_adjust_holm(turned_holm, N);
    hr_adjust_bh(turned_bh, N);
    for (size_t i = 0; i < N; i++) {
        near(turned_holm[i], holm[(i * 7 + 3) % N], "Holm", "in another order");
        near(turned_bh[i], bh[(i * 7 + 3) % N], "Benjamini-Hochberg", "in another order");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_scipy_says), cmocka_unit_test(symmetries),       cmocka_unit_test(smallest_p),
        cmocka_unit_test(large_sides),   cmocka_unit_test(very_large_sides), cmocka_unit_test(coverage),
        cmocka_unit_test(refusals),      cmocka_unit_test(corrections),      cmocka_unit_test(order_of_rows),
    };
    return cmocka_run_group_tests_name("two_samples", tests, NULL, NULL);
}
