/* matmul_avx2.h - the functions that the AVX2 rows of the table name, and the conversions that they share. */
#ifndef HR_MATMUL_AVX2_H
#define HR_MATMUL_AVX2_H

#include "kernels/cpu/matmul_common.h"

hr_acts_fn hr_acts_f32_avx2, hr_acts_bf16_avx2, hr_acts_int8_avx2, hr_acts_int8_row_avx2;
hr_matmul_fn hr_matmul_f32_avx2, hr_matmul_int8_avx2;

/* A row of quantized weights as signed bytes: value = q * scale + min. */
typedef struct hr_int_row {
    int8_t *q;    /* [cols] */
    float *scale; /* [cols / 32][2]: of the two halves of 16 that a group has (the same but in Q6_K) */
    float *min;   /* [cols / 32], Q4_1 only */
} hr_int_row;
void hr_row_int8_avx2(const hr_mat *m, size_t row, hr_int_row *out);

/* A row as floats; scratch for a row of integers: hr_int_row_bytes. */
void hr_row_f32_avx2(const hr_mat *m, size_t row, float *out, void *scratch);

/* out [n][x->ld] = tokens t0 .. t0 + n - 1 as floats: bf16 widened, int8 times its scale. */
void hr_acts_expand_avx2(const hr_acts *x, size_t t0, size_t n, float *out);

static inline size_t hr_int_row_bytes(size_t cols) {
    return hr_align_up(cols, 64) + hr_align_up(cols / 32 * 8, 64) + hr_align_up(cols / 32 * 4, 64);
}
static inline hr_int_row hr_int_row_view(void *memory, size_t cols) {
    hr_int_row r = {.q = memory};
    r.scale = (float *)((uint8_t *)memory + hr_align_up(cols, 64));
    r.min = (float *)((uint8_t *)r.scale + hr_align_up(cols / 32 * 8, 64));
    return r;
}

#endif
