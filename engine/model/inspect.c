/* inspect.c - everything about a model in one JSON object, without its weights. */
#include "engine/model/weights.h"

#include <string.h>

static json_t *shape_json(const hr_model *model) {
    const hr_hparams *hp = &model->hp;
    if (!model->arch) return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b}", "layers", (json_int_t)hp->n_layers,
                     "dim", (json_int_t)hp->dim, "heads", (json_int_t)hp->n_heads, "kv_heads",
                     (json_int_t)hp->n_kv_heads, "head_dim", (json_int_t)hp->head_dim, "ffn", (json_int_t)hp->ffn,
                     "vocab", (json_int_t)hp->vocab, "ctx", (json_int_t)hp->ctx, "rope_dims", (json_int_t)hp->rope_dims,
                     "rope_base", (double)hp->rope_base, "rms_eps", (double)hp->rms_eps, "tied", (int)model->info.tied);
}

static json_t *type_row(const char *name, size_t count, uint64_t bytes, bool supported) {
    return json_pack("{s:s, s:I, s:I, s:b}", "type", name, "count", (json_int_t)count, "bytes", (json_int_t)bytes,
                     "supported", (int)supported);
}

static json_t *tensors_json(const hr_opened *o) {
    json_t *list = json_array();
    for (uint32_t id = 0; o->gguf && list && id < 256; id++) {
        const hr_ggml_type *type = hr_ggml_type_at(id);
        size_t count = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; type && i < o->gguf->n_tensors; i++)
            if (o->gguf->tensors[i].type == id) count++, bytes += o->gguf->tensors[i].bytes;
        if (count) json_array_append_new(list, type_row(type->name, count, bytes, type->dtype >= 0));
    }
    if (!o->gguf && list) {
        uint64_t vectors = 0;
        for (size_t i = 0; i < o->plan.n_vecs; i++) vectors += o->plan.vecs[i].n * sizeof(float);
        json_array_append_new(list, type_row("F32", o->plan.n_vecs, vectors, true));
        json_array_append_new(list, type_row("BF16", o->plan.n_mats, o->model->info.file_bytes - vectors, true));
    }
    return list;
}

/* The tokenizer is made for real, so that a vocabulary that contradicts itself is found here. */
static hr_status tokenizer_json(hr_opened *o, json_t **out) {
    hr_tokenizer *tokenizer = NULL;
    char why[256] = "";
    hr_text model = {0}, pre = {0};
    if (o->gguf) {
        HR_TRY(hr_gguf_tokenizer(o->gguf, o->model->arch ? o->model->hp.vocab : 0, &tokenizer, why, sizeof why));
        HR_TRY(hr_gguf_get_text(o->gguf, "tokenizer.ggml.model", &model));
        HR_TRY(hr_gguf_get_text(o->gguf, "tokenizer.ggml.pre", &pre));
    } else {
        HR_TRY(hr_tokenizer_create_bytes(o->model->hp.vocab, &tokenizer));
        model = (hr_text){"bytes", 5};
    }
    if (tokenizer) {
        *out = json_pack("{s:s, s:o, s:o, s:I, s:b}", "name", hr_tokenizer_name(tokenizer), "model",
                         hr_json_text(model), "pre", pre.n ? hr_json_text(pre) : json_null(), "tokens",
                         (json_int_t)hr_tokenizer_vocab(tokenizer), "adds_bos", (int)hr_tokenizer_adds_bos(tokenizer));
        hr_tokenizer_destroy(tokenizer);
        return HR_OK;
    }
    const hr_gguf_kv *tokens = hr_gguf_find(o->gguf, "tokenizer.ggml.tokens");
    *out =
        json_pack("{s:n, s:o, s:o, s:I, s:n}", "name", "model", model.n ? hr_json_text(model) : json_null(), "pre",
                  pre.n ? hr_json_text(pre) : json_null(), "tokens", (json_int_t)(tokens ? tokens->n : 0), "adds_bos");
    return hr_reason_add(&o->reasons, "%s", why);
}

/* Bytes of all weights at each quant; null where a matrix does not divide into groups. */
static json_t *bytes_json(hr_opened *o, bool computable) {
    json_t *bytes = json_object(), *at = json_object();
    const hr_model_info *info = &o->model->info;
    for (int q = 0; computable && q < HR_QUANT_COUNT; q++) {
        bool fits = hr_opened_layout(o, (hr_quant)q, HR_ORDER_ROWS, false) == HR_OK;
        json_object_set_new(at, hr_quant_name((hr_quant)q),
                            fits ? json_integer((json_int_t)info->weight_bytes) : json_null());
    }
    json_object_set_new(bytes, "file", o->gguf ? json_integer((json_int_t)o->gguf->size) : json_null());
    json_object_set_new(bytes, "tensors", json_integer((json_int_t)info->file_bytes));
    json_object_set_new(bytes, "weights", computable ? at : json_null());
    if (!computable) json_decref(at);
    return bytes;
}

hr_status hr_opened_inspect(hr_opened *o, json_t **out) {
    const hr_model_info *info = &o->model->info;
    bool computable = json_array_size(o->reasons.list) == 0;
    json_t *tokenizer = NULL;
    HR_TRY(tokenizer_json(o, &tokenizer));
    *out = json_pack("{s:o, s:s, s:o, s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "file",
                     hr_json_text((hr_text){info->filename, strlen(info->filename)}), "format",
                     o->gguf ? "gguf" : "synthetic", "version", o->gguf ? json_integer(o->gguf->version) : json_null(),
                     "architecture", info->arch, "name", info->name, "type", info->type, "hash", info->hash, "params",
                     (json_int_t)info->n_params, "shape", shape_json(o->model), "tensors", tensors_json(o), "tokenizer",
                     tokenizer, "bytes", bytes_json(o, computable), "unsupported",
                     o->reasons.list ? json_incref(o->reasons.list) : json_array());
    if (!*out) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for its description", info->filename);
    return HR_OK;
}

hr_status hr_model_inspect(const char *spec, json_t **out) {
    hr_opened o;
    *out = NULL;
    HR_TRY(hr_model_open(spec, &o));
    hr_status status = hr_opened_inspect(&o, out);
    hr_opened_fini(&o);
    return status;
}
