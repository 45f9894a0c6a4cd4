/* nvtx.h - NVTX ranges in the domain `headroom`, for Nsight Systems. Without the toolkit's headers at build, and without
 * a tool attached at run time, hr_nvtx_open is false and nothing else may be called. */
#ifndef HR_NVTX_H
#define HR_NVTX_H

#include "engine/engine.h"

/* A name registered once; names are static texts. */
typedef enum hr_nvtx_name {
    HR_NVTX_NAME_LAYER = 0,
    HR_NVTX_NAME_PHASES = 1, /* + hr_phase */
    HR_NVTX_NAME_OPS = 8,    /* + hr_op */
    HR_NVTX_NAME_COUNT = 32
} hr_nvtx_name;

bool hr_nvtx_open(void); /* creates the domain on the first call; true when a tool listens */
void hr_nvtx_push(hr_nvtx_level category, unsigned name, uint64_t payload);
void hr_nvtx_pop(void);

#endif
