/* Fuzz target: files of results. Byte 0 chooses the format, or none. What is taken has whole cells: every key, a name, a
 * status, finite numbers, samples that are times; and it can be stored as JSON. */
#include "harness/exchange/exchange.h"
#include "harness/formats/cell_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void require(bool holds) {
    if (!holds) abort();
}

static void check_numbers(const json_t *value) {
    const char *key;
    json_t *inner;
    size_t i;
    require(!json_is_real(value) || isfinite(json_real_value(value)));
    json_object_foreach((json_t *)value, key, inner) check_numbers(inner);
    json_array_foreach((json_t *)value, i, inner) check_numbers(inner);
}

static void check_cell(const json_t *cell) {
    static const char *const keys[] = {
#define X(key, kind) #key,
        HR_CELL_KEYS(X)
#undef X
    };
    const char *status = json_string_value(json_object_get(cell, "status"));
    const char *id = json_string_value(json_object_get(cell, "cell_id"));
    const json_t *samples = json_object_get(cell, "samples_ns"), *sample;
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++) require(json_object_get(cell, keys[i]) != NULL);
    require(json_object_size(cell) == sizeof keys / sizeof *keys);
    require(id && *id && status && (!strcmp(status, "ok") || !strcmp(status, "failed") || !strcmp(status, "skipped")));
    json_array_foreach((json_t *)samples, i, sample) require(json_number_value(sample) >= 0);
    check_numbers(cell);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    if (size == 0) return 0;
    const char *const *formats = hr_exchange_formats(true);
    size_t n = 0, i;
    json_t *cell, *text;
    hr_imported imported;
    while (formats[n]) n++;
    const char *format = data[0] % (n + 1) == n ? NULL : formats[data[0] % (n + 1)];
    if (hr_import_parse((const char *)data + 1, size - 1, "fuzz", format, &imported) != HR_OK) return 0;
    require(json_array_size(imported.cells) > 0 && json_is_object(imported.run) && json_is_object(imported.machine));
    json_array_foreach(imported.cells, i, cell) check_cell(cell);
    json_array_foreach(imported.unmapped, i, text) require(json_is_string(text));
    hr_imported_fini(&imported);
    return 0;
}
