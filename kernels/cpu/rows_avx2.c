/* Activations and rows of weights in the forms that the AVX2 products take. */
#include "kernels/cpu/matmul_avx2.h"
#include <float.h>
#include <immintrin.h>
#include <string.h>

/* ---- activations; int8 gives the same q, d and sum as the generic rows, to the bit ---- */

void hr_acts_f32_avx2(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        float *out = a->f32 + t * a->ld;
        memcpy(out, x + t * ldx, a->k * sizeof *out);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
}

/* Eight floats to bf16 in the low halves of dwords, to nearest even; NaN stays NaN. */
static inline __m256i bf16_of_8(__m256 f) {
    const __m256i u = _mm256_castps_si256(f);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256 is_nan = _mm256_cmp_ps(f, f, _CMP_UNORD_Q);
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(is_nan)), 16);
}

void hr_acts_bf16_avx2(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        const float *in = x + t * ldx;
        uint16_t *out = a->bf16 + t * a->ld;
        size_t c = 0;
        for (; c + 16 <= a->k; c += 16) {
            const __m256i p =
                _mm256_packus_epi32(bf16_of_8(_mm256_loadu_ps(in + c)), bf16_of_8(_mm256_loadu_ps(in + c + 8)));
            _mm256_storeu_si256((__m256i *)(out + c), _mm256_permute4x64_epi64(p, 0xd8));
        }
        for (; c < a->k; c++) out[c] = hr_f32_to_bf16(in[c]);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
}

static inline int32_t max_of_8(__m256i v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

static inline int32_t sum_of_8(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Bits of the largest |x| of 32. The maximum is taken on the bits, where a NaN is largest. */
static inline __m256i most_of(const float *x, __m256i most) {
    for (int i = 0; i < 4; i++) {
        const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
        most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
    return most;
}

/* A d below the normal numbers counts as 0. */
static inline float scale_of(__m256i most) {
    const int32_t bits = max_of_8(most);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    scale /= 127;
    return scale < FLT_MIN ? 0 : scale;
}

/* 32 values at a scale; returns the sum of q. */
static inline int32_t quantize_group(const float *x, float scale, int8_t *q) {
    if (scale == 0) {
        memset(q, 0, 32);
        return 0;
    }
    const __m256 by = _mm256_set1_ps(scale), magic = _mm256_set1_ps(12582912.0f);
    __m256i v[4], total = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) { /* the sum with 1.5 * 2^23 holds the rounded value in its low byte: extend its sign */
        const __m256 r = _mm256_add_ps(_mm256_div_ps(_mm256_loadu_ps(x + 8 * i), by), magic);
        v[i] = _mm256_srai_epi32(_mm256_slli_epi32(_mm256_castps_si256(r), 24), 24);
        total = _mm256_add_epi32(total, v[i]);
    }
    const __m256i p = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(p, order));
    return sum_of_8(total);
}

/* 32 values of a token from column c on, zero past the last. */
static inline const float *group_at(const float *x, size_t k, size_t c, float part[32]) {
    if (c + 32 <= k) return x + c;
    memset(part, 0, 32 * sizeof *part);
    if (c < k) memcpy(part, x + c, (k - c) * sizeof *part);
    return part;
}

void hr_acts_int8_avx2(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    float part[32];
    for (size_t t = t0; t < t1; t++) {
        for (size_t c = 0; c < a->ld; c += 32) {
            const size_t g = t * (a->ld / 32) + c / 32;
            const float *in = group_at(x + t * ldx, a->k, c, part);
            a->d[g] = scale_of(most_of(in, _mm256_setzero_si256()));
            a->sum[g] = quantize_group(in, a->d[g], a->q + t * a->ld + c);
        }
    }
}

void hr_acts_int8_row_avx2(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    float part[32];
    for (size_t t = t0; t < t1; t++) {
        const float *in = x + t * ldx;
        __m256i most = _mm256_setzero_si256();
        for (size_t c = 0; c < a->k; c += 32) most = most_of(group_at(in, a->k, c, part), most);
        const float scale = scale_of(most);
        for (size_t c = 0; c < a->ld; c += 32) {
            const size_t g = t * (a->ld / 32) + c / 32;
            a->d[g] = scale;
            a->sum[g] = quantize_group(group_at(in, a->k, c, part), scale, a->q + t * a->ld + c);
        }
    }
}

/* ---- weights ---- */

static inline float f16_at(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}

/* 32 nibbles less the offset. */
static inline void nibbles(const uint8_t *p, int offset, int8_t *q) {
    const __m128i b = _mm_loadu_si128((const __m128i *)p), low = _mm_set1_epi8(15), off = _mm_set1_epi8((char)offset);
    _mm_storeu_si128((__m128i *)q, _mm_sub_epi8(_mm_and_si128(b, low), off));
    _mm_storeu_si128((__m128i *)(q + 16), _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(b, 4), low), off));
}

