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

static inline uint8_t get_nibble(const uint8_t *panel, size_t c, size_t r) {
    const uint8_t b = panel[(c / 8 * HR_PANEL + r) * 4 + c % 4];
    return c % 8 < 4 ? b & 15 : b >> 4;
}

/* ---- packing: 4-byte words of 16 rows are transposed, then each line of 16 words becomes what the type wants ---- */

enum { WORDS = 16 }; /* of a row in one tile: 64 bytes */

typedef uint32_t word4 __attribute__((vector_size(16)));
typedef uint32_t tile[HR_PANEL][WORDS] __attribute__((aligned(64)));

/* out[w][r] = in[r][w], 4 x 4 words at a time: two rounds of interleaving. */
static inline void transpose(const tile in, tile out) {
    for (size_t r = 0; r < HR_PANEL; r += 4)
        for (size_t w = 0; w < WORDS; w += 4) {
            word4 a, b, c, d;
            memcpy(&a, &in[r][w], 16), memcpy(&b, &in[r + 1][w], 16);
            memcpy(&c, &in[r + 2][w], 16), memcpy(&d, &in[r + 3][w], 16);
            const word4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
            const word4 ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            const word4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
            const word4 cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
            a = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), b = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
            c = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), d = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
            memcpy(&out[w][r], &a, 16), memcpy(&out[w + 1][r], &b, 16);
            memcpy(&out[w + 2][r], &c, 16), memcpy(&out[w + 3][r], &d, 16);
        }
}

static const uint32_t LOW = 0x0f0f0f0f, HIGH = 0xf0f0f0f0, PAIR = 0x03030303;

/* Low (or high) nibbles of two words of a row, columns j and j + 4, as the bytes of one line. */
static inline void join_low(const uint32_t *a, const uint32_t *b, uint32_t *out) {
    for (size_t r = 0; r < HR_PANEL; r++) out[r] = (a[r] & LOW) | (b[r] & LOW) << 4;
}

static inline void join_high(const uint32_t *a, const uint32_t *b, uint32_t *out) {
    for (size_t r = 0; r < HR_PANEL; r++) out[r] = (a[r] >> 4 & LOW) | (b[r] & HIGH);
}

/* Words w0 .. w0 + n - 1 of a row's values, without what GGUF blocks hold beside them; zeros past the row's end. */
static inline void fetch(hr_dtype t, const uint8_t *p, size_t cols, size_t w0, size_t n, uint32_t *out) {
    const size_t bytes = hr_dtypes[t].block_bytes;
    if (t == HR_Q8_0) {
        for (size_t w = 0; w < n; w += 8) memcpy(out + w, p + (w0 + w) / 8 * bytes + 2, 32);
    } else if (t == HR_Q4_0 || t == HR_Q4_1) {
        for (size_t w = 0; w < n; w += 4) memcpy(out + w, p + (w0 + w) / 4 * bytes + bytes - 16, 16);
    } else if (n == WORDS && 4 * (w0 + n) <= hr_row_bytes(t, cols)) {
        memcpy(out, p + 4 * w0, 4 * WORDS);
    } else {
        const size_t left = hr_row_bytes(t, cols) - 4 * w0, some = left < 4 * n ? left : 4 * n;
        memcpy(out, p + 4 * w0, some), memset((char *)out + some, 0, 4 * n - some);
    }
}

/* n lines of the panel out of n transposed words. */
static inline void emit(hr_dtype t, const tile in, size_t n, uint32_t *out) {
    if (t == HR_F16) { /* a word is two columns: each column has a line of 16 halves */
        uint16_t *half = (uint16_t *)out;
        for (size_t w = 0; w < n; w++, half += 2 * HR_PANEL)
            for (size_t r = 0; r < HR_PANEL; r++)
                half[r] = (uint16_t)in[w][r], half[HR_PANEL + r] = (uint16_t)(in[w][r] >> 16);
    } else if (is_float(t)) {
        memcpy(out, in, n * sizeof in[0]);
    } else if (is_int8(t)) {
        for (size_t w = 0; w < n; w++, out += HR_PANEL)
            for (size_t r = 0; r < HR_PANEL; r++) out[r] = in[w][r] ^ 0x80808080;
    } else {
        for (size_t w = 0; w < n; w += 4, out += 4 * HR_PANEL) {
            join_low(in[w], in[w + 1], out), join_low(in[w + 2], in[w + 3], out + HR_PANEL);
            join_high(in[w], in[w + 1], out + 2 * HR_PANEL), join_high(in[w + 2], in[w + 3], out + 3 * HR_PANEL);
        }
    }
}

static inline void pack_values(hr_dtype t, const uint8_t *const *rows, size_t n, size_t cols, uint8_t *data) {
    const size_t words = hr_panel_bytes(t, cols) / (4 * HR_PANEL);
    tile in, out;
    memset(in, is_int8(t) ? 0x80 : 0, sizeof in); /* rows that are not there: zero bytes in the panel */
    for (size_t w = 0; w < words; w += WORDS) {
        const size_t some = words - w < WORDS ? words - w : WORDS;
        for (size_t r = 0; r < n; r++) fetch(t, rows[r], cols, w, some, in[r]);
        transpose(in, out);
        emit(t, out, some, (uint32_t *)(void *)(data + w * 4 * HR_PANEL));
    }
}

