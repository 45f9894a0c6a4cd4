// fake_cupti_profiler.cpp - the stand-in for CUPTI's Range Profiler and the host functions around it.
//
// Every call must come in the order that CUPTI asks for, with the sizes that it told: else CUPTI_ERROR_INVALID_OPERATION or
// _PARAMETER and a line on stderr. Values are made up from the work that ran in the range (its time is the fake driver's),
// or set by HR_FAKE_CUPTI="dram__bytes_read.sum=1e6". As on real chips five counters take one pass and seven take two.
#include "tests/cuda_on_cpu/fake_cupti.hpp"

#include <cupti_profiler_host.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace cupti {

enum : uint64_t { CONFIG = 0x636f6e666967, DATA = 0x64617461 };
enum : size_t { ONE_PASS = 5, CONFIG_BYTES = 64 };

// What a configuration image holds, and a counter data image.
struct config {
    uint64_t tag, metrics, passes;
};
struct sums {
    double ns, kernels, bytes;
};
struct data {
    uint64_t tag, ranges, decoded;
    sums range; // of the last that was closed
};

struct host {
    std::string chip;
    std::vector<std::string> metrics;
};
struct profiler {
    bool configured = false, started = false, in_range = false, complete = false;
    size_t passes = 1, pass = 0, ranges = 0, nested = 0;
    uint8_t *image = nullptr;
    size_t image_bytes = 0, told_bytes = 0;
    sums now{};
};
static std::map<const void *, std::unique_ptr<host>> &hosts = *new std::map<const void *, std::unique_ptr<host>>;
static std::map<const void *, std::unique_ptr<profiler>> &profilers =
    *new std::map<const void *, std::unique_ptr<profiler>>;

static CUptiResult refuse(CUptiResult code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static CUptiResult refuse(CUptiResult code, const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fprintf(stderr, "fake CUPTI: %s\n", line);
    return code;
}

static const struct {
    const char *name;
    double (*value)(const sums &s);
} metrics[] = {
    {"gpu__time_duration.sum", [](const sums &s) { return s.ns; }},
    {"dram__bytes_read.sum", [](const sums &s) { return s.bytes + 4096 * s.kernels; }},
    {"dram__bytes_write.sum", [](const sums &s) { return s.bytes + 1024 * s.kernels; }},
    {"sm__cycles_elapsed.avg.per_second", [](const sums &) { return 1.98e9; }},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", [](const sums &) { return 12.5; }},
    {"lts__t_sector_hit_rate.pct", [](const sums &) { return 60.0; }},
    {"sm__warps_active.avg.pct_of_peak_sustained_active", [](const sums &) { return 45.0; }},
};

static bool is_known(const char *metric) {
    for (const auto &m : metrics)
        if (!strcmp(m.name, metric)) return true;
    return false;
}

void profiler_ran(const hr_fake_cuda_record &r) {
    for (auto &p : profilers) {
        if (!p.second->in_range) continue;
        p.second->now.ns += (double)(r.end - r.start);
        if (r.kind == HR_FAKE_CUDA_KERNEL)
            p.second->now.kernels++;
        else
            p.second->now.bytes += (double)r.bytes;
    }
}

template <class T> static T *find(std::map<const void *, std::unique_ptr<T>> &all, const void *handle) {
    const auto at = all.find(handle);
    return at == all.end() ? nullptr : at->second.get();
}

static bool is_config(const uint8_t *image, size_t bytes, config *out) {
    if (!image || bytes < CONFIG_BYTES) return false;
    memcpy(out, image, sizeof *out);
    return out->tag == CONFIG;
}
static bool is_data(const uint8_t *image, size_t bytes, data *out) {
    if (!image || bytes < sizeof *out) return false;
    memcpy(out, image, sizeof *out);
    return out->tag == DATA;
}

} // namespace cupti

using namespace cupti;

