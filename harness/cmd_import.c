/* headroom import: results of other tools, and of our own, as runs of the store. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/exchange/exchange.h"
#include "kernels/base/memory.h"

#include <string.h>

typedef struct command {
    const hr_args *args;
    hr_output output;
    hr_store *store;
    hr_imported *files; /* [n positional] */
    json_t *rows;       /* one a file */
} command;

static hr_status parse_file(const command *c, const char *path, hr_imported *out) {
    char *text;
    size_t n;
    HR_TRY(hr_read_file(path, &text, &n));
    const hr_status status = hr_import_parse(text, n, path, hr_args_text(c->args, "--format"), out);
    hr_free(text);
    return status;
}

static hr_status store_file(command *c, const char *path, const hr_imported *file) {
    char *run_id = NULL;
    size_t i, n_samples = 0;
    json_t *cell, *name = json_string(path);
    if (c->store) HR_TRY(hr_import_store(c->store, file, &run_id));
    json_array_foreach(file->cells, i, cell) n_samples += json_array_size(json_object_get(cell, "samples_ns"));
    json_t *row = json_pack("{s:o, s:O, s:s?, s:I, s:I, s:O}", "file", name ? name : json_string("?"), "format",
                            json_object_get(json_object_get(file->run, "args"), "format"), "run_id", run_id, "cells",
                            (json_int_t)json_array_size(file->cells), "samples", (json_int_t)n_samples, "unmapped",
                            file->unmapped);
    hr_free(run_id);
    if (json_array_append_new(c->rows, row)) HR_FAIL(HR_ERR_MEMORY, "out of memory for what was imported");
    return HR_OK;
}

/* JSON: {runs, cells, samples, files: [...], unmapped: [...]}; elsewhere a row a file. */
static hr_status print(command *c) {
    static const char *const keys[] = {"file", "format", "run_id", "cells", "samples", NULL};
    size_t i, k;
    json_t *row, *note, *unmapped = json_array();
    json_int_t cells = 0, samples = 0;
    json_array_foreach(c->rows, i, row) {
        cells += json_integer_value(json_object_get(row, "cells"));
        samples += json_integer_value(json_object_get(row, "samples"));
        json_array_foreach(json_object_get(row, "unmapped"), k, note) json_array_append(unmapped, note);
    }
    const bool json = c->output.format == HR_FORMAT_JSON || c->output.format == HR_FORMAT_JSONL;
    if (!c->output.quiet && !json)
        json_array_foreach(unmapped, i, note) fprintf(stderr, "headroom: %s\n", json_string_value(note));
    hr_status status;
    if (json) {
        json_t *all =
            json_pack("{s:I, s:I, s:I, s:O, s:O}", "runs", (json_int_t)(c->store ? json_array_size(c->rows) : 0),
                      "cells", cells, "samples", samples, "files", c->rows, "unmapped", unmapped);
        status = all ? hr_output_object(&c->output, all) : hr_fail(HR_ERR_MEMORY, "out of memory");
        json_decref(all);
    } else {
        status = hr_output_rows(&c->output, c->rows, keys);
    }
    json_decref(unmapped);
    return status;
}

static hr_status import(command *c) {
    const char *db = hr_args_text(c->args, "--db");
    HR_TRY(hr_output_resolve(c->args, &c->output));
    if (!hr_args_n_positional(c->args))
        HR_FAIL(HR_ERR_USAGE, "import which file? `headroom import bench.json`; - reads stdin");
    const size_t n = hr_args_n_positional(c->args);
    c->rows = json_array();
    c->files = hr_calloc(n, sizeof *c->files);
    if (!c->rows || !c->files) HR_FAIL(HR_ERR_MEMORY, "out of memory for %zu files", n);
    HR_TRY(hr_output_check(&c->output));
    /* all or nothing: the store is not touched before every file is known to be sound */
    for (size_t i = 0; i < n; i++) HR_TRY(parse_file(c, hr_args_positional(c->args, i), &c->files[i]));
    if (strcmp(db, "none")) HR_TRY(hr_store_open(db, true, &c->store));
    for (size_t i = 0; i < n; i++) HR_TRY(store_file(c, hr_args_positional(c->args, i), &c->files[i]));
    return print(c);
}

static int run(const hr_args *args) {
    command c = {.args = args};
    const hr_status status = import(&c);
    hr_store_close(c.store);
    for (size_t i = 0; c.files && i < hr_args_n_positional(args); i++) hr_imported_fini(&c.files[i]);
    hr_free(c.files);
    json_decref(c.rows);
    return status == HR_OK ? 0 : hr_report_failure();
}

/* hr_exchange_formats(true), in the order of the help. */
static const char *const formats[] = {
    "llama-bench", "llama-bench-json", "llama-bench-jsonl", "llama-bench-csv", "google-benchmark",
    "headroom",    "headroom-json",    "headroom-jsonl",    "headroom-csv",    NULL};
static const hr_opt opt_format = {.name = "--format",
                                  .group = "Files",
                                  .kind = HR_OPT_WORD,
                                  .choices = formats,
                                  .metavar = "F",
                                  .help = "what the files are (default: told by what is in them)"};
static const hr_opt *const options[] = {&opt_format, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom import bench.json",
                                       "results that `llama-bench -o json` wrote, as a run of the store",
                                       "headroom import a.jsonl b.jsonl --json",
                                       "two files as two runs; counts, and what had no place",
                                       "headroom import micro.json --format google-benchmark --db micro.db",
                                       "repetitions of Google Benchmark, in a store of their own",
                                       NULL};

const hr_command hr_command_import = {
    .name = "import",
    .task = "Exchange",
    .summary = "take in results of llama-bench, Google Benchmark or headroom sweep as runs of the store",
    .synopsis = "headroom import FILE... [--format F] [--db FILE] [-o FORMAT]     one file is one run",
    .options = options,
    .positional = "FILE",
    .max_positional = 4096,
    .examples = examples,
    .run = run,
};
