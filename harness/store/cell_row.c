/* A cell as one flat row: the columns of table `cell` and their values, generated from the list of keys. */
#include "harness/store/store_internal.h"

#include "harness/formats/cell_keys.h"
#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

typedef enum kind { TEXT, INT, REAL, BOOL, DIST, WORDS, UNITS, MAP2, SAMPLES, KIND_COUNT } kind;

static const struct {
    const char *name;
    kind kind;
} keys[] = {
#define X(key, kind) {#key, kind},
    HR_CELL_KEYS(X)
#undef X
};
enum { N_KEYS = sizeof keys / sizeof *keys };

#define X(part) #part,
static const char *const dist_parts[] = {HR_DIST_KEYS(X) "weak", NULL};
#undef X
static const char *const unit_parts[] = {"fp32", "bf16", "int8", NULL};
static const char *const map_parts[] = {"prefill", "decode", NULL};
static const char *const *const parts_of[KIND_COUNT] = {[DIST] = dist_parts, [UNITS] = unit_parts, [MAP2] = map_parts};

char *hr_store_cell_sql(void) {
    char *sql = NULL;
    size_t bytes = 0, n = 1;
    FILE *stream = open_memstream(&sql, &bytes);
    if (!stream) return NULL;
    fputs("INSERT INTO cell (", stream);
    for (size_t i = 0; i < N_KEYS; i++) {
        const char *const *parts = parts_of[keys[i].kind];
        if (keys[i].kind == SAMPLES) continue;
        if (!parts) fprintf(stream, "%s, ", keys[i].name), n++;
        for (; parts && *parts; parts++) fprintf(stream, "%s_%s, ", keys[i].name, *parts), n++;
    }
    fputs("json) VALUES (?", stream);
    for (size_t i = 1; i < n; i++) fputs(", ?", stream);
    fputs(")", stream);
    bool bad = ferror(stream) != 0;
    if (fclose(stream) != 0 || bad) {
        hr_free(sql);
        return NULL;
    }
    return sql;
}

/* ["a", "b"] as "a;b"; {"op": "name"} as "op=name;...". */
static int bind_joined(sqlite3_stmt *statement, int i, const json_t *value) {
    if (!json_is_array(value) && !json_is_object(value)) return hr_store_bind_json(statement, i, value);
    char *text = NULL;
    size_t bytes = 0, index;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) return SQLITE_NOMEM;
    const char *name, *between = "";
    json_t *item, *list = (json_t *)value;
    if (json_is_array(value)) {
        json_array_foreach(list, index, item) {
            fprintf(stream, "%s%s", between, json_is_string(item) ? json_string_value(item) : "");
            between = ";";
        }
    } else {
        json_object_foreach(list, name, item) {
            fprintf(stream, "%s%s=%s", between, name, json_is_string(item) ? json_string_value(item) : "");
            between = ";";
        }
    }
    bool bad = ferror(stream) != 0;
    int rc = fclose(stream) != 0 || bad ? SQLITE_NOMEM : hr_store_bind_text(statement, i, text);
    hr_free(text);
    return rc;
}

int hr_store_cell_bind(sqlite3_stmt *statement, const json_t *cell) {
    int i = 0, rc = SQLITE_OK;
    for (size_t k = 0; k < N_KEYS && rc == SQLITE_OK; k++) {
        const json_t *value = json_object_get(cell, keys[k].name);
        const char *const *parts = parts_of[keys[k].kind];
        if (keys[k].kind == SAMPLES) continue;
        if (!parts) rc = bind_joined(statement, ++i, value);
        for (; parts && *parts && rc == SQLITE_OK; parts++)
            rc = bind_joined(statement, ++i, json_object_get(value, *parts));
    }
    return rc == SQLITE_OK ? hr_store_bind_dump(statement, i + 1, cell) : rc;
}
