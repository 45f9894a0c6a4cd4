/* headroom sweep: measures every cell of the axes, stores it, prints a row. */
#include "harness/cli/engine_args.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/doctor/busy.h"
#include "harness/sweep/one_cell.h"
#include "harness/sweep/sweep.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEASURING "Measuring"
static const hr_opt opt_max_samples = {.name = "--max-samples",
                                       .group = MEASURING,
                                       .kind = HR_OPT_INT,
                                       .min = 3,
                                       .max = 1000000,
                                       .fallback = "1000",
                                       .metavar = "N",
                                       .help = "samples a cell at most"};
static const hr_opt opt_timeout = {.name = "--timeout",
                                   .group = MEASURING,
                                   .kind = HR_OPT_REAL,
                                   .min = 0.01,
                                   .max = 1e6,
                                   .metavar = "S",
                                   .help = "a cell that takes longer, loading included, is ended and failed (under a "
                                           "profiler or --capture: after the repetition that runs)"};
static const hr_opt opt_no_warmup = {
    .name = "--no-warmup", .group = MEASURING, .kind = HR_OPT_FLAG, .help = "no repetitions before the first sample"};
static const hr_opt opt_delay = {.name = "--delay",
                                 .group = MEASURING,
                                 .kind = HR_OPT_REAL,
                                 .max = 86400,
                                 .fallback = "0",
                                 .metavar = "S",
                                 .help = "seconds of rest between cells"};
static const char *const orders[] = {"given", "shuffled", NULL};
static const hr_opt opt_order = {.name = "--order",
                                 .group = MEASURING,
                                 .kind = HR_OPT_WORD,
                                 .choices = orders,
                                 .fallback = "given",
                                 .metavar = "ORDER",
                                 .help = "of the cells; a model is loaded once either way"};
static const hr_opt opt_slo = {.name = "--slo",
                               .group = MEASURING,
                               .kind = HR_OPT_TEXT,
                               .min = 1,
                               .metavar = "ttft=500ms,tpot=50ms",
                               .help = "isl rows also say how many requests a second meet all of these"};
static const hr_opt opt_tag = {.name = "--tag",
                               .group = MEASURING,
                               .kind = HR_OPT_KEYVALUE,
                               .metavar = "KEY=VALUE",
                               .help = "kept with every row; repeatable"};
static const hr_opt opt_dry_run = {.name = "--dry-run",
                                   .group = MEASURING,
                                   .kind = HR_OPT_FLAG,
                                   .help = "list the cells with memory and estimated time, and measure nothing"};
static const hr_opt opt_resume = {.name = "--resume",
                                  .group = MEASURING,
                                  .kind = HR_OPT_FLAG,
                                  .help = "continue the newest sweep of the store, when it was this one"};

#define PROFILING "Profiling"
static const char *const captures[] = {"none", "nvtx", "cuda-profiler", NULL};
static const hr_opt opt_capture = {
    .name = "--capture",
    .group = PROFILING,
    .kind = HR_OPT_WORD,
    .choices = captures,
    .fallback = "none",
    .metavar = "HOW",
    .help = "what a profiler is told to record of each cell: its samples, without loading and "
            "warm-up, as the NVTX range `capture` or by cuProfilerStart and cuProfilerStop"};
static const char *const levels[] = {"none", "cell", "phase", "layer", "op", NULL};
static const hr_opt opt_nvtx_level = {.name = "--nvtx-level",
                                      .group = PROFILING,
                                      .kind = HR_OPT_WORD,
                                      .choices = levels,
                                      .fallback = "op",
                                      .metavar = "LEVEL",
                                      .help =
                                          "how deep NVTX ranges go; a profiler takes some us a range, so `layer` for "
                                          "small models"};

static const hr_opt *const options[] = {HR_OPTS_AXES_SWEEP, &hr_opt_repetitions,
                                        &hr_opt_max_time,   &opt_max_samples,
                                        &opt_timeout,       &opt_no_warmup,
                                        &opt_delay,         &hr_opt_seed,
                                        &opt_order,         &hr_opt_prompt,
                                        &opt_slo,           &opt_tag,
                                        &opt_dry_run,       &opt_resume,
                                        &hr_opt_on_busy,    &hr_opt_busy_timeout,
                                        &opt_capture,       &opt_nvtx_level,
                                        HR_OPTS_OUTPUT,     &hr_opt_db,
                                        HR_OPTS_CONFIG,     NULL};

