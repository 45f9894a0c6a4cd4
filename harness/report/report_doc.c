#include "harness/report/report_doc.h"

#include "harness/report/report_label.h"

#include <stdarg.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* Writes text; escape gives what stands for a byte of ASCII, or NULL for itself. */
static void escaped(FILE *f, const char *text, const char *(*escape)(char c)) {
    while (*text) {
        const size_t n = hr_text_character(text);
        const char *other = n == 1 ? escape(*text) : NULL;
        if (other)
            fputs(other, f);
        else if (n == 1 && ((unsigned char)*text < 32 || *text == 127))
            fputc(' ', f);
        else
            fwrite(text, 1, n, f);
        text += n ? n : 1;
    }
}

static const char *html_escape(char c) {
    return c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : NULL;
}

/* A '<' or '&' becomes an entity, so that no reader of Markdown sees a tag. */
static const char *md_escape(char c) {
    static const char marks[] = "\\`*[]|";
    static const char escapes[][3] = {"\\\\", "\\`", "\\*", "\\[", "\\]", "\\|"};
    if (c == '<' || c == '&') return html_escape(c);
    const char *mark = strchr(marks, c);
    return mark ? escapes[mark - marks] : NULL;
}

static void html_text(FILE *f, const char *text) {
    escaped(f, text, html_escape);
}
static void md_text(FILE *f, const char *text) {
    escaped(f, text, md_escape);
}

enum { MOST = 4096 };
#define FORMAT(buffer, format)                  \
    char buffer[MOST];                          \
    va_list arguments;                          \
    va_start(arguments, format);                \
    vsnprintf(buffer, MOST, format, arguments); \
    va_end(arguments)

/* ---- parts ------------------------------------------------------------------------------------------------------ */

static const char style[] =
    ":root{color-scheme:light}*{box-sizing:border-box}"
    "body{font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif;color:#1c2024;background:#fff;"
    "max-width:62rem;margin:0 auto;padding:1.2rem 1rem 4rem}"
    "h1{font-size:1.7rem;line-height:1.25;margin:.4rem 0 1rem}h2{font-size:1.3rem;margin:2.4rem 0 "
    ".6rem;padding-top:.6rem;"
    "border-top:1px solid #d5d9de}h3{font-size:1.05rem;margin:1.4rem 0 .4rem}"
    "p,li{max-width:46rem}p.lead{font-size:1.15rem;line-height:1.45}li{margin:.25rem 0}"
    ".scroll{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:"
    "tabular-nums}th,td{padding:.28rem .6rem;border-bottom:1px solid #e3e6ea;text-align:left;vertical-align:top;"
    "white-space:nowrap}td.w{white-space:normal;min-width:14rem}th{background:#f3f5f7;position:sticky;top:0}"
    "th.n,td.n{text-align:right}figure{margin:1.2rem 0 1.6rem}figure svg{display:block;width:100%;max-width:58rem;"
    "height:auto}figure svg text,figure svg g{font-family:'DejaVu Sans',Verdana,system-ui,sans-serif}"
    "figcaption{font-size:.9rem;color:#4a525a;max-width:46rem}figcaption b{color:#1c2024}"
    "pre{background:#f3f5f7;padding:.7rem .9rem;overflow-x:auto;font:.85rem/1.45 ui-monospace,'DejaVu Sans Mono',"
    "monospace}a{color:#0059a3}.note{color:#4a525a;font-size:.9rem}"
    "@media print{body{max-width:none;font-size:10pt;padding:0}h2{break-after:avoid}figure,tr{break-inside:avoid}"
    ".scroll{overflow:visible}table{font-size:7pt}th{position:static}th,td{padding:1pt 3pt;white-space:normal}"
    ".wide{page:wide}.wide table{font-size:5.5pt}.wide th,.wide td{padding:1pt "
    "2pt}td.n{white-space:nowrap}pre{white-space:pre-wrap}}"
    "@page{margin:12mm}@page wide{size:A4 landscape;margin:8mm}"
    "@media (max-width:30rem){body{padding:.8rem .7rem 3rem}h1{font-size:1.35rem}p.lead{font-size:1.05rem}"
    "figure .scroll svg{min-width:34rem}}";

