/* int8 activations, AVX-512: the same q, d and sum as the generic rows, to the bit, and the tiles that the integer
 * kernels read. */
#include "kernels/cpu/acts_int_avx512.h"
#include "kernels/cpu/matmul_avx512.h"
#include <float.h>
#include <string.h>

/* ---- quantization ---- */

typedef struct group {
    __m512 lo, hi;
} group;

/* 32 values from column c on, zero past the last. */
HR_INLINE group load_group(const float *x, size_t k, size_t c) {
    const size_t left = c < k ? k - c : 0;
    const float *p = x + (left ? c : 0);
    const __mmask32 have = hr_mask32(left);
    return (group){_mm512_maskz_loadu_ps((__mmask16)have, p),
                   _mm512_maskz_loadu_ps((__mmask16)(have >> 16), left > 16 ? p + 16 : p)};
}

/* The maximum of |x| is taken on the bits, where a NaN is largest and so reaches d. */
HR_INLINE __m512i magnitudes(group v) {
    const __m512i clear = _mm512_set1_epi32(0x7fffffff);
    return _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v.lo), clear),
                            _mm512_and_si512(_mm512_castps_si512(v.hi), clear));
}

/* A d below the normal numbers counts as 0. */
HR_INLINE float scale_of(int32_t most) {
    float scale;
    memcpy(&scale, &most, sizeof scale);
    scale /= 127;
    return scale < FLT_MIN ? 0 : scale;
}

/* v / scale to nearest even: the sum 1.5 * 2^23 + v / scale holds it in its low byte. The product with 1 / scale is off
 * by less than 2e-5, so only what lies that near to the middle between two integers needs the division. */
HR_INLINE __m128i quotients(__m512 v, __m512 scale, __m512 inverse) {
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    __m512 y = _mm512_mul_ps(v, inverse), sum = _mm512_add_ps(y, magic);
    const __m512 off = _mm512_abs_ps(_mm512_sub_ps(y, _mm512_sub_ps(sum, magic)));
    /* not <=: so that NaNs go the slow way as well */
    if (_mm512_cmp_ps_mask(off, _mm512_set1_ps(0.4999f), _CMP_NLE_UQ))
        sum = _mm512_add_ps(_mm512_div_ps(v, scale), magic);
    return _mm512_cvtepi32_epi8(_mm512_castps_si512(sum));
}

