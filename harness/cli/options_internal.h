/* options_internal.h - what the parts of the option parser share. Nothing outside harness/cli includes it but tests. */
#ifndef HR_OPTIONS_INTERNAL_H
#define HR_OPTIONS_INTERNAL_H

#include "harness/cli/options.h"

/* The value of one row of a command's list of options. Which fields count follows from the row's kind. */
typedef struct hr_slot {
    bool given;    /* on the command line or in the config */
    bool config;   /* what is here came from the config: the first use on the command line replaces it */
    bool flag;     /* FLAG */
    int64_t *ints; /* [n]; INT: one; PAIRS: two a use */
    char **texts;  /* [n]; TEXT and WORD: one */
    size_t n, room;
    double real;  /* REAL */
    char *source; /* INTS as typed, joined by commas, for hr_args_json */
} hr_slot;

struct hr_args {
    const hr_command *command;
    hr_slot *slots; /* one a row of command->options */
    size_t n_slots;
    const char **positional; /* borrowed from argv */
    size_t n_positional;
    bool help;
};

/* Defaults filled in, nothing given. */
hr_status hr_args_create(const hr_command *command, hr_args **out);
/* The row of a name or an alias ("--model", "-m"), -1: none. */
int hr_args_find(const hr_args *args, const char *name, size_t length);
/* Takes one value as typed on the command line; `shown` is the flag's name in messages. */
hr_status hr_slot_take(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value);
void hr_slot_clear(hr_slot *slot);
/* ERR_USAGE that advises the nearest flag of the command. */
hr_status hr_args_unknown(const hr_args *args, const char *name);

/* Takes a JSON object {"flag without dashes": value}. where: the file's name for messages. Slots that are given already
 * are left alone. */
hr_status hr_args_config_text(hr_args *args, const char *text, size_t n, const char *where);
hr_status hr_args_config_file(hr_args *args, const char *path);

#endif
