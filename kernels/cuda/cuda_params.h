/* cuda_params.h - what each family of kernels for GPUs is given: one struct by value, the same in C and in CUDA sources.
 *
 * Every pointer is to device memory. All that changes from step to step lies behind hr_cuda_batch, in device memory, so that a
 * captured graph is replayed with the same parameters: a kernel reads how many tokens there are from batch->n and leaves at
 * once where its part lies beyond. Fields named n here are upper bounds for the launch (the graph's bucket). No field is a bool
 * or followed by padding (`unused`): bytes that nobody sets read as addresses to tools that look for stray pointers.
 * Activations between ops are fp32, arithmetic is fp32 (products: as the row says). Weights lie in the order of rows. */
#ifndef HR_CUDA_PARAMS_H
#define HR_CUDA_PARAMS_H

#include "kernels/kv/kv_open.h"
#include "kernels/kv/kv_run.h"

/* Consecutive tokens of one sequence. kv: pointers to device memory (geometry, planes, table, open groups). */
typedef struct hr_cuda_segment {
    hr_kv_seq kv;
    uint32_t pos0, n, row0; /* token i stands at position pos0 + i and in row row0 + i of the batch */
} hr_cuda_segment;

/* What a pass works on; in device memory. n_segments == 1, or every segment has one token (decode). */
typedef struct hr_cuda_batch {
    uint32_t n, n_segments, n_logits;
    const int32_t *tokens;           /* [n] */
    const uint32_t *pos, *segment;   /* [n] position, segment of each token */
    const hr_cuda_segment *segments; /* [n_segments] */
    const uint32_t *logit_rows;      /* [n_logits] */
} hr_cuda_batch;

/* Activations for products: as hr_acts of table.h, without sums and tiles. Rows are ld elements apart, zero from k to ld;
 * ld is a multiple of 64. */
typedef struct hr_cuda_acts {
    void *data;        /* [n][ld] float, bf16 or int8; NULL: none */
    float *d;          /* int8: [n][ld / 32]; int8-row: [n] */
    uint32_t ld, type; /* hr_act */
} hr_cuda_acts;

/* HR_FAM_EMBED: x[t] = scale * row tokens[t] of the table. */
typedef struct hr_cuda_embed {
    const hr_cuda_batch *batch;
    hr_mat table;
    float *x; /* [n][dim] */
    uint32_t n, dim;
    float scale;
    uint32_t unused;
} hr_cuda_embed;

typedef enum hr_cuda_norm_kind { HR_CUDA_NORM_RMS, HR_CUDA_NORM_LAYER, HR_CUDA_NORM_NONE } hr_cuda_norm_kind;
/* HR_FAM_NORM: h = norm(x) * w (+ b); RMS: x / sqrt(mean(x^2) + eps); LAYER: (x - mean) / sqrt(var + eps); NONE: x itself, so
 * that the same kernel makes activations of anything. rows: NULL, or which rows of x (the head's): row i of the results is
 * made of x[rows[i]], count batch->n_logits; else count batch->n. */
typedef struct hr_cuda_norm {
    const hr_cuda_batch *batch;
    const float *x;     /* [n][ldx] */
    const float *w, *b; /* [dim] or NULL */
    const uint32_t *rows;
    float *out;        /* [n][dim] or NULL; may be x when rows is NULL */
    hr_cuda_acts acts; /* filled too where data is not NULL */
    uint32_t n, dim, ldx, kind;
    float eps;
    uint32_t unused;
} hr_cuda_norm;

enum { HR_CUDA_MATS = 3 };
typedef enum hr_cuda_glu_kind {
    HR_CUDA_GLU_NONE,
    HR_CUDA_GLU_SILU,
    HR_CUDA_GLU_GELU
} hr_cuda_glu_kind; /* gelu: tanh form */
/* HR_FAM_MATMUL: y[m][t][row] = sum_c w[m][row][c] x[t][c] (+ bias[m][row]), added to what is there when `add`. All n_mats
 * matrices have the type and cols of the first. glu: y[0][t][row] = act(w[0] x) * (w[1] x), and as activations where
 * out.data is not NULL (f32 and bf16 alone; then y[0] may be NULL). count: batch->n, or batch->n_logits when `logits`. */
typedef struct hr_cuda_matmul {
    const hr_cuda_batch *batch;
    hr_mat w[HR_CUDA_MATS];
    hr_cuda_acts x;
    float *y[HR_CUDA_MATS]; /* [n][ldy[m]] */
    const float *bias[HR_CUDA_MATS];
    uint32_t ldy[HR_CUDA_MATS];
    hr_cuda_acts out;
    void *workspace;           /* hr_cuda_caps.workspace bytes */
    uint32_t n_mats, n, split; /* split: by the shape function, parts of k */
    uint32_t glu;
    uint32_t add, logits; /* 0, 1 */
} hr_cuda_matmul;

