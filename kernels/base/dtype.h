/* dtype.h - element types of weights, activations and KV, and the matrix that kernels see.
 *
 * Two kinds of quantized types. GGUF blocks (Q8_0, Q4_0, Q4_1, Q6_K) hold their scales inside the block, exactly as in
 * the file. Plane types (I8G32, I4G32: `--quant int8`, `int4`) keep quants and f16 scales in separate planes, so that
 * rows of quants stay aligned.
 *
 * A matrix lies in memory row by row (HR_ORDER_ROWS: as in a file) or in panels of 16 rows (HR_ORDER_PANELS, panel.h). */
#ifndef HR_DTYPE_H
#define HR_DTYPE_H

#include "kernels/base/both.h"
#include "kernels/base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* id, name, elements a block, bytes a block (of the quant plane), elements a scale of the scale plane (0: no plane) */
#define HR_DTYPE_LIST(X)                       \
    X(F32, "f32", 1, 4, 0)                     \
    X(F16, "f16", 1, 2, 0)                     \
    X(BF16, "bf16", 1, 2, 0)                   \
    X(Q8_0, "q8_0", 32, 34, 0)                 \
    X(Q4_0, "q4_0", 32, 18, 0)                 \
    X(Q4_1, "q4_1", 32, 20, 0)                 \
    X(Q6_K, "q6_k", 256, 210, 0)               \
    X(I8G32, "int8", 32, 32, 32)               \
    X(I4G32, "int4", 32, 16, 32)               \
    X(I8ROW, "int8-row", 32, 32, HR_GROUP_ROW) \
    X(I4G128, "int4-g128", 32, 16, 128)

enum { HR_GROUP_ROW = 65535 }; /* one scale for the whole row */

typedef enum hr_dtype {
#define X(id, name, elems, bytes, group) HR_##id,
    HR_DTYPE_LIST(X)
#undef X
        HR_DTYPE_COUNT,
    HR_I4KC = HR_DTYPE_COUNT /* of KV caches alone (kv_open.h): no matrix has it */
} hr_dtype;

typedef struct hr_dtype_info {
    const char *name;
    uint16_t block_elems, block_bytes, group;
} hr_dtype_info;
extern const hr_dtype_info hr_dtypes[HR_DTYPE_COUNT];

/* How activations enter matrix products (--act). */
typedef enum hr_act { HR_ACT_F32, HR_ACT_BF16, HR_ACT_INT8, HR_ACT_INT8_ROW, HR_ACT_COUNT } hr_act;

typedef enum hr_order { HR_ORDER_ROWS, HR_ORDER_PANELS, HR_ORDER_COUNT } hr_order;

/* A weight matrix of `rows` outputs and `cols` inputs: y[r] = sum_c w[r][c] x[c]. Borrows its memory.
 * In the order of rows, row r starts at data + r * hr_row_bytes(dtype, cols), with no alignment promised (a file's mapping);
 * its scales, for plane types, at scales + r * ceil(cols / group). cols is a multiple of block_elems; the last group may
 * be shorter.
 *
 * I8G32, I8ROW: int8 q[cols]; value = q * scale[c / group].
 * I4G32, I4G128: per 32 values sixteen bytes, low nibble of byte i is element i, high nibble element i + 16 (as in Q4_0);
 *        value = (nibble - 8) * scale[c / group], and the scale may be negative.
 * Both symmetric: zero is exact, no offset. |q| <= 127. */
typedef struct hr_mat {
    hr_dtype dtype;
    size_t rows, cols;
    const void *data;       /* [rows][row bytes], or panels */
    const uint16_t *scales; /* f16 [rows][groups], or of panels; NULL without a plane */
    hr_order order;
} hr_mat;

HR_BOTH static inline size_t hr_row_bytes(hr_dtype t, size_t cols) {
    return cols / hr_dtypes[t].block_elems * hr_dtypes[t].block_bytes;
}
HR_BOTH static inline size_t hr_row_scales(hr_dtype t, size_t cols) {
    const size_t group = hr_dtypes[t].group;
    return group == 0 ? 0 : group == HR_GROUP_ROW ? 1 : (cols + group - 1) / group;
}
HR_BOTH static inline const uint8_t *hr_mat_row(const hr_mat *m, size_t row) {
    return (const uint8_t *)m->data + row * hr_row_bytes(m->dtype, m->cols);
}
HR_BOTH static inline const uint16_t *hr_mat_scales(const hr_mat *m, size_t row) {
    return m->scales + row * hr_row_scales(m->dtype, m->cols);
}
/* Bytes read when the whole matrix is read once, scales included; the same in both orders (padding apart). */
HR_BOTH static inline size_t hr_mat_bytes(const hr_mat *m) {
    return m->rows * (hr_row_bytes(m->dtype, m->cols) + 2 * hr_row_scales(m->dtype, m->cols));
}

/* Scalar conversions; round to nearest even; exact where the target can hold the value. */
float hr_f16_to_f32(uint16_t h);
uint16_t hr_f32_to_f16(float f);
HR_BOTH static inline float hr_bf16_to_f32(uint16_t b) {
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)b << 16};
    return v.f;
}
uint16_t hr_f32_to_bf16(float f); /* NaN stays NaN */

/* Reference dequantization of one row: out[cols]. Any dtype, either order; vectorized by the compiler, used as the reference of all
 * matrix kernels and for conversion at load. */
void hr_mat_row_f32(const hr_mat *m, size_t row, float *out);

/* Whether every value of a row is a number (HR_ORDER_ROWS); reads what decides it, in quantized types the scales alone. */
bool hr_mat_row_is_finite(const hr_mat *m, size_t row);

/* Quantizes one row of cols floats to F32, F16, BF16 or a plane type, in the order of rows: data[row bytes], scales[row scales].
 * int8: d = max|x| / 127, q = round(x / d). int4: d = x of largest magnitude / -8, or over -7 or -9 where that
 * leaves a smaller sum of squared errors; q = round(x / d) in -8..7, + 8. The stored f16 d is the one
 * that is divided by, so that rounding d costs nothing. A group of zeros has d = 0. ERR_UNSUPPORTED for other types,
 * ERR_INPUT when cols is no multiple of the block or a value is not finite. */
hr_status hr_quantize_row(hr_dtype t, const float *x, size_t cols, void *data, uint16_t *scales);

#endif
