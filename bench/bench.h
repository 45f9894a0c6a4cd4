/* bench.h - what the families share: shapes of real models, random data, the check against the reference. */
#ifndef HR_BENCH_H
#define HR_BENCH_H

#include "bench/shim.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"
#include "kernels/base/random.h"
#include "kernels/table.h"

/* One function a file registers its benchmarks with. smoke: each row once, on small shapes. */
#define HR_BENCH_FILES(X) \
    X(matmul) X(acts) X(attention) X(vec) X(kv) X(kv_ops) X(dequant) X(sample) X(text) X(pool) X(baselines) X(onednn)
#define X(name) void hr_bench_register_##name(bool smoke);
HR_BENCH_FILES(X)
#undef X

/* ---- shapes ---- */

typedef struct hr_bench_model {
    const char *name;
    uint32_t dim, n_heads, n_kv_heads, head_dim, ffn, vocab;
} hr_bench_model;
enum { HR_BENCH_MODELS = 4, HR_BENCH_MATRICES = 5 };
extern const hr_bench_model hr_bench_models[HR_BENCH_MODELS];

typedef struct hr_bench_shape {
    char name[48]; /* "llama-3.2-1b.gate" */
    size_t rows, cols;
    bool head; /* the output head: read for few tokens at a time */
} hr_bench_shape;
/* Matrix 0..HR_BENCH_MATRICES-1 of a model: qkv (the three as one), out, gate (up is the same), down, head. */
hr_bench_shape hr_bench_shape_of(const hr_bench_model *model, int matrix);

/* Numbers of tokens for which products are timed. */
enum { HR_BENCH_TOKENS = 7 };
extern const int64_t hr_bench_tokens[HR_BENCH_TOKENS];

/* Adds "matmul/KERNEL/SHAPE/M:n/cold/TYPE.ORDER"; f has all but its names. */
void hr_bench_add_product(hr_bench_family f, const char *kernel, const char *shape, bool cold, const char *type,
                          const char *order);

/* ---- rows of the table ---- */

bool hr_bench_can_run(const hr_kernel *k);
/* The row of a family that this kernel would meet in the engine: the same ISA or the next below. */
const hr_kernel *hr_bench_partner(const hr_kernel *k, hr_family family);
/* Whether this row is timed on the shapes of model 0..3: the machine's best ISA on all, lower ones on two, plain C on the
 * smallest, so that the whole list ends within the hour. */
bool hr_bench_wants(const hr_kernel *k, int model);
/* Most flops of a call that is registered, by ISA, so that the whole list ends: slow rows keep their small shapes. */
double hr_bench_most_flops(hr_isa isa);

/* ---- data ---- */

/* "Cold" data rotates over at least so many bytes, several times the last-level cache. */
size_t hr_bench_cold_bytes(void);
/* Uniform in [-1, 1); n floats in pages; NULL when out of memory. Free with hr_pages_free(p, 4 n). */
float *hr_bench_floats(size_t n, uint64_t seed);
void hr_bench_fill(float *x, size_t n, uint64_t seed);

/* Copies of one random matrix, one after another. Of each weight type all values that the type can hold; 64 random rows
 * repeat, as speed does not depend on values. */
typedef struct hr_bench_weights {
    hr_mat *m; /* [copies] */
    size_t copies;
    void *data; /* of all copies */
    size_t bytes;
} hr_bench_weights;
hr_status hr_bench_weights_init(hr_bench_weights *w, hr_dtype type, hr_order order, size_t rows, size_t cols,
                                size_t copies);
void hr_bench_weights_fini(hr_bench_weights *w);
/* ERR_INTERNAL "NAME: ..." when sum (got - want)^2 > limit * sum want^2 or a value is no number. */
hr_status hr_bench_check(const char *name, const float *got, const float *want, size_t n, double limit);
/* The limit of a row: f32 1e-10, bf16 1e-5, int8 1e-4 (sums of integers are exact; scales may be applied in another
 * order). */
double hr_bench_limit(const hr_kernel *k);

/* ---- ceilings ---- */

/* Reads what `headroom roof --json` printed: HEADROOM_ROOF, else roof.json beside the program. Says once on stderr when
 * there is none: then shares are absent. Adds the machine to the context of the output. */
void hr_bench_ceilings_load(void);
uint64_t hr_bench_llc(void); /* last-level cache, bytes; as measured, else as the system says; 0 unknown */

#endif
