/* quant_avx512.h - how AVX-512 kernels read quantized weights as unsigned bytes. Include it from *_avx512.c only.
 *
 * vpdpbusd multiplies unsigned by signed bytes, so weights are stored with an offset: 128 for int8 (the sign bit
 * flipped), 8 for int4, 32 for Q6_K, none for Q4_1. Kernels take it out again with the sum of the activations. */
#ifndef HR_QUANT_AVX512_H
#define HR_QUANT_AVX512_H

#include "kernels/base/dtype.h"
#include "kernels/cpu/lanes_avx512.h"

/* Quants in a plane of their own, as bytes or as nibbles. */
HR_INLINE bool hr_plane_int8(hr_dtype t) {
    return t == HR_I8G32 || t == HR_I8ROW;
}
HR_INLINE bool hr_plane_int4(hr_dtype t) {
    return t == HR_I4G32 || t == HR_I4G128;
}

HR_INLINE int hr_weight_offset(hr_dtype t) {
    return hr_plane_int8(t) || t == HR_Q8_0 ? 128 : t == HR_Q4_1 ? 0 : t == HR_Q6_K ? 32 : 8;
}

HR_INLINE __m512i hr_two_256(const uint8_t *p, size_t step) {
    const __m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)(p + step));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

HR_INLINE __m256i hr_two_128(const uint8_t *p, size_t step) {
    const __m128i a = _mm_loadu_si128((const __m128i *)p), b = _mm_loadu_si128((const __m128i *)(p + step));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Lane l of four floats, repeated over lane l of the vector; of sixteen floats, the four from 4 * part on. */
HR_INLINE __m512 hr_over_lanes(__m512 v, int part) {
    const __m512i lane = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_ps(_mm512_add_epi32(lane, _mm512_set1_epi32(4 * part)), v);
}

/* Quarter c (64 weights) of a Q6_K block. */
HR_INLINE __m512i hr_q6_k_64(const uint8_t *b, int c) {
    const __m512i low = _mm512_loadu_si512(b + 64 * (c / 2));
    const __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(b + 128 + 32 * (c / 2))));
    const __m512i four = c % 2 ? _mm512_srli_epi16(low, 4) : low;
    const __m512i by = c % 2 ? _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(6), 1)
                             : _mm512_inserti64x4(_mm512_set1_epi16(0), _mm256_set1_epi16(2), 1);
    const __m512i two = _mm512_and_si512(_mm512_srlv_epi16(high, by), _mm512_set1_epi8(3));
    return _mm512_or_si512(_mm512_and_si512(four, _mm512_set1_epi8(15)), _mm512_slli_epi16(two, 4));
}

/* The sixteen scales of a Q6_K block. */
HR_INLINE __m512 hr_q6_k_scales(const uint8_t *b) {
    uint16_t d;
    memcpy(&d, b + 208, sizeof d);
    const __m512i s = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(b + 192)));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(s), _mm512_set1_ps(_cvtsh_ss(d)));
}

/* 64 weights in order: two groups of 32 that start at p, or quarter c of the Q6_K block at p. */
HR_INLINE __m512i hr_weights_64(hr_dtype t, const uint8_t *p, int c) {
    if (t == HR_Q6_K) return hr_q6_k_64(p, c);
    if (hr_plane_int8(t) || t == HR_Q8_0) {
        const __m512i z = hr_plane_int8(t) ? _mm512_loadu_si512(p) : hr_two_256(p + 2, 34);
        return _mm512_xor_si512(z, _mm512_set1_epi8((char)0x80));
    }
    const __m256i y = hr_plane_int4(t) ? _mm256_loadu_si256((const __m256i *)p)
                      : t == HR_Q4_0   ? hr_two_128(p + 2, 18)
                                       : hr_two_128(p + 4, 20);
    const __m512i twice = _mm512_permutexvar_epi64(_mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0), _mm512_castsi256_si512(y));
    const __m512i by = _mm512_set_epi64(0x4000400040004, 0x4000400040004, 0, 0, 0x4000400040004, 0x4000400040004, 0, 0);
    return _mm512_and_si512(_mm512_srlv_epi16(twice, by), _mm512_set1_epi8(15));
}

#endif
