/* The functions of shim.h on a GPU. */
#include "tests/gpu_machine.h"
#include "engine/cuda/driver.h"
#include "engine/device.h"
#include "tests/cuda_on_cpu/shim.h"

#include <stdio.h>
#include <stdlib.h>

const hr_shim_mode hr_shim_modes[] = {{HR_SHIM_ASCENDING, 0, false}};
const unsigned hr_shim_n_modes = 1;
static hr_shim_stats stats;

static void need(hr_status status) {
    if (status == HR_OK) return;
    fprintf(stderr, "%s\n", hr_error());
    exit(2);
}

static const hr_driver *driver(void) {
    static const hr_driver *d;
    static int device = -1;
    if (device >= 0) return d;
    const char *named = getenv("HEADROOM_GPU");
    device = named ? atoi(named) : 0;
    need(hr_driver_open(&d));
    need(hr_driver_context(device, NULL, NULL));
    return d;
}

void *hr_gpu_alloc(size_t bytes) {
    CUdeviceptr at = 0;
    const hr_driver *d = driver();
    need(hr_driver_check(d->cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged"));
    return (void *)(uintptr_t)at;
}

void hr_gpu_free(void *memory) {
    driver()->cuMemFree((CUdeviceptr)(uintptr_t)memory);
}

const hr_cuda_caps *hr_gpu_caps(void) {
    static hr_cuda_caps caps;
    hr_device_info info;
    if (caps.sms) return &caps;
    const char *named = getenv("HEADROOM_GPU");
    driver();
    need(hr_device_get_info(named ? atoi(named) : 0, &info));
    caps = (hr_cuda_caps){
        .major = info.major, .minor = info.minor, .sms = info.sms, .smem_optin = info.smem_optin, .workspace = 4 << 20};
    return &caps;
}

void hr_shim_set_mode(const hr_shim_mode *mode) {
    (void)mode;
}

hr_shim_stats hr_shim_get_stats(void) {
    return stats;
}

/* What failed is printed: a test says only that a launch was refused. After a fault of a kernel every later call fails too. */
int hr_shim_launch(const char *symbol, const hr_cuda_shape *shape, const void *params) {
    enum { FREE_SMEM = 47 << 10 }; /* 48 KiB, less what a kernel declares itself */
    const hr_driver *d = driver();
    void *arguments[] = {(void *)(uintptr_t)params};
    CUfunction function;
    if (hr_driver_function(symbol, &function) != HR_OK) return 1;
    hr_status status = HR_OK;
    if (shape->smem > FREE_SMEM)
        status = hr_driver_check(
            d->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shape->smem),
            "cuFuncSetAttribute");
    if (status == HR_OK)
        status =
            hr_driver_check(d->cuLaunchKernel(function, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0],
                                              shape->block[1], shape->block[2], shape->smem, NULL, arguments, NULL),
                            "cuLaunchKernel");
    if (status == HR_OK) status = hr_driver_check(d->cuCtxSynchronize(), "cuCtxSynchronize");
    stats.launches++;
    if (status == HR_OK) return 0;
    fprintf(stderr, "%s: %s\n", symbol, hr_error());
    return 2;
}

/* Not told by the driver (before CUDA 12.4): whatever is asked for is there. */
size_t hr_shim_params_bytes(const char *symbol) {
    CUfunction function;
    driver();
    return hr_driver_function(symbol, &function) == HR_OK ? SIZE_MAX : 0;
}

const char *hr_shim_kernel_at(unsigned i) {
    for (size_t k = 0; hr_cuda_kernel_at(k); k++)
        if (k == i) return hr_cuda_kernel_at(k)->fn.cuda.symbol;
    return NULL;
}
