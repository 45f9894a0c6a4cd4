// fake_cuda_stream.cpp - streams, events and copies: work is queued, and runs when a call must wait for it.
//
// Streams that were not created NON_BLOCKING and the legacy stream keep the order of calls among each other; others run when
// they alone are waited for. A copy from pageable memory takes the bytes at the call and one to it waits, as the driver
// does; pinned memory is read and written when the work runs.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cstring>

namespace fake {

enum : size_t { POINTERS_UP_TO = 64 << 10 }; // copies that may carry structures with pointers

// ---- work ----

static void report(const queued &q, const device *d, const stream &s, uint64_t start) {
    const state &all = the();
    const operation &op = *q.what;
    if (!all.observed || !all.observer.ran || op.what == operation::RECORD) return;
    hr_fake_cuda_record r{};
    r.kind = op.kind, r.name = op.name.c_str(), r.start = start, r.end = now_ns(), r.bytes = op.bytes;
    r.correlation = q.correlation, r.device = (uint32_t)d->ordinal, r.stream = s.id, r.graph = q.graph;
    for (int i = 0; i < 3; i++) r.grid[i] = op.shape.grid[i], r.block[i] = op.shape.block[i];
    r.smem_dynamic = op.shape.smem, r.smem_static = op.smem_static, r.registers = op.registers;
    all.observer.ran(all.observer.context, &r);
}

static CUresult outside(const operation &op, uintptr_t at) {
    fprintf(stderr, "fake CUDA: %s reaches 0x%zx, which is no memory of the device any more\n", op.name.c_str(),
            (size_t)at);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult copy(const device *d, const operation &op) {
    const void *from = op.data.empty() ? (const void *)op.from : op.data.data();
    const bool to_host = op.kind == HR_FAKE_CUDA_DTOH;
    if (op.data.empty() && !is_reachable(d, op.from, op.bytes)) return outside(op, op.from);
    if (!is_reachable(d, op.to, op.bytes) && (!to_host || region_of(op.to))) return outside(op, op.to);
    if (op.kind == HR_FAKE_CUDA_HTOD && op.bytes <= POINTERS_UP_TO)
        refuse_host_pointers(op.name.c_str(), from, op.bytes);
    memmove((void *)op.to, from, op.bytes);
    return CUDA_SUCCESS;
}

static CUresult run(const device *d, const operation &op) {
    now_doing(op.name.c_str());
    switch (op.what) {
    case operation::KERNEL:
        the().done.kernels++;
        if (hr_shim_launch(op.name.c_str(), &op.shape, op.data.data())) {
            fprintf(stderr, "fake CUDA: the shim refuses the launch of %s\n", op.name.c_str());
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        return CUDA_SUCCESS;
    case operation::COPY:
        return copy(d, op);
    case operation::SET:
        if (!is_reachable(d, op.to, op.bytes)) return outside(op, op.to);
        memset((void *)op.to, op.value, op.bytes);
        return CUDA_SUCCESS;
    case operation::CALL:
        for (const auto &r : op.ranges)
            if (!is_reachable(d, (uintptr_t)r.at, r.bytes)) return outside(op, (uintptr_t)r.at);
        op.call(op.data.data());
        return CUDA_SUCCESS;
    case operation::RECORD:
        op.mark->done = op.generation;
        op.mark->ns = now_ns();
    }
    return CUDA_SUCCESS;
}

static std::shared_ptr<stream> legacy_of(device *d) {
    auto &s = the().legacy[d];
    if (!s) s = std::make_shared<stream>(stream{d, 7, true, {}, nullptr});
    return s;
}

static void run_front(device *d, stream *s);

// What must have run before work number `sequence` of a stream.
static void run_ahead(device *d, stream *s, uint64_t sequence) {
    const auto legacy = legacy_of(d);
    if (!s->blocking) return;
    if (s != legacy.get()) {
        while (!legacy->queue.empty() && legacy->queue.front().sequence < sequence) run_front(d, legacy.get());
        return;
    }
    for (const auto &other : the().streams.all()) {
        stream *o = other.second.get();
        if (o->owner == d && o->blocking)
            while (!o->queue.empty() && o->queue.front().sequence < sequence) run_front(d, o);
    }
}

static void run_front(device *d, stream *s) {
    run_ahead(d, s, s->queue.front().sequence);
    if (s->queue.empty()) return; // dropped: something failed
    const queued q = std::move(s->queue.front());
    s->queue.pop_front();
    const uint64_t start = now_ns();
    const CUresult late = q.fails ? q.fails : q.what->fails, result = late ? late : run(d, *q.what);
    if (result)
        ruin(d, result);
    else
        report(q, d, *s, start);
}

CUresult wait_for(device *d, stream *s, const event *until) {
    if (!d->ruined && !s->queue.empty()) {
        const window open("queued work");
        while (!s->queue.empty() && !(until && until->done >= until->recorded)) run_front(d, s);
    }
    return d->ruined;
}

CUresult wait_for_all(device *d) {
    wait_for(d, legacy_of(d).get());
    for (const auto &s : the().streams.all())
        if (s.second->owner == d) wait_for(d, s.second.get());
    return d->ruined;
}

void drop_queues(device *d) {
    if (the().legacy.count(d)) the().legacy[d]->queue.clear();
    for (const auto &s : the().streams.all())
        if (s.second->owner == d) s.second->queue.clear();
}

size_t queued_work() {
    size_t n = 0;
    for (const auto &s : the().streams.all()) n += s.second->queue.size();
    for (const auto &s : the().legacy) n += s.second ? s.second->queue.size() : 0;
    return n;
}

// ---- into a stream ----

std::shared_ptr<stream> stream_of(device *d, CUstream handle) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return legacy_of(d);
    const auto s = the().streams.find(handle);
    return s && s->owner == d ? s : nullptr;
}

static CUresult invalidate(stream *s, CUresult why) {
    s->capturing->invalid = true;
    return why;
}

bool forbid_in_capture() {
    bool forbidden = false;
    for (const auto &s : the().streams.all()) {
        capture *c = s.second->capturing.get();
        if (!c || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        if (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && c->thread != std::this_thread::get_id()) continue;
        c->invalid = forbidden = true;
    }
    return forbidden;
}

// The legacy stream may not be used while a stream that it would wait for captures.
static bool disturbs_capture(const stream *legacy) {
    bool disturbed = false;
    for (const auto &s : the().streams.all())
        if (s.second->owner == legacy->owner && s.second->blocking && s.second->capturing)
            disturbed = s.second->capturing->invalid = true;
    return disturbed;
}

CUresult put_nodes(const entry &in, const std::shared_ptr<stream> &s, const std::vector<work> &nodes, uint32_t graph) {
    if (s == legacy_of(in.dev) && disturbs_capture(s.get())) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (s->capturing) {
        if (s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (s->capturing->mode != CU_STREAM_CAPTURE_MODE_RELAXED && s->capturing->thread != std::this_thread::get_id())
            return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        auto &to = s->capturing->nodes;
        const size_t first = to.size();
        to.insert(to.end(), nodes.begin(), nodes.end());
        if (in.late && !nodes.empty()) {
            operation broken = *to[first];
            broken.fails = in.late;
            to[first] = std::make_shared<const operation>(std::move(broken));
        }
        return CUDA_SUCCESS;
    }
    CUresult fails = in.late;
    for (const work &w : nodes) {
        s->queue.push_back({w, ++the().sequence, in.id, graph, fails});
        fails = CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}

CUresult put(const entry &in, const std::shared_ptr<stream> &s, operation op) {
    return put_nodes(in, s, {std::make_shared<const operation>(std::move(op))}, 0);
}

static bool is_pinned(uintptr_t at, size_t bytes) { // to the host the same as managed memory
    const region *r = region_of(at);
    return r && (r->kind == kind::PINNED || r->kind == kind::MANAGED) && bytes <= r->bytes - (at - r->begin);
}

// A copy of which one side is memory of the host.
static CUresult put_host_copy(const entry &in, const std::shared_ptr<stream> &s, operation op, uintptr_t host) {
    const bool pinned = is_pinned(host, op.bytes), to_device = op.kind == HR_FAKE_CUDA_HTOD;
    if (!pinned && s->capturing) return invalidate(s.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (!pinned && to_device) op.data.assign((const unsigned char *)host, (const unsigned char *)host + op.bytes);
    const CUresult result = put(in, s, std::move(op));
    return result || pinned || to_device ? result : wait_for(in.dev, s.get());
}

static CUresult put_copy(const entry &in, CUstream handle, hr_fake_cuda_kind how, uintptr_t to, uintptr_t from,
                         size_t bytes) {
    static const char *const names[] = {"", "a copy to the device", "a copy to the host", "a copy on the device"};
    const auto s = stream_of(in.dev, handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!bytes) return CUDA_SUCCESS;
    const bool to_host = how == HR_FAKE_CUDA_DTOH, from_host = how == HR_FAKE_CUDA_HTOD;
    const uintptr_t host = to_host ? to : from;
    if ((!to_host && !is_reachable(in.dev, to, bytes)) || (!from_host && !is_reachable(in.dev, from, bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    if ((to_host || from_host) && (!host || is_on_device(host) || (region_of(host) && !is_pinned(host, bytes))))
        return CUDA_ERROR_INVALID_VALUE;
    operation op{};
    op.what = operation::COPY, op.kind = how, op.name = names[how];
    op.to = to, op.from = from, op.bytes = bytes;
    the().done.copies++, the().done.copied_bytes += bytes;
    return to_host || from_host ? put_host_copy(in, s, std::move(op), host) : put(in, s, std::move(op));
}

} // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags) {
    HR_ENTER(cuStreamCreate, CONTEXT);
    if (!out || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *out = the().streams.add(
        std::make_shared<stream>(stream{in.dev, the().next_stream += 6, flags != CU_STREAM_NON_BLOCKING, {}, nullptr}));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    HR_ENTER(cuStreamSynchronize, CONTEXT);
    const auto s = stream_of(in.dev, handle);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (s->capturing) return invalidate(s.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    if (s == legacy_of(in.dev) && disturbs_capture(s.get())) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    the().done.waits++;
    if (s != legacy_of(in.dev)) return wait_for(in.dev, s.get());
    run_ahead(in.dev, s.get(), UINT64_MAX);
    return wait_for(in.dev, s.get());
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
    HR_ENTER(cuStreamDestroy, CONTEXT | RELEASES);
    const auto s = the().streams.find(handle);
    if (!s || s->owner != in.dev) return in.end(CUDA_ERROR_INVALID_HANDLE);
    wait_for(in.dev, s.get()); // the driver lets it finish
    const CUresult result = s->capturing ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    the().streams.remove(handle);
    return in.end(result);
}

CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned flags) {
    HR_ENTER(cuEventCreate, CONTEXT);
    if (!out || flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
    auto e = std::make_shared<event>();
    e->owner = in.dev, e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    *out = the().events.add(std::move(e));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream where) {
    HR_ENTER(cuEventRecord, CONTEXT);
    const auto e = the().events.find(handle);
    const auto s = stream_of(in.dev, where);
    if (!e || e->owner != in.dev || !s) return CUDA_ERROR_INVALID_HANDLE;
    e->captured = s->capturing != nullptr;
    if (e->captured) return put_nodes(in, s, {}, 0); // in a graph it is an order of nodes, and no time
    operation op{};
    op.what = operation::RECORD, op.name = "an event";
    op.mark = e, op.generation = ++e->recorded;
    e->where = where;
    return put(in, s, std::move(op));
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
    HR_ENTER(cuEventSynchronize, CONTEXT);
    const auto e = the().events.find(handle);
    if (!e || e->owner != in.dev) return CUDA_ERROR_INVALID_HANDLE;
    if (e->captured) {
        forbid_in_capture();
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    the().done.waits++;
    const auto s = stream_of(in.dev, e->where);
    return s ? wait_for(in.dev, s.get(), e.get()) : CUDA_SUCCESS;
}

static CUresult elapsed(float *ms, CUevent from, CUevent to) {
    const auto a = the().events.find(from), b = the().events.find(to);
    if (!ms) return CUDA_ERROR_INVALID_VALUE;
    if (!a || !b || !a->timed || !b->timed || a->captured || b->captured || !a->recorded || !b->recorded)
        return CUDA_ERROR_INVALID_HANDLE;
    if (a->done < a->recorded || b->done < b->recorded) return CUDA_ERROR_NOT_READY;
    *ms = (float)(((double)b->ns - (double)a->ns) * 1e-6);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    HR_ENTER(cuEventElapsedTime, CONTEXT);
    return elapsed(ms, from, to);
}
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent from, CUevent to) { // the name before CUDA 13
    HR_ENTER(cuEventElapsedTime, CONTEXT);
    return elapsed(ms, from, to);
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
    HR_ENTER(cuEventDestroy, CONTEXT | RELEASES);
    return in.end(the().events.remove(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream where) {
    HR_ENTER(cuMemcpyHtoDAsync, CONTEXT);
    return put_copy(in, where, HR_FAKE_CUDA_HTOD, to, (uintptr_t)from, bytes);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream where) {
    HR_ENTER(cuMemcpyDtoHAsync, CONTEXT);
    return put_copy(in, where, HR_FAKE_CUDA_DTOH, (uintptr_t)to, from, bytes);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream where) {
    HR_ENTER(cuMemcpyDtoDAsync, CONTEXT);
    return put_copy(in, where, HR_FAKE_CUDA_DTOD, to, from, bytes);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream where) {
    HR_ENTER(cuMemsetD8Async, CONTEXT);
    const auto s = stream_of(in.dev, where);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    if (!bytes) return CUDA_SUCCESS;
    if (!is_reachable(in.dev, to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    operation op{};
    op.what = operation::SET, op.kind = HR_FAKE_CUDA_SET, op.name = "a fill";
    op.to = to, op.value = value, op.bytes = bytes;
    return put(in, s, std::move(op));
}

CUresult hr_fake_cuda_enqueue(CUstream where, const char *name, void (*call)(const void *), const void *context,
                              size_t context_bytes, const hr_fake_cuda_range *ranges, unsigned n_ranges) {
    HR_ENTER(hr_fake_cuda_enqueue, CONTEXT);
    const auto s = stream_of(in.dev, where);
    if (!s) return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < n_ranges; i++)
        if (!is_reachable(in.dev, (uintptr_t)ranges[i].at, ranges[i].bytes)) return CUDA_ERROR_INVALID_VALUE;
    operation op{};
    op.what = operation::CALL, op.kind = HR_FAKE_CUDA_KERNEL, op.name = name, op.call = call;
    op.data.assign((const unsigned char *)context, (const unsigned char *)context + context_bytes);
    op.ranges.assign(ranges, ranges + n_ranges);
    for (int i = 0; i < 3; i++) op.shape.grid[i] = op.shape.block[i] = 1;
    the().done.launches++;
    return put(in, s, std::move(op));
}

} // extern "C"
