/* panel_gemv_body.h - products of quantized weights in panels with few int8 tokens, over panel_int_body.h.
 *
 * The weights stream from memory once. A thread's panels are cut into as many runs as the tile has panels, so that it
 * reads that many linear streams, each prefetched far ahead. */
#ifndef HR_PANEL_GEMV_BODY_H
#define HR_PANEL_GEMV_BODY_H

#include "kernels/cpu/acts_int_avx512.h"
#include "kernels/cpu/panel_int_body.h"

/* Panels of a tile of `width` tokens: at most 12 vectors of integers and 12 of floats. One token: with one stream a thread
 * fetched FAR ahead both threads read 3 % more of int8 and int4 than with two (Zen 5, cores on two dies, 8192 x 2048, turns
 * of 60: 67.0, 67.9 and 67.9 GB/s of int8, int4 and int4-g128 against 64.1, 66.0 and 64.3, where plain reading got 72 to
 * 75); fetched 2 or 4 KB ahead one stream is no better. A scale a row is one chain of integers a panel: two overlap. */
HR_INLINE int panels_of(hr_dtype type, int width) {
    if (width == 1 && V_PARTS == 1 && type != HR_I8ROW) return 1;
    return 12 / V_PARTS / width >= 2 ? 2 : 1;
}

/* Panels first, first + apart, .. of the tile at once; the last ones may be missing. */
HR_INLINE void run_panels(const hr_matmul *m, shape s, tile a, size_t first, size_t apart, size_t row1) {
    for (int i = 0; i < s.panels; i++) {
        const size_t p = first + (size_t)i * apart, row = p * HR_PANEL;
        a.w[i] = hr_panel_data(m->w, p);
        a.d[i] = (const uint8_t *)hr_panel_scale(m->w, p);
        a.y[i] = m->y + row;
        a.rows[i] = row1 - row;
    }
    run_tile(s, &a);
}

HR_INLINE void gemv_width(const hr_matmul *m, hr_dtype type, hr_act act, int width, size_t row0, size_t row1,
                          const int32_t *x) {
    const int streams = panels_of(type, width);
    const shape s = {type, act, false, streams, width, width}, one = {type, act, false, 1, width, width};
    const size_t groups = m->w->cols / 32, w = (size_t)width;
    tile a = {.ldy = m->ldy, .add = m->add, .tokens = w, .groups = groups, .x = x};
    a.starts = type == HR_I8ROW ? x + hr_int_blocks(groups, w) : x + hr_int_runs(groups, w);
    a.scales = (const float *)x + hr_int_scales(groups, w);
    size_t p = row0 / HR_PANEL;
    const size_t end = hr_panel_count(row1), apart = (end - p) / (size_t)streams;
    for (size_t i = 0; i < apart; i++, p++) run_panels(m, s, a, p, apart, row1);
    for (p += apart * (size_t)(streams - 1); p < end; p++) run_panels(m, one, a, p, 0, row1);
}

HR_INLINE void gemv(const hr_matmul *m, hr_dtype type, hr_act act, size_t row0, size_t row1, void *scratch) {
    const size_t n = m->x->n, groups = m->w->cols / 32;
    int32_t *x = scratch;
    if (n == 0) return;
    hr_int_tile_pack_avx512(m->x, 0, n, n, x);
    if (type == HR_I8ROW && act == HR_ACT_INT8_ROW) /* one run over all columns */
        for (size_t b = 1; b < (groups + HR_INT_DEPTH - 1) / HR_INT_DEPTH; b++)
            for (size_t t = 0; t < n; t++) x[hr_int_blocks(groups, n) + t] += x[hr_int_blocks(groups, n) + b * n + t];
/* clang-format off */
#define WIDTH(t) case t: gemv_width(m, type, act, t, row0, row1, x); return;
    switch (n) {
    WIDTH(1) WIDTH(2) WIDTH(3) WIDTH(4) WIDTH(5) WIDTH(6)
    }
    if (V_PARTS > 1) return; /* in 256 bits there are not enough registers for more than 6 */
    switch (n) {
    WIDTH(7) WIDTH(8)
    }
#undef WIDTH
    /* clang-format on */
}

#endif
