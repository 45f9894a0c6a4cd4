/* arch.c - the architectures as rows of facts, and a model's shape from the keys of its file. */
#include "engine/model/weights.h"
#include "kernels/base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const hr_arch archs[] = {
    {.name = "llama", .rope_interleaved = true},
};

const hr_arch *hr_arch_at(size_t i) {
    return i < sizeof archs / sizeof *archs ? &archs[i] : NULL;
}

const hr_arch *hr_arch_find(const char *name) {
    for (size_t i = 0; hr_arch_at(i); i++)
        if (!strcmp(archs[i].name, name)) return &archs[i];
    return NULL;
}

/* ---- bounds ----------------------------------------------------------------------------------------------------- */

/* Far above any model; with them no product of two dimensions and an element size leaves 64 bits. */
enum { MAX_LAYERS = 4096, MAX_HEADS = 65536, MAX_HEAD_DIM = 4096, MAX_DIM = 1 << 20, MAX_ROWS = 1 << 24 };
static const uint32_t MAX_CTX = 1u << 30;

static hr_status bounded(const char *what, uint32_t value, uint32_t max) {
    if (value < 1 || value > max) HR_FAIL(HR_ERR_INPUT, "%s is %u, expected 1 to %u", what, value, max);
    return HR_OK;
}

hr_status hr_hparams_check(const hr_hparams *hp) {
    HR_TRY(bounded("layers", hp->n_layers, MAX_LAYERS));
    HR_TRY(bounded("dim", hp->dim, MAX_DIM));
    HR_TRY(bounded("heads", hp->n_heads, MAX_HEADS));
    HR_TRY(bounded("kv_heads", hp->n_kv_heads, MAX_HEADS));
    HR_TRY(bounded("head_dim", hp->head_dim, MAX_HEAD_DIM));
    HR_TRY(bounded("ffn", hp->ffn, MAX_ROWS));
    HR_TRY(bounded("vocab", hp->vocab, MAX_ROWS));
    HR_TRY(bounded("ctx", hp->ctx, MAX_CTX));
    if (hp->n_heads % hp->n_kv_heads)
        HR_FAIL(HR_ERR_INPUT, "heads %u is no multiple of kv_heads %u", hp->n_heads, hp->n_kv_heads);
    if ((uint64_t)hp->n_heads * hp->head_dim > MAX_DIM)
        HR_FAIL(HR_ERR_INPUT, "heads %u x head_dim %u is above %d", hp->n_heads, hp->head_dim, MAX_DIM);
    if (hp->rope_dims < 2 || hp->rope_dims % 2 || hp->rope_dims > hp->head_dim)
        HR_FAIL(HR_ERR_INPUT, "%u rotated dimensions of a head of %u; an even number up to head_dim is needed",
                hp->rope_dims, hp->head_dim);
    if (!(hp->rms_eps >= 0 && hp->rms_eps < 1))
        HR_FAIL(HR_ERR_INPUT, "the norm's epsilon is %g, expected 0 to 1", (double)hp->rms_eps);
    if (!(hp->rope_base > 0 && isfinite(hp->rope_base)))
        HR_FAIL(HR_ERR_INPUT, "the RoPE base is %g, expected a number above 0", (double)hp->rope_base);
    if (!(isfinite(hp->attn_scale) && hp->attn_scale > 0))
        HR_FAIL(HR_ERR_INPUT, "the attention scale is %g, expected a number above 0", (double)hp->attn_scale);
    return HR_OK;
}

/* ---- keys of a file --------------------------------------------------------------------------------------------- */

/* Keys that change the computation in ways that the pass does not know; 0, false and an absent key mean "not used". */
static const char *const refused[] = {
    "expert_count",
    "expert_used_count",
    "expert_shared_count",
    "attention.sliding_window",
    "attention.max_alibi_bias",
    "attention.clamp_kqv",
    "attention.group_norm_groups",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "logit_scale",
    "residual_scale",
    "embedding_scale",
    "use_parallel_residual",
};

static void key_of(const hr_arch *arch, const char *field, char out[static 96]) {
    snprintf(out, 96, "%s.%s", arch->name, field);
}

static hr_status need_u32(const hr_gguf *g, const hr_arch *arch, const char *field, uint32_t *out) {
    char key[96];
    key_of(arch, field, key);
    if (!hr_gguf_find(g, key)) HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is missing", g->file, key);
    return hr_gguf_get_u32(g, key, out);
}

static hr_status maybe_u32(const hr_gguf *g, const hr_arch *arch, const char *field, uint32_t *out) {
    char key[96];
    key_of(arch, field, key);
    return hr_gguf_get_u32(g, key, out);
}

static hr_status maybe_f32(const hr_gguf *g, const hr_arch *arch, const char *field, float *out) {
    char key[96];
    key_of(arch, field, key);
    return hr_gguf_get_f32(g, key, out);
}

