/* doctor_fixture.h - a made-up machine: a folder with files of /proc and /sys, which the doctor looks at. */
#ifndef HR_DOCTOR_FIXTURE_H
#define HR_DOCTOR_FIXTURE_H

#include "tests/hr_test.h"

#include "harness/doctor/doctor.h"
#include "harness/doctor/doctor_check.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU    "/sys/devices/system/cpu"
#define NODE   "/sys/devices/system/node"
#define SOURCE "/sys/devices/system/clocksource/clocksource0"
#define THP    "/sys/kernel/mm/transparent_hugepage/enabled"
#define PCI    "/sys/bus/pci/devices/0000:01:00.0"

static char root[] = "/tmp/hr_doctor_XXXXXX";

static inline int remove_one(const char *path, const struct stat *s, int flag, struct FTW *at) {
    (void)s, (void)flag, (void)at;
    return remove(path);
}

static inline void fresh_root(void) {
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    assert_int_equal(mkdir(root, 0700), 0);
}

static inline void put_bytes(const char *path, const char *bytes, size_t n, bool folder) {
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *c = whole + strlen(root) + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(whole, 0700);
            *c = '/';
        }
    if (folder) {
        assert_int_equal(mkdir(whole, 0700), 0);
        return;
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static inline json_t *examine(const char *db) {
    json_t *result = NULL;
    const hr_doctor_options options = {.root = root, .pairs = 13, .db = db};
    if (hr_doctor(&options, &result) != HR_OK) fail_msg("doctor: %s", hr_error());
    return result;
}

static inline const json_t *find(const json_t *result, const char *name) {
    size_t i;
    json_t *check;
    json_array_foreach(json_object_get(result, "checks"), i, check) {
        if (!strcmp(json_string_value(json_object_get(check, "name")), name)) return check;
    }
    return NULL;
}

static inline int fixture_set_up(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}
static inline int fixture_tear_down(void **state) {
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
