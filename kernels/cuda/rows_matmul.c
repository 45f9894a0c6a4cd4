/* rows_matmul.c - rows of the kernel table for matrix products on GPUs, and the shape of their launches. */
#include "kernels/cuda/cuda_params.h"
#include "kernels/table.h"

/* Warps of a block of gemv.cuh; warps of a multiprocessor that are enough; blocks that share the columns of one output at most. */
enum { GEMV_WARPS = 8, WARPS_PER_SM = 16, MAX_SPLIT = 16 };

static uint32_t div_up(size_t a, size_t b) {
    return (uint32_t)((a + b - 1) / b);
}

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Rows of outputs of one launch. */
static size_t total_rows(const hr_cuda_matmul *p) {
    size_t rows = p->w[0].rows;
    for (uint32_t m = 1; m < p->n_mats && !p->glu; m++) rows += p->w[m].rows;
    return rows;
}

/* A warp an output. */
static void generic_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    hr_cuda_matmul *p = params;
    (void)caps;
    p->split = 1;
    *out = (hr_cuda_shape){.grid = {div_up(total_rows(p), 4), min_u32(p->n ? p->n : 1, 1024), 1}, .block = {128, 1, 1}};
}

/* Blocks of files: copied by way of shared memory, 1024 columns of two rows three times (gemv_block.cu). */
static bool is_block(hr_dtype t) {
    return t == HR_Q8_0 || t == HR_Q4_0 || t == HR_Q4_1 || t == HR_Q6_K;
}
static uint32_t block_shared_bytes(hr_dtype t) {
    return GEMV_WARPS * 3 * 2 * (div_up(hr_row_bytes(t, 1024), 16) * 16 + 16);
}

/* Columns that a lane loads at once. */
static uint32_t lane_columns(hr_dtype t) {
    return t == HR_F32 ? 4 : t == HR_F16 || t == HR_BF16 ? 8 : t == HR_I8G32 || t == HR_I8ROW ? 16 : 32;
}

/* Warps that share the columns of a row, within a block and then over blocks, as many as it takes to have enough of them under way,
 * and as there are loads for. Few rows keep a GPU busy only in this way. */
static void gemv_shape(hr_cuda_matmul *p, const hr_cuda_caps *caps, uint32_t tokens, hr_cuda_shape *out) {
    const hr_dtype type = p->w[0].dtype;
    const uint32_t rows_per_warp = is_block(type) || (tokens > 1 && lane_columns(type) >= 16) ? 2 : 4;
    const uint32_t units = div_up(total_rows(p), p->glu ? rows_per_warp / 2 : rows_per_warp);
    const uint32_t loads = div_up(p->w[0].cols, (size_t)32 * lane_columns(type));
    const uint32_t wanted = caps->sms * WARPS_PER_SM, passes = div_up(p->n ? p->n : 1, tokens);
    uint32_t kw = 1, split = 1;
    while (kw < GEMV_WARPS && units * kw < wanted && 2 * kw <= loads) kw *= 2;
    const uint32_t groups = div_up(units, GEMV_WARPS / kw) * (GEMV_WARPS / kw);
    if (kw == GEMV_WARPS && units * kw < wanted / 2)
        split = min_u32(min_u32(div_up(wanted, units * kw), loads / kw), MAX_SPLIT);
    const size_t bytes = (size_t)groups * passes * sizeof(uint32_t) * (1 + (size_t)split * rows_per_warp * tokens);
    if (split < 1 || bytes > caps->workspace || !p->workspace) split = 1;
    p->split = kw * split;
    *out = (hr_cuda_shape){.grid = {div_up(units, GEMV_WARPS / kw), split, passes},
                           .block = {32, kw, GEMV_WARPS / kw},
                           .smem = is_block(type) ? block_shared_bytes(type) : 0};
}
static void gemv_1_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    gemv_shape(params, caps, 1, out);
}
static void gemv_4_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    gemv_shape(params, caps, 4, out);
}
static void gemv_8_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    gemv_shape(params, caps, 8, out);
}

/* ---- many tokens: as in gemm.cuh ---- */

typedef struct gemm_tile {
    uint32_t rows, tokens, columns, threads, smem;
    bool splits;
} gemm_tile;

