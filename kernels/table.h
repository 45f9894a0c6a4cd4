/* table.h - the kernel table: one row a kernel, with what it computes, what it needs and what it costs.
 *
 * Families have one signature each. A kernel is single-threaded and works on a range of units (rows, tokens, heads);
 * the engine splits units over threads. It allocates nothing: scratch comes from the caller, sized by the family's
 * scratch function. Work (bytes, flops) is computed here by the kernel's owner and nowhere else, so that MBU, the
 * roofline and the micro-benchmarks cannot disagree. */
#ifndef HR_TABLE_H
#define HR_TABLE_H

#include "kernels/base/dtype.h"
#include "kernels/base/isa.h"
#include "kernels/kv/kv_count.h"
#include "kernels/kv/kv_predict.h"
#include "kernels/kv/kv_run.h"

/* Arithmetic units, each with its own ceiling. */
typedef enum hr_unit { HR_UNIT_FP32, HR_UNIT_BF16, HR_UNIT_INT8, HR_UNIT_COUNT } hr_unit;
extern const char *const hr_unit_names[HR_UNIT_COUNT]; /* "fp32", "bf16", "int8" */

typedef struct hr_work {
    uint64_t bytes; /* read from (or, for kv_append, written to) weights and KV; activations stay in cache */
    uint64_t flops; /* a multiply and an add are two */
    hr_unit unit;   /* where the flops run */
} hr_work;

const char *hr_act_name(hr_act act); /* "f32", "bf16", "int8" (a scale per 32 values), "int8-row" (one per token) */

/* Op classes: the same names in the store, traces and explain. */
/* clang-format off */
#define HR_OP_LIST(X)                                                                        \
    X(EMBED, "embed") X(NORM, "norm") X(QKV, "qkv") X(ROPE, "rope") X(KV_APPEND, "kv_append") \
    X(ATTENTION, "attention") X(OUT, "out") X(GATE_UP, "gate_up") X(DOWN, "down")            \
    X(HEAD, "head") X(SAMPLE, "sample") X(ROUTE, "route") X(EXPERTS, "experts")
/* clang-format on */
typedef enum hr_op {
#define X(id, name) HR_OP_##id,
    HR_OP_LIST(X)
#undef X
        HR_OP_COUNT
} hr_op;
extern const char *const hr_op_names[HR_OP_COUNT];

/* ---- matrix products ------------------------------------------------------------------------------------------- */

/* Activations of n tokens prepared for matrix products. Only the arrays of `type` are set. Rows are `ld` elements
 * apart (ld >= k, a multiple of 64) and zero from k to ld; each row starts on 64 bytes. */
typedef struct hr_acts {
    hr_act type;
    size_t n, k, ld;
    float *f32;       /* [n][ld] */
    uint16_t *bf16;   /* [n][ld] */
    int8_t *q;        /* [n][ld], one scale per 32, or (int8-row) per token: d = max|x| / 127 of those values, q =
                       round-to-nearest-even(x / d), d = 0: all 0 */
    float *d;         /* [n][ld / 32]; int8-row: the token's one value in every place */
    int32_t *sum;     /* [n][ld / 32]: sum of the 32 q, for weights stored with an offset */
    uint32_t tile;    /* tokens side by side in `tiles`; 0: none */
    void *tiles;      /* the same values once more, as GEMM kernels of that tile read them: [ceil(n / tile)] areas of
                       hr_acts_tile_bytes; their layout is private to the ISA's acts and GEMM kernels */
    bool tiles_alone; /* nobody reads the rows (f32, bf16, q, d, sum): they may stay unwritten */
} hr_acts;

/* Fills tokens t0..t1-1 of dst (arrays and ld given) from x [n][ldx] floats; with dst->tile also its tiles: then t0 is
 * a multiple of tile, and t1 too or n. One row a type and ISA; all ISAs give the same q, d and sum to the bit. */
typedef void hr_acts_fn(hr_acts *dst, const float *x, size_t ldx, size_t t0, size_t t1);

