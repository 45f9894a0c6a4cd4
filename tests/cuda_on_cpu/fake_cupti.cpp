// fake_cupti.cpp - the stand-in for CUPTI, its Activity API: records of kernels, copies and calls of the fake driver, and the
// ids pushed around those calls.
//
// A record is written when the work has run, if its kind is enabled then. Buffers are asked for when they are needed and given
// back full, or by cuptiActivityFlushAll. As with CUPTI, ids are linked to calls alone while records of calls (DRIVER) are
// enabled.
//
// Environment, read anew at every call:
//     HR_FAKE_CUPTI       "dropped=0,overhead=0,METRIC=VALUE,...": records that are said to be dropped, ns of an overhead record
//                         of every flush, values of metrics (fake_cupti_profiler.cpp)
//     HR_FAKE_CUPTI_FAIL  "cuptiActivityEnable:39,cuptiRangeProfilerStart:7:2": functions that return a code, always or at
//                         the Nth call
#include "tests/cuda_on_cpu/fake_cupti.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <map>
#include <set>
#include <unistd.h>
#include <vector>

namespace cupti {

std::recursive_mutex &lock() {
    static std::recursive_mutex &m = *new std::recursive_mutex;
    return m;
}

static bool find(const char *list, const char *key, char separator, std::string *out) {
    const size_t length = strlen(key);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        if (strncmp(at, key, length) || at[length] != separator) continue;
        out->assign(at + length + 1, strcspn(at + length + 1, ","));
        return true;
    }
    return false;
}

CUptiResult fault(const char *function) {
    static std::map<std::string, int> &counts = *new std::map<std::string, int>;
    static std::string &armed = *new std::string;
    const char *now = getenv("HR_FAKE_CUPTI_FAIL");
    if (armed != (now ? now : "")) counts.clear(), armed = now ? now : ""; // counting starts anew
    const int nth = ++counts[function];
    std::string text;
    int code = 0, at = 0;
    if (!find(now, function, ':', &text) || sscanf(text.c_str(), "%d:%d", &code, &at) < 1) return CUPTI_SUCCESS;
    return !at || at == nth ? (CUptiResult)code : CUPTI_SUCCESS;
}

double fact(const char *key, double usual) {
    std::string text;
    return find(getenv("HR_FAKE_CUPTI"), key, '=', &text) ? strtod(text.c_str(), nullptr) : usual;
}

void *driver_symbol(const char *name) {
    static void *library = [] {
        const char *file = getenv("HEADROOM_LIBCUDA");
        return file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : nullptr;
    }();
    return library ? dlsym(library, name) : nullptr;
}

// ---- records ----

static struct {
    CUpti_BuffersCallbackRequestFunc request = nullptr;
    CUpti_BuffersCallbackCompleteFunc complete = nullptr;
    CUpti_TimestampCallbackFunc timestamp = nullptr;
    std::set<int> kinds;
    uint8_t *buffer = nullptr;
    size_t bytes = 0, used = 0, most = 0, n = 0, dropped = 0;
    std::set<std::string> &names = *new std::set<std::string>; // of kernels: records point to them
} activity;
static thread_local std::vector<std::pair<CUpti_ExternalCorrelationKind, uint64_t>> ids;

static bool enabled(CUpti_ActivityKind kind) {
    return activity.kinds.count(kind) != 0;
}

static void give_back() {
    if (!activity.buffer) return;
    uint8_t *buffer = activity.buffer;
    activity.buffer = nullptr;
    activity.complete(nullptr, 0, buffer, activity.bytes, activity.used);
}

template <class T> static void add(const T &record) {
    const size_t room = (sizeof record + 7) / 8 * 8;
    if (activity.buffer && (activity.bytes - activity.used < room || (activity.most && activity.n == activity.most)))
        give_back();
    if (!activity.buffer) {
        activity.bytes = activity.used = activity.n = activity.most = 0;
        if (activity.request) activity.request(&activity.buffer, &activity.bytes, &activity.most);
        if (activity.buffer && activity.bytes < room) give_back();
    }
    if (!activity.buffer) {
        activity.dropped++;
        return;
    }
    memset(activity.buffer + activity.used, 0, room);
    memcpy(activity.buffer + activity.used, &record, sizeof record);
    activity.used += room, activity.n++;
}

