/* What a quantization buys: cells that differ in the type of the weights alone. */
#include "harness/report/report_page.h"

#include "kernels/base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { MODELS_MOST = 8, QUANTS_MOST = 16 };

typedef struct entry {
    const json_t *cell;
    size_t order; /* as measured */
    char key[HR_KEY_BYTES];
} entry;

/* Cells of one row with different weights; [0] is what the others are compared with. */
typedef struct choice {
    const json_t *cells[QUANTS_MOST];
    size_t n, order;
    bool alone; /* one sequence */
} choice;

static int by_key_then_order(const void *a, const void *b) {
    const entry *p = a, *q = b;
    const int key = strcmp(p->key, q->key);
    return key ? key : (p->order > q->order) - (p->order < q->order);
}

static size_t collect(const hr_report *r, entry *entries) {
    static const char *const without[] = {"quant", "act", "weights", NULL};
    size_t n = 0, i;
    json_t *cell;
    json_array_foreach(r->cells, i, cell) {
        if (!(hr_p50(cell, "tpot_excl_first_ms") > 0)) continue;
        entries[n].cell = cell, entries[n].order = i;
        hr_report_key(cell, without, entries[n++].key);
    }
    qsort(entries, n, sizeof *entries, by_key_then_order);
    return n;
}

/* Types that need no explanation as the yardstick, the best first. */
static size_t rank_of(const char *quant) {
    static const char *const usual[] = {"bf16", "f16", "f32", "native"};
    size_t i = 0;
    while (i < sizeof usual / sizeof *usual && strcmp(usual[i], quant)) i++;
    return i;
}

/* The first cell of each quantization among entries of one key, the yardstick in front. */
static choice choose(const entry *entries, size_t n) {
    choice c = {.order = entries[0].order, .alone = hr_num(entries[0].cell, "n_seqs") == 1};
    for (size_t i = 0; i < n && c.n < QUANTS_MOST; i++) {
        size_t k = 0;
        while (k < c.n && strcmp(hr_word(c.cells[k], "quant"), hr_word(entries[i].cell, "quant"))) k++;
        if (k == c.n) c.cells[c.n++] = entries[i].cell;
    }
    size_t base = 0;
    for (size_t k = 1; k < c.n; k++)
        if (rank_of(hr_word(c.cells[k], "quant")) < rank_of(hr_word(c.cells[base], "quant"))) base = k;
    const json_t *first = c.cells[base];
    memmove(c.cells + 1, c.cells, base * sizeof *c.cells);
    c.cells[0] = first;
    return c;
}

static bool better(const choice *a, const choice *b) {
    return a->n != b->n ? a->n > b->n : a->alone != b->alone ? a->alone : a->order < b->order;
}

static const char *state_of(const json_t *cell) {
    const char *state = hr_word(cell, "state_class");
    return *state ? state : "unknown";
}

static void put(hr_doc *doc, const choice *c) {
    const json_t *base = c->cells[0];
    char faster[500] = "", apart[400] = "", lead[2 * HR_LABEL_BYTES];
    size_t n = 0, m = 0;
    for (size_t i = 1; i < c->n; i++) {
        const json_t *cell = c->cells[i];
        const double ratio = hr_p50(base, "tpot_excl_first_ms") / hr_p50(cell, "tpot_excl_first_ms");
        if (strcmp(state_of(base), state_of(cell)) && m < sizeof apart)
            m += (size_t)snprintf(apart + m, sizeof apart - m, "%s%.20s (%.16s)", m ? ", " : "", hr_word(cell, "quant"),
                                  state_of(cell));
        else if (n < sizeof faster)
            n += (size_t)snprintf(faster + n, sizeof faster - n, ratio < 9.95 ? "%s%.20s%s %.2g x" : "%s%.20s%s %.0f x",
                                  n ? ", " : "", hr_word(cell, "quant"), n ? "" : " decodes", ratio);
    }
    snprintf(lead, sizeof lead, "%s, %.60s:", hr_text_model(base), hr_word(base, "test"));
    if (m && n)
        hr_doc_item(doc, lead, "%s as fast as %.20s; not compared, since the state of the machine differs (%.16s): %s.",
                    faster, hr_word(base, "quant"), state_of(base), apart);
    else if (m)
        hr_doc_item(doc, lead, "%.20s (%.16s) does not compare, since the state of the machine differs, with %s.",
                    hr_word(base, "quant"), state_of(base), apart);
    else
        hr_doc_item(doc, lead, "%s as fast as %.20s.", faster, hr_word(base, "quant"));
}

void hr_report_quants(hr_doc *doc, const hr_report *r) {
    entry *entries = hr_calloc(json_array_size(r->cells) + 1, sizeof *entries);
    choice best[MODELS_MOST];
    size_t models = 0;
    const size_t n = entries ? collect(r, entries) : 0;
    for (size_t at = 0, end; at < n; at = end) {
        for (end = at; end < n && !strcmp(entries[at].key, entries[end].key);) end++;
        const choice c = choose(entries + at, end - at);
        if (c.n < 2) continue;
        size_t k = 0;
        while (k < models && strcmp(hr_word(best[k].cells[0], "model_filename"), hr_word(c.cells[0], "model_filename")))
            k++;
        if (k == MODELS_MOST) continue;
        if (k == models) best[models++] = c;
        if (better(&c, &best[k])) best[k] = c;
    }
    for (size_t k = 0; k < models; k++) put(doc, &best[k]);
    hr_free(entries);
}
