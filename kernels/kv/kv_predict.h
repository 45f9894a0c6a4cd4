/* kv_predict.h - how many runs, lines and pages an operation on a sequence touches, from the geometry alone: the length of a
 * run, the bytes of a unit and the distance of units. Nothing is walked; what a counted operation (kv_count.h) finds is held
 * against it.
 *
 * Rows at positions [a, b) of all heads form a nest: `length` bytes in one piece, repeated at a few distances. From inside
 * outward, pieces whose gaps are smaller than a granule G (64 or 4096 bytes) grow together; what is left are pieces of `length`
 * bytes each by itself, which touch (length + G - align) / G granules each on average over their places, where `align` is
 * what all places are a multiple of. Exact where distances are multiples of G.
 * Pages of a pool stand at random: of a pool of N pages n are met by a granule that m of them reach into with probability
 * 1 - (1 - n/N)^m. For Z-order the tiles of k of a super-block's P blocks: a granule of 2^j tiles holds 2^ceil(j/2) blocks of 2^floor(j/2)
 * heads (zorder-h the other way round); a granule with rows of both sides of a hole counts twice; for `shuffled` a granule of q tiles is met with probability 1 - (1 - k/P)^q. */
#ifndef HR_KV_PREDICT_H
#define HR_KV_PREDICT_H

#include "kernels/kv/kv_count.h"

typedef enum hr_kv_op {
    HR_KV_OP_DECODE,  /* one query at the last position reads all, in one layer */
    HR_KV_OP_PREFILL, /* n_q queries at the last positions, in one layer */
    HR_KV_OP_APPEND,  /* the last n_q positions are written, in all layers */
    HR_KV_OP_FORK,    /* all positions are copied, or shared by pages, in all layers */
    HR_KV_OP_EVICT,   /* bookkeeping alone */
    HR_KV_OP_SAVE,    /* off-load, and restore: all positions, in all layers */
    HR_KV_OP_COUNT
} hr_kv_op;

typedef struct hr_kv_op_shape {
    hr_kv_op op;
    uint32_t len;                /* positions of the sequence, those of the operation included */
    uint32_t n_q;                /* PREFILL, APPEND */
    uint32_t group;              /* PREFILL: query heads of a KV head */
    uint32_t gone_from, gone_to; /* evicted before */
    uint32_t pool_pages;         /* the pages are some of so many, at random; 0: in order */
} hr_kv_op_shape;

typedef struct hr_kv_prediction {
    double runs, lines, pages;
} hr_kv_prediction;
hr_kv_prediction hr_kv_predict(const hr_kv_geom *g, const hr_kv_op_shape *shape);

#endif
