/* state.h - an open engine: its run state in one arena, the kernels of the current pass, and the batch it works on. */
#ifndef HR_STATE_H
#define HR_STATE_H

#include "engine/kv/kv_cache.h"
#include "engine/model/model.h"
#include "engine/pool.h"
#include "engine/probe.h"
#include "engine/sample.h"

/* Consecutive tokens of one sequence in a pass. */
typedef struct hr_segment {
    const hr_kv_seq *kv;
    uint32_t pos0, n, row0; /* token i stands at position pos0 + i and in row row0 + i of the batch */
} hr_segment;

/* What one forward pass works on: n tokens of some segments; logits of the listed rows, in that order. */
typedef struct hr_batch {
    hr_phase phase;
    const int32_t *tokens; /* [n] */
    uint32_t n, n_segments;
    const hr_segment *segments; /* [n_segments] */
    const uint32_t *logit_rows; /* [n_logits] */
    uint32_t n_logits;
    float *logits; /* [n_logits][vocab] */
} hr_batch;

enum {
    HR_GROUP_MAX = 3,  /* products over the same activations at most: Q, K, V */
    HR_OWN_TOKENS = 4, /* up to here fused ops make activations in each thread rather than wait for each other */
    HR_KEPT_ROWS = 64, /* rows of logits whose best are kept at most */
    HR_GEMM_TOKENS = 16,
    HR_PART_BYTES = 128 << 10 /* results of products that a thread works on while they are in its caches */
};

/* Rows of the table for products over the same activations: all read the tiles of one width, or none does. */
typedef struct hr_group {
    size_t n;
    const hr_kernel *rows[HR_GROUP_MAX];
    const hr_kernel *acts; /* of the ISA whose tiles are read */
    uint32_t tile;         /* 0: none */
} hr_group;

/* The kernels for passes of n tokens, n_q of them in a row of one sequence; those of products are chosen when a matrix
 * first asks, by op, type, order and tile, and remembered. */
typedef struct hr_plan {
    uint32_t n, n_q; /* n 0: none yet */
    const hr_kernel *acts, *attn, *merge, *norm, *rope, *glu, *append, *embed;
    const hr_kernel *add, *finish, *sample, *copy; /* GPUs alone; where there is no row, NULL */
    struct hr_plan_product {
        hr_op op;
        hr_dtype dtype;
        hr_order order;
        uint32_t tile;
        const hr_kernel *kernel;
    } products[32];
    size_t n_products;
} hr_plan;

/* Sizes that the arena follows from. */
typedef struct hr_sizes {
    uint32_t tokens, logit_rows, max_seqs, threads, ctx;
    uint32_t dim, q_dim, kv_dim, ffn, vocab, head_dim, n_heads, n_kv_heads;
    uint32_t kept_rows; /* rows of logits whose best are kept; 0: head and sampling are not joined */
    bool flash;
    hr_act act;
} hr_sizes;

/* Every buffer of a pass. T tokens at most, R rows of logits, rows of activations padded to ld. */
typedef struct hr_buffers {
    float *x;         /* [T][dim] residual stream */
    float *h;         /* [T][dim] normalized */
    float *qkv;       /* [T][q_dim + 2 kv_dim] */
    float *att;       /* [T][q_dim] */
    float *gate, *up; /* [T][ffn] */
    float *logits;    /* [R][vocab] */
    float *rope;      /* [T][head_dim] cos, sin pairs */
    hr_acts acts;     /* [T][largest k] */
    float *partial;   /* [max_seqs][partial_floats] of split attention */
    size_t partial_floats;
    char *own; /* [threads][own_bytes]: hr_buffers_own */
    size_t own_bytes;
    char *part; /* [threads][part_bytes]: gate and up of some rows, side by side */
    size_t part_bytes;
    hr_kept *kept; /* [threads][kept_rows] */
    char *scratch; /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    hr_segment *segments;     /* [max_seqs] */
    hr_attn *attn;            /* [max_seqs] */
    size_t *attn_end;         /* [max_seqs] attention units up to and with this segment */
    uint32_t *logit_rows;     /* [T] */
    hr_candidate *candidates; /* [vocab] */
} hr_buffers;

struct hr_engine {
    const struct hr_backend *backend;
    const hr_model *model;
    hr_engine_config config;
    hr_isa isa;
    hr_act act;
    hr_pool *pool;
    hr_kv_cache *kv;
    hr_probe probe;
    hr_plan plan[4]; /* of the most recent sizes: decode steps, prefill passes and heads alternate */
    unsigned plan_next;
    hr_sizes sizes;
    hr_buffers b;
    char *arena;
    size_t arena_bytes;
    const float *last_logits; /* of the last pass */
    uint32_t kept_rows;       /* rows of them whose best are in b.kept; 0: none */
    uint32_t keep;            /* how many of a row's best the next head keeps in each thread */
    bool huge_pages;
    struct hr_cuda *cuda;  /* of a GPU: engine/cuda */
    const hr_kernel *gemm; /* the row for products that a library computes from HR_GEMM_TOKENS on; NULL: none does */
};

/* One pass: embed -> layers -> logits. All checks are done: what fails is the backend's device. */
hr_status hr_forward(hr_engine *engine, const hr_batch *batch);

static inline bool hr_engine_on_gpu(const hr_engine *e) {
    return e->config.device >= 0;
}
/* Tokens that a decode step of n is launched for: on a GPU with graphs the next power of two, as one graph serves them all. */
uint32_t hr_engine_bucket(const hr_engine *engine, uint32_t n);
/* Kernels for n tokens a pass, n_q a segment (cached). */
hr_plan *hr_engine_plan_for(hr_engine *engine, uint32_t n, uint32_t n_q);
void hr_plan_choose(const hr_engine *engine, uint32_t n, uint32_t n_q, hr_plan *out);
/* Rows for n products of op class `op` over the same activations. */
void hr_plan_group(const hr_engine *engine, hr_plan *plan, hr_op op, const hr_mat *const *mats, size_t n,
                   hr_group *out);
/* "qkv_fused+gemv_bf16_avx512": what the record of a joined op says; a text that lives as long as the program. */
const char *hr_fused_name(const char *fused, const char *kernel);
/* Tokens of the next forward pass of a prefill of n tokens of which `done` are behind: a micro-batch, cut at a batch. */
size_t hr_engine_next_pass(const hr_engine *engine, size_t done, size_t n);
/* Places the buffers in memory from base on (NULL: only counts); returns the bytes. */
size_t hr_buffers_place(const hr_sizes *sizes, char *base, hr_buffers *out);
/* A thread's own memory for up to HR_OWN_TOKENS tokens of dim values: returns floats [HR_OWN_TOKENS][dim], sets the
 * arrays of activations. */
float *hr_buffers_own(const hr_sizes *sizes, const hr_buffers *buffers, unsigned thread, hr_acts *acts);
/* The KV cache for a checked configuration; the budget of *out is in bytes. */
hr_status hr_engine_cache_config(const hr_model_info *info, const hr_engine_config *c, hr_kv_cache_config *out);
hr_sizes hr_sizes_of(const hr_model_info *info, const hr_engine_config *config, hr_act act);

#endif
