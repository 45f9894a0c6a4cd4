/* Rules on one cell's setup and its place under the roof. */
#include "harness/advice/advice_rules.h"

#include <string.h>

static const double LOW_MEMORY = 0.5, LOW_COMPUTE = 0.35;         /* shares of the roof; figures of README.md */
static const double LINE = 64, LINE_PAIR = 128;                   /* bytes */
static const double RUN_LEAST = 1024;                             /* bytes of one head in a page */
static const double RESERVED_OVER = 2, RESERVED_LEAST = 16 << 20; /* bytes that lie idle */
static const double RESERVED_SHARE = 0.05;                        /* of the memory: more than a note */
static const double LONG_CONTEXT = 512; /* tokens: below, attention that keeps its scores may be faster */
static const double UBATCH_LEAST = 64;

/* ---- the roof ----------------------------------------------------------------------------------------------------------- */

bool hr_rule_low_utilisation(const hr_case *c, hr_finding *f) {
    static const char *const fractions[] = {"roof_fraction", "prefill_roof_fraction"};
    static const char *const bounds[] = {"bound", "prefill_bound"};
    static const char *const disturbed[] = {"over_roof", "noisy_neighbour"}; /* then the share is of something else */
    if (json_is_true(json_object_get(c->cell, "cache_resident")) || hr_is_word(c->cell, "state_class", "mixed"))
        return false;
    for (int i = 0; i < 2; i++)
        if (hr_report_flagged(c->cell, disturbed[i])) return false;
    for (int i = 0; i < 2; i++) {
        const double share = hr_num(c->cell, fractions[i]);
        const bool memory = hr_is_word(c->cell, bounds[i], "memory"),
                   compute = hr_is_word(c->cell, bounds[i], "compute");
        if (!(share > 0) || !(memory || compute) || share >= (memory ? LOW_MEMORY : LOW_COMPUTE)) continue;
        const bool decodes = i == 0 && hr_p50(c->cell, "tpot_excl_first_ms") > 0;
        f->value = share * 100, f->unit = "% of the roof", f->cost_pct = (1 - share) * 100;
        hr_say(f, finding, "%s reaches %.3g %% of what %s", decodes ? "decode" : "prefill", share * 100,
               memory ? "the read bandwidth allows" : "the arithmetic units allow");
        hr_say(f, evidence, "%.24s %.3f, bound by %s; below %.0f %% there is something to find", fractions[i], share,
               memory ? "memory" : "compute", (memory ? LOW_MEMORY : LOW_COMPUTE) * 100);
        hr_say(f, todo, "`headroom explain %.40s` names the ops that lose the time; first look at other findings here",
               hr_word(c->cell, "cell_id"));
        return true;
    }
    return false;
}

bool hr_rule_over_roof(const hr_case *c, hr_finding *f) {
    if (!hr_report_flagged(c->cell, "over_roof")) return false;
    f->severity = HR_HIGH;
    const double mbu = hr_num(c->cell, "mbu"), mfu = hr_num(c->cell, "mfu");
    f->value = hr_num(c->cell, "roof_fraction") * 100, f->unit = "% of the roof";
    hr_say(f, finding, "faster than the roof: a ceiling or a count of bytes is wrong, so no share of this cell counts");
    hr_say(f, evidence, "mbu %.3f, mfu %.3f", hr_or(mbu, 0), hr_or(mfu, 0));
    hr_say(f, todo, "measure the ceilings again (`headroom roof`) on an idle machine, then this cell");
    return true;
}

bool hr_rule_cache_resident(const hr_case *c, hr_finding *f) {
    if (!json_is_true(json_object_get(c->cell, "cache_resident"))) return false;
    f->value = hr_num(c->cell, "bytes_weights") / (1 << 20), f->unit = "MiB";
    hr_say(f, finding, "the model stays in the last-level cache: its speed says nothing about the memory");
    if (isfinite(f->value)) hr_say(f, evidence, "%s of weights a step; ", hr_text_size(f->value * (1 << 20)));
    hr_say(f, evidence, "cache_resident: weights and KV are smaller than the cache as measured");
    hr_say(f, todo, "take a larger model (more layers=), or read its shares of the bandwidth as shares of nothing");
    return true;
}

