/* cuda_state.h - what an engine has on its GPU, and what the files of the backend share.
 *
 * Memory is taken in areas when the engine is opened: weights, planes of the KV cache, and one area for the run state. All work
 * goes through one stream, in order. A pass begins with one copy of what changes from step to step (hr_cuda_batch and what
 * it points to, written into pinned memory) and ends when the host has waited for the stream.
 *
 * A failure is kept, the first one alone; after it nothing is launched until the pass has ended and told it. */
#ifndef HR_CUDA_STATE_H
#define HR_CUDA_STATE_H

#include "engine/backend.h"
#include "engine/cuda/driver.h"
#include "kernels/cuda/cuda_params.h"

enum {
    HR_CUDA_AREAS = 16,
    HR_CUDA_GRAPHS = 32,
    HR_CUDA_HEAD_ROWS = 32,           /* rows of logits at a time, where all of a prompt are wanted */
    HR_CUDA_WORKSPACE = 16 << 20,     /* of launches (hr_cuda_caps.workspace) */
    HR_CUDA_LIBRARY_SPACE = 32 << 20, /* of cuBLASLt */
    HR_CUDA_STAGING = 16 << 20        /* bytes of one of two pinned buffers on the way to the device */
};

/* Memory of one kind (--gpu-memory); run state is always HR_GPU_DEVICE. */
typedef struct hr_cuda_area {
    CUdeviceptr at;
    size_t bytes; /* 0: free */
    hr_gpu_memory kind;
    void *host;                            /* PINNED: the host's address */
    CUmemGenericAllocationHandle physical; /* COMPRESSIBLE */
} hr_cuda_area;

/* A decode step that was captured: for so many tokens and positions at most. */
typedef struct hr_cuda_graph {
    uint32_t n, max_len; /* n 0: none */
    CUgraphExec exec;
    const char *last_kernel;
} hr_cuda_graph;

/* Buffers of a pass, in device memory. T tokens at most, R rows of logits, S sequences. Activations of each width have a buffer of
 * their own, so that what lies behind the width stays zero. */
typedef struct hr_cuda_buffers {
    float *x, *h;     /* [T][dim] residual stream; results of products that are added later */
    float *qkv;       /* [T][q_dim + 2 kv_dim] */
    float *att;       /* [T][q_dim] */
    float *gate, *up; /* [T][ffn] */
    float *logits;    /* [R][vocab] */
    float *partial;   /* [S][n_heads][HR_CUDA_SPLITS][2 + head_dim] */
    float *angles;    /* [ctx][rope_dims / 2][2]; rope_dims is head_dim at most */
    hr_cuda_acts acts_dim, acts_q, acts_ffn;
    int32_t *ids;  /* [R] best of each row; behind them one of a draw */
    uint64_t *rng; /* [1] */
    void *workspace, *library;
    char *block; /* hr_cuda_batch and what it points to */
    size_t block_bytes;
    uint32_t rows; /* R */
} hr_cuda_buffers;

/* The model's matrices and vectors on the device; other facts are the host model's. */
typedef struct hr_cuda_weights {
    hr_mat embed, head;
    const float *output_norm;
    hr_layer *layers; /* [n_layers] */
    size_t bytes;
} hr_cuda_weights;

/* Copies of what views of the KV cache point to. */
typedef struct hr_cuda_kv {
    hr_kv_geom *geoms; /* device: one for each hr_kv_cache_geom */
    uint32_t *tables;  /* device: [max_seqs][entries] */
    uint32_t *known;   /* pinned: what the device has */
    uint32_t entries;
    const hr_kernel *copy;       /* row that copies positions; NULL: run by run */
    hr_kv_seq *pair, *pair_host; /* device and pinned: [2], for copies of rows */
} hr_cuda_kv;

typedef enum hr_cuda_mode {
    HR_CUDA_LAUNCH,  /* ops launch */
    HR_CUDA_CAPTURE, /* ops launch into a graph */
    HR_CUDA_REPLAY   /* the graph is there: ops do nothing */
} hr_cuda_mode;

struct hr_cuda_events;
struct hr_cublaslt;

typedef struct hr_cuda {
    const hr_driver *d;
    const hr_engine *e;
    CUdevice device;
    bool opened; /* there is a context: what was opened in it can be closed */
    int ordinal;
    hr_gpu_memory kv_kind;
    CUstream stream;
    hr_cuda_caps caps;
    hr_cuda_area areas[HR_CUDA_AREAS];
    char *staging[2];
    CUevent staged[2];
    unsigned staging_turn;
    hr_cuda_weights w;
    hr_cuda_buffers b;
    hr_cuda_kv kv;
    hr_kv_memory kv_memory;
    char *block_host;   /* pinned, as b.block */
    float *logits_host; /* pinned: [R][vocab] */
    int32_t *ids_host;  /* pinned: [R + 1] */
    uint64_t *rng_host; /* pinned: [1] */
    /* the failure that is kept */
    hr_status status;
    char message[1024];
    /* the pass under way */
    hr_cuda_mode mode;
    uint32_t n, n_segments, n_q, max_len; /* bounds of its launches */
    const hr_cuda_batch *batch;           /* device */
    const char *last_kernel;
    bool ids_known;       /* ids_host has the best of the last pass's rows */
    uint32_t logits_rows; /* rows of the last pass in b.logits; 0: they went to the caller */
    bool logits_here;     /* and in logits_host */
    hr_cuda_graph graphs[HR_CUDA_GRAPHS];
    unsigned graph_next;
    struct hr_cuda_events *events;
    CUevent begun, ended; /* of a pass */
    double device_ns;
    struct hr_cublaslt *blas;
    bool blas_failed; /* in this pass */
    char gemm_why[256];
    struct hr_cuda_slot {
        const hr_kernel *kernel;
        CUfunction function;
        uint32_t smem; /* dynamic shared memory that it was allowed */
    } functions[128];
} hr_cuda;

