/* Products of quantized weights in groups of 32 or more with few int8 tokens, AVX-512 VNNI.
 *
 * Weights go four groups at a time: lane l of `lo` holds the first 16 weights of group l, lane l of `hi` the other 16,
 * unsigned. Both vpdpbusd add into the same dwords, so that 128 weights take one conversion and one multiply-add with
 * the groups' scales, each repeated over its lane. The offset of the weights leaves by the start value of the dwords:
 * -offset times the sum of the activations that the dword sees, exact in integers. */
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/quant_avx512.h"

enum { BLOCK = 128 };

/* 128 activations of one token in the order of the weights. */
typedef struct x_block {
    __m512i lo, hi, start;
    __m512 d;   /* the four scales, each over its lane */
    __m512 sum; /* d times the sum of the group, in the first dword of its lane */
} x_block;

typedef struct w_block {
    __m512i lo, hi;
    __m512 d, min;
} w_block;

HR_INLINE __m512 over_lanes(__m128 four) {
    return hr_over_lanes(_mm512_castps128_ps512(four), 0);
}

static void prepare(const hr_acts *x, int offset, x_block *out) {
    const size_t blocks = (x->k + BLOCK - 1) / BLOCK;
    for (size_t t = 0; t < x->n; t++) {
        const int8_t *q = x->q + t * x->ld;
        const float *d = x->d + t * (x->ld / 32);
        const int32_t *sum = x->sum + t * (x->ld / 32);
        for (size_t b = 0; b < blocks; b++, out++) {
            const size_t groups = (x->k - b * BLOCK) / 32 < 4 ? (x->k - b * BLOCK) / 32 : 4;
            const __mmask8 some = (__mmask8)((1u << groups) - 1), pairs = (__mmask8)((1u << 4 * groups) - 1);
            const __mmask8 upper = (__mmask8)(((1u << 4 * groups) - 1) >> 8);
            const __m512i a = _mm512_maskz_loadu_epi64(pairs, q + b * BLOCK);
            const __m512i z = _mm512_maskz_loadu_epi64(upper, q + b * BLOCK + (groups > 2 ? 64 : 0));
            out->lo = _mm512_shuffle_i32x4(a, z, 0x88);
            out->hi = _mm512_shuffle_i32x4(a, z, 0xdd);
            const __m512i off = _mm512_set1_epi8((char)offset);
            const __m512i all =
                _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), off, out->lo), off, out->hi);
            out->start = _mm512_sub_epi32(_mm512_setzero_si512(), all);
            const __m128 scale = _mm_maskz_loadu_ps(some, d + 4 * b);
            const __m128 total = _mm_cvtepi32_ps(_mm_maskz_loadu_epi32(some, sum + 4 * b));
            out->d = over_lanes(scale);
            out->sum = _mm512_maskz_mov_ps(0x1111, over_lanes(_mm_mul_ps(scale, total)));
        }
    }
}

HR_INLINE __m128i four_u16(const uint8_t *p, size_t step) {
    uint16_t v[4];
    for (size_t i = 0; i < 4; i++) memcpy(&v[i], p + i * step, 2);
    return _mm_set_epi16(0, 0, 0, 0, (short)v[3], (short)v[2], (short)v[1], (short)v[0]);
}

HR_INLINE __m512i four_128(const uint8_t *p, size_t step) {
    __m512i z = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    z = _mm512_inserti32x4(z, _mm_loadu_si128((const __m128i *)(p + step)), 1);
    z = _mm512_inserti32x4(z, _mm_loadu_si128((const __m128i *)(p + 2 * step)), 2);
    return _mm512_inserti32x4(z, _mm_loadu_si128((const __m128i *)(p + 3 * step)), 3);
}

/* Scales that the plane has for a block of four groups; 0: the one of the row. */
HR_INLINE size_t block_scales(hr_dtype t) {
    return t == HR_I8ROW ? 0 : t == HR_I4G128 ? 1 : 4;
}