/* ---- kernels --------------------------------------------------------------------------------------------------------------- */

/* The row of the table behind "gate_up_fused+NAME"; NULL: this build has none. */
static const hr_kernel *product_row(const char *name) {
    const char *plus = strrchr(name, '+');
    const hr_kernel *k;
    if (plus) name = plus + 1;
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++)
        if (k->family == HR_FAM_MATMUL && !strcmp(k->name, name)) return k;
    return NULL;
}

/* The row made for so few tokens that does the same work as `many`, which is made for more; NULL: none is. */
static const hr_kernel *row_for_few(const hr_kernel *many, double tokens) {
    const hr_kernel *k, *best = NULL;
    if (many->n_max && !many->tile) return NULL; /* is one itself */
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++) {
        const bool same = k->family == HR_FAM_MATMUL && k->isa == many->isa && k->act == many->act &&
                          (k->dtypes & many->dtypes) && k->orders == many->orders && k->lanes == many->lanes;
        const bool few = k->n_max && k->n_min <= tokens && tokens <= k->n_max && !k->tile;
        if (k != many && same && few && (!best || k->rank > best->rank)) best = k;
    }
    return best;
}

bool hr_rule_tile_decode(const hr_case *c, hr_finding *f) {
    const json_t *decode = json_object_get(json_object_get(c->cell, "kernels"), "decode");
    const double tokens = hr_seqs(c->cell);
    const char *op;
    json_t *name;
    size_t n = 0;
    char ops[120] = "";
    const hr_kernel *worst = NULL, *better = NULL;
    json_object_foreach((json_t *)decode, op, name) {
        const hr_kernel *k = json_is_string(name) ? product_row(json_string_value(name)) : NULL;
        const hr_kernel *few = k ? row_for_few(k, tokens) : NULL;
        if (!few) continue;
        if (n < sizeof ops) n += (size_t)snprintf(ops + n, sizeof ops - n, "%s%.12s", n ? ", " : "", op);
        if (!worst || k->tile > worst->tile) worst = k, better = few;
    }
    if (!worst) return false;
    f->value = worst->tile > tokens ? worst->tile : tokens, f->unit = "tokens a tile";
    hr_say(f, finding, "a kernel for many tokens serves decode steps of %.0f (%s)", tokens, ops);
    if (worst->tile > tokens)
        hr_say(f, evidence, "%.60s computes tiles of %u tokens, of which %.0f count", worst->name, worst->tile, tokens);
    else
        hr_say(f, evidence, "%.60s is for any number of tokens, %.60s for at most %u", worst->name, better->name,
               better->n_max);
    hr_say(f, todo, "leave out --kernel, or name %.60s for these ops", better->name);
    return true;
}

bool hr_rule_isa_low(const hr_case *c, hr_finding *f) {
    static const char *const isas[] = {"generic", "avx2", "avxvnni", "avx512"};
    char known[256];
    snprintf(known, sizeof known, " %s ", hr_word(c->machine, "isas"));
    int used = -1, best = -1;
    for (int i = 0; i < 4; i++) {
        char word[16];
        snprintf(word, sizeof word, " %s ", isas[i]);
        if (strstr(known, word)) best = i;
        if (hr_is_word(c->cell, "isa", isas[i])) used = i;
    }
    if (used < 0 || used >= best) return false;
    f->severity = HR_HIGH, f->value = best - used, f->unit = "steps";
    hr_say(f, finding, "ran on %s where the machine has %s", isas[used], isas[best]);
    hr_say(f, evidence, "isa %s; the machine knows: %.120s", isas[used], hr_word(c->machine, "isas"));
    hr_say(f, todo, "leave out --isa, or give --isa auto");
    return true;
}

