/* Any array of flat objects in any format. */
#include "harness/formats/formats_internal.h"
#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 64 };

typedef struct view {
    const json_t *rows;
    size_t n_rows, n_keys;
    char keys[MOST_KEYS][64];     /* without the unit */
    char headings[MOST_KEYS][96]; /* "median (GB/s)" */
    hr_column_type types[MOST_KEYS];
    double scales[MOST_KEYS]; /* of numbers in tables; 0: as they are */
} view;

enum { ID_SHOWN = 12 }; /* digits of an id in a table; the lookups take ids cut short */

/* "median|GB/s" heads "median (GB/s)"; "mbu|=MBU %|100" says the heading itself, and a factor. */
static void set_heading(view *v, size_t j, const char *spec) {
    const size_t length = strcspn(spec, "|");
    const char *unit = spec[length] ? spec + length + 1 : NULL;
    snprintf(v->keys[j], sizeof v->keys[j], "%.*s", (int)length, spec);
    if (unit && *unit == '=') {
        const size_t n = strcspn(unit, "|");
        snprintf(v->headings[j], sizeof v->headings[j], "%.*s", (int)n - 1, unit + 1);
        if (unit[n]) v->scales[j] = strtod(unit + n + 1, NULL);
        return;
    }
    snprintf(v->headings[j], sizeof v->headings[j], unit ? "%.*s (%.24s)" : "%.*s", (int)length, spec, unit);
}

static char *table_text(const view *v, size_t j, const json_t *value) {
    if (v->scales[j] != 0 && json_is_number(value)) {
        char text[40];
        hr_short_text(json_number_value(value) * v->scales[j], text, sizeof text);
        return hr_strdup(text);
    }
    char *text = hr_value_short(value);
    const bool id = !strcmp(v->keys[j], "cell_id") || !strcmp(v->keys[j], "run_id");
    if (text && id && strlen(text) > ID_SHOWN) text[ID_SHOWN] = 0;
    return text;
}

static hr_status view_init(view *v, const json_t *rows, const char *const *keys) {
    memset(v, 0, sizeof *v);
    v->rows = rows, v->n_rows = json_array_size(rows);
    for (; *keys; keys++) {
        if (v->n_keys == MOST_KEYS) HR_FAIL(HR_ERR_INTERNAL, "a result has more than %d columns", MOST_KEYS);
        size_t j = v->n_keys++;
        set_heading(v, j, *keys);
        /* A column is a number when all of its values are, or null. */
        bool any = false, text = false, real = false;
        for (size_t i = 0; i < v->n_rows; i++) {
            const json_t *value = json_object_get(json_array_get(rows, i), v->keys[j]);
            if (!value || json_is_null(value)) continue;
            any = true;
            text = text || !json_is_number(value);
            real = real || json_is_real(value);
        }
        v->types[j] = !any || text ? HR_COLUMN_TEXT : real ? HR_COLUMN_REAL : HR_COLUMN_INT;
    }
    return HR_OK;
}

static const json_t *at(const view *v, size_t row, size_t key) {
    return json_object_get(json_array_get(v->rows, row), v->keys[key]);
}

static hr_status write_csv(const view *v, FILE *stream) {
    for (size_t j = 0; j < v->n_keys; j++) hr_csv_field(stream, v->keys[j], j == 0);
    hr_csv_end(stream);
    for (size_t i = 0; i < v->n_rows; i++) {
        for (size_t j = 0; j < v->n_keys; j++) {
            char *text = hr_value_text(at(v, i, j));
            if (!text) HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the results");
            hr_csv_field(stream, text, j == 0);
            hr_free(text);
        }
        hr_csv_end(stream);
    }
    return HR_OK;
}

static hr_status write_sql(const view *v, FILE *stream) {
    static const char *const types[] = {
        [HR_COLUMN_TEXT] = "TEXT", [HR_COLUMN_INT] = "INTEGER", [HR_COLUMN_REAL] = "REAL"};
    fputs("CREATE TABLE IF NOT EXISTS result (", stream);
    for (size_t j = 0; j < v->n_keys; j++) {
        if (j) fputs(", ", stream);
        hr_sql_name(stream, v->keys[j]);
        fprintf(stream, " %s", types[v->types[j]]);
    }
    fputs(");\n", stream);
    for (size_t i = 0; i < v->n_rows; i++) {
        fputs("INSERT INTO result (", stream);
        for (size_t j = 0; j < v->n_keys; j++) {
            if (j) fputs(", ", stream);
            hr_sql_name(stream, v->keys[j]);
        }
        fputs(") VALUES (", stream);
        for (size_t j = 0; j < v->n_keys; j++) {
            char *text = hr_value_text(at(v, i, j));
            if (!text) HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the results");
            if (j) fputs(", ", stream);
            if (v->types[j] == HR_COLUMN_TEXT || !*text)
                hr_sql_text(stream, text);
            else
                fputs(text, stream);
            hr_free(text);
        }
        fputs(");\n", stream);
    }
    return HR_OK;
}

static void free_texts(char **texts, size_t n) {
    for (size_t i = 0; texts && i < n; i++) hr_free(texts[i]);
    hr_free(texts);
}

static hr_status write_table(const view *v, FILE *stream, bool md) {
    const char *row[MOST_KEYS];
    int widths[MOST_KEYS];
    char **texts = hr_calloc(v->n_rows * v->n_keys + 1, sizeof *texts);
    bool whole = texts != NULL;
    for (size_t j = 0; whole && j < v->n_keys; j++) {
        int width = hr_text_width(v->headings[j]);
        for (size_t i = 0; whole && i < v->n_rows; i++) {
            char *text = texts[i * v->n_keys + j] = table_text(v, j, at(v, i, j));
            whole = text != NULL;
            if (whole && hr_text_width(text) > width) width = hr_text_width(text);
        }
        widths[j] = v->types[j] == HR_COLUMN_TEXT ? -(width + 1) : width + 1;
    }
    if (!whole) {
        free_texts(texts, v->n_rows * v->n_keys);
        HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the results");
    }
    for (size_t j = 0; j < v->n_keys; j++) row[j] = v->headings[j];
    if (md) {
        hr_md_row(stream, row, v->n_keys);
        hr_md_rule(stream, widths, v->n_keys);
    } else {
        hr_table_row(stream, row, widths, v->n_keys);
    }
    for (size_t i = 0; i < v->n_rows; i++) {
        for (size_t j = 0; j < v->n_keys; j++) row[j] = texts[i * v->n_keys + j];
        if (md)
            hr_md_row(stream, row, v->n_keys);
        else
            hr_table_row(stream, row, widths, v->n_keys);
    }
    free_texts(texts, v->n_rows * v->n_keys);
    return HR_OK;
}

static void write_lines(const json_t *rows, FILE *stream) {
    size_t i;
    json_t *row;
    json_array_foreach((json_t *)rows, i, row) {
        hr_json_inline(stream, row);
        putc('\n', stream);
    }
}

hr_status hr_rows_write(hr_format format, FILE *stream, const json_t *rows, const char *const *keys) {
    view v;
    if (format == HR_FORMAT_JSON) return hr_json_write(stream, rows);
    HR_TRY(view_init(&v, rows, keys));
    switch (format) {
    case HR_FORMAT_JSONL:
        write_lines(rows, stream);
        break;
    case HR_FORMAT_CSV:
        HR_TRY(write_csv(&v, stream));
        break;
    case HR_FORMAT_SQL:
        HR_TRY(write_sql(&v, stream));
        break;
    default:
        HR_TRY(write_table(&v, stream, format == HR_FORMAT_MD));
    }
    return hr_stream_flush(stream);
}
