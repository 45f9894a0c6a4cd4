/* Pieces of panels of any type as floats or as pairs of bf16, AVX-512. */
#include "kernels/cpu/panel_float_avx512.h"

/* The four columns of a line of int8 (unsigned, offset by 128), or of low or high nibbles. */
HR_INLINE void four(__m512i bytes, __m512i offset, __m512 d, __m512 min, float *out) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i q = j == 3 ? _mm512_srli_epi32(bytes, 24)
                                 : _mm512_and_si512(_mm512_srli_epi32(bytes, 8 * j), _mm512_set1_epi32(255));
        const __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(q, offset));
        _mm512_store_ps(out + 16 * j, _mm512_add_ps(_mm512_mul_ps(v, d), min));
    }
}

HR_INLINE __m512 scales_at(const uint16_t *s) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)s));
}

HR_INLINE __m512i prefetched(const uint8_t *p) {
    _mm_prefetch((const char *)p + 4096, _MM_HINT_T0);
    return _mm512_loadu_si512(p);
}

/* A block of 256 columns of Q6_K. */
static void block_q6_k(const uint8_t *data, const uint16_t *scales, float *out) {
    const uint8_t *high = data + 2048, *sub = high + 1024;
    const __m512 d = scales_at(scales);
    for (size_t i = 0; i < 16; i++) { /* 16 columns: one scale, two lines of low bits, one of high bits */
        const __m512i top = prefetched(high + 64 * i);
        const __m512i s = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(sub + 16 * i)));
        const __m512 by = _mm512_mul_ps(_mm512_cvtepi32_ps(s), d);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m512i both = prefetched(data + 128 * i + 64 * (j / 2));
            const __m512i low = _mm512_and_si512(j % 2 ? _mm512_srli_epi32(both, 4) : both, _mm512_set1_epi8(15));
            const __m512i two = _mm512_and_si512(_mm512_srli_epi32(top, 2 * j), _mm512_set1_epi8(3));
            four(_mm512_or_si512(low, _mm512_slli_epi32(two, 4)), _mm512_set1_epi32(32), by, _mm512_setzero_ps(),
                 out + 256 * i + 64 * j);
        }
    }
}

static void piece_int8(const uint8_t *p, const uint16_t *s, size_t group, size_t c0, size_t n, float *out) {
    for (size_t c = c0; c < c0 + n; c += 32) {
        const __m512 d = scales_at(s + (group == HR_GROUP_ROW ? 0 : c / 32 * HR_PANEL));
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++)
            four(prefetched(p + 16 * c + 64 * i), _mm512_set1_epi32(128), d, _mm512_setzero_ps(),
                 out + (c - c0 + 4 * i) * 16);
    }
}

static void piece_int4(hr_dtype t, const uint8_t *p, const uint16_t *s, size_t c0, size_t n, float *out) {
    const size_t group = hr_dtypes[t].group ? hr_dtypes[t].group : 32;
    const __m512i offset = _mm512_set1_epi32(t == HR_Q4_1 ? 0 : 8), four_bits = _mm512_set1_epi8(15);
    for (size_t c = c0; c < c0 + n; c += 32) {
        const uint16_t *at = s + c / group * HR_PANEL * (t == HR_Q4_1 ? 2 : 1);
        const __m512 d = scales_at(at), min = t == HR_Q4_1 ? scales_at(at + HR_PANEL) : _mm512_setzero_ps();
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            const __m512i both = prefetched(p + 8 * c + 64 * i);
            float *to = out + (c - c0 + 8 * i) * 16;
            four(_mm512_and_si512(both, four_bits), offset, d, min, to);
            four(_mm512_and_si512(_mm512_srli_epi32(both, 4), four_bits), offset, d, min, to + 64);
        }
    }
}

static void piece_bf16(const uint8_t *p, size_t n, float *out) {
    for (size_t c = 0; c < n; c += 2) {
        const __m512i pair = prefetched(p + 32 * c);
        _mm512_store_si512(out + 16 * c, _mm512_slli_epi32(pair, 16));
        _mm512_store_si512(out + 16 * c + 16, _mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000)));
    }
}

static void piece_f16(const uint8_t *p, size_t n, float *out) {
    for (size_t c = 0; c < n; c += 2) {
        const __m512i two = prefetched(p + 32 * c);
        _mm512_store_ps(out + 16 * c, _mm512_cvtph_ps(_mm512_castsi512_si256(two)));
        _mm512_store_ps(out + 16 * c + 16, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(two, 1)));
    }
}

void hr_panel_f32_avx512(const hr_mat *m, size_t panel, size_t c0, size_t n, float *out) {
    const uint8_t *p = hr_panel_data(m, panel);
    const uint16_t *s = m->scales ? hr_panel_scale(m, panel) : NULL;
    switch (m->dtype) {
    case HR_F32:
        memcpy(out, p + 64 * c0, 64 * n);
        break;
    case HR_F16:
        piece_f16(p + 32 * c0, n, out);
        break;
    case HR_BF16:
        piece_bf16(p + 32 * c0, n, out);
        break;
    case HR_Q8_0:
    case HR_I8G32:
    case HR_I8ROW:
        piece_int8(p, s, hr_dtypes[m->dtype].group, c0, n, out);
        break;
    case HR_Q6_K:
        for (size_t b = 0; b < n / 256; b++)
            block_q6_k(p + (c0 / 256 + b) * 3328, s + (c0 / 256 + b) * HR_PANEL, out + b * 4096);
        break;
    default:
        piece_int4(m->dtype, p, s, c0, n, out);
    }
}

void hr_panel_bf16_avx512(const hr_mat *m, size_t panel, size_t c0, size_t n, uint32_t *out) {
    enum { STEP = 256 };
    _Alignas(64) float piece[STEP * HR_PANEL];
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    for (size_t c = 0; c < n; c += STEP) {
        const size_t cols = n - c < STEP ? n - c : STEP;
        hr_panel_f32_avx512(m, panel, c0 + c, cols, piece);
        for (size_t i = 0; i < cols; i += 2) {
            const __m512i even = hr_bf16_dwords(_mm512_load_ps(piece + 16 * i));
            const __m512i odd = hr_bf16_dwords(_mm512_load_ps(piece + 16 * i + 16));
            _mm512_store_si512(out + 8 * (c + i),
                               _mm512_or_si512(_mm512_srli_epi32(even, 16), _mm512_and_si512(odd, high)));
        }
    }
}
