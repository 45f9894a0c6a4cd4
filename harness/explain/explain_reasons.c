/* explain_reasons.c - a sentence for each term: what was measured, and which flags of this program to try. A flag is named
 * when its value is not set in the cell yet; causes that were not measured are not named. */
#include "harness/explain/explain_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- what to try: the table ---------------------------------------------------------------------------------------- */

typedef enum test {
    ALWAYS,
    IS,    /* the value is one of the words */
    LACKS, /* none of the words stands in the value */
    UNDER, /* a number */
    OVER,
    NO /* false */
} test;
static const char *const test_names[] = {"always", "is", "lacks", "under", "over", "no"};

typedef struct rule {
    const char *terms; /* words; a rule of the wrong term does not apply */
    const char *phase; /* NULL: both */
    const char *bound; /* NULL: both; of the op class */
    const char *key;   /* of the cell */
    test test;
    const char *value;
    const char *advice;
} rule;

#define PRODUCTS "qkv out gate_up down head experts route"
static const rule rules[] = {
    /* matrix products */
    {PRODUCTS, NULL, NULL, "weights", IS, "native", "--weights repacked (panels of 16 rows)"},
    {PRODUCTS, NULL, "compute", "act", IS, "f32", "--act bf16, or --act int8 (faster units)"},
    {PRODUCTS, NULL, "compute", "act", IS, "bf16", "--quant int8-row (the int8 unit)"},
    {PRODUCTS, NULL, "compute", "quant", IS, "int8 native", "--quant int8-row (one scale a row instead of one per 32)"},
    {PRODUCTS, NULL, "compute", "quant", IS, "int4 int4-head8", "--quant int4-g128 (groups of 128 instead of 32)"},
    {PRODUCTS, "prefill", NULL, "n_ubatch", UNDER, "512", "-ub 512 (weights are read once a micro-batch)"},
    {PRODUCTS, NULL, NULL, "n_threads", UNDER, "2", "more --threads (one core reaches a part of the ceiling)"},
    {PRODUCTS, "decode", "memory", "huge_pages", NO, "", "--huge-pages 1 (none were obtained)"},
    {"qkv", NULL, NULL, "fusion", LACKS, "all qkv", "--fusion qkv"},
    {"gate_up", NULL, NULL, "fusion", LACKS, "all gate-up", "--fusion gate-up"},
    {"out down", NULL, NULL, "fusion", LACKS, "all out-residual", "--fusion out-residual"},
    /* attention */
    {"attention", NULL, NULL, "flash_attn", NO, "", "-fa 1 (scores stay in cache)"},
    {"attention", NULL, NULL, "kv_layout", LACKS, "head", "--kv-layout head (rows of a head lie side by side)"},
    {"attention", NULL, NULL, "page_size", UNDER, "64", "--page-size 64"},
    {"attention", NULL, "memory", "type_k", IS, "f32", "-ctk bf16 -ctv bf16 (half the bytes)"},
    {"attention", NULL, "memory", "type_k", IS, "bf16 f16", "-ctk q8_0 -ctv q8_0 (about half the bytes)"},
    /* what can be joined to a product */
    {"norm rope kv_append", NULL, NULL, "fusion", LACKS, "all qkv", "--fusion all (joined to the products)"},
    {"sample", NULL, NULL, "fusion", LACKS, "all head-sample", "--fusion head-sample"},
    /* the ideal: other bytes, other units */
    {"weights", NULL, NULL, "quant", IS, "f32 bf16 f16", "--quant int8 or int4 (fewer bytes)"},
    {"weights", NULL, NULL, "quant", IS, "int8 int8-row", "--quant int4 (fewer bytes)"},
    {"weights", "decode", NULL, "n_seqs", UNDER, "4", "--seqs 4 (one read of the weights serves four tokens)"},
    {"kv_read", NULL, NULL, "type_k", IS, "f32 bf16 f16", "-ctk q8_0 -ctv q8_0 (fewer bytes)"},
    {"arithmetic_fp32", NULL, NULL, "act", IS, "f32", "--act bf16 or int8 (faster units)"},
    {"arithmetic_bf16", NULL, NULL, "act", IS, "bf16", "--quant int8-row (the int8 unit)"},
    /* the team */
    {"imbalance", NULL, NULL, "n_threads", OVER, "2", "one less of --threads (a core for the rest of the system)"},
    {"handoff", NULL, NULL, "fusion", LACKS, "all", "--fusion all (fewer joins)"},
    {"handoff", NULL, NULL, "n_threads", OVER, "1", "fewer --threads"},
    {"gaps", "decode", NULL, "graphs", NO, "", "--graphs 1 (a step is launched as one)"},
    {"gaps", NULL, NULL, "fusion", LACKS, "all head-sample", "--fusion all (fewer ops)"},
    {"queue", NULL, NULL, "n_seqs", OVER, "1", "fewer --seqs, or a shorter --isl"},
};

