/* gpu_state.c - the state of a GPU beside what is measured on it, and its power limit. */
#include "engine/cuda/gpu_lt.h"
#include "engine/cuda/gpu_probe.h"
#include "engine/nvml.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

/* ---- probes: which way is best, and how long a probe must be, is found at a device's first state and kept ---------- */

enum { DEVICES = 64, TRIED = 6, SHOTS = 5 };
static struct best {
    const hr_gpu_way *way;
    uint32_t passes;
} known[DEVICES][HR_GPU_LOADS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const double PROBE_NS = 1.5e6; /* some 300 times the step of an event and what a launch takes */
static const size_t MIB = (size_t)1 << 20;

static hr_status find_best(hr_gpu_probe *p, hr_gpu_load load, struct best *out) {
    unsigned n;
    const hr_gpu_way *ways = hr_gpu_ways(load, &n);
    double best = 0;
    for (unsigned i = 0; i < n && i < (p->info.simulated ? 1 : TRIED); i++) {
        uint32_t passes;
        double ns, work;
        HR_TRY(hr_gpu_probe_passes(p, load, &ways[i], p->bytes, PROBE_NS, &passes));
        HR_TRY(hr_gpu_probe_run(p, load, &ways[i], p->bytes, passes, &ns, &work));
        if (work / ns > best) best = work / ns, *out = (struct best){&ways[i], passes};
    }
    return HR_OK;
}

static hr_status best_rate(hr_gpu_probe *p, hr_gpu_load load, struct best *best, double *rate) {
    *rate = 0;
    if (!best->way) HR_TRY(find_best(p, load, best));
    for (int shot = 0; shot < (p->info.simulated ? 1 : SHOTS); shot++) {
        double ns, work;
        HR_TRY(hr_gpu_probe_run(p, load, best->way, p->bytes, best->passes, &ns, &work));
        *rate = fmax(*rate, work / ns);
    }
    return HR_OK;
}

/* Raises *rate to that of cuBLASLt where it is higher. Not to be had: no failure. */
static void rate_of_library(hr_gpu_probe *p, hr_gpu_load load, double *rate) {
    hr_gpu_lt *lt;
    if (p->info.simulated || hr_gpu_lt_create(p, load, &(hr_gpu_product){0}, &lt) != HR_OK) return;
    for (int shot = 0; shot < SHOTS; shot++) {
        double ns, work;
        if (hr_gpu_lt_run(lt, p, 1, &ns, &work) == HR_OK) *rate = fmax(*rate, work / ns);
    }
    hr_gpu_lt_destroy(lt);
}

static hr_status probe_all(hr_gpu_probe *p, struct best best[HR_GPU_LOADS], unsigned units, hr_gpu_state *out) {
    static const hr_gpu_load of_unit[HR_UNIT_COUNT] = {
        [HR_UNIT_FP32] = HR_GPU_FP32, [HR_UNIT_BF16] = HR_GPU_BF16, [HR_UNIT_INT8] = HR_GPU_INT8};
    HR_TRY(best_rate(p, HR_GPU_READ, &best[HR_GPU_READ], &out->read_gb_s));
    for (int u = 0; u < HR_UNIT_COUNT; u++) {
        if (!(units & (1u << u))) continue;
        HR_TRY(best_rate(p, of_unit[u], &best[of_unit[u]], &out->gflop_s[u]));
        if (u != HR_UNIT_FP32) rate_of_library(p, of_unit[u], &out->gflop_s[u]); /* FMA reaches its peak */
    }
    return HR_OK;
}

/* The buffer is far more than the second-level cache holds, so that what is read is read from memory. Without memory for it
 * the values stay unknown: no probe is better than a wrong one. */
static hr_status probe(int device, unsigned units, hr_gpu_state *out) {
    hr_gpu_probe p;
    hr_device_info info;
    HR_TRY(hr_device_get_info(device, &info));
    const size_t most = info.simulated ? 64 * 1024 : 2048 * MIB, least = info.simulated ? 4096 : 256 * MIB;
    const hr_status opened = hr_gpu_probe_open(device, most, least, false, &p);
    if (opened == HR_ERR_MEMORY) return HR_OK;
    HR_TRY(opened);
    pthread_mutex_lock(&lock);
    const hr_status status = probe_all(&p, known[device < DEVICES ? device : 0], units, out);
    pthread_mutex_unlock(&lock);
    hr_gpu_probe_close(&p);
    return status;
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

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
    if (units) HR_TRY(probe(device, units, out));
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
