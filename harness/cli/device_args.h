/* device_args.h - where a model runs, as --device and -ngl name it, and the flags that concern GPUs alone. */
#ifndef HR_DEVICE_ARGS_H
#define HR_DEVICE_ARGS_H

#include "harness/cli/options.h"

enum { HR_DEVICES_MAX = 16 };

/* Places to run, in the order given, each once: HR_DEVICE_CPU, or the ordinal of a GPU. */
typedef struct hr_devices {
    int64_t v[HR_DEVICES_MAX];
    size_t n;
} hr_devices;

/* --device, and -ngl: 0 is the CPU, any other number all layers on the first GPU. Given both, they must agree. Single-valued
 * flags give one device. ERR_USAGE; whether a GPU is there is not asked. */
hr_status hr_device_args(const hr_args *args, hr_devices *out);
/* ERR_UNSUPPORTED, in one line, for the first GPU of the list that is not there. */
hr_status hr_devices_check(const hr_devices *devices);

/* Place of a name of --gpu-memory and of --gemm in its list: the options have checked it. */
hr_gpu_memory hr_gpu_memory_of(const char *name);
/* Whether products go to cuBLASLt where they fit; given: --gemm, or NULL for what is best on that device. */
bool hr_gemm_is_cublaslt(const char *given, const hr_device_info *info);

#endif
