/* The same loop twice: without `restrict` the compiler must believe that a store to y may change w or x. */
#include "harness/claims/claim_tests.h"

#define BODY                            \
    for (size_t p = 0; p < panels; p++) \
        for (size_t c = 0; c < k; c++)  \
            for (size_t r = 0; r < 16; r++) y[p * 16 + r] += w[(p * k + c) * 16 + r] * x[c];

void hr_claim_gemv_plain(const float *w, const float *x, float *y, size_t panels, size_t k) {
    BODY
}
void hr_claim_gemv_restrict(const float *restrict w, const float *restrict x, float *restrict y, size_t panels,
                            size_t k) {
    BODY
}
