/* panel_int_avx2.h - the body of products of quantized panels with int8 tokens on 256-bit vectors; included once by each
 * file, by one that defines HR_DOT_BYTES with vpdpbusd (AVX-VNNI): dot_bytes then adds four u8 x s8 products into 32 bits,
 * else two into 16 bits, for nibbles alone.
 *
 * A register tile is 16 rows x up to 6 tokens. The integers of a span of columns (32 where tokens or weights change
 * their scale, 16 for Q6_K, more where neither does) start at -offset * sum, end exact, and are added into floats times
 * both scales. Columns go in pieces that stay in the first-level cache while the tokens pass by. */
#ifndef HR_PANEL_INT_AVX2_H
#define HR_PANEL_INT_AVX2_H

#include "kernels/cpu/panel_avx2.h"
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef HR_DOT_BYTES
enum { HAS_DOT = 1 };
INLINE __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
    return _mm256_dpbusd_avx_epi32(sum, w, x);
}
#else
enum { HAS_DOT = 0 };
INLINE __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
}
#endif

/* WORD_TILE: words need registers for a mask and for products. */
enum { TILE = 6, WORD_TILE = 5, PIECE = 1024, BLOCK = 96 };

/* How weights lie in their lines: bytes of 4 columns, bytes with float scales (Q6_K unpacked), nibbles of 8 columns,
 * nibbles with a minimum. */
typedef enum kind { BYTES, BYTES_16, NIBBLES, NIBBLES_MIN } kind;

/* A piece of a panel: `cols` columns from c0 on. */
typedef struct piece {
    const uint8_t *lines;
    const uint16_t *half;         /* the panel's scale lines; not BYTES_16 */
    const float *scale;           /* [cols / 16][16]; BYTES_16 */
    size_t c0, cols, span, shift; /* shift: column >> shift is the line of scales */
} piece;

/* A block of tokens. */
typedef struct tokens {
    const uint8_t *x; /* q, or words: [n][ldx] bytes; `bytes` for each column */
    size_t ldx, bytes, spans;
    int32_t *start;  /* [n][spans]: -offset * sum of q */
    float *d, *dsum; /* [n][spans]; dsum: d * sum of q, for minima */
} tokens;

INLINE __m256i broadcast(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Keeps the sums of a tile in registers and in order: the compiler would gather products first and spill them. */
#define HOLD(sum) __asm__("" : "+x"(sum))

/* Four columns of 16 rows into acc: v0, v1 are their bytes, x the tokens' places. */
INLINE void step(bool words, int width, __m256i v0, __m256i v1, const uint8_t *x, size_t ldx, __m256i acc[TILE][2]) {
    if (!words) {
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            const __m256i v = broadcast(x + (size_t)t * ldx);
            acc[t][0] = dot_bytes(acc[t][0], v0, v);
            HOLD(acc[t][0]);
            acc[t][1] = dot_bytes(acc[t][1], v1, v);
            HOLD(acc[t][1]);
        }
        return;
    }
    const __m256i even = _mm256_set1_epi16(255);
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; odd++) {
        const __m256i w0 = odd ? _mm256_srli_epi16(v0, 8) : _mm256_and_si256(v0, even);
        const __m256i w1 = odd ? _mm256_srli_epi16(v1, 8) : _mm256_and_si256(v1, even);
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            const __m256i v = broadcast(x + (size_t)t * ldx + 4 * odd);
            acc[t][0] = _mm256_add_epi32(acc[t][0], _mm256_madd_epi16(w0, v));
            HOLD(acc[t][0]);
            acc[t][1] = _mm256_add_epi32(acc[t][1], _mm256_madd_epi16(w1, v));
            HOLD(acc[t][1]);
        }
    }
}

/* Adds a piece into f [width][16]. With few tokens two sets of sums hide the latency, and the floats stay in registers.
 * ahead: bytes from each line to the one to prefetch. */
