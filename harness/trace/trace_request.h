/* trace_request.h - the request that is traced: random tokens in, greedy tokens out, with the recorder on.
 *
 * The same request runs twice: as a warm-up, from whose count of ops and jobs the ring's size follows, and recorded. */
#ifndef HR_TRACE_REQUEST_H
#define HR_TRACE_REQUEST_H

#include "harness/trace/trace.h"

typedef struct hr_trace_request {
    hr_engine *engine; /* of at least seqs sequences of isl + osl - 1 positions */
    uint32_t vocab, isl, osl, seqs;
    uint32_t batch, ubatch; /* -b and -ub of the engine, its passes of a prefill; 0: a prompt is never stopped within */
    bool (*stop)(void);     /* asked between passes: true ends the request there; NULL: never */
    /* Of the warm-up alone: nothing is drawn while the recorder matters. NULL: none. */
    void (*progress)(double share, void *context);
    void *context;
} hr_trace_request;

/* Runs the request twice and gives what was recorded of the second run, as much as a file of max_bytes may hold or
 * somewhat more: hr_trace_fit cuts it. The records live in the engine until it runs or records again. ERR_INTERRUPTED
 * when the warm-up was stopped; a recorded request that was stopped is OK, and *whole is false. ERR_MEMORY for the
 * ring. */
hr_status hr_trace_request_run(const hr_trace_request *request, uint64_t max_bytes, hr_trace *out, bool *whole);

#endif
