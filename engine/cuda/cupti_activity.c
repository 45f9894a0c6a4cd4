/* The Activity API of CUPTI: switched on before the driver is initialized, on and off around what is recorded, and the
 * buffers that come of it. */
#include "engine/cuda/cupti_activity.h"
#include "engine/cuda/cupti_library.h"
#include "engine/cuda/cupti_log.h"
#include "engine/device.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"

#include <cupti.h>
#include <pthread.h>
#include <stdio.h>

/* clang-format off */
#define ACTIVITY_LIST(X)                                                                        \
    X(cuptiActivityRegisterCallbacks) X(cuptiActivityRegisterTimestampCallback)                 \
    X(cuptiActivityEnable) X(cuptiActivityDisable) X(cuptiActivityFlushAll)                     \
    X(cuptiActivityGetNextRecord) X(cuptiActivityGetNumDroppedRecords)                          \
    X(cuptiActivityPushExternalCorrelationId) X(cuptiActivityPopExternalCorrelationId)
/* clang-format on */
typedef struct activity {
#define X(f) __typeof__(&f) f;
    ACTIVITY_LIST(X)
#undef X
} activity;

/* DRIVER: without records of calls there are none that link them to ids. */
static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                                           CUPTI_ACTIVITY_KIND_OVERHEAD};
enum { N_KINDS = sizeof kinds / sizeof *kinds, BUFFER_BYTES = 1 << 20, BUFFER_ALIGN = 8 };

static activity cu;
static bool wanted, ready, on;
static char missing[256];
static uint64_t dropped;
/* Buffers come back on a thread of CUPTI's too. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hr_cupti_log records;

void hr_gpu_want_kernel_times(bool want) {
    wanted = want;
}

const char *hr_gpu_kernel_times_missing(void) {
    return missing;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *bytes, size_t *max_records) {
    *buffer = hr_malloc(BUFFER_BYTES); /* 16-byte aligned; CUPTI asks for 8. NULL: CUPTI counts what it drops */
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static int next_record(uint8_t *buffer, size_t bytes, void **record) {
    return (int)cu.cuptiActivityGetNextRecord(buffer, bytes, (CUpti_Activity **)record);
}

static void CUPTIAPI buffer_filled(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid) {
    (void)bytes;
    size_t lost = 0;
    pthread_mutex_lock(&lock);
    if (buffer && valid) hr_cupti_log_add(&records, buffer, valid, next_record);
    if (cu.cuptiActivityGetNumDroppedRecords(context, stream, &lost) == CUPTI_SUCCESS) dropped += lost;
    pthread_mutex_unlock(&lock);
    hr_free(buffer);
}

/* ---- on and off -------------------------------------------------------------------------------------------------- */

static uint64_t CUPTIAPI now(void) {
    return hr_now_ns();
}

static void disable(void) {
    for (unsigned i = 0; i < N_KINDS; i++) cu.cuptiActivityDisable(kinds[i]);
    on = false;
}

static hr_status enable(void) {
    on = true;
    for (unsigned i = 0; i < N_KINDS; i++) {
        const CUptiResult result = cu.cuptiActivityEnable(kinds[i]);
        if (result == CUPTI_SUCCESS) continue;
        disable();
        return hr_cupti_check((int)result, "kernel times: cuptiActivityEnable");
    }
    return HR_OK;
}

static hr_status open_activity(void) {
    const hr_cupti_symbol symbols[] = {
#define X(f) {#f, &cu.f},
        ACTIVITY_LIST(X)
#undef X
    };
    const char *tool = hr_cupti_other_tool();
    if (tool)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "kernel times: another tool is attached to this process (%s); ops have the times of events", tool);
    HR_TRY(hr_cupti_load(symbols, sizeof symbols / sizeof *symbols));
    HR_TRY(hr_cupti_check((int)cu.cuptiActivityRegisterTimestampCallback(now),
                          "kernel times: cuptiActivityRegisterTimestampCallback"));
    HR_TRY(hr_cupti_check((int)cu.cuptiActivityRegisterCallbacks(buffer_wanted, buffer_filled),
                          "kernel times: cuptiActivityRegisterCallbacks"));
    return enable();
}

/* There will be no kernel times any more: the failure says why. */
static void give_up(void) {
    snprintf(missing, sizeof missing, "%s", hr_error());
    ready = false;
}

void hr_cupti_before_init(void) {
    if (!wanted || ready) return;
    ready = open_activity() == HR_OK;
    if (!ready) give_up();
}

bool hr_cupti_ready(void) {
    return ready;
}

static void drop(void) {
    pthread_mutex_lock(&lock);
    hr_cupti_log_reset(&records);
    dropped = 0;
    pthread_mutex_unlock(&lock);
}

/* FLAG_FLUSH_FORCED: buffers that are not full too. */
static hr_status flush(void) {
    return hr_cupti_check((int)cu.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                          "kernel times: cuptiActivityFlushAll");
}

void hr_cupti_after_context(void) {
    if (!ready || !on) return;
    disable();
    if (flush() != HR_OK) give_up(); /* a driver that does not work with it is told apart here */
    drop();
}

hr_status hr_cupti_start(void) {
    if (!ready) return HR_OK;
    drop();
    const hr_status status = on ? HR_OK : enable();
    if (status != HR_OK) give_up();
    return status;
}

hr_status hr_cupti_collect(void) {
    if (!ready || !on) return HR_OK;
    HR_TRY(flush());
    pthread_mutex_lock(&lock);
    const hr_status joined = hr_cupti_log_join(&records);
    pthread_mutex_unlock(&lock);
    return joined;
}

hr_status hr_cupti_stop(void) {
    if (!ready || !on) return HR_OK;
    const hr_status collected = hr_cupti_collect();
    disable();
    return collected;
}

void hr_cupti_push(uint64_t id) {
    if (on) cu.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id);
}

void hr_cupti_pop(void) {
    uint64_t id;
    if (on) cu.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id);
}

bool hr_cupti_find(uint64_t id, hr_kernel_time *out) {
    return ready && hr_cupti_log_find(&records, id, out);
}

const hr_kernel_span *hr_cupti_spans(size_t *n) {
    *n = ready && records.spans ? records.n_work : 0;
    return records.spans;
}

void hr_cupti_losses(uint64_t *lost, uint64_t *overhead_ns) {
    *lost = dropped + records.lost;
    *overhead_ns = records.overhead_ns;
}
