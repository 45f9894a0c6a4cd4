/* panel_gemm_body.h - products of quantized weights in panels with many int8 tokens, over panel_int_body.h.
 *
 * Loops, from outside: blocks of tokens, 32 rows, HR_INT_DEPTH groups of columns (whose weights become bytes and float
 * scales once), tiles of tokens. Weights stay in the second-level cache while all tokens of a block pass by; the tokens
 * stream from the third, asked for ahead, and so are the next weights, also those of a later call. */
#ifndef HR_PANEL_GEMM_BODY_H
#define HR_PANEL_GEMM_BODY_H

#include "kernels/cpu/panel_int_body.h"

/* PAIR panels are one tile; AREAS areas of tokens a block: a prompt of 512 reads weights once. */
enum { PAIR = 2 / V_PARTS, AREAS = 44 };

/* Groups g0 .. of one panel as tiles take them. */
typedef struct panel {
    uint8_t *w; /* [groups][8][16][4] */
    float *d;   /* [groups][16], Q4_1 and Q6_K [groups][2][16], I4G128 [groups / 4][16] */
} panel;

HR_INLINE void floats_of(const uint16_t *d, size_t lines, float *out) {
    for (size_t i = 0; i < lines * HR_PANEL; i += V_LANES) v_storef(out + i, v_halfs(d + i));
}

HR_INLINE void unpack(shape s, const uint8_t *w, const uint8_t *tops, uint8_t *out) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2)
#pragma GCC unroll 2
        for (int part = 0; part < V_PARTS; part++) {
            v_i two[2];
            two_lines(s, w, tops, i, part, two);
            v_store(out + i * LINE + part * V_LANES * 4, two[0]);
            v_store(out + (i + 1) * LINE + part * V_LANES * 4, two[1]);
        }
}

/* The panel's groups into out; int8 weights stay where they are. Returns where the weights are. */
HR_INLINE const uint8_t *prepare_panel(const hr_mat *m, hr_dtype type, size_t p, size_t g0, size_t groups, panel out) {
    const shape s = {.type = type};
    const uint8_t *w = hr_panel_data(m, p);
    const uint16_t *d = hr_panel_scale(m, p);
    if (type == HR_Q6_K) {
        w += g0 / 8 * Q6_K_BLOCK, d += g0 / 8 * HR_PANEL;
        for (size_t g = 0; g < groups; g++) {
            const uint8_t *at = w + g / 8 * Q6_K_BLOCK;
            unpack(s, at + g % 8 * 4 * LINE, at + Q6_K_TOPS + g % 8 * 2 * LINE, out.w + g * 8 * LINE);
            for (int half = 0; half < 2; half++)
                for (int part = 0; part < V_PARTS; part++)
                    v_storef(out.d + (2 * g + (size_t)half) * HR_PANEL + part * V_LANES,
                             q6_k_scale(s, w, (const uint8_t *)d, g, half, part));
        }
        return out.w;
    }
    w += g0 * group_bytes(s);
    if (type == HR_I8ROW)
        floats_of(d, 1, out.d);
    else if (type == HR_I4G128)
        floats_of(d + g0 / 4 * HR_PANEL, (groups + 3) / 4, out.d);
    else if (type == HR_Q4_1)
        floats_of(d + g0 * 2 * HR_PANEL, groups * 2, out.d);
    else
        floats_of(d + g0 * HR_PANEL, groups, out.d);
    if (is_int8(type)) return w;
    for (size_t g = 0; g < groups; g++) unpack(s, w + g * 4 * LINE, NULL, out.w + g * 8 * LINE);
    return out.w;
}

HR_INLINE void run_width(hr_dtype type, hr_act act, size_t width, tile *a) {
#define RUN(n) run_tile((shape){type, act, true, PAIR, n, HR_INT_TILE}, a)
    switch (width) {
    case 1:
        RUN(1);
        return;
    case 2:
        RUN(2);
        return;
    case 3:
        RUN(3);
        return;
    case 4:
        RUN(4);
        return;
    case 5:
        RUN(5);
        return;
    case 6:
        RUN(6);
        return;
    default:
        if (type == HR_I8ROW && act == HR_ACT_INT8_ROW) /* integers alone: the registers of the floats are free */
            run_tile((shape){HR_I8ROW, HR_ACT_INT8_ROW, true, PAIR, HR_INT_TILE, HR_INT_TILE}, a);
        else
            RUN(6);
    }
#undef RUN
}

/* Tokens of the next tile of an area of which `left` are to go. */
HR_INLINE size_t tile_width(hr_dtype type, hr_act act, size_t left) {
    if (type == HR_I8ROW && act == HR_ACT_INT8_ROW && left > 6) return 12;
    return left > 6 ? (left + 1) / 2 : left;
}

/* What the inner loops share: tokens t0 .. t0 + n - 1, groups g0 .. g0 + groups - 1 of PAIR panels from p on, rows up to
 * row1. */
typedef struct block {
    size_t t0, n, g0, groups, p, row1;
    float *sums; /* [n][HR_PANEL_ROWS] of the columns so far */
} block;

