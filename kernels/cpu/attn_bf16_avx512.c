/* attn_bf16_avx512.c - attention on the bf16 unit (vdpbf16ps), for caches of bf16 and of types that are converted to it
 * a tile at a time. Not for caches of f32: the exact run stays exact.
 *
 * Measured on Zen 5 (4.3 GHz), 32 heads, 8 of KV. One thread, prefill of 4096 at head dimension 64 / 128: f32 tile 187 /
 * 190 GFLOP/s; the same tile in bf16 348 / 375; blocks of 16 lanes contiguous, K in place, V fetched ahead 360 / 388
 * (66 / 71 % of the peak, the products alone run at 99 %, softmax takes 12 % of the time); 512 tokens 330 / 300. Tiles of
 * 128 rows instead of 64 are no faster. Decode at depth 16384, two threads, dimension 64: f32 rows 31 GB/s; bf16 44; rows
 * of known length unrolled and fetched during softmax as well 48, where plain reading gives 48 to 50. */
#include "kernels/cpu/attn_fours_avx512.h"

void hr_attn_exp2_avx512(const float *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 m = hr_mask16(n - i);
        _mm512_mask_storeu_ps(y + i, m, attn_exp2(_mm512_maskz_loadu_ps(m, x + i)));
    }
}

static void attn_flash_bf16(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    for (size_t i = unit0; i < unit1; i++) {
        const hr_attn_unit u = hr_attn_unit_at(a, i);
        attn_bf16_tile_unit(a, &u, scratch);
    }
}
/* Decode takes positions in fours: groups must begin where fours do. */
static bool attn_decode_takes_groups(const hr_attn *a, const hr_attn_unit *u) {
    return (u->from | a->kv->gone_from | a->kv->gone_to) % 4 == 0;
}
HR_INLINE void attn_decode_units(const bool contig, const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    for (size_t i = unit0; i < unit1; i++) {
        const hr_attn_unit u = hr_attn_unit_at(a, i);
        if (a->n_q != 1 || u.group > ATTN_DECODE_GROUP || (a->kv->open && !attn_decode_takes_groups(a, &u)))
            attn_bf16_tile_unit(a, &u, scratch);
        else if (!attn_fours_takes(a, &u))
            attn_decode_unit(a, &u, scratch);
        else if (contig && a->kv->g->layout == HR_KV_HEAD)
            attn_fours_unit(false, a, &u, scratch);
        else
            attn_fours_unit(true, a, &u, scratch);
    }
}
static void attn_decode_bf16(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_decode_units(false, a, unit0, unit1, scratch);
}
/* The yardstick of the run function: in the layout `head` nothing is looked up. */
static void attn_contig(const hr_attn *a, size_t unit0, size_t unit1, void *scratch) {
    attn_decode_units(true, a, unit0, unit1, scratch);
}

/* A cache of f16 is decoded in f32: that costs no time there and keeps its bits. */
enum {
    DECODE_TYPES = 1 << HR_BF16 | 1 << HR_Q8_0 | 1 << HR_I8ROW | 1 << HR_Q4_0 | 1 << HR_I4KC,
    TILE_TYPES = DECODE_TYPES | 1 << HR_F16
};

#define ATTN_BF16_ROW(text, types, least, most, order, function)                                                     \
    {                                                                                                                \
        .family = HR_FAM_ATTN, .name = text, .isa = HR_ISA_AVX512, .needs = HR_CPU_BF16, .dtypes = types, .act = -1, \
        .n_min = least, .n_max = most, .flash = true, .rank = order, .unit = HR_UNIT_BF16, .fn.attn = function       \
    }

/* clang-format off */
const hr_kernel hr_kernels_attn_bf16_avx512[] = {
    ATTN_BF16_ROW("attn_flash_bf16_avx512", TILE_TYPES, 2, 0, 30, attn_flash_bf16),
    ATTN_BF16_ROW("attn_decode_bf16_avx512", DECODE_TYPES, 0, 1, 30, attn_decode_bf16),
    ATTN_BF16_ROW("attn_contig_bf16_avx512", 1 << HR_BF16 | 1 << HR_Q8_0, 0, 1, -1, attn_contig),
    {.name = NULL}};
/* clang-format on */
