/* Tables of the KV section: predicted against counted, types, allocators, claims; and the data behind all of them. */
#include "harness/report/report_kv.h"

#include <string.h>

/* An empty cell where it is not known. */
static void number(hr_doc *doc, double v, const char *(*text)(double)) {
    hr_doc_cell(doc, "%s", isfinite(v) ? text(v) : "");
}

/* Of a mean of counts, which is whole more often than not. */
static const char *mean_count(double v) {
    return v == floor(v) ? hr_text_count(v) : hr_text_num(v);
}

static void interval(hr_doc *doc, const json_t *of, const char *(*text)(double)) {
    hr_doc_cell(doc, "%s", hr_text_interval(hr_num(of, "median"), hr_num(of, "ci95_lo"), hr_num(of, "ci95_hi"), text));
}

/* ---- predicted against counted ---------------------------------------------------------------------------------- */

static const char *const units[] = {"runs", "lines", "pages"};
enum { UNITS = 3, DIFFERENT_MOST = 40 };

/* The largest difference of what was counted from what was predicted, as a share of it; NaN: nothing to compare. */
static double difference(const json_t *row) {
    double worst = NAN;
    for (int u = 0; u < UNITS; u++) {
        const double predicted = hr_num(json_object_get(row, "predicted"), units[u]),
                     counted = hr_num(json_object_get(row, "counted"), units[u]);
        if (!isfinite(predicted) || !isfinite(counted)) continue;
        worst = fmax(worst, predicted == counted ? 0 : fabs(counted - predicted) / fmax(predicted, 1)); /* skips NaN */
    }
    return worst;
}

/* Cold and warm touch the same: rows of one of them are enough. */
static bool has_any(const json_t *row) {
    return !hr_kvr_in_state(row, "warm") &&
           (json_is_object(json_object_get(row, "predicted")) || json_is_object(json_object_get(row, "counted")));
}

static void predicted_row(hr_doc *doc, const json_t *row) {
    const double off = difference(row);
    hr_doc_cell(doc, "%.24s", hr_word(row, "op"));
    hr_doc_cell(doc, "%s", hr_text_arm(row));
    hr_doc_cell(doc, "%s × %s", hr_text_count(hr_num(row, "kv_heads")), hr_text_count(hr_num(row, "head_dim")));
    number(doc, hr_num(row, "context"), hr_text_count);
    number(doc, hr_num(row, "batch"), hr_text_count);
    for (int u = 0; u < UNITS; u++) {
        number(doc, hr_num(json_object_get(row, "predicted"), units[u]), hr_text_count);
        number(doc, hr_num(json_object_get(row, "counted"), units[u]), hr_text_count);
    }
    hr_doc_cell(doc, "%s%s", !isfinite(off) ? "" : off > 0 ? hr_text_num(100 * off) : "equal", off > 0 ? " % off" : "");
    number(doc, hr_num(row, "bytes_needed"), hr_text_size);
    number(doc, hr_num(row, "bytes_touched"), hr_text_size);
    number(doc, hr_num(row, "llc_misses"), hr_text_count);
    number(doc, hr_num(row, "tlb_misses"), hr_text_count);
    hr_doc_row_end(doc);
}

/* Where a table of all rows would be too long: the usual shape at its longest context, and each operation. */
static bool stands(const json_t *row, const json_t *shape, double context) {
    return strcmp(hr_word(row, "part"), "layouts") ||
           (shape && hr_kvr_same_shape(row, shape) && hr_num(row, "context") == context);
}

