/* Products of Q6_K weights with few int8 tokens, AVX-512 VNNI: 64 columns at a time in their order, so that each lane
 * of dwords belongs to one of the groups of 16 that Q6_K scales. */
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/quant_avx512.h"

/* 64 activations of one token; start: -32 times the sum that a dword sees; d: the two scales over their lanes. */
typedef struct x_block {
    __m512i q, start;
    __m512 d;
} x_block;

static void prepare(const hr_acts *x, x_block *out) {
    const __m512i offset = _mm512_set1_epi8(32);
    for (size_t t = 0; t < x->n; t++) {
        const int8_t *q = x->q + t * x->ld;
        const float *d = x->d + t * (x->ld / 32);
        for (size_t c = 0; c < x->k; c += 64, out++) {
            out->q = _mm512_loadu_si512(q + c);
            out->start =
                _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_dpbusd_epi32(_mm512_setzero_si512(), offset, out->q));
            out->d = _mm512_insertf32x8(_mm512_set1_ps(d[c / 32]), _mm256_set1_ps(d[c / 32 + 1]), 1);
        }
    }
}

/* acc[token * 2 + row]; rows a and b may be the same. x: [tokens][cols / 64]. */
HR_INLINE void tile(const uint8_t *a, const uint8_t *b, size_t ahead, size_t cols, int tokens, const x_block *x,
                    __m512 *acc) {
    const size_t blocks = cols / 256, ldx = cols / 64;
#pragma GCC unroll 16
    for (int i = 0; i < 2 * tokens; i++) acc[i] = _mm512_setzero_ps();
    for (size_t s = 0; s < blocks; s++, a += 210, b += 210, x += 4) {
#pragma GCC unroll 4
        for (int line = 0; line < 256; line += 64) {
            _mm_prefetch((const char *)a + ahead + line, _MM_HINT_T1);
            _mm_prefetch((const char *)b + ahead + line, _MM_HINT_T1);
        }
        const __m512 scale_a = hr_q6_k_scales(a), scale_b = hr_q6_k_scales(b);
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            const __m512i wa = hr_q6_k_64(a, c), wb = hr_q6_k_64(b, c);
            const __m512 da = hr_over_lanes(scale_a, c), db = hr_over_lanes(scale_b, c);
#pragma GCC unroll 8
            for (int t = 0; t < tokens; t++) {
                const x_block *v = x + (size_t)t * ldx + c;
                const __m512 ia = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(v->start, wa, v->q));
                const __m512 ib = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(v->start, wb, v->q));
                acc[2 * t] = _mm512_fmadd_ps(ia, _mm512_mul_ps(da, v->d), acc[2 * t]);
                acc[2 * t + 1] = _mm512_fmadd_ps(ib, _mm512_mul_ps(db, v->d), acc[2 * t + 1]);
            }
        }
    }
}

HR_INLINE void part(const hr_matmul *m, size_t row, bool two, size_t t, int tokens, const x_block *x, size_t ahead) {
    __m512 acc[16];
    float sums[16];
    tile(hr_mat_row(m->w, row), hr_mat_row(m->w, row + two), ahead, m->w->cols, tokens, x, acc);
#pragma GCC unroll 2
    for (int i = 2 * tokens; i % 4; i++) acc[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < 2 * tokens; i += 4)
        _mm_storeu_ps(sums + i, hr_sum4_512(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]));
    for (int i = 0; i < tokens; i++)
        for (size_t r = 0; r <= two; r++) {
            float *y = m->y + (t + (size_t)i) * m->ldy + row + r, v = sums[2 * i + (int)r];
            *y = m->add ? *y + v : v;
        }
}

void hr_gemv_q6_k_avx512(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const size_t blocks = m->w->cols / 64, n = m->x->n, bytes = hr_row_bytes(HR_Q6_K, m->w->cols);
    const x_block *x = scratch;
    prepare(m->x, scratch);
    for (size_t row = row0; row < row1; row += 2) {
        const bool two = row + 2 <= row1;
        for (size_t t = 0; t < n;) {
            const int tokens = n - t >= 8 ? 8 : n - t >= 4 ? 4 : n - t >= 2 ? 2 : 1;
            const size_t ahead = t ? 0 : 2 * bytes;
            if (tokens == 8)
                part(m, row, two, t, 8, x + t * blocks, ahead);
            else if (tokens == 4)
                part(m, row, two, t, 4, x + t * blocks, ahead);
            else if (tokens == 2)
                part(m, row, two, t, 2, x + t * blocks, ahead);
            else
                part(m, row, two, t, 1, x + t * blocks, ahead);
            t += (size_t)tokens;
        }
    }
}
