/* headroom gate: a comparison as one exit code, and the files that CI systems read. */
#include "harness/ab/ab.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/cli/read_file.h"
#include "harness/compare/compare_options.h"
#include "harness/formats/json_get.h"
#include "harness/gate/gate.h"
#include "harness/history/history.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHAT  "What is judged"
#define HOW   "How it is judged"
#define FILES "What is written"

enum { REPETITIONS = 5, NOT_WRITTEN = 2 };

typedef struct call {
    const hr_args *args;
    hr_output output;
    hr_compare_rule limits;
    hr_gate_rule rule;
    json_t *allowed, *comparison, *verdict;
    char *candidate_id; /* of the store; NULL: a file or a program */
} call;

/* ---- the rule ----------------------------------------------------------------------------------------------------- */

static hr_status read_allowed(call *c) {
    const char *path = hr_args_text(c->args, "--allow");
    char *text;
    size_t n;
    if (!path) return HR_OK;
    HR_TRY(hr_read_file(path, &text, &n));
    const hr_status status = strlen(text) == n ? hr_gate_allow_parse(text, path, &c->allowed)
                                               : hr_fail(HR_ERR_INPUT, "%.200s holds a NUL byte: it is no text", path);
    hr_free(text);
    c->rule.allowed = c->allowed;
    return status;
}

static hr_status rule_of(call *c) {
    size_t n;
    const char *const *budgets = hr_args_texts(c->args, "--budget", &n);
    HR_TRY(hr_compare_rule_of(c->args, &c->limits));
    c->limits.holm = true;
    c->rule = (hr_gate_rule){.now = time(NULL),
                             .same_session = hr_args_flag(c->args, "--same-session"),
                             .spread = NAN,
                             .effect = c->limits.effect,
                             .level = c->limits.level};
    for (size_t i = 0; i < n; i++) HR_TRY(hr_gate_budgets_parse(budgets[i], &c->rule));
    return read_allowed(c);
}

static hr_status check_flags(const hr_args *args) {
    static const char *const of_stored[] = {"--candidate", "--same-session"}, *const of_ab[] = {"--pairs", "--timeout",
                                                                                                "--time-limit"};
    const bool ab = hr_args_given(args, "--ab"), stored = hr_args_given(args, "--baseline");
    size_t n;
    if (ab == stored)
        HR_FAIL(HR_ERR_USAGE,
                "gate needs %s of --ab BASE, two programs measured in pairs, and --baseline RUN, stored runs",
                ab ? "only one" : "one");
    for (size_t i = 0; i < sizeof of_ab / sizeof *of_ab; i++)
        if (stored && hr_args_given(args, of_ab[i]))
            HR_FAIL(HR_ERR_USAGE, "%s is of --ab: stored runs are measured already", of_ab[i]);
    for (size_t i = 0; i < 2; i++) {
        if (ab && hr_args_given(args, of_stored[i]))
            HR_FAIL(HR_ERR_USAGE, "%s is of --baseline: with --ab the candidate is this program, in the same session",
                    of_stored[i]);
    }
    const bool rest = hr_args_rest(args, &n) && n;
    if (stored && rest) HR_FAIL(HR_ERR_USAGE, "the flags behind -- are of --ab: --baseline measures nothing");
    if (ab && !rest)
        HR_FAIL(HR_ERR_USAGE,
                "what is to be measured? the flags of a sweep follow --: `headroom gate --ab HEAD~1 -- -p 64 -n 16`");
    return HR_OK;
}

/* ---- pairs -------------------------------------------------------------------------------------------------------- */

