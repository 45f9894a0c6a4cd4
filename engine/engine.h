/* engine.h - all that the harness and bench see of the engine: models, sessions, steps, text, and the record of ops.
 *
 * A model is weights and a tokenizer; an engine is a model opened with a configuration (threads, KV, batch sizes), with
 * its run state in one arena sized at open: prefill and decode allocate nothing. Sequences are numbered 0..max_seqs-1.
 */
#ifndef HR_ENGINE_H
#define HR_ENGINE_H

#include <jansson.h>

#include "engine/device.h"
#include "engine/kv/kv_cache.h"
#include "kernels/table.h"

/* ---- models -------------------------------------------------------------------------------------------------------
 */

/* --quant: what the matrices become at load. NATIVE keeps the file's types (a synthetic model: bf16). Vectors are f32.
 */
typedef enum hr_quant {
    HR_QUANT_NATIVE,
    HR_QUANT_F32,
    HR_QUANT_BF16,
    HR_QUANT_F16,
    HR_QUANT_INT8,
    HR_QUANT_INT4,
    HR_QUANT_INT8_ROW,   /* one scale a row */
    HR_QUANT_INT4_G128,  /* groups of 128 */
    HR_QUANT_INT4_HEAD8, /* int4, the head (and a tied embedding table) int8 */
    HR_QUANT_INT4_G128_HEAD8,
    HR_QUANT_COUNT
} hr_quant;
const char *hr_quant_name(hr_quant quant);
hr_status hr_quant_parse(const char *name, hr_quant *out);
/* --weights: "native" (rows, as in a file), "repacked" (panels of 16 rows). */
const char *hr_weights_name(hr_order order);
hr_status hr_weights_parse(const char *name, hr_order *out);

typedef struct hr_model_info {
    char name[128];     /* general.name, or the synth name */
    char filename[512]; /* path as given, or "synth:..." as given */
    char arch[32];      /* "llama" */
    char type[64];      /* as llama-bench says it: "llama 1B Q8_0", "llama 135M Q4_1" */
    char hash[33];      /* hex fingerprint of header, shapes and a sample of the data (synthetic: of the spec) */
    uint64_t n_params, file_bytes; /* file_bytes: of tensors; synthetic: what native weights take */
    uint32_t n_layers, dim, n_heads, n_kv_heads, head_dim, ffn, vocab, ctx;
    bool tied; /* the head is the embedding table */
    bool synthetic;
    uint64_t weight_bytes;           /* memory of all weights at the chosen quant (mapped or anonymous) */
    uint64_t anon_bytes;             /* of these, what is anonymous memory */
    hr_order order;                  /* of the matrices */
    uint32_t op_dtypes[HR_OP_COUNT]; /* bit sets of hr_dtype: of the matrices of each op class at that quant */
} hr_model_info;

typedef struct hr_model hr_model;
typedef struct hr_load_options {
    hr_quant quant;
    hr_order order;   /* --weights: PANELS (repacked), or ROWS (native: the file's block order) */
    bool copy;        /* --mmap 0: a file's rows that stay as they are get memory of our own */
    bool huge_pages;  /* ask for huge pages for memory of our own (madvise) */
    unsigned threads; /* for synthesis and conversion; 0: all allowed CPUs */
    /* For GPUs alone: rows; a synthetic model is planned and not filled, as the engine makes its weights on the device. An
     * engine on the CPU refuses such a model. */
    bool on_device;
    void (*progress)(double share, void *context); /* NULL, or called from the loading thread now and then, 0..1 */
    void *context;
} hr_load_options;

/* spec: a GGUF file or synth:NAME[:key=value...]. Everything is checked before weights are read: bad input is
 * ERR_INPUT or ERR_UNSUPPORTED with file and field in the message; a model that does not fit in memory ERR_MEMORY with
 * both figures, before loading. */
hr_status hr_model_load(const char *spec, const hr_load_options *options, hr_model **out);
void hr_model_destroy(hr_model *model);
const hr_model_info *hr_model_get_info(const hr_model *model);
/* As hr_model_load would, without weights: shape, bytes at `quant`, all checks of the header. Fast. */
hr_status hr_model_peek(const char *spec, hr_quant quant, hr_order order, hr_model_info *out);
/* The object that `inspect` prints: architecture, shape, tensors by type, tokenizer, bytes, "unsupported": [reasons].
 * ERR_INPUT only for a broken file. *out is a new reference. */
hr_status hr_model_inspect(const char *spec, json_t **out);
/* The synthetic shapes as `models` prints them: [{name, params, bytes, layers, dim, ..., source}]. New reference. */
json_t *hr_model_shapes(void);
/* Known shape names, NULL-ended, for spelling advice. */
const char *const *hr_model_shape_names(void);

