/* cuda_rows.c - whether there is a row of the kernel table for everything that passes of an engine do, found when it is opened:
 * a step that has begun does not end for want of a kernel. */
#include "engine/cuda/cuda_state.h"

#include <stdio.h>

static hr_status missing(const char *what, uint32_t n) {
    HR_FAIL(HR_ERR_UNSUPPORTED, "there is no kernel for %s in a pass of %u tokens", what, n);
}

static hr_status need(hr_engine *e, const hr_kernel *row, hr_family family, uint32_t n) {
    if (!row) return missing(hr_cuda_family_name(family), n);
    return hr_cuda_prepare(e->cuda, row);
}

static hr_status need_attention(hr_engine *e, const hr_plan *p) {
    char what[96];
    snprintf(what, sizeof what, "%sattention over K of %s and V of %s", e->config.flash ? "" : "naive ",
             hr_kv_type_name(e->config.k_type), hr_kv_type_name(e->config.v_type));
    if (!p->attn) return missing(what, p->n);
    HR_TRY(hr_cuda_prepare(e->cuda, p->attn));
    return p->merge ? hr_cuda_prepare(e->cuda, p->merge) : HR_OK;
}

static hr_status need_products(hr_engine *e, hr_plan *p, hr_op op, const hr_mat *const *mats, size_t n) {
    hr_group group;
    char what[96];
    hr_plan_group(e, p, op, mats, n, &group);
    for (size_t i = 0; i < n; i++) {
        snprintf(what, sizeof what, "products of %s weights with %s activations", hr_dtypes[mats[i]->dtype].name,
                 hr_act_name(e->act));
        if (!group.rows[i]) return missing(what, p->n);
        HR_TRY(hr_cuda_prepare(e->cuda, group.rows[i]));
        if (group.rows[i] == e->gemm && op == HR_OP_GATE_UP) HR_TRY(need(e, p->glu, HR_FAM_GLU, p->n));
    }
    return HR_OK;
}

static hr_status need_layers(hr_engine *e, hr_plan *p) {
    for (uint32_t i = 0; i < e->model->hp.n_layers; i++) {
        const hr_layer *l = &e->model->layers[i];
        const hr_mat *qkv[] = {&l->wq, &l->wk, &l->wv}, *gate_up[] = {&l->gate, &l->up}, *out = &l->wo,
                     *down = &l->down;
        HR_TRY(need_products(e, p, HR_OP_QKV, qkv, 3));
        HR_TRY(need_products(e, p, HR_OP_OUT, &out, 1));
        HR_TRY(need_products(e, p, HR_OP_GATE_UP, gate_up, 2));
        HR_TRY(need_products(e, p, HR_OP_DOWN, &down, 1));
        if (l->gate.dtype != l->up.dtype) HR_TRY(need(e, p->glu, HR_FAM_GLU, p->n));
    }
    return HR_OK;
}

static hr_status check_pass(hr_engine *e, uint32_t n, uint32_t n_q) {
    hr_plan p;
    const unsigned fusion = e->config.fusion;
    hr_plan_choose(e, n, n_q, &p);
    HR_TRY(need(e, p.embed, HR_FAM_EMBED, n));
    HR_TRY(need(e, p.norm, HR_FAM_NORM, n));
    if (e->act == HR_ACT_INT8 || e->act == HR_ACT_INT8_ROW) HR_TRY(need(e, p.acts, HR_FAM_ACTS, n));
    if (fusion & HR_FUSE_QKV) {
        HR_TRY(need(e, p.finish, HR_FAM_FINISH, n));
    } else {
        HR_TRY(need(e, p.rope, HR_FAM_ROPE, n));
        HR_TRY(need(e, p.append, HR_FAM_KV_APPEND, n));
    }
    if (!(fusion & HR_FUSE_GATE_UP)) HR_TRY(need(e, p.glu, HR_FAM_GLU, n));
    if (!(fusion & HR_FUSE_OUT_RESIDUAL)) HR_TRY(need(e, p.add, HR_FAM_ADD, n));
    if (p.sample) HR_TRY(hr_cuda_prepare(e->cuda, p.sample));
    HR_TRY(need_attention(e, &p));
    HR_TRY(need_layers(e, &p));
    const hr_mat *head = &e->model->head;
    return need_products(e, &p, HR_OP_HEAD, &head, 1);
}

hr_status hr_cuda_check_rows(hr_engine *e) {
    for (uint32_t n = 1; n < e->config.max_seqs; n *= 2) HR_TRY(check_pass(e, hr_engine_bucket(e, n), 1));
    HR_TRY(check_pass(e, e->config.max_seqs, 1));
    return check_pass(e, e->sizes.tokens, e->sizes.tokens);
}
