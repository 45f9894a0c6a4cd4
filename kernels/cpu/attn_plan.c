/* attn_plan.c - how attention is cut into units, and what scratch a unit needs. By n_q, pos0 and window alone, so that
 * the bits do not depend on the number of threads. */
#include "kernels/cpu/attn_plan.h"

bool hr_attn_is_split(const hr_attn *a) {
    return a->n_q == 1 && a->pos0 >= HR_ATTN_SPLIT;
}

size_t hr_attn_units(const hr_attn *a) {
    if (hr_attn_is_split(a)) return a->n_kv_heads * hr_attn_splits(a);
    return a->n_kv_heads * hr_attn_tiles(a);
}

size_t hr_attn_scratch(uint32_t head_dim, uint32_t group, uint32_t context, bool flash) {
    const size_t rows = hr_attn_lanes(hr_attn_tile_queries(group) * group);
    const size_t scores = flash ? HR_ATTN_CHUNK : ((size_t)context + HR_ATTN_CHUNK - 1) / HR_ATTN_CHUNK * HR_ATTN_CHUNK;
    const size_t dim = ((size_t)head_dim + 31) / 32 * 32;
    return sizeof(float) * (rows * (2 * dim + scores + 3) + HR_ATTN_CONVERT_ROWS * dim) +
           HR_ATTN_CHUNK * 64; /* 32 elements of V of a chunk in bf16 */
}

size_t hr_attn_partial_floats(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t context) {
    (void)n_kv_heads; /* units x group = splits x heads */
    return ((size_t)context / HR_ATTN_SPLIT + 1) * n_heads * (2 + (size_t)head_dim);
}
