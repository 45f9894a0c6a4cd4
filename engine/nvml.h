/* nvml.h - NVIDIA's management library: power, energy, clocks, heat, limits. Opened at run time, libnvidia-ml.so.1 or
 * HEADROOM_LIBNVML; its functions are declared in nvml.c, so that no header of it is needed. It makes no CUDA context.
 *
 * What it does not tell is NaN or -1. Calls may come from any thread. */
#ifndef HR_NVML_H
#define HR_NVML_H

#include "engine/device.h"

typedef struct hr_nvml_device hr_nvml_device; /* belongs to the library; valid as long as the process */

/* "GPU-" and the sixteen bytes as NVML writes them. */
void hr_nvml_uuid(const unsigned char uuid[16], char out[48]);
/* The device of that UUID ("GPU-...", tried as "MIG-..." too). The library is opened once a process. ERR_UNSUPPORTED in one
 * line: which library is missing, or what it answered. */
hr_status hr_nvml_find(const char *uuid, hr_nvml_device **out);
/* Clocks, power, limit, energy, temperature, reasons, slowed_s and throttled of *out; the rest stays. */
void hr_nvml_read(hr_nvml_device *device, hr_gpu_state *out);
/* Watts; 0: the default. ERR_USAGE outside of what the device takes, ERR_UNSUPPORTED without permission (both say the range
 * or what helps). */
hr_status hr_nvml_set_power_limit(hr_nvml_device *device, double watts);

#endif
