#include "harness/show/cell_args.h"

#include "engine/engine.h"
#include "harness/cli/option_groups.h"
#include "kernels/base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The words being made; `failed` is sticky, so that one check at the end is enough. */
typedef struct words {
    json_t *list;
    bool failed;
} words;

static void put(words *w, const char *flag, const char *value) {
    w->failed |= json_array_append_new(w->list, json_string(flag)) != 0;
    w->failed |= json_array_append_new(w->list, json_string(value)) != 0;
}

/* Flags that say what is the default anyway would make the line long. */
static void put_unless_default(words *w, const hr_opt *opt, const char *flag, const char *value) {
    if (!opt->fallback || strcmp(opt->fallback, value)) put(w, flag, value);
}

static const char *text_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* The text of a scalar; NULL for null and for what is no scalar. */
static const char *scalar(const json_t *value, char out[64]) {
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_boolean(value)) return json_is_true(value) ? "1" : "0";
    if (json_is_integer(value)) {
        snprintf(out, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return out;
    }
    if (!json_is_real(value)) return NULL;
    snprintf(out, 64, "%.17g", json_real_value(value));
    return out;
}

/* An integer key that is there and above `least`, as text. */
static const char *number(const json_t *cell, const char *key, json_int_t least, char out[64]) {
    const json_t *value = json_object_get(cell, key);
    return json_is_integer(value) && json_integer_value(value) >= least ? scalar(value, out) : NULL;
}

/* ---- what is measured -------------------------------------------------------------------------------------------- */

static hr_status put_kind(words *w, const json_t *cell) {
    char a[64], b[64], pair[136];
    const char *isl = number(cell, "isl", 1, a), *osl = number(cell, "osl", 1, b);
    if (isl && osl) {
        put(w, "--isl", isl), put(w, "--osl", osl);
        return HR_OK;
    }
    const char *prompt = number(cell, "n_prompt", 1, a), *gen = number(cell, "n_gen", 1, b);
    if (prompt && gen) {
        snprintf(pair, sizeof pair, "%s,%s", prompt, gen);
        put(w, "-pg", pair);
    } else if (prompt || gen)
        put(w, prompt ? "-p" : "-n", prompt ? prompt : gen);
    else
        HR_FAIL(HR_ERR_INPUT, "the cell does not say how many tokens it read or wrote: it cannot be measured again");
    const char *depth = number(cell, "n_depth", 1, a);
    if (depth) put(w, "-d", depth);
    return HR_OK;
}

/* ---- axes and settings ------------------------------------------------------------------------------------------- */

/* Which devices a key or setting concerns. */
typedef enum concern { BOTH, CPU_ALONE, GPU_ALONE } concern;

static bool on_gpu(const json_t *cell) {
    const char *device = text_of(cell, "device");
    return device && !strncmp(device, "cuda", 4);
}

static bool concerns(concern c, bool gpu) {
    return c == BOTH || (c == GPU_ALONE) == gpu;
}

/* Keys of a cell that are flags by themselves. */
static const struct {
    const char *key, *flag;
    const hr_opt *opt;
    concern on;
} axes[] = {{"quant", "--quant", &hr_opt_quant, BOTH},
            {"type_k", "-ctk", &hr_opt_type_k, BOTH},
            {"type_v", "-ctv", &hr_opt_type_v, BOTH},
            {"kv_layout", "--kv-layout", &hr_opt_kv_layout, BOTH},
            {"page_size", "--page-size", &hr_opt_page_size, BOTH},
            {"flash_attn", "-fa", &hr_opt_flash, BOTH},
            {"fusion", "--fusion", &hr_opt_fusion, BOTH},
            {"weights", "--weights", &hr_opt_weights, CPU_ALONE},
            {"n_seqs", "--seqs", &hr_opt_seqs_list, BOTH},
            {"n_batch", "-b", &hr_opt_batch, BOTH},
            {"n_ubatch", "-ub", &hr_opt_ubatch, BOTH},
            {"device", "--device", &hr_opt_device, BOTH},
            {"graphs", "--graphs", &hr_opt_graphs, GPU_ALONE},
            {"gpu_memory", "--gpu-memory", &hr_opt_gpu_memory, GPU_ALONE},
            {"gemm", "--gemm", &hr_opt_gemm, GPU_ALONE}};

/* What has no default, or one that depends on model and machine: always written. */
static const struct {
    const char *key, *flag;
    concern on;
} always[] = {{"act", "--act", BOTH},
              {"n_threads", "-t", CPU_ALONE},
              {"isa", "--isa", CPU_ALONE},
              {"kv_alloc", "--kv-alloc", BOTH}};

/* Settings of a run: one value for all its cells. */
static const struct {
    const hr_opt *opt;
    concern on;
} settings[] = {{&hr_opt_mmap, CPU_ALONE}, {&hr_opt_huge_pages, CPU_ALONE}, {&hr_opt_pin, CPU_ALONE},
                {&hr_opt_kv_budget, BOTH}, {&hr_opt_kv_threshold, BOTH},    {&hr_opt_kv_compact, BOTH}};

