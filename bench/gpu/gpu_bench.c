/* gpu-bench [--device N] [--seconds S] [--only TEXT] [--small] [--out FILE]: times kernels for GPUs one by one. */
#include "bench/gpu/gpu_bench.h"
#include "kernels/base/clock.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 7, WORKSPACE = 16 << 20 };
static const double BATCH_NS = 1e6;
static const size_t MIB = (size_t)1 << 20;

/* ---- what kernels are given ---- */

CUdeviceptr gpu_bench_take(gpu_bench *b, size_t *used, size_t bytes) {
    const size_t at = (*used + 255) / 256 * 256;
    if (at + bytes > b->probe.bytes) return 0;
    *used = at + bytes;
    return b->probe.to + at;
}

hr_status gpu_bench_upload(gpu_bench *b, CUdeviceptr to, const void *from, size_t bytes) {
    HR_CU(b->probe.driver, cuMemcpyHtoDAsync(to, from, bytes, b->probe.stream));
    HR_CU(b->probe.driver, cuStreamSynchronize(b->probe.stream));
    return HR_OK;
}

bool gpu_bench_over(const gpu_bench *b) {
    return hr_now_ns() > b->deadline_ns;
}

bool gpu_bench_wants(const gpu_bench *b, const char *kernel) {
    return !b->only || strstr(kernel, b->only);
}

hr_status gpu_bench_row(gpu_bench *b, const hr_kernel *row, void *params) {
    enum { FREE_SMEM = 47 << 10 }; /* 48 KiB, less what a kernel declares itself */
    CUfunction function;
    hr_cuda_shape s = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
    void *arguments[] = {params};
    row->fn.cuda.shape(params, &b->caps, &s);
    HR_TRY(hr_driver_function(row->fn.cuda.symbol, &function));
    if (s.smem > FREE_SMEM)
        HR_CU(b->probe.driver,
              cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)s.smem));
    HR_CU(b->probe.driver, cuLaunchKernel(function, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
                                          s.smem, b->probe.stream, arguments, NULL));
    return HR_OK;
}

/* ---- times ---- */

static hr_status time_batch(gpu_bench *b, gpu_bench_launch *launch, void *context, unsigned times, double *ns) {
    const hr_driver *d = b->probe.driver;
    static unsigned turn;
    float ms = 0;
    HR_CU(d, cuEventRecord(b->probe.begin, b->probe.stream));
    for (unsigned i = 0; i < times; i++) HR_TRY(launch(b, context, turn++));
    HR_CU(d, cuEventRecord(b->probe.end, b->probe.stream));
    HR_CU(d, cuEventSynchronize(b->probe.end));
    HR_CU(d, cuEventElapsedTime(&ms, b->probe.begin, b->probe.end));
    *ns = ms > 0 ? (double)ms * 1e6 / times : 1;
    return HR_OK;
}

static int ascending(const void *x, const void *y) {
    return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y);
}

static hr_status time_all(gpu_bench *b, gpu_bench_launch *launch, void *context, double ns[BATCHES]) {
    HR_TRY(time_batch(b, launch, context, 1, &ns[0])); /* loads the kernel */
    HR_TRY(time_batch(b, launch, context, 1, &ns[0]));
    const double wanted = b->small ? 1 : BATCH_NS / ns[0];
    const unsigned times = wanted < 1 ? 1 : wanted > 1000 ? 1000 : (unsigned)wanted;
    for (int i = 0; i < BATCHES; i++) HR_TRY(time_batch(b, launch, context, times, &ns[i]));
    qsort(ns, BATCHES, sizeof *ns, ascending);
    return HR_OK;
}

static void put_line(gpu_bench *b, json_t *line) {
    json_dumpf(line, b->out, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6));
    fputc('\n', b->out);
    fflush(b->out);
    json_decref(line);
    b->lines++;
}

