/* Choosing cells: which runs, which measurement of a cell, whether they belong together. */
#include "harness/report/report_kv.h"
#include "harness/report/report_why.h"

#include "harness/formats/cell_device.h"
#include "kernels/base/memory.h"

#include <string.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while reading the store for the report");
}

bool hr_report_flagged(const json_t *cell, const char *flag) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(cell, "flags"), i, item) {
        const char *text = json_string_value(item);
        if (text && !strcmp(text, flag)) return true;
    }
    return false;
}

/* ---- runs ------------------------------------------------------------------------------------------------------- */

static json_t *find_run(const json_t *runs, const char *run_id) {
    size_t i;
    json_t *run;
    json_array_foreach((json_t *)runs, i, run) if (!strcmp(hr_word(run, "run_id"), run_id)) return run;
    return NULL;
}

/* The runs that were named, in order of insertion. */
static hr_status named_runs(hr_store *store, const hr_report_options *options, const json_t *all, json_t *chosen) {
    json_t *wanted = json_object(), *run;
    hr_status status = wanted ? HR_OK : no_memory();
    for (size_t i = 0; status == HR_OK && i < options->n_runs; i++) {
        char *id = NULL;
        status = hr_store_resolve_run(store, options->runs[i], &id);
        if (status == HR_OK && json_object_set_new(wanted, id, json_true()) != 0) status = no_memory();
        if (status == HR_OK && !find_run(all, id)) status = hr_fail(HR_ERR_INPUT, "run %s has gone", id);
        hr_free(id);
    }
    size_t i;
    const json_t *first = NULL;
    json_array_foreach((json_t *)all, i, run) {
        if (status != HR_OK || !json_object_get(wanted, hr_word(run, "run_id"))) continue;
        if (!first) first = run;
        if (strcmp(hr_word(first, "machine_class"), hr_word(run, "machine_class")))
            status =
                hr_fail(HR_ERR_USAGE, "runs %.16s and %.16s are of different machines (%s, %s); report one at a time",
                        hr_word(first, "run_id"), hr_word(run, "run_id"), hr_word(first, "machine_class"),
                        hr_word(run, "machine_class"));
        else if (json_array_append(chosen, run) != 0)
            status = no_memory();
    }
    json_decref(wanted);
    return status;
}

static hr_status choose_runs(hr_store *store, const hr_report_options *options, const json_t *all, json_t *chosen) {
    if (options->n_runs) return named_runs(store, options, all, chosen);
    const char *class_name = hr_word(json_array_get(all, json_array_size(all) - 1), "machine_class");
    size_t i;
    json_t *run;
    json_array_foreach((json_t *)all, i, run) if (!strcmp(hr_word(run, "machine_class"), class_name) &&
                                                  json_array_append(chosen, run) != 0) return no_memory();
    return HR_OK;
}

/* ---- cells ------------------------------------------------------------------------------------------------------ */

/* by_id[cell_id] is the cell that counts. Later ones win, but a failure does not displace a measurement. */
static hr_status take_cells(hr_report *r, json_t *by_id, const json_t *cells) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        const char *id = hr_word(cell, "cell_id");
        json_t *old = json_object_get(by_id, id);
        const bool ok = !strcmp(hr_word(cell, "status"), "ok"), was_ok = old && !strcmp(hr_word(old, "status"), "ok");
        if (was_ok && !ok) continue;
        if (was_ok) r->n_replaced++;
        json_object_del(by_id, id); /* so that order is that of the measurement that counts */
        if (json_object_set(by_id, id, cell) != 0) return no_memory();
    }
    return HR_OK;
}

static hr_status load_ops(hr_store *store, json_t *cell) {
    json_t *ops = NULL, *sums = NULL;
    HR_TRY(hr_store_ops(store, hr_word(cell, "run_id"), hr_word(cell, "cell_id"), &ops));
    hr_status status = hr_report_fold_ops(cell, ops, &sums);
    if (status == HR_OK && json_object_set(cell, "op_sums", sums) != 0) status = no_memory();
    json_decref(ops), json_decref(sums);
    return status;
}

static double higher(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : fmax(a, b);
}