/* y[t][row] = sum_c w[row][c] x[t][c], or += when `add`, for all t < x->n and row0 <= row < row1.
 * y is [n][ldy] floats. scratch: hr_matmul_scratch bytes, 64-byte aligned, private to the thread. */
typedef struct hr_matmul {
    const hr_mat *w;
    const hr_acts *x;
    float *y;
    size_t ldy;
    bool add;
} hr_matmul;
typedef void hr_matmul_fn(const hr_matmul *m, size_t row0, size_t row1, void *scratch);

/* Bytes of one area of hr_acts.tiles for tokens of k values; a multiple of 64. */
size_t hr_acts_tile_bytes(hr_act type, uint32_t tile, size_t k);
/* Scratch bytes that suffices for any matmul kernel on matrices of up to `cols` columns and n tokens. */
size_t hr_matmul_scratch(size_t cols, size_t n);
/* Rows that a thread's range should be a multiple of. With weights in panels row0 is a multiple of 16, and row1 too or
 * the last row. */
enum { HR_ROW_GRAIN = 32 };

/* ---- attention -------------------------------------------------------------------------------------------------- */

/* n_q consecutive queries of one sequence; query i stands at position pos0 + i and sees positions 0..pos0 + i (causal),
 * of which those below pos0 + i - window + 1 are left out when window > 0, and those that are gone from kv: their memory
 * is never read. K and V of all seen positions are written, and every query sees one at least.
 * Scores, maximum, sum and output are fp32. Rows on the bf16 unit (never those for caches of f32) round queries, weights
 * and converted K and V to bf16, and sum the rounded weights in fp32. Positions are taken in chunks of HR_ATTN_CHUNK counted from 0, rows within
 * a chunk in order, so that every layout and page size gives the same bits. */
typedef struct hr_attn {
    const hr_kv_seq *kv;
    uint32_t layer, n_heads, n_kv_heads, head_dim;
    uint32_t n_q, pos0, window;
    const float *q; /* [n_q][ldq], head h at h * head_dim, RoPE applied */
    float *out;     /* [n_q][ldo], the same */
    size_t ldq, ldo;
    float scale;    /* 1 / sqrt(head_dim) as the model says */
    float *partial; /* split decode: [units][n_heads / n_kv_heads][2 + head_dim], else NULL */
} hr_attn;
enum { HR_ATTN_CHUNK = 128, HR_ATTN_SPLIT = 512, HR_ATTN_TILE_ROWS = 64 };

/* A unit is (KV head, tile of HR_ATTN_TILE_ROWS / group queries, at least one), or, split (n_q = 1 and more than HR_ATTN_SPLIT positions), (KV
 * head, HR_ATTN_SPLIT positions) whose partial max, sum and output the merge joins in order of position. */
typedef void hr_attn_fn(const hr_attn *a, size_t unit0, size_t unit1, void *scratch);
typedef void hr_attn_merge_fn(const hr_attn *a, size_t kv_head0, size_t kv_head1);
bool hr_attn_is_split(const hr_attn *a); /* by n_q and pos0 alone */
size_t hr_attn_units(const hr_attn *a);
size_t hr_attn_scratch(uint32_t head_dim, uint32_t group, uint32_t context, bool flash); /* bytes a thread */
/* Floats of `partial` that one sequence of `context` positions needs. */
size_t hr_attn_partial_floats(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim, uint32_t context);

/* ---- element-wise and KV ----------------------------------------------------------------------------------------- */

/* y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * w, tokens t0..t1-1; w may be NULL (ones). x and y may be the same. */
typedef void hr_norm_fn(const float *x, size_t ldx, const float *w, float *y, size_t ldy, size_t dim, float eps,
                        size_t t0, size_t t1);
/* Rotates the heads of tokens t0..t1-1 in place. cs is [n][rot/2][2] = cos, sin; pairs (2i, 2i+1) when interleaved,
 * else (i, i + rot/2); elements from rot on stay. */
