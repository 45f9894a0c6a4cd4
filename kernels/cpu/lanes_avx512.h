/* lanes_avx512.h - small pieces that the AVX-512 kernels share. Include it from *_avx512.c files only. */
#ifndef HR_LANES_AVX512_H
#define HR_LANES_AVX512_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HR_INLINE static inline __attribute__((always_inline))

/* The low n of 16, 32 or 64 lanes; all of them from there on. */
HR_INLINE __mmask16 hr_mask16(size_t n) {
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}
HR_INLINE __mmask32 hr_mask32(size_t n) {
    return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

/* The four horizontal sums. Every argument is summed in the same order, so a result does not depend on its place. */
HR_INLINE __m128 hr_sum4_512(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Floats to bf16 in the high halves of dwords (the low ones hold rubbish), to nearest even; NaN stays NaN and subnormals
 * stay (vcvtneps2bf16 would flush them). */
HR_INLINE __m512i hr_bf16_dwords(__m512 f) {
    const __m512i u = _mm512_castps_si512(f);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x400000));
}

HR_INLINE __m256i hr_bf16_of_16(__m512 f) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(hr_bf16_dwords(f), 16));
}

HR_INLINE __m512 hr_bf16x16_to_f32(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* r[i] holds 16 dwords of row i; afterwards dword i of all rows. */
HR_INLINE void hr_transpose_16x16(__m512i r[16]) {
    __m512i a[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    /* Now r[4 g + j] has, in lane l, dword 4 l + j of rows 4 g .. 4 g + 3. */
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        a[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
        a[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
        a[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        r[j] = _mm512_shuffle_i32x4(a[j], a[8 + j], 0x88);
        r[8 + j] = _mm512_shuffle_i32x4(a[j], a[8 + j], 0xdd);
        r[4 + j] = _mm512_shuffle_i32x4(a[4 + j], a[12 + j], 0x88);
        r[12 + j] = _mm512_shuffle_i32x4(a[4 + j], a[12 + j], 0xdd);
    }
}

#endif
