/* open.c - a spec becomes a model without weights: its facts, shape, list of weights, and what is not supported. */
#include "engine/model/synth.h"
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Changes whenever the generator gives other values, so that stored cells of older programs are not compared. */
static const char SYNTH_VERSION[] = "synth-1";

/* A text from a file as a C string that is valid UTF-8 without control characters, cut at a whole character. */
static void copy_text(hr_text text, char *out, size_t size) {
    json_t *json = hr_json_text(text);
    const char *s = json ? json_string_value(json) : "?";
    size_t n = strlen(s);
    if (n >= size)
        for (n = size - 1; n && ((unsigned char)s[n] & 0xc0) == 0x80;) n--;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
    out[n] = 0;
    json_decref(json);
}

static hr_status set_rope(hr_model *model, double **freq) {
    *freq = hr_malloc(hr_mul(model->hp.rope_dims / 2, sizeof **freq));
    if (!*freq) HR_FAIL(HR_ERR_MEMORY, "out of memory for %u RoPE frequencies", model->hp.rope_dims / 2);
    model->rope_freq = *freq;
    hr_rope_base(&model->hp, *freq);
    return HR_OK;
}

static void set_info(hr_model *model, const char *spec) {
    hr_model_info *info = &model->info;
    const hr_hparams *hp = &model->hp;
    snprintf(info->filename, sizeof info->filename, "%s", spec);
    info->n_layers = hp->n_layers, info->dim = hp->dim, info->n_heads = hp->n_heads, info->n_kv_heads = hp->n_kv_heads;
    info->head_dim = hp->head_dim, info->ffn = hp->ffn, info->vocab = hp->vocab, info->ctx = hp->ctx;
}

/* ---- synthetic ---------------------------------------------------------------------------------------------------- */

static void synth_hash(const hr_synth *s, char out[33]) {
    hr_fingerprint f = {0};
    hr_fingerprint_add(&f, SYNTH_VERSION, sizeof SYNTH_VERSION);
    hr_fingerprint_add(&f, &s->hp, sizeof s->hp);
    hr_fingerprint_add(&f, (uint32_t[]){s->tied, s->rope_original_ctx}, 8);
    hr_fingerprint_add(&f, &s->rope_factor, sizeof s->rope_factor);
    hr_fingerprint_add(&f, &s->seed, sizeof s->seed);
    hr_fingerprint_hex(&f, out);
}

static hr_status open_synth(const char *spec, hr_opened *o) {
    hr_synth synth;
    hr_model *model = o->model;
    hr_model_info *info = &model->info;
    double *freq;
    HR_TRY(hr_synth_parse(spec, &synth));
    model->arch = hr_arch_find("llama"), model->hp = synth.hp;
    HR_TRY(set_rope(model, &freq));
    hr_synth_rope(&synth, freq);
    HR_TRY(hr_plan_create(model, synth.tied, &o->plan));
    hr_synth_bind(&synth, &o->plan);
    HR_TRY(hr_plan_layout(&o->plan, HR_QUANT_NATIVE, HR_ORDER_ROWS, false));
    set_info(model, spec);
    info->synthetic = true;
    info->n_params = hr_plan_elems(&o->plan), info->file_bytes = o->plan.weight_bytes;
    snprintf(info->name, sizeof info->name, "%s", synth.name);
    snprintf(info->arch, sizeof info->arch, "%s", model->arch->name);
    char label[16];
    hr_size_label(info->n_params, label, sizeof label);
    snprintf(info->type, sizeof info->type, "%s %s BF16", info->arch, label);
    synth_hash(&synth, info->hash);
    return HR_OK;
}

/* ---- GGUF --------------------------------------------------------------------------------------------------------- */

/* general.file_type as other tools write it (the enumeration of the ggml project). */
static const char *file_type_name(uint32_t type) {
    static const char *const file_types[] = {
        [0] = "all F32",        [1] = "F16",
        [2] = "Q4_0",           [3] = "Q4_1",
        [7] = "Q8_0",           [8] = "Q5_0",
        [9] = "Q5_1",           [10] = "Q2_K - Medium",
        [11] = "Q3_K - Small",  [12] = "Q3_K - Medium",
        [13] = "Q3_K - Large",  [14] = "Q4_K - Small",
        [15] = "Q4_K - Medium", [16] = "Q5_K - Small",
        [17] = "Q5_K - Medium", [18] = "Q6_K",
        [32] = "BF16",
    };
    return type < sizeof file_types / sizeof *file_types ? file_types[type] : NULL;
}

/* The type that holds most bytes. */
static const char *majority_type(const hr_gguf *g) {
    uint64_t bytes[256] = {0};
    uint32_t best = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        uint32_t t = g->tensors[i].type;
        bytes[t] += g->tensors[i].bytes;
        if (bytes[t] > bytes[best]) best = t;
    }
    return hr_ggml_type_at(best)->name;
}

static void gguf_hash(const hr_gguf *g, char out[33]) {
    enum { PIECE = 64 };
    hr_fingerprint f = {0};
    hr_fingerprint_add(&f, &g->size, sizeof g->size);
    hr_fingerprint_add(&f, g->data, (size_t)(g->data_offset < g->size ? g->data_offset : g->size));
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hr_gguf_tensor *t = &g->tensors[i];
        size_t n = t->bytes < PIECE ? (size_t)t->bytes : PIECE;
        for (unsigned k = 0; k < 3; k++) hr_fingerprint_add(&f, (const char *)t->data + (t->bytes - n) * k / 2, n);
    }
    hr_fingerprint_hex(&f, out);
}

