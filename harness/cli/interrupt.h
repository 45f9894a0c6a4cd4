/* interrupt.h - Ctrl-C, SIGTERM and a closed terminal as a flag that loops ask for; a second signal ends the process
 * with 130. */
#ifndef HR_INTERRUPT_H
#define HR_INTERRUPT_H

#include "kernels/base/status.h"
#include <stdbool.h>

enum { HR_EXIT_INTERRUPTED = 130 };

/* From here on SIGINT, SIGTERM and SIGHUP (unless ignored) set the flag; blocking calls return EINTR. Only for commands
 * that ask for it. */
void hr_interrupt_install(void);
bool hr_interrupted(void);
/* What a command that only succeeds or fails ends with: 0, 130 after ERR_INTERRUPTED, else 2. */
int hr_exit_code(hr_status status);

#endif