bool gpu_bench_time(gpu_bench *b, gpu_bench_launch *launch, void *context, const char *name, double *median,
                    double *least) {
    double ns[BATCHES];
    if (time_all(b, launch, context, ns) == HR_OK) {
        *median = ns[BATCHES / 2], *least = ns[0];
        return true;
    }
    put_line(b, json_pack("{s:s, s:s}", "kernel", name, "error", hr_error()));
    b->failures++;
    return false;
}

static json_t *real_or_null(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

void gpu_bench_put(gpu_bench *b, const gpu_bench_result *r) {
    const double gb_s = r->bytes / r->median_ns;
    put_line(b, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:o, s:b}", "family", r->family,
                          "kernel", r->kernel, "dtype", r->dtype, "act", r->act, "shape", r->shape, "rows",
                          (int)r->rows, "cols", (int)r->cols, "n", (int)r->n, "median_us", r->median_ns / 1e3,
                          "least_us", r->least_ns / 1e3, "gb_s", gb_s, "gflop_s", r->flops / r->median_ns, "of_read",
                          real_or_null(gb_s / b->read_gb_s), "simulated", (int)b->probe.info.simulated));
}

/* ---- main ---- */

static hr_status open_bench(gpu_bench *b) {
    hr_device_info info;
    hr_gpu_state state;
    HR_TRY(hr_device_get_info(b->device, &info));
    b->small |= info.simulated;
    HR_TRY(hr_gpu_state_get(b->device, 1u << HR_UNIT_FP32, &state));
    b->read_gb_s = state.read_gb_s;
    HR_TRY(hr_gpu_probe_open(b->device, b->small ? MIB : 4096 * MIB, b->small ? MIB : 1024 * MIB, true, &b->probe));
    b->caps = (hr_cuda_caps){.major = info.major,
                             .minor = info.minor,
                             .sms = info.sms,
                             .smem_optin = info.smem_optin,
                             .workspace = WORKSPACE};
    HR_CU(b->probe.driver, cuMemAlloc(&b->workspace, WORKSPACE));
    HR_CU(b->probe.driver, cuMemsetD8Async(b->workspace, 0, WORKSPACE, b->probe.stream));
    HR_CU(b->probe.driver, cuStreamSynchronize(b->probe.stream));
    return HR_OK;
}

static void close_bench(gpu_bench *b) {
    if (b->workspace) b->probe.driver->cuMemFree(b->workspace);
    hr_gpu_probe_close(&b->probe);
}

static bool parse(int n, char **args, gpu_bench *b, double *seconds, const char **file) {
    for (int i = 1; i < n; i++) {
        const char *value = i + 1 < n ? args[i + 1] : NULL;
        if (!strcmp(args[i], "--small")) {
            b->small = true;
            continue;
        }
        if (!value) return false;
        i++;
        if (!strcmp(args[i - 1], "--device"))
            b->device = atoi(value);
        else if (!strcmp(args[i - 1], "--seconds"))
            *seconds = atof(value);
        else if (!strcmp(args[i - 1], "--only"))
            b->only = value;
        else if (!strcmp(args[i - 1], "--out"))
            *file = value;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv) {
    gpu_bench b = {.out = stdout};
    double seconds = 90;
    const char *file = NULL;
    if (!parse(argc, argv, &b, &seconds, &file)) {
        fprintf(stderr, "usage: gpu-bench [--device N] [--seconds S] [--only TEXT] [--small] [--out FILE]\n");
        return 2;
    }
    if (file && !(b.out = fopen(file, "w"))) {
        perror(file);
        return 2;
    }
    b.deadline_ns = hr_now_ns() + (uint64_t)(seconds * 1e9);
    hr_status status = open_bench(&b);
    if (status == HR_OK) status = gpu_bench_matmul(&b);
    if (status == HR_OK) status = gpu_bench_attention(&b);
    close_bench(&b);
    if (file) fclose(b.out);
    if (status != HR_OK) {
        fprintf(stderr, "gpu-bench: %s\n", hr_error());
        return 2;
    }
    fprintf(stderr, "gpu-bench: %u lines, %u kernels failed%s\n", b.lines, b.failures,
            gpu_bench_over(&b) ? ", ended by --seconds" : "");
    return b.failures ? 1 : 0;
}
