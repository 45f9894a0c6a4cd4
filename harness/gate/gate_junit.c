/* JUnit XML: the elements that Jenkins' and GitLab's readers both know, and no others.
 *
 * Names come from files of users: every text is escaped, and what XML 1.0 cannot hold at all is left out. Jenkins splits
 * classname at its last dot into package and class, so dots of a model's name become underscores there. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"

#include <math.h>
#include <string.h>

/* Text is valid UTF-8 (JSON). Left out: control characters but tab and newline, and U+FFFE, U+FFFF. */
static void put_bytes(FILE *f, const char *text, size_t n, bool attribute) {
    const unsigned char *s = (const unsigned char *)text, *end = s + n;
    for (; s < end; s++) {
        if (end - s >= 3 && s[0] == 0xef && s[1] == 0xbf && (s[2] == 0xbe || s[2] == 0xbf))
            s += 2;
        else if (*s == '&')
            fputs("&amp;", f);
        else if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '>')
            fputs("&gt;", f);
        else if (*s == '"' && attribute)
            fputs("&quot;", f);
        else if ((*s == '\n' || *s == '\t') && attribute)
            fprintf(f, "&#%d;", *s);
        else if ((*s >= 0x20 && *s != 0x7f) || *s == '\n' || *s == '\t')
            fputc(*s, f);
    }
}

static void put_text(FILE *f, const char *text, bool attribute) {
    put_bytes(f, text, strlen(text), attribute);
}

static void put_attribute(FILE *f, const char *key, const char *text) {
    fprintf(f, " %s=\"", key);
    put_text(f, text, true);
    fputc('"', f);
}

static void put_class(FILE *f, const json_t *row) {
    const char *model = hr_word(row, "model_filename"), *quant = hr_word(row, "quant"), *slash = strrchr(model, '/');
    if (slash && slash[1]) model = slash + 1;
    fputs(" classname=\"headroom.", f);
    for (const char *part = model; *part;) {
        const size_t n = strcspn(part, ".");
        put_bytes(f, part, n, true);
        part += n;
        if (*part) fputc('_', f), part++;
    }
    if (*model && *quant) fputc(' ', f);
    put_text(f, quant, true);
    fputc('"', f);
}

static void put_result(FILE *f, const char *element, const char *type, const char *message, const char *body) {
    fprintf(f, "      <%s", element);
    if (*type) put_attribute(f, "type", type);
    put_attribute(f, "message", message);
    if (*body) {
        fputc('>', f);
        put_text(f, body, false);
        fprintf(f, "</%s>\n", element);
    } else {
        fputs("/>\n", f);
    }
}

/* What a person asks next: the two medians, the interval, the ops. */
static void details(const json_t *row, char *out, size_t size) {
    const json_t *op;
    size_t i;
    int n = snprintf(out, size, "%.40s %.6g ms to %.6g ms", hr_word(row, "metric"), hr_num(row, "a_median"),
                     hr_num(row, "b_median"));
    n += snprintf(out + n, size - (size_t)n,
                  "; shift %+.2f %% (%.2f..%.2f), p %.3g adjusted, n %.0f and %.0f; cell %.24s",
                  hr_num(row, "shift_pct"), hr_num(row, "ci95_lo_pct"), hr_num(row, "ci95_hi_pct"),
                  hr_num(row, "p_adjusted"), hr_num(row, "n_a"), hr_num(row, "n_b"), hr_word(row, "cell_id"));
    json_array_foreach(json_object_get(row, "slower_ops"), i, op) {
        if ((size_t)n + 1 < size)
            n += snprintf(out + n, size - (size_t)n, "\n%.40s:%.20s %.4g ms to %.4g ms", hr_word(op, "op"),
                          hr_word(op, "phase"), hr_num(op, "a_ms"), hr_num(op, "b_ms"));
    }
}

/* "did not converge in the candidate (max_samples)"; "" when both sides did. Returns out. */
static const char *unsettled(const json_t *row, char *out, size_t size) {
    static const char *const sides[][3] = {{"converged_a", "stop_reason_a", "baseline"},
                                           {"converged_b", "stop_reason_b", "candidate"}};
    int n = 0;
    out[0] = 0;
    for (size_t i = 0; i < 2; i++)
        if (json_is_false(json_object_get(row, sides[i][0])) && (size_t)n + 1 < size)
            n += snprintf(out + n, size - (size_t)n, "%sdid not converge in the %s (%.40s)", n ? "; " : "", sides[i][2],
                          hr_word(row, sides[i][1]));
    return out;
}

