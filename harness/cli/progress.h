/* progress.h - one line on stderr that says what runs, how far it is, and the time left.
 *
 * Shown only when it is wanted, stderr is a terminal, and neither CI nor NO_COLOR is set; else every call does nothing.
 * Redrawn at most ten times a second. Never call it inside a timed region. */
#ifndef HR_PROGRESS_H
#define HR_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hr_progress {
    bool on;
    bool drawn;
    uint64_t start_ns, last_ns; /* of the current stage; of the last drawing */
    const char *label;          /* for hr_progress_callback */
} hr_progress;

/* wanted: hr_output.progress. */
void hr_progress_init(hr_progress *progress, bool wanted);
/* share in 0..1. seconds_left < 0: estimated from the share and the time since init (or hr_progress_stage). */
void hr_progress_show(hr_progress *progress, double share, double seconds_left, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Begins a stage: the estimate of time left starts again. label must stay valid. */
void hr_progress_stage(hr_progress *progress, const char *label);
/* For hr_load_options.progress and the like; context is the hr_progress. */
void hr_progress_callback(double share, void *context);
/* Removes the line, so that results or an error can be printed. */
void hr_progress_clear(hr_progress *progress);

#endif
