/* Matrix products and preparation of activations in plain C: every weight type with every activation type. These rows
 * are the reference of all other ISAs and the fallback where an ISA has no row of its own. */
#include "kernels/base/panel.h"
#include "kernels/cpu/matmul_common.h"
#include <float.h>
#include <string.h>

size_t hr_matmul_scratch(size_t cols, size_t n) {
    const size_t k = hr_padded_cols(cols), block = HR_TOKEN_BLOCK, few = HR_TOKEN_BLOCK / 4;
    const size_t tokens = hr_align_up(n < block ? n : block, 12);
    /* A panel of weights and its scales; rows converted to floats; a block of tokens as floats or as int8 with scales
     * and sums; a few tokens expanded from int8 to floats. */
    return ((size_t)512 << 10) + 24 * k + tokens * 5 * k + (tokens < few ? tokens : few) * 4 * k;
}

/* ---- activations ---- */

static void acts_f32(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        float *out = a->f32 + t * a->ld;
        memcpy(out, x + t * ldx, a->k * sizeof *out);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
}

static void acts_bf16(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    for (size_t t = t0; t < t1; t++) {
        uint16_t *out = a->bf16 + t * a->ld;
        for (size_t i = 0; i < a->k; i++) out[i] = hr_f32_to_bf16(x[t * ldx + i]);
        memset(out + a->k, 0, (a->ld - a->k) * sizeof *out);
    }
}

static inline uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* Bits of the largest |x| of 32. The maximum is taken on the bits, where a NaN is largest, so that it reaches d and the
 * result instead of vanishing. */
static int32_t most_of(const float *x) {
    int32_t most = 0;
    for (int i = 0; i < 32; i++) {
        const int32_t a = (int32_t)(bits_of(x[i]) & 0x7fffffffu);
        most = a > most ? a : most;
    }
    return most;
}

/* A d below the normal numbers counts as 0: with subnormals flushed x / d would be infinite. */
static float scale_of(int32_t most) {
    float scale;
    memcpy(&scale, &most, sizeof scale);
    scale /= 127;
    return scale < FLT_MIN ? 0 : scale;
}

/* One group of 32 at a scale; returns the sum of q. */
static int32_t quantize_group(const float *x, float scale, int8_t *q) {
    int32_t total = 0;
    if (scale == 0) {
        memset(q, 0, 32);
        return 0;
    }
    for (int i = 0; i < 32; i++) { /* adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits */
        const int32_t v = (int8_t)(bits_of(x[i] / scale + 12582912.0f) - 0x4b400000u);
        q[i] = (int8_t)v;
        total += v;
    }
    return total;
}

/* 32 values from column c on, zero past the last. */
static void group_at(const float *x, size_t k, size_t c, float *part) {
    const size_t have = c < k ? (k - c < 32 ? k - c : 32) : 0;
    memset(part, 0, 32 * sizeof *part);
    if (have) memcpy(part, x + c, have * sizeof *part);
}

static void acts_int8(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    float part[32];
    for (size_t t = t0; t < t1; t++) {
        for (size_t c = 0; c < a->ld; c += 32) {
            const size_t g = t * (a->ld / 32) + c / 32;
            group_at(x + t * ldx, a->k, c, part);
            a->d[g] = scale_of(most_of(part));
            a->sum[g] = quantize_group(part, a->d[g], a->q + t * a->ld + c);
        }
    }
}

static void acts_int8_row(hr_acts *a, const float *x, size_t ldx, size_t t0, size_t t1) {
    float part[32];
    for (size_t t = t0; t < t1; t++) {
        int32_t most = 0;
        for (size_t c = 0; c < a->k; c += 32) {
            group_at(x + t * ldx, a->k, c, part);
            const int32_t here = most_of(part);
            most = here > most ? here : most;
        }
        const float scale = scale_of(most);
        for (size_t c = 0; c < a->ld; c += 32) {
            const size_t g = t * (a->ld / 32) + c / 32;
            group_at(x + t * ldx, a->k, c, part);
            a->d[g] = scale;
            a->sum[g] = quantize_group(part, scale, a->q + t * a->ld + c);
        }
    }
}

/* ---- products ---- */

static void store(const hr_matmul *m, size_t t, size_t row, float value) {
    float *y = m->y + t * m->ldy + row;
    *y = m->add ? *y + value : value;
}

/* Sixteen partial sums: the compiler may keep them in vectors without being allowed to reorder one sum. */
static float sum_16(const float *part) {
    float sum = 0;
    for (int j = 0; j < 16; j++) sum += part[j];
    return sum;
}

