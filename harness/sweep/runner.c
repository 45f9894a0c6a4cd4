#include "harness/sweep/sweep.h"

#include "harness/cli/interrupt.h"
#include "harness/cli/progress.h"
#include "harness/sweep/gpu_around.h"
#include "harness/sweep/worker.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct sweep {
    const hr_sweep_plan *plan;
    const hr_machine *machine;
    const hr_sweep_options *options;
    hr_sink *sink;
    hr_roofs *roofs;
    unsigned roof_threads;
    hr_state_log log;
    double llc_bytes, best_clock_ghz;
    double best_gpu_ghz[HR_DEVICES_MAX];   /* as plan->gpus */
    bool said_kernel_times, said_counters; /* why there are no counters: once */
    hr_worker worker;
    hr_progress progress;
    uint64_t start_ns;
    double total_s, done_s; /* as estimated */
    size_t at;              /* cell */
    char stage[160];
    size_t n_failed;
} sweep;

/* ---- progress -------------------------------------------------------------------------------------------------- */

static void show(double share, void *context) {
    sweep *s = context;
    const double elapsed = (double)(hr_now_ns() - s->start_ns) * 1e-9, left = s->total_s - s->done_s;
    /* What was measured so far corrects the estimate of the rest. */
    const double pace = s->done_s > 1 ? elapsed / s->done_s : 1;
    char part[32] = "";
    if (share >= 0) snprintf(part, sizeof part, ", loading %.0f %%", share * 100);
    hr_progress_show(&s->progress, s->total_s > 0 ? s->done_s / s->total_s : 0, left * pace, "%zu/%zu %s%s", s->at + 1,
                     s->plan->n, s->stage, part);
}

static double estimate(const sweep *s, size_t i) {
    const hr_stop_rule *rule = &s->options->measure.rule;
    return s->plan->cells[i].skip ? 0 : hr_sweep_plan_seconds(s->plan, i, rule->fixed, rule->max_seconds);
}

/* ---- the machine's state --------------------------------------------------------------------------------------- */

static hr_status probe(sweep *s, unsigned units, hr_state *out) {
    HR_TRY(hr_roofs_state(s->roofs, units, out));
    if (out->clock_ghz > s->best_clock_ghz) s->best_clock_ghz = out->clock_ghz;
    return hr_state_log_add(&s->log, out);
}

/* A sweep on GPUs alone burns no CPU time on ceilings that it has no use for. */
static hr_status open_roofs(sweep *s) {
    if (!s->plan->on_cpu) return HR_OK;
    s->roof_threads = s->machine->cores;
    for (size_t i = 0; i < s->plan->n; i++)
        if (s->plan->cells[i].config.threads > s->roof_threads &&
            s->plan->cells[i].config.threads <= s->machine->threads)
            s->roof_threads = (unsigned)s->plan->cells[i].config.threads;
    HR_TRY(hr_roofs_create(s->roof_threads, &s->roofs));
    hr_roofs_stop_when(s->roofs, hr_interrupted);
    uint64_t llc;
    HR_TRY(hr_roofs_llc(s->roofs, &llc));
    s->llc_bytes = (double)llc;
    return HR_OK;
}

/* ---- one cell -------------------------------------------------------------------------------------------------- */

/* An answer that is not ok becomes the cell's status and error. */
static bool refused(const json_t *answer, json_t *row) {
    const char *status = json_string_value(json_object_get(answer, "status"));
    if (status && !strcmp(status, "ok")) return false;
    const char *error = json_string_value(json_object_get(answer, "error"));
    json_object_set_new(row, "status", json_string(status ? status : "failed"));
    json_object_set_new(row, "error", json_string(error ? error : "the worker gave no reason"));
    return true;
}

static hr_status ask(sweep *s, json_t *request, uint64_t deadline, json_t **answer) {
    HR_TRY(hr_worker_send(&s->worker, request));
    return hr_worker_receive(&s->worker, deadline, show, s, answer);
}

/* "synth:tiny int8 tg128 @ d64 1f03ab9c": model without its folder, weights, test, start of the id. */
static void range_name(const hr_sweep_cell *cell, char *out, size_t n) {
    char test[128];
    hr_cell_test(&cell->config, test, sizeof test);
    const char *model = cell->config.model, *slash = strrchr(model, '/');
    if (slash && slash[1]) model = slash + 1;
    snprintf(out, n, "%.120s %s %s %.8s", model, hr_quant_name(cell->config.quant), test, cell->id);
}