/* A run may hold cells of the CPU and of GPUs: each says of which class it is. */
static hr_status name_classes(hr_store *store, const char *run_id, json_t *cells) {
    json_t *machine = NULL, *cell;
    size_t i;
    HR_TRY(hr_store_machine(store, run_id, &machine));
    bool ok = true;
    json_array_foreach(cells, i, cell) ok =
        ok && json_object_set_new(cell, "machine_class", json_string(hr_cell_class(cell, machine))) == 0;
    json_decref(machine);
    return ok ? HR_OK : no_memory();
}

/* The newest cell, measured rather than not, on the device when one is named. */
static const json_t *newest_cell(const json_t *by_id, const char *device) {
    const json_t *newest = NULL, *measured = NULL;
    const char *id;
    json_t *cell;
    json_object_foreach((json_t *)by_id, id, cell) {
        if (device && strcmp(hr_word(cell, "device"), device)) continue;
        newest = cell;
        if (!strcmp(hr_word(cell, "status"), "ok")) measured = cell;
    }
    return measured ? measured : newest;
}

/* Cells of other classes than that of the newest one are left out: ceilings are those of one machine. */
static hr_status keep_one_class(const hr_report_options *options, hr_report *r, json_t *by_id) {
    const json_t *newest = newest_cell(by_id, options->device);
    if (!newest && options->device)
        HR_FAIL(HR_ERR_INPUT, "--device %.40s: no cell of these runs was measured on it", options->device);
    char kept[96];
    snprintf(kept, sizeof kept, "%s", hr_word(newest, "machine_class"));
    const char *id;
    json_t *cell;
    void *next;
    json_object_foreach_safe(by_id, next, id, cell) {
        if (!strcmp(hr_word(cell, "machine_class"), kept)) continue;
        r->n_elsewhere++;
        json_object_del(by_id, id);
    }
    return HR_OK;
}

static hr_status load_cells(hr_store *store, const hr_report_options *options, hr_report *r) {
    json_t *by_id = json_object(), *run, *cell;
    hr_status status = by_id ? HR_OK : no_memory();
    size_t i, n_simulated = 0;
    json_array_foreach(r->runs, i, run) {
        json_t *cells = NULL;
        if (status == HR_OK) status = hr_store_cells(store, hr_word(run, "run_id"), &cells);
        if (status == HR_OK) status = name_classes(store, hr_word(run, "run_id"), cells);
        if (status == HR_OK) status = take_cells(r, by_id, cells);
        json_decref(cells);
    }
    if (status == HR_OK) status = keep_one_class(options, r, by_id);
    const char *id;
    json_object_foreach(by_id, id, cell) {
        if (status != HR_OK) break;
        const bool ok = !strcmp(hr_word(cell, "status"), "ok");
        n_simulated += hr_report_flagged(cell, "simulated");
        if (ok) status = load_ops(store, cell);
        if (status == HR_OK && json_array_append(ok ? r->cells : r->others, cell) != 0) status = no_memory();
        if (!ok) continue;
        r->read_gb_s = higher(r->read_gb_s, hr_num(cell, "peak_read_gb_s"));
        r->read_low_gb_s = fmin(r->read_low_gb_s, hr_num(cell, "peak_read_gb_s")); /* skips NaN */
        for (int u = 0; u < HR_UNIT_COUNT; u++)
            r->gflop_s[u] = higher(r->gflop_s[u], hr_num(json_object_get(cell, "peak_gflop_s"), hr_unit_names[u]));
    }
    json_decref(by_id);
    HR_TRY(status);
    if (n_simulated && !options->allow_simulated)
        HR_FAIL(HR_ERR_INPUT,
                "%zu of these cells are simulated and say nothing about hardware; name runs without them by --run, or "
                "add --allow-simulated",
                n_simulated);
    return HR_OK;
}

/* The newest roof with a size sweep among these runs and older ones of the same machine. */
static hr_status load_roof(hr_store *store, const json_t *all, hr_report *r) {
    const char *class_name = hr_word(json_array_get(r->runs, json_array_size(r->runs) - 1), "machine_class");
    for (size_t i = json_array_size(all); i-- > 0 && !r->roof;) {
        const json_t *run = json_array_get(all, i);
        if (strcmp(hr_word(run, "machine_class"), class_name)) continue;
        json_t *roofs = NULL, *roof;
        HR_TRY(hr_store_roofs(store, hr_word(run, "run_id"), &roofs));
        size_t k;
        json_array_foreach(roofs, k, roof) if (json_array_size(json_object_get(roof, "sweep")) > 1) {
            json_decref(r->roof);
            r->roof = json_incref(roof);
        }
        json_decref(roofs);
    }
    return HR_OK;
}

