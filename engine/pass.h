/* pass.h - one forward pass under way: what the forward pass and the ops of every backend share. */
#ifndef HR_PASS_H
#define HR_PASS_H

#include "engine/state.h"

typedef struct hr_pass {
    hr_engine *e;
    const hr_model *m;
    const hr_batch *batch;
    const hr_layer *layer; /* NULL outside the layers */
    uint32_t l, n;         /* layer; tokens of the pass, from the head on rows of logits */
    hr_plan *plan;         /* rows of the kernel table for n tokens */
} hr_pass;

static inline bool hr_pass_fuses(const hr_pass *p, unsigned bit) {
    return (p->e->config.fusion & bit) != 0;
}
/* The layer that an op's record carries. */
static inline int hr_pass_layer(const hr_pass *p) {
    return p->layer ? (int)p->l : -1;
}
static inline size_t hr_pass_width(const hr_pass *p) { /* floats of a row of Q, K and V side by side */
    return p->e->sizes.q_dim + 2 * (size_t)p->e->sizes.kv_dim;
}

#endif
