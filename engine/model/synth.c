/* synth.c - the published shapes, the spec that changes them, and the generator of their weights.
 *
 * Scale of the values. A matrix of c columns has entries of standard deviation 1 / sqrt(c), so that a normed input gives
 * outputs near 1; the two matrices of a layer that add to the residual stream have 1 / sqrt(2 * layers) of that, so that
 * the stream ends near 1 at any depth. Norm weights are 1 within 10 %. */
#include "engine/model/synth.h"

#include "kernels/base/nearest.h"
#include "kernels/base/random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct shape {
    const char *name;
    uint32_t layers, dim, heads, kv_heads, head_dim, ffn, vocab, ctx;
    float eps, rope_base, rope_factor;
    uint32_t rope_original_ctx;
    bool tied;
    const char *source;
} shape;

/* clang-format off */
static const shape shapes[] = {
    /* name          layers   dim heads kv  hd    ffn   vocab     ctx   eps    base   factor original tied source */
    {"tiny",         4,  256,  4,  2,  64,   768,   1024,  32768, 1e-5f,  10000,  0,    0, false, "none: for tests"},
    {"smollm2-135m", 30,  576,  9,  3,  64,  1536,  49152,   8192, 1e-5f, 100000,  0,    0, true,  "HuggingFaceTB/SmolLM2-135M-Instruct"},
    {"llama-3.2-1b", 16, 2048, 32,  8,  64,  8192, 128256, 131072, 1e-5f, 500000, 32, 8192, true,  "meta-llama/Llama-3.2-1B"},
    {"llama-3.2-3b", 28, 3072, 24,  8, 128,  8192, 128256, 131072, 1e-5f, 500000, 32, 8192, true,  "meta-llama/Llama-3.2-3B"},
    {"llama-3.1-8b", 32, 4096, 32,  8, 128, 14336, 128256, 131072, 1e-5f, 500000,  8, 8192, false, "meta-llama/Llama-3.1-8B"},
    {"llama-2-7b",   32, 4096, 32, 32, 128, 11008,  32000,   4096, 1e-5f,  10000,  0,    0, false, "meta-llama/Llama-2-7b-hf"},
    {"mistral-7b",   32, 4096, 32,  8, 128, 14336,  32768,  32768, 1e-5f, 1000000, 0,    0, false, "mistralai/Mistral-7B-v0.3"},
};
/* clang-format on */
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const char *const names[N_SHAPES + 1] = {
    "tiny", "smollm2-135m", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "llama-2-7b", "mistral-7b", NULL,
};

const char *const *hr_model_shape_names(void) {
    return names;
}

/* ---- the spec --------------------------------------------------------------------------------------------------- */

static const char KEYS[] = "layers dim heads kv_heads head_dim ffn vocab ctx seed";

bool hr_synth_is(const char *spec) {
    return !strncmp(spec, "synth:", 6);
}

hr_status hr_synth_not_meant(const char *spec) {
    const size_t n = strcspn(spec, ":");
    for (size_t i = 0; names[i]; i++)
        if (strlen(names[i]) == n && !memcmp(names[i], spec, n) && access(spec, F_OK) != 0)
            HR_FAIL(HR_ERR_INPUT, "%s: no such file; did you mean synth:%s?", spec, spec);
    return HR_OK;
}

typedef struct overrides {
    uint64_t layers, dim, heads, kv_heads, head_dim, ffn, vocab, ctx, seed;
    unsigned given; /* bit i: key i of KEYS */
} overrides;
enum { K_LAYERS, K_DIM, K_HEADS, K_KV_HEADS, K_HEAD_DIM, K_FFN, K_VOCAB, K_CTX, K_SEED, K_COUNT };

static hr_status parse_number(const char *spec, const char *key, const char *s, size_t n, uint64_t max, uint64_t *out) {
    uint64_t value = 0;
    bool good = n > 0;
    for (size_t i = 0; i < n && good; i++) {
        good = s[i] >= '0' && s[i] <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
               !__builtin_add_overflow(value, (uint64_t)(s[i] - '0'), &value);
    }
    if (!good || value > max)
        HR_FAIL(HR_ERR_INPUT, "%s: %s=%.*s is no whole number up to %llu", spec, key, (int)(n < 40 ? n : 40), s,
                (unsigned long long)max);
    *out = value;
    return HR_OK;
}

