/* Products with many tokens in floats or bf16, AVX-512.
 *
 * Both types are seen as dwords: a float, or a pair of bf16. 32 rows of weights are packed into a panel [dword][32
 * rows], the tokens into tiles [dword][tokens of the tile]; a register tile of 32 rows x 12 tokens then runs along the
 * columns with one broadcast a token. The panel is cut to DEPTH dwords, so that it stays in the second-level cache. */
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/matmul_avx512.h"

enum { TILE = 12, DEPTH = 1024 };

/* y [tokens][ldy] for up to 32 rows; w [depth][32], x [depth][width]. */
HR_INLINE void tile(bool bf16, int width, const float *w, const float *x, size_t depth, float *y, size_t ldy,
                    size_t rows, size_t tokens, bool add) {
    __m512 acc[TILE][2];
#pragma GCC unroll 12
    for (int t = 0; t < width; t++) acc[t][0] = acc[t][1] = _mm512_setzero_ps();
    for (size_t k = 0; k < depth; k++, w += HR_PANEL_ROWS, x += width) {
        const __m512 w0 = _mm512_load_ps(w), w1 = _mm512_load_ps(w + 16);
#pragma GCC unroll 12
        for (int t = 0; t < width; t++) {
            const __m512 v = _mm512_set1_ps(x[t]);
            if (bf16) {
                acc[t][0] = _mm512_dpbf16_ps(acc[t][0], (__m512bh)w0, (__m512bh)v);
                acc[t][1] = _mm512_dpbf16_ps(acc[t][1], (__m512bh)w1, (__m512bh)v);
            } else {
                acc[t][0] = _mm512_fmadd_ps(w0, v, acc[t][0]);
                acc[t][1] = _mm512_fmadd_ps(w1, v, acc[t][1]);
            }
        }
    }
    const __mmask16 m0 = hr_mask16(rows), m1 = hr_mask16(rows > 16 ? rows - 16 : 0);
#pragma GCC unroll 12
    for (int t = 0; t < width; t++) {
        if ((size_t)t >= tokens) break;
        float *out = y + (size_t)t * ldy;
        if (add) {
            acc[t][0] = _mm512_add_ps(acc[t][0], _mm512_maskz_loadu_ps(m0, out));
            acc[t][1] = _mm512_add_ps(acc[t][1], _mm512_maskz_loadu_ps(m1, out + (m1 ? 16 : 0)));
        }
        _mm512_mask_storeu_ps(out, m0, acc[t][0]);
        if (m1) _mm512_mask_storeu_ps(out + 16, m1, acc[t][1]);
    }
}

/* Tokens of the tile that starts with `left` to go: 12, or the rest filled up to 4 or 8. */
static size_t tile_width(size_t left) {
    return left > 8 ? 12 : left > 4 ? 8 : 4;
}

/* x: rows of 4 * ld bytes from token 0 of the block on. out: tiles of [depth][width] dwords; depth is a multiple of 16
 * within the rows. */
static void pack_tokens(const uint8_t *x, size_t row_bytes, size_t n, size_t depth, float *out) {
    for (size_t t = 0; t < n;) {
        const size_t width = tile_width(n - t), have = n - t < width ? n - t : width;
        const __mmask16 m = hr_mask16(width);
        for (size_t k = 0; k < depth; k += 16) {
            __m512i v[16];
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++)
                v[i] = i < have ? _mm512_loadu_si512(x + (t + i) * row_bytes + 4 * k) : _mm512_setzero_si512();
            hr_transpose_16x16(v);
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) _mm512_mask_storeu_epi32(out + (k + i) * width, m, v[i]);
        }
        out += depth * width;
        t += width;
    }
}

/* Rows src[0..31] of `bytes` bytes -> [bytes / 4, up to 16][32] dwords, zero past the end. What lies `ahead`
 * bytes further is prefetched. */
static void pack_panel(const uint8_t *const src[HR_PANEL_ROWS], size_t bytes, size_t ahead, float *out) {
    for (size_t b = 0; b < bytes; b += 64) {
        const size_t left = bytes - b;
        const __mmask64 m = left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
        for (size_t half = 0; half < HR_PANEL_ROWS; half += 16) {
            __m512i v[16];
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) {
                _mm_prefetch((const char *)src[half + i] + b + ahead, _MM_HINT_T1);
                v[i] = _mm512_maskz_loadu_epi8(m, src[half + i] + b);
            }
            hr_transpose_16x16(v);
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) _mm512_store_si512(out + (b / 4 + i) * HR_PANEL_ROWS + half, v[i]);
        }
    }
}

/* Weights row .. of columns c0 .. c0 + n - 1 into the panel; `rest` holds 32 converted rows where the type needs it.
 * Rows past the last repeat it: their sums are not stored. */
