/* --config: a JSON object of flag names. Every value goes through the same checks as on the command line. */
#include "harness/cli/options_internal.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 }; /* of a config file */

static bool is_list(hr_opt_kind kind) {
    return kind >= HR_OPT_TEXTS;
}

/* One scalar as the text that would be typed for it; false: not a scalar. */
static bool typed(const json_t *value, char *text, size_t size, const char **out) {
    *out = text;
    if (json_is_string(value))
        *out = json_string_value(value);
    else if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%.17g", json_real_value(value));
    else
        return false;
    return true;
}

static hr_status take_scalar(hr_slot *slot, const hr_opt *opt, const char *key, const json_t *value) {
    char text[40];
    const char *word;
    if (!typed(value, text, sizeof text, &word))
        HR_FAIL(HR_ERR_USAGE, "%s: must be a text, a number%s", key,
                opt->kind == HR_OPT_FLAG ? " or a boolean"
                : is_list(opt->kind)     ? " or a list of them"
                                         : "");
    return hr_slot_take(slot, opt, key, word);
}

/* [512, 128] as one pair. */
static hr_status take_pair_array(hr_slot *slot, const hr_opt *opt, const char *key, const json_t *pair) {
    if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 0)) ||
        !json_is_integer(json_array_get(pair, 1)))
        HR_FAIL(HR_ERR_USAGE, "%s: a pair is a list of two integers, as [512, 128]", key);
    char text[64];
    snprintf(text, sizeof text, "%lld,%lld", (long long)json_integer_value(json_array_get(pair, 0)),
             (long long)json_integer_value(json_array_get(pair, 1)));
    return hr_slot_take(slot, opt, key, text);
}

static hr_status take_value(hr_slot *slot, const hr_opt *opt, const char *key, json_t *value) {
    if (opt->kind == HR_OPT_FLAG) {
        if (!json_is_boolean(value)) HR_FAIL(HR_ERR_USAGE, "%s: must be true or false", key);
        slot->flag = json_is_true(value);
        return HR_OK;
    }
    if (opt->kind == HR_OPT_KEYVALUE && json_is_object(value)) {
        const char *name;
        json_t *text;
        if (!json_object_size(value)) HR_FAIL(HR_ERR_USAGE, "%s: the object is empty", key);
        json_object_foreach(value, name, text) {
            char pair[512];
            if (!json_is_string(text)) HR_FAIL(HR_ERR_USAGE, "%s: %.80s must be a text", key, name);
            int n = snprintf(pair, sizeof pair, "%s=%s", name, json_string_value(text));
            if (n < 0 || (size_t)n >= sizeof pair) HR_FAIL(HR_ERR_USAGE, "%s: %.80s is too long", key, name);
            HR_TRY(hr_slot_take(slot, opt, key, pair));
        }
        return HR_OK;
    }
    if (!json_is_array(value) || !is_list(opt->kind)) return take_scalar(slot, opt, key, value);
    if (!json_array_size(value)) HR_FAIL(HR_ERR_USAGE, "%s: the list is empty", key);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item) {
        if (opt->kind == HR_OPT_PAIRS && json_is_array(item))
            HR_TRY(take_pair_array(slot, opt, key, item));
        else
            HR_TRY(take_scalar(slot, opt, key, item));
    }
    return HR_OK;
}

/* "model" and "m" are the row of --model, "pg" that of -pg. */
static const hr_opt *find_key(const hr_args *args, const char *key, size_t *i) {
    char name[80];
    for (int dashes = 2; dashes >= 1; dashes--) {
        int n = snprintf(name, sizeof name, "%.*s%s", dashes, "--", key);
        if (n < 0 || (size_t)n >= sizeof name) return NULL;
        const hr_opt *opt = hr_args_find(args, name, i);
        if (opt && strcmp(opt->name, "--config") && strcmp(opt->name, "--print-config")) return opt;
    }
    return NULL;
}

static hr_status take_object(hr_args *args, json_t *object, const char *where, bool *seen) {
    if (!json_is_object(object))
        HR_FAIL(HR_ERR_USAGE, "%s: must hold one JSON object of flag names, as {\"n-prompt\": [512]}", where);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        size_t i;
        const hr_opt *opt = find_key(args, key, &i);
        if (!opt) {
            if (!strcmp(key, "config") || !strcmp(key, "print-config") || !strcmp(key, "help"))
                HR_FAIL(HR_ERR_USAGE, "%s: %s stands on the command line, not in a config file", where, key);
            char prefix[300], name[90];
            snprintf(prefix, sizeof prefix, "%.200s: ", where);
            snprintf(name, sizeof name, "--%.80s", key);
            return hr_args_unknown(args, prefix, name);
        }
        if (seen[i]) HR_FAIL(HR_ERR_USAGE, "%s: %s is given twice under two names", where, opt->name);
        seen[i] = true;
        hr_slot taken = {.given = true};
        hr_status status = take_value(&taken, opt, key, value);
        if (status != HR_OK || args->slots[i].given) {
            hr_slot_clear(&taken);
            if (status != HR_OK) return hr_fail_prefix(status, where);
        } else {
            hr_slot_clear(&args->slots[i]);
            args->slots[i] = taken;
        }
    }
    return HR_OK;
}

hr_status hr_args_config_text(hr_args *args, const char *text, size_t n, const char *where) {
    json_error_t error;
    json_t *object = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!object) HR_FAIL(HR_ERR_USAGE, "%s: line %d: %s", where, error.line, error.text);
    bool *seen = hr_calloc(args->n_slots + 1, sizeof *seen);
    hr_status status = seen ? take_object(args, object, where, seen) : hr_fail(HR_ERR_MEMORY, "out of memory");
    hr_free(seen);
    json_decref(object);
    return status;
}

hr_status hr_args_config_file(hr_args *args, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) HR_FAIL(HR_ERR_IO, "--config %s: %s", path, strerror(errno));
    char *text = hr_malloc(MOST_BYTES + 1);
    errno = EIO; /* what a failing read says when it says nothing better */
    bool broken = hr_fault_hit(HR_FAULT_READ);
    size_t n = text && !broken ? fread(text, 1, MOST_BYTES + 1, file) : 0;
    broken = broken || ferror(file);
    int why = errno;
    fclose(file);
    hr_status status;
    if (!text)
        status = hr_fail(HR_ERR_MEMORY, "--config %s: out of memory", path);
    else if (broken)
        status = hr_fail(HR_ERR_IO, "--config %s: %s", path, strerror(why));
    else if (n > MOST_BYTES)
        status = hr_fail(HR_ERR_INPUT, "--config %s: larger than %d bytes; is it the right file", path, MOST_BYTES);
    else
        status = hr_args_config_text(args, text, n, path);
    hr_free(text);
    return status;
}