static hr_status need_f32(const hr_gguf *g, const hr_arch *arch, const char *field, float *out) {
    char key[96];
    key_of(arch, field, key);
    if (!hr_gguf_find(g, key)) HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is missing", g->file, key);
    return hr_gguf_get_f32(g, key, out);
}

/* A count that some files give per layer: an array is fine when all layers agree. */
static hr_status per_layer_u32(const hr_gguf *g, const hr_arch *arch, const char *field, uint32_t *out,
                               hr_reasons *reasons) {
    char key[96];
    key_of(arch, field, key);
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    if (!kv || kv->type != HR_GGUF_ARRAY) return hr_gguf_get_u32(g, key, out);
    int32_t *values;
    size_t n;
    HR_TRY(hr_gguf_get_ints(g, key, &values, &n));
    bool equal = true;
    for (size_t i = 1; i < n; i++) equal &= values[i] == values[0];
    if (n && values[0] >= 0) *out = (uint32_t)values[0];
    hr_free(values);
    return equal ? HR_OK : hr_reason_add(reasons, "%s differs between layers", key);
}

/* A refused key that says something else than 0. */
static bool in_use(const hr_gguf *g, const hr_gguf_kv *kv) {
    static const uint8_t zeros[8];
    (void)g;
    switch (kv->type) {
    case HR_GGUF_STRING:
    case HR_GGUF_ARRAY:
        return true;
    case HR_GGUF_U8:
    case HR_GGUF_I8:
    case HR_GGUF_BOOL:
        return *kv->value != 0;
    case HR_GGUF_U16:
    case HR_GGUF_I16:
        return memcmp(kv->value, zeros, 2) != 0;
    case HR_GGUF_U32:
    case HR_GGUF_I32:
    case HR_GGUF_F32:
        return memcmp(kv->value, zeros, 4) != 0;
    default:
        return memcmp(kv->value, zeros, 8) != 0;
    }
}

static hr_status read_scaling(const hr_gguf *g, const hr_arch *arch, hr_reasons *reasons) {
    char key[96];
    hr_text type = {0};
    key_of(arch, "rope.scaling.type", key);
    HR_TRY(hr_gguf_get_text(g, key, &type));
    if (type.n && !hr_text_is(type, "none") && !hr_text_is(type, "linear"))
        HR_TRY(hr_reason_add(reasons, "RoPE scaling '%.*s' (%s)", HR_TEXT_ARGS(type), key));
    return HR_OK;
}

static hr_status read_refused(const hr_gguf *g, const hr_arch *arch, hr_reasons *reasons) {
    char key[96];
    bool causal = true;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        key_of(arch, refused[i], key);
        const hr_gguf_kv *kv = hr_gguf_find(g, key);
        if (kv && in_use(g, kv)) HR_TRY(hr_reason_add(reasons, "%s is set", key));
    }
    key_of(arch, "attention.causal", key);
    HR_TRY(hr_gguf_get_bool(g, key, &causal));
    if (!causal) HR_TRY(hr_reason_add(reasons, "attention that is not causal (%s)", key));
    return HR_OK;
}

static hr_status read_hparams(const hr_gguf *g, const hr_arch *arch, hr_hparams *hp, hr_reasons *reasons) {
    HR_TRY(need_u32(g, arch, "block_count", &hp->n_layers));
    HR_TRY(need_u32(g, arch, "embedding_length", &hp->dim));
    HR_TRY(need_u32(g, arch, "context_length", &hp->ctx));
    HR_TRY(per_layer_u32(g, arch, "feed_forward_length", &hp->ffn, reasons));
    HR_TRY(per_layer_u32(g, arch, "attention.head_count", &hp->n_heads, reasons));
    hp->n_kv_heads = hp->n_heads;
    HR_TRY(per_layer_u32(g, arch, "attention.head_count_kv", &hp->n_kv_heads, reasons));
    hp->head_dim = hp->n_heads ? hp->dim / hp->n_heads : 0;
    HR_TRY(maybe_u32(g, arch, "attention.key_length", &hp->head_dim));
    uint32_t value_length = hp->head_dim;
    HR_TRY(maybe_u32(g, arch, "attention.value_length", &value_length));
    if (value_length != hp->head_dim)
        HR_TRY(hr_reason_add(reasons, "keys of %u and values of %u elements", hp->head_dim, value_length));
    hp->rope_dims = hp->head_dim, hp->rope_base = 10000;
    HR_TRY(maybe_u32(g, arch, "rope.dimension_count", &hp->rope_dims));
    HR_TRY(maybe_f32(g, arch, "rope.freq_base", &hp->rope_base));
    HR_TRY(need_f32(g, arch, "attention.layer_norm_rms_epsilon", &hp->rms_eps));
    hp->attn_scale = hp->head_dim ? (float)(1 / sqrt(hp->head_dim)) : 0;
    HR_TRY(maybe_f32(g, arch, "attention.scale", &hp->attn_scale));
    HR_TRY(read_scaling(g, arch, reasons));
    return read_refused(g, arch, reasons);
}

