#include "harness/show/stored_cell.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static hr_status load_run(hr_stored_cell *c) {
    json_t *runs, *run;
    size_t i;
    HR_TRY(hr_store_runs(c->store, &runs));
    bool ok = true;
    json_array_foreach(runs, i, run) {
        const char *id = json_string_value(json_object_get(run, "run_id"));
        if (!id || strcmp(id, c->run_id)) continue;
        const char *machine = json_string_value(json_object_get(run, "machine_class"));
        json_decref(c->run_args), hr_free(c->machine_class);
        c->run_args = json_incref(json_object_get(run, "args"));
        c->machine_class = machine ? hr_strdup(machine) : NULL;
        ok = !machine || c->machine_class;
    }
    json_decref(runs);
    return ok ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while reading cell %s", c->cell_id);
}

hr_status hr_stored_cell_load(const char *command, const char *db, const char *text, bool write, hr_stored_cell *c) {
    *c = (hr_stored_cell){0};
    if (!text) HR_FAIL(HR_ERR_USAGE, "%s needs a cell: `last`, or an id that `headroom runs last` lists", command);
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none leaves no cell to look up: name a store");
    HR_TRY(hr_store_open(db, write, &c->store));
    HR_TRY(hr_store_resolve_cell(c->store, text, &c->cell_id, &c->run_id));
    HR_TRY(hr_store_cell(c->store, c->cell_id, c->run_id, &c->cell));
    HR_TRY(hr_store_ops(c->store, c->run_id, c->cell_id, &c->ops));
    HR_TRY(hr_store_ranges(c->store, c->run_id, c->cell_id, &c->ranges));
    return load_run(c);
}

void hr_stored_cell_fini(hr_stored_cell *c) {
    hr_store_close(c->store);
    hr_free(c->cell_id), hr_free(c->run_id), hr_free(c->machine_class);
    json_decref(c->cell), json_decref(c->ops), json_decref(c->ranges), json_decref(c->run_args);
    *c = (hr_stored_cell){0};
}

double hr_ops_mean_ns(const json_t *ops) {
    double calls = 0, ns = 0;
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)ops, i, row) {
        const json_t *mean = json_object_get(row, "mean_ns");
        const double n = json_number_value(json_object_get(row, "n"));
        calls += n;
        ns += n * json_number_value(json_is_number(mean) ? mean : json_object_get(row, "median_ns"));
    }
    return calls > 0 ? ns / calls : NAN;
}
