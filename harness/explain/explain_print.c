/* explain_print.c - an explanation for reading: a heading, a line a term with its bar, the reasons, the split. */
#include "harness/explain/explain_internal.h"

#include "harness/formats/formats.h"
#include "harness/report/report_label.h"

#include <string.h>

enum { BAR = 32, NAME = 15, PAGE = 110 };

/* So many decimals that the whole has at least four digits. */
static int decimals_of(double ms) {
    ms = fabs(ms);
    return ms >= 1000 ? 0 : ms >= 100 ? 1 : ms >= 10 ? 2 : ms >= 1 ? 3 : 4;
}

/* "-" for what does not apply, else some three digits. */
static const char *rate(double v, char out[16]) {
    if (isnan(v) || v == 0)
        snprintf(out, 16, "-");
    else
        snprintf(out, 16, fabs(v) >= 100 ? "%.0f" : fabs(v) >= 10 ? "%.1f" : "%.2f", v);
    return out;
}

typedef struct scale {
    double lo, hi; /* ms at the ends of the bar */
} scale;

static void widen(scale *s, double v) {
    s->lo = fmin(s->lo, v), s->hi = fmax(s->hi, v);
}

/* From `from` to `to` on the scale: # forth, < back. */
static void bar(const scale *s, double from, double to, char out[BAR + 1]) {
    const double width = s->hi - s->lo, ms = to - from;
    memset(out, ' ', BAR), out[BAR] = 0;
    if (!(width > 0) || ms == 0) {
        *out = 0;
        return;
    }
    const int marks = (int)lround(fabs(ms) / width * BAR);
    int first = (int)lround((fmin(from, to) - s->lo) / width * BAR);
    if (first > BAR - (marks ? marks : 1)) first = BAR - (marks ? marks : 1);
    if (first < 0) first = 0;
    if (!marks) out[first] = '|'; /* less than half a mark: thin, in its place */
    for (int i = first; i < first + marks; i++) out[i] = ms < 0 ? '<' : '#';
    for (int i = BAR; i > 0 && out[i - 1] == ' '; i--) out[i - 1] = 0;
}

/* A number of ms; what rounds to zero has no sign. */
static void put_ms(char *out, size_t n, double ms, int decimals) {
    snprintf(out, n, "%.*f", decimals, fabs(ms) < 0.5 * pow(10, -decimals) ? 0 : ms);
}

static void metric_heading(FILE *f, bool md, const char *name, const json_t *m, bool difference) {
    const double measured = hr_num(m, "measured_ms"), ideal = hr_num(m, "ideal_ms");
    const double recorded = hr_num(m, "recorded_ms");
    fprintf(f, md ? "### %s\n\n" : "%s  ", !strcmp(name, "ttft") ? "TTFT" : "TPOT");
    if (difference) {
        const double a = hr_num(m, "a_measured_ms"), b = hr_num(m, "b_measured_ms");
        fprintf(f, "%.*f ms instead of %.*f ms: %+.*f ms (%+.1f %%)", decimals_of(a), a, decimals_of(b), b,
                decimals_of(a), measured, measured / b * 100);
    } else {
        const int d = decimals_of(measured);
        fprintf(f, "measured %.*f ms", d, measured);
        if (isfinite(ideal)) fprintf(f, ", ideal %.*f ms (%.0f %% of it)", d, ideal, ideal / measured * 100);
        if (isfinite(recorded)) fprintf(f, ", with the recorder on %.*f ms", d, recorded);
    }
    fputs("\n\n", f);
}

/* Texts of a term as the table and Markdown show it. */
typedef struct shown {
    const char *name, *kind, *reason;
    char ms[24], pct[16], gb[16], gflop[16], roof[16], bar[BAR + 1];
} shown;

static void show(const json_t *term, const scale *s, double from, double whole, int decimals, shown *out) {
    const double ms = hr_num(term, "ms"), fraction = hr_num(term, "roof_fraction");
    out->name = hr_word(term, "name"), out->kind = hr_word(term, "kind"), out->reason = hr_word(term, "reason");
    if (isnan(ms))
        snprintf(out->ms, sizeof out->ms, "-"), snprintf(out->pct, sizeof out->pct, "-");
    else
        put_ms(out->ms, sizeof out->ms, ms, decimals), put_ms(out->pct, sizeof out->pct, ms / whole * 100, 1);
    rate(hr_num(term, "gb_s"), out->gb), rate(hr_num(term, "gflop_s"), out->gflop);
    snprintf(out->roof, sizeof out->roof, isnan(fraction) ? "-" : "%.0f", fraction * 100);
    bar(s, from, from + (isnan(ms) ? 0 : ms), out->bar);
}

static void put_heads(FILE *f, bool md, bool difference) {
    if (md && difference)
        fputs("| term | kind | ms | % | reason |\n|---|---|---:|---:|---|\n", f);
    else if (md)
        fputs(
            "| term | kind | ms | % | GB/s | GFLOP/s | % of roof | reason |\n|---|---|---:|---:|---:|---:|---:|---|\n",
            f);
    else if (difference)
        fprintf(f, "%-*s %-11s %9s %6s\n", NAME, "term", "kind", "ms", "%");
    else
        fprintf(f, "%-*s %-11s %9s %6s %7s %8s %6s\n", NAME, "term", "kind", "ms", "%", "GB/s", "GFLOP/s", "roof %");
}

