/* headroom claims: published claims about LLM inference, tested on this machine. */
#include "harness/claims/claims.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/kept_run.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/progress.h"
#include "harness/cli/read_file.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 128 };

static const hr_opt opt_only = {.name = "--only",
                                .group = "Measurement",
                                .kind = HR_OPT_TEXTS,
                                .min = 1,
                                .metavar = "ID",
                                .help = "these claims; the first words of an id stand for all that begin so (flash)"};
static const hr_opt opt_quick = {.name = "--quick",
                                 .group = "Measurement",
                                 .kind = HR_OPT_FLAG,
                                 .help = "smaller shapes and fewer samples: about four minutes on two cores"};
static const hr_opt opt_list = {.name = "--list",
                                .group = "Measurement",
                                .kind = HR_OPT_FLAG,
                                .help = "the claims and how each is tested; nothing is measured"};

static const hr_opt opt_ppl_model = {.name = "--ppl-model",
                                     .group = "Measurement",
                                     .kind = HR_OPT_TEXT,
                                     .min = 1,
                                     .metavar = "FILE",
                                     .help = "trained weights for claims about quality; default: the SmolLM2 of the "
                                             "tests, where it was fetched"};
static const hr_opt opt_ppl_text = {.name = "--ppl-text",
                                    .group = "Measurement",
                                    .kind = HR_OPT_TEXT,
                                    .min = 1,
                                    .metavar = "FILE",
                                    .help = "the text that it is to predict; default: tests/golden/long.txt, where "
                                            "that is"};

/* What the callbacks of a run of claims share. */
typedef struct session {
    hr_progress progress;
    hr_kept_run kept;
} session;

static void show(double share, const char *id, void *context) {
    hr_progress_show(&((session *)context)->progress, share, -1, "claims: %s", id);
}

static const char *const all_keys[] = {"id",   "claim", "source",  "published", "measured", "ci95_lo", "ci95_hi",
                                       "unit", "n",     "verdict", "reason",    "how",      NULL};
static const char *const people_keys[] = {"id",   "published", "measured", "ci95_lo", "ci95_hi",
                                          "unit", "n",         "verdict",  NULL};
static const char *const list_keys[] = {"id", "claim", "published", "how", NULL};

static bool for_people(hr_format format) {
    return format == HR_FORMAT_TABLE || format == HR_FORMAT_MD;
}

/* The reasons stand under the table: they are sentences, and a column of them would not fit a terminal. */
static void say_reasons(const json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row)
        fprintf(stderr, "%s: %s\n", json_string_value(json_object_get(row, "id")),
                json_string_value(json_object_get(row, "reason")));
}

static hr_status list(const hr_output *output) {
    json_t *rows = json_array();
    for (const hr_claim *c = hr_claim_table; c->id; c++)
        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:s}", "id", c->id, "claim", c->claim, "published",
                                              c->published, "how", c->how));
    const hr_status status = hr_output_rows(output, rows, list_keys);
    json_decref(rows);
    return status;
}

static hr_status keep(const json_t *row, void *context) {
    return hr_kept_run_put(&((session *)context)->kept, row);
}

/* What was measured is printed whatever happened. */
static hr_status print(const hr_output *output, const json_t *rows) {
    const bool people = for_people(output->format);
    if (json_array_size(rows) == 0) return HR_OK;
    HR_TRY(hr_output_rows(output, rows, people ? people_keys : all_keys));
    if (people && !output->quiet) say_reasons(rows);
    return HR_OK;
}

static hr_status claims(const hr_args *args) {
    hr_output output;
    session s = {.kept = {.command = "claims", .args = args, .put = hr_store_put_claims}};
    HR_TRY(hr_output_resolve(args, &output));
    if (hr_args_flag(args, "--list")) return list(&output);
    HR_TRY(hr_output_check(&output));
    hr_claims_options options = {.quick = hr_args_flag(args, "--quick"),
                                 .stop = hr_interrupted,
                                 .progress = show,
                                 .keep = keep,
                                 .context = &s,
                                 .ppl_model = hr_args_text(args, "--ppl-model"),
                                 .ppl_text = hr_args_text(args, "--ppl-text")};
    const char *words[WORDS_MAX];
    size_t n = 0;
    const char *const *given = hr_args_texts(args, "--only", &n);
    for (size_t i = 0; i < n && options.n_only < WORDS_MAX; i++) words[options.n_only++] = given[i];
    for (size_t i = 0; i < hr_args_n_positional(args) && options.n_only < WORDS_MAX; i++)
        words[options.n_only++] = hr_args_positional(args, i);
    options.only = words;
    HR_TRY(hr_claims_check(&options));
    HR_TRY(hr_check_ppl_files(options.ppl_model, options.ppl_text));
    HR_TRY(hr_kept_run_open(&s.kept));
    hr_progress_init(&s.progress, output.progress);
    hr_interrupt_install();
    json_t *rows = NULL;
    const hr_status status = hr_kept_run_close(&s.kept, hr_claims_run_all(&options, &rows));
    hr_progress_clear(&s.progress);
    char said[512];
    snprintf(said, sizeof said, "%s", hr_error());
    const hr_status printed = print(&output, rows);
    json_decref(rows);
    if (status == HR_OK) return printed;
    return hr_fail(status, "%s", said);
}

static int run(const hr_args *args) {
    const hr_status status = claims(args);
    if (status != HR_OK) hr_report_failure();
    return hr_exit_code(status);
}

static const hr_opt *const options[] = {&opt_only,     &opt_quick,     &opt_list,  &opt_ppl_model,
                                        &opt_ppl_text, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom claims --quick",
                                       "a first answer to all of them",
                                       "headroom claims --only kv-size,mbu-example,softmax-fp32 --json",
                                       "those that arithmetic settles, for a program",
                                       "headroom claims --list",
                                       "what is claimed, and how it is tested",
                                       NULL};

const hr_command hr_command_claims = {
    .name = "claims",
    .task = "Measure",
    .summary = "published claims about LLM inference, tested on this machine: holds, does not hold, no difference",
    .synopsis = "headroom claims [--only ID...] [--quick] [--ppl-model FILE] [-o FORMAT] [--db FILE]",
    .options = options,
    .positional = "ID",
    .max_positional = WORDS_MAX,
    .examples = examples,
    .run = run,
};
