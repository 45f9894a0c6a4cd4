/* driver.c - the CUDA driver opened at run time, contexts of devices, and the images of kernels.
 *
 * State of the process: the driver (closed -> open, for good), a context for each device that was asked for, the modules made
 * of the images in it, and the functions found so far. All of it is made under one lock and stays until the process ends:
 * a driver cannot be shut down and opened anew. What failed may be tried again. */
#include "engine/cuda/driver.h"
#include "engine/cuda/cupti_activity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 64, FUNCTIONS_MAX = 1024, IMAGES_MAX = 64 };

typedef struct context {
    CUdevice device;
    CUcontext context;
    CUmodule modules[IMAGES_MAX]; /* of hr_cuda_images; NULL: not loaded yet */
} context;

static struct {
    pthread_mutex_t lock;
    bool open;
    void *library;
    hr_driver driver;
    context contexts[DEVICES_MAX];
    struct function {
        const context *in;
        char symbol[64];
        CUfunction function;
    } functions[FUNCTIONS_MAX];
    size_t n_functions;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local context *current; /* of this thread: the one that hr_driver_context gave last */

/* ---- the library ---- */

/* cuda.h makes cuMemAlloc cuMemAlloc_v2: the names that count are those after its macros. */
#define NAME_OF(f) #f
#define SYMBOL(f)  NAME_OF(f)

static void *symbol_of(const char *name) {
    return dlsym(state.library, name);
}

static hr_status find_symbols(const char *file) {
    hr_driver *d = &state.driver;
    const char *missing = NULL;
    *d = (hr_driver){0};
#define X(f)                                           \
    do {                                               \
        void *at = symbol_of(SYMBOL(f));               \
        if (!at && !missing) missing = SYMBOL(f);      \
        if (at) memcpy((void *)&d->f, &at, sizeof at); \
    } while (0);
    HR_DRIVER_LIST(X)
#undef X
    void *elapsed = symbol_of("cuEventElapsedTime_v2");
    if (!elapsed) elapsed = symbol_of("cuEventElapsedTime");
    if (!elapsed && !missing) missing = "cuEventElapsedTime";
    if (elapsed) memcpy((void *)&d->cuEventElapsedTime, &elapsed, sizeof elapsed);
    d->simulated = symbol_of("hr_cuda_fake") != NULL;
    if (missing) HR_FAIL(HR_ERR_UNSUPPORTED, "%s: the CUDA driver is too old, it lacks %s; update it", file, missing);
    return HR_OK;
}

static hr_status initialize(const char *file) {
    hr_driver *d = &state.driver;
    HR_TRY(find_symbols(file));
    hr_cupti_before_init();
    HR_TRY(hr_driver_check(d->cuInit(0), "cuInit"));
    return hr_driver_check(d->cuDriverGetVersion(&d->version), "cuDriverGetVersion");
}

static hr_status open_library(void) {
    const char *named = getenv("HEADROOM_LIBCUDA"), *file = named && *named ? named : "libcuda.so.1";
    state.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!state.library) HR_FAIL(HR_ERR_UNSUPPORTED, "there is no CUDA driver: %s; install one", dlerror());
    const hr_status status = initialize(file);
    state.open = status == HR_OK;
    if (!state.open) dlclose(state.library);
    return status;
}

hr_status hr_driver_open(const hr_driver **out) {
    pthread_mutex_lock(&state.lock);
    const hr_status status = state.open ? HR_OK : open_library();
    pthread_mutex_unlock(&state.lock);
    *out = status == HR_OK ? &state.driver : NULL;
    return status;
}

bool hr_driver_is_open(void) {
    pthread_mutex_lock(&state.lock);
    const bool open = state.open;
    pthread_mutex_unlock(&state.lock);
    return open;
}

static hr_status status_of(CUresult result) {
    switch (result) {
    case CUDA_SUCCESS:
        return HR_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return HR_ERR_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
        return HR_ERR_UNSUPPORTED;
    default:
        return HR_ERR_INTERNAL;
    }
}

