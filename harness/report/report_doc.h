/* report_doc.h - one description, two documents: HTML and Markdown are written side by side, so they cannot differ.
 *
 * All text is data: it is escaped for both, control characters become spaces. Nothing fails here; the caller asks the
 * streams when all is written. */
#ifndef HR_REPORT_DOC_H
#define HR_REPORT_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct hr_doc {
    FILE *html, *md;
    const char *const *headings; /* of the table that is being written */
    size_t column;               /* in its row */
} hr_doc;

#define HR_DOC_PRINTF(f, a) __attribute__((format(printf, f, a)))

void hr_doc_begin(hr_doc *doc, const char *title);
void hr_doc_end(hr_doc *doc);
void hr_doc_heading(hr_doc *doc, int level, const char *text); /* level 2 also lands in links: id is its text */
void hr_doc_para(hr_doc *doc, const char *format, ...) HR_DOC_PRINTF(2, 3);
void hr_doc_lead(hr_doc *doc, const char *format, ...) HR_DOC_PRINTF(2, 3); /* larger: the verdict */
void hr_doc_list(hr_doc *doc, bool begin);
void hr_doc_item(hr_doc *doc, const char *strong, const char *format, ...) HR_DOC_PRINTF(3, 4);
/* headings: NULL-ended; one that begins with '>' is of a column of numbers. */
void hr_doc_table(hr_doc *doc, const char *const *headings);
void hr_doc_cell(hr_doc *doc, const char *format, ...) HR_DOC_PRINTF(2, 3);
void hr_doc_row_end(hr_doc *doc);
void hr_doc_table_end(hr_doc *doc);
void hr_doc_code(hr_doc *doc, bool begin); /* a block of commands */
void hr_doc_code_line(hr_doc *doc, const char *text);
/* svg: text of the picture, or NULL when it was not drawn. name: of plots/NAME.svg. */
void hr_doc_figure(hr_doc *doc, const char *name, const char *title, const char *caption, const char *svg);
/* The same in HTML alone, without heading and links: of a page that stands alone. */
void hr_doc_picture(hr_doc *doc, const char *name, const char *title, const char *caption, const char *svg);

#endif