/* ---- KV and attention ------------------------------------------------------------------------------------------------------ */

static bool is_paged(const json_t *cell) {
    return !strncmp(hr_word(cell, "kv_layout"), "paged", 5);
}

/* Rows stand one by one, with others between them. */
static bool rows_stand_alone(const json_t *cell) {
    return hr_is_word(cell, "kv_layout", "token") || hr_is_word(cell, "kv_layout", "paged-nhd") ||
           (is_paged(cell) && hr_num(cell, "page_size") == 1);
}

bool hr_rule_kv_align(const hr_case *c, hr_finding *f) {
    const double row = hr_num(c->cell, "kv_row_bytes");
    if (!(row >= 1) || !isfinite(row) || fmod(row, LINE_PAIR) == 0) return false;
    const bool split = fmod(row, LINE) != 0, alone = rows_stand_alone(c->cell);
    const double lines = ceil(row / LINE) * LINE;
    f->severity = split || alone ? HR_MEDIUM : HR_NOTE;
    f->value = row, f->unit = "bytes";
    hr_say(f, finding, "rows of K of %.0f bytes do not start on 128 bytes", row);
    if (split)
        hr_say(f, evidence, "a row lies on up to %.0f bytes of 64-byte lines, some of them half of another row's",
               lines + (row > LINE ? LINE : 0));
    else if (alone)
        hr_say(f, evidence, "layout %.20s keeps them apart, and memory is fetched by pairs of lines, 128 bytes",
               hr_word(c->cell, "kv_layout"));
    else
        hr_say(f, evidence,
               "every other row starts in the middle of a pair of lines; rows follow each other, so all that "
               "is fetched is used");
    hr_say(f, todo, "%s",
           alone ? "use --kv-layout head, where rows of a head follow each other, or a wider -ctk"
                 : "a K type with rows of 128 bytes (-ctk bf16 at a head dimension of 64); `headroom claims --only "
                   "align-128` tells what it costs here");
    return true;
}

bool hr_rule_page_size(const hr_case *c, hr_finding *f) {
    const double row = hr_num(c->cell, "kv_row_bytes"), page = hr_num(c->cell, "page_size");
    if (!is_paged(c->cell) || !(row > 0) || !(page > 0) || !(row * page < RUN_LEAST)) return false;
    f->value = row * page, f->unit = "bytes";
    hr_say(f, finding, "pages of %.0f token%s cut K of a head into runs of %.0f bytes", page, page == 1 ? "" : "s",
           row * page);
    hr_say(f, evidence, "kv_row_bytes x page_size; under %.0f bytes looking up a page costs as much as reading it",
           RUN_LEAST);
    hr_say(f, todo, "--page-size 16 or more; `headroom kv study` says what each size costs on this machine");
    return true;
}

bool hr_rule_kv_reserved(const hr_case *c, hr_finding *f) {
    const double reserved = hr_num(c->cell, "kv_bytes_reserved"), needed = hr_num(c->cell, "kv_bytes_needed");
    if (!(needed > 0) || !isfinite(reserved)) return false;
    if (!(reserved > RESERVED_OVER * needed) || reserved - needed < RESERVED_LEAST) return false;
    const bool much = reserved - needed > RESERVED_SHARE * hr_num(c->machine, "memory_bytes");
    f->severity = much ? HR_MEDIUM : HR_NOTE;
    f->value = (1 - needed / reserved) * 100, f->unit = "%";
    hr_say(f, finding, "%.3g %% of the memory held for KV is never used", f->value);
    hr_say(f, evidence, "%s reserved, %s needed by %s at their longest", hr_text_size(reserved), hr_text_size(needed),
           hr_text_of(hr_seqs(c->cell), "sequence"));
    hr_say(f, todo,
           "%s; a cell this short uses little of the least room that a sequence gets, so judge memory by longer ones",
           is_paged(c->cell) ? "--kv-budget 50 or less holds the same pages in less memory"
                             : "--kv-layout paged --kv-budget 50 where requests are shorter than the longest");
    return true;
}