typedef void hr_rope_fn(float *x, size_t ldx, size_t n_heads, size_t head_dim, size_t rot, bool interleaved,
                        const float *cs, size_t t0, size_t t1);
/* y = silu(gate) * up, elements [0, n); y may be gate. */
typedef void hr_glu_fn(const float *gate, const float *up, float *y, size_t n);
/* Writes positions pos0 + t0 .. pos0 + t1 - 1 of KV heads head0 .. head1 - 1 of a layer from k, v [n][ld] floats (token
 * t is row t, head h at h * head_dim); without k or v (NULL) that plane stays as it is. Calls of one pass may run at
 * the same time; with K of i4kc those of one head may not, and each takes all positions of the pass. */
typedef void hr_kv_append_fn(const hr_kv_seq *s, uint32_t layer, uint32_t pos0, const float *k, size_t ldk,
                             const float *v, size_t ldv, size_t t0, size_t t1, uint32_t head0, uint32_t head1);
/* Attention (flash) and append in plain C that count the runs they walk between hr_kv_count_begin and _end. */
void hr_attn_counted(const hr_attn *a, size_t unit0, size_t unit1, void *scratch);
void hr_kv_append_counted(const hr_kv_seq *s, uint32_t layer, uint32_t pos0, const float *k, size_t ldk, const float *v,
                          size_t ldv, size_t t0, size_t t1, uint32_t head0, uint32_t head1);
/* One row of an embedding table as floats. */
typedef void hr_embed_fn(const hr_mat *table, size_t row, float *out);

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef enum hr_family {
    HR_FAM_ACTS,
    HR_FAM_MATMUL,
    HR_FAM_ATTN,
    HR_FAM_ATTN_MERGE,
    HR_FAM_NORM,
    HR_FAM_ROPE,
    HR_FAM_GLU,
    HR_FAM_KV_APPEND,
    HR_FAM_EMBED,
    HR_FAM_ADD,    /* GPUs alone, as those that follow: residual addition */
    HR_FAM_SAMPLE, /* a token from logits */
    HR_FAM_FINISH, /* bias, q and k norm, RoPE and KV append in one */
    HR_FAM_KV_COPY,
    HR_FAM_FILL, /* synthetic weights */
    HR_FAM_COUNT
} hr_family;

/* What a GPU can do, as far as launches depend on it. */
typedef struct hr_cuda_caps {
    uint32_t major, minor, sms; /* compute capability, multiprocessors */
    uint32_t smem_optin;        /* bytes of shared memory that a block can have */
    size_t workspace;           /* bytes of device memory that a launch may use; zeroed once, and left zeroed */
} hr_cuda_caps;
typedef struct hr_cuda_shape {
    uint32_t grid[3], block[3], smem; /* smem: dynamic, bytes */
} hr_cuda_shape;
/* The launch for the parameters of a family (kernels/cuda/cuda_params.h). Depends only on what stays the same when a captured
 * graph is replayed: counts and bounds in params, never what they point to. May fill fields of params that say how work is split. */
typedef void hr_cuda_shape_fn(void *params, const hr_cuda_caps *caps, hr_cuda_shape *out);

typedef struct hr_kernel {
    hr_family family;
    const char *name; /* unique in the family, as "gemm_i8_avx512" */
    hr_isa isa;
    unsigned needs;        /* HR_CPU_* */
    uint32_t dtypes;       /* bit set of hr_dtype: of the weights, of K and V; 0: does not matter */
    int act;               /* hr_act of the activations; -1: does not matter */
    uint32_t n_min, n_max; /* tokens for which it may be chosen (n_max 0: no limit) */
    uint32_t orders;       /* matmul: bit set of hr_order of the weights; 0 stands for rows alone */
    uint32_t tile;         /* matmul: reads hr_acts.tiles of this width (else the rows) */
    uint32_t lanes;        /* bits of its vectors where two widths compete (256, 512); 0: none do */
    bool flash;            /* attention: tiled online softmax (else scores are materialized) */
    int rank;              /* among rows that fit the higher is chosen (measured, not believed) */
    hr_unit unit;          /* where its flops run */
    bool cuda;             /* runs on GPUs: isa, needs, orders, tile and lanes do not matter */
    union hr_kernel_fn {
        struct hr_cuda_fn {
            const char *symbol; /* in the image of all kernels; one parameter: the struct of the family */
            hr_cuda_shape_fn *shape;
        } cuda;
        hr_acts_fn *acts;
        hr_matmul_fn *matmul;
        hr_attn_fn *attn;
        hr_attn_merge_fn *attn_merge;
        hr_norm_fn *norm;
        hr_rope_fn *rope;
        hr_glu_fn *glu;
        hr_kv_append_fn *kv_append;
        hr_embed_fn *embed;
    } fn;
} hr_kernel;

