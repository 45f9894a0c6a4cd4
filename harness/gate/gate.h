/* gate.h - from a comparison to a verdict, an exit code and the files that CI systems read. Pure but for writing files.
 *
 * 1. Exit code: the first that applies of 130 interrupted, 1 a row is red, 4 cells failed, 3 inconclusive or nothing
 *    compared, 0. All cells failing is never green.
 * 2. A row is red when it is slower; where a budget is set for its metric, when the interval's lower end is over the budget
 *    and p, adjusted over all rows, is under the level. It passes when it is same or faster, or its interval lies within
 *    the budget. Else it is inconclusive.
 * 3. Stored runs of two sessions are judged by their shares of the roof against the spread between nights (gate_nights.c).
 * 4. The order of rows changes no verdict. */
#ifndef HR_GATE_H
#define HR_GATE_H

#include "harness/compare/compare.h"
#include <stdio.h>
#include <time.h>

typedef struct hr_gate_budget {
    char metric[16]; /* ttft tpot itl e2e pp tg */
    double share;    /* 0.03: +3 % */
} hr_gate_budget;
typedef struct hr_gate_rule {
    hr_gate_budget budgets[16];
    size_t n_budgets;
    const json_t *allowed; /* [{cell, metric, reason, expires}], hr_gate_allow_parse */
    time_t now;            /* for expiry */
    bool pairs;            /* the comparison is of pairs; else stored samples */
    bool same_session;     /* stored samples may turn it red */
    size_t nights;         /* of the baseline's machine class; under 10 stored runs stay inconclusive */
    double spread; /* between nights, of roof-normalised medians, relative; NaN: unknown. A row's own keys `nights`
                              and `spread` go before these two */
    double effect, level; /* as the comparison was judged; 0: hr_compare_rule_default */
} hr_gate_rule;
/* "ttft=+5%,tpot=+3%" is added to the budgets of *out; ERR_USAGE with the text. */
hr_status hr_gate_budgets_parse(const char *text, hr_gate_rule *out);
/* Lines "CELL METRIC until YYYY-MM-DD: reason" (# comments); CELL an id, a prefix of 4 digits or more or a test name, * for
 * all; METRIC a short name, a key, * for all, or `failed`: that the cell fails. ERR_INPUT with the line. An entry takes a row
 * out of the verdict, through its last day (UTC). One that has expired allows nothing and is said. */
hr_status hr_gate_allow_parse(const char *text, const char *name, json_t **out);

/* comparison: judged (hr_compare_judge), of rows of hr_compare_cells or hr_ab_run; `interrupted`: true where it ended early.
 * *out: the comparison with {verdict: pass, regression, failed, inconclusive or interrupted; exit_code; reasons: [texts, red
 * ones first]; counts: {rows, red, passed, allowed, inconclusive, failed, apart, unmatched}}, and rows with
 *   name     what tells the row from the others: "int8 isl512 osl64 tpot"
 *   outcome  red, failed, inconclusive, allowed, passed, or apart: of no weight in the verdict
 *   reason   one line; null for what passed
 *   budget_pct, allowed (the reason of the entry), slower_ops (of a red row: hr_compare_ops rows, largest first)
 * and, of stored runs of two sessions, verdict_samples and {night_shift_pct, night_lo_pct, night_hi_pct, night_p}. */
hr_status hr_gate_judge(const json_t *comparison, const hr_gate_rule *rule, json_t **out);
/* JUnit as Jenkins and GitLab read it: one testcase a row and a cell without a partner; red: failure, inconclusive: skipped
 * with its reason, failed cell: error. */
hr_status hr_gate_junit(FILE *stream, const json_t *verdict);
hr_status hr_gate_summary(FILE *stream, const json_t *verdict); /* GitHub-flavoured Markdown */
void hr_gate_annotations(FILE *stream, const json_t *verdict);  /* ::error title=...::... lines, at most 10 */
/* One line for a chat; hr_malloc'ed; NULL: out of memory. */
char *hr_gate_line(const json_t *verdict);

/* The verdict for reading and for programs: JSON whole; a table of all rows, red ones first, then reasons and the line for a
 * chat; Markdown as the summary; else rows. */
hr_status hr_gate_print(hr_format format, FILE *stream, const json_t *verdict);

/* The newest run before `candidate` (an id), of the same machine class and with a cell in common, that passed a gate; where
 * none ever did, the newest that no gate refused, and *passed is false. ERR_INPUT: there is none. *run_id is hr_malloc'ed. */
hr_status hr_gate_last_good(hr_store *store, const char *candidate, char **run_id, bool *passed);

#endif
