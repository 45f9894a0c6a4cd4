/* weights.h - private to engine/model: the weights that a model consists of, and where each comes from.
 *
 * The order of work, the same for files and synthetic models:
 *   hparams (hr_hparams_from_gguf, hr_synth_parse) -> hr_plan_create: the list of matrices and vectors with their shapes
 *   -> hr_plan_bind (files: each finds its tensor) -> hr_plan_layout: bytes at a quant -> hr_fill: the weights in memory.
 * Nothing before hr_fill reads weights, so peek and inspect stop there. */
#ifndef HR_WEIGHTS_H
#define HR_WEIGHTS_H

#include "engine/model/gguf.h"
#include "engine/model/model.h"

/* How the values of a synthetic weight are drawn. */
typedef struct hr_draw {
    uint64_t key;      /* of the stream: by seed and name */
    float center, std; /* absolute */
} hr_draw;

typedef struct hr_plan_mat {
    char name[48];
    hr_mat *slot;  /* the model's matrix: dtype, rows and cols set by layout, data and scales by fill */
    bool residual; /* its output is added to the residual stream */
    bool head;     /* makes the logits */
    hr_mat source; /* in the file; data NULL for a synthetic model */
    hr_draw draw;
    size_t data_at, scales_at; /* offsets in the arena; not used when the mapping is kept */
} hr_plan_mat;

typedef struct hr_plan_vec {
    char name[48];
    const float **slot;
    size_t n;
    bool optional; /* absent: the slot stays NULL */
    bool present;
    hr_mat source; /* [1][n] in the file */
    hr_draw draw;
    size_t at;
} hr_plan_vec;

typedef struct hr_plan {
    hr_plan_mat *mats;
    hr_plan_vec *vecs;
    size_t n_mats, n_vecs;
    bool droppable; /* by bind: sources lie in a mapping, whose pages may be given back */
    /* by layout: */
    hr_order order;        /* of the matrices */
    uint64_t weight_bytes; /* all weights at the quant, without padding */
    size_t arena_bytes;    /* anonymous memory */
    bool keep_types;       /* matrices keep the file's types: nothing is rounded */
    bool keep_file;        /* and stay in the mapping */
    bool unmade;           /* set before layout: matrices get no memory and are not filled */
} hr_plan;

/* Reasons why a model cannot be computed, as inspect lists them. */
typedef struct hr_reasons {
    json_t *list; /* array of strings */
} hr_reasons;
hr_status hr_reason_add(hr_reasons *reasons, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds each type of matrix in the file that cannot be computed. */
hr_status hr_reasons_types(const hr_gguf *gguf, hr_reasons *reasons);
/* A JSON string of a text from a file; bytes that are no UTF-8 become '?'. NULL when out of memory. */
json_t *hr_json_text(hr_text text);

/* Shape from the file's keys. ERR_INPUT for a key that is missing, of a wrong kind or out of bounds. What the engine
 * cannot compute is added to `reasons`; *arch is NULL when the architecture is unknown, and then *hp holds nothing. */
hr_status hr_hparams_from_gguf(const hr_gguf *gguf, const hr_arch **arch, hr_hparams *hp, hr_reasons *reasons);
/* Bounds and divisibility, for files and synthetic models: ERR_INPUT says what does not fit, without naming a file. */
hr_status hr_hparams_check(const hr_hparams *hp);
/* Radians a position without scaling, freq[rope_dims / 2]: base^(-2i / rope_dims). */
void hr_rope_base(const hr_hparams *hp, double *freq);
/* The file's scaling (linear factor, rope_freqs.weight) applied to freq. */
hr_status hr_rope_scale_gguf(const hr_gguf *gguf, const hr_hparams *hp, double *freq);

/* Allocates the model's layers and lists all weights of model->arch and model->hp; tied: no head of its own. */
hr_status hr_plan_create(hr_model *model, bool tied, hr_plan *plan);
void hr_plan_fini(hr_plan *plan);
/* Finds each weight in the file: ERR_INPUT for a missing tensor or a wrong shape; vectors of a type that is
 * none of the floats and tensors that have no place in the architecture are added to `reasons`. */
hr_status hr_plan_bind(hr_plan *plan, const hr_gguf *gguf, hr_reasons *reasons);
/* Types at `quant`, offsets and bytes; copy: rows of a file get memory of their own too. ERR_INPUT names a matrix whose
 * rows do not divide into groups. */
hr_status hr_plan_layout(hr_plan *plan, hr_quant quant, hr_order order, bool copy);
uint64_t hr_plan_elems(const hr_plan *plan);

/* Fills the arena [plan->arena_bytes] from file or generator and sets the slots; file names the model in messages. */
hr_status hr_plan_fill(const hr_plan *plan, void *arena, const char *file, const hr_load_options *options);

/* "135M", "1B", "1.5B" from a parameter count. */
void hr_size_label(uint64_t n_params, char *out, size_t size);

/* The tokenizer of a file. ERR_INPUT for a vocabulary that contradicts itself or the table's `rows` (0: unknown). What is
 * not supported gives HR_OK, *out NULL and the reason in why[size]. */
hr_status hr_gguf_tokenizer(const hr_gguf *gguf, uint32_t rows, hr_tokenizer **out, char *why, size_t size);
/* The number of tokens against the table's rows. */
hr_status hr_gguf_check_tokens(const hr_gguf *gguf, uint32_t rows);

/* What hr_model_load, peek and inspect know of a model before its weights. */
typedef struct hr_opened {
    hr_gguf *gguf; /* NULL for a synthetic model */
    hr_model *model;
    hr_plan plan;
    hr_reasons reasons;
} hr_opened;
/* Reads and checks all but weights. HR_OK also when `reasons` is not empty: then the plan may be missing. */
hr_status hr_model_open(const char *spec, hr_opened *out);
/* The same of a parsed file, which belongs to *out from here on, also when it fails. */
hr_status hr_model_open_gguf(hr_gguf *gguf, hr_opened *out);
void hr_opened_fini(hr_opened *opened); /* the model too, unless it was taken (NULL) */
/* Fills info->weight_bytes, anon_bytes, order and op_dtypes. */
hr_status hr_opened_layout(hr_opened *opened, hr_quant quant, hr_order order, bool copy);
/* The object of hr_model_inspect. */
hr_status hr_opened_inspect(hr_opened *opened, json_t **out);

/* 128-bit fingerprint of pieces of data, not cryptographic. */
typedef struct hr_fingerprint {
    uint64_t a, b;
} hr_fingerprint;
void hr_fingerprint_add(hr_fingerprint *f, const void *data, size_t n);
void hr_fingerprint_hex(const hr_fingerprint *f, char out[33]);

#endif
