/* The states seen beside the cells of a sweep, kept as the ceilings of its run. */
#include "harness/sweep/sweep.h"

#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

hr_status hr_state_log_add(hr_state_log *log, const hr_state *state) {
    if (log->n == log->capacity) {
        const size_t capacity = log->capacity ? log->capacity * 2 : 64;
        hr_state *states = hr_realloc(log->states, hr_mul(capacity, sizeof *states));
        if (!states) HR_FAIL(HR_ERR_MEMORY, "no memory for the record of the machine's state");
        log->states = states, log->capacity = capacity;
    }
    log->states[log->n++] = *state;
    return HR_OK;
}

void hr_state_log_fini(hr_state_log *log) {
    hr_free(log->states);
    *log = (hr_state_log){0};
}

/* The distribution of one figure (offset in hr_state), or false when it was never measured. */
static bool figure(const hr_state_log *log, size_t offset, double *scratch, hr_dist *out) {
    size_t n = 0;
    for (size_t i = 0; i < log->n; i++) {
        double v;
        memcpy(&v, (const char *)&log->states[i] + offset, sizeof v);
        if (isfinite(v)) scratch[n++] = v;
    }
    return n && hr_dist_of(scratch, n, out) == HR_OK;
}

json_t *hr_state_log_roof(const hr_state_log *log, const hr_machine *machine, unsigned threads, double llc_bytes) {
    double *scratch = hr_malloc(hr_mul(log->n + 1, sizeof *scratch));
    if (!scratch) return NULL;
    json_t *reads = json_array(), *flops = json_array(), *ridge = json_object();
    hr_dist d, read;
    const bool have_read = figure(log, offsetof(hr_state, read_gb_s), scratch, &read);
    if (have_read)
        json_array_append_new(reads,
                              json_pack("{s:s, s:n, s:i, s:o, s:o, s:o}", "level", "DRAM", "bytes_per_thread",
                                        "threads", (int)threads, "median", hr_real_or_null(read.p50), "ci95_lo",
                                        hr_real_or_null(read.ci95_lo), "ci95_hi", hr_real_or_null(read.ci95_hi)));
    for (size_t u = 0; u < HR_UNIT_COUNT; u++) {
        if (!figure(log, offsetof(hr_state, gflop_s) + u * sizeof(double), scratch, &d)) continue;
        json_array_append_new(flops, json_pack("{s:s, s:i, s:o, s:o, s:o}", "unit", hr_unit_names[u], "threads",
                                               (int)threads, "median", hr_real_or_null(d.p50), "ci95_lo",
                                               hr_real_or_null(d.ci95_lo), "ci95_hi", hr_real_or_null(d.ci95_hi)));
        if (have_read) json_object_set_new(ridge, hr_unit_names[u], hr_real_or_null(d.p50 / read.p50));
    }
    const bool have_clock = figure(log, offsetof(hr_state, clock_ghz), scratch, &d);
    const double clock = have_clock ? d.p50 : NAN;
    const double handoff = figure(log, offsetof(hr_state, handoff_ns), scratch, &d) ? d.p50 : NAN;
    hr_free(scratch);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "machine", hr_machine_json(machine), "read_gb_s", reads,
                     "gflop_s", flops, "ridge_flop_byte", ridge, "llc_bytes", hr_real_or_null(llc_bytes), "clock_ghz",
                     hr_real_or_null(clock), "handoff_ns", hr_real_or_null(handoff));
}
