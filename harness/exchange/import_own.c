/* Rows of our own: what `headroom sweep -o json`, jsonl and csv print, back as they were. CSV holds no samples. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/json_get.h"

#include <string.h>

static hr_status no_memory(void) {
    HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the cells");
}

static hr_status put_json(hr_import *im, size_t row, json_t *cell) {
    const char *key;
    json_t *given;
    hr_kind kind;
    json_object_foreach(json_array_get(im->rows, row), key, given) {
        if (!hr_key_kind(key, &kind)) {
            if (!hr_note(im->notes, "%.60s: no key of a cell: left out", key)) return no_memory();
            continue;
        }
        json_t *value = hr_key_value(kind, given);
        if (!value) return hr_import_fail(im, row, "%.60s is of the wrong kind", key);
        if (json_object_set_new(cell, key, value)) return no_memory();
    }
    return HR_OK;
}

/* "ttft_ms_p50" is p50 of ttft_ms. */
static bool split_column(const char *column, char *key, size_t size, const char **part, hr_kind *kind) {
    for (const char *const *k = hr_key_names(); *k; k++) {
        const size_t n = strlen(*k);
        if (strncmp(*k, column, n) || column[n] != '_' || !hr_key_kind(*k, kind)) continue;
        const char *const *parts = hr_key_parts(*kind);
        for (; parts && *parts; parts++)
            if (!strcmp(*parts, column + n + 1)) {
                snprintf(key, size, "%s", *k);
                *part = *parts;
                return true;
            }
    }
    return false;
}

static hr_kind kind_of_part(hr_kind whole, const char *part) {
    if (whole == HR_KIND_MAP2) return HR_KIND_MAP2;
    return !strcmp(part, "weak") ? HR_KIND_WORDS : !strcmp(part, "n") ? HR_KIND_INT : HR_KIND_REAL;
}

/* Parts without text leave the whole null; the others are null inside it. */
static hr_status put_part(hr_import *im, size_t row, json_t *cell, const char *column, const char *text) {
    char key[64];
    const char *part;
    hr_kind kind;
    if (!split_column(column, key, sizeof key, &part, &kind))
        return hr_note(im->notes, "%.60s: no column of a cell: left out", column) ? HR_OK : no_memory();
    if (!*text) return HR_OK;
    json_t *whole = json_object_get(cell, key), *value = hr_key_from_text(kind_of_part(kind, part), text);
    if (!value) return hr_import_fail(im, row, "%.60s does not hold a value of its kind", column);
    if (json_is_null(whole)) {
        json_object_set_new(cell, key, json_object());
        whole = json_object_get(cell, key);
        for (const char *const *p = hr_key_parts(kind); *p; p++)
            json_object_set_new(whole, *p,
                                !strcmp(*p, "weak")    ? json_array()
                                : kind == HR_KIND_MAP2 ? json_object()
                                                       : json_null());
    }
    return json_object_set_new(whole, part, value) == 0 ? HR_OK : no_memory();
}

static hr_status put_csv(hr_import *im, size_t row, json_t *cell) {
    const char *column;
    json_t *field;
    hr_kind kind;
    json_object_foreach(json_array_get(im->rows, row), column, field) {
        const char *text = json_string_value(field);
        if (!hr_key_kind(column, &kind)) {
            HR_TRY(put_part(im, row, cell, column, text));
            continue;
        }
        /* An empty field is a null, but for the list of flags. */
        json_t *value = *text || kind == HR_KIND_WORDS ? hr_key_from_text(kind, text) : json_null();
        if (!value) return hr_import_fail(im, row, "%.60s does not hold a value of its kind", column);
        if (json_object_set_new(cell, column, value)) return no_memory();
    }
    return HR_OK;
}

static hr_status check(hr_import *im, size_t row, const json_t *cell) {
    const char *id = hr_word(cell, "cell_id"), *status = hr_word(cell, "status");
    const json_t *place = json_object_get(im->index, id);
    if (!*id || strlen(id) > 64) return hr_import_fail(im, row, "cell_id is missing or too long");
    if (strcmp(status, "ok") && strcmp(status, "failed") && strcmp(status, "skipped"))
        return hr_import_fail(im, row, "status is neither ok, failed nor skipped");
    if (place)
        return hr_import_fail(im, row, "the same cell as %s %zu: a file is one run; split it", im->place,
                              im->at[json_integer_value(json_array_get(im->from, (size_t)json_integer_value(place)))]);
    const json_t *first = json_array_get(im->cells, 0);
    if (first && strcmp(hr_word(first, "run_id"), hr_word(cell, "run_id")))
        return hr_import_fail(im, row, "of run %.40s, the first row of run %.40s: a file is one run; split it",
                              hr_word(cell, "run_id"), hr_word(first, "run_id"));
    const json_t *samples = json_object_get(cell, "samples_ns");
    for (size_t i = 0; i < json_array_size(samples); i++)
        if (!(json_number_value(json_array_get(samples, i)) > 0))
            return hr_import_fail(im, row, "sample %zu of samples_ns is not positive", i + 1);
    return HR_OK;
}

hr_status hr_import_own(hr_import *im) {
    for (size_t row = 0; row < json_array_size(im->rows); row++) {
        json_t *cell = hr_cell_blank();
        hr_status status = !cell                               ? no_memory()
                           : im->container == HR_CONTAINER_CSV ? put_csv(im, row, cell)
                                                               : put_json(im, row, cell);
        if (status == HR_OK) status = check(im, row, cell);
        if (status != HR_OK) {
            json_decref(cell);
            return status;
        }
        HR_TRY(hr_import_take(im, row, cell, NULL));
    }
    if (im->container == HR_CONTAINER_CSV && !hr_note(im->notes, "samples: CSV has none")) return no_memory();
    if (!hr_note(im->notes, "ops, recorded repetitions and ranges: not in this format (merge takes them "
                            "from a store)"))
        return no_memory();
    return HR_OK;
}
