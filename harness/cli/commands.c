/* The subcommands, in the order of `headroom help`; rows of one task stand together. */
#include "harness/cli/options.h"

extern const hr_command hr_command_sweep, hr_command_roof, hr_command_claims;
extern const hr_command hr_command_explain, hr_command_trace;
extern const hr_command hr_command_nsys, hr_command_ncu;
extern const hr_command hr_command_observe;
extern const hr_command hr_command_advise;
extern const hr_command hr_command_ab, hr_command_compare, hr_command_gate;
extern const hr_command hr_command_report, hr_command_runs, hr_command_show;
extern const hr_command hr_command_generate, hr_command_perplexity, hr_command_tokenize, hr_command_inspect;
extern const hr_command hr_command_history;
extern const hr_command hr_command_models, hr_command_kernels, hr_command_kv;
extern const hr_command hr_command_import, hr_command_export, hr_command_merge, hr_command_prune;
extern const hr_command hr_command_doctor;

/* clang-format off */
const hr_command *const hr_commands[] = {
    &hr_command_sweep,
    &hr_command_roof,
    &hr_command_claims,

    &hr_command_explain,
    &hr_command_advise,
    &hr_command_trace,
    &hr_command_nsys,
    &hr_command_ncu,
    &hr_command_observe,

    &hr_command_ab,
    &hr_command_compare,
    &hr_command_history,
    &hr_command_gate,

    &hr_command_report,
    &hr_command_runs,
    &hr_command_show,
    &hr_command_models,
    &hr_command_kernels,
    &hr_command_kv,
    &hr_command_doctor,

    &hr_command_generate,
    &hr_command_perplexity,
    &hr_command_tokenize,
    &hr_command_inspect,

    &hr_command_import,
    &hr_command_export,
    &hr_command_merge,
    &hr_command_prune,
    NULL,
};
/* clang-format on */
