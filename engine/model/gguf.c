#include "engine/model/gguf.h"
#include "kernels/base/dtype.h"
#include "kernels/base/memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* More than any model has; keeps the tables of a lying header small. */
static const uint64_t MAX_KEYS = 1 << 16, MAX_TENSORS = 1 << 18;

static const uint8_t type_bytes[HR_GGUF_TYPE_COUNT] = {
    [HR_GGUF_U8] = 1,  [HR_GGUF_I8] = 1,   [HR_GGUF_U16] = 2, [HR_GGUF_I16] = 2, [HR_GGUF_U32] = 4, [HR_GGUF_I32] = 4,
    [HR_GGUF_F32] = 4, [HR_GGUF_BOOL] = 1, [HR_GGUF_U64] = 8, [HR_GGUF_I64] = 8, [HR_GGUF_F64] = 8,
};

/* clang-format off */
static const hr_ggml_type ggml_types[] = { /* by id; the gaps are types that the format has dropped */
    [0]  = {"F32", 1, 4, HR_F32},       [1]  = {"F16", 1, 2, HR_F16},       [2]  = {"Q4_0", 32, 18, HR_Q4_0},
    [3]  = {"Q4_1", 32, 20, HR_Q4_1},   [6]  = {"Q5_0", 32, 22, -1},        [7]  = {"Q5_1", 32, 24, -1},
    [8]  = {"Q8_0", 32, 34, HR_Q8_0},   [9]  = {"Q8_1", 32, 36, -1},        [10] = {"Q2_K", 256, 84, -1},
    [11] = {"Q3_K", 256, 110, -1},      [12] = {"Q4_K", 256, 144, -1},      [13] = {"Q5_K", 256, 176, -1},
    [14] = {"Q6_K", 256, 210, HR_Q6_K}, [15] = {"Q8_K", 256, 292, -1},      [16] = {"IQ2_XXS", 256, 66, -1},
    [17] = {"IQ2_XS", 256, 74, -1},     [18] = {"IQ3_XXS", 256, 98, -1},    [19] = {"IQ1_S", 256, 50, -1},
    [20] = {"IQ4_NL", 32, 18, -1},      [21] = {"IQ3_S", 256, 110, -1},     [22] = {"IQ2_S", 256, 82, -1},
    [23] = {"IQ4_XS", 256, 136, -1},    [24] = {"I8", 1, 1, -1},            [25] = {"I16", 1, 2, -1},
    [26] = {"I32", 1, 4, -1},           [27] = {"I64", 1, 8, -1},           [28] = {"F64", 1, 8, -1},
    [29] = {"IQ1_M", 256, 56, -1},      [30] = {"BF16", 1, 2, HR_BF16},     [34] = {"TQ1_0", 256, 54, -1},
    [35] = {"TQ2_0", 256, 66, -1},      [39] = {"MXFP4", 32, 17, -1},       [40] = {"NVFP4", 64, 36, -1},
    [41] = {"Q1_0", 128, 18, -1},
};
/* clang-format on */

