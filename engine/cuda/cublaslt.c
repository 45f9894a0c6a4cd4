/* cublaslt.c - products of many tokens by cuBLASLt (cublaslt_library.h).
 *
 * To the library, whose matrices lie by columns, a product is Y = W^T X with W [cols][rows] of leading dimension cols, X
 * [cols][n] of ld and Y [rows][n] of ldy: weights and activations stay as they are. bf16 in, fp32 sums and results. What
 * the library proposes for a shape is asked for once and remembered. */
#include "engine/cuda/cublaslt_library.h"
#include "engine/cuda/cuda_state.h"

#include "kernels/base/memory.h"

/* A shape and how the library computes it. */
typedef struct shape {
    size_t rows, cols, ldx, ldy;
    uint32_t n; /* 0: free */
    bool add;
    cublasLtMatrixLayout_t w, x, y;
    cublasLtMatmulAlgo_t algo;
} shape;

enum { SHAPES = 64 };

typedef struct hr_cublaslt {
    const hr_cublaslt_library *lib;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    shape shapes[SHAPES];
    unsigned next;
} hr_cublaslt;

static const hr_kernel library_row = {.family = HR_FAM_MATMUL,
                                      .name = "cublaslt_bf16",
                                      .dtypes = 1u << HR_BF16,
                                      .act = HR_ACT_BF16,
                                      .n_min = HR_GEMM_TOKENS,
                                      .unit = HR_UNIT_BF16,
                                      .cuda = true};

#define BLAS(l, call) HR_TRY(hr_cublaslt_check((l)->lib->call, #call))

/* ---- opening ---- */

static hr_status set_up(hr_cublaslt *l) {
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const uint64_t space = HR_CUDA_LIBRARY_SPACE;
    const uint32_t aligned = 16; /* bytes; the library takes 256 for granted */
    HR_TRY(hr_cublaslt_library_open(&l->lib));
    BLAS(l, cublasLtCreate(&l->handle));
    BLAS(l, cublasLtMatmulDescCreate(&l->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS(l, cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    BLAS(l, cublasLtMatmulDescSetAttribute(l->desc, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain));
    BLAS(l, cublasLtMatmulPreferenceCreate(&l->preference));
    BLAS(l, cublasLtMatmulPreferenceSetAttribute(l->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space,
                                                 sizeof space));
    for (int i = 0; i < 2; i++) /* results of several matrices lie side by side in a row */
        BLAS(l, cublasLtMatmulPreferenceSetAttribute(l->preference,
                                                     i ? CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
                                                       : CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                     &aligned, sizeof aligned));
    return HR_OK;
}

hr_status hr_cublaslt_open(hr_cuda *g, struct hr_cublaslt **out, const hr_kernel **row) {
    (void)g;
    *out = NULL;
    hr_cublaslt *l = hr_calloc(1, sizeof *l);
    if (!l) HR_FAIL(HR_ERR_MEMORY, "out of memory for cuBLASLt");
    const hr_status status = set_up(l);
    if (status != HR_OK) {
        hr_cublaslt_close(l);
        return status;
    }
    *out = l, *row = &library_row;
    return HR_OK;
}

static void forget(hr_cublaslt *l, shape *s) {
    if (s->w) l->lib->cublasLtMatrixLayoutDestroy(s->w);
    if (s->x) l->lib->cublasLtMatrixLayoutDestroy(s->x);
    if (s->y) l->lib->cublasLtMatrixLayoutDestroy(s->y);
    *s = (shape){0};
}

void hr_cublaslt_close(struct hr_cublaslt *l) {
    if (!l) return;
    for (int i = 0; i < SHAPES; i++) forget(l, &l->shapes[i]);
    if (l->preference) l->lib->cublasLtMatmulPreferenceDestroy(l->preference);
    if (l->desc) l->lib->cublasLtMatmulDescDestroy(l->desc);
    if (l->handle) l->lib->cublasLtDestroy(l->handle);
    hr_free(l);
}

/* ---- products ---- */

static hr_status ask(hr_cublaslt *l, shape *s) {
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    BLAS(l, cublasLtMatrixLayoutCreate(&s->w, CUDA_R_16BF, s->cols, s->rows, (int64_t)s->cols));
    BLAS(l, cublasLtMatrixLayoutCreate(&s->x, CUDA_R_16BF, s->cols, s->n, (int64_t)s->ldx));
    BLAS(l, cublasLtMatrixLayoutCreate(&s->y, CUDA_R_32F, s->rows, s->n, (int64_t)s->ldy));
    BLAS(l,
         cublasLtMatmulAlgoGetHeuristic(l->handle, l->desc, s->w, s->x, s->y, s->y, l->preference, 1, &best, &found));
    if (!found)
        HR_FAIL(HR_ERR_UNSUPPORTED, "cuBLASLt has no way for a product of %zu x %zu and %u tokens", s->rows, s->cols,
                s->n);
    s->algo = best.algo;
    return HR_OK;
}

static hr_status find(hr_cublaslt *l, const shape *want, shape **out) {
    for (int i = 0; i < SHAPES; i++) {
        shape *s = &l->shapes[i];
        if (s->n == want->n && s->rows == want->rows && s->cols == want->cols && s->ldx == want->ldx &&
            s->ldy == want->ldy && s->add == want->add) {
            *out = s;
            return HR_OK;
        }
    }
    shape *s = *out = &l->shapes[l->next];
    l->next = (l->next + 1) % SHAPES;
    forget(l, s);
    *s = *want;
    const hr_status status = ask(l, s);
    if (status != HR_OK) forget(l, s);
    return status;
}

hr_status hr_cublaslt_run(struct hr_cublaslt *l, hr_cuda *g, const hr_mat *w, const hr_cuda_acts *x, float *y,
                          size_t ldy, uint32_t n, bool add) {
    const shape want = {.rows = w->rows, .cols = w->cols, .ldx = x->ld, .ldy = ldy, .n = n, .add = add};
    const float one = 1, beta = add ? 1 : 0;
    shape *s;
    HR_TRY(find(l, &want, &s));
    BLAS(l, cublasLtMatmul(l->handle, l->desc, &one, w->data, s->w, x->data, s->x, &beta, y, s->y, y, s->y, &s->algo,
                           g->b.library, HR_CUDA_LIBRARY_SPACE, (cudaStream_t)g->stream));
    return HR_OK;
}