void hr_kvr_predicted(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {
        "operation",     "layout",           "KV heads × dim",     ">context",         ">batch",   ">runs predicted",
        ">counted",      ">lines predicted", ">counted",           ">pages predicted", ">counted", "",
        ">bytes needed", ">touched",         ">last-level misses", ">TLB misses",      NULL};
    static const char *const parts[] = {"layouts", "operations"};
    double contexts[HR_KV_PLACES_MOST];
    size_t n_contexts, n = 0, equal = 0, differ = 0, i;
    const json_t *shape = hr_kvr_usual_shape(hr_kvr_rows(r, "layouts"), contexts, &n_contexts);
    const char *counters = "";
    json_t *row;
    for (int p = 0; p < 2; p++) json_array_foreach(hr_kvr_rows(r, parts[p]), i, row) {
            n += has_any(row), equal += has_any(row) && difference(row) == 0,
                differ += has_any(row) && difference(row) > 0;
            if (!*counters) counters = hr_word(row, "counters");
        }
    if (n) {
        hr_doc_heading(doc, 3, "Predicted before it was measured");
        hr_doc_para(
            doc,
            "A model of run lengths says how many runs, cache lines and pages of 4 KiB each operation touches; a "
            "counting function says what it touched. Both are known of %s: equal in %zu, different in %zu. Shown: "
            "the usual shape at its longest context, each operation%s.",
            hr_text_of((double)(equal + differ), "row"), equal, differ, differ ? ", and what differs elsewhere" : "");
        hr_doc_table(doc, headings);
        size_t others = 0;
        for (int p = 0; p < 2; p++) json_array_foreach(hr_kvr_rows(r, parts[p]), i, row) {
                if (!has_any(row)) continue;
                const bool shown = stands(row, shape, n_contexts ? contexts[n_contexts - 1] : NAN);
                if (shown || (difference(row) > 0 && others++ < DIFFERENT_MOST)) predicted_row(doc, row);
            }
        hr_doc_table_end(doc);
    }
    if (*counters)
        hr_doc_para(doc, "Misses of the last-level cache and of the TLB were not counted: %.200s.", counters);
}

/* ---- types ------------------------------------------------------------------------------------------------------ */

enum { PPL_MOST = 6 };

static const json_t *ppl_at(const json_t *row, double ctx) {
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(row, "ppl"), i, p) if (hr_num(p, "ctx") == ctx) return p;
    return NULL;
}

/* Contexts of perplexity over all rows, ascending. */
static size_t ppl_contexts(const json_t *rows, double *out) {
    size_t n = 0, i, j, k;
    json_t *row, *p;
    json_array_foreach((json_t *)rows, i, row) json_array_foreach(json_object_get(row, "ppl"), j, p) {
        const double ctx = hr_num(p, "ctx");
        for (k = 0; k < n && out[k] != ctx; k++) continue;
        if (k < n || n == PPL_MOST || !isfinite(ctx)) continue;
        for (k = n++; k > 0 && out[k - 1] > ctx; k--) out[k] = out[k - 1];
        out[k] = ctx;
    }
    return n;
}

static const json_t *bf16_of(const json_t *rows, const json_t *row) {
    size_t i;
    json_t *other;
    json_array_foreach((json_t *)rows, i, other) if (!strcmp(hr_word(other, "name"), "bf16") &&
                                                     !strcmp(hr_word(other, "model"), hr_word(row, "model")) &&
                                                     hr_num(other, "context") == hr_num(row, "context")) return other;
    return NULL;
}

static void ppl_cell(hr_doc *doc, const json_t *p, bool base) {
    const double ppl = hr_num(p, "ppl"), delta = hr_num(p, "delta_pct");
    if (!isfinite(ppl))
        hr_doc_cell(doc, "%s", "");
    else if (isfinite(delta) && !base)
        hr_doc_cell(doc, "%.3f (%+.2f %%)", ppl, delta);
    else
        hr_doc_cell(doc, "%.3f", ppl);
}

static void type_row(hr_doc *doc, const json_t *rows, const json_t *row, const double *contexts, size_t n) {
    const json_t *base = bf16_of(rows, row), *versus = json_object_get(row, "vs_bf16");
    const double bytes = hr_num(row, "bytes_token");
    hr_doc_cell(doc, "%.32s", hr_word(row, "name"));
    hr_doc_cell(doc, "%.40s", hr_word(row, "model"));
    number(doc, bytes, hr_text_count);
    number(doc, bytes / hr_num(base, "bytes_token"), hr_text_pct);
    for (size_t i = 0; i < n; i++) ppl_cell(doc, ppl_at(row, contexts[i]), base == row);
    number(doc, hr_num(row, "context"), hr_text_count);
    number(doc, hr_num(row, "n"), hr_text_count);
    interval(doc, row, hr_text_num);
    interval(doc, versus, hr_text_ratio);
    hr_doc_cell(doc, "%.20s", hr_word(versus, "verdict"));
    hr_doc_row_end(doc);
}

