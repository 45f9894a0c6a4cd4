/* CUPTI itself: where it lies, and what its refusals mean. */
#include "engine/cuda/cupti_library.h"

#include <cupti_result.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *library;
static const char *file;
static CUptiResult (*result_string)(CUptiResult, const char **);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void) {
    static const char *const places[] = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                         "/usr/local/cuda/lib/libcupti.so.13",
                                         "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"};
    file = getenv("HEADROOM_LIBCUPTI");
    if (file && *file) {
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    } else {
        file = places[0];
        for (size_t i = 0; !library && i < sizeof places / sizeof *places; i++)
            library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    }
    void *symbol = library ? dlsym(library, "cuptiGetResultString") : NULL;
    memcpy(&result_string, &symbol, sizeof symbol);
}

hr_status hr_cupti_load(const hr_cupti_symbol *symbols, size_t n) {
    pthread_once(&once, open_library);
    if (!library)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "CUPTI is not here (%.200s); it comes with the CUDA toolkit (HEADROOM_LIBCUPTI=FILE)", file);
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) HR_FAIL(HR_ERR_UNSUPPORTED, "CUPTI (%.200s) lacks %s: it is too old", file, symbols[i].name);
        memcpy(symbols[i].to, &symbol, sizeof symbol);
    }
    return HR_OK;
}

/* What to do about it; NULL: nothing beyond the text of the code. */
static const char *advice(int result) {
    switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return "counters are for administrators here: run as root, or load the driver with "
               "NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return "another tool (nsys, ncu) is attached to this process";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
        return "this virtual GPU does not allow it";
    case CUPTI_ERROR_HARDWARE_BUSY:
        return "another process has the counters";
    case CUPTI_ERROR_NOT_INITIALIZED:
    case CUPTI_ERROR_UNKNOWN:
        return "there is no NVIDIA driver that works";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
        return "a slice of a GPU (MIG) has no counters";
    default:
        return NULL;
    }
}

hr_status hr_cupti_check(int result, const char *what) {
    if (result == CUPTI_SUCCESS) return HR_OK;
    const char *text = NULL, *help = advice(result);
    if (result_string) result_string((CUptiResult)result, &text);
    HR_FAIL(HR_ERR_UNSUPPORTED, "%s: %s (%d)%s%s", what, text ? text : "CUPTI refuses", result, help ? ": " : "",
            help ? help : "");
}

const char *hr_cupti_other_tool(void) {
    static const char *const names[] = {"CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "NV_TPS_LAUNCH_TOKEN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return names[i];
    }
    return NULL;
}
