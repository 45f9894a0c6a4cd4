/* simd_avx512.h - the functions of simd_generic.h on vectors of sixteen floats (AVX-512 F, BW, VL, DQ). */
#ifndef HR_SIMD_AVX512_H
#define HR_SIMD_AVX512_H

#include "kernels/base/dtype.h"
#include <math.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>

#define HR_INLINE static inline __attribute__((always_inline))

typedef __m512 v_f;
enum { V_N = 16 };

HR_INLINE v_f v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
HR_INLINE void v_store(float *p, v_f v) {
    _mm512_storeu_ps(p, v);
}
HR_INLINE v_f v_set(float x) {
    return _mm512_set1_ps(x);
}
HR_INLINE v_f v_fma(v_f a, v_f b, v_f c) {
    return _mm512_fmadd_ps(a, b, c);
}
HR_INLINE v_f v_mul(v_f a, v_f b) {
    return _mm512_mul_ps(a, b);
}
HR_INLINE v_f v_add(v_f a, v_f b) {
    return _mm512_add_ps(a, b);
}
HR_INLINE v_f v_sub(v_f a, v_f b) {
    return _mm512_sub_ps(a, b);
}
HR_INLINE v_f v_div(v_f a, v_f b) {
    return _mm512_div_ps(a, b);
}
/* b where either is no number. */
HR_INLINE v_f v_max(v_f a, v_f b) {
    return _mm512_max_ps(a, b);
}
HR_INLINE v_f v_finite_or_zero(v_f x) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ), x);
}
HR_INLINE v_f v_pick_lanes(int from, int to, v_f yes, v_f no) {
    const int f = from < 0 ? 0 : from > 16 ? 16 : from, t = to < 0 ? 0 : to > 16 ? 16 : to;
    const uint32_t below_to = (1u << t) - 1, below_from = (1u << f) - 1;
    return _mm512_mask_mov_ps(no, (__mmask16)(below_to & ~below_from), yes);
}
HR_INLINE __m256 v_avx512_fold(v_f v) {
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
HR_INLINE float v_sum(v_f v) {
    const __m256 h = v_avx512_fold(v);
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
HR_INLINE float v_top(v_f v) {
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
/* Sums of four vectors into out[0..3]: transposes in pairs, adding as it goes. */
HR_INLINE void v_sum4(v_f a, v_f b, v_f c, v_f d, float *out) {
    const v_f ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const v_f cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const v_f abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 h = v_avx512_fold(abcd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1)));
}

HR_INLINE v_f v_load_bf16(const uint16_t *p) {
    const __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}
HR_INLINE v_f v_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
HR_INLINE float v_f16(uint16_t h) {
    return _cvtsh_ss(h);
}
HR_INLINE v_f v_load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* Low or high nibbles of V_N bytes, less 8. */
HR_INLINE v_f v_load_nibbles(const uint8_t *p, bool high) {
    const __m512i w = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i n = high ? _mm512_srli_epi32(w, 4) : _mm512_and_si512(w, _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(n, _mm512_set1_epi32(8)));
}

/* As in simd_generic.h. */
HR_INLINE v_f v_exp(v_f x) {
    v_f c = _mm512_min_ps(_mm512_set1_ps(128), x); /* these orders of operands keep a NaN */
    c = _mm512_max_ps(_mm512_set1_ps(-88), c);
    const v_f whole = _mm512_roundscale_ps(_mm512_mul_ps(c, _mm512_set1_ps(1.44269504f)),
                                           _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    v_f r = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0x1.62e4p-1f), c);
    r = _mm512_fnmadd_ps(whole, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    v_f p = _mm512_fmadd_ps(r, _mm512_set1_ps(0x1.6a2436p-10f), _mm512_set1_ps(0x1.1239e2p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.5558f2p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555492p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffffcp-2f));
    p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1));
    p = _mm512_scalef_ps(p, whole);
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3f), _CMP_NLT_UQ), p);
}

/* Rounds to nearest even. */
HR_INLINE void v_store_f16(uint16_t *to, const float *x, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) to[i] = (uint16_t)_cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

#endif
#endif
