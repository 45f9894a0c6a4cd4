/* The short view of a cell for tables: what was measured, how long it took, how far that is from the machine's limits. */
#include "harness/formats/formats_internal.h"
#include "harness/formats/json_get.h"
#include "kernels/base/isa.h"

#include <math.h>
#include <string.h>

const char *const hr_short_headings[HR_SHORT_COLUMNS] = {"test",      "model",     "quant/act", "setup",
                                                         "TTFT ms ±", "TPOT ms ±", "tok/s",     "MBU%",
                                                         "MFU%",      "roof%",     "bound",     "flags"};
const int hr_short_widths[HR_SHORT_COLUMNS] = {-13, -12, -11, -6, 12, 12, 6, 5, 5, 5, -5, -5};

/* Words of the last column: flags and stop reasons that a reader should know of. Others stay out: they are in every
 * other format. */
static const struct {
    const char *key, *word, *meaning;
} notes[] = {
    {"throttled", "throttled", "the CPU or GPU ran below its best clock"},
    {"noisy_neighbour", "noisy", "other programs waited for the CPU beside this cell"},
    {"state_changed", "state", "the machine changed its state during the cell"},
    {"roof_drift", "drift", "the ceilings before and after the cell differ"},
    {"over_roof", "over", "faster than the roof allows: a byte count or a ceiling is wrong"},
    {"cache_resident", "cache", "the data fit in the last cache, so MBU is not a share of DRAM's speed"},
    {"simulated", "sim", "no real device ran it"},
    {"timeout", "time", "--max-time ended the cell before its median was known to 0.5 %"},
    {"max_samples", "max", "--max-samples ended the cell before its median was known to 0.5 %"},
    {NULL, "±%*", "half of max - min: fewer than 6 samples have no 95 % interval"},
};
enum { N_NOTES = sizeof notes / sizeof *notes, NOTE_RANGE = N_NOTES - 1 };

static void append(char *text, const char *more) {
    size_t n = strlen(text);
    snprintf(text + n, HR_SHORT_BYTES - n, "%s%s", n ? " " : "", more);
}

/* A file without its folders and ending, a synthetic model without "synth:". */
static void model_name(const json_t *cell, char *text) {
    const char *name = hr_word(cell, "model_filename"), *slash = strrchr(name, '/');
    if (!strncmp(name, "synth:", 6))
        name += 6;
    else if (slash && slash[1])
        name = slash + 1;
    snprintf(text, HR_SHORT_BYTES, "%.40s", name);
    size_t n = strlen(text);
    if (n > 5 && !strcmp(text + n - 5, ".gguf")) text[n - 5] = 0;
}

/* Threads or the GPU, and whatever is not the default. */
static void setup(const json_t *cell, char *text) {
    char part[64];
    double threads = hr_num(cell, "n_threads"), seqs = hr_num(cell, "n_seqs"), ubatch = hr_num(cell, "n_ubatch"),
           batch = hr_num(cell, "n_batch");
    const char *k = hr_word(cell, "type_k"), *v = hr_word(cell, "type_v"), *layout = hr_word(cell, "kv_layout"),
               *isa = hr_word(cell, "isa");
    text[0] = 0;
    if (!strncmp(hr_word(cell, "device"), "cuda", 4)) append(text, hr_word(cell, "device"));
    if (json_is_false(json_object_get(cell, "graphs"))) append(text, "graphs0");
    if (threads > 0) snprintf(part, sizeof part, "t%.0f", threads), append(text, part);
    if (seqs > 1) snprintf(part, sizeof part, "x%.0f", seqs), append(text, part);
    if (*layout && strcmp(layout, "head")) {
        double page = hr_num(cell, "page_size");
        snprintf(part, sizeof part, page > 0 ? "%.20s:%.0f" : "%.20s", layout, page);
        append(text, part);
    }
    if ((*k && strcmp(k, "bf16")) || (*v && strcmp(v, "bf16")))
        snprintf(part, sizeof part, strcmp(k, v) ? "kv=%.8s/%.8s" : "kv=%.8s", k, v), append(text, part);
    if (json_is_false(json_object_get(cell, "flash_attn"))) append(text, "fa0");
    if (batch > 0 && batch != 2048) snprintf(part, sizeof part, "b%.0f", batch), append(text, part);
    if (ubatch > 0 && ubatch != 512) snprintf(part, sizeof part, "ub%.0f", ubatch), append(text, part);
    if (*isa && strcmp(isa, "auto") && strcmp(isa, hr_isa_name(hr_isa_best()))) append(text, isa);
}

