/* gpu_lt.h - the rate of products by cuBLASLt, as a ceiling and as what others reach: on GPUs since Hopper nothing that is launched by
 * mma.sync reaches what their tensor cores can do. */
#ifndef HR_GPU_LT_H
#define HR_GPU_LT_H

#include "engine/cuda/gpu_probe.h"

/* A product that is ready to be run. */
typedef struct hr_gpu_lt hr_gpu_lt;
typedef struct hr_gpu_product {
    unsigned rows, cols, n; /* weights [rows][cols], n tokens; all 0: the largest square that fits, at most 8192 */
} hr_gpu_product;
/* y[n][rows] = x[n][cols] w^T in the type of a load (HR_GPU_FP32 .. HR_GPU_FP8), inside probe->from, by the fastest of the ways that
 * cuBLASLt proposes. ERR_UNSUPPORTED: no library, no room, or no way. */
hr_status hr_gpu_lt_create(hr_gpu_probe *probe, hr_gpu_load load, const hr_gpu_product *product, hr_gpu_lt **out);
void hr_gpu_lt_destroy(hr_gpu_lt *lt);
/* `times` products one after another, each with weights of its own as long as there is room for them: of a model's layers none
 * is in a cache when its turn comes. *work: operations. */
hr_status hr_gpu_lt_run(hr_gpu_lt *lt, hr_gpu_probe *probe, uint32_t times, double *ns, double *work);
/* One of them, not waited for. */
hr_status hr_gpu_lt_launch(hr_gpu_lt *lt, const hr_gpu_probe *probe);
hr_gpu_product hr_gpu_lt_product(const hr_gpu_lt *lt);

#endif