static bool among(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *at = words; n && (at = strstr(at, word)) != NULL; at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

static bool any_stands_in(const char *words, const char *value) {
    char copy[64], *rest = copy;
    snprintf(copy, sizeof copy, "%s", words);
    for (const char *word; (word = strtok_r(rest, " ", &rest)) != NULL;)
        if (strstr(value, word)) return true;
    return false;
}

/* A GPU has no order of weights to choose. */
static bool holds(const rule *r, const json_t *cell) {
    if (!strcmp(r->key, "weights") && hr_cell_on_gpu(cell)) return false;
    const char *word = hr_word(cell, r->key);
    const double number = hr_num(cell, r->key);
    switch (r->test) {
    case ALWAYS:
        return true;
    case IS:
        return among(r->value, word);
    case LACKS:
        return *word && !any_stands_in(r->value, word);
    case UNDER:
        return number < strtod(r->value, NULL);
    case OVER:
        return number > strtod(r->value, NULL);
    case NO:
        return json_is_false(json_object_get(cell, r->key));
    }
    return false;
}

json_t *hr_reason_rules(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        json_array_append_new(list, json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:s, s:s}", "terms", r->terms, "phase",
                                              r->phase, "bound", r->bound, "key", r->key, "test", test_names[r->test],
                                              "value", r->value, "advice", r->advice));
    }
    return list;
}

/* ---- sentences ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void say(char *out, const char *format, ...) {
    const size_t n = strlen(out);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out + n, HR_REASON_BYTES - n, format, arguments);
    va_end(arguments);
}

/* Less than this share of the measured time is not worth a try. */
static const double WORTH = 0.005;
enum { ADVICE_MOST = 2 };

/* The same flags with another reason behind them, "--quant int8-row (", were said. */
static bool was_said(const char *out, const char *advice) {
    char flags[64];
    snprintf(flags, sizeof flags, "%.*s", (int)strcspn(advice, "("), advice);
    return strstr(out, flags) != NULL;
}

static void advise(const hr_metric *m, const char *term, const char *bound, double lost_ms, char *out) {
    size_t n = 0;
    if (!(lost_ms > WORTH * m->measured_ms)) return;
    for (size_t i = 0; i < sizeof rules / sizeof *rules && n < ADVICE_MOST; i++) {
        const rule *r = &rules[i];
        if (!among(r->terms, term) || (r->phase && strcmp(r->phase, m->phase)) ||
            (r->bound && strcmp(r->bound, bound)) || !holds(r, m->cell) || was_said(out, r->advice))
            continue;
        say(out, n++ ? "; or %s" : "; try %s", r->advice);
    }
}

/* "72.5 ms", "385 us" */
static const char *time_text(double ms, char out[24]) {
    if (ms >= 1)
        snprintf(out, 24, ms >= 100 ? "%.0f ms" : "%.3g ms", ms);
    else
        snprintf(out, 24, ms >= 0.1 ? "%.0f us" : "%.3g us", ms * 1e3);
    return out;
}

static const char *per_second(hr_unit unit) {
    return unit == HR_UNIT_INT8 ? "GOP/s" : "GFLOP/s";
}

/* The op class that has most of a kind of waiting, and its share. */
static const hr_op_class *most_of(const hr_phase_ops *ops, bool handoff, double *share) {
    const hr_op_class *best = NULL;
    double most = 0;
    for (size_t i = 0; i < ops->n; i++) {
        const double ns = handoff ? ops->classes[i].handoff_ns : ops->classes[i].imbalance_ns;
        if (ns > most) most = ns, best = &ops->classes[i];
    }
    *share = most / (handoff ? ops->all.handoff_ns : ops->all.imbalance_ns);
    return best;
}

