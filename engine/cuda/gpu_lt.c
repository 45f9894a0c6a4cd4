/* Square products by cuBLASLt. */
#include "engine/cuda/gpu_lt.h"
#include "engine/cuda/cublaslt_library.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <pthread.h>

enum { WAYS = 6, LARGEST = 8192, SMALLEST = 1024, SIMULATED = 32 };
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
    unsigned size;
    const struct type *type;
    bool integer;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t in, out;
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

/* A, B, D and workspace lie one after another in the buffer. */
static size_t bytes_for(const struct type *t, unsigned size, size_t space) {
    return (size_t)size * size * (2 * t->in_bytes + t->out_bytes) + space;
}

static hr_status choose_size(const hr_gpu_probe *probe, const struct type *t, hr_gpu_lt *lt) {
    lt->space = probe->info.simulated ? 0 : SPACE;
    lt->size = probe->info.simulated ? SIMULATED : LARGEST;
    while (bytes_for(t, lt->size, lt->space) > probe->bytes && lt->size > SMALLEST) lt->size /= 2;
    if (bytes_for(t, lt->size, lt->space) > probe->bytes)
        HR_FAIL(HR_ERR_UNSUPPORTED, "no memory for products of %u x %u by cuBLASLt", lt->size, lt->size);
    return HR_OK;
}

static hr_status run_way(const hr_gpu_lt *lt, const hr_gpu_probe *probe, int way) {
    const struct type *t = lt->type;
    const size_t n = (size_t)lt->size * lt->size;
    const float one = 1, zero = 0;
    const int32_t one_int = 1, zero_int = 0;
    const void *alpha = lt->integer ? (const void *)&one_int : &one,
               *beta = lt->integer ? (const void *)&zero_int : &zero;
    const uintptr_t a = (uintptr_t)probe->from, b = a + n * t->in_bytes, d = b + n * t->in_bytes;
    void *space = (void *)(d + n * t->out_bytes); /* NOLINT: addresses of the device */
    LT(cublasLtMatmul(handle, lt->desc, alpha, (const void *)a, lt->in, (const void *)b, lt->in, beta, (const void *)d,
                      lt->out, (void *)d, lt->out, &lt->ways[way].algo, space, lt->space, (cudaStream_t)probe->stream));
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
    HR_TRY(choose_size(probe, t, lt));
    LT(cublasLtMatmulDescCreate(&lt->desc, t->sums, t->scale));
    /* A transposed is the only form that int8 and fp8 have */
    LT(cublasLtMatmulDescSetAttribute(lt->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    LT(cublasLtMatrixLayoutCreate(&lt->in, t->in, lt->size, lt->size, lt->size));
    LT(cublasLtMatrixLayoutCreate(&lt->out, t->out, lt->size, lt->size, lt->size));
    LT(cublasLtMatmulPreferenceCreate(&lt->preference));
    LT(cublasLtMatmulPreferenceSetAttribute(lt->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &lt->space,
                                            sizeof lt->space));
    LT(cublasLtMatmulAlgoGetHeuristic(handle, lt->desc, lt->in, lt->in, lt->out, lt->out, lt->preference, WAYS,
                                      lt->ways, &found));
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

hr_status hr_gpu_lt_create(hr_gpu_probe *probe, hr_gpu_load load, hr_gpu_lt **out) {
    hr_gpu_lt *lt = hr_calloc(1, sizeof *lt);
    *out = NULL;
    if (!lt) HR_FAIL(HR_ERR_MEMORY, "out of memory for a product by cuBLASLt");
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
    if (lt->in) lib->cublasLtMatrixLayoutDestroy(lt->in);
    if (lt->out) lib->cublasLtMatrixLayoutDestroy(lt->out);
    if (lt->desc) lib->cublasLtMatmulDescDestroy(lt->desc);
    hr_free(lt);
}

hr_status hr_gpu_lt_run(hr_gpu_lt *lt, hr_gpu_probe *probe, uint32_t times, double *ns, double *work) {
    HR_TRY(time_way(lt, probe, lt->best, times, ns));
    *work = 2.0 * lt->size * lt->size * lt->size * times;
    return HR_OK;
}

unsigned hr_gpu_lt_size(const hr_gpu_lt *lt) {
    return lt->size;
}
