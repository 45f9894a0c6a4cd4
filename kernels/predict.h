/* predict.h - what can be said of kernels for GPUs without one: occupancy from what the compiler made of them, and the time at a
 * datasheet's roof. Predicted, never measured: real kernels take longer than a roof, by how much only a GPU tells. */
#ifndef HR_PREDICT_H
#define HR_PREDICT_H

#include "kernels/table.h"

/* What the maker's datasheet says, dense, without sparsity. */
typedef struct hr_gpu_sheet {
    const char *name;  /* "h200" */
    const char *title; /* "NVIDIA H200 SXM" */
    uint32_t major, minor, sms, smem_optin;
    double read_gb_s;
    double gflop_s[HR_UNIT_COUNT];
} hr_gpu_sheet;
const hr_gpu_sheet *hr_gpu_sheet_at(size_t i); /* NULL past the end */
/* By name, or by what a driver calls a device ("NVIDIA H200"); NULL: none. */
const hr_gpu_sheet *hr_gpu_sheet_find(const char *name);

/* One row of the table on one GPU. Products: of one matrix of HR_PREDICT_ROWS x HR_PREDICT_COLS; attention: 32 heads, 8 KV heads, head
 * dimension 128, HR_PREDICT_DEPTH positions (decode) or as many queries as `n` from position 0 (prefill). Of other rows only the
 * kernel itself is known, with its largest block. */
enum { HR_PREDICT_ROWS = 14336, HR_PREDICT_COLS = 4096, HR_PREDICT_DEPTH = 4096 };
typedef struct hr_kernel_prediction {
    const hr_kernel *row;
    hr_dtype dtype; /* of weights or of K and V */
    uint32_t n;     /* tokens; 0: not asked for */
    hr_cuda_shape shape;
    uint32_t registers, shared; /* a thread; bytes a block, dynamic included */
    uint32_t blocks, warps;     /* on a multiprocessor at a time */
    double occupancy;           /* share of the warps it can have */
    const char *bound;          /* what keeps more of them away: "registers", ... */
    double waves;               /* blocks of the launch over those that run at a time; NaN: launch not known */
    uint64_t bytes, flops;      /* 0: not known */
    double roof_us;             /* the longer of bytes / read and flops / peak; NaN */
    bool compute_bound;
} hr_kernel_prediction;

/* All rows of the GPU table, in its order. *n: how many, at most `room`. ERR_UNSUPPORTED: built without the CUDA backend, or no
 * image runs on this GPU. */
hr_status hr_kernels_predict(const hr_gpu_sheet *gpu, hr_kernel_prediction *out, size_t room, size_t *n);
enum { HR_PREDICTIONS_MOST = 512 };

#endif
