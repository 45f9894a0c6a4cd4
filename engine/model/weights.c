/* weights.c - the list of a model's weights: names and shapes by architecture, tensors of a file, bytes at a quant. */
#include "engine/model/weights.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 64, MATS_A_LAYER = 7, VECS_A_LAYER = 7 };

/* ---- reasons ---------------------------------------------------------------------------------------------------- */

json_t *hr_json_text(hr_text text) {
    json_t *s = json_stringn(text.n ? text.s : "", text.n);
    if (s || text.n > 4096) return s ? s : json_string("?");
    char plain[4097];
    for (size_t i = 0; i < text.n; i++) plain[i] = (unsigned char)text.s[i] < 0x80 ? text.s[i] : '?';
    return json_stringn(plain, text.n);
}

hr_status hr_reason_add(hr_reasons *reasons, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!reasons->list) reasons->list = json_array();
    if (!reasons->list || json_array_append_new(reasons->list, hr_json_text((hr_text){text, strlen(text)})))
        HR_FAIL(HR_ERR_MEMORY, "out of memory for what a model needs");
    return HR_OK;
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

static hr_plan_mat *add_mat(hr_plan *plan, hr_mat *slot, size_t rows, size_t cols, bool residual, int layer,
                            const char *name) {
    hr_plan_mat *m = &plan->mats[plan->n_mats++];
    slot->rows = rows, slot->cols = cols;
    m->slot = slot, m->residual = residual;
    if (layer < 0)
        snprintf(m->name, sizeof m->name, "%s.weight", name);
    else
        snprintf(m->name, sizeof m->name, "blk.%d.%s.weight", layer, name);
    return m;
}

static void add_vec(hr_plan *plan, const float **slot, size_t n, bool optional, int layer, const char *name) {
    hr_plan_vec *v = &plan->vecs[plan->n_vecs++];
    v->slot = slot, v->n = n, v->optional = optional;
    if (layer < 0)
        snprintf(v->name, sizeof v->name, "%s", name);
    else
        snprintf(v->name, sizeof v->name, "blk.%d.%s", layer, name);
}

hr_status hr_plan_create(hr_model *model, bool tied, hr_plan *plan) {
    const hr_hparams *hp = &model->hp;
    const hr_arch *arch = model->arch;
    size_t dim = hp->dim, q = (size_t)hp->n_heads * hp->head_dim, kv = (size_t)hp->n_kv_heads * hp->head_dim;
    *plan = (hr_plan){0};
    model->info.tied = tied;
    model->layers = hr_calloc(hp->n_layers, sizeof *model->layers);
    plan->mats = hr_calloc(2 + (size_t)hp->n_layers * MATS_A_LAYER, sizeof *plan->mats);
    plan->vecs = hr_calloc(1 + (size_t)hp->n_layers * VECS_A_LAYER, sizeof *plan->vecs);
    if (!model->layers || !plan->mats || !plan->vecs)
        HR_FAIL(HR_ERR_MEMORY, "out of memory for the tables of %u layers", hp->n_layers);
    hr_plan_mat *head = add_mat(plan, &model->embed, hp->vocab, dim, false, -1, "token_embd");
    if (!tied) head = add_mat(plan, &model->head, hp->vocab, dim, false, -1, "output");
    head->head = true;
    add_vec(plan, &model->output_norm, dim, false, -1, "output_norm.weight");
    for (int i = 0; i < (int)hp->n_layers; i++) {
        hr_layer *l = &model->layers[i];
        add_vec(plan, &l->attn_norm, dim, false, i, "attn_norm.weight");
        add_mat(plan, &l->wq, q, dim, false, i, "attn_q");
        add_mat(plan, &l->wk, kv, dim, false, i, "attn_k");
        add_mat(plan, &l->wv, kv, dim, false, i, "attn_v");
        add_mat(plan, &l->wo, dim, q, true, i, "attn_output");
        add_vec(plan, &l->ffn_norm, dim, false, i, "ffn_norm.weight");
        add_mat(plan, &l->gate, hp->ffn, dim, false, i, "ffn_gate");
        add_mat(plan, &l->up, hp->ffn, dim, false, i, "ffn_up");
        add_mat(plan, &l->down, dim, hp->ffn, true, i, "ffn_down");
        if (arch->qkv_bias) {
            add_vec(plan, &l->bq, q, true, i, "attn_q.bias");
            add_vec(plan, &l->bk, kv, true, i, "attn_k.bias");
            add_vec(plan, &l->bv, kv, true, i, "attn_v.bias");
        }
        if (arch->qk_norm) {
            add_vec(plan, &l->q_norm, hp->head_dim, false, i, "attn_q_norm.weight");
            add_vec(plan, &l->k_norm, hp->head_dim, false, i, "attn_k_norm.weight");
        }
    }
    return HR_OK;
}

