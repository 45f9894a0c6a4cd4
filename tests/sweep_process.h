/* sweep_process.h - `headroom sweep` in a child of the test. */
#ifndef HR_SWEEP_PROCESS_H
#define HR_SWEEP_PROCESS_H

#include "tests/hr_test.h"

#include "harness/cli/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const hr_command hr_command_sweep;

/* In the child: runs the line, whose words are separated by spaces, and ends with its exit code. Not a word of what else runs on
 * this machine. */
static inline _Noreturn void sweep_and_exit(const char *line) {
    char text[1024], *argv[64] = {"--on-busy", "ignore"};
    int argc = 2;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    hr_args *args;
    int code = 2;
    if (hr_args_parse(&hr_command_sweep, argc, argv, &args) == HR_OK) {
        code = hr_command_sweep.run(args);
        hr_args_destroy(args);
    } else {
        hr_report_failure();
    }
    fflush(NULL);
    _exit(code);
}

static inline int code_of(pid_t pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) fail_msg("the sweep did not end by itself");
    return WEXITSTATUS(status);
}

#endif
