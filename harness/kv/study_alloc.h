/* study_alloc.h - part "allocators" of the study: the same traffic under each allocator, on real decode steps.
 *
 * The part itself is hr_study_allocators of study_part.h (study_alloc.c). It stands on
 *   the traffic: requests by a stated distribution, from a seed;
 *   the loop: admission, decode, preemption over a cache, a model and a clock that the caller gives; neither engine nor time
 *   of its own;
 *   the arms: the loop on engines.
 *
 * Rules of the loop:
 *  1. `concurrency` requests are in the system from the start; when one ends, the next arrives.
 *  2. First come, first served: the oldest waiting request is admitted, or nobody is.
 *  3. A step decodes one token for every admitted request.
 *  4. When a step finds no memory, the youngest admitted request is closed and waits again, its tokens kept; it is computed
 *     anew when it is admitted. Then nobody is admitted before a request has ended, so that the oldest always goes on.
 *  5. A refused request is not tried again before a request has ended: before that nothing can have changed. */
#ifndef HR_STUDY_ALLOC_H
#define HR_STUDY_ALLOC_H

#include "harness/kv/study.h"

/* ---- traffic: pure (study_alloc_traffic.c) ---- */

typedef struct hr_traffic_spec {
    uint32_t concurrency, n_requests, ctx; /* ctx: prompt and output together are at most so long */
    double prompt_median, prompt_p95;      /* log-normal, tokens */
    double output_median, output_p95;      /* log-normal, tokens */
    double prefix_share;                   /* of the requests that start with a common prefix */
    uint32_t prefix_len, n_prefixes;       /* tokens of one; how many there are */
    uint64_t seed;
} hr_traffic_spec;

typedef struct hr_traffic_request {
    uint32_t n_prompt, n_output; /* at least 1 each; n_output is not known to the allocator */
    uint32_t max_output;         /* what the client asks for: n_output up to a power of two, cut at the context */
    uint32_t prefix;             /* 0: none, else the number of its common prefix */
} hr_traffic_request;

/* Lengths of published chat traffic times `scale`: means of 161 tokens in and 338 out, as ShareGPT's in the paper on
 * PagedAttention, P95 five times the median; half of the requests start with one of four system prompts of 256 tokens; a
 * context of 2048. */
hr_traffic_spec hr_traffic_chat(uint32_t concurrency, uint32_t n_requests, double scale, uint64_t seed);
void hr_traffic_make(const hr_traffic_spec *spec, hr_traffic_request *out); /* out: [n_requests] */
/* Token i of request r's text, prompt and output: the same for the same prefix. */
int32_t hr_traffic_token(const hr_traffic_spec *spec, const hr_traffic_request *request, uint32_t r, uint32_t i,
                         uint32_t vocab);
/* Sum of the longest lengths of `concurrency` requests of the mean size, in positions. */
double hr_traffic_demand(const hr_traffic_spec *spec, const hr_traffic_request *requests);
/* "log-normal prompt 100/500 (median/P95), output 210/1050, ..." into out. */
void hr_traffic_text(const hr_traffic_spec *spec, char *out, size_t n);

/* ---- the loop: pure (study_alloc_loop.c) ---- */

/* What the loop stands on. open and decode return ERR_MEMORY for no room and have changed nothing then. */
typedef struct hr_alloc_ops {
    hr_status (*open)(void *context, uint32_t seq, const hr_kv_request *request, uint32_t *shared);
    hr_status (*prefill)(void *context, uint32_t seq, const int32_t *tokens, uint32_t n);
    hr_status (*decode)(void *context, const uint32_t *seqs, const int32_t *tokens, uint32_t n);
    hr_status (*close)(void *context, uint32_t seq);
    hr_kv_stats (*stats)(void *context);
    uint64_t (*now)(void *context); /* ns */
    bool (*stop)(void);             /* or NULL */
    void *context;
    uint32_t vocab;
} hr_alloc_ops;