void hr_plan_fini(hr_plan *plan) {
    hr_free(plan->mats), hr_free(plan->vecs);
    *plan = (hr_plan){0};
}

uint64_t hr_plan_elems(const hr_plan *plan) {
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n_mats; i++) n += (uint64_t)plan->mats[i].slot->rows * plan->mats[i].slot->cols;
    for (size_t i = 0; i < plan->n_vecs; i++) n += plan->vecs[i].present ? plan->vecs[i].n : 0;
    return n;
}

/* ---- tensors of a file ------------------------------------------------------------------------------------------ */

static hr_status bind_mat(hr_plan_mat *m, const hr_gguf *g, bool *used) {
    const hr_gguf_tensor *t = hr_gguf_tensor_find(g, m->name);
    if (!t) HR_FAIL(HR_ERR_INPUT, "%s: tensor '%s' is missing", g->file, m->name);
    used[t - g->tensors] = true;
    if (t->n_dims > 2 || t->dims[0] != m->slot->cols || t->dims[1] != m->slot->rows)
        HR_FAIL(HR_ERR_INPUT, "%s: tensor '%s' is %" PRIu64 " x %" PRIu64 "%s, the keys say %zu x %zu", g->file,
                m->name, t->dims[0], t->dims[1], t->n_dims > 2 ? " x ..." : "", m->slot->cols, m->slot->rows);
    const hr_ggml_type *type = hr_ggml_type_at(t->type);
    if (type->dtype >= 0)
        m->source = (hr_mat){(hr_dtype)type->dtype, m->slot->rows, m->slot->cols, t->data, NULL, HR_ORDER_ROWS};
    return HR_OK;
}

static hr_status bind_vec(hr_plan_vec *v, const hr_gguf *g, bool *used, hr_reasons *reasons) {
    const hr_gguf_tensor *t = hr_gguf_tensor_find(g, v->name);
    if (!t && v->optional) return HR_OK;
    if (!t) HR_FAIL(HR_ERR_INPUT, "%s: tensor '%s' is missing", g->file, v->name);
    used[t - g->tensors] = true;
    if (t->elems != v->n || t->dims[0] != v->n)
        HR_FAIL(HR_ERR_INPUT, "%s: tensor '%s' has %" PRIu64 " values, the keys say %zu", g->file, v->name, t->elems,
                v->n);
    const hr_ggml_type *type = hr_ggml_type_at(t->type);
    if (type->dtype != HR_F32 && type->dtype != HR_F16 && type->dtype != HR_BF16)
        return hr_reason_add(reasons, "vector '%s' of type %s", v->name, type->name);
    v->present = true;
    v->source = (hr_mat){(hr_dtype)type->dtype, 1, v->n, t->data, NULL, HR_ORDER_ROWS};
    return HR_OK;
}

/* Tensors that have no place in the pass: to leave them out in silence would compute something else. */
static hr_status name_leftovers(const hr_gguf *g, const bool *used, hr_reasons *reasons) {
    size_t n = 0;
    hr_text first = {0};
    for (size_t i = 0; i < g->n_tensors; i++) {
        hr_text name = g->tensors[i].name;
        if (used[i] || hr_text_is(name, "rope_freqs.weight")) continue;
        if (!n++) first = name;
    }
    if (n == 1) return hr_reason_add(reasons, "tensor '%.*s' has no place in this architecture", HR_TEXT_ARGS(first));
    if (n)
        return hr_reason_add(reasons, "%zu tensors have no place in this architecture, the first is '%.*s'", n,
                             HR_TEXT_ARGS(first));
    return HR_OK;
}

hr_status hr_reasons_types(const hr_gguf *g, hr_reasons *reasons) {
    for (uint32_t id = 0; id < 256; id++) {
        const hr_ggml_type *type = hr_ggml_type_at(id);
        if (!type || type->dtype >= 0) continue;
        size_t n = 0;
        for (size_t i = 0; i < g->n_tensors; i++) n += g->tensors[i].type == id && g->tensors[i].n_dims > 1;
        if (n) HR_TRY(hr_reason_add(reasons, "tensor type %s (%zu tensors)", type->name, n));
    }
    return HR_OK;
}

