// fake_cuda_alloc.cpp - the driver's functions for memory: device, pinned, managed, and memory mapped by hand.
#include "tests/cuda_on_cpu/fake_cuda_state.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {

// What cuMemCreate made: pages of a file in memory, so that they keep their contents wherever they are mapped.
struct physical {
    device *owner;
    int fd;
    size_t bytes;
    bool compressed;
    unsigned mappings;
    bool released;
};
static registry<physical, CUmemGenericAllocationHandle, 0x1007> handles;
static std::map<uintptr_t, size_t> reservations;
static std::map<uintptr_t, CUmemGenericAllocationHandle> mapped;

enum : size_t { GRANULE = (size_t)2 << 20, UNIT = 512 };

static size_t charge(size_t bytes) { // what an allocation takes
    return bytes > SIZE_MAX - UNIT ? SIZE_MAX : (bytes + UNIT - 1) / UNIT * UNIT;
}

static bool spend(device *d, size_t bytes) {
    if (bytes > the().set.memory || d->used + bytes > the().set.memory) return false;
    d->used += bytes;
    if (d->used > the().done.peak_bytes) the().done.peak_bytes = d->used;
    return true;
}

static size_t total_of(enum kind k) {
    struct sum {
        enum kind k;
        size_t bytes;
    } s = {k, 0};
    each_region([](const region &r, void *to) { ((sum *)to)->bytes += r.kind == ((sum *)to)->k ? r.bytes : 0; }, &s);
    return s.bytes;
}

static void drop_physical(CUmemGenericAllocationHandle handle) {
    const auto p = handles.find(handle);
    if (!p || !p->released || p->mappings) return;
    close(p->fd);
    p->owner->used -= p->bytes;
    handles.remove(handle);
}

static void unmap(uintptr_t at) {
    const CUmemGenericAllocationHandle handle = mapped.at(at);
    drop_region(at);
    mapped.erase(at);
    if (const auto p = handles.find(handle)) p->mappings--;
    drop_physical(handle);
}

void release_memory_of(device *d) {
    struct list {
        device *d;
        std::vector<uintptr_t> begins, maps;
    } l = {d, {}, {}};
    each_region(
        [](const region &r, void *to) {
            auto *out = (list *)to;
            if (r.owner == out->d) (r.kind == kind::MAPPED ? out->maps : out->begins).push_back(r.begin);
        },
        &l);
    for (const uintptr_t at : l.begins) drop_region(at);
    for (const uintptr_t at : l.maps) unmap(at);
    for (const auto &h : std::map<uintptr_t, std::shared_ptr<physical>>(handles.all()))
        if (h.second->owner == d) {
            h.second->released = true;
            drop_physical((CUmemGenericAllocationHandle)h.first);
        }
    d->used = 0;
}

void count_handles(hr_fake_cuda_counts *c) {
    c->handles = handles.size();
    c->reservations = reservations.size();
    for (const auto &h : handles.all()) c->handle_bytes += h.second->bytes;
}

// The reservation that holds the whole range.
static bool is_reserved(uintptr_t at, size_t bytes) {
    auto next = reservations.upper_bound(at);
    if (next == reservations.begin()) return false;
    --next;
    return at >= next->first && at + bytes <= next->first + next->second;
}

static CUresult give_host(const entry &in, void **out, size_t bytes) {
    if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (total_of(kind::PINNED) + bytes > the().set.pinned) return CUDA_ERROR_OUT_OF_MEMORY;
    const region *r = make_region(kind::PINNED, in.dev, bytes);
    if (!r) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (void *)r->begin;
    return CUDA_SUCCESS;
}

static bool check_props(const CUmemAllocationProp *p) {
    return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           p->location.id >= 0 && (size_t)p->location.id < the().devices.size() &&
           (!p->allocFlags.compressionType || p->allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_GENERIC);
}

} // namespace fake

using namespace fake;

