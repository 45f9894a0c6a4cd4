/* Float activations for matrix products, AVX-512, and int8 ones expanded to floats. */
#include "kernels/cpu/lanes_avx512.h"
#include "kernels/cpu/matmul_avx512.h"

void hr_acts_tiles_avx512(const void *rows, size_t stride, size_t bytes, size_t n, size_t tile, void *out) {
    const __mmask16 m = hr_mask16(tile);
    for (size_t t = 0; t < n; t += tile) {
        const uint8_t *from = (const uint8_t *)rows + t * stride;
        uint32_t *to = (uint32_t *)((uint8_t *)out + t * bytes);
        const size_t have = n - t < tile ? n - t : tile;
        for (size_t b = 0; b < bytes; b += 64) {
            __m512i v[16];
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++)
                v[i] = i < have ? _mm512_loadu_si512(from + i * stride + b) : _mm512_setzero_si512();
            hr_transpose_16x16(v);
#pragma GCC unroll 16
            for (size_t i = 0; i < 16; i++) _mm512_mask_storeu_epi32(to + (b / 4 + i) * tile, m, v[i]);
        }
    }
}

/* 64 bytes of values: 16 floats, or 32 of them as bf16. */
HR_INLINE __m512i line_of(bool bf16, const float *x, size_t left) {
    const __mmask32 have = hr_mask32(left);
    const __m512 lo = _mm512_maskz_loadu_ps((__mmask16)have, x);
    if (!bf16) return _mm512_castps_si512(lo);
    const __m512 hi = _mm512_maskz_loadu_ps((__mmask16)(have >> 16), left > 16 ? x + 16 : x);
    return _mm512_inserti64x4(_mm512_castsi256_si512(hr_bf16_of_16(lo)), hr_bf16_of_16(hi), 1);
}

/* Tiles straight from floats, in parts of some columns that stay in the first-level cache; rows are read in runs, one after
 * another, as they often lie a power of two apart, and one run ahead. */
HR_INLINE void tiles_alone(const hr_acts *a, bool bf16, const float *x, size_t ldx, size_t t0, size_t t1) {
    enum { PART = 256, GAP = 16 }; /* dwords of a token; the gap spreads tokens over the sets of the cache */
    _Alignas(64) uint32_t part[16 * (PART + GAP)];
    const size_t per = bf16 ? 2 : 1, dwords = hr_align_up(a->k, 64) / per;
    for (size_t t = t0; t < t1; t += a->tile) {
        const size_t have = t1 - t < a->tile ? t1 - t : a->tile;
        uint32_t *area = (uint32_t *)a->tiles + t * dwords;
        for (size_t c = 0; c < dwords; c += PART) {
            const size_t n = dwords - c < PART ? dwords - c : PART;
            for (size_t i = 0; i < have; i++) {
                const float *from = x + (t + i) * ldx;
                for (size_t d = 0; d < n; d += 16) {
                    const size_t at = (c + d) * per, left = at < a->k ? a->k - at : 0;
                    for (size_t l = 0; l < per; l++)
                        _mm_prefetch((const char *)(from + ldx + at + 16 * l), _MM_HINT_T0);
                    _mm512_store_si512(part + i * (PART + GAP) + d, line_of(bf16, from + (left ? at : 0), left));
                }
            }
            hr_acts_tiles_avx512(part, sizeof *part * (PART + GAP), sizeof *part * n, have, a->tile,
                                 area + c * a->tile);
        }
    }
}

/* Tokens t0 .. t1 - 1 of rows of ld elements of `size` bytes once more into a->tiles. */
static void tiles_of(hr_acts *a, const void *rows, size_t size, size_t t0, size_t t1) {
    const size_t stride = size * a->ld, bytes = size * hr_align_up(a->k, 64);
    if (a->tile)
        hr_acts_tiles_avx512((const uint8_t *)rows + t0 * stride, stride, bytes, t1 - t0, a->tile,
                             (uint8_t *)a->tiles + t0 * bytes);
}

void hr_acts_f32_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    if (a->tile && a->tiles_alone) {
        tiles_alone(a, false, x, ldx, t0, t1);
        return;
    }
    for (size_t t = t0; t < t1; t++) {
        float *out = a->f32 + t * a->ld;
        memcpy(out, x + t * ldx, a->k * sizeof *out);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
    tiles_of(a, a->f32, sizeof *a->f32, t0, t1);
}

void hr_acts_bf16_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    if (a->tile && a->tiles_alone) {
        tiles_alone(a, true, x, ldx, t0, t1);
        return;
    }
    for (size_t t = t0; t < t1; t++) {
        const float *in = x + t * ldx;
        uint16_t *out = a->bf16 + t * a->ld;
        for (size_t c = 0; c < a->ld; c += 16) {
            const __mmask16 have = hr_mask16(c < a->k ? a->k - c : 0);
            const __m512 v = _mm512_maskz_loadu_ps(have, in + (have ? c : 0));
            _mm256_storeu_si256((__m256i *)(out + c), hr_bf16_of_16(v));
        }
    }
    tiles_of(a, a->bf16, sizeof *a->bf16, t0, t1);
}

void hr_acts_expand_avx512(const hr_acts *x, size_t t0, size_t n, float *out, size_t ldo) {
    for (size_t t = 0; t < n; t++) {
        const int8_t *q = x->q + (t0 + t) * x->ld;
        const float *d = x->d + (t0 + t) * (x->ld / 32);
        for (size_t c = 0; c < ldo; c += 16) {
            const __m512i v = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(q + c)));
            _mm512_storeu_ps(out + t * ldo + c, _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(d[c / 32])));
        }
    }
}