void hr_kvr_types(hr_doc *doc, const hr_report *r) {
    const json_t *rows = hr_kvr_rows(r, "dtypes");
    double contexts[PPL_MOST];
    static _Thread_local char names[PPL_MOST][48];
    const char *headings[20], *reason = "", *scored = "";
    size_t at = 0, i;
    json_t *row;
    if (!json_array_size(rows)) return;
    const size_t n = ppl_contexts(rows, contexts);
    headings[at++] = "K/V", headings[at++] = "model", headings[at++] = ">bytes a token", headings[at++] = ">of bf16";
    for (size_t k = 0; k < n; k++) {
        snprintf(names[k], sizeof names[k], ">perplexity at %.0f", contexts[k]);
        headings[at++] = names[k];
    }
    headings[at++] = ">depth", headings[at++] = ">n", headings[at++] = ">decode step ms", headings[at++] = ">over bf16";
    headings[at++] = "verdict", headings[at] = NULL;
    hr_doc_heading(doc, 3, "Types of K and V");
    hr_doc_table(doc, headings);
    json_array_foreach((json_t *)rows, i, row) {
        type_row(doc, rows, row, contexts, n);
        if (!*reason) reason = hr_word(row, "ppl_reason");
        if (!*scored) scored = hr_word(json_array_get(json_object_get(row, "ppl"), 0), "model");
    }
    hr_doc_table_end(doc);
    char of[80] = "";
    if (*scored) snprintf(of, sizeof of, " Perplexity is of %.48s.", scored);
    hr_doc_para(
        doc,
        "Bytes are of all layers, with scales and the mean share of open groups. In brackets: 95 %% interval of the "
        "median; of a perplexity, its change from bf16 in the same windows of text. Over bf16: time over time of "
        "bf16, the median of pairs.%s%s%.200s%s",
        of, *reason ? " Perplexity was not measured: " : "", reason, *reason ? "." : "");
}

/* ---- allocators ------------------------------------------------------------------------------------------------- */