static float dot_f32(const float *w, const float *x, size_t k) {
    float part[16] = {0};
    size_t c = 0;
    for (; c + 16 <= k; c += 16)
        for (int j = 0; j < 16; j++) part[j] += w[c + j] * x[c + j];
    for (int j = 0; c < k; c++, j++) part[j] += w[c] * x[c];
    return sum_16(part);
}

static float dot_bf16(const float *w, const uint16_t *x, size_t k) {
    float part[16] = {0};
    size_t c = 0;
    for (; c + 16 <= k; c += 16)
        for (int j = 0; j < 16; j++) part[j] += w[c + j] * hr_bf16_to_f32(x[c + j]);
    for (int j = 0; c < k; c++, j++) part[j] += w[c] * hr_bf16_to_f32(x[c]);
    return sum_16(part);
}

static void matmul_f32(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    for (size_t row = row0; row < row1; row++) {
        hr_mat_row_f32(m->w, row, scratch);
        for (size_t t = 0; t < x->n; t++) store(m, t, row, dot_f32(scratch, x->f32 + t * x->ld, x->k));
    }
}

static void matmul_bf16(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    for (size_t row = row0; row < row1; row++) {
        hr_mat_row_f32(m->w, row, scratch);
        for (size_t t = 0; t < x->n; t++) store(m, t, row, dot_bf16(scratch, x->bf16 + t * x->ld, x->k));
    }
}

/* Float weights with int8 activations: the group's products in f32, scaled once. */
static void matmul_int8_float(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    const float *w = scratch;
    for (size_t row = row0; row < row1; row++) {
        hr_mat_row_f32(m->w, row, scratch);
        for (size_t t = 0; t < x->n; t++) {
            const int8_t *q = x->q + t * x->ld;
            const float *d = x->d + t * (x->ld / 32);
            float sum = 0;
            for (size_t c = 0; c < x->k; c += 32) {
                const size_t n = x->k - c < 32 ? x->k - c : 32;
                float part = 0;
                for (size_t i = 0; i < n; i++) part += w[c + i] * (float)q[c + i];
                sum += part * d[c / 32];
            }
            store(m, t, row, sum);
        }
    }
}

/* One row of quantized weights: value = q * scale + min. Groups of 16 in Q6_K, else of 32. */
typedef struct int_row {
    int8_t *q;    /* [cols] */
    float *scale; /* [cols / group] */
    float *min;   /* [cols / 32] */
    size_t group;
} int_row;

static uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static void nibbles(const uint8_t *p, int offset, int8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((p[i] & 15) - offset);
        q[i + 16] = (int8_t)((p[i] >> 4) - offset);
    }
}

static void unpack_q6_k(const uint8_t *b, int8_t *q, float *scale) {
    const float d = hr_f16_to_f32(load_u16(b + 208));
    for (int i = 0; i < 16; i++) scale[i] = d * (float)(int8_t)b[192 + i];
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
        const int low = b[64 * half + (quarter & 1) * 32 + j] >> (quarter & 2) * 2 & 15;
        const int high = b[128 + 32 * half + j] >> 2 * quarter & 3;
        q[i] = (int8_t)((low | high << 4) - 32);
    }
}

/* A row of a matrix in panels: quants without their offset, scales as stored. */
static void unpack_panel_row(const hr_mat *m, size_t row, int_row *r) {
    const size_t lane = row % HR_PANEL, step = m->dtype == HR_Q4_1 ? 2 * HR_PANEL : HR_PANEL;
    const size_t group = hr_dtypes[m->dtype].group ? hr_dtypes[m->dtype].group : 32;
    const uint16_t *s = hr_panel_scale(m, row / HR_PANEL) + lane;
    hr_panel_row_quants(m, row, r->q, r->scale);
    if (m->dtype == HR_Q6_K) return; /* its scales are there */
    for (size_t g = 0; g < m->cols / 32; g++) {
        const uint16_t *at = s + (group == HR_GROUP_ROW ? 0 : 32 * g / group * step);
        r->scale[g] = hr_f16_to_f32(*at);
        if (m->dtype == HR_Q4_1) r->min[g] = hr_f16_to_f32(at[HR_PANEL]);
    }
}

