/* Products: every row of the table over the matrices of two models, and cuBLASLt beside them. */
#include "bench/gpu/gpu_bench.h"

#include <string.h>

typedef struct matrix {
    const char *name;
    unsigned rows, cols;
} matrix;
/* The shapes of an 8B model (dim 4096, ffn 14336, KV heads of 1024 values, vocabulary 128256), and the dim of a 1B model. */
static const matrix large[] = {{"8B gate or up", 14336, 4096}, {"8B down", 4096, 14336},
                               {"8B q or out", 4096, 4096},    {"8B head", 128256, 4096},
                               {"8B k or v", 1024, 4096},      {"1B gate or up", 8192, 2048},
                               {"1B down", 2048, 8192},        {"1B q or out", 2048, 2048}};
static const matrix little[] = {{"small", 48, 256}}; /* multiples of 16, as 8-bit products of cuBLASLt want */
/* One token and a prefill matter most; what lies between after them. */
static const unsigned counts[] = {1, 512, 16, 4, 64, 128, 8, 32, 2, 256};

typedef struct product {
    const hr_kernel *row;
    hr_cuda_matmul p;
    size_t stride;   /* from one copy of the weights to the next */
    unsigned copies; /* so many that all of them do not fit into the second-level cache */
    const uint8_t *data;
} product;

static hr_status launch_row(gpu_bench *b, void *context, unsigned i) {
    product *x = context;
    const uint8_t *at = x->data + (size_t)(i % x->copies) * x->stride;
    x->p.w[0].data = at;
    if (x->p.w[0].scales)
        x->p.w[0].scales =
            (const uint16_t *)(const void *)(at + x->p.w[0].rows * hr_row_bytes(x->p.w[0].dtype, x->p.w[0].cols));
    return gpu_bench_row(b, x->row, &x->p);
}

static size_t aligned(size_t n) {
    return (n + 255) / 256 * 256;
}

/* False: the matrix or what goes with it does not fit. */
static bool set_up(gpu_bench *b, const hr_kernel *row, hr_dtype type, const matrix *m, unsigned n, product *x) {
    const size_t ld = aligned(m->cols), plane = m->rows * hr_row_bytes(type, m->cols);
    const size_t bytes = aligned(plane + 2 * m->rows * hr_row_scales(type, m->cols));
    size_t used = 0;
    *x = (product){.row = row, .stride = bytes, .data = (const uint8_t *)(uintptr_t)b->probe.from};
    x->copies = (unsigned)(b->probe.bytes / bytes);
    if (!x->copies) return false;
    if (x->copies > 64) x->copies = 64;
    const hr_act act = row->act < 0 ? HR_ACT_F32 : (hr_act)row->act;
    const CUdeviceptr batch = gpu_bench_take(b, &used, sizeof(hr_cuda_batch)),
                      data = gpu_bench_take(b, &used, (size_t)n * ld * 4), d = gpu_bench_take(b, &used, (size_t)n * ld),
                      y = gpu_bench_take(b, &used, (size_t)n * m->rows * sizeof(float));
    if (!batch || !data || !d || !y) return false;
    const hr_cuda_batch host = {.n = n, .n_segments = 1, .n_logits = n};
    if (gpu_bench_upload(b, batch, &host, sizeof host) != HR_OK) return false;
    x->p = (hr_cuda_matmul){
        .batch = (const hr_cuda_batch *)(uintptr_t)batch,
        .w[0] = {type, m->rows, m->cols, x->data, hr_row_scales(type, m->cols) ? (const uint16_t *)1 : NULL,
                 HR_ORDER_ROWS},
        .x = {(void *)(uintptr_t)data, act >= HR_ACT_INT8 ? (float *)(uintptr_t)d : NULL, (uint32_t)ld, act},
        .y[0] = (float *)(uintptr_t)y,
        .ldy[0] = m->rows,
        .workspace = (void *)(uintptr_t)b->workspace,
        .n_mats = 1,
        .n = n};
    return true;
}

