/* The command line by the table of a subcommand, and what commands read from it. */
#include "harness/cli/options_internal.h"
#include "harness/formats/formats.h"
#include "kernels/base/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hr_args_destroy(hr_args *args) {
    if (!args) return;
    for (size_t i = 0; i < args->n_slots; i++) hr_slot_clear(&args->slots[i]);
    hr_free(args->slots);
    hr_free(args->positional);
    hr_free(args->rest);
    hr_free(args);
}

hr_status hr_args_create(const hr_command *command, hr_args **out) {
    hr_args *args = hr_calloc(1, sizeof *args);
    if (!args) HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the command line");
    args->command = command;
    while (command->options[args->n_slots]) args->n_slots++;
    args->slots = hr_calloc(args->n_slots + 1, sizeof *args->slots);
    hr_status status = args->slots ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory while reading the command line");
    if (!args->slots) args->n_slots = 0;
    for (size_t i = 0; i < args->n_slots && status == HR_OK; i++) {
        const hr_opt *opt = command->options[i];
        if (!opt->fallback) continue;
        status = hr_slot_take(&args->slots[i], opt, opt->name, opt->fallback);
        args->slots[i].defaulted = true;
    }
    if (status != HR_OK) {
        hr_args_destroy(args);
        return status;
    }
    *out = args;
    return HR_OK;
}

/* Whether `words`, separated by spaces, holds name. */
static bool holds(const char *words, const char *name) {
    size_t n = strlen(name);
    for (const char *w = words; w && *w; w += strspn(w, " ")) {
        size_t length = strcspn(w, " ");
        if (length == n && !memcmp(w, name, n)) return true;
        w += length;
    }
    return false;
}

const hr_opt *hr_args_find(const hr_args *args, const char *name, size_t *i) {
    for (*i = 0; *i < args->n_slots; ++*i) {
        const hr_opt *opt = args->command->options[*i];
        if (!strcmp(opt->name, name) || holds(opt->alias, name)) return opt;
    }
    return NULL;
}

