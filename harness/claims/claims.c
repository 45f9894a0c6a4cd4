/* Runs the table: one row a claim, kept as it ends. */
#include "harness/claims/claim_bench.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"
#include "kernels/base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool wanted(const hr_claims_options *o, const hr_claim *c) {
    bool any = o->n_only == 0;
    for (size_t i = 0; i < o->n_only; i++) any |= hr_claim_named(c, o->only[i]);
    return any;
}

hr_status hr_claims_check(const hr_claims_options *o) {
    const char *ids[128];
    size_t n = 0;
    for (const hr_claim *c = hr_claim_table; c->id && n + 1 < sizeof ids / sizeof *ids; c++) ids[n++] = c->id;
    ids[n] = NULL;
    for (size_t i = 0; i < o->n_only; i++) {
        bool known = false;
        for (const hr_claim *c = hr_claim_table; c->id; c++) known |= hr_claim_named(c, o->only[i]);
        if (known) continue;
        const char *near = hr_nearest(o->only[i], ids);
        if (near) HR_FAIL(HR_ERR_USAGE, "--only %.80s: no such claim; nearest is %s", o->only[i], near);
        HR_FAIL(HR_ERR_USAGE, "--only %.80s: no such claim; `headroom claims --list` names them", o->only[i]);
    }
    return HR_OK;
}

/* What is said after the verdict: why, and what else was seen. */
static void join(char *out, size_t n, const char *why, const char *note) {
    snprintf(out, n, "%s%s%s", why, *why && *note ? "; " : "", note);
}

static json_t *row_of(const hr_claim *c, const hr_claim_result *r) {
    char why[352] = "", text[704];
    hr_verdict verdict = HR_VERDICT_UNTESTED;
    const hr_claim_measured *m = &r->measured;
    if (!c->test)
        snprintf(why, sizeof why, "%s", c->how);
    else if (r->reason[0])
        snprintf(why, sizeof why, "%s", r->reason);
    else
        verdict = hr_claim_judge(&c->rule, m, why, sizeof why);
    join(text, sizeof text, why, r->reason[0] ? "" : r->note);
    const bool value = c->test && !r->reason[0];
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:o, s:s, s:s, s:o}", "id", c->id, "claim",
                            c->claim, "source", "practitioners' guides", "published", c->published, "measured",
                            hr_real_or_null(value ? m->value : NAN), "ci95_lo", hr_real_or_null(value ? m->lo : NAN),
                            "ci95_hi", hr_real_or_null(value ? m->hi : NAN), "unit", c->unit, "n",
                            value ? json_integer((json_int_t)m->n) : json_null(), "verdict", hr_verdict_names[verdict],
                            "reason", text, "how", c->test ? json_string(c->how) : json_null());
    json_t *samples = json_array();
    for (size_t i = 0; value && i < m->n; i++) json_array_append_new(samples, hr_real_or_null(m->samples[i]));
    json_t *rule =
        json_pack("{s:s, s:o, s:o, s:o}", "kind", hr_claim_rule_names[c->rule.kind], "lo", hr_real_or_null(c->rule.lo),
                  "hi", hr_real_or_null(c->rule.hi), "null", hr_real_or_null(c->rule.null));
    if (row && !json_object_set_new(row, "samples", samples) &&
        !json_object_set_new(row, "exact", json_boolean(value && m->exact)) && !json_object_set_new(row, "rule", rule))
        return row;
    json_decref(row);
    return NULL;
}

static hr_status one(hr_claims_run *run, const hr_claim *c, const hr_claims_options *options, json_t *rows) {
    hr_claim_result result = {.measured = {.value = NAN, .lo = NAN, .hi = NAN}};
    const hr_status status = c->test ? c->test(run, c, &result) : HR_OK;
    if (status == HR_ERR_INTERRUPTED) return status;
    if (status != HR_OK) snprintf(result.reason, sizeof result.reason, "the test failed: %s", hr_error());
    json_t *row = row_of(c, &result);
    if (!row || json_array_append_new(rows, row)) HR_FAIL(HR_ERR_MEMORY, "no memory for the result of a claim");
    return options->keep ? options->keep(row, options->context) : HR_OK;
}

hr_status hr_claims_run_all(const hr_claims_options *options, json_t **out) {
    HR_TRY(hr_claims_check(options));
    hr_claims_run *run = hr_claims_run_create(options);
    json_t *rows = json_array();
    hr_status status = run && rows ? HR_OK : hr_fail(HR_ERR_MEMORY, "no memory for the claims");
    size_t n = 0, done = 0;
    for (const hr_claim *c = hr_claim_table; c->id; c++) n += wanted(options, c) && c->test;
    for (const hr_claim *c = hr_claim_table; c->id && status == HR_OK; c++) {
        if (!wanted(options, c)) continue;
        status = hr_claim_stopped(run);
        run->id = c->id, run->share = n ? (double)done / (double)n : 0, run->share_step = n ? 1.0 / (double)n : 0;
        if (c->test && options->progress) options->progress(run->share, c->id, options->context);
        if (status == HR_OK) status = one(run, c, options, rows);
        done += c->test != NULL;
    }
    hr_claims_run_destroy(run);
    *out = rows;
    return status;
}
