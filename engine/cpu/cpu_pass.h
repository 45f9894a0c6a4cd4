/* cpu_pass.h - what the ops of one pass share on the CPU: the pass, and the matrix products that are under way.
 *
 * An op is one function between hr_probe_enter and hr_probe_leave; its share functions run on every thread of the team
 * with this as context. cpu_ops.c holds the ops one by one, cpu_fused.c those that are joined (--fusion). */
#ifndef HR_CPU_PASS_H
#define HR_CPU_PASS_H

#include "engine/pass.h"

#include <stdatomic.h>

typedef struct hr_cpu_pass {
    /* as in hr_pass */
    hr_engine *e;
    const hr_model *m;
    const hr_batch *batch;
    hr_plan *plan;
    const hr_layer *layer;
    uint32_t l, n;
    /* attention */
    bool split;          /* one token a segment and some segment split over positions */
    _Atomic size_t next; /* next unit of work of a dynamically shared op */
    size_t units;
    /* products over the same activations, and the rows of the table that compute them */
    hr_matmul products[HR_GROUP_MAX];
    hr_group group;
    /* norm, and activations made of its result or of `in` itself */
    const float *in;
    float *out; /* NULL: nothing is normalized */
    size_t dim;
    const float *weight;
    bool own; /* fused ops: each thread makes the activations of all tokens for itself */
} hr_cpu_pass;

/* Runs a share function: alone for a few tokens of element-wise work, which are not worth waking the team. */
void hr_cpu_run(hr_cpu_pass *p, hr_pool_fn *fn, size_t tokens);

/* Chooses rows for products of op class `op` over activations of k values, and shapes the activations for them; where
 * results go is hr_cpu_result's. */
void hr_cpu_products(hr_cpu_pass *p, hr_op op, size_t k, size_t n, const hr_mat *const *mats);
static inline void hr_cpu_result(hr_cpu_pass *p, size_t i, float *y, size_t ldy, bool add) {
    p->products[i].y = y, p->products[i].ldy = ldy, p->products[i].add = add;
}
hr_work hr_cpu_work(const hr_cpu_pass *p);
/* Opens the probe for the products with `extra` bytes beside the weights; fused: name of the joined op, or NULL. */
void hr_cpu_enter(hr_cpu_pass *p, hr_op op, const char *fused, uint64_t extra);
static inline void hr_cpu_leave(hr_cpu_pass *p) {
    hr_probe_leave(&p->e->probe);
}
/* Rows that a thread takes at a time of `rows` that cost row_bytes each, a multiple of HR_ROW_GRAIN. With few tokens the
 * threads' shares are cut evenly into streams of about 1 MB: a stream that begins anew finds nothing fetched ahead (of
 * 128 KB: a quarter slower, Zen 5, int8). With many, so few rows that a thread whose CPU does other work holds up little. */
size_t hr_cpu_piece(const hr_cpu_pass *p, size_t rows, size_t row_bytes);
/* Bytes of a row. */
static inline size_t hr_row_cost(const hr_mat *w) {
    return w->rows ? hr_mat_bytes(w) / w->rows : 0;
}
/* Rows row0 .. row1 - 1 of product i over activations x. */
void hr_cpu_rows(const hr_cpu_pass *p, size_t i, const hr_acts *x, size_t row0, size_t row1, unsigned thread);

/* Share function: p->in normalized into p->out (if it is not NULL), then activations in the shared buffer. */
void hr_cpu_inputs(void *pass, unsigned thread, unsigned n_threads);

static inline size_t hr_cpu_width(const hr_cpu_pass *p) { /* floats of a row of b.qkv */
    return p->e->sizes.q_dim + 2 * (size_t)p->e->sizes.kv_dim;
}

/* The joined ops (cpu_fused.c). */
void hr_cpu_fused_qkv(hr_cpu_pass *p);
void hr_cpu_fused_gate_up(hr_cpu_pass *p);
void hr_cpu_fused_head(hr_cpu_pass *p); /* the products are set; keeps the best logits of each thread's rows */

/* Opening and closing, logits and tokens (cpu_engine.c). */
hr_status hr_cpu_open(hr_engine *e);
void hr_cpu_close(hr_engine *e);
size_t hr_cpu_run_bytes(const hr_sizes *sizes);
void hr_cpu_facts(const hr_engine *e, hr_engine_facts *out);
const float *hr_cpu_logits(hr_engine *e, size_t i);
int32_t hr_cpu_sample(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng);

#endif
