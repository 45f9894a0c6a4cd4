/* rows_attn.c - attention for GPUs: rows of the kernel table, and the shape of their launches. */
#include "kernels/cuda/attn_launch.h"
#include "kernels/table.h"

/* Every type that a cache may have; those of at most 2 bytes an element. */
#define NARROW (1u << HR_F16 | 1u << HR_BF16 | 1u << HR_Q8_0 | 1u << HR_I8ROW | 1u << HR_Q4_0 | 1u << HR_I4KC)
#define ALL    (NARROW | 1u << HR_F32)

static uint32_t at_least_one(uint32_t n) {
    return n ? n : 1;
}

static void naive_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    hr_cuda_attn *p = params;
    (void)caps;
    p->splits = 1, p->split_len = p->max_len;
    *out = (hr_cuda_shape){.grid = {p->n_heads, at_least_one(p->n), 1}, .block = {128, 1, 1}};
}

/* Blocks of decode that a multiprocessor runs side by side are bounded by shared memory; more than one wave of them does not pay,
 * and neither does a split of few positions. Where a sequence is shorter than max_len the kernel spreads what there is. */
static void decode_shape(hr_cuda_attn *p, const hr_cuda_caps *caps, uint32_t element, hr_cuda_shape *out) {
    const uint32_t group = p->n_heads / p->n_kv_heads, heads = hr_cuda_decode_heads(group);
    const uint32_t parts = (group + HR_CUDA_DECODE_HEADS - 1) / HR_CUDA_DECODE_HEADS;
    const uint32_t area = hr_cuda_decode_warp_bytes(p->head_dim, element, heads), q = 4 * heads * p->head_dim;
    const uint32_t most = caps->smem_optin < 100 * 1024 ? caps->smem_optin : 100 * 1024;
    uint32_t warps = HR_CUDA_DECODE_WARPS;
    while (warps > 1 && q + warps * area > most) warps /= 2;
    const uint32_t smem = q + warps * area;

    const uint32_t blocks = at_least_one(p->n_segments) * p->n_kv_heads * parts;
    const uint32_t resident = at_least_one(caps->smem_optin / (smem + 1024));
    uint32_t seen = p->max_len;
    if (p->window && p->window < seen) seen = p->window;
    uint32_t splits = caps->sms * (resident < 8 ? resident : 8) / blocks;
    if (splits > seen / HR_CUDA_DECODE_MIN_SPLIT) splits = seen / HR_CUDA_DECODE_MIN_SPLIT;
    if (splits > HR_CUDA_SPLITS) splits = HR_CUDA_SPLITS;
    p->splits = p->partial ? at_least_one(splits) : 1;
    p->split_len = HR_CUDA_DECODE_MIN_SPLIT;
    *out = (hr_cuda_shape){.grid = {p->splits, p->n_kv_heads * parts, at_least_one(p->n_segments)},
                           .block = {32 * warps, 1, 1},
                           .smem = smem};
}
static void decode_narrow_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    decode_shape(params, caps, 2, out);
}
static void decode_wide_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    decode_shape(params, caps, 4, out);
}

static void merge_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    const hr_cuda_attn *p = params;
    (void)caps;
    *out = (hr_cuda_shape){.grid = {p->n_heads, at_least_one(p->n_segments), 1}, .block = {128, 1, 1}};
}

static uint32_t tiles_of(const hr_cuda_attn *p, uint32_t rows) {
    return at_least_one((p->n_q * (p->n_heads / p->n_kv_heads) + rows - 1) / rows);
}
static void f32_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    hr_cuda_attn *p = params;
    (void)caps;
    p->splits = 1, p->split_len = p->max_len;
    *out = (hr_cuda_shape){.grid = {tiles_of(p, HR_CUDA_F32_ROWS), p->n_kv_heads, 1},
                           .block = {128, 1, 1},
                           .smem = hr_cuda_f32_bytes(p->head_dim)};
}
static void flash_shape(hr_cuda_attn *p, uint32_t rows, hr_cuda_shape *out) {
    p->splits = 1, p->split_len = p->max_len;
    *out = (hr_cuda_shape){.grid = {tiles_of(p, rows), p->n_kv_heads, 1},
                           .block = {2 * rows, 1, 1},
                           .smem = hr_cuda_flash_bytes(p->head_dim, rows)};
}
static void flash_64_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    flash_shape(params, 64, out);
}
static void flash_128_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    flash_shape(params, 128, out);
}

#define ROW(family_, name_, types_, min_, max_, flash_, rank_, unit_, symbol_, shape_)                        \
    {                                                                                                         \
        .family = HR_FAM_##family_, .name = name_, .dtypes = types_, .act = -1, .n_min = min_, .n_max = max_, \
        .flash = flash_, .rank = rank_, .unit = HR_UNIT_##unit_, .cuda = true, .fn.cuda = {                   \
            symbol_,                                                                                          \
            shape_                                                                                            \
        }                                                                                                     \
    }

const hr_kernel hr_kernels_cuda_attn[] = {
    ROW(ATTN, "attn_naive_cuda", ALL, 0, 0, false, 0, FP32, "hr_attn_naive", naive_shape),
    ROW(ATTN, "attn_decode_cuda", NARROW, 0, 1, true, 1, FP32, "hr_attn_decode", decode_narrow_shape),
    ROW(ATTN, "attn_decode_f32_cuda", ALL, 0, 1, true, 0, FP32, "hr_attn_decode", decode_wide_shape),
    ROW(ATTN, "attn_flash_f32_cuda", ALL, 2, 0, true, 0, FP32, "hr_attn_flash_f32", f32_shape),
    ROW(ATTN, "attn_flash_64_cuda", NARROW, 2, 0, true, 1, BF16, "hr_attn_flash_64", flash_64_shape),
    ROW(ATTN, "attn_flash_128_cuda", NARROW, 512, 0, true, 2, BF16, "hr_attn_flash_128", flash_128_shape),
    ROW(ATTN_MERGE, "attn_merge_cuda", 0, 0, 0, false, 0, FP32, "hr_attn_merge_splits", merge_shape),
    {.name = NULL}};
