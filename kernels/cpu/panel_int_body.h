/* panel_int_body.h - the register tile of quantized weights in panels x int8 activations, over the vectors of
 * vnni_512_avx512.h or vnni_256_avx512.h, whichever was included before (else the former).
 *
 * A line of weights (16 rows x 4 columns, unsigned) meets a broadcast of a token's 4 activations; a run of columns with
 * one scale is summed in integers that start at -offset * sum, then enters the floats. What a run is, and what its
 * integers are multiplied with, depends on the types:
 *   weights \ activations     a scale per 32                          a scale per token (applied at the end)
 *   groups of 32              32 columns: w scale * x scale           32: w scale
 *   groups of 128             32 columns: the same                    128: w scale
 *   a scale per row           32: x scale; at the end w scale         all (of a block of HR_INT_DEPTH groups): 1
 *   Q6_K, groups of 16        2 x 16: w scales, then x scale          2 x 16: w scales
 * Q4_1 adds its minimum times the sum of the activations.
 *
 * The order of a token's sums is the same for every tile shape. */
#ifndef HR_PANEL_INT_BODY_H
#define HR_PANEL_INT_BODY_H

/* Partial redundancy elimination doubles the loops and spills their accumulators (GCC 12). */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-pre")
#endif

#include "kernels/base/panel.h"
#include "kernels/cpu/int_tiles.h"
#include "kernels/cpu/matmul_common.h"
#if !defined(HR_VNNI_512_AVX512_H) && !defined(HR_VNNI_256_AVX512_H)
#include "kernels/cpu/vnni_512_avx512.h"
#endif
#include <assert.h>

/* A tile is at most MAX_VECTORS wide, which is what the loops over its vectors are unrolled by, so that none stays. Where
 * one does (8 vectors unrolled by 4) GCC 12.2 makes wrong code of the arrays of vectors: Q6_K sums are wrong from -O1 on, with
 * AVX2 as well, and right with -O0, -fno-tree-sra, -fno-ivopts, unrolled by 8, and by clang 14. Nothing in the source is
 * undefined: valgrind and the memory, address and undefined sanitizers find nothing in the wide tile. */
enum { V_PARTS = HR_PANEL / V_LANES, MAX_VECTORS = 4, MAX_PANELS = MAX_VECTORS / V_PARTS };
enum { LINE = 64, Q6_K_BLOCK = 3328, Q6_K_TOPS = 2048, Q6_K_SUBS = 3072 };
#ifndef AHEAD
enum { AHEAD = 4096 };
#endif
enum { X_AHEAD = 8 }; /* groups: some 500 cycles, and a core's own fetching ends with each page */

/* Keeps the compiler from moving loads across: it would gather the floats of all tokens behind the integers, where they have
 * the multipliers to themselves (Zen 5, groups of 32: 785 Gop/s a thread instead of 840, of 874 that the ports allow). */
#define IN_ORDER() __asm__ volatile("" ::: "memory")
enum { FAR = 8192 }; /* of one token's only stream */

/* What is fixed when a tile is compiled. */
typedef struct shape {
    hr_dtype type;
    hr_act act;
    bool ready;              /* weights are bytes, scales floats: as prepare_panel leaves them; else as in the panel */
    int panels, width, step; /* width tokens of an area of `step` */
} shape;

/* What it works on. */
typedef struct tile {
    const uint8_t *w[MAX_PANELS]; /* from the first group on */
    const uint8_t *d[MAX_PANELS];
    float *y[MAX_PANELS]; /* first row of the panel, first token */
    size_t rows[MAX_PANELS];
    size_t ldy;
    bool add;
    bool fetch; /* y is far away: asked for at the start of the tile */
    size_t groups;
    size_t tokens;                   /* that are stored, of `width` */
    const int32_t *x, *starts;       /* area from the first group on; starts of longer runs */
    const int32_t *once;             /* ready: line HR_INT_START_128 of the first group, */
    size_t apart;                    /* and dwords from there to the next line of that group */
    const float *scales;             /* of the tokens */
    const float *before[MAX_PANELS]; /* ready: sums of earlier columns [tokens][HR_PANEL_ROWS], or NULL */
    const char *ahead[MAX_PANELS];   /* ready: what is prefetched, `lines` lines a panel and group */
    size_t lines;
} tile;

HR_INLINE bool is_int8(hr_dtype t) {
    return t == HR_I8G32 || t == HR_Q8_0 || t == HR_I8ROW;
}