static void put_term(FILE *f, bool md, bool difference, const shown *t) {
    if (md && difference)
        fprintf(f, "| %s | %s | %s | %s | %s |\n", t->name, t->kind, t->ms, t->pct, t->reason);
    else if (md)
        fprintf(f, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", t->name, t->kind, t->ms, t->pct, t->gb, t->gflop,
                t->roof, t->reason);
    else if (difference)
        fprintf(f, "%-*s %-11s %9s %6s%s%s\n", NAME, t->name, t->kind, t->ms, t->pct, *t->bar ? "  " : "", t->bar);
    else
        fprintf(f, "%-*s %-11s %9s %6s %7s %8s %6s%s%s\n", NAME, t->name, t->kind, t->ms, t->pct, t->gb, t->gflop,
                t->roof, *t->bar ? "  " : "", t->bar);
}

/* The reasons of what is too small to matter stay in --json. */
static const double REASON_SHARE = 1e-3;

static void put_reasons(FILE *f, const json_t *terms, double whole) {
    size_t i, left_out = 0;
    json_t *term;
    fputc('\n', f);
    json_array_foreach((json_t *)terms, i, term) {
        if (fabs(hr_num(term, "ms")) < REASON_SHARE * fabs(whole)) {
            left_out++;
            continue;
        }
        fprintf(f, "%-*s ", NAME, hr_word(term, "name"));
        hr_wrapped(f, hr_word(term, "reason"), NAME + 1, PAGE);
    }
    if (left_out) fprintf(f, "(%zu more terms are under %.1f %%)\n", left_out, REASON_SHARE * 100);
}

static void put_metric(FILE *f, bool md, const char *name, const json_t *m, bool difference) {
    const json_t *terms = json_object_get(m, "terms");
    const double measured = hr_num(m, "measured_ms");
    const double whole = difference ? hr_num(m, "b_measured_ms") : measured;
    scale s = {0, 0};
    double at = 0;
    size_t i;
    json_t *term;
    metric_heading(f, md, name, m, difference);
    json_array_foreach((json_t *)terms, i, term) {
        const double ms = hr_num(term, "ms");
        if (isnan(ms)) continue;
        at = difference ? ms : at + ms; /* a difference has no whole to build up: each begins at 0 */
        widen(&s, at);
    }
    put_heads(f, md, difference);
    at = 0;
    json_array_foreach((json_t *)terms, i, term) {
        shown t;
        show(term, &s, at, whole, decimals_of(whole), &t);
        put_term(f, md, difference, &t);
        if (!difference && isfinite(hr_num(term, "ms"))) at += hr_num(term, "ms");
    }
    if (!md) {
        shown t = {.name = difference ? "difference" : "measured", .kind = ""};
        put_ms(t.ms, sizeof t.ms, measured, decimals_of(whole));
        put_ms(t.pct, sizeof t.pct, measured / whole * 100, 1);
        bar(&s, 0, measured, t.bar);
        put_term(f, false, difference, &t);
        put_reasons(f, terms, whole);
    }
    fputc('\n', f);
}

/* "72" beside the published figure; nothing where one is unknown. */
static void put_share(FILE *f, const char *between, const char *what, double pct, double published, bool difference) {
    if (isnan(pct)) return;
    fprintf(f, difference ? "%s%s %+.1f points" : "%s%s %.1f %%", between, what, pct);
    if (isfinite(published) && !difference) fprintf(f, " (published: %.0f)", published);
}

static void put_split(FILE *f, const json_t *split, bool difference) {
    const json_t *p = json_object_get(split, "prefill"), *d = json_object_get(split, "decode");
    if (json_is_object(p)) {
        fputs("prefill: ", f);
        put_share(f, "", "matrix products", hr_num(p, "gemm_pct"), hr_num(p, "published_gemm_pct"), difference);
        put_share(f, ", ", "attention", hr_num(p, "attention_pct"), hr_num(p, "published_attention_pct"), difference);
        put_share(f, ", ", "rest", hr_num(p, "other_pct"), NAN, difference);
        fputs(" of the ops' time\n", f);
    }
    if (json_is_object(d) && isfinite(hr_num(d, "memory_pct"))) {
        fputs(json_is_object(p) ? "decode:  " : "decode: ", f);
        put_share(f, "", "memory", hr_num(d, "memory_pct"), hr_num(d, "published_memory_pct"), difference);
        put_share(f, ", ", "arithmetic", hr_num(d, "compute_pct"), hr_num(d, "published_compute_pct"), difference);
        fputs(" of a step, at the ceilings\n", f);
    }
}

static void put_cell(FILE *f, const char *what, const json_t *cell) {
    const char *machine = hr_word(cell, "machine_class");
    fprintf(f, "%s%s%s%s, cell %.12s\n", what, hr_text_title(cell), *machine ? ", on " : "", machine,
            hr_word(cell, "cell_id"));
}

hr_status hr_explain_print(hr_format format, FILE *f, const json_t *explanation) {
    const bool md = format == HR_FORMAT_MD, difference = hr_explain_is_difference(explanation);
    const json_t *metrics = json_object_get(explanation, "metrics");
    put_cell(f, md ? "## " : "", json_object_get(explanation, "cell"));
    if (difference) put_cell(f, md ? "\nagainst " : "against ", json_object_get(explanation, "vs"));
    fputc('\n', f);
    for (size_t i = 0; i < HR_EXPLAIN_METRICS; i++) {
        const json_t *m = json_object_get(metrics, hr_explain_metrics[i]);
        if (json_is_object(m)) put_metric(f, md, hr_explain_metrics[i], m, difference);
    }
    put_split(f, json_object_get(explanation, "split"), difference);
    const json_t *notes = json_object_get(explanation, "notes");
    size_t i;
    json_t *text;
    if (md && json_array_size(notes)) fputc('\n', f);
    json_array_foreach((json_t *)notes, i, text) {
        fputs(md ? "- " : "note: ", f);
        if (md)
            fprintf(f, "%s\n", json_string_value(text));
        else
            hr_wrapped(f, json_string_value(text), 6, PAGE);
    }
    return hr_stream_flush(f);
}
