/* attn_launch.h - how attention is cut into blocks: what the shape functions (rows_attn.c) and the kernels must agree on. */
#ifndef HR_ATTN_LAUNCH_H
#define HR_ATTN_LAUNCH_H

#include "kernels/cuda/cuda_params.h"

#ifdef __cplusplus
#define HR_CONSTEXPR constexpr
#else
#define HR_CONSTEXPR
#endif

enum {
    HR_CUDA_ATTN_DIM = 256,         /* largest head dimension, a multiple of 8 */
    HR_CUDA_DECODE_HEADS = 8,       /* query heads of a block of decode, at most */
    HR_CUDA_DECODE_WARPS = 4,       /* of a block, at most */
    HR_CUDA_DECODE_ROWS = 32,       /* positions of a warp's tile; a group of i4kc */
    HR_CUDA_DECODE_MIN_SPLIT = 128, /* positions */
    HR_CUDA_F32_ROWS = 32,          /* rows (query x head) and positions of a tile of fp32 prefill */
    HR_CUDA_FLASH_KEYS = 64         /* positions of a tile on the tensor cores, at most */
};

/* Query heads of a KV head that a block of decode holds in registers: 1, 4 or 8; a larger group takes several blocks. */
HR_BOTH static inline uint32_t hr_cuda_decode_heads(uint32_t group) {
    return group > 4 ? 8 : group > 1 ? 4 : 1;
}
/* Bytes of shared memory of one warp of decode for rows of at most `element` bytes an element. Rows stand 16 bytes apart, so
 * that 8 lanes that each read 16 bytes of their own row meet in no bank. */
HR_BOTH static inline uint32_t hr_cuda_decode_warp_bytes(uint32_t dim, uint32_t element, uint32_t heads) {
    const uint32_t rows = HR_CUDA_DECODE_ROWS;
    return 2 * rows * (element * dim + 16) + 4 * dim + 64 + 4 * rows * heads;
}

/* Bytes of dynamic shared memory of fp32 prefill: Q, K, V, weights. */
HR_BOTH static inline uint32_t hr_cuda_f32_bytes(uint32_t dim) {
    const uint32_t rows = HR_CUDA_F32_ROWS;
    return 4 * rows * (3 * (dim + 4) + rows + 4);
}

/* Prefill on the tensor cores: the width that rows have room for (products stop at the head's own), positions of a tile, bytes of dynamic shared memory (Q, K, V as
 * bf16) for tiles of `rows` rows. */
HR_BOTH static inline uint32_t hr_cuda_flash_dim(uint32_t dim) {
    return dim <= 128 ? 128 : 256;
}
HR_BOTH HR_CONSTEXPR static inline uint32_t hr_cuda_flash_keys(uint32_t padded) {
    return padded > 128 ? HR_CUDA_FLASH_KEYS / 2 : HR_CUDA_FLASH_KEYS;
}
HR_BOTH static inline uint32_t hr_cuda_flash_bytes(uint32_t dim, uint32_t rows) {
    const uint32_t padded = hr_cuda_flash_dim(dim);
    return 2 * (padded + 8) * (rows + 2 * hr_cuda_flash_keys(padded));
}

/* Positions that the splits of one sequence take: split s has from + s * piece .. to - 1, at most piece of them. */
typedef struct hr_cuda_attn_cut {
    uint32_t from, to, piece, n; /* from, piece: multiples of 32; n: splits that have any */
} hr_cuda_attn_cut;
HR_BOTH static inline hr_cuda_attn_cut hr_cuda_attn_cut_of(const hr_cuda_attn *p, uint32_t pos) {
    hr_cuda_attn_cut c;
    const uint32_t first = p->window && pos + 1 > p->window ? pos + 1 - p->window : 0, rows = HR_CUDA_DECODE_ROWS;
    c.from = first / rows * rows, c.to = pos + 1;
    const uint32_t all = c.to - c.from, even = ((all + p->splits - 1) / p->splits + rows - 1) / rows * rows;
    c.piece = even > p->split_len ? even : p->split_len;
    c.n = (all + c.piece - 1) / c.piece;
    return c;
}

#endif