/* ---- text ----------------------------------------------------------------------------------------------------------
 */

typedef struct hr_tokenizer hr_tokenizer;
/* Borrowed from the model; NULL for a model without text. */
const hr_tokenizer *hr_model_tokenizer(const hr_model *model);
/* Tokenizer alone, without loading weights; caller destroys it. */
hr_status hr_tokenizer_open(const char *spec, hr_tokenizer **out);
void hr_tokenizer_destroy(hr_tokenizer *tokenizer);
/* Token ids of n bytes of text; *ids is hr_malloc'ed (hr_free it). Invalid UTF-8 is kept byte by byte. add_bos: begin-
 * of-text where the model says so. parse_special: special tokens written in the text become one token. */
hr_status hr_tokenize(const hr_tokenizer *tokenizer, const char *text, size_t n, bool add_bos, bool parse_special,
                      int32_t **ids, size_t *n_ids);
bool hr_tokenizer_adds_bos(const hr_tokenizer *tokenizer);
int32_t hr_tokenizer_bos(const hr_tokenizer *tokenizer);             /* -1: none */
bool hr_tokenizer_is_end(const hr_tokenizer *tokenizer, int32_t id); /* end of generation */

/* Streaming detokenization: feeds one token, returns the bytes that are complete characters now (possibly none; valid
 * until the next call). hr_detok_flush returns what is left, incomplete bytes as U+FFFD. */
typedef struct hr_detok hr_detok;
hr_status hr_detok_create(const hr_tokenizer *tokenizer, bool show_special, hr_detok **out);
void hr_detok_destroy(hr_detok *detok);
const char *hr_detok_feed(hr_detok *detok, int32_t id, size_t *n);
const char *hr_detok_flush(hr_detok *detok, size_t *n);

/* ---- engine
 * ---------------------------------------------------------------------------------------------------------- */

/* --fusion: joins of ops into one, each a bit. Without a bit the op runs in separate steps. */
enum {
    HR_FUSE_QKV = 1,          /* norm, Q, K, V, bias, RoPE and KV append */
    HR_FUSE_GATE_UP = 2,      /* gate, up and activation (with the norm before them) */
    HR_FUSE_OUT_RESIDUAL = 4, /* out and down add to the residual stream as they store */
    HR_FUSE_HEAD_SAMPLE = 8,  /* each thread keeps the best of the logits it makes */
    HR_FUSE_ALL = 15
};

enum { HR_FUSION_TEXT = 64 };
/* "none", "all", or names joined by +: qkv, gate-up, out-residual, head-sample. ERR_USAGE with the nearest spelling. */
hr_status hr_fusion_parse(const char *text, unsigned *out);
const char *hr_fusion_text(unsigned fusion, char out[HR_FUSION_TEXT]); /* returns out */
/* The joined ops as records and `kernels` name them: "qkv_fused+" and the row of the product. Ended by name NULL. */
typedef struct hr_fused_op {
    unsigned bit;
    hr_op op; /* class of the record */
    const char *name;
} hr_fused_op;
extern const hr_fused_op hr_fused_ops[];

/* One forced choice of --kernel: rows of op class `op` are taken by name where the name's row fits. */
typedef struct hr_kernel_force {
    hr_op op;
    char name[40];
} hr_kernel_force;
enum { HR_FORCES_MAX = 8 };

/* --gpu-memory: where weights and KV of a GPU lie. */
typedef enum hr_gpu_memory {
    HR_GPU_DEVICE,
    HR_GPU_MANAGED,
    HR_GPU_PINNED,
    HR_GPU_COMPRESSIBLE,
    HR_GPU_MEMORY_COUNT
} hr_gpu_memory;
extern const char *const hr_gpu_memory_names[HR_GPU_MEMORY_COUNT]; /* "device", "managed", "pinned", "compressible" */

