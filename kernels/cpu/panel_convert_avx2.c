/* Pieces of panels in forms that the AVX2 products take: floats, and bytes of Q6_K; and the way out of their sums. */
#include "kernels/cpu/panel_avx2.h"
#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { Q6_K_BLOCK = 2048 + 1024 + 256, Q6_K_HIGH = 2048, Q6_K_SCALES = 3072 };

INLINE __m256i load(const void *p) {
    return _mm256_load_si256((const __m256i *)p);
}

INLINE __m256 load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p));
}

/* The piece after this one, `bytes` on, comes to the cache while products are made of this one. */
INLINE void fetch_next(const void *p, size_t bytes) {
    _mm_prefetch((const char *)p + bytes, _MM_HINT_T0);
}

static void piece_f16(const uint16_t *p, size_t n, float *out) {
    for (size_t i = 0; i < 16 * n; i += 8) {
        if (i % 32 == 0) fetch_next(p + i, 32 * n);
        _mm256_store_ps(out + i, load_f16(p + i));
    }
}

/* Pairs of columns lie together. */
static void piece_bf16(const uint16_t *p, size_t n, float *out) {
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    for (size_t c = 0; c < n; c += 2) {
        fetch_next(p + 16 * c, 32 * n);
        for (size_t r = 0; r < 16; r += 8) {
            const __m256i v = load(p + 16 * c + 2 * r);
            _mm256_store_ps(out + 16 * c + r, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
            _mm256_store_ps(out + 16 * (c + 1) + r, _mm256_castsi256_ps(_mm256_and_si256(v, high)));
        }
    }
}

/* Four columns of eight rows: (q - offset) * d + min, product, then sum, as the reference does it. */
INLINE void four_columns(__m256i v, int offset, __m256 d, __m256 min, bool has_min, float *out) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m256i q = _mm256_and_si256(_mm256_srli_epi32(v, 8 * j), _mm256_set1_epi32(255));
        const __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(offset))), d);
        _mm256_store_ps(out + 16 * j, has_min ? _mm256_add_ps(f, min) : f);
    }
}

/* Eight columns from c on of eight rows, bytes or nibbles, whose scales lie at s. */
INLINE void eight_columns(const uint8_t *data, bool nibbles, int offset, bool has_min, const uint16_t *s, float *out) {
    const __m256 d = load_f16(s), min = has_min ? load_f16(s + 16) : _mm256_setzero_ps();
    const __m256i v = load(data), low = _mm256_set1_epi8(15);
    if (nibbles) {
        four_columns(_mm256_and_si256(v, low), offset, d, min, has_min, out);
        four_columns(_mm256_and_si256(_mm256_srli_epi16(v, 4), low), offset, d, min, has_min, out + 64);
    } else {
        four_columns(v, offset, d, min, has_min, out);
        four_columns(load(data + 64), offset, d, min, has_min, out + 64);
    }
}

static void piece_int(const hr_mat *w, size_t panel, size_t c0, size_t n, float *out) {
    const hr_dtype t = w->dtype;
    const bool bytes = t == HR_I8G32 || t == HR_I8ROW || t == HR_Q8_0, has_min = t == HR_Q4_1;
    const size_t group = hr_dtypes[t].group ? hr_dtypes[t].group : 32;
    const uint8_t *data = hr_panel_data(w, panel);
    for (size_t c = c0; c < c0 + n; c += 8)
        for (size_t r = 0; r < 16; r += 8) {
            const size_t line = group == HR_GROUP_ROW ? 0 : c / group;
            const uint16_t *s = hr_panel_scale(w, panel) + 16 * line * (has_min ? 2 : 1) + r;
            float *to = out + 16 * (c - c0) + r;
            fetch_next(data + (bytes ? 16 * c + 8 * r : 8 * c), n * (bytes ? 16 : 8));
            if (bytes)
                eight_columns(data + 16 * c + 4 * r, false, 128, false, s, to);
            else if (has_min)
                eight_columns(data + 8 * c + 4 * r, true, 0, true, s, to);
            else
                eight_columns(data + 8 * c + 4 * r, true, 8, false, s, to);
        }
}

