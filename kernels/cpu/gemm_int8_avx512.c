/* Products of quantized weights with many int8 tokens, AVX-512 VNNI.
 *
 * 32 rows of weights are packed into a panel of unsigned bytes [column / 4][32 rows][4] with their scales
 * [group][32]; tokens into tiles of six: per group of 32 columns eight dwords of four int8 each, then what the group
 * needs once. The register tile of 32 rows x 6 tokens starts the integers of a group at -offset * sum, so that they end
 * exact, and adds them into the floats times both scales. */
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/quant_avx512.h"

/* DEPTH: groups of a panel. SLOTS: dwords that a token has per group: 8 of q, the start value (Q6_K: two, for its two
 * groups of 16), d, and, for types with a minimum, d times the sum. */
enum { TILE = 6, DEPTH = 128, SLOTS = 11, START = 8, SCALE = 9, SUM = 10, SECOND = 10 };

typedef struct panel {
    uint8_t *q;           /* [DEPTH][8][32][4] */
    float *scale, *min;   /* [DEPTH][32], Q6_K: [DEPTH][2][32] */
    float *scales, *mins; /* while packing: [32][2 * DEPTH] */
} panel;

/* y [tokens][ldy] for up to 32 rows. x: [groups][SLOTS][width]. */
HR_INLINE void tile(hr_dtype type, int width, const panel *p, const int32_t *x, size_t groups, float *y, size_t ldy,
                    size_t rows, size_t tokens, bool add) {
    __m512 sum[TILE][2];
    const uint8_t *w = p->q;
    const float *d = p->scale, *min = p->min;
#pragma GCC unroll 6
    for (int t = 0; t < width; t++) sum[t][0] = sum[t][1] = _mm512_setzero_ps();
    for (size_t g = 0; g < groups; g++, x += SLOTS * width) {
        const int parts = type == HR_Q6_K ? 2 : 1, steps = 8 / parts;
        const float *xd = (const float *)x + SCALE * width;
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++) {
            __m512i dot[TILE][2];
            const int32_t *start = x + (part ? SECOND : START) * width;
#pragma GCC unroll 6
            for (int t = 0; t < width; t++) dot[t][0] = dot[t][1] = _mm512_set1_epi32(start[t]);
#pragma GCC unroll 8
            for (int s = 0; s < steps; s++, w += 128) {
                const __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 6
                for (int t = 0; t < width; t++) {
                    const __m512i v = _mm512_set1_epi32(x[(part * steps + s) * width + t]);
                    dot[t][0] = _mm512_dpbusd_epi32(dot[t][0], w0, v);
                    dot[t][1] = _mm512_dpbusd_epi32(dot[t][1], w1, v);
                }
            }
            const __m512 d0 = _mm512_load_ps(d), d1 = _mm512_load_ps(d + 16);
            d += 32;
#pragma GCC unroll 6
            for (int t = 0; t < width; t++) {
                const __m512 v = _mm512_set1_ps(xd[t]);
                sum[t][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][0]), _mm512_mul_ps(d0, v), sum[t][0]);
                sum[t][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][1]), _mm512_mul_ps(d1, v), sum[t][1]);
            }
        }
        if (type == HR_Q4_1) {
            const __m512 m0 = _mm512_load_ps(min), m1 = _mm512_load_ps(min + 16);
            min += 32;
#pragma GCC unroll 6
            for (int t = 0; t < width; t++) {
                const __m512 v = _mm512_set1_ps(((const float *)x)[SUM * width + t]);
                sum[t][0] = _mm512_fmadd_ps(m0, v, sum[t][0]);
                sum[t][1] = _mm512_fmadd_ps(m1, v, sum[t][1]);
            }
        }
    }
    const __mmask16 m0 = hr_mask16(rows), m1 = hr_mask16(rows > 16 ? rows - 16 : 0);
#pragma GCC unroll 6
    for (int t = 0; t < width; t++) {
        if ((size_t)t >= tokens) break;
        float *out = y + (size_t)t * ldy;
        if (add) {
            sum[t][0] = _mm512_add_ps(sum[t][0], _mm512_maskz_loadu_ps(m0, out));
            sum[t][1] = _mm512_add_ps(sum[t][1], _mm512_maskz_loadu_ps(m1, out + (m1 ? 16 : 0)));
        }
        _mm512_mask_storeu_ps(out, m0, sum[t][0]);
        if (m1) _mm512_mask_storeu_ps(out + 16, m1, sum[t][1]);
    }
}

/* One copy for each kind of scaling, whatever type the weights came from, and each width. */
/* clang-format off */
#define WIDTHS(kind) \
    do { \
        if (width == 6) tile(kind, 6, p, x, groups, y, ldy, rows, tokens, add); \
        else if (width == 4) tile(kind, 4, p, x, groups, y, ldy, rows, tokens, add); \
        else tile(kind, 2, p, x, groups, y, ldy, rows, tokens, add); \
    } while (0)