void hr_doc_begin(hr_doc *doc, const char *title) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          doc->html);
    html_text(doc->html, title);
    fprintf(doc->html, "</title>\n<style>%s</style>\n</head>\n<body>\n<h1>", style);
    html_text(doc->html, title);
    fputs("</h1>\n", doc->html);
    fputs("# ", doc->md);
    md_text(doc->md, title);
    fputs("\n", doc->md);
}

void hr_doc_end(hr_doc *doc) {
    fputs("</body>\n</html>\n", doc->html);
}

void hr_doc_heading(hr_doc *doc, int level, const char *text) {
    fprintf(doc->html, "<h%d>", level);
    html_text(doc->html, text);
    fprintf(doc->html, "</h%d>\n", level);
    fprintf(doc->md, "\n%.*s ", level, "######");
    md_text(doc->md, text);
    fputs("\n", doc->md);
}

static void paragraph(hr_doc *doc, const char *open, const char *text) {
    fputs(open, doc->html);
    html_text(doc->html, text);
    fputs("</p>\n", doc->html);
    fputs("\n", doc->md);
    md_text(doc->md, text);
    fputs("\n", doc->md);
}

void hr_doc_para(hr_doc *doc, const char *format, ...) {
    FORMAT(text, format);
    paragraph(doc, "<p>", text);
}

void hr_doc_lead(hr_doc *doc, const char *format, ...) {
    FORMAT(text, format);
    paragraph(doc, "<p class=\"lead\">", text);
}

void hr_doc_list(hr_doc *doc, bool begin) {
    fputs(begin ? "<ul>\n" : "</ul>\n", doc->html);
    if (begin) fputs("\n", doc->md);
}