/* The plain C row that defines what `k` computes: the generic row of the same family, types and softmax. Tests and
 * bench hold every row against it. */
const hr_kernel *hr_kernel_ref(const hr_kernel *k);

/* Of int8 rows that differ in `lanes` alone the chooser takes this width: 512 at first, else what was measured. */
void hr_kernel_prefer_lanes(uint32_t lanes);
uint32_t hr_kernel_preferred_lanes(void);

/* All rows of one file, ended by a row with name NULL. Each kernel file exports one such list; table.c joins them. */
extern const hr_kernel hr_kernels_matmul_generic[], hr_kernels_matmul_avx2[], hr_kernels_matmul_avx512[];
extern const hr_kernel hr_kernels_panel_avx2[], hr_kernels_panel_avxvnni[], hr_kernels_panel_vnni256_avx512[];
extern const hr_kernel hr_kernels_panel_float_avx512[], hr_kernels_panel_int_avx512[];
extern const hr_kernel hr_kernels_attn_generic[], hr_kernels_attn_avx2[], hr_kernels_attn_avx512[];
extern const hr_kernel hr_kernels_attn_bf16_avx512[], hr_kernels_attn_counted[];
extern const hr_kernel hr_kernels_vec_generic[], hr_kernels_vec_avx2[], hr_kernels_vec_avx512[];
#ifdef HR_HAVE_CUDA
extern const hr_kernel hr_kernels_cuda_matmul[], hr_kernels_cuda_attn[], hr_kernels_cuda_vec[];
#endif

/* What the chooser is asked. For ATTN and KV_APPEND dtype is K's and dtype2 V's. */
typedef struct hr_kernel_query {
    hr_family family;
    hr_isa isa;
    hr_dtype dtype, dtype2;
    hr_act act;
    uint32_t n;
    hr_order order; /* MATMUL and EMBED: of the weights */
    bool flash;
    uint32_t tile;    /* MATMUL: activations lie in tiles of this width, so the row reads these or none; 0: any row */
    const char *name; /* NULL: any; else the row must have this name, and rank does not matter */
    bool cuda;        /* rows for GPUs; isa and order are not asked for */
} hr_kernel_query;

/* The best row that fits: highest rank, then highest ISA at or below q->isa whose needs the CPU meets. NULL: none
 * (every family has generic rows that cover all dtypes and acts, so that is a programmer's error). */
const hr_kernel *hr_kernel_choose(const hr_kernel_query *q);
/* Row i of the whole table of the CPU, and of the GPU (none where the toolkit was not found), NULL past the end. */
const hr_kernel *hr_kernel_at(size_t i);
const hr_kernel *hr_cuda_kernel_at(size_t i);

/* Work of one call. The matrix is read once whatever n; attention reads K and V of every position that is seen (n_q =
 * 1: pos0 + 1 rows less those gone; n_q > 1: each row once), flops count causal pairs only: 4 * heads * head_dim a pair. */
hr_work hr_work_matmul(const hr_kernel *k, const hr_mat *w, size_t n);
hr_work hr_work_attn(const hr_kernel *k, const hr_attn *a);
hr_work hr_work_kv_append(const hr_kv_geom *g, size_t n);

#endif
