/* cublaslt_library.h - cuBLASLt, opened at run time: HEADROOM_LIBCUBLASLT, else libcublasLt.so.13 (or .12) where the loader or the
 * toolkit has it. */
#ifndef HR_CUBLASLT_LIBRARY_H
#define HR_CUBLASLT_LIBRARY_H

#include "kernels/base/status.h"

#include <cublasLt.h>

/* clang-format off */
#define HR_CUBLASLT_LIST(X)                                                                                       \
    X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy)                  \
    X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy)                 \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)   \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmul)
/* clang-format on */
typedef struct hr_cublaslt_library {
#define X(f) __typeof__(&f) f;
    HR_CUBLASLT_LIST(X)
#undef X
} hr_cublaslt_library;

/* Opened once a process, which takes some tenths of a second; stays open. ERR_UNSUPPORTED in one line: what is missing. */
hr_status hr_cublaslt_library_open(const hr_cublaslt_library **out);
/* ERR_MEMORY for want of memory, else ERR_UNSUPPORTED: "cublasLtMatmul: cuBLAS status 15". what: may go on with "(...". */
hr_status hr_cublaslt_check(cublasStatus_t status, const char *what);

#endif
