/* headroom nsys: a stored cell under Nsight Systems: the command line, a run of it, its table beside the ops. */
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/formats/cell_device.h"
#include "harness/profilers/profilers.h"
#include "harness/roof/roof.h"
#include "harness/show/cell_args.h"
#include "harness/show/stored_cell.h"
#include "harness/stats/stats.h"
#include "harness/version.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

#define SOURCE "nsys nvtxsum"
/* A range takes about 4 us under nsys: below ten times as much per op its table says more about nsys than about the op. */
static const double PAIR_NS = 4e3, LEAST_OP_NS = 40e3;
enum { NAME_BYTES = 400, SHORT_ID = 8 };

typedef struct command {
    const hr_args *args;
    hr_output output;
    hr_stored_cell stored;
    char base[NAME_BYTES], program[NAME_BYTES];
    json_t *words, *rows;
} command;

/* --report without an ending, or nsys-ID. */
static hr_status name_report(command *c) {
    const char *given = hr_args_text(c->args, "--report");
    static const char *const endings[] = {".nsys-rep", ".qdrep"};
    if (given && strlen(given) >= sizeof c->base)
        HR_FAIL(HR_ERR_USAGE, "--report: a name of more than %zu bytes", sizeof c->base - 1);
    snprintf(c->base, sizeof c->base, "%s%.*s", given ? given : "nsys-", SHORT_ID, given ? "" : c->stored.cell_id);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t n = strlen(c->base), k = strlen(endings[i]);
        if (n > k && !strcmp(c->base + n - k, endings[i])) c->base[n - k] = 0;
    }
    return HR_OK;
}

static hr_status make_words(command *c) {
    const char *status = json_string_value(json_object_get(c->stored.cell, "status"));
    const char *error = json_string_value(json_object_get(c->stored.cell, "error"));
    if (!status || strcmp(status, "ok"))
        HR_FAIL(HR_ERR_INPUT, "cell %.12s is not to be profiled: its status is %s%s%s", c->stored.cell_id,
                status ? status : "unknown", error ? ": " : "", error ? error : "");
    HR_TRY(name_report(c));
    HR_TRY(hr_program_path(c->program, sizeof c->program));
    return hr_nsys_command(c->stored.cell, c->stored.run_args, c->program, hr_args_text(c->args, "--nvtx-level"),
                           c->base, &c->words);
}

/* ---- what is said beside the results ---------------------------------------------------------------------------------- */

static void advise(const command *c) {
    const double mean = hr_ops_mean_ns(c->stored.ops);
    if (c->output.quiet) return;
    hr_machine here;
    const bool gpu = hr_cell_on_gpu(c->stored.cell);
    if (!gpu && c->stored.machine_class && hr_machine_get(&here) == HR_OK &&
        strcmp(here.class_name, c->stored.machine_class))
        fprintf(stderr,
                "headroom: the cell was measured on %s and this is %s: what nsys shows here is another machine\n",
                c->stored.machine_class, here.class_name);
    if (!hr_nvtx_built())
        fprintf(stderr,
                "headroom: this build has no NVTX ranges (nvtx3/nvToolsExt.h was not there): nsys would see none\n");
    if (mean < LEAST_OP_NS && !strcmp(hr_args_text(c->args, "--nvtx-level"), "op"))
        fprintf(
            stderr,
            "headroom: nsys takes about %.0f us a range and an op of this cell %.0f us: --nvtx-level layer disturbs "
            "less\n",
            PAIR_NS / 1e3, mean / 1e3);
}

static hr_status print_line(const command *c) {
    const double mean_ns = hr_ops_mean_ns(c->stored.ops);
    char *line = hr_shell_line(c->words);
    json_t *object = json_pack("{s:s, s:s, s:O, s:s?, s:o}", "cell_id", c->stored.cell_id, "run_id", c->stored.run_id,
                               "command", c->words, "line", line, "mean_op_us", hr_real_or_null(mean_ns / 1e3));
    const hr_status status = line && object ? hr_output_line(&c->output, line, object)
                                            : hr_fail(HR_ERR_MEMORY, "out of memory for the command line");
    json_decref(object), hr_free(line);
    return status;
}

/* ---- tables --------------------------------------------------------------------------------------------------------- */

static hr_status import_file(command *c, const char *path) {
    char *text;
    size_t n;
    HR_TRY(hr_read_file(path, &text, &n));
    const hr_status status = hr_nsys_csv_parse(text, n, path, &c->rows);
    hr_free(text);
    return status;
}