static void unpack_row(const hr_mat *m, size_t row, int_row *r) {
    r->group = m->dtype == HR_Q6_K ? 16 : 32;
    if (m->order == HR_ORDER_PANELS) {
        unpack_panel_row(m, row, r);
        return;
    }
    const uint8_t *p = hr_mat_row(m, row);
    const uint16_t *s = hr_dtypes[m->dtype].group ? hr_mat_scales(m, row) : NULL;
    const size_t group = hr_dtypes[m->dtype].group;
    const size_t blocks = m->cols / hr_dtypes[m->dtype].block_elems, bytes = hr_dtypes[m->dtype].block_bytes;
    for (size_t b = 0; b < blocks; b++, p += bytes) {
        const size_t at = group == HR_GROUP_ROW ? 0 : group ? 32 * b / group : 0;
        switch (m->dtype) {
        case HR_Q8_0:
            memcpy(r->q + 32 * b, p + 2, 32), r->scale[b] = hr_f16_to_f32(load_u16(p));
            break;
        case HR_I8G32:
        case HR_I8ROW:
            memcpy(r->q + 32 * b, p, 32), r->scale[b] = hr_f16_to_f32(s[at]);
            break;
        case HR_Q4_0:
            nibbles(p + 2, 8, r->q + 32 * b), r->scale[b] = hr_f16_to_f32(load_u16(p));
            break;
        case HR_I4G32:
        case HR_I4G128:
            nibbles(p, 8, r->q + 32 * b), r->scale[b] = hr_f16_to_f32(s[at]);
            break;
        case HR_Q4_1:
            nibbles(p + 4, 0, r->q + 32 * b), r->scale[b] = hr_f16_to_f32(load_u16(p));
            r->min[b] = hr_f16_to_f32(load_u16(p + 2));
            break;
        default:
            unpack_q6_k(p, r->q + 256 * b, r->scale + 16 * b);
        }
    }
}

static int32_t dot_int8(const int8_t *w, const int8_t *x, size_t n) {
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += w[i] * x[i];
    return sum;
}

static void matmul_int8(const hr_matmul *m, size_t row0, size_t row1, void *scratch) {
    const hr_acts *x = m->x;
    const size_t k = x->k;
    int_row r = {.q = scratch};
    r.scale = (float *)(r.q + hr_padded_cols(k));
    r.min = r.scale + hr_padded_cols(k) / 16;
    for (size_t row = row0; row < row1; row++) {
        unpack_row(m->w, row, &r);
        for (size_t t = 0; t < x->n; t++) {
            const int8_t *q = x->q + t * x->ld;
            const float *d = x->d + t * (x->ld / 32);
            const int32_t *total = x->sum + t * (x->ld / 32);
            float sum = 0;
            for (size_t g = 0; g < k / 32; g++) {
                float part;
                if (r.group == 16)
                    part = (float)dot_int8(r.q + 32 * g, q + 32 * g, 16) * r.scale[2 * g] +
                           (float)dot_int8(r.q + 32 * g + 16, q + 32 * g + 16, 16) * r.scale[2 * g + 1];
                else
                    part = (float)dot_int8(r.q + 32 * g, q + 32 * g, 32) * r.scale[g];
                if (m->w->dtype == HR_Q4_1) part += r.min[g] * (float)total[g];
                sum += part * d[g];
            }
            store(m, t, row, sum);
        }
    }
}

/* clang-format off */
#define ACTS(kind, type) {.family = HR_FAM_ACTS, .name = "acts_" #kind "_generic", .isa = HR_ISA_GENERIC, .act = type, \
                          .unit = HR_UNIT_FP32, .fn.acts = acts_##kind}
#define MATMUL(title, kind, set, type, where) {.family = HR_FAM_MATMUL, .name = "matmul_" title "_generic", \
                          .isa = HR_ISA_GENERIC, .orders = HR_IN_ANY, .dtypes = set, .act = type, .unit = where, \
                          .fn.matmul = matmul_##kind}
const hr_kernel hr_kernels_matmul_generic[] = {
    ACTS(f32, HR_ACT_F32),
    ACTS(bf16, HR_ACT_BF16),
    ACTS(int8, HR_ACT_INT8),
    ACTS(int8_row, HR_ACT_INT8_ROW),
    MATMUL("f32", f32, HR_SET_ALL | HR_SET_WIDE, HR_ACT_F32, HR_UNIT_FP32),
    MATMUL("bf16", bf16, HR_SET_ALL | HR_SET_WIDE, HR_ACT_BF16, HR_UNIT_FP32),
    MATMUL("int8_float", int8_float, HR_SET_FLOAT, HR_ACT_INT8, HR_UNIT_FP32),
    MATMUL("int8_row_float", int8_float, HR_SET_FLOAT, HR_ACT_INT8_ROW, HR_UNIT_FP32),
    MATMUL("int8", int8, HR_SET_QUANT | HR_SET_WIDE, HR_ACT_INT8, HR_UNIT_INT8),
    MATMUL("int8_row", int8, HR_SET_QUANT | HR_SET_WIDE, HR_ACT_INT8_ROW, HR_UNIT_INT8),
    {.name = NULL},
};
/* clang-format on */
