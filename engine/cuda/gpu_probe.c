/* Loads of one kind: buffers, launches, times by events. */
#include "engine/cuda/gpu_probe.h"
#include "kernels/base/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OPERANDS = 32 * 6, MAX_BLOCKS = 1 << 16, FEW_SMS = 2, FEW_THREADS = 64 };

/* ---- ways -------------------------------------------------------------------------------------------------------- */

#define READ(u, text)                                                                                     \
    {"roof_read_" #u, text, 512, 4}, {"roof_read_" #u, text, 256, 8}, {"roof_read_" #u, text, 1024, 2}, { \
        "roof_read_" #u, text, 256, 64                                                                    \
    }
static const hr_gpu_way read_ways[] = {READ(4, "4 x 16 bytes a thread"), READ(2, "2 x 16 bytes a thread"),
                                       READ(8, "8 x 16 bytes a thread"), READ(1, "16 bytes a thread")};
static const hr_gpu_way write_ways[] = {{"roof_write_4", "4 x 16 bytes a thread", 512, 4},
                                        {"roof_write_1", "16 bytes a thread", 512, 4},
                                        {"roof_write_4", "4 x 16 bytes a thread", 256, 64},
                                        {"roof_write_1", "16 bytes a thread", 1024, 2},
                                        {"roof_write_1", "16 bytes a thread", 256, 64}};
static const hr_gpu_way copy_ways[] = {{"roof_copy_4", "4 x 16 bytes a thread", 512, 4},
                                       {"roof_copy_1", "16 bytes a thread", 512, 4},
                                       {"roof_copy_4", "4 x 16 bytes a thread", 256, 64},
                                       {"roof_copy_4", "4 x 16 bytes a thread", 1024, 2},
                                       {"roof_copy_1", "16 bytes a thread", 256, 64}};
static const hr_gpu_way fp32_ways[] = {
    {"roof_fma_fp32", "FMA", 512, 4}, {"roof_fma_fp32", "FMA", 1024, 2}, {"roof_fma_fp32", "FMA", 256, 4}};
#define MMA(symbol, text)                                                     \
    {symbol, text, 256, 2}, {symbol, text, 512, 2}, {symbol, text, 256, 4}, { \
        symbol, text, 128, 4                                                  \
    }
static const hr_gpu_way bf16_ways[] = {MMA("roof_mma_bf16", "mma.sync m16n8k16")};
static const hr_gpu_way int8_ways[] = {MMA("roof_mma_s8", "mma.sync m16n8k32")};
static const hr_gpu_way fp8_ways[] = {MMA("roof_mma_e4m3", "mma.sync m16n8k32 e4m3")};

/* Of mma.sync: operations of one instruction of a warp; 0: FMA. */
static const struct load {
    const hr_gpu_way *ways;
    unsigned n, mma_ops;
} loads[HR_GPU_LOADS] = {
#define WAYS(list, ops) \
    { list, sizeof list / sizeof *list, ops }
    [HR_GPU_READ] = WAYS(read_ways, 0),
    [HR_GPU_WRITE] = WAYS(write_ways, 0),
    [HR_GPU_COPY] = WAYS(copy_ways, 0),
    [HR_GPU_FP32] = WAYS(fp32_ways, 0),
    [HR_GPU_BF16] = WAYS(bf16_ways, 2 * 16 * 8 * 16),
    [HR_GPU_INT8] = WAYS(int8_ways, 2 * 16 * 8 * 32),
    [HR_GPU_FP8] = WAYS(fp8_ways, 2 * 16 * 8 * 32),
};

const hr_gpu_way *hr_gpu_ways(hr_gpu_load load, unsigned *n) {
    *n = loads[load].n;
    return loads[load].ways;
}

void hr_gpu_way_name(const hr_gpu_way *way, char *out, size_t n) {
    snprintf(out, n, "%s, %u threads, %u block%s an SM", way->what, way->threads, way->blocks,
             way->blocks == 1 ? "" : "s");
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static hr_status launch(hr_gpu_probe *p, const char *symbol, unsigned blocks, unsigned threads, void *params) {
    CUfunction function;
    void *arguments[] = {params};
    HR_TRY(hr_driver_function(symbol, &function));
    HR_CU(p->driver, cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, p->stream, arguments, NULL));
    return HR_OK;
}

