#include "harness/claims/claim_bench.h"

#include "harness/cli/option_groups.h"
#include "harness/stats/stats.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/random.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Samples, at least and at most, and the seconds after which no more are taken than the least. */
enum { LEAST = 6, MOST_QUICK = 15, MOST_FULL = 25 };
static const double SECONDS_QUICK = 2, SECONDS_FULL = 15;

/* ---- the run ---- */

/* An engine pins the thread that opens it; the next one, and the probes, must see all CPUs again. */
static cpu_set_t all_cpus;

void hr_claim_unpin(void) {
    sched_setaffinity(0, sizeof all_cpus, &all_cpus);
}

hr_claims_run *hr_claims_run_create(const hr_claims_options *options) {
    hr_claims_run *run = hr_calloc(1, sizeof *run);
    if (!run) return NULL;
    run->options = options;
    sched_getaffinity(0, sizeof all_cpus, &all_cpus);
    if (hr_machine_get(&run->machine) != HR_OK) run->machine.cores = run->machine.threads = 1;
    return run;
}

void hr_claims_run_destroy(hr_claims_run *run) {
    if (!run) return;
    for (unsigned i = 0; i < HR_CLAIM_MODELS; i++) hr_model_destroy(run->models[i].model);
    hr_roofs_destroy(run->roofs);
    hr_claim_traffic_destroy(run->traffic);
    hr_claim_text_destroy(run->text);
    hr_free(run);
}

hr_status hr_claim_stopped(const hr_claims_run *run) {
    if (run->options->stop && run->options->stop()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
    return HR_OK;
}

bool hr_claim_enough(const hr_claims_run *run, size_t n, uint64_t start) {
    const bool quick = run->options->quick;
    const double seconds = (double)(hr_now_ns() - start) * 1e-9, most = quick ? MOST_QUICK : MOST_FULL;
    if (run->options->progress)
        run->options->progress(run->share + run->share_step * fmin(1, (double)n / most), run->id,
                               run->options->context);
    if (n < LEAST) return false;
    return (double)n >= most || seconds > (quick ? SECONDS_QUICK : SECONDS_FULL);
}

hr_status hr_claim_peaks(hr_claims_run *run, hr_state *out) {
    if (!run->roofs) {
        hr_claim_unpin();
        HR_TRY(hr_roofs_create(0, &run->roofs));
    }
    return hr_roofs_state(run->roofs, (1u << HR_UNIT_COUNT) - 1, out);
}

/* ---- one configuration ---- */

/* The order that a sweep takes when none is asked for. */
static hr_order default_order(void) {
    hr_order order;
    return hr_weights_parse(hr_opt_weights.fallback, &order) == HR_OK ? order : HR_ORDER_ROWS;
}

hr_status hr_claim_model(hr_claims_run *run, const char *spec, hr_quant quant, hr_model **out) {
    for (unsigned i = 0; i < HR_CLAIM_MODELS; i++)
        if (run->models[i].model && !strcmp(run->models[i].spec, spec) && run->models[i].quant == quant) {
            *out = run->models[i].model;
            return HR_OK;
        }
    struct hr_claim_model *slot = &run->models[run->next_model++ % HR_CLAIM_MODELS];
    hr_model_destroy(slot->model);
    slot->model = NULL;
    hr_claim_unpin();
    const hr_load_options load = {.quant = quant, .order = default_order(), .huge_pages = true};
    HR_TRY(hr_model_load(spec, &load, &slot->model));
    snprintf(slot->spec, sizeof slot->spec, "%s", spec);
    slot->quant = quant;
    *out = slot->model;
    return HR_OK;
}

static hr_cell_config cell_of(const hr_claims_run *run, const hr_arm_spec *s) {
    hr_cell_config c = {.quant = s->quant,
                        .weights = default_order(),
                        .act = -1,
                        .kind = s->kind,
                        .n_prompt = s->n_prompt,
                        .n_gen = s->kind == HR_CELL_ISL ? 0 : s->n_gen,
                        .isl = HR_CELL_NULL,
                        .osl = HR_CELL_NULL,
                        .depth = s->kind == HR_CELL_ISL ? HR_CELL_NULL : s->depth,
                        .n_seqs = s->kind == HR_CELL_PP ? HR_CELL_NULL : 1,
                        .batch = 2048,
                        .ubatch = s->n_prompt > 512 && s->kind == HR_CELL_PP ? s->n_prompt : 512,
                        .k_type = s->kv_type ? s->kv_type : HR_BF16,
                        .v_type = s->kv_type ? s->kv_type : HR_BF16,
                        .kv_layout = s->kv_layout,
                        .page_size = HR_CELL_NULL,
                        .flash = !s->naive,
                        .threads = s->threads ? s->threads : run->machine.cores,
                        .isa = hr_isa_best()};
    if (s->kind == HR_CELL_ISL) c.isl = s->n_prompt, c.osl = s->n_gen;
    if (s->kind == HR_CELL_TG) c.batch = c.ubatch = HR_CELL_NULL;
    snprintf(c.model, sizeof c.model, "%s", s->model);
    snprintf(c.kv_alloc, sizeof c.kv_alloc, "per-request");
    return c;
}

static hr_status open_arm(hr_claims_run *run, const hr_arm_spec *s, hr_arm *arm) {
    HR_TRY(hr_claim_model(run, s->model, s->quant, &arm->model));
    const hr_cell_config cell = cell_of(run, s);
    hr_engine_config config = hr_cell_engine_config(&cell, hr_model_get_info(arm->model)->ctx);
    config.fusion = s->unfused ? HR_FUSE_ALL & ~s->fuse : HR_FUSE_ALL;
    if (s->depth) config.ubatch = config.batch = 512;
    hr_claim_unpin();
    HR_TRY(hr_engine_create(arm->model, &config, &arm->engine));
    const hr_measure_options measure = {
        .rule = {.fixed = 1, .max_seconds = 1e9}, .no_warmup = true, .seed = 1, .slo_ttft_ms = NAN, .slo_tpot_ms = NAN};
    HR_TRY(hr_bench_create(arm->model, arm->engine, &cell, &measure, &arm->bench));
    json_t *result = NULL;
    HR_TRY(hr_arm_run(arm, &result));
    json_decref(result);
    return HR_OK;
}

hr_status hr_arm_open(hr_claims_run *run, const hr_arm_spec *spec, hr_arm *arm) {
    *arm = (hr_arm){.run = run};
    const hr_status status = open_arm(run, spec, arm);
    if (status != HR_OK) hr_arm_close(arm);
    return status;
}

void hr_arm_close(hr_arm *arm) {
    hr_bench_destroy(arm->bench);
    hr_engine_destroy(arm->engine);
    *arm = (hr_arm){0};
}

hr_status hr_arm_run(hr_arm *arm, json_t **result) {
    HR_TRY(hr_claim_stopped(arm->run));
    return hr_bench_run(arm->bench, result);
}

/* ---- metrics ---- */

double hr_result_ops_ms(const json_t *result, hr_phase phase, unsigned ops) {
    double sum = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(result, "ops"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "phase")), hr_phase_names[phase])) continue;
        const char *name = json_string_value(json_object_get(row, "op"));
        for (int op = 0; op < HR_OP_COUNT; op++)
            if (ops >> op & 1u && !strcmp(hr_op_names[op], name))
                sum += json_number_value(json_object_get(row, "n")) *
                       json_number_value(json_object_get(row, "median_ns")) * 1e-6;
    }
    return sum;
}