static uint64_t realtime() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Times of the driver are those of CLOCK_REALTIME; records have those of the callback where there is one.
static int64_t offset() {
    return activity.timestamp ? (int64_t)(activity.timestamp() - realtime()) : 0;
}

static uint8_t copy_kind(hr_fake_cuda_kind kind) {
    return kind == HR_FAKE_CUDA_HTOD   ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
           : kind == HR_FAKE_CUDA_DTOH ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                       : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
}

static void add_kernel(const hr_fake_cuda_record &r, int64_t by) {
    CUpti_ActivityKernel10 k{};
    k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    k.start = r.start + (uint64_t)by, k.end = r.end + (uint64_t)by, k.completed = k.end;
    k.deviceId = r.device, k.contextId = 1, k.streamId = r.stream, k.correlationId = r.correlation, k.graphId = r.graph;
    k.gridX = (int32_t)r.grid[0], k.gridY = (int32_t)r.grid[1], k.gridZ = (int32_t)r.grid[2];
    k.blockX = (int32_t)r.block[0], k.blockY = (int32_t)r.block[1], k.blockZ = (int32_t)r.block[2];
    k.staticSharedMemory = (int32_t)r.smem_static, k.dynamicSharedMemory = (int32_t)r.smem_dynamic;
    k.registersPerThread = (uint16_t)r.registers;
    k.name = activity.names.insert(r.name).first->c_str();
    add(k);
}

static void on_ran(void *, const hr_fake_cuda_record *r) {
    const std::lock_guard<std::recursive_mutex> held(lock());
    profiler_ran(*r);
    const int64_t by = offset();
    if (r->kind == HR_FAKE_CUDA_KERNEL) {
        if (enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) || enabled(CUPTI_ACTIVITY_KIND_KERNEL)) add_kernel(*r, by);
    } else if (r->kind == HR_FAKE_CUDA_SET) {
        if (!enabled(CUPTI_ACTIVITY_KIND_MEMSET)) return;
        CUpti_ActivityMemset4 m{};
        m.kind = CUPTI_ACTIVITY_KIND_MEMSET;
        m.bytes = r->bytes, m.start = r->start + (uint64_t)by, m.end = r->end + (uint64_t)by,
        m.correlationId = r->correlation;
        m.graphId = r->graph, m.streamId = r->stream;
        add(m);
    } else if (enabled(CUPTI_ACTIVITY_KIND_MEMCPY)) {
        CUpti_ActivityMemcpy6 c{};
        c.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
        c.copyKind = copy_kind(r->kind), c.bytes = r->bytes;
        c.start = r->start + (uint64_t)by, c.end = r->end + (uint64_t)by, c.correlationId = r->correlation;
        c.deviceId = r->device, c.contextId = 1, c.streamId = r->stream, c.graphId = r->graph;
        add(c);
    }
}

static void on_called(void *, const char *, uint32_t correlation, uint64_t start, uint64_t end) {
    const std::lock_guard<std::recursive_mutex> held(lock());
    if (!enabled(CUPTI_ACTIVITY_KIND_DRIVER)) return;
    if (enabled(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
        std::set<int> seen; // the top of every stack
        for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
            if (!seen.insert(id->first).second) continue;
            CUpti_ActivityExternalCorrelation x{};
            x.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
            x.externalKind = id->first, x.externalId = id->second, x.correlationId = correlation;
            add(x);
        }
    }
    const int64_t by = offset();
    CUpti_ActivityAPI a{};
    a.kind = CUPTI_ACTIVITY_KIND_DRIVER;
    a.start = start + (uint64_t)by, a.end = end + (uint64_t)by, a.correlationId = correlation;
    a.processId = (uint32_t)getpid(), a.threadId = (uint32_t)gettid();
    add(a);
}

bool watch() {
    static std::once_flag once;
    static bool watching = false;
    std::call_once(once, [] {
        auto *observe = (decltype(&hr_fake_cuda_observe))driver_symbol("hr_fake_cuda_observe");
        const hr_fake_cuda_observer observer = {on_called, on_ran, nullptr};
        if (observe) observe(&observer);
        watching = observe != nullptr;
    });
    return watching;
}

