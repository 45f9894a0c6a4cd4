/* gguf_writer.h - builds GGUF files in memory for tests, sound ones and broken ones.
 *
 * Keys and tensors are appended in order; `drop` names some that are left out, so that a test can put its own in their
 * place; counts, version and offsets can be made to lie. gw_llama writes a whole small model. */
#ifndef HR_GGUF_WRITER_H
#define HR_GGUF_WRITER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct gw_buf {
    uint8_t *p;
    size_t n, cap;
} gw_buf;

typedef struct gw {
    gw_buf kv, info, data;
    uint64_t n_kv, n_tensors;
    /* what the header says; 0: the truth */
    uint64_t claim_kv, claim_tensors;
    uint32_t version; /* 0: 3 */
    uint32_t align;   /* of the data section; 0: 32 */
    const char *drop[4];
    uint64_t offset_shift; /* added to the offset of the next tensor */
    uint64_t hole; /* bytes of zeros after the data: of a big last tensor, which gw_tensor was given 0 bytes of */
} gw;

enum { GW_U8, GW_I8, GW_U16, GW_I16, GW_U32, GW_I32, GW_F32, GW_BOOL, GW_STR, GW_ARR, GW_U64, GW_I64, GW_F64 };
enum {
    GW_T_F32 = 0,
    GW_T_F16 = 1,
    GW_T_Q4_0 = 2,
    GW_T_Q4_1 = 3,
    GW_T_Q5_0 = 6,
    GW_T_Q8_0 = 8,
    GW_T_Q4_K = 12,
    GW_T_BF16 = 30
};

static inline void gw_put(gw_buf *b, const void *data, size_t n) {
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p) abort();
    }
    if (n) memcpy(b->p + b->n, data, n);
    b->n += n;
}
static inline void gw_put_u32(gw_buf *b, uint32_t v) {
    gw_put(b, &v, 4);
}
static inline void gw_put_u64(gw_buf *b, uint64_t v) {
    gw_put(b, &v, 8);
}
static inline void gw_put_str(gw_buf *b, const char *s) {
    gw_put_u64(b, strlen(s));
    gw_put(b, s, strlen(s));
}

static inline bool gw_dropped(const gw *w, const char *name) {
    for (size_t i = 0; i < 4; i++)
        if (w->drop[i] && !strcmp(w->drop[i], name)) return true;
    return false;
}

/* A key with a value of any type, given as its bytes in the file. */
static inline void gw_raw(gw *w, const char *key, uint32_t type, const void *value, size_t n) {
    if (gw_dropped(w, key)) return;
    gw_put_str(&w->kv, key);
    gw_put_u32(&w->kv, type);
    gw_put(&w->kv, value, n);
    w->n_kv++;
}
static inline void gw_u32(gw *w, const char *key, uint32_t v) {
    gw_raw(w, key, GW_U32, &v, 4);
}
static inline void gw_f32(gw *w, const char *key, float v) {
    gw_raw(w, key, GW_F32, &v, 4);
}
static inline void gw_bool(gw *w, const char *key, bool v) {
    gw_raw(w, key, GW_BOOL, &(uint8_t){v}, 1);
}
static inline void gw_str(gw *w, const char *key, const char *v) {
    gw_buf b = {0};
    gw_put_str(&b, v);
    gw_raw(w, key, GW_STR, b.p, b.n);
    free(b.p);
}
static inline void gw_ints(gw *w, const char *key, const int32_t *v, size_t n) {
    gw_buf b = {0};
    gw_put_u32(&b, GW_I32);
    gw_put_u64(&b, n);
    gw_put(&b, v, n * 4);
    gw_raw(w, key, GW_ARR, b.p, b.n);
    free(b.p);
}
static inline void gw_strs(gw *w, const char *key, const char *const *v, size_t n) {
    gw_buf b = {0};
    gw_put_u32(&b, GW_STR);
    gw_put_u64(&b, n);
    for (size_t i = 0; i < n; i++) gw_put_str(&b, v[i]);
    gw_raw(w, key, GW_ARR, b.p, b.n);
    free(b.p);
}

/* dims[0] is contiguous. */
static inline void gw_tensor(gw *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *dims,
                             const void *data, size_t bytes) {
    static const uint8_t zeros[4096];
    if (gw_dropped(w, name)) return;
    size_t align = w->align ? w->align : 32;
    while (w->data.n % align) gw_put(&w->data, zeros, 1);
    gw_put_str(&w->info, name);
    gw_put_u32(&w->info, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) gw_put_u64(&w->info, dims[d]);
    gw_put_u32(&w->info, type);
    gw_put_u64(&w->info, w->data.n + w->offset_shift);
    w->offset_shift = 0;
    w->n_tensors++;
    for (; !data && bytes > sizeof zeros; bytes -= sizeof zeros) gw_put(&w->data, zeros, sizeof zeros);
    gw_put(&w->data, data ? data : zeros, bytes);
}

/* The file; *size its bytes. The writer is empty again; the caller frees the result. */
static inline uint8_t *gw_finish(gw *w, size_t *size) {
    gw_buf f = {0};
    size_t align = w->align ? w->align : 32;
    gw_put(&f, "GGUF", 4);
    gw_put_u32(&f, w->version ? w->version : 3);
    gw_put_u64(&f, w->claim_tensors ? w->claim_tensors : w->n_tensors);
    gw_put_u64(&f, w->claim_kv ? w->claim_kv : w->n_kv);
    gw_put(&f, w->kv.p, w->kv.n);
    gw_put(&f, w->info.p, w->info.n);
    while (f.n % align) gw_put(&f, "", 1);
    gw_put(&f, w->data.p, w->data.n);
    free(w->kv.p), free(w->info.p), free(w->data.p);
    *w = (gw){0};
    *size = f.n;
    return f.p;
}

