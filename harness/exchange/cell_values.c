/* Values of the keys of a cell out of other files, notes, and the fingerprint of what other tools measured. */
#include "harness/exchange/exchange_internal.h"

#include "harness/formats/cell_keys.h"
#include "harness/formats/csv_read.h"
#include "harness/formats/formats_internal.h"
#include "harness/sweep/cell.h"
#include "kernels/base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    hr_kind kind;
} keys[] = {
#define X(key, kind) {#key, HR_KIND_##kind},
    HR_CELL_KEYS(X)
#undef X
};
enum { N_KEYS = sizeof keys / sizeof *keys };

#define X(part) #part,
static const char *const dist_parts[] = {HR_DIST_KEYS(X) "weak", NULL};
#undef X
static const char *const unit_parts[] = {"fp32", "bf16", "int8", NULL};
static const char *const map_parts[] = {"prefill", "decode", NULL};

bool hr_key_kind(const char *key, hr_kind *out) {
    for (size_t i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, key)) {
            *out = keys[i].kind;
            return true;
        }
    return false;
}

const char *const *hr_key_names(void) {
    static const char *const names[] = {
#define X(key, kind) #key,
        HR_CELL_KEYS(X)
#undef X
            NULL};
    return names;
}

const char *const *hr_key_parts(hr_kind kind) {
    return kind == HR_KIND_DIST    ? dist_parts
           : kind == HR_KIND_UNITS ? unit_parts
           : kind == HR_KIND_MAP2  ? map_parts
                                   : NULL;
}

json_t *hr_cell_blank(void) {
    json_t *cell = json_object();
    bool ok = cell != NULL;
    for (size_t i = 0; i < N_KEYS; i++) ok = ok && json_object_set_new(cell, keys[i].name, json_null()) == 0;
    ok = ok && json_object_set_new(cell, "flags", json_array()) == 0;
    if (ok) return cell;
    json_decref(cell);
    return NULL;
}

/* ---- values ---- */

static bool whole(double v) {
    return v == floor(v) && fabs(v) < 9.2e18;
}

static bool all_of(const json_t *list, bool (*fits)(const json_t *)) {
    size_t i;
    json_t *item;
    if (!json_is_array(list)) return false;
    json_array_foreach((json_t *)list, i, item) if (!fits(item)) return false;
    return true;
}
static bool is_text(const json_t *v) {
    return json_is_string(v);
}
static bool
is_sample(const json_t *v) { /* samples_flags hold texts; which of the others may be null says who reads them */
    return json_is_number(v) || json_is_string(v) || json_is_null(v);
}

/* An object with these parts and no other. */
static bool parts_fit(hr_kind kind, const json_t *given) {
    const char *key, *name;
    json_t *value, *inner;
    if (!json_is_object(given)) return false;
    json_object_foreach((json_t *)given, key, value) {
        const char *const *p = hr_key_parts(kind);
        while (*p && strcmp(*p, key)) p++;
        if (!*p) return false;
        if (json_is_null(value)) continue;
        if (kind == HR_KIND_MAP2) {
            if (!json_is_object(value)) return false;
            json_object_foreach(value, name, inner) if (!json_is_string(inner)) return false;
        } else if (!strcmp(key, "weak") ? !all_of(value, is_text) : !json_is_number(value)) {
            return false;
        }
    }
    return true;
}

json_t *hr_key_value(hr_kind kind, const json_t *given) {
    bool fits = false;
    if (json_is_null(given)) return json_null();
    switch (kind) {
    case HR_KIND_TEXT:
        fits = json_is_string(given);
        break;
    case HR_KIND_INT:
        if (json_is_real(given) && whole(json_real_value(given)))
            return json_integer((json_int_t)json_real_value(given));
        fits = json_is_integer(given);
        break;
    case HR_KIND_REAL:
        fits = json_is_number(given);
        break;
    case HR_KIND_BOOL:
        if (json_is_integer(given) && (json_integer_value(given) | 1) == 1)
            return json_boolean(json_integer_value(given) == 1);
        fits = json_is_boolean(given);
        break;
    case HR_KIND_WORDS:
        fits = all_of(given, is_text);
        break;
    case HR_KIND_SAMPLES:
        fits = all_of(given, is_sample);
        break;
    default:
        fits = parts_fit(kind, given);
    }
    return fits ? json_deep_copy(given) : NULL;
}

/* "a;b" as ["a", "b"]; "a=b;c=d" as {"a": "b", "c": "d"}. */
static json_t *words_of(const char *text, bool map) {
    json_t *out = map ? json_object() : json_array();
    bool ok = out != NULL;
    while (ok && *text) {
        const size_t n = strcspn(text, ";");
        const char *equal = map ? memchr(text, '=', n) : NULL;
        if (!map) {
            ok = json_array_append_new(out, json_stringn(text, n)) == 0;
        } else {
            char *name = equal ? hr_strdup(text) : NULL;
            if (name) name[equal - text] = 0;
            ok = name && json_object_set_new(out, name, json_stringn(equal + 1, n - (size_t)(equal + 1 - text))) == 0;
            hr_free(name);
        }
        text += n + (text[n] != 0);
    }
    if (ok) return out;
    json_decref(out);
    return NULL;
}

static json_t *integer_of(const char *text) {
    double value;
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (!*end && end != text && !errno && !isspace((unsigned char)*text)) return json_integer(n);
    /* "1.5e6" counts as well, as long as it is a whole number */
    if (errno || !hr_csv_number(text, false, &value) || !whole(value)) return NULL;
    return json_integer((json_int_t)value);
}

