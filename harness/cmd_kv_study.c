/* headroom kv study: flags, progress, what was measured printed whatever happened. */
#include "harness/cmd_kv.h"

#include "harness/cli/interrupt.h"
#include "harness/cli/output.h"
#include "harness/cli/progress.h"
#include "harness/cli/read_file.h"
#include "harness/kv/study.h"
#include "harness/kv/study_print.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const part_names[] = {"layouts", "operations", "dtypes", "allocators", NULL};

const hr_opt hr_opt_study_quick = {.name = "--quick",
                                   .group = "Study",
                                   .kind = HR_OPT_FLAG,
                                   .help = "fewer shapes and samples: under three minutes on two cores (default)"};
const hr_opt hr_opt_study_full = {
    .name = "--full", .group = "Study", .kind = HR_OPT_FLAG, .help = "all shapes, page sizes and types: half an hour"};
const hr_opt hr_opt_study_part = {.name = "--part",
                                  .group = "Study",
                                  .kind = HR_OPT_WORD,
                                  .choices = part_names,
                                  .metavar = "PART",
                                  .help = "one part of the study alone"};
const hr_opt hr_opt_study_resume = {.name = "--resume",
                                    .group = "Study",
                                    .kind = HR_OPT_FLAG,
                                    .help = "go on with the newest study of the store that was interrupted"};
const hr_opt hr_opt_ppl_model = {.name = "--ppl-model",
                                 .group = "Study",
                                 .kind = HR_OPT_TEXT,
                                 .min = 1,
                                 .metavar = "FILE",
                                 .help =
                                     "a real model for the perplexity of the types; default: the one that tests use, "
                                     "where it is cached"};
const hr_opt hr_opt_ppl_text = {.name = "--ppl-text",
                                .group = "Study",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "FILE",
                                .help = "the text for it; default: the one that tests use, where it is found"};

/* The first of these that can be read. */
static const char *readable(const char *a, const char *b) {
    if (a && access(a, R_OK) == 0) return a;
    return b && access(b, R_OK) == 0 ? b : NULL;
}

static const char *cached_model(char *path, size_t n) {
    const char *folder = getenv("HEADROOM_MODELS"), *home = getenv("HOME");
    if (folder && *folder)
        snprintf(path, n, "%s/SmolLM2-135M-Instruct.Q4_1.gguf", folder);
    else
        snprintf(path, n, "%s/.cache/headroom-models/SmolLM2-135M-Instruct.Q4_1.gguf", home ? home : "/tmp");
    return readable(path, NULL);
}

static void show(size_t done, size_t total, double left_s, const char *what, void *context) {
    hr_progress_show(context, total ? (double)done / (double)total : 0, left_s, "%zu of %zu  %s", done + 1, total,
                     what);
}

static void note(const char *text, void *context) {
    (void)context;
    fprintf(stderr, "headroom: %s\n", text);
}

static hr_status options_of(const hr_args *args, char *path, size_t n, hr_study_options *o) {
    if (hr_args_flag(args, "--quick") && hr_args_flag(args, "--full"))
        HR_FAIL(HR_ERR_USAGE, "--quick and --full contradict each other; give one of them");
    *o = (hr_study_options){.quick = !hr_args_flag(args, "--full"),
                            .part = hr_args_text(args, "--part"),
                            .db = hr_args_text(args, "--db"),
                            .resume = hr_args_flag(args, "--resume"),
                            .ppl_model = hr_args_text(args, "--ppl-model"),
                            .ppl_text = hr_args_text(args, "--ppl-text"),
                            .threads = hr_args_given(args, "--threads") ? (unsigned)hr_args_int(args, "--threads") : 0,
                            .seed = 1,
                            .stop = hr_interrupted,
                            .progress = show,
                            .note = hr_args_flag(args, "--quiet") ? NULL : note};
    HR_TRY(hr_check_ppl_files(o->ppl_model, o->ppl_text));
    if (o->resume && !strcmp(o->db, "none")) HR_FAIL(HR_ERR_USAGE, "--resume needs a store; name one with --db");
    if (!o->ppl_model) o->ppl_model = cached_model(path, n);
    if (!o->ppl_text) o->ppl_text = readable("tests/golden/long.txt", NULL);
    return HR_OK;
}

static hr_status print(const hr_output *output, const json_t *study) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = hr_study_write(output->format, out.stream, study);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? hr_study_write(output->err_format, stderr, study) : HR_OK;
}

/* What was measured is printed whatever happened. */
int hr_kv_study(const hr_args *args) {
    hr_output output;
    hr_study_options options;
    hr_progress progress;
    char path[1024], *failed = NULL;
    json_t *result = NULL, *given = NULL;
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK) status = options_of(args, path, sizeof path, &options);
    if (status == HR_OK) status = hr_output_check(&output);
    if (status != HR_OK) return hr_report_failure();
    hr_progress_init(&progress, output.progress);
    hr_interrupt_install();
    options.context = &progress, options.args = given = hr_args_json(args);
    status = hr_study_run(&options, &result, &failed);
    hr_progress_clear(&progress);
    int code = 0;
    if (status == HR_ERR_INTERRUPTED && strcmp(options.db, "none"))
        hr_fail(status, "interrupted: what was measured is stored; the same command with --resume goes on");
    if (status != HR_OK) {
        hr_report_failure();
        code = status == HR_ERR_INTERRUPTED ? HR_EXIT_INTERRUPTED : 2;
    }
    if (result && print(&output, result) != HR_OK) code = hr_report_failure();
    if (failed) {
        fprintf(stderr, "headroom: not measured: %s\n", failed);
        if (code == 0) code = 4;
    }
    hr_free(failed);
    json_decref(result), json_decref(given);
    return code;
}