/* Dwords from group to group of the activations (int_tiles.h). */
HR_INLINE size_t x_step(shape s) {
    return (size_t)(s.ready ? 8 : HR_INT_SLOTS) * (size_t)s.step;
}

/* Line `slot` (8 or more) of group g, whose activations are x. */
HR_INLINE const int32_t *once(shape s, const tile *a, size_t g, const int32_t *x, int slot) {
    if (!s.ready) return x + slot * s.step;
    return a->once + (size_t)(slot - 8) * a->apart + g * (size_t)s.step;
}

/* Bytes of quants of 8 lines of columns (a group), where that is constant. */
HR_INLINE size_t group_bytes(shape s) {
    return (s.ready || is_int8(s.type) ? 8 : 4) * LINE;
}

/* Bytes of the scales of a group of 32 (I4G128: of 128). */
HR_INLINE size_t scale_bytes(shape s) {
    const size_t lines = s.type == HR_Q4_1 || (s.type == HR_Q6_K && s.ready) ? 2 : 1;
    return lines * HR_PANEL * (s.ready ? 4 : 2);
}

HR_INLINE v_f load_scale(shape s, const uint8_t *d, int part) {
    return s.ready ? v_loadf((const float *)d + part * V_LANES) : v_halfs((const uint16_t *)d + part * V_LANES);
}

/* Weights of lines i and i + 1 of a group (i even), part `part` of a panel. tops: high bits of Q6_K. */
HR_INLINE void two_lines(shape s, const uint8_t *w, const uint8_t *tops, int i, int part, v_i out[2]) {
    const int at = part * V_LANES * 4;
    if (s.ready || is_int8(s.type)) {
        out[0] = v_load(w + i * LINE + at), out[1] = v_load(w + (i + 1) * LINE + at);
        return;
    }
    const v_i line = v_load(w + i / 2 * LINE + at);
    out[0] = v_low4(line), out[1] = v_high4(line);
    if (s.type == HR_Q6_K) {
        const v_i top = v_load(tops + i / 4 * LINE + at);
        out[0] = v_with_top2(out[0], i % 4 ? top : v_shl(top, 4));
        out[1] = v_with_top2(out[1], i % 4 ? v_shl(top, -2) : v_shl(top, 2));
    }
}

/* What happens to the integers of a run at its end. */
typedef struct finish {
    size_t d;             /* of the run's scales in each panel */
    const float *x, *min; /* scales of the tokens, or NULL; Q4_1: their sums */
    v_f *sum;
} finish;

/* sum += dot * w scale (* x scale), of one vector and token. */
HR_INLINE void finish_one(shape s, const tile *a, finish f, int t, int v, v_i dot) {
    const uint8_t *d = a->d[v / V_PARTS] + f.d;
    v_f by = v_setf(1), *sum = &f.sum[t * s.panels * V_PARTS + v];
    if (s.type != HR_I8ROW) by = load_scale(s, d, v % V_PARTS);
    if (f.x) by = s.type == HR_I8ROW ? v_setf(f.x[t]) : v_mul(by, v_setf(f.x[t]));
    *sum = v_fma(v_float(dot), by, *sum);
    if (s.type == HR_Q4_1) *sum = v_fma(load_scale(s, d + scale_bytes(s) / 2, v % V_PARTS), v_setf(f.min[t]), *sum);
}

/* dot[t * vectors + v] += half a group. at, tops: the group's lines in a panel; x: the tokens'; f: what to do with each sum
 * as soon as it is whole, or NULL. */
HR_INLINE void half_group(shape s, const tile *a, size_t at, size_t tops, int half, const int32_t *x, v_i *dot,
                          const finish *f) {
    const int vectors = s.panels * V_PARTS;
    v_i w[MAX_VECTORS][2];
#pragma GCC unroll 4
    for (int i = 4 * half; i < 4 * half + 4; i++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const uint8_t *from = a->w[v / V_PARTS];
            if (s.ready || is_int8(s.type)) /* one line at a time: registers are short */
                w[v][i % 2] = v_load(from + at + i * LINE + v % V_PARTS * V_LANES * 4);
            else if (i % 2 == 0)
                two_lines(s, from + at, from + tops, i, v % V_PARTS, w[v]);
        }
#pragma GCC unroll 12
        for (int t = 0; t < s.width; t++) {
            const v_i b = v_set(x[i * s.step + t]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                dot[t * vectors + v] = v_dot(dot[t * vectors + v], w[v][i % 2], b);
                if (!f || i != 7) continue;
                finish_one(s, a, *f, t, v, dot[t * vectors + v]);
                IN_ORDER();
            }
        }
    }
}

