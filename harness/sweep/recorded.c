#include "harness/sweep/recorded.h"

#include "harness/stats/stats.h"

void hr_recorded_fold(hr_recorded *r, const hr_op_record *records, size_t n) {
    for (int p = 0; p < HR_PHASE_COUNT; p++) r->op_ns[p] = r->n_ops[p] = r->n_jobs[p] = 0;
    for (size_t i = 0; i < n; i++) {
        const hr_phase p = records[i].phase;
        r->op_ns[p] += (double)(records[i].end_ns - records[i].start_ns);
        r->n_ops[p]++;
        r->n_jobs[p] += (double)records[i].jobs;
    }
}

double hr_recorded_overhead_pct(const hr_recorded *r, const size_t whole[HR_PHASE_COUNT]) {
    double on = 0, off = 0;
    for (int p = 0; p < HR_PHASE_COUNT; p++) {
        if (!r->n[p]) continue;
        on += r->on.ns[p] * (double)whole[p], off += r->off.ns[p] * (double)whole[p];
    }
    return (on / off - 1) * 100;
}

double hr_recorded_op_share(const hr_recorded *r) {
    double ops = 0, time = 0;
    for (int p = 0; p < HR_PHASE_COUNT; p++)
        if (r->n[p]) ops += r->op_ns[p], time += r->on.ns[p] * (double)r->n[p];
    return ops / time;
}

static json_t *phase_row(const hr_recorded *r, size_t i, int p, hr_record_cost cost) {
    const double n = (double)r->n[p], ops = r->n_ops[p] / n, jobs = r->n_jobs[p] / n;
    return json_pack("{s:I, s:s, s:I, s:o, s:o, s:o, s:f, s:f, s:o}", "i", (json_int_t)i, "phase", hr_phase_names[p],
                     "n", (json_int_t)r->n[p], "off_ns", hr_real_or_null(r->off.ns[p]), "on_ns",
                     hr_real_or_null(r->on.ns[p]), "op_ns", hr_real_or_null(r->op_ns[p] / n), "n_ops", ops, "n_jobs",
                     jobs, "probe_ns", hr_real_or_null(ops * cost.op_ns + jobs * cost.job_ns));
}

hr_status hr_recorded_rows(const hr_recorded *recorded, size_t n, hr_record_cost cost, json_t **out) {
    json_t *rows = json_array();
    bool whole = rows != NULL;
    for (size_t i = 0; whole && i < n; i++)
        for (int p = 0; p < HR_PHASE_COUNT; p++)
            if (recorded[i].n[p]) whole &= !json_array_append_new(rows, phase_row(&recorded[i], i, p, cost));
    if (!whole) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "no memory for the recorded repetitions");
    }
    *out = rows;
    return HR_OK;
}
