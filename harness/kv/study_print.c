#include "harness/kv/study_print.h"

#include "harness/formats/json_get.h"
#include "harness/kv/study.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

static const char *const parts[] = {"layouts", "operations", "dtypes", "allocators"};
enum { PARTS = sizeof parts / sizeof *parts };

/* ---- flat rows ---- */

static void flatten(json_t *out, const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, key);
        if (!strcmp(key, "samples")) continue;
        if (!strcmp(key, "ppl") && json_is_array(value)) { /* by context */
            size_t i;
            json_t *p;
            json_array_foreach(value, i, p) {
                snprintf(name, sizeof name, "ppl_%d", (int)hr_num(p, "ctx"));
                json_object_set(out, name, json_object_get(p, "ppl"));
                snprintf(name, sizeof name, "ppl_%d_delta_pct", (int)hr_num(p, "ctx"));
                json_object_set(out, name, json_object_get(p, "delta_pct"));
            }
        } else if (json_is_object(value)) {
            snprintf(name, sizeof name, "%s%s_", prefix, key);
            flatten(out, name, value);
        } else {
            json_object_set(out, name, value);
        }
    }
}

static json_t *all_rows(const json_t *study, bool flat) {
    json_t *list = json_array(), *row;
    size_t i;
    for (int p = 0; list && p < PARTS; p++) json_array_foreach(json_object_get(study, parts[p]), i, row) {
            if (flat) {
                json_t *one = json_object();
                if (one) flatten(one, "", row);
                json_array_append_new(list, one);
            } else {
                json_array_append(list, row);
            }
        }
    return list;
}

/* Every key that any row has, in the order in which they come up; ended by NULL. */
static const char **all_keys(const json_t *rows) {
    json_t *seen = json_object(), *row, *value;
    const char *key, **keys = NULL;
    size_t i, n = 0;
    json_array_foreach((json_t *)rows, i, row) json_object_foreach(row, key, value) {
        if (json_is_null(json_object_get(seen, key)) || !json_object_get(seen, key)) json_object_set(seen, key, value);
    }
    keys = hr_calloc(json_object_size(seen) + 1, sizeof *keys);
    /* the names must outlive `seen`: they are those of the first row that has each */
    json_array_foreach((json_t *)rows, i, row) json_object_foreach(row, key, value) {
        if (keys && json_object_get(seen, key)) {
            keys[n++] = key;
            json_object_del(seen, key);
        }
    }
    json_decref(seen);
    return keys;
}

static hr_status write_rows(hr_format format, FILE *stream, const json_t *study) {
    json_t *rows = all_rows(study, format != HR_FORMAT_JSONL);
    const char **keys = rows ? all_keys(rows) : NULL;
    const hr_status status = keys ? hr_rows_write(format, stream, rows, keys)
                                  : hr_fail(HR_ERR_MEMORY, "out of memory while printing the study");
    hr_free((void *)keys);
    json_decref(rows);
    return status;
}

/* ---- for people ---- */

static hr_status write_part(hr_format format, FILE *stream, const json_t *study, int part) {
    static const char *const heads[PARTS] = {
        "Layouts: attention of one token over all positions, one layer; time relative to head",
        "Operations: time relative to head",
        "Types: the decode step of an engine, and what a text's perplexity becomes",
        "Allocators: the same traffic under each",
    };
    json_t *rows = NULL;
    const char **keys = NULL;
    if (json_array_size(json_object_get(study, parts[part])) == 0) return HR_OK;
    HR_TRY(hr_study_table(study, parts[part], &rows, &keys));
    fprintf(stream, format == HR_FORMAT_MD ? "### %s\n\n" : "%s\n", heads[part]);
    hr_status status = hr_rows_write(format, stream, rows, keys);
    if (part < 2) fprintf(stream, "%s%s\n", format == HR_FORMAT_MD ? "\n" : "", hr_study_legend);
    putc('\n', stream);
    hr_free((void *)keys);
    json_decref(rows);
    return status;
}

static hr_status write_people(hr_format format, FILE *stream, const json_t *study) {
    for (int p = 0; p < PARTS; p++) HR_TRY(write_part(format, stream, study, p));
    char *advice = hr_study_advice(study);
    if (!advice) HR_FAIL(HR_ERR_MEMORY, "out of memory while printing the study");
    if (*advice) fprintf(stream, "%s\n", advice);
    hr_free(advice);
    return hr_stream_flush(stream);
}

hr_status hr_study_write(hr_format format, FILE *stream, const json_t *study) {
    switch (format) {
    case HR_FORMAT_JSON:
        return hr_json_write(stream, study);
    case HR_FORMAT_TABLE:
    case HR_FORMAT_MD:
        return write_people(format, stream, study);
    default:
        return write_rows(format, stream, study);
    }
}
