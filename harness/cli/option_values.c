/* One value of one flag: numbers, ranges, words, pairs. */
#include "harness/cli/options_internal.h"
#include "kernels/base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 4096 }; /* values of one list flag, ranges expanded */

void hr_slot_clear(hr_slot *slot) {
    for (size_t i = 0; i < slot->n_texts; i++) hr_free(slot->texts[i]);
    hr_free(slot->texts);
    hr_free(slot->ints);
    memset(slot, 0, sizeof *slot);
}

static hr_status push_int(hr_slot *slot, const char *shown, int64_t value) {
    if (slot->n_ints >= MOST_VALUES)
        HR_FAIL(HR_ERR_USAGE, "%s: more than %d values; use a larger step", shown, MOST_VALUES);
    int64_t *grown = hr_realloc(slot->ints, hr_mul(slot->n_ints + 1, sizeof *grown));
    if (!grown) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", shown);
    slot->ints = grown;
    grown[slot->n_ints++] = value;
    return HR_OK;
}

static hr_status push_text(hr_slot *slot, const char *shown, const char *text) {
    if (slot->n_texts >= MOST_VALUES) HR_FAIL(HR_ERR_USAGE, "%s: more than %d values", shown, MOST_VALUES);
    char **grown = hr_realloc(slot->texts, hr_mul(slot->n_texts + 2, sizeof *grown));
    if (!grown) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", shown);
    slot->texts = grown;
    grown[slot->n_texts] = hr_strdup(text);
    if (!grown[slot->n_texts]) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", shown);
    grown[++slot->n_texts] = NULL;
    return HR_OK;
}

/* "head, token, block" into a buffer of the thread. */
static const char *list_of(const char *const *words) {
    static _Thread_local char text[512];
    size_t n = 0;
    text[0] = 0;
    for (; *words && n < sizeof text; words++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "", *words);
    return text;
}

static hr_status refuse(const hr_opt *opt, const char *shown, const char *value, const char *why) {
    HR_FAIL(HR_ERR_USAGE, "%s %.80s: %s%s%s", shown, value, why, opt->advice ? "; " : "",
            opt->advice ? opt->advice : "");
}

static hr_status refuse_number(const hr_opt *opt, const char *shown, const char *value, const char *what) {
    char why[640];
    if (opt->choices)
        snprintf(why, sizeof why, "must be %s%s", opt->choices[1] ? "one of " : "", list_of(opt->choices));
    else if (opt->min == 0 && opt->max == 0)
        snprintf(why, sizeof why, "must be %s", what);
    else
        snprintf(why, sizeof why, "must be %s from %.16g to %.16g", what, opt->min, opt->max);
    return refuse(opt, shown, value, why);
}

/* Digits with an optional minus; moves *at behind them. False when there are none or they do not fit. */
static bool integer(const char **at, int64_t *out) {
    const char *s = *at + (**at == '-');
    if (*s < '0' || *s > '9') return false;
    char *end;
    errno = 0;
    long long v = strtoll(*at, &end, 10);
    *at = end;
    *out = v;
    return errno == 0;
}

static bool legal_int(const hr_opt *opt, int64_t v) {
    if (opt->choices) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)v);
        for (const char *const *c = opt->choices; *c; c++)
            if (!strcmp(*c, text)) return true;
        return false;
    }
    return (opt->min == 0 && opt->max == 0) || ((double)v >= opt->min && (double)v <= opt->max);
}

static hr_status take_int(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value) {
    const char *at = value;
    int64_t v;
    if (!integer(&at, &v) || *at || !legal_int(opt, v)) return refuse_number(opt, shown, value, "an integer");
    return push_int(slot, shown, v);
}

/* N, a-b, a-b+step or a-b*mult. */
static hr_status take_range(hr_slot *slot, const hr_opt *opt, const char *shown, const char *piece) {
    const char *at = piece;
    int64_t from, to, step = 1;
    char how = '+';
    if (!integer(&at, &from) || (*at && *at != '-'))
        return refuse_number(opt, shown, piece, "integers or ranges a-b+step, a-b*mult,");
    if (!*at) return take_int(slot, opt, shown, piece);
    bool sound = *at++ == '-' && integer(&at, &to);
    if (sound && *at) {
        how = *at++;
        sound = (how == '+' || how == '*') && integer(&at, &step) && !*at;
    }
    if (!sound) return refuse(opt, shown, piece, "a range is a-b, a-b+step or a-b*mult");
    if (!legal_int(opt, from) || (!opt->choices && !legal_int(opt, to)))
        return refuse_number(opt, shown, piece, "integers");
    if (from > to) return refuse(opt, shown, piece, "the range ends before it begins");
    if (how == '+' ? step < 1 : step < 2 || from < 1)
        return refuse(opt, shown, piece,
                      how == '+' ? "the step must be 1 or more"
                                 : "the factor must be 2 or more and the range begin at 1 or more");
    for (int64_t v = from;;) {
        if (!legal_int(opt, v)) return refuse_number(opt, shown, piece, "integers");
        HR_TRY(push_int(slot, shown, v));
        if (how == '+' ? v > to - step : v > to / step) return HR_OK;
        v = how == '+' ? v + step : v * step;
    }
}