json_t *hr_key_from_text(hr_kind kind, const char *text) {
    double value;
    if (kind == HR_KIND_TEXT) return json_string(text);
    if (kind == HR_KIND_WORDS || kind == HR_KIND_MAP2) return words_of(text, kind == HR_KIND_MAP2);
    if (!*text) return json_null();
    switch (kind) {
    case HR_KIND_INT:
        return integer_of(text);
    case HR_KIND_REAL:
        return hr_csv_number(text, false, &value) ? json_real(value) : NULL;
    case HR_KIND_BOOL:
        if (!strcmp(text, "1") || !strcasecmp(text, "true")) return json_true();
        return !strcmp(text, "0") || !strcasecmp(text, "false") ? json_false() : NULL;
    default:
        return NULL;
    }
}

/* ---- notes ---- */

bool hr_note(json_t *notes, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const json_int_t n = json_integer_value(json_object_get(notes, text));
    if (json_object_set_new(notes, text, json_integer(n + 1)) == 0) return true;
    /* a text cut inside a character is no UTF-8 */
    for (char *c = text; *c; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    return json_object_set_new(notes, text, json_integer(n + 1)) == 0;
}

json_t *hr_notes_list(const json_t *notes) {
    json_t *list = json_array(), *times;
    const char *text;
    bool ok = list != NULL;
    json_object_foreach((json_t *)notes, text, times) {
        const json_int_t n = json_integer_value(times);
        ok = ok && json_array_append_new(list, n == 1 ? json_string(text)
                                                      : json_sprintf("%s (%lld rows)", text, (long long)n)) == 0;
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}

/* ---- who measured what, where ---- */

bool hr_identity_add(json_t *words, const char *key, const json_t *value) {
    static const char *const nothing[] = {"", "0", "none", "auto", "off", "0x0", "0.00", "disabled"};
    char *text = json_is_boolean(value) ? hr_strdup(json_is_true(value) ? "1" : "0") : hr_value_text(value);
    bool said = text != NULL, ok = text != NULL;
    if (text && (!strcmp(text, "true") || !strcmp(text, "false"))) strcpy(text, *text == 't' ? "1" : "0");
    for (size_t i = 0; said && i < sizeof nothing / sizeof *nothing; i++) said = strcmp(text, nothing[i]) != 0;
    if (said) ok = json_array_append_new(words, json_sprintf("%s=%s", key, text)) == 0;
    hr_free(text);
    return ok;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

hr_status hr_identity(const json_t *words, char out[33]) {
    const size_t n = json_array_size(words);
    const char **texts = hr_calloc(n + 1, sizeof *texts);
    size_t bytes = 1, used = 0;
    for (size_t i = 0; texts && i < n; i++) {
        texts[i] = json_string_value(json_array_get(words, i));
        bytes += strlen(texts[i]) + 1;
    }
    char *all = texts ? hr_malloc(bytes) : NULL;
    if (all) {
        qsort(texts, n, sizeof *texts, by_text);
        for (size_t i = 0; i < n; i++) used += (size_t)sprintf(all + used, "%s\n", texts[i]);
        hr_fingerprint(all, used, out);
    }
    hr_free((void *)texts);
    hr_free(all);
    if (!all) HR_FAIL(HR_ERR_MEMORY, "out of memory for the id of a cell");
    return HR_OK;
}

void hr_imported_class(const char *cpu, const char *gpu, char *out, size_t size) {
    char words[160] = "";
    size_t n = 0;
    const char *const parts[] = {cpu, gpu};
    for (size_t i = 0; i < 2; i++)
        for (const char *c = parts[i]; *c && n + 2 < sizeof words; c++) {
            const bool letter = isalnum((unsigned char)*c) != 0;
            if (letter && n && (c == parts[i] || !isalnum((unsigned char)c[-1]))) words[n++] = '-';
            if (letter) words[n++] = (char)tolower((unsigned char)*c);
        }
    words[n] = 0;
    snprintf(out, size, "imported-%s", n ? words : "unknown");
}

bool hr_utc_of(const char *text, char out[21]) {
    struct tm t = {0};
    int used = 0, hours = 0, minutes = 0;
    if (sscanf(text, "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &t.tm_hour, &t.tm_min,
               &t.tm_sec, &used) != 6)
        return false;
    if (t.tm_year < 1970 || t.tm_year > 9999 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31 ||
        t.tm_hour > 23 || t.tm_min > 59 || t.tm_sec > 60 || (t.tm_hour | t.tm_min | t.tm_sec) < 0)
        return false;
    const char *rest = text + used;
    if (*rest == '.') rest += 1 + strspn(rest + 1, "0123456789");
    const bool zone = *rest == '+' || *rest == '-';
    if (zone && sscanf(rest + 1, "%2d:%2d", &hours, &minutes) != 2 && sscanf(rest + 1, "%2d%2d", &hours, &minutes) != 2)
        return false;
    if (!zone && *rest && strcmp(rest, "Z")) return false;
    t.tm_year -= 1900, t.tm_mon -= 1;
    const time_t seconds = timegm(&t) - (zone ? (*rest == '-' ? -60 : 60) * (60 * hours + minutes) : 0);
    return gmtime_r(&seconds, &t) && strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &t) == 20;
}
