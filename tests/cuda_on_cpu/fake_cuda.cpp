// fake_cuda.cpp - the stand-in for the CUDA driver: the door that every call passes, devices and contexts, counts.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

extern "C" {
extern const int hr_cuda_fake; // its presence says that this is not a driver
const int hr_cuda_fake = 1;
}

namespace fake {

state &the() {
    static state *s = new state;
    return *s;
}

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// ---- the door ----

static thread_local device *thread_context;

device *current() {
    return thread_context;
}

void ruin(device *d, CUresult why) {
    if (!d->ruined) d->ruined = why;
    drop_queues(d);
}

entry::entry(const char *function, unsigned need) : held(the().lock), name(function), needs(need), start(now_ns()) {
    state &s = the();
    dev = current();
    if (!(needs & QUIET)) {
        id = (uint32_t)++s.done.calls;
        const strike struck = next_fault(name);
        if (struck.code && struck.late)
            late = struck.code;
        else if (struck.code) {
            result = struck.code;
            if (ruins(result) && dev) ruin(dev, result);
        }
    }
    if (s.forked) result = CUDA_ERROR_NOT_INITIALIZED, stop = true;
    if (!s.initialized && (needs & STARTED)) {
        if (!result) result = CUDA_ERROR_NOT_INITIALIZED;
        stop = true;
    }
    if ((needs & CONTEXT) == CONTEXT && !stop) {
        if (!dev || !dev->retained) {
            if (!result) result = dev ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
            stop = true;
        } else if (!result)
            result = dev->ruined;
    }
    if (!stop && !result && (needs & UNSAFE) && forbid_in_capture()) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        stop = true;
    }
    if (result && !(needs & RELEASES)) stop = true;
}

entry::~entry() {
    const state &s = the();
    if (s.observed && s.observer.called && !(needs & QUIET))
        s.observer.called(s.observer.context, name, id, start, now_ns());
}

// ---- counts ----

static void count(hr_fake_cuda_counts *c) {
    const state &s = the();
    *c = s.done;
    for (const auto &d : s.devices) c->contexts += d->retained;
    c->modules = s.modules.size(), c->streams = s.streams.size(), c->events = s.events.size();
    c->graphs = s.graphs.size(), c->execs = s.execs.size(), c->queued = queued_work();
    count_handles(c);
    each_region(
        [](const region &r, void *out) {
            auto *to = (hr_fake_cuda_counts *)out;
            switch (r.kind) {
            case kind::DEVICE:
                to->memory++, to->memory_bytes += r.bytes;
                break;
            case kind::MANAGED:
                to->managed++, to->managed_bytes += r.bytes;
                break;
            case kind::PINNED:
                to->pinned++, to->pinned_bytes += r.bytes;
                break;
            case kind::MAPPED:
                to->mappings++;
            }
        },
        c);
}

static void tell_leaks() {
    hr_fake_cuda_counts c;
    count(&c);
    std::string line;
#define X(name) \
    if (c.name) line += (line.empty() ? "" : ", ") + std::to_string(c.name) + " " #name;
    HR_FAKE_CUDA_LIVE(X)
#undef X
    if (c.memory_bytes + c.handle_bytes) line += " (" + std::to_string(c.memory_bytes + c.handle_bytes) + " bytes)";
    fprintf(stderr, "fake CUDA: %s\n", line.empty() ? "nothing left" : ("left at exit: " + line).c_str());
}

struct at_exit {
    ~at_exit() {
        const char *wanted = getenv("HR_FAKE_CUDA_LEAKS");
        if (wanted && *wanted == '1' && the().initialized && !the().forked) tell_leaks();
    }
};
static at_exit teller;

static void after_fork() {
    if (the().initialized) the().forked = true;
}

static CUresult start() {
    state &s = the();
    if (s.initialized) return CUDA_SUCCESS;
    s.set = read_settings();
    const hr_shim_mode mode = s.set.mode();
    hr_shim_set_mode(&mode);
    if (s.set.devices < 1) return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < s.set.devices; i++) {
        s.devices.push_back(std::make_unique<device>());
        s.devices.back()->ordinal = i;
    }
    memory_start();
    pthread_atfork(nullptr, nullptr, after_fork);
    s.initialized = true;
    return CUDA_SUCCESS;
}

static device *device_of(CUdevice ordinal) {
    state &s = the();
    return ordinal >= 0 && (size_t)ordinal < s.devices.size() ? s.devices[(size_t)ordinal].get() : nullptr;
}

