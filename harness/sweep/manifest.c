/* What a run was, and whether a cut one may be continued. */
#include "harness/sweep/gpu_machine.h"
#include "harness/sweep/sweep.h"

#include "harness/cli/read_file.h"
#include "harness/stats/stats.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

/* Flags that say where results go or how long one waits: they change no measurement. */
static const char *const indifferent[] = {"resume", "db",           "output",  "output-err",  "oe",          "json",
                                          "out",    "quiet",        "verbose", "no-progress", "tag",         "timeout",
                                          "config", "print-config", "dry-run", "on-busy",     "busy-timeout"};

#define RESUME_HEAD "--resume: the newest sweep of the store "
#define RESUME_TAIL "--resume wants the flags of the sweep that was cut: %s --resume"

static const char *bare(const char *name) {
    while (*name == '-') name++;
    return name;
}

/* Commit and version stay when a working tree is built again; the bytes of the program do not. "": the system does not say. */
static void program_of(char out[33]) {
    char *bytes;
    size_t n;
    *out = 0;
    if (hr_read_file("/proc/self/exe", &bytes, &n) != HR_OK) return;
    hr_fingerprint(bytes, n, out);
    hr_free(bytes);
}

json_t *hr_manifest(const hr_sweep_plan *plan, const hr_machine *machine, const json_t *args) {
    json_t *models = json_array(), *config = json_object(), *value;
    const char *name;
    for (size_t i = 0; i < plan->n_infos; i++)
        json_array_append_new(models,
                              json_pack("{s:s, s:s}", "model", plan->infos[i].filename, "hash", plan->infos[i].hash));
    json_object_foreach((json_t *)args, name, value) {
        bool skip = false;
        for (size_t i = 0; i < sizeof indifferent / sizeof indifferent[0]; i++)
            skip |= !strcmp(bare(name), indifferent[i]);
        if (!skip) json_object_set(config, bare(name), value);
    }
    /* All ids as one sum: catches what neither the flags nor the models say, as defaults that differ. */
    char sum[33] = "", text[80];
    for (size_t i = 0; i < plan->n; i++) {
        snprintf(text, sizeof text, "%s%s", sum, plan->cells[i].id);
        hr_fingerprint(text, strlen(text), sum);
    }
    char program[33];
    program_of(program);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s}", "build_commit", hr_commit(), "program", program, "machine",
                     hr_sweep_plan_class(plan, machine), "models", models, "config", config, "cells", sum);
}

json_t *hr_sweep_machine(const hr_sweep_plan *plan, const hr_machine *machine) {
    json_t *out = hr_machine_json(machine), *gpus = plan->n_gpus ? json_array() : json_null();
    const char *class_name = hr_sweep_plan_class(plan, machine);
    bool ok = out && gpus;
    for (size_t i = 0; ok && i < plan->n_gpus; i++)
        ok = json_array_append_new(gpus, hr_gpu_json(plan->gpus[i].device, &plan->gpus[i].info)) == 0;
    ok = ok && json_object_set(out, "gpus", gpus) == 0;
    if (ok && strcmp(class_name, machine->class_name))
        ok = json_object_set_new(out, "machine_class", json_string(class_name)) == 0 &&
             json_object_set_new(out, "cpu_class", json_string(machine->class_name)) == 0;
    json_decref(gpus);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static hr_status same_text(const json_t *stored, const json_t *now, const char *key, const char *what) {
    const char *a = json_string_value(json_object_get(stored, key)), *b = json_string_value(json_object_get(now, key));
    if (a && b && !strcmp(a, b)) return HR_OK;
    HR_FAIL(HR_ERR_USAGE, "--resume: the newest sweep had %s %s, this one has %s; run without --resume", what,
            a ? a : "unknown", b ? b : "unknown");
}

/* ---- flags as they would be typed */

enum { COMMAND_BYTES = 700, FLAG_BYTES = 200 };

static void append(char *text, size_t size, const char *more) {
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s", more);
}

static void append_scalar(char *text, size_t size, const json_t *value) {
    char number[40] = "";
    if (json_is_string(value)) {
        append(text, size, json_string_value(value));
        return;
    }
    if (json_is_integer(value)) snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value)) snprintf(number, sizeof number, "%g", json_real_value(value));
    append(text, size, number);
}

