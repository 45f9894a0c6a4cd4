/* attn_bf16_avx512.c - attention on the bf16 unit (vdpbf16ps), for caches of bf16 and, tiles of queries, of types that
 * are converted to it. Not for caches of f32: the exact run stays exact. */
#include "kernels/cpu/attn_tile_avx512.h"

static void attn_flash_bf16(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    for (size_t i = unit0; i < unit1; i++) {
        const hr_attn_unit u = hr_attn_unit_at(a, i);
        attn_bf16_tile_unit(a, &u, scratch);
    }
}

enum { BF16_TYPES = 1 << HR_BF16 | 1 << HR_F16 | 1 << HR_Q8_0 | 1 << HR_Q4_0 };

const hr_kernel hr_kernels_attn_bf16_avx512[] = {{.family = HR_FAM_ATTN,
                                                  .name = "attn_flash_bf16_avx512",
                                                  .isa = HR_ISA_AVX512,
                                                  .needs = HR_CPU_BF16,
                                                  .dtypes = BF16_TYPES,
                                                  .act = -1,
                                                  .n_min = 2,
                                                  .flash = true,
                                                  .rank = 30,
                                                  .unit = HR_UNIT_BF16,
                                                  .fn.attn = attn_flash_bf16},
                                                 {.name = NULL}};
