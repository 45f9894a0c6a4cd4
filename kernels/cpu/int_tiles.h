/* int_tiles.h - int8 activations as the AVX-512 integer kernels read them (hr_acts.tiles, and the GEMV kernels' scratch).
 *
 * An area holds `width` tokens side by side: per group of 32 columns 8 lines of `width` dwords, four columns each of int8,
 * and lines of what a kernel needs once a group, whatever type the weights have, so that matrices of different types share
 * one area. Weights are stored with an offset, and integers start at -offset times the sum of the activations, so that they
 * end exact. After the groups follow the starts of longer runs of columns, and the token scales.
 *
 * Of few tokens all HR_INT_SLOTS lines of a group lie together; in areas of HR_INT_TILE tokens each kind of line that is
 * needed once a group lies apart, so that a kernel streams only what its type of weights needs (8 lines of 14):
 *   few:   [groups][HR_INT_SLOTS][width],                                   then the rest
 *   tile:  [groups][8][width], [HR_INT_SLOTS - 8][groups * width + HR_INT_GAP], then the rest
 *   rest:  [ceil(groups / 4)][width], [ceil(groups / HR_INT_DEPTH)][width], [width] float */
#ifndef HR_INT_TILES_H
#define HR_INT_TILES_H

#include <stddef.h>
#include <stdint.h>

enum {
    HR_INT_TILE = 12,     /* tokens of an area in hr_acts.tiles */
    HR_INT_DEPTH = 64,    /* groups that a GEMM goes through before it adds to y */
    HR_INT_START_128 = 8, /* -128 * sum: int8 */
    HR_INT_START_8 = 9,   /* -8 * sum: int4 */
    HR_INT_SCALE = 10,    /* d (float) */
    HR_INT_SUM = 11,      /* sum (float), times d when there is one a group: Q4_1 */
    HR_INT_START_32 = 12, /* two lines, -32 * sum of 16 columns: Q6_K */
    HR_INT_SLOTS = 14,
    HR_INT_GAP = 80, /* keeps lines of one group off the same set of the caches; 6 of them a tile */
};

/* Dwords from the start of an area to line `slot` of group g. */
static inline size_t hr_int_line(size_t groups, size_t width, size_t g, size_t slot) {
    if (width != HR_INT_TILE) return (g * HR_INT_SLOTS + slot) * width;
    return slot < 8 ? (g * 8 + slot) * width : (slot * groups + g) * width + (slot - 8) * HR_INT_GAP;
}
/* Dwords from the start of an area. */
static inline size_t hr_int_runs(size_t groups, size_t width) { /* starts of int4 by 128 columns */
    return groups * HR_INT_SLOTS * width + (width == HR_INT_TILE ? (HR_INT_SLOTS - 8) * HR_INT_GAP : 0);
}
static inline size_t hr_int_blocks(size_t groups, size_t width) { /* starts of int8 by HR_INT_DEPTH groups */
    return hr_int_runs(groups, width) + (groups + 3) / 4 * width;
}
static inline size_t hr_int_scales(size_t groups, size_t width) { /* token scales */
    return hr_int_blocks(groups, width) + (groups + HR_INT_DEPTH - 1) / HR_INT_DEPTH * width;
}
static inline size_t hr_int_area(size_t groups, size_t width) { /* dwords of an area, a multiple of 16 */
    return (hr_int_scales(groups, width) + width + 15) / 16 * 16;
}

#endif
