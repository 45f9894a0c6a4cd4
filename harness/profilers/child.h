/* child.h - another program, run to its end: its output kept, interrupts passed on, nothing of it left behind. */
#ifndef HR_CHILD_H
#define HR_CHILD_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { HR_CHILD_LAST = 400 };
typedef struct hr_child {
    int code;      /* its exit code; 128 + signal when one ended it */
    int timed_out; /* it ran past its limit and was ended */
    char *out;     /* what it printed on stdout, with a NUL behind its n_out bytes; NULL: nothing */
    size_t n_out;
    char *err;                /* the end of what it printed on stderr, or NULL */
    char last[HR_CHILD_LAST]; /* the last line that is not empty of stderr, or of stdout where that has none */
} hr_child;
void hr_child_fini(hr_child *child);

/* A program of that name in PATH, as execvp would find it; out: [n], empty when false. */
bool hr_find_program(const char *name, char *out, size_t n);
/* Words put behind those of a command line; false when out of memory. list: [n] */
bool hr_words_add(json_t *words, const char *const *list, size_t n);

/* words: the program (a path, or a name to look up in PATH) and its arguments. It has no stdin and a process group of its
 * own. ERR_IO when it cannot be run, ERR_MEMORY, ERR_INTERRUPTED after Ctrl-C (hr_interrupt_install): then it and what it
 * started were asked to end, and killed where they did not. A code other than 0 is no failure here. */
hr_status hr_child_run(const json_t *words, hr_child *out);
/* The same with a limit in seconds (0: none), past which it is ended as after Ctrl-C: no failure here, timed_out says it. */
hr_status hr_child_run_for(const json_t *words, double limit_s, hr_child *out);

#endif
