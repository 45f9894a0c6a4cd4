#include "harness/version.h"

#include "hr_commit.h"

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
