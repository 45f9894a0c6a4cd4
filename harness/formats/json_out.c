/* Strict JSON. jansson writes the scalars; the layout is ours, so that lists of numbers stay on one line. */
#include "harness/formats/formats_internal.h"

#include <math.h>
#include <string.h>

static bool is_scalar(const json_t *value) {
    return !json_is_array(value) && !json_is_object(value);
}

static void scalar(FILE *stream, const json_t *value) {
    char text[40];
    if (json_is_real(value)) {
        if (!isfinite(json_real_value(value))) {
            fputs("null", stream);
            return;
        }
        hr_real_text(json_real_value(value), text, sizeof text);
        fputs(text, stream);
        if (!strpbrk(text, ".e")) fputs(".0", stream); /* a real stays one when it is read back */
    } else {
        json_dumpf(value, stream, JSON_ENCODE_ANY | JSON_COMPACT);
    }
}

/* A key is a string value as far as escapes go. */
static void key_text(FILE *stream, const char *key) {
    json_t *text = json_string(key);
    json_dumpf(text, stream, JSON_ENCODE_ANY);
    json_decref(text);
}

static void put(FILE *stream, const json_t *value, int depth, bool wide) {
    const char *key;
    json_t *item;
    size_t i, n = 0;
    if (json_is_object(value)) {
        putc('{', stream);
        json_object_foreach((json_t *)value, key, item) {
            if (n++) fputs(wide ? "," : ", ", stream);
            if (wide) fprintf(stream, "\n%*s", 2 * depth + 2, "");
            key_text(stream, key);
            fputs(": ", stream);
            put(stream, item, depth + 1, wide);
        }
        if (n && wide) fprintf(stream, "\n%*s", 2 * depth, "");
        putc('}', stream);
    } else if (json_is_array(value)) {
        bool flat = true; /* [1, 2] and [[1, 0.5], [2, 0.25]] */
        json_array_foreach((json_t *)value, i, item) flat = flat && is_scalar(item);
        putc('[', stream);
        json_array_foreach((json_t *)value, i, item) {
            if (i) fputs(wide && !flat ? "," : ", ", stream);
            if (wide && !flat) fprintf(stream, "\n%*s", 2 * depth + 2, "");
            put(stream, item, depth + 1, wide);
        }
        if (json_array_size(value) && wide && !flat) fprintf(stream, "\n%*s", 2 * depth, "");
        putc(']', stream);
    } else {
        scalar(stream, value);
    }
}

void hr_json_inline(FILE *stream, const json_t *value) {
    put(stream, value, 0, false);
}

hr_status hr_json_write(FILE *stream, const json_t *value) {
    put(stream, value, 0, true);
    putc('\n', stream);
    return hr_stream_flush(stream);
}
