/* Aligned tables for terminals and pipe tables for Markdown. */
#include "harness/formats/formats_internal.h"

#include <string.h>

int hr_text_width(const char *text) {
    int n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

const char *hr_text_next(const char *text) {
    if (*text) text++;
    while (((unsigned char)*text & 0xc0) == 0x80) text++;
    return text;
}

/* Line ends and other control characters would break the row. */
static void put_plain(FILE *stream, const char *text) {
    for (; *text; text++) putc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, stream);
}

void hr_table_row(FILE *stream, const char *const *texts, const int *widths, size_t n) {
    while (n && !texts[n - 1][0]) n--; /* no spaces at the end of a line */
    for (size_t i = 0; i < n; i++) {
        int width = widths[i] < 0 ? -widths[i] : widths[i], space = width - hr_text_width(texts[i]);
        if (i) putc(' ', stream);
        if (space > 0 && widths[i] > 0) fprintf(stream, "%*s", space, "");
        put_plain(stream, texts[i]);
        if (space > 0 && widths[i] < 0 && i + 1 < n) fprintf(stream, "%*s", space, "");
    }
    putc('\n', stream);
}

void hr_md_row(FILE *stream, const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fputs(i ? " | " : "| ", stream);
        for (const char *c = texts[i]; *c; c++) {
            if (*c == '|') putc('\\', stream);
            putc((unsigned char)*c < 0x20 ? ' ' : *c, stream);
        }
    }
    fputs(" |\n", stream);
}

void hr_md_rule(FILE *stream, const int *widths, size_t n) {
    for (size_t i = 0; i < n; i++) fputs(widths[i] < 0 ? "|---" : "|---:", stream);
    fputs("|\n", stream);
}

void hr_wrapped(FILE *stream, const char *text, int indent, int page) {
    int at = indent;
    for (bool first = true; *text; first = false) {
        const int n = (int)strcspn(text, " "), width = n;
        if (!first && at + 1 + width > page) {
            fprintf(stream, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            fputc(' ', stream), at++;
        }
        fprintf(stream, "%.*s", n, text);
        at += width, text += n;
        while (*text == ' ') text++;
    }
    fputc('\n', stream);
}
