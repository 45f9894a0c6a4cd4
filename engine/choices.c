/* choices.c - what --fusion and --kernel say: names of joined ops, and rows of the table forced by name. */
#include "engine/state.h"

#include "kernels/base/nearest.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- fusion ---- */

static const struct {
    const char *name;
    unsigned bits;
} fusions[] = {{"qkv", HR_FUSE_QKV},
               {"gate-up", HR_FUSE_GATE_UP},
               {"out-residual", HR_FUSE_OUT_RESIDUAL},
               {"head-sample", HR_FUSE_HEAD_SAMPLE},
               {"none", 0},
               {"all", HR_FUSE_ALL}};
enum { FUSIONS = sizeof fusions / sizeof fusions[0], JOINABLE = 4 };

static hr_status refuse_fusion(const char *text, const char *word, size_t n) {
    const char *words[FUSIONS + 1] = {0};
    char piece[32];
    for (int i = 0; i < FUSIONS; i++) words[i] = fusions[i].name;
    snprintf(piece, sizeof piece, "%.*s", (int)n, word);
    const bool stands_alone = !strcmp(piece, "none") || !strcmp(piece, "all");
    if (stands_alone) HR_FAIL(HR_ERR_USAGE, "--fusion %.60s: '%s' stands alone, without +", text, piece);
    const char *near = hr_nearest(piece, words);
    HR_FAIL(HR_ERR_USAGE, "--fusion %.60s: '%.20s' is none of none, all, qkv, gate-up, out-residual, head-sample%s%s%s",
            text, piece, near ? "; did you mean " : " (several are joined by +)", near ? near : "", near ? "?" : "");
}

hr_status hr_fusion_parse(const char *text, unsigned *out) {
    unsigned bits = 0;
    for (const char *word = text;; word++) {
        const size_t n = strcspn(word, "+");
        int i = 0;
        while (i < FUSIONS && (strlen(fusions[i].name) != n || memcmp(word, fusions[i].name, n) != 0)) i++;
        const bool alone = word == text && !word[n];
        if (i == FUSIONS || (i >= JOINABLE && !alone)) return refuse_fusion(text, word, n);
        bits |= fusions[i].bits;
        word += n;
        if (!*word) break;
    }
    *out = bits;
    return HR_OK;
}

const char *hr_fusion_text(unsigned fusion, char out[HR_FUSION_TEXT]) {
    size_t n = 0;
    out[0] = 0;
    if (fusion == 0 || fusion == HR_FUSE_ALL) {
        snprintf(out, HR_FUSION_TEXT, "%s", fusion ? "all" : "none");
        return out;
    }
    for (int i = 0; i < JOINABLE; i++)
        if (fusion & fusions[i].bits)
            n += (size_t)snprintf(out + n, HR_FUSION_TEXT - n, "%s%s", n ? "+" : "", fusions[i].name);
    return out;
}

const hr_fused_op hr_fused_ops[] = {{HR_FUSE_QKV, HR_OP_QKV, "qkv_fused"},
                                    {HR_FUSE_GATE_UP, HR_OP_GATE_UP, "gate_up_fused"},
                                    {HR_FUSE_OUT_RESIDUAL, HR_OP_OUT, "residual_fused"},
                                    {HR_FUSE_OUT_RESIDUAL, HR_OP_DOWN, "residual_fused"},
                                    {HR_FUSE_HEAD_SAMPLE, HR_OP_HEAD, "head_sample_fused"},
                                    {0, HR_OP_COUNT, NULL}};

/* Names made so far, of all engines; a name is complete before it is counted and never changes. */
static struct {
    atomic_flag busy;
    _Atomic size_t n;
    char text[128][88];
} names = {.busy = ATOMIC_FLAG_INIT};

static const char *find_name(const char *text) {
    for (size_t i = 0; i < names.n; i++)
        if (!strcmp(names.text[i], text)) return names.text[i];
    return NULL;
}

static const char *make_name(const char *fused, const char *kernel) {
    char text[sizeof names.text[0]];
    snprintf(text, sizeof text, "%s+%s", fused, kernel);
    const char *found = find_name(text);
    if (found) return found;
    while (atomic_flag_test_and_set(&names.busy)) {
    }
    found = find_name(text);
    const size_t n = names.n;
    if (!found && n < sizeof names.text / sizeof *names.text) {
        memcpy(names.text[n], text, sizeof text);
        names.n = n + 1;
        found = names.text[n];
    }
    atomic_flag_clear(&names.busy);
    return found ? found : kernel;
}

