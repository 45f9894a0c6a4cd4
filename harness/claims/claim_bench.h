/* claim_bench.h - the two things that a test of a claim does: run one configuration of the engine once, and compare two of
 * them in pairs. The loops that are timed are those of the sweep (harness/sweep/measure.h). */
#ifndef HR_CLAIM_BENCH_H
#define HR_CLAIM_BENCH_H

#include "harness/claims/claims.h"
#include "harness/sweep/measure.h"

enum { HR_CLAIM_MODELS = 3 };
struct hr_claims_run {
    const hr_claims_options *options;
    hr_machine machine;
    hr_roofs *roofs; /* NULL until hr_claim_peaks */
    struct hr_claim_model {
        char spec[512];
        hr_quant quant;
        hr_model *model;
    } models[HR_CLAIM_MODELS];
    unsigned next_model;
    double share, share_step; /* of all claims: before this one, of this one */
    const char *id;
    struct hr_claim_traffic *traffic; /* claim_kv_alloc.c: measured once for all claims about allocators */
    struct hr_claim_text *text;       /* claim_quality.c: a text as tokens, and how well it is predicted unchanged */
};
void hr_claim_traffic_destroy(struct hr_claim_traffic *traffic);
void hr_claim_text_destroy(struct hr_claim_text *text);

/* One configuration. Zeros: one sequence, no depth, native weights, all cores, flash, everything fused. */
typedef struct hr_arm_spec {
    const char *model;
    hr_quant quant;
    hr_cell_kind kind;
    int64_t n_prompt, n_gen, depth; /* ISL: n_prompt in, n_gen out */
    unsigned threads;
    bool naive, unfused;    /* -fa 0; without all of HR_FUSE_* of `fuse` */
    unsigned fuse;          /* bits that differ when `unfused`; the others stay on */
    hr_kv_layout kv_layout; /* 0: head */
    hr_dtype kv_type;       /* of K and V; 0: bf16 */
} hr_arm_spec;

typedef struct hr_arm {
    hr_claims_run *run;
    hr_model *model; /* of the run */
    hr_engine *engine;
    hr_bench *bench;
} hr_arm;

/* Loads what is needed and runs once, to warm up. */
hr_status hr_arm_open(hr_claims_run *run, const hr_arm_spec *spec, hr_arm *arm);
void hr_arm_close(hr_arm *arm);
/* One repetition timed and one recorded: the object of hr_bench_run. */
hr_status hr_arm_run(hr_arm *arm, json_t **result);

/* A number out of a result. */
typedef double hr_metric(const hr_arm *arm, const json_t *result, const void *context);
/* Sum of the ops of a phase, ms of the recorded repetition. context: hr_metric_ops_of. */
typedef struct hr_metric_ops_of {
    hr_phase phase;
    unsigned ops; /* 1u << HR_OP_... */
} hr_metric_ops_of;
hr_metric hr_metric_ops;
double hr_result_ops_ms(const json_t *result, hr_phase phase, unsigned ops);

/* How often and how long a test may sample: asked after each sample. */
bool hr_claim_enough(const hr_claims_run *run, size_t n, uint64_t start_ns);
hr_status hr_claim_stopped(const hr_claims_run *run); /* ERR_INTERRUPTED or OK */

/* Median of metric(a) / metric(b) over pairs in random order. */
hr_status hr_claim_ratio(hr_arm *a, hr_arm *b, hr_metric *metric, const void *context, hr_claim_measured *out);
/* Opens both, compares, closes. */
hr_status hr_claim_compare(hr_claims_run *run, const hr_arm_spec *a, const hr_arm_spec *b, hr_metric *metric,
                           const void *context, hr_claim_measured *out);
/* Median of the metric of one configuration. */
hr_status hr_claim_sample(hr_claims_run *run, const hr_arm_spec *spec, hr_metric *metric, const void *context,
                          hr_claim_measured *out);
/* The ceilings now, the best of those probed so far in this run of the claims. */
hr_status hr_claim_peaks(hr_claims_run *run, hr_state *out);

/* A model of the run, loaded when it is not there; borrowed until three others were asked for. */
hr_status hr_claim_model(hr_claims_run *run, const char *spec, hr_quant quant, hr_model **out);
/* This thread may run on all CPUs again: an engine pins the one that opens it. */
void hr_claim_unpin(void);
/* Norms of the 1B shape: milliseconds that one saves when its weights never leave L1. w: hr_claim_norms. */
typedef struct hr_claim_norms {
    float *w; /* many norms' weights, then an input and an output */
    size_t bytes, at;
} hr_claim_norms;
hr_status hr_claim_norms_init(hr_claim_norms *norms);
void hr_claim_norms_fini(hr_claim_norms *norms);
double hr_claim_norm_saved_ms(hr_claim_norms *norms);

hr_claims_run *hr_claims_run_create(const hr_claims_options *options);
void hr_claims_run_destroy(hr_claims_run *run);

#endif
