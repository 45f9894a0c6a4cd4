/* json_get.h - values of a JSON object where a missing one is no error. */
#ifndef HR_JSON_GET_H
#define HR_JSON_GET_H

#include <jansson.h>
#include <math.h>

/* NaN where absent, null or no number. */
static inline double hr_num(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* "" where absent, null or no text; borrowed from the object. */
static inline const char *hr_word(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

#endif
