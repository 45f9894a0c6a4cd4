/* What a sweep would do, without doing it. */
#include "harness/sweep/sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Axes that a table shows only where they have more than one value. */
static const char *const axes[] = {
    "type_k|=K type", "type_v|=V type", "kv_layout", "page_size",          "kv_alloc", "flash_attn|=fa",
    "n_seqs|=seqs",   "n_batch",        "n_ubatch",  "n_threads|=threads", "isa",      "weights",
    "fusion",         "device",         "graphs",    "gpu_memory",         "gemm",     "power_limit_w"};
enum { N_AXES = sizeof axes / sizeof *axes };

/* Null is no value: the axis does not concern that row. */
static bool varies(const json_t *rows, const char *key) {
    const json_t *first = NULL;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const json_t *value = json_object_get(row, key);
        if (json_is_null(value)) continue;
        if (first && !json_equal(value, first)) return true;
        first = value;
    }
    return false;
}

static bool any_reason(const json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) if (json_is_string(json_object_get(row, "reason"))) return true;
    return false;
}

void hr_dry_run_columns(const json_t *rows, bool all, const char *keys[HR_DRY_RUN_COLUMNS]) {
    static const char *const head[] = {"test", "model", "quant", "act"};
    static const char *const tail[] = {"memory_mb|=memory (MB)", "seconds|=time (s)", "status", "cell_id"};
    size_t n = 0;
    for (size_t i = 0; i < sizeof head / sizeof *head; i++) keys[n++] = head[i];
    for (size_t i = 0; i < N_AXES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(axes[i], "|"), axes[i]);
        if (all || varies(rows, key)) keys[n++] = axes[i];
    }
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++) keys[n++] = tail[i];
    if (all || any_reason(rows)) keys[n++] = "reason";
    keys[n] = NULL;
}

static json_t *number(int64_t value) {
    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static json_t *plan_row(const hr_sweep_plan *plan, const hr_sweep_cell *cell, double seconds) {
    const hr_cell_config *c = &cell->config;
    const double memory =
        (double)hr_cell_weight_memory(&plan->infos[cell->info]) + (double)cell->arena_bytes + (double)cell->kv_bytes;
    char test[128], device[16];
    hr_cell_test(c, test, sizeof test);
    const char *isa = c->gpu ? NULL : hr_isa_name(c->isa);
    json_t *row =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s?}", "test", test, "model", c->model, "quant",
                  hr_quant_name(c->quant), "act", hr_act_name((hr_act)c->act), "type_k", hr_kv_type_name(c->k_type),
                  "type_v", hr_kv_type_name(c->v_type), "kv_layout", hr_kv_layout_name(c->kv_layout), "kv_alloc",
                  c->kv_alloc, "flash_attn", (int)c->flash, "isa", isa);
    char fusion[HR_FUSION_TEXT];
    json_object_set_new(row, "fusion", json_string(hr_fusion_text(c->fusion, fusion)));
    json_object_set_new(row, "weights", json_string(hr_weights_name(c->weights)));
    json_object_set_new(row, "page_size", number(c->page_size));
    json_object_set_new(row, "n_seqs", number(c->n_seqs));
    json_object_set_new(row, "n_batch", number(c->batch));
    json_object_set_new(row, "n_ubatch", number(c->ubatch));
    json_object_set_new(row, "n_threads", number(c->threads));
    hr_device_name(hr_cell_device(c), device);
    json_object_set_new(row, "device", json_string(device));
    json_object_set_new(row, "graphs", hr_cell_has_graphs(c) ? json_boolean(c->graphs) : json_null());
    json_object_set_new(row, "gpu_memory", c->gpu ? json_string(hr_gpu_memory_names[c->gpu_memory]) : json_null());
    json_object_set_new(row, "gemm", hr_cell_has_gemm(c) ? json_string(c->cublaslt ? "cublaslt" : "own") : json_null());
    json_object_set_new(row, "power_limit_w", c->power_limit_w ? json_integer(c->power_limit_w) : json_null());
    json_object_set_new(row, "memory_mb", json_real(round(memory / 1e5) / 10));
    json_object_set_new(row, "seconds", json_real(round(seconds * 10) / 10));
    json_object_set_new(row, "status", json_string(cell->skip ? "skipped" : "planned"));
    json_object_set_new(row, "reason", cell->skip ? json_string(cell->skip) : json_null());
    json_object_set_new(row, "cell_id", json_string(cell->id));
    return row;
}

json_t *hr_dry_run(const hr_sweep_plan *plan, const hr_sweep_options *options) {
    json_t *rows = json_array();
    for (size_t i = 0; i < plan->n; i++) {
        const hr_sweep_cell *cell = &plan->cells[i];
        double seconds = 0;
        if (!cell->skip) {
            seconds = hr_sweep_plan_seconds(plan, i, options->measure.rule.fixed, options->measure.rule.max_seconds);
            if (i == 0 || !hr_sweep_plan_same_group(cell, cell - 1)) seconds += hr_sweep_plan_load_seconds(plan, i);
        }
        json_array_append_new(rows, plan_row(plan, cell, seconds));
    }
    return rows;
}
