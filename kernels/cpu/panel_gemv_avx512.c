/* Products of up to 8 tokens with weights in panels, AVX-512: bound by the reading of the weights, which are read once,
 * in straight lines, from several panels side by side.
 *
 * Weights in BF16, F16 and F32 go into the sums as they are read. Other types are made floats, STEP columns of two
 * panels at a time, which stay in the first-level cache. bf16 activations stay pairs for BF16 weights and become floats
 * for the rest; int8 activations become floats. */
#include "kernels/cpu/panel_float_avx512.h"

/* SIDES panels side by side, several lines of one before the next, fetched AHEAD bytes before: on two Zen 5 cores bf16
 * 8192 x 2048 with one token reads 94 to 96 % of what the best of 23 plain reading patterns reads in the same minute.
 * Line by line from 4 panels: 85 to 90 %; without fetching ahead: 90 to 92 %; 4096 ahead: 89 %; prefetchnta: the same. */
enum {
    FEW = 8,
    SIDES = 2,
    AHEAD = 2048,
    STEP = 256,
    MOST = 8,
    LEAST = 4 /* lines of every type are a multiple of it */
};

typedef enum kind { PAIRS, F32, F16, BF16 } kind; /* PAIRS: both sides bf16; else activations are floats */

/* `sides` panels side by side: line i of panel p at w + p * stride + 64 * i. */
typedef struct strip {
    const uint8_t *w;
    size_t stride, lines;
    const float *x; /* dword k of token t at x + t * ldx + k */
    size_t ldx;
    float *acc; /* [sides][tokens][16], continued */
} strip;

/* Column `half` of a line of two columns as floats, or the line as it is. */
HR_INLINE __m512 column(kind as, __m512i v, int half) {
    if (as == F16) return _mm512_cvtph_ps(half ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v));
    if (as == BF16) v = half ? _mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)) : _mm512_slli_epi32(v, 16);
    return _mm512_castsi512_ps(v);
}

/* `count` lines from i on of each panel. */
HR_INLINE void lines(kind as, int sides, int tokens, const strip *s, size_t i, int count, size_t ahead,
                     __m512 acc[SIDES][FEW]) {
    const int columns = as == F16 || as == BF16 ? 2 : 1; /* dwords of activations a line */
    __m512i v[SIDES][MOST];
#pragma GCC unroll 2
    for (int p = 0; p < sides; p++)
#pragma GCC unroll 8
        for (int j = 0; j < count; j++) {
            const uint8_t *at = s->w + (size_t)p * s->stride + 64 * (i + (size_t)j);
            _mm_prefetch((const char *)at + ahead, _MM_HINT_T0);
            v[p][j] = _mm512_load_si512(at);
        }
#pragma GCC unroll 8
    for (int j = 0; j < count; j++)
#pragma GCC unroll 2
        for (int c = 0; c < columns; c++) {
            const float *x = s->x + (size_t)columns * (i + (size_t)j) + (size_t)c;
            __m512 w[SIDES];
#pragma GCC unroll 2
            for (int p = 0; p < sides; p++) w[p] = column(as, v[p][j], c);
#pragma GCC unroll 8
            for (int t = 0; t < tokens; t++) {
                const __m512 b = _mm512_set1_ps(x[(size_t)t * s->ldx]);
#pragma GCC unroll 2
                for (int p = 0; p < sides; p++) acc[p][t] = hr_dword_fma(as == PAIRS, acc[p][t], w[p], b);
            }
        }
}

/* What is fetched past the end of the panels lies in those that come after them. */
HR_INLINE void run(kind as, int sides, int tokens, const strip *s) {
    const int count = tokens <= 4 ? MOST : LEAST; /* so that sums and lines fit the registers */
    const size_t near = AHEAD / 64 < s->lines ? s->lines - AHEAD / 64 : 0;
    __m512 acc[SIDES][FEW];
#pragma GCC unroll 2
    for (int p = 0; p < sides; p++)
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) acc[p][t] = _mm512_load_ps(s->acc + 16 * (p * tokens + t));
    size_t i = 0;
    for (; i + (size_t)count <= s->lines; i += (size_t)count)
        lines(as, sides, tokens, s, i, count, i < near ? AHEAD : AHEAD + (size_t)(sides - 1) * s->stride, acc);
    for (; i < s->lines; i += LEAST) lines(as, sides, tokens, s, i, LEAST, 0, acc);
#pragma GCC unroll 2
    for (int p = 0; p < sides; p++)
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) _mm512_store_ps(s->acc + 16 * (p * tokens + t), acc[p][t]);
}

