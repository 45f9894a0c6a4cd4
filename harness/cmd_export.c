/* headroom export: a run of the store as a file that other tools read. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/exchange/exchange.h"
#include "kernels/base/memory.h"

#include <string.h>

typedef struct command {
    const hr_args *args;
    hr_store *store;
    char *run_id;
    size_t n_cells; /* in the file */
    json_t *unmapped;
    hr_out out;
} command;

/* Keys that have no place are many: one line. */
static void say(const command *c) {
    size_t i, used = 0;
    json_t *note;
    char line[400] = "";
    json_array_foreach(c->unmapped, i, note) {
        const char *text = json_string_value(note);
        if (used + strlen(text) + 3 > sizeof line) break;
        used += (size_t)sprintf(line + used, "%s%s", i ? "; " : "", text);
    }
    if (!used) return;
    fprintf(stderr, "headroom: no place in %s for: %s", hr_args_text(c->args, "--format"), line);
    if (i < json_array_size(c->unmapped)) fprintf(stderr, "; and %zu more", json_array_size(c->unmapped) - i);
    fputc('\n', stderr);
}

static hr_status print_counts(const command *c) {
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:I, s:O}", "run_id", c->run_id, "format", hr_args_text(c->args, "--format"), "file",
                  hr_args_text(c->args, "--out"), "cells", (json_int_t)c->n_cells, "unmapped", c->unmapped);
    const hr_status status = all ? hr_json_write(stdout, all) : hr_fail(HR_ERR_MEMORY, "out of memory for the counts");
    json_decref(all);
    return status;
}

static hr_status export_run(command *c) {
    const char *db = hr_args_text(c->args, "--db"), *file = hr_args_text(c->args, "--out");
    const bool json = hr_args_flag(c->args, "--json");
    if (!hr_args_n_positional(c->args))
        HR_FAIL(HR_ERR_USAGE, "export which run? `headroom export last --format llama-bench`");
    if (!hr_args_text(c->args, "--format"))
        HR_FAIL(HR_ERR_USAGE, "export as what? --format llama-bench, google-benchmark, benchstat, ...: see --help");
    if (json && !file) HR_FAIL(HR_ERR_USAGE, "--json prints the counts: name the file of the export with --out");
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none leaves nothing to export: name a store");
    HR_TRY(hr_store_open(db, false, &c->store));
    HR_TRY(hr_store_resolve_run(c->store, hr_args_positional(c->args, 0), &c->run_id));
    HR_TRY(hr_out_open(file, &c->out));
    const hr_status status =
        hr_export(c->store, c->run_id, hr_args_text(c->args, "--format"), c->out.stream, &c->n_cells, &c->unmapped);
    if (status != HR_OK) {
        hr_out_abandon(&c->out);
        return status;
    }
    HR_TRY(hr_out_commit(&c->out));
    if (json) return print_counts(c);
    if (!hr_args_flag(c->args, "--quiet")) say(c);
    return HR_OK;
}

static int run(const hr_args *args) {
    command c = {.args = args};
    const hr_status status = export_run(&c);
    hr_store_close(c.store);
    hr_free(c.run_id);
    json_decref(c.unmapped);
    return status == HR_OK ? 0 : hr_report_failure();
}

/* hr_exchange_formats(false), in the order of the help. */
static const char *const formats[] = {"llama-bench",       "llama-bench-json",
                                      "llama-bench-jsonl", "llama-bench-csv",
                                      "google-benchmark",  "googlecpp",
                                      "cpp_google",        "customSmallerIsBetter",
                                      "benchstat",         "headroom",
                                      "headroom-json",     "headroom-jsonl",
                                      "headroom-csv",      NULL};
static const hr_opt opt_format = {
    .name = "--format",
    .group = "Files",
    .kind = HR_OPT_WORD,
    .choices = formats,
    .metavar = "F",
    .help = "llama-bench: for compare-llama-bench.py; google-benchmark: repetitions; googlecpp, "
            "customSmallerIsBetter: for github-action-benchmark; cpp_google: for bencher; "
            "headroom: as sweep prints"};
static const hr_opt *const options[] = {&opt_format, &hr_opt_out, &hr_opt_json, &hr_opt_quiet, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom export last --format llama-bench --out bench.json",
                                       "the newest run as llama-bench would write it",
                                       "headroom export last --format customSmallerIsBetter --out bench.json --json",
                                       "times for github-action-benchmark; what had no place, on stdout",
                                       "headroom export last~1 --format benchstat",
                                       "a line a repetition, on stdout: one of the two files that benchstat compares",
                                       NULL};

const hr_command hr_command_export = {
    .name = "export",
    .task = "Exchange",
    .summary = "write a run for llama-bench's readers, Google Benchmark's, github-action-benchmark, bencher, benchstat",
    .synopsis =
        "headroom export RUN --format F [--out FILE] [--db FILE]     RUN: last, last~1 or the first digits of an id",
    .options = options,
    .positional = "RUN",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
