/* headroom report: what the store holds as a page with plots. */
#include "harness/cli/option_groups.h"
#include "harness/formats/formats.h"
#include "harness/report/report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const hr_opt opt_run = {.name = "--run",
                               .group = "Cells",
                               .kind = HR_OPT_TEXTS,
                               .metavar = "RUN",
                               .help =
                                   "these runs alone: ids, prefixes, last, last~1 (default: every run of the newest "
                                   "run's machine class; the newest measurement of a cell counts)"};
static const hr_opt opt_simulated = {.name = "--allow-simulated",
                                     .group = "Cells",
                                     .kind = HR_OPT_FLAG,
                                     .help = "report cells that no real device ran; refused otherwise"};
static const hr_opt opt_device = {.name = "--device",
                                  .group = "Cells",
                                  .kind = HR_OPT_TEXT,
                                  .min = 1,
                                  .metavar = "DEVICE",
                                  .help =
                                      "of runs on several devices: cpu, or cuda:N and all of its class (default: the "
                                      "class of the newest cell)"};
static const hr_opt opt_dir = {.name = "--out",
                               .group = "Output",
                               .kind = HR_OPT_TEXT,
                               .min = 1,
                               .fallback = "results/report",
                               .metavar = "DIR",
                               .help = "folder of the report; made when missing, an older report in it is replaced"};

enum { RUNS_MOST = 256 };

static hr_status print_paths(const json_t *paths, bool as_json) {
    if (as_json) return hr_json_write(stdout, paths);
    size_t i;
    json_t *path;
    json_array_foreach((json_t *)paths, i, path) printf("%s\n", json_string_value(path));
    return hr_stream_flush(stdout);
}

/* --run A B: the words after the first are positional for the parser. */
static hr_status runs_of(const hr_args *args, const char **runs, size_t *n) {
    size_t listed;
    const char *const *given = hr_args_texts(args, "--run", &listed);
    const size_t more = hr_args_n_positional(args);
    if (more && !listed)
        HR_FAIL(HR_ERR_USAGE, "%.80s: name runs by --run %.80s", hr_args_positional(args, 0),
                hr_args_positional(args, 0));
    if (listed + more > RUNS_MOST) HR_FAIL(HR_ERR_USAGE, "--run: at most %d runs", RUNS_MOST);
    for (size_t i = 0; i < listed; i++) runs[i] = given[i];
    for (size_t i = 0; i < more; i++) runs[listed + i] = hr_args_positional(args, i);
    *n = listed + more;
    return HR_OK;
}

static int run(const hr_args *args) {
    hr_store *store = NULL;
    json_t *paths = NULL, *note = NULL;
    const char *db = hr_args_text(args, "--db"), *runs[RUNS_MOST];
    hr_report_options options = {.runs = runs,
                                 .out_dir = hr_args_text(args, "--out"),
                                 .device = hr_args_text(args, "--device"),
                                 .allow_simulated = hr_args_flag(args, "--allow-simulated")};
    hr_status status = runs_of(args, runs, &options.n_runs);
    if (status == HR_OK && strcmp(db, "none") == 0)
        status = hr_fail(HR_ERR_USAGE, "--db none leaves nothing to report: name a store");
    if (status == HR_OK) status = hr_store_open(db, false, &store);
    if (status == HR_OK) status = hr_report_write(store, &options, &paths, &note);
    hr_store_close(store);
    if (status == HR_OK) status = print_paths(paths, hr_args_flag(args, "--json"));
    if (status == HR_OK && note && !hr_args_flag(args, "--quiet"))
        fprintf(stderr, "headroom: %s\n", json_string_value(note));
    if (status == HR_OK && isatty(STDERR_FILENO) && !hr_args_flag(args, "--quiet") && !hr_args_flag(args, "--json"))
        fprintf(stderr, "open %s/index.html\n", options.out_dir);
    json_decref(paths), json_decref(note);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options_[] = {&opt_run,   &opt_device,  &opt_simulated, &opt_dir,
                                         &hr_opt_db, &hr_opt_json, &hr_opt_quiet,  NULL};
static const char *const examples[] = {"headroom report",
                                       "results/report/index.html of all that was measured on this machine",
                                       "headroom report --run last --out night",
                                       "the newest run alone, into the folder night",
                                       "headroom report --run last~1 last --json",
                                       "two runs; the files written as a JSON list",
                                       NULL};

const hr_command hr_command_report = {
    .name = "report",
    .task = "Look up",
    .summary = "write a page with verdict, plots and tables from the store",
    .synopsis = "headroom report [--run RUN...] [--device DEVICE] [--out DIR] [--db FILE]",
    .options = options_,
    .positional = "RUN",
    .max_positional = RUNS_MOST - 1,
    .examples = examples,
    .run = run,
};