static size_t record_bytes(CUpti_ActivityKind kind) {
    const size_t bytes = kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL      ? sizeof(CUpti_ActivityKernel10)
                         : kind == CUPTI_ACTIVITY_KIND_MEMCPY               ? sizeof(CUpti_ActivityMemcpy6)
                         : kind == CUPTI_ACTIVITY_KIND_MEMSET               ? sizeof(CUpti_ActivityMemset4)
                         : kind == CUPTI_ACTIVITY_KIND_DRIVER               ? sizeof(CUpti_ActivityAPI)
                         : kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION ? sizeof(CUpti_ActivityExternalCorrelation)
                         : kind == CUPTI_ACTIVITY_KIND_OVERHEAD             ? sizeof(CUpti_ActivityOverhead3)
                                                                            : 0;
    return (bytes + 7) / 8 * 8;
}

} // namespace cupti

using namespace cupti;

extern "C" {

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *out) {
    *out = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult code, const char **out) {
    static const struct {
        CUptiResult code;
        const char *name;
    } names[] = {
#define E(name) {CUPTI_ERROR_##name, "CUPTI_ERROR_" #name},
        E(INVALID_PARAMETER) E(INVALID_CONTEXT) E(INVALID_OPERATION) E(OUT_OF_MEMORY) E(HARDWARE) E(MAX_LIMIT_REACHED)
            E(NOT_INITIALIZED) E(INVALID_METRIC_NAME) E(INVALID_KIND) E(HARDWARE_BUSY) E(NOT_SUPPORTED)
                E(VIRTUALIZED_DEVICE_NOT_SUPPORTED) E(INSUFFICIENT_PRIVILEGES) E(MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
                    E(VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES) E(MIG_DEVICE_NOT_SUPPORTED) E(INVALID_CHIP_NAME)
                        E(UNKNOWN)
#undef E
    };
    *out = code == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_(fake)";
    for (const auto &n : names)
        if (n.code == code) *out = n.name;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
    HR_CUPTI_ENTER(cuptiActivityRegisterCallbacks);
    if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    activity.request = request, activity.complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc timestamp) {
    HR_CUPTI_ENTER(cuptiActivityRegisterTimestampCallback);
    activity.timestamp = timestamp;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
    const bool watched = watch();
    HR_CUPTI_ENTER(cuptiActivityEnable);
    if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT) return CUPTI_ERROR_INVALID_KIND;
    if (!watched) return CUPTI_ERROR_NOT_INITIALIZED;
    activity.kinds.insert(kind);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
    HR_CUPTI_ENTER(cuptiActivityDisable);
    activity.kinds.erase(kind);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
    HR_CUPTI_ENTER(cuptiActivityFlushAll);
    const double overhead = fact("overhead", 0);
    if (overhead > 0 && enabled(CUPTI_ACTIVITY_KIND_OVERHEAD)) {
        CUpti_ActivityOverhead3 o{};
        o.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
        o.start = realtime() + (uint64_t)offset(), o.end = o.start + (uint64_t)overhead;
        add(o);
    }
    if (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) give_back(); // else full ones alone, and those are back
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    HR_CUPTI_ENTER(cuptiActivityGetNextRecord);
    if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
    const auto *last = (const uint8_t *)*record;
    const uint8_t *next = last ? last + record_bytes((*record)->kind) : buffer;
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return record_bytes((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *out) {
    HR_CUPTI_ENTER(cuptiActivityGetNumDroppedRecords);
    if (!out) return CUPTI_ERROR_INVALID_PARAMETER;
    *out = activity.dropped + (size_t)fact("dropped", 0);
    activity.dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    HR_CUPTI_ENTER(cuptiActivityPushExternalCorrelationId);
    ids.emplace_back(kind, id);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    HR_CUPTI_ENTER(cuptiActivityPopExternalCorrelationId);
    for (size_t i = ids.size(); i-- > 0;) {
        if (ids[i].first != kind) continue;
        if (last) *last = ids[i].second;
        ids.erase(ids.begin() + (long)i);
        return CUPTI_SUCCESS;
    }
    return CUPTI_ERROR_QUEUE_EMPTY;
}

} // extern "C"