/* ---- failures and launches: cuda_launch.c ---- */

/* Keeps the thread's message if it is the first. */
void hr_cuda_keep(hr_cuda *g, hr_status status);
/* call of the driver; false, and the failure kept, when it fails. */
#define HR_CUDA_DO(g, call) ((g)->status == HR_OK && hr_cuda_did(g, (g)->d->call, #call))
bool hr_cuda_did(hr_cuda *g, CUresult result, const char *what);
/* HR_OK, or what was kept, with the device's name before it; nothing is kept any more. */
hr_status hr_cuda_told(hr_cuda *g);
/* Launches a row for params, which its shape function may complete. NULL is a failure that names the family. */
void hr_cuda_launch(hr_cuda *g, const hr_kernel *k, void *params);
/* Loads the function of a row. */
hr_status hr_cuda_prepare(hr_cuda *g, const hr_kernel *k);
const char *hr_cuda_family_name(hr_family family);
/* Waits for all that was launched. */
void hr_cuda_wait(hr_cuda *g);

/* ---- memory: cuda_memory.c ---- */

/* 256-byte aligned, not cleared. ERR_MEMORY with the figures, ERR_UNSUPPORTED for a kind that the device lacks. */
hr_status hr_cuda_take(hr_cuda *g, hr_gpu_memory kind, size_t bytes, const char *what, void **out);
void hr_cuda_give(hr_cuda *g, void *at);
/* ERR_MEMORY when the device (or, pinned, the host) has less free than `weights`, `kv` and `run` take. */
hr_status hr_cuda_check_budget(hr_cuda *g, hr_gpu_memory kind, uint64_t weights, uint64_t kv, uint64_t run);
hr_status hr_cuda_take_pinned(hr_cuda *g, size_t bytes, void **out);
void hr_cuda_give_pinned(hr_cuda *g, void *at);
/* Room for up to HR_CUDA_STAGING bytes in pinned memory, once what was in it before has been copied; NULL after a failure. */
void *hr_cuda_stage(hr_cuda *g);
/* Sends the first n bytes of the room that hr_cuda_stage gave last. */
void hr_cuda_send(hr_cuda *g, void *to, size_t n);
/* Of any length, in pieces. */
void hr_cuda_upload(hr_cuda *g, void *to, const void *from, size_t n);

/* ---- weights: cuda_weights.c ---- */

size_t hr_cuda_weights_bytes(const hr_model *m);
hr_status hr_cuda_weights_open(hr_engine *e);
void hr_cuda_weights_close(hr_cuda *g);
/* b.angles, [ctx] positions. */
void hr_cuda_angles(hr_engine *e);

/* ---- KV: cuda_kv.c ---- */

void hr_cuda_kv_init(hr_cuda *g, hr_engine *e); /* kv_memory, before the cache is created */
hr_status hr_cuda_kv_open(hr_cuda *g, hr_engine *e);
void hr_cuda_kv_close(hr_cuda *g);
/* Sets the members of *out to the view as kernels see it, once the table has been sent where it changed; what lies between
 * members stays as it is. */
void hr_cuda_kv_view(hr_cuda *g, const hr_kv_seq *view, hr_kv_seq *out);

/* ---- passes: cuda_ops.c, cuda_graph.c, cuda_record.c ---- */

/* Every row that passes of this engine take; ERR_UNSUPPORTED names what is missing. */
hr_status hr_cuda_check_rows(hr_engine *e);
/* Decides how the ops of a decode step run: mode. */
void hr_cuda_graph_begin(hr_engine *e, bool wanted);
/* Ends the capture and launches. */
void hr_cuda_graph_end(hr_cuda *g);
void hr_cuda_graphs_close(hr_cuda *g);

/* The recorder is on: ops are timed by events. */
bool hr_cuda_recording(const hr_engine *e);
void hr_cuda_record_begin(hr_engine *e); /* a pass */
void hr_cuda_enter(hr_pass *p, hr_op op, const char *kernel, hr_work work);
void hr_cuda_leave(hr_pass *p);
void hr_cuda_record_end(hr_engine *e); /* after the wait: times of the records */
void hr_cuda_record_close(hr_cuda *g);

/* ---- cuBLASLt: cublaslt.c ---- */

/* Opens the library; ERR_UNSUPPORTED in one line. *row: for hr_engine.gemm. */
hr_status hr_cublaslt_open(hr_cuda *g, struct hr_cublaslt **out, const hr_kernel **row);
void hr_cublaslt_close(struct hr_cublaslt *l);
/* y[n][ldy] = x w^T, added to what is there when `add`. */
hr_status hr_cublaslt_run(struct hr_cublaslt *l, hr_cuda *g, const hr_mat *w, const hr_cuda_acts *x, float *y,
                          size_t ldy, uint32_t n, bool add);

#endif
