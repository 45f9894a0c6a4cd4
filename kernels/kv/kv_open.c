#include "kernels/kv/kv_open.h"

#include <string.h>

/* Walks the pieces of a group's scales. */
static void each_piece(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first, uint8_t *room,
                       const uint8_t *from) {
    const size_t part = s->g->row_bytes[HR_KV_KS];
    for (uint32_t i = 0; i < HR_KV_GROUP;) {
        const hr_kv_rows run = hr_kv_run(s, layer, head, first + i);
        for (uint32_t j = 0; j < run.n && i < HR_KV_GROUP; j++, i++) {
            uint8_t *at = run.at[HR_KV_KS] + j * run.stride[HR_KV_KS];
            if (from)
                memcpy(at, from + i * part, part);
            else
                memcpy(room + i * part, at, part);
        }
    }
}

const uint16_t *hr_kv_group_scales(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first, uint16_t *room) {
    const hr_kv_rows run = hr_kv_run(s, layer, head, first);
    if (run.n >= HR_KV_GROUP && run.stride[HR_KV_KS] == s->g->row_bytes[HR_KV_KS])
        return (const uint16_t *)(const void *)run.at[HR_KV_KS];
    each_piece(s, layer, head, first, (uint8_t *)room, NULL);
    return room;
}

void hr_kv_group_store_scales(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first,
                              const uint16_t *scales) {
    each_piece(s, layer, head, first, NULL, (const uint8_t *)scales);
}

/* One row of a closed group as bf16. */
static void restore(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t pos, const uint16_t *scales,
                    uint16_t *out) {
    const uint8_t *row = hr_kv_run(s, layer, head, pos).at[HR_KV_K];
    for (uint32_t d = 0; d < s->g->head_dim; d++) {
        const int level = (row[d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8;
        const uint16_t *at = scales + hr_kv_channel(d);
        out[d] = hr_f32_to_bf16((float)level * hr_f16_to_f32(at[0]) + hr_f16_to_f32(at[16]));
    }
}

void hr_kv_open_at(const hr_kv_seq *from, uint32_t len, uint8_t *open) {
    const hr_kv_geom *g = from->g;
    const uint32_t first = hr_kv_closed(g, len), was = hr_kv_closed(g, from->len);
    if (!hr_kv_open_bytes(g) || first == len || (first == was && open == from->open)) return;
    hr_kv_seq to = *from;
    to.open = open;
    uint16_t room[2 * HR_KV_GROUP_DIM];
    for (uint32_t l = 0; l < g->n_layers; l++) {
        for (uint32_t h = 0; h < g->n_heads; h++) {
            const uint16_t *scales = NULL;
            for (uint32_t pos = first; pos < len; pos++) {
                uint16_t *out = hr_kv_open_row(&to, l, h, pos);
                if (first == was) {
                    memcpy(out, hr_kv_open_row(from, l, h, pos), g->head_dim * sizeof *out);
                } else if (pos >= from->gone_from && pos < from->gone_to) {
                    memset(out, 0, g->head_dim * sizeof *out);
                } else {
                    if (!scales) scales = hr_kv_group_scales(from, l, h, first, room);
                    restore(from, l, h, pos, scales, out);
                }
            }
        }
    }
}
