/* attn_body.h - attention over the vectors of one ISA; included once by attn_generic.c, attn_avx2.c and attn_avx512.c
 * after their simd_*.h. attn_rows.h holds decode of small groups, attn_tile.h everything else.
 *
 * Both walk hr_kv_run over a piece of at most HR_ATTN_CHUNK positions and keep the addresses of its rows. All
 * arithmetic goes by row and position from there on, so that no bit depends on layout or page size. Flash: softmax
 * online, chunk by chunk. Naive: one chunk as long as the unit's positions. */
#ifndef HR_ATTN_BODY_H
#define HR_ATTN_BODY_H

#include "kernels/cpu/attn_rows.h"
#include "kernels/cpu/attn_tile.h"

static inline void attn_units(const hr_attn *a, size_t unit0, size_t unit1, void *scratch, bool flash) {
    for (size_t u = unit0; u < unit1; u++) {
        const hr_attn_unit unit = hr_attn_unit_at(a, u);
        if (a->n_q == 1 && unit.group <= HR_ATTN_ROWS_GROUP)
            attn_rows_unit(a, &unit, scratch, flash);
        else
            attn_tile_unit(a, &unit, scratch, flash);
    }
}
static void attn_flash(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_units(a, unit0, unit1, scratch, true);
}
static void attn_naive(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_units(a, unit0, unit1, scratch, false);
}

/* Joins the splits of each head in order of position. */
static void attn_merge(const hr_attn *a, size_t kv_head0, size_t kv_head1) {
    const size_t splits = hr_attn_splits(a), group = a->n_heads / a->n_kv_heads, dim = a->head_dim, entry = 2 + dim;
    for (size_t h = kv_head0 * group; h < kv_head1 * group; h++) {
        const float *first = a->partial + (h / group * splits * group + h % group) * entry;
        float top = -INFINITY, sum = 0, *out = a->out + h * dim;
        for (size_t s = 0; s < splits; s++) top = fmaxf(top, first[s * group * entry]);
        for (size_t d = 0; d < dim; d++) out[d] = 0;
        for (size_t s = 0; s < splits; s++) {
            const float *p = first + s * group * entry;
            const float w = expf(p[0] - top);
            sum += w * p[1];
            for (size_t d = 0; d < dim; d++) out[d] += w * p[2 + d];
        }
        for (size_t d = 0; d < dim; d++) out[d] /= sum;
    }
}

#endif