static void put_row(FILE *f, const json_t *row) {
    const char *outcome = hr_word(row, "outcome"), *reason = hr_word(row, "reason");
    const double ms = hr_num(row, "b_median");
    char body[900];
    details(row, body, sizeof body);
    fputs("    <testcase", f);
    put_class(f, row);
    put_attribute(f, "name", hr_word(row, "name"));
    fprintf(f, " time=\"%.9f\"", ms >= 0 && ms < 1e12 ? ms / 1e3 : 0.0);
    char doubt[200];
    unsettled(row, doubt, sizeof doubt);
    if (!strcmp(outcome, "passed") && !*doubt) {
        fputs("/>\n", f);
        return;
    }
    fputs(">\n", f);
    if (!strcmp(outcome, "red"))
        put_result(f, "failure", "slower", reason, body);
    else if (!strcmp(outcome, "failed"))
        put_result(f, "error", "failed", reason, "");
    else if (!strcmp(outcome, "inconclusive") || !strcmp(outcome, "apart"))
        put_result(f, "skipped", "", reason, "");
    const bool said = !strcmp(outcome, "passed") || !strcmp(outcome, "allowed");
    if (*doubt || (said && *reason)) {
        fputs("      <system-out>", f);
        if (said) put_text(f, reason, false);
        if (said && *reason && *doubt) fputs("; ", f);
        put_text(f, doubt, false), fputs("</system-out>\n", f);
    }
    fputs("    </testcase>\n", f);
}

static void put_alone(FILE *f, const json_t *cell, const char *side) {
    const char *why = hr_word(cell, "why");
    fputs("    <testcase", f);
    put_class(f, cell);
    fputs(" name=\"", f);
    put_text(f, *hr_word(cell, "test") ? hr_word(cell, "test") : "cell", true);
    fprintf(f, " in the %s alone (%.12s)\" time=\"0\">\n", side, hr_word(cell, "cell_id"));
    if (!strcmp(hr_word(cell, "status"), "failed"))
        put_result(f, "error", "failed", why, "");
    else
        put_result(f, "skipped", "", *why ? why : "no partner", "");
    fputs("    </testcase>\n", f);
}

static void put_alone_all(FILE *f, const json_t *cells, const char *side) {
    size_t i;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) put_alone(f, cell, side);
}

static void put_property(FILE *f, const char *name, const char *value) {
    if (!*value) return;
    fputs("      <property", f);
    put_attribute(f, "name", name);
    put_attribute(f, "value", value);
    fputs("/>\n", f);
}

static size_t alone_by(const json_t *cells, bool failed) {
    size_t i, n = 0;
    json_t *cell;
    json_array_foreach((json_t *)cells, i, cell) n += failed == !strcmp(hr_word(cell, "status"), "failed");
    return n;
}

hr_status hr_gate_junit(FILE *stream, const json_t *verdict) {
    const json_t *rows = json_object_get(verdict, "cells"), *counts = json_object_get(verdict, "counts");
    const json_t *a = json_object_get(verdict, "unmatched_a"), *b = json_object_get(verdict, "unmatched_b");
    const size_t tests = json_array_size(rows) + json_array_size(a) + json_array_size(b);
    const size_t red = (size_t)fmax(0, hr_num(counts, "red")), failed = (size_t)fmax(0, hr_num(counts, "failed"));
    const size_t skipped = (size_t)fmax(0, hr_num(counts, "inconclusive") + hr_num(counts, "apart")) +
                           alone_by(a, false) + alone_by(b, false);
    size_t i;
    json_t *row;
    fprintf(stream,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites name=\"headroom gate\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n"
            "  <testsuite name=\"headroom gate\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" "
            "time=\"0\">\n"
            "    <properties>\n",
            tests, red, failed, tests, red, failed, skipped);
    put_property(stream, "verdict", hr_word(verdict, "verdict"));
    put_property(stream, "baseline", hr_word(verdict, "baseline"));
    put_property(stream, "candidate", hr_word(verdict, "candidate"));
    put_property(stream, "baseline commit", hr_word(json_object_get(verdict, "a"), "build_commit"));
    put_property(stream, "candidate commit", hr_word(json_object_get(verdict, "b"), "build_commit"));
    fputs("    </properties>\n", stream);
    json_array_foreach((json_t *)rows, i, row) put_row(stream, row);
    put_alone_all(stream, a, "baseline");
    put_alone_all(stream, b, "candidate");
    fputs("  </testsuite>\n</testsuites>\n", stream);
    return hr_stream_flush(stream);
}