typedef struct hr_engine_config {
    unsigned fusion; /* HR_FUSE_* */
    hr_kernel_force forces[HR_FORCES_MAX];
    uint32_t n_forces;
    unsigned threads; /* 0: physical cores allowed */
    hr_isa isa;
    int act; /* hr_act, or -1: auto (cli.md) */
    hr_kv_layout kv_layout;
    uint32_t page_size; /* paged only; 0: 16 */
    /* As in hr_kv_cache_config; AUTO: what the layout needs. */
    hr_kv_alloc kv_alloc;
    uint64_t kv_budget;                /* bytes; 0: kv_budget_pct */
    uint32_t kv_budget_pct;            /* percent of what max_seqs full sequences take; 0: 100 */
    uint32_t kv_threshold, kv_compact; /* hybrid; pool and hybrid */
    bool kv_share;                     /* shared prefixes */
    hr_dtype k_type, v_type;
    uint32_t max_seqs; /* sequences that may live at once */
    uint32_t ctx;      /* positions each may hold */
    uint32_t ubatch;   /* tokens of one forward pass at most (prefill micro-batch; decode: max_seqs) */
    uint32_t batch;    /* -b: prefill is cut into batches of this many, each into micro-batches of ubatch */
    bool flash;        /* -fa */
    bool pin;          /* pin threads to CPUs */
    bool huge_pages;   /* ask for huge pages for KV and run state */
    /* GPUs */
    int device;           /* HR_DEVICE_CPU, or the ordinal of a GPU */
    bool graphs;          /* decode steps as captured graphs, one a batch bucket */
    hr_gpu_memory memory; /* of weights and KV */
    bool cublaslt;        /* products of 16 tokens and more by cuBLASLt where it fits (else our own) */
    /* NULL, or called now and then, 0..1, while create brings the weights to a GPU. */
    void (*progress)(double share, void *context);
    void *context;
} hr_engine_config;
/* Adds "op=name" of --kernel. ERR_USAGE, with the nearest spelling, when there is no such class or row; whether it fits
 * the model is seen by create. */
hr_status hr_kernel_force_add(hr_engine_config *config, const char *text);
enum { HR_FORCES_TEXT = HR_FORCES_MAX * 56 };
/* The other way round: a list with ';' between. */
hr_status hr_kernel_forces_parse(hr_engine_config *config, const char *text);
/* ERR_USAGE, saying what differs, for a forced row that no pass of this model takes; isa and act are resolved ones. */
hr_status hr_kernel_forces_fit(const hr_engine_config *config, const hr_model_info *info, hr_isa isa, hr_act act);
/* "down=gemv_x;head=gemv_y", by op class; "" when nothing is forced. Returns out. */
const char *hr_kernel_forces_text(const hr_engine_config *config, char out[HR_FORCES_TEXT]);
/* The defaults of cli.md. */
hr_engine_config hr_engine_config_default(void);

/* The width of int8 products on this CPU and how it is known. */
typedef enum hr_tuned {
    HR_TUNED_DEFAULT, /* only one width can run here */
    HR_TUNED_FORCED,  /* HEADROOM_LANES */
    HR_TUNED_CACHED,  /* measured before */
    HR_TUNED_MEASURED
} hr_tuned;
typedef struct hr_tuning {
    uint32_t lanes; /* bits: 256 or 512 */
    hr_tuned how;
    double narrow_gop_s, wide_gop_s; /* of one thread, 256 and 512 bits; 0: not measured */
    char cache[512];                 /* the file that holds the answer; "": none */
} hr_tuning;
/* Found at the first call, which hr_engine_create makes: read from the user's cache, else measured in a few
 * milliseconds. out may be NULL. ERR_USAGE for a wrong HEADROOM_LANES, ERR_MEMORY. */
hr_status hr_tune(hr_tuning *out);

typedef struct hr_engine hr_engine;
/* The model must outlive the engine. ERR_UNSUPPORTED for pairs that are not legal, ERR_MEMORY with the figures. */
hr_status hr_engine_create(const hr_model *model, const hr_engine_config *config, hr_engine **out);
void hr_engine_destroy(hr_engine *engine);
/* Bytes that create would map for run state and KV. */
hr_status hr_engine_plan(const hr_model_info *info, const hr_engine_config *config, uint64_t *arena_bytes,
                         uint64_t *kv_bytes);

typedef struct hr_engine_facts {
    hr_act act; /* resolved */
    hr_isa isa; /* resolved */
    unsigned threads;
    uint64_t arena_bytes, kv_bytes;             /* mapped */
    uint64_t kv_bytes_needed, kv_bytes_touched; /* rows held by live sequences; the 4 KiB pages or lines they lie on */
    bool huge_pages; /* huge pages were obtained for weights, KV or arena (AnonHugePages of the process grew) */
    bool pinned;
    int device;
    bool simulated;       /* by a driver that runs kernels on the CPU */
    bool graphs;          /* decode steps are replayed graphs */
    const char *gemm;     /* "cublasLt", "own"; NULL on the CPU */
    const char *gemm_why; /* why it is not cuBLASLt though that was asked for; NULL: nothing is to be said */
    double device_ns;     /* of the last pass by the device's own events; 0 on the CPU */
} hr_engine_facts;
hr_engine_facts hr_engine_get_facts(const hr_engine *engine);

