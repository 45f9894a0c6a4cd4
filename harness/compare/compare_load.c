/* The cells of a run or of a file, with what a comparison asks of each beside its own keys. */
#include "harness/compare/compare_internal.h"

#include "harness/cli/read_file.h"
#include "harness/exchange/exchange.h"
#include "harness/formats/cell_device.h"
#include "kernels/base/memory.h"

#include <string.h>
#include <sys/stat.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while reading cells");
}

bool hr_compare_is_file(const char *text) {
    struct stat s;
    return strcmp(text, "last") && strncmp(text, "last~", 5) && stat(text, &s) == 0 && !S_ISDIR(s.st_mode);
}

/* Each cell says of which machine it is: the cells of a file may not. */
static hr_status add_machine(json_t *cells, const json_t *machine) {
    json_t *cell;
    size_t i;
    json_array_foreach(cells, i, cell) {
        const char *name = hr_cell_class(cell, machine);
        json_object_del(cell, "samples_ts"); /* twice the memory for what no comparison reads */
        if (*name && json_object_set_new(cell, "machine_class", json_string(name)) != 0) return no_memory();
    }
    return HR_OK;
}

/* Rows of before samples_flags: what the table of samples says. */
static hr_status add_flags(hr_store *store, const char *run_id, json_t *cell) {
    json_t *samples, *flags, *sample;
    size_t i;
    if (!hr_cell_has_flag(cell, "throttled") || json_is_array(json_object_get(cell, "samples_flags"))) return HR_OK;
    HR_TRY(hr_store_samples(store, run_id, hr_word(cell, "cell_id"), &samples));
    bool ok = (flags = json_array()) != NULL;
    json_array_foreach(samples, i, sample) ok = ok && json_array_append(flags, json_object_get(sample, "flags")) == 0;
    ok = ok && json_object_set(cell, "samples_flags", flags) == 0;
    json_decref(samples), json_decref(flags);
    return ok ? HR_OK : no_memory();
}

static hr_status find_run(hr_store *store, const char *run_id, json_t **run) {
    json_t *runs, *row;
    size_t i;
    HR_TRY(hr_store_runs(store, &runs));
    json_array_foreach(runs, i, row) {
        if (!strcmp(hr_word(row, "run_id"), run_id)) *run = json_incref(row);
    }
    json_decref(runs);
    return HR_OK;
}

static hr_status load_run(hr_store *store, const char *run_id, json_t **cells, json_t **run) {
    json_t *machine = NULL, *cell;
    size_t i;
    HR_TRY(find_run(store, run_id, run));
    HR_TRY(hr_store_cells(store, run_id, cells));
    HR_TRY(hr_store_machine(store, run_id, &machine));
    const hr_status status = add_machine(*cells, machine);
    json_decref(machine);
    if (status != HR_OK) return status;
    json_array_foreach(*cells, i, cell) HR_TRY(add_flags(store, run_id, cell));
    return HR_OK;
}

static const char STORE[] = "SQLite format 3"; /* NUL included: how such a file begins */

static hr_status load_file(const char *path, json_t **cells, json_t **run) {
    char *text;
    size_t n;
    hr_imported file;
    HR_TRY(hr_read_file(path, &text, &n));
    if (n >= sizeof STORE && !memcmp(text, STORE, sizeof STORE)) {
        hr_free(text);
        HR_FAIL(HR_ERR_INPUT, "%.200s is a store: name a run of it, with --db %.200s", path, path);
    }
    const hr_status parsed = hr_import_parse(text, n, path, NULL, &file);
    hr_free(text);
    if (parsed != HR_OK) return parsed;
    *cells = json_incref(file.cells), *run = json_incref(file.run);
    const hr_status status = add_machine(file.cells, file.machine);
    hr_imported_fini(&file);
    return status;
}

static hr_status load(hr_store *store, const char *text, json_t **cells, json_t **run) {
    char *run_id;
    if (hr_compare_is_file(text)) return load_file(text, cells, run);
    if (!store)
        HR_FAIL(HR_ERR_INPUT,
                "%.200s is no file, and without a store there are no runs: name a file, or a store by --db", text);
    if (strchr(text, '/') || strchr(text, '.')) HR_FAIL(HR_ERR_INPUT, "%.200s: no such file", text);
    HR_TRY(hr_store_resolve_run(store, text, &run_id));
    const hr_status status = load_run(store, run_id, cells, run);
    hr_free(run_id);
    return status;
}

hr_status hr_compare_load(hr_store *store, const char *text, json_t **cells, json_t **run) {
    *cells = *run = NULL;
    const hr_status status = load(store, text, cells, run);
    if (status == HR_OK) return HR_OK;
    json_decref(*cells), json_decref(*run);
    *cells = *run = NULL;
    return status;
}
