/* hr_test.h - what every test program includes: cmocka in its order, and assertions that say expected, got, tolerance
 * and the first index that differs. */
#ifndef HR_TEST_H
#define HR_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Fewer shapes, but all kernels and all paths: for sanitizers and valgrind, where a kernel takes ten times as long. */
static inline int hr_test_quick(void) {
    return getenv("HR_TEST_QUICK") != NULL;
}

/* |got - want| <= tolerance * max(1, |want|) for all n; prints the first index that differs. */
static inline void hr_assert_near_(const float *got, const float *want, size_t n, double tolerance, const char *what,
                                   const char *file, int line) {
    for (size_t i = 0; i < n; i++) {
        double limit = tolerance * fmax(1, fabs((double)want[i]));
        if (!(fabs((double)got[i] - (double)want[i]) <= limit)) {
            print_error("%s: index %zu of %zu: expected %.9g, got %.9g, tolerance %.3g\n", what, i, n, (double)want[i],
                        (double)got[i], limit);
            _fail(file, line);
        }
    }
}
#define hr_assert_near(got, want, n, tolerance, what) \
    hr_assert_near_((got), (want), (n), (tolerance), (what), __FILE__, __LINE__)

/* sum (got - want)^2 / sum want^2 <= limit. */
static inline void hr_assert_nmse_(const float *got, const float *want, size_t n, double limit, const char *what,
                                   const char *file, int line) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        error += d * d, power += (double)want[i] * (double)want[i];
    }
    if (!(error <= limit * power || (error == 0 && power == 0))) {
        print_error("%s: NMSE over %zu values is %.3g, tolerance %.3g\n", what, n, error / power, limit);
        _fail(file, line);
    }
}
#define hr_assert_nmse(got, want, n, limit, what) \
    hr_assert_nmse_((got), (want), (n), (limit), (what), __FILE__, __LINE__)

/* Skips with a reason that the runner shows. */
#define hr_skip(...)                       \
    do {                                   \
        printf("skipped: %s: ", __func__); \
        printf(__VA_ARGS__);               \
        printf("\n");                      \
        skip();                            \
    } while (0)

#endif