hr_status hr_hparams_from_gguf(const hr_gguf *g, const hr_arch **arch, hr_hparams *hp, hr_reasons *reasons) {
    hr_text name = {0};
    char copy[32];
    *arch = NULL, *hp = (hr_hparams){0};
    if (!hr_gguf_find(g, "general.architecture"))
        HR_FAIL(HR_ERR_INPUT, "%s: key 'general.architecture' is missing", g->file);
    HR_TRY(hr_gguf_get_text(g, "general.architecture", &name));
    snprintf(copy, sizeof copy, "%.*s", HR_TEXT_ARGS(name));
    const hr_arch *found = name.n < sizeof copy ? hr_arch_find(copy) : NULL;
    if (!found) return hr_reason_add(reasons, "architecture '%.*s'", HR_TEXT_ARGS(name));
    HR_TRY(read_hparams(g, found, hp, reasons));
    /* The vocabulary is what the embedding table holds; vocab_size may be missing, and must not contradict it. */
    const hr_gguf_tensor *embed = hr_gguf_tensor_find(g, "token_embd.weight");
    if (!embed) HR_FAIL(HR_ERR_INPUT, "%s: tensor 'token_embd.weight' is missing", g->file);
    uint32_t vocab = embed->dims[1] > MAX_ROWS ? 0 : (uint32_t)embed->dims[1];
    hp->vocab = vocab;
    HR_TRY(maybe_u32(g, found, "vocab_size", &vocab));
    if (vocab != hp->vocab)
        HR_FAIL(HR_ERR_INPUT, "%s: %s.vocab_size is %u, but token_embd.weight has %" PRIu64 " rows", g->file,
                found->name, vocab, embed->dims[1]);
    if (hr_hparams_check(hp) != HR_OK) return hr_fail_prefix(HR_ERR_INPUT, g->file);
    *arch = found;
    return HR_OK;
}

/* ---- RoPE ------------------------------------------------------------------------------------------------------- */

void hr_rope_base(const hr_hparams *hp, double *freq) {
    for (uint32_t i = 0; i < hp->rope_dims / 2; i++) freq[i] = pow(hp->rope_base, -2.0 * i / hp->rope_dims);
}

/* Linear scaling: positions are divided by the factor. rope.scale_linear is the older name of the key. */
static hr_status linear_factor(const hr_gguf *g, double *out) {
    float factor = 1;
    hr_text arch = {0}, type = {0};
    char key[128];
    HR_TRY(hr_gguf_get_text(g, "general.architecture", &arch));
    snprintf(key, sizeof key, "%.*s.rope.scaling.type", HR_TEXT_ARGS(arch));
    HR_TRY(hr_gguf_get_text(g, key, &type));
    *out = 1;
    if (hr_text_is(type, "none")) return HR_OK;
    snprintf(key, sizeof key, "%.*s.rope.scaling.factor", HR_TEXT_ARGS(arch));
    if (!hr_gguf_find(g, key)) snprintf(key, sizeof key, "%.*s.rope.scale_linear", HR_TEXT_ARGS(arch));
    HR_TRY(hr_gguf_get_f32(g, key, &factor));
    if (factor == 0) factor = 1; /* written by converters for "none" */
    if (!(factor > 0 && isfinite(factor)))
        HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is %g, expected a number above 0", g->file, key, (double)factor);
    *out = factor;
    return HR_OK;
}

hr_status hr_rope_scale_gguf(const hr_gguf *g, const hr_hparams *hp, double *freq) {
    double factor;
    HR_TRY(linear_factor(g, &factor));
    const hr_gguf_tensor *t = hr_gguf_tensor_find(g, "rope_freqs.weight");
    if (t && (t->type != 0 || t->n_dims != 1 || t->dims[0] != hp->rope_dims / 2))
        HR_FAIL(HR_ERR_INPUT, "%s: tensor 'rope_freqs.weight' is not %u F32 values", g->file, hp->rope_dims / 2);
    const float *divisor = t ? t->data : NULL;
    for (uint32_t i = 0; i < hp->rope_dims / 2; i++) {
        double d = divisor ? divisor[i] : 1;
        if (!(d > 0 && isfinite(d)))
            HR_FAIL(HR_ERR_INPUT, "%s: tensor 'rope_freqs.weight': value %u is %g", g->file, i, d);
        freq[i] /= factor * d;
    }
    return HR_OK;
}