void hr_doc_item(hr_doc *doc, const char *strong, const char *format, ...) {
    FORMAT(text, format);
    fputs("<li>", doc->html);
    fputs("- ", doc->md);
    if (strong && *strong) {
        fputs("<b>", doc->html);
        html_text(doc->html, strong);
        fputs("</b> ", doc->html);
        fputs("**", doc->md);
        md_text(doc->md, strong);
        fputs("** ", doc->md);
    }
    html_text(doc->html, text);
    fputs("</li>\n", doc->html);
    md_text(doc->md, text);
    fputs("\n", doc->md);
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

void hr_doc_table(hr_doc *doc, const char *const *headings) {
    doc->headings = headings;
    doc->column = 0;
    size_t n = 0;
    while (headings[n]) n++;
    fputs(n > 12 ? "<div class=\"scroll wide\"><table>\n<thead><tr>" : "<div class=\"scroll\"><table>\n<thead><tr>",
          doc->html);
    fputs("\n|", doc->md);
    for (size_t i = 0; headings[i]; i++) {
        const bool number = headings[i][0] == '>';
        fputs(number ? "<th class=\"n\">" : "<th>", doc->html);
        html_text(doc->html, headings[i] + number);
        fputs("</th>", doc->html);
        fputs(" ", doc->md);
        md_text(doc->md, headings[i] + number);
        fputs(" |", doc->md);
    }
    fputs("</tr></thead>\n<tbody>\n", doc->html);
    fputs("\n|", doc->md);
    for (size_t i = 0; headings[i]; i++) fputs(headings[i][0] == '>' ? "---:|" : "---|", doc->md);
    fputs("\n", doc->md);
}

void hr_doc_cell(hr_doc *doc, const char *format, ...) {
    FORMAT(text, format);
    const bool number = doc->headings[doc->column][0] == '>';
    if (!doc->column) fputs("<tr>", doc->html), fputs("|", doc->md);
    fputs(number ? "<td class=\"n\">" : strlen(text) > 48 ? "<td class=\"w\">" : "<td>", doc->html);
    html_text(doc->html, text);
    fputs("</td>", doc->html);
    fputs(" ", doc->md);
    md_text(doc->md, text);
    fputs(" |", doc->md);
    doc->column++;
}

void hr_doc_row_end(hr_doc *doc) {
    fputs("</tr>\n", doc->html);
    fputs("\n", doc->md);
    doc->column = 0;
}

void hr_doc_table_end(hr_doc *doc) {
    fputs("</tbody></table></div>\n", doc->html);
}

void hr_doc_code(hr_doc *doc, bool begin) {
    fputs(begin ? "<pre>" : "</pre>\n", doc->html);
    if (begin) fputs("\n", doc->md);
}

void hr_doc_code_line(hr_doc *doc, const char *text) {
    html_text(doc->html, text);
    fputs("\n", doc->html);
    fputs("    ", doc->md); /* an indented block: no fence to break out of */
    for (; *text; text++) fputc((unsigned char)*text < 32 ? ' ' : *text, doc->md);
    fputs("\n", doc->md);
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

static bool starts(const char *at, const char *word) {
    return !strncmp(at, word, strlen(word));
}

/* The picture without its XML head and namespaces, which HTML does not need, and with ids of its own: several pictures
 * of one page would share theirs. */
static void inline_svg(FILE *f, const char *name, const char *title, const char *svg) {
    static const char *const before_id[] = {" id=\"", " id='", "href='#", "href=\"#", "url(#"};
    static const char *const dropped[][2] = {{"<title>", "</title>"}, {"<desc>", "</desc>"}};
    const char *at = strstr(svg, "<svg");
    if (!at) return;
    fputs("<svg role=\"img\" aria-label=\"", f);
    html_text(f, title);
    fputs("\"", f);
    at += strlen("<svg");
    while (*at) {
        bool drop = false; /* they name the program and its parts, and browsers show them at the pointer */
        for (size_t i = 0; i < 2 && !drop; i++) {
            const char *end = starts(at, dropped[i][0]) ? strstr(at, dropped[i][1]) : NULL;
            if (end) at = end + strlen(dropped[i][1]), drop = true;
        }
        if (drop) continue;
        if (starts(at, "xmlns")) { /* drops name="value" */
            const char *open = strchr(at, '"'), *close = open ? strchr(open + 1, '"') : NULL;
            if (!close) return;
            at = close + 1;
            continue;
        }
        size_t k = 0;
        while (k < sizeof before_id / sizeof *before_id && !starts(at, before_id[k])) k++;
        if (k < sizeof before_id / sizeof *before_id) {
            fprintf(f, "%s%s-", before_id[k], name);
            at += strlen(before_id[k]);
        } else
            fputc(*at++, f);
    }
}

static void picture(hr_doc *doc, const char *name, const char *title, const char *caption, const char *svg) {
    fprintf(doc->html, "<figure id=\"%s\">\n<div class=\"scroll\">", name);
    if (svg)
        inline_svg(doc->html, name, title, svg);
    else
        fputs("<p class=\"note\">Not drawn: gnuplot was missing when the report was written.</p>", doc->html);
    fputs("</div>\n<figcaption>", doc->html);
    html_text(doc->html, caption);
}

void hr_doc_picture(hr_doc *doc, const char *name, const char *title, const char *caption, const char *svg) {
    picture(doc, name, title, caption, svg);
    fputs("</figcaption>\n</figure>\n", doc->html);
}

void hr_doc_figure(hr_doc *doc, const char *name, const char *title, const char *caption, const char *svg) {
    hr_doc_heading(doc, 3, title);
    picture(doc, name, title, caption, svg);
    fprintf(doc->html,
            " <a href=\"data/%s.tsv\">data</a>, <a href=\"plots/%s.gp\">script</a></figcaption>\n</figure>\n", name,
            name);
    if (svg) {
        fputs("\n![", doc->md);
        md_text(doc->md, title);
        fprintf(doc->md, "](plots/%s.svg)\n", name);
    }
    fputs("\n", doc->md);
    md_text(doc->md, caption);
    fprintf(doc->md, " [data](data/%s.tsv), [script](plots/%s.gp)\n", name, name);
}