double hr_metric_ops(const hr_arm *arm, const json_t *result, const void *context) {
    (void)arm;
    const hr_metric_ops_of *of = context;
    return hr_result_ops_ms(result, of->phase, of->ops);
}

/* ---- samples and pairs ---- */

static hr_status once(hr_arm *arm, hr_metric *metric, const void *context, double *out) {
    json_t *result = NULL;
    HR_TRY(hr_arm_run(arm, &result));
    *out = metric(arm, result, context);
    json_decref(result);
    return HR_OK;
}

hr_status hr_claim_ratio(hr_arm *a, hr_arm *b, hr_metric *metric, const void *context, hr_claim_measured *out) {
    double ratios[HR_CLAIM_SAMPLES];
    size_t n = 0;
    uint64_t rng = 7;
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(a->run, n, start)) {
        const bool a_first = hr_random(&rng) & 1;
        double first, second;
        HR_TRY(once(a_first ? a : b, metric, context, &first));
        HR_TRY(once(a_first ? b : a, metric, context, &second));
        ratios[n++] = a_first ? first / second : second / first;
    }
    *out = hr_claim_of_samples(ratios, n);
    return HR_OK;
}

hr_status hr_claim_compare(hr_claims_run *run, const hr_arm_spec *a, const hr_arm_spec *b, hr_metric *metric,
                           const void *context, hr_claim_measured *out) {
    hr_arm arms[2] = {{0}};
    hr_status status = hr_arm_open(run, a, &arms[0]);
    if (status == HR_OK) status = hr_arm_open(run, b, &arms[1]);
    if (status == HR_OK) status = hr_claim_ratio(&arms[0], &arms[1], metric, context, out);
    hr_arm_close(&arms[1]), hr_arm_close(&arms[0]);
    return status;
}

hr_status hr_claim_sample(hr_claims_run *run, const hr_arm_spec *spec, hr_metric *metric, const void *context,
                          hr_claim_measured *out) {
    hr_arm arm;
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    HR_TRY(hr_arm_open(run, spec, &arm));
    const uint64_t start = hr_now_ns();
    hr_status status = HR_OK;
    while (status == HR_OK && n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start))
        status = once(&arm, metric, context, &v[n++]);
    hr_arm_close(&arm);
    if (status == HR_OK) *out = hr_claim_of_samples(v, n);
    return status;
}
