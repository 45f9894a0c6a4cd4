#include "harness/cli/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int signal_number) {
    (void)signal_number;
    if (interrupted) _exit(HR_EXIT_INTERRUPTED);
    interrupted = 1;
}

void hr_interrupt_install(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* A closed terminal too, but not under nohup. */
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, NULL);
}

bool hr_interrupted(void) {
    return interrupted != 0;
}

int hr_exit_code(hr_status status) {
    return status == HR_OK ? 0 : status == HR_ERR_INTERRUPTED ? HR_EXIT_INTERRUPTED : 2;
}