INLINE void tile(kind k, int width, const piece *p, const tokens *a, size_t t0, size_t ahead, float *restrict f) {
    const bool nibbles = k >= NIBBLES, words = !HAS_DOT && !nibbles, narrow = !HAS_DOT && nibbles, few = width <= 3;
    const size_t lines = nibbles ? 1 : 2, scale_lines = k == NIBBLES_MIN ? 2 : 1; /* of 8 columns; of a group */
    const uint8_t *w = p->lines, *x = a->x + t0 * a->ldx + p->c0 * a->bytes;
    const __m256i low = _mm256_set1_epi8(15);
    const size_t spans = a->spans, first = t0 * spans + p->c0 / p->span;
    const int32_t *restrict start = a->start + first;
    const float *restrict scale = a->d + first, *restrict dsum = a->dsum + first;
    __m256 sum[TILE][2];
#pragma GCC unroll 6
    for (int t = 0; few && t < width; t++)
        sum[t][0] = _mm256_loadu_ps(f + 16 * t), sum[t][1] = _mm256_loadu_ps(f + 16 * t + 8);
    for (size_t c = 0; c < p->cols; c += p->span, start++, scale++, dsum++) {
        const size_t here = p->cols - c < p->span ? p->cols - c : p->span;
        __m256i acc[2][TILE][2];
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            acc[0][t][0] = narrow ? _mm256_setzero_si256() : broadcast(start + (size_t)t * spans);
            acc[0][t][1] = acc[0][t][0];
            acc[1][t][0] = acc[1][t][1] = _mm256_setzero_si256();
        }
        for (size_t i = 0; i < here; i += 8, w += 64 * lines, x += 8 * a->bytes) {
            _mm_prefetch((const char *)w + ahead, _MM_HINT_T0);
            if (!nibbles) _mm_prefetch((const char *)w + 64 + ahead, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const uint8_t *line = nibbles ? w : w + 64 * j;
                __m256i v0 = _mm256_load_si256((const __m256i *)(const void *)line);
                __m256i v1 = _mm256_load_si256((const __m256i *)(const void *)(line + 32));
                if (nibbles) {
                    v0 = _mm256_and_si256(j ? _mm256_srli_epi16(v0, 4) : v0, low);
                    v1 = _mm256_and_si256(j ? _mm256_srli_epi16(v1, 4) : v1, low);
                }
                step(words, width, v0, v1, x + (size_t)(4 * j) * a->bytes, a->ldx, acc[few ? j : 0]);
            }
        }
        const size_t group = (p->c0 + c) >> p->shift;
        const uint16_t *s = p->half + 16 * group * scale_lines;
        __m256 d[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            d[h] = k == BYTES_16 ? _mm256_load_ps(p->scale + c + 8 * h)
                                 : _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)(s + 8 * h)));
#pragma GCC unroll 6
        for (int t = 0; t < width; t++) {
            const size_t token = (size_t)t * spans;
            const __m256 dx = _mm256_set1_ps(scale[token]);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i v = acc[0][t][h];
                if (few) v = narrow ? _mm256_add_epi16(v, acc[1][t][h]) : _mm256_add_epi32(v, acc[1][t][h]);
                if (narrow) v = _mm256_add_epi32(_mm256_madd_epi16(v, _mm256_set1_epi16(1)), broadcast(start + token));
                __m256 part = few ? sum[t][h] : _mm256_loadu_ps(f + 16 * t + 8 * h);
                part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), _mm256_mul_ps(d[h], dx), part);
                if (k == NIBBLES_MIN) {
                    const __m128i m = _mm_load_si128((const __m128i *)(const void *)(s + 16 + 8 * h));
                    part = _mm256_fmadd_ps(_mm256_cvtph_ps(m), _mm256_set1_ps(dsum[token]), part);
                }
                if (few)
                    sum[t][h] = part;
                else
                    _mm256_storeu_ps(f + 16 * t + 8 * h, part);
            }
        }
    }
#pragma GCC unroll 6
    for (int t = 0; few && t < width; t++)
        _mm256_storeu_ps(f + 16 * t, sum[t][0]), _mm256_storeu_ps(f + 16 * t + 8, sum[t][1]);
}

