/* options.h - one declarative table of flags per subcommand; parsing, help, spelling advice and JSON config from it.
 *
 * A subcommand is a row (hr_command) with a list of hr_opt. Flags with the same meaning in several subcommands are the
 * same row, kept in option_groups.c, so that they cannot drift apart. A list flag given twice appends. Every error is
 * one line with the nearest valid spelling. */
#ifndef HR_OPTIONS_H
#define HR_OPTIONS_H

#include "engine/engine.h"
#include "kernels/base/nearest.h"

typedef enum hr_opt_kind {
    HR_OPT_FLAG,    /* no value */
    HR_OPT_TEXT,    /* any text */
    HR_OPT_INT,     /* one integer in [min, max] */
    HR_OPT_REAL,    /* one number in [min, max] */
    HR_OPT_WORD,    /* one of choices */
    HR_OPT_TEXTS,   /* comma list of texts; given twice appends */
    HR_OPT_INTS,    /* comma list of integers and ranges a-b+step, a-b*mult */
    HR_OPT_WORDS,   /* comma list of choices */
    HR_OPT_PAIRS,   /* -pg 512,128: one pair of integers a use, repeatable */
    HR_OPT_KEYVALUE /* KEY=VALUE, repeatable */
} hr_opt_kind;

typedef struct hr_opt {
    const char *name;  /* "--kv-layout" (also the key in --config, without dashes) */
    const char *alias; /* "-ctk", or NULL; a second alias after a space: "-npl --batch" */
    const char *group; /* heading in --help: "Axes", "Output", ... */
    hr_opt_kind kind;
    double min, max;            /* of numbers, both 0: no limit; TEXT: min bytes */
    const char *const *choices; /* NULL-ended; for WORD and WORDS; INT and INTS: the only legal numbers */
    const char *fallback;       /* default as typed, NULL: none */
    const char *metavar;        /* "N", "FILE" */
    const char *help;           /* one sentence without a full stop */
    const char *advice;         /* added to the line that refuses a value; NULL: none */
    const char *const *others;  /* NULL-ended pairs: another program's word for a value, ours; NULL: none */
} hr_opt;

typedef struct hr_args hr_args;

typedef struct hr_command {
    const char *name, *task;      /* task: heading in `headroom help`: "Measure", "Look", "Run a model on text", ... */
    const char *summary;          /* one line */
    const char *synopsis;         /* "headroom sweep [-m MODEL] [axes] [-o FORMAT]" */
    const hr_opt *const *options; /* NULL-ended */
    const char *positional;       /* metavar of positional arguments, NULL when there are none */
    int max_positional;
    const char *rest;            /* metavar of the words after `--`, which are another command's; NULL: positional */
    const char *const *examples; /* NULL-ended pairs: command, what it does; they work as printed */
    int (*run)(const hr_args *args); /* the exit code */
} hr_command;

/* ERR_USAGE with one line of advice. argv[0] is the first word after the subcommand. A value is the next word, or what
 * follows '='. `--help` and `-h` end the parse: hr_args_flag(args, "--help"). After `--` all is positional, or `rest` where the
 * command has that. Functions
 * that take a name also take an alias. A single-valued flag given twice: the last counts. */
hr_status hr_args_parse(const hr_command *command, int argc, char **argv, hr_args **out);
void hr_args_destroy(hr_args *args);
void hr_command_help(const hr_command *command); /* to stdout */

bool hr_args_given(const hr_args *args, const char *name);       /* on the command line or in the config */
const char *hr_args_text(const hr_args *args, const char *name); /* TEXT, WORD: value or fallback, or NULL */
int64_t hr_args_int(const hr_args *args, const char *name);      /* INT */
double hr_args_real(const hr_args *args, const char *name);      /* REAL, INT */
bool hr_args_flag(const hr_args *args, const char *name);        /* FLAG */
/* Lists: borrowed arrays; PAIRS give 2 * n integers. n = 0 when neither given nor defaulted. */
const int64_t *hr_args_ints(const hr_args *args, const char *name, size_t *n);
const char *const *hr_args_texts(const hr_args *args, const char *name, size_t *n); /* TEXTS, WORDS, KEYVALUE */
size_t hr_args_n_positional(const hr_args *args);
const char *hr_args_positional(const hr_args *args, size_t i);
/* The words after `--`, NULL-ended, borrowed; NULL where no `--` was given. */
const char *const *hr_args_rest(const hr_args *args, size_t *n);
/* {"name": value as given} of everything given: for --print-config and the store's record of a run. New reference. */
json_t *hr_args_json(const hr_args *args);

/* All subcommands, NULL-ended, in the order of `headroom help`. Each cmd_*.c defines one row. */
extern const hr_command *const hr_commands[];

/* Prints "headroom: MESSAGE" of hr_error() to stderr; returns 2. */
int hr_report_failure(void);

#endif
