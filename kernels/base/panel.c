#include "kernels/base/panel.h"

#include <string.h>

enum { FLOAT_COLS = 8, Q6_K_LOW = 2048, Q6_K_HIGH = 1024, Q6_K_SCALES = 256 };

/* ---- sizes ---- */

static bool is_float(hr_dtype t) {
    return t == HR_F32 || t == HR_F16 || t == HR_BF16;
}

static bool is_int8(hr_dtype t) {
    return t == HR_I8G32 || t == HR_I8ROW || t == HR_Q8_0;
}

size_t hr_panel_cols(hr_dtype t, size_t cols) {
    const size_t to = is_float(t) ? FLOAT_COLS : hr_dtypes[t].block_elems;
    return (cols + to - 1) / to * to;
}

size_t hr_panel_groups(hr_dtype t, size_t cols) {
    if (is_float(t)) return 0;
    if (hr_dtypes[t].group) return hr_row_scales(t, cols);
    return cols / hr_dtypes[t].block_elems;
}

size_t hr_panel_bytes(hr_dtype t, size_t cols) {
    const size_t k = hr_panel_cols(t, cols);
    if (t == HR_F32) return k * HR_PANEL * 4;
    if (is_float(t)) return k * HR_PANEL * 2;
    if (is_int8(t)) return k * HR_PANEL;
    if (t == HR_Q6_K) return k / 256 * (Q6_K_LOW + Q6_K_HIGH + Q6_K_SCALES);
    return k / 2 * HR_PANEL;
}

size_t hr_panel_scales(hr_dtype t, size_t cols) {
    return hr_panel_groups(t, cols) * (t == HR_Q4_1 ? 2 : 1) * HR_PANEL;
}

/* ---- rows of any type seen as small integers and scales ---- */

static inline uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* 32 nibbles as GGUF blocks hold them: byte i has elements i and i + 16. */
static inline void nibbles(const uint8_t *p, uint8_t *q) {
    for (int i = 0; i < 16; i++) q[i] = p[i] & 15, q[i + 16] = p[i] >> 4;
}

/* Low and high nibbles of 8 columns of one row into the four bytes of its place. */
static inline void put_nibbles(const uint8_t *q, size_t cols, uint8_t *panel, size_t r) {
    for (size_t c = 0; c < cols; c += 8)
        for (size_t j = 0; j < 4; j++) panel[(c / 8 * HR_PANEL + r) * 4 + j] = (uint8_t)(q[c + j] | q[c + 4 + j] << 4);
}

static inline uint8_t get_nibble(const uint8_t *panel, size_t c, size_t r) {
    const uint8_t b = panel[(c / 8 * HR_PANEL + r) * 4 + c % 4];
    return c % 8 < 4 ? b & 15 : b >> 4;
}

/* The 6-bit values of a block of 256 in order of columns (dtype.c says how a block holds them). */
static void q6_k_values(const uint8_t *b, uint8_t *q) {
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
        const int low = b[64 * half + (quarter & 1) * 32 + j] >> (quarter & 2) * 2 & 15;
        const int high = b[128 + 32 * half + j] >> 2 * quarter & 3;
        q[i] = (uint8_t)(low | high << 4);
    }
}

/* ---- packing ---- */

static void pack_floats(hr_dtype t, const uint8_t *p, size_t cols, uint8_t *data, size_t r) {
    const size_t size = t == HR_F32 ? 4 : 2, pair = t == HR_BF16 ? 2 : 1;
    for (size_t c = 0; c < cols; c++)
        memcpy(data + ((c / pair * HR_PANEL + r) * pair + c % pair) * size, p + c * size, size);
}

static void pack_int8(hr_dtype t, const uint8_t *p, size_t cols, uint8_t *data, uint16_t *scales, size_t r) {
    for (size_t g = 0; g < cols / 32; g++) {
        const uint8_t *q = t == HR_Q8_0 ? p + 34 * g + 2 : p + 32 * g;
        if (t == HR_Q8_0) scales[g * HR_PANEL + r] = load_u16(p + 34 * g);
        for (size_t i = 0; i < 32; i++) data[((32 * g + i) / 4 * HR_PANEL + r) * 4 + i % 4] = (uint8_t)(q[i] ^ 0x80);
    }
}

static void pack_int4(hr_dtype t, const uint8_t *p, size_t cols, uint8_t *data, uint16_t *scales, size_t r) {
    const size_t bytes = hr_dtypes[t].block_bytes;
    uint8_t q[32];
    for (size_t g = 0; g < cols / 32; g++, p += bytes) {
        if (t == HR_Q4_0) scales[g * HR_PANEL + r] = load_u16(p);
        if (t == HR_Q4_1)
            scales[2 * g * HR_PANEL + r] = load_u16(p), scales[(2 * g + 1) * HR_PANEL + r] = load_u16(p + 2);
        nibbles(p + bytes - 16, q);
        put_nibbles(q, 32, data + 4 * g * HR_PANEL * 4, r);
    }
}

static void pack_q6_k(const uint8_t *p, size_t cols, uint8_t *data, uint16_t *scales, size_t r) {
    uint8_t q[256], low[256];
    for (size_t b = 0; b < cols / 256; b++, p += 210) {
        uint8_t *high = data + Q6_K_LOW, *scale = high + Q6_K_HIGH;
        q6_k_values(p, q);
        for (int i = 0; i < 256; i++) low[i] = q[i] & 15;
        put_nibbles(low, 256, data, r);
        for (size_t c = 0; c < 256; c++)
            high[(c / 16 * HR_PANEL + r) * 4 + c % 4] |= (uint8_t)(q[c] >> 4 << c % 16 / 4 * 2);
        for (size_t i = 0; i < 16; i++) scale[i * HR_PANEL + r] = p[192 + i];
        scales[b * HR_PANEL + r] = load_u16(p + 208);
        data += Q6_K_LOW + Q6_K_HIGH + Q6_K_SCALES;
    }
}

