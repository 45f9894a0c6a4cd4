#include "kernels/base/dtype.h"
#include "kernels/base/panel.h"
#include <float.h>
#include <math.h>
#include <string.h>

const hr_dtype_info hr_dtypes[HR_DTYPE_COUNT] = {
#define X(id, name, elems, bytes, group) [HR_##id] = {name, elems, bytes, group},
    HR_DTYPE_LIST(X)
#undef X
};

static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Without branches, so that loops over it vectorize. Normal numbers: the exponent is rebased. Subnormals: the fraction
 * is placed under an exponent at which one unit is 2^-24, and that exponent's one is taken away again. */
static inline float f16_value(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, body = (uint32_t)(h & 0x7fffu) << 13;
    const uint32_t exponent = body & 0x0f800000u;
    const uint32_t rebased = body + ((exponent == 0x0f800000u ? 255u - 31u : 127u - 15u) << 23);
    const uint32_t small = float_bits(bits_float(body + (113u << 23)) - bits_float(113u << 23));
    return bits_float(sign | (exponent ? rebased : small));
}

float hr_f16_to_f32(uint16_t h) {
    return f16_value(h);
}

uint16_t hr_f32_to_f16(float f) {
    const uint32_t u = float_bits(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);  /* NaN */
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and more round to infinity */
    if (a < 0x38800000u) /* below 2^-14: the addition rounds to a multiple of 2^-24, to even */
        return (uint16_t)(sign | (float_bits(bits_float(a) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13));
}

static inline uint16_t bf16_of(float f) {
    const uint32_t u = float_bits(f);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, nan = u >> 16 | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

uint16_t hr_f32_to_bf16(float f) {
    return bf16_of(f);
}

/* ---- dequantization ---- */

static inline uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static void row_f32(const uint8_t *p, size_t cols, float *out) {
    memcpy(out, p, cols * sizeof *out);
}

static void row_f16(const uint8_t *p, size_t cols, float *out) {
    for (size_t i = 0; i < cols; i++) out[i] = f16_value(load_u16(p + 2 * i));
}

static void row_bf16(const uint8_t *p, size_t cols, float *out) {
    for (size_t i = 0; i < cols; i++) out[i] = bits_float((uint32_t)load_u16(p + 2 * i) << 16);
}

static void group_i8(const uint8_t *q, float d, float *out) {
    for (int i = 0; i < 32; i++) out[i] = (float)(int8_t)q[i] * d;
}

/* Element i is the low nibble of byte i, element i + 16 the high one. */
static void group_i4(const uint8_t *q, int offset, float d, float min, float *out) {
    for (int i = 0; i < 16; i++) {
        out[i] = (float)((q[i] & 15) - offset) * d + min;
        out[i + 16] = (float)((q[i] >> 4) - offset) * d + min;
    }
}

/* 256 weights: low four bits [128], high two bits [64], int8 scales of 16 weights each [16], f16 d. Each half of 128
 * takes 64 bytes of low bits (32 weights in low nibbles, 32, then the same in high nibbles) and 32 of high bits. */
static void block_q6_k(const uint8_t *b, float *out) {
    const float d = f16_value(load_u16(b + 208));
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = b + 64 * half, *high = b + 128 + 32 * half;
        const int8_t *scale = (const int8_t *)b + 192 + 8 * half;
        float *o = out + 128 * half;
        for (int quarter = 0; quarter < 4; quarter++) {
            const uint8_t *l = low + (quarter & 1) * 32;
            const int shift = quarter & 2 ? 4 : 0;
            for (int i = 0; i < 32; i++) {
                const int q = (l[i] >> shift & 15) | (high[i] >> 2 * quarter & 3) << 4;
                o[32 * quarter + i] = d * (float)scale[2 * quarter + i / 16] * (float)(q - 32);
            }
        }
    }
}

/* Scale of the 32 values from column 32 g on, of a plane type. */
static inline float scale_at(const hr_mat *m, const uint16_t *scales, size_t g) {
    const size_t group = hr_dtypes[m->dtype].group;
    return f16_value(scales[group == HR_GROUP_ROW ? 0 : 32 * g / group]);
}

void hr_mat_row_f32(const hr_mat *m, size_t row, float *out) {
    if (m->order == HR_ORDER_PANELS) {
        hr_panel_row_f32(m, row, out);
        return;
    }
    const uint8_t *p = hr_mat_row(m, row);
    const size_t cols = m->cols;
    const uint16_t *scales = hr_dtypes[m->dtype].group ? hr_mat_scales(m, row) : NULL;
    switch (m->dtype) {
    case HR_F32:
        row_f32(p, cols, out);
        break;
    case HR_F16:
        row_f16(p, cols, out);
        break;
    case HR_BF16:
        row_bf16(p, cols, out);
        break;
    case HR_Q8_0:
        for (size_t g = 0; g < cols / 32; g++, p += 34) group_i8(p + 2, f16_value(load_u16(p)), out + 32 * g);
        break;
    case HR_Q4_0:
        for (size_t g = 0; g < cols / 32; g++, p += 18) group_i4(p + 2, 8, f16_value(load_u16(p)), 0, out + 32 * g);
        break;
    case HR_Q4_1:
        for (size_t g = 0; g < cols / 32; g++, p += 20)
            group_i4(p + 4, 0, f16_value(load_u16(p)), f16_value(load_u16(p + 2)), out + 32 * g);
        break;
    case HR_Q6_K:
        for (size_t b = 0; b < cols / 256; b++, p += 210) block_q6_k(p, out + 256 * b);
        break;
    case HR_I8G32:
    case HR_I8ROW:
        for (size_t g = 0; g < cols / 32; g++, p += 32) group_i8(p, scale_at(m, scales, g), out + 32 * g);
        break;
    case HR_I4G32:
    case HR_I4G128:
        for (size_t g = 0; g < cols / 32; g++, p += 16) group_i4(p, 8, scale_at(m, scales, g), 0, out + 32 * g);
        break;
    case HR_DTYPE_COUNT:
        break;
    }
}

/* ---- quantization ---- */

/* Largest |x| of 32, taken on the bits so that the loop vectorizes (no NaN comes here). */
static inline float abs_max_32(const float *x) {
    int32_t most = 0;
    for (int i = 0; i < 32; i++) {
        const int32_t a = (int32_t)(float_bits(x[i]) & 0x7fffffffu);
        most = a > most ? a : most;
    }
    return bits_float((uint32_t)most);
}

/* d for values up to `most` in -limit..limit, as stored and as divided by; 0 where f16 has nothing that small. */
static inline float stored_scale(float most, float limit, uint16_t *stored) {
    *stored = hr_f32_to_f16(fminf(most / limit, 65504.0f));
    return f16_value(*stored);
}

/* round(x / d) to even for 32 values, within low..high. Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
 * |d| is at least 2^-24 and x finite. */
static inline void round_32(const float *x, float d, float low, float high, int8_t *q) {
    for (int i = 0; i < 32; i++) {
        float v = x[i] / d;
        v = v < low ? low : v;
        v = v > high ? high : v;
        q[i] = (int8_t)(int32_t)(float_bits(v + 12582912.0f) - 0x4b400000u);
    }
}

static void quantize_i8(const float *x, size_t cols, int8_t *q, uint16_t *scales) {
    for (size_t g = 0; g < cols / 32; g++, x += 32, q += 32) {
        const float d = stored_scale(abs_max_32(x), 127, &scales[g]);
        if (d > 0)
            round_32(x, d, -127, 127, q);
        else
            memset(q, 0, 32);
    }
}

static void quantize_i8_row(const float *x, size_t cols, int8_t *q, uint16_t *scale) {
    float most = 0;
    for (size_t c = 0; c < cols; c += 32) most = fmaxf(most, abs_max_32(x + c));
    const float d = stored_scale(most, 127, scale);
    for (size_t c = 0; c < cols; c += 32) {
        if (d > 0)
            round_32(x + c, d, -127, 127, q + c);
        else
            memset(q + c, 0, 32);
    }
}

/* The value of largest magnitude among 32, with its sign. */
static inline float extreme_32(const float *x) {
    const float most = abs_max_32(x);
    float least = x[0];
    for (int i = 1; i < 32; i++) least = x[i] < least ? x[i] : least;
    return least == -most ? least : most;
}

/* Sum of squared errors of 32 values at step d (not 0), nibbles -8..7. */
static inline float error_i4(const float *x, float d) {
    const float inverse = 1 / d;
    float square[32];
    for (int i = 0; i < 32; i++) {
        float v = x[i] * inverse;
        v = v < -8 ? -8 : v;
        v = v > 7 ? 7 : v;
        const float e = ((v + 12582912.0f) - 12582912.0f) * d - x[i];
        square[i] = e * e;
    }
    for (int half = 16; half; half /= 2)
        for (int i = 0; i < half; i++) square[i] += square[i + half];
    return square[0];
}

/* Where on the scale of -8..7 the extreme value of n (a multiple of 32) is put: -8 uses all sixteen levels, the others
 * trade the extreme against the rest. The best of the three has 14 to 21 % less rms error on real weights than
 * max|x| / 7 (SmolLM2, groups of 32). */
static float best_scale_i4(const float *x, size_t n, uint16_t *stored) {
    static const float places[] = {-8, -9, -7};
    float extreme = 0, best = 0, least = INFINITY;
    for (size_t c = 0; c < n; c += 32) {
        const float here = extreme_32(x + c);
        extreme = fabsf(here) > fabsf(extreme) ? here : extreme;
    }
    *stored = 0;
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        const float wanted = fmaxf(fminf(extreme / places[k], 65504.0f), -65504.0f);
        const uint16_t h = hr_f32_to_f16(wanted);
        const float d = f16_value(h);
        if (d == 0) continue;
        float error = 0;
        for (size_t c = 0; c < n; c += 32) error += error_i4(x + c, d);
        if (error < least) least = error, best = d, *stored = h;
    }
    return best;
}

