/* model.h - a model in memory: facts of its architecture, shape, and where its matrices lie.
 *
 * An architecture is a row of facts (hr_arch) plus small functions; the forward pass reads the facts and never asks for
 * a name. Adding one means a row in arch.c, and a fact here when the family does something that none did before. */
#ifndef HR_MODEL_H
#define HR_MODEL_H

#include "engine/engine.h"

typedef struct hr_arch {
    const char *name;           /* general.architecture */
    bool rope_interleaved;      /* pairs (2i, 2i+1); else (i, i + rot/2) */
    bool qkv_bias;              /* blk.N.attn_{q,k,v}.bias may exist */
    bool qk_norm;               /* blk.N.attn_{q,k}_norm exists: RMS norm per head before RoPE */
    float embed_scale_sqrt_dim; /* 1: the input embedding is multiplied by sqrt(dim); 0: not */
} hr_arch;
/* NULL for an unknown architecture. hr_arch_at: row i, NULL past the end. */
const hr_arch *hr_arch_find(const char *name);
const hr_arch *hr_arch_at(size_t i);

typedef struct hr_hparams {
    uint32_t n_layers, dim, n_heads, n_kv_heads, head_dim, ffn, vocab, ctx;
    uint32_t rope_dims; /* rotated elements of a head */
    float rms_eps, rope_base, attn_scale;
} hr_hparams;

typedef struct hr_layer {
    const float *attn_norm, *ffn_norm; /* [dim] */
    hr_mat wq, wk, wv, wo;             /* [heads*hd][dim], [kv*hd][dim], [kv*hd][dim], [dim][heads*hd] */
    hr_mat gate, up, down;             /* [ffn][dim], [ffn][dim], [dim][ffn] */
    const float *bq, *bk, *bv;         /* [rows of the matrix] or NULL */
    const float *q_norm, *k_norm;      /* [head_dim] or NULL */
} hr_layer;

/* A matrix without data, whose values are drawn where it is used (hr_load_options.on_device). */
typedef struct hr_unmade {
    const hr_mat *mat; /* of the model */
    uint64_t key;      /* of the stream */
    float center, std;
} hr_unmade;
/* Rows row0..row0 + n - 1 as a loaded model would have them, in the order of rows; room: floats [mat->cols]. */
hr_status hr_unmade_rows(const hr_unmade *unmade, size_t row0, size_t n, float *room, void *data, uint16_t *scales);

struct hr_model {
    hr_model_info info;
    const hr_arch *arch;
    hr_hparams hp;
    hr_mat embed, head;       /* [vocab][dim]; head borrows embed's memory when tied */
    const float *output_norm; /* [dim] */
    const double *rope_freq;  /* [rope_dims / 2] radians a position, scaling (linear, Llama 3, rope_freqs) applied */
    hr_layer *layers;         /* [n_layers] */
    hr_unmade *unmade; /* [n_unmade] every matrix, in the order embed, head (if it is not tied), layers, or none */
    size_t n_unmade;
    hr_tokenizer *tokenizer;
    bool huge_pages; /* obtained for some of the weights */
    void *owner;     /* mappings and pages; private to load.c */
};

/* Bytes of memory that may still be taken without swapping: the least of MemAvailable and what the control groups
 * leave; UINT64_MAX when nothing says. root: "" or, for tests, a folder that stands for /. */
uint64_t hr_memory_available(const char *root);

#endif