static hr_status parse_pair(const char *spec, const char *s, size_t n, overrides *o) {
    static const char *const keys[K_COUNT] = {"layers", "dim",   "heads", "kv_heads", "head_dim",
                                              "ffn",    "vocab", "ctx",   "seed"};
    uint64_t *slots[K_COUNT] = {&o->layers, &o->dim,   &o->heads, &o->kv_heads, &o->head_dim,
                                &o->ffn,    &o->vocab, &o->ctx,   &o->seed};
    const char *equal = memchr(s, '=', n);
    size_t key_n = equal ? (size_t)(equal - s) : n;
    for (unsigned i = 0; i < K_COUNT; i++) {
        if (strlen(keys[i]) != key_n || memcmp(keys[i], s, key_n)) continue;
        if (!equal) HR_FAIL(HR_ERR_INPUT, "%s: '%s' needs a value: %s=NUMBER", spec, keys[i], keys[i]);
        if (o->given & 1u << i) HR_FAIL(HR_ERR_INPUT, "%s: '%s' stands twice", spec, keys[i]);
        o->given |= 1u << i;
        return parse_number(spec, keys[i], equal + 1, n - key_n - 1, i == K_SEED ? UINT64_MAX : UINT32_MAX, slots[i]);
    }
    HR_FAIL(HR_ERR_INPUT, "%s: unknown key '%.*s'; keys are: %s", spec, (int)(key_n < 40 ? key_n : 40), s, KEYS);
}

static const shape *shape_find(const char *s, size_t n) {
    for (size_t i = 0; i < N_SHAPES; i++)
        if (strlen(shapes[i].name) == n && !memcmp(shapes[i].name, s, n)) return &shapes[i];
    return NULL;
}

static hr_status unknown_shape(const char *spec) {
    char list[256] = "", word[64];
    const char *name = spec + strlen("synth:");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(name, ":"), name);
    const char *near = hr_nearest(word, names);
    if (near) HR_FAIL(HR_ERR_INPUT, "%s: unknown shape; nearest is synth:%s", spec, near);
    for (size_t i = 0, at = 0; names[i]; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", names[i]);
    HR_FAIL(HR_ERR_INPUT, "%s: unknown shape; known are: %s", spec, list);
}

static hr_hparams shape_hparams(const shape *s) {
    return (hr_hparams){.n_layers = s->layers,
                        .dim = s->dim,
                        .n_heads = s->heads,
                        .n_kv_heads = s->kv_heads,
                        .head_dim = s->head_dim,
                        .ffn = s->ffn,
                        .vocab = s->vocab,
                        .ctx = s->ctx,
                        .rope_dims = s->head_dim,
                        .rms_eps = s->eps,
                        .rope_base = s->rope_base,
                        .attn_scale = (float)(1 / sqrt(s->head_dim))};
}

/* head_dim follows dim and heads, as in the published shapes, unless it is given itself. */
static hr_status apply(const char *spec, const overrides *o, hr_hparams *hp) {
    const uint64_t values[] = {o->layers, o->dim, o->heads, o->kv_heads, o->head_dim, o->ffn, o->vocab, o->ctx};
    uint32_t *slots[] = {&hp->n_layers, &hp->dim, &hp->n_heads, &hp->n_kv_heads,
                         &hp->head_dim, &hp->ffn, &hp->vocab,   &hp->ctx};
    for (unsigned i = 0; i < K_SEED; i++)
        if (o->given & 1u << i) *slots[i] = (uint32_t)values[i];
    bool derive = (o->given & (1u << K_DIM | 1u << K_HEADS)) && !(o->given & 1u << K_HEAD_DIM);
    if (derive && hp->n_heads) {
        if (hp->dim % hp->n_heads || hp->dim / hp->n_heads % 2)
            HR_FAIL(HR_ERR_INPUT, "%s: dim %u over %u heads is no even head size; give heads= or head_dim= too", spec,
                    hp->dim, hp->n_heads);
        hp->head_dim = hp->dim / hp->n_heads;
    }
    hp->rope_dims = hp->head_dim;
    hp->attn_scale = hp->head_dim ? (float)(1 / sqrt(hp->head_dim)) : 0;
    if (hr_hparams_check(hp) != HR_OK) return hr_fail_prefix(HR_ERR_INPUT, spec);
    return HR_OK;
}

