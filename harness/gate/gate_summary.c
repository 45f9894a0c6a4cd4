/* What people read of a verdict: a summary in GitHub's Markdown, annotations of a workflow, a line for a chat. */
#include "harness/gate/gate_internal.h"

#include "harness/formats/json_get.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { ANNOTATIONS = 10 }; /* GitHub shows so many of a kind in a step */

static double number(const json_t *verdict, const char *key) {
    const double n = hr_num(json_object_get(verdict, "counts"), key);
    return n > 0 ? n : 0;
}

/* ---- Markdown ----------------------------------------------------------------------------------------------------- */

/* Names of users' files cannot open a tag, a cell of the table, a link or a mention; newlines become blanks. */
static void put_md(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", f);
        else if (*text == '<')
            fputs("&lt;", f);
        else if (*text == '>')
            fputs("&gt;", f);
        else if (*text == '@')
            fputs("&#64;", f);
        else if ((unsigned char)*text < 0x20 || *text == 0x7f)
            fputc(' ', f);
        else if (strchr("\\`*_[]|#~!", *text))
            fputc('\\', f), fputc(*text, f);
        else
            fputc(*text, f);
    }
}

static void put_number(FILE *f, const char *format, double value) {
    if (isfinite(value)) fprintf(f, format, value);
    fputs(" | ", f);
}

static void put_row(FILE *f, const json_t *row) {
    const double lo = hr_num(row, "ci95_lo_pct"), hi = hr_num(row, "ci95_hi_pct");
    fputs("| ", f);
    put_md(f, hr_word(row, "name"));
    fputs(" | ", f);
    put_number(f, "%.4g", hr_num(row, "a_median"));
    put_number(f, "%.4g", hr_num(row, "b_median"));
    put_number(f, "%+.1f", hr_num(row, "shift_pct"));
    if (isfinite(lo) && isfinite(hi)) fprintf(f, "%.1f..%.1f", lo, hi);
    fputs(" | ", f);
    put_md(f, hr_word(row, "verdict"));
    fputs(" | ", f);
    put_md(f, hr_word(row, "outcome"));
    if (json_is_false(json_object_get(row, "converged_a")) || json_is_false(json_object_get(row, "converged_b")))
        fputs(", not converged", f);
    fputs(" |\n", f);
}

static void put_rows(FILE *f, const json_t *rows, const char *outcome) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        if (!strcmp(hr_word(row, "outcome"), outcome)) put_row(f, row);
    }
}

static void put_side(FILE *f, const char *word, const json_t *verdict, const char *text_key, const char *side_key) {
    const json_t *side = json_object_get(verdict, side_key);
    const char *text = hr_word(verdict, text_key), *commit = hr_word(side, "build_commit");
    if (!*text && !*commit) return;
    fprintf(f, " %s ", word);
    put_md(f, *text ? text : commit);
    if (*text && *commit && strcmp(text, commit) != 0) fputs(" (", f), put_md(f, commit), fputs(")", f);
    fputc('.', f);
}

hr_status hr_gate_summary(FILE *f, const json_t *verdict) {
    static const char *const order[] = {"red", "failed", "inconclusive", "allowed", "apart", "passed"};
    const json_t *rows = json_object_get(verdict, "cells");
    size_t i;
    json_t *reason;
    fprintf(f, "### Headroom gate: %s\n\n", hr_word(verdict, "verdict"));
    fprintf(f, "%.0f rows: %.0f red, %.0f failed, %.0f inconclusive, %.0f allowed, %.0f passed",
            number(verdict, "rows"), number(verdict, "red"), number(verdict, "failed"), number(verdict, "inconclusive"),
            number(verdict, "allowed"), number(verdict, "passed"));
    if (number(verdict, "unmatched") > 0) fprintf(f, "; %.0f cells without a partner", number(verdict, "unmatched"));
    fputc('.', f);
    put_side(f, "Baseline", verdict, "baseline", "a");
    put_side(f, "Candidate", verdict, "candidate", "b");
    fputs("\n\n", f);
    json_array_foreach(json_object_get(verdict, "reasons"), i, reason) {
        fputs("- ", f), put_md(f, json_string_value(reason)), fputc('\n', f);
    }
    if (json_array_size(rows)) {
        fputs("\n<details><summary>All rows</summary>\n\n"
              "| cell | baseline (ms) | candidate (ms) | shift (%) | 95 % interval | verdict | outcome |\n"
              "|---|---:|---:|---:|---|---|---|\n",
              f);
        for (size_t k = 0; k < sizeof order / sizeof *order; k++) put_rows(f, rows, order[k]);
        fputs("\nShift: over pairs of runs, or between the shares of the roof of two nights; not the ratio of the two "
              "medians, from which it may differ where times scatter.\n\n</details>\n",
              f);
    }
    return hr_stream_flush(f);
}

/* ---- annotations -------------------------------------------------------------------------------------------------- */

/* A workflow command ends at the line's end; in a property also ':' and ',' have a meaning. */
static void put_command(FILE *f, const char *text, bool property) {
    for (; *text; text++) {
        if (*text == '%' || *text == '\r' || *text == '\n' || (property && (*text == ':' || *text == ',')))
            fprintf(f, "%%%02X", (unsigned char)*text);
        else if ((unsigned char)*text >= 0x20)
            fputc(*text, f);
    }
}

static void put_annotation(FILE *f, const char *level, const char *title, const char *name, const char *message) {
    fprintf(f, "::%s title=", level);
    put_command(f, title, true);
    put_command(f, name, true);
    fputs("::", f);
    put_command(f, message, false);
    fputc('\n', f);
}

void hr_gate_annotations(FILE *f, const json_t *verdict) {
    size_t i, errors = 0;
    json_t *row;
    json_array_foreach(json_object_get(verdict, "cells"), i, row) {
        const bool red = !strcmp(hr_word(row, "outcome"), "red"), failed = !strcmp(hr_word(row, "outcome"), "failed");
        if ((red || failed) && errors++ < ANNOTATIONS)
            put_annotation(f, "error", red ? "slower " : "failed ", hr_word(row, "name"), hr_word(row, "reason"));
    }
    const json_int_t code = json_integer_value(json_object_get(verdict, "exit_code"));
    char *line = errors == 0 && code != 0 ? hr_gate_line(verdict) : NULL;
    if (line) put_annotation(f, code == 3 ? "warning" : "error", "headroom gate", "", line);
    hr_free(line);
}

/* ---- the chat ----------------------------------------------------------------------------------------------------- */

/* "; 2 failed" */
static size_t count(const json_t *verdict, const char *key, char *out, size_t size, size_t used) {
    if (number(verdict, key) > 0 && used < size)
        used += (size_t)snprintf(out + used, size - used, "%s%.0f %s", used ? ", " : "", number(verdict, key), key);
    return used;
}

char *hr_gate_line(const json_t *verdict) {
    static const char *const keys[] = {"red", "failed", "inconclusive", "allowed", "unmatched", "passed"};
    char counts[200] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) used = count(verdict, keys[i], counts, sizeof counts, used);
    const char *word = hr_word(verdict, "verdict");
    const bool quiet = !strcmp(word, "pass");
    const char *first = quiet ? "" : json_string_value(json_array_get(json_object_get(verdict, "reasons"), 0));
    json_t *text = json_sprintf("headroom gate: %s (%s)%s%s", word, used ? counts : "no rows",
                                first && *first ? ": " : "", first ? first : "");
    char *line = text ? hr_strdup(json_string_value(text)) : NULL;
    for (char *c = line; c && *c; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';
    json_decref(text);
    return line;
}
