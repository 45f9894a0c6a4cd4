/* headroom compare: two stored runs or files, cell by cell, with a verdict about B seen from A. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/compare/compare.h"
#include "harness/compare/compare_options.h"
#include "harness/formats/json_get.h"

#include <string.h>

enum { NOTHING_COMPARED = 3 };

static const hr_opt opt_across = {.name = "--across-machines",
                                  .group = "What is compared",
                                  .kind = HR_OPT_FLAG,
                                  .help = "two machines side by side: times and shares of each one's roof, no verdict"};
static const hr_opt opt_ops = {.name = "--ops",
                               .group = "What is compared",
                               .kind = HR_OPT_FLAG,
                               .help = "which op classes got slower or faster, from the op rows of stored runs"};

typedef struct side {
    const char *text;
    json_t *cells, *run;
} side;

/* A store is opened only for a side that is no file. */
static hr_status open_store(const hr_args *args, const side sides[2], hr_store **store) {
    const char *db = hr_args_text(args, "--db");
    *store = NULL;
    if (hr_compare_is_file(sides[0].text) && hr_compare_is_file(sides[1].text)) return HR_OK;
    return strcmp(db, "none") ? hr_store_open(db, false, store) : HR_OK;
}

static hr_status ops_of(hr_store *store, const side *s, const char *cell_id, json_t **out) {
    const char *run_id = hr_word(s->run, "run_id");
    if (store && *run_id && !hr_compare_is_file(s->text)) return hr_store_ops(store, run_id, cell_id, out);
    *out = json_array();
    return *out ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while comparing ops");
}

/* ops: {cell_id: rows} of the cells that were compared. */
static hr_status add_ops(hr_store *store, const side sides[2], json_t *comparison) {
    json_t *all = json_object(), *row;
    size_t i;
    if (!all || json_object_set_new(comparison, "ops", all) != 0)
        HR_FAIL(HR_ERR_MEMORY, "out of memory while comparing ops");
    json_array_foreach(json_object_get(comparison, "cells"), i, row) {
        const char *id = hr_word(row, "cell_id");
        json_t *a = NULL, *b = NULL, *rows = NULL;
        if (!*id || json_object_get(all, id)) continue;
        hr_status status = ops_of(store, &sides[0], id, &a);
        if (status == HR_OK) status = ops_of(store, &sides[1], id, &b);
        if (status == HR_OK) status = hr_compare_ops(a, b, &rows);
        json_decref(a), json_decref(b);
        HR_TRY(status);
        if (json_object_set_new(all, id, rows) != 0) HR_FAIL(HR_ERR_MEMORY, "out of memory while comparing ops");
    }
    return HR_OK;
}

static hr_status compare(const hr_args *args, side sides[2], json_t **comparison) {
    hr_compare_rule rule;
    hr_store *store;
    HR_TRY(hr_compare_rule_of(args, &rule));
    rule.across_machines = hr_args_flag(args, "--across-machines");
    HR_TRY(open_store(args, sides, &store));
    hr_status status = HR_OK;
    for (int s = 0; s < 2 && status == HR_OK; s++)
        status = hr_compare_load(store, sides[s].text, &sides[s].cells, &sides[s].run);
    if (status == HR_OK) status = hr_compare_cells(sides[0].cells, sides[1].cells, &rule, comparison);
    if (status == HR_OK && hr_args_flag(args, "--ops")) status = add_ops(store, sides, *comparison);
    hr_store_close(store);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    json_t *comparison = NULL;
    side sides[2] = {{.text = hr_args_positional(args, 0)}, {.text = hr_args_positional(args, 1)}};
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK) status = hr_output_check(&output);
    if (status == HR_OK && !sides[1].text)
        status = hr_fail(HR_ERR_USAGE, "compare needs two of RUN or FILE: `headroom compare last~1 last`");
    if (status == HR_OK) status = compare(args, sides, &comparison);
    if (status == HR_OK) status = hr_compare_output(&output, comparison);
    const bool any = hr_num(json_object_get(comparison, "summary"), "compared") > 0;
    json_decref(comparison);
    for (int s = 0; s < 2; s++) json_decref(sides[s].cells), json_decref(sides[s].run);
    if (status != HR_OK) return hr_report_failure();
    return any ? 0 : NOTHING_COMPARED;
}

static const hr_opt *const options[] = {&opt_across, &opt_ops, HR_OPTS_COMPARE, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {
    "headroom compare last~1 last",
    "the newest run against the one before it: what got slower, and how sure that is",
    "headroom compare monday.json tuesday.json --effect 3%",
    "two files that sweep or another benchmark wrote; shifts of up to 3 % count as none",
    "headroom compare last~1 last --ops --json",
    "also which op classes moved, as one object",
    NULL};

const hr_command hr_command_compare = {
    .name = "compare",
    .task = "Judge",
    .summary = "two runs or files cell by cell: same, faster, slower or inconclusive",
    .synopsis = "headroom compare A B [--effect 2%] [--ops] [--across-machines] [--db FILE] [-o FORMAT]\n"
                "       A, B: a RUN (last, last~1, an id or its start) or a file that sweep, llama-bench or Google "
                "Benchmark wrote",
    .options = options,
    .positional = "A B",
    .max_positional = 2,
    .examples = examples,
    .run = run,
};
