/* attn_pairs_avx512.h - what bf16 attention does to vectors: 2^x, rows of K and V of any 2-byte or quantized type as
 * bf16, and pairs of neighbours in one dword, the form in which vdpbf16ps multiplies. Include it after
 * simd_avx512.h and attn_load.h, from *_avx512.c files only. */
#ifndef HR_ATTN_PAIRS_AVX512_H
#define HR_ATTN_PAIRS_AVX512_H

#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/attn_load.h"
#include "kernels/cpu/lanes_avx512.h"

#ifdef __AVX512BF16__

/* 2^x: 2^floor(x) times a polynomial of the rest, in [0, 1). Relative error below 2.5e-7: 8.3e-8 of the polynomial (found
 * by exchange, with p(0) = 1 so that the largest weight of a softmax is 1), the rest is rounding. 0 for -infinity, NaN
 * for NaN. */
HR_INLINE __m512 attn_exp2(__m512 x) {
    const __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0x1.e974fap-10f), r, _mm512_set1_ps(0x1.277856p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.c91ce6p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ebdb56p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62e4bap-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, x);
}

/* acc + the products of 16 pairs. */
HR_INLINE __m512 attn_dp(__m512 acc, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
}
/* A pair in every dword. */
HR_INLINE __m512i attn_pair(const uint32_t *p) {
    return _mm512_set1_epi32((int)*p);
}
/* 32 neighbours as bf16, in order. */
HR_INLINE __m512i attn_bf16(v_f low, v_f high) {
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}
/* Dword i = (a[i], b[i]) as bf16. */
HR_INLINE __m512i attn_zip(v_f a, v_f b) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, attn_bf16(a, b));
}

/* Elements d..d + 15 of a row as floats, zeros from dim on. */
HR_INLINE v_f attn_load16(hr_dtype t, const uint8_t *row, const uint16_t *scale, size_t d, size_t dim) {
    return d + 16 <= dim ? attn_load(t, row, scale, d) : d < dim ? attn_load_rest(t, row, d, dim) : v_set(0);
}

/* Elements d..d + 31 of a row as bf16, zeros from dim on. */
HR_INLINE __m512i attn_load32(hr_dtype t, const uint8_t *row, const uint16_t *scale, size_t d, size_t dim) {
    if (t == HR_BF16) return _mm512_maskz_loadu_epi16(hr_mask32(dim - d), (const uint16_t *)(const void *)row + d);
    if (t == HR_Q8_0 || t == HR_I8ROW || t == HR_Q4_0) { /* d is a multiple of 32: one scale */
        const __m512 f = _mm512_cvtph_ps(_mm256_set1_epi16((short)scale[t == HR_I8ROW ? 0 : d / 32]));
        if (t != HR_Q4_0)
            return attn_bf16(_mm512_mul_ps(v_load_i8((const int8_t *)row + d), f),
                             _mm512_mul_ps(v_load_i8((const int8_t *)row + d + 16), f));
        const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(row + d / 2)));
        const __m512 low = _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(15)));
        const __m512 high = _mm512_cvtepi32_ps(_mm512_srli_epi32(x, 4)), base = _mm512_mul_ps(f, _mm512_set1_ps(-8));
        return attn_bf16(_mm512_fmadd_ps(low, f, base), _mm512_fmadd_ps(high, f, base));
    }
    if (t == HR_I4KC) { /* K */
        const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(row + d / 2)));
        const uint16_t *at = scale + hr_kv_channel(d);
        const __m512i eight = _mm512_set1_epi32(8);
        const __m512 low = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_and_si512(x, _mm512_set1_epi32(15)), eight));
        const __m512 high = _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_srli_epi32(x, 4), eight));
        return attn_bf16(_mm512_fmadd_ps(low, v_load_f16(at), v_load_f16(at + 16)),
                         _mm512_fmadd_ps(high, v_load_f16(at + 32), v_load_f16(at + 48)));
    }
    return attn_bf16(attn_load16(t, row, scale, d, dim), attn_load16(t, row, scale, d + 16, dim));
}
/* Where element i of 32 stands after pairs of two rows were formed by unpacking low halves, then high halves of each
 * 128 bits. */
static inline size_t attn_place(size_t i) {
    return i / 32 * 32 + i / 4 % 2 * 16 + i % 32 / 8 * 4 + i % 4;
}

#endif
#endif
