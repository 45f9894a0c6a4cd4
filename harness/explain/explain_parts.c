/* explain_parts.c - reading cells and explanations, and writing notes: what the other files of this folder share. */
#include "harness/explain/explain_internal.h"

#include <stdarg.h>
#include <string.h>

const char *const hr_explain_metrics[HR_EXPLAIN_METRICS] = {"ttft", "tpot"};
const char *const hr_explain_phases[HR_EXPLAIN_METRICS] = {"prefill", "decode"};

bool hr_explain_is_difference(const json_t *explanation) {
    return json_is_object(json_object_get(explanation, "vs"));
}

double hr_explain_p50(const json_t *cell, const char *key) {
    return hr_num(json_object_get(cell, key), "p50");
}

bool hr_explain_flagged(const json_t *cell, const char *flag) {
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(cell, "flags"), i, item) {
        const char *word = json_string_value(item);
        if (word && !strcmp(word, flag)) return true;
    }
    return false;
}

void hr_explain_note(json_t *notes, const char *format, ...) {
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_array_append_new(notes, json_string(text));
}