static hr_status bind_all(hr_plan *plan, const hr_gguf *g, bool *used, hr_reasons *reasons) {
    for (size_t i = 0; i < plan->n_mats; i++) HR_TRY(bind_mat(&plan->mats[i], g, used));
    for (size_t i = 0; i < plan->n_vecs; i++) HR_TRY(bind_vec(&plan->vecs[i], g, used, reasons));
    return name_leftovers(g, used, reasons);
}

hr_status hr_plan_bind(hr_plan *plan, const hr_gguf *g, hr_reasons *reasons) {
    bool *used = hr_calloc(g->n_tensors, sizeof *used);
    if (!used) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for %zu tensors", g->file, g->n_tensors);
    hr_status status = bind_all(plan, g, used, reasons);
    plan->droppable = g->map.data != NULL;
    hr_free(used);
    return status;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static const hr_dtype quant_dtype[HR_QUANT_COUNT] = {
    [HR_QUANT_NATIVE] = HR_BF16, /* of synthetic models */
    [HR_QUANT_F32] = HR_F32,          [HR_QUANT_BF16] = HR_BF16,        [HR_QUANT_F16] = HR_F16,
    [HR_QUANT_INT8] = HR_I8G32,       [HR_QUANT_INT4] = HR_I4G32,       [HR_QUANT_INT8_ROW] = HR_I8ROW,
    [HR_QUANT_INT4_G128] = HR_I4G128, [HR_QUANT_INT4_HEAD8] = HR_I4G32, [HR_QUANT_INT4_G128_HEAD8] = HR_I4G128,
};

static size_t take(size_t *used, size_t bytes) {
    size_t at = *used;
    *used = hr_align_up(at + bytes, ALIGN);
    return at;
}

static hr_dtype dtype_at(const hr_plan *plan, const hr_plan_mat *m, hr_quant quant) {
    const bool head8 = quant == HR_QUANT_INT4_HEAD8 || quant == HR_QUANT_INT4_G128_HEAD8;
    return plan->keep_types ? m->source.dtype : head8 && m->head ? HR_I8G32 : quant_dtype[quant];
}

/* Places a matrix in the arena: its rows, or its panels with the padding of columns and of rows past the last. */
static void place(hr_plan *plan, hr_plan_mat *m) {
    const hr_dtype t = m->slot->dtype;
    const size_t rows = m->slot->rows, cols = m->slot->cols, panels = hr_panel_count(rows);
    const bool in_panels = plan->order == HR_ORDER_PANELS;
    const size_t data = in_panels ? hr_panel_bytes(t, cols) * panels : hr_row_bytes(t, cols) * rows;
    const size_t scales = in_panels ? hr_panel_scales(t, cols) * panels : hr_row_scales(t, cols) * rows;
    m->data_at = take(&plan->arena_bytes, data);
    m->scales_at = scales ? take(&plan->arena_bytes, scales * sizeof(uint16_t)) : 0;
}

hr_status hr_plan_layout(hr_plan *plan, hr_quant quant, hr_order order, bool copy) {
    plan->weight_bytes = 0, plan->arena_bytes = 0, plan->order = order;
    plan->keep_types = quant == HR_QUANT_NATIVE && plan->n_mats && plan->mats[0].source.data;
    plan->keep_file = plan->keep_types && order == HR_ORDER_ROWS && !copy;
    for (size_t i = 0; i < plan->n_mats; i++) {
        hr_plan_mat *m = &plan->mats[i];
        hr_mat *slot = m->slot;
        slot->dtype = dtype_at(plan, m, quant), slot->order = order;
        if (slot->cols % hr_dtypes[slot->dtype].block_elems)
            HR_FAIL(HR_ERR_INPUT,
                    "%s cannot become %s: its rows of %zu values are no multiple of %u; use another --quant", m->name,
                    hr_dtypes[slot->dtype].name, slot->cols, hr_dtypes[slot->dtype].block_elems);
        plan->weight_bytes += hr_mat_bytes(slot);
        if (!plan->keep_file && !plan->unmade) place(plan, m);
    }
    for (size_t i = 0; i < plan->n_vecs; i++) {
        hr_plan_vec *v = &plan->vecs[i];
        if (!v->present) continue;
        v->at = take(&plan->arena_bytes, v->n * sizeof(float));
        plan->weight_bytes += v->n * sizeof(float);
    }
    return HR_OK;
}
