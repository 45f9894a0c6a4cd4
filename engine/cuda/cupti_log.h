/* cupti_log.h - records of CUPTI's activity buffers, read and joined. Knows nothing of where buffers come from, so that it is
 * tested on buffers that were made by hand. */
#ifndef HR_CUPTI_LOG_H
#define HR_CUPTI_LOG_H

#include "engine/cuda/cupti_activity.h"

typedef struct hr_cupti_call {
    uint32_t correlation; /* of the call */
    uint64_t id;          /* that was on top of the stack then */
} hr_cupti_call;
typedef struct hr_cupti_work {
    hr_kernel_span span;
    bool copy;
} hr_cupti_work;
typedef struct hr_cupti_log {
    hr_cupti_call *calls;
    size_t n_calls, calls_space;
    hr_cupti_work *work;
    size_t n_work, work_space;
    hr_kernel_time *times; /* after join: by id */
    size_t n_times;
    hr_kernel_span *spans;      /* after join: [n_work], by start */
    uint64_t overhead_ns, lost; /* lost: records without memory to keep them */
} hr_cupti_log;

/* cuptiActivityGetNextRecord */
typedef int hr_cupti_next_record(uint8_t *buffer, size_t bytes, void **record);
/* Keeps what matters of the records in bytes[0..valid). Returns how many records there were. */
size_t hr_cupti_log_add(hr_cupti_log *log, uint8_t *buffer, size_t valid, hr_cupti_next_record *next);
/* Fills times and spans. ERR_MEMORY. */
hr_status hr_cupti_log_join(hr_cupti_log *log);
bool hr_cupti_log_find(const hr_cupti_log *log, uint64_t id, hr_kernel_time *out);
void hr_cupti_log_reset(hr_cupti_log *log); /* keeps its memory */
void hr_cupti_log_fini(hr_cupti_log *log);

#endif
