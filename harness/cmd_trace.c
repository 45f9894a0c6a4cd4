/* headroom trace: one request, recorded op by op, as a file for Perfetto and a table. */
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/text_run.h"
#include "harness/trace/trace_request.h"
#include "harness/version.h"
#include "kernels/base/clock.h"

#include <string.h>
#include <unistd.h>

enum { MB = 1000000, MOST = 1 << 20 };

typedef struct tracing {
    hr_text_run run;
    hr_output output; /* of the table */
    hr_progress progress;
    const char *path; /* of the trace */
    uint32_t isl, osl, seqs;
    uint64_t max_bytes;
    uint64_t warm_ns; /* when the warm-up began */
    hr_trace trace;
    bool whole; /* the request was not interrupted */
    uint64_t events, bytes;
} tracing;

/* ---- before any long work ---- */

/* The flag --out names the trace; the table goes to stdout. */
static hr_status resolve_output(const hr_args *args, tracing *t) {
    HR_TRY(hr_output_resolve(args, &t->output));
    HR_TRY(hr_output_check(&t->output));
    t->path = t->output.file;
    t->output.file = NULL;
    if (!t->output.format_given) t->output.format = isatty(STDOUT_FILENO) ? HR_FORMAT_TABLE : HR_FORMAT_MD;
    return HR_OK;
}

static hr_status resolve(const hr_args *args, tracing *t) {
    t->isl = (uint32_t)hr_args_int(args, "--isl");
    t->osl = (uint32_t)hr_args_int(args, "--osl");
    t->seqs = (uint32_t)hr_args_int(args, "--seqs");
    t->max_bytes = (uint64_t)hr_args_int(args, "--max-mb") * MB;
    HR_TRY(hr_text_run_init(args, false, &t->run));
    const hr_model_info *info = &t->run.info;
    if (t->isl + t->osl - 1 > info->ctx)
        HR_FAIL(HR_ERR_INPUT, "--isl %u and --osl %u do not fit the context of %s, %u; lower one of them", t->isl,
                t->osl, info->filename, info->ctx);
    t->run.args.config.max_seqs = t->seqs;
    return resolve_output(args, t);
}

/* ---- the request ---- */

/* After the warm-up the line says how long the recorded request will take, and is left alone. */
static void show(double share, void *context) {
    tracing *t = context;
    if (share < 1) {
        hr_progress_show(&t->progress, share, -1, "warming up");
        return;
    }
    const double seconds = (double)(hr_now_ns() - t->warm_ns) * 1e-9;
    hr_progress_stage(&t->progress, "recording");
    hr_progress_show(&t->progress, 0, seconds, "recording the request");
}

static hr_status record(tracing *t) {
    HR_TRY(hr_text_run_open(&t->run, t->isl + t->osl - 1, &t->progress));
    const hr_trace_request request = {.engine = t->run.engine,
                                      .vocab = t->run.info.vocab,
                                      .isl = t->isl,
                                      .osl = t->osl,
                                      .seqs = t->seqs,
                                      .batch = t->run.args.config.batch,
                                      .ubatch = t->run.args.config.ubatch,
                                      .stop = hr_interrupted,
                                      .progress = show,
                                      .context = t};
    hr_progress_stage(&t->progress, "warming up");
    hr_progress_show(&t->progress, 0, -1, "warming up");
    t->warm_ns = hr_now_ns();
    return hr_trace_request_run(&request, t->max_bytes, &t->trace, &t->whole);
}

/* ---- what is written ---- */

static hr_status write_file(tracing *t) {
    char process[800], cost[40], device[16];
    const hr_model_info *info = &t->run.info;
    const hr_engine_facts engine = hr_engine_get_facts(t->run.engine);
    const hr_chrome_arg facts[] = {
        {.key = "headroom", .text = HR_VERSION},
        {.key = "commit", .text = hr_commit()},
        {.key = "model", .text = info->filename},
        {.key = "quant", .text = hr_quant_name(t->run.args.quant)},
        {.key = "act", .text = hr_act_name(engine.act)},
        {.key = "isa", .text = hr_isa_name(engine.isa)},
        {.key = "threads", .number = engine.threads},
        {.key = "device", .text = device},
        {.key = "simulated", .text = engine.simulated ? "yes" : "no"},
        {.key = "isl", .number = t->isl},
        {.key = "osl", .number = t->osl},
        {.key = "seqs", .number = t->seqs},
        {.key = "whole_request", .text = t->whole ? "yes" : "no"},
        {.key = "recording_ns_per_op", .text = cost},
    };
    hr_out out;
    snprintf(cost, sizeof cost, "%.0f", hr_engine_record_cost().op_ns);
    hr_device_name(t->run.args.device, device);
    snprintf(process, sizeof process, "headroom %s %s isl%u osl%u", info->filename, hr_quant_name(t->run.args.quant),
             t->isl, t->osl);
    t->trace.process = process, t->trace.facts = facts, t->trace.n_facts = sizeof facts / sizeof *facts;
    HR_TRY(hr_trace_fit(&t->trace, t->max_bytes));
    HR_TRY(hr_trace_bytes(&t->trace, &t->bytes));
    HR_TRY(hr_out_open(t->path, &out));
    t->events = hr_trace_write(&t->trace, out.stream);
    t->trace.process = NULL, t->trace.facts = NULL, t->trace.n_facts = 0;
    return hr_out_commit(&out);
}

