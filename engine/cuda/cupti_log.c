/* Activity records -> time on the device of each id. */
#include "engine/cuda/cupti_log.h"
#include "kernels/base/memory.h"

#include <cupti.h>
#include <stdlib.h>

/* Room for one more element; false: out of memory, and the record is counted as lost. */
static bool grow(hr_cupti_log *log, void **at, size_t n, size_t *space, size_t element) {
    if (n < *space) return true;
    const size_t wanted = *space ? *space * 2 : 4096;
    void *grown = hr_realloc(*at, hr_mul(wanted, element));
    if (!grown) {
        log->lost++;
        return false;
    }
    *at = grown, *space = wanted;
    return true;
}

static void add_call(hr_cupti_log *log, const CUpti_ActivityExternalCorrelation *r) {
    if (r->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return; /* of another library's stack */
    void *at = log->calls;
    if (!grow(log, &at, log->n_calls, &log->calls_space, sizeof *log->calls)) return;
    log->calls = at;
    log->calls[log->n_calls++] = (hr_cupti_call){r->correlationId, r->externalId};
}

static void add_work(hr_cupti_log *log, uint64_t start, uint64_t end, uint32_t correlation, const char *name,
                     bool copy) {
    if (!start || end < start) { /* CUPTI writes 0 where it could not tell */
        log->lost++;
        return;
    }
    void *at = log->work;
    if (!grow(log, &at, log->n_work, &log->work_space, sizeof *log->work)) return;
    log->work = at;
    log->work[log->n_work++] = (hr_cupti_work){
        {.start_ns = start, .end_ns = end, .name = name ? name : "", .correlation = correlation}, .copy = copy};
}

static void add_record(hr_cupti_log *log, const CUpti_Activity *record) {
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
        const CUpti_ActivityKernel10 *r = (const CUpti_ActivityKernel10 *)record;
        add_work(log, r->start, r->end, r->correlationId, r->name, false);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy6 *r = (const CUpti_ActivityMemcpy6 *)record;
        add_work(log, r->start, r->end, r->correlationId, NULL, true);
        break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        add_call(log, (const CUpti_ActivityExternalCorrelation *)record);
        break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const CUpti_ActivityOverhead3 *r = (const CUpti_ActivityOverhead3 *)record;
        log->overhead_ns += r->end - r->start;
        break;
    }
    default:
        break;
    }
}

size_t hr_cupti_log_add(hr_cupti_log *log, uint8_t *buffer, size_t valid, hr_cupti_next_record *next) {
    void *record = NULL;
    size_t n = 0;
    while (next(buffer, valid, &record) == CUPTI_SUCCESS) {
        add_record(log, record);
        n++;
    }
    return n;
}

static int by_correlation(const void *a, const void *b) {
    const hr_cupti_call *x = a, *y = b;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}
static int by_start(const void *a, const void *b) {
    const hr_kernel_span *x = &((const hr_cupti_work *)a)->span, *y = &((const hr_cupti_work *)b)->span;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}
static int by_id(const void *a, const void *b) {
    const hr_kernel_time *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* The id around the call; 0: none. Calls are sorted. */
static uint64_t id_of(const hr_cupti_log *log, uint32_t correlation) {
    const hr_cupti_call key = {.correlation = correlation};
    const hr_cupti_call *call =
        log->n_calls ? bsearch(&key, log->calls, log->n_calls, sizeof key, by_correlation) : NULL;
    return call ? call->id : 0;
}

/* One entry a piece of work, sorted by id, then those of one id put together. */
static void sum_times(hr_cupti_log *log) {
    size_t n = 0;
    for (size_t i = 0; i < log->n_work; i++) {
        const hr_cupti_work *w = &log->work[i];
        if (!w->span.id) continue;
        log->times[n++] = (hr_kernel_time){.id = w->span.id,
                                           .start_ns = w->span.start_ns,
                                           .end_ns = w->span.end_ns,
                                           .busy_ns = w->span.end_ns - w->span.start_ns,
                                           .kernels = !w->copy,
                                           .copies = w->copy};
    }
    if (n) qsort(log->times, n, sizeof *log->times, by_id);
    log->n_times = 0;
    for (size_t i = 0; i < n; i++) {
        hr_kernel_time *last = log->n_times ? &log->times[log->n_times - 1] : NULL, next = log->times[i];
        if (!last || last->id != next.id) {
            log->times[log->n_times++] = next;
            continue;
        }
        if (next.start_ns < last->start_ns) last->start_ns = next.start_ns;
        if (next.end_ns > last->end_ns) last->end_ns = next.end_ns;
        last->busy_ns += next.busy_ns, last->kernels += next.kernels, last->copies += next.copies;
    }
}

hr_status hr_cupti_log_join(hr_cupti_log *log) {
    hr_kernel_time *times = hr_realloc(log->times, hr_mul(log->n_work, sizeof *times));
    if (times) log->times = times;
    hr_kernel_span *spans = hr_realloc(log->spans, hr_mul(log->n_work, sizeof *spans));
    if (spans) log->spans = spans;
    if (!times || !spans) HR_FAIL(HR_ERR_MEMORY, "CUPTI: out of memory for the times of %zu kernels", log->n_work);
    if (log->n_calls) qsort(log->calls, log->n_calls, sizeof *log->calls, by_correlation);
    if (log->n_work) qsort(log->work, log->n_work, sizeof *log->work, by_start);
    for (size_t i = 0; i < log->n_work; i++) {
        log->work[i].span.id = id_of(log, log->work[i].span.correlation);
        log->spans[i] = log->work[i].span;
    }
    sum_times(log);
    return HR_OK;
}

bool hr_cupti_log_find(const hr_cupti_log *log, uint64_t id, hr_kernel_time *out) {
    const hr_kernel_time key = {.id = id};
    const hr_kernel_time *found = log->n_times ? bsearch(&key, log->times, log->n_times, sizeof key, by_id) : NULL;
    if (found) *out = *found;
    return found != NULL;
}

void hr_cupti_log_reset(hr_cupti_log *log) {
    log->n_calls = log->n_work = log->n_times = 0;
    log->overhead_ns = log->lost = 0;
}

void hr_cupti_log_fini(hr_cupti_log *log) {
    hr_free(log->calls), hr_free(log->work), hr_free(log->times), hr_free(log->spans);
    *log = (hr_cupti_log){0};
}