/* ql: 128 bytes. Per half of 128 columns 16 words: 32 columns each in the low nibbles of the first and the second
 * eight, then in their high nibbles. */
static void emit_q6_low(const tile *words, uint32_t *out) {
    for (size_t half = 0; half < 2; half++)
        for (size_t quarter = 0; quarter < 4; quarter++) {
            const uint32_t(*in)[HR_PANEL] = (const uint32_t(*)[HR_PANEL])words[half] + (quarter & 1) * 8;
            for (size_t i = 0; i < 4; i++, out += HR_PANEL)
                (quarter & 2 ? join_high : join_low)(in[2 * i], in[2 * i + 1], out);
        }
}

/* qh: 64 bytes. Per half 8 words whose two bits from bit 2 * quarter up belong to 32 columns. */
static void emit_q6_high(const tile words, uint32_t *out) {
    for (size_t line = 0; line < 16; line++, out += HR_PANEL) {
        const unsigned shift = line % 8 / 2 * 2;
        const uint32_t(*in)[HR_PANEL] = (const uint32_t(*)[HR_PANEL])words + line / 8 * 8 + line % 2 * 4;
        for (size_t r = 0; r < HR_PANEL; r++)
            out[r] = (in[0][r] >> shift & PAIR) | (in[1][r] >> shift & PAIR) << 2 | (in[2][r] >> shift & PAIR) << 4 |
                     (in[3][r] >> shift & PAIR) << 6;
    }
}

static void pack_q6_k(const uint8_t *const *rows, size_t n, size_t cols, uint8_t *data, uint16_t *scales) {
    tile in[3], out[3];
    memset(in, 0, sizeof in);
    for (size_t b = 0; b < cols / 256; b++, data += Q6_K_LOW + Q6_K_HIGH + Q6_K_SCALES, scales += HR_PANEL) {
        uint8_t *scale = data + Q6_K_LOW + Q6_K_HIGH;
        memset(scale, 0, Q6_K_SCALES);
        for (size_t r = 0; r < n; r++) {
            const uint8_t *p = rows[r] + 210 * b;
            for (size_t k = 0; k < 3; k++) memcpy(in[k][r], p + 64 * k, 64);
            for (size_t i = 0; i < 16; i++) scale[i * HR_PANEL + r] = p[192 + i];
            scales[r] = load_u16(p + 208);
        }
        for (size_t k = 0; k < 3; k++) transpose(in[k], out[k]);
        emit_q6_low(out, (uint32_t *)(void *)data);
        emit_q6_high(out[2], (uint32_t *)(void *)(data + Q6_K_LOW));
    }
}

/* f16 scales, `count` of them a row (Q4_1: d and m as two), `stride` bytes apart in the row. */
static inline void pack_scales(const uint8_t *p, size_t count, size_t stride, size_t r, size_t step, uint16_t *out) {
    for (size_t g = 0; g < count; g++) out[g * step + r] = load_u16(p + g * stride);
}

static void pack_row_scales(const hr_mat *src, size_t row, size_t r, uint16_t *scales) {
    const hr_dtype t = src->dtype;
    const size_t groups = hr_panel_groups(t, src->cols), bytes = hr_dtypes[t].block_bytes;
    if (hr_dtypes[t].group) {
        pack_scales((const uint8_t *)hr_mat_scales(src, row), groups, 2, r, HR_PANEL, scales);
        return;
    }
    const uint8_t *p = hr_mat_row(src, row);
    const size_t step = t == HR_Q4_1 ? 2 * HR_PANEL : HR_PANEL;
    pack_scales(p, groups, bytes, r, step, scales);
    if (t == HR_Q4_1) pack_scales(p + 2, groups, bytes, r, step, scales + HR_PANEL);
}

void hr_panel_pack(const hr_mat *src, size_t row0, uint8_t *data, uint16_t *scales) {
    const hr_dtype t = src->dtype;
    const size_t n = src->rows - row0 < HR_PANEL ? src->rows - row0 : HR_PANEL, cols = src->cols;
    const uint8_t *rows[HR_PANEL];
    for (size_t r = 0; r < n; r++) rows[r] = hr_mat_row(src, row0 + r);
    if (n < HR_PANEL && scales) memset(scales, 0, hr_panel_scales(t, cols) * sizeof *scales);
    switch (t) { /* one loop a type, with the type a constant */
#define X(id, ...)                                     \
    case HR_##id:                                      \
        if (HR_##id == HR_Q6_K)                        \
            pack_q6_k(rows, n, cols, data, scales);    \
        else                                           \
            pack_values(HR_##id, rows, n, cols, data); \
        break;
        HR_DTYPE_LIST(X)
#undef X
    case HR_DTYPE_COUNT:
        break;
    }
    if (is_float(t) || t == HR_Q6_K) return;
    for (size_t r = 0; r < n; r++) pack_row_scales(src, row0 + r, r, scales);
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
