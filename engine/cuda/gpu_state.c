/* gpu_state.c - the state of a GPU beside what is measured on it, and its power limit. */
#include "engine/cuda/gpu_probe.h"
#include "engine/nvml.h"

#include <math.h>
#include <stdio.h>

/* The management library knows devices by their UUID: its order is not that of CUDA. */
static hr_status find(int device, hr_nvml_device **out) {
    hr_device_info info;
    HR_TRY(hr_device_get_info(device, &info));
    return hr_nvml_find(info.uuid, out);
}

hr_status hr_gpu_state_get(int device, unsigned units, hr_gpu_state *out) {
    hr_nvml_device *nvml;
    *out = (hr_gpu_state){.read_gb_s = NAN,
                          .sm_mhz = NAN,
                          .memory_mhz = NAN,
                          .temperature_c = NAN,
                          .power_w = NAN,
                          .power_limit_w = NAN,
                          .energy_j = NAN,
                          .slowed_s = NAN};
    for (int u = 0; u < HR_UNIT_COUNT; u++) out->gflop_s[u] = NAN;
    if (units) HR_TRY(hr_gpu_probe_state(device, units, out));
    if (find(device, &nvml) == HR_OK) hr_nvml_read(nvml, out); /* after the probes: the clocks of a busy device */
    return HR_OK;
}

hr_status hr_gpu_power_limit(int device, double watts) {
    hr_nvml_device *nvml;
    char name[16];
    hr_device_name(device, name);
    hr_status status = find(device, &nvml);
    if (status == HR_OK) status = hr_nvml_set_power_limit(nvml, watts);
    return status == HR_OK ? HR_OK : hr_fail_prefix(status, name);
}
