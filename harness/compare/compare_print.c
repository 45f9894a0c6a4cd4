/* A comparison for reading: the table with what got slower first, then reasons, ops, and what has no partner. Markdown is
 * what a pull request shows. */
#include "harness/compare/compare_internal.h"

#include "harness/formats/json_get.h"
#include "harness/stats/stats.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static hr_status no_memory(void) {
    return hr_fail(HR_ERR_MEMORY, "out of memory while printing a comparison");
}

/* ---- the order of rows --------------------------------------------------------------------------------------------- */

typedef struct place {
    const json_t *row;
    size_t i;
} place;

static int rank_of(const json_t *row) {
    static const char *const order[] = {"slower", "", "inconclusive", "faster", "same"};
    const bool whole = !strcmp(hr_word(row, "status_a"), "ok") && !strcmp(hr_word(row, "status_b"), "ok");
    for (int k = 0; whole && k < 5; k++)
        if (!strcmp(hr_word(row, "verdict"), order[k])) return k;
    return 1; /* failed ones */
}

/* Slower first, the largest shift first; of equals the order they came in. */
static int slower_first(const void *a, const void *b) {
    const place *x = a, *y = b;
    const int r = rank_of(x->row), s = rank_of(y->row);
    const double p = fabs(hr_num(x->row, "shift_pct")), q = fabs(hr_num(y->row, "shift_pct"));
    if (r != s) return r - s;
    if (r != 4 && p != q && !isnan(p) && !isnan(q)) return (p < q) - (p > q);
    return (x->i > y->i) - (x->i < y->i);
}