HR_INLINE int32_t quantize_group(group v, float scale, __m512 inverse, int8_t *q) {
    if (scale == 0) {
        _mm256_storeu_si256((__m256i *)q, _mm256_setzero_si256());
        return 0;
    }
    const __m128i a = quotients(v.lo, _mm512_set1_ps(scale), inverse);
    const __m128i b = quotients(v.hi, _mm512_set1_ps(scale), inverse);
    _mm_storeu_si128((__m128i *)q, a);
    _mm_storeu_si128((__m128i *)(q + 16), b);
    const __m128i one = _mm_set1_epi8(1);
    __m128i s = _mm_dpbusd_epi32(_mm_dpbusd_epi32(_mm_setzero_si128(), one, a), one, b);
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

static void quantize_blocks(hr_acts *a, const float *x, size_t t) {
    for (size_t c = 0; c < a->ld; c += 32) {
        const size_t g = t * (a->ld / 32) + c / 32;
        const group v = load_group(x, a->k, c);
        const float scale = scale_of(_mm512_reduce_max_epi32(magnitudes(v)));
        a->d[g] = scale;
        a->sum[g] = quantize_group(v, scale, _mm512_set1_ps(1 / scale), a->q + t * a->ld + c);
    }
}

static void quantize_row(hr_acts *a, const float *x, size_t t) {
    __m512i most = _mm512_setzero_si512();
    for (size_t c = 0; c < a->k; c += 32) most = _mm512_max_epi32(most, magnitudes(load_group(x, a->k, c)));
    const float scale = scale_of(_mm512_reduce_max_epi32(most));
    const __m512 inverse = _mm512_set1_ps(1 / scale);
    for (size_t c = 0; c < a->ld; c += 32) {
        const size_t g = t * (a->ld / 32) + c / 32;
        a->d[g] = scale;
        a->sum[g] = quantize_group(load_group(x, a->k, c), scale, inverse, a->q + t * a->ld + c);
    }
}

/* ---- tiles ---- */

/* Lines of groups g and g + 1 (the second only while there is one): v[8 * i + s] has line s of group g + i, one token a
 * lane; d[i] the scales. */
HR_INLINE void put_groups(size_t width, size_t g, size_t groups, const __m512i v[16], const __m512 d[2], int32_t *x) {
    const __mmask16 m = hr_mask16(width);
    const __m512i one = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        if (g + i >= groups) return;
        int32_t *out = x + hr_int_line(groups, width, g + i, 0), *once = x + hr_int_line(groups, width, g + i, 8);
        const size_t apart = hr_int_line(groups, width, g + i, 9) - hr_int_line(groups, width, g + i, 8);
        __m512i first = zero, second = zero;
#pragma GCC unroll 8
        for (size_t s = 0; s < 8; s++) _mm512_mask_storeu_epi32(out + s * width, m, v[8 * i + s]);
#pragma GCC unroll 4
        for (size_t s = 0; s < 4; s++) {
            first = _mm512_dpbusd_epi32(first, one, v[8 * i + s]);
            second = _mm512_dpbusd_epi32(second, one, v[8 * i + 4 + s]);
        }
        const __m512i all = _mm512_add_epi32(first, second);
        const __m512i by_8 = _mm512_slli_epi32(all, 3), by_128 = _mm512_slli_epi32(all, 7);
        _mm512_mask_storeu_epi32(once + (HR_INT_START_128 - 8) * apart, m, _mm512_sub_epi32(zero, by_128));
        _mm512_mask_storeu_epi32(once + (HR_INT_START_8 - 8) * apart, m, _mm512_sub_epi32(zero, by_8));
        _mm512_mask_storeu_ps(once + (HR_INT_SCALE - 8) * apart, m, d[i]);
        _mm512_mask_storeu_ps(once + (HR_INT_SUM - 8) * apart, m, _mm512_mul_ps(d[i], _mm512_cvtepi32_ps(all)));
        first = _mm512_sub_epi32(zero, _mm512_slli_epi32(first, 5));
        second = _mm512_sub_epi32(zero, _mm512_slli_epi32(second, 5));
        _mm512_mask_storeu_epi32(once + (HR_INT_START_32 - 8) * apart, m, first);
        _mm512_mask_storeu_epi32(once + (HR_INT_START_32 - 7) * apart, m, second);
        int32_t *run = x + hr_int_runs(groups, width) + (g + i) / 4 * width;
        int32_t *block = x + hr_int_blocks(groups, width) + (g + i) / HR_INT_DEPTH * width;
        const __m512i r = (g + i) % 4 ? _mm512_maskz_loadu_epi32(m, run) : zero;
        const __m512i b = (g + i) % HR_INT_DEPTH ? _mm512_maskz_loadu_epi32(m, block) : zero;
        _mm512_mask_storeu_epi32(run, m, _mm512_sub_epi32(r, by_8));
        _mm512_mask_storeu_epi32(block, m, _mm512_sub_epi32(b, by_128));
    }
}

/* One token alone needs no transposition: its lines are single dwords. */
static void pack_one(const hr_acts *a, size_t t, int32_t *x) {
    const size_t groups = (a->k + 31) / 32, blocks = (groups + HR_INT_DEPTH - 1) / HR_INT_DEPTH;
    const int8_t *q = a->q + t * a->ld;
    const float *d = a->d + t * (a->ld / 32);
    const int32_t *sum = a->sum + t * (a->ld / 32);
    int32_t *runs = x + hr_int_runs(groups, 1), *block = x + hr_int_blocks(groups, 1);
    const __m256i one = _mm256_set1_epi8(1);
    memset(runs, 0, ((groups + 3) / 4 + blocks) * sizeof *runs);
    for (size_t g = 0; g < groups; g++) {
        int32_t *out = x + g * HR_INT_SLOTS;
        float *scale = (float *)out + HR_INT_SCALE;
        const __m256i v = _mm256_load_si256((const __m256i *)(q + 32 * g));
        _mm256_storeu_si256((__m256i *)out, v);
        __m128i half = _mm256_castsi256_si128(_mm256_dpbusd_epi32(_mm256_setzero_si256(), one, v));
        half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
        const int32_t first = _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
        out[HR_INT_START_128] = -128 * sum[g];
        out[HR_INT_START_8] = -8 * sum[g];
        scale[0] = a->type == HR_ACT_INT8 ? d[g] : 1;
        scale[HR_INT_SUM - HR_INT_SCALE] = scale[0] * (float)sum[g];
        out[HR_INT_START_32] = -32 * first;
        out[HR_INT_START_32 + 1] = -32 * (sum[g] - first);
        runs[g / 4] -= 8 * sum[g];
        block[g / HR_INT_DEPTH] -= 128 * sum[g];
    }
    ((float *)x)[hr_int_scales(groups, 1)] = d[0];
}