static hr_status measure_once(sweep *s, const hr_sweep_cell *cell, uint64_t deadline, hr_surroundings *around,
                              json_t **result) {
    const uint64_t start = hr_now_ns();
    const hr_device_info *gpu = hr_sweep_plan_gpu(s->plan, &cell->config);
    char name[300];
    range_name(cell, name, sizeof name);
    if (gpu) around->before.psi_some_us = hr_psi_some_us();
    HR_TRY(ask(s, json_pack("{s:s, s:s}", "do", "measure", "name", name), deadline, result));
    if (gpu) {
        around->after.psi_some_us = hr_psi_some_us();
        hr_gpu_around_get(*result, gpu, around);
    } else {
        HR_TRY(probe(s, around->units, &around->after));
    }
    around->seconds = (double)(hr_now_ns() - start) * 1e-9;
    return HR_OK;
}

/* A cell during which the machine changed its state is measured once more, between the state after and a new one; but
 * not under a capture, which is one a cell. */
static hr_status measure_in_one_state(sweep *s, const hr_sweep_cell *cell, uint64_t deadline, hr_surroundings *around,
                                      json_t **result) {
    const hr_device_info *gpu = hr_sweep_plan_gpu(s->plan, &cell->config);
    if (!gpu) HR_TRY(probe(s, around->units, &around->before));
    HR_TRY(measure_once(s, cell, deadline, around, result));
    if (s->options->measure.capture != HR_CAPTURE_NONE || (gpu && gpu->simulated)) return HR_OK;
    const char *class_name = hr_state_class(&around->before, &around->after);
    const char *status = json_string_value(json_object_get(*result, "status"));
    if (!class_name || strcmp(class_name, "mixed") || !status || strcmp(status, "ok")) return HR_OK;
    json_decref(*result);
    *result = NULL;
    around->before = around->after;
    around->state_changed = true;
    return measure_once(s, cell, deadline, around, result);
}

/* The worker says what the engine really chose; the row and its id follow. */
static void take_facts(const sweep *s, hr_sweep_cell *cell, const json_t *ready, const char *input, json_t *row) {
    hr_cell_config *c = &cell->config;
    const hr_device_info *gpu = hr_sweep_plan_gpu(s->plan, c);
    const int act = (int)json_integer_value(json_object_get(ready, "act"));
    const int isa = gpu ? (int)c->isa : (int)json_integer_value(json_object_get(ready, "isa"));
    const json_int_t threads = gpu ? c->threads : json_integer_value(json_object_get(ready, "threads"));
    if (act == c->act && isa == (int)c->isa && threads == c->threads) return;
    c->act = act, c->isa = (hr_isa)isa, c->threads = threads;
    hr_cell_id(c, s->plan->infos[cell->info].hash, gpu ? gpu->class_name : s->machine->class_name, input, cell->id);
    json_object_set_new(row, "act", json_string(hr_act_name((hr_act)act)));
    if (!gpu) json_object_set_new(row, "isa", json_string(hr_isa_name(c->isa)));
    if (!gpu) json_object_set_new(row, "n_threads", json_integer(threads));
    json_object_set_new(row, "cell_id", json_string(cell->id));
}

/* What an engine on a GPU took instead of what was asked for: --gemm, when it was given, is an order; else the row says what is
 * so. True: the cell is skipped. */
static bool gpu_refused(const sweep *s, const hr_cell_config *c, const json_t *ready, json_t *row) {
    const char *gemm = json_string_value(json_object_get(ready, "gemm"));
    const bool cublaslt = gemm && strcmp(gemm, "own");
    if (hr_cell_has_graphs(c)) json_object_set(row, "graphs", json_object_get(ready, "graphs"));
    if (!hr_cell_has_gemm(c) || cublaslt == c->cublaslt) return false;
    json_object_set_new(row, "gemm", json_string(cublaslt ? "cublaslt" : "own"));
    if (!s->plan->gemm_asked) return false;
    json_object_set_new(row, "status", json_string("skipped"));
    json_object_set_new(row, "error", json_string("--gemm cublaslt: cuBLASLt cannot be opened here; give --gemm own"));
    return true;
}

static void say_missing(sweep *s, const json_t *result, const char *key, const char *what, bool *said) {
    const char *why = json_string_value(json_object_get(result, key));
    if (!why || *said) return;
    *said = true;
    hr_progress_clear(&s->progress);
    if (!s->options->output.quiet) fprintf(stderr, "headroom: %s: %s\n", what, why);
}

/* The best clock of the GPU so far, and once why it counts nothing. */
static void look_at_gpu(sweep *s, const hr_cell_config *c, const json_t *result, hr_surroundings *around) {
    size_t i = 0;
    while (i + 1 < s->plan->n_gpus && s->plan->gpus[i].device != hr_cell_device(c)) i++;
    double *best = &s->best_gpu_ghz[i];
    *best = fmax(*best, fmax(around->before.clock_ghz, around->after.clock_ghz));
    around->best_clock_ghz = *best > 0 ? *best : NAN;
    say_missing(s, result, "counters_missing", "no counters of the GPU", &s->said_counters);
    say_missing(s, result, "kernel_times_missing", "no times of single kernels", &s->said_kernel_times);
}

