/* headroom ncu: the kernels of a stored cell's slowest op under Nsight Compute: the command line, and its table. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/profilers/child.h"
#include "harness/profilers/profilers.h"
#include "harness/show/cell_args.h"
#include "harness/show/stored_cell.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "ncu"
enum { NAME_BYTES = 400, SHORT_ID = 8 };

/* The op that takes most of the recorded time, "down:decode"; its layers and kernels count together. */
static hr_status slowest_op(const json_t *ops, char out[64]) {
    double most = -1;
    size_t i, k;
    json_t *a, *b;
    json_array_foreach((json_t *)ops, i, a) {
        const char *op = json_string_value(json_object_get(a, "op"));
        const char *phase = json_string_value(json_object_get(a, "phase"));
        double ns = 0;
        json_array_foreach((json_t *)ops, k, b) {
            if (!json_equal(json_object_get(a, "op"), json_object_get(b, "op")) ||
                !json_equal(json_object_get(a, "phase"), json_object_get(b, "phase")))
                continue;
            ns += json_number_value(json_object_get(b, "n")) * json_number_value(json_object_get(b, "median_ns"));
        }
        if (!op || !phase || ns <= most) continue;
        most = ns;
        snprintf(out, 64, "%s:%s", op, phase);
    }
    if (most < 0) HR_FAIL(HR_ERR_INPUT, "no op is stored of this cell: name one, as --op down:decode");
    return HR_OK;
}

/* ncu runs each kernel many times over: a few launches of one op are enough, and wanted. */
static hr_status make_words(const hr_args *args, const hr_stored_cell *c, json_t **out) {
    const char *device = json_string_value(json_object_get(c->cell, "device"));
    char op[64], include[96], program[NAME_BYTES], log[64];
    if (!device || !strcmp(device, "cpu"))
        HR_FAIL(HR_ERR_USAGE,
                "ncu profiles kernels of a GPU and cell %.12s ran on %s: `headroom nsys` shows the ops of a CPU",
                c->cell_id, device ? device : "an unknown device");
    const char *given = hr_args_text(args, "--op");
    if (given)
        snprintf(op, sizeof op, "%s", given);
    else
        HR_TRY(slowest_op(c->ops, op));
    HR_TRY(hr_program_path(program, sizeof program));
    snprintf(include, sizeof include, "headroom@%s/", op);
    snprintf(log, sizeof log, "ncu-%.*s.csv", SHORT_ID, c->cell_id);
    json_t *flags = NULL, *words = json_array();
    hr_status status = words ? hr_cell_args(c->cell, c->run_args, &flags)
                             : hr_fail(HR_ERR_MEMORY, "out of memory for the command line");
    const char *const head[] = {"ncu", "--csv",  "--page",         "raw",   "--log-file",
                                log,   "--nvtx", "--nvtx-include", include, "--launch-count",
                                "20",  program,  "sweep"};
    const char *const tail[] = {"--repetitions", "1", "--no-warmup", "--db", "none"};
    const bool ok = status == HR_OK && hr_words_add(words, head, sizeof head / sizeof *head) &&
                    json_array_extend(words, flags) == 0 && hr_words_add(words, tail, sizeof tail / sizeof *tail);
    json_decref(flags);
    if (ok) {
        *out = words;
        return HR_OK;
    }
    json_decref(words);
    return status != HR_OK ? status : hr_fail(HR_ERR_MEMORY, "out of memory for the command line");
}

static hr_status print_line(const hr_args *args, const hr_output *output, const hr_stored_cell *c) {
    json_t *words = NULL;
    HR_TRY(make_words(args, c, &words));
    char *line = hr_shell_line(words);
    json_t *object =
        json_pack("{s:s, s:s, s:O, s:s?}", "cell_id", c->cell_id, "run_id", c->run_id, "command", words, "line", line);
    const hr_status status = line && object ? hr_output_line(output, line, object)
                                            : hr_fail(HR_ERR_MEMORY, "out of memory for the command line");
    json_decref(object), json_decref(words), hr_free(line);
    return status;
}

static hr_status import_file(const char *path, const hr_output *output, const hr_stored_cell *c) {
    static const char *const keys[] = {"name",
                                       "n",
                                       "total_ns|=total (ms)|1e-6",
                                       "mean_ns|=mean (us)|1e-3",
                                       "median_ns|=median (us)|1e-3",
                                       "min_ns|=min (us)|1e-3",
                                       "max_ns|=max (us)|1e-3",
                                       NULL};
    char *text;
    size_t n;
    json_t *rows;
    HR_TRY(hr_read_file(path, &text, &n));
    hr_status status = hr_ncu_csv_parse(text, n, path, &rows);
    hr_free(text);
    if (status != HR_OK) return status;
    status = hr_store_put_ranges(c->store, c->run_id, c->cell_id, SOURCE, rows);
    if (status == HR_OK) status = hr_output_rows(output, rows, keys);
    json_decref(rows);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_stored_cell c = {0};
    const char *file = hr_args_text(args, "--import");
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK)
        status = hr_stored_cell_load("ncu", hr_args_text(args, "--db"), hr_args_positional(args, 0), file != NULL, &c);
    if (status == HR_OK) status = file ? import_file(file, &output, &c) : print_line(args, &output, &c);
    hr_stored_cell_fini(&c);
    return status == HR_OK ? 0 : hr_report_failure();
}

#define GROUP "Nsight Compute"
static const hr_opt opt_op = {
    .name = "--op",
    .group = GROUP,
    .kind = HR_OPT_TEXT,
    .min = 1,
    .metavar = "OP:PHASE",
    .help = "whose kernels, as down:decode (default: the op that took most of the recorded time)"};
static const hr_opt opt_import = {.name = "--import",
                                  .group = GROUP,
                                  .kind = HR_OPT_TEXT,
                                  .min = 1,
                                  .metavar = "FILE",
                                  .help =
                                      "store what `ncu --csv` wrote (page raw or details) beside the cell; -: stdin"};
static const hr_opt *const options[] = {&opt_op, &opt_import, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {
    "headroom ncu last", "the command line for the slowest op of a cell that a GPU ran",
    "headroom ncu last --import ncu.csv", "the table that ncu wrote, stored beside the cell", NULL};

const hr_command hr_command_ncu = {
    .name = "ncu",
    .task = "Profile",
    .summary = "profile the kernels of a GPU cell's slowest op with Nsight Compute: command line, table",
    .synopsis = "headroom ncu CELL [--op OP:PHASE] [--import FILE] [--db FILE] [-o FORMAT]",
    .options = options,
    .positional = "CELL",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
