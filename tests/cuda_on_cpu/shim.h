/* shim.h - kernels for GPUs, run on the CPU: what tests in C and the stand-in for the driver see.
 *
 * Every CUDA thread is a fiber; blocks run one after another; fibers switch at barriers and warp-wide operations alone.
 * Shared memory is poisoned with NaN (all bits set) before each block. A broken rule prints one line with kernel, block and thread
 * and ends the process with a status of hr_shim_exit. */
#ifndef HR_SHIM_H
#define HR_SHIM_H

#include "kernels/table.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_shim_exit {
    HR_SHIM_MISUSE =
        86, /* an address that is not aligned or not in shared memory, a lane missing from its own mask, __trap() */
    HR_SHIM_DEADLOCK,
    HR_SHIM_DIVERGENT_BARRIER,
    HR_SHIM_DIVERGENT_WARP,
    HR_SHIM_STACK_OVERFLOW,
    HR_SHIM_NO_MEMORY
} hr_shim_exit;

/* In which order threads that could run do so, and when asynchronous copies happen. */
typedef enum hr_shim_order { HR_SHIM_ASCENDING, HR_SHIM_DESCENDING, HR_SHIM_RANDOM, HR_SHIM_LIFO } hr_shim_order;
typedef struct hr_shim_mode {
    hr_shim_order order;
    uint64_t seed;    /* RANDOM */
    bool copies_late; /* cp.async copies when it is waited for, not when it is issued */
} hr_shim_mode;
/* Every mode that a kernel is tested in. */
extern const hr_shim_mode hr_shim_modes[];
extern const unsigned hr_shim_n_modes;
void hr_shim_set_mode(const hr_shim_mode *mode); /* at first hr_shim_modes[0] */

/* Runs a kernel to its end. 0; 1: no such symbol; 2: a launch that no GPU accepts (grid, block, shared memory). */
int hr_shim_launch(const char *symbol, const hr_cuda_shape *shape, const void *params);
/* Bytes of its parameter; 0: no such symbol. */
size_t hr_shim_params_bytes(const char *symbol);
/* Symbol of kernel i in no particular order; NULL past the end. */
const char *hr_shim_kernel_at(unsigned i);
/* Counts since the start. */
typedef struct hr_shim_stats {
    uint64_t launches, blocks, barriers, warp_ops, switches, copies; /* copies: cp.async */
} hr_shim_stats;
hr_shim_stats hr_shim_get_stats(void);

#ifdef __cplusplus
}
#endif

#endif