static hr_status run_cell(sweep *s, hr_sweep_cell *cell, json_t *row, json_t **result) {
    const double timeout = s->options->timeout_s;
    const uint64_t deadline = timeout > 0 ? hr_now_ns() + (uint64_t)(timeout * 1e9) : 0;
    if (s->worker.socket < 0)
        HR_TRY((s->options->in_process ? hr_worker_start_thread : hr_worker_start)(&s->worker, &s->options->measure));
    json_t *ready = NULL;
    HR_TRY(ask(
        s,
        json_pack("{s:s, s:i, s:o}", "do", "prepare", "index", (int)s->at, "cell", hr_cell_config_json(&cell->config)),
        deadline, &ready));
    if (refused(ready, row)) {
        json_decref(ready);
        return HR_OK;
    }
    take_facts(s, cell, ready, s->plan->input, row);
    if (cell->config.gpu && gpu_refused(s, &cell->config, ready, row)) {
        json_decref(ready);
        return HR_OK;
    }
    hr_surroundings around = {.units = (unsigned)json_integer_value(json_object_get(ready, "units")),
                              .llc_bytes = s->llc_bytes};
    json_decref(ready);
    HR_TRY(measure_in_one_state(s, cell, deadline, &around, result));
    if (refused(*result, row)) return HR_OK;
    around.best_clock_ghz = s->best_clock_ghz;
    if (cell->config.gpu) look_at_gpu(s, &cell->config, *result, &around);
    return hr_derive_row(row, &cell->config, *result, &around);
}

/* [{"ns", "flags"}] of the store, from a result. */
static json_t *sample_rows(const json_t *result) {
    const json_t *samples = json_object_get(result, "samples_ns"), *flags = json_object_get(result, "sample_flags");
    json_t *rows = json_array();
    for (size_t i = 0; i < json_array_size(samples); i++)
        json_array_append_new(
            rows, json_pack("{s:O, s:O}", "ns", json_array_get(samples, i), "flags", json_array_get(flags, i)));
    return rows;
}

/* Measures one cell and hands its row on. Any failure but an interruption and a failing output stays with the cell. */
static hr_status one_cell(sweep *s) {
    hr_sweep_cell cell = s->plan->cells[s->at];
    json_t *row = hr_cell_row(&cell.config, &s->plan->infos[cell.info], s->machine, cell.id,
                              (int64_t)s->options->measure.seed, s->options->tags);
    if (!row) HR_FAIL(HR_ERR_MEMORY, "no memory for a row");
    const hr_device_info *gpu = hr_sweep_plan_gpu(s->plan, &cell.config);
    if (gpu) hr_cell_row_gpu(row, &cell.config, gpu);
    snprintf(s->stage, sizeof s->stage, "%s", json_string_value(json_object_get(row, "test")));
    json_t *result = NULL;
    hr_status status = HR_OK;
    if (cell.skip) {
        json_object_set_new(row, "status", json_string("skipped"));
        json_object_set_new(row, "error", json_string(cell.skip));
    } else {
        show(-1, s);
        status = run_cell(s, &cell, row, &result);
        if (status != HR_OK) hr_worker_stop(&s->worker, true);
        if (status == HR_ERR_INTERRUPTED) {
            json_decref(row), json_decref(result);
            return status;
        }
        if (status != HR_OK) {
            json_object_set_new(row, "status", json_string("failed"));
            json_object_set_new(row, "error", json_string(hr_error()));
        }
    }
    const char *word = json_string_value(json_object_get(row, "status"));
    s->n_failed += word && !strcmp(word, "failed");
    /* A GPU that failed under a process fails under it again: the next cell gets another. */
    if (gpu && word && !strcmp(word, "failed")) hr_worker_stop(&s->worker, true);
    hr_progress_clear(&s->progress);
    json_t *samples = result ? sample_rows(result) : NULL;
    const hr_cell_parts parts = {
        .samples = samples, .ops = json_object_get(result, "ops"), .recorded = json_object_get(result, "recorded")};
    const bool together = cell.config.kind == HR_CELL_ISL && cell.config.n_seqs > 1;
    status = hr_sink_put(s->sink, row, &parts, together ? json_object_get(result, "by_repetition") : NULL);
    json_decref(samples), json_decref(row), json_decref(result);
    return status;
}

/* ---- the sweep -------------------------------------------------------------------------------------------------- */

static hr_status pause_between(const sweep *s) {
    for (double left = s->options->delay_s; left > 0; left -= 0.1) {
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        nanosleep(&(struct timespec){.tv_nsec = (long)(fmin(left, 0.1) * 1e9)}, NULL);
    }
    return HR_OK;
}