/* An interruption leaves a verdict of the pairs that were whole, and its exit code. */
static hr_status run_ab(call *c) {
    size_t n;
    const hr_ab_options options = {
        .a = hr_args_text(c->args, "--ab"),
        .b = "/proc/self/exe",
        .sweep_args = hr_args_rest(c->args, &n),
        .pairs = (size_t)hr_args_int(c->args, "--pairs"),
        .repetitions = REPETITIONS,
        .timeout_s = hr_args_real(c->args, "--timeout"),
        .limit_s = hr_args_given(c->args, "--time-limit") ? hr_args_real(c->args, "--time-limit") : 0,
        .rule = c->limits,
        .output = c->output};
    c->rule.pairs = true;
    hr_interrupt_install();
    const hr_status status = hr_ab_run(&options, &c->comparison);
    if (status != HR_OK && !(status == HR_ERR_INTERRUPTED && c->comparison)) return status;
    bool ok = json_object_set_new(c->comparison, "baseline", json_string(options.a)) == 0;
    if (status == HR_ERR_INTERRUPTED) ok = ok && json_object_set_new(c->comparison, "interrupted", json_true()) == 0;
    return ok ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while judging");
}

/* ---- stored runs -------------------------------------------------------------------------------------------------- */

typedef struct side {
    const char *text; /* as given; a run's id where it was looked up */
    json_t *cells, *run;
} side;

static const char *id_of(const side *s) {
    return hr_compare_is_file(s->text) ? "" : hr_word(s->run, "run_id");
}

/* The op rows of a cell on both sides, where both are in the store. */
static hr_status add_ops_of(hr_store *store, const side sides[2], const char *cell_id, json_t *all) {
    json_t *a = NULL, *b = NULL, *rows = NULL;
    hr_status status = hr_store_ops(store, id_of(&sides[0]), cell_id, &a);
    if (status == HR_OK) status = hr_store_ops(store, id_of(&sides[1]), cell_id, &b);
    if (status == HR_OK) status = hr_compare_ops(a, b, &rows);
    json_decref(a), json_decref(b);
    HR_TRY(status);
    return json_object_set_new(all, cell_id, rows) == 0 ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory for ops");
}

static hr_status add_ops(hr_store *store, const side sides[2], json_t *comparison) {
    json_t *all = json_object(), *row;
    size_t i;
    if (!all || json_object_set_new(comparison, "ops", all) != 0) HR_FAIL(HR_ERR_MEMORY, "out of memory for ops");
    if (!*id_of(&sides[0]) || !*id_of(&sides[1])) return HR_OK;
    json_array_foreach(json_object_get(comparison, "cells"), i, row) {
        const char *id = hr_word(row, "cell_id");
        if (hr_num(row, "b_median") > hr_num(row, "a_median") && *id && !json_object_get(all, id))
            HR_TRY(add_ops_of(store, sides, id, all));
    }
    return HR_OK;
}

static const json_t *cell_of(const json_t *cells, const char *cell_id) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) {
        if (!strcmp(hr_word(cell, "cell_id"), cell_id)) return cell;
    }
    return NULL;
}

/* The share of the roof that compare took for the row: the prefill's of rows that also decode. */
static const char *share_of(const json_t *row, const json_t *cell) {
    const char *metric = hr_word(row, "metric");
    const bool first = !strcmp(metric, "ttft_ms") || !strcmp(metric, "ttft_prefill_ms");
    const bool decodes = hr_num(cell, "isl") > 0 || hr_num(cell, "n_gen") > 0;
    return first && decodes ? "prefill_roof_fraction" : "roof_fraction";
}

/* How far nights differ, into each row. */
static hr_status add_nights(hr_store *store, const side *candidate, json_t *comparison) {
    const char *machine = hr_word(candidate->run, "machine_class");
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(comparison, "cells"), i, row) {
        const char *id = hr_word(row, "cell_id");
        double spread = NAN;
        size_t nights = 0;
        if (*machine && *id)
            HR_TRY(
                hr_history_spread(store, id, machine, share_of(row, cell_of(candidate->cells, id)), &spread, &nights));
        json_t *known = isfinite(spread) ? json_real(spread) : json_null();
        bool ok = json_object_set_new(row, "nights", json_integer((json_int_t)nights)) == 0;
        ok = json_object_set_new(row, "spread", known) == 0 && ok;
        if (!ok) HR_FAIL(HR_ERR_MEMORY, "out of memory while judging");
    }
    return HR_OK;
}

