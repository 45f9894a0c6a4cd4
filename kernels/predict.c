#include "kernels/predict.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* NVIDIA's datasheets of A100 80 GB SXM, H100 SXM, H200 SXM and HGX B200: memory bandwidth; FP32, BF16 and INT8 dense. */
static const hr_gpu_sheet sheets[] = {
    {"a100", "NVIDIA A100 SXM 80 GB", 8, 0, 108, 163 << 10, 2039, {19500, 312000, 624000}},
    {"h100", "NVIDIA H100 SXM", 9, 0, 132, 227 << 10, 3350, {67000, 989000, 1979000}},
    {"h200", "NVIDIA H200 SXM", 9, 0, 132, 227 << 10, 4800, {67000, 989000, 1979000}},
    {"b200", "NVIDIA B200 SXM", 10, 0, 148, 227 << 10, 8000, {75000, 2250000, 4500000}},
};

const hr_gpu_sheet *hr_gpu_sheet_at(size_t i) {
    return i < sizeof sheets / sizeof *sheets ? &sheets[i] : NULL;
}

/* Whether a text has a word, in letters of either case, with no letter or digit beside it. */
static bool has_word(const char *text, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = text; *p; p++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)p[i]) == word[i]) i++;
        if (i == n && !isalnum((unsigned char)p[n]) && (p == text || !isalnum((unsigned char)p[-1]))) return true;
    }
    return false;
}

const hr_gpu_sheet *hr_gpu_sheet_find(const char *name) {
    for (size_t i = 0; i < sizeof sheets / sizeof *sheets; i++)
        if (has_word(name, sheets[i].name)) return &sheets[i];
    return NULL;
}

#ifdef HR_HAVE_CUDA
#include "kernels/cuda/cuda_params.h"
#include "kernels/cuda/image.h"
#include "kernels/cuda/occupancy.h"

/* ---- what the images hold for one GPU ---- */

enum { KERNELS_MOST = 1024, WORKSPACE = 4 << 20 };
typedef struct kernel_images {
    hr_cuda_kernel_image k[KERNELS_MOST];
    size_t n;
} kernel_images;

static hr_status keep(const hr_cuda_kernel_image *k, void *context) {
    kernel_images *all = context;
    if (all->n == KERNELS_MOST) HR_FAIL(HR_ERR_INTERNAL, "more than %d kernels; raise KERNELS_MOST", KERNELS_MOST);
    all->k[all->n++] = *k;
    return HR_OK;
}

static hr_status read_images(const hr_gpu_sheet *gpu, kernel_images *all) {
    for (const hr_cuda_image *image = hr_cuda_images; image->name; image++) {
        const uint32_t arch = hr_cuda_image_arch(image, gpu->major, gpu->minor);
        if (arch) HR_TRY(hr_cuda_image_walk(image, arch, keep, all));
    }
    if (all->n == 0)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "no kernels are built for %s (compute capability %u.%u); build with CUDA_ARCHS=%u%u", gpu->title,
                gpu->major, gpu->minor, gpu->major, gpu->minor);
    return HR_OK;
}

static const hr_cuda_kernel_image *image_of(const kernel_images *all, const char *symbol) {
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->k[i].symbol, symbol) == 0) return &all->k[i];
    return NULL;
}

/* ---- launches that stand for a row ---- */

static hr_dtype first_dtype(const hr_kernel *row) {
    for (int t = 0; t < HR_DTYPE_COUNT; t++)
        if (row->dtypes >> t & 1u) return (hr_dtype)t;
    return HR_F32;
}

/* One token, as many as a row for few takes, and 32 or 512 for rows of many. */
static uint32_t tokens_of(const hr_kernel *row) {
    if (row->n_max) return row->n_max < 32 ? row->n_max : 32;
    return row->n_min < 2 ? 1 : row->n_min < 9 ? 8 : 512;
}

static void launch_matmul(const hr_cuda_caps *caps, hr_kernel_prediction *p) {
    static char workspace; /* only asked whether there is one */
    const hr_mat w = {.dtype = p->dtype, .rows = HR_PREDICT_ROWS, .cols = HR_PREDICT_COLS};
    p->n = tokens_of(p->row);
    hr_cuda_matmul params = {.w = {w}, .n_mats = 1, .n = p->n, .workspace = &workspace};
    p->row->fn.cuda.shape(&params, caps, &p->shape);
    const hr_work work = hr_work_matmul(p->row, &w, p->n);
    p->bytes = work.bytes, p->flops = work.flops;
}