/* Writes the finished file to `path`. */
static inline void gw_write(gw *w, const char *path) {
    size_t n, hole = w->hole;
    uint8_t *p = gw_finish(w, &n);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fflush(f) || ftruncate(fileno(f), (off_t)(n + hole)) || fclose(f)) abort();
    free(p);
}

/* ---- a small model of the llama architecture -------------------------------------------------------------------- */

enum { GW_LAYERS = 2, GW_DIM = 64, GW_HEADS = 4, GW_KV_HEADS = 2, GW_HEAD_DIM = 16, GW_FFN = 96, GW_VOCAB = 40 };

/* Element i of the tensor with this name: between -1 and 1, exact in bf16 and f16, the same on every run. */
static inline float gw_value(const char *name, size_t i) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    h = (h ^ (uint32_t)i) * 2654435761u;
    return (float)((int)(h >> 25) - 64) / 64;
}

/* A matrix of gw_value in F32 or BF16; of other types all bytes are zero, a legal matrix of zeros. */
static inline void gw_matrix(gw *w, const char *name, uint32_t type, size_t rows, size_t cols) {
    size_t n = rows * cols;
    if (type == GW_T_F32 || type == GW_T_BF16) {
        float *x = malloc(n * 4);
        uint16_t *h = malloc(n * 2);
        if (!x || !h) abort();
        for (size_t i = 0; i < n; i++) {
            x[i] = gw_value(name, i);
            uint32_t bits;
            memcpy(&bits, &x[i], 4);
            h[i] = (uint16_t)(bits >> 16);
        }
        gw_tensor(w, name, type, 2, (uint64_t[]){cols, rows}, type == GW_T_F32 ? (void *)x : h, n * (type ? 2 : 4));
        free(x), free(h);
        return;
    }
    size_t block = type == GW_T_F16 ? 1 : type == GW_T_Q4_K ? 256 : 32;
    size_t bytes = type == GW_T_F16    ? 2
                   : type == GW_T_Q4_0 ? 18
                   : type == GW_T_Q4_1 ? 20
                   : type == GW_T_Q5_0 ? 22
                   : type == GW_T_Q8_0 ? 34
                                       : 144;
    gw_tensor(w, name, type, 2, (uint64_t[]){cols, rows}, NULL, n / block * bytes);
}

static inline void gw_norm(gw *w, const char *name, size_t n) {
    float x[256];
    for (size_t i = 0; i < n && i < 256; i++) x[i] = 1 + gw_value(name, i) / 8;
    gw_tensor(w, name, GW_T_F32, 1, (uint64_t[]){n}, x, n * 4);
}

static inline void gw_llama_keys(gw *w) {
    gw_str(w, "general.architecture", "llama");
    gw_str(w, "general.name", "Writer");
    gw_u32(w, "llama.block_count", GW_LAYERS);
    gw_u32(w, "llama.context_length", 128);
    gw_u32(w, "llama.embedding_length", GW_DIM);
    gw_u32(w, "llama.feed_forward_length", GW_FFN);
    gw_u32(w, "llama.attention.head_count", GW_HEADS);
    gw_u32(w, "llama.attention.head_count_kv", GW_KV_HEADS);
    gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gw_f32(w, "llama.rope.freq_base", 10000);
    gw_str(w, "tokenizer.ggml.model", "no_vocab");
}

static inline void gw_llama_tensors(gw *w, uint32_t type, bool tied) {
    char name[64];
    gw_matrix(w, "token_embd.weight", type, GW_VOCAB, GW_DIM);
    gw_norm(w, "output_norm.weight", GW_DIM);
    if (!tied) gw_matrix(w, "output.weight", type, GW_VOCAB, GW_DIM);
    for (int i = 0; i < GW_LAYERS; i++) {
#define NAME(s) (snprintf(name, sizeof name, "blk.%d.%s.weight", i, s), name)
        gw_norm(w, NAME("attn_norm"), GW_DIM);
        gw_matrix(w, NAME("attn_q"), type, GW_HEADS * GW_HEAD_DIM, GW_DIM);
        gw_matrix(w, NAME("attn_k"), type, GW_KV_HEADS * GW_HEAD_DIM, GW_DIM);
        gw_matrix(w, NAME("attn_v"), type, GW_KV_HEADS * GW_HEAD_DIM, GW_DIM);
        gw_matrix(w, NAME("attn_output"), type, GW_DIM, GW_HEADS * GW_HEAD_DIM);
        gw_norm(w, NAME("ffn_norm"), GW_DIM);
        gw_matrix(w, NAME("ffn_gate"), type, GW_FFN, GW_DIM);
        gw_matrix(w, NAME("ffn_up"), type, GW_FFN, GW_DIM);
        gw_matrix(w, NAME("ffn_down"), type, GW_DIM, GW_FFN);
#undef NAME
    }
}

static inline void gw_llama(gw *w, uint32_t type, bool tied) {
    gw_llama_keys(w);
    gw_llama_tensors(w, type, tied);
}

#endif