/* Scales of group g, one token a lane. */
HR_INLINE __m512 scales_of(const hr_acts *a, size_t t0, size_t have, size_t g) {
    if (a->type != HR_ACT_INT8) return _mm512_set1_ps(1);
    const __m512i at = _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                          _mm512_set1_epi32((int)(a->ld / 32)));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), hr_mask16(have), at, a->d + t0 * (a->ld / 32) + g, 4);
}

void hr_int_tile_pack_avx512(const hr_acts *a, size_t t0, size_t have, size_t width, int32_t *x) {
    const size_t groups = (a->k + 31) / 32;
    if (width == 1) {
        pack_one(a, t0, x);
        return;
    }
    for (size_t g = 0; g < groups; g += 2) {
        __m512i v[16];
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++)
            v[i] = i < have ? _mm512_load_si512(a->q + (t0 + i) * a->ld + 32 * g) : _mm512_setzero_si512();
        hr_transpose_16x16(v);
        const __m512 d[] = {scales_of(a, t0, have, g), scales_of(a, t0, have, g + 1 < groups ? g + 1 : g)};
        put_groups(width, g, groups, v, d, x);
    }
    float *scales = (float *)x + hr_int_scales(groups, width);
    for (size_t t = 0; t < width; t++) scales[t] = t < have ? a->d[(t0 + t) * (a->ld / 32)] : 0;
}

/* ---- tiles made from floats, where nobody reads the rows ---- */

/* v[i] of 12 vectors reduced to its maximum in lane i. */
HR_INLINE __m512i maxima(const __m512i v[HR_INT_TILE]) {
    __m512i four[4];
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) {
        const __m512i *r = v + 4 * i;
        const __m512i a = _mm512_max_epi32(_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
        const __m512i b = _mm512_max_epi32(_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
        four[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    }
    const __m512i low =
        _mm512_max_epi32(_mm512_shuffle_i32x4(four[0], four[1], 0x88), _mm512_shuffle_i32x4(four[0], four[1], 0xdd));
    const __m512i high =
        _mm512_max_epi32(_mm512_shuffle_i32x4(four[2], four[2], 0x88), _mm512_shuffle_i32x4(four[2], four[2], 0xdd));
    return _mm512_max_epi32(_mm512_shuffle_i32x4(low, high, 0x88), _mm512_shuffle_i32x4(low, high, 0xdd));
}

/* scale_of() of each lane; *inverse: 1 / scale, 0 where that is 0. */
HR_INLINE __m512 scales_of_most(__m512i most, float inverse[16]) {
    __m512 scale = _mm512_div_ps(_mm512_castsi512_ps(most), _mm512_set1_ps(127));
    const __mmask16 some = _mm512_cmp_ps_mask(scale, _mm512_set1_ps(FLT_MIN), _CMP_NLT_UQ);
    scale = _mm512_maskz_mov_ps(some, scale);
    _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(some, _mm512_set1_ps(1), scale));
    return scale;
}

/* quotients() as dwords; *near: some lane needs the division. */
HR_INLINE __m512i dwords_of(__m512 v, float inverse, __mmask16 *near) {
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    const __m512 y = _mm512_mul_ps(v, _mm512_set1_ps(inverse)), sum = _mm512_add_ps(y, magic);
    const __m512 off = _mm512_abs_ps(_mm512_sub_ps(y, _mm512_sub_ps(sum, magic)));
    *near |= _mm512_cmp_ps_mask(off, _mm512_set1_ps(0.4999f), _CMP_NLE_UQ);
    return _mm512_sub_epi32(_mm512_castps_si512(sum), _mm512_castps_si512(magic));
}

/* The 64 bytes of a token's two groups. Dword 4 l + i holds columns 16 i + 4 l ..: the order in which packing leaves them. */
HR_INLINE __m512i bytes_of(const group two[2], const float scale[2], const float inverse[2]) {
    __mmask16 near = 0;
    const __m512i a = dwords_of(two[0].lo, inverse[0], &near), b = dwords_of(two[0].hi, inverse[0], &near);
    const __m512i c = dwords_of(two[1].lo, inverse[1], &near), d = dwords_of(two[1].hi, inverse[1], &near);
    if (!near) return _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    int8_t q[64];
    for (size_t i = 0; i < 2; i++) quantize_group(two[i], scale[i], _mm512_set1_ps(inverse[i]), q + 32 * i);
    return _mm512_permutexvar_epi32(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0),
                                    _mm512_loadu_si512(q));
}

