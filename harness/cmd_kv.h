/* cmd_kv.h - what the files of the command kv share: `study` has a file of its own. */
#ifndef HR_CMD_KV_H
#define HR_CMD_KV_H

#include "harness/cli/option_groups.h"

extern const hr_opt hr_opt_study_quick, hr_opt_study_full, hr_opt_study_part, hr_opt_study_resume, hr_opt_ppl_model,
    hr_opt_ppl_text;
#define HR_OPTS_STUDY                                                                                     \
    &hr_opt_study_quick, &hr_opt_study_full, &hr_opt_study_part, &hr_opt_study_resume, &hr_opt_ppl_model, \
        &hr_opt_ppl_text, &hr_opt_threads, &hr_opt_db

int hr_kv_study(const hr_args *args); /* the exit code */

#endif