/* Where the groups that come after the block's begin, for one of its panels. */
HR_INLINE const char *next_groups(const hr_matmul *m, shape s, block b, size_t i) {
    const size_t group = s.type == HR_Q6_K ? Q6_K_BLOCK / 8 : group_bytes(s);
    const bool last = (b.g0 + b.groups) * 32 >= m->w->cols;
    const size_t p = b.p + i + (last ? PAIR : 0), end = hr_panel_count(m->w->rows);
    return (const char *)hr_panel_data(m->w, p < end ? p : b.p) + (last ? 0 : (b.g0 + b.groups) * group);
}

/* All tokens of the block. `panels` has the weights. */
HR_INLINE void run_tokens(const hr_matmul *m, hr_dtype type, hr_act act, block b, const tile *panels) {
    const size_t all = m->x->k / 32, area = hr_int_area(all, HR_INT_TILE);
    const size_t most = type == HR_I8ROW && act == HR_ACT_INT8_ROW ? 1 : 2, rest = b.n % HR_INT_TILE;
    const size_t tiles = b.n / HR_INT_TILE * most + (rest > 6 ? most : rest > 0);
    const size_t lines = (type == HR_Q6_K ? 7 : group_bytes((shape){.type = type}) / LINE),
                 each = (lines + tiles - 1) / tiles;
    const bool last = b.g0 + b.groups == all;
    size_t done = 0; /* lines a group of what comes next that were asked for */
    for (size_t t = 0; t < b.n; t += HR_INT_TILE) {
        const int32_t *x = (const int32_t *)m->x->tiles + (b.t0 + t) / HR_INT_TILE * area;
        const size_t have = b.n - t < HR_INT_TILE ? b.n - t : HR_INT_TILE;
        for (size_t i = 0; i < have;) {
            const size_t width = tile_width(type, act, have - i);
            tile a = *panels;
            a.x = x + hr_int_line(all, HR_INT_TILE, b.g0, 0) + i;
            a.once = x + hr_int_line(all, HR_INT_TILE, b.g0, 8) + i, a.apart = all * HR_INT_TILE + HR_INT_GAP;
            a.starts = type == HR_I8ROW ? x + hr_int_blocks(all, HR_INT_TILE) + b.g0 / HR_INT_DEPTH * HR_INT_TILE + i
                                        : x + hr_int_runs(all, HR_INT_TILE) + b.g0 / 4 * HR_INT_TILE + i;
            a.scales = (const float *)x + hr_int_scales(all, HR_INT_TILE) + i;
            a.lines = done < lines ? each : 0;
            a.tokens = width < have - i ? width : have - i;
            a.ldy = last ? m->ldy : HR_PANEL_ROWS;
            a.add = last && m->add;
            a.fetch = last;
            for (size_t p = 0; p < PAIR; p++) {
                float *sums = b.sums + (t + i) * HR_PANEL_ROWS + p * HR_PANEL;
                a.before[p] = b.g0 ? sums : NULL;
                a.y[p] = last ? m->y + (b.t0 + t + i) * m->ldy + (b.p + p) * HR_PANEL : sums;
                if (!last) a.rows[p] = HR_PANEL;
                a.ahead[p] += done * b.groups * LINE;
            }
            run_width(type, act, width, &a);
            done += each;
            i += width;
        }
    }
}

HR_INLINE void run_block(const hr_matmul *m, hr_dtype type, hr_act act, block b, uint8_t *scratch) {
    const size_t end = hr_panel_count(b.row1);
    tile a = {.groups = b.groups};
    for (size_t i = 0; i < PAIR; i++) {
        const panel out = {scratch + i * HR_INT_DEPTH * 8 * LINE,
                           (float *)(scratch + PAIR * HR_INT_DEPTH * 8 * LINE) + i * HR_INT_DEPTH * 2 * HR_PANEL};
        const size_t at = b.p + i < end ? b.p + i : b.p; /* a panel without a partner is done twice */
        a.rows[i] = b.p + i < end ? b.row1 - at * HR_PANEL : 0;
        a.w[i] = prepare_panel(m->w, type, at, b.g0, b.groups, out);
        a.d[i] = (const uint8_t *)out.d;
        a.ahead[i] = next_groups(m, (shape){.type = type}, b, i);
    }
    run_tokens(m, type, act, b, &a);
}

HR_INLINE void gemm(const hr_matmul *m, hr_dtype type, hr_act act, size_t row0, size_t row1, void *scratch) {
    const size_t groups = m->w->cols / 32, n = m->x->n, most = AREAS * HR_INT_TILE;
    block b = {.row1 = row1, .sums = scratch};
    for (b.t0 = 0; b.t0 < n; b.t0 += most)
        for (b.p = row0 / HR_PANEL; b.p < hr_panel_count(row1); b.p += PAIR)
            for (b.g0 = 0; b.g0 < groups; b.g0 += HR_INT_DEPTH) {
                b.n = n - b.t0 < most ? n - b.t0 : most;
                b.groups = groups - b.g0 < HR_INT_DEPTH ? groups - b.g0 : HR_INT_DEPTH;
                run_block(m, type, act, b, (uint8_t *)scratch + most * HR_PANEL_ROWS * sizeof(float));
            }
}

#endif
