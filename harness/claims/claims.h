/* claims.h - published claims about LLM inference, each put to the test on this machine with this engine.
 *
 * 1. A claim is a row of claim_table.c: its words, its published figure, the rule that decides, and the test.
 * 2. A test measures and knows nothing of verdicts; hr_claim_judge decides and measures nothing.
 * 3. A comparison is made in pairs: A and B in random order, one ratio a pair; the median of the ratios and its
 *    distribution-free interval are what is judged. Fewer than six samples have no interval and get no verdict.
 * 4. `no difference` means that the whole interval lies within 2 % of no effect: it is a result, not the lack of one. */
#ifndef HR_CLAIMS_H
#define HR_CLAIMS_H

#include "harness/roof/roof.h"
#include <jansson.h>
#include <stdbool.h>

/* ---- the verdict: pure (claim_verdict.c) ---- */

typedef enum hr_verdict { HR_VERDICT_HOLDS, HR_VERDICT_FAILS, HR_VERDICT_SAME, HR_VERDICT_UNTESTED } hr_verdict;
extern const char *const hr_verdict_names[]; /* "holds", "does not hold", "no difference", "not testable here" */

typedef enum hr_rule_kind { HR_RULE_AT_LEAST, HR_RULE_AT_MOST, HR_RULE_BETWEEN } hr_rule_kind;
extern const char *const hr_claim_rule_names[]; /* "at least", "at most", "between" */
typedef struct hr_claim_rule {
    hr_rule_kind kind;
    double lo, hi; /* AT_LEAST: lo; AT_MOST: hi; BETWEEN: both */
    double null;   /* the value that means no effect (1 for ratios); NaN or 0: the claim is not about an effect */
} hr_claim_rule;

enum { HR_CLAIM_SAMPLES = 64 };
typedef struct hr_claim_measured {
    double value, lo, hi; /* median and its 95 % interval; lo = hi = value for arithmetic */
    size_t n;
    bool exact;                       /* arithmetic: no samples are needed */
    double samples[HR_CLAIM_SAMPLES]; /* [n] as they were taken */
} hr_claim_measured;

/* reason: one sentence, also for the verdict UNTESTED, which here means that the interval holds both answers. */
hr_verdict hr_claim_judge(const hr_claim_rule *rule, const hr_claim_measured *measured, char *reason, size_t n);
/* Median and interval of the samples, at most HR_CLAIM_SAMPLES, which are put in order. */
hr_claim_measured hr_claim_of_samples(double *samples, size_t n);
hr_claim_measured hr_claim_exact(double value);
/* The verdict once more, from the samples and the rule of a stored row. ERR_INPUT for a row that lacks what it needs. */
hr_status hr_claim_judge_row(const json_t *row, hr_verdict *out);

/* ---- claims and their tests ---- */

typedef struct hr_claims_run hr_claims_run;
typedef struct hr_claim hr_claim;

typedef struct hr_claim_result {
    hr_claim_measured measured;
    char reason[320]; /* not empty: the claim could not be tested, and why */
    char note[320];   /* said beside the verdict: what else was seen */
} hr_claim_result;

typedef hr_status hr_claim_test(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out);
struct hr_claim {
    const char *id, *claim, *published, *unit;
    hr_claim_rule rule;
    hr_claim_test *test; /* NULL: not testable, `how` says why */
    int arg;
    const char *how; /* how it is tested here */
};
extern const hr_claim hr_claim_table[]; /* ended by id NULL */

/* True when `word` is the id, or the id up to one of its dashes ("flash" for flash-256). */
bool hr_claim_named(const hr_claim *claim, const char *word);

/* ---- running them ---- */

typedef struct hr_claims_options {
    bool quick;
    const char *ppl_model, *ppl_text; /* trained weights and a text for claims about quality; NULL: what is at hand */
    const char *const *only;          /* [n_only]; none: all */
    size_t n_only;
    bool (*stop)(void);
    void (*progress)(double share, const char *id, void *context);
    hr_status (*keep)(const json_t *row, void *context); /* each row as soon as it is there; an error ends the run */
    void *context;
} hr_claims_options;
/* *rows, a new reference: [{id, claim, source, published, measured, ci95_lo, ci95_hi, unit, n, verdict, reason, how,
 * samples, exact, rule: {kind, lo, hi, null}}], what was done before an interruption included (then ERR_INTERRUPTED). A test that fails is a row `not testable here` with the
 * error. ERR_USAGE for an unknown word of `only`. */
hr_status hr_claims_check(const hr_claims_options *options); /* the words alone; nothing is measured */
hr_status hr_claims_run_all(const hr_claims_options *options, json_t **rows);

#endif