static hr_status profile(command *c) {
    hr_nsys_tools tools;
    HR_TRY(make_words(c));
    HR_TRY(hr_nsys_find(&tools));
    if (!hr_nvtx_built())
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "this build has no NVTX ranges: build it where nvtx3/nvToolsExt.h of the CUDA toolkit is");
    advise(c);
    if (!c->output.quiet)
        fprintf(stderr, "headroom: profiling cell %.12s with nsys %s into %s.nsys-rep\n", c->stored.cell_id,
                tools.version, c->base);
    HR_TRY(hr_make_folders(c->base));
    return hr_nsys_run(&tools, c->words, c->base, &c->rows);
}

/* Stores the rows, and prints them as the store has them, beside the ops. */
static hr_status keep(command *c) {
    hr_stored_cell *s = &c->stored;
    json_t *all, *own = json_array(), *row, *rows = NULL;
    size_t i;
    HR_TRY(hr_store_put_ranges(s->store, s->run_id, s->cell_id, SOURCE, c->rows));
    HR_TRY(hr_store_ranges(s->store, s->run_id, s->cell_id, &all));
    json_array_foreach(all, i, row) {
        const char *source = json_string_value(json_object_get(row, "source"));
        if (source && !strcmp(source, SOURCE)) json_array_append(own, row);
    }
    hr_status status = hr_ranges_beside_ops(own, s->ops, &rows);
    if (status == HR_OK) status = hr_output_rows(&c->output, rows, hr_ranges_columns);
    json_decref(all), json_decref(own), json_decref(rows);
    return status;
}

static hr_status nsys(command *c) {
    const char *file = hr_args_text(c->args, "--import");
    const bool runs = hr_args_flag(c->args, "--run");
    HR_TRY(hr_output_resolve(c->args, &c->output));
    if (file && runs) HR_FAIL(HR_ERR_USAGE, "--run makes its own table: leave out --import");
    HR_TRY(hr_output_check(&c->output));
    HR_TRY(hr_stored_cell_load("nsys", hr_args_text(c->args, "--db"), hr_args_positional(c->args, 0), file || runs,
                               &c->stored));
    if (!file && !runs) {
        HR_TRY(make_words(c));
        HR_TRY(print_line(c));
        advise(c);
        return HR_OK;
    }
    HR_TRY(file ? import_file(c, file) : profile(c));
    return keep(c);
}

static int run(const hr_args *args) {
    command c = {.args = args};
    hr_interrupt_install();
    const hr_status status = nsys(&c);
    hr_stored_cell_fini(&c.stored);
    json_decref(c.words), json_decref(c.rows);
    if (status != HR_OK) hr_report_failure();
    return hr_exit_code(status);
}

#define GROUP "Nsight Systems"
static const char *const levels[] = {"cell", "phase", "layer", "op", NULL};
static const hr_opt opt_run = {.name = "--run",
                               .group = GROUP,
                               .kind = HR_OPT_FLAG,
                               .help = "profile the cell now, and store its table of ranges beside it"};
static const hr_opt opt_import = {.name = "--import",
                                  .group = GROUP,
                                  .kind = HR_OPT_TEXT,
                                  .min = 1,
                                  .metavar = "FILE",
                                  .help =
                                      "store a table that `nsys stats --report nvtx_sum --format csv` wrote elsewhere; "
                                      "-: stdin"};
static const hr_opt opt_level = {.name = "--nvtx-level",
                                 .group = GROUP,
                                 .kind = HR_OPT_WORD,
                                 .choices = levels,
                                 .fallback = "op",
                                 .metavar = "LEVEL",
                                 .help = "deepest ranges that are emitted; each takes about 4 us under nsys"};
static const hr_opt opt_report = {
    .name = "--report",
    .group = GROUP,
    .kind = HR_OPT_TEXT,
    .min = 1,
    .metavar = "FILE",
    .help = "name of the report, FILE.nsys-rep for the program nsys-ui (default: nsys- and the "
            "cell's id); one of before is replaced"};
static const hr_opt *const options[] = {&opt_run,       &opt_import, &opt_level, &opt_report,
                                        HR_OPTS_OUTPUT, &hr_opt_db,  NULL};
static const char *const examples[] = {
    "headroom nsys last",
    "the command line that profiles the newest cell's measured steps, to run here or elsewhere",
    "headroom nsys last --run --nvtx-level layer",
    "runs it, stores the table of ranges with the cell, prints it beside the recorded ops",
    "headroom nsys last --import ranges.csv",
    "the same from a table that was made elsewhere",
    NULL};

const hr_command hr_command_nsys = {
    .name = "nsys",
    .task = "Profile",
    .summary = "profile a stored cell with Nsight Systems: command line, run, table of ranges",
    .synopsis =
        "headroom nsys CELL [--run | --import FILE] [--nvtx-level LEVEL] [--report FILE] [--db FILE] [-o FORMAT]",
    .options = options,
    .positional = "CELL",
    .max_positional = 1,
    .examples = examples,
    .run = run,
};
