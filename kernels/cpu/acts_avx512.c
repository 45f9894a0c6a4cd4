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

/* Tokens t0 .. t1 - 1 of rows of ld elements of `size` bytes once more into a->tiles. */
static void tiles_of(hr_acts *a, const void *rows, size_t size, size_t t0, size_t t1) {
    const size_t stride = size * a->ld, bytes = size * hr_align_up(a->k, 64);
    if (a->tile)
        hr_acts_tiles_avx512((const uint8_t *)rows + t0 * stride, stride, bytes, t1 - t0, a->tile,
                             (uint8_t *)a->tiles + t0 * bytes);
}

void hr_acts_f32_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        float *out = a->f32 + t * a->ld;
        memcpy(out, x + t * ldx, a->k * sizeof *out);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
    tiles_of(a, a->f32, sizeof *a->f32, t0, t1);
}

void hr_acts_bf16_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
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