typedef struct hr_alloc_outcome {
    uint32_t n_requests, n_gaps, n_steps;
    double *latency_ms;         /* [n_requests] from arrival to last token */
    double *ttft_ms;            /* [n_requests] from arrival to first token */
    double *gap_ms;             /* [n_gaps] between tokens of a request, what it waits after a preemption included */
    double wall_ms;             /* from the first arrival to the last token */
    double calls_ms;            /* of it inside of open, prefill, decode and close; the rest is the loop's own */
    uint32_t failed_admissions; /* refused opens (rule 5) */
    uint32_t failed_by_pieces;  /* of them while the free bytes, had they been one piece, would have sufficed */
    uint32_t preemptions, largest_batch;
    /* Bytes: means over the steps at which requests were waiting; over all steps when none ever was. */
    double reserved, used, waste_inside, waste_between;
    hr_kv_stats before, after;
} hr_alloc_outcome;

/* Bytes of K and V, scales included, of a position, and how many positions an extent is rounded up to. */
typedef struct hr_alloc_size {
    uint64_t bytes_position;
    uint32_t round;
} hr_alloc_size;

/* prepare: positions of output for which room is made at admission (0: none, the page of the next token comes when it is
 * needed; the median: preallocation). ERR_MEMORY when a request does not fit into the empty cache. *out must be zero or an
 * earlier outcome of the same traffic's size: its arrays are used again. */
hr_status hr_alloc_loop(const hr_traffic_spec *spec, const hr_traffic_request *requests, uint32_t prepare,
                        hr_alloc_size size, const hr_alloc_ops *ops, hr_alloc_outcome *out);
void hr_alloc_outcome_fini(hr_alloc_outcome *outcome);

/* ---- arms: allocators on engines (study_alloc_arms.c) ---- */

typedef struct hr_alloc_arm {
    hr_kv_alloc alloc;
    uint32_t compact_every; /* pool, hybrid */
    uint32_t threshold;     /* hybrid, positions */
    bool share;             /* paged, hybrid: prefixes */
    bool
        prepare; /* room for prompt and median output at admission; else an extent for the promise, pages for the prompt */
} hr_alloc_arm;

typedef struct hr_alloc_point {
    const char *model;
    double scale;
    uint32_t concurrency, n_requests;
    double budget_pct;  /* of the demand of `demand_of` concurrent requests */
    uint32_t demand_of; /* 0: of `concurrency` */
    uint32_t page_size;
    const hr_alloc_arm *arms; /* [n_arms] */
    size_t n_arms, n_rounds;
    unsigned threads; /* 0: physical cores */
    uint64_t seed;
    bool (*stop)(void);
    void (*progress)(double share, void *context);
    void *progress_context;
} hr_alloc_point;

/* Outcomes of a point: each round has traffic of its own, the same for all arms, which run in random order. */
typedef struct hr_alloc_result {
    hr_traffic_spec spec;
    uint64_t budget_bytes;
    hr_alloc_size size;
    double budget_pct; /* of the demand of the point's own concurrency */
    size_t n_arms, n_rounds;
    hr_alloc_outcome *outcomes; /* [n_arms][n_rounds] */
} hr_alloc_result;

/* model: loaded already as the point says. */
hr_status hr_alloc_point_run(const hr_alloc_point *point, const hr_model *model, hr_alloc_result *out);
void hr_alloc_result_fini(hr_alloc_result *result);

/* The model that the study takes: small enough that a traffic of 100 requests takes about a second. */
const char *hr_alloc_model(bool quick);

/* ---- without a model (study_alloc_replay.c) ---- */

/* The same loop on a cache of that configuration; the times of the outcome count steps. */
hr_status hr_alloc_replay(const hr_kv_cache_config *config, const hr_traffic_spec *spec,
                          const hr_traffic_request *requests, uint32_t prepare, bool (*stop)(void),
                          hr_alloc_outcome *out);

#endif
