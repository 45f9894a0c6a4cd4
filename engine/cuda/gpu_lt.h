/* gpu_lt.h - the rate of large square products by cuBLASLt, as a ceiling: on GPUs since Hopper nothing that is launched by
 * mma.sync reaches what their tensor cores can do. */
#ifndef HR_GPU_LT_H
#define HR_GPU_LT_H

#include "engine/cuda/gpu_probe.h"

/* A product that is ready to be run. */
typedef struct hr_gpu_lt hr_gpu_lt;
/* D = A B of size x size matrices in the type of a load (HR_GPU_FP32 .. HR_GPU_FP8), inside probe->from, by the fastest of the ways
 * that cuBLASLt proposes. The size is as large as the buffer allows, at most 8192. ERR_UNSUPPORTED: no library, or no way. */
hr_status hr_gpu_lt_create(hr_gpu_probe *probe, hr_gpu_load load, hr_gpu_lt **out);
void hr_gpu_lt_destroy(hr_gpu_lt *lt);
/* `times` products one after another; *work: operations. */
hr_status hr_gpu_lt_run(hr_gpu_lt *lt, hr_gpu_probe *probe, uint32_t times, double *ns, double *work);
unsigned hr_gpu_lt_size(const hr_gpu_lt *lt);

#endif
