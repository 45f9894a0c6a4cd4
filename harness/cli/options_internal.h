/* options_internal.h - what the parts of the option parser share. Nothing outside harness/cli includes it but tests. */
#ifndef HR_OPTIONS_INTERNAL_H
#define HR_OPTIONS_INTERNAL_H

#include "harness/cli/options.h"

/* The value of one row of a command's list of options. Which fields count follows from the row's kind. */
typedef struct hr_slot {
    bool given;     /* on the command line or in the config */
    bool defaulted; /* holds the row's default: the first use replaces it */
    bool flag;      /* FLAG */
    double real;    /* REAL */
    int64_t *ints;  /* [n_ints]; INT: one; INTS: ranges expanded; PAIRS: two a use */
    char **texts;   /* [n_texts], then NULL: pieces as typed, of every kind but FLAG */
    size_t n_ints, n_texts;
} hr_slot;

struct hr_args {
    const hr_command *command;
    hr_slot *slots; /* [n_slots], one a row of command->options */
    size_t n_slots;
    const char **positional; /* [n_positional], borrowed from argv */
    size_t n_positional;
    const char **rest; /* [n_rest], then NULL; borrowed from argv */
    size_t n_rest;
    bool help;
};

/* Defaults filled in, nothing given. */
hr_status hr_args_create(const hr_command *command, hr_args **out);
/* The row with this name or alias ("--model", "-m"); NULL: none. *i is its place. */
const hr_opt *hr_args_find(const hr_args *args, const char *name, size_t *i);
/* ERR_USAGE that advises the nearest flag of the command. prefix: put before the message ("file: key"), or "". */
hr_status hr_args_unknown(const hr_args *args, const char *prefix, const char *name);

/* Takes one value as typed; lists append. `shown` is the flag's name in messages. */
hr_status hr_slot_take(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value);
void hr_slot_clear(hr_slot *slot);

/* Takes a JSON object {"flag without dashes": value}. where: the file's name for messages. A flag that is given already
 * keeps its value; the one in the object is checked all the same. */
hr_status hr_args_config_text(hr_args *args, const char *text, size_t n, const char *where);
hr_status hr_args_config_file(hr_args *args, const char *path);

#endif