// All that a context held goes with it.
static void destroy_context(device *d) {
    state &s = the();
    drop_queues(d);
    release_memory_of(d);
    s.functions.remove_of(d), s.modules.remove_of(d), s.events.remove_of(d), s.streams.remove_of(d);
    s.graphs.remove_of(d), s.execs.remove_of(d), s.legacy.erase(d);
    if (!loses(d->ruined)) d->ruined = CUDA_SUCCESS;
}

} // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuInit(unsigned flags) {
    {
        std::lock_guard<std::recursive_mutex> held(the().lock);
        if (!the().initialized) faults_from_environment();
    }
    HR_ENTER(cuInit, NOTHING);
    return flags ? CUDA_ERROR_INVALID_VALUE : start();
}

CUresult CUDAAPI cuDriverGetVersion(int *out) {
    HR_ENTER(cuDriverGetVersion, NOTHING);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = the().initialized ? the().set.driver : read_settings().driver;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *out) {
    HR_ENTER(cuDeviceGetCount, STARTED);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (int)the().devices.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *out, int ordinal) {
    HR_ENTER(cuDeviceGet, STARTED);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *out, int n, CUdevice ordinal) {
    HR_ENTER(cuDeviceGetName, STARTED);
    if (!out || n <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(out, (size_t)n, "%s", the().set.name.c_str());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *out, CUdevice ordinal) {
    HR_ENTER(cuDeviceGetUuid, STARTED);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    for (int i = 0; i < 16; i++) out->bytes[i] = (char)(0xfa + 17 * i + ordinal);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *out, CUdevice ordinal) {
    HR_ENTER(cuDeviceTotalMem, STARTED);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *out = the().set.memory;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice ordinal) {
    HR_ENTER(cuDeviceGetAttribute, STARTED);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!device_of(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    return attribute(the().set, which, ordinal, out);
}

// The handle of a context is its device's.
CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal) {
    HR_ENTER(cuDevicePrimaryCtxRetain, STARTED | UNSAFE);
    device *d = device_of(ordinal);
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!d) return CUDA_ERROR_INVALID_DEVICE;
    if (d->ruined) return d->ruined;
    d->retained++;
    *out = (CUcontext)d;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice ordinal) {
    HR_ENTER(cuDevicePrimaryCtxRelease, STARTED | RELEASES);
    device *d = device_of(ordinal);
    if (!d) return in.end(CUDA_ERROR_INVALID_DEVICE);
    if (!d->retained) return in.end(CUDA_ERROR_INVALID_CONTEXT);
    const CUresult ruined = wait_for_all(d);
    if (--d->retained == 0) destroy_context(d);
    return in.end(ruined);
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    HR_ENTER(cuCtxSetCurrent, STARTED);
    device *d = (device *)context;
    for (const auto &known : the().devices)
        if (known.get() == d && d->retained) {
            thread_context = d;
            return d->ruined;
        }
    if (d) return CUDA_ERROR_INVALID_CONTEXT;
    thread_context = nullptr;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize() {
    HR_ENTER(cuCtxSynchronize, CONTEXT);
    for (const auto &s : the().streams.all())
        if (s.second->owner == in.dev && s.second->capturing) {
            s.second->capturing->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    the().done.waits++;
    return wait_for_all(in.dev);
}

CUresult CUDAAPI cuGetErrorName(CUresult code, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = error_name(code);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuProfilerStart() {
    HR_ENTER(cuProfilerStart, CONTEXT);
    the().done.profiler_starts++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStop() {
    HR_ENTER(cuProfilerStop, CONTEXT);
    the().done.profiler_stops++;
    return CUDA_SUCCESS;
}

// ---- beside the driver ----

void hr_fake_cuda_stats(hr_fake_cuda_counts *out) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    count(out);
}

void hr_fake_cuda_observe(const hr_fake_cuda_observer *observer) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    the().observed = observer != nullptr;
    if (observer) the().observer = *observer;
}

void hr_fake_cuda_revive(void) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    for (const auto &d : the().devices) {
        drop_queues(d.get());
        d->ruined = CUDA_SUCCESS;
    }
}

int hr_fake_cuda_device(void) {
    return current() ? current()->ordinal : -1;
}

double hr_fake_cuda_fact(int ordinal, const char *name) {
    std::lock_guard<std::recursive_mutex> held(the().lock);
    const device *d = device_of(ordinal);
    const settings &s = the().set;
    const std::string what = name;
    return !d                       ? -1
           : what == "sms"          ? s.sms
           : what == "memory"       ? (double)s.memory
           : what == "cc"           ? 10 * s.major + s.minor
           : what == "clock"        ? s.clock_mhz
           : what == "memory_clock" ? s.memory_clock_mhz
           : what == "bus"          ? s.bus_bits
           : what == "ruined"       ? (double)d->ruined
                                    : -1;
}

} // extern "C"
