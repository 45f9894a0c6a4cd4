/* cuBLASLt itself. */
#include "engine/cuda/cublaslt_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hr_cublaslt_library functions;
static char unavailable[320]; /* "" when it is open */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void) {
    const char *named = getenv("HEADROOM_LIBCUBLASLT");
    const char *const files[] = {named && *named ? named : "libcublasLt.so.13",
                                 "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib/libcublasLt.so.13",
                                 "libcublasLt.so.12"};
    const size_t n = named && *named ? 1 : sizeof files / sizeof *files;
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++) {
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && i == 0)
            snprintf(unavailable, sizeof unavailable,
                     "cuBLASLt is missing (%.200s); our own kernels compute all products", dlerror());
    }
    if (!library) return;
    *unavailable = 0;
#define X(f)                                                                                                          \
    do {                                                                                                              \
        void *at = dlsym(library, #f);                                                                                \
        if (!at)                                                                                                      \
            snprintf(unavailable, sizeof unavailable, "cuBLASLt lacks " #f "; our own kernels compute all products"); \
        memcpy((void *)&functions.f, &at, sizeof at);                                                                 \
    } while (0);
    HR_CUBLASLT_LIST(X)
#undef X
}

hr_status hr_cublaslt_library_open(const hr_cublaslt_library **out) {
    pthread_once(&once, open_library);
    *out = *unavailable ? NULL : &functions;
    if (*unavailable) HR_FAIL(HR_ERR_UNSUPPORTED, "%s", unavailable);
    return HR_OK;
}

hr_status hr_cublaslt_check(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return HR_OK;
    HR_FAIL(status == CUBLAS_STATUS_ALLOC_FAILED ? HR_ERR_MEMORY : HR_ERR_UNSUPPORTED, "%.*s: cuBLAS status %d",
            (int)strcspn(what, "("), what, (int)status);
}
