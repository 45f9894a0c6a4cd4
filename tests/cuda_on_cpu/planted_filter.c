/* planted_filter.c - linked into a test program it runs only the tests that HR_TEST_FILTER names (a pattern with * and ?). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

__attribute__((constructor)) static void set_filter(void) {
    cmocka_set_test_filter(getenv("HR_TEST_FILTER"));
}