void hr_reason_ideal(const hr_metric *m, const char *term, double ms, char *out) {
    *out = 0;
    const bool prefill = !strcmp(m->phase, "prefill");
    if (!strncmp(term, "arithmetic", 10)) {
        for (int u = 0; u < HR_UNIT_COUNT; u++)
            if (!strcmp(term + 11, hr_unit_names[u])) {
                const double peak = hr_explain_peak(&m->peaks, (hr_unit)u);
                say(out, "%.4g G operations at the measured peak of %.4g %s", ms * peak * 1e-3, peak,
                    per_second((hr_unit)u));
            }
    } else {
        const char *what = !strcmp(term, "weights")   ? "weights, each read once"
                           : !strcmp(term, "kv_read") ? "keys and values read"
                                                      : "keys and values written";
        say(out, "%.4g MB of %s%s at the measured read bandwidth of %.4g GB/s", ms * m->peaks.read_gb_s, what,
            prefill && !strcmp(term, "weights") ? " a micro-batch" : "", m->peaks.read_gb_s);
    }
    if (!prefill || strncmp(term, "weights", 7)) advise(m, term, m->ideal.compute ? "compute" : "memory", ms, out);
}

/* "`down` reads 61.0 of 70.2 GB/s in 16 calls of 118 us (KERNEL)" */
void hr_reason_op(const hr_metric *m, const hr_op_class *op, double lost_ms, char *out) {
    char each[24];
    *out = 0;
    const double whole_ms = op->ns * m->scale, peak = hr_explain_peak(&m->peaks, op->unit);
    const double gb_s = op->bytes * 1e-6 / whole_ms, gflop_s = op->flops * 1e-6 / whole_ms;
    const bool compute = op->compute_ns > op->memory_ns, known = op->roof_ns > 0;
    const char *kernel = *op->kernel ? op->kernel : "no kernel of its own";
    say(out, "`%s` ", op->op);
    if (known && compute)
        say(out, "does %.4g of %.4g %s %s", gflop_s, peak, hr_unit_names[op->unit], per_second(op->unit));
    else if (known)
        say(out, "moves %.4g of %.4g GB/s", gb_s, m->peaks.read_gb_s);
    else
        say(out, "has no work that a ceiling counts");
    say(out, ", %.0f call%s of %s (%s)", op->calls, op->calls > 1.5 ? "s" : "", time_text(whole_ms / op->calls, each),
        kernel);
    if (lost_ms < 0 && known && op->ns * m->scale >= op->roof_ns * 1e-6 * (1 - 1e-9)) /* but for rounding */
        say(out, "; at the ceiling but for the waiting");
    else if (lost_ms < 0 && known && compute)
        say(out, "; over the ceiling: the unit ran faster than when it was probed");
    else if (lost_ms < 0 && known)
        say(out, hr_explain_flagged(m->cell, "cache_resident")
                     ? "; over the ceiling of DRAM: the working set fits in the cache"
                     : "; over the ceiling of DRAM: a part came out of caches, or memory "
                       "was faster than when it was probed");
    advise(m, op->op, known && compute ? "compute" : known ? "memory" : "", lost_ms, out);
}

static void reason_barrier(const hr_metric *m, bool handoff, char *out) {
    double share;
    char each[24];
    const hr_op_class *op = most_of(&m->ops, handoff, &share);
    const double ms = (handoff ? m->ops.all.handoff_ns : m->ops.all.imbalance_ns) * m->scale;
    if (!(m->recorded.n_jobs > 0)) {
        say(out, "the caller did all work alone");
        return;
    }
    if (handoff)
        say(out, "handing work to the team and back, %.0f times", m->recorded.n_jobs);
    else
        say(out, "threads wait for the slowest of %.0f", hr_num(m->cell, "n_threads"));
    say(out, ", %s each", time_text(ms / m->recorded.n_jobs, each));
    if (op) say(out, "; %.0f %% of it in `%s`", share * 100, op->op);
    const double psi = hr_num(m->cell, "psi_cpu_some_pct"), near = hr_num(m->cell, "handoff_ns");
    if (!handoff && psi > 1) say(out, "; tasks waited for a CPU during %.0f %% of the cell", psi);
    if (handoff && near > 100) say(out, "; a line takes %.0f ns from core to core", near);
}

