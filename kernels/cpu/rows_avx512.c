/* Parts of weight rows as floats or bf16, AVX-512: for weight types that the arithmetic of a kernel does not take. */
#include "kernels/cpu/matmul_avx512.h"
#include "kernels/cpu/quant_avx512.h"

HR_INLINE float f16_at(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

HR_INLINE void group_i8(const uint8_t *q, float d, float *out) {
    for (int i = 0; i < 32; i += 16) {
        const __m512i v = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(q + i)));
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(d)));
    }
}

/* value = (nibble - offset) * d + min, in this order, as the reference does it */
HR_INLINE void group_i4(const uint8_t *q, int offset, float d, float min, float *out) {
    const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)q));
    const __m512i lo = _mm512_and_si512(b, _mm512_set1_epi32(15)), hi = _mm512_srli_epi32(b, 4);
    const __m512i off = _mm512_set1_epi32(offset);
    const __m512 vd = _mm512_set1_ps(d), vm = _mm512_set1_ps(min);
    const __m512 flo = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(lo, off)), vd);
    const __m512 fhi = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(hi, off)), vd);
    _mm512_storeu_ps(out, _mm512_add_ps(flo, vm));
    _mm512_storeu_ps(out + 16, _mm512_add_ps(fhi, vm));
}

static void block_q6_k(const uint8_t *b, float *out) {
    float scale[16];
    uint8_t q[64];
    _mm512_storeu_ps(scale, hr_q6_k_scales(b));
    for (int c = 0; c < 4; c++) {
        _mm512_storeu_si512(q, hr_q6_k_64(b, c));
        for (int i = 0; i < 4; i++, out += 16) {
            const __m512i v = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(q + 16 * i)));
            const __m512 f = _mm512_cvtepi32_ps(_mm512_sub_epi32(v, _mm512_set1_epi32(32)));
            _mm512_storeu_ps(out, _mm512_mul_ps(f, _mm512_set1_ps(scale[4 * c + i])));
        }
    }
}

static void part_f16(const uint8_t *p, size_t n, float *out) {
    for (size_t c = 0; c < n; c += 16) {
        const __mmask16 m = hr_mask16(n - c);
        _mm512_mask_storeu_ps(out + c, m, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, p + 2 * c)));
    }
}

static void part_bf16(const uint8_t *p, size_t n, float *out) {
    for (size_t c = 0; c < n; c += 16) {
        const __mmask16 m = hr_mask16(n - c);
        _mm512_mask_storeu_ps(out + c, m, hr_bf16x16_to_f32(_mm256_maskz_loadu_epi16(m, p + 2 * c)));
    }
}

HR_INLINE float scale_at(const uint16_t *s, size_t group, size_t column) {
    return f16_at(s + (group == HR_GROUP_ROW ? 0 : column / group));
}

void hr_row_f32_avx512(const hr_mat *m, size_t row, size_t c0, size_t n, float *out) {
    const hr_dtype_info *info = &hr_dtypes[m->dtype];
    const uint8_t *p = hr_mat_row(m, row) + hr_row_bytes(m->dtype, c0);
    const uint16_t *s = info->group ? hr_mat_scales(m, row) : NULL;
    const size_t groups = n / 32;
    switch (m->dtype) {
    case HR_F32:
        memcpy(out, p, n * sizeof *out);
        break;
    case HR_F16:
        part_f16(p, n, out);
        break;
    case HR_BF16:
        part_bf16(p, n, out);
        break;
    case HR_Q8_0:
        for (size_t g = 0; g < groups; g++, p += 34) group_i8(p + 2, f16_at(p), out + 32 * g);
        break;
    case HR_Q4_0:
        for (size_t g = 0; g < groups; g++, p += 18) group_i4(p + 2, 8, f16_at(p), 0, out + 32 * g);
        break;
    case HR_Q4_1:
        for (size_t g = 0; g < groups; g++, p += 20) group_i4(p + 4, 0, f16_at(p), f16_at(p + 2), out + 32 * g);
        break;
    case HR_I8G32:
    case HR_I8ROW:
        for (size_t g = 0; g < groups; g++, p += 32) group_i8(p, scale_at(s, info->group, c0 + 32 * g), out + 32 * g);
        break;
    case HR_I4G32:
    case HR_I4G128:
        for (size_t g = 0; g < groups; g++, p += 16)
            group_i4(p, 8, scale_at(s, info->group, c0 + 32 * g), 0, out + 32 * g);
        break;
    case HR_Q6_K:
        for (size_t b = 0; b < n / 256; b++, p += 210) block_q6_k(p, out + 256 * b);
        break;
    case HR_DTYPE_COUNT:
        break;
    }
}

void hr_row_bf16_avx512(const hr_mat *m, size_t row, size_t c0, size_t n, uint16_t *out) {
    if (m->dtype == HR_BF16) {
        memcpy(out, hr_mat_row(m, row) + 2 * c0, 2 * n);
        return;
    }
    float part[256];
    for (size_t c = 0; c < n; c += 256) {
        const size_t have = n - c < 256 ? n - c : 256;
        hr_row_f32_avx512(m, row, c0 + c, have, part);
        for (size_t i = 0; i < have; i += 16) {
            const __mmask16 mask = hr_mask16(have - i);
            _mm256_mask_storeu_epi16(out + c + i, mask, hr_bf16_of_16(_mm512_maskz_loadu_ps(mask, part + i)));
        }
    }
}