/* Token scales of an area: what fits all of each row. */
HR_INLINE __m512 row_scales(const float *x, size_t ldx, size_t k, size_t have, float inverse[16]) {
    __m512i most[HR_INT_TILE];
    for (size_t t = 0; t < HR_INT_TILE; t++) {
        most[t] = _mm512_setzero_si512();
        for (size_t c = 0; t < have && c < k; c += 32)
            most[t] = _mm512_max_epi32(most[t], magnitudes(load_group(x + t * ldx, k, c)));
    }
    return scales_of_most(maxima(most), inverse);
}

/* Floats that are asked for ahead of each of the rows, which are too many for a core to do so by itself. */
enum { ROW_AHEAD = 256 };

/* The area of tokens whose rows of x are `have`. The same bits as pack() makes of quantized rows. */
HR_INLINE void tile_of(bool by_row, const float *x, size_t ldx, size_t k, size_t have, int32_t *out) {
    const size_t groups = (k + 31) / 32;
    float inverse[2][16], scale[2][16];
    __m512 d[2] = {_mm512_set1_ps(1), _mm512_set1_ps(1)};
    if (by_row) {
        const __m512 all = row_scales(x, ldx, k, have, inverse[0]);
        memcpy(inverse[1], inverse[0], sizeof inverse[0]);
        _mm512_storeu_ps(scale[0], all), _mm512_storeu_ps(scale[1], all);
    }
    for (size_t g = 0; g < groups; g += 2) {
        __m512i v[16], most[2][HR_INT_TILE];
        if (!by_row) {
#pragma GCC unroll 12
            for (size_t t = 0; t < HR_INT_TILE; t++) {
                const float *row = x + (t < have ? t : 0) * ldx;
                for (size_t i = 0; i < 2; i++)
                    most[i][t] = t < have ? magnitudes(load_group(row, k, 32 * (g + i))) : _mm512_setzero_si512();
                for (size_t i = 0; i < 64; i += 16)
                    _mm_prefetch((const char *)(row + 32 * g + ROW_AHEAD + i), _MM_HINT_T0);
            }
            for (size_t i = 0; i < 2; i++) {
                d[i] = scales_of_most(maxima(most[i]), inverse[i]);
                _mm512_storeu_ps(scale[i], d[i]);
            }
        }
        for (size_t t = 0; t < 16; t++) {
            v[t] = _mm512_setzero_si512();
            if (t >= have) continue;
            const float *row = x + t * ldx;
            v[t] = bytes_of((group[]){load_group(row, k, 32 * g), load_group(row, k, 32 * g + 32)},
                            (float[]){scale[0][t], scale[1][t]}, (float[]){inverse[0][t], inverse[1][t]});
        }
        hr_transpose_16x16(v);
        __m512i lines[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) lines[i] = v[i % 4 * 4 + i / 4];
        put_groups(HR_INT_TILE, g, groups, lines, d, out);
        if (g == 0) memcpy(out + hr_int_scales(groups, HR_INT_TILE), scale[0], HR_INT_TILE * sizeof(float));
    }
}

/* Areas of tokens t0 .. t1 - 1: of the rows, or where nobody reads those, of the floats. */
static bool tiles_of(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    if (a->tile != HR_INT_TILE || !a->tiles_alone) return false;
    const size_t bytes = hr_acts_tile_bytes(a->type, a->tile, a->k);
    for (size_t t = t0; t < t1; t += HR_INT_TILE) {
        const size_t have = t1 - t < HR_INT_TILE ? t1 - t : HR_INT_TILE;
        int32_t *out = (int32_t *)(void *)((char *)a->tiles + t / HR_INT_TILE * bytes);
        if (a->type == HR_ACT_INT8)
            tile_of(false, x + t * ldx, ldx, a->k, have, out);
        else
            tile_of(true, x + t * ldx, ldx, a->k, have, out);
    }
    return true;
}

static void pack(hr_acts *a, size_t t0, size_t t1) {
    if (!a->tile) return;
    const size_t bytes = hr_acts_tile_bytes(a->type, a->tile, a->k);
    for (size_t t = t0; t < t1; t += a->tile)
        hr_int_tile_pack_avx512(a, t, t1 - t < a->tile ? t1 - t : a->tile, a->tile,
                                (int32_t *)((char *)a->tiles + t / a->tile * bytes));
}

void hr_acts_int8_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    if (tiles_of(a, x, ldx, t0, t1)) return;
    for (size_t t = t0; t < t1; t++) quantize_blocks(a, x + t * ldx, t);
    pack(a, t0, t1);
}

void hr_acts_int8_row_avx512(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    if (tiles_of(a, x, ldx, t0, t1)) return;
    for (size_t t = t0; t < t1; t++) quantize_row(a, x + t * ldx, t);
    pack(a, t0, t1);
}
