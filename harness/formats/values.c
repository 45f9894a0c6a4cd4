/* Values as text, the same in every format and every locale. */
#include "harness/formats/formats_internal.h"
#include "kernels/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A locale that writes a comma would break every reader. */
static void point(char *text) {
    for (char *c = text; *c; c++)
        if (*c == ',') *c = '.';
}

void hr_real_text(double value, char *text, size_t size) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    point(text);
}

void hr_short_text(double value, char *text, size_t size) {
    double a = fabs(value);
    if (!isfinite(value))
        snprintf(text, size, " ");
    else if (a >= 1e15 || (a < 1e-3 && a > 0))
        snprintf(text, size, "%.3g", value);
    else
        snprintf(text, size, "%.*f", a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : 3, value);
    point(text);
}

static bool is_scalar(const json_t *value) {
    return !json_is_array(value) && !json_is_object(value);
}

static char *scalar_text(const json_t *value, bool brief) {
    char text[40];
    if (json_is_string(value)) return hr_strdup(json_string_value(value));
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && !isfinite(json_real_value(value)))
        text[0] = 0;
    else if (json_is_real(value))
        (brief ? hr_short_text : hr_real_text)(json_real_value(value), text, sizeof text);
    else
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : json_is_false(value) ? "false" : "");
    return hr_strdup(text);
}

/* Scalars joined with ';'. */
static char *joined(const json_t *list) {
    size_t n = 0, i;
    char *all = hr_strdup("");
    json_t *item;
    json_array_foreach((json_t *)list, i, item) {
        char *piece = scalar_text(item, false);
        char *grown = all && piece ? hr_realloc(all, n + strlen(piece) + 2) : NULL;
        if (!grown) {
            hr_free(piece);
            hr_free(all);
            return NULL;
        }
        all = grown;
        n += (size_t)sprintf(all + n, "%s%s", i ? ";" : "", piece);
        hr_free(piece);
    }
    return all;
}

static char *value_text(const json_t *value, bool brief) {
    if (!value) return hr_strdup("");
    if (is_scalar(value)) return scalar_text(value, brief);
    bool words = json_is_array(value);
    size_t i;
    json_t *item;
    json_array_foreach((json_t *)value, i, item) words = words && is_scalar(item);
    if (words) return joined(value);
    char *dump = json_dumps(value, JSON_COMPACT);
    char *copy = dump ? hr_strdup(dump) : NULL;
    free(dump);
    return copy;
}

char *hr_value_text(const json_t *value) {
    return value_text(value, false);
}
char *hr_value_short(const json_t *value) {
    return value_text(value, true);
}