static hr_status put_axes(words *w, const json_t *cell) {
    char text[64];
    const bool gpu = on_gpu(cell);
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        const char *value = scalar(json_object_get(cell, axes[i].key), text);
        if (value && concerns(axes[i].on, gpu)) put_unless_default(w, axes[i].opt, axes[i].flag, value);
    }
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) {
        if (!concerns(always[i].on, gpu)) continue;
        const char *value = scalar(json_object_get(cell, always[i].key), text);
        if (!value)
            HR_FAIL(HR_ERR_INPUT, "the cell has no `%s`: another tool made it, and it cannot be measured again",
                    always[i].key);
        put(w, always[i].flag, value);
    }
    return HR_OK;
}

/* "qkv=a;head=b" as "--kernel qkv=a,head=b". */
static hr_status put_forced(words *w, const json_t *cell) {
    const char *forced = text_of(cell, "forced");
    if (!forced || !*forced) return HR_OK;
    char *list = hr_strdup(forced);
    if (!list) HR_FAIL(HR_ERR_MEMORY, "out of memory for the flags of a cell");
    for (char *at = list; (at = strchr(at, ';'));) *at++ = ',';
    put(w, "--kernel", list);
    hr_free(list);
    return HR_OK;
}

static void put_settings(words *w, const json_t *cell, const json_t *run_args) {
    char text[64];
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *name = settings[i].opt->name;
        const char *value = scalar(json_object_get(run_args, name + strspn(name, "-")), text);
        if (value && concerns(settings[i].on, on_gpu(cell))) put_unless_default(w, settings[i].opt, name, value);
    }
    /* A cell says its limit whoever set it; the run says whether it was the sweep. */
    const json_t *limit = json_object_get(cell, "power_limit_w");
    if (json_is_number(limit) && json_object_get(run_args, "power-limit")) {
        snprintf(text, sizeof text, "%.0f", json_number_value(limit));
        put(w, "--power-limit", text);
    }
    const char *prompt = text_of(run_args, "prompt");
    if (prompt) put(w, "--prompt", prompt);
}

static hr_status check(const json_t *cell, const char *model) {
    const char *device = text_of(cell, "device");
    if (!model || !*model) HR_FAIL(HR_ERR_INPUT, "the cell does not say its model: it cannot be measured again");
    if (!device)
        HR_FAIL(HR_ERR_INPUT, "the cell has no `device`: another tool made it, and it cannot be measured again");
    int place;
    if (hr_device_parse(device, &place) != HR_OK)
        HR_FAIL(HR_ERR_INPUT, "the cell was measured on %.40s, which is no device of this program", device);
    if (strchr(model, ','))
        HR_FAIL(HR_ERR_INPUT, "the model's name has a comma, which -m takes for two models: rename %s", model);
    return HR_OK;
}

static hr_status fill(words *w, const json_t *cell, const json_t *run_args) {
    const char *model = text_of(cell, "model_filename");
    char text[64];
    HR_TRY(check(cell, model));
    put(w, "-m", model);
    HR_TRY(put_kind(w, cell));
    HR_TRY(put_axes(w, cell));
    HR_TRY(put_forced(w, cell));
    put_settings(w, cell, run_args);
    const char *seed = number(cell, "seed", 1, text);
    if (seed) put(w, "--seed", seed);
    return HR_OK;
}

hr_status hr_cell_args(const json_t *cell, const json_t *run_args, json_t **out) {
    words w = {.list = json_array()};
    hr_status status = w.list ? fill(&w, cell, run_args) : HR_OK;
    if (status == HR_OK && (!w.list || w.failed))
        status = hr_fail(HR_ERR_MEMORY, "out of memory for the flags of a cell");
    if (status == HR_OK)
        *out = w.list;
    else
        json_decref(w.list);
    return status;
}

/* ---- for a shell ------------------------------------------------------------------------------------------------- */

/* No shell reads anything into these. */
static bool plain(const char *word) {
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%^";
    return *word && word[strspn(word, safe)] == 0;
}

/* Bytes that a word takes at most, quotes and the space before it included: each ' becomes '\''. */
static size_t room(const char *word) {
    size_t n = 3;
    for (; *word; word++) n += *word == '\'' ? 4 : 1;
    return n;
}

static char *quote(char *at, const char *word) {
    if (plain(word)) {
        const size_t n = strlen(word);
        memcpy(at, word, n);
        return at + n;
    }
    *at++ = '\'';
    for (; *word; word++) {
        if (*word == '\'') {
            memcpy(at, "'\\''", 4);
            at += 4;
        } else
            *at++ = *word;
    }
    *at++ = '\'';
    return at;
}

char *hr_shell_line(const json_t *list) {
    size_t n = 1, i;
    json_t *word;
    json_array_foreach((json_t *)list, i, word) n += room(json_string_value(word) ? json_string_value(word) : "");
    char *line = hr_malloc(n), *at = line;
    if (!line) return NULL;
    json_array_foreach((json_t *)list, i, word) {
        if (i) *at++ = ' ';
        at = quote(at, json_string_value(word) ? json_string_value(word) : "");
    }
    *at = 0;
    return line;
}
