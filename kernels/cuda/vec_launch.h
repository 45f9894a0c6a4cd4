/* vec_launch.h - how element-wise kernels cut their work into blocks: what the shape of a launch (rows_vec.c) and the kernel
 * have to agree on. */
#ifndef HR_VEC_LAUNCH_H
#define HR_VEC_LAUNCH_H

#include "kernels/cuda/cuda_params.h"

enum {
    HR_NORM_STAGED = 8192, /* columns whose weights are put into shared memory; the others stay where they are */
    HR_HEADS_WARPS = 4,    /* at most: a warp a head */
    HR_SAMPLE_SLOT = 16,   /* bytes of a row in the workspace, beside its lists of candidates */
    HR_SAMPLE_KEYS = 4096, /* candidates that a block holds */
    HR_KV_COPY_SPAN = 64,  /* positions a block */
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

/* sample.cu: whether a draw is done on the GPU. */
HR_BOTH static inline bool hr_sample_can(const hr_cuda_sample *p) {
    return p->top_k > 0 && p->top_k <= HR_CUDA_TOP_K && p->top_k < p->vocab;
}
/* Entries of a list of candidates: the power of two that holds top_k. */
HR_BOTH static inline uint32_t hr_sample_list(uint32_t top_k) {
    uint32_t k = 1;
    while (k < top_k) k *= 2;
    return k;
}
/* Lists that a block holds in shared memory: those of its part when it is one of `parts`, two at least and 32 KB at most. */
HR_BOTH static inline uint32_t hr_sample_lists(const hr_cuda_sample *p, uint32_t parts) {
    const uint32_t k = hr_sample_list(p->top_k), most = HR_SAMPLE_KEYS / k;
    const uint32_t wanted = ((p->vocab + parts - 1) / parts + 3 + k - 1) / k;
    return wanted < 2 ? 2 : wanted > most ? most : wanted;
}

#endif
