#include "harness/compare/compare_options.h"

#include <math.h>
#include <stdlib.h>

#define JUDGING "How it is judged"

const hr_opt hr_opt_effect = {.name = "--effect",
                              .group = JUDGING,
                              .kind = HR_OPT_TEXT,
                              .min = 1,
                              .fallback = "2%",
                              .metavar = "SHARE",
                              .help = "the smallest shift that matters, as 2% or 0.02"};
const hr_opt hr_opt_level = {.name = "--level",
                             .group = JUDGING,
                             .kind = HR_OPT_REAL,
                             .min = 0.0001,
                             .max = 0.5,
                             .fallback = "0.05",
                             .metavar = "P",
                             .help = "p, adjusted for the number of rows, must lie under it"};
const hr_opt hr_opt_allow_simulated = {.name = "--allow-simulated",
                                       .group = JUDGING,
                                       .kind = HR_OPT_FLAG,
                                       .help = "compare cells whose times a simulator made"};

hr_status hr_share_of(const char *text, const char *flag, double *out) {
    char *end;
    double v = strtod(text, &end);
    const bool percent = *end == '%';
    if (percent) v /= 100, end++;
    if (end == text || *end || !isfinite(v) || !(v > 0 && v < 1))
        HR_FAIL(HR_ERR_USAGE, "%s %.40s: give a share over 0 and under 100 %%, as 2%% or 0.02", flag, text);
    *out = v;
    return HR_OK;
}

hr_status hr_compare_rule_of(const hr_args *args, hr_compare_rule *out) {
    *out = hr_compare_rule_default();
    out->level = hr_args_real(args, "--level");
    out->allow_simulated = hr_args_flag(args, "--allow-simulated");
    return hr_share_of(hr_args_text(args, "--effect"), "--effect", &out->effect);
}

hr_status hr_compare_output(const hr_output *output, const json_t *comparison) {
    hr_out out;
    HR_TRY(hr_out_open(output->file, &out));
    const hr_status status = hr_compare_print(output->format, out.stream, comparison);
    if (status != HR_OK) {
        hr_out_abandon(&out);
        return status;
    }
    HR_TRY(hr_out_commit(&out));
    return output->to_stderr ? hr_compare_print(output->err_format, stderr, comparison) : HR_OK;
}
