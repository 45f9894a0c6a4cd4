/* Where a profiler's capture of a cell begins and ends. */
#include "engine/nvtx.h"

#include <dlfcn.h>
#include <stdlib.h>

const char *const hr_capture_names[HR_CAPTURE_COUNT] = {"none", "nvtx", "cuda-profiler"};

typedef int driver_call(void); /* CUresult f(void) */

static hr_capture capture;
static driver_call *profiler_start, *profiler_stop;

/* The functions that NVIDIA's profilers watch for, from the driver, so that the program needs no CUDA library. */
static hr_status open_profiler(void) {
    const char *file = getenv("HEADROOM_LIBCUDA");
    if (!file || !*file) file = "libcuda.so.1";
    void *driver = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (!driver)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "--capture cuda-profiler: there is no NVIDIA driver here (%s); use --capture nvtx, which needs none",
                file);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    profiler_start = (driver_call *)dlsym(driver, "cuProfilerStart");
    profiler_stop = (driver_call *)dlsym(driver, "cuProfilerStop");
    if (!init || !profiler_start || !profiler_stop)
        HR_FAIL(HR_ERR_UNSUPPORTED, "--capture cuda-profiler: %s lacks cuInit, cuProfilerStart or cuProfilerStop",
                file);
    const int error = init(0);
    if (error)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "--capture cuda-profiler: the NVIDIA driver is unavailable (cuInit gives %d); use --capture nvtx",
                error);
    return HR_OK;
}

hr_status hr_capture_open(hr_capture how) {
    if (how == HR_CAPTURE_CUDA_PROFILER) HR_TRY(open_profiler());
    capture = how;
    return HR_OK;
}

void hr_capture_begin(void) {
    if (capture == HR_CAPTURE_NVTX && hr_nvtx_attached()) hr_nvtx_push_capture();
    if (capture == HR_CAPTURE_CUDA_PROFILER) profiler_start();
}

void hr_capture_end(void) {
    if (capture == HR_CAPTURE_NVTX && hr_nvtx_attached()) hr_nvtx_pop();
    if (capture == HR_CAPTURE_CUDA_PROFILER) profiler_stop();
}