hr_status hr_driver_check(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return HR_OK;
    const hr_driver *d = &state.driver;
    const char *name = NULL, *text = NULL;
    char number[32];
    if (d->cuGetErrorName) d->cuGetErrorName(result, &name);
    if (d->cuGetErrorString) d->cuGetErrorString(result, &text);
    snprintf(number, sizeof number, "error %d", (int)result);
    const int n = (int)strcspn(what, "("); /* of a call as it stands in the source: its name */
    HR_FAIL(status_of(result), "%.*s: %s (%s)", n, what, text ? text : "failed", name ? name : number);
}

/* ---- contexts ---- */

static hr_status make_context(const hr_driver *d, int device, context *c) {
    int n = 0;
    HR_CU(d, cuDeviceGetCount(&n));
    if (device >= n || device >= DEVICES_MAX)
        HR_FAIL(HR_ERR_UNSUPPORTED, "there is no such device; the driver has %d", n);
    HR_CU(d, cuDeviceGet(&c->device, device));
    CUcontext made = NULL;
    HR_CU(d, cuDevicePrimaryCtxRetain(&made, c->device));
    c->context = made;
    hr_cupti_after_context();
    return HR_OK;
}

hr_status hr_driver_context(int device, CUdevice *out_device, CUcontext *out) {
    const hr_driver *d;
    HR_TRY(hr_driver_open(&d));
    if (device < 0 || device >= DEVICES_MAX) HR_FAIL(HR_ERR_UNSUPPORTED, "there is no such device");
    context *c = &state.contexts[device];
    pthread_mutex_lock(&state.lock);
    const hr_status status = c->context ? HR_OK : make_context(d, device, c);
    pthread_mutex_unlock(&state.lock);
    HR_TRY(status);
    if (current != c) HR_CU(d, cuCtxSetCurrent(c->context));
    current = c;
    if (out_device) *out_device = c->device;
    if (out) *out = c->context;
    return HR_OK;
}

/* ---- kernels ---- */

static const struct function *find_function(const context *c, const char *symbol) {
    for (size_t i = 0; i < state.n_functions; i++)
        if (state.functions[i].in == c && !strcmp(state.functions[i].symbol, symbol)) return &state.functions[i];
    return NULL;
}

static hr_status load_image(const hr_driver *d, context *c, size_t i) {
    CUmodule module = NULL;
    const hr_status status = hr_driver_check(d->cuModuleLoadData(&module, hr_cuda_images[i].data), "cuModuleLoadData");
    if (status != HR_OK) {
        char prefix[96];
        snprintf(prefix, sizeof prefix, "kernels of %s", hr_cuda_images[i].name);
        return hr_fail_prefix(status, prefix);
    }
    c->modules[i] = module;
    return HR_OK;
}

/* Loaded images first, then the others one after another. */
static hr_status look_up(const hr_driver *d, context *c, const char *symbol, CUfunction *out) {
    for (int loading = 0; loading < 2; loading++) {
        for (size_t i = 0; i < IMAGES_MAX && hr_cuda_images[i].name; i++) {
            if ((c->modules[i] != NULL) == (loading == 1)) continue;
            if (loading) HR_TRY(load_image(d, c, i));
            const CUresult result = d->cuModuleGetFunction(out, c->modules[i], symbol);
            if (result == CUDA_SUCCESS) return HR_OK;
            if (result != CUDA_ERROR_NOT_FOUND) return hr_driver_check(result, "cuModuleGetFunction");
        }
    }
    HR_FAIL(HR_ERR_UNSUPPORTED, "no image of this build has the kernel %s", symbol);
}

static hr_status find_or_load(const char *symbol, CUfunction *out) {
    const struct function *known = find_function(current, symbol);
    if (known) {
        *out = known->function;
        return HR_OK;
    }
    HR_TRY(look_up(&state.driver, current, symbol, out));
    if (state.n_functions < FUNCTIONS_MAX && strlen(symbol) < sizeof state.functions[0].symbol) {
        struct function *f = &state.functions[state.n_functions++];
        f->in = current, f->function = *out;
        snprintf(f->symbol, sizeof f->symbol, "%s", symbol);
    }
    return HR_OK;
}

hr_status hr_driver_function(const char *symbol, CUfunction *out) {
    if (!current) HR_FAIL(HR_ERR_INTERNAL, "kernel %s was asked for without a context", symbol);
    pthread_mutex_lock(&state.lock);
    const hr_status status = find_or_load(symbol, out);
    pthread_mutex_unlock(&state.lock);
    return status;
}
