/* operands.h - what a matrix product works on besides its weights, in one block of pages: for whoever times single
 * kernels. The engine's own products lie in its arena. */
#ifndef HR_OPERANDS_H
#define HR_OPERANDS_H

#include "kernels/table.h"

/* Stays where it is: call points into it. */
typedef struct hr_operands {
    hr_acts x;
    hr_matmul call; /* w, x, y [n][w->rows] */
    void *scratch;
    void *memory; /* of all of it */
    size_t bytes;
} hr_operands;

/* Activations of n tokens as rows of this type and tile take them, not yet written. ERR_MEMORY. */
hr_status hr_operands_acts(hr_operands *o, hr_act type, uint32_t tile, size_t n, size_t k);
/* All that `k` needs for n tokens with w, which is borrowed; the activations are random floats in [-1, 1), made ready by
 * the acts row of the kernel's ISA. ERR_MEMORY. */
hr_status hr_operands_init(hr_operands *o, const hr_kernel *k, const hr_mat *w, size_t n);
/* Also of one that is all zeros, or whose init failed. */
void hr_operands_fini(hr_operands *o);

/* All rows of the product. */
static inline void hr_operands_run(const hr_kernel *k, const hr_operands *o) {
    k->fn.matmul(&o->call, 0, o->call.w->rows, o->scratch);
}

#endif
