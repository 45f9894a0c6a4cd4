/* headroom observe: what watching a cell costs, in interleaved pairs. */
#include "harness/observe/observe.h"

#include "harness/cli/interrupt.h"
#include "harness/cli/kept_run.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/progress.h"
#include "harness/sweep/one_cell.h"
#include "harness/version.h"

#include <stdio.h>
#include <string.h>

#define MEASURING "Measuring"
static const hr_opt opt_model = {.name = "--model",
                                 .alias = "-m",
                                 .group = "Model",
                                 .kind = HR_OPT_TEXT,
                                 .min = 1,
                                 .fallback = "synth:smollm2-135m",
                                 .metavar = "MODEL",
                                 .help = "a GGUF file, or synth:NAME[:key=value...] (random weights; `headroom models` "
                                         "lists names)"};
static const hr_opt opt_isl = {.name = "--isl",
                               .group = "What is measured",
                               .kind = HR_OPT_INT,
                               .min = 1,
                               .max = 1 << 20,
                               .fallback = "128",
                               .metavar = "N",
                               .help = "tokens of the request's prompt"};
static const hr_opt opt_osl = {.name = "--osl",
                               .group = "What is measured",
                               .kind = HR_OPT_INT,
                               .min = 1,
                               .max = 1 << 20,
                               .fallback = "64",
                               .metavar = "N",
                               .help = "tokens that it gets; TPOT needs three"};
static const hr_opt opt_pairs = {.name = "--pairs",
                                 .group = MEASURING,
                                 .kind = HR_OPT_INT,
                                 .min = 1,
                                 .max = HR_PAIRS_MAX,
                                 .fallback = "20",
                                 .metavar = "N",
                                 .help = "pairs of runs a way of watching; an interval needs 6"};
static const hr_opt opt_repetitions = {.name = "--repetitions",
                                       .alias = "-r",
                                       .group = MEASURING,
                                       .kind = HR_OPT_INT,
                                       .min = 1,
                                       .max = 64,
                                       .fallback = "3",
                                       .metavar = "N",
                                       .help = "requests of a run; their median counts"};
static const hr_opt opt_arms = {.name = "--arms",
                                .group = MEASURING,
                                .kind = HR_OPT_WORDS,
                                .choices = hr_watch_names,
                                .metavar = "LIST",
                                .help = "ways of watching (default: all; no-probes with --without alone)"};
static const hr_opt opt_without = {.name = "--without",
                                   .group = MEASURING,
                                   .kind = HR_OPT_TEXT,
                                   .min = 1,
                                   .metavar = "PROGRAM",
                                   .help = "headroom built without probes (make BUILD=build-noprobes NOPROBES=1): "
                                           "also what probes cost while nobody listens"};
static const hr_opt opt_seed = {.name = "--seed",
                                .group = MEASURING,
                                .kind = HR_OPT_INT,
                                .max = 9007199254740991.0,
                                .fallback = "0",
                                .metavar = "N",
                                .help = "of the random tokens and of the order within pairs"};

/* What the callbacks share. */
typedef struct session {
    const hr_args *args;
    hr_machine machine;
    hr_sweep_plan plan;
    json_t *sweep;
    char program[4096];
    hr_progress progress;
    hr_kept_run kept;
} session;

static const char *const all_keys[] = {"name",  "arm",    "metric",    "model_filename", "quant",   "act",  "test",
                                       "n",     "median", "ci95_lo",   "ci95_hi",        "unit",    "p",    "off_ms",
                                       "on_ms", "target", "target_lo", "target_hi",      "verdict", "what", "reason",
                                       NULL};
static const char *const people_keys[] = {"name",   "n",     "median|cost %", "ci95_lo", "ci95_hi",
                                          "off_ms", "on_ms", "target",        "verdict", NULL};

static void show(double share, const char *name, void *context) {
    hr_progress_show(&((session *)context)->progress, share, -1, "observe: %s", name);
}

static hr_status keep(const json_t *row, void *context) {
    return hr_kept_run_put(&((session *)context)->kept, row);
}

/* Under the table: what each row is, and why one is empty. */
static void say(const json_t *rows) {
    size_t i;
    json_t *row;
    const char *last = "";
    json_array_foreach((json_t *)rows, i, row) {
        const char *arm = json_string_value(json_object_get(row, "arm"));
        const char *reason = json_string_value(json_object_get(row, "reason"));
        if (!strcmp(arm, last)) continue;
        last = arm;
        fprintf(stderr, "%s: %s%s%s\n", arm, json_string_value(json_object_get(row, "what")),
                reason ? "; not measured: " : "", reason ? reason : "");
    }
}

static hr_status print(const hr_output *output, const json_t *rows) {
    const bool people = output->format == HR_FORMAT_TABLE || output->format == HR_FORMAT_MD;
    if (json_array_size(rows) == 0) return HR_OK;
    HR_TRY(hr_output_rows(output, rows, people ? people_keys : all_keys));
    if (people && !output->quiet) say(rows);
    return HR_OK;
}

