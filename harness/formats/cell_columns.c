/* The flat columns of a cell, made once from cell_keys.h. */
#include "harness/formats/cell_keys.h"
#include "harness/formats/formats_internal.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { MOST_COLUMNS = 320, NAME_BYTES = 48, TEXT_BYTES = 8192 };

typedef enum kind { TEXT, INT, REAL, BOOL, DIST, WORDS, UNITS, MAP2, SAMPLES } kind;

static const struct {
    const char *key;
    kind kind;
} keys[] = {
#define X(key, kind) {#key, kind},
    HR_CELL_KEYS(X)
#undef X
};
static const char *const dist_keys[] = {
#define X(key) #key,
    HR_DIST_KEYS(X)
#undef X
};
/* hr_unit_names of the kernel table, which are public keys here. */
static const char *const unit_keys[] = {"fp32", "bf16", "int8"};
static const char *const map_keys[] = {"prefill", "decode"};

typedef struct column {
    const char *key, *sub; /* sub: key inside the value, NULL: the value itself */
    kind kind;             /* of the value shown: TEXT, INT, REAL, BOOL, WORDS or MAP2 */
} column;

static column columns[MOST_COLUMNS];
static char name_bytes[MOST_COLUMNS][NAME_BYTES];
static const char *names[MOST_COLUMNS + 1];
static size_t n_columns;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add(const char *key, const char *sub, kind k) {
    if (n_columns >= MOST_COLUMNS) return;
    snprintf(name_bytes[n_columns], NAME_BYTES, sub ? "%s_%s" : "%s", key, sub);
    names[n_columns] = name_bytes[n_columns];
    columns[n_columns++] = (column){key, sub, k};
}

static void make(void) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *key = keys[i].key;
        switch (keys[i].kind) {
        case SAMPLES:
            break;
        case DIST:
            for (size_t j = 0; j < sizeof dist_keys / sizeof *dist_keys; j++) add(key, dist_keys[j], j ? REAL : INT);
            add(key, "weak", WORDS);
            break;
        case UNITS:
            for (size_t j = 0; j < sizeof unit_keys / sizeof *unit_keys; j++) add(key, unit_keys[j], REAL);
            break;
        case MAP2:
            for (size_t j = 0; j < sizeof map_keys / sizeof *map_keys; j++) add(key, map_keys[j], MAP2);
            break;
        default:
            add(key, NULL, keys[i].kind);
        }
    }
}

const char *const *hr_cell_columns(size_t *n) {
    pthread_once(&once, make);
    if (n) *n = n_columns;
    return names;
}

hr_column_type hr_cell_column_type(size_t i) {
    pthread_once(&once, make);
    kind k = columns[i].kind;
    return k == REAL ? HR_COLUMN_REAL : k == INT || k == BOOL ? HR_COLUMN_INT : HR_COLUMN_TEXT;
}

/* Words joined with ';', maps as "op=name;op=name". */
static void join(const json_t *value, char *text, size_t size) {
    size_t used = 0, i;
    const char *key;
    json_t *item;
    text[0] = 0;
    json_array_foreach((json_t *)value, i, item) {
        if (used < size && json_is_string(item))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ";" : "", json_string_value(item));
    }
    json_object_foreach((json_t *)value, key, item) {
        if (used < size && json_is_string(item))
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s=%s", used ? ";" : "", key, json_string_value(item));
    }
}

const char *hr_cell_column_text(const json_t *cell, size_t i) {
    static _Thread_local char text[TEXT_BYTES];
    pthread_once(&once, make);
    text[0] = 0;
    if (i >= n_columns) return text;
    const json_t *value = json_object_get(cell, columns[i].key);
    if (value && columns[i].sub) value = json_object_get(value, columns[i].sub);
    if (!value || json_is_null(value)) return text;
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof text, "%d", json_is_true(value));
    else if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value)) {
        if (isfinite(json_real_value(value))) hr_real_text(json_real_value(value), text, sizeof text);
    } else
        join(value, text, sizeof text);
    return text;
}
