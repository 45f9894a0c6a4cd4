/* chrome_trace.h - writes the JSON of Chrome's trace viewer and Perfetto: complete events ("ph": "X") on named threads.
 * Knows nothing of the program; only C's own library, as the NVTX recorder is built from it too.
 *
 * Format: "Trace Event Format" (Google). Times are microseconds with three decimals: nanoseconds are kept. */
#ifndef HR_CHROME_TRACE_H
#define HR_CHROME_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct hr_chrome {
    FILE *stream;
    long pid;
    uint64_t origin_ns; /* becomes time 0 */
    bool first;         /* nothing written yet */
} hr_chrome;

/* An argument of an event: a number, or a text when text is not NULL. */
typedef struct hr_chrome_arg {
    const char *key;
    uint64_t number;
    const char *text;
} hr_chrome_arg;

/* Nothing fails here: ask the stream at the end (ferror). Texts are escaped; bytes that are no UTF-8 become '?'. */
void hr_chrome_begin(hr_chrome *chrome, FILE *stream, long pid, uint64_t origin_ns, const char *process);
void hr_chrome_thread(hr_chrome *chrome, long tid, const char *name);
void hr_chrome_event(hr_chrome *chrome, const char *category, const char *name, long tid, uint64_t start_ns,
                     uint64_t end_ns, const hr_chrome_arg *args, size_t n_args);
void hr_chrome_mark(hr_chrome *chrome, const char *category, const char *name, long tid, uint64_t at_ns,
                    const hr_chrome_arg *args, size_t n_args);
/* other: facts of the whole trace ("otherData"), or none. */
void hr_chrome_end(hr_chrome *chrome, const hr_chrome_arg *other, size_t n_other);

#endif