/* Flags of other benchmarks for which there is nothing to set. */
static const char *not_needed(const char *name) {
    static const struct {
        const char *names, *why;
    } known[] = {{"-sm --split-mode -mg --main-gpu -ts --tensor-split -nkvo --no-kv-offload",
                  "this build runs on the CPU alone"},
                 {"-embd --embeddings", "only text generation is measured"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (holds(known[i].names, name)) return known[i].why;
    return NULL;
}

hr_status hr_args_unknown(const hr_args *args, const char *prefix, const char *name) {
    const char *names[256];
    static _Thread_local char aliases[2048];
    size_t n = 0, used = 0;
    for (size_t i = 0; i < args->n_slots && n < 250; i++) {
        const hr_opt *opt = args->command->options[i];
        names[n++] = opt->name;
        for (const char *a = opt->alias; a && *a && n < 250; a += strspn(a, " ")) {
            size_t length = strcspn(a, " ");
            if (used + length + 1 > sizeof aliases) break;
            memcpy(aliases + used, a, length), aliases[used + length] = 0;
            names[n++] = aliases + used;
            used += length + 1, a += length;
        }
    }
    names[n++] = "--help";
    names[n] = NULL;
    const char *why = not_needed(name);
    if (why) HR_FAIL(HR_ERR_USAGE, "%s%s is not needed here: %s; leave it out", prefix, name, why);
    const char *near = hr_nearest(name, names);
    if (near) HR_FAIL(HR_ERR_USAGE, "%sunknown flag %.80s; nearest is %s", prefix, name, near);
    if (args->command->rest)
        HR_FAIL(HR_ERR_USAGE, "%sunknown flag %.80s; %s follow --, as `headroom %s ... -- %.80s ...`", prefix, name,
                args->command->rest, args->command->name, name);
    HR_FAIL(HR_ERR_USAGE, "%sunknown flag %.80s; `headroom %s --help` lists the flags", prefix, name,
            args->command->name);
}

/* One flag at argv[*i]; moves *i to its last word. */
static hr_status take_flag(hr_args *args, int argc, char **argv, int *i) {
    char shown[64];
    const char *word = argv[*i], *value = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t length = value ? (size_t)(value++ - word) : strlen(word), at;
    if (length >= sizeof shown) return hr_args_unknown(args, "", word);
    memcpy(shown, word, length), shown[length] = 0;
    const hr_opt *opt = hr_args_find(args, shown, &at);
    if (!opt) return hr_args_unknown(args, "", shown);
    hr_slot *slot = &args->slots[at];
    if (opt->kind == HR_OPT_FLAG) {
        if (value) HR_FAIL(HR_ERR_USAGE, "%s takes no value", shown);
    } else if (!value) {
        size_t other;
        const char *metavar = opt->metavar ? opt->metavar : "VALUE";
        if (*i + 1 >= argc) HR_FAIL(HR_ERR_USAGE, "%s needs a value: %s %s", shown, shown, metavar);
        value = argv[++*i];
        if (hr_args_find(args, value, &other))
            HR_FAIL(HR_ERR_USAGE, "%s needs a value before %s: %s %s", shown, value, shown, metavar);
    }
    if (slot->defaulted) hr_slot_clear(slot);
    slot->given = true;
    return hr_slot_take(slot, opt, shown, value);
}

static hr_status take_positional(hr_args *args, const char *word) {
    const hr_command *c = args->command;
    if (!c->positional) HR_FAIL(HR_ERR_USAGE, "unexpected argument %.80s; headroom %s takes flags only", word, c->name);
    if (args->n_positional >= (size_t)c->max_positional)
        HR_FAIL(HR_ERR_USAGE, "unexpected argument %.80s; headroom %s takes at most %d: %s", word, c->name,
                c->max_positional, c->positional);
    const char **grown = hr_realloc(args->positional, hr_mul(args->n_positional + 1, sizeof *grown));
    if (!grown) HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the command line");
    args->positional = grown;
    grown[args->n_positional++] = word;
    return HR_OK;
}

static hr_status take_rest(hr_args *args, int n, char **words) {
    args->rest = hr_calloc((size_t)n + 1, sizeof *args->rest);
    if (!args->rest) HR_FAIL(HR_ERR_MEMORY, "out of memory while reading the command line");
    for (int i = 0; i < n; i++) args->rest[args->n_rest++] = words[i];
    return HR_OK;
}

static hr_status parse(hr_args *args, int argc, char **argv) {
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (flags && !strcmp(word, "--") && args->command->rest) {
            HR_TRY(take_rest(args, argc - i - 1, argv + i + 1));
            break;
        } else if (flags && !strcmp(word, "--")) {
            flags = false;
        } else if (flags && word[0] == '-' && word[1]) {
            if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
                args->help = true;
                return HR_OK;
            }
            HR_TRY(take_flag(args, argc, argv, &i));
        } else {
            HR_TRY(take_positional(args, word));
        }
    }
    size_t at;
    if (hr_args_find(args, "--config", &at) && args->slots[at].given)
        HR_TRY(hr_args_config_file(args, args->slots[at].texts[0]));
    return HR_OK;
}

hr_status hr_args_parse(const hr_command *command, int argc, char **argv, hr_args **out) {
    hr_args *args;
    HR_TRY(hr_args_create(command, &args));
    hr_status status = parse(args, argc, argv);
    if (status != HR_OK) {
        hr_args_destroy(args);
        return status;
    }
    *out = args;
    return HR_OK;
}

static const hr_slot *slot_of(const hr_args *args, const char *name) {
    size_t i;
    const hr_opt *opt = hr_args_find(args, name, &i);
    assert(opt && "a command reads a flag that it does not list");
    return opt ? &args->slots[i] : NULL;
}