static hr_status print_summary(const tracing *t) {
    json_t *rows;
    const bool table = t->output.format == HR_FORMAT_TABLE || t->output.format == HR_FORMAT_MD;
    HR_TRY(hr_trace_summary(&t->trace, &rows));
    const hr_status status = hr_output_rows(&t->output, rows, table ? hr_trace_summary_shown : hr_trace_summary_keys);
    json_decref(rows);
    return status;
}

static void say(const tracing *t) {
    if (t->output.quiet) return;
    fprintf(stderr, "headroom: %s: %llu events, %.1f MB; open it in https://ui.perfetto.dev\n", t->path,
            (unsigned long long)t->events, (double)t->bytes / MB);
    const unsigned long long dropped = t->trace.ops_dropped + t->trace.jobs_dropped;
    if (dropped)
        fprintf(stderr,
                "headroom: it holds the newest events: %llu older ones did not fit %.0f MB; raise --max-mb or lower "
                "--osl\n",
                dropped, (double)t->max_bytes / MB);
    if (!t->whole) fprintf(stderr, "headroom: interrupted: the trace holds what was recorded until then\n");
}

static hr_status trace(const hr_args *args, tracing *t) {
    HR_TRY(resolve(args, t));
    hr_progress_init(&t->progress, t->output.progress);
    hr_interrupt_install();
    hr_status status = record(t);
    if (status == HR_OK) {
        hr_progress_stage(&t->progress, "writing");
        hr_progress_show(&t->progress, 1, -1, "writing %s", t->path);
        status = write_file(t);
    }
    hr_progress_clear(&t->progress);
    if (status != HR_OK) return status;
    say(t);
    return print_summary(t);
}

static int run_command(const hr_args *args) {
    tracing t = {0};
    const hr_status status = trace(args, &t);
    hr_text_run_fini(&t.run);
    if (status != HR_OK) hr_report_failure();
    if (status == HR_ERR_INTERRUPTED || (status == HR_OK && !t.whole)) return HR_EXIT_INTERRUPTED;
    return status == HR_OK ? 0 : 2;
}

#define ROW(id, ...) static const hr_opt opt_##id = {__VA_ARGS__}
ROW(isl, .name = "--isl", .group = "Request", .kind = HR_OPT_INT, .min = 1, .max = MOST, .fallback = "512",
    .metavar = "N", .help = "tokens of the prompt");
ROW(osl, .name = "--osl", .group = "Request", .kind = HR_OPT_INT, .min = 1, .max = MOST, .fallback = "64",
    .metavar = "N", .help = "output tokens");
ROW(seqs, .name = "--seqs", .alias = "-npl", .group = "Request", .kind = HR_OPT_INT, .min = 1, .max = 4096,
    .fallback = "1", .metavar = "N", .help = "such requests decoded together");
ROW(out, .name = "--out", .group = "Trace", .kind = HR_OPT_TEXT, .min = 1, .fallback = "trace.json", .metavar = "FILE",
    .help = "the trace, written beside and then renamed; folders are made");
ROW(max_mb, .name = "--max-mb", .group = "Trace", .kind = HR_OPT_INT, .min = 1, .max = MOST, .fallback = "190",
    .metavar = "N", .help = "largest size of the file in MB: of a longer request the newest events are kept");

static const hr_opt *const options[] = {&hr_opt_model,       &opt_isl,       &opt_osl,
                                        &opt_seqs,           &opt_out,       &opt_max_mb,
                                        HR_OPTS_AXES,        &hr_opt_output, &hr_opt_output_err,
                                        &hr_opt_json,        &hr_opt_quiet,  &hr_opt_verbose,
                                        &hr_opt_no_progress, HR_OPTS_CONFIG, NULL};
static const char *const examples[] = {
    "headroom trace -m synth:tiny --isl 64 --osl 8 --out /tmp/headroom-trace.json",
    "a prefill and seven decode steps; the file opens in https://ui.perfetto.dev or chrome://tracing",
    "headroom trace -m synth:tiny --isl 256 -ub 64 --osl 1 -t 1 -o csv --out /tmp/headroom-trace.json",
    "a prefill in four micro-batches on one thread, the table of ops as CSV", NULL};

const hr_command hr_command_trace = {
    .name = "trace",
    .task = "Profile",
    .summary = "record one request op by op: a file for Perfetto, and a table",
    .synopsis = "headroom trace -m MODEL [--isl N] [--osl N] [engine flags] [--out FILE] [--max-mb N] [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run_command,
};
