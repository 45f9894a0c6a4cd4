/* Fuzz target: tables of profilers. Byte 0 chooses the tool. What is taken has rows with names and finite numbers; the
 * reader of CSV itself must read back what it is given in quotes. */
#include "harness/formats/csv_read.h"
#include "harness/profilers/profilers.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_rows(const json_t *rows, bool timed) {
    size_t i;
    json_t *row, *value;
    const char *key;
    require(json_array_size(rows) > 0);
    json_array_foreach((json_t *)rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        require(name && *name);
        require(json_integer_value(json_object_get(row, "n")) >= 1);
        require(!timed || json_is_number(json_object_get(row, "total_ns")));
        json_object_foreach(row, key, value) require(!json_is_real(value) || isfinite(json_real_value(value)));
    }
}

/* Any bytes but NUL, as one quoted field between two others. */
static void check_quotes(const char *text, size_t n) {
    char *record = hr_malloc(2 * n + 16), *at = record;
    require(record != NULL);
    memcpy(at, "a,\"", 3), at += 3;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"') *at++ = '"';
        *at++ = text[i];
    }
    memcpy(at, "\",b\r\n", 5), at += 5;
    hr_csv csv;
    hr_csv_init(&csv, record, (size_t)(at - record));
    require(hr_csv_next(&csv) == HR_OK && csv.n_fields == 3 && csv.ended);
    require(strlen(csv.fields[1]) == n && !memcmp(csv.fields[1], text, n));
    require(!strcmp(csv.fields[0], "a") && !strcmp(csv.fields[2], "b"));
    require(hr_csv_next(&csv) == HR_OK && csv.n_fields == 0);
    hr_csv_fini(&csv);
    hr_free(record);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    const size_t n = size - 1;
    json_t *rows;
    const bool nsys = data[0] & 1;
    if ((nsys ? hr_nsys_csv_parse : hr_ncu_csv_parse)(text, n, "fuzz.csv", &rows) == HR_OK) {
        check_rows(rows, nsys);
        json_decref(rows);
    }
    if (n && n < 4096 && !memchr(text, 0, n)) check_quotes(text, n);
    return 0;
}
