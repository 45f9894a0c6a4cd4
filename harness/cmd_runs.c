/* headroom runs: what the store holds. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/store/store.h"

#include "kernels/base/memory.h"

#include <string.h>

static hr_status list_runs(hr_store *store, const hr_output *output) {
    static const char *const keys[] = {"run_id",    "started",       "command",      "n_cells", "n_ok",
                                       "exit_code", "machine_class", "build_commit", "tags",    NULL};
    json_t *runs;
    HR_TRY(hr_store_runs(store, &runs));
    hr_status status = hr_output_rows(output, runs, keys);
    json_decref(runs);
    return status;
}

/* The cells of one run, short enough for a line each: `headroom show` has the rest. */
static hr_status short_cells(const json_t *cells, json_t **out) {
    static const char *const same[] = {"cell_id",   "test",      "model_filename", "quant",      "act",
                                       "kv_layout", "page_size", "n_seqs",         "n_threads",  "status",
                                       "mbu",       "mfu",       "roof_fraction",  "stop_reason"};
    static const char *const times[] = {"ttft_ms", "ttft_prefill_ms", "tpot_excl_first_ms"};
    json_t *rows = json_array(), *cell;
    bool ok = rows != NULL;
    size_t i;
    json_array_foreach((json_t *)cells, i, cell) {
        json_t *row = json_object();
        for (size_t k = 0; ok && k < sizeof same / sizeof *same; k++) {
            json_t *value = json_object_get(cell, same[k]);
            ok = json_object_set_new(row, same[k], value ? json_incref(value) : json_null()) == 0;
        }
        for (size_t k = 0; ok && k < sizeof times / sizeof *times; k++) {
            json_t *median = json_object_get(json_object_get(cell, times[k]), "p50");
            char name[64];
            snprintf(name, sizeof name, "%s_p50", times[k]);
            ok = json_object_set_new(row, name, median ? json_incref(median) : json_null()) == 0;
        }
        ok = json_array_append_new(rows, row) == 0 && ok;
    }
    if (!ok) {
        json_decref(rows);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while listing cells");
    }
    *out = rows;
    return HR_OK;
}

/* One column for the time to the first token: of requests, else the prefill alone. */
static void add_first(json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *ttft = json_object_get(row, "ttft_ms_p50");
        json_object_set(row, "first_ms", json_is_number(ttft) ? ttft : json_object_get(row, "ttft_prefill_ms_p50"));
    }
}

static hr_status list_cells(hr_store *store, const char *run, const hr_output *output) {
    static const char *const shown[] = {"cell_id",
                                        "test",
                                        "model_filename|=model",
                                        "quant",
                                        "act",
                                        "kv_layout|=layout",
                                        "n_seqs|=seqs",
                                        "status",
                                        "first_ms|=TTFT (ms)",
                                        "tpot_excl_first_ms_p50|=TPOT (ms)",
                                        "mbu|=MBU (%)|100",
                                        "roof_fraction|=roof (%)|100",
                                        NULL};
    static const char *const keys[] = {"cell_id",
                                       "test",
                                       "model_filename",
                                       "quant",
                                       "act",
                                       "kv_layout",
                                       "n_seqs",
                                       "status",
                                       "ttft_ms_p50",
                                       "ttft_prefill_ms_p50",
                                       "tpot_excl_first_ms_p50",
                                       "mbu",
                                       "mfu",
                                       "roof_fraction",
                                       "stop_reason",
                                       NULL};
    char *run_id;
    json_t *cells = NULL, *rows = NULL;
    HR_TRY(hr_store_resolve_run(store, run, &run_id));
    hr_status status = hr_store_cells(store, run_id, &cells);
    if (status == HR_OK) status = short_cells(cells, &rows);
    const bool table = output->format == HR_FORMAT_TABLE || output->format == HR_FORMAT_MD;
    if (status == HR_OK && table) add_first(rows);
    if (status == HR_OK) status = hr_output_rows(output, rows, table ? shown : keys);
    json_decref(cells), json_decref(rows);
    hr_free(run_id);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_store *store = NULL;
    const char *db = hr_args_text(args, "--db"), *name = hr_args_text(args, "--run");
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK && name && hr_args_n_positional(args))
        status =
            hr_fail(HR_ERR_USAGE, "the run is given twice: %.80s and --run %.80s", hr_args_positional(args, 0), name);
    if (!name && hr_args_n_positional(args)) name = hr_args_positional(args, 0);
    if (status == HR_OK && strcmp(db, "none") == 0)
        status = hr_fail(HR_ERR_USAGE, "--db none leaves nothing to list: name a store");
    if (status == HR_OK) status = hr_store_open(db, false, &store);
    if (status == HR_OK) status = name ? list_cells(store, name, &output) : list_runs(store, &output);
    hr_store_close(store);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt opt_run = {.name = "--run",
                               .group = "What is listed",
                               .kind = HR_OPT_TEXT,
                               .min = 1,
                               .metavar = "RUN",
                               .help = "the cells of this run: the same as RUN without the flag"};
static const hr_opt *const options[] = {&opt_run, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom runs",
                                       "the runs of the store, oldest first",
                                       "headroom runs last",
                                       "the cells of the newest run, with their ids",
                                       "headroom runs --json",
                                       "with arguments and manifest, for a program",
                                       NULL};

const hr_command hr_command_runs = {
    .name = "runs",
    .task = "Look up",
    .summary = "list the runs that the store holds, or the cells of one run",
    .synopsis =
        "headroom runs [RUN | --run RUN] [--db FILE] [-o FORMAT]     RUN: last, last~1 or the first digits of an id",
    .options = options,
    .positional = "RUN",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
