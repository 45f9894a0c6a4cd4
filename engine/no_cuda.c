/* no_cuda.c - what the functions of device.h say in a build without the CUDA toolkit. */
#include "engine/engine.h"

#define NOT_BUILT "this build has no CUDA backend; build it where the CUDA toolkit is (make CUDA=FOLDER)"

hr_status hr_device_get_info(int device, hr_device_info *out) {
    (void)out;
    HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: " NOT_BUILT, device);
}
unsigned hr_device_count(void) {
    return 0;
}
hr_status hr_gpu_state_get(int device, unsigned units, hr_gpu_state *out) {
    (void)units, (void)out;
    HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: " NOT_BUILT, device);
}
hr_status hr_gpu_roofs_measure(int device, bool quick, void (*progress)(double share, void *context), void *context,
                               json_t **out) {
    (void)quick, (void)progress, (void)context, (void)out;
    HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: " NOT_BUILT, device);
}
hr_status hr_gpu_counters_measure(int device, hr_status (*run)(void *context), void *context, hr_gpu_counters *out) {
    (void)run, (void)context, (void)out;
    HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: " NOT_BUILT, device);
}
hr_status hr_gpu_power_limit(int device, double watts) {
    (void)watts;
    HR_FAIL(HR_ERR_UNSUPPORTED, "cuda:%d: " NOT_BUILT, device);
}
void hr_gpu_want_kernel_times(bool wanted) {
    (void)wanted;
}
const char *hr_gpu_kernel_times_missing(void) {
    return "";
}
