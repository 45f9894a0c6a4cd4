/* compare_options.h - the flags that commands which compare share, and what they print. */
#ifndef HR_COMPARE_OPTIONS_H
#define HR_COMPARE_OPTIONS_H

#include "harness/cli/output.h"
#include "harness/compare/compare.h"

extern const hr_opt hr_opt_effect, hr_opt_level, hr_opt_allow_simulated;
#define HR_OPTS_COMPARE &hr_opt_effect, &hr_opt_level, &hr_opt_allow_simulated

/* --effect, --level and --allow-simulated over the default rule. */
hr_status hr_compare_rule_of(const hr_args *args, hr_compare_rule *out);
/* "2%", "0.02": a share in 0 to 1. flag: its name in the message. */
hr_status hr_share_of(const char *text, const char *flag, double *out);
/* hr_compare_print to where the output flags say. */
hr_status hr_compare_output(const hr_output *output, const json_t *comparison);

#endif