/* Four groups from p (quants, or whole GGUF blocks) and s (scales of plane types). */
HR_INLINE w_block fetch(hr_dtype t, const uint8_t *p, const uint16_t *s) {
    w_block w;
    w.min = _mm512_setzero_ps();
    if (hr_plane_int8(t) || t == HR_Q8_0) {
        const __m512i a = hr_plane_int8(t) ? _mm512_loadu_si512(p) : hr_two_256(p + 2, 34);
        const __m512i b = hr_plane_int8(t) ? _mm512_loadu_si512(p + 64) : hr_two_256(p + 2 + 68, 34);
        const __m512i flip = _mm512_set1_epi8((char)0x80);
        w.lo = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0x88), flip);
        w.hi = _mm512_xor_si512(_mm512_shuffle_i32x4(a, b, 0xdd), flip);
    } else {
        const __m512i z = hr_plane_int4(t) ? _mm512_loadu_si512(p)
                          : t == HR_Q4_0   ? four_128(p + 2, 18)
                                           : four_128(p + 4, 20);
        const __m512i mask = _mm512_set1_epi8(15);
        w.lo = _mm512_and_si512(z, mask);
        w.hi = _mm512_and_si512(_mm512_srli_epi16(z, 4), mask);
    }
    const size_t step = hr_dtypes[t].block_bytes;
    const bool plane = t == HR_I8G32 || t == HR_I4G32;
    if (block_scales(t) < 4)
        w.d = _mm512_set1_ps(_cvtsh_ss(*s));
    else
        w.d = over_lanes(_mm_cvtph_ps(plane ? _mm_loadl_epi64((const __m128i *)s) : four_u16(p, step)));
    if (t == HR_Q4_1) w.min = over_lanes(_mm_cvtph_ps(four_u16(p + 2, step)));
    return w;
}

/* Fewer than four groups: the missing ones have scale 0. */
HR_INLINE w_block fetch_tail(hr_dtype t, const uint8_t *p, const uint16_t *s, size_t groups) {
    uint8_t block[4 * 34] = {0};
    uint16_t scale[4] = {0};
    memcpy(block, p, groups * hr_dtypes[t].block_bytes);
    if (s) memcpy(scale, s, (block_scales(t) < 4 ? 1 : groups) * sizeof *s);
    return fetch(t, block, scale);
}

HR_INLINE __m512 multiply(hr_dtype t, const w_block *w, const x_block *x, __m512 acc) {
    const __m512i dot = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(x->start, w->lo, x->lo), w->hi, x->hi);
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(w->d, x->d), acc);
    return t == HR_Q4_1 ? _mm512_fmadd_ps(w->min, x->sum, acc) : acc;
}

/* Where rows come from. */
typedef struct rows {
    const uint8_t *p;
    const uint16_t *s;
    size_t stride, scales, ahead; /* bytes and scales to the next row; bytes to what is prefetched */
} rows;

HR_INLINE void step(hr_dtype t, const w_block *w, int n_rows, int tokens, const x_block *x, size_t ldx, __m512 *acc) {
#pragma GCC unroll 8
    for (int i = 0; i < tokens; i++)
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++)
            acc[i * n_rows + r] = multiply(t, &w[r], x + (size_t)i * ldx, acc[i * n_rows + r]);
}

