/* Files of results into runs of the store: which format it is, what the run is called, one transaction a file. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    hr_tool tool;
    hr_container container;
} formats[] = {
    {"llama-bench", HR_TOOL_LLAMA_BENCH, HR_CONTAINER_ANY},
    {"llama-bench-json", HR_TOOL_LLAMA_BENCH, HR_CONTAINER_JSON},
    {"llama-bench-jsonl", HR_TOOL_LLAMA_BENCH, HR_CONTAINER_JSONL},
    {"llama-bench-csv", HR_TOOL_LLAMA_BENCH, HR_CONTAINER_CSV},
    {"google-benchmark", HR_TOOL_GOOGLE, HR_CONTAINER_JSON},
    {"headroom", HR_TOOL_OWN, HR_CONTAINER_ANY},
    {"headroom-json", HR_TOOL_OWN, HR_CONTAINER_JSON},
    {"headroom-jsonl", HR_TOOL_OWN, HR_CONTAINER_JSONL},
    {"headroom-csv", HR_TOOL_OWN, HR_CONTAINER_CSV},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

const char *const *hr_exchange_formats(bool import) {
    static const char *const ours[] = {
        "llama-bench", "llama-bench-json", "llama-bench-jsonl", "llama-bench-csv", "google-benchmark",
        "headroom",    "headroom-json",    "headroom-jsonl",    "headroom-csv",    NULL};
    static const char *const all[] = {"llama-bench",       "llama-bench-json",
                                      "llama-bench-jsonl", "llama-bench-csv",
                                      "google-benchmark",  "googlecpp",
                                      "cpp_google",        "customSmallerIsBetter",
                                      "benchstat",         "headroom",
                                      "headroom-json",     "headroom-jsonl",
                                      "headroom-csv",      NULL};
    return import ? ours : all;
}

static hr_status no_memory(const hr_import *im) {
    HR_FAIL(HR_ERR_MEMORY, "%.200s: out of memory", im->name);
}

/* ---- which tool ---- */

static hr_status find_format(hr_import *im, const char *format) {
    if (!format) return HR_OK;
    for (size_t i = 0; i < N_FORMATS; i++)
        if (!strcmp(formats[i].name, format)) {
            im->tool = formats[i].tool, im->container = formats[i].container;
            return HR_OK;
        }
    HR_FAIL(HR_ERR_USAGE, "%.60s is no format that import reads", format);
}

static hr_tool tool_of_row(const json_t *row) {
    if (json_object_get(row, "cell_id") && json_object_get(row, "status")) return HR_TOOL_OWN;
    if (json_object_get(row, "n_prompt") && json_object_get(row, "n_gen")) return HR_TOOL_LLAMA_BENCH;
    return HR_TOOL_UNKNOWN;
}

static hr_status read_cells(hr_import *im, hr_tool asked) {
    if (im->tool == HR_TOOL_GOOGLE && asked != HR_TOOL_UNKNOWN && asked != HR_TOOL_GOOGLE)
        HR_FAIL(HR_ERR_INPUT, "%.200s is a file of Google Benchmark: leave out --format", im->name);
    if (asked == HR_TOOL_GOOGLE && !im->context)
        HR_FAIL(HR_ERR_INPUT, "%.200s is no file of Google Benchmark: it has no list `benchmarks`", im->name);
    if (im->tool == HR_TOOL_UNKNOWN) im->tool = tool_of_row(json_array_get(im->rows, 0));
    switch (im->tool) {
    case HR_TOOL_LLAMA_BENCH:
        return hr_import_llama(im);
    case HR_TOOL_GOOGLE:
        return hr_import_google(im);
    case HR_TOOL_OWN:
        return hr_import_own(im);
    default:
        HR_FAIL(HR_ERR_INPUT,
                "%.200s is neither of llama-bench (json, jsonl, csv), nor of Google Benchmark (json), nor of headroom "
                "sweep",
                im->name);
    }
}

/* ---- the run ---- */

/* What all cells say alike, or null. */
static json_t *common(const json_t *cells, const char *key) {
    json_t *first = json_object_get(json_array_get(cells, 0), key);
    for (size_t i = 1; i < json_array_size(cells); i++)
        if (!json_equal(first, json_object_get(json_array_get(cells, i), key))) return json_null();
    return first ? json_incref(first) : json_null();
}

/* The earliest time of a row; now where no row says one. */
static void started_at(const json_t *cells, char out[21]) {
    char at[21];
    time_t now = time(NULL);
    struct tm utc;
    bool any = false;
    gmtime_r(&now, &utc);
    strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &utc);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        if (!hr_utc_of(hr_word(json_array_get(cells, i), "test_time"), at)) continue;
        if (!any || strcmp(at, out) < 0) strcpy(out, at);
        any = true;
    }
}

static const char *format_name(const hr_import *im) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].tool == im->tool && formats[i].container == im->container) return formats[i].name;
    return "llama-bench";
}

