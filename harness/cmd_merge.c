/* headroom merge: runs of other stores, of other machines too, in one. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/store/store.h"
#include "kernels/base/memory.h"

#include <string.h>

typedef struct command {
    const hr_args *args;
    hr_output output;
    hr_store *store;
    json_t *rows; /* one a store */
} command;

static hr_status merge_one(command *c, const char *path) {
    json_t *counts, *name = json_string(path);
    HR_TRY(hr_store_merge(c->store, path, &counts));
    bool ok = json_object_set_new(counts, "file", name ? name : json_string("?")) == 0;
    ok = json_array_append_new(c->rows, counts) == 0 && ok;
    return ok ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory for the counts");
}

static hr_status print(command *c) {
    static const char *const keys[] = {"file", "runs", "cells", "skipped", NULL};
    static const char *const sums[] = {"runs", "cells", "skipped"};
    json_t *all = json_object(), *unmapped = json_array(), *row, *note;
    size_t i, k;
    bool ok = all && unmapped;
    for (k = 0; ok && k < 3; k++) {
        json_int_t sum = 0;
        json_array_foreach(c->rows, i, row) sum += json_integer_value(json_object_get(row, sums[k]));
        ok = json_object_set_new(all, sums[k], json_integer(sum)) == 0;
    }
    json_array_foreach(c->rows, i, row) json_array_foreach(json_object_get(row, "unmapped"), k, note) {
        json_array_append(unmapped, note);
        if (!c->output.quiet) fprintf(stderr, "headroom: %s\n", json_string_value(note));
    }
    ok = ok && json_object_set(all, "files", c->rows) == 0 && json_object_set(all, "unmapped", unmapped) == 0;
    const bool json = c->output.format == HR_FORMAT_JSON || c->output.format == HR_FORMAT_JSONL;
    const hr_status status = !ok    ? hr_fail(HR_ERR_MEMORY, "out of memory for the counts")
                             : json ? hr_output_object(&c->output, all)
                                    : hr_output_rows(&c->output, c->rows, keys);
    json_decref(all), json_decref(unmapped);
    return status;
}

static hr_status merge(command *c) {
    const char *db = hr_args_text(c->args, "--db");
    const size_t n = hr_args_n_positional(c->args);
    HR_TRY(hr_output_resolve(c->args, &c->output));
    if (!n) HR_FAIL(HR_ERR_USAGE, "merge which stores? `headroom merge other.db --db all.db`");
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none leaves nothing to merge into: name a store");
    /* all are opened once before the first is copied: a wrong name changes nothing */
    for (size_t i = 0; i < n; i++) {
        hr_store *other;
        HR_TRY(hr_store_open(hr_args_positional(c->args, i), false, &other));
        hr_store_close(other);
    }
    HR_TRY(hr_output_check(&c->output));
    c->rows = json_array();
    if (!c->rows) HR_FAIL(HR_ERR_MEMORY, "out of memory for the counts");
    HR_TRY(hr_store_open(db, true, &c->store));
    for (size_t i = 0; i < n; i++) HR_TRY(merge_one(c, hr_args_positional(c->args, i)));
    return print(c);
}

static int run(const hr_args *args) {
    command c = {.args = args};
    const hr_status status = merge(&c);
    hr_store_close(c.store);
    json_decref(c.rows);
    return status == HR_OK ? 0 : hr_report_failure();
}

static const hr_opt *const options[] = {HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {
    "headroom merge a.db b.db --db all.db",
    "the runs of two stores, whole, in a third; those that are there already are skipped",
    "headroom merge nightly/*.db --db all.db --json", "the same from many; counts", NULL};

const hr_command hr_command_merge = {
    .name = "merge",
    .task = "Exchange",
    .summary = "copy the runs of other stores into one",
    .synopsis = "headroom merge DB... [--db FILE] [-o FORMAT]     DB are left as they are",
    .options = options,
    .positional = "DB",
    .max_positional = 4096,
    .examples = examples,
    .run = run,
};
