/* Products by cuBLASLt. To the library, whose matrices lie by columns, y = x w^T is Y = W^T X with W [cols][rows], X [cols][n] and
 * Y [rows][n]: nothing is moved. */
#include "engine/cuda/gpu_lt.h"
#include "engine/cuda/cublaslt_library.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <pthread.h>

enum { WAYS = 6, LARGEST = 8192, SMALLEST = 1024, SIMULATED = 32, MOST_COPIES = 64, ALIGN = 256 };
static const size_t SPACE = (size_t)64 << 20; /* workspace: what NVIDIA advises for Hopper is 32 MiB */

/* Elements of A and B, sums, results. */
static const struct type {
    cudaDataType_t in, out, scale;
    cublasComputeType_t sums;
    unsigned in_bytes, out_bytes;
} types[HR_GPU_LOADS] = {
    [HR_GPU_FP32] = {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, 4},
    [HR_GPU_BF16] = {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2, 2},
    [HR_GPU_INT8] = {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 1, 4},
    [HR_GPU_FP8] = {CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 1, 2},
};

struct hr_gpu_lt {
    hr_gpu_product product;
    unsigned copies, next; /* of the weights */
    const struct type *type;
    bool integer;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t ways[WAYS];
    int best;
    size_t space; /* of workspace */
};

