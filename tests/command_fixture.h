/* command_fixture.h - a command of the program in this process, on the test's store. */
#ifndef HR_COMMAND_FIXTURE_H
#define HR_COMMAND_FIXTURE_H

#include "tests/store_fixture.h"

#include "harness/cli/options.h"

#include <fcntl.h>

static char printed[65536];

/* The exit code; what was printed lands in `printed`. Words are separated by spaces. */
static inline int call(const hr_command *command, const char *words) {
    char line[1500], out[320], *argv[24];
    int argc = 0;
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(line, sizeof line, "%s --db %s --out %s", words, path, out);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    argv[argc] = NULL;
    hr_args *args;
    ok(hr_args_parse(command, argc, argv, &args));
    remove(out);
    fflush(stderr);
    const int saved = dup(STDERR_FILENO), nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, STDERR_FILENO); /* the line is asserted through hr_error() */
    const int code = command->run(args);
    dup2(saved, STDERR_FILENO);
    close(saved), close(nothing);
    hr_args_destroy(args);
    printed[0] = 0;
    if (code == 0) printed[read_file(out, printed, sizeof printed - 1)] = 0;
    return code;
}

#endif