static bool fits(const hr_kernel *row, unsigned n) {
    return row->family == HR_FAM_MATMUL && n >= row->n_min && (!row->n_max || n <= row->n_max);
}

/* Beyond a few tokens only what the engine would take: a row made for one token takes its time for hundreds. */
static bool worth_it(const hr_kernel *row, hr_dtype type, unsigned n) {
    enum { FEW = 16 };
    const hr_kernel_query q = {.family = HR_FAM_MATMUL, .dtype = type, .act = (hr_act)row->act, .n = n, .cuda = true};
    return n <= FEW || hr_kernel_choose(&q) == row;
}

/* Rows of rank 0 compute anything and are slow: they are held against the reference, not against time. */
static void all_rows(gpu_bench *b, const matrix *m, unsigned n) {
    for (size_t k = 0; hr_cuda_kernel_at(k) && !gpu_bench_over(b); k++) {
        const hr_kernel *row = hr_cuda_kernel_at(k);
        if (!fits(row, n) || !row->rank || !gpu_bench_wants(b, row->name)) continue;
        for (int t = 0; t < HR_DTYPE_COUNT && !gpu_bench_over(b); t++) {
            product x;
            gpu_bench_result r = {"matmul", row->name, hr_dtypes[t].name, "any", m->name, m->rows, m->cols, n, 0, 0,
                                  0,        0};
            if (!(row->dtypes >> t & 1) || m->cols % hr_dtypes[t].block_elems || !worth_it(row, (hr_dtype)t, n))
                continue;
            if (!set_up(b, row, (hr_dtype)t, m, n, &x)) continue;
            if (!gpu_bench_time(b, launch_row, &x, row->name, &r.median_ns, &r.least_ns)) continue;
            const hr_work work = hr_work_matmul(row, &x.p.w[0], n);
            r.bytes = (double)work.bytes, r.flops = (double)work.flops;
            if (row->act >= 0) r.act = hr_act_name((hr_act)row->act);
            gpu_bench_put(b, &r);
        }
    }
}

static hr_status launch_library(gpu_bench *b, void *context, unsigned i) {
    (void)i; /* it takes other weights by itself */
    return hr_gpu_lt_launch(context, &b->probe);
}

static void all_of_library(gpu_bench *b, const matrix *m, unsigned n) {
    static const struct {
        hr_gpu_load load;
        const char *name;
        unsigned bytes;
    } types[] = {{HR_GPU_BF16, "bf16", 2}, {HR_GPU_INT8, "int8", 1}, {HR_GPU_FP8, "fp8", 1}};
    for (size_t i = 0; i < sizeof types / sizeof *types && gpu_bench_wants(b, "cublasLt"); i++) {
        const hr_gpu_product shape = {m->rows, m->cols, n};
        const double work = (double)m->rows * m->cols;
        gpu_bench_result r = {"matmul", "cublasLt", types[i].name,         types[i].name, m->name, m->rows, m->cols, n,
                              0,        0,          work * types[i].bytes, 2 * work * n};
        hr_gpu_lt *lt;
        if (hr_gpu_lt_create(&b->probe, types[i].load, &shape, &lt) != HR_OK) continue; /* no way, or no library */
        if (gpu_bench_time(b, launch_library, lt, "cublasLt", &r.median_ns, &r.least_ns)) gpu_bench_put(b, &r);
        hr_gpu_lt_destroy(lt);
    }
}

hr_status gpu_bench_matmul(gpu_bench *b) {
    const matrix *matrices = b->small ? little : large;
    const size_t n_matrices = b->small ? 1 : sizeof large / sizeof *large;
    const size_t n_counts = b->small ? 1 : sizeof counts / sizeof *counts;
    for (size_t c = 0; c < n_counts; c++)
        for (size_t i = 0; i < n_matrices && !gpu_bench_over(b); i++) {
            const unsigned n = b->small ? 16 : counts[c];
            all_of_library(b, &matrices[i], n);
            all_rows(b, &matrices[i], n);
            if (b->small) all_rows(b, &matrices[i], 1);
        }
    return HR_OK;
}