/* HR_FAM_GLU: act(gate) * up; up NULL: act(gate). */
typedef struct hr_cuda_glu {
    const hr_cuda_batch *batch;
    const float *gate, *up; /* [n][ffn] */
    float *out;             /* [n][ffn] or NULL; may be gate */
    hr_cuda_acts acts;      /* f32 and bf16 alone; NULL data: none */
    uint32_t n, ffn, kind, unused;
} hr_cuda_glu;

/* HR_FAM_ADD: x += y. */
typedef struct hr_cuda_add {
    const hr_cuda_batch *batch;
    float *x;
    const float *y; /* [n][dim] */
    uint32_t n, dim;
} hr_cuda_add;

/* HR_FAM_ROPE, HR_FAM_KV_APPEND, and HR_FAM_FINISH, which does both: of Q, K and V side by side in a row (q heads, k heads, v
 * heads), per token: + bias, RMS norm of each head of q and k (where given), rotation of q and k in place, append of k and
 * v to the cache at the token's position. K of i4kc: a block owns (segment, head) and takes its positions in order; the
 * append of a group's last position closes the group. */
typedef struct hr_cuda_heads {
    const hr_cuda_batch *batch;
    float *qkv;                   /* [n][ld] */
    const float *bq, *bk, *bv;    /* [rows] or NULL */
    const float *q_norm, *k_norm; /* [head_dim] or NULL */
    const float *angles;          /* [ctx][rope_dims / 2][2] cos, sin by position */
    uint32_t n, n_segments, ld, layer, n_heads, n_kv_heads, head_dim, rope_dims;
    uint32_t granule; /* hr_kv_granule of the cache */
    float eps;
    uint32_t interleaved; /* 0, 1 */
    uint32_t unused;
} hr_cuda_heads;

/* HR_FAM_ATTN: as hr_attn of table.h, for all segments of the batch. Scores s = scale * q k, s = softcap * tanh(s / softcap) where
 * softcap > 0. Positions that are gone are never read. n_q > 1: one segment (prefill). n_q == 1: decode; a row of a split
 * kernel puts partial results [segment][head][split][2 + head_dim] (max, sum, output) into `partial`, and HR_FAM_ATTN_MERGE,
 * given the same struct, joins them in order of position. */
typedef struct hr_cuda_attn {
    const hr_cuda_batch *batch;
    const float *q;    /* [n][ldq], head h at h * head_dim */
    float *out;        /* [n][ldo] */
    hr_cuda_acts acts; /* f32, bf16: filled instead of out where data is not NULL */
    float *partial;
    uint32_t ldq, ldo, layer, n_heads, n_kv_heads, head_dim, window;
    uint32_t n, n_segments, n_q, max_len; /* bounds: tokens, segments, tokens of a segment, positions of a sequence */
    uint32_t splits, split_len;           /* by the shape function; splits <= HR_CUDA_SPLITS */
    float scale, softcap;
    uint32_t unused;
} hr_cuda_attn;
enum { HR_CUDA_SPLITS = 64 };

/* HR_FAM_SAMPLE: one token for each row of logits: the rules of engine/sample.c (order: top-k, softmax with temperature,
 * top-p, min-p, draw by splitmix64 from rng[i], which moves on once a draw; NaN counts as -infinity, lowest id of equals).
 * temperature 0: argmax. With a temperature top_k of 0, of more than HR_CUDA_TOP_K, or of vocab and more: not done here (out = -1, rng untouched). */
typedef struct hr_cuda_sample {
    const hr_cuda_batch *batch; /* NULL: all n rows; else batch->n_logits of them */
    const float *logits;        /* [n][vocab] */
    int32_t *out;               /* [n] */
    uint64_t *rng;              /* [n] */
    void *workspace;
    uint32_t n, vocab, top_k;
    float temperature, top_p, min_p;
} hr_cuda_sample;
enum { HR_CUDA_TOP_K = 256 };

/* HR_FAM_KV_COPY: positions from..to - 1 of all layers and heads, rows and scales, from one sequence to another (both structs
 * in device memory), those that are gone left out; and, where K is i4kc, the open plane that the target has with `to`
 * positions (hr_kv_open_at). from == to: that alone. The target may be the source (the same
 * struct), which is then cut to `to` positions; two structs with one open plane leave it as it is. */
typedef struct hr_cuda_kv_copy {
    const hr_kv_seq *source, *target;
    uint32_t from, to, n_layers, n_heads;
} hr_cuda_kv_copy;

/* HR_FAM_FILL: rows of a synthetic weight as hr_synth_row makes them and hr_quantize_row stores them, to the bit. */
typedef struct hr_cuda_fill {
    hr_mat w; /* to fill; vectors: HR_F32 of one row */
    uint64_t key;
    float center, std;
} hr_cuda_fill;

#endif