/* Asked for each op while a recorder is on: by the addresses of the two texts, which live as long as the program. */
const char *hr_fused_name(const char *fused, const char *kernel) {
    enum { CACHED = 16 };
    static _Thread_local struct { const char *fused, *kernel, *name; } cache[CACHED];
    const size_t at = ((uintptr_t)fused / 8 ^ (uintptr_t)kernel / 8) % CACHED;
    if (cache[at].fused != fused || cache[at].kernel != kernel) {
        cache[at].fused = fused, cache[at].kernel = kernel;
        cache[at].name = make_name(fused, kernel);
    }
    return cache[at].name;
}

/* ---- forced rows ---- */

/* Families whose rows an op class runs, as a bit set. */
static unsigned families_of(hr_op op) {
    switch (op) {
    case HR_OP_QKV:
        return 1u << HR_FAM_MATMUL | 1u << HR_FAM_FINISH;
    case HR_OP_OUT:
    case HR_OP_DOWN:
    case HR_OP_HEAD:
        return 1u << HR_FAM_MATMUL;
    case HR_OP_GATE_UP:
        return 1u << HR_FAM_MATMUL | 1u << HR_FAM_GLU;
    case HR_OP_EMBED:
        return 1u << HR_FAM_EMBED;
    case HR_OP_NORM:
        return 1u << HR_FAM_NORM;
    case HR_OP_ROPE:
        return 1u << HR_FAM_ROPE;
    case HR_OP_KV_APPEND:
        return 1u << HR_FAM_KV_APPEND;
    case HR_OP_ATTENTION:
        return 1u << HR_FAM_ATTN | 1u << HR_FAM_ATTN_MERGE;
    default:
        return 0;
    }
}

static const hr_kernel *row_at(bool cuda, size_t i) {
    return cuda ? hr_cuda_kernel_at(i) : hr_kernel_at(i);
}

static const hr_kernel *row_of(bool cuda, hr_op op, const char *name) {
    const hr_kernel *k;
    for (size_t i = 0; (k = row_at(cuda, i)) != NULL; i++)
        if (families_of(op) >> k->family & 1u && !strcmp(k->name, name)) return k;
    return NULL;
}

static hr_status parse_op(const char *text, size_t n, hr_op *out) {
    const char *words[HR_OP_COUNT + 1] = {0};
    size_t n_words = 0;
    for (int op = 0; op < HR_OP_COUNT; op++) {
        if (!families_of((hr_op)op)) continue;
        if (strlen(hr_op_names[op]) == n && !memcmp(hr_op_names[op], text, n)) {
            *out = (hr_op)op;
            return HR_OK;
        }
        words[n_words++] = hr_op_names[op];
    }
    char piece[32], list[160];
    snprintf(piece, sizeof piece, "%.*s", (int)n, text);
    const char *near = hr_nearest(piece, words);
    if (near) HR_FAIL(HR_ERR_USAGE, "--kernel %.80s: no op class '%s'; did you mean %s", text, piece, near);
    size_t used = 0;
    for (size_t i = 0; i < n_words && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", words[i]);
    HR_FAIL(HR_ERR_USAGE, "--kernel %.80s: no op class '%s'; the classes are %s", text, piece, list);
}

hr_status hr_kernel_force_add(hr_engine_config *c, const char *text) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1])
        HR_FAIL(HR_ERR_USAGE, "--kernel %.80s: write it as op=name, as down=matmul_f32_generic", text);
    hr_op op;
    HR_TRY(parse_op(text, (size_t)(equals - text), &op));
    if (!row_of(false, op, equals + 1) && !row_of(true, op, equals + 1)) {
        const char *words[256] = {0};
        const hr_kernel *k;
        size_t n = 0;
        for (int cuda = 0; cuda < 2; cuda++)
            for (size_t i = 0; (k = row_at(cuda, i)) != NULL && n < 255; i++)
                if (families_of(op) >> k->family & 1u) words[n++] = k->name;
        const char *near = hr_nearest(equals + 1, words);
        HR_FAIL(HR_ERR_USAGE, "--kernel %.80s: no row of that name computes %s; %s%s", text, hr_op_names[op],
                near ? "the nearest is " : "`headroom kernels` lists them", near ? near : "");
    }
    if (c->n_forces == HR_FORCES_MAX) HR_FAIL(HR_ERR_USAGE, "--kernel: more than %d rows forced", HR_FORCES_MAX);
    hr_kernel_force *f = &c->forces[c->n_forces++];
    f->op = op;
    if (strlen(equals + 1) >= sizeof f->name)
        HR_FAIL(HR_ERR_USAGE, "--kernel %.80s: the name is longer than %zu bytes", text, sizeof f->name - 1);
    snprintf(f->name, sizeof f->name, "%s", equals + 1);
    return HR_OK;
}