/* Appends n tokens to sequence seq. Logits of the last one are computed when want_logits. ERR_INPUT for a token outside
 * the vocabulary or a full context; then nothing has changed. */
hr_status hr_engine_prefill(hr_engine *engine, uint32_t seq, const int32_t *tokens, size_t n, bool want_logits);
/* One step: one token for each of n different sequences, one forward pass; logits of all (row i for seqs[i]). */
hr_status hr_engine_decode(hr_engine *engine, const uint32_t *seqs, const int32_t *tokens, size_t n);
/* Logits of all n tokens of a prompt in rows of vocab floats, into out [n][vocab] (perplexity; in micro-batches). */
hr_status hr_engine_prefill_all(hr_engine *engine, uint32_t seq, const int32_t *tokens, size_t n, float *out);
/* Row i of the last step's logits [vocab]; valid until the next step. */
const float *hr_engine_logits(const hr_engine *engine, size_t i);
uint32_t hr_engine_seq_len(const hr_engine *engine, uint32_t seq);
/* Cuts the sequence back to len positions (0: empty); pages that fall free are returned. */
void hr_engine_seq_cut(hr_engine *engine, uint32_t seq, uint32_t len);

/* Requests under an allocator: as the functions of kv_cache.h of the same names. A sequence that is used without being
 * opened is opened as a request of full length. Prefill goes on at *shared. */
hr_status hr_engine_seq_open(hr_engine *engine, uint32_t seq, const hr_kv_request *request, uint32_t *shared);
hr_status hr_engine_seq_close(hr_engine *engine, uint32_t seq);
hr_status hr_engine_seq_fork(hr_engine *engine, uint32_t from, uint32_t to, uint32_t len);
hr_status hr_engine_seq_evict(hr_engine *engine, uint32_t seq, uint32_t sinks, uint32_t window);
uint64_t hr_engine_seq_saved_bytes(const hr_engine *engine, uint32_t seq);
void hr_engine_seq_save(const hr_engine *engine, uint32_t seq, void *out);
hr_status hr_engine_seq_load(hr_engine *engine, uint32_t seq, const void *saved, uint32_t len, uint32_t gone_from,
                             uint32_t gone_to);
hr_kv_stats hr_engine_kv_stats(const hr_engine *engine);

typedef struct hr_sampling {
    float temperature;  /* 0: argmax, lowest id of equals */
    int top_k;          /* 0: off */
    float top_p, min_p; /* 1 and 0: off */
} hr_sampling;
/* A token from row i of the logits. *rng is the state of the generator (any seed is legal, 0 too). Counted as op
 * `sample`. Order: top-k, softmax with temperature, top-p, min-p, draw. */
int32_t hr_engine_sample(hr_engine *engine, size_t i, const hr_sampling *how, uint64_t *rng);

/* What is said about a row of n logits. The k largest, best first (of equals the lower id; NaN counts as -infinity), into
 * out[k]; returns how many (k or n). log(sum exp(x)) in double, by the largest first: no overflow. */
typedef struct hr_candidate {
    float logit;
    int32_t id;
} hr_candidate;
size_t hr_top_k(const float *logits, size_t n, size_t k, hr_candidate *out);
double hr_logsumexp(const float *logits, size_t n);

/* ---- work and records
 * -------------------------------------------------------------------------------------------------- */

/* What HEADROOM_PLANT says, read without an engine: ERR_USAGE when it is no list of OP:X%. hr_engine_create checks too. */
hr_status hr_plant_check(void);

typedef enum hr_phase { HR_PHASE_PREFILL, HR_PHASE_DECODE, HR_PHASE_COUNT } hr_phase;
extern const char *const hr_phase_names[HR_PHASE_COUNT]; /* "prefill", "decode" */

typedef struct hr_step_work {
    uint64_t bytes_weights, bytes_kv_read, bytes_kv_write;
    uint64_t flops[HR_UNIT_COUNT];
} hr_step_work;
/* Work of a decode step of n sequences of `context` tokens each before the step (may be fractional: a mean). */
hr_step_work hr_engine_decode_work(const hr_engine *engine, size_t n, double context);
/* Work of a prefill of n tokens after `depth` tokens, in the engine's batches and micro-batches, head at the last. */
hr_step_work hr_engine_prefill_work(const hr_engine *engine, size_t n, size_t depth);
/* {op class: kernel name} of a phase as the engine would run it with n tokens a pass. New reference. */
json_t *hr_engine_kernels(const hr_engine *engine, hr_phase phase, size_t n);

