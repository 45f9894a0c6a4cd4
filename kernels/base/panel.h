/* panel.h - weights in panels of 16 rows, the order in which all fast matrix kernels read them.
 *
 * One 64-byte line holds 16 rows side by side, so that a kernel broadcasts an activation and needs no horizontal sum;
 * the same panel serves one token and many. Bits a weight are those of the row order; scales have lines of their own.
 * Panel p holds rows 16 p .. 16 p + 15; rows past the last are zero. Columns are filled up with zeros to a multiple of 8
 * (floats) or of block_elems. K is that padded number of columns.
 *
 *   type                 data of a panel                                   scales of a panel (f16)
 *   F32                  [K][16] float                                     none
 *   BF16                 [K / 2][16][2]: row r's pair of columns           none
 *   F16                  [K][16]                                           none
 *   I8G32, I8ROW, Q8_0   [K / 4][16][4] unsigned, q + 128                  [groups][16]
 *   I4G32, I4G128, Q4_0  [K / 8][16][4]: byte j of row r is columns 8 i + j (low nibble) and 8 i + 4 + j (high nibble);
 *                        nibble = q + 8                                    [groups][16]
 *   Q4_1                 the same, nibble = q (0..15), value = q d + m     [groups][2][16]: d, then m
 *   Q6_K                 per block of 256 columns, lines one after another: low four bits [32][16][4] as int4, then high
 *                        two bits [16][16][4]: byte j of row r is columns 16 i + j + {0, 4, 8, 12} from bit 0 up, then
 *                        scales of 16 columns [16][16] int8            [blocks][16]: d
 *
 * groups = ceil(cols / group) of the type (I8ROW: 1). Lines of data start on 64 bytes when the matrix does, lines of
 * scales on 32. */
#ifndef HR_PANEL_H
#define HR_PANEL_H

#include "kernels/base/dtype.h"

enum { HR_PANEL = 16 }; /* rows of a panel */

static inline size_t hr_panel_count(size_t rows) {
    return (rows + HR_PANEL - 1) / HR_PANEL;
}
size_t hr_panel_cols(hr_dtype t, size_t cols);   /* K: padded */
size_t hr_panel_groups(hr_dtype t, size_t cols); /* lines of 16 scales; Q4_1: pairs of lines; 0: no scales */
size_t hr_panel_bytes(hr_dtype t, size_t cols);  /* data of one panel; a multiple of 64 */
size_t hr_panel_scales(hr_dtype t, size_t cols); /* f16 scales of one panel (16 or 32 a group) */

static inline const uint8_t *hr_panel_data(const hr_mat *m, size_t panel) {
    return (const uint8_t *)m->data + panel * hr_panel_bytes(m->dtype, m->cols);
}
static inline const uint16_t *hr_panel_scale(const hr_mat *m, size_t panel) {
    return m->scales + panel * hr_panel_scales(m->dtype, m->cols);
}

/* Packs rows row0 .. row0 + 15 (fewer at the end) of src, which lies in the order of rows, into the data and scales of
 * one panel. src may hold just these rows (row0 0). Any type; nothing is rounded. */
void hr_panel_pack(const hr_mat *src, size_t row0, uint8_t *data, uint16_t *scales);
/* The quants of one row of a quantized matrix in panels, their offset taken off, into q[cols]. Q6_K: also the scales of 16
 * columns times d into scale[cols / 16]. */
void hr_panel_row_quants(const hr_mat *m, size_t row, int8_t *q, float *scale);
/* Reference dequantization of one row of a matrix in panels: out[cols], the same floats as from the order of rows. */
void hr_panel_row_f32(const hr_mat *m, size_t row, float *out);

#endif