static void traffic_table(hr_doc *doc, const json_t *rows) {
    static const char *const headings[] = {"allocator",
                                           ">budget %",
                                           ">at once",
                                           ">requests",
                                           ">n",
                                           ">requests/s",
                                           ">over plain pages",
                                           "verdict",
                                           ">P50 ms",
                                           ">P99 ms",
                                           ">first token P50",
                                           ">P99",
                                           ">token gap P50",
                                           ">P99",
                                           ">largest batch",
                                           ">not admitted",
                                           ">for want of one piece",
                                           ">preempted",
                                           NULL};
    static const char *const times[] = {"p50_ms",       "p99_ms",       "ttft_p50_ms", "ttft_p99_ms",
                                        "token_p50_ms", "token_p99_ms", NULL};
    static const char *const counts[] = {"largest_batch", "failed_admissions", "failed_by_pieces", "preemptions", NULL};
    size_t i;
    json_t *row;
    hr_doc_table(doc, headings);
    json_array_foreach((json_t *)rows, i, row) {
        const json_t *versus = json_object_get(row, "vs_paged");
        const double requests = hr_num(row, "requests");
        hr_doc_cell(doc, "%s", hr_text_allocator(row));
        number(doc, hr_num(row, "budget_pct"), mean_count);
        number(doc, hr_num(row, "concurrency"), hr_text_count);
        number(doc, requests, hr_text_count);
        number(doc, hr_num(row, "n"), hr_text_count);
        hr_doc_cell(doc, "%s",
                    hr_text_interval(hr_num(row, "requests_s"), 1e3 * requests / hr_num(row, "ci95_hi"),
                                     1e3 * requests / hr_num(row, "ci95_lo"), hr_text_num));
        interval(doc, versus, hr_text_ratio);
        hr_doc_cell(doc, "%.20s", hr_word(versus, "verdict"));
        for (size_t k = 0; times[k]; k++) number(doc, hr_num(row, times[k]), hr_text_num);
        for (size_t k = 0; counts[k]; k++) number(doc, hr_num(row, counts[k]), mean_count);
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

static void memory_table(hr_doc *doc, const json_t *rows) {
    static const char *const headings[] = {"allocator",    ">budget %",    ">at once",    ">page",
                                           ">budget",      ">reserved",    ">used",       ">wasted inside %",
                                           ">between %",   ">compactions", ">taking ms",  ">moving",
                                           ">prefix hits", ">evictions",   ">own time %", NULL};
    size_t i;
    json_t *row;
    hr_doc_table(doc, headings);
    json_array_foreach((json_t *)rows, i, row) {
        hr_doc_cell(doc, "%s", hr_text_allocator(row));
        number(doc, hr_num(row, "budget_pct"), mean_count);
        number(doc, hr_num(row, "concurrency"), hr_text_count);
        number(doc, hr_num(row, "page_size"), hr_text_count);
        number(doc, hr_num(row, "budget_bytes"), hr_text_size);
        number(doc, hr_num(row, "reserved_bytes"), hr_text_size);
        number(doc, hr_num(row, "used_bytes"), hr_text_size);
        number(doc, hr_num(row, "waste_inside_pct"), hr_text_num);
        number(doc, hr_num(row, "waste_between_pct"), hr_text_num);
        number(doc, hr_num(row, "compactions"), mean_count);
        number(doc, hr_num(row, "compact_ms"), hr_text_num);
        number(doc, hr_num(row, "moved_bytes"), hr_text_size);
        number(doc, hr_num(row, "prefix_hits"), mean_count);
        number(doc, hr_num(row, "evictions"), mean_count);
        number(doc, hr_num(row, "overhead_pct"), hr_text_num);
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

void hr_kvr_allocators(hr_doc *doc, const hr_report *r) {
    const json_t *rows = hr_kvr_rows(r, "allocators"), *first = json_array_get(rows, 0);
    if (!first) return;
    hr_doc_heading(doc, 3, "Allocators: traffic");
    hr_doc_para(
        doc,
        "Hybrid < 64: requests of fewer positions than 64 lie in a pool, the others in pages; compact every 10: after "
        "so many requests; shared: equal prefixes lie in the same pages; prepared: room for the median output is made "
        "at admission. Budget: KV memory as a share of what the requests at once would need at their longest. Requests "
        "a second "
        "with the 95 %% interval; over plain pages: wall time over that of plain pages in the same traffic, below 1 "
        "is faster. Times of a request are from its arrival to its last token. Model: %.60s. Traffic: %.240s.",
        *hr_word(first, "model") ? hr_word(first, "model") : "not named",
        *hr_word(first, "distribution") ? hr_word(first, "distribution") : "not described");
    traffic_table(doc, rows);
    hr_doc_heading(doc, 3, "Allocators: memory");
    hr_doc_para(doc,
                "Wasted inside: of what is reserved; between: of the budget, free but in pieces. Own time: of the wall "
                "time in the loop of the study and not in the engine.");
    memory_table(doc, rows);
}

/* ---- claims ----------------------------------------------------------------------------------------------------- */

void hr_kvr_claims(hr_doc *doc, const hr_report *r) {
    static const char *const headings[] = {"claim",   "what is said", "published", ">measured here", "unit", ">n",
                                           "verdict", "reason",       NULL};
    static const char *const verdicts[] = {"holds", "does not hold", "no difference", "not testable here"};
    size_t n[4] = {0}, i;
    json_t *row;
    json_array_foreach(r->claims, i, row) for (int v = 0; v < 4; v++) n[v] +=
        !strcmp(hr_word(row, "verdict"), verdicts[v]);
    hr_doc_heading(doc, 3, "Published claims, tested here");
    hr_doc_para(
        doc,
        "%s: %zu hold, %zu do not hold, %zu show no difference, %zu are not testable here or their interval holds "
        "both answers. A claim about a GPU is tested as the same question on this machine. In brackets: 95 %% "
        "interval of the median.",
        hr_text_of((double)json_array_size(r->claims), "claim"), n[0], n[1], n[2], n[3]);
    hr_doc_table(doc, headings);
    json_array_foreach(r->claims, i, row) {
        hr_doc_cell(doc, "%.40s", hr_word(row, "id"));
        hr_doc_cell(doc, "%.300s", hr_word(row, "claim"));
        hr_doc_cell(doc, "%.200s", hr_word(row, "published"));
        const double lo = hr_num(row, "ci95_lo"), hi = hr_num(row, "ci95_hi");
        const bool exact = lo == hi; /* arithmetic */
        hr_doc_cell(
            doc, "%s",
            hr_text_interval(hr_num(row, "measured"), exact ? (double)NAN : lo, exact ? (double)NAN : hi, hr_text_num));
        hr_doc_cell(doc, "%.20s", isfinite(hr_num(row, "measured")) ? hr_word(row, "unit") : "");
        number(doc, hr_num(row, "n") > 0 ? hr_num(row, "n") : (double)NAN, hr_text_count);
        hr_doc_cell(doc, "%.24s", hr_word(row, "verdict"));
        hr_doc_cell(doc, "%.800s", hr_word(row, "reason"));
        hr_doc_row_end(doc);
    }
    hr_doc_table_end(doc);
}

/* ---- data ------------------------------------------------------------------------------------------------------- */

static void tsv(FILE *f, const json_t *value) {
    if (json_is_string(value))
        for (const char *c = json_string_value(value); *c; c++)
            fputc((unsigned char)*c < 32 || *c == 127 ? ' ' : *c, f);
    else if (json_is_integer(value))
        fprintf(f, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        fprintf(f, "%.15g", json_real_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", f);
    else if (json_is_array(value)) { /* flags */
        size_t i;
        json_t *item;
        json_array_foreach((json_t *)value, i, item) {
            if (i) fputc(' ', f);
            if (!json_is_array(item)) tsv(f, item);
        }
    }
}

/* "vs_head.median" is a key of the map vs_head. */
static const json_t *deep(const json_t *row, const char *key) {
    const char *dot = strchr(key, '.');
    char first[40];
    if (!dot) return json_object_get(row, key);
    snprintf(first, sizeof first, "%.*s", (int)(dot - key), key);
    return json_object_get(json_object_get(row, first), dot + 1);
}

static void write_rows(const json_t *rows, const char *const *columns, FILE *f) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        for (size_t c = 0; columns[c]; c++) {
            if (c) fputc('\t', f);
            tsv(f, deep(row, columns[c]));
        }
        fputc('\n', f);
    }
}

static void write_heads(const char *const *columns, FILE *f) {
    for (size_t c = 0; columns[c]; c++) fprintf(f, "%s%s", c ? "\t" : "", columns[c]);
    fputc('\n', f);
}

void hr_kvr_write_study(const hr_report *r, FILE *f) {
    static const char *const parts[] = {"layouts", "operations", "dtypes", "allocators"};
    static const char *const columns[] = {"part",
                                          "name",
                                          "key",
                                          "n",
                                          "median",
                                          "ci95_lo",
                                          "ci95_hi",
                                          "unit",
                                          "op",
                                          "model",
                                          "kv_heads",
                                          "head_dim",
                                          "group",
                                          "type_k",
                                          "type_v",
                                          "page_size",
                                          "context",
                                          "batch",
                                          "threads",
                                          "layers",
                                          "tokens",
                                          "kernel",
                                          "state",
                                          "bytes_needed",
                                          "bytes_touched",
                                          "gb_s",
                                          "freed_bytes",
                                          "vs_head.median",
                                          "vs_head.ci95_lo",
                                          "vs_head.ci95_hi",
                                          "vs_head.n",
                                          "vs_head.verdict",
                                          "predicted.runs",
                                          "predicted.lines",
                                          "predicted.pages",
                                          "counted.runs",
                                          "counted.lines",
                                          "counted.pages",
                                          "llc_misses",
                                          "tlb_misses",
                                          "counters",
                                          "bytes_token",
                                          "vs_bf16.median",
                                          "vs_bf16.ci95_lo",
                                          "vs_bf16.ci95_hi",
                                          "vs_bf16.n",
                                          "vs_bf16.verdict",
                                          "ppl_reason",
                                          "budget_pct",
                                          "budget_bytes",
                                          "concurrency",
                                          "requests",
                                          "distribution",
                                          "threshold",
                                          "compact_every",
                                          "share_prefix",
                                          "prepared",
                                          "requests_s",
                                          "vs_paged.median",
                                          "vs_paged.ci95_lo",
                                          "vs_paged.ci95_hi",
                                          "vs_paged.n",
                                          "vs_paged.verdict",
                                          "reserved_bytes",
                                          "used_bytes",
                                          "waste_inside_pct",
                                          "waste_between_pct",
                                          "failed_admissions",
                                          "failed_by_pieces",
                                          "largest_batch",
                                          "preemptions",
                                          "compactions",
                                          "compact_ms",
                                          "moved_bytes",
                                          "prefix_hits",
                                          "evictions",
                                          "overhead_pct",
                                          "p50_ms",
                                          "p99_ms",
                                          "ttft_p50_ms",
                                          "ttft_p99_ms",
                                          "token_p50_ms",
                                          "token_p99_ms",
                                          "stop_reason",
                                          "handoff_ns",
                                          "read_gb_s_before",
                                          "read_gb_s_after",
                                          "state_class",
                                          "flags",
                                          NULL};
    write_heads(columns, f);
    for (size_t p = 0; p < 4; p++) write_rows(hr_kvr_rows(r, parts[p]), columns, f);
}

void hr_kvr_write_claims(const hr_report *r, FILE *f) {
    static const char *const columns[] = {"id",   "claim", "source",  "published", "measured", "ci95_lo", "ci95_hi",
                                          "unit", "n",     "verdict", "reason",    "how",      NULL};
    write_heads(columns, f);
    write_rows(r->claims, columns, f);
}