static hr_status gguf_info(const hr_gguf *g, hr_model_info *info) {
    hr_text name = {0}, arch = {0}, label = {0};
    uint32_t file_type = UINT32_MAX;
    HR_TRY(hr_gguf_get_text(g, "general.name", &name));
    HR_TRY(hr_gguf_get_text(g, "general.architecture", &arch));
    HR_TRY(hr_gguf_get_text(g, "general.size_label", &label));
    HR_TRY(hr_gguf_get_u32(g, "general.file_type", &file_type));
    const char *base = strrchr(g->file, '/');
    base = base ? base + 1 : g->file;
    copy_text(name.n ? name : (hr_text){base, strlen(base)}, info->name, sizeof info->name);
    copy_text(arch, info->arch, sizeof info->arch);
    for (size_t i = 0; i < g->n_tensors; i++) {
        info->n_params += g->tensors[i].elems;
        info->file_bytes += g->tensors[i].bytes;
    }
    char size[16];
    if (label.n && label.n < sizeof size)
        copy_text(label, size, sizeof size);
    else
        hr_size_label(info->n_params, size, sizeof size);
    const char *quant = file_type_name(file_type);
    snprintf(info->type, sizeof info->type, "%s %s %s", info->arch, size, quant ? quant : majority_type(g));
    gguf_hash(g, info->hash);
    return HR_OK;
}

static hr_status open_gguf(const char *spec, hr_opened *o) {
    hr_model *model = o->model;
    const hr_gguf *g = o->gguf;
    double *freq;
    HR_TRY(hr_hparams_from_gguf(g, &model->arch, &model->hp, &o->reasons));
    HR_TRY(gguf_info(g, &model->info));
    set_info(model, spec);
    HR_TRY(hr_reasons_types(g, &o->reasons));
    if (!model->arch) return HR_OK;
    HR_TRY(hr_gguf_check_tokens(g, model->hp.vocab));
    bool tied = !hr_gguf_tensor_find(g, "output.weight");
    model->info.tied = tied;
    /* Experts and the like come with other tensors: to call those missing would be wrong. */
    if (json_array_size(o->reasons.list)) return HR_OK;
    HR_TRY(set_rope(model, &freq));
    HR_TRY(hr_rope_scale_gguf(g, &model->hp, freq));
    HR_TRY(hr_plan_create(model, tied, &o->plan));
    return hr_plan_bind(&o->plan, g, &o->reasons);
}

static hr_status open_with(const char *spec, hr_gguf *gguf, hr_opened *out) {
    *out = (hr_opened){.gguf = gguf, .model = hr_calloc(1, sizeof *out->model)};
    hr_status status = HR_OK;
    if (!out->model)
        status = hr_fail(HR_ERR_MEMORY, "%s: out of memory to open it", spec);
    else
        status = gguf ? open_gguf(spec, out) : open_synth(spec, out);
    if (status != HR_OK) hr_opened_fini(out);
    return status;
}

hr_status hr_model_open_gguf(hr_gguf *gguf, hr_opened *out) {
    return open_with(gguf->file, gguf, out);
}

hr_status hr_model_open(const char *spec, hr_opened *out) {
    hr_gguf *gguf = NULL;
    *out = (hr_opened){0};
    HR_TRY(hr_synth_not_meant(spec));
    if (!hr_synth_is(spec)) HR_TRY(hr_gguf_open(spec, &gguf));
    return open_with(spec, gguf, out);
}

/* After layout: the types that each op class meets. */
static void set_op_dtypes(hr_model *m) {
    uint32_t *set = m->info.op_dtypes;
    memset(set, 0, sizeof m->info.op_dtypes);
    set[HR_OP_EMBED] = 1u << m->embed.dtype;
    set[HR_OP_HEAD] = 1u << (m->info.tied ? m->embed.dtype : m->head.dtype);
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const hr_layer *l = &m->layers[i];
        set[HR_OP_QKV] |= 1u << l->wq.dtype | 1u << l->wk.dtype | 1u << l->wv.dtype;
        set[HR_OP_OUT] |= 1u << l->wo.dtype;
        set[HR_OP_GATE_UP] |= 1u << l->gate.dtype | 1u << l->up.dtype;
        set[HR_OP_DOWN] |= 1u << l->down.dtype;
    }
}

hr_status hr_opened_layout(hr_opened *o, hr_quant quant, hr_order order, bool copy) {
    if (hr_plan_layout(&o->plan, quant, order, copy) != HR_OK)
        return hr_fail_prefix(HR_ERR_INPUT, o->model->info.filename);
    o->model->info.weight_bytes = o->plan.weight_bytes;
    o->model->info.anon_bytes = o->plan.arena_bytes;
    o->model->info.order = order;
    set_op_dtypes(o->model);
    return HR_OK;
}

void hr_opened_fini(hr_opened *o) {
    hr_plan_fini(&o->plan);
    hr_gguf_close(o->gguf);
    json_decref(o->reasons.list);
    hr_model_destroy(o->model);
    *o = (hr_opened){0};
}
