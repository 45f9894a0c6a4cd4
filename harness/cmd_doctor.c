/* headroom doctor: is this machine fit to measure on? */
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/progress.h"
#include "harness/doctor/doctor.h"
#include "harness/formats/json_get.h"

#include <string.h>

#define EXAMINATION "Examination"
static const hr_opt opt_no_noise = {.name = "--no-noise",
                                    .group = EXAMINATION,
                                    .kind = HR_OPT_FLAG,
                                    .help = "leave out the noise test, which takes 3 s on all cores"};
static const hr_opt opt_pairs = {.name = "--pairs",
                                 .group = EXAMINATION,
                                 .kind = HR_OPT_INT,
                                 .min = 6,
                                 .max = 64,
                                 .fallback = "13",
                                 .metavar = "N",
                                 .help = "pairs of runs for which the smallest difference that can be found is told"};

static const char *const columns[] = {"name", "status", "why", "fix", NULL};

/* Reasons are sentences: on a terminal they are broken at its usual width, and what mends stands on a line to copy. */
static hr_status write_table(FILE *stream, const json_t *checks) {
    enum { NAME = 15, WHY = NAME + 9, PAGE = 110 };
    size_t i;
    json_t *check;
    fprintf(stream, "%-*s%-*s%s\n", NAME, "name", WHY - NAME, "status", "why");
    json_array_foreach((json_t *)checks, i, check) {
        const char *fix = hr_word(check, "fix");
        fprintf(stream, "%-*s%-*s", NAME, hr_word(check, "name"), WHY - NAME, hr_word(check, "status"));
        hr_wrapped(stream, hr_word(check, "why"), WHY, PAGE);
        if (*fix) fprintf(stream, "%*sfix: %s\n", WHY, "", fix);
    }
    return hr_stream_flush(stream);
}

static hr_status write_as(hr_format format, FILE *stream, const json_t *result) {
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, result);
    if (format == HR_FORMAT_TABLE) return write_table(stream, json_object_get(result, "checks"));
    return hr_rows_write(format, stream, json_object_get(result, "checks"), columns);
}

static hr_status print(const hr_output *output, const json_t *result) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = write_as(output->format, out.stream, result);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? write_as(output->err_format, stderr, result) : HR_OK;
}

static hr_status doctor(const hr_args *args, json_t **result) {
    hr_output output;
    hr_progress progress;
    HR_TRY(hr_output_resolve(args, &output));
    HR_TRY(hr_output_check(&output));
    const char *db = hr_args_text(args, "--db");
    const hr_doctor_options options = {.root = "",
                                       .noise = !hr_args_flag(args, "--no-noise"),
                                       .pairs = (size_t)hr_args_int(args, "--pairs"),
                                       .db = strcmp(db, "none") ? db : NULL};
    hr_interrupt_install();
    hr_progress_init(&progress, output.progress);
    if (options.noise) hr_progress_show(&progress, 0, 4, "looking, then 3 s of noise test");
    const hr_status status = hr_doctor(&options, result);
    hr_progress_clear(&progress);
    return status == HR_OK ? print(&output, *result) : status;
}

static int run(const hr_args *args) {
    json_t *result = NULL, *check;
    size_t i;
    const hr_status status = doctor(args, &result);
    int code = status == HR_OK ? 0 : status == HR_ERR_INTERRUPTED ? HR_EXIT_INTERRUPTED : hr_report_failure();
    json_array_foreach(json_object_get(result, "checks"), i, check) {
        const char *word = json_string_value(json_object_get(check, "status"));
        if (code == 0 && word && !strcmp(word, "bad")) code = 3;
    }
    json_decref(result);
    return code;
}

static const hr_opt *const options[] = {&opt_no_noise, &opt_pairs, &hr_opt_db, HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {"headroom doctor",
                                       "every check with its reason and what mends it; exit code 3 when one is bad",
                                       "headroom doctor --no-noise -o csv",
                                       "what can be seen without measuring, as CSV",
                                       "headroom doctor --pairs 26 --json",
                                       "the smallest difference that 26 pairs of runs can find, for a program",
                                       NULL};

const hr_command hr_command_doctor = {
    .name = "doctor",
    .task = "Look up",
    .summary = "is this machine fit to measure on: clocks, limits, neighbours, noise, and what mends it",
    .synopsis = "headroom doctor [--no-noise] [--pairs N] [--db FILE] [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run,
};
