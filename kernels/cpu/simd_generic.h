/* simd_generic.h - vectors of four floats on any machine, by the compiler's vector extension; the same functions as
 * simd_avx2.h (8 floats) and simd_avx512.h (16). A kernel body is written once over v_f and compiled for each. */
#ifndef HR_SIMD_GENERIC_H
#define HR_SIMD_GENERIC_H

#include "kernels/base/dtype.h"
#include <math.h>
#include <string.h>

#define HR_INLINE static inline __attribute__((always_inline))

typedef float v_f __attribute__((vector_size(16)));
typedef int32_t v_generic_i __attribute__((vector_size(16)));
enum { V_N = 4 };

HR_INLINE v_f v_load(const float *p) {
    v_f v;
    memcpy(&v, p, sizeof v);
    return v;
}
HR_INLINE void v_store(float *p, v_f v) {
    memcpy(p, &v, sizeof v);
}
HR_INLINE v_f v_set(float x) {
    return (v_f){x, x, x, x};
}
HR_INLINE v_f v_fma(v_f a, v_f b, v_f c) {
    return a * b + c;
}
HR_INLINE v_f v_mul(v_f a, v_f b) {
    return a * b;
}
HR_INLINE v_f v_add(v_f a, v_f b) {
    return a + b;
}
HR_INLINE v_f v_sub(v_f a, v_f b) {
    return a - b;
}
HR_INLINE v_f v_div(v_f a, v_f b) {
    return a / b;
}
HR_INLINE v_f v_generic_pick(v_generic_i mask, v_f yes, v_f no) {
    v_generic_i y, n;
    memcpy(&y, &yes, sizeof y), memcpy(&n, &no, sizeof n);
    v_generic_i r = (mask & y) | (~mask & n);
    v_f v;
    memcpy(&v, &r, sizeof v);
    return v;
}
/* b where either is no number. */
HR_INLINE v_f v_max(v_f a, v_f b) {
    return v_generic_pick(a > b, a, b);
}
/* x where it lies above -infinity, else 0. */
HR_INLINE v_f v_finite_or_zero(v_f x) {
    return v_generic_pick(x == v_set(-INFINITY), v_set(0), x);
}
/* yes in lanes from..to-1, no in the others. */
HR_INLINE v_f v_pick_lanes(int from, int to, v_f yes, v_f no) {
    const v_generic_i lane = {0, 1, 2, 3}, f = {from, from, from, from}, t = {to, to, to, to};
    return v_generic_pick((lane >= f) & (lane < t), yes, no);
}
HR_INLINE float v_sum(v_f v) {
    return (v[0] + v[2]) + (v[1] + v[3]);
}
HR_INLINE float v_top(v_f v) {
    float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
    return a > b ? a : b;
}
/* Sums of four vectors into out[0..3]. */
HR_INLINE void v_sum4(v_f a, v_f b, v_f c, v_f d, float *out) {
    out[0] = v_sum(a), out[1] = v_sum(b), out[2] = v_sum(c), out[3] = v_sum(d);
}

HR_INLINE v_f v_load_bf16(const uint16_t *p) {
    return (v_f){hr_bf16_to_f32(p[0]), hr_bf16_to_f32(p[1]), hr_bf16_to_f32(p[2]), hr_bf16_to_f32(p[3])};
}
HR_INLINE v_f v_load_f16(const uint16_t *p) {
    return (v_f){hr_f16_to_f32(p[0]), hr_f16_to_f32(p[1]), hr_f16_to_f32(p[2]), hr_f16_to_f32(p[3])};
}
HR_INLINE float v_f16(uint16_t h) {
    return hr_f16_to_f32(h);
}
HR_INLINE v_f v_load_i8(const int8_t *p) {
    return (v_f){p[0], p[1], p[2], p[3]};
}
/* Low or high nibbles of V_N bytes, less 8. */
HR_INLINE v_f v_load_nibbles(const uint8_t *p, bool high) {
    const int s = high ? 4 : 0;
    return (v_f){(float)((p[0] >> s & 15) - 8), (float)((p[1] >> s & 15) - 8), (float)((p[2] >> s & 15) - 8),
                 (float)((p[3] >> s & 15) - 8)};
}

/* 2^n for whole n in [-128, 186], in two factors so that neither leaves the range. */
HR_INLINE v_f v_generic_pow2(v_generic_i n) {
    v_generic_i bits = (n + 127) << 23;
    v_f v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
#define V_POW2_SCALE(p, n) (v_generic_pow2(n >> 1) * v_generic_pow2(n - (n >> 1)) * (p))
/* e^x within 1 ulp; 0 below -87.3, infinity above 88.8, NaN for NaN. Polynomial: weighted least squares on Chebyshev
 * nodes of [-ln2/2, ln2/2], refined towards equal error (3e-9). */
HR_INLINE v_f v_exp(v_f x) {
    v_f c = v_generic_pick(x > v_set(128), v_set(128), x);
    c = v_generic_pick(c < v_set(-88), v_set(-88), c);
    v_f shifted = c * v_set(1.44269504f) + v_set(12582912.0f); /* 1.5 * 2^23: rounds to a whole number */
    v_f whole = shifted - v_set(12582912.0f);
    v_generic_i n;
    memcpy(&n, &shifted, sizeof n);
    n -= 0x4b400000; /* the bits of 12582912.0f */
    v_f r = c - whole * v_set(0x1.62e4p-1f);
    r = r - whole * v_set(0x1.7f7d1cp-20f);
    v_f p = r * v_set(0x1.6a2436p-10f) + v_set(0x1.1239e2p-7f);
    p = p * r + v_set(0x1.5558f2p-5f);
    p = p * r + v_set(0x1.555492p-3f);
    p = p * r + v_set(0x1.fffffcp-2f);
    p = p * (r * r) + r + v_set(1);
    n = n & (v_generic_i)(c == c);
    return v_generic_pick(x < v_set(-87.3f), v_set(0), V_POW2_SCALE(p, n));
}

/* Rounds to nearest even. */
HR_INLINE void v_store_f16(uint16_t *to, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = hr_f32_to_f16(x[i]);
}

#endif