/* acc[token * n_rows + row] over all columns. x: [tokens][blocks]. */
HR_INLINE void tile(hr_dtype t, size_t cols, const rows *a, int n_rows, int tokens, const x_block *x, __m512 *acc) {
    const size_t blocks = cols / BLOCK, tail = cols % BLOCK / 32, ldx = blocks + (tail > 0);
    const size_t bytes = 4 * (size_t)hr_dtypes[t].block_bytes;
    const bool plane = hr_plane_int8(t) || hr_plane_int4(t);
    w_block w[4];
#pragma GCC unroll 16
    for (int i = 0; i < n_rows * tokens; i++) acc[i] = _mm512_setzero_ps();
    for (size_t b = 0; b < blocks; b++) {
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *p = a->p + (size_t)r * a->stride + b * bytes;
            _mm_prefetch((const char *)p + a->ahead, _MM_HINT_T1);
            if (bytes > 64) _mm_prefetch((const char *)p + a->ahead + 64, _MM_HINT_T1);
            w[r] = fetch(t, p, plane ? a->s + (size_t)r * a->scales + block_scales(t) * b : NULL);
        }
        step(t, w, n_rows, tokens, x + b, ldx, acc);
    }
    if (tail) {
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const uint8_t *p = a->p + (size_t)r * a->stride + blocks * bytes;
            w[r] = fetch_tail(t, p, plane ? a->s + (size_t)r * a->scales + block_scales(t) * blocks : NULL, tail);
        }
        step(t, w, n_rows, tokens, x + blocks, ldx, acc);
    }
}

/* Tokens t .. t + tokens - 1 of n_rows rows, of which the first `keep` are stored. */
HR_INLINE void part(const hr_matmul *m, hr_dtype type, const rows *a, size_t row, int n_rows, int keep, size_t t,
                    int tokens, const x_block *x) {
    __m512 acc[16];
    float sums[16];
    tile(type, m->w->cols, a, n_rows, tokens, x, acc);
#pragma GCC unroll 4
    for (int i = 0; i < n_rows * tokens; i += 4)
        _mm_storeu_ps(sums + i, hr_sum4_512(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]));
    for (int i = 0; i < tokens; i++)
        for (int r = 0; r < keep; r++) {
            float *y = m->y + (t + (size_t)i) * m->ldy + row + (size_t)r, v = sums[i * n_rows + r];
            *y = m->add ? *y + v : v;
        }
}

HR_INLINE void gemv(const hr_matmul *m, hr_dtype type, size_t row0, size_t row1, void *scratch) {
    const hr_mat *w = m->w;
    const size_t blocks = (w->cols + BLOCK - 1) / BLOCK, n = m->x->n;
    const x_block *x = scratch;
    prepare(m->x, hr_weight_offset(type), scratch);
    for (size_t row = row0; row < row1;) {
        const size_t left = row1 - row, here = left >= 4 ? 4 : 1;
        const int keep = (int)here;
        rows a = {.p = hr_mat_row(w, row), .s = w->scales ? hr_mat_scales(w, row) : NULL};
        a.stride = here > 1 ? hr_row_bytes(type, w->cols) : 0; /* a row that is left over is done four times */
        a.scales = here > 1 ? hr_row_scales(type, w->cols) : 0;
        a.ahead = here * a.stride;
        for (size_t t = 0; t < n; a.ahead = 0) {
            const x_block *xt = x + t * blocks;
            const size_t tiles = (n - t + 3) / 4, tokens = (n - t + tiles - 1) / tiles;
            if (tokens == 4)
                part(m, type, &a, row, 4, keep, t, 4, xt);
            else if (tokens == 3)
                part(m, type, &a, row, 4, keep, t, 3, xt);
            else if (tokens == 2)
                part(m, type, &a, row, 4, keep, t, 2, xt);
            else
                part(m, type, &a, row, 4, keep, t, 1, xt);
            t += tokens;
        }
        row += here;
    }
}

void hr_gemv_int8_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    switch (m->w->dtype) {
    case HR_I8G32:
        gemv(m, HR_I8G32, row0, row1, scratch);
        break;
    case HR_I8ROW:
        gemv(m, HR_I8ROW, row0, row1, scratch);
        break;
    case HR_I4G128:
        gemv(m, HR_I4G128, row0, row1, scratch);
        break;
    case HR_I4G32:
        gemv(m, HR_I4G32, row0, row1, scratch);
        break;
    case HR_Q8_0:
        gemv(m, HR_Q8_0, row0, row1, scratch);
        break;
    case HR_Q4_0:
        gemv(m, HR_Q4_0, row0, row1, scratch);
        break;
    default:
        gemv(m, HR_Q4_1, row0, row1, scratch);
    }
}