static void quantize_i4(const float *x, size_t cols, size_t group, uint8_t *out, uint16_t *scales) {
    int8_t q[32];
    float d = 0;
    for (size_t c = 0; c < cols; c += 32, out += 16) {
        const size_t left = cols - c;
        if (c % group == 0) d = best_scale_i4(x + c, left < group ? left : group, &scales[c / group]);
        if (d != 0)
            round_32(x + c, d, -8, 7, q);
        else
            memset(q, 0, sizeof q);
        for (int i = 0; i < 16; i++) out[i] = (uint8_t)((q[i] + 8) | (q[i + 16] + 8) << 4);
    }
}

/* ---- finite or not: infinities and NaN have all exponent bits set ---- */

/* The largest |bits| tells. */
static bool floats_finite(const uint8_t *p, size_t n) {
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, p + 4 * i, sizeof bits);
        const int32_t a = (int32_t)(bits & 0x7fffffffu);
        most = a > most ? a : most;
    }
    return most < 0x7f800000;
}

enum { F16_EXPONENT = 0x7c00, BF16_EXPONENT = 0x7f80 };

/* n 16-bit floats, `stride` bytes from one to the next. */
static inline bool halves_finite(const uint8_t *p, size_t n, size_t stride, unsigned exponent) {
    unsigned bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (load_u16(p + i * stride) & exponent) == exponent;
    return !bad;
}

