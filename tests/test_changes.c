/* Change points of made-up series: where they must be found and where none may be, with the shift and Student's p as SciPy
 * computes them. */
#include "harness/stats/changes.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"
#include "tests/golden/scipy_stats.h"
#include "tests/hr_test.h"

enum { MOST = 64 };

static void near(double got, double want, double tolerance, const char *name, const char *what) {
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%s, %s: expected %.15g, got %.15g, relative tolerance %.3g", name, what, want, got, tolerance);
}

static size_t changes(const double *values, size_t n, const hr_changes_rule *rule, hr_change *out) {
    const hr_changes_rule usual = hr_changes_rule_default();
    size_t found = 99;
    assert_int_equal(hr_changes_of(values, n, rule ? rule : &usual, out, MOST, &found), HR_OK);
    return found;
}

/* p: far out in the tail a unit in the last place of t weighs as much as its degrees of freedom; 1e-9 leaves room for 48. */
static void golden_series(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scipy_series / sizeof *scipy_series; i++) {
        hr_change got[MOST];
        const size_t n = changes(scipy_series[i].values, scipy_series[i].n, NULL, got);
        const char *name = scipy_series[i].name;
        if (n != scipy_series[i].n_changes)
            fail_msg("%s: expected %zu changes, got %zu, the first at %zu", name, scipy_series[i].n_changes, n,
                     n ? got[0].at : 0);
        for (size_t k = 0; k < n; k++) {
            if (got[k].at != scipy_series[i].changes[k].at)
                fail_msg("%s: expected change %zu at %zu, got %zu", name, k, scipy_series[i].changes[k].at, got[k].at);
            near(got[k].shift, scipy_series[i].changes[k].shift, 1e-12, name, "shift");
            near(got[k].p, scipy_series[i].changes[k].p, 1e-9, name, "p");
            assert_int_equal(got[k].settled, scipy_series[i].changes[k].settled);
        }
    }
}

static double uniform(uint64_t *seed) {
    return ((double)(hr_random(seed) >> 11) + 0.5) * 0x1p-53;
}
static double normal(uint64_t *seed) {
    return sqrt(-2 * log(uniform(seed))) * cos(6.283185307179586 * uniform(seed));
}

/* A night that is added moves no change that has stood for a window, and a scale does not matter. */
static void growing_series(void **state) {
    (void)state;
    double values[200], half[200];
    uint64_t seed = 3;
    for (size_t i = 0; i < 200; i++)
        values[i] = (i < 60 ? 1 : 1.05) * (1 + 0.004 * normal(&seed)), half[i] = values[i] / 2;
    for (size_t n = 85; n <= 200; n++) {
        hr_change got[MOST], same[MOST];
        if (changes(values, n, NULL, got) != 1 || got[0].at != 60)
            fail_msg("%zu nights: expected one change at 60, got %zu", n, got[0].at);
        assert_int_equal(changes(half, n, NULL, same), 1);
        near(same[0].p, got[0].p, 1e-12, "half the scale", "p");
    }
}

/* From the night it happened: unseen for four, then it has stayed for five, then it has settled; never more than one. */
static void each_night_after_a_step(void **state) {
    (void)state;
    double values[80];
    uint64_t seed = 11;
    for (size_t i = 0; i < 80; i++) values[i] = (i < 60 ? 100 : 104) * (1 + 0.003 * normal(&seed));
    for (size_t n = 60; n <= 80; n++) {
        hr_change got[MOST];
        const size_t found = changes(values, n, NULL, got), want = n >= 65;
        if (found != want) fail_msg("%zu nights after: expected %zu changes, got %zu", n - 60, want, found);
        if (!want) continue;
        assert_int_equal(got[0].at, 60);
        assert_int_equal(got[0].settled, n >= 70);
    }
    hr_changes_rule rule = hr_changes_rule_default();
    hr_change got[MOST];
    rule.stayed = 0;
    assert_int_equal(changes(values, 69, &rule, got), 0);
    rule.stayed = 2;
    assert_int_equal(changes(values, 62, &rule, got), 1);
    rule.magnitude = 0.05;
    assert_int_equal(changes(values, 80, &rule, got), 0);
    /* One newest night back on the old level: it did not stay. */
    values[66] = 100;
    assert_int_equal(changes(values, 67, NULL, got), 0);
}

/* 400 nights in which nothing happened, 500 times a kind: at most one series in ten shows anything at a noise of 5 %, and
 * none at noise that is small beside the magnitude asked for. */
static void quiet_series(void **state) {
    (void)state;
    const struct {
        const char *name;
        double noise, spikes;
        int most;
    } kind[] = {{"0.5 %", 0.005, 0, 0}, {"5 %", 0.05, 0, 50}, {"0.5 % and spikes of 30 %", 0.005, 0.05, 0}};
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++) {
        uint64_t seed = 5;
        int alarms = 0;
        for (int series = 0; series < 500; series++) {
            double values[400];
            hr_change got[MOST];
            for (size_t i = 0; i < 400; i++)
                values[i] = exp(kind[k].noise * normal(&seed)) * (uniform(&seed) < kind[k].spikes ? 1.3 : 1);
            alarms += changes(values, 400, NULL, got) > 0;
        }
        if (alarms > kind[k].most)
            fail_msg("noise of %s: expected changes in at most %d of 500 series, got %d", kind[k].name, kind[k].most,
                     alarms);
    }
}

