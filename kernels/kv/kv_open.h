/* kv_open.h - K in 4 bits per channel (i4kc): groups of positions that are quantized together, and the open group.
 *
 * A channel (element of a head) has one scale s and one centre z for the HR_KV_GROUP positions of a group: value =
 * (nibble - 8) * s + z. They are known when the last position of the group is. Until then its rows stand as bf16 in a plane
 * of the sequence, [layer][head][HR_KV_GROUP][head_dim]; the append of its last position closes it. Positions are closed
 * up to the last whole group of the sequence's length, so that nothing has to be remembered.
 *
 * Scales of a group: for each 16 channels sixteen s, then sixteen z, as f16: 4 * head_dim bytes, of which each of its
 * positions holds the same share, in order, as its row of the scale plane. So a row of K, its scales included, has the same
 * bytes at every position, and lies in pages and tiles of any size. */
#ifndef HR_KV_OPEN_H
#define HR_KV_OPEN_H

#include "kernels/kv/kv_run.h"

enum { HR_KV_GROUP = 32, HR_KV_GROUP_DIM = 256 /* the largest head dimension of such K */ };

/* Positions that are quantized together: HR_KV_GROUP where K is i4kc, else 1. */
HR_BOTH static inline uint32_t hr_kv_granule(const hr_kv_geom *g) {
    return g->type[0] == HR_I4KC ? HR_KV_GROUP : 1;
}
/* Of a sequence of len positions: those whose K lies in the K plane; the others lie in the open plane. */
HR_BOTH static inline uint32_t hr_kv_closed(const hr_kv_geom *g, uint32_t len) {
    return g->type[0] == HR_I4KC ? len / HR_KV_GROUP * HR_KV_GROUP : len;
}
/* Bytes of a sequence's open plane. */
HR_BOTH static inline size_t hr_kv_open_bytes(const hr_kv_geom *g) {
    return g->type[0] == HR_I4KC ? sizeof(uint16_t) * g->n_layers * g->n_heads * HR_KV_GROUP * g->head_dim : 0;
}
/* The row of position pos in the open plane: bf16 [head_dim]. */
HR_BOTH static inline uint16_t *hr_kv_open_row(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos) {
    const hr_kv_geom *g = s->g;
    const size_t row = ((size_t)layer * g->n_heads + head) * HR_KV_GROUP + pos % HR_KV_GROUP;
    return (uint16_t *)(void *)s->open + row * g->head_dim;
}
/* Where channel d has its s among the scales of a group; z stands 16 further. */
HR_BOTH static inline size_t hr_kv_channel(size_t d) {
    return d / 16 * 32 + d % 16;
}

/* Scales of the closed group that begins at position `first`: in place where they lie in one piece, else copied into
 * room[2 * head_dim]. */
const uint16_t *hr_kv_group_scales(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first, uint16_t *room);
/* Copies them to where they belong. */
void hr_kv_group_store_scales(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first,
                              const uint16_t *scales);

/* Fills `open`, laid out as from->open, with the open rows that `from` would have with len positions: copied, or made from the
 * closed group that len cuts (evicted positions become zeros). open may be from->open. Nothing is done for other types. */
void hr_kv_open_at(const hr_kv_seq *from, uint32_t len, uint8_t *open);

#endif