const hr_ggml_type *hr_ggml_type_at(uint32_t id) {
    return id < sizeof ggml_types / sizeof *ggml_types && ggml_types[id].name ? &ggml_types[id] : NULL;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* What is being read, for the message of a file that ends too early. */
typedef struct reader {
    const hr_gguf *g;
    size_t at;
    const char *what;
    uint64_t index;
} reader;

static size_t left(const reader *r) {
    return r->g->size - r->at;
}

static hr_status cut(const reader *r) {
    HR_FAIL(HR_ERR_INPUT, "%s: the file ends within %s %" PRIu64 " (byte %zu of %zu); fetch it again", r->g->file,
            r->what, r->index, r->at, r->g->size);
}

static hr_status read_u32(reader *r, uint32_t *out) {
    if (left(r) < 4) return cut(r);
    memcpy(out, r->g->data + r->at, 4);
    r->at += 4;
    return HR_OK;
}

static hr_status read_u64(reader *r, uint64_t *out) {
    if (left(r) < 8) return cut(r);
    memcpy(out, r->g->data + r->at, 8);
    r->at += 8;
    return HR_OK;
}

static hr_status read_text(reader *r, hr_text *out) {
    uint64_t n = 0;
    HR_TRY(read_u64(r, &n));
    if (n > left(r))
        HR_FAIL(HR_ERR_INPUT, "%s: a string of %s %" PRIu64 " claims %" PRIu64 " bytes, the file has %zu left",
                r->g->file, r->what, r->index, n, left(r));
    *out = (hr_text){(const char *)r->g->data + r->at, (size_t)n};
    r->at += (size_t)n;
    return HR_OK;
}

/* A name: what an index can be made of. */
static hr_status read_name(reader *r, hr_text *out) {
    HR_TRY(read_text(r, out));
    if (!out->n) HR_FAIL(HR_ERR_INPUT, "%s: %s %" PRIu64 " has an empty name", r->g->file, r->what, r->index);
    return HR_OK;
}

static hr_status read_value(reader *r, hr_gguf_kv *kv) {
    uint32_t type, elem = 0;
    HR_TRY(read_u32(r, &type));
    if (type >= HR_GGUF_TYPE_COUNT)
        HR_FAIL(HR_ERR_INPUT, "%s: key '%.*s' has the unknown value type %u", r->g->file, HR_TEXT_ARGS(kv->key), type);
    kv->type = (hr_gguf_type)type, kv->n = 1;
    hr_gguf_type each = kv->type;
    if (kv->type == HR_GGUF_ARRAY) {
        HR_TRY(read_u32(r, &elem));
        HR_TRY(read_u64(r, &kv->n));
        if (elem >= HR_GGUF_TYPE_COUNT || elem == HR_GGUF_ARRAY)
            HR_FAIL(HR_ERR_INPUT, "%s: array '%.*s' has elements of type %u, which cannot be in an array", r->g->file,
                    HR_TEXT_ARGS(kv->key), elem);
        each = kv->elem = (hr_gguf_type)elem;
    }
    kv->value = r->g->data + r->at;
    size_t least = each == HR_GGUF_STRING ? 8 : type_bytes[each];
    if (kv->n > left(r) / least)
        HR_FAIL(HR_ERR_INPUT, "%s: key '%.*s' claims %" PRIu64 " values, the file has %zu bytes left", r->g->file,
                HR_TEXT_ARGS(kv->key), kv->n, left(r));
    if (each != HR_GGUF_STRING) {
        r->at += (size_t)kv->n * least;
        return HR_OK;
    }
    hr_text skipped;
    for (uint64_t i = 0; i < kv->n; i++) HR_TRY(read_text(r, &skipped));
    return HR_OK;
}

static hr_status read_tensor(reader *r, hr_gguf_tensor *t) {
    const char *file = r->g->file;
    HR_TRY(read_name(r, &t->name));
    HR_TRY(read_u32(r, &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > 4)
        HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s' has %u dimensions, expected 1 to 4", file, HR_TEXT_ARGS(t->name),
                t->n_dims);
    t->elems = 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= t->n_dims) continue;
        HR_TRY(read_u64(r, &t->dims[d]));
        if (t->dims[d] == 0)
            HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s': dimension %u is 0", file, HR_TEXT_ARGS(t->name), d);
        if (__builtin_mul_overflow(t->elems, t->dims[d], &t->elems) || t->elems > INT64_MAX)
            HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s': the product of its dimensions overflows", file,
                    HR_TEXT_ARGS(t->name));
    }
    HR_TRY(read_u32(r, &t->type));
    HR_TRY(read_u64(r, &t->offset));
    const hr_ggml_type *type = hr_ggml_type_at(t->type);
    if (!type)
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: tensor '%.*s' has the unknown type %u; was the file made by a newer program?",
                file, HR_TEXT_ARGS(t->name), t->type);
    if (t->dims[0] % type->block_elems)
        HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s': rows of %" PRIu64 " elements are no multiple of the %s block of %u",
                file, HR_TEXT_ARGS(t->name), t->dims[0], type->name, type->block_elems);
    if (__builtin_mul_overflow(t->elems / type->block_elems, (uint64_t)type->block_bytes, &t->bytes))
        HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s': its size in bytes overflows", file, HR_TEXT_ARGS(t->name));
    return HR_OK;
}

/* ---- order and doubles ------------------------------------------------------------------------------------------ */