/* One copy of the loop for each number of panels side by side and of tokens. */
/* clang-format off */
#define CASE(as, t) case t: if (sides == 1) run(as, 1, t, s); else run(as, SIDES, t, s); break;
#define RUN(name, as) \
    static void run_##name(const strip *s, size_t sides, size_t tokens) { \
        switch (tokens) { \
        CASE(as, 1) CASE(as, 2) CASE(as, 3) CASE(as, 4) CASE(as, 5) CASE(as, 6) CASE(as, 7) \
        default: CASE(as, 8) \
        } \
    }
RUN(pairs, PAIRS)
RUN(f32, F32)
RUN(f16, F16)
RUN(bf16, BF16)
/* clang-format on */
typedef void run_fn(const strip *s, size_t sides, size_t tokens);

static void store(const hr_matmul *m, size_t row, size_t row1, size_t sides, const float *acc) {
    const size_t n = m->x->n;
    for (size_t p = 0; p < sides; p++, row += HR_PANEL) {
        const __mmask16 mask = hr_mask16(row1 - row);
        for (size_t t = 0; t < n; t++) {
            __m512 v = _mm512_load_ps(acc + 16 * (p * n + t));
            float *y = m->y + t * m->ldy + row;
            if (m->add) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, y));
            _mm512_mask_storeu_ps(y, mask, v);
        }
    }
}

/* Weights in place. x, ldx: dwords. */
static void in_place(const hr_matmul *m, size_t row0, size_t row1, run_fn *fn, const float *x, size_t ldx) {
    const size_t n = m->x->n, bytes = hr_panel_bytes(m->w->dtype, m->w->cols);
    _Alignas(64) float acc[SIDES * FEW * 16];
    for (size_t row = row0; row < row1;) {
        const size_t sides = row + SIDES * HR_PANEL <= row1 ? SIDES : 1;
        memset(acc, 0, sides * n * 64);
        fn(&(strip){hr_panel_data(m->w, row / HR_PANEL), bytes, bytes / 64, x, ldx, acc}, sides, n);
        store(m, row, row1, sides, acc);
        row += sides * HR_PANEL;
    }
}

/* Weights made floats piece by piece: [sides][cols][16]. With few tokens one chain of sums would wait for itself; with
 * more, pieces of two panels crowd the first-level cache. */
static void converted(const hr_matmul *m, size_t row0, size_t row1, const float *x, size_t ldx, float *piece) {
    const size_t n = m->x->n, k = hr_panel_cols(m->w->dtype, m->w->cols);
    _Alignas(64) float acc[SIDES * FEW * 16];
    for (size_t row = row0; row < row1;) {
        const size_t sides = n <= FEW / 2 && row + SIDES * HR_PANEL <= row1 ? SIDES : 1;
        memset(acc, 0, sides * n * 64);
        for (size_t c = 0; c < k; c += STEP) {
            const size_t cols = k - c < STEP ? k - c : STEP;
            for (size_t p = 0; p < sides; p++)
                hr_panel_f32_avx512(m->w, row / HR_PANEL + p, c, cols, piece + p * cols * HR_PANEL);
            run_f32(&(strip){(const uint8_t *)piece, 64 * cols, cols, x + c, ldx, acc}, sides, n);
        }
        store(m, row, row1, sides, acc);
        row += sides * HR_PANEL;
    }
}

static void floats(const hr_matmul *m, size_t row0, size_t row1, const float *x, size_t ldx, float *scratch) {
    switch (m->w->dtype) {
    case HR_F32:
        in_place(m, row0, row1, run_f32, x, ldx);
        break;
    case HR_F16:
        in_place(m, row0, row1, run_f16, x, ldx);
        break;
    case HR_BF16:
        in_place(m, row0, row1, run_bf16, x, ldx);
        break;
    default:
        converted(m, row0, row1, x, ldx, scratch);
    }
}

void hr_panel_gemv_f32_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    floats(m, row0, row1, m->x->f32, m->x->ld, scratch);
}

void hr_panel_gemv_pairs_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    (void)scratch;
    in_place(m, row0, row1, run_pairs, (const float *)(const void *)m->x->bf16, m->x->ld / 2);
}

void hr_panel_gemv_bf16_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *a = m->x;
    const size_t ld = hr_align_up(a->k, 64);
    float *x = scratch;
    for (size_t t = 0; t < a->n; t++)
        for (size_t c = 0; c < ld; c += 16)
            _mm512_store_ps(x + t * ld + c,
                            hr_bf16x16_to_f32(_mm256_loadu_si256((const __m256i *)(a->bf16 + t * a->ld + c))));
    floats(m, row0, row1, x, ld, x + a->n * ld);
}

void hr_panel_gemv_int8_float_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const size_t ld = hr_align_up(m->x->k, 64);
    float *x = scratch;
    hr_acts_expand_avx512(m->x, 0, m->x->n, x, ld);
    floats(m, row0, row1, x, ld, x + m->x->n * ld);
}