extern "C" {

CUresult CUDAAPI cuMemGetInfo(size_t *left, size_t *total) {
    HR_ENTER(cuMemGetInfo, CONTEXT);
    if (!left || !total) return CUDA_ERROR_INVALID_VALUE;
    *total = the().set.memory;
    *left = the().set.memory - in.dev->used;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *out, size_t bytes) {
    HR_ENTER(cuMemAlloc, CONTEXT | UNSAFE);
    if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!spend(in.dev, charge(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
    const region *r = make_region(kind::DEVICE, in.dev, bytes);
    if (!r) {
        in.dev->used -= charge(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = r->begin;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    HR_ENTER(cuMemAllocManaged, CONTEXT | UNSAFE);
    if (!out || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (!the().set.managed) return CUDA_ERROR_NOT_SUPPORTED;
    const region *r = make_region(kind::MANAGED, in.dev, bytes);
    if (!r) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = r->begin;
    return CUDA_SUCCESS;
}

// Waits for all work first, as the driver does.
CUresult CUDAAPI cuMemFree(CUdeviceptr at) {
    HR_ENTER(cuMemFree, CONTEXT | UNSAFE | RELEASES);
    if (!at) return in.end(CUDA_SUCCESS);
    const region *r = region_at(at);
    if (!r || (r->kind != kind::DEVICE && r->kind != kind::MANAGED)) return in.end(CUDA_ERROR_INVALID_VALUE);
    const CUresult ruined = wait_for_all(r->owner);
    if (r->kind == kind::DEVICE) r->owner->used -= charge(r->bytes);
    drop_region(at);
    return in.end(ruined);
}

CUresult CUDAAPI cuMemAllocHost(void **out, size_t bytes) {
    HR_ENTER(cuMemAllocHost, CONTEXT | UNSAFE);
    return give_host(in, out, bytes);
}

CUresult CUDAAPI cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    HR_ENTER(cuMemHostAlloc, CONTEXT | UNSAFE);
    if (flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED))
        return CUDA_ERROR_INVALID_VALUE;
    return give_host(in, out, bytes);
}

CUresult CUDAAPI cuMemFreeHost(void *at) {
    HR_ENTER(cuMemFreeHost, CONTEXT | UNSAFE | RELEASES);
    const region *r = region_at((uintptr_t)at);
    if (!r || r->kind != kind::PINNED) return in.end(CUDA_ERROR_INVALID_VALUE);
    const CUresult ruined = wait_for_all(r->owner);
    drop_region((uintptr_t)at);
    return in.end(ruined);
}

// Host and device see pinned memory at the same address.
CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *out, void *at, unsigned flags) {
    HR_ENTER(cuMemHostGetDevicePointer, CONTEXT);
    const region *r = region_of((uintptr_t)at);
    if (!out || flags || !r || r->kind != kind::PINNED) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)at;
    return CUDA_SUCCESS;
}

// ---- memory mapped by hand ----

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option) {
    HR_ENTER(cuMemGetAllocationGranularity, STARTED);
    (void)option;
    if (!out || !check_props(prop)) return CUDA_ERROR_INVALID_VALUE;
    if (!the().set.vmm) return CUDA_ERROR_NOT_SUPPORTED;
    *out = GRANULE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                             unsigned long long flags) {
    HR_ENTER(cuMemCreate, STARTED | UNSAFE);
    if (!out || !bytes || bytes % GRANULE || flags || !check_props(prop)) return CUDA_ERROR_INVALID_VALUE;
    if (!the().set.vmm) return CUDA_ERROR_NOT_SUPPORTED;
    device *d = the().devices[(size_t)prop->location.id].get();
    if (d->ruined) return d->ruined;
    if (!spend(d, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    void *at = fd < 0 || ftruncate(fd, (off_t)bytes) ? MAP_FAILED : mmap(nullptr, bytes, PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        if (fd >= 0) close(fd);
        d->used -= bytes;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(at, 0xff, bytes);
    munmap(at, bytes);
    const bool compressed = prop->allocFlags.compressionType && the().set.compression;
    *out = handles.add(std::make_shared<physical>(physical{d, fd, bytes, compressed, 0, false}));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    HR_ENTER(cuMemRelease, STARTED | UNSAFE | RELEASES);
    const auto p = handles.find(handle);
    if (!p || p->released) return in.end(CUDA_ERROR_INVALID_VALUE);
    p->released = true;
    drop_physical(handle);
    return in.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align, CUdeviceptr wanted,
                                     unsigned long long flags) {
    HR_ENTER(cuMemAddressReserve, STARTED | UNSAFE);
    (void)wanted; // a wish that the driver need not grant
    if (!out || !bytes || bytes % GRANULE || flags || (align & (align - 1))) return CUDA_ERROR_INVALID_VALUE;
    if (!the().set.vmm) return CUDA_ERROR_NOT_SUPPORTED;
    const uintptr_t at = take_addresses(bytes, align > GRANULE ? align : (size_t)GRANULE);
    if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
    reservations[at] = bytes;
    *out = at;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr at, size_t bytes) {
    HR_ENTER(cuMemAddressFree, STARTED | UNSAFE | RELEASES);
    const auto r = reservations.find(at);
    if (r == reservations.end() || r->second != bytes) return in.end(CUDA_ERROR_INVALID_VALUE);
    const auto m = mapped.lower_bound(at);
    if (m != mapped.end() && m->first < at + bytes) return in.end(CUDA_ERROR_INVALID_VALUE);
    reservations.erase(r);
    return in.end(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    HR_ENTER(cuMemMap, STARTED | UNSAFE);
    const auto p = handles.find(handle);
    if (!p || p->released || !bytes || at % GRANULE || bytes % GRANULE || offset || flags || bytes > p->bytes ||
        !is_reserved(at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    const auto next = mapped.lower_bound(at);
    if ((next != mapped.end() && next->first < at + bytes) || region_of(at)) return CUDA_ERROR_INVALID_VALUE;
    if (mmap((void *)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    add_region({at, bytes, kind::MAPPED, p->owner, at, bytes, false});
    mapped[at] = handle;
    p->mappings++;
    return CUDA_SUCCESS;
}

// Whole mappings alone.
CUresult CUDAAPI cuMemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t n) {
    HR_ENTER(cuMemSetAccess, STARTED | UNSAFE);
    if (!desc || n != 1 || desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    const uintptr_t end = at + bytes;
    for (uintptr_t here = at; here < end;) {
        const region *r = region_at(here);
        if (!r || r->kind != kind::MAPPED || r->bytes > end - here || r->owner->ordinal != desc->location.id)
            return CUDA_ERROR_INVALID_VALUE;
        here += r->bytes;
    }
    for (uintptr_t here = at; here < end; here += region_at(here)->bytes) open_region(here);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr at, size_t bytes) {
    HR_ENTER(cuMemUnmap, STARTED | UNSAFE | RELEASES);
    const region *first = region_at(at);
    if (!first || first->kind != kind::MAPPED) return in.end(CUDA_ERROR_INVALID_VALUE);
    for (uintptr_t here = at; here < at + bytes;) {
        const region *r = region_at(here);
        if (!r || r->kind != kind::MAPPED || r->bytes > at + bytes - here) return in.end(CUDA_ERROR_INVALID_VALUE);
        here += r->bytes;
    }
    const CUresult ruined = wait_for_all(first->owner);
    for (uintptr_t here = at; here < at + bytes;) {
        const size_t step = region_at(here)->bytes;
        unmap(here);
        here += step;
    }
    return in.end(ruined);
}

} // extern "C"