HR_INLINE void start(shape s, const int32_t *from, v_i *dot) {
    const int vectors = s.panels * V_PARTS;
#pragma GCC unroll 12
    for (int t = 0; t < s.width; t++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) dot[t * vectors + v] = v_set(from ? from[t] : 0);
}

/* All sums of a run, after its last column: where a stream of weights is the limit. */
HR_INLINE void finish_all(shape s, const tile *a, finish f, const v_i *dot) {
    const int vectors = s.panels * V_PARTS;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 12
        for (int t = 0; t < s.width; t++) finish_one(s, a, f, t, v, dot[t * vectors + v]);
}

/* Scales of group g (g % 8 of a block of Q6_K), columns 16 * half .. + 15. */
HR_INLINE v_f q6_k_scale(shape s, const uint8_t *w, const uint8_t *d, size_t g, int half, int part) {
    if (s.ready) return v_loadf((const float *)(d + g * scale_bytes(s)) + half * HR_PANEL + part * V_LANES);
    const uint8_t *sub = w + g / 8 * Q6_K_BLOCK + Q6_K_SUBS + (2 * (g % 8) + (size_t)half) * HR_PANEL + part * V_LANES;
    return v_mul(v_int8_floats(sub), v_halfs((const uint16_t *)(d + g / 8 * 2 * HR_PANEL) + part * V_LANES));
}

HR_INLINE void q6_k_group(shape s, const tile *a, size_t g, const int32_t *x, v_f *sum) {
    const int vectors = s.panels * V_PARTS;
    const size_t at = s.ready ? g * 8 * LINE : g / 8 * Q6_K_BLOCK + g % 8 * 4 * LINE;
    const size_t tops = g / 8 * Q6_K_BLOCK + Q6_K_TOPS + g % 8 * 2 * LINE;
    const float *d = (const float *)once(s, a, g, x, HR_INT_SCALE);
    v_i dot[12];
    v_f both[12];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        start(s, once(s, a, g, x, HR_INT_START_32 + half), dot);
        half_group(s, a, at, tops, half, x, dot, NULL);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const v_f scale = q6_k_scale(s, a->w[v / V_PARTS], a->d[v / V_PARTS], g, half, v % V_PARTS);
#pragma GCC unroll 12
            for (int t = 0; t < s.width; t++) {
                const int i = t * vectors + v;
                const v_f value = v_float(dot[i]);
                if (s.act == HR_ACT_INT8_ROW)
                    sum[i] = v_fma(value, scale, sum[i]);
                else if (half == 0)
                    both[i] = v_mul(value, scale);
                else
                    sum[i] = v_fma(v_fma(value, scale, both[i]), v_setf(d[t]), sum[i]);
            }
        }
    }
}

/* Ready weights: the activations X_AHEAD groups on, and the next panels' lines, a few a group. Else what comes AHEAD or FAR
 * bytes later in each panel's stream. */
HR_INLINE void prefetch(shape s, tile *a, size_t g, size_t d_at) {
    if (s.ready) {
        const char *x = (const char *)(a->x + (g + X_AHEAD) * x_step(s));
#pragma GCC unroll 8
        for (size_t i = 0; i < 8 * HR_INT_TILE * 4; i += LINE) _mm_prefetch(x + i, _MM_HINT_T0);
        for (size_t i = 0; i < a->lines; i++)
#pragma GCC unroll 2
            for (int p = 0; p < s.panels; p++) _mm_prefetch(a->ahead[p] + (g * a->lines + i) * LINE, _MM_HINT_T1);
        return;
    }
    const size_t bytes = s.type == HR_Q6_K ? Q6_K_BLOCK / 8 : group_bytes(s);
    const size_t ahead = s.width == 1 && s.panels == 1 ? FAR : AHEAD;
#pragma GCC unroll 4
    for (int p = 0; p < s.panels; p++) {
#pragma GCC unroll 8
        for (size_t i = 0; i < bytes; i += LINE) _mm_prefetch(a->w[p] + g * bytes + ahead + i, _MM_HINT_T0);
        if (s.type != HR_I8ROW) _mm_prefetch(a->d[p] + d_at + AHEAD / 8, _MM_HINT_T0);
    }
}

/* sum[width][vectors] over all groups: Q6_K. */
HR_INLINE void sum_q6_k(shape s, tile *a, v_f *sum) {
    const int32_t *x = a->x;
    for (size_t g = 0; g < a->groups; g++, x += x_step(s)) {
        prefetch(s, a, g, g / 8 * 2 * HR_PANEL);
        q6_k_group(s, a, g, x, sum);
    }
}