// Sizes tell CUPTI of which version a struct is.
#define HR_CUPTI_PARAMS(function, type, p)                                  \
    HR_CUPTI_ENTER(function);                                               \
    if (!(p) || (p)->structSize != type##_Params_STRUCT_SIZE || (p)->pPriv) \
    return refuse(CUPTI_ERROR_INVALID_PARAMETER, #function ": structSize or pPriv is wrong")
#define HR_CUPTI_PROFILER(function, type, p)                     \
    HR_CUPTI_PARAMS(function, type, p);                          \
    profiler *self = find(profilers, (p)->pRangeProfilerObject); \
    if (!self) return refuse(CUPTI_ERROR_INVALID_PARAMETER, #function ": no such profiler")
#define HR_CUPTI_HOST(function, type, p)        \
    HR_CUPTI_PARAMS(function, type, p);         \
    host *self = find(hosts, (p)->pHostObject); \
    if (!self) return refuse(CUPTI_ERROR_INVALID_PARAMETER, #function ": no such host object")

extern "C" {

int hr_fake_cupti_live(void);
int hr_fake_cupti_live(void) { // host objects and profilers
    return (int)(hosts.size() + profilers.size());
}

// ---- host ----

CUptiResult CUPTIAPI cuptiProfilerHostInitialize(CUpti_Profiler_Host_Initialize_Params *p) {
    HR_CUPTI_PARAMS(cuptiProfilerHostInitialize, CUpti_Profiler_Host_Initialize, p);
    if (!p->pChipName || (strncmp(p->pChipName, "GA1", 3) && strncmp(p->pChipName, "GH1", 3) &&
                          strncmp(p->pChipName, "GB1", 3) && strncmp(p->pChipName, "AD1", 3)))
        return CUPTI_ERROR_INVALID_CHIP_NAME;
    auto h = std::make_unique<host>();
    h->chip = p->pChipName;
    p->pHostObject = (CUpti_Profiler_Host_Object *)h.get();
    hosts[h.get()] = std::move(h);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostDeinitialize(CUpti_Profiler_Host_Deinitialize_Params *p) {
    HR_CUPTI_HOST(cuptiProfilerHostDeinitialize, CUpti_Profiler_Host_Deinitialize, p);
    (void)self;
    hosts.erase(p->pHostObject);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostConfigAddMetrics(CUpti_Profiler_Host_ConfigAddMetrics_Params *p) {
    HR_CUPTI_HOST(cuptiProfilerHostConfigAddMetrics, CUpti_Profiler_Host_ConfigAddMetrics, p);
    for (size_t i = 0; i < p->numMetrics; i++)
        if (!is_known(p->ppMetricNames[i])) return CUPTI_ERROR_INVALID_METRIC_NAME;
    self->metrics.insert(self->metrics.end(), p->ppMetricNames, p->ppMetricNames + p->numMetrics);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostGetConfigImageSize(CUpti_Profiler_Host_GetConfigImageSize_Params *p) {
    HR_CUPTI_HOST(cuptiProfilerHostGetConfigImageSize, CUpti_Profiler_Host_GetConfigImageSize, p);
    if (self->metrics.empty()) return refuse(CUPTI_ERROR_INVALID_OPERATION, "a configuration without metrics");
    p->configImageSize = CONFIG_BYTES;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostGetConfigImage(CUpti_Profiler_Host_GetConfigImage_Params *p) {
    HR_CUPTI_HOST(cuptiProfilerHostGetConfigImage, CUpti_Profiler_Host_GetConfigImage, p);
    if (!p->pConfigImage || p->configImageSize < CONFIG_BYTES) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
    const config c = {CONFIG, self->metrics.size(), (self->metrics.size() + ONE_PASS - 1) / ONE_PASS};
    memset(p->pConfigImage, 0, p->configImageSize);
    memcpy(p->pConfigImage, &c, sizeof c);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params *p) {
    HR_CUPTI_PARAMS(cuptiProfilerHostGetNumOfPasses, CUpti_Profiler_Host_GetNumOfPasses, p);
    config c;
    if (!is_config(p->pConfigImage, p->configImageSize, &c)) return CUPTI_ERROR_INVALID_PARAMETER;
    p->numOfPasses = c.passes;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params *p) {
    HR_CUPTI_HOST(cuptiProfilerHostEvaluateToGpuValues, CUpti_Profiler_Host_EvaluateToGpuValues, p);
    (void)self;
    data d;
    if (!is_data(p->pCounterDataImage, p->counterDataImageSize, &d) || !d.decoded || p->rangeIndex >= d.ranges ||
        !p->pMetricValues)
        return refuse(CUPTI_ERROR_INVALID_PARAMETER, "values of data that was not decoded, or of no range");
    for (size_t i = 0; i < p->numMetrics; i++) {
        bool found = false;
        for (const auto &m : metrics) {
            if (strcmp(m.name, p->ppMetricNames[i])) continue;
            p->pMetricValues[i] = fact(m.name, m.value(d.range));
            found = true;
        }
        if (!found) return CUPTI_ERROR_INVALID_METRIC_NAME;
    }
    return CUPTI_SUCCESS;
}

// ---- device ----

CUptiResult CUPTIAPI cuptiProfilerInitialize(CUpti_Profiler_Initialize_Params *p) {
    const bool watched = watch();
    HR_CUPTI_PARAMS(cuptiProfilerInitialize, CUpti_Profiler_Initialize, p);
    return watched ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
}

CUptiResult CUPTIAPI cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params *p) {
    auto *fact_of = (decltype(&hr_fake_cuda_fact))driver_symbol("hr_fake_cuda_fact");
    const int cc = fact_of && p ? (int)fact_of((int)p->deviceIndex, "cc") : -1;
    HR_CUPTI_PARAMS(cuptiDeviceGetChipName, CUpti_Device_GetChipName, p);
    if (cc < 0) return CUPTI_ERROR_INVALID_DEVICE;
    p->pChipName = cc == 80 ? "GA100" : cc == 86 ? "GA102" : cc == 89 ? "AD102" : cc == 90 ? "GH100" : "GB100";
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params *p) {
    HR_CUPTI_PARAMS(cuptiRangeProfilerEnable, CUpti_RangeProfiler_Enable, p);
    if (!p->ctx) return CUPTI_ERROR_INVALID_CONTEXT;
    if (!profilers.empty()) return refuse(CUPTI_ERROR_INVALID_OPERATION, "a profiler is enabled already");
    auto made = std::make_unique<profiler>();
    p->pRangeProfilerObject = (CUpti_RangeProfiler_Object *)made.get();
    profilers[made.get()] = std::move(made);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerDisable, CUpti_RangeProfiler_Disable, p);
    const bool open = self->started || self->in_range;
    profilers.erase(p->pRangeProfilerObject);
    return open ? refuse(CUPTI_ERROR_INVALID_OPERATION, "disabled before it was stopped") : CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerGetCounterDataSize, CUpti_RangeProfiler_GetCounterDataSize, p);
    if (!p->numMetrics || !p->maxNumOfRanges || p->maxNumRangeTreeNodes < p->maxNumOfRanges)
        return CUPTI_ERROR_INVALID_PARAMETER;
    p->counterDataSize = self->told_bytes = sizeof(data) + 256 * p->numMetrics * p->maxNumOfRanges;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI
cuptiRangeProfilerCounterDataImageInitialize(CUpti_RangeProfiler_CounterDataImage_Initialize_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerCounterDataImageInitialize, CUpti_RangeProfiler_CounterDataImage_Initialize, p);
    if (!p->pCounterData || p->counterDataSize != self->told_bytes) return CUPTI_ERROR_INVALID_PARAMETER;
    const data fresh = {DATA, 0, 0, {0, 0, 0}};
    memcpy(p->pCounterData, &fresh, sizeof fresh);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerSetConfig(CUpti_RangeProfiler_SetConfig_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerSetConfig, CUpti_RangeProfiler_SetConfig, p);
    config c;
    data d;
    if (self->started) return CUPTI_ERROR_INVALID_OPERATION;
    if (!is_config(p->pConfig, p->configSize, &c) || !is_data(p->pCounterDataImage, p->counterDataImageSize, &d))
        return refuse(CUPTI_ERROR_INVALID_PARAMETER, "an image that was not initialized");
    if (p->range != CUPTI_UserRange || p->replayMode != CUPTI_UserReplay || !p->maxRangesPerPass ||
        !p->numNestingLevels)
        return refuse(CUPTI_ERROR_NOT_SUPPORTED, "ranges and replays by the user alone are simulated");
    self->configured = true, self->passes = c.passes, self->ranges = p->maxRangesPerPass;
    self->image = p->pCounterDataImage, self->image_bytes = p->counterDataImageSize;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerStart, CUpti_RangeProfiler_Start, p);
    if (!self->configured || self->started || self->complete)
        return refuse(CUPTI_ERROR_INVALID_OPERATION, "started before its configuration, twice, or after the last pass");
    self->started = true;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerPushRange, CUpti_RangeProfiler_PushRange, p);
    if (!self->started || self->in_range || !p->pRangeName)
        return refuse(CUPTI_ERROR_INVALID_OPERATION, "a range outside of a pass");
    self->in_range = true;
    self->now = {0, 0, 0};
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerPopRange(CUpti_RangeProfiler_PopRange_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerPopRange, CUpti_RangeProfiler_PopRange, p);
    if (!self->in_range) return refuse(CUPTI_ERROR_INVALID_OPERATION, "no range is open");
    self->in_range = false;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerStop, CUpti_RangeProfiler_Stop, p);
    if (!self->started || self->in_range)
        return refuse(CUPTI_ERROR_INVALID_OPERATION, "stopped in a range, or before it was started");
    self->started = false;
    p->passIndex = ++self->pass;
    self->complete = self->pass >= self->passes;
    p->isAllPassSubmitted = self->complete;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerDecodeData(CUpti_RangeProfiler_DecodeData_Params *p) {
    HR_CUPTI_PROFILER(cuptiRangeProfilerDecodeData, CUpti_RangeProfiler_DecodeData, p);
    if (self->started || !self->complete) return refuse(CUPTI_ERROR_INVALID_OPERATION, "decoded before the last pass");
    const size_t lost = (size_t)fact("ranges_dropped", 0);
    const data d = {DATA, lost ? 0u : 1u, 1, self->now};
    memcpy(self->image, &d, sizeof d);
    p->numOfRangeDropped = lost;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params *p) {
    HR_CUPTI_PARAMS(cuptiRangeProfilerGetCounterDataInfo, CUpti_RangeProfiler_GetCounterDataInfo, p);
    data d;
    if (!is_data(p->pCounterDataImage, p->counterDataImageSize, &d)) return CUPTI_ERROR_INVALID_PARAMETER;
    p->numTotalRanges = d.ranges;
    return CUPTI_SUCCESS;
}

} // extern "C"