static hr_status make_run(const hr_import *im, hr_imported *out) {
    char started[21];
    started_at(im->cells, started);
    json_t *name = json_string(im->name);
    out->run = json_pack("{s:s, s:{s:o, s:s}, s:s, s:o, s:n, s:o, s:n}", "command", "import", "args", "file",
                         name ? name : json_string("?"), "format", format_name(im), "started", started, "build_commit",
                         common(im->cells, "build_commit"), "compiler", "tags", common(im->cells, "tags"), "manifest");
    if (!out->run) return no_memory(im);
    json_t *source = common(im->cells, "run_id");
    bool ok = true;
    if (json_is_string(source)) ok = json_object_set(out->run, "source_run", source) == 0;
    json_decref(source);
    if (ok && json_object_size(im->foreign)) ok = json_object_set(out->run, "foreign", im->foreign) == 0;
    if (ok && im->context) ok = json_object_set(out->run, "context", im->context) == 0;
    out->cells = json_incref(im->cells);
    out->machine = im->machine ? json_incref(im->machine) : json_object();
    out->unmapped = hr_notes_list(im->notes);
    return ok && out->machine && out->unmapped ? HR_OK : no_memory(im);
}

static void fini(hr_import *im) {
    json_decref(im->rows), json_decref(im->context), json_decref(im->notes), json_decref(im->cells);
    json_decref(im->foreign), json_decref(im->index), json_decref(im->from), json_decref(im->machine);
    hr_free(im->at);
}

hr_status hr_import_parse(const char *text, size_t n, const char *name, const char *format, hr_imported *out) {
    hr_import im = {.name = name, .place = "row"};
    *out = (hr_imported){0};
    im.rows = json_array(), im.notes = json_object(), im.cells = json_array();
    im.foreign = json_object(), im.index = json_object(), im.from = json_array();
    hr_status status = im.rows && im.notes && im.cells && im.foreign && im.index && im.from ? find_format(&im, format)
                                                                                            : no_memory(&im);
    const hr_tool asked = im.tool;
    if (status == HR_OK) status = hr_import_read_rows(&im, text, n);
    if (status == HR_OK) status = read_cells(&im, asked);
    if (status == HR_OK) status = make_run(&im, out);
    fini(&im);
    if (status != HR_OK) hr_imported_fini(out);
    return status;
}

void hr_imported_fini(hr_imported *imported) {
    json_decref(imported->cells), json_decref(imported->run);
    json_decref(imported->machine), json_decref(imported->unmapped);
    *imported = (hr_imported){0};
}

/* ---- into the store ---- */

/* Rows of our own name no machine, but their cell_id holds its class: a run that has the cell was on the same. */
static hr_status find_machine(hr_store *store, const hr_imported *imported, json_t **machine) {
    *machine = json_incref(imported->machine);
    if (json_object_size(imported->machine)) return HR_OK;
    for (size_t i = 0; i < json_array_size(imported->cells) && i < 8; i++) {
        char *cell_id = NULL, *run_id = NULL;
        json_t *known = NULL;
        const char *id = hr_word(json_array_get(imported->cells, i), "cell_id");
        if (hr_store_resolve_cell(store, id, &cell_id, &run_id) == HR_OK && !strcmp(cell_id, id) &&
            hr_store_machine(store, run_id, &known) == HR_OK && json_object_size(known)) {
            json_decref(*machine);
            *machine = json_incref(known);
            i = SIZE_MAX - 1;
        }
        json_decref(known);
        hr_free(cell_id), hr_free(run_id);
    }
    return HR_OK;
}

static hr_status put_cell(hr_store *store, const char *run_id, const json_t *cell) {
    const json_t *given = json_object_get(cell, "samples_ns"), *flags = json_object_get(cell, "samples_flags");
    json_t *samples = json_array(), *ns;
    size_t i;
    bool ok = samples != NULL;
    json_array_foreach((json_t *)given, i, ns) {
        const char *flag = json_string_value(json_array_get(flags, i));
        ok = ok && json_array_append_new(samples, json_pack("{s:O, s:s?}", "ns", ns, "flags", flag)) == 0;
    }
    const hr_status status = ok ? hr_store_put_cell(store, run_id, cell, samples, NULL)
                                : hr_fail(HR_ERR_MEMORY, "out of memory while storing an imported cell");
    json_decref(samples);
    return status;
}

static hr_status put_run(hr_store *store, const hr_imported *imported, const json_t *machine, char **run_id) {
    size_t i;
    json_t *cell;
    bool failed = false;
    HR_TRY(hr_store_begin_run(store, imported->run, machine, run_id));
    json_array_foreach(imported->cells, i, cell) {
        failed = failed || !strcmp(hr_word(cell, "status"), "failed");
        HR_TRY(put_cell(store, *run_id, cell));
    }
    return hr_store_end_run(store, *run_id, failed ? 4 : 0);
}

hr_status hr_import_store(hr_store *store, const hr_imported *imported, char **run_id) {
    json_t *machine;
    *run_id = NULL;
    HR_TRY(find_machine(store, imported, &machine));
    hr_status status = hr_store_group_begin(store);
    if (status == HR_OK) status = hr_store_group_end(store, put_run(store, imported, machine, run_id));
    json_decref(machine);
    if (status != HR_OK) {
        hr_free(*run_id);
        *run_id = NULL;
    }
    return status;
}
