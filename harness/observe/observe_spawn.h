/* observe_spawn.h - a program run to its end, quietly, and a folder for what it writes. */
#ifndef HR_OBSERVE_SPAWN_H
#define HR_OBSERVE_SPAWN_H

#include "kernels/base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* words: an array of texts, the program first (looked for in PATH). settings: NULL-ended NAME=VALUE over this environment,
 * or NULL; a tool attached to this process is not passed on. out: file for its stdout, NULL: dropped. stop: NULL, or asked
 * while it runs: then it gets SIGTERM and is waited for. said: the last line of its stderr. ERR_IO when it cannot be
 * started; ERR_INTERRUPTED after stop; how it ends otherwise is for the caller to see from what it wrote. */
hr_status hr_spawn(const json_t *words, const char *const *settings, const char *out, bool (*stop)(void), char *said,
                   size_t size);

/* A new folder under TMPDIR or /tmp; and away with it and the files in it. */
hr_status hr_scratch_make(char *folder, size_t size);
void hr_scratch_remove(const char *folder);

#endif
