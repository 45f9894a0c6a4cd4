#include "harness/report/report_label.h"

#include "kernels/base/memory.h"

#include <stdio.h>
#include <string.h>

static char *next(void) {
    static _Thread_local char ring[32][HR_LABEL_BYTES];
    static _Thread_local unsigned at;
    char *text = ring[at++ % 32];
    text[0] = 0;
    return text;
}

#define NARROW_SPACE "\u202f"

/* 1234567 -> "1 234 567". */
static void grouped(double value, char *out) {
    char digits[40];
    snprintf(digits, sizeof digits, "%.0f", fabs(value));
    const size_t n = strlen(digits);
    if (value < 0) out += sprintf(out, "-");
    for (size_t i = 0; i < n; i++) {
        if (i && n > 4 && (n - i) % 3 == 0) out += sprintf(out, NARROW_SPACE);
        *out++ = digits[i];
    }
    *out = 0;
}

const char *hr_text_num(double v) {
    char *text = next();
    const double a = fabs(v);
    if (!isfinite(v))
        snprintf(text, HR_LABEL_BYTES, "–");
    else if (a >= 1e15 || (a > 0 && a < 1e-3))
        snprintf(text, HR_LABEL_BYTES, "%.2g", v);
    else if (a >= 999.5)
        grouped(v, text);
    else
        snprintf(text, HR_LABEL_BYTES, "%.*f", a >= 99.95 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 || a == 0 ? 2 : 3, v);
    return text;
}

const char *hr_text_count(double v) {
    char *text = next();
    if (isfinite(v))
        grouped(v, text);
    else
        snprintf(text, HR_LABEL_BYTES, "–");
    return text;
}

const char *hr_text_pct(double ratio) {
    char *text = next();
    const double p = ratio * 100;
    if (isfinite(p))
        snprintf(text, HR_LABEL_BYTES, "%.*f %%", fabs(p) < 9.95 ? 1 : 0, p);
    else
        snprintf(text, HR_LABEL_BYTES, "–");
    return text;
}

const char *hr_text_size(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t u = 0;
    while (u < 4 && bytes >= 1024) bytes /= 1024, u++;
    char *text = next();
    if (isfinite(bytes))
        snprintf(text, HR_LABEL_BYTES,
                 (bytes == floor(bytes) && bytes < 1024) || bytes >= 999.5 ? "%.0f %s" : "%.3g %s", bytes, units[u]);
    else
        snprintf(text, HR_LABEL_BYTES, "–");
    return text;
}

const char *hr_text_of(double n, const char *noun) {
    char *text = next();
    char count[60] = "–";
    if (isfinite(n)) grouped(n, count);
    snprintf(text, HR_LABEL_BYTES, "%s %s%s", count, noun, n == 1 ? "" : "s");
    return text;
}

size_t hr_text_character(const char *text) {
    const unsigned char c = (unsigned char)*text;
    const size_t n = c < 0x80 ? 1 : c < 0xC0 ? 0 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80) return 0;
    return n;
}

char *hr_text_whole(char *text) {
    char *to = text;
    for (const char *from = text; *from;) {
        const size_t n = hr_text_character(from);
        memmove(to, from, n);
        to += n, from += n ? n : 1;
    }
    *to = 0;
    return text;
}

/* Copies at most `most` characters of UTF-8; what would break a line of a script, a table or a page becomes a space. */
static void tame(char *out, size_t size, const char *from, size_t most) {
    size_t n = 0, characters = 0;
    for (; *from && n + 5 < size; from++) {
        const unsigned char c = (unsigned char)*from;
        if ((c & 0xC0) != 0x80 && characters++ == most) {
            n += (size_t)sprintf(out + n, "…");
            break;
        }
        out[n++] = c < 32 || c == 127 ? ' ' : (char)c;
    }
    out[n] = 0;
    hr_text_whole(out);
}

static const char *model_name(const json_t *cell, size_t most) {
    const char *name = hr_word(cell, "model_filename"), *slash = strrchr(name, '/');
    if (!strncmp(name, "synth:", 6))
        name += 6;
    else if (slash && slash[1])
        name = slash + 1;
    char *text = next(), whole[512];
    snprintf(whole, sizeof whole, "%s", *name ? name : "unnamed model");
    const size_t n = strlen(whole);
    if (n > 5 && !strcmp(whole + n - 5, ".gguf")) whole[n - 5] = 0;
    tame(text, HR_LABEL_BYTES, whole, most);
    return text;
}

const char *hr_text_model(const json_t *cell) {
    return model_name(cell, 40);
}
const char *hr_text_model_short(const json_t *cell) {
    return model_name(cell, 22);
}

