/* The Range Profiler of CUPTI: one range around all that `run` launches, run again for every pass.
 *
 * The host functions turn names of metrics into a configuration for a chip, and counter data into values; the range
 * profiler collects on the device. Kernels run one after another meanwhile: none of its times is anybody's result. */
#include "engine/cuda/cupti_counters.h"
#include "engine/cuda/cupti_library.h"
#include "engine/cuda/driver.h"
#include "kernels/base/memory.h"

#include <cupti_profiler_host.h> /* wants <string>: there is an empty file of that name in no_cxx */
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define HOST_LIST(X)                                                                                        \
    X(cuptiProfilerHostInitialize) X(cuptiProfilerHostDeinitialize) X(cuptiProfilerHostConfigAddMetrics)    \
    X(cuptiProfilerHostGetConfigImageSize) X(cuptiProfilerHostGetConfigImage)                               \
    X(cuptiProfilerHostGetNumOfPasses) X(cuptiProfilerHostEvaluateToGpuValues)
#define TARGET_LIST(X)                                                                                      \
    X(cuptiDeviceGetChipName) X(cuptiProfilerInitialize) X(cuptiRangeProfilerEnable)                        \
    X(cuptiRangeProfilerDisable) X(cuptiRangeProfilerGetCounterDataSize)                                    \
    X(cuptiRangeProfilerCounterDataImageInitialize) X(cuptiRangeProfilerSetConfig)                          \
    X(cuptiRangeProfilerStart) X(cuptiRangeProfilerStop) X(cuptiRangeProfilerPushRange)                     \
    X(cuptiRangeProfilerPopRange) X(cuptiRangeProfilerDecodeData) X(cuptiRangeProfilerGetCounterDataInfo)
/* clang-format on */
typedef struct functions {
#define X(f) __typeof__(&f) f;
    HOST_LIST(X) TARGET_LIST(X)
#undef X
} functions;

static functions cu;

static const struct counter {
    const char *metric;
    size_t field;
} counters[HR_COUNTERS_ALL] = {
#define X(name, metric) {metric, offsetof(hr_gpu_counters, name)},
    HR_COUNTER_LIST(X)
#undef X
};
enum { MAX_PASSES = 16 };

/* A struct of CUPTI's parameters with its size set, and a call that gives them and turns the result into a status. */
#define PARAMS(type, name, ...) type##_Params name = {.structSize = type##_Params_STRUCT_SIZE, __VA_ARGS__}
#define CALL(f, params)         HR_TRY(hr_cupti_check((int)cu.f(&(params)), "counters: " #f))

typedef struct session {
    CUpti_Profiler_Host_Object *host;
    CUpti_RangeProfiler_Object *profiler;
    const char *metrics[HR_COUNTERS_ALL];
    unsigned which[HR_COUNTERS_ALL], n; /* of counters[] */
    uint8_t *config, *data;
    size_t config_bytes, data_bytes;
} session;

/* ---- host: names -> configuration -------------------------------------------------------------------------------- */

static hr_status load_host(void) {
    const hr_cupti_symbol symbols[] = {
#define X(f) {#f, &cu.f},
        HOST_LIST(X)
#undef X
    };
    return hr_cupti_load(symbols, sizeof symbols / sizeof *symbols);
}

static hr_status load_target(void) {
    const hr_cupti_symbol symbols[] = {
#define X(f) {#f, &cu.f},
        TARGET_LIST(X)
#undef X
    };
    return hr_cupti_load(symbols, sizeof symbols / sizeof *symbols);
}

static hr_status open_host(session *s, const char *chip) {
    PARAMS(CUpti_Profiler_Host_Initialize, p, .profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER, .pChipName = chip);
    CALL(cuptiProfilerHostInitialize, p);
    s->host = p.pHostObject;
    return HR_OK;
}

static void close_host(session *s) {
    PARAMS(CUpti_Profiler_Host_Deinitialize, p, .pHostObject = s->host);
    if (s->host) cu.cuptiProfilerHostDeinitialize(&p);
    s->host = NULL;
}

static hr_status add_metrics(session *s, const char **names, size_t n) {
    PARAMS(CUpti_Profiler_Host_ConfigAddMetrics, p, .pHostObject = s->host, .ppMetricNames = names, .numMetrics = n);
    CALL(cuptiProfilerHostConfigAddMetrics, p);
    return HR_OK;
}