/* All ways, or those that were named; the one that needs another build only with it. */
static hr_status read_arms(const hr_args *args, unsigned *out) {
    size_t n;
    const char *const *named = hr_args_texts(args, "--arms", &n);
    const bool without = hr_args_given(args, "--without");
    *out = (1u << HR_WATCH_COUNT) - 1;
    if (!without) *out &= ~(1u << HR_WATCH_NO_PROBES);
    if (n) *out = 0;
    for (size_t i = 0; i < n; i++)
        for (int w = 0; w < HR_WATCH_COUNT; w++)
            if (!strcmp(named[i], hr_watch_names[w])) *out |= 1u << w;
    if (n && *out >> HR_WATCH_NO_PROBES & 1u && !without)
        HR_FAIL(HR_ERR_USAGE, "--arms no-probes needs a build without probes; `make probe-cost` makes one, or give "
                              "--without PROGRAM");
    return HR_OK;
}

static hr_status set_up(session *s, hr_observe_options *o) {
    HR_TRY(read_arms(s->args, &o->watches));
    HR_TRY(hr_program_path(s->program, sizeof s->program));
    HR_TRY(hr_machine_get(&s->machine));
    HR_TRY(hr_one_cell_plan(s->args, &s->machine, &s->plan));
    const hr_device_info *gpu = hr_sweep_plan_gpu(&s->plan, &s->plan.cells[0].config);
    if (gpu && gpu->simulated && strcmp(hr_args_text(s->args, "--db"), "none"))
        HR_FAIL(HR_ERR_USAGE,
                "the device is simulated and says nothing of what watching costs: give --db none to see it "
                "run");
    if (o->without) HR_TRY(hr_observe_check_without(s->program, o->without));
    if (!(s->sweep = hr_one_cell_words(s->args))) HR_FAIL(HR_ERR_MEMORY, "no memory for the flags");
    HR_TRY(hr_kept_run_open(&s->kept));
    o->cell = &s->plan.cells[0].config, o->info = &s->plan.infos[0];
    o->program = s->program, o->sweep = s->sweep;
    return HR_OK;
}

static hr_status observe(session *s) {
    hr_output output;
    hr_observe_options options = {.pairs = (size_t)hr_args_int(s->args, "--pairs"),
                                  .repetitions = (size_t)hr_args_int(s->args, "--repetitions"),
                                  .seed = (uint64_t)hr_args_int(s->args, "--seed"),
                                  .without = hr_args_text(s->args, "--without"),
                                  .stop = hr_interrupted,
                                  .progress = show,
                                  .keep = keep,
                                  .context = s};
    HR_TRY(hr_output_resolve(s->args, &output));
    HR_TRY(hr_output_check(&output));
    HR_TRY(set_up(s, &options));
    hr_progress_init(&s->progress, output.progress);
    hr_interrupt_install();
    json_t *rows = NULL;
    char said[512];
    const hr_status status = hr_kept_run_close(&s->kept, hr_observe_run(&options, &rows));
    hr_progress_clear(&s->progress);
    snprintf(said, sizeof said, "%s", hr_error());
    const hr_status printed = print(&output, rows); /* what was measured is printed whatever happened */
    json_decref(rows);
    return status == HR_OK ? printed : hr_fail(status, "%s", said);
}

static int run(const hr_args *args) {
    session s = {.args = args, .kept = {.command = "observe", .args = args, .put = hr_store_put_observe}};
    const hr_status status = hr_kept_run_close(&s.kept, observe(&s));
    hr_sweep_plan_destroy(&s.plan);
    json_decref(s.sweep);
    if (status != HR_OK) hr_report_failure();
    return hr_exit_code(status);
}

static const hr_opt *const options[] = {&opt_model, &opt_isl,       &opt_osl,         HR_OPTS_AXES,
                                        &opt_arms,  &opt_pairs,     &opt_repetitions, &opt_without,
                                        &opt_seed,  HR_OPTS_OUTPUT, &hr_opt_db,       NULL};
static const char *const examples[] = {
    "headroom observe",
    "all ways of watching, on SmolLM2-135M's shape with 128 tokens in and 64 out",
    "headroom observe -m synth:llama-3.2-1b --quant int8 --arms recorder --pairs 13",
    "the recorder alone, on a model whose steps are long",
    "headroom observe -m synth:tiny --isl 16 --osl 8 --arms off,recorder,nvtx --pairs 6 --db none",
    "seconds: only what needs no process of its own",
    NULL};

const hr_command hr_command_observe = {
    .name = "observe",
    .task = "Profile",
    .summary = "what watching a cell costs: recorder, NVTX, library, nsys, and probes with nobody listening",
    .synopsis = "headroom observe [-m MODEL] [--isl N] [--osl N] [--arms LIST] [--pairs N] [--without PROGRAM]",
    .options = options,
    .examples = examples,
    .run = run,
};
