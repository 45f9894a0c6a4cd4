/* gpu_bench.h - kernels for GPUs timed one by one: rows of the kernel table beside cuBLASLt, in the order of what matters most,
 * one line of JSON a result as it comes, until the time is up. */
#ifndef HR_GPU_BENCH_H
#define HR_GPU_BENCH_H

#include "engine/cuda/gpu_lt.h"
#include "kernels/cuda/cuda_params.h"

#include <stdio.h>

typedef struct gpu_bench {
    int device;
    const char *only; /* part of the names of kernels; NULL: all */
    bool small;       /* a simulated device, or --small: shapes of a few kilobytes, each once */
    uint64_t deadline_ns;
    FILE *out;
    unsigned lines, failures;
    hr_gpu_probe probe; /* from: weights and KV; to: everything else */
    hr_cuda_caps caps;
    CUdeviceptr workspace;
    double read_gb_s; /* of this GPU now, for shares */
} gpu_bench;

/* Bytes of `to`, from its start on; *used moves on. 0 when it is full. */
CUdeviceptr gpu_bench_take(gpu_bench *b, size_t *used, size_t bytes);
hr_status gpu_bench_upload(gpu_bench *b, CUdeviceptr to, const void *from, size_t bytes);
bool gpu_bench_over(const gpu_bench *b); /* the time is up */
bool gpu_bench_wants(const gpu_bench *b, const char *kernel);

/* One launch of the thing that is timed: number i, so that it can take other memory each time. */
typedef hr_status gpu_bench_launch(gpu_bench *b, void *context, unsigned i);
/* Runs it often enough, in several timed batches; *ns: median and least time of one. A kernel that fails gives a line with its
 * error, and false. */
bool gpu_bench_time(gpu_bench *b, gpu_bench_launch *launch, void *context, const char *name, double *median,
                    double *least);
hr_status gpu_bench_row(gpu_bench *b, const hr_kernel *row, void *params); /* launches by the row's own shape */

typedef struct gpu_bench_result {
    const char *family, *kernel, *dtype, *act, *shape; /* shape: in words */
    unsigned rows, cols, n;
    double median_ns, least_ns, bytes, flops;
} gpu_bench_result;
void gpu_bench_put(gpu_bench *b, const gpu_bench_result *result);

hr_status gpu_bench_matmul(gpu_bench *b);
hr_status gpu_bench_attention(gpu_bench *b);

#endif