/* clang-format on */
static void run(hr_dtype type, size_t width, const panel *p, const int32_t *x, size_t groups, float *y, size_t ldy,
                size_t rows, size_t tokens, bool add) {
    if (type == HR_Q4_1)
        WIDTHS(HR_Q4_1);
    else if (type == HR_Q6_K)
        WIDTHS(HR_Q6_K);
    else
        WIDTHS(HR_I8G32);
}

/* Tokens of the tile that starts with `left` to go: 6, or the rest filled up to 2 or 4. */
static size_t tile_width(size_t left) {
    return left > 4 ? 6 : left > 2 ? 4 : 2;
}

/* Tokens t0 .. of one tile: x [groups][SLOTS][width]; tokens past `have` are zero. */
static void pack_tile(const hr_acts *a, hr_dtype type, size_t t0, size_t have, size_t width, int32_t *x) {
    const size_t groups = a->k / 32;
    const __mmask16 m = hr_mask16(width);
    const int offset = hr_weight_offset(type);
    for (size_t g = 0; g < groups; g += 2) {
        __m512i v[16];
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            v[i] = i < have ? _mm512_loadu_si512(a->q + (t0 + i) * a->ld + 32 * g) : _mm512_setzero_si512();
        hr_transpose_16x16(v);
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            if (g + i / 8 < groups) _mm512_mask_storeu_epi32(x + ((g + i / 8) * SLOTS + i % 8) * width, m, v[i]);
    }
    for (size_t g = 0; g < groups; g++) {
        int32_t *start = x + (g * SLOTS + START) * width, *second = x + (g * SLOTS + SECOND) * width;
        float *d = (float *)x + (g * SLOTS + SCALE) * width, *sum = (float *)x + (g * SLOTS + SUM) * width;
        for (size_t t = 0; t < width; t++) {
            const size_t at = t < have ? (t0 + t) * (a->ld / 32) + g : 0;
            const int32_t total = t < have ? a->sum[at] : 0;
            d[t] = t < have ? a->d[at] : 0;
            start[t] = -offset * total;
            if (type != HR_Q6_K) {
                sum[t] = d[t] * (float)total;
                continue;
            }
            int32_t first = 0;
            for (int i = 0; t < have && i < 16; i++) first += a->q[(t0 + t) * a->ld + 32 * g + (size_t)i];
            start[t] = -offset * first;
            second[t] = -offset * (total - first);
        }
    }
}

HR_INLINE float f16_at(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* Scales (and minima) of one row, groups g0 .. g0 + n - 1 of 32 columns. */
HR_INLINE void row_scales(hr_dtype t, const uint8_t *p, const uint16_t *s, size_t n, float *scale, float *min) {
    const size_t step = hr_dtypes[t].block_bytes;
    if (t == HR_I8ROW || t == HR_I4G128) {
        for (size_t g = 0; g < n; g++) scale[g] = f16_at(s + (t == HR_I4G128 ? g / 4 : 0));
    } else if (t == HR_I8G32 || t == HR_I4G32) {
        for (size_t g = 0; g < n; g += 16) {
            const __mmask16 m = hr_mask16(n - g);
            _mm512_storeu_ps(scale + g, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, s + g)));
        }
    } else if (t == HR_Q6_K) {
        for (size_t b = 0; b < n / 8; b++) _mm512_storeu_ps(scale + 16 * b, hr_q6_k_scales(p + 210 * b));
    } else {
        for (size_t g = 0; g < n; g++, p += step) {
            scale[g] = f16_at(p);
            if (t == HR_Q4_1) min[g] = f16_at(p + 2);
        }
    }
}

/* in [32][2 * DEPTH] -> out [n][32] */
static void transpose_scales(const float *in, size_t n, float *out) {
    for (size_t g = 0; g < n; g += 16)
        for (size_t half = 0; half < HR_PANEL_ROWS; half += 16) {
            __m512i v[16];
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) v[i] = _mm512_loadu_si512(in + (half + i) * 2 * DEPTH + g);
            hr_transpose_16x16(v);
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) _mm512_store_si512(out + (g + i) * HR_PANEL_ROWS + half, v[i]);
        }
}