/* A tile of outputs a block; where there are few tiles, more blocks that share the columns of each. */
static void gemm_shape(hr_cuda_matmul *p, const hr_cuda_caps *caps, const gemm_tile *tile, hr_cuda_shape *out) {
    enum { MIN_LINES = 4 }; /* a block has this many steps of columns at least */
    const uint32_t height = p->glu ? tile->rows / 2 : tile->rows, lines = div_up(p->w[0].cols, tile->columns);
    uint32_t row_tiles = div_up(p->w[0].rows, height);
    for (uint32_t m = 1; m < p->n_mats && !p->glu; m++) row_tiles += div_up(p->w[m].rows, height);
    const uint32_t token_tiles = div_up(p->n ? p->n : 1, tile->tokens);
    const size_t tiles = (size_t)row_tiles * token_tiles;
    uint32_t split = 1;
    if (tile->splits && p->workspace && tiles < caps->sms) {
        split = min_u32(min_u32(div_up(2 * (size_t)caps->sms, tiles), lines / MIN_LINES), MAX_SPLIT);
        const size_t each = tiles * tile->rows * tile->tokens * sizeof(float);
        const size_t room = caps->workspace > 4 * tiles ? (caps->workspace - 4 * tiles) / each : 0;
        if (split > room) split = (uint32_t)room;
        if (split < 1) split = 1;
    }
    p->split = split;
    *out = (hr_cuda_shape){.grid = {token_tiles, row_tiles, split}, .block = {tile->threads, 1, 1}, .smem = tile->smem};
}

/* Shared memory: rings of tiles, with unpacked weights two of those, and two tables of scales. */
enum { LINE = 128, SMALL_RING = 4, LARGE_RING = 3 };
#define GEMM_SHAPE(name, ...)                                                      \
    static void name(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) { \
        static const gemm_tile tile = {__VA_ARGS__};                               \
        gemm_shape(params, caps, &tile, out);                                      \
    }
GEMM_SHAPE(bf16_small_shape, 64, 32, 64, 128, SMALL_RING *(64 + 32) * LINE, true)
GEMM_SHAPE(bf16_large_shape, 128, 128, 64, 256, LARGE_RING *(128 + 128) * LINE, true)
GEMM_SHAPE(unpack_small_shape, 64, 32, 64, 128, (2 * 64 + SMALL_RING * 32) * LINE, true)
GEMM_SHAPE(unpack_large_shape, 128, 128, 64, 256, (2 * 128 + LARGE_RING * 128) * LINE, true)
GEMM_SHAPE(int8_small_shape, 64, 32, 128, 128, SMALL_RING *(64 + 32) * LINE + 2 * 4 * 4 * (64 + 32), true)
GEMM_SHAPE(int8_large_shape, 128, 64, 128, 256, LARGE_RING *(128 + 64) * LINE + 2 * 4 * 4 * (128 + 64), true)
GEMM_SHAPE(int8_unpack_small_shape, 64, 32, 128, 128, (2 * 64 + SMALL_RING * 32) * LINE + 2 * 4 * 4 * (64 + 32), true)
GEMM_SHAPE(int8_unpack_large_shape, 128, 64, 128, 256, (2 * 128 + LARGE_RING * 64) * LINE + 2 * 4 * 4 * (128 + 64),
           true)
GEMM_SHAPE(int8_row_small_shape, 64, 32, 128, 128, SMALL_RING *(64 + 32) * LINE, true)
GEMM_SHAPE(int8_row_large_shape, 128, 128, 128, 256, LARGE_RING *(128 + 128) * LINE, true)
GEMM_SHAPE(f32_shape, 64, 64, 128, 256, 2 * 128 * 68 * 4, false)