void hr_panel_piece_q6_k_avx2(const hr_mat *w, size_t panel, size_t c0, size_t n, uint8_t *out, float *scales) {
    const uint8_t *block = hr_panel_data(w, panel) + c0 / 256 * Q6_K_BLOCK;
    const uint16_t *d = hr_panel_scale(w, panel) + c0 / 256 * 16;
    const __m256i low = _mm256_set1_epi8(15), top = _mm256_set1_epi8(0x30);
    for (size_t b = 0; b < n; b += 256, block += Q6_K_BLOCK, d += 16)
        for (size_t c = 0; c < 256; c += 16) {
            for (size_t i = 0; i < 4; i++) fetch_next(block + 13 * c + 64 * i, n / 256 * Q6_K_BLOCK);
            for (size_t r = 0; r < 16; r += 8) {
                const __m256i two = load(block + Q6_K_HIGH + 4 * c + 4 * r);
                const __m256i a = load(block + 8 * c + 4 * r), e = load(block + 8 * c + 64 + 4 * r);
                const __m256i four[4] = {_mm256_and_si256(a, low), _mm256_and_si256(_mm256_srli_epi16(a, 4), low),
                                         _mm256_and_si256(e, low), _mm256_and_si256(_mm256_srli_epi16(e, 4), low)};
                const __m256i high[4] = {_mm256_slli_epi16(two, 4), _mm256_slli_epi16(two, 2), two,
                                         _mm256_srli_epi16(two, 2)};
                uint8_t *to = out + 16 * (b + c) + 4 * r;
                for (size_t j = 0; j < 4; j++)
                    _mm256_store_si256((__m256i *)(void *)(to + 64 * j),
                                       _mm256_or_si256(four[j], _mm256_and_si256(high[j], top)));
                const __m128i s = _mm_loadl_epi64((const __m128i *)(const void *)(block + Q6_K_SCALES + c + r));
                _mm256_store_ps(scales + b + c + r,
                                _mm256_mul_ps(load_f16(d + r), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s))));
            }
        }
}

static void piece_q6_k(const hr_mat *w, size_t panel, size_t c0, size_t n, float *out) {
    enum { STEP = 256 };
    _Alignas(64) uint8_t lines[16 * STEP];
    _Alignas(64) float scales[STEP];
    for (size_t c = 0; c < n; c += STEP, out += 16 * STEP) {
        hr_panel_piece_q6_k_avx2(w, panel, c0 + c, STEP, lines, scales);
        for (size_t i = 0; i < STEP; i += 4)
            for (size_t r = 0; r < 16; r += 8) {
                const __m256 d = _mm256_load_ps(scales + i / 16 * 16 + r);
                four_columns(load(lines + 16 * i + 4 * r), 32, d, d, false, out + 16 * i + r);
            }
    }
}

void hr_panel_piece_f32_avx2(const hr_mat *w, size_t panel, size_t c0, size_t n, float *out) {
    const uint8_t *data = hr_panel_data(w, panel);
    if (w->dtype == HR_F16)
        piece_f16((const uint16_t *)(const void *)data + 16 * c0, n, out);
    else if (w->dtype == HR_BF16)
        piece_bf16((const uint16_t *)(const void *)data + 16 * c0, n, out);
    else if (w->dtype == HR_Q6_K)
        piece_q6_k(w, panel, c0, n, out);
    else
        piece_int(w, panel, c0, n, out);
}

void hr_panel_store_avx2(const hr_matmul *m, size_t panel, size_t t0, size_t n, const float *sums) {
    const size_t row = panel * HR_PANEL, rows = m->w->rows - row < HR_PANEL ? m->w->rows - row : HR_PANEL;
    for (size_t t = 0; t < n; t++, sums += 16) {
        float *y = m->y + (t0 + t) * m->ldy + row;
        if (rows < HR_PANEL) {
            for (size_t r = 0; r < rows; r++) y[r] = m->add ? y[r] + sums[r] : sums[r];
            continue;
        }
        __m256 a = _mm256_loadu_ps(sums), b = _mm256_loadu_ps(sums + 8);
        if (m->add) a = _mm256_add_ps(a, _mm256_loadu_ps(y)), b = _mm256_add_ps(b, _mm256_loadu_ps(y + 8));
        _mm256_storeu_ps(y, a), _mm256_storeu_ps(y + 8, b);
    }
}
