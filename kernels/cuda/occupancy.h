/* occupancy.h - how many blocks of a kernel a multiprocessor holds at a time, by the rules of the CUDA C++ Programming Guide
 * (compute capabilities: limits of a multiprocessor) and of NVIDIA's occupancy calculator (granularity of allocation). */
#ifndef HR_CUDA_OCCUPANCY_H
#define HR_CUDA_OCCUPANCY_H

#include <stdbool.h>
#include <stdint.h>

/* Of one multiprocessor. */
typedef struct hr_sm_limits {
    uint32_t warps, blocks, registers, shared; /* shared: bytes for all blocks */
    uint32_t shared_block;                     /* that one block may have, by opting in */
    uint32_t register_unit, warp_unit;         /* registers of a warp come in units; warps of a block in multiples */
    uint32_t shared_unit, shared_system;       /* shared memory in units; bytes a block that the system takes */
    uint32_t registers_thread, threads_block;  /* at most */
} hr_sm_limits;
/* For 8.0, 8.6, 8.9, 9.0, 10.0, 10.3 and 12.0; false for others. */
bool hr_sm_limits_of(uint32_t major, uint32_t minor, hr_sm_limits *out);

typedef enum hr_occupancy_bound {
    HR_OCCUPANCY_WARPS,
    HR_OCCUPANCY_BLOCKS,
    HR_OCCUPANCY_REGISTERS,
    HR_OCCUPANCY_SHARED,
    HR_OCCUPANCY_NONE /* no block fits */
} hr_occupancy_bound;
extern const char *const hr_occupancy_bounds[]; /* "warps", "blocks", "registers", "shared memory", "does not fit" */

typedef struct hr_occupancy {
    uint32_t blocks, warps;   /* on a multiprocessor */
    double share;             /* of the warps that it can have */
    hr_occupancy_bound bound; /* what stands in the way of more; of several the first named above */
} hr_occupancy;
/* threads: of a block; registers: a thread; shared: bytes a block, static and dynamic. */
hr_occupancy hr_occupancy_of(const hr_sm_limits *sm, uint32_t threads, uint32_t registers, uint32_t shared);

#endif