static const char *const examples[] = {
    "headroom sweep -m synth:tiny -p 64 -n 16 -r 3 --db none",
    "two cells of a tiny random model, in seconds",
    "headroom sweep -m synth:smollm2-135m --isl 128,512 --osl 64 --seqs 1,4 --quant bf16,int8",
    "whole requests: TTFT and TPOT by prompt length, batch and weight type",
    "headroom sweep -m synth:smollm2-135m -p 0 -n 32 -d 0-4096+1024 --kv-layout head,paged,zorder --dry-run",
    "decode against context depth for three KV layouts: what it would measure, and for how long",
    "headroom sweep -m synth:llama-3.1-8b -n 128 --device cuda:0 --quant bf16,int8,int4 --graphs 0,1",
    "decode on a GPU with three weight types, with and without a captured graph",
    "headroom sweep -m synth:tiny -p 0 -n 16 -r 3 --capture nvtx --db none",
    "the samples of a cell for a profiler that was started with it; `headroom nsys CELL` writes the whole line",
    NULL};

/* ---- from flags to options ---------------------------------------------------------------------------------------- */

static hr_ints ints(const hr_args *args, const char *name) {
    hr_ints list;
    list.v = hr_args_ints(args, name, &list.n);
    return list;
}

static hr_words words(const hr_args *args, const char *name) {
    hr_words list;
    list.v = hr_args_texts(args, name, &list.n);
    return list;
}

static hr_status read_axes(const hr_args *args, hr_devices *devices, hr_axes *a) {
    HR_TRY(hr_device_args(args, devices));
    *a = (hr_axes){.models = words(args, "-m"),
                   .quant = words(args, "--quant"),
                   .act = words(args, "--act"),
                   .k_type = words(args, "-ctk"),
                   .v_type = words(args, "-ctv"),
                   .kv_layout = words(args, "--kv-layout"),
                   .kv_alloc = words(args, "--kv-alloc"),
                   .isa = words(args, "--isa"),
                   .weights = words(args, "--weights"),
                   .fusion = words(args, "--fusion"),
                   .kernel = words(args, "--kernel"),
                   .n_prompt = ints(args, "-p"),
                   .n_gen = ints(args, "-n"),
                   .pg = ints(args, "-pg"),
                   .isl = ints(args, "--isl"),
                   .osl = ints(args, "--osl"),
                   .depth = ints(args, "-d"),
                   .seqs = ints(args, "--seqs"),
                   .batch = ints(args, "-b"),
                   .ubatch = ints(args, "-ub"),
                   .page_size = ints(args, "--page-size"),
                   .flash = ints(args, "-fa"),
                   .threads = ints(args, "-t"),
                   .device = {devices->v, devices->n},
                   .graphs = ints(args, "--graphs"),
                   .gpu_memory = words(args, "--gpu-memory"),
                   .gemm = words(args, "--gemm"),
                   .power_limit = ints(args, "--power-limit"),
                   .shuffled = !strcmp(hr_args_text(args, "--order"), "shuffled"),
                   .seed = (uint64_t)hr_args_int(args, "--seed")};
    hr_axes_read_settings(args, a);
    a->pg.n /= 2;
    /* The defaults of -p and -n are meant for a call that names no row at all. */
    if (hr_args_given(args, "-p") || hr_args_given(args, "-n") || a->pg.n || a->isl.n || a->osl.n) {
        if (!hr_args_given(args, "-p")) a->n_prompt.n = 0;
        if (!hr_args_given(args, "-n")) a->n_gen.n = 0;
    }
    return HR_OK;
}

/* "ttft=500ms,tpot=0.05s" */
static hr_status read_slo(const char *text, double *ttft_ms, double *tpot_ms) {
    *ttft_ms = *tpot_ms = NAN;
    while (text && *text) {
        double *target = !strncmp(text, "ttft=", 5) ? ttft_ms : !strncmp(text, "tpot=", 5) ? tpot_ms : NULL;
        char *end = NULL;
        const double value = target ? strtod(text + 5, &end) : 0;
        const bool ms = end && !strncmp(end, "ms", 2), s = end && *end == 's';
        if (!target || end == text + 5 || !(value > 0) || (!ms && !s) || (end[ms ? 2 : 1] && end[ms ? 2 : 1] != ','))
            HR_FAIL(HR_ERR_USAGE, "--slo %.80s: write it as ttft=500ms,tpot=50ms", text);
        *target = ms ? value : value * 1e3;
        text = end + (ms ? 2 : 1);
        if (*text == ',') text++;
    }
    return HR_OK;
}

