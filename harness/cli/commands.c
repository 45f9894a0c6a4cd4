/* The subcommands, in the order of `headroom help`; rows of one task stand together. */
#include "harness/cli/options.h"

const hr_command *const hr_commands[] = {
    NULL,
};