static const hr_cublaslt_library *lib;
static cublasLtHandle_t handle; /* one a process: making it takes long */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define LT(call) HR_TRY(hr_cublaslt_check(lib->call, #call))

static hr_status open_handle(void) {
    HR_TRY(hr_cublaslt_library_open(&lib));
    pthread_mutex_lock(&lock);
    const hr_status status = handle ? HR_OK : hr_cublaslt_check(lib->cublasLtCreate(&handle), "cublasLtCreate");
    pthread_mutex_unlock(&lock);
    return status;
}

/* X, Y and workspace lie at the start of the buffer, then the weights, copy after copy; all start on lines. */
static size_t x_bytes(const struct type *t, const hr_gpu_product *p) {
    return hr_align_up((size_t)p->cols * p->n * t->in_bytes, ALIGN);
}
static size_t y_bytes(const struct type *t, const hr_gpu_product *p) {
    return hr_align_up((size_t)p->rows * p->n * t->out_bytes, ALIGN);
}
static size_t w_bytes(const struct type *t, const hr_gpu_product *p) {
    return hr_align_up((size_t)p->rows * p->cols * t->in_bytes, ALIGN);
}
static size_t bytes_before_weights(const hr_gpu_lt *lt) {
    return x_bytes(lt->type, &lt->product) + y_bytes(lt->type, &lt->product) + lt->space;
}

static hr_status place(hr_gpu_lt *lt, const hr_gpu_probe *probe) {
    lt->space = probe->info.simulated ? 0 : SPACE;
    const bool square = !lt->product.rows;
    unsigned size = probe->info.simulated ? SIMULATED : LARGEST;
    for (;; size /= 2) {
        if (square) lt->product = (hr_gpu_product){size, size, size};
        const size_t before = bytes_before_weights(lt), weights = w_bytes(lt->type, &lt->product);
        if (before + weights <= probe->bytes) {
            const size_t fit = (probe->bytes - before) / weights;
            lt->copies = square ? 1 : (unsigned)(fit < MOST_COPIES ? fit : MOST_COPIES);
            return HR_OK;
        }
        if (!square || size / 2 < SMALLEST) break;
    }
    HR_FAIL(HR_ERR_UNSUPPORTED, "no room for a product of %u x %u and %u tokens by cuBLASLt", lt->product.rows,
            lt->product.cols, lt->product.n);
}

static hr_status run_way(hr_gpu_lt *lt, const hr_gpu_probe *probe, int way) {
    const struct type *t = lt->type;
    const float one = 1, zero = 0;
    const int32_t one_int = 1, zero_int = 0;
    const void *alpha = lt->integer ? (const void *)&one_int : &one,
               *beta = lt->integer ? (const void *)&zero_int : &zero;
    const uintptr_t x = (uintptr_t)probe->from, y = x + x_bytes(t, &lt->product), space = y + y_bytes(t, &lt->product);
    const uintptr_t w = space + lt->space + (lt->next++ % lt->copies) * w_bytes(t, &lt->product);
    LT(cublasLtMatmul(handle, lt->desc, alpha, (const void *)w, lt->w, (const void *)x, lt->x, beta, (const void *)y,
                      lt->y, (void *)y, lt->y, &lt->ways[way].algo, (void *)space, lt->space,
                      (cudaStream_t)probe->stream));
    return HR_OK;
}

static hr_status time_way(hr_gpu_lt *lt, hr_gpu_probe *probe, int way, uint32_t times, double *ns) {
    float ms = 0;
    HR_CU(probe->driver, cuEventRecord(probe->begin, probe->stream));
    for (uint32_t i = 0; i < times; i++) HR_TRY(run_way(lt, probe, way));
    HR_CU(probe->driver, cuEventRecord(probe->end, probe->stream));
    HR_CU(probe->driver, cuEventSynchronize(probe->end));
    HR_CU(probe->driver, cuEventElapsedTime(&ms, probe->begin, probe->end));
    *ns = ms > 0 ? (double)ms * 1e6 : 1;
    return HR_OK;
}

static hr_status set_up(hr_gpu_lt *lt, hr_gpu_probe *probe, hr_gpu_load load) {
    const struct type *t = &types[load];
    const cublasOperation_t transposed = CUBLAS_OP_T;
    int found = 0;
    lt->type = t;
    lt->integer = load == HR_GPU_INT8;
    HR_TRY(open_handle());
    HR_TRY(place(lt, probe));
    const hr_gpu_product *p = &lt->product;
    LT(cublasLtMatmulDescCreate(&lt->desc, t->sums, t->scale));
    /* A transposed is the only form that int8 and fp8 have */
    LT(cublasLtMatmulDescSetAttribute(lt->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    if (load ==
        HR_GPU_FP8) { /* sums that are not promoted to fp32 in between, where it can be told: what the hardware can do */
        const int8_t fast = 1;
        (void)lib->cublasLtMatmulDescSetAttribute(lt->desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
    }
    LT(cublasLtMatrixLayoutCreate(&lt->w, t->in, p->cols, p->rows, p->cols));
    LT(cublasLtMatrixLayoutCreate(&lt->x, t->in, p->cols, p->n, p->cols));
    LT(cublasLtMatrixLayoutCreate(&lt->y, t->out, p->rows, p->n, p->rows));
    LT(cublasLtMatmulPreferenceCreate(&lt->preference));
    LT(cublasLtMatmulPreferenceSetAttribute(lt->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &lt->space,
                                            sizeof lt->space));
    LT(cublasLtMatmulAlgoGetHeuristic(handle, lt->desc, lt->w, lt->x, lt->y, lt->y, lt->preference, WAYS, lt->ways,
                                      &found));
    double best = INFINITY;
    for (int i = 0; i < found && i < WAYS; i++) {
        double ns;
        if (time_way(lt, probe, i, 1, &ns) != HR_OK) continue; /* the first run loads its kernel */
        HR_TRY(time_way(lt, probe, i, 1, &ns));
        if (ns < best) best = ns, lt->best = i;
    }
    if (!isfinite(best)) HR_FAIL(HR_ERR_UNSUPPORTED, "cuBLASLt has no way for such a product");
    return HR_OK;
}

hr_status hr_gpu_lt_create(hr_gpu_probe *probe, hr_gpu_load load, const hr_gpu_product *product, hr_gpu_lt **out) {
    hr_gpu_lt *lt = hr_calloc(1, sizeof *lt);
    *out = NULL;
    if (!lt) HR_FAIL(HR_ERR_MEMORY, "out of memory for a product by cuBLASLt");
    lt->product = *product;
    const hr_status status = set_up(lt, probe, load);
    if (status == HR_OK)
        *out = lt;
    else
        hr_gpu_lt_destroy(lt);
    return status;
}

void hr_gpu_lt_destroy(hr_gpu_lt *lt) {
    if (!lt) return;
    if (lt->preference) lib->cublasLtMatmulPreferenceDestroy(lt->preference);
    if (lt->w) lib->cublasLtMatrixLayoutDestroy(lt->w);
    if (lt->x) lib->cublasLtMatrixLayoutDestroy(lt->x);
    if (lt->y) lib->cublasLtMatrixLayoutDestroy(lt->y);
    if (lt->desc) lib->cublasLtMatmulDescDestroy(lt->desc);
    hr_free(lt);
}

hr_status hr_gpu_lt_run(hr_gpu_lt *lt, hr_gpu_probe *probe, uint32_t times, double *ns, double *work) {
    HR_TRY(time_way(lt, probe, lt->best, times, ns));
    *work = 2.0 * lt->product.rows * lt->product.cols * lt->product.n * times;
    return HR_OK;
}

hr_status hr_gpu_lt_launch(hr_gpu_lt *lt, const hr_gpu_probe *probe) {
    return run_way(lt, probe, lt->best);
}

hr_gpu_product hr_gpu_lt_product(const hr_gpu_lt *lt) {
    return lt->product;
}