static hr_status take_word(const hr_opt *opt, const char *shown, const char *value) {
    for (const char *const *c = opt->choices; *c; c++)
        if (!strcmp(*c, value)) return HR_OK;
    char why[640];
    const char *near = hr_nearest(value, opt->choices);
    for (size_t i = 0; opt->others && opt->others[i]; i += 2)
        if (!strcmp(opt->others[i], value)) near = opt->others[i + 1];
    if (near)
        snprintf(why, sizeof why, "unknown value; nearest is %s (legal: %s)", near, list_of(opt->choices));
    else
        snprintf(why, sizeof why, "unknown value; legal: %s", list_of(opt->choices));
    return refuse(opt, shown, value, why);
}

static hr_status take_real(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value) {
    char *end;
    bool plain = (value[0] >= '0' && value[0] <= '9') || value[0] == '.' || value[0] == '-';
    double v = plain ? strtod(value, &end) : 0;
    if (!plain || end == value || *end || !(v - v == 0) ||
        !((opt->min == 0 && opt->max == 0) || (v >= opt->min && v <= opt->max)))
        return refuse_number(opt, shown, value, "a number");
    slot->real = v;
    return HR_OK;
}

static hr_status take_pair(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value) {
    const char *at = value;
    int64_t a, b;
    if (!integer(&at, &a) || *at++ != ',' || !integer(&at, &b) || *at)
        return refuse(opt, shown, value, "must be two integers with a comma between them, as 512,128");
    if (!legal_int(opt, a) || !legal_int(opt, b)) return refuse_number(opt, shown, value, "two integers");
    HR_TRY(push_int(slot, shown, a));
    return push_int(slot, shown, b);
}

static hr_status take_piece(hr_slot *slot, const hr_opt *opt, const char *shown, const char *piece) {
    if (!*piece) HR_FAIL(HR_ERR_USAGE, "%s: the list is empty or has an empty entry", shown);
    if (opt->kind == HR_OPT_INTS)
        HR_TRY(take_range(slot, opt, shown, piece));
    else if (opt->kind == HR_OPT_WORDS)
        HR_TRY(take_word(opt, shown, piece));
    return push_text(slot, shown, piece);
}

/* Pieces between commas; a backslash keeps the comma after it (file names). */
static hr_status take_list(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value) {
    char *piece = hr_malloc(strlen(value) + 1);
    if (!piece) HR_FAIL(HR_ERR_MEMORY, "%s: out of memory", shown);
    hr_status status = HR_OK;
    size_t n = 0;
    for (const char *c = value; status == HR_OK; c++) {
        if (*c == '\\' && c[1] == ',') {
            piece[n++] = *++c;
        } else if (*c && *c != ',') {
            piece[n++] = *c;
        } else {
            piece[n] = 0, n = 0;
            status = take_piece(slot, opt, shown, piece);
            if (!*c) break;
        }
    }
    hr_free(piece);
    return status;
}

/* A flag with one value forgets the one it had. */
static void forget(hr_slot *slot) {
    bool given = slot->given;
    hr_slot_clear(slot);
    slot->given = given;
}

hr_status hr_slot_take(hr_slot *slot, const hr_opt *opt, const char *shown, const char *value) {
    switch (opt->kind) {
    case HR_OPT_FLAG:
        slot->flag = true;
        return HR_OK;
    case HR_OPT_TEXT:
        if ((double)strlen(value) < opt->min) HR_FAIL(HR_ERR_USAGE, "%s: the value is empty", shown);
        forget(slot);
        break;
    case HR_OPT_INT:
        forget(slot);
        HR_TRY(take_int(slot, opt, shown, value));
        break;
    case HR_OPT_REAL:
        forget(slot);
        HR_TRY(take_real(slot, opt, shown, value));
        break;
    case HR_OPT_WORD:
        forget(slot);
        HR_TRY(take_word(opt, shown, value));
        break;
    case HR_OPT_TEXTS:
    case HR_OPT_INTS:
    case HR_OPT_WORDS:
        return take_list(slot, opt, shown, value);
    case HR_OPT_PAIRS:
        HR_TRY(take_pair(slot, opt, shown, value));
        break;
    case HR_OPT_KEYVALUE: {
        const char *equals = strchr(value, '=');
        if (!equals || equals == value) return refuse(opt, shown, value, "must be KEY=VALUE");
        break;
    }
    }
    return push_text(slot, shown, value);
}
