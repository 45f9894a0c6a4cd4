/* Fuzz target: a --config file against the flags of a sweep. What is taken must read back to itself. */
#include "harness/cli/option_groups.h"
#include "harness/cli/options_internal.h"

#include <stdlib.h>
#include <string.h>

static const hr_opt opt_tag = {.name = "--tag", .kind = HR_OPT_KEYVALUE, .group = "G", .help = "tag"};
static const hr_opt opt_share = {.name = "--share", .kind = HR_OPT_REAL, .group = "G", .help = "number"};
static const hr_opt *const list[] = {HR_OPTS_AXES_SWEEP, HR_OPTS_OUTPUT, HR_OPTS_CONFIG, &opt_tag, &opt_share, NULL};
static const hr_command command = {.name = "fuzz", .options = list};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    hr_args *args, *again;
    if (hr_args_create(&command, &args) != HR_OK) abort();
    if (hr_args_config_text(args, (const char *)data, size, "config.json") == HR_OK) {
        json_t *first = hr_args_json(args), *second;
        char *text = json_dumps(first, 0);
        if (hr_args_create(&command, &again) != HR_OK) abort();
        if (hr_args_config_text(again, text, strlen(text), "again.json") != HR_OK) abort();
        second = hr_args_json(again);
        if (!json_equal(first, second)) abort();
        json_decref(first);
        json_decref(second);
        free(text);
        hr_args_destroy(again);
    }
    hr_args_destroy(args);
    return 0;
}
