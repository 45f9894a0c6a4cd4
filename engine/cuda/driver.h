/* driver.h - the CUDA driver, opened at run time: libcuda.so.1, or HEADROOM_LIBCUDA. Nothing of CUDA is linked. */
#ifndef HR_DRIVER_H
#define HR_DRIVER_H

#include "kernels/base/status.h"
#include "kernels/cuda/image.h"

#include <cuda.h>
#include <stdbool.h>

/* Every function of the driver that is used. */
/* clang-format off */
#define HR_DRIVER_LIST(X)                                                                                                   \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetUuid)                \
    X(cuDeviceTotalMem) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxSetCurrent) \
    X(cuCtxSynchronize) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemAllocHost) X(cuMemFreeHost) X(cuMemAllocManaged)  \
    X(cuMemHostGetDevicePointer) X(cuMemHostAlloc) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)           \
    X(cuMemsetD8Async) X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamDestroy) X(cuEventCreate) X(cuEventRecord)        \
    X(cuEventSynchronize) X(cuEventDestroy) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction)                    \
    X(cuFuncSetAttribute) X(cuFuncGetAttribute) X(cuLaunchKernel) X(cuStreamBeginCapture) X(cuStreamEndCapture)             \
    X(cuGraphInstantiate) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphDestroy) X(cuGetErrorName) X(cuGetErrorString)    \
    X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemSetAccess)    \
    X(cuMemGetAllocationGranularity)
/* clang-format on */
typedef struct hr_driver {
#define X(f) __typeof__(&f) f;
    HR_DRIVER_LIST(X)
#undef X
    CUresult(CUDAAPI *cuEventElapsedTime)(float *ms, CUevent start, CUevent end); /* _v2, or the old name */
    int version;                                                                  /* 13000 */
    bool simulated; /* it exports hr_cuda_fake: kernels run on the CPU */
} hr_driver;

/* The driver, opened and initialized once a process (after hr_cupti_before_init, cupti.h). ERR_UNSUPPORTED in one line: what is
 * missing, or the name of what cuInit returned. */
hr_status hr_driver_open(const hr_driver **out);
/* It was: this process must not fork to ask a device. */
bool hr_driver_is_open(void);
/* HR_OK, or the failure with its name: "cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)". ERR_MEMORY for want of memory,
 * ERR_UNSUPPORTED for what the driver cannot, else ERR_INTERNAL. */
hr_status hr_driver_check(CUresult result, const char *what);
#define HR_CU(driver, call) HR_TRY(hr_driver_check((driver)->call, #call))
/* The context of a device becomes that of this thread; retained once a process, until its end. The two results may be NULL. */
hr_status hr_driver_context(int device, CUdevice *out_device, CUcontext *out);

/* The function of a symbol in the context of this thread (hr_driver_context), loaded when first asked for; remembered. */
hr_status hr_driver_function(const char *symbol, CUfunction *out);

#endif