static json_t *sorted(const json_t *rows) {
    const size_t n = json_array_size(rows);
    place *all = hr_calloc(n + 1, sizeof *all);
    json_t *out = json_array();
    bool ok = all && out;
    for (size_t i = 0; ok && i < n; i++) all[i] = (place){json_array_get(rows, i), i};
    if (ok) qsort(all, n, sizeof *all, slower_first);
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append(out, (json_t *)all[i].row) == 0;
    hr_free(all);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

/* ---- the table ------------------------------------------------------------------------------------------------------ */

static bool differ(const json_t *rows, const char *key) {
    for (size_t i = 1; i < json_array_size(rows); i++)
        if (strcmp(hr_word(json_array_get(rows, 0), key), hr_word(json_array_get(rows, i), key))) return true;
    return false;
}

static const char *short_metric(const char *metric) {
    static const char *const known[][2] = {{"ttft_prefill_ms", "prefill"},
                                           {"tpot_excl_first_ms", "TPOT"},
                                           {"ttft_ms", "TTFT"},
                                           {"e2e_ms", "E2E"},
                                           {"time_ms", "time"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(metric, known[i][0])) return known[i][1];
    return metric;
}

/* What a reader has to know before believing the row. */
static void note_of(const json_t *row, char *out, size_t n) {
    size_t used = 0;
    *out = 0;
    for (int side = 0; side < 2; side++) {
        const char *name = side ? "B" : "A";
        const char *status = hr_word(row, side ? "status_b" : "status_a");
        const bool unsettled = json_is_false(json_object_get(row, side ? "converged_b" : "converged_a"));
        if (strcmp(status, "ok"))
            used += (size_t)snprintf(out + used, n - used, "%s%s %s", used ? "; " : "", name, status);
        else if (unsettled)
            used += (size_t)snprintf(out + used, n - used, "%s%s did not converge (%.24s)", used ? "; " : "", name,
                                     hr_word(row, side ? "stop_reason_b" : "stop_reason_a"));
    }
}

static json_t *shown(const json_t *row, bool apart) {
    char interval[64] = "", samples[48], note[160];
    const double lo = hr_num(row, "ci95_lo_pct"), hi = hr_num(row, "ci95_hi_pct");
    const double n_a = hr_num(row, "n_a"), n_b = hr_num(row, "n_b");
    json_t *out = json_object();
    if (isfinite(lo) && isfinite(hi)) snprintf(interval, sizeof interval, "%+.2f to %+.2f", lo, hi);
    snprintf(samples, sizeof samples, n_a == n_b ? "%.0f" : "%.0f, %.0f", n_a, n_b);
    note_of(row, note, sizeof note);
    bool ok = out && hr_row_copy(out, "model", row, "model_filename") && hr_row_copy(out, "quant", row, "quant") &&
              hr_row_copy(out, "test", row, "test") && hr_row_copy(out, "a", row, "a_median") &&
              hr_row_copy(out, "b", row, "b_median") && hr_row_copy(out, "shift", row, "shift_pct") &&
              hr_row_copy(out, "verdict", row, "verdict") && hr_row_copy(out, "p", row, "p_adjusted");
    ok = ok && hr_row_text(out, "metric", short_metric(hr_word(row, "metric"))) &&
         hr_row_text(out, "interval", interval) && hr_row_text(out, "n", samples) && hr_row_text(out, "note", note);
    static const char *const normalised[] = {"roof_fraction_a", "roof_fraction_b", "mbu_a", "mbu_b"};
    for (size_t i = 0; apart && i < sizeof normalised / sizeof *normalised; i++)
        ok = ok && hr_row_copy(out, normalised[i], row, normalised[i]);
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static hr_status write_table(hr_format format, FILE *stream, const json_t *rows, bool apart) {
    static const char *const judged[] = {
        "test", "metric|=metric",   "a|=A ms",    "b|=B ms", "shift|=shift %", "interval|=95 % interval", "p|=p adj.",
        "n|=n", "verdict|=verdict", "note|=note", NULL};
    static const char *const beside[] = {"test",
                                         "metric|=metric",
                                         "a|=A ms",
                                         "b|=B ms",
                                         "roof_fraction_a|=A of roof %|100",
                                         "roof_fraction_b|=B of roof %|100",
                                         "mbu_a|=A MBU %|100",
                                         "mbu_b|=B MBU %|100",
                                         "n|=n",
                                         "note|=note",
                                         NULL};
    const char *keys[16];
    size_t n = 0, i;
    json_t *out = json_array(), *row;
    bool ok = out != NULL, notes = false;
    json_array_foreach((json_t *)rows, i, row) {
        json_t *line = shown(row, apart);
        ok = ok && line && json_array_append(out, line) == 0;
        notes |= *hr_word(line, "note") != 0;
        json_decref(line);
    }
    if (differ(rows, "model_filename")) keys[n++] = "model|=model";
    if (differ(rows, "quant")) keys[n++] = "quant|=quant";
    for (i = 0; (apart ? beside : judged)[i]; i++)
        if (notes || strncmp((apart ? beside : judged)[i], "note", 4)) keys[n++] = (apart ? beside : judged)[i];
    keys[n] = NULL;
    const hr_status status = ok ? hr_rows_write(format, stream, out, keys) : no_memory();
    json_decref(out);
    return status;
}

/* ---- below the table -------------------------------------------------------------------------------------------------- */

static void heading(FILE *f, bool md, const char *text) {
    fprintf(f, md ? "\n**%s**\n\n" : "\n%s:\n", text);
}

static void name_row(FILE *f, bool md, const json_t *row) {
    const char *metric = short_metric(hr_word(row, "metric"));
    fprintf(f, md ? "- %s%s%s: " : "  %s%s%s: ", hr_cell_name(row), *metric ? " " : "", metric);
}

static void print_reasons(FILE *f, bool md, const json_t *rows) {
    size_t i, n = 0;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const char *why = hr_word(row, "why");
        const char *error = *hr_word(row, "error_b") ? hr_word(row, "error_b") : hr_word(row, "error_a");
        if (!*why) continue;
        if (!n++) heading(f, md, "Why inconclusive");
        name_row(f, md, row);
        fprintf(f, *error ? "%s (%s)\n" : "%s\n", why, error);
    }
}

/* Of rows that moved, the op classes that moved most, in the phase of the metric. */
static void print_ops(FILE *f, bool md, const json_t *comparison, const json_t *rows) {
    enum { SHOWN = 3 };
    size_t i, k, n = 0;
    json_t *row, *op;
    json_array_foreach((json_t *)rows, i, row) {
        const char *verdict = hr_word(row, "verdict"), *phase = hr_compare_phase(hr_word(row, "metric"));
        const json_t *ops = json_object_get(json_object_get(comparison, "ops"), hr_word(row, "cell_id"));
        size_t put = 0;
        if (!phase || (strcmp(verdict, "slower") && strcmp(verdict, "faster"))) continue;
        json_array_foreach((json_t *)ops, k, op) {
            if (strcmp(hr_word(op, "phase"), phase) || put == SHOWN) continue;
            if (!n++) heading(f, md, "Which ops (recorded repetitions; ms of a request's prefill or of a step)");
            if (!put++) name_row(f, md, row);
            fprintf(f, "%s%s %+.3f ms (%.3g to %.3g)", put > 1 ? ", " : "", hr_word(op, "op"), hr_num(op, "shift_ms"),
                    hr_num(op, "a_ms"), hr_num(op, "b_ms"));
        }
        if (put) fputc('\n', f);
    }
}

static void print_unmatched(FILE *f, bool md, const json_t *list, const char *title) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)list, i, row) {
        if (i == 0) heading(f, md, title);
        name_row(f, md, row);
        fprintf(f, "%s (%.12s)\n", hr_word(row, "why"), hr_word(row, "cell_id"));
    }
}

