/* cupti_activity.h - times of single kernels from CUPTI's Activity API, joined to the ops that launched them.
 *
 * Every op pushes an id before it launches and pops it after; CUPTI links that id to the calls made meanwhile, and those to
 * kernels and copies: id -> call -> kernel. Records come in buffers that are read when they are asked for.
 *     want -> before_init -> (cuInit, context) -> after_context -> start -> { push, launches, pop }... -> collect -> find ... -> stop
 * Times are of hr_now_ns. One subscriber a process: where nsys or ncu is attached, or CUPTI cannot be had, every function
 * is a no-op and hr_gpu_kernel_times_missing says why; ops then have the times of their events.
 *
 * A replayed graph is one call: all of its kernels belong to the id around cuGraphLaunch. */
#ifndef HR_CUPTI_ACTIVITY_H
#define HR_CUPTI_ACTIVITY_H

#include "kernels/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called by hr_driver_open before cuInit. Opens CUPTI when kernel times are wanted (hr_gpu_want_kernel_times, device.h);
 * never fails. */
void hr_cupti_before_init(void);
/* Called by hr_driver_context when it has made a context: until start nothing is recorded any more, and launches cost what they
 * cost without CUPTI. */
void hr_cupti_after_context(void);
/* Kernel times can be had: it is worth calling the functions below. */
bool hr_cupti_ready(void);

/* From now on launches are recorded; what was recorded before is dropped. Called again it only drops. Launches are some
 * microseconds slower while it is on: not in timed regions. */
hr_status hr_cupti_start(void);
/* Reads all buffers and joins them; goes on. Waits for nothing: synchronize the stream before. */
hr_status hr_cupti_collect(void);
/* Collects, and records no more. */
hr_status hr_cupti_stop(void);
/* By the thread that launches; ids are the caller's, never 0 and never used twice in a process. */
void hr_cupti_push(uint64_t id);
void hr_cupti_pop(void);

/* What ran on the device between push and pop of an id. */
typedef struct hr_kernel_time {
    uint64_t id;
    uint64_t start_ns, end_ns; /* of the first to begin and the last to end; hr_now_ns */
    uint64_t busy_ns;          /* sum of the kernels' and copies' own times */
    uint32_t kernels, copies;
} hr_kernel_time;
/* After collect or stop: false when nothing ran under that id (or was lost). */
bool hr_cupti_find(uint64_t id, hr_kernel_time *out);

/* One kernel or copy, in order of start. */
typedef struct hr_kernel_span {
    uint64_t id; /* 0: launched outside of push and pop */
    uint64_t start_ns, end_ns;
    const char *name; /* "" for copies; valid until the next start */
    uint32_t correlation;
} hr_kernel_span;
const hr_kernel_span *hr_cupti_spans(size_t *n);
/* Records that CUPTI dropped, and time that it says it took itself, since start. */
void hr_cupti_losses(uint64_t *dropped, uint64_t *overhead_ns);

#endif