bool hr_args_given(const hr_args *args, const char *name) {
    return slot_of(args, name)->given;
}
const char *hr_args_text(const hr_args *args, const char *name) {
    const hr_slot *slot = slot_of(args, name);
    return slot->n_texts ? slot->texts[0] : NULL;
}
int64_t hr_args_int(const hr_args *args, const char *name) {
    const hr_slot *slot = slot_of(args, name);
    return slot->n_ints ? slot->ints[0] : 0;
}
double hr_args_real(const hr_args *args, const char *name) {
    const hr_slot *slot = slot_of(args, name);
    return slot->n_ints ? (double)slot->ints[0] : slot->real;
}
bool hr_args_flag(const hr_args *args, const char *name) {
    return strcmp(name, "--help") ? slot_of(args, name)->flag : args->help;
}
const int64_t *hr_args_ints(const hr_args *args, const char *name, size_t *n) {
    const hr_slot *slot = slot_of(args, name);
    *n = slot->n_ints;
    return slot->ints;
}
const char *const *hr_args_texts(const hr_args *args, const char *name, size_t *n) {
    const hr_slot *slot = slot_of(args, name);
    *n = slot->n_texts;
    return (const char *const *)slot->texts;
}
size_t hr_args_n_positional(const hr_args *args) {
    return args->n_positional;
}
const char *hr_args_positional(const hr_args *args, size_t i) {
    return i < args->n_positional ? args->positional[i] : NULL;
}

const char *const *hr_args_rest(const hr_args *args, size_t *n) {
    *n = args->n_rest;
    return args->rest;
}

/* Text of a command line is not always UTF-8, and JSON must be. */
static json_t *text_json(const char *text) {
    json_t *value = json_string(text);
    return value ? value : json_string("(not UTF-8)");
}

/* A piece of INTS as a number where it is one, else the range as typed. */
static json_t *piece_json(const char *piece) {
    bool plain = *piece && strspn(piece, "0123456789") == strlen(piece);
    return plain ? json_integer(strtoll(piece, NULL, 10)) : text_json(piece); /* 0512 is a number here, not in JSON */
}

/* Commas inside a text carry a backslash, as they were typed. */
static json_t *texts_json(const hr_slot *slot) {
    json_t *list = json_array();
    for (size_t i = 0; i < slot->n_texts; i++) {
        char text[4096];
        size_t n = 0;
        for (const char *c = slot->texts[i]; *c && n + 3 < sizeof text; c++) {
            if (*c == ',') text[n++] = '\\';
            text[n++] = *c;
        }
        text[n] = 0;
        json_array_append_new(list, text_json(text));
    }
    return list;
}

static json_t *slot_json(const hr_slot *slot, hr_opt_kind kind) {
    switch (kind) {
    case HR_OPT_FLAG:
        return json_boolean(slot->flag);
    case HR_OPT_TEXT:
    case HR_OPT_WORD:
        return text_json(slot->texts[0]);
    case HR_OPT_INT:
        return json_integer(slot->ints[0]);
    case HR_OPT_REAL:
        return json_real(slot->real);
    default:
        break;
    }
    if (kind == HR_OPT_TEXTS) return texts_json(slot);
    json_t *list = json_array();
    if (kind == HR_OPT_PAIRS)
        for (size_t i = 0; i + 1 < slot->n_ints; i += 2)
            json_array_append_new(list, json_pack("[I,I]", (json_int_t)slot->ints[i], (json_int_t)slot->ints[i + 1]));
    else
        for (size_t i = 0; i < slot->n_texts; i++)
            json_array_append_new(list, kind == HR_OPT_INTS ? piece_json(slot->texts[i]) : text_json(slot->texts[i]));
    return list;
}

json_t *hr_args_json(const hr_args *args) {
    json_t *object = json_object();
    for (size_t i = 0; i < args->n_slots; i++) {
        const hr_opt *opt = args->command->options[i];
        if (!args->slots[i].given || !strcmp(opt->name, "--config") || !strcmp(opt->name, "--print-config")) continue;
        json_object_set_new(object, opt->name + strspn(opt->name, "-"), slot_json(&args->slots[i], opt->kind));
    }
    return object;
}

int hr_report_failure(void) {
    /* `| head` has what it wanted; main ends quietly. */
    if (!hr_stream_reader_gone()) fprintf(stderr, "headroom: %s\n", hr_error());
    return 2;
}
