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

/* The kernels for passes of n tokens, n_q of them in a row of one sequence; chosen once for such passes. */
typedef struct hr_plan {
    uint32_t n, n_q; /* n 0: none yet */
    const hr_kernel *acts, *attn, *merge, *norm, *rope, *glu, *append, *embed;
    const hr_kernel *matmul[HR_DTYPE_COUNT];
} hr_plan;

/* Sizes that the arena follows from. */
typedef struct hr_sizes {
    uint32_t tokens, logit_rows, max_seqs, threads, ctx;
    uint32_t dim, q_dim, kv_dim, ffn, vocab, head_dim, n_heads, n_kv_heads;
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
    char *scratch; /* [threads][scratch_bytes] */
    size_t scratch_bytes;
    hr_segment *segments;     /* [max_seqs] */
    hr_attn *attn;            /* [max_seqs] */
    size_t *attn_end;         /* [max_seqs] attention units up to and with this segment */
    uint32_t *logit_rows;     /* [T] */
    hr_candidate *candidates; /* [vocab] */
} hr_buffers;

struct hr_engine {
    const hr_model *model;
    hr_engine_config config;
    hr_isa isa;
    hr_act act;
    hr_pool *pool;
    hr_kv_cache *kv;
    hr_probe probe;
    hr_plan plan[2]; /* of the two most recent sizes: decode steps and prefill passes alternate */
    unsigned plan_next;
    hr_sizes sizes;
    hr_buffers b;
    char *arena;
    size_t arena_bytes;
    const float *last_logits; /* of the last pass */
    bool huge_pages;
};

/* One pass: embed -> layers -> logits. All checks are done; nothing can fail. */
void hr_forward(hr_engine *engine, const hr_batch *batch);

/* Kernels for n tokens a pass, n_q a segment (cached). */
const hr_plan *hr_engine_plan_for(hr_engine *engine, uint32_t n, uint32_t n_q);
void hr_plan_choose(const hr_engine *engine, uint32_t n, uint32_t n_q, hr_plan *out);
/* Tokens of the next forward pass of a prefill of n tokens of which `done` are behind: a micro-batch, cut at a batch. */
size_t hr_engine_next_pass(const hr_engine *engine, size_t done, size_t n);
/* Places the buffers in memory from base on (NULL: only counts); returns the bytes. */
size_t hr_buffers_place(const hr_sizes *sizes, char *base, hr_buffers *out);
hr_sizes hr_sizes_of(const hr_model_info *info, const hr_engine_config *config, hr_act act);

#endif