void hr_reason_term(const hr_metric *m, const char *term, double ms, char *out) {
    char each[24];
    *out = 0;
    const hr_recorded_sum *r = &m->recorded;
    if (!strcmp(term, "in_turn")) {
        double memory = 0, compute = 0;
        for (size_t i = 0; i < m->ops.n; i++) {
            const hr_op_class *c = &m->ops.classes[i];
            *(c->compute_ns > c->memory_ns ? &compute : &memory) += c->roof_ns * 1e-6;
        }
        say(out,
            "ops run one after the other: %.4g ms of memory-bound and %.4g ms of compute-bound ones do not overlap; "
            "ops move %.4g MB, the phase must move %.4g MB",
            memory, compute, m->ops.all.bytes * 1e-6, m->ideal.bytes * 1e-6);
    } else if (!strcmp(term, "queue")) {
        say(out,
            !strcmp(m->phase, "prefill")
                ? "other requests are prefilled first: %.0f are submitted together"
                : "a first token waits until all %.0f requests are prefilled; the wait counts in its TPOT",
            hr_num(m->cell, "n_seqs"));
        if (json_is_true(json_object_get(m->cell, "has_prompt"))) say(out, "; tokenization of the text included");
    } else if (!strcmp(term, "tokenize")) {
        say(out, "before the prefill begins: tokenization of the prompt's text");
    } else if (!strcmp(term, "imbalance") || !strcmp(term, "handoff")) {
        reason_barrier(m, *term == 'h', out);
    } else if (!strcmp(term, "gaps") && hr_cell_on_gpu(m->cell)) {
        const double device = hr_num(m->cell, "device_ms");
        say(out, "between %.0f ops, %s each: launches, and waiting for the GPU", r->n_ops,
            time_text(ms / r->n_ops, each));
        if (device > 0 && !strcmp(m->phase, "decode"))
            say(out, "; without the recorder the GPU is at work for %.4g ms of a step", device);
    } else if (!strcmp(term, "gaps")) {
        say(out, "between %.0f ops, %s each: the engine's own steps, and what recording adds there", r->n_ops,
            time_text(ms / r->n_ops, each));
    } else if (!strcmp(term, "recording")) {
        say(out, "recording %.0f ops and %.0f jobs of the team costs %.2g %% by calibration; measured is free of it",
            r->n_ops, r->n_jobs, r->probe_ns / r->on_ns * 100);
    } else if (!strcmp(term, "unexplained")) {
        if (r->n_pairs) {
            say(out, "recorded over not recorded, %zu of each: %+.2f %%", r->n_pairs, (r->seen - 1) * 100);
            if (isfinite(r->seen_lo))
                say(out, " (95 %%: %+.2f to %+.2f)", (r->seen_lo - 1) * 100, (r->seen_hi - 1) * 100);
            if (!r->established) say(out, "; no more than they scatter: what calibration says is taken");
        } else {
            say(out, "no repetition was measured right before a recorded one: the drift between them is in here");
        }
    }
    advise(m, term, "", ms, out);
}

/* ---- differences ---------------------------------------------------------------------------------------------------- */

void hr_reason_difference(const json_t *a, const json_t *b, char *out) {
    *out = 0;
    const char *name = hr_word(a ? a : b, "name");
    if (!a || !b) {
        say(out, "only in the %s cell", a ? "first" : "second");
        return;
    }
    const double a_op = hr_num(a, "op_ms"), b_op = hr_num(b, "op_ms");
    if (isfinite(a_op) && isfinite(b_op)) {
        const bool compute = !strcmp(hr_word(a, "bound"), "compute");
        const char *rate = compute ? "gflop_s" : "gb_s", *unit = compute ? "G/s of arithmetic" : "GB/s";
        say(out, "`%s` takes %.4g ms instead of %.4g ms", name, a_op, b_op);
        if (hr_num(a, rate) > 0 && hr_num(b, rate) > 0)
            say(out, ": %.4g instead of %.4g %s", hr_num(a, rate), hr_num(b, rate), unit);
        if (strcmp(hr_word(a, "kernel"), hr_word(b, "kernel")))
            say(out, "; %s instead of %s", hr_word(a, "kernel"), hr_word(b, "kernel"));
        return;
    }
    say(out, "%.4g ms instead of %.4g ms", hr_num(a, "ms"), hr_num(b, "ms"));
}
