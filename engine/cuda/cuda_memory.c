/* cuda_memory.c - memory of a GPU by kind, what may be taken, and the way there through pinned staging buffers. */
#include "engine/cuda/cuda_state.h"

#include "kernels/base/memory.h"

#include <string.h>

/* ---- kinds ---- */

static hr_status can(hr_cuda *g, CUdevice_attribute what, const char *kind) {
    int yes = 0;
    HR_CU(g->d, cuDeviceGetAttribute(&yes, what, g->device));
    if (!yes) HR_FAIL(HR_ERR_UNSUPPORTED, "--gpu-memory %s: the device does not have it; use device", kind);
    return HR_OK;
}

static hr_status take_managed(hr_cuda *g, hr_cuda_area *a, size_t bytes) {
    HR_TRY(can(g, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed"));
    HR_CU(g->d, cuMemAllocManaged(&a->at, bytes, CU_MEM_ATTACH_GLOBAL));
    return HR_OK;
}

static hr_status take_mapped(hr_cuda *g, hr_cuda_area *a, size_t bytes) {
    HR_TRY(can(g, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "pinned"));
    HR_CU(g->d, cuMemHostAlloc(&a->host, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    const CUresult result = g->d->cuMemHostGetDevicePointer(&a->at, a->host, 0);
    if (result != CUDA_SUCCESS) g->d->cuMemFreeHost(a->host);
    return hr_driver_check(result, "cuMemHostGetDevicePointer");
}

/* Address space, physical memory that may be compressed, and access to it. */
static hr_status map_compressible(hr_cuda *g, hr_cuda_area *a, const CUmemAllocationProp *prop, size_t bytes) {
    HR_CU(g->d, cuMemAddressReserve(&a->at, bytes, 0, 0, 0));
    const CUmemAccessDesc access = {.location = prop->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = g->d->cuMemMap(a->at, bytes, 0, a->physical, 0);
    const char *what = "cuMemMap";
    if (result == CUDA_SUCCESS) {
        result = g->d->cuMemSetAccess(a->at, bytes, &access, 1), what = "cuMemSetAccess";
        if (result != CUDA_SUCCESS) g->d->cuMemUnmap(a->at, bytes);
    }
    if (result != CUDA_SUCCESS) g->d->cuMemAddressFree(a->at, bytes);
    return hr_driver_check(result, what);
}

static hr_status take_compressible(hr_cuda *g, hr_cuda_area *a, size_t *bytes) {
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = g->device},
                                      .allocFlags = {.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC}};
    size_t granule = 0;
    HR_TRY(can(g, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "compressible"));
    HR_TRY(can(g, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, "compressible"));
    HR_CU(g->d, cuMemGetAllocationGranularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    *bytes = hr_align_up(*bytes, granule ? granule : 1);
    HR_CU(g->d, cuMemCreate(&a->physical, *bytes, &prop, 0));
    const hr_status status = map_compressible(g, a, &prop, *bytes);
    if (status != HR_OK) g->d->cuMemRelease(a->physical);
    return status;
}

static hr_status take(hr_cuda *g, hr_cuda_area *a, size_t *bytes) {
    switch (a->kind) {
    case HR_GPU_MANAGED:
        return take_managed(g, a, *bytes);
    case HR_GPU_PINNED:
        return take_mapped(g, a, *bytes);
    case HR_GPU_COMPRESSIBLE:
        return take_compressible(g, a, bytes);
    default:
        HR_CU(g->d, cuMemAlloc(&a->at, *bytes));
        return HR_OK;
    }
}

hr_status hr_cuda_take(hr_cuda *g, hr_gpu_memory kind, size_t bytes, const char *what, void **out) {
    hr_cuda_area *a = g->areas;
    *out = NULL;
    while (a < g->areas + HR_CUDA_AREAS && a->bytes) a++;
    if (a == g->areas + HR_CUDA_AREAS) HR_FAIL(HR_ERR_INTERNAL, "more than %d areas of device memory", HR_CUDA_AREAS);
    *a = (hr_cuda_area){.kind = kind};
    size_t got = bytes ? bytes : 1;
    const hr_status status = take(g, a, &got);
    if (status == HR_ERR_MEMORY)
        HR_FAIL(HR_ERR_MEMORY,
                "the device has no %.1f MB of %s memory for %s; use a smaller --quant, fewer sequences "
                "or a shorter context",
                (double)bytes / 1e6, hr_gpu_memory_names[kind], what);
    HR_TRY(status);
    a->bytes = got;
    *out = (void *)(uintptr_t)a->at;
    return HR_OK;
}

void hr_cuda_give(hr_cuda *g, void *at) {
    hr_cuda_area *a = g->areas;
    while (a < g->areas + HR_CUDA_AREAS && !(a->bytes && a->at == (CUdeviceptr)(uintptr_t)at)) a++;
    if (!at || a == g->areas + HR_CUDA_AREAS) return;
    if (a->kind == HR_GPU_PINNED) {
        g->d->cuMemFreeHost(a->host);
    } else if (a->kind == HR_GPU_COMPRESSIBLE) {
        g->d->cuMemUnmap(a->at, a->bytes);
        g->d->cuMemAddressFree(a->at, a->bytes);
        g->d->cuMemRelease(a->physical);
    } else {
        g->d->cuMemFree(a->at);
    }
    *a = (hr_cuda_area){0};
}

/* ---- the budget ---- */

/* Left for the driver's own: graphs, modules, local memory of kernels. */
static uint64_t reserve_of(uint64_t total) {
    const uint64_t most = (uint64_t)256 << 20, share = total / 50;
    return share < most ? share : most;
}

hr_status hr_cuda_check_budget(hr_cuda *g, hr_gpu_memory kind, uint64_t weights, uint64_t kv, uint64_t run) {
    size_t left = 0, total = 0;
    HR_CU(g->d, cuMemGetInfo(&left, &total));
    const bool on_host = kind == HR_GPU_PINNED;
    const uint64_t here = run + (on_host ? 0 : weights + kv), spare = reserve_of(total);
    if (here + spare > left)
        HR_FAIL(HR_ERR_MEMORY,
                "weights of %.2f GB, KV of %.2f GB and run state of %.2f GB%s do not fit: %.2f of %.2f GB are free; "
                "use a smaller --quant, fewer sequences or a shorter context",
                (double)weights / 1e9, (double)kv / 1e9, (double)run / 1e9, on_host ? " (the last on the device)" : "",
                (double)left / 1e9, (double)total / 1e9);
    const uint64_t available = on_host ? hr_memory_available("") : UINT64_MAX;
    if (weights + kv > available)
        HR_FAIL(HR_ERR_MEMORY,
                "--gpu-memory pinned: weights of %.2f GB and KV of %.2f GB lie in the host's memory, of which %.2f GB "
                "are available",
                (double)weights / 1e9, (double)kv / 1e9, (double)available / 1e9);
    return HR_OK;
}

/* ---- pinned memory, and the way to the device ---- */

hr_status hr_cuda_take_pinned(hr_cuda *g, size_t bytes, void **out) {
    *out = NULL;
    HR_CU(g->d, cuMemAllocHost(out, bytes ? bytes : 1));
    return HR_OK;
}

void hr_cuda_give_pinned(hr_cuda *g, void *at) {
    if (at) g->d->cuMemFreeHost(at);
}

void *hr_cuda_stage(hr_cuda *g) {
    const unsigned turn = g->staging_turn ^= 1;
    if (!HR_CUDA_DO(g, cuEventSynchronize(g->staged[turn]))) return NULL;
    return g->staging[turn];
}

void hr_cuda_send(hr_cuda *g, void *to, size_t n) {
    const unsigned turn = g->staging_turn;
    if (HR_CUDA_DO(g, cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)to, g->staging[turn], n, g->stream)))
        (void)HR_CUDA_DO(g, cuEventRecord(g->staged[turn], g->stream));
}

void hr_cuda_upload(hr_cuda *g, void *to, const void *from, size_t n) {
    for (size_t done = 0; done < n && g->status == HR_OK;) {
        const size_t part = n - done < HR_CUDA_STAGING ? n - done : HR_CUDA_STAGING;
        void *room = hr_cuda_stage(g);
        if (!room) return;
        memcpy(room, (const char *)from + done, part);
        hr_cuda_send(g, (char *)to + done, part);
        done += part;
    }
}