/* One copy for each kind and width. */
typedef void tile_fn(const piece *p, const tokens *a, size_t t0, size_t ahead, float *f);
/* clang-format off */
#define COPY(k, width) static void tile_##k##_##width(const piece *p, const tokens *a, size_t t0, size_t ahead, float *f) \
    { tile(k, width, p, a, t0, ahead, f); }
#define COPIES(k) COPY(k, 1) COPY(k, 2) COPY(k, 3) COPY(k, 4) COPY(k, 5) COPY(k, 6)
#define NAMES(k) {tile_##k##_1, tile_##k##_2, tile_##k##_3, tile_##k##_4, tile_##k##_5, tile_##k##_6}
COPIES(BYTES) COPIES(BYTES_16) COPIES(NIBBLES) COPIES(NIBBLES_MIN)
static tile_fn *const tiles[4][TILE] = {NAMES(BYTES), NAMES(BYTES_16), NAMES(NIBBLES), NAMES(NIBBLES_MIN)};
/* clang-format on */

/* ---- tokens ---- */

/* Even and odd columns of each four as 16-bit words: columns 0, 2, then 1, 3. */
static void to_words(const int8_t *q, size_t n, uint8_t *out) {
    for (size_t c = 0; c < n; c += 32) {
        const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(q + c));
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8), odd = _mm256_srai_epi16(v, 8);
        const __m256i a = _mm256_unpacklo_epi32(even, odd), b = _mm256_unpackhi_epi32(even, odd);
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * c), _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * c + 32), _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* Sum of q over a span of one token. Spans of 32 and more are whole groups. */
static int32_t span_sum(const hr_acts *x, size_t t, size_t c, size_t span) {
    int32_t sum = 0;
    const size_t end = c + span < x->k ? c + span : x->k;
    if (span < 32)
        for (size_t i = c; i < end; i++) sum += x->q[t * x->ld + i];
    else
        for (size_t g = c / 32; 32 * g < end; g++) sum += x->sum[t * (x->ld / 32) + g];
    return sum;
}

/* Tokens t0 .. t0 + n - 1; `out` has its sizes, words are written behind the other arrays. */
static void prepare(const hr_acts *x, size_t t0, size_t n, size_t span, int offset, tokens *out) {
    for (size_t t = 0; t < n; t++)
        for (size_t s = 0; s < out->spans; s++) {
            const int32_t sum = span_sum(x, t0 + t, s * span, span);
            const size_t i = t * out->spans + s;
            out->start[i] = -offset * sum;
            out->d[i] = x->d[(t0 + t) * (x->ld / 32) + s * span / 32];
            out->dsum[i] = out->d[i] * (float)sum;
        }
    if (out->bytes == 1) {
        out->x = (const uint8_t *)x->q + t0 * x->ld;
        return;
    }
    uint8_t *words = (uint8_t *)out->dsum + hr_align_up(n * out->spans * 4, 64);
    for (size_t t = 0; t < n; t++) to_words(x->q + (t0 + t) * x->ld, x->ld, words + t * out->ldx);
    out->x = words;
}

/* ---- the product ---- */

/* What follows from the types alone. */
typedef struct plan {
    kind k;
    int offset;
    size_t span, shift;
    size_t tile; /* tokens that the registers hold */
} plan;

