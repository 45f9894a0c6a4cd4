#include "harness/version.h"

#include "hr_commit.h"

#include <unistd.h>

const char *hr_commit(void) {
    return HR_COMMIT;
}
int hr_build_number(void) {
    return HR_BUILD_NUMBER;
}

const char *hr_compiler(void) {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

hr_status hr_program_path(char *out, size_t n) {
    const ssize_t got = readlink("/proc/self/exe", out, n);
    if (got <= 0 || (size_t)got >= n)
        HR_FAIL(HR_ERR_IO, "/proc/self/exe does not say where this program is, or in more than %zu bytes", n - 1);
    out[got] = 0;
    return HR_OK;
}
