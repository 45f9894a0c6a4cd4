/* headroom prune: raw samples of old runs go, their medians stay. */
#include "harness/cli/option_groups.h"
#include "harness/cli/output.h"
#include "harness/store/store.h"

#include <string.h>

static hr_status prune(const hr_args *args, const hr_output *output, hr_store **store) {
    const char *db = hr_args_text(args, "--db"), *before = hr_args_text(args, "--before");
    const bool nights = hr_args_given(args, "--keep-nights"), dry = hr_args_flag(args, "--dry-run");
    char first[11];
    json_t *counts;
    if (nights == (before != NULL))
        HR_FAIL(HR_ERR_USAGE,
                nights ? "--keep-nights and --before contradict each other; give one of them"
                       : "what may go? say --keep-nights 30 or --before 2026-01-31, with --dry-run to look first");
    if (!strcmp(db, "none")) HR_FAIL(HR_ERR_USAGE, "--db none leaves nothing to prune: name a store");
    HR_TRY(hr_output_check(output));
    HR_TRY(hr_store_open(db, false, store));
    if (nights) {
        HR_TRY(hr_store_night(*store, hr_args_int(args, "--keep-nights"), first));
        before = first;
    }
    if (!dry) { /* for writing only now: it must be there already */
        hr_store_close(*store);
        *store = NULL;
        HR_TRY(hr_store_open(db, true, store));
    }
    HR_TRY(hr_store_prune(*store, before, dry, &counts));
    json_object_set_new(counts, "before", json_string(before));
    json_object_set_new(counts, "dry_run", json_boolean(dry));
    json_object_set_new(counts, "unmapped", json_array());
    const hr_status status = hr_output_object(output, counts);
    json_decref(counts);
    return status;
}

static int run(const hr_args *args) {
    hr_output output;
    hr_store *store = NULL;
    hr_status status = hr_output_resolve(args, &output);
    if (status == HR_OK) status = prune(args, &output, &store);
    hr_store_close(store);
    return status == HR_OK ? 0 : hr_report_failure();
}

#define GROUP "What goes"
static const hr_opt opt_nights = {.name = "--keep-nights",
                                  .group = GROUP,
                                  .kind = HR_OPT_INT,
                                  .min = 1,
                                  .max = 1e6,
                                  .metavar = "K",
                                  .help = "keep all of the newest K days (UTC) that have runs"};
static const hr_opt opt_before = {.name = "--before",
                                  .group = GROUP,
                                  .kind = HR_OPT_TEXT,
                                  .min = 1,
                                  .metavar = "DATE",
                                  .help = "keep all of runs that started at DATE or later (2026-01-31, UTC)"};
static const hr_opt opt_dry = {
    .name = "--dry-run", .group = GROUP, .kind = HR_OPT_FLAG, .help = "count what would go, and leave it"};
static const hr_opt *const options[] = {&opt_nights, &opt_before, &opt_dry, HR_OPTS_OUTPUT, &hr_opt_db, NULL};
static const char *const examples[] = {"headroom prune --keep-nights 30 --dry-run",
                                       "how many samples, ops and ranges of older runs would go",
                                       "headroom prune --before 2026-01-31 --json",
                                       "drops them and gives the room back to the disk; counts, bytes freed", NULL};

const hr_command hr_command_prune = {
    .name = "prune",
    .task = "Exchange",
    .summary = "drop raw samples, ops and ranges of old runs; distributions stay",
    .synopsis = "headroom prune (--keep-nights K | --before DATE) [--dry-run] [--db FILE] [-o FORMAT]",
    .options = options,
    .examples = examples,
    .run = run,
};
