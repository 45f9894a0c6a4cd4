/* Cells, one after another, in any format; and names of formats. */
#include "harness/formats/formats_internal.h"
#include "kernels/base/memory.h"

#include <string.h>

static const char *const names[HR_FORMAT_COUNT] = {"table", "md", "csv", "json", "jsonl", "sql"};

const char *hr_format_name(hr_format format) {
    return (unsigned)format < HR_FORMAT_COUNT ? names[format] : "?";
}

struct hr_cell_writer {
    hr_format format;
    FILE *stream;
    size_t n;      /* cells put */
    unsigned used; /* words of the legend */
};

static void put_header(hr_cell_writer *w) {
    static const char *const types[] = {
        [HR_COLUMN_TEXT] = "TEXT", [HR_COLUMN_INT] = "INTEGER", [HR_COLUMN_REAL] = "REAL"};
    size_t n;
    const char *const *columns = hr_cell_columns(&n);
    switch (w->format) {
    case HR_FORMAT_TABLE:
        hr_table_row(w->stream, hr_short_headings, hr_short_widths, HR_SHORT_COLUMNS);
        break;
    case HR_FORMAT_MD:
        hr_md_row(w->stream, hr_short_headings, HR_SHORT_COLUMNS);
        hr_md_rule(w->stream, hr_short_widths, HR_SHORT_COLUMNS);
        break;
    case HR_FORMAT_CSV:
        for (size_t i = 0; i < n; i++) hr_csv_field(w->stream, columns[i], i == 0);
        hr_csv_end(w->stream);
        break;
    case HR_FORMAT_SQL:
        fputs("CREATE TABLE IF NOT EXISTS cell (", w->stream);
        for (size_t i = 0; i < n; i++)
            fprintf(w->stream, "%s%s %s", i ? ", " : "", columns[i], types[hr_cell_column_type(i)]);
        fputs(");\n", w->stream);
        break;
    case HR_FORMAT_JSON:
        putc('[', w->stream);
        break;
    default:
        break;
    }
}

hr_status hr_cell_writer_create(hr_format format, FILE *stream, hr_cell_writer **out) {
    hr_cell_writer *w = hr_calloc(1, sizeof *w);
    if (!w) HR_FAIL(HR_ERR_MEMORY, "out of memory for the writer of results");
    w->format = format, w->stream = stream;
    put_header(w);
    hr_status status = hr_stream_flush(stream);
    if (status != HR_OK) {
        hr_free(w);
        return status;
    }
    *out = w;
    return HR_OK;
}

/* A name too long for its column keeps both ends, by which files of one model differ. */
static void cut_middle(char *text, int width) {
    const int n = hr_text_width(text), tail = width / 2, head = width - 1 - tail;
    char cut[2 * HR_SHORT_BYTES + 4];
    if (n <= width) return;
    const char *end = text, *rest = text;
    for (int i = 0; i < head; i++) end = hr_text_next(end);
    for (int i = 0; i < n - tail; i++) rest = hr_text_next(rest);
    snprintf(cut, sizeof cut, "%.*s…%s", (int)(end - text), text, rest);
    snprintf(text, HR_SHORT_BYTES, "%.*s", HR_SHORT_BYTES - 1, cut);
}

static void put_short(hr_cell_writer *w, const json_t *cell) {
    char texts[HR_SHORT_COLUMNS][HR_SHORT_BYTES];
    const char *row[HR_SHORT_COLUMNS];
    hr_short_cell(cell, texts, &w->used);
    if (w->format == HR_FORMAT_TABLE) cut_middle(texts[1], -hr_short_widths[1]);
    for (int i = 0; i < HR_SHORT_COLUMNS; i++) row[i] = texts[i];
    if (w->format == HR_FORMAT_TABLE)
        hr_table_row(w->stream, row, hr_short_widths, HR_SHORT_COLUMNS);
    else
        hr_md_row(w->stream, row, HR_SHORT_COLUMNS);
}

static void put_sql(hr_cell_writer *w, const json_t *cell) {
    size_t n;
    const char *const *columns = hr_cell_columns(&n);
    fputs("INSERT INTO cell (", w->stream);
    for (size_t i = 0; i < n; i++) fprintf(w->stream, "%s%s", i ? ", " : "", columns[i]);
    fputs(") VALUES (", w->stream);
    for (size_t i = 0; i < n; i++) {
        const char *text = hr_cell_column_text(cell, i);
        if (i) fputs(", ", w->stream);
        if (hr_cell_column_type(i) == HR_COLUMN_TEXT || !*text)
            hr_sql_text(w->stream, text);
        else
            fputs(text, w->stream);
    }
    fputs(");\n", w->stream);
}

hr_status hr_cell_writer_put(hr_cell_writer *w, const json_t *cell) {
    size_t n;
    switch (w->format) {
    case HR_FORMAT_CSV:
        hr_cell_columns(&n);
        for (size_t i = 0; i < n; i++) hr_csv_field(w->stream, hr_cell_column_text(cell, i), i == 0);
        hr_csv_end(w->stream);
        break;
    case HR_FORMAT_JSON:
    case HR_FORMAT_JSONL:
        if (w->format == HR_FORMAT_JSON) fputs(w->n ? ",\n" : "\n", w->stream);
        hr_json_inline(w->stream, cell);
        if (w->format == HR_FORMAT_JSONL) putc('\n', w->stream);
        break;
    case HR_FORMAT_SQL:
        put_sql(w, cell);
        break;
    default:
        put_short(w, cell);
    }
    w->n++;
    return hr_stream_flush(w->stream);
}

hr_status hr_cell_writer_end(hr_cell_writer *w) {
    if (!w) return HR_OK;
    FILE *stream = w->stream;
    if (w->format == HR_FORMAT_JSON) fputs(w->n ? "\n]\n" : "]\n", stream);
    if (w->format == HR_FORMAT_MD && w->used) putc('\n', stream);
    if (w->format == HR_FORMAT_TABLE || w->format == HR_FORMAT_MD)
        hr_short_legend(stream, w->format == HR_FORMAT_MD ? "- " : "", w->used);
    hr_free(w);
    return hr_stream_flush(stream);
}