bool hr_mat_row_is_finite(const hr_mat *m, size_t row) {
    const uint8_t *p = hr_mat_row(m, row);
    const size_t blocks = m->cols / hr_dtypes[m->dtype].block_elems;
    switch (m->dtype) {
    case HR_F32:
        return floats_finite(p, m->cols);
    case HR_F16:
        return halves_finite(p, m->cols, 2, F16_EXPONENT);
    case HR_BF16:
        return halves_finite(p, m->cols, 2, BF16_EXPONENT);
    case HR_Q8_0:
        return halves_finite(p, blocks, 34, F16_EXPONENT);
    case HR_Q4_0:
        return halves_finite(p, blocks, 18, F16_EXPONENT);
    case HR_Q4_1: /* scale and minimum */
        return halves_finite(p, blocks, 20, F16_EXPONENT) && halves_finite(p + 2, blocks, 20, F16_EXPONENT);
    case HR_Q6_K:
        return halves_finite(p + 208, blocks, 210, F16_EXPONENT);
    case HR_I8G32:
    case HR_I4G32:
    case HR_I8ROW:
    case HR_I4G128:
        return halves_finite((const uint8_t *)hr_mat_scales(m, row), hr_row_scales(m->dtype, m->cols), 2, F16_EXPONENT);
    case HR_DTYPE_COUNT:
        break;
    }
    return false;
}

hr_status hr_quantize_row(hr_dtype t, const float *x, size_t cols, void *data, uint16_t *scales) {
    uint16_t *half = data;
    if (cols % hr_dtypes[t].block_elems)
        HR_FAIL(HR_ERR_INPUT, "a row of %zu columns cannot be stored as %s, whose blocks have %u; choose another type",
                cols, hr_dtypes[t].name, hr_dtypes[t].block_elems);
    if (!floats_finite((const uint8_t *)x, cols))
        HR_FAIL(HR_ERR_INPUT, "a weight is infinite or not a number; the model file is broken");
    switch (t) {
    case HR_F32:
        memcpy(data, x, cols * sizeof *x);
        break;
    case HR_F16:
        for (size_t i = 0; i < cols; i++) half[i] = hr_f32_to_f16(x[i]);
        break;
    case HR_BF16:
        for (size_t i = 0; i < cols; i++) half[i] = bf16_of(x[i]);
        break;
    case HR_I8G32:
        quantize_i8(x, cols, data, scales);
        break;
    case HR_I8ROW:
        quantize_i8_row(x, cols, data, scales);
        break;
    case HR_I4G32:
    case HR_I4G128:
        quantize_i4(x, cols, hr_dtypes[t].group, data, scales);
        break;
    default:
        HR_FAIL(HR_ERR_UNSUPPORTED, "cannot quantize to %s; choose f32, f16, bf16 or one of the int8 and int4 types",
                hr_dtypes[t].name);
    }
    return HR_OK;
}