static hr_status find_last_good(call *c, hr_store *store, const char *candidate, char **run_id) {
    bool passed;
    char *id;
    if (!store || hr_compare_is_file(candidate))
        HR_FAIL(HR_ERR_USAGE,
                "--baseline last-good looks in a store before a run of it: name files by --baseline FILE");
    HR_TRY(hr_store_resolve_run(store, candidate, &id));
    const hr_status status = hr_gate_last_good(store, id, run_id, &passed);
    hr_free(id);
    if (status == HR_OK && !passed && !c->output.quiet)
        fprintf(stderr, "no run has passed a gate yet: the baseline is %s, which none refused\n", *run_id);
    return status;
}

static hr_status compare_stored(call *c, hr_store *store, side sides[2]) {
    char *good = NULL;
    hr_status status = HR_OK;
    if (!strcmp(sides[0].text, "last-good")) {
        status = find_last_good(c, store, sides[1].text, &good);
        sides[0].text = good;
    }
    for (int s = 0; s < 2 && status == HR_OK; s++)
        status = hr_compare_load(store, sides[s].text, &sides[s].cells, &sides[s].run);
    if (status == HR_OK &&
        (*id_of(&sides[0]) ? !strcmp(id_of(&sides[0]), id_of(&sides[1])) : !strcmp(sides[0].text, sides[1].text)))
        status =
            hr_fail(HR_ERR_USAGE, "baseline and candidate are the same run: a run compared with itself always passes");
    if (status == HR_OK) status = hr_compare_cells(sides[0].cells, sides[1].cells, &c->limits, &c->comparison);
    if (status == HR_OK && store) status = add_ops(store, sides, c->comparison);
    if (status == HR_OK && store && !c->rule.same_session) status = add_nights(store, &sides[1], c->comparison);
    for (int s = 0; s < 2 && status == HR_OK; s++) {
        const char *id = id_of(&sides[s]);
        json_t *name = json_string(*id ? id : sides[s].text);
        if (!name || json_object_set_new(c->comparison, s ? "candidate" : "baseline", name) != 0)
            status = hr_fail(HR_ERR_MEMORY, "out of memory while judging");
        if (s && *id && !(c->candidate_id = hr_strdup(id))) status = hr_fail(HR_ERR_MEMORY, "out of memory for an id");
    }
    hr_free(good);
    return status;
}

static hr_status run_stored(call *c) {
    const char *db = hr_args_text(c->args, "--db");
    side sides[2] = {{.text = hr_args_text(c->args, "--baseline")}, {.text = hr_args_text(c->args, "--candidate")}};
    const bool files = hr_compare_is_file(sides[0].text) && hr_compare_is_file(sides[1].text);
    hr_store *store = NULL;
    if (!files && strcmp(db, "none") != 0) HR_TRY(hr_store_open(db, false, &store));
    const hr_status status = compare_stored(c, store, sides);
    hr_store_close(store);
    for (int s = 0; s < 2; s++) json_decref(sides[s].cells), json_decref(sides[s].run);
    return status;
}

/* ---- what comes of it --------------------------------------------------------------------------------------------- */

typedef hr_status (*writer)(FILE *stream, const json_t *verdict);

static hr_status write_file(const char *path, writer write, const json_t *verdict) {
    hr_out out;
    if (!path) return HR_OK;
    HR_TRY(hr_out_open(path, &out));
    const hr_status status = write(out.stream, verdict);
    if (status == HR_OK) return hr_out_commit(&out);
    hr_out_abandon(&out);
    return status;
}

static bool annotates(const hr_args *args) {
    const char *word = hr_args_text(args, "--annotations"), *there = getenv("GITHUB_ACTIONS");
    return !strcmp(word, "on") || (!strcmp(word, "auto") && there && !strcmp(there, "true"));
}

