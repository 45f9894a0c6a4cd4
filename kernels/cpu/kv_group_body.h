/* kv_group_body.h - appending K of type i4kc: rows go into the open group of the sequence, whose last row closes it. Included
 * by kv_append_body.h alone. A group is quantized from its bf16 rows whoever wrote them, so that its bits do not depend on how
 * many positions an append holds. */
#ifndef HR_KV_GROUP_BODY_H
#define HR_KV_GROUP_BODY_H

#include "kernels/kv/kv_open.h"

#include <math.h>
#include <string.h>

/* Step and centre of each channel follow from its smallest and largest value; those that are stored are the ones that
 * are divided by. */
static void append_channels(const float *low, const float *high, size_t dim, uint16_t *scales, float *step,
                            float *centre) {
    for (size_t d = 0; d < dim; d++) {
        uint16_t *at = scales + hr_kv_channel(d);
        at[0] = hr_f32_to_f16((high[d] - low[d]) / 15);
        const float s = hr_f16_to_f32(at[0]);
        at[16] = hr_f32_to_f16(low[d] + 8 * s);
        step[d] = s > 0 ? s : INFINITY, centre[d] = hr_f16_to_f32(at[16]);
    }
}

static void append_close(const hr_kv_seq *s, uint32_t layer, uint32_t head, uint32_t first) {
    enum { GROUP = HR_KV_GROUP, MOST = HR_KV_GROUP_DIM };
    const size_t dim = s->g->head_dim;
    float x[GROUP][MOST], low[MOST], high[MOST], step[MOST], centre[MOST];
    uint16_t scales[2 * MOST];
    const uint16_t *open = hr_kv_open_row(s, layer, head, first);
    for (size_t p = 0; p < GROUP; p++)
        for (size_t d = 0; d < dim; d++) x[p][d] = hr_bf16_to_f32(open[p * dim + d]);
    memcpy(low, x[0], dim * sizeof *low), memcpy(high, x[0], dim * sizeof *high);
    for (size_t p = 1; p < GROUP; p++) {
        for (size_t d = 0; d < dim; d++) {
            low[d] = x[p][d] < low[d] ? x[p][d] : low[d];
            high[d] = x[p][d] > high[d] ? x[p][d] : high[d];
        }
    }
    append_channels(low, high, dim, scales, step, centre);
    for (uint32_t p = 0; p < GROUP; p++) {
        uint8_t level[MOST];
        for (size_t d = 0; d < dim; d++) {
            float y = (x[p][d] - centre[d]) / step[d];
            y = y > -8 ? y : -8;
            y = y < 7 ? y : 7;
            level[d] = (uint8_t)((int32_t)((y + 12582912.0f) - 12582912.0f) + 8);
        }
        uint8_t *row = hr_kv_run(s, layer, head, first + p).at[HR_KV_K];
        for (size_t b = 0; b < dim; b += 32)
            for (size_t i = 0; i < 16; i++) row[b / 2 + i] = (uint8_t)(level[b + i] | level[b + i + 16] << 4);
    }
    hr_kv_group_store_scales(s, layer, head, first, scales);
}

#endif
