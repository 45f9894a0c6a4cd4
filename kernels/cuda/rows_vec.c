/* rows_vec.c - rows of the kernel table for GPUs, and the shape of their launches: all that is no product and no attention. */
#include "kernels/cuda/vec_launch.h"
#include "kernels/table.h"

static uint32_t blocks_for(size_t work, uint32_t each) {
    return (uint32_t)((work + each - 1) / each);
}
static void set(hr_cuda_shape *out, uint32_t x, uint32_t y, uint32_t threads, uint32_t smem) {
    *out = (hr_cuda_shape){{x ? x : 1, y ? y : 1, 1}, {threads, 1, 1}, smem};
}

/* Eight columns a thread. */
static void embed_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    const hr_cuda_embed *p = params;
    set(out, blocks_for(p->dim, 8 * 128), p->n, 128, 0);
}

/* A row a block, four columns a thread. */
static uint32_t norm_threads(const hr_cuda_norm *p) {
    const uint32_t width = p->acts.data && p->acts.ld > p->dim ? p->acts.ld : p->dim;
    const uint32_t warps = blocks_for(width, 128);
    return 32 * (warps < 1 ? 1 : warps > 32 ? 32 : warps);
}
static void norm_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    const hr_cuda_norm *p = params;
    set(out, p->n, 1, norm_threads(p), 0);
}
static void norm_staged_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    const hr_cuda_norm *p = params;
    const uint32_t staged = p->dim < HR_NORM_STAGED ? p->dim : HR_NORM_STAGED;
    set(out, p->n, 1, norm_threads(p), p->w ? (uint32_t)sizeof(float) * staged : 0);
}

/* Four columns a thread. */
static void glu_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    const hr_cuda_glu *p = params;
    const uint32_t width = p->acts.data && p->acts.ld > p->ffn ? p->acts.ld : p->ffn;
    set(out, blocks_for(width, 4 * 256), p->n, 256, 0);
}

/* Four values a thread, in rounds once every multiprocessor has what it can hold. */
static void add_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    const hr_cuda_add *p = params;
    const uint32_t all = blocks_for((size_t)p->n * p->dim, 4 * 256), most = 8 * (caps->sms ? caps->sms : 1);
    set(out, all < most ? all : most, 1, 256, 0);
}

/* A warp a head, fewer warps where heads are so wide that a block could not hold their rows. */
static void heads_shape(const hr_cuda_heads *p, bool prepare, bool append, hr_cuda_shape *out) {
    enum { AREA = 48 << 10 };
    const uint32_t row = (uint32_t)sizeof(float) * p->head_dim, fit = AREA / row;
    const uint32_t warps = fit < 1 ? 1 : fit > HR_HEADS_WARPS ? HR_HEADS_WARPS : fit;
    const bool groups = append && p->granule > 1;
    const uint32_t blocks = hr_heads_job_blocks(p, prepare, append, warps);
    set(out, blocks + (groups ? hr_heads_groups(p) * p->n_kv_heads : 0), 1, 32 * warps,
        warps * row + (groups ? HR_KV_GROUP * 2 * p->head_dim : 0));
}
static void rope_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    heads_shape(params, true, false, out);
}
static void kv_append_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    heads_shape(params, false, true, out);
}
static void finish_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    heads_shape(params, true, true, out);
}

/* A row in parts of 4096 logits, 32 at most: enough blocks to read it at full speed when it is the only one. Fewer where the
 * workspace has no room for their candidates. */
static void sample_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    const hr_cuda_sample *p = params;
    uint32_t parts = blocks_for(p->vocab, HR_SAMPLE_KEYS);
    parts = parts > 32 ? 32 : parts < 1 ? 1 : parts;
    if (!(p->temperature > 0)) {
        set(out, parts, p->n, 512, 0);
    } else if (!hr_sample_can(p)) {
        set(out, 1, p->n, 32, 0);
    } else {
        const size_t list = hr_sample_list(p->top_k) * sizeof(uint64_t);
        while (parts > 1 && p->n * (HR_SAMPLE_SLOT + parts * list) > caps->workspace) parts--;
        set(out, parts, p->n, 512, (uint32_t)(hr_sample_lists(p, parts) * list));
    }
}