static unsigned grid_of(const hr_gpu_probe *p, const hr_gpu_way *way) {
    const unsigned blocks = p->sms * (p->info.simulated ? 1 : way->blocks);
    return blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
}
static unsigned threads_of(const hr_gpu_probe *p, const hr_gpu_way *way) {
    return p->info.simulated ? FEW_THREADS : way->threads;
}

static hr_status start_memory(hr_gpu_probe *p, const hr_gpu_way *way, size_t bytes, uint32_t passes) {
    hr_cuda_roof_memory m = {.from = (void *)(uintptr_t)p->from, /* as the kernel sees it */
                             .to = (void *)(uintptr_t)(p->to ? p->to : p->from),
                             .sums = (uint32_t *)(uintptr_t)p->sums,
                             .n = bytes / 16,
                             .passes = passes,
                             .seed = 1};
    return launch(p, way->kernel, grid_of(p, way), threads_of(p, way), &m);
}

static hr_status start_arithmetic(hr_gpu_probe *p, hr_gpu_load load, const hr_gpu_way *way, uint32_t loops) {
    const CUdeviceptr operands = p->operands + (CUdeviceptr)(load - HR_GPU_FP32) * OPERANDS * sizeof(uint32_t);
    hr_cuda_roof_compute c = {
        .operands = (const uint32_t *)(uintptr_t)operands, .sums = (uint32_t *)(uintptr_t)p->sums, .loops = loops};
    return launch(p, way->kernel, grid_of(p, way), threads_of(p, way), &c);
}

static double work_of(const hr_gpu_probe *p, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, uint32_t passes) {
    const double threads = (double)grid_of(p, way) * threads_of(p, way);
    if (load <= HR_GPU_COPY) return (double)(bytes / 16 * 16) * passes * (load == HR_GPU_COPY ? 2 : 1);
    if (load == HR_GPU_FP32) return threads * passes * HR_ROOF_CHAINS * HR_ROOF_FMAS * 2;
    return threads / 32 * passes * HR_ROOF_CHAINS * loads[load].mma_ops;
}

hr_status hr_gpu_probe_run(hr_gpu_probe *p, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, uint32_t passes,
                           double *ns, double *work) {
    float ms = 0;
    HR_CU(p->driver, cuEventRecord(p->begin, p->stream));
    HR_TRY(load <= HR_GPU_COPY ? start_memory(p, way, bytes, passes) : start_arithmetic(p, load, way, passes));
    HR_CU(p->driver, cuEventRecord(p->end, p->stream));
    HR_CU(p->driver, cuEventSynchronize(p->end));
    HR_CU(p->driver, cuEventElapsedTime(&ms, p->begin, p->end));
    *ns = ms > 0 ? (double)ms * 1e6 : 1; /* events have steps of half a microsecond */
    *work = work_of(p, load, way, bytes, passes);
    return HR_OK;
}

hr_status hr_gpu_probe_passes(hr_gpu_probe *p, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, double ns,
                              uint32_t *passes) {
    enum { MOST = 1 << 24 };
    *passes = 1;
    while (!p->info.simulated) {
        double took, work;
        HR_TRY(hr_gpu_probe_run(p, load, way, bytes, *passes, &took, &work));
        const double wanted = *passes * fmin(ns / took, 64);
        if (took > 0.5 * ns || wanted >= MOST) break;
        *passes = wanted < 1 ? 1 : (uint32_t)wanted;
    }
    return HR_OK;
}

