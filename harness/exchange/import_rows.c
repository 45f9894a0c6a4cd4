/* From a file's text to rows: one JSON array, one object a line, CSV with a header, or the object that Google Benchmark
 * writes. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/csv_read.h"
#include "kernels/base/memory.h"

#include <stdarg.h>
#include <string.h>

hr_status hr_import_fail(const hr_import *im, size_t row, const char *format, ...) {
    char text[700];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    HR_FAIL(HR_ERR_INPUT, "%.200s: %s %zu: %s", im->name, im->place, row < im->n_at ? im->at[row] : row + 1, text);
}

static hr_status no_memory(const hr_import *im) {
    HR_FAIL(HR_ERR_MEMORY, "%.200s: out of memory", im->name);
}

/* Takes the row; at: its number. */
static hr_status add_row(hr_import *im, json_t *row, size_t at) {
    const size_t n = json_array_size(im->rows);
    if (n >= im->n_at) {
        const size_t more = im->n_at ? 2 * im->n_at : 64;
        size_t *grown = hr_realloc(im->at, hr_mul(more, sizeof *grown));
        if (!grown) {
            json_decref(row);
            return no_memory(im);
        }
        im->at = grown, im->n_at = more;
    }
    im->at[n] = at;
    return json_array_append_new(im->rows, row) == 0 ? HR_OK : no_memory(im);
}

static hr_status bad_json(const hr_import *im, const json_error_t *error, size_t line) {
    const char *cut = json_error_code(error) == json_error_premature_end_of_input ? " (the file was cut)" : "";
    if (json_error_code(error) == json_error_out_of_memory) return no_memory(im);
    HR_FAIL(HR_ERR_INPUT, "%.200s: line %zu: no JSON: %s%s", im->name, line ? line : (size_t)error->line, error->text,
            cut);
}

static hr_status rows_of_array(hr_import *im, const json_t *list) {
    size_t i;
    json_t *row;
    im->place = "row";
    json_array_foreach((json_t *)list, i, row) {
        if (!json_is_object(row)) HR_FAIL(HR_ERR_INPUT, "%.200s: row %zu is no object", im->name, i + 1);
        HR_TRY(add_row(im, json_incref(row), i + 1));
    }
    return HR_OK;
}

static hr_status rows_of_whole(hr_import *im, const char *text, size_t n) {
    json_error_t error;
    json_t *whole = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!whole) return bad_json(im, &error, 0);
    const json_t *benchmarks = json_object_get(whole, "benchmarks");
    hr_status status;
    if (json_is_array(benchmarks)) {
        json_t *context = json_object_get(whole, "context");
        im->tool = HR_TOOL_GOOGLE;
        im->context = json_is_object(context) ? json_incref(context) : json_object();
        status = rows_of_array(im, benchmarks);
    } else if (json_is_object(whole)) {
        status = add_row(im, json_incref(whole), 1);
    } else {
        status = rows_of_array(im, whole);
    }
    json_decref(whole);
    return status;
}

static bool blank(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", text[i])) return false;
    return true;
}

static hr_status rows_of_lines(hr_import *im, const char *text, size_t n) {
    im->place = "line";
    for (size_t at = 0, line = 1; at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - text) - at : n - at;
        if (!blank(text + at, length)) {
            json_error_t error;
            json_t *row = json_loadb(text + at, length, JSON_REJECT_DUPLICATES, &error);
            if (!row) return bad_json(im, &error, line);
            if (!json_is_object(row)) {
                json_decref(row);
                HR_FAIL(HR_ERR_INPUT, "%.200s: line %zu is no object", im->name, line);
            }
            HR_TRY(add_row(im, row, line));
        }
        at += length + 1;
    }
    return HR_OK;
}

/* ---- CSV ---- */

