/* test_kernels.h - what the kernels of the tests of the machine are given (test_kernels.cu). */
#ifndef HR_TEST_KERNELS_H
#define HR_TEST_KERNELS_H

#include <stdint.h>

/* test_row_sum: y[row] = sum of x[row][cols]; grid: rows, shared memory: 4 cols bytes. */
typedef struct hr_test_sum {
    const float *x; /* [rows][cols] */
    float *y;       /* [rows] */
    uint32_t cols;
} hr_test_sum;

#endif
