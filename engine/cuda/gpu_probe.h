/* gpu_probe.h - short loads of one kind on a GPU (kernels/cuda/roof.cu), timed by events: what ceilings and states are made of.
 *
 * A way is a kernel and the shape of its launch. Which is best differs from GPU to GPU: callers try several. */
#ifndef HR_GPU_PROBE_H
#define HR_GPU_PROBE_H

#include "engine/cuda/driver.h"
#include "engine/device.h"
#include "kernels/cuda/roof_params.h"

typedef struct hr_gpu_way {
    const char *kernel, *what; /* symbol; in words: "4 x 16 bytes a thread" */
    uint16_t threads, blocks;  /* of a block; of an SM */
} hr_gpu_way;
/* What it does and on which shape, as results name it. */
void hr_gpu_way_name(const hr_gpu_way *way, char *out, size_t n);

/* Kinds of load; the arithmetic ones are those of hr_unit, and fp8. */
typedef enum hr_gpu_load {
    HR_GPU_READ,
    HR_GPU_WRITE,
    HR_GPU_COPY,
    HR_GPU_FP32,
    HR_GPU_BF16,
    HR_GPU_INT8,
    HR_GPU_FP8,
    HR_GPU_LOADS
} hr_gpu_load;
/* All ways of a load, best guess first. */
const hr_gpu_way *hr_gpu_ways(hr_gpu_load load, unsigned *n);

typedef struct hr_gpu_probe {
    const hr_driver *driver;
    hr_device_info info;
    CUstream stream;
    CUevent begin, end;
    CUdeviceptr from, to, sums, operands;
    size_t bytes; /* of from, and of to */
    uint32_t sms; /* that are used: 2 of a simulated device */
} hr_gpu_probe;
/* Buffers of `bytes` each (copy: two, else one), or halves of that down to `least` where memory is short (ERR_MEMORY below).
 * They are filled with words that differ. */
hr_status hr_gpu_probe_open(int device, size_t bytes, size_t least, bool copy, hr_gpu_probe *out);
void hr_gpu_probe_close(hr_gpu_probe *probe);
/* One launch: `bytes` of memory `passes` times, or so many loops of arithmetic. *ns: by events. *work: bytes moved (a copy: read and
 * written), or operations (a multiply and an add are two). */
hr_status hr_gpu_probe_run(hr_gpu_probe *probe, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, uint32_t passes,
                           double *ns, double *work);
/* How many passes or loops take about `ns`; on a simulated device 1. */
hr_status hr_gpu_probe_passes(hr_gpu_probe *probe, hr_gpu_load load, const hr_gpu_way *way, size_t bytes, double ns,
                              uint32_t *passes);
/* Sums that the last launch left: n of [grid]. */
hr_status hr_gpu_probe_sums(hr_gpu_probe *probe, uint32_t *out, size_t n);

#endif