static hr_status launch_attn(const hr_cuda_caps *caps, hr_kernel_prediction *p) {
    enum { HEADS = 32, KV_HEADS = 8, DIM = 128 };
    static float partial;
    const bool decode = p->row->n_max == 1 || p->row->n_min == 0;
    p->dtype = p->row->dtypes >> HR_BF16 & 1u ? HR_BF16 : HR_F32;
    p->n = decode ? 1 : 512;
    hr_kv_geom g;
    HR_TRY(hr_kv_geom_init(&g, HR_KV_HEAD, 1, KV_HEADS, DIM, p->dtype, p->dtype, HR_PREDICT_DEPTH, 0));
    const hr_kv_seq seq = {.g = &g};
    const uint32_t positions = decode ? HR_PREDICT_DEPTH : p->n;
    hr_cuda_attn params = {.partial = &partial,
                           .n_heads = HEADS,
                           .n_kv_heads = KV_HEADS,
                           .head_dim = DIM,
                           .n = p->n,
                           .n_segments = 1,
                           .n_q = p->n,
                           .max_len = positions};
    p->row->fn.cuda.shape(&params, caps, &p->shape);
    const hr_attn a = {
        .kv = &seq, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM, .n_q = p->n, .pos0 = positions - p->n};
    const hr_work work = hr_work_attn(p->row, &a);
    p->bytes = work.bytes, p->flops = work.flops;
    return HR_OK;
}

/* ---- the prediction ---- */

static void add_occupancy(const hr_gpu_sheet *gpu, const hr_sm_limits *sm, const hr_cuda_kernel_image *k,
                          hr_kernel_prediction *p) {
    const hr_cuda_shape *s = &p->shape;
    const uint32_t launched = s->block[0] * s->block[1] * s->block[2];
    p->registers = k->registers, p->shared = k->shared + s->smem;
    const hr_occupancy o = hr_occupancy_of(sm, launched ? launched : k->threads, p->registers, p->shared);
    p->blocks = o.blocks, p->warps = o.warps, p->occupancy = o.share, p->bound = hr_occupancy_bounds[o.bound];
    p->waves = NAN;
    if (launched && o.blocks) p->waves = (double)s->grid[0] * s->grid[1] * s->grid[2] / ((double)o.blocks * gpu->sms);
}

static void add_roof(const hr_gpu_sheet *gpu, hr_kernel_prediction *p) {
    const double memory_us = (double)p->bytes / gpu->read_gb_s * 1e-3;
    const double compute_us = (double)p->flops / gpu->gflop_s[p->row->unit] * 1e-3;
    p->roof_us = p->bytes ? fmax(memory_us, compute_us) : NAN;
    p->compute_bound = compute_us > memory_us;
}

static hr_status predict(const hr_gpu_sheet *gpu, const hr_sm_limits *sm, const kernel_images *all,
                         hr_kernel_prediction *p) {
    const hr_cuda_caps caps = {.major = gpu->major,
                               .minor = gpu->minor,
                               .sms = gpu->sms,
                               .smem_optin = gpu->smem_optin,
                               .workspace = WORKSPACE};
    const hr_cuda_kernel_image *k = image_of(all, p->row->fn.cuda.symbol);
    if (!k)
        HR_FAIL(HR_ERR_UNSUPPORTED, "the kernel %s is not built for %s; build with CUDA_ARCHS=%u%u", p->row->name,
                gpu->title, gpu->major, gpu->minor);
    p->dtype = first_dtype(p->row);
    if (p->row->family == HR_FAM_MATMUL) launch_matmul(&caps, p);
    if (p->row->family == HR_FAM_ATTN) HR_TRY(launch_attn(&caps, p));
    add_occupancy(gpu, sm, k, p);
    add_roof(gpu, p);
    return HR_OK;
}

hr_status hr_kernels_predict(const hr_gpu_sheet *gpu, hr_kernel_prediction *out, size_t room, size_t *n) {
    static kernel_images all; /* the same at every call for a GPU; too large for a stack */
    hr_sm_limits sm;
    all.n = *n = 0;
    if (!hr_sm_limits_of(gpu->major, gpu->minor, &sm))
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: the limits of compute capability %u.%u are not known", gpu->title, gpu->major,
                gpu->minor);
    HR_TRY(read_images(gpu, &all));
    const hr_kernel *row;
    for (size_t i = 0; i < room && (row = hr_cuda_kernel_at(i)) != NULL; i++) {
        out[i] = (hr_kernel_prediction){.row = row};
        HR_TRY(predict(gpu, &sm, &all, &out[i]));
        *n = i + 1;
    }
    return HR_OK;
}
#else
hr_status hr_kernels_predict(const hr_gpu_sheet *gpu, hr_kernel_prediction *out, size_t room, size_t *n) {
    (void)out, (void)room, *n = 0;
    HR_FAIL(HR_ERR_UNSUPPORTED, "kernels of %s: this program was built without the CUDA backend", gpu->title);
}
#endif