/* Rows and the store hold these, and JSON is UTF-8. */
static hr_status check_utf8(const hr_args *args, const char *name) {
    const hr_words list = words(args, name);
    for (size_t i = 0; i < list.n; i++) {
        json_t *probe = json_string(list.v[i]);
        if (!probe) HR_FAIL(HR_ERR_USAGE, "%s %.200s: is not UTF-8 and cannot stand in a result", name, list.v[i]);
        json_decref(probe);
    }
    return HR_OK;
}

/* --tag, joined by ';'. */
static hr_status read_tags(const hr_args *args, char *out, size_t n) {
    const hr_words tags = words(args, "--tag");
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < tags.n; i++) {
        const int wrote = snprintf(out + used, n - used, "%s%s", i ? ";" : "", tags.v[i]);
        if (wrote < 0 || (size_t)wrote >= n - used) HR_FAIL(HR_ERR_USAGE, "--tag: more than %zu bytes of tags", n - 1);
        used += (size_t)wrote;
    }
    return HR_OK;
}

static hr_status read_measuring(const hr_args *args, hr_measure_options *m) {
    *m = (hr_measure_options){.rule = {.fixed = hr_args_given(args, "-r") ? (size_t)hr_args_int(args, "-r") : 0,
                                       .min_samples = 10,
                                       .max_samples = (size_t)hr_args_int(args, "--max-samples"),
                                       .min_seconds = 0.5,
                                       .max_seconds = hr_args_real(args, "--max-time"),
                                       .half_width = 0.005},
                              .no_warmup = hr_args_flag(args, "--no-warmup"),
                              .throttle = {.cool_down_s = hr_args_real(args, "--cool-down")},
                              .seed = (uint64_t)hr_args_int(args, "--seed")};
    return read_slo(hr_args_text(args, "--slo"), &m->slo_ttft_ms, &m->slo_tpot_ms);
}

/* Place of a word in a list that has it: choices are checked when flags are read. */
static int place(const char *word, const char *const *names, int n) {
    int i = 0;
    while (i < n - 1 && strcmp(word, names[i])) i++;
    return i;
}

