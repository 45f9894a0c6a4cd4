/* gate.h - from a comparison to a verdict, an exit code and the files that CI systems read. Pure but for writing files.
 *
 * exit code: 1 a budget is broken or a cell is slower and not allowed; 4 cells failed; 3 inconclusive, or nothing compared;
 * 0 else. All cells failing is never green. */
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
    double spread;         /* between nights, of roof-normalised medians; NaN: unknown */
} hr_gate_rule;
hr_status hr_gate_budgets_parse(const char *text, hr_gate_rule *out);
/* Lines "CELL METRIC until YYYY-MM-DD: reason" (# comments); CELL an id, a prefix or a test name, * for all. ERR_INPUT with the
 * line. An entry that has expired allows nothing and is said. */
hr_status hr_gate_allow_parse(const char *text, const char *name, json_t **out);

/* *out: the comparison with {verdict, exit_code, reasons: [texts], rows with budget, allowed}. */
hr_status hr_gate_judge(const json_t *comparison, const hr_gate_rule *rule, json_t **out);
/* JUnit as Jenkins and GitLab read it: one testcase a row; slower: failure, inconclusive: skipped with its reason, failed cell:
 * error. */
hr_status hr_gate_junit(FILE *stream, const json_t *verdict);
hr_status hr_gate_summary(FILE *stream, const json_t *verdict); /* GitHub-flavoured Markdown */
void hr_gate_annotations(FILE *stream, const json_t *verdict);  /* ::error title=...::... lines */
/* One line for a chat; hr_malloc'ed. */
char *hr_gate_line(const json_t *verdict);

#endif