static void count_of(FILE *f, const json_t *summary, const char *word, bool first) {
    fprintf(f, "%s%.0f %s", first ? "" : ", ", hr_num(summary, word), word);
}

static void print_summary(FILE *f, bool md, const json_t *comparison, bool apart) {
    static const char *const words[] = {"slower", "faster", "same", "inconclusive"};
    const json_t *s = json_object_get(comparison, "summary");
    fputs(md ? "\n**" : "\n", f);
    if (apart)
        fprintf(f, "%.0f side by side", hr_num(s, "compared"));
    else
        for (size_t i = 0; i < 4; i++) count_of(f, s, words[i], i == 0);
    if (hr_num(s, "failed") > 0) count_of(f, s, "failed", false);
    if (hr_num(s, "unmatched") > 0) count_of(f, s, "unmatched", false);
    fputs(md ? "**\n" : "\n", f);
}

/* Where times scatter, the shift and the ratio of the two medians part: a reader who divides them is told why. */
static void print_scatter(FILE *f, const json_t *rows) {
    enum { APART_PCT = 2 };
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        const double a = hr_num(row, "a_median"), b = hr_num(row, "b_median"), shift = hr_num(row, "shift_pct");
        if (!(fabs((b / a - 1) * 100 - shift) > APART_PCT)) continue; /* unknown numbers compare as false */
        fputs("\nShift is over all pairs of samples or runs, not the ratio of the two medians: they part where times "
              "scatter.\n",
              f);
        return;
    }
}

/* What was measured in pairs says how. */
static void print_pairs(FILE *f, bool md, const json_t *comparison) {
    static const char *const sides[] = {"a", "b"};
    if (!json_is_integer(json_object_get(comparison, "pairs"))) return;
    fprintf(f, "%.0f pairs, %.0f repeated", hr_num(comparison, "pairs"), hr_num(comparison, "repeated"));
    for (size_t s = 0; s < 2; s++) {
        const json_t *side = json_object_get(comparison, sides[s]);
        fprintf(f, "; %s %s (%s)", s ? "B" : "A", hr_word(side, "program"), hr_word(side, "build_commit"));
    }
    fputs(md ? "\n\n" : "\n", f);
}

static hr_status print_people(hr_format format, FILE *f, const json_t *comparison) {
    const bool md = format == HR_FORMAT_MD;
    const json_t *cells = json_object_get(comparison, "cells"), *first = json_array_get(cells, 0);
    const bool apart = *hr_word(first, "machine_a") || *hr_word(first, "machine_b");
    json_t *rows = sorted(cells);
    if (!rows) return no_memory();
    if (apart)
        fprintf(f, md ? "A is %s, B is %s\n\n" : "A is %s, B is %s\n", hr_word(first, "machine_a"),
                hr_word(first, "machine_b"));
    print_pairs(f, md, comparison);
    hr_status status = json_array_size(rows) ? write_table(format, f, rows, apart) : HR_OK;
    if (status == HR_OK) {
        if (!apart) print_scatter(f, rows);
        print_reasons(f, md, rows);
        print_ops(f, md, comparison, rows);
        print_unmatched(f, md, json_object_get(comparison, "unmatched_a"), "In A alone");
        print_unmatched(f, md, json_object_get(comparison, "unmatched_b"), "In B alone");
        print_summary(f, md, comparison, apart);
        status = hr_stream_flush(f);
    }
    json_decref(rows);
    return status;
}

hr_status hr_compare_print(hr_format format, FILE *stream, const json_t *comparison) {
    static const char *const keys[] = {"test",
                                       "cell_id",
                                       "state_class",
                                       "model_filename",
                                       "quant",
                                       "metric",
                                       "a_median",
                                       "b_median",
                                       "shift_pct",
                                       "ci95_lo_pct",
                                       "ci95_hi_pct",
                                       "p",
                                       "p_adjusted",
                                       "n_a",
                                       "n_b",
                                       "verdict",
                                       "why",
                                       "status_a",
                                       "status_b",
                                       "converged_a",
                                       "converged_b",
                                       "stop_reason_a",
                                       "stop_reason_b",
                                       "roof_fraction_a",
                                       "roof_fraction_b",
                                       "mbu_a",
                                       "mbu_b",
                                       NULL};
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, comparison);
    if (format == HR_FORMAT_TABLE || format == HR_FORMAT_MD) return print_people(format, stream, comparison);
    return hr_rows_write(format, stream, json_object_get(comparison, "cells"), keys);
}
