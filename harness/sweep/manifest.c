/* What a run was, and whether a cut one may be continued. */
#include "harness/sweep/sweep.h"

#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

/* Flags that say where results go or how long one waits: they change no measurement. */
static const char *const indifferent[] = {"resume", "db",      "output", "output-err",   "oe",
                                          "json",   "out",     "quiet",  "verbose",      "no-progress",
                                          "tag",    "timeout", "config", "print-config", "dry-run"};

static const char *bare(const char *name) {
    while (*name == '-') name++;
    return name;
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
    return json_pack("{s:s, s:s, s:o, s:o, s:s}", "build_commit", hr_commit(), "machine", machine->class_name, "models",
                     models, "config", config, "cells", sum);
}

static hr_status same_text(const json_t *stored, const json_t *now, const char *key, const char *what) {
    const char *a = json_string_value(json_object_get(stored, key)), *b = json_string_value(json_object_get(now, key));
    if (a && b && !strcmp(a, b)) return HR_OK;
    HR_FAIL(HR_ERR_USAGE, "--resume: the newest sweep had %s %s, this one has %s; run without --resume", what,
            a ? a : "unknown", b ? b : "unknown");
}

hr_status hr_manifest_fits(const json_t *stored, const json_t *now) {
    HR_TRY(same_text(stored, now, "build_commit", "the build"));
    HR_TRY(same_text(stored, now, "machine", "the machine"));
    if (!json_equal(json_object_get(stored, "models"), json_object_get(now, "models")))
        HR_FAIL(HR_ERR_USAGE,
                "--resume: the newest sweep measured other models or quantizations; run without --resume");
    const json_t *a = json_object_get(stored, "config"), *b = json_object_get(now, "config");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)a, key, value) if (!json_equal(value, json_object_get(b, key))) HR_FAIL(
        HR_ERR_USAGE, "--resume: the newest sweep was run with another value of '%s'; run without --resume", key);
    json_object_foreach((json_t *)b, key, value) if (!json_object_get(a, key))
        HR_FAIL(HR_ERR_USAGE, "--resume: the newest sweep was run without '%s'; run without --resume", key);
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
