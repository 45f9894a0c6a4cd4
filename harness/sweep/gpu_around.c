#include "harness/sweep/gpu_around.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"

#include <math.h>

void hr_gpu_around_look(int device, unsigned units, hr_gpu_state *out) {
    if (hr_gpu_state_get(device, units, out) == HR_OK) return;
    *out = (hr_gpu_state){.read_gb_s = NAN, .sm_mhz = NAN};
    for (int u = 0; u < HR_UNIT_COUNT; u++) out->gflop_s[u] = NAN;
}

static json_t *state_json(const hr_gpu_state *s) {
    json_t *flops = json_object();
    for (int u = 0; flops && u < HR_UNIT_COUNT; u++)
        json_object_set_new(flops, hr_unit_names[u], hr_real_or_null(s->gflop_s[u]));
    return json_pack("{s:o, s:o, s:o}", "read_gb_s", hr_real_or_null(s->read_gb_s), "gflop_s", flops, "sm_mhz",
                     hr_real_or_null(s->sm_mhz));
}

hr_status hr_gpu_around_put(json_t *result, const hr_gpu_state *before, const hr_gpu_state *after) {
    if (json_object_set_new(result, "gpu_before", state_json(before)) != 0 ||
        json_object_set_new(result, "gpu_after", state_json(after)) != 0)
        HR_FAIL(HR_ERR_MEMORY, "no memory for the state of a GPU");
    return HR_OK;
}

static void put(json_t *result, const char *key, double value) {
    if (isfinite(value)) json_object_set_new(result, key, json_real(value));
}

hr_status hr_gpu_around_count(json_t *result, int device, hr_bench *bench) {
    hr_gpu_counters c;
    const hr_status status = hr_gpu_counters_measure(device, hr_bench_step, bench, &c);
    if (status == HR_ERR_UNSUPPORTED) {
        json_object_set_new(result, "counters_missing", json_string(hr_error()));
        return HR_OK;
    }
    HR_TRY(status);
    put(result, "dram_bytes_read", c.dram_read_bytes), put(result, "dram_bytes_write", c.dram_write_bytes);
    put(result, "tensor_pct", c.tensor_pct), put(result, "l2_hit_pct", c.l2_hit_pct);
    put(result, "warps_active_pct", c.warps_active_pct);
    return HR_OK;
}

/* A GPU has no handing over between threads, and the pressure of tasks is the machine's: the caller's business. */
static void get(const json_t *json, hr_state *out) {
    *out = (hr_state){.read_gb_s = hr_num(json, "read_gb_s"),
                      .handoff_ns = NAN,
                      .clock_ghz = hr_num(json, "sm_mhz") * 1e-3,
                      .psi_some_us = out->psi_some_us};
    for (int u = 0; u < HR_UNIT_COUNT; u++)
        out->gflop_s[u] = hr_num(json_object_get(json, "gflop_s"), hr_unit_names[u]);
}

void hr_gpu_around_get(const json_t *result, const hr_device_info *gpu, hr_surroundings *around) {
    get(json_object_get(result, "gpu_before"), &around->before);
    get(json_object_get(result, "gpu_after"), &around->after);
    around->llc_bytes = gpu->l2_bytes ? (double)gpu->l2_bytes : NAN;
}