static int text_order(hr_text a, hr_text b) {
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.s, b.s, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int by_key(const void *a, const void *b, void *context) {
    const hr_gguf_kv *kv = context;
    return text_order(kv[*(const uint32_t *)a].key, kv[*(const uint32_t *)b].key);
}

static int by_name(const void *a, const void *b, void *context) {
    const hr_gguf_tensor *t = context;
    return text_order(t[*(const uint32_t *)a].name, t[*(const uint32_t *)b].name);
}

static int by_offset(const void *a, const void *b, void *context) {
    const hr_gguf_tensor *t = context;
    uint64_t x = t[*(const uint32_t *)a].offset, y = t[*(const uint32_t *)b].offset;
    return (x > y) - (x < y);
}

static hr_status sorted(size_t n, int (*order)(const void *, const void *, void *), void *rows, uint32_t **out) {
    uint32_t *index = hr_malloc(hr_mul(n, sizeof *index));
    if (!index) HR_FAIL(HR_ERR_MEMORY, "out of memory for a table of %zu entries of a model file", n);
    for (size_t i = 0; i < n; i++) index[i] = (uint32_t)i;
    if (n) qsort_r(index, n, sizeof *index, order, rows);
    *out = index;
    return HR_OK;
}

static hr_status index_keys(hr_gguf *g) {
    HR_TRY(sorted(g->n_kv, by_key, g->kv, &g->kv_by_key));
    for (size_t i = 1; i < g->n_kv; i++) {
        hr_text a = g->kv[g->kv_by_key[i - 1]].key, b = g->kv[g->kv_by_key[i]].key;
        if (text_order(a, b) == 0) HR_FAIL(HR_ERR_INPUT, "%s: key '%.*s' stands twice", g->file, HR_TEXT_ARGS(a));
    }
    return HR_OK;
}

static hr_status index_tensors(hr_gguf *g) {
    HR_TRY(sorted(g->n_tensors, by_name, g->tensors, &g->tensors_by_name));
    for (size_t i = 1; i < g->n_tensors; i++) {
        hr_text a = g->tensors[g->tensors_by_name[i - 1]].name, b = g->tensors[g->tensors_by_name[i]].name;
        if (text_order(a, b) == 0) HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s' stands twice", g->file, HR_TEXT_ARGS(a));
    }
    return HR_OK;
}

static hr_status check_overlaps(const hr_gguf *g) {
    uint32_t *index;
    HR_TRY(sorted(g->n_tensors, by_offset, g->tensors, &index));
    hr_status status = HR_OK;
    for (size_t i = 1; i < g->n_tensors && status == HR_OK; i++) {
        const hr_gguf_tensor *a = &g->tensors[index[i - 1]], *b = &g->tensors[index[i]];
        if (b->offset < a->offset + a->bytes)
            status = hr_fail(HR_ERR_INPUT, "%s: tensors '%.*s' and '%.*s' overlap", g->file, HR_TEXT_ARGS(a->name),
                             HR_TEXT_ARGS(b->name));
    }
    hr_free(index);
    return status;
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static hr_status read_header(reader *r, hr_gguf *g) {
    const char *file = g->file;
    if (g->size < 4 || memcmp(g->data, "GGUF", 4))
        HR_FAIL(HR_ERR_INPUT, "%s: is no GGUF file (it does not begin with 'GGUF')", file);
    r->at = 4, r->what = "header field";
    uint64_t n_tensors, n_kv;
    HR_TRY(read_u32(r, &g->version));
    if (g->version == 0x02000000 || g->version == 0x03000000)
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: is a big-endian GGUF file; only little-endian files are read", file);
    if (g->version != 2 && g->version != 3)
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: has GGUF version %u; versions 2 and 3 are read", file, g->version);
    r->index = 1;
    HR_TRY(read_u64(r, &n_tensors));
    r->index = 2;
    HR_TRY(read_u64(r, &n_kv));
    /* The smallest entries: a key takes 13 bytes (length, type, one byte), a tensor 32 (length, one dimension, ...). */
    if (n_kv > MAX_KEYS || n_kv > left(r) / 13)
        HR_FAIL(HR_ERR_INPUT, "%s: the header claims %" PRIu64 " keys, more than fit in %zu bytes (limit %" PRIu64 ")",
                file, n_kv, g->size, MAX_KEYS);
    if (n_tensors > MAX_TENSORS || n_tensors > left(r) / 32)
        HR_FAIL(HR_ERR_INPUT,
                "%s: the header claims %" PRIu64 " tensors, more than fit in %zu bytes (limit %" PRIu64 ")", file,
                n_tensors, g->size, MAX_TENSORS);
    g->n_kv = (size_t)n_kv, g->n_tensors = (size_t)n_tensors;
    g->kv = hr_calloc(g->n_kv, sizeof *g->kv);
    g->tensors = hr_calloc(g->n_tensors, sizeof *g->tensors);
    if (!g->kv || !g->tensors) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory for %zu tensors", file, g->n_tensors);
    return HR_OK;
}

static hr_status read_meta(hr_gguf *g) {
    uint32_t splits = 1;
    g->alignment = 32;
    HR_TRY(hr_gguf_get_u32(g, "general.alignment", &g->alignment));
    if (g->alignment < 8 || g->alignment > 1 << 20 || (g->alignment & (g->alignment - 1)))
        HR_FAIL(HR_ERR_INPUT, "%s: general.alignment is %u, expected a power of two from 8 to 1048576", g->file,
                g->alignment);
    HR_TRY(hr_gguf_get_u32(g, "split.count", &splits));
    if (splits > 1)
        HR_FAIL(HR_ERR_UNSUPPORTED,
                "%s: is one of %u files of a split model (split.count); join them with `gguf-split --merge` first",
                g->file, splits);
    return HR_OK;
}

static hr_status place_tensors(hr_gguf *g, size_t header_end) {
    g->data_offset = hr_align_up(header_end, g->alignment);
    for (size_t i = 0; i < g->n_tensors; i++) {
        hr_gguf_tensor *t = &g->tensors[i];
        uint64_t end;
        if (t->offset % g->alignment)
            HR_FAIL(HR_ERR_INPUT, "%s: tensor '%.*s' lies at offset %" PRIu64 ", no multiple of the alignment %u",
                    g->file, HR_TEXT_ARGS(t->name), t->offset, g->alignment);
        if (__builtin_add_overflow(t->offset, g->data_offset, &t->offset) ||
            __builtin_add_overflow(t->offset, t->bytes, &end) || end > g->size)
            HR_FAIL(HR_ERR_INPUT,
                    "%s: tensor '%.*s' (%" PRIu64 " bytes) lies beyond the end of the file of %zu bytes; fetch the "
                    "model again",
                    g->file, HR_TEXT_ARGS(t->name), t->bytes, g->size);
        t->data = g->data + t->offset;
    }
    return check_overlaps(g);
}

static hr_status parse(hr_gguf *g) {
    reader r = {.g = g};
    HR_TRY(read_header(&r, g));
    r.what = "key";
    for (r.index = 0; r.index < g->n_kv; r.index++) {
        hr_gguf_kv *kv = &g->kv[r.index];
        HR_TRY(read_name(&r, &kv->key));
        HR_TRY(read_value(&r, kv));
    }
    HR_TRY(index_keys(g));
    HR_TRY(read_meta(g));
    r.what = "tensor";
    for (r.index = 0; r.index < g->n_tensors; r.index++) HR_TRY(read_tensor(&r, &g->tensors[r.index]));
    HR_TRY(index_tensors(g));
    return place_tensors(g, r.at);
}

static hr_status create(const char *name, hr_gguf **out) {
    hr_gguf *g = hr_calloc(1, sizeof *g);
    if (g) g->file = hr_strdup(name);
    if (!g || !g->file) {
        hr_free(g);
        HR_FAIL(HR_ERR_MEMORY, "%s: out of memory to read it", name);
    }
    *out = g;
    return HR_OK;
}

static hr_status finish(hr_gguf *g, hr_status status, hr_gguf **out) {
    if (status == HR_OK)
        *out = g;
    else
        hr_gguf_close(g);
    return status;
}

hr_status hr_gguf_parse_memory(const void *data, size_t size, const char *name, hr_gguf **out) {
    hr_gguf *g;
    *out = NULL;
    HR_TRY(create(name, &g));
    g->data = data, g->size = size;
    return finish(g, parse(g), out);
}

hr_status hr_gguf_open(const char *path, hr_gguf **out) {
    hr_gguf *g;
    *out = NULL;
    HR_TRY(create(path, &g));
    hr_status status = hr_mapfile_open(path, &g->map);
    g->data = g->map.data, g->size = g->map.size;
    return finish(g, status == HR_OK ? parse(g) : status, out);
}

void hr_gguf_close(hr_gguf *g) {
    if (!g) return;
    hr_mapfile_close(&g->map);
    hr_free(g->kv), hr_free(g->tensors), hr_free(g->kv_by_key), hr_free(g->tensors_by_name), hr_free(g->file);
    hr_free(g);
}