/* Nibbles of n columns as bytes; fetches the lines of the next piece, which come while the tokens pass by. */
static void to_bytes(const uint8_t *w, size_t n, uint8_t *out) {
    const __m256i low = _mm256_set1_epi8(15);
    for (size_t i = 0; i < 8 * n; i += 64) {
        _mm_prefetch((const char *)w + i + 8 * PIECE, _MM_HINT_T0);
        for (size_t h = 0; h < 64; h += 32) {
            const __m256i v = _mm256_load_si256((const __m256i *)(const void *)(w + i + h));
            uint8_t *to = out + 2 * i + h;
            _mm256_store_si256((__m256i *)(void *)to, _mm256_and_si256(v, low));
            _mm256_store_si256((__m256i *)(void *)(to + 64), _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
        }
    }
}

static plan plan_of(const hr_matmul *m) {
    const hr_dtype t = m->w->dtype;
    const size_t group = hr_dtypes[t].group, by_row = group == HR_GROUP_ROW;
    plan p = {.k = NIBBLES, .offset = 8, .span = 32, .shift = group == 128 ? 7 : by_row ? 63 : 5, .tile = TILE};
    if (t == HR_Q6_K) p = (plan){BYTES_16, 32, 16, 4, TILE};
    if (t == HR_Q4_1) p.k = NIBBLES_MIN, p.offset = 0;
    if (t == HR_I8G32 || t == HR_I8ROW || t == HR_Q8_0) p.k = BYTES, p.offset = 128;
    if (!HAS_DOT && p.k < NIBBLES) p.tile = WORD_TILE;
    if (t == HR_Q6_K) return p;
    const bool narrow = !HAS_DOT && p.k != BYTES; /* 16-bit sums hold 32 columns */
    if (m->x->type == HR_ACT_INT8_ROW && !narrow) p.span = by_row ? PIECE : group ? group : 32;
    return p;
}

/* A panel with n tokens into sums [n][16]; lines and scales are room for a piece of Q6_K. */
static void panel_sums(const hr_matmul *m, const plan *p, size_t panel, const tokens *a, size_t n, float *sums,
                       uint8_t *lines, float *scales) {
    const hr_mat *w = m->w;
    const size_t nibble = p->k >= NIBBLES;
    const bool unpack = HAS_DOT && p->k == NIBBLES && n > 2 * TILE; /* once for all tiles */
    memset(sums, 0, n * 16 * sizeof *sums);
    for (size_t c = 0; c < w->cols; c += PIECE) {
        piece one = {.c0 = c, .span = p->span, .shift = p->shift, .half = hr_panel_scale(w, panel)};
        one.cols = w->cols - c < PIECE ? w->cols - c : PIECE;
        one.lines = hr_panel_data(w, panel) + c * (nibble ? 8 : 16);
        if (p->k == BYTES_16) {
            hr_panel_piece_q6_k_avx2(w, panel, c, one.cols, lines, scales);
            one.lines = lines, one.scale = scales;
        }
        if (unpack) to_bytes(one.lines, one.cols, lines), one.lines = lines;
        size_t ahead = one.lines == lines ? 0 : nibble ? 8 * PIECE : 16 * PIECE;
        for (size_t t = 0; t < n; ahead = 0) {
            const size_t width = hr_tile_width(n - t, p->tile);
            tiles[unpack ? BYTES : p->k][width - 1](&one, a, t, ahead, sums + 16 * t);
            t += width;
        }
    }
}

static void panel_products(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    const plan p = plan_of(m);
    tokens a = {.bytes = !HAS_DOT && p.k < NIBBLES ? 2 : 1, .spans = (m->w->cols + p.span - 1) / p.span};
    a.ldx = x->ld * a.bytes;
    uint8_t *lines = scratch;
    float *scales = (float *)(lines + 16 * PIECE), *sums = scales + PIECE;
    const size_t block = hr_token_block(a.ldx, BLOCK);
    a.start = (int32_t *)(sums + 16 * BLOCK);
    for (size_t t = 0; t < x->n; t += block) {
        const size_t n = x->n - t < block ? x->n - t : block;
        a.d = (float *)(a.start + n * a.spans), a.dsum = a.d + n * a.spans;
        prepare(x, t, n, p.span, p.offset, &a);
        for (size_t panel = row0 / HR_PANEL; panel * HR_PANEL < row1; panel++) {
            panel_sums(m, &p, panel, &a, n, sums, lines, scales);
            hr_panel_store_avx2(m, panel, t, n, sums);
        }
    }
}

#undef INLINE
#undef HOLD
#endif