static hr_status load_kv(hr_store *store, const hr_report_options *options, const json_t *all, hr_report *r) {
    HR_TRY(hr_report_load_kv(store, all, r));
    if (r->n_kv_simulated && !options->allow_simulated)
        HR_FAIL(
            HR_ERR_INPUT,
            "%zu rows of the KV study are simulated and say nothing about hardware; name runs without them by --run, "
            "or add --allow-simulated",
            r->n_kv_simulated);
    return HR_OK;
}

/* Without a cell that counts: whether none was asked for, or all failed. */
static hr_status nothing_measured(const hr_report *r) {
    const json_t *newest = json_array_get(r->runs, json_array_size(r->runs) - 1);
    const char *command = hr_word(newest, "command");
    if (!json_array_size(r->others) && *command && strcmp(command, "sweep"))
        HR_FAIL(HR_ERR_INPUT,
                "run %s is one of `headroom %s` and holds no cells; give --run that of a sweep (`headroom runs`)",
                hr_word(newest, "run_id"), command);
    HR_FAIL(HR_ERR_INPUT,
            "no cell was measured (%zu failed or skipped), so there is nothing to report; start with `headroom sweep`",
            json_array_size(r->others));
}

/* A report on a GPU is of its class, and says what it is: `gpu` of the machine. */
static hr_status name_gpu(hr_report *r) {
    const json_t *cell = json_array_get(r->cells, json_array_size(r->cells) - 1);
    const json_t *gpu = hr_cell_gpu(cell, r->machine);
    if (!gpu) return HR_OK;
    return json_object_set(r->machine, "gpu", (json_t *)gpu) == 0 &&
                   json_object_set(r->machine, "machine_class", json_object_get(gpu, "machine_class")) == 0
               ? HR_OK
               : no_memory();
}

hr_status hr_report_load(hr_store *store, const hr_report_options *options, hr_report *r) {
    *r = (hr_report){
        .cells = json_array(), .others = json_array(), .runs = json_array(), .read_gb_s = NAN, .read_low_gb_s = NAN};
    for (int u = 0; u < HR_UNIT_COUNT; u++) r->gflop_s[u] = NAN;
    json_t *all = NULL;
    hr_status status = r->cells && r->others && r->runs ? HR_OK : no_memory();
    if (status == HR_OK) status = hr_store_runs(store, &all);
    if (status == HR_OK && !json_array_size(all))
        status = hr_fail(HR_ERR_INPUT, "the store holds no run, so there is nothing to report; start with "
                                       "`headroom sweep`");
    if (status == HR_OK) status = choose_runs(store, options, all, r->runs);
    if (status == HR_OK) status = load_cells(store, options, r);
    if (status == HR_OK) {
        const json_t *newest = json_array_get(r->runs, json_array_size(r->runs) - 1);
        status = hr_store_machine(store, hr_word(newest, "run_id"), &r->machine);
    }
    if (status == HR_OK) status = name_gpu(r);
    if (status == HR_OK) status = load_roof(store, all, r);
    if (status == HR_OK) status = load_kv(store, options, all, r);
    if (status == HR_OK) status = hr_report_load_why(store, r);
    /* ceilings, a study, claims or what observing costs alone are a report; a sweep in which all failed is not */
    const bool other = r->roof || hr_kvr_studied(r) || json_array_size(r->claims) || json_array_size(r->observed);
    if (status == HR_OK && !json_array_size(r->cells) && (!other || json_array_size(r->others)))
        status = nothing_measured(r);
    json_decref(all);
    if (status != HR_OK) hr_report_fini(r);
    return status;
}

void hr_report_fini(hr_report *r) {
    json_decref(r->cells), json_decref(r->others), json_decref(r->runs), json_decref(r->machine), json_decref(r->roof);
    hr_report_kv_fini(r);
    hr_report_why_fini(r);
    *r = (hr_report){0};
}