/* One group of a run. */
HR_INLINE void run_group(shape s, tile *a, size_t g, size_t d_at, const int32_t *x, v_i *dot, const finish *f) {
    prefetch(s, a, g, d_at);
    half_group(s, a, g * group_bytes(s), 0, 0, x, dot, NULL);
    half_group(s, a, g * group_bytes(s), 0, 1, x, dot, s.ready ? f : NULL);
    if (!s.ready && f) finish_all(s, a, *f, dot);
}

/* A scale a row and a token: integers alone. */
HR_INLINE void sum_rows(shape s, tile *a, v_f *sum) {
    const int32_t *x = a->x;
    v_i dot[24];
    start(s, a->starts, dot);
    for (size_t g = 0; g < a->groups; g++, x += x_step(s)) run_group(s, a, g, 0, x, dot, NULL);
#pragma GCC unroll 24
    for (int i = 0; i < s.width * s.panels * V_PARTS; i++) sum[i] = v_float(dot[i]);
}

/* Groups of 128 and token scales. */
HR_INLINE void sum_runs(shape s, tile *a, v_f *sum) {
    const int32_t *x = a->x;
    for (size_t g = 0; g < a->groups; g++, x += x_step(s)) {
        v_i dot[12];
        const finish f = {.d = g / 4 * scale_bytes(s), .sum = sum};
        start(s, a->starts + g / 4 * (size_t)s.step, dot);
        for (const size_t end = a->groups - g < 4 ? a->groups : g + 4; g + 1 < end; g++, x += x_step(s))
            run_group(s, a, g, f.d, x, dot, NULL);
        run_group(s, a, g, f.d, x, dot, &f);
    }
}

/* Everything else: 32 columns at a time. */
HR_INLINE void sum_each(shape s, tile *a, v_f *sum) {
    const int32_t *x = a->x;
    const int from = is_int8(s.type) ? HR_INT_START_128 : HR_INT_START_8;
    for (size_t g = 0; g < a->groups; g++, x += x_step(s)) {
        v_i dot[12];
        const finish f = {.d = (s.type == HR_I4G128 ? g / 4 : g) * scale_bytes(s),
                          .x = s.act == HR_ACT_INT8 ? (const float *)once(s, a, g, x, HR_INT_SCALE) : NULL,
                          .min = (const float *)once(s, a, g, x, HR_INT_SUM),
                          .sum = sum};
        start(s, s.type == HR_Q4_1 ? NULL : once(s, a, g, x, from), dot);
        run_group(s, a, g, f.d, x, dot, &f);
    }
}

/* y of all tokens and panels of the tile. */
HR_INLINE void run_tile(shape s, tile *a) {
    const int vectors = s.panels * V_PARTS;
    assert(vectors <= MAX_VECTORS);
    v_f sum[24];
#pragma GCC unroll 24
    for (int i = 0; i < s.width * vectors; i++) sum[i] = v_setf(0);
    if (s.ready && a->fetch)
        for (size_t t = 0; t < a->tokens; t++)
#pragma GCC unroll 2
            for (int p = 0; p < s.panels; p++) _mm_prefetch((const char *)(a->y[p] + t * a->ldy), _MM_HINT_T0);
    if (s.type == HR_Q6_K)
        sum_q6_k(s, a, sum);
    else if (s.type == HR_I8ROW && s.act == HR_ACT_INT8_ROW)
        sum_rows(s, a, sum);
    else if (s.type == HR_I4G128 && s.act == HR_ACT_INT8_ROW)
        sum_runs(s, a, sum);
    else
        sum_each(s, a, sum);
#pragma GCC unroll 12
    for (int t = 0; t < s.width; t++) {
        if ((size_t)t >= a->tokens) break;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const size_t first = (size_t)(v % V_PARTS * V_LANES), p = (size_t)(v / V_PARTS);
            v_f value = sum[t * vectors + v];
            if (s.type == HR_I8ROW) value = v_mul(value, load_scale(s, a->d[p], v % V_PARTS));
            if (s.act == HR_ACT_INT8_ROW) value = v_mul(value, v_setf(a->scales[t]));
            if (s.ready && a->before[p]) value = v_add(value, v_loadf(a->before[p] + t * HR_PANEL_ROWS + (int)first));
            if (a->rows[p] > first) v_put(a->y[p] + (size_t)t * a->ldy + first, value, a->rows[p] - first, a->add);
        }
    }
}

#endif