hr_status hr_synth_parse(const char *spec, hr_synth *out) {
    const char *s = spec + strlen("synth:");
    size_t n = strcspn(s, ":");
    const shape *found = shape_find(s, n);
    overrides o = {0};
    if (!found) return unknown_shape(spec);
    for (s += n; *s; s += n) {
        s++;
        n = strcspn(s, ":");
        HR_TRY(parse_pair(spec, s, n, &o));
    }
    hr_hparams hp = shape_hparams(found);
    HR_TRY(apply(spec, &o, &hp));
    *out = (hr_synth){found->name, hp, found->tied, found->rope_factor, found->rope_original_ctx, o.seed};
    return HR_OK;
}

/* ---- RoPE ------------------------------------------------------------------------------------------------------- */

/* Llama 3: wavelengths above original / low are stretched by the factor, those below original / high stay, and between
 * them the two are blended linearly in original / wavelength (Llama 3.1 reference code; low 1, high 4). */
void hr_synth_rope(const hr_synth *synth, double *freq) {
    const double low = 1, high = 4, factor = synth->rope_factor, original = synth->rope_original_ctx;
    hr_rope_base(&synth->hp, freq);
    if (factor == 0) return;
    for (uint32_t i = 0; i < synth->hp.rope_dims / 2; i++) {
        double waves = original * freq[i] / (2 * M_PI); /* in the original context */
        double keep = (waves - low) / (high - low);
        keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
        freq[i] *= keep + (1 - keep) / factor;
    }
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

static uint64_t key_of(uint64_t seed, const char *name) {
    uint64_t key = hr_mix64(seed + HR_GOLDEN);
    for (const char *c = name; *c; c++) key = hr_mix64((key ^ (unsigned char)*c) + HR_GOLDEN);
    return key;
}

void hr_synth_bind(const hr_synth *synth, hr_plan *plan) {
    double residual = 1 / sqrt(2.0 * synth->hp.n_layers);
    for (size_t i = 0; i < plan->n_mats; i++) {
        hr_plan_mat *m = &plan->mats[i];
        double std = 1 / sqrt((double)m->slot->cols);
        m->draw = (hr_draw){key_of(synth->seed, m->name), 0, (float)(m->residual ? std * residual : std)};
    }
    for (size_t i = 0; i < plan->n_vecs; i++) {
        hr_plan_vec *v = &plan->vecs[i];
        bool norm = strstr(v->name, "norm") != NULL;
        v->present = true;
        v->draw = (hr_draw){key_of(synth->seed, v->name), norm ? 1 : 0, 0.1f / 1.7320508f};
    }
}

/* Four values a counter: 16 bits each, uniform within sqrt(3) standard deviations, never 0. */
void hr_synth_row(const hr_draw *draw, size_t row, size_t cols, float *out) {
    const float scale = draw->std * 1.7320508f / 32768, center = draw->center + 0.5f * scale;
    uint64_t counter = draw->key + row * ((cols + 3) / 4) * HR_GOLDEN;
    size_t c = 0;
    for (; c + 4 <= cols; c += 4) {
        uint64_t bits = hr_mix64(counter += HR_GOLDEN);
        out[c] = center + scale * (float)(int16_t)bits;
        out[c + 1] = center + scale * (float)(int16_t)(bits >> 16);
        out[c + 2] = center + scale * (float)(int16_t)(bits >> 32);
        out[c + 3] = center + scale * (float)(int16_t)(bits >> 48);
    }
    for (uint64_t bits = hr_mix64(counter + HR_GOLDEN); c < cols; c++, bits >>= 16)
        out[c] = center + scale * (float)(int16_t)bits;
}

json_t *hr_model_shapes(void) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        hr_model_info info;
        char spec[64];
        snprintf(spec, sizeof spec, "synth:%s", s->name);
        if (hr_model_peek(spec, HR_QUANT_NATIVE, HR_ORDER_ROWS, &info) != HR_OK) continue;
        json_t *row = json_pack(
            "{s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:f, s:o, s:s}", "name", s->name, "arch",
            info.arch, "params", (json_int_t)info.n_params, "bytes", (json_int_t)info.weight_bytes, "layers",
            (int)s->layers, "dim", (int)s->dim, "heads", (int)s->heads, "kv_heads", (int)s->kv_heads, "head_dim",
            (int)s->head_dim, "ffn", (int)s->ffn, "vocab", (int)s->vocab, "ctx", (int)s->ctx, "tied", (int)s->tied,
            "rope_base", (double)s->rope_base, "rope_scaling",
            s->rope_factor != 0 ? json_sprintf("llama3, factor %g", (double)s->rope_factor) : json_null(), "source",
            s->source);
        if (!row || json_array_append_new(list, row)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
