/* gguf_vocab.c - a file's vocabulary as the tokenizer wants it. */
#include "engine/model/synth.h"
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

typedef struct tables {
    hr_text *tokens, *merges;
    int32_t *types;
    size_t n_types;
} tables;

static void tables_fini(tables *t) {
    hr_free(t->tokens), hr_free(t->merges), hr_free(t->types);
}

static hr_status token_id(const hr_gguf *g, const char *key, size_t n_tokens, int32_t *out) {
    uint32_t id = 0;
    *out = -1;
    HR_TRY(hr_gguf_get_u32(g, key, &id));
    if (!hr_gguf_find(g, key) || id == UINT32_MAX) return HR_OK;
    if (id >= n_tokens)
        HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is %u, but there are %zu tokens", g->file, key, id, n_tokens);
    *out = (int32_t)id;
    return HR_OK;
}

/* Of files that do not say: Llama 3 begins with begin-of-text, the other byte-level families do not. */
static bool default_add_bos(hr_text pre) {
    return hr_text_is(pre, "llama-bpe") || hr_text_is(pre, "llama3") || hr_text_is(pre, "llama-v3");
}

static hr_status read_vocab(const hr_gguf *g, tables *t, hr_vocab *v) {
    HR_TRY(hr_gguf_get_texts(g, "tokenizer.ggml.tokens", &t->tokens, &v->n_tokens));
    HR_TRY(hr_gguf_get_texts(g, "tokenizer.ggml.merges", &t->merges, &v->n_merges));
    HR_TRY(hr_gguf_get_ints(g, "tokenizer.ggml.token_type", &t->types, &t->n_types));
    if (!t->tokens) HR_FAIL(HR_ERR_INPUT, "%s: key 'tokenizer.ggml.tokens' is missing", g->file);
    if (t->types && t->n_types != v->n_tokens)
        HR_FAIL(HR_ERR_INPUT, "%s: tokenizer.ggml.token_type has %zu entries for %zu tokens", g->file, t->n_types,
                v->n_tokens);
    v->tokens = t->tokens, v->merges = t->merges, v->types = t->types;
    HR_TRY(token_id(g, "tokenizer.ggml.bos_token_id", v->n_tokens, &v->bos));
    HR_TRY(token_id(g, "tokenizer.ggml.eos_token_id", v->n_tokens, &v->eos));
    HR_TRY(token_id(g, "tokenizer.ggml.eot_token_id", v->n_tokens, &v->eot));
    v->add_bos = default_add_bos(v->pre);
    return hr_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &v->add_bos);
}

hr_status hr_gguf_check_tokens(const hr_gguf *g, uint32_t rows) {
    const hr_gguf_kv *kv = hr_gguf_find(g, "tokenizer.ggml.tokens");
    if (kv && kv->type == HR_GGUF_ARRAY && kv->n != rows)
        HR_FAIL(HR_ERR_INPUT, "%s: tokenizer.ggml.tokens has %llu tokens, but token_embd.weight has %u rows", g->file,
                (unsigned long long)kv->n, rows);
    return HR_OK;
}

hr_status hr_gguf_tokenizer(const hr_gguf *g, uint32_t rows, hr_tokenizer **out, char *why, size_t size) {
    hr_vocab v = {.bos = -1, .eos = -1, .eot = -1};
    *out = NULL, why[0] = 0;
    HR_TRY(hr_gguf_get_text(g, "tokenizer.ggml.model", &v.model));
    HR_TRY(hr_gguf_get_text(g, "tokenizer.ggml.pre", &v.pre));
    if (!v.model.n || hr_text_is(v.model, "no_vocab") || hr_text_is(v.model, "none")) {
        snprintf(why, size, "the file holds no tokenizer");
        return HR_OK;
    }
    if (rows) HR_TRY(hr_gguf_check_tokens(g, rows));
    const char *reason = hr_tokenizer_unsupported(v.model, v.pre);
    if (reason) {
        snprintf(why, size, "tokenizer '%.*s' / '%.*s': %s", HR_TEXT_ARGS(v.model), HR_TEXT_ARGS(v.pre), reason);
        return HR_OK;
    }
    tables t = {0};
    hr_status status = read_vocab(g, &t, &v);
    if (status == HR_OK) {
        status = hr_tokenizer_create(&v, out);
        if (status != HR_OK) hr_fail_prefix(status, g->file);
    }
    tables_fini(&t);
    return status;
}

static hr_status tokenizer_of_file(const hr_gguf *g, hr_tokenizer **out) {
    char why[256];
    const hr_gguf_tensor *embed = hr_gguf_tensor_find(g, "token_embd.weight");
    uint32_t rows = embed && embed->dims[1] <= UINT32_MAX ? (uint32_t)embed->dims[1] : 0;
    HR_TRY(hr_gguf_tokenizer(g, rows, out, why, sizeof why));
    if (!*out) HR_FAIL(HR_ERR_UNSUPPORTED, "%s: %s", g->file, why);
    return HR_OK;
}

hr_status hr_tokenizer_open(const char *spec, hr_tokenizer **out) {
    *out = NULL;
    if (hr_synth_is(spec)) {
        hr_synth synth;
        HR_TRY(hr_synth_parse(spec, &synth));
        return hr_tokenizer_create_bytes(synth.hp.vocab, out);
    }
    hr_gguf *g;
    HR_TRY(hr_synth_not_meant(spec));
    HR_TRY(hr_gguf_open(spec, &g));
    hr_status status = tokenizer_of_file(g, out);
    hr_gguf_close(g);
    return status;
}