static void weights(const hr_mat *w, size_t row, size_t rows, size_t c0, size_t n, bool bf16, float *panel,
                    uint8_t *rest) {
    const size_t size = bf16 ? 2 : 4, stride = DEPTH * 4 + 64;
    const bool in_place = w->dtype == (bf16 ? HR_BF16 : HR_F32);
    const uint8_t *src[HR_PANEL_ROWS];
    for (size_t r = 0; r < HR_PANEL_ROWS; r++) {
        const size_t from = r < rows ? r : rows - 1;
        src[r] = in_place ? hr_mat_row(w, row + from) + c0 * size : rest + from * stride;
        if (in_place || r >= rows) continue;
        if (bf16)
            hr_row_bf16_avx512(w, row + r, c0, n, (uint16_t *)(rest + r * stride));
        else
            hr_row_f32_avx512(w, row + r, c0, n, (float *)(rest + r * stride));
    }
    pack_panel(src, n * size, in_place ? HR_PANEL_ROWS * hr_row_bytes(w->dtype, w->cols) : 0, panel);
}

static void run(bool bf16, size_t width, const float *w, const float *x, size_t depth, float *y, size_t ldy,
                size_t rows, size_t tokens, bool add) {
    if (bf16) {
        if (width == 12)
            tile(true, 12, w, x, depth, y, ldy, rows, tokens, add);
        else if (width == 8)
            tile(true, 8, w, x, depth, y, ldy, rows, tokens, add);
        else
            tile(true, 4, w, x, depth, y, ldy, rows, tokens, add);
    } else {
        if (width == 12)
            tile(false, 12, w, x, depth, y, ldy, rows, tokens, add);
        else if (width == 8)
            tile(false, 8, w, x, depth, y, ldy, rows, tokens, add);
        else
            tile(false, 4, w, x, depth, y, ldy, rows, tokens, add);
    }
}

/* One block of tokens from t0 on; x as pack_tokens takes it. */
static void gemm_block(const hr_matmul *m, size_t row0, size_t row1, bool bf16, const uint8_t *x, size_t row_bytes,
                       size_t t0, size_t n, float *scratch) {
    const size_t per = bf16 ? 2 : 1, cols = m->w->cols, depth = hr_align_up((cols + per - 1) / per, 16);
    float *panel = scratch;
    uint8_t *rest = (uint8_t *)(panel + (DEPTH + 16) * HR_PANEL_ROWS);
    float *tokens = (float *)(rest + HR_PANEL_ROWS * (DEPTH * 4 + 64));
    pack_tokens(x, row_bytes, n, depth, tokens);
    for (size_t row = row0; row < row1; row += HR_PANEL_ROWS) {
        const size_t rows = row1 - row < HR_PANEL_ROWS ? row1 - row : HR_PANEL_ROWS;
        for (size_t k = 0; k < depth; k += DEPTH) {
            const size_t here = depth - k < DEPTH ? depth - k : DEPTH, c0 = k * per;
            weights(m->w, row, rows, c0, cols - c0 < here * per ? cols - c0 : here * per, bf16, panel, rest);
            const float *xt = tokens;
            for (size_t t = 0; t < n;) {
                const size_t width = tile_width(n - t), have = n - t < width ? n - t : width;
                run(bf16, width, panel, xt + k * width, here, m->y + (t0 + t) * m->ldy + row, m->ldy, rows, have,
                    m->add || k);
                xt += depth * width;
                t += width;
            }
        }
    }
}

void hr_gemm_f32_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    for (size_t t = 0; t < x->n; t += HR_TOKEN_BLOCK) {
        const size_t n = x->n - t < HR_TOKEN_BLOCK ? x->n - t : HR_TOKEN_BLOCK;
        gemm_block(m, row0, row1, false, (const uint8_t *)(x->f32 + t * x->ld), 4 * x->ld, t, n, scratch);
    }
}

void hr_gemm_bf16_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    for (size_t t = 0; t < x->n; t += HR_TOKEN_BLOCK) {
        const size_t n = x->n - t < HR_TOKEN_BLOCK ? x->n - t : HR_TOKEN_BLOCK;
        gemm_block(m, row0, row1, true, (const uint8_t *)(x->bf16 + t * x->ld), 2 * x->ld, t, n, scratch);
    }
}

/* Float weights with int8 activations: the activations are made floats, q * d, a few tokens at a time. */
void hr_gemm_int8_float_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    enum { FEW = HR_TOKEN_BLOCK / 4 };
    const hr_acts *x = m->x;
    const size_t ld = hr_align_up(x->k, 32);
    float *expanded = scratch;
    for (size_t t = 0; t < x->n; t += FEW) {
        const size_t n = x->n - t < FEW ? x->n - t : FEW;
        hr_acts_expand_avx512(x, t, n, expanded, ld);
        gemm_block(m, row0, row1, false, (const uint8_t *)expanded, 4 * ld, t, n, expanded + hr_align_up(n * ld, 64));
    }
}