hr_status hr_kernel_forces_parse(hr_engine_config *c, const char *text) {
    while (*text) {
        char one[64];
        const size_t n = strcspn(text, ";");
        snprintf(one, sizeof one, "%.*s", (int)n, text);
        HR_TRY(hr_kernel_force_add(c, one));
        text += n + (text[n] == ';');
    }
    return HR_OK;
}

const char *hr_kernel_forces_text(const hr_engine_config *c, char out[HR_FORCES_TEXT]) {
    size_t n = 0;
    out[0] = 0;
    for (int op = 0; op < HR_OP_COUNT; op++)
        for (uint32_t i = 0; i < c->n_forces; i++)
            if (c->forces[i].op == (hr_op)op)
                n += (size_t)snprintf(out + n, HR_FORCES_TEXT - n, "%s%s=%s", n ? ";" : "", hr_op_names[op],
                                      c->forces[i].name);
    return out;
}

static hr_order other_order(hr_order order) {
    return order == HR_ORDER_ROWS ? HR_ORDER_PANELS : HR_ORDER_ROWS;
}

/* Bit set of the types that the row may meet in op class `op`: of K, of the op's matrices; any for the others. */
static uint32_t dtypes_met(const hr_kernel *k, hr_op op, const hr_model_info *info, const hr_engine_config *c) {
    switch (k->family) {
    case HR_FAM_MATMUL:
    case HR_FAM_EMBED:
        return info->op_dtypes[op];
    case HR_FAM_ATTN:
    case HR_FAM_ATTN_MERGE:
    case HR_FAM_KV_APPEND:
    case HR_FAM_FINISH:
        return 1u << c->k_type;
    default:
        return 1u << HR_F32;
    }
}

/* Some pass takes the row: with as few tokens as it admits, and weights of one of the op's types. */
static bool fits_some_pass(const hr_kernel *k, uint32_t dtypes, const hr_engine_config *c, hr_order order, hr_isa isa,
                           hr_act act) {
    hr_kernel_query q = {.family = k->family,
                         .isa = isa,
                         .dtype2 = c->v_type,
                         .act = act,
                         .n = k->n_min > 1 ? k->n_min : 1,
                         .order = order,
                         .flash = c->flash,
                         .name = k->name,
                         .cuda = k->cuda};
    for (int t = 0; t <= HR_I4KC; t++) {
        q.dtype = (hr_dtype)t;
        if (dtypes >> t & 1u && hr_kernel_choose(&q)) return true;
    }
    return false;
}

hr_status hr_kernel_forces_fit(const hr_engine_config *c, const hr_model_info *info, hr_isa isa, hr_act act) {
    const uint32_t tokens = hr_sizes_of(info, c, act).tokens;
    for (uint32_t i = 0; i < c->n_forces; i++) {
        const hr_op op = c->forces[i].op;
        const char *name = c->forces[i].name, *word = hr_op_names[op];
        const bool gpu = c->device >= 0;
        const hr_kernel *k = row_of(gpu, op, name);
        if (!k && row_of(!gpu, op, name))
            HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: the row runs on %s alone", word, name, gpu ? "the CPU" : "GPUs");
        if (!k) HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: there is no such row", word, name);
        if (!gpu && (k->isa > isa || (k->needs & ~hr_cpu_features())))
            HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: the row needs %s; this runs on %s", word, name, hr_isa_name(k->isa),
                    hr_isa_name(isa));
        if (k->act >= 0 && k->act != (int)act)
            HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: the row takes activations of %s; here they are %s (--act)", word,
                    name, hr_act_name((hr_act)k->act), hr_act_name(act));
        if (k->n_min > tokens)
            HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: the row takes %u tokens or more; a pass here has at most %u", word,
                    name, k->n_min, tokens);
        const uint32_t dtypes = dtypes_met(k, op, info, c);
        if (fits_some_pass(k, dtypes, c, info->order, isa, act)) continue;
        if (k->family == HR_FAM_MATMUL && fits_some_pass(k, dtypes, c, other_order(info->order), isa, act))
            HR_FAIL(HR_ERR_USAGE, "--kernel %s=%s: the row takes weights in another order; give --weights %s", word,
                    name, hr_weights_name(other_order(info->order)));
        HR_FAIL(HR_ERR_USAGE,
                "--kernel %s=%s: the row fits no pass of this model: %s; `headroom kernels` lists what each takes",
                word, name, k->family == HR_FAM_ATTN ? "its types of K and V, or -fa, differ" : "its types differ");
    }
    return HR_OK;
}