static inline void q6_k_block(const uint8_t *b, int8_t *q, float *scale) {
    const float d = f16_at(b + 208);
    for (int i = 0; i < 16; i++) scale[i] = d * (float)(int8_t)b[192 + i];
    for (int half = 0; half < 2; half++) {
        const __m256i high = _mm256_loadu_si256((const __m256i *)(b + 128 + 32 * half));
        for (int quarter = 0; quarter < 4; quarter++) {
            const __m256i four = _mm256_loadu_si256((const __m256i *)(b + 64 * half + (quarter & 1) * 32));
            const __m256i low = _mm256_and_si256(_mm256_srli_epi16(four, quarter & 2 ? 4 : 0), _mm256_set1_epi8(15));
            const __m256i two = _mm256_and_si256(_mm256_srli_epi16(high, 2 * quarter), _mm256_set1_epi8(3));
            const __m256i v = _mm256_or_si256(low, _mm256_slli_epi16(two, 4));
            _mm256_storeu_si256((__m256i *)(q + 128 * half + 32 * quarter), _mm256_sub_epi8(v, _mm256_set1_epi8(32)));
        }
    }
}

void hr_row_int8_avx2(const hr_mat *m, size_t row, hr_int_row *out) {
    const uint8_t *p = hr_mat_row(m, row);
    const uint16_t *s = hr_dtypes[m->dtype].group ? hr_mat_scales(m, row) : NULL;
    const size_t blocks = m->cols / hr_dtypes[m->dtype].block_elems, bytes = hr_dtypes[m->dtype].block_bytes;
    const size_t group = hr_dtypes[m->dtype].group;
    for (size_t b = 0; b < blocks; b++, p += bytes) {
        int8_t *q = out->q + 32 * b;
        switch (m->dtype) {
        case HR_Q6_K:
            q6_k_block(p, out->q + 256 * b, out->scale + 16 * b);
            continue;
        case HR_Q8_0:
            memcpy(q, p + 2, 32);
            break;
        case HR_I8G32:
        case HR_I8ROW:
            memcpy(q, p, 32);
            break;
        case HR_Q4_0:
            nibbles(p + 2, 8, q);
            break;
        case HR_I4G32:
        case HR_I4G128:
            nibbles(p, 8, q);
            break;
        default:
            nibbles(p + 4, 0, q);
            out->min[b] = f16_at(p + 2);
        }
        out->scale[2 * b] = out->scale[2 * b + 1] =
            f16_at(s ? (const void *)(s + (group == HR_GROUP_ROW ? 0 : 32 * b / group)) : p);
    }
}

void hr_row_f32_avx2(const hr_mat *m, size_t row, float *out, void *scratch) {
    const uint8_t *p = hr_mat_row(m, row);
    size_t c = 0;
    if (m->dtype == HR_F32)
        memcpy(out, p, m->cols * sizeof *out);
    else if (m->dtype == HR_F16) {
        for (; c + 8 <= m->cols; c += 8)
            _mm256_storeu_ps(out + c, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 2 * c))));
        for (; c < m->cols; c++) out[c] = f16_at(p + 2 * c);
    } else if (m->dtype == HR_BF16) {
        for (; c + 8 <= m->cols; c += 8) {
            const __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 2 * c)));
            _mm256_storeu_ps(out + c, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
        }
        for (; c < m->cols; c++) out[c] = hr_bf16_to_f32((uint16_t)(p[2 * c] | p[2 * c + 1] << 8));
    } else {
        hr_int_row r = hr_int_row_view(scratch, m->cols);
        hr_row_int8_avx2(m, row, &r);
        for (; c < m->cols; c += 8) { /* product, then sum, as the reference does it */
            const __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(r.q + c)));
            const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(r.scale[c / 16]));
            const __m256 min = _mm256_set1_ps(m->dtype == HR_Q4_1 ? r.min[c / 32] : 0);
            _mm256_storeu_ps(out + c, _mm256_add_ps(v, min));
        }
    }
}