/* One op as it ran. */
typedef struct hr_op_record {
    hr_phase phase;
    hr_op op;
    int16_t layer;      /* -1: outside the layers */
    const char *kernel; /* static text */
    uint32_t tokens;
    uint32_t pass;             /* number of the forward pass; a sample carries that of the pass before it */
    uint64_t start_ns, end_ns; /* hr_now_ns */
    uint64_t bytes, flops;
    hr_unit unit;
    /* Of end - start, where the team ran in the op: threads that waited for the slowest (its time less the mean of all),
     * and handing over (the caller's time less that of the slowest). 0 for what the caller did alone. */
    uint32_t jobs; /* times the team ran */
    uint64_t imbalance_ns, handoff_ns;
} hr_op_record;
/* One job of the team as another thread than the caller ran it. */
typedef struct hr_thread_span {
    uint64_t start_ns, end_ns;
    uint32_t pass;
    int16_t layer;
    uint8_t op, phase; /* hr_op, hr_phase */
    uint16_t thread;   /* 1.. */
} hr_thread_span;
/* The in-process recorder: space for `capacity` ops, made before the timed region; 0 turns it off and
 * keeps the space. */
hr_status hr_engine_record(hr_engine *engine, size_t capacity);
/* As a ring that keeps the newest `ops` records and `spans` spans of other threads. */
hr_status hr_engine_record_ring(hr_engine *engine, size_t ops, size_t spans);
void hr_engine_record_reset(hr_engine *engine);
/* Ops are not recorded until it is called with false: between steps, so that neighbours with and without the recorder can be
 * compared. What was recorded stays. */
void hr_engine_record_pause(hr_engine *engine, bool paused);
/* Records since the last reset, oldest first; *lost counts ops for which there was no space (in a ring: that were
 * overwritten). Not inside a timed region. */
const hr_op_record *hr_engine_records(hr_engine *engine, size_t *n, size_t *lost);
const hr_thread_span *hr_engine_thread_spans(hr_engine *engine, size_t *n, size_t *lost);
/* What recording costs here, measured now in some 100 us: ns that one op, and one job of the team, take longer. */
typedef struct hr_record_cost {
    double op_ns, job_ns;
} hr_record_cost;
hr_record_cost hr_engine_record_cost(void);

/* ---- ranges for profilers (NVTX, domain `headroom`) -------------------------------------------------------------- */

/* Categories, and the depth of --nvtx-level: what is deeper is not emitted. The names are those of the table in
 * engine/README.md. */
typedef enum hr_nvtx_level {
    HR_NVTX_NONE,
    HR_NVTX_CELL, /* cell, capture, request */
    HR_NVTX_PHASE,
    HR_NVTX_LAYER,
    HR_NVTX_OP,
    HR_NVTX_LEVEL_COUNT
} hr_nvtx_level;
extern const char *const hr_nvtx_level_names[HR_NVTX_LEVEL_COUNT]; /* "none", "cell", "phase", "layer", "op" */
/* A tool listens to NVTX in this process; always false in a build without the headers (hr_nvtx_built). The first call
 * loads the tool. */
bool hr_nvtx_attached(void);
bool hr_nvtx_built(void);
/* Of the whole process, op at first. An engine takes it when it is created. */
void hr_nvtx_set_level(hr_nvtx_level level);
/* A range of category cell on the calling thread, above those of the engine. The name is registered at its first use
 * (not in a timed region: begin it once before). No-op where no tool listens. Ranges nest: the newest ends first. */
void hr_nvtx_begin(const char *name, uint64_t payload);
void hr_nvtx_end(void);
/* "down:decode": the op's name in ranges, traces, summaries and imported tables. Static text. */
const char *hr_op_range_name(hr_op op, hr_phase phase);

/* --capture: what a profiler records of a cell begins and ends here. */
typedef enum hr_capture { HR_CAPTURE_NONE, HR_CAPTURE_NVTX, HR_CAPTURE_CUDA_PROFILER, HR_CAPTURE_COUNT } hr_capture;
extern const char *const hr_capture_names[HR_CAPTURE_COUNT]; /* "none", "nvtx", "cuda-profiler" */
/* NVTX: the range `capture` of the domain. CUDA_PROFILER: cuProfilerStart and cuProfilerStop of the driver
 * (HEADROOM_LIBCUDA or libcuda.so.1): ERR_UNSUPPORTED, naming what is missing, where it cannot be had. */
hr_status hr_capture_open(hr_capture how);
void hr_capture_begin(void);
void hr_capture_end(void);

#endif
