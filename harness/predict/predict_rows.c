#include "harness/predict/predict_rows.h"

#include "kernels/base/memory.h"
#include <math.h>
#include <string.h>

const char hr_predict_caption[] = "predicted, not measured: products of one matrix of 14336 x 4096, attention of 32 "
                                  "heads over 8 of KV with 4096 positions "
                                  "(decode) or 512 queries (prefill); time at the roof is the longer of bytes over the "
                                  "datasheet's bandwidth and flops over "
                                  "its peak";

static const char *const op_names[HR_FAM_COUNT] = {
    [HR_FAM_ACTS] = "acts",       [HR_FAM_MATMUL] = "matmul",
    [HR_FAM_ATTN] = "attention",  [HR_FAM_ATTN_MERGE] = "attention_merge",
    [HR_FAM_NORM] = "norm",       [HR_FAM_ROPE] = "rope",
    [HR_FAM_GLU] = "glu",         [HR_FAM_KV_APPEND] = "kv_append",
    [HR_FAM_EMBED] = "embed",     [HR_FAM_ADD] = "add",
    [HR_FAM_SAMPLE] = "sample",   [HR_FAM_FINISH] = "qkv_finish",
    [HR_FAM_KV_COPY] = "kv_copy", [HR_FAM_FILL] = "fill",
};

static json_t *number(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}
static json_t *count(uint64_t n) {
    return n ? json_integer((json_int_t)n) : json_null();
}
static json_t *three(const uint32_t v[3]) {
    return v[0] ? json_pack("[i, i, i]", (int)v[0], (int)v[1], (int)v[2]) : json_null();
}

static const char *dtype_name(const hr_kernel_prediction *p) {
    if (!p->row->dtypes) return NULL;
    return p->row->family == HR_FAM_ATTN ? hr_kv_type_name(p->dtype) : hr_dtypes[p->dtype].name;
}

static json_t *row_of(const hr_kernel_prediction *p) {
    const char *act = p->row->act >= 0 ? hr_act_name((hr_act)p->row->act) : NULL;
    return json_pack(
        "{s:s, s:s, s:s?, s:s?, s:o, s:o, s:o, s:i, s:i, s:i, s:i, s:f, s:s, s:o, s:o, s:o, s:o, s:s?, s:b}", //
        "op", op_names[p->row->family], "name", p->row->name, "dtype", dtype_name(p), "act", act, "n", count(p->n),
        "grid", three(p->shape.grid), "block", three(p->shape.block), "registers", (int)p->registers, "shared_bytes",
        (int)p->shared, "blocks_sm", (int)p->blocks, "warps_sm", (int)p->warps, "occupancy", p->occupancy, "bound",
        p->bound, "waves", number(p->waves), "bytes", count(p->bytes), "flops", count(p->flops), "roof_us",
        number(p->roof_us), "roof_bound", p->bytes ? (p->compute_bound ? "compute" : "memory") : NULL, "predicted", 1);
}

hr_status hr_predict_rows(const hr_gpu_sheet *gpu, json_t **out) {
    hr_kernel_prediction *all = hr_calloc(HR_PREDICTIONS_MOST, sizeof *all);
    size_t n = 0;
    *out = json_array();
    hr_status status = HR_OK;
    if (!all || !*out) status = hr_fail(HR_ERR_MEMORY, "out of memory for the kernels of %s", gpu->title);
    if (status == HR_OK) status = hr_kernels_predict(gpu, all, HR_PREDICTIONS_MOST, &n);
    for (size_t i = 0; i < n && status == HR_OK; i++)
        if (json_array_append_new(*out, row_of(&all[i])) != 0)
            status = hr_fail(HR_ERR_MEMORY, "out of memory for the kernels of %s", gpu->title);
    hr_free(all);
    if (status != HR_OK) json_decref(*out), *out = NULL;
    return status;
}

bool hr_predict_sheet(const char *name, uint32_t sms, double read_gb_s, hr_gpu_sheet *out) {
    const hr_gpu_sheet *sheet = hr_gpu_sheet_find(name);
    if (!sheet) return false;
    *out = *sheet;
    if (sms) out->sms = sms;
    if (isfinite(read_gb_s) && read_gb_s > 0) out->read_gb_s = read_gb_s;
    return true;
}