/* Whether the chip has it: asked of an object of its own, as one refused name would spoil the set. */
static bool has(const char *chip, const char *metric) {
    session probe = {0};
    const bool found = open_host(&probe, chip) == HR_OK && add_metrics(&probe, &metric, 1) == HR_OK;
    close_host(&probe);
    return found;
}

static hr_status configure(session *s, const char *chip, unsigned n) {
    HR_TRY(load_host());
    HR_TRY(open_host(s, chip));
    s->n = 0;
    for (unsigned i = 0; i < n; i++)
        if (has(chip, counters[i].metric)) s->which[s->n] = i, s->metrics[s->n++] = counters[i].metric;
    if (!s->n) HR_FAIL(HR_ERR_UNSUPPORTED, "counters: %s has none of those that are wanted", chip);
    HR_TRY(add_metrics(s, s->metrics, s->n));
    PARAMS(CUpti_Profiler_Host_GetConfigImageSize, size, .pHostObject = s->host);
    CALL(cuptiProfilerHostGetConfigImageSize, size);
    s->config_bytes = size.configImageSize;
    s->config = hr_calloc(1, s->config_bytes);
    if (!s->config) HR_FAIL(HR_ERR_MEMORY, "counters: out of memory for a configuration of %zu bytes", s->config_bytes);
    PARAMS(CUpti_Profiler_Host_GetConfigImage, image, .pHostObject = s->host, .configImageSize = s->config_bytes,
           .pConfigImage = s->config);
    CALL(cuptiProfilerHostGetConfigImage, image);
    return HR_OK;
}

static hr_status passes_of(const session *s, unsigned *passes) {
    PARAMS(CUpti_Profiler_Host_GetNumOfPasses, p, .configImageSize = s->config_bytes, .pConfigImage = s->config);
    CALL(cuptiProfilerHostGetNumOfPasses, p);
    *passes = (unsigned)p.numOfPasses;
    return HR_OK;
}

static void close_session(session *s) {
    PARAMS(CUpti_RangeProfiler_Disable, p, .pRangeProfilerObject = s->profiler);
    if (s->profiler) cu.cuptiRangeProfilerDisable(&p);
    close_host(s);
    hr_free(s->config), hr_free(s->data);
}

hr_status hr_counters_passes(const char *chip, unsigned n, unsigned *passes, unsigned *mask) {
    session s = {0};
    *passes = *mask = 0;
    hr_status status = configure(&s, chip, n);
    if (status == HR_OK) status = passes_of(&s, passes);
    for (unsigned i = 0; i < s.n; i++) *mask |= 1u << s.which[i];
    close_session(&s);
    return status;
}

/* ---- device: passes ----------------------------------------------------------------------------------------------- */

static hr_status chip_name(CUdevice device, const char **chip) {
    PARAMS(CUpti_Profiler_Initialize, init, .pPriv = NULL);
    CALL(cuptiProfilerInitialize, init);
    PARAMS(CUpti_Device_GetChipName, p, .deviceIndex = (size_t)device);
    CALL(cuptiDeviceGetChipName, p);
    *chip = p.pChipName;
    return HR_OK;
}

static hr_status enable(session *s, CUcontext context) {
    PARAMS(CUpti_RangeProfiler_Enable, on, .ctx = context);
    CALL(cuptiRangeProfilerEnable, on);
    s->profiler = on.pRangeProfilerObject;
    PARAMS(CUpti_RangeProfiler_GetCounterDataSize, size, .pRangeProfilerObject = s->profiler,
           .pMetricNames = s->metrics, .numMetrics = s->n, .maxNumOfRanges = 1, .maxNumRangeTreeNodes = 2);
    CALL(cuptiRangeProfilerGetCounterDataSize, size);
    s->data_bytes = size.counterDataSize;
    s->data = hr_calloc(1, s->data_bytes);
    if (!s->data) HR_FAIL(HR_ERR_MEMORY, "counters: out of memory for %zu bytes of counter data", s->data_bytes);
    PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize, image, .pRangeProfilerObject = s->profiler,
           .counterDataSize = s->data_bytes, .pCounterData = s->data);
    CALL(cuptiRangeProfilerCounterDataImageInitialize, image);
    PARAMS(CUpti_RangeProfiler_SetConfig, config, .pRangeProfilerObject = s->profiler, .configSize = s->config_bytes,
           .pConfig = s->config, .counterDataImageSize = s->data_bytes, .pCounterDataImage = s->data,
           .range = CUPTI_UserRange, .replayMode = CUPTI_UserReplay, .maxRangesPerPass = 1, .numNestingLevels = 1,
           .minNestingLevel = 1);
    CALL(cuptiRangeProfilerSetConfig, config);
    return HR_OK;
}

