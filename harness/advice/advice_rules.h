/* advice_rules.h - what a rule sees, what it says, and the table of them. Internal to harness/advice/. */
#ifndef HR_ADVICE_RULES_H
#define HR_ADVICE_RULES_H

#include "harness/advice/advice.h"
#include "harness/report/report_label.h"
#include "kernels/base/status.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* One cell with its rows, each NULL where nothing is stored. A rule that looks at the run as a whole gets no cell. */
typedef struct hr_case {
    const json_t *cell, *samples, *ops, *recorded, *machine;
    const json_t *const *siblings; /* [n_siblings] itself included: equal in all axes but those the rule names */
    size_t n_siblings;
} hr_case;

typedef enum hr_severity { HR_NOTE, HR_MEDIUM, HR_HIGH } hr_severity;
extern const char *const hr_severity_names[]; /* "note", "medium", "high" */

/* What a rule says. Texts may hold anything that a cell holds; they are made one clean line later. */
typedef struct hr_finding {
    char finding[320], evidence[320], todo[320];
    double value; /* the evidence figure, in */
    const char *unit;
    double cost_pct; /* of the time of a step (or prefill), where it can be said; NaN: unknown */
    hr_severity severity;
} hr_finding;

/* False: nothing is wrong, or what the condition rests on is not stored. *f holds no cost, value NaN, MEDIUM at first. */
typedef bool hr_rule_fn(const hr_case *c, hr_finding *f);

typedef struct hr_rule {
    const char *id, *asks, *columns, *source;
    const char *live; /* how a sweep provokes it; or "fixture: " and why none can at will */
    hr_rule_fn *fn;
    const char *const *without; /* axes in which siblings differ, NULL-ended; NULL: looks at one cell */
    bool once;                  /* of the run, not of a cell */
    bool timed;                 /* hangs on measured times: the same setup may or may not fire */
} hr_rule;
extern const hr_rule hr_rule_table[]; /* ended by a row with id NULL */

/* ---- rules, by file --------------------------------------------------------------------------------------------- */

/* clang-format off */
#define HR_ADVICE_RULES(X)                                                                                             \
    X(ttft_rising) X(tpot_unstable) X(noise) X(gaps) X(imbalance)                               /* advice_times.c */   \
    X(low_utilisation) X(over_roof) X(cache_resident) X(tile_decode) X(kv_align) X(page_size)   /* advice_setup.c */   \
    X(kv_reserved) X(softmax) X(flash_off) X(micro_batch) X(isa_low) X(no_warmup)                                      \
    X(threads_idle) X(page_larger) X(batch) X(quant_slow)                                       /* advice_pairs.c */   \
    X(threads) X(huge_pages) X(paging) X(memory_tight) X(neighbour) X(throttled) X(state_mixed)                        \
    X(handoff_far) X(governor)                                                                  /* advice_machine.c */
/* clang-format on */
#define X(name) hr_rule_fn hr_rule_##name;
HR_ADVICE_RULES(X)
#undef X

/* ---- what the rules share ---------------------------------------------------------------------------------------- */

/* Fills one of the texts of a finding. */
#define hr_say(f, what, ...) ((void)snprintf((f)->what, sizeof(f)->what, __VA_ARGS__))

static inline double hr_or(double v, double otherwise) {
    return isfinite(v) ? v : otherwise;
}
static inline bool hr_is_word(const json_t *cell, const char *key, const char *word) {
    return !strcmp(hr_word(cell, key), word);
}
/* Sequences of a decode step; 1 where unknown. */
static inline double hr_seqs(const json_t *cell) {
    const double n = hr_num(cell, "n_seqs");
    return n >= 1 ? n : 1;
}
/* Tokens of the prompt that a cell times, 0: none. */
static inline double hr_prompt(const json_t *cell) {
    const double isl = hr_num(cell, "isl");
    return isl > 0 ? isl : hr_or(hr_num(cell, "n_prompt"), 0);
}
/* The distribution that stands for a cell: the step where it decodes, else the prefill; NULL: none. *what: "a step". */
const json_t *hr_case_time(const json_t *cell, const char **what);

#endif
