/* vnni_256_avx512.h - the vectors of panel_int_body.h in 256 bits (EVEX): two hold a line of a panel. Cores that split
 * 512-bit operations may be faster so. */
#ifndef HR_VNNI_256_AVX512_H
#define HR_VNNI_256_AVX512_H

#include "kernels/cpu/lanes_avx512.h"
#include <stdbool.h>

typedef __m256i v_i;
typedef __m256 v_f;
enum { V_LANES = 8 };

HR_INLINE v_i v_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
HR_INLINE v_i v_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
HR_INLINE v_i v_dot(v_i acc, v_i u8, v_i s8) {
    return _mm256_dpbusd_epi32(acc, u8, s8);
}
HR_INLINE v_i v_low4(v_i x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}
HR_INLINE v_i v_high4(v_i x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}
HR_INLINE v_i v_shl(v_i x, int by) {
    return by < 0 ? _mm256_srli_epi16(x, -by) : _mm256_slli_epi16(x, by);
}
/* a, with bits 4 and 5 of b. */
HR_INLINE v_i v_with_top2(v_i a, v_i b) {
    return _mm256_ternarylogic_epi32(a, b, _mm256_set1_epi8(0x30), 0xf8);
}
HR_INLINE void v_store(void *p, v_i x) {
    _mm256_storeu_si256((__m256i *)p, x);
}
HR_INLINE v_f v_float(v_i x) {
    return _mm256_cvtepi32_ps(x);
}
HR_INLINE v_f v_int8_floats(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
HR_INLINE v_f v_halfs(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
HR_INLINE v_f v_loadf(const float *p) {
    return _mm256_loadu_ps(p);
}
HR_INLINE void v_storef(float *p, v_f x) {
    _mm256_storeu_ps(p, x);
}
HR_INLINE v_f v_setf(float x) {
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
/* The first `rows` floats of p = x, or += x. */
HR_INLINE void v_put(float *p, v_f x, size_t rows, bool add) {
    const __mmask8 m = (__mmask8)hr_mask16(rows);
    if (add) x = _mm256_add_ps(x, _mm256_maskz_loadu_ps(m, p));
    _mm256_mask_storeu_ps(p, m, x);
}

#endif