static hr_status print(const call *c) {
    hr_out out;
    HR_TRY(hr_out_open(c->output.file, &out));
    const hr_status status = hr_gate_print(c->output.format, out.stream, c->verdict);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return c->output.to_stderr ? hr_gate_print(c->output.err_format, stderr, c->verdict) : HR_OK;
}

/* For --baseline last-good of the nights to come. A store that cannot be written to changes no verdict. */
static void remember(const call *c) {
    hr_store *store;
    char now[32];
    const struct tm *utc = gmtime(&c->rule.now);
    if (!c->candidate_id || !utc) return;
    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", utc);
    json_t *gate = json_pack("{s:O, s:O, s:O, s:s}", "verdict", json_object_get(c->verdict, "verdict"), "exit_code",
                             json_object_get(c->verdict, "exit_code"), "baseline",
                             json_object_get(c->verdict, "baseline"), "time", now);
    hr_status status = hr_store_open(hr_args_text(c->args, "--db"), true, &store);
    if (status == HR_OK) {
        status = hr_store_put_gate(store, c->candidate_id, gate);
        hr_store_close(store);
    }
    json_decref(gate);
    if (status != HR_OK && !c->output.quiet) fprintf(stderr, "the verdict was not stored: %s\n", hr_error());
}

/* Long work lies behind it: a file that can't be written keeps none of the others back. */
static hr_status deliver(const call *c) {
    const struct {
        const char *flag;
        writer write;
    } files[] = {{"--junit", hr_gate_junit}, {"--summary", hr_gate_summary}};
    hr_status first = HR_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const hr_status status = write_file(hr_args_text(c->args, files[i].flag), files[i].write, c->verdict);
        if (status != HR_OK) first = status, hr_report_failure();
    }
    if (annotates(c->args)) hr_gate_annotations(stderr, c->verdict);
    remember(c);
    const hr_status printed = print(c);
    if (printed != HR_OK) first = printed, hr_report_failure();
    return first;
}

static hr_status gate(call *c) {
    HR_TRY(check_flags(c->args));
    HR_TRY(hr_output_resolve(c->args, &c->output));
    HR_TRY(rule_of(c));
    HR_TRY(hr_output_check_all(c->args, (const char *const[]){"--junit", "--summary", "--out", NULL}));
    HR_TRY(hr_args_given(c->args, "--ab") ? run_ab(c) : run_stored(c));
    return hr_gate_judge(c->comparison, &c->rule, &c->verdict);
}

/* A verdict that stands is the exit code even where a file of it could not be written; a pass of which something is missing is
 * none. */
static int run(const hr_args *args) {
    call c = {.args = args};
    hr_status status = gate(&c);
    const bool judged = status == HR_OK;
    int code = (int)json_integer_value(json_object_get(c.verdict, "exit_code"));
    if (judged) status = deliver(&c);
    json_decref(c.allowed), json_decref(c.comparison), json_decref(c.verdict);
    hr_free(c.candidate_id);
    if (!judged) code = hr_report_failure();
    if (status == HR_ERR_INTERRUPTED) return HR_EXIT_INTERRUPTED;
    return judged && status != HR_OK && code == 0 ? NOT_WRITTEN : code;
}

static const char *const annotation_words[] = {"auto", "on", "off", NULL};
static const hr_opt opt_ab = {
    .name = "--ab",
    .group = WHAT,
    .kind = HR_OPT_TEXT,
    .min = 1,
    .metavar = "BASE",
    .help = "a program, or a revision of the git repository here: measured in pairs with this program, in one session"};
static const hr_opt opt_pairs = {.name = "--pairs",
                                 .group = WHAT,
                                 .kind = HR_OPT_INT,
                                 .min = 6,
                                 .max = 20,
                                 .fallback = "13",
                                 .metavar = "N",
                                 .help = "runs of either side of --ab, one of each in a pair, in random order",
                                 .advice = "fewer than 6 have no 95 % interval, more than 20 no exact test"};
