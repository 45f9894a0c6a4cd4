/* cell.h - one cell of a sweep: its configuration, its name, its fingerprint, and its row of public keys.
 *
 * An axis that does not concern the kind of row or the layout is "null" here: -1 for a number. Cells that are equal
 * after that have the same cell_id and are measured once. */
#ifndef HR_CELL_H
#define HR_CELL_H

#include "engine/engine.h"
#include "harness/roof/roof.h"

typedef enum hr_cell_kind { HR_CELL_PP, HR_CELL_TG, HR_CELL_PG, HR_CELL_ISL } hr_cell_kind;

enum { HR_CELL_NULL = -1 };

typedef struct hr_cell_config {
    char model[512]; /* as given to -m */
    hr_quant quant;
    int act; /* hr_act; resolved by hr_cell_resolve_act, never auto after expansion */
    hr_cell_kind kind;
    int64_t n_prompt, n_gen; /* pp, tg, pg; isl rows: isl and osl */
    int64_t isl, osl;        /* isl rows, else null */
    int64_t depth;           /* pp, tg, pg; null on isl rows */
    int64_t n_seqs;          /* null on pp rows */
    int64_t batch, ubatch;   /* null on tg rows */
    hr_dtype k_type, v_type;
    hr_kv_layout kv_layout;
    int64_t page_size; /* null unless paged */
    char kv_alloc[16]; /* "per-request", "pool", "paged", "hybrid" */
    bool flash;
    int64_t threads; /* resolved; null on a GPU */
    hr_isa isa;      /* resolved; AUTO on a GPU, where it is null */
    hr_order weights;
    unsigned fusion;             /* HR_FUSE_* */
    char forced[HR_FORCES_TEXT]; /* --kernel: "op=name;..." */
    /* settings, one value for all cells of a sweep */
    bool copy, small_pages, free_threads; /* --mmap 0, --huge-pages 0, --pin 0 */
    int64_t kv_budget;                    /* percent of the demand; 0: 100 */
    int64_t kv_threshold, kv_compact;     /* hybrid; pool and hybrid */
    /* On a GPU weights are rows, and the settings of memory and threads are off; on the CPU what follows is 0. */
    int gpu; /* ordinal + 1; 0: the CPU */
    bool graphs, cublaslt;
    hr_gpu_memory gpu_memory;
    int64_t power_limit_w; /* 0: as it is */
} hr_cell_config;

int hr_cell_device(const hr_cell_config *c); /* as hr_engine_config.device */
/* Whether the axis concerns a cell of a GPU: graphs replay decode steps; a library makes products of many tokens. */
bool hr_cell_has_graphs(const hr_cell_config *c);
bool hr_cell_has_gemm(const hr_cell_config *c);

/* "pp512", "tg128 @ d4096", "pp512+tg128", "isl512 osl128". */
void hr_cell_test(const hr_cell_config *c, char *out, size_t n);
/* What --act auto means for these weights on this ISA. type: hr_model_info.type, for native weights. */
hr_act hr_cell_resolve_act(hr_quant quant, const char *type, hr_isa isa);
/* The same on a GPU: each has the unit of bf16. */
hr_act hr_cell_resolve_act_gpu(hr_quant quant, const char *type);
/* 32 hex digits and NUL: fingerprint of the model's hash, the whole configuration and the machine class; input: hash of
 * the prompt's text or "" for random tokens. The build, the seed and the number of repetitions are not part of it. */
void hr_cell_id(const hr_cell_config *c, const char *model_hash, const char *machine_class, const char *input,
                char out[33]);
/* 128 bits of a text as 32 hex digits; not cryptographic. */
void hr_fingerprint(const char *text, size_t n, char out[33]);

/* Bytes that the weights take in memory: mapped, or own with the padding of panels. */
uint64_t hr_cell_weight_memory(const hr_model_info *info);
/* The configuration that the engine is opened with: room for this cell and no more. */
hr_engine_config hr_cell_engine_config(const hr_cell_config *c, uint32_t model_ctx);
/* How its model is loaded; progress and context are the caller's. */
hr_load_options hr_cell_load_options(const hr_cell_config *c);
/* Positions a sequence of this cell must hold. */
uint64_t hr_cell_positions(const hr_cell_config *c);
/* Mean tokens in a sequence before a decode step; NaN where nothing is decoded after the first token. */
double hr_cell_mean_context(const hr_cell_config *c);
/* Decode steps of a repetition: n_gen (tg, pg), osl - 1 (isl), 0 (pp). */
uint64_t hr_cell_steps(const hr_cell_config *c);

/* To the worker and back. New reference; NULL when out of memory. */
json_t *hr_cell_config_json(const hr_cell_config *c);
hr_status hr_cell_config_parse(const json_t *json, hr_cell_config *out);

/* A row with every key of cell_keys.h: configuration, build and machine filled in, the rest null. */
json_t *hr_cell_row(const hr_cell_config *c, const hr_model_info *info, const hr_machine *machine, const char *cell_id,
                    int64_t seed, const char *tags);
/* What such a row of a GPU's cell says beside: the GPU's name, its axes, and the flag of a simulated one. */
void hr_cell_row_gpu(json_t *row, const hr_cell_config *c, const hr_device_info *info);

#endif