/* "--n-prompt 64,128"; a pair each with its flag. */
static void append_flag(char *text, size_t size, const char *name, const json_t *value) {
    const char *dashes = strlen(name) > 2 ? "--" : "-", *between = " ";
    size_t i;
    json_t *item;
    if (json_is_array(json_array_get(value, 0))) {
        json_array_foreach((json_t *)value, i, item) {
            if (i) append(text, size, " ");
            append(text, size, dashes), append(text, size, name), append(text, size, " ");
            append_scalar(text, size, json_array_get(item, 0)), append(text, size, ",");
            append_scalar(text, size, json_array_get(item, 1));
        }
        return;
    }
    append(text, size, dashes), append(text, size, name);
    if (json_is_boolean(value)) return;
    if (!json_is_array(value)) append(text, size, " "), append_scalar(text, size, value);
    json_array_foreach((json_t *)value, i, item) {
        append(text, size, between), between = ",";
        append_scalar(text, size, item);
    }
}

static void append_command(char *text, size_t size, const json_t *config) {
    const char *name;
    json_t *value;
    append(text, size, "headroom sweep");
    json_object_foreach((json_t *)config, name, value) {
        append(text, size, " ");
        append_flag(text, size, name, value);
    }
}

/* The first flag that differs, and the command that would go on. */
static hr_status same_config(const json_t *stored, const json_t *now) {
    const char *key, *differs = NULL;
    json_t *value;
    json_object_foreach((json_t *)stored, key, value) if (!differs && !json_equal(value, json_object_get(now, key)))
        differs = key;
    json_object_foreach((json_t *)now, key, value) if (!differs && !json_object_get(stored, key)) differs = key;
    if (!differs) return HR_OK;
    char was[FLAG_BYTES] = "", is[FLAG_BYTES] = "", command[COMMAND_BYTES] = "";
    const json_t *a = json_object_get(stored, differs), *b = json_object_get(now, differs);
    if (a) append_flag(was, sizeof was, differs, a);
    if (b) append_flag(is, sizeof is, differs, b);
    append_command(command, sizeof command, stored);
    if (!a) HR_FAIL(HR_ERR_USAGE, RESUME_HEAD "had no %s; " RESUME_TAIL, is, command);
    if (!b) HR_FAIL(HR_ERR_USAGE, RESUME_HEAD "had %s, this one has not; " RESUME_TAIL, was, command);
    HR_FAIL(HR_ERR_USAGE, RESUME_HEAD "had %s, this one has %s; " RESUME_TAIL, was, is, command);
}

hr_status hr_manifest_fits(const json_t *stored, const json_t *now) {
    HR_TRY(same_text(stored, now, "build_commit", "the build"));
    HR_TRY(same_text(stored, now, "program", "the program"));
    HR_TRY(same_text(stored, now, "machine", "the machine"));
    HR_TRY(same_config(json_object_get(stored, "config"), json_object_get(now, "config")));
    if (!json_equal(json_object_get(stored, "models"), json_object_get(now, "models")))
        HR_FAIL(HR_ERR_USAGE, "--resume: the newest sweep measured a model that has changed since; run without "
                              "--resume");
    return same_text(stored, now, "cells", "the list of cells");
}

static hr_status finished_cells(hr_store *store, const char *run_id, json_t **done) {
    json_t *cells, *cell;
    size_t i;
    HR_TRY(hr_store_cells(store, run_id, &cells));
    *done = json_object();
    json_array_foreach(cells, i, cell) {
        const char *id = json_string_value(json_object_get(cell, "cell_id"));
        const char *status = json_string_value(json_object_get(cell, "status"));
        if (id && status && !strcmp(status, "ok")) json_object_set_new(*done, id, json_true());
    }
    json_decref(cells);
    return HR_OK;
}

hr_status hr_resume_find(hr_store *store, const json_t *manifest, char **run_id, json_t **done) {
    *run_id = NULL, *done = NULL;
    json_t *runs, *run, *newest = NULL;
    size_t i;
    HR_TRY(hr_store_runs(store, &runs));
    json_array_foreach(runs, i, run) {
        const char *command = json_string_value(json_object_get(run, "command"));
        if (command && !strcmp(command, "sweep")) newest = run;
    }
    hr_status status = HR_OK;
    const char *id = json_string_value(json_object_get(newest, "run_id"));
    if (id) {
        status = hr_manifest_fits(json_object_get(newest, "manifest"), manifest);
        if (status == HR_OK && !(*run_id = hr_strdup(id))) status = hr_fail(HR_ERR_MEMORY, "no memory for a run");
        if (status == HR_OK) status = finished_cells(store, id, done);
    }
    json_decref(runs);
    return status;
}
