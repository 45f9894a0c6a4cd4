/* What a sweep would do, without doing it. */
#include "harness/sweep/sweep.h"

#include <math.h>

const char *const hr_dry_run_keys[] = {"test",      "model",  "quant",        "act",       "type_k", "type_v",
                                       "kv_layout", "n_seqs", "memory_mb|MB", "seconds|s", "status", "reason",
                                       "cell_id",   NULL};

json_t *hr_dry_run(const hr_sweep_plan *plan, const hr_sweep_options *options) {
    json_t *rows = json_array();
    for (size_t i = 0; i < plan->n; i++) {
        const hr_sweep_cell *cell = &plan->cells[i];
        const hr_cell_config *c = &cell->config;
        char test[128];
        hr_cell_test(c, test, sizeof test);
        double seconds = 0;
        if (!cell->skip) {
            seconds = hr_sweep_plan_seconds(plan, i, options->measure.rule.fixed, options->measure.rule.max_seconds);
            if (i == 0 || !hr_sweep_plan_same_group(cell, cell - 1)) seconds += hr_sweep_plan_load_seconds(plan, i);
        }
        const double memory =
            (double)plan->infos[cell->info].weight_bytes + (double)cell->arena_bytes + (double)cell->kv_bytes;
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:f, s:f, s:s, s:o, s:s}", "test",
                                        test, "model", c->model, "quant", hr_quant_name(c->quant), "act",
                                        hr_act_name((hr_act)c->act), "type_k", hr_dtypes[c->k_type].name, "type_v",
                                        hr_dtypes[c->v_type].name, "kv_layout", hr_kv_layout_name(c->kv_layout),
                                        "n_seqs", c->n_seqs < 0 ? json_null() : json_integer((json_int_t)c->n_seqs),
                                        "memory_mb", round(memory / 1e5) / 10, "seconds", round(seconds * 10) / 10,
                                        "status", cell->skip ? "skipped" : "planned", "reason",
                                        cell->skip ? json_string(cell->skip) : json_null(), "cell_id", cell->id));
    }
    return rows;
}