static void kv_copy_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    (void)caps;
    const hr_cuda_kv_copy *p = params;
    set(out, blocks_for(p->to - p->from, HR_KV_COPY_SPAN) + 1, p->n_layers * p->n_heads, 128, 0);
}

/* A row a block, in rounds. */
static void fill_shape(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out) {
    const hr_cuda_fill *p = params;
    const size_t most = 64 * (size_t)(caps->sms ? caps->sms : 1);
    set(out, (uint32_t)(p->w.rows < most ? p->w.rows : most), 1, 256, 0);
}

enum {
    WEIGHT_TYPES = (1 << HR_DTYPE_COUNT) - 1,
    KV_TYPES = 1 << HR_F32 | 1 << HR_F16 | 1 << HR_BF16 | 1 << HR_Q8_0 | 1 << HR_I8ROW | 1 << HR_Q4_0 | 1 << HR_I4KC,
    FILL_TYPES =
        1 << HR_F32 | 1 << HR_F16 | 1 << HR_BF16 | 1 << HR_I8G32 | 1 << HR_I4G32 | 1 << HR_I8ROW | 1 << HR_I4G128
};

/* clang-format off */
#define ROW(fam, text, types, activations, order, launch)                                                    \
    {.family = fam, .name = text, .dtypes = types, .act = activations, .rank = order, .unit = HR_UNIT_FP32,  \
     .cuda = true, .fn.cuda = {text, launch}}
/* Activations of anything: norm_cuda with the kind NONE. */
#define ACTS(text, activations)                                                                              \
    {.family = HR_FAM_ACTS, .name = text, .act = activations, .rank = 1, .unit = HR_UNIT_FP32, .cuda = true, \
     .fn.cuda = {"norm_cuda", norm_shape}}

const hr_kernel hr_kernels_cuda_vec[] = {
    ROW(HR_FAM_EMBED, "embed_cuda", WEIGHT_TYPES, -1, 1, embed_shape),
    ROW(HR_FAM_NORM, "norm_cuda", 0, -1, 3, norm_shape),
    ROW(HR_FAM_NORM, "norm_staged_cuda", 0, -1, 2, norm_staged_shape),
    ROW(HR_FAM_NORM, "norm_restrict_cuda", 0, -1, 1, norm_shape),
    ACTS("acts_f32_cuda", HR_ACT_F32),
    ACTS("acts_bf16_cuda", HR_ACT_BF16),
    ACTS("acts_int8_cuda", HR_ACT_INT8),
    ACTS("acts_int8_row_cuda", HR_ACT_INT8_ROW),
    ROW(HR_FAM_ADD, "add_cuda", 0, -1, 1, add_shape),
    ROW(HR_FAM_GLU, "glu_cuda", 0, -1, 1, glu_shape),
    ROW(HR_FAM_ROPE, "rope_cuda", 0, -1, 1, rope_shape),
    ROW(HR_FAM_KV_APPEND, "kv_append_cuda", KV_TYPES, -1, 1, kv_append_shape),
    ROW(HR_FAM_FINISH, "finish_cuda", KV_TYPES, -1, 1, finish_shape),
    ROW(HR_FAM_KV_COPY, "kv_copy_cuda", KV_TYPES, -1, 1, kv_copy_shape),
    ROW(HR_FAM_FILL, "fill_cuda", FILL_TYPES, -1, 1, fill_shape),
    ROW(HR_FAM_SAMPLE, "sample_cuda", 0, -1, 1, sample_shape),
    {.name = NULL},
};
/* clang-format on */