static const hr_opt opt_timeout = {.name = "--timeout",
                                   .group = WHAT,
                                   .kind = HR_OPT_REAL,
                                   .min = 0.1,
                                   .max = 86400,
                                   .fallback = "600",
                                   .metavar = "S",
                                   .help = "seconds that one run of --ab may take"};
static const hr_opt opt_baseline = {
    .name = "--baseline",
    .group = WHAT,
    .kind = HR_OPT_TEXT,
    .min = 1,
    .metavar = "RUN",
    .help = "a stored run or a file to compare with; last-good: the newest that passed a gate"};
static const hr_opt opt_candidate = {.name = "--candidate",
                                     .group = WHAT,
                                     .kind = HR_OPT_TEXT,
                                     .min = 1,
                                     .fallback = "last",
                                     .metavar = "RUN",
                                     .help = "the stored run or file that is judged"};
static const hr_opt opt_same_session = {
    .name = "--same-session",
    .group = HOW,
    .kind = HR_OPT_FLAG,
    .help = "both runs were measured in one session: their samples may be compared as they are"};
static const hr_opt opt_budget = {.name = "--budget",
                                  .group = HOW,
                                  .kind = HR_OPT_TEXTS,
                                  .metavar = "M=+X%",
                                  .help =
                                      "how much slower a metric may be: ttft tpot itl e2e pp tg, as ttft=+5%,tpot=+3%"};
static const hr_opt opt_allow = {.name = "--allow",
                                 .group = HOW,
                                 .kind = HR_OPT_TEXT,
                                 .min = 1,
                                 .metavar = "FILE",
                                 .help = "known slowdowns, one a line: CELL METRIC until YYYY-MM-DD: reason"};
static const hr_opt opt_junit = {
    .name = "--junit", .group = FILES, .kind = HR_OPT_TEXT, .min = 1, .metavar = "FILE", .help = "JUnit XML"};
static const hr_opt opt_summary = {.name = "--summary",
                                   .group = FILES,
                                   .kind = HR_OPT_TEXT,
                                   .min = 1,
                                   .metavar = "FILE",
                                   .help = "a summary in GitHub's Markdown"};
static const hr_opt opt_annotations = {.name = "--annotations",
                                       .group = FILES,
                                       .kind = HR_OPT_WORD,
                                       .choices = annotation_words,
                                       .fallback = "auto",
                                       .metavar = "WHEN",
                                       .help = "::error lines on stderr; auto: where GITHUB_ACTIONS is true"};

static const hr_opt *const options[] = {&opt_ab,          &opt_pairs,      &opt_timeout,      &hr_opt_time_limit,
                                        &opt_baseline,    &opt_candidate,  &opt_same_session, &opt_budget,
                                        &opt_allow,       HR_OPTS_COMPARE, &opt_junit,        &opt_summary,
                                        &opt_annotations, HR_OPTS_OUTPUT,  &hr_opt_db,        NULL};
static const char *const examples[] = {
    "headroom gate --ab HEAD~1 --junit gate.xml -- -m synth:smollm2-135m -p 64 -n 16",
    "this program against a commit, built in a work tree under build/ab",
    "headroom gate --baseline last~1 --same-session",
    "the newest run against the one before it, measured right after each other",
    "headroom gate --baseline last-good --budget ttft=+5%,tpot=+3% --junit gate.xml",
    "against the last night that passed, by shares of the roof",
    NULL};

const hr_command hr_command_gate = {
    .name = "gate",
    .task = "Judge",
    .summary = "one verdict as an exit code: 0 pass, 1 regression, 3 inconclusive, 4 cells failed; JUnit, Markdown",
    .synopsis =
        "headroom gate --ab BASE [--pairs 13] [--budget M=+X%,...] [--allow FILE] [--junit FILE] -- SWEEP ARGS\n"
        "       headroom gate --baseline RUN|last-good [--candidate RUN] [--same-session] [--budget ...] ...",
    .rest = "SWEEP ARGS",
    .options = options,
    .examples = examples,
    .run = run,
};
