/* study_arms.h - the arms of a comparison: one cache a layout, all of one shape, filled with random finite rows; the loop that
 * samples them interleaved; and attention over such a cache by all threads. */
#ifndef HR_STUDY_ARMS_H
#define HR_STUDY_ARMS_H

#include "harness/kv/study_session.h"

typedef struct hr_study_shape {
    uint32_t layers, heads, dim, group; /* heads: KV heads; group: query heads of each */
    hr_dtype k_type, v_type;
    uint32_t context, batch; /* positions of each of `batch` sequences */
    uint32_t room;           /* positions beyond context, for appends */
    uint32_t spare;          /* sequences beyond batch, for forks */
} hr_study_shape;

/* What an arm is, without memory. The first of a list is `head`; "contiguous-best" shares its cache. */
typedef struct hr_study_arm_kind {
    char name[24]; /* of the row */
    hr_kv_layout layout;
    uint32_t page; /* 0 unless paged */
    bool best;     /* the hand-written contiguous kernel */
} hr_study_arm_kind;
enum { HR_STUDY_ARMS_MAX = 20 };
/* best: with the hand-written kernel, where the table has one. Returns how many. */
size_t hr_study_arm_kinds(bool quick, bool best, hr_study_arm_kind out[HR_STUDY_ARMS_MAX]);
/* "zorder", "paged:16": how keys name an arm. */
void hr_study_arm_text(const hr_study_arm_kind *kind, char *out, size_t n);
/* The row attn_contig_* of the best ISA here that takes these types; NULL: none. */
const hr_kernel *hr_study_best_kernel(hr_dtype k_type, hr_dtype v_type);

typedef struct hr_study_arms {
    hr_study_shape shape;
    size_t n;
    hr_study_arm_kind kinds[HR_STUDY_ARMS_MAX];
    hr_kv_cache *caches[HR_STUDY_ARMS_MAX];
    bool owns[HR_STUDY_ARMS_MAX];
    float *rows; /* [2][HR_STUDY_ROWS][heads * dim] random K and V */
} hr_study_arms;
enum { HR_STUDY_ROWS = 256 };

/* Arms of this shape, made anew unless the session has them. They stay the session's. */
hr_status hr_study_arms_get(hr_study_session *session, const hr_study_shape *shape, bool quick, hr_study_arms **out);
void hr_study_arms_destroy(hr_study_arms *arms);
/* Makes arms->rows by the shape; the caller frees them where the arms are not the session's. */
hr_status hr_study_random_rows(hr_study_arms *arms);
/* Random rows at positions [from, to) of every layer of a sequence, by the calling thread. */
void hr_study_fill(const hr_study_arms *arms, size_t arm, uint32_t seq, uint32_t from, uint32_t to);
/* Bytes of rows and scales of one position, all heads of one layer. */
size_t hr_study_row_bytes(const hr_study_arms *arms);
/* Layers that fit when every arm may take `most` bytes: 1 to 8. */
uint32_t hr_study_layers(const hr_study_shape *shape, uint64_t most);
const hr_kernel *hr_study_kernel(hr_family family, hr_dtype k_type, hr_dtype v_type, uint32_t n);

/* ---- sampling ---- */

/* One sample of an arm: what must be done before and after is inside, but not in the ns returned. */
typedef hr_status hr_study_sample(void *context, size_t arm, double *ns);

typedef struct hr_study_budget {
    double max_seconds, min_seconds;
    size_t max_samples;
} hr_study_budget;
hr_study_budget hr_study_budget_of(bool quick);

typedef struct hr_study_series {
    size_t n_arms, n;
    double *ns;                                  /* [n_arms][max_samples], ns; pair i of all arms is one round */
    size_t stride;                               /* max_samples */
    double misses[HR_STUDY_ARMS_MAX][HR_MISSES]; /* medians */
    const char *stop[HR_STUDY_ARMS_MAX];         /* stop reason of each arm */
} hr_study_series;
/* Rounds in which every arm is sampled once, in random order, until the ratios to arm 0 have converged or the budget is
 * used up; never fewer than HR_STUDY_LEAST. ERR_INTERRUPTED when options->stop says so. */
hr_status hr_study_interleave(hr_study_session *session, const hr_study_options *options, const hr_study_budget *budget,
                              size_t n_arms, hr_study_sample *sample, void *context, hr_study_series *out);
void hr_study_series_fini(hr_study_series *series);

/* Keys of a row: op kv_heads head_dim group type_k type_v page_size context batch threads layers; bytes_needed and gb_s
 * (needed NaN: null); predicted, counted and bytes_touched; vs_head, stop_reason and the counters. */
void hr_study_put_shape(json_t *row, const char *op, const hr_study_arms *arms, size_t arm, unsigned threads);
void hr_study_put_bytes(json_t *row, double needed);
/* The shape is of one sequence; `counted` too (NULL: null). Both are put for `sequences` of them. */
void hr_study_put_touched(json_t *row, const hr_study_arms *arms, size_t arm, hr_kv_op_shape shape,
                          const hr_kv_counts *counted, uint32_t sequences);
void hr_study_put_series(json_t *row, const hr_counters *counters, const hr_study_series *series, size_t arm);

/* ---- attention by all threads (study_attend.c) ---- */

typedef struct hr_study_attend hr_study_attend;
/* Calls of attention for n_q queries at the end of every sequence's context. kernel NULL: the best row of the table. */
hr_status hr_study_attend_create(hr_study_session *session, const hr_study_arms *arms, size_t arm, uint32_t n_q,
                                 const hr_kernel *kernel, hr_study_attend **out);
void hr_study_attend_destroy(hr_study_attend *attend);
const char *hr_study_attend_kernel(const hr_study_attend *attend);
/* What the calls of the first sequence touch in one layer, walked by a counting kernel in the calling thread. */
hr_status hr_study_attend_count(hr_study_attend *attend, hr_kv_counts *out);
/* ns of `passes` passes over all sequences: pass i reads layer first + i (modulo the layers), or `first` when stay. */
double hr_study_attend_run(hr_study_attend *attend, uint32_t passes, uint32_t first, bool stay);

#endif
