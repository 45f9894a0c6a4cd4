/* trace.h - what the engine's recorder saw of a request: as a file for Perfetto, and as a table of its ops.
 *
 * Events nest on the thread that calls the engine: request > phase (a prefill micro-batch or a decode step) > layer > op;
 * `sample` stands behind its phase. A phase and a layer last from their first op's start to their last op's end. Jobs
 * that other threads ran lie on lines of their own. Of a ring that has lost its oldest ops, whole passes are kept. */
#ifndef HR_TRACE_H
#define HR_TRACE_H

#include "engine/engine.h"
#include "harness/trace/chrome_trace.h"

/* All is borrowed. */
typedef struct hr_trace {
    const hr_op_record *records; /* [n_records] oldest first */
    size_t n_records;
    const hr_thread_span *spans; /* [n_spans] in any order; those of passes before first_pass are left out */
    size_t n_spans;
    uint32_t first_pass;
    uint64_t ops_dropped, jobs_dropped; /* older than what is here */
    uint64_t start_ns, end_ns;          /* of the request */
    unsigned threads;
    const char *process;        /* names the process: "headroom synth:tiny int8 isl512 osl64" */
    const hr_chrome_arg *facts; /* [n_facts] of the whole trace, beside what was dropped */
    size_t n_facts;
} hr_trace;

/* From what hr_engine_records and hr_engine_thread_spans say; threads, process and facts are the caller's to set. */
void hr_trace_init(hr_trace *trace, const hr_op_record *records, size_t n_records, size_t ops_lost,
                   const hr_thread_span *spans, size_t n_spans, size_t jobs_lost);
/* Drops the oldest passes until the file takes at most so many bytes (one pass stays). ERR_MEMORY. */
hr_status hr_trace_fit(hr_trace *trace, uint64_t max_bytes);
/* Bytes of the file. */
hr_status hr_trace_bytes(const hr_trace *trace, uint64_t *out);
/* Returns how many events were written, names apart. Ask the stream for errors. */
uint64_t hr_trace_write(const hr_trace *trace, FILE *stream);

/* Rows by (phase, op) in the order of a pass: {name, phase, op, calls, total_ms, mean_us, median_us, share_pct, gb_s,
 * gop_s, imbalance_ms, handoff_ms}; share_pct of the time from the first op's start to the last one's end. The last row,
 * "between ops", is what no op covers. Rates are null where an op states no such work. *out: new reference. */
hr_status hr_trace_summary(const hr_trace *trace, json_t **out);
/* For hr_rows_write: all of them, and what a table for people shows. */
extern const char *const hr_trace_summary_keys[], *const hr_trace_summary_shown[];

#endif
