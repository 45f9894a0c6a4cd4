/* gguf_get.c - looking up keys and tensors, and their values as C types. */
#include "engine/model/gguf.h"
#include "kernels/base/memory.h"

#include <string.h>

static const char *const type_names[HR_GGUF_TYPE_COUNT] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                           "bool", "string", "array", "u64", "i64", "f64"};

static int compare(hr_text a, const char *b, size_t nb) {
    size_t n = a.n < nb ? a.n : nb;
    int order = n ? memcmp(a.s, b, n) : 0;
    return order ? order : (a.n > nb) - (a.n < nb);
}

const hr_gguf_kv *hr_gguf_find(const hr_gguf *g, const char *key) {
    size_t n = strlen(key), lo = 0, hi = g->n_kv;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const hr_gguf_kv *kv = &g->kv[g->kv_by_key[mid]];
        int order = compare(kv->key, key, n);
        if (order == 0) return kv;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const hr_gguf_tensor *hr_gguf_tensor_find(const hr_gguf *g, const char *name) {
    size_t n = strlen(name), lo = 0, hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const hr_gguf_tensor *t = &g->tensors[g->tensors_by_name[mid]];
        int order = compare(t->name, name, n);
        if (order == 0) return t;
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static hr_status wrong_kind(const hr_gguf *g, const hr_gguf_kv *kv, const char *expected) {
    HR_FAIL(HR_ERR_INPUT, "%s: key '%.*s' is of type %s%s%s, expected %s", g->file, HR_TEXT_ARGS(kv->key),
            kv->type == HR_GGUF_ARRAY ? type_names[kv->elem] : "", kv->type == HR_GGUF_ARRAY ? " " : "",
            type_names[kv->type], expected);
}

/* The value of an integer key; false for another type. */
static bool integer(const hr_gguf_kv *kv, bool *negative, uint64_t *value) {
    int64_t s = 0;
    uint64_t u = 0;
#define CASE(TYPE, ctype, target)        \
    case TYPE: {                         \
        ctype v;                         \
        memcpy(&v, kv->value, sizeof v); \
        target = v;                      \
        break;                           \
    }
    switch (kv->type) {
        CASE(HR_GGUF_U8, uint8_t, u)
        CASE(HR_GGUF_U16, uint16_t, u)
        CASE(HR_GGUF_U32, uint32_t, u)
        CASE(HR_GGUF_U64, uint64_t, u)
        CASE(HR_GGUF_I8, int8_t, s)
        CASE(HR_GGUF_I16, int16_t, s)
        CASE(HR_GGUF_I32, int32_t, s)
        CASE(HR_GGUF_I64, int64_t, s)
    default:
        return false;
    }
#undef CASE
    *negative = s < 0;
    *value = s ? (uint64_t)s : u;
    return true;
}

hr_status hr_gguf_get_u32(const hr_gguf *g, const char *key, uint32_t *out) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    bool negative;
    uint64_t value;
    if (!kv) return HR_OK;
    if (!integer(kv, &negative, &value)) return wrong_kind(g, kv, "an integer");
    if (negative || value > UINT32_MAX)
        HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is %s%llu, expected 0 to 4294967295", g->file, key, negative ? "-" : "",
                negative ? 0 - (unsigned long long)value : (unsigned long long)value);
    *out = (uint32_t)value;
    return HR_OK;
}

hr_status hr_gguf_get_f32(const hr_gguf *g, const char *key, float *out) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    if (!kv) return HR_OK;
    double wide;
    if (kv->type == HR_GGUF_F32) {
        memcpy(out, kv->value, sizeof *out);
    } else if (kv->type == HR_GGUF_F64) {
        memcpy(&wide, kv->value, sizeof wide);
        /* A double beyond float's range has no float value in C; infinity is refused by the caller like any other. */
        *out = wide > 3.4028234e38 ? __builtin_inff() : wide < -3.4028234e38 ? -__builtin_inff() : (float)wide;
    } else {
        return wrong_kind(g, kv, "a float");
    }
    return HR_OK;
}

hr_status hr_gguf_get_bool(const hr_gguf *g, const char *key, bool *out) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    if (!kv) return HR_OK;
    if (kv->type != HR_GGUF_BOOL) return wrong_kind(g, kv, "a bool");
    if (*kv->value > 1) HR_FAIL(HR_ERR_INPUT, "%s: key '%s' is a bool of value %u", g->file, key, *kv->value);
    *out = *kv->value;
    return HR_OK;
}

static hr_text text_at(const uint8_t *p) {
    uint64_t n;
    memcpy(&n, p, 8);
    return (hr_text){(const char *)p + 8, (size_t)n};
}

hr_status hr_gguf_get_text(const hr_gguf *g, const char *key, hr_text *out) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    if (!kv) return HR_OK;
    if (kv->type != HR_GGUF_STRING) return wrong_kind(g, kv, "a string");
    *out = text_at(kv->value);
    return HR_OK;
}

hr_status hr_gguf_get_texts(const hr_gguf *g, const char *key, hr_text **out, size_t *n) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    *out = NULL, *n = 0;
    if (!kv) return HR_OK;
    if (kv->type != HR_GGUF_ARRAY || kv->elem != HR_GGUF_STRING) return wrong_kind(g, kv, "a string array");
    hr_text *texts = hr_malloc(hr_mul((size_t)kv->n, sizeof *texts));
    if (!texts) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for key '%s'", g->file, key);
    const uint8_t *p = kv->value;
    for (size_t i = 0; i < kv->n; i++) {
        texts[i] = text_at(p);
        p += 8 + texts[i].n;
    }
    *out = texts, *n = (size_t)kv->n;
    return HR_OK;
}

hr_status hr_gguf_get_ints(const hr_gguf *g, const char *key, int32_t **out, size_t *n) {
    const hr_gguf_kv *kv = hr_gguf_find(g, key);
    *out = NULL, *n = 0;
    if (!kv) return HR_OK;
    if (kv->type != HR_GGUF_ARRAY || (kv->elem != HR_GGUF_I32 && kv->elem != HR_GGUF_U32))
        return wrong_kind(g, kv, "an i32 array");
    int32_t *ints = hr_malloc(hr_mul((size_t)kv->n, sizeof *ints));
    if (!ints) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for key '%s'", g->file, key);
    if (kv->n) memcpy(ints, kv->value, (size_t)kv->n * sizeof *ints);
    *out = ints, *n = (size_t)kv->n;
    return HR_OK;
}
