/* headroom ab: two programs, or two revisions of one, measured in pairs in one session. */
#include "harness/ab/ab.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/option_groups.h"
#include "harness/compare/compare_options.h"
#include "harness/formats/json_get.h"

#include <stdio.h>

enum { NOTHING_COMPARED = 3 };
#define MEASURING "How it is measured"

static const hr_opt opt_pairs = {.name = "--pairs",
                                 .group = MEASURING,
                                 .kind = HR_OPT_INT,
                                 .min = 6,
                                 .max = 20,
                                 .fallback = "13",
                                 .metavar = "N",
                                 .help = "runs of A and of B, one of each in a pair, in random order; chosen before it "
                                         "starts",
                                 .advice = "fewer than 6 have no 95 % interval, more than 20 no exact test"};
static const hr_opt opt_repetitions = {.name = "--repetitions",
                                       .alias = "-r",
                                       .group = MEASURING,
                                       .kind = HR_OPT_INT,
                                       .min = 1,
                                       .max = 1000,
                                       .fallback = "5",
                                       .metavar = "N",
                                       .help = "samples of a cell in each run (-r behind -- does the same)"};
static const hr_opt opt_seed = {.name = "--seed",
                                .group = MEASURING,
                                .kind = HR_OPT_INT,
                                .max = 9007199254740991.0,
                                .fallback = "0",
                                .metavar = "N",
                                .help = "of the order within pairs"};
static const hr_opt opt_timeout = {.name = "--timeout",
                                   .group = MEASURING,
                                   .kind = HR_OPT_REAL,
                                   .min = 0.1,
                                   .max = 86400,
                                   .fallback = "600",
                                   .metavar = "S",
                                   .help = "seconds that one run may take"};

static hr_status read_options(const hr_args *args, hr_ab_options *o) {
    size_t n;
    HR_TRY(hr_output_resolve(args, &o->output));
    HR_TRY(hr_output_check(&o->output));
    HR_TRY(hr_compare_rule_of(args, &o->rule));
    o->a = hr_args_positional(args, 0), o->b = hr_args_positional(args, 1);
    o->sweep_args = hr_args_rest(args, &n);
    o->pairs = (size_t)hr_args_int(args, "--pairs");
    o->repetitions = (size_t)hr_args_int(args, "--repetitions");
    o->seed = (uint64_t)hr_args_int(args, "--seed");
    o->timeout_s = hr_args_real(args, "--timeout");
    if (hr_args_given(args, "--time-limit")) o->limit_s = hr_args_real(args, "--time-limit");
    if (!o->b)
        HR_FAIL(HR_ERR_USAGE,
                "ab needs two programs or revisions, then the flags of a sweep: `headroom ab HEAD~1 HEAD -- "
                "-m MODEL -p 64 -n 16`");
    if (!n)
        HR_FAIL(HR_ERR_USAGE,
                "what is to be measured? the flags of a sweep follow --: `headroom ab A B -- -p 64 -n 16`");
    return HR_OK;
}

static int run(const hr_args *args) {
    hr_ab_options options = {0};
    json_t *result = NULL;
    hr_status status = read_options(args, &options);
    if (status == HR_OK) {
        hr_interrupt_install();
        status = hr_ab_run(&options, &result);
    }
    const bool interrupted = status == HR_ERR_INTERRUPTED;
    if (interrupted) fprintf(stderr, "headroom: interrupted%s\n", result ? "" : " before a pair was whole");
    if (result && hr_compare_output(&options.output, result) != HR_OK) status = HR_ERR_IO;
    const bool any = hr_num(json_object_get(result, "summary"), "compared") > 0;
    json_decref(result);
    if (interrupted) return HR_EXIT_INTERRUPTED;
    if (status != HR_OK) return hr_report_failure();
    return any ? 0 : NOTHING_COMPARED;
}

static const hr_opt *const options[] = {&opt_pairs,         &opt_repetitions, &opt_seed,      &opt_timeout,
                                        &hr_opt_time_limit, HR_OPTS_COMPARE,  HR_OPTS_OUTPUT, NULL};
static const char *const examples[] = {
    "headroom ab HEAD~1 HEAD -- -m synth:smollm2-135m -p 64 -n 16",
    "two commits of the repository here, each built in a work tree under build/ab",
    "headroom ab ./headroom-old build/headroom --pairs 10 --json -- -m synth:tiny --isl 64 --osl 8",
    "two programs; TTFT, TPOT and E2E of a request, as one object with ops", NULL};

const hr_command hr_command_ab = {
    .name = "ab",
    .task = "Judge",
    .summary = "two programs or commits in randomised pairs: what got slower, which ops, how sure",
    .synopsis = "headroom ab A B [--pairs 13] [-r 5] [--effect 2%] [-o FORMAT] -- SWEEP ARGS\n"
                "       A, B: a program, or a revision of the git repository here",
    .options = options,
    .positional = "A B",
    .max_positional = 2,
    .rest = "SWEEP ARGS",
    .examples = examples,
    .run = run,
};
