/* simd_avx2.h - the functions of simd_generic.h on vectors of eight floats (AVX2, FMA, F16C). */
#ifndef HR_SIMD_AVX2_H
#define HR_SIMD_AVX2_H

#include "kernels/base/dtype.h"
#include <math.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>

#define HR_INLINE static inline __attribute__((always_inline))

typedef __m256 v_f;
enum { V_N = 8 };

HR_INLINE v_f v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
HR_INLINE void v_store(float *p, v_f v) {
    _mm256_storeu_ps(p, v);
}
HR_INLINE v_f v_set(float x) {
    return _mm256_set1_ps(x);
}
HR_INLINE v_f v_fma(v_f a, v_f b, v_f c) {
    return _mm256_fmadd_ps(a, b, c);
}
HR_INLINE v_f v_mul(v_f a, v_f b) {
    return _mm256_mul_ps(a, b);
}
HR_INLINE v_f v_add(v_f a, v_f b) {
    return _mm256_add_ps(a, b);
}
HR_INLINE v_f v_sub(v_f a, v_f b) {
    return _mm256_sub_ps(a, b);
}
HR_INLINE v_f v_div(v_f a, v_f b) {
    return _mm256_div_ps(a, b);
}
/* b where either is no number. */
HR_INLINE v_f v_max(v_f a, v_f b) {
    return _mm256_max_ps(a, b);
}
HR_INLINE v_f v_finite_or_zero(v_f x) {
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-INFINITY), _CMP_EQ_OQ), x);
}
HR_INLINE v_f v_pick_lanes(int from, int to, v_f yes, v_f no) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane);
    const __m256i in = _mm256_andnot_si256(below, _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane));
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(in));
}
HR_INLINE float v_sum(v_f v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
HR_INLINE float v_top(v_f v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
/* Sums of four vectors into out[0..3]. */
HR_INLINE void v_sum4(v_f a, v_f b, v_f c, v_f d, float *out) {
    const v_f s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

HR_INLINE v_f v_load_bf16(const uint16_t *p) {
    const __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
HR_INLINE v_f v_load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
HR_INLINE float v_f16(uint16_t h) {
    return _cvtsh_ss(h);
}
HR_INLINE v_f v_load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
/* Low or high nibbles of V_N bytes, less 8. */
HR_INLINE v_f v_load_nibbles(const uint8_t *p, bool high) {
    const __m256i w = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i n = high ? _mm256_srli_epi32(w, 4) : _mm256_and_si256(w, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(n, _mm256_set1_epi32(8)));
}

/* As in simd_generic.h. */
HR_INLINE v_f v_exp(v_f x) {
    v_f c = _mm256_min_ps(_mm256_set1_ps(128), x); /* these orders of operands keep a NaN */
    c = _mm256_max_ps(_mm256_set1_ps(-88), c);
    const v_f whole =
        _mm256_round_ps(_mm256_mul_ps(c, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    v_f r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0x1.62e4p-1f), c);
    r = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
    v_f p = _mm256_fmadd_ps(r, _mm256_set1_ps(0x1.6a2436p-10f), _mm256_set1_ps(0x1.1239e2p-7f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.5558f2p-5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.555492p-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0x1.fffffcp-2f));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1));
    const __m256i n = _mm256_cvtps_epi32(whole), half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
    const __m256i a = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i b = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23);
    p = _mm256_mul_ps(_mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)), p);
    return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-87.3f), _CMP_LT_OQ), p);
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
