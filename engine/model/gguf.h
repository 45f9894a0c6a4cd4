/* gguf.h - a GGUF file (version 2 or 3, little-endian) as checked tables of keys and tensors.
 *
 * After hr_gguf_open or hr_gguf_parse_memory has returned HR_OK:
 *   1. every key, string and array lies inside the file, and no key stands twice;
 *   2. every tensor has a known type, 1 to 4 dimensions above 0, a unique name, and its bytes lie inside the file's data
 *      section, aligned, overlapping no other tensor;
 *   3. the file is whole: not one part of a split model.
 * Nothing is copied: texts and data point into the file. Format: the GGUF specification of the ggml project. */
#ifndef HR_GGUF_H
#define HR_GGUF_H

#include "engine/model/mapfile.h"
#include "engine/text/tokenizer.h"

typedef enum hr_gguf_type {
    HR_GGUF_U8,
    HR_GGUF_I8,
    HR_GGUF_U16,
    HR_GGUF_I16,
    HR_GGUF_U32,
    HR_GGUF_I32,
    HR_GGUF_F32,
    HR_GGUF_BOOL,
    HR_GGUF_STRING,
    HR_GGUF_ARRAY,
    HR_GGUF_U64,
    HR_GGUF_I64,
    HR_GGUF_F64,
    HR_GGUF_TYPE_COUNT
} hr_gguf_type;

typedef struct hr_gguf_kv {
    hr_text key;
    hr_gguf_type type, elem; /* elem: of an array */
    uint64_t n;              /* elements of an array; 1 */
    const uint8_t *value;    /* the first element, as in the file (strings: u64 length, then bytes), not aligned */
} hr_gguf_kv;

/* Tensor types of the format, known or not to the engine. */
typedef struct hr_ggml_type {
    const char *name;                  /* "Q4_1"; NULL: not a type */
    uint16_t block_elems, block_bytes; /* along the first dimension */
    int dtype;                         /* hr_dtype, or -1: the engine cannot compute with it */
} hr_ggml_type;
const hr_ggml_type *hr_ggml_type_at(uint32_t id); /* NULL for an unknown id */

typedef struct hr_gguf_tensor {
    hr_text name;
    uint32_t type, n_dims;
    uint64_t dims[4]; /* dims[0] is contiguous; the rest 1 where absent */
    uint64_t elems, bytes;
    uint64_t offset; /* in the file */
    const void *data;
} hr_gguf_tensor;

typedef struct hr_gguf {
    char *file; /* for messages */
    hr_mapfile map;
    const uint8_t *data;
    size_t size;
    uint32_t version, alignment;
    size_t n_kv, n_tensors;
    hr_gguf_kv *kv;          /* in order of the file */
    hr_gguf_tensor *tensors; /* in order of the file */
    uint32_t *kv_by_key, *tensors_by_name;
    uint64_t data_offset;
} hr_gguf;

hr_status hr_gguf_open(const char *path, hr_gguf **out);
/* The same over borrowed memory, which must outlive *out; `name` stands for the path in messages. */
hr_status hr_gguf_parse_memory(const void *data, size_t size, const char *name, hr_gguf **out);
void hr_gguf_close(hr_gguf *gguf);

/* NULL where there is none. */
const hr_gguf_kv *hr_gguf_find(const hr_gguf *gguf, const char *key);
const hr_gguf_tensor *hr_gguf_tensor_find(const hr_gguf *gguf, const char *name);

/* Value of a key, converted; *out stays as it was when the key is absent (hr_gguf_find tells). ERR_INPUT for a key of
 * another kind or a value out of range: the message names file and key. */
hr_status hr_gguf_get_u32(const hr_gguf *gguf, const char *key, uint32_t *out);
hr_status hr_gguf_get_f32(const hr_gguf *gguf, const char *key, float *out);
hr_status hr_gguf_get_bool(const hr_gguf *gguf, const char *key, bool *out);
hr_status hr_gguf_get_text(const hr_gguf *gguf, const char *key, hr_text *out);
/* Strings of an array into a new [n] table (hr_free it; the strings are borrowed). *out NULL when absent. */
hr_status hr_gguf_get_texts(const hr_gguf *gguf, const char *key, hr_text **out, size_t *n);
/* Integers of an array of I32 or U32, copied; as above. */
hr_status hr_gguf_get_ints(const hr_gguf *gguf, const char *key, int32_t **out, size_t *n);

static inline bool hr_text_is(hr_text t, const char *s) {
    return t.n == __builtin_strlen(s) && (t.n == 0 || __builtin_memcmp(t.s, s, t.n) == 0);
}
/* For "%.*s": at most 80 bytes of a text from a file. */
#define HR_TEXT_ARGS(t) (int)((t).n < 80 ? (t).n : 80), ((t).n ? (t).s : "")

#endif