/* By all pairs: Matteson and James 2014, equations 5 to 7 at alpha 1. */
static double energy(const double *x, size_t k, size_t n) {
    double between = 0, left = 0, right = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) *(j < k ? &left : i >= k ? &right : &between) += fabs(x[i] - x[j]);
    const double a = (double)k, b = (double)(n - k);
    return a * b / (a + b) * (2 * between / (a * b) - 2 * left / (a * (a - 1)) - 2 * right / (b * (b - 1)));
}

/* Where 25 values before and behind differ most, of those with ten on either side. */
static size_t preferred(const double *values, size_t at) {
    size_t best = at - 15;
    for (size_t k = at - 14; k <= at + 15; k++)
        if (energy(values + at - 25, k - (at - 25), 50) > energy(values + at - 25, best - (at - 25), 50)) best = k;
    return best;
}

/* Where noise blurs a step, its place is the one that its own surroundings prefer; now and then two places prefer each
 * other, and either is right. */
static void place_of_a_blurred_step(void **state) {
    (void)state;
    int looked_at = 0;
    for (uint64_t i = 0; i < 300; i++) {
        double values[140];
        uint64_t seed = hr_mix64(i + 1);
        for (size_t j = 0; j < 140; j++) values[j] = (j < 70 ? 1 : 1.03) * exp(0.015 * normal(&seed));
        hr_change got[MOST];
        if (changes(values, 140, NULL, got) != 1 || got[0].at < 40 || got[0].at > 100) continue;
        const size_t best = preferred(values, got[0].at);
        if (best != got[0].at && preferred(values, best) != got[0].at)
            fail_msg("series %d: expected the change at %zu, got %zu", (int)i, best, got[0].at);
        looked_at++;
    }
    if (looked_at < 200) fail_msg("expected one change in 200 of 300 series at least, got %d", looked_at);
}

/* How many nights there are, and so where the windows fall, does not decide whether a step ten nights old is seen. */
static void newest_nights_of_any_series(void **state) {
    (void)state;
    int seen[2] = {0};
    for (uint64_t i = 0; i < 500; i++) {
        double values[100];
        uint64_t seed = hr_mix64(i + 1);
        for (size_t j = 0; j < 100; j++) values[j] = (j < 90 ? 1 : 1.03) * exp(0.015 * normal(&seed));
        hr_change got[MOST];
        seen[0] += changes(values, 100, NULL, got) > 0;
        seen[1] += changes(values + 24, 76, NULL, got) > 0;
    }
    if (seen[0] < 200 || abs(seen[0] - seen[1]) > 10)
        fail_msg("500 steps: expected to see as many in 76 nights as in 100 up to 10, got %d and %d", seen[1], seen[0]);
}

static void refusals(void **state) {
    (void)state;
    const hr_changes_rule usual = hr_changes_rule_default();
    hr_changes_rule narrow = usual;
    narrow.window = 19;
    double values[60];
    for (size_t i = 0; i < 60; i++) values[i] = i < 30 ? 1 : 2;
    hr_change got[MOST];
    size_t found = 7;
    assert_int_equal(hr_changes_of(values, 0, &usual, got, MOST, &found), HR_OK);
    assert_int_equal(found, 0);
    assert_int_equal(hr_changes_of(values, 60, &narrow, got, MOST, &found), HR_ERR_INPUT);
    assert_string_equal(hr_error(),
                        "a window of 19 points has no room for 10 a side: at least 2 a side and twice that");
    for (uint64_t nth = 1; nth <= 2; nth++) {
        hr_fault_arm(HR_FAULT_ALLOC, nth);
        assert_int_equal(hr_changes_of(values, 60, &usual, got, MOST, &found), HR_ERR_MEMORY);
        hr_fault_arm(HR_FAULT_ALLOC, 0);
    }
    assert_int_equal(hr_changes_of(values, 60, &usual, got, 0, &found), HR_OK);
    assert_int_equal(found, 0);
    values[4] = 0;
    assert_int_equal(hr_changes_of(values, 60, &usual, got, MOST, &found), HR_ERR_INPUT);
    assert_string_equal(hr_error(), "point 4 of 60 is not a number over zero: leave it out");
    values[4] = INFINITY;
    assert_int_equal(hr_changes_of(values, 60, &usual, got, MOST, &found), HR_ERR_INPUT);
}

/* The newest are kept where there is room for fewer. */
static void room_for_fewer(void **state) {
    (void)state;
    double values[120];
    for (size_t i = 0; i < 120; i++) values[i] = (i < 40 ? 1 : i < 80 ? 1.1 : 1.2) + 0.001 * (double)(i % 3);
    const hr_changes_rule usual = hr_changes_rule_default();
    hr_change got[MOST];
    size_t found;
    assert_int_equal(changes(values, 120, NULL, got), 2);
    assert_int_equal(hr_changes_of(values, 120, &usual, got, 1, &found), HR_OK);
    assert_int_equal(found, 1);
    assert_int_equal(got[0].at, 80);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_series),
        cmocka_unit_test(growing_series),
        cmocka_unit_test(each_night_after_a_step),
        cmocka_unit_test(quiet_series),
        cmocka_unit_test(refusals),
        cmocka_unit_test(room_for_fewer),
        cmocka_unit_test(newest_nights_of_any_series),
        cmocka_unit_test(place_of_a_blurred_step),
    };
    return cmocka_run_group_tests_name("changes", tests, NULL, NULL);
}