/* clang-format off */
#define BIT(t) (1u << HR_##t)
#define SET_ALL (BIT(F32) | BIT(F16) | BIT(BF16) | SET_BLOCK | SET_I8 | SET_I4)
#define SET_I8 (BIT(I8G32) | BIT(I8ROW))
#define SET_I4 (BIT(I4G32) | BIT(I4G128))
#define SET_BLOCK (BIT(Q8_0) | BIT(Q4_0) | BIT(Q4_1) | BIT(Q6_K))
#define ROW(title, set, type, from, to, order, where, function, form) {.family = HR_FAM_MATMUL, .name = #title "_cuda", \
        .dtypes = set, .act = type, .n_min = from, .n_max = to, .rank = order, .unit = where, .cuda = true, \
        .fn.cuda = {#function, form}}
/* One, two to four, and five or more tokens, eight at a time; where there is a GEMM it is chosen from 9 on. */
#define GEMV(title, set, type, where, function) \
        ROW(title##_1, set, type, 0, 1, 30, where, function##_1, gemv_1_shape), \
        ROW(title##_4, set, type, 2, 4, 30, where, function##_4, gemv_4_shape), \
        ROW(title##_8, set, type, 5, 0, 10, where, function##_8, gemv_8_shape)
#define GEMM(title, set, type, from, to, where, form) ROW(title, set, type, from, to, 20, where, title, form)
const hr_kernel hr_kernels_cuda_matmul[] = {
    ROW(matmul_generic_f32, SET_ALL, HR_ACT_F32, 0, 0, 0, HR_UNIT_FP32, matmul_generic, generic_shape),
    ROW(matmul_generic_bf16, SET_ALL, HR_ACT_BF16, 0, 0, 0, HR_UNIT_FP32, matmul_generic, generic_shape),
    ROW(matmul_generic_int8, SET_ALL, HR_ACT_INT8, 0, 0, 0, HR_UNIT_FP32, matmul_generic, generic_shape),
    ROW(matmul_generic_int8_row, SET_ALL, HR_ACT_INT8_ROW, 0, 0, 0, HR_UNIT_FP32, matmul_generic, generic_shape),
    GEMV(gemv_f32_f32, BIT(F32), HR_ACT_F32, HR_UNIT_FP32, gemv_f32_f32),
    GEMV(gemv_f16_f32, BIT(F16), HR_ACT_F32, HR_UNIT_FP32, gemv_f16_f32),
    GEMV(gemv_f16_bf16, BIT(F16), HR_ACT_BF16, HR_UNIT_FP32, gemv_f16_bf16),
    GEMV(gemv_bf16_f32, BIT(BF16), HR_ACT_F32, HR_UNIT_FP32, gemv_bf16_f32),
    GEMV(gemv_bf16_bf16, BIT(BF16), HR_ACT_BF16, HR_UNIT_FP32, gemv_bf16_bf16),
    GEMV(gemv_i8_f32, SET_I8, HR_ACT_F32, HR_UNIT_FP32, gemv_i8_f32),
    GEMV(gemv_i8_bf16, SET_I8, HR_ACT_BF16, HR_UNIT_FP32, gemv_i8_bf16),
    GEMV(gemv_i8_int8, SET_I8, HR_ACT_INT8, HR_UNIT_INT8, gemv_i8_int8),
    GEMV(gemv_i8_int8_row, SET_I8, HR_ACT_INT8_ROW, HR_UNIT_INT8, gemv_i8_int8),
    GEMV(gemv_i4_f32, SET_I4, HR_ACT_F32, HR_UNIT_FP32, gemv_i4_f32),
    GEMV(gemv_i4_bf16, SET_I4, HR_ACT_BF16, HR_UNIT_FP32, gemv_i4_bf16),
    GEMV(gemv_i4_int8, SET_I4, HR_ACT_INT8, HR_UNIT_INT8, gemv_i4_int8),
    GEMV(gemv_i4_int8_row, SET_I4, HR_ACT_INT8_ROW, HR_UNIT_INT8, gemv_i4_int8),
    GEMV(gemv_block_f32, SET_BLOCK, HR_ACT_F32, HR_UNIT_FP32, gemv_block_f32),
    GEMV(gemv_block_bf16, SET_BLOCK, HR_ACT_BF16, HR_UNIT_FP32, gemv_block_bf16),
    GEMV(gemv_block_int8, SET_BLOCK, HR_ACT_INT8, HR_UNIT_INT8, gemv_block_int8),
    GEMV(gemv_block_int8_row, SET_BLOCK, HR_ACT_INT8_ROW, HR_UNIT_INT8, gemv_block_int8),
    /* Tiles of 64 rows and 32 tokens for few, larger ones for many. From how many tokens on is reckoned, until a GPU has measured it: a GEMV
     * takes activations from L1 again for every two or four rows, and where a lane's load stands for 16 or 32 columns they
     * lie so far apart that a load of a warp takes 8 or 16 cycles a token. A multiprocessor of an H200 is sent about 21 bytes of
     * weights a cycle; of nibbles a GEMV for four tokens takes 4, of bytes one for eight takes 8. Two bytes a column lie side by side. */
    GEMM(gemm_f32_64x64, SET_ALL, HR_ACT_F32, 9, 0, HR_UNIT_FP32, f32_shape),
    GEMM(gemm_bf16_64x32, BIT(BF16), HR_ACT_BF16, 9, 64, HR_UNIT_BF16, bf16_small_shape),
    GEMM(gemm_bf16_128x128, BIT(BF16), HR_ACT_BF16, 65, 0, HR_UNIT_BF16, bf16_large_shape),
    GEMM(gemm_bf16_i8_64x32, SET_I8, HR_ACT_BF16, 5, 64, HR_UNIT_BF16, unpack_small_shape),
    GEMM(gemm_bf16_i8_128x128, SET_I8, HR_ACT_BF16, 65, 0, HR_UNIT_BF16, unpack_large_shape),
    ROW(gemm_bf16_i4_64x32, SET_I4, HR_ACT_BF16, 2, 64, 31, HR_UNIT_BF16, gemm_bf16_i4_64x32, unpack_small_shape),
    GEMM(gemm_bf16_i4_128x128, SET_I4, HR_ACT_BF16, 65, 0, HR_UNIT_BF16, unpack_large_shape),
    GEMM(gemm_bf16_any_64x32, BIT(F32) | BIT(F16) | SET_BLOCK, HR_ACT_BF16, 9, 64, HR_UNIT_BF16, unpack_small_shape),
    GEMM(gemm_bf16_any_128x128, BIT(F32) | BIT(F16) | SET_BLOCK, HR_ACT_BF16, 65, 0, HR_UNIT_BF16, unpack_large_shape),
    GEMM(gemm_int8_64x32, SET_I8, HR_ACT_INT8, 5, 64, HR_UNIT_INT8, int8_small_shape),
    GEMM(gemm_int8_128x64, SET_I8, HR_ACT_INT8, 65, 0, HR_UNIT_INT8, int8_large_shape),
    GEMM(gemm_int8_row_64x32, BIT(I8ROW), HR_ACT_INT8_ROW, 5, 64, HR_UNIT_INT8, int8_row_small_shape),
    GEMM(gemm_int8_row_128x128, BIT(I8ROW), HR_ACT_INT8_ROW, 65, 0, HR_UNIT_INT8, int8_row_large_shape),
    GEMM(gemm_int8_unpack_64x32, SET_I4 | BIT(Q8_0) | BIT(Q4_0), HR_ACT_INT8, 5, 64, HR_UNIT_INT8, int8_unpack_small_shape),
    GEMM(gemm_int8_unpack_128x64, SET_I4 | BIT(Q8_0) | BIT(Q4_0), HR_ACT_INT8, 65, 0, HR_UNIT_INT8, int8_unpack_large_shape),
    /* A scale a token serves wherever one for 32 columns does. */
    ROW(gemm_int8_by_row_64x32, BIT(I8G32), HR_ACT_INT8_ROW, 5, 64, 20, HR_UNIT_INT8, gemm_int8_64x32, int8_small_shape),
    ROW(gemm_int8_by_row_128x64, BIT(I8G32), HR_ACT_INT8_ROW, 65, 0, 20, HR_UNIT_INT8, gemm_int8_128x64, int8_large_shape),
    ROW(gemm_int8_unpack_by_row_64x32, SET_I4 | BIT(Q8_0) | BIT(Q4_0), HR_ACT_INT8_ROW, 5, 64, 20, HR_UNIT_INT8, gemm_int8_unpack_64x32, int8_unpack_small_shape),
    ROW(gemm_int8_unpack_by_row_128x64, SET_I4 | BIT(Q8_0) | BIT(Q4_0), HR_ACT_INT8_ROW, 65, 0, 20, HR_UNIT_INT8, gemm_int8_unpack_128x64, int8_unpack_large_shape),
    {.name = NULL},
};
/* clang-format on */