/* Before anything is measured, and before an engine is made. */
static hr_status read_profiling(const hr_args *args, hr_sweep_options *o) {
    const char *level = hr_args_text(args, "--nvtx-level"), *capture = hr_args_text(args, "--capture");
    hr_nvtx_set_level((hr_nvtx_level)place(level, hr_nvtx_level_names, HR_NVTX_LEVEL_COUNT));
    o->measure.capture = (hr_capture)place(capture, hr_capture_names, HR_CAPTURE_COUNT);
    if (o->measure.capture != HR_CAPTURE_NONE) HR_TRY(hr_capture_open(o->measure.capture));
    const bool attached = hr_nvtx_attached();
    o->in_process = attached || o->measure.capture != HR_CAPTURE_NONE;
    if (o->measure.capture != HR_CAPTURE_NVTX || attached || o->output.quiet) return HR_OK;
    fprintf(stderr, "headroom: --capture nvtx: nothing will be captured, %s\n",
            hr_nvtx_built() ? "as no profiler is attached; `headroom nsys CELL` says how to run one"
                            : "as this build has no NVTX; build where nvtx3/nvToolsExt.h is (CUDA=FOLDER)");
    return HR_OK;
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

typedef struct command {
    hr_axes axes;
    hr_devices devices;
    hr_sweep_plan plan;
    hr_machine machine;
    hr_sweep_options options;
    char *text;
    char input[33], tags[1024];
    json_t *args;
} command;

/* Everything that ends with 2 but the store and the output, decided before the first cell. */
static hr_status set_up(const hr_args *args, command *c) {
    hr_sweep_options *o = &c->options;
    HR_TRY(hr_output_resolve(args, &o->output));
    HR_TRY(read_measuring(args, &o->measure));
    o->measure.throttle.policy =
        (hr_on_throttle)place(hr_args_text(args, "--on-throttle"), hr_on_throttle_names, HR_THROTTLE_COUNT);
    HR_TRY(read_profiling(args, o));
    hr_gpu_want_kernel_times(hr_args_flag(args, "--kernel-times")); /* workers inherit it */
    HR_TRY(check_utf8(args, "--model"));
    HR_TRY(check_utf8(args, "--tag"));
    HR_TRY(read_tags(args, c->tags, sizeof c->tags));
    const char *db = hr_args_text(args, "--db");
    o->db = strcmp(db, "none") ? db : NULL;
    o->tags = c->tags;
    o->timeout_s = hr_args_given(args, "--timeout") ? hr_args_real(args, "--timeout") : 0;
    o->delay_s = hr_args_real(args, "--delay");
    o->resume = hr_args_flag(args, "--resume");
    if (o->resume && !o->db) HR_FAIL(HR_ERR_USAGE, "--resume needs a store; give --db FILE");
    if (hr_args_given(args, "--prompt")) {
        HR_TRY(hr_read_file(hr_args_text(args, "--prompt"), &c->text, &o->measure.text_bytes));
        o->measure.text = c->text;
        if (!o->measure.text_bytes)
            HR_FAIL(HR_ERR_INPUT, "%s: the prompt is empty; give a text", hr_args_text(args, "--prompt"));
        hr_fingerprint(c->text, o->measure.text_bytes, c->input);
    }
    HR_TRY(read_axes(args, &c->devices, &c->axes));
    for (size_t i = 0; i < c->axes.threads.n; i++) HR_TRY(hr_threads_check(c->axes.threads.v[i]));
    c->axes.input = c->input;
    HR_TRY(hr_machine_get(&c->machine));
    HR_TRY(hr_sweep_plan_create(&c->axes, &c->machine, &c->plan));
    if (c->plan.n_skipped == c->plan.n) HR_FAIL(HR_ERR_USAGE, "no cell can be measured: %s", c->plan.cells[0].skip);
    if (!(c->args = hr_args_json(args))) HR_FAIL(HR_ERR_MEMORY, "no memory for the flags");
    o->args = c->args;
    return HR_OK;
}

static void say_plan(const hr_sweep_plan *plan, double seconds) {
    char time[48];
    if (seconds > 5400)
        snprintf(time, sizeof time, "%.0f h", seconds / 3600);
    else if (seconds >= 60)
        snprintf(time, sizeof time, "%.0f min %.0f s", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        snprintf(time, sizeof time, "%.0f s", seconds);
    fprintf(stderr, "%zu cell%s, %zu of them skipped, about %s\n", plan->n, plan->n == 1 ? "" : "s", plan->n_skipped,
            time);
}

static hr_status show_plan(command *c) {
    const hr_output *output = &c->options.output;
    json_t *rows = hr_dry_run(&c->plan, &c->options);
    const char *keys[HR_DRY_RUN_COLUMNS];
    hr_dry_run_columns(rows, output->format == HR_FORMAT_CSV || output->format == HR_FORMAT_SQL, keys);
    const hr_status status = hr_output_rows(output, rows, keys);
    double seconds = 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) seconds += json_number_value(json_object_get(row, "seconds"));
    if (status == HR_OK && !output->quiet) say_plan(&c->plan, seconds);
    json_decref(rows);
    return status;
}

/* The look at other processes that began before the plan was made: says, waits or refuses, as --on-busy asks. */
static hr_status look_at_others(const hr_args *args, hr_busy *busy, hr_sweep_options *o) {
    busy->timeout_s = hr_args_real(args, "--busy-timeout");
    busy->progress = o->output.progress;
    hr_interrupt_install();
    HR_TRY(hr_busy_end(busy));
    if (busy->looked) o->others = busy->busy ? "warn" : "ok";
    if (busy->busy && !o->output.quiet)
        fprintf(stderr, "headroom: before the first cell %s: times may be too long; --on-busy wait waits for its end\n",
                busy->warning);
    return HR_OK;
}

static int measure(const hr_args *args, hr_busy *busy, command *c) {
    const hr_status status = look_at_others(args, busy, &c->options);
    if (status == HR_ERR_INTERRUPTED) return HR_EXIT_INTERRUPTED;
    return status == HR_OK ? hr_sweep_run(&c->plan, &c->machine, &c->options) : hr_report_failure();
}

static int run(const hr_args *args) {
    command c = {0};
    hr_busy busy = {.on_busy = (hr_on_busy)place(hr_args_text(args, "--on-busy"), hr_on_busy_names, HR_BUSY_COUNT)};
    const bool dry = hr_args_flag(args, "--dry-run");
    int code;
    if (!dry && busy.on_busy != HR_BUSY_IGNORE) hr_busy_begin(&busy);
    if (set_up(args, &c) != HR_OK)
        code = hr_report_failure();
    else if (dry)
        code = show_plan(&c) == HR_OK ? 0 : hr_report_failure();
    else
        code = measure(args, &busy, &c);
    hr_busy_drop(&busy);
    hr_sweep_plan_destroy(&c.plan);
    hr_free(c.text);
    json_decref(c.args);
    return code;
}

const hr_command hr_command_sweep = {
    .name = "sweep",
    .task = "Measure",
    .summary = "measure every cell of the axes, store it, print a row",
    .synopsis = "headroom sweep [-m MODEL] [what is measured] [axes] [-o FORMAT] [--db FILE]",
    .options = options,
    .examples = examples,
    .run = run,
};