static hr_status all_cells(sweep *s) {
    HR_TRY(open_roofs(s));
    const hr_sweep_cell *last = NULL;
    for (size_t i = 0; i < s->plan->n; i++) s->total_s += estimate(s, i);
    s->start_ns = hr_now_ns();
    for (s->at = 0; s->at < s->plan->n; s->at++) {
        const hr_sweep_cell *cell = &s->plan->cells[s->at];
        if (hr_interrupted()) HR_FAIL(HR_ERR_INTERRUPTED, "interrupted");
        if (!hr_sink_has(s->sink, cell->id)) {
            if (!cell->skip) {
                /* The next model gets the memory of the last one. */
                if (last && !hr_sweep_plan_same_group(last, cell)) hr_worker_stop(&s->worker, false);
                if (last) HR_TRY(pause_between(s));
                last = cell;
            }
            HR_TRY(one_cell(s));
            s->done_s += estimate(s, s->at);
        } else {
            s->total_s -= estimate(s, s->at);
        }
    }
    return HR_OK;
}

/* What is there after Ctrl-C, and how to go on; or that nothing was left to do. */
static void say_end(const sweep *s, hr_status status, size_t n_had) {
    if (s->options->output.quiet) return;
    if (status == HR_ERR_INTERRUPTED && s->plan->n == 1 && s->at == 0)
        fprintf(stderr, "headroom: interrupted: the cell was not measured to its end\n");
    else if (status == HR_ERR_INTERRUPTED && s->options->db)
        fprintf(stderr, "headroom: interrupted: %zu of %zu cells stored; the same command with --resume goes on\n",
                s->at, s->plan->n);
    else if (status == HR_ERR_INTERRUPTED)
        fprintf(stderr,
                "headroom: interrupted: %zu of %zu cells printed, and with --db none those rows are all there "
                "is\n",
                s->at, s->plan->n);
    else if (status == HR_OK && s->options->resume && n_had == s->plan->n && s->plan->n_skipped < n_had)
        fprintf(stderr, "headroom: nothing left to measure: %zu of %zu cells stored or not possible\n", n_had,
                s->plan->n);
}

/* Kept also when a sweep was cut: the cells that are there want their ceilings. */
static void keep_roof(sweep *s) {
    if (!s->log.n) return;
    json_t *roof = hr_state_log_roof(&s->log, s->machine, s->roof_threads, s->llc_bytes);
    if (roof && hr_sink_roof(s->sink, roof) != HR_OK && !s->options->output.quiet) hr_report_failure();
    json_decref(roof);
}

/* A worker that was killed did not. */
static void give_power_back(const hr_sweep_plan *plan) {
    int limited = HR_DEVICE_CPU;
    for (size_t i = 0; i < plan->n; i++) {
        const hr_cell_config *c = &plan->cells[i].config;
        if (!c->power_limit_w || hr_cell_device(c) == limited) continue;
        limited = hr_cell_device(c);
        hr_gpu_power_limit(limited, 0);
    }
}

int hr_sweep_run(const hr_sweep_plan *plan, const hr_machine *machine, const hr_sweep_options *options) {
    sweep s = {.plan = plan, .machine = machine, .options = options, .llc_bytes = NAN, .worker.socket = -1};
    /* HEADROOM_FAULT=write:N, for tests: the N-th write of the store fails. */
    const char *fault = getenv("HEADROOM_FAULT");
    unsigned long nth;
    if (fault && sscanf(fault, "write:%lu", &nth) == 1) hr_fault_arm(HR_FAULT_WRITE, nth);

    json_t *manifest = hr_manifest(plan, machine, options->args), *where = hr_sweep_machine(plan, machine);
    const hr_status opened = manifest && where ? hr_sink_open(options, where, manifest, &s.sink)
                                               : hr_fail(HR_ERR_MEMORY, "no memory for the record of the run");
    json_decref(manifest), json_decref(where);
    if (opened != HR_OK) return hr_report_failure();
    hr_interrupt_install();
    size_t n_had = 0; /* measured before, or never to be */
    for (size_t i = 0; i < plan->n; i++) n_had += plan->cells[i].skip || hr_sink_has(s.sink, plan->cells[i].id);
    hr_progress_init(&s.progress, options->output.progress);
    const hr_status status = all_cells(&s);
    hr_progress_clear(&s.progress);
    hr_worker_stop(&s.worker, status != HR_OK);
    give_power_back(plan);
    int code = status == HR_OK ? (s.n_failed ? 4 : 0) : status == HR_ERR_INTERRUPTED ? HR_EXIT_INTERRUPTED : 2;
    if (code == 2) hr_report_failure();
    say_end(&s, status, n_had);
    keep_roof(&s);
    if (hr_sink_close(s.sink, code) != HR_OK && code != 2 && code != HR_EXIT_INTERRUPTED) code = hr_report_failure();
    hr_roofs_destroy(s.roofs);
    hr_state_log_fini(&s.log);
    return code;
}
