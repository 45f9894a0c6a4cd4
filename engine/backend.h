/* backend.h - the edge between the forward pass and the machine that runs it: one table of operations a backend.
 *
 * The pass (forward.c) calls the ops in order; each is one record of its op class (or two, where it says so), works on the
 * run state of the backend and leaves its result where the next op of the same backend looks for it:
 *     residual stream x [n][dim], normalized h [n][dim], Q, K, V side by side [n][q_dim + 2 kv_dim], attention's output
 *     [n][q_dim], gate [n][ffn], logits [n_logits][vocab].
 * Ops return nothing: a backend that can fail keeps its first failure, skips what follows, and tells it in end. A new family
 * of models needs no new call here: ops read the facts of model.h. */
#ifndef HR_BACKEND_H
#define HR_BACKEND_H

#include "engine/pass.h"

typedef struct hr_backend {
    const char *name; /* "cpu", "cuda" */
    /* Run state, KV cache and all that steps need, by e->config (checked) and e->model; *e otherwise zero. After a failure
     * close is called. */
    hr_status (*open)(hr_engine *e);
    void (*close)(hr_engine *e);
    size_t (*run_bytes)(const hr_sizes *sizes);              /* of run state that open maps; nothing is opened */
    void (*facts)(const hr_engine *e, hr_engine_facts *out); /* adds what the backend alone knows */

    /* Before the first op of a pass, and after its last: logits of the batch are where `logits` finds them. */
    hr_status (*begin)(hr_pass *p);
    hr_status (*end)(hr_pass *p);

    void (*embed)(hr_pass *p); /* x = rows of the table, by p->batch->tokens */
    /* Norm before attention, the products, bias, q and k norm, RoPE and KV append, in one op of class qkv ... */
    void (*qkv_fused)(hr_pass *p);
    /* ... or as ops of their own: norm, qkv, rope, kv_append. */
    void (*qkv)(hr_pass *p);
    void (*attention)(hr_pass *p);
    void (*out)(hr_pass *p);           /* x += wo attention; not joined (HR_FUSE_OUT_RESIDUAL): two records */
    void (*gate_up_fused)(hr_pass *p); /* norm, gate, up, activation */
    void (*gate_up)(hr_pass *p);       /* the same as ops: norm, gate_up, the activation (class gate_up) */
    void (*down)(hr_pass *p);          /* x += down gate; as out */
    void (*head)(hr_pass *p); /* last norm and logits of p->batch->logit_rows; fused: also the best of each row */

    /* Row i of the last pass's logits [vocab] in host memory; NULL after a failure (hr_error). */
    const float *(*logits)(hr_engine *e, size_t i);
    /* A token from that row, as one record of class sample. */
    int32_t (*sample)(hr_engine *e, size_t i, const hr_sampling *how, uint64_t *rng);
} hr_backend;

/* The backend of a device; ERR_UNSUPPORTED where it was not built. */
hr_status hr_backend_of(int device, const hr_backend **out);
extern const hr_backend hr_backend_cpu;
#ifdef HR_HAVE_CUDA
extern const hr_backend hr_backend_cuda;
#endif

#endif
