/* gpu_around.h - what is seen of a GPU around a cell: its state before and after, and what its counters say of a step. Measured
 * in the worker, whose process has the context; the parent takes it off the line. */
#ifndef HR_GPU_AROUND_H
#define HR_GPU_AROUND_H

#include "harness/sweep/derive.h"
#include "harness/sweep/measure.h"

/* In the worker: the state with the units (bit set of hr_unit) probed; NaN where the driver does not say. */
void hr_gpu_around_look(int device, unsigned units, hr_gpu_state *out);
/* Into a result: gpu_before, gpu_after. */
hr_status hr_gpu_around_put(json_t *result, const hr_gpu_state *before, const hr_gpu_state *after);
/* In the worker, after the samples: counts a step (hr_bench_step) in passes that are never timed. Into the result
 * dram_bytes_read, dram_bytes_write, tensor_pct, l2_hit_pct, warps_active_pct; or counters_missing, why there are none. */
hr_status hr_gpu_around_count(json_t *result, int device, hr_bench *bench);

/* In the parent: before and after as surroundings of a row. */
void hr_gpu_around_get(const json_t *result, const hr_device_info *gpu, hr_surroundings *around);

#endif
