/* vec_launch.h - how element-wise kernels cut their work into blocks: what the shape of a launch (rows_vec.c) and the kernel
 * have to agree on. */
#ifndef HR_VEC_LAUNCH_H
#define HR_VEC_LAUNCH_H

#include "kernels/cuda/cuda_params.h"

enum {
    HR_NORM_STAGED = 8192, /* columns whose weights are put into shared memory; the others stay where they are */
    HR_HEADS_WARPS = 4     /* at most: a warp a head */
};

/* heads.cu: jobs of a token, a warp each: all heads of Q, K and V, or those of K and V where nothing is prepared; K of i4kc
 * is left to blocks that take a group of positions each. */
HR_BOTH static inline uint32_t hr_heads_jobs(const hr_cuda_heads *p, bool prepare, bool append) {
    return (prepare ? p->n_heads : 0) + p->n_kv_heads * (append && p->granule > 1 ? 1 : 2);
}
/* Groups of positions that tokens of one launch may lie in, of one head. */
HR_BOTH static inline uint32_t hr_heads_groups(const hr_cuda_heads *p) {
    const uint32_t spans = (p->n + HR_KV_GROUP - 1) / HR_KV_GROUP + 1;
    return spans > p->n_segments ? spans : p->n_segments;
}
/* Blocks of the jobs; those of the groups follow. */
HR_BOTH static inline uint32_t hr_heads_job_blocks(const hr_cuda_heads *p, bool prepare, bool append, uint32_t warps) {
    return (p->n * hr_heads_jobs(p, prepare, append) + warps - 1) / warps;
}

#endif