static hr_status row_of_record(hr_import *im, const hr_csv *csv, const json_t *header) {
    const size_t n = json_array_size(header);
    if (!csv->ended) HR_FAIL(HR_ERR_INPUT, "%.200s: line %zu has no line end: the file was cut", im->name, csv->line);
    if (csv->n_fields != n)
        HR_FAIL(HR_ERR_INPUT, "%.200s: line %zu has %zu fields, the header has %zu", im->name, csv->line, csv->n_fields,
                n);
    json_t *row = json_object();
    for (size_t i = 0; row && i < n; i++) {
        const char *key = json_string_value(json_array_get(header, i));
        if (json_object_set_new(row, key, json_string(csv->fields[i])) == 0) continue;
        json_decref(row);
        HR_FAIL(HR_ERR_INPUT, "%.200s: line %zu: %.60s is no UTF-8", im->name, csv->line, key);
    }
    return row ? add_row(im, row, csv->line) : no_memory(im);
}

static hr_status header_of(const hr_import *im, const hr_csv *csv, json_t *header) {
    json_t *seen = json_object();
    hr_status status = HR_OK;
    for (size_t i = 0; i < csv->n_fields && status == HR_OK; i++) {
        if (json_object_get(seen, csv->fields[i]))
            status = hr_fail(HR_ERR_INPUT, "%.200s: line 1: two columns are named %.60s", im->name, csv->fields[i]);
        else if (json_object_set_new(seen, csv->fields[i], json_true()) ||
                 json_array_append_new(header, json_string(csv->fields[i])))
            status = hr_fail(HR_ERR_INPUT, "%.200s: line 1: a name of a column is no UTF-8", im->name);
    }
    json_decref(seen);
    return status;
}

static hr_status next(const hr_import *im, hr_csv *csv) {
    const hr_status status = hr_csv_next(csv);
    char name[208];
    snprintf(name, sizeof name, "%.200s", im->name);
    return status == HR_OK ? HR_OK : hr_fail_prefix(status, name);
}

static hr_status rows_of_csv(hr_import *im, const char *text, size_t n) {
    hr_csv csv;
    json_t *header = json_array();
    hr_csv_init(&csv, text, n);
    im->place = "line";
    hr_status status = header ? next(im, &csv) : no_memory(im);
    if (status == HR_OK) status = header_of(im, &csv, header);
    while (status == HR_OK && (status = next(im, &csv)) == HR_OK) {
        if (csv.n_fields == 0) break;
        if (csv.n_fields == 1 && !*csv.fields[0]) continue; /* an empty line */
        status = row_of_record(im, &csv, header);
    }
    hr_csv_fini(&csv);
    json_decref(header);
    return status;
}

hr_status hr_import_read_rows(hr_import *im, const char *text, size_t n) {
    json_error_t error;
    if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, n -= 3;
    size_t start = 0;
    while (start < n && strchr(" \t\r\n", text[start]) && text[start]) start++;
    if (start == n) HR_FAIL(HR_ERR_INPUT, "%.200s is empty", im->name);
    im->place = "row";
    if (im->container == HR_CONTAINER_ANY) {
        im->container = text[start] == '[' ? HR_CONTAINER_JSON : HR_CONTAINER_CSV;
        if (text[start] == '{') {
            const char *end = memchr(text + start, '\n', n - start);
            json_t *first = end ? json_loadb(text + start, (size_t)(end - text) - start, 0, &error) : NULL;
            im->container = first && !json_object_get(first, "benchmarks") ? HR_CONTAINER_JSONL : HR_CONTAINER_JSON;
            json_decref(first);
        }
    }
    switch (im->container) {
    case HR_CONTAINER_JSONL:
        HR_TRY(rows_of_lines(im, text, n));
        break;
    case HR_CONTAINER_CSV:
        HR_TRY(rows_of_csv(im, text, n));
        break;
    default:
        HR_TRY(rows_of_whole(im, text, n));
    }
    if (!json_array_size(im->rows)) HR_FAIL(HR_ERR_INPUT, "%.200s holds no rows", im->name);
    return HR_OK;
}
