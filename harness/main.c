/* headroom: finds the subcommand, reads its flags, runs it. */
#include "harness/cli/options.h"
#include "harness/formats/formats.h"
#include "harness/version.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_commands(void) {
    printf("headroom - how far LLM inference on this machine is from what the machine can do\n\n"
           "Usage: headroom SUBCOMMAND [flags]     `headroom SUBCOMMAND --help` says more, with examples\n");
    const char *task = "";
    for (const hr_command *const *c = hr_commands; *c; c++) {
        if (strcmp(task, (*c)->task)) printf("\n%s:\n", (*c)->task);
        task = (*c)->task;
        printf("  %-12s %s\n", (*c)->name, (*c)->summary);
    }
    printf("\nOther:\n  %-12s %s\n  %-12s %s\n", "help", "this list, or `headroom help SUBCOMMAND`", "--version",
           "version, commit, compiler, instruction sets, NVTX");
}

#ifdef HR_NO_PROBES
static const char probes[] = "probes: none (built with NOPROBES=1: for `headroom observe --without` alone)\n";
#else
static const char probes[] = "";
#endif

static void print_version(void) {
    printf("headroom %s (commit %s, build %d)\ncompiler: %s\nISAs:", HR_VERSION, hr_commit(), hr_build_number(),
           hr_compiler());
    for (int isa = 0; isa <= (int)hr_isa_best(); isa++)
        if (hr_isa_resolve((hr_isa)isa, &(hr_isa){0}) == HR_OK) printf(" %s", hr_isa_name((hr_isa)isa));
    unsigned features = hr_cpu_features();
    printf("%s%s\n", features & HR_CPU_VNNI ? " vnni" : "", features & HR_CPU_BF16 ? " bf16" : "");
#ifdef HR_HAVE_NVTX
    printf("NVTX ranges: compiled in\n");
#else
    printf("NVTX ranges: not compiled in (no nvtx3 headers when it was built)\n");
#endif
    fputs(probes, stdout);
}

static const hr_command *find(const char *name) {
    for (const hr_command *const *c = hr_commands; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    return NULL;
}

static int unknown(const char *name) {
    const char *names[64];
    size_t n = 0;
    for (const hr_command *const *c = hr_commands; *c && n < 61; c++) names[n++] = (*c)->name;
    names[n++] = "help";
    names[n++] = "--version";
    names[n] = NULL;
    const char *near = hr_nearest(name, names);
    if (near)
        hr_fail(HR_ERR_USAGE, "unknown subcommand %.80s; nearest is %s", name, near);
    else
        hr_fail(HR_ERR_USAGE, "unknown subcommand %.80s; `headroom help` lists them", name);
    return hr_report_failure();
}

static bool prints_config(const hr_command *command, const hr_args *args) {
    for (const hr_opt *const *o = command->options; *o; o++)
        if (!strcmp((*o)->name, "--print-config")) return hr_args_flag(args, "--print-config");
    return false;
}

static int run(const hr_command *command, int argc, char **argv) {
    hr_args *args;
    if (hr_args_parse(command, argc, argv, &args) != HR_OK) return hr_report_failure();
    int code = 0;
    if (hr_args_flag(args, "--help")) {
        hr_command_help(command);
    } else if (prints_config(command, args)) {
        json_t *config = hr_args_json(args);
        if (hr_json_write(stdout, config) != HR_OK) code = hr_report_failure();
        json_decref(config);
    } else {
        const char *plant = getenv("HEADROOM_PLANT");
        if (hr_plant_check() != HR_OK) { /* said before anything is measured, not as a failure of each cell */
            hr_args_destroy(args);
            return hr_report_failure();
        }
        if (plant && *plant) fprintf(stderr, "headroom: HEADROOM_PLANT=%s slows ops down on purpose\n", plant);
        code = command->run(args);
    }
    hr_args_destroy(args);
    return code;
}

static int dispatch(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "help";
    bool help = !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
    if (!strcmp(word, "--version") || !strcmp(word, "-V")) {
        print_version();
        return 0;
    }
    if (help && argc <= 2) {
        print_commands();
        return 0;
    }
    if (help) word = argv[2];
    const hr_command *command = find(word);
    if (!command) return unknown(word);
    if (!help) return run(command, argc - 2, argv + 2);
    hr_command_help(command);
    return 0;
}

/* A stream that the caller closed (`>&-`) gets a descriptor that can be neither read nor written. Else the next file
 * opened, perhaps the store, would take its number and receive the results. */
static void hold_streams(void) {
    for (int fd; (fd = open("/dev/null", O_PATH)) >= 0;) {
        if (fd <= STDERR_FILENO) continue;
        close(fd);
        break;
    }
}

/* The locale is never set, so that numbers have a point everywhere. A closed pipe is an error of write, not a death in
 * the middle of a sweep; at the end it becomes the quiet death that shells expect. A file that may not grow further
 * (`ulimit -f`) is an error of write too. */
int main(int argc, char **argv) {
    hold_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    int code = dispatch(argc, argv);
    if (!hr_stream_reader_gone() && hr_stream_flush(stdout) != HR_OK && code == 0) code = hr_report_failure();
    if (hr_stream_reader_gone()) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return code;
}