/* Groups g0 .. g0 + n - 1 of rows row .. into the panel. Rows past the last repeat it: they are not stored. */
HR_INLINE void pack_panel(const hr_mat *w, hr_dtype type, size_t row, size_t rows, size_t g0, size_t n, panel *p) {
    const size_t bytes = hr_dtypes[type].block_bytes, per = hr_dtypes[type].block_elems / 32;
    const size_t ahead = HR_PANEL_ROWS * hr_row_bytes(type, w->cols); /* the same place in the next panel */
    const uint8_t *src[HR_PANEL_ROWS];
    for (size_t r = 0; r < HR_PANEL_ROWS; r++) {
        const size_t from = row + (r < rows ? r : rows - 1);
        src[r] = hr_mat_row(w, from) + g0 / per * bytes;
        const uint16_t *s = hr_dtypes[type].group ? hr_mat_scales(w, from) : NULL;
        if (s) s += type == HR_I8ROW ? 0 : type == HR_I4G128 ? g0 / 4 : g0;
        row_scales(type, src[r], s, n, p->scales + r * 2 * DEPTH, p->mins + r * 2 * DEPTH);
    }
    transpose_scales(p->scales, type == HR_Q6_K ? 2 * n : n, p->scale);
    if (type == HR_Q4_1) transpose_scales(p->mins, n, p->min);
    for (size_t g = 0; g < n; g += 2) {
        const size_t at = g / per * bytes;
        for (size_t half = 0; half < HR_PANEL_ROWS; half += 16) {
            __m512i v[16];
            if (g + 2 <= n) {
#pragma GCC unroll 16
                for (size_t i = 0; i < 16; i++) {
                    _mm_prefetch((const char *)src[half + i] + at + ahead, _MM_HINT_T1);
                    v[i] = hr_weights_64(type, src[half + i] + at, (int)(g / 2 % 4));
                }
            } else { /* the last group of a row with an odd number of them */
                for (size_t i = 0; i < 16; i++) {
                    uint8_t two[256] = {0};
                    memcpy(two, src[half + i] + at, bytes < 34 ? bytes : 34);
                    v[i] = hr_weights_64(type, two, 0);
                }
            }
            hr_transpose_16x16(v);
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) _mm512_store_si512(p->q + (g * 8 + i) * 128 + half * 4, v[i]);
        }
    }
}

HR_INLINE void gemm(const hr_matmul *m, hr_dtype type, size_t row0, size_t row1, size_t t0, size_t n, void *scratch) {
    const size_t groups = m->w->cols / 32;
    panel p = {.q = scratch};
    p.scale = (float *)(p.q + (DEPTH + 2) * 1024);
    p.min = p.scale + (2 * DEPTH + 16) * HR_PANEL_ROWS;
    p.scales = p.min + (DEPTH + 16) * HR_PANEL_ROWS;
    p.mins = p.scales + HR_PANEL_ROWS * 2 * DEPTH;
    int32_t *tokens = (int32_t *)(p.mins + HR_PANEL_ROWS * 2 * DEPTH), *xt = tokens;
    for (size_t t = 0; t < n;) {
        const size_t width = tile_width(n - t);
        pack_tile(m->x, type, t0 + t, n - t < width ? n - t : width, width, xt);
        xt += groups * SLOTS * width;
        t += width;
    }
    for (size_t row = row0; row < row1; row += HR_PANEL_ROWS) {
        const size_t rows = row1 - row < HR_PANEL_ROWS ? row1 - row : HR_PANEL_ROWS;
        for (size_t g = 0; g < groups; g += DEPTH) {
            const size_t here = groups - g < DEPTH ? groups - g : DEPTH;
            const bool add = m->add || g;
            pack_panel(m->w, type, row, rows, g, here, &p);
            xt = tokens;
            for (size_t t = 0; t < n;) {
                const size_t width = tile_width(n - t), have = n - t < width ? n - t : width;
                const int32_t *x = xt + g * SLOTS * width;
                float *y = m->y + (t0 + t) * m->ldy + row;
                run(type, width, &p, x, here, y, m->ldy, rows, have, add);
                xt += groups * SLOTS * width;
                t += width;
            }
        }
    }
}

void hr_gemm_int8_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    for (size_t t = 0; t < m->x->n; t += HR_TOKEN_BLOCK) {
        const size_t n = m->x->n - t < HR_TOKEN_BLOCK ? m->x->n - t : HR_TOKEN_BLOCK;
        switch (m->w->dtype) {
        case HR_I8G32:
            gemm(m, HR_I8G32, row0, row1, t, n, scratch);
            break;
        case HR_I8ROW:
            gemm(m, HR_I8ROW, row0, row1, t, n, scratch);
            break;
        case HR_I4G128:
            gemm(m, HR_I4G128, row0, row1, t, n, scratch);
            break;
        case HR_I4G32:
            gemm(m, HR_I4G32, row0, row1, t, n, scratch);
            break;
        case HR_Q8_0:
            gemm(m, HR_Q8_0, row0, row1, t, n, scratch);
            break;
        case HR_Q4_0:
            gemm(m, HR_Q4_0, row0, row1, t, n, scratch);
            break;
        case HR_Q4_1:
            gemm(m, HR_Q4_1, row0, row1, t, n, scratch);
            break;
        default:
            gemm(m, HR_Q6_K, row0, row1, t, n, scratch);
        }
    }
}
