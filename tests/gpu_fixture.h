/* gpu_fixture.h - the CUDA backend on the stand-ins for NVIDIA's libraries: opens them, counts, breaks calls.
 *
 * A test program calls gpu_use_fakes before anything opens the driver (in main, or in a group's setup). */
#ifndef HR_GPU_FIXTURE_H
#define HR_GPU_FIXTURE_H

#include "tests/hr_test.h"

#include "tests/cuda_on_cpu/fake_cuda.h"

#include <dlfcn.h>

typedef struct gpu_fake {
    void *library;
    __typeof__(&hr_fake_cuda_stats) stats;
    __typeof__(&hr_fake_cuda_fail) arm; /* cmocka has a macro fail */
    __typeof__(&hr_fake_cuda_calls) calls;
    __typeof__(&hr_fake_cuda_call) call;
    __typeof__(&hr_fake_cuda_struck) struck;
    __typeof__(&hr_fake_cuda_revive) revive;
} gpu_fake;

static inline void *gpu_symbol(void *library, const char *name) {
    void *at = dlsym(library, name);
    if (!at) {
        fprintf(stderr, "the fake driver lacks %s\n", name);
        abort();
    }
    return at;
}

/* Names the fakes to the engine, unless the caller's environment names others. NULL for the file of a library that is not built. */
static inline void gpu_use_fakes(void) {
    static const char *const names[][2] = {{"HEADROOM_LIBCUDA", "cuda"},
                                           {"HEADROOM_LIBCUBLASLT", "cublaslt"},
                                           {"HEADROOM_LIBNVML", "nvml"},
                                           {"HEADROOM_LIBCUPTI", "cupti"}};
    const char *build = getenv("HEADROOM_BUILD");
    char file[4096];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(file, sizeof file, "%s/tests/lib%s_fake.so", build ? build : "build", names[i][1]);
        char *whole = realpath(file, NULL);
        setenv(names[i][0], whole ? whole : file, 0);
        free(whole);
    }
}

/* The fake driver as tests talk to it. */
static inline const gpu_fake *gpu_driver(void) {
    static gpu_fake fake;
    if (fake.library) return &fake;
    gpu_use_fakes();
    fake.library = dlopen(getenv("HEADROOM_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
    if (!fake.library) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
#define GET(field, name) *(void **)&fake.field = gpu_symbol(fake.library, name)
    GET(stats, "hr_fake_cuda_stats");
    GET(arm, "hr_fake_cuda_fail");
    GET(calls, "hr_fake_cuda_calls");
    GET(call, "hr_fake_cuda_call");
    GET(struck, "hr_fake_cuda_struck");
    GET(revive, "hr_fake_cuda_revive");
#undef GET
    return &fake;
}

static inline hr_fake_cuda_counts gpu_counts(void) {
    hr_fake_cuda_counts c;
    gpu_driver()->stats(&c);
    return c;
}

/* Fails unless the same objects are alive in both, contexts and modules apart: those stay until the process ends. */
static inline void gpu_assert_same_(const hr_fake_cuda_counts *before, const hr_fake_cuda_counts *after,
                                    const char *what, const char *file, int line) {
    const struct {
        const char *name;
        uint64_t before, after;
    } all[] = {
#define X(name) {#name, before->name, after->name},
        HR_FAKE_CUDA_LIVE(X) X(memory_bytes) X(pinned_bytes) X(managed_bytes) X(handle_bytes) X(queued)
#undef X
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].before == all[i].after || !strcmp(all[i].name, "contexts") || !strcmp(all[i].name, "modules"))
            continue;
        print_error("%s: %s: expected %llu as before, got %llu\n", what, all[i].name, (unsigned long long)all[i].before,
                    (unsigned long long)all[i].after);
        _fail(file, line);
    }
}
#define gpu_assert_same(before, after, what) gpu_assert_same_((before), (after), (what), __FILE__, __LINE__)

#endif
