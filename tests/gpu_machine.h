/* gpu_machine.h - a GPU in the place of the machine of shim.h: the same tests of kernels (test_cuda_*.c, compiled with HR_ON_GPU),
 * launched through the driver. Device memory is managed memory, so that tests read and write it as they do on the CPU; the
 * sizes are small. There is one mode. HEADROOM_GPU is the ordinal of the device (0). */
#ifndef HR_GPU_MACHINE_H
#define HR_GPU_MACHINE_H

#include "kernels/table.h"

/* Managed memory, aligned to 256. Where there is no GPU, or no memory, one line is printed and the process ends with 2. */
void *hr_gpu_alloc(size_t bytes);
void hr_gpu_free(void *memory);
/* Of the device. */
const hr_cuda_caps *hr_gpu_caps(void);

#endif
