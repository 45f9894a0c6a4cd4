/* worker.h - the process that opens one model and measures its cells, and the parent's end of the line to it. Under a
 * profiler it is a thread.
 *
 * Requests and answers are JSON, one line each, over a socket pair. A worker does only what it is told:
 *   {"do": "prepare", "index": i, "cell": {...}}  loads the model, opens the engine, fills the depth
 *        -> {"status": "ok", "units": bit set of hr_unit, "act", "isa", "threads", "graphs", "gemm"}: what the engine took
 *   {"do": "measure", "name": text}               measures the prepared cell; may be asked again. name: of its range for
 *                                                 profilers; may be missing
 *        -> {"status": "ok", ...}: measure.h, and prefill_work, decode_work, working_set_bytes, kernels, kv_bytes_needed,
 *           kv_bytes_touched, kv_bytes_reserved (mapped for KV), kv_row_bytes (a K row of one head in its KV type), softmax
 *           (type that attention computes it in), huge_pages, rss_peak_bytes
 *           On a GPU also what gpu_around.h puts.
 *   either -> {"status": "failed" | "skipped", "error": text}: the worker goes on with the next cell
 * While it loads it sends {"progress": share}. It ends when the parent closes the line or dies.
 *
 * As a thread: profilers lose sight of a forked child that does not exec, so when one watches, the worker is a thread of the
 * sweep, over the same line and with the same messages. What is lost is isolation: a crash or want of memory ends the sweep
 * (cells that are stored are safe), memory that a cell held counts from what the process had, and nothing can be killed: an
 * interruption and --timeout wait for the load or the repetition that runs. What the parent does while it waits counts into
 * the cell's context switches (it wakes once a second) and page faults (the line of progress, on a terminal); it makes no
 * counted allocation meanwhile. */
#ifndef HR_WORKER_H
#define HR_WORKER_H

#include "harness/sweep/measure.h"
#include <sys/types.h>

/* Serves requests from and to the socket until it is closed. Called in the child, or the thread. */
void hr_worker_serve(int socket, const hr_measure_options *options);

typedef struct hr_worker_thread hr_worker_thread;
typedef struct hr_worker {
    pid_t pid;                /* 0: no process */
    hr_worker_thread *thread; /* NULL: no thread */
    int socket;               /* -1: there is no worker */
    char *line;               /* received, not yet handed out */
    size_t n, capacity;
} hr_worker;

/* Forks. The child never returns, ignores SIGINT, SIGTERM and SIGHUP (the parent decides) and dies with its parent. */
hr_status hr_worker_start(hr_worker *worker, const hr_measure_options *options);
/* As a thread, which leaves these signals to the caller. options->stop is its own. */
hr_status hr_worker_start_thread(hr_worker *worker, const hr_measure_options *options);
hr_status hr_worker_send(hr_worker *worker, json_t *message); /* takes the reference */
/* Called about ten times a second while an answer is awaited. share < 0: no news. */
typedef void hr_worker_tick(double share, void *context);
/* The next answer. ERR_INTERRUPTED after Ctrl-C or SIGTERM; ERR_IO when the worker died (the message names the signal);
 * ERR_INTERNAL when deadline_ns (0: none) passed. After an error only hr_worker_stop may follow. */
hr_status hr_worker_receive(hr_worker *worker, uint64_t deadline_ns, hr_worker_tick *tick, void *context, json_t **out);
/* Ends it (at once when `now`, a thread after its load or repetition; else by closing the line) and waits for it. Safe on a
 * worker that never started. */
void hr_worker_stop(hr_worker *worker, bool now);

#endif
