/* matmul_common.h - what the matrix kernels of all ISAs share: limits of the scratch memory and the shapes of tiles. */
#ifndef HR_MATMUL_COMMON_H
#define HR_MATMUL_COMMON_H

#include "kernels/base/memory.h"
#include "kernels/table.h"

/* Sets of hr_dtype, for hr_kernel.dtypes. */
enum {
    HR_SET_F32 = 1u << HR_F32,
    HR_SET_F16 = 1u << HR_F16,
    HR_SET_BF16 = 1u << HR_BF16,
    HR_SET_Q8_0 = 1u << HR_Q8_0,
    HR_SET_Q4_0 = 1u << HR_Q4_0,
    HR_SET_Q4_1 = 1u << HR_Q4_1,
    HR_SET_Q6_K = 1u << HR_Q6_K,
    HR_SET_I8G32 = 1u << HR_I8G32,
    HR_SET_I4G32 = 1u << HR_I4G32,
    HR_SET_I8ROW = 1u << HR_I8ROW,
    HR_SET_I4G128 = 1u << HR_I4G128,
    HR_SET_FLOAT = HR_SET_F32 | HR_SET_F16 | HR_SET_BF16,
    HR_SET_G32 = HR_SET_Q8_0 | HR_SET_Q4_0 | HR_SET_Q4_1 | HR_SET_I8G32 | HR_SET_I4G32,
    HR_SET_WIDE = HR_SET_I8ROW | HR_SET_I4G128, /* groups of more than 32 */
    HR_SET_QUANT = HR_SET_G32 | HR_SET_Q6_K,
    HR_SET_ALL = HR_SET_FLOAT | HR_SET_QUANT
};

/* Sets of hr_order, for hr_kernel.orders. */
enum { HR_IN_ROWS = 1u << HR_ORDER_ROWS, HR_IN_PANELS = 1u << HR_ORDER_PANELS, HR_IN_ANY = HR_IN_ROWS | HR_IN_PANELS };

/* GEMM kernels pack the weights of this many rows and the activations of up to this many tokens at a time. */
enum { HR_PANEL_ROWS = 32, HR_TOKEN_BLOCK = 264 };

/* Columns that scratch areas are made for: the tail of a row is filled up with zeros. */
static inline size_t hr_padded_cols(size_t cols) {
    return hr_align_up(cols, 256);
}

#endif