const char *hr_text_type(const json_t *cell) {
    char *text = next();
    tame(text, HR_LABEL_BYTES, hr_word(cell, "model_type"), 40);
    return text;
}

const char *hr_text_weights(const json_t *cell) {
    char *text = next(), quant[40], act[40];
    tame(quant, sizeof quant, hr_word(cell, "quant"), 20);
    tame(act, sizeof act, hr_word(cell, "act"), 20);
    if (*act && strcmp(act, quant) && strcmp(quant, "int4"))
        snprintf(text, HR_LABEL_BYTES, "%s %s (act %s)", hr_text_model(cell), quant, act);
    else
        snprintf(text, HR_LABEL_BYTES, "%s %s", hr_text_model(cell), quant);
    return hr_text_whole(text);
}

/* ---- axes ------------------------------------------------------------------------------------------------------- */

typedef struct axis {
    const char *key, *format; /* %s for texts, %.0f for numbers */
    const char *usual;        /* value that need not be said */
} axis;

static const axis axes[] = {
    {"model_filename", NULL, NULL},
    {"quant", "%s", NULL},
    {"act", "act %s", NULL},
    {"isl", "isl%.0f", NULL},
    {"osl", "osl%.0f", NULL},
    {"n_prompt", "pp%.0f", "0"},
    {"n_gen", "tg%.0f", "0"},
    {"n_depth", "d%.0f", NULL},
    {"n_seqs", "%.0f seqs", NULL},
    {"kv_layout", "%s", NULL},
    {"page_size", "page %.0f", NULL},
    {"kv_alloc", "%s", NULL},
    {"type_k", "K %s", NULL},
    {"type_v", "V %s", NULL},
    {"n_threads", "%.0f threads", NULL},
    {"isa", "%s", NULL},
    {"flash_attn", NULL, NULL},
    {"n_ubatch", "ub%.0f", NULL},
    {"n_batch", "b%.0f", NULL},
    {"fusion", "fusion %s", NULL},
    {"weights", "%s weights", NULL},
    {"device", "%s", NULL},
    {"tags", "%s", NULL},
};
_Static_assert(sizeof axes / sizeof *axes <= HR_AXES_MOST, "room for a bit and a text of each");

size_t hr_axes_count(void) {
    return sizeof axes / sizeof *axes;
}
const char *hr_axis_name(size_t i) {
    return axes[i].key;
}

size_t hr_axis_of(const char *name) {
    size_t i = 0;
    while (i < hr_axes_count() - 1 && strcmp(axes[i].key, name)) i++;
    return i;
}

const char *hr_axis_text(const json_t *cell, size_t i) {
    const axis *a = &axes[i];
    if (i == 0) return hr_text_model(cell);
    char *text = next(), value[80];
    const json_t *v = json_object_get(cell, a->key);
    /* isl rows say the same in isl and osl */
    if (isfinite(hr_num(cell, "isl")) && (!strcmp(a->key, "n_prompt") || !strcmp(a->key, "n_gen"))) return text;
    if (!strcmp(a->key, "flash_attn"))
        snprintf(text, HR_LABEL_BYTES, "%s", json_is_false(v) ? "fa0" : json_is_true(v) ? "fa1" : "");
    else if (json_is_number(v) && json_number_value(v) == 1 &&
             (!strcmp(a->key, "n_seqs") || !strcmp(a->key, "n_threads")))
        snprintf(text, HR_LABEL_BYTES, strcmp(a->key, "n_seqs") ? "1 thread" : "1 seq");
    else if (json_is_number(v) && strstr(a->format, "%.0f") && !(a->usual && json_number_value(v) == 0))
        snprintf(text, HR_LABEL_BYTES, a->format, json_number_value(v));
    else if (json_is_string(v) && *json_string_value(v) && strstr(a->format, "%s")) {
        tame(value, sizeof value, json_string_value(v), 24);
        snprintf(text, HR_LABEL_BYTES, a->format, value);
    }
    return hr_text_whole(text);
}

const char *hr_text_title(const json_t *cell) {
    char test[80];
    tame(test, sizeof test, hr_word(cell, "test"), 40);
    char *text = next();
    int n = snprintf(text, HR_LABEL_BYTES, "%s, %s", hr_text_weights(cell), test);
    const double seqs = hr_num(cell, "n_seqs");
    if (seqs > 1 && n < HR_LABEL_BYTES) n += snprintf(text + n, HR_LABEL_BYTES - (size_t)n, ", %.0f sequences", seqs);
    const char *layout = hr_word(cell, "kv_layout");
    if (*layout && strcmp(layout, "head") && n < HR_LABEL_BYTES)
        snprintf(text + n, HR_LABEL_BYTES - (size_t)n, ", KV %.20s", layout);
    return hr_text_whole(text);
}