/* The range is closed after a failure of `run` too, so that Disable finds nothing open. */
static hr_status one_pass(session *s, const hr_driver *driver, hr_status (*run)(void *), void *context, bool *last) {
    PARAMS(CUpti_RangeProfiler_Start, start, .pRangeProfilerObject = s->profiler);
    PARAMS(CUpti_RangeProfiler_PushRange, push, .pRangeProfilerObject = s->profiler, .pRangeName = "run");
    PARAMS(CUpti_RangeProfiler_PopRange, pop, .pRangeProfilerObject = s->profiler);
    PARAMS(CUpti_RangeProfiler_Stop, stop, .pRangeProfilerObject = s->profiler);
    CALL(cuptiRangeProfilerStart, start);
    CALL(cuptiRangeProfilerPushRange, push);
    hr_status ran = run(context);
    if (ran == HR_OK) ran = hr_driver_check(driver->cuCtxSynchronize(), "counters: cuCtxSynchronize");
    const CUptiResult popped = cu.cuptiRangeProfilerPopRange(&pop), stopped = cu.cuptiRangeProfilerStop(&stop);
    HR_TRY(ran);
    HR_TRY(hr_cupti_check((int)popped, "counters: cuptiRangeProfilerPopRange"));
    HR_TRY(hr_cupti_check((int)stopped, "counters: cuptiRangeProfilerStop"));
    *last = stop.isAllPassSubmitted;
    return HR_OK;
}

static hr_status evaluate(session *s, hr_gpu_counters *out) {
    double values[HR_COUNTERS_ALL] = {0};
    PARAMS(CUpti_RangeProfiler_DecodeData, decode, .pRangeProfilerObject = s->profiler);
    CALL(cuptiRangeProfilerDecodeData, decode);
    PARAMS(CUpti_RangeProfiler_GetCounterDataInfo, info, .pCounterDataImage = s->data,
           .counterDataImageSize = s->data_bytes);
    CALL(cuptiRangeProfilerGetCounterDataInfo, info);
    if (!info.numTotalRanges || decode.numOfRangeDropped)
        HR_FAIL(HR_ERR_UNSUPPORTED, "counters: CUPTI dropped the range that was measured");
    PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues, p, .pHostObject = s->host, .pCounterDataImage = s->data,
           .counterDataImageSize = s->data_bytes, .rangeIndex = 0, .ppMetricNames = s->metrics, .numMetrics = s->n,
           .pMetricValues = values);
    CALL(cuptiProfilerHostEvaluateToGpuValues, p);
    for (unsigned i = 0; i < s->n; i++) memcpy((char *)out + counters[s->which[i]].field, &values[i], sizeof(double));
    out->sm_mhz *= 1e-6; /* cycles a second */
    return HR_OK;
}

static hr_status collect(session *s, int device, hr_status (*run)(void *), void *context, hr_gpu_counters *out) {
    const hr_driver *driver;
    CUdevice cuda_device;
    CUcontext cuda_context;
    const char *chip;
    HR_TRY(load_target());
    HR_TRY(hr_driver_open(&driver));
    HR_TRY(hr_driver_context(device, &cuda_device, &cuda_context));
    HR_TRY(chip_name(cuda_device, &chip));
    HR_TRY(configure(s, chip, HR_COUNTERS_ALL));
    HR_TRY(enable(s, cuda_context));
    bool last = false;
    for (unsigned pass = 0; !last; pass++) {
        if (pass == MAX_PASSES) HR_FAIL(HR_ERR_UNSUPPORTED, "counters: CUPTI wants more than %d passes", MAX_PASSES);
        HR_TRY(one_pass(s, driver, run, context, &last));
    }
    return evaluate(s, out);
}

hr_status hr_gpu_counters_measure(int device, hr_status (*run)(void *context), void *context, hr_gpu_counters *out) {
    *out = (hr_gpu_counters){NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    const char *tool = hr_cupti_other_tool();
    if (tool) HR_FAIL(HR_ERR_UNSUPPORTED, "counters: another tool is attached to this process (%s)", tool);
    session s = {0};
    const hr_status status = collect(&s, device, run, context, out);
    close_session(&s);
    return status;
}