hr_status hr_gpu_probe_sums(hr_gpu_probe *p, uint32_t *out, size_t n) {
    HR_CU(p->driver, cuMemcpyDtoHAsync(out, p->sums, n * sizeof *out, p->stream));
    HR_CU(p->driver, cuStreamSynchronize(p->stream));
    return HR_OK;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Values as they come in models: neither zeros nor infinities, on which arithmetic needs less power. */
static void make_operands(uint32_t all[4][OPERANDS]) {
    const float m = 0.99951172f, y = 0.00048828f; /* the chain x -> m x + y stays near 1 */
    uint64_t state = 7;
    memset(all[0], 0, sizeof all[0]);
    memcpy(&all[0][0], &m, sizeof m), memcpy(&all[0][1], &y, sizeof y);
    for (int i = 0; i < OPERANDS; i++) {
        const uint64_t r = hr_random(&state);
        all[1][i] = ((uint32_t)r & 0x807f807fu) | 0x3f003f00u; /* two bf16 of 0.5 to 1, either sign */
        all[2][i] = (uint32_t)(r >> 32);
        all[3][i] = ((uint32_t)r & 0x87878787u) | 0x38383838u; /* four e4m3 of 1 to 1.875, either sign */
    }
}

static hr_status allocate(hr_gpu_probe *p, size_t bytes, size_t least, bool copy) {
    const hr_driver *d = p->driver;
    for (p->bytes = bytes;; p->bytes /= 2) {
        CUresult result = d->cuMemAlloc(&p->from, p->bytes);
        if (result == CUDA_SUCCESS && copy) {
            result = d->cuMemAlloc(&p->to, p->bytes);
            if (result != CUDA_SUCCESS) d->cuMemFree(p->from), p->from = 0;
        }
        if (result == CUDA_SUCCESS) return HR_OK;
        p->from = p->to = 0;
        if (result != CUDA_ERROR_OUT_OF_MEMORY || p->bytes / 2 < least) return hr_driver_check(result, "cuMemAlloc");
    }
}

static hr_status fill(hr_gpu_probe *p, CUdeviceptr to, uint32_t seed) {
    static const hr_gpu_way way = {"roof_fill", "", 512, 4};
    hr_cuda_roof_memory m = {.to = (void *)(uintptr_t)to, .n = p->bytes / 16, .passes = 1, .seed = seed};
    return to ? launch(p, way.kernel, grid_of(p, &way), threads_of(p, &way), &m) : HR_OK;
}

static hr_status set_up(hr_gpu_probe *p, int device, size_t bytes, size_t least, bool copy) {
    uint32_t operands[4][OPERANDS];
    HR_TRY(hr_driver_open(&p->driver));
    HR_TRY(hr_driver_context(device, NULL, NULL));
    HR_TRY(hr_device_get_info(device, &p->info));
    const hr_driver *d = p->driver;
    p->sms = p->info.simulated ? FEW_SMS : p->info.sms;
    HR_CU(d, cuStreamCreate(&p->stream, CU_STREAM_NON_BLOCKING));
    HR_CU(d, cuEventCreate(&p->begin, CU_EVENT_DEFAULT));
    HR_CU(d, cuEventCreate(&p->end, CU_EVENT_DEFAULT));
    HR_TRY(allocate(p, bytes, least, copy));
    HR_CU(d, cuMemAlloc(&p->sums, MAX_BLOCKS * sizeof(uint32_t)));
    HR_CU(d, cuMemAlloc(&p->operands, sizeof operands));
    make_operands(operands);
    HR_CU(d, cuMemcpyHtoDAsync(p->operands, operands, sizeof operands, p->stream));
    HR_TRY(fill(p, p->from, 1));
    HR_TRY(fill(p, p->to, 2));
    HR_CU(d, cuStreamSynchronize(p->stream));
    return HR_OK;
}

hr_status hr_gpu_probe_open(int device, size_t bytes, size_t least, bool copy, hr_gpu_probe *out) {
    *out = (hr_gpu_probe){0};
    const hr_status status = set_up(out, device, bytes, least, copy);
    if (status != HR_OK) hr_gpu_probe_close(out);
    return status;
}

void hr_gpu_probe_close(hr_gpu_probe *p) {
    const hr_driver *d = p->driver;
    if (!d) return;
    if (p->stream) d->cuStreamSynchronize(p->stream);
    if (p->from) d->cuMemFree(p->from);
    if (p->to) d->cuMemFree(p->to);
    if (p->sums) d->cuMemFree(p->sums);
    if (p->operands) d->cuMemFree(p->operands);
    if (p->begin) d->cuEventDestroy(p->begin);
    if (p->end) d->cuEventDestroy(p->end);
    if (p->stream) d->cuStreamDestroy(p->stream);
    *p = (hr_gpu_probe){0};
}
