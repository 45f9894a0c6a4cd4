/* headroom advise: what is wrong in a stored run, by what evidence, and what to do. */
#include "harness/advice/advice.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/store/store.h"

#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char *const finding_keys[] = {"rule", "cell_id", "test",     "finding",  "evidence", "value",
                                           "unit", "todo",    "severity", "cost_pct", NULL};
/* What fits a terminal; the rest stands below it. */
static const char *const short_keys[] = {"rule", "cell_id", "test", "value", "unit", "cost_pct|=cost (%)", NULL};
static const char *const rule_keys[] = {"rule", "asks", "columns", "source", "live", NULL};
static const char *const short_rule_keys[] = {"rule", "asks", "live|=provoked by", NULL};

static const char *word(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

static bool for_people(const hr_output *output) {
    return output->format == HR_FORMAT_TABLE || output->format == HR_FORMAT_MD;
}

/* Sentences stand apart from the table: a column of them would not fit a terminal. They are the result, so they go where
 * it goes. */
static void say(FILE *stream, const json_t *findings) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)findings, i, row) {
        fprintf(stream, "\n%zu. %s", i + 1, word(row, "rule"));
        if (*word(row, "cell_id")) fprintf(stream, " (%s, %.12s)", word(row, "test"), word(row, "cell_id"));
        fprintf(stream, ": %s.\n   Evidence: %s.\n   To do: %s.\n", word(row, "finding"), word(row, "evidence"),
                word(row, "todo"));
    }
}

static hr_status write_findings(hr_format format, FILE *stream, const json_t *findings) {
    const bool people = format == HR_FORMAT_TABLE || format == HR_FORMAT_MD;
    if (people && json_array_size(findings) == 0) return HR_OK;
    HR_TRY(hr_rows_write(format, stream, findings, people ? short_keys : finding_keys));
    if (people) say(stream, findings);
    return hr_stream_flush(stream);
}

static hr_status print(const hr_output *output, const json_t *findings, size_t n_rules) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = write_findings(output->format, out.stream, findings);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    if (output->to_stderr) HR_TRY(write_findings(output->err_format, stderr, findings));
    if (!json_array_size(findings) && !output->quiet && for_people(output))
        fprintf(stderr, "none of %zu rules found anything\n", n_rules);
    return HR_OK;
}

static hr_status list(const hr_output *output, const json_t *rules) {
    return hr_output_rows(output, rules, for_people(output) ? short_rule_keys : rule_keys);
}

/* CELL, an id that may be cut short, of this run. */
static hr_status cell_of(hr_store *store, const char *text, const char *run_id, char **cell_id) {
    char whole[200], *its_run = NULL;
    const bool placed = strchr(text, '@') || !strncmp(text, "last", 4);
    snprintf(whole, sizeof whole, placed ? "%.100s" : "%.100s@%.60s", text, run_id);
    HR_TRY(hr_store_resolve_cell(store, whole, cell_id, &its_run));
    const bool same = !strcmp(its_run, run_id);
    hr_free(its_run);
    if (same) return HR_OK;
    hr_free(*cell_id);
    *cell_id = NULL;
    HR_FAIL(HR_ERR_INPUT, "--cell %.80s is no cell of run %s; `headroom runs %s` lists them", text, run_id, run_id);
}

static hr_status advise(const hr_args *args, const hr_output *output, const json_t *rules) {
    const char *db = hr_args_text(args, "--db"), *cell = hr_args_text(args, "--cell");
    const char *run = hr_args_n_positional(args) ? hr_args_positional(args, 0) : "last";
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none leaves nothing to look at: name a store");
    hr_store *store = NULL;
    char *run_id = NULL, *cell_id = NULL;
    json_t *findings = NULL;
    HR_TRY(hr_store_open(db, false, &store));
    hr_status status = hr_store_resolve_run(store, run, &run_id);
    if (status == HR_OK && cell) status = cell_of(store, cell, run_id, &cell_id);
    if (status == HR_OK) status = hr_advice_of_run(store, run_id, cell_id, &findings);
    hr_store_close(store);
    if (status == HR_OK) status = print(output, findings, json_array_size(rules));
    json_decref(findings);
    hr_free(run_id), hr_free(cell_id);
    return status;
}

static int run_advise(const hr_args *args) {
    hr_output output;
    json_t *rules = hr_advice_rules();
    hr_status status = rules ? hr_output_resolve(args, &output) : hr_fail(HR_ERR_MEMORY, "no memory for the rules");
    if (status == HR_OK) status = hr_args_flag(args, "--rules") ? list(&output, rules) : advise(args, &output, rules);
    json_decref(rules);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt opt_cell = {.name = "--cell",
                                .group = "What is looked at",
                                .kind = HR_OPT_TEXT,
                                .min = 1,
                                .metavar = "CELL",
                                .help =
                                    "what concerns this cell alone: an id of the run, which may be cut short; it is "
                                    "still compared with the others"};
static const hr_opt opt_rules = {.name = "--rules",
                                 .group = "What is looked at",
                                 .kind = HR_OPT_FLAG,
                                 .help = "the rules, and what provokes each; no store is read"};
static const hr_opt *const options[] = {&opt_cell, &opt_rules, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom advise",
                                       "what is wrong in the newest run, most costly first",
                                       "headroom advise last~1 --json",
                                       "of the run before it, for a program",
                                       "headroom advise --rules",
                                       "what is looked for",
                                       NULL};

const hr_command hr_command_advise = {
    .name = "advise",
    .task = "Profile",
    .summary = "rules over a stored run: what is wrong, by what evidence, what to do",
    .synopsis =
        "headroom advise [RUN] [--cell CELL] [--rules] [--db FILE] [-o FORMAT]     RUN: last, last~1 or the first "
        "digits of an id",
    .options = options,
    .positional = "RUN",
    .max_positional = 1,
    .examples = examples,
    .run = run_advise,
};
