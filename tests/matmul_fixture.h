/* matmul_fixture.h - random weights of any type in both orders, and activations, for tests of matrix products. */
#ifndef HR_MATMUL_FIXTURE_H
#define HR_MATMUL_FIXTURE_H

#include "kernels/base/memory.h"
#include "kernels/base/panel.h"
#include "kernels/table.h"
#include "tests/hr_test.h"
#include <stdlib.h>

static uint32_t random_state = 1;
static inline float random_float(void) { /* -1 .. 1 */
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) / 8388608.0f - 1;
}

static inline bool can_run(const hr_kernel *k) {
    return k->isa <= hr_isa_best() && !(k->needs & ~hr_cpu_features());
}

/* Memory that ends exactly after `bytes`, so that a read past it is seen. */
static inline void *aligned_bytes(size_t bytes) {
    void *p = NULL;
    return posix_memalign(&p, 64, bytes ? bytes : 1) ? NULL : p;
}

/* ---- weights ---- */

/* All bit patterns that the format allows, in memory that ends with the last row: not aligned in the order of rows, as
 * aligned as panel.h says in panels. */
typedef struct weights {
    hr_mat m[HR_ORDER_COUNT]; /* the same values in both orders */
    uint8_t *data, *panels;
    uint16_t *scales, *panel_scales;
} weights;

static inline void random_scale(uint8_t *p) {
    const uint16_t d = hr_f32_to_f16(0.01f * random_float());
    memcpy(p, &d, 2);
}

static inline void fill_weights(hr_dtype t, size_t values, uint8_t *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)((int)(127 * random_float()) + 128);
    for (size_t i = 0; i < values; i++) {
        const float v = random_float();
        const uint16_t half = t == HR_F16 ? hr_f32_to_f16(v) : hr_f32_to_bf16(v);
        if (t == HR_F32) memcpy(p + 4 * i, &v, 4);
        if (t == HR_F16 || t == HR_BF16) memcpy(p + 2 * i, &half, 2);
    }
    for (size_t i = 0; i < bytes; i += hr_dtypes[t].block_bytes) {
        if (t == HR_Q8_0 || t == HR_Q4_0 || t == HR_Q4_1) random_scale(p + i);
        if (t == HR_Q4_1) random_scale(p + i + 2);
        if (t == HR_Q6_K) random_scale(p + i + 208);
    }
}

static inline weights make_weights(hr_dtype t, size_t rows, size_t cols) {
    const size_t bytes = rows * hr_row_bytes(t, cols), groups = rows * hr_row_scales(t, cols);
    const size_t panels = hr_panel_count(rows), size = hr_panel_bytes(t, cols), count = hr_panel_scales(t, cols);
    weights w = {.data = hr_malloc(bytes + 1),
                 .scales = groups ? hr_malloc(2 * groups) : NULL,
                 .panels = aligned_bytes(panels * size),
                 .panel_scales = count ? aligned_bytes(2 * panels * count) : NULL};
    fill_weights(t, rows * cols, w.data + 1, bytes);
    for (size_t g = 0; g < groups; g++) random_scale((uint8_t *)(w.scales + g));
    w.m[HR_ORDER_ROWS] = (hr_mat){t, rows, cols, w.data + 1, w.scales, HR_ORDER_ROWS};
    for (size_t p = 0; p < panels; p++)
        hr_panel_pack(&w.m[HR_ORDER_ROWS], HR_PANEL * p, w.panels + p * size,
                      w.panel_scales ? w.panel_scales + p * count : NULL);
    w.m[HR_ORDER_PANELS] = (hr_mat){t, rows, cols, w.panels, w.panel_scales, HR_ORDER_PANELS};
    return w;
}

static inline void free_weights(weights *w) {
    hr_free(w->data), hr_free(w->scales);
    free(w->panels), free(w->panel_scales);
}

/* ---- activations ---- */

static inline hr_acts alloc_acts(hr_act type, size_t n, size_t k, uint32_t tile) {
    hr_acts a = {.type = type, .n = n, .k = k, .ld = hr_align_up(k, 64), .tile = tile};
    const size_t values = n * a.ld;
    if (type == HR_ACT_F32) a.f32 = aligned_bytes(4 * values);
    if (type == HR_ACT_BF16) a.bf16 = aligned_bytes(2 * values);
    if (type == HR_ACT_INT8 || type == HR_ACT_INT8_ROW) {
        a.q = aligned_bytes(values);
        a.d = hr_malloc(values / 8);
        a.sum = hr_malloc(values / 8);
    }
    if (tile) a.tiles = aligned_bytes((n + tile - 1) / tile * hr_acts_tile_bytes(type, tile, k));
    return a;
}

static inline void free_acts(hr_acts *a) {
    free(a->f32), free(a->bf16), free(a->q), free(a->tiles);
    hr_free(a->d), hr_free(a->sum);
}

static inline const hr_kernel *acts_kernel(hr_act type, hr_isa isa) {
    const hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = isa, .act = type, .n = 1};
    return hr_kernel_choose(&q);
}

/* n tokens of k values prepared as products of that ISA take them. */
static inline hr_acts make_acts(hr_act type, hr_isa isa, const float *x, size_t n, size_t k, uint32_t tile) {
    hr_acts a = alloc_acts(type, n, k, tile);
    acts_kernel(type, isa)->fn.acts(&a, x, k, 0, n);
    return a;
}

/* Element c of token t as the products see it. */
static inline double act_value(const hr_acts *a, size_t t, size_t c) {
    const size_t i = t * a->ld + c;
    if (a->type == HR_ACT_F32) return (double)a->f32[i];
    if (a->type == HR_ACT_BF16) return (double)hr_bf16_to_f32(a->bf16[i]);
    return (double)a->q[i] * (double)a->d[i / 32];
}

#endif