void hr_panel_pack(const hr_mat *src, size_t row0, uint8_t *data, uint16_t *scales) {
    const hr_dtype t = src->dtype;
    const size_t groups = hr_row_scales(t, src->cols);
    const size_t rows = src->rows - row0 < HR_PANEL ? src->rows - row0 : HR_PANEL;
    memset(data, 0, hr_panel_bytes(t, src->cols));
    if (scales) memset(scales, 0, hr_panel_scales(t, src->cols) * sizeof *scales);
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *p = hr_mat_row(src, row0 + r);
        if (is_float(t))
            pack_floats(t, p, src->cols, data, r);
        else if (is_int8(t))
            pack_int8(t, p, src->cols, data, scales, r);
        else if (t == HR_Q6_K)
            pack_q6_k(p, src->cols, data, scales, r);
        else
            pack_int4(t, p, src->cols, data, scales, r);
        if (!hr_dtypes[t].group) continue;
        const uint16_t *s = hr_mat_scales(src, row0 + r);
        for (size_t g = 0; g < groups; g++) scales[g * HR_PANEL + r] = s[g];
    }
}

/* ---- dequantization ---- */

static void row_floats(hr_dtype t, const uint8_t *data, size_t r, size_t cols, float *out) {
    const size_t size = t == HR_F32 ? 4 : 2, pair = t == HR_BF16 ? 2 : 1;
    for (size_t c = 0; c < cols; c++) {
        const uint8_t *p = data + ((c / pair * HR_PANEL + r) * pair + c % pair) * size;
        if (t == HR_F32)
            memcpy(out + c, p, sizeof *out);
        else
            out[c] = t == HR_BF16 ? hr_bf16_to_f32(load_u16(p)) : hr_f16_to_f32(load_u16(p));
    }
}

static void quants_q6_k(const uint8_t *data, const uint16_t *scales, size_t r, size_t cols, int8_t *q, float *scale) {
    for (size_t b = 0; b < cols / 256; b++, q += 256, scale += 16) {
        const uint8_t *high = data + Q6_K_LOW;
        const int8_t *s = (const int8_t *)high + Q6_K_HIGH;
        const float d = hr_f16_to_f32(scales[b * HR_PANEL + r]);
        for (size_t i = 0; i < 16; i++) scale[i] = d * (float)s[i * HR_PANEL + r];
        for (size_t c = 0; c < 256; c++) {
            const int top = high[(c / 16 * HR_PANEL + r) * 4 + c % 4] >> c % 16 / 4 * 2 & 3;
            q[c] = (int8_t)((get_nibble(data, c, r) | top << 4) - 32);
        }
        data += Q6_K_LOW + Q6_K_HIGH + Q6_K_SCALES;
    }
}

void hr_panel_row_quants(const hr_mat *m, size_t row, int8_t *q, float *scale) {
    const hr_dtype t = m->dtype;
    const size_t r = row % HR_PANEL;
    const uint8_t *data = hr_panel_data(m, row / HR_PANEL);
    if (t == HR_Q6_K)
        quants_q6_k(data, hr_panel_scale(m, row / HR_PANEL), r, m->cols, q, scale);
    else if (is_int8(t))
        for (size_t c = 0; c < m->cols; c++) q[c] = (int8_t)(data[(c / 4 * HR_PANEL + r) * 4 + c % 4] ^ 0x80);
    else
        for (size_t c = 0; c < m->cols; c++) q[c] = (int8_t)(get_nibble(data, c, r) - (t == HR_Q4_1 ? 0 : 8));
}

static void row_q6_k(const uint8_t *data, const uint16_t *scales, size_t r, size_t cols, float *out) {
    int8_t q[256];
    float scale[16];
    for (size_t b = 0; b < cols / 256; b++, out += 256) {
        quants_q6_k(data, scales + b * HR_PANEL, r, 256, q, scale);
        for (size_t c = 0; c < 256; c++) out[c] = scale[c / 16] * (float)q[c];
        data += Q6_K_LOW + Q6_K_HIGH + Q6_K_SCALES;
    }
}

void hr_panel_row_f32(const hr_mat *m, size_t row, float *out) {
    const hr_dtype t = m->dtype;
    const size_t r = row % HR_PANEL, cols = m->cols;
    const uint8_t *data = hr_panel_data(m, row / HR_PANEL);
    if (is_float(t)) {
        row_floats(t, data, r, cols, out);
        return;
    }
    const uint16_t *scales = hr_panel_scale(m, row / HR_PANEL);
    if (t == HR_Q6_K) {
        row_q6_k(data, scales, r, cols, out);
        return;
    }
    const size_t group = hr_dtypes[t].group ? hr_dtypes[t].group : 32, step = t == HR_Q4_1 ? 2 * HR_PANEL : HR_PANEL;
    for (size_t c = 0; c < cols; c++) {
        const uint16_t *s = scales + (group == HR_GROUP_ROW ? 0 : c / group * step) + r;
        const float d = hr_f16_to_f32(*s), m0 = t == HR_Q4_1 ? hr_f16_to_f32(s[HR_PANEL]) : 0;
        const int q = is_int8(t) ? data[(c / 4 * HR_PANEL + r) * 4 + c % 4] - 128 : get_nibble(data, c, r);
        out[c] = (float)(q - (is_int8(t) || t == HR_Q4_1 ? 0 : 8)) * d + m0;
    }
}