/* "12.34 ±0.5%": the median and half its 95 % interval; "±0.5%*" is half the range, for samples too few for an
 * interval. Requests submitted together wait for each other and are no independent samples: no spread then, unless the
 * distribution is one of repetitions. */
static void dist(const json_t *cell, const char *key, char *text, unsigned *used) {
    const json_t *d = json_object_get(cell, key);
    const double n = hr_num(d, "n"), p50 = hr_num(d, "p50");
    double half = (hr_num(d, "ci95_hi") - hr_num(d, "ci95_lo")) / 2;
    const bool range = !isfinite(half);
    if (range) half = (hr_num(d, "max") - hr_num(d, "min")) / 2;
    text[0] = 0;
    if (!isfinite(p50)) return;
    hr_short_text(p50, text, HR_SHORT_BYTES);
    if (!isfinite(half) || p50 <= 0 || n < 2) return;
    const bool together = isfinite(hr_num(cell, "isl")) && hr_num(cell, "n_seqs") > 1;
    if (together && n > (double)json_array_size(json_object_get(cell, "samples_ns"))) return;
    char spread[48];
    snprintf(spread, sizeof spread, "±%.*f%%%s", half / p50 < 0.0995 ? 1 : 0, 100 * half / p50, range ? "*" : "");
    if (range) *used |= 1u << NOTE_RANGE;
    append(text, spread);
}

static void percent(const json_t *cell, const char *key, char *text) {
    double ratio = hr_num(cell, key);
    text[0] = 0;
    if (isfinite(ratio)) snprintf(text, HR_SHORT_BYTES, "%.1f", 100 * ratio);
}

/* The rate that fits the kind of row. */
static void rate(const json_t *cell, char *text) {
    static const char *const rates[] = {"output_tok_s", "decode_tok_s", "prefill_tok_s"};
    bool only = isfinite(hr_num(cell, "isl")) || (hr_num(cell, "n_prompt") > 0 && hr_num(cell, "n_gen") > 0);
    text[0] = 0;
    for (size_t i = only ? 0 : 1; i < 3 && !text[0]; i++) {
        double v = hr_num(cell, rates[i]);
        if (isfinite(v)) hr_short_text(v, text, HR_SHORT_BYTES);
        if (only) break;
    }
}

static void note(const char *key, char *text, unsigned *used) {
    for (size_t i = 0; key && i < NOTE_RANGE; i++) {
        if (strcmp(key, notes[i].key) != 0) continue;
        append(text, notes[i].word);
        *used |= 1u << i;
    }
}

void hr_short_cell(const json_t *cell, char texts[HR_SHORT_COLUMNS][HR_SHORT_BYTES], unsigned *used) {
    for (int i = 0; i < HR_SHORT_COLUMNS; i++) texts[i][0] = 0;
    snprintf(texts[0], HR_SHORT_BYTES, "%s", hr_word(cell, "test"));
    model_name(cell, texts[1]);
    snprintf(texts[2], HR_SHORT_BYTES, *hr_word(cell, "act") ? "%s/%s" : "%s", hr_word(cell, "quant"),
             hr_word(cell, "act"));
    setup(cell, texts[3]);
    dist(cell, isfinite(hr_num(cell, "isl")) ? "ttft_ms" : "ttft_prefill_ms", texts[4], used);
    dist(cell, "tpot_excl_first_ms", texts[5], used);
    rate(cell, texts[6]);
    percent(cell, "mbu", texts[7]);
    percent(cell, "mfu", texts[8]);
    percent(cell, "roof_fraction", texts[9]);
    const char *bound = hr_word(cell, "bound"), *status = hr_word(cell, "status");
    snprintf(texts[10], HR_SHORT_BYTES, "%s",
             !strcmp(bound, "memory")    ? "mem"
             : !strcmp(bound, "compute") ? "comp"
                                         : bound);
    if (*status && strcmp(status, "ok")) {
        snprintf(texts[11], HR_SHORT_BYTES, "%s: %s", status, hr_word(cell, "error"));
        return;
    }
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(cell, "flags"), i, flag) note(json_string_value(flag), texts[11], used);
    if (!strstr(texts[11], "throttled")) note(hr_word(cell, "stop_reason"), texts[11], used);
}

void hr_short_legend(FILE *stream, const char *before, unsigned used) {
    for (size_t i = 0; i < N_NOTES; i++)
        if (used >> i & 1) fprintf(stream, "%s%s: %s\n", before, notes[i].word, notes[i].meaning);
}