bool hr_rule_softmax(const hr_case *c, hr_finding *f) {
    const char *type = hr_word(c->cell, "softmax");
    if (!*type || !strcmp(type, "f32")) return false;
    f->severity = HR_HIGH;
    hr_say(f, finding, "softmax is computed in %.20s: long contexts lose accuracy", type);
    hr_say(f, evidence, "softmax %.20s, wanted f32", type);
    f->unit = "";
    hr_say(f, todo, "use an attention kernel that sums in f32; compare `headroom perplexity` of both");
    return true;
}

/* Share of attention in the ops of a phase, NaN where none are stored. */
static double attention_share(const json_t *ops, const char *phase) {
    double all = 0, attention = 0;
    size_t i;
    json_t *op;
    json_array_foreach((json_t *)ops, i, op) {
        const double ns = hr_num(op, "n") * hr_num(op, "median_ns");
        if (!hr_is_word(op, "phase", phase) || !(ns > 0)) continue;
        all += ns;
        if (hr_is_word(op, "op", "attention")) attention += ns;
    }
    return all > 0 ? attention / all : NAN;
}

bool hr_rule_flash_off(const hr_case *c, hr_finding *f) {
    const double out = hr_or(hr_num(c->cell, "n_gen"), 0), depth = hr_or(hr_num(c->cell, "n_depth"), 0);
    const double context = hr_prompt(c->cell) + depth + out;
    if (!json_is_false(json_object_get(c->cell, "flash_attn")) || !(context >= LONG_CONTEXT)) return false;
    const char *phase = hr_prompt(c->cell) > 0 ? "prefill" : "decode";
    const double share = attention_share(c->ops, phase);
    hr_say(f, finding, "flash attention is off at a context of %.0f tokens", context);
    if (isfinite(share)) {
        f->value = share * 100, f->unit = "%";
        hr_say(f, evidence, "attention takes %.3g %% of the recorded ops of the %s", share * 100, phase);
    } else {
        f->value = context, f->unit = "tokens";
        hr_say(f, evidence, "flash_attn false; no ops are stored that would say what attention takes");
    }
    hr_say(f, todo, "-fa 1; below %.0f tokens it may make no difference", LONG_CONTEXT);
    return true;
}

/* ---- how it was measured --------------------------------------------------------------------------------------------------- */

bool hr_rule_micro_batch(const hr_case *c, hr_finding *f) {
    const double ubatch = fmin(hr_num(c->cell, "n_ubatch"), hr_or(hr_num(c->cell, "n_batch"), INFINITY));
    const double prompt = hr_prompt(c->cell);
    if (!(ubatch >= 1) || !isfinite(ubatch) || !(ubatch < UBATCH_LEAST) || !(prompt >= 2 * ubatch)) return false;
    f->value = ceil(prompt / ubatch), f->unit = "reads of the weights";
    hr_say(f, finding, "the prompt goes in micro-batches of %.0f tokens: too few to reuse the weights", ubatch);
    hr_say(f, evidence, "%.0f tokens read all weights %.0f times", prompt, f->value);
    hr_say(f, todo, "-ub 512 (and -b at least that)");
    return true;
}

bool hr_rule_no_warmup(const hr_case *c, hr_finding *f) {
    if (hr_num(c->cell, "warmups") != 0) return false;
    const double faults = hr_num(c->cell, "page_faults");
    f->value = 0, f->unit = "repetitions";
    hr_say(f, finding, "nothing was run before measuring: the first repetitions hold cold caches and first touches");
    hr_say(f, evidence, "warmups 0, page faults in the timed region: %.0f", hr_or(faults, 0));
    hr_say(f, todo, "leave out --no-warmup, unless the cold start is what is asked for");
    return true;
}
