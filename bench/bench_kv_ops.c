/* Operations on the engine's KV caches, in every layout: reads of attention (decode, and the queries of a chunk of a prompt),
 * appends of one position and of a chunk, fork of a prefix, eviction under a sliding window, off-load and restore.
 *
 * An iteration does one operation for each sequence of a batch. Warm: the same batch again (of reads: its first layer).
 * Cold: as many batches as are larger than the caches take turns, layer by layer where the operation reads one layer.
 * Bytes: a read counts K and V once; the others count the rows that were written, forked, dropped, saved or loaded, once
 * each, whether or not the layout had to move them: pages that are shared or given back pass memory's rate. */
#include "bench/bench.h"
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 4,
    DIM = 64,
    GROUP = 4, /* query heads a KV head */
    PAGE = 16,
    CHUNK = 128, /* positions that a chunk appends, queries of a prefill */
    SINKS = 4,
    TAIL = 3,     /* positions behind the forked prefix: it ends inside a page */
    FILL = 256,   /* random rows; later positions repeat them */
    SHIFTS = 8,   /* sequences and layers start at different ones */
    ROW = 2 * DIM /* bytes */
};

typedef enum op { DECODE, PREFILL, APPEND_ONE, APPEND_CHUNK, FORK, EVICT, SAVE, LOAD, OPS } op;

typedef struct what {
    op op;
    const hr_kernel *k; /* attention, append; NULL: the cache's own code */
    hr_kv_layout layout;
    size_t spread; /* bytes that batches rotate over (cold); 0: the same again (warm) */
} what;

typedef struct run {
    what w;
    uint32_t heads, batch, context, capacity;
    uint32_t groups, group, layer; /* batches; whose turn it is */
    uint32_t *at;                  /* [groups] positions appended or evicted so far */
    hr_kv_cache *cache;            /* sequence group * batch + i; its fork groups * batch further */
    const hr_kernel *append, *merge;
    hr_attn a;
    float *rows; /* [2][FILL + SHIFTS][heads * DIM] */
    float *q, *out, *partial;
    void *scratch;
    uint8_t *saved; /* [groups][batch] sequences of `context` positions */
    size_t n_rows, n_q, n_partial, scratch_bytes, saved_bytes;
} run;

/* Every sequence has its place in the budget and setup has done each operation once: a refusal is a mistake made here. */
static void must(hr_status status) {
    if (status == HR_OK) return;
    fprintf(stderr, "bench: a KV operation was refused: %s\n", hr_error());
    abort();
}

static uint32_t step_of(const run *r) { /* positions that one iteration appends or evicts */
    if (r->w.op == APPEND_CHUNK) return CHUNK;
    if (r->w.op == EVICT) return r->context < 4 * PAGE ? 4 : PAGE;
    return 1;
}

static size_t sequence_bytes(const run *r) {
    return (size_t)2 * ROW * LAYERS * r->heads * r->context;
}

/* ---- the operations on sequence seq ---- */

static void append_rows(run *r, uint32_t seq, uint32_t pos, uint32_t n) {
    const size_t ld = (size_t)r->heads * DIM, plane = (FILL + SHIFTS) * ld;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        const float *k = r->rows + (seq + layer) % SHIFTS * ld;
        for (uint32_t i = 0; i < n; i += FILL)
            r->append->fn.kv_append(hr_kv_cache_view(r->cache, seq), layer, pos + i, k, ld, k + plane, ld, 0,
                                    n - i < FILL ? n - i : FILL, 0, r->heads);
    }
}

static void attend(run *r, const hr_kernel *k, const hr_kernel *merge, uint32_t seq) {
    r->a.kv = hr_kv_cache_view(r->cache, seq);
    k->fn.attn(&r->a, 0, hr_attn_units(&r->a), r->scratch);
    if (r->a.partial) merge->fn.attn_merge(&r->a, 0, r->heads);
}

static uint32_t fork_of(const run *r, uint32_t seq) {
    return r->groups * r->batch + seq;
}

static uint8_t *saved_of(const run *r, uint32_t seq) {
    return r->saved + seq * sequence_bytes(r);
}

/* at: what was appended to or evicted from this sequence before. */
static void operate(run *r, uint32_t seq, uint32_t at) {
    const uint32_t n = step_of(r);
    switch (r->w.op) {
    case DECODE:
    case PREFILL:
        attend(r, r->w.k, r->merge, seq);
        break;
    case APPEND_ONE:
    case APPEND_CHUNK:
        if (!at) hr_kv_cache_cut(r->cache, seq, r->context);
        must(hr_kv_cache_reserve(r->cache, seq, r->context + at + n));
        append_rows(r, seq, r->context + at, n);
        break;
    case FORK:
        must(hr_kv_cache_fork(r->cache, seq, fork_of(r, seq), r->context - TAIL));
        must(hr_kv_cache_close(r->cache, fork_of(r, seq)));
        break;
    case EVICT: /* nothing left to evict: the sequence begins again */
        if (!at) {
            must(hr_kv_cache_close(r->cache, seq));
            must(hr_kv_cache_reserve(r->cache, seq, r->context));
        }
        must(hr_kv_cache_evict(r->cache, seq, SINKS, r->context - SINKS - at - n));
        break;
    case SAVE:
        hr_kv_cache_save(r->cache, seq, saved_of(r, seq));
        break;
    default:
        hr_kv_cache_cut(r->cache, seq, 0);
        must(hr_kv_cache_load(r->cache, seq, saved_of(r, seq), r->context, 0, 0));
    }
}

/* The most that is appended to a sequence before it is cut, or evicted before it begins again; 0: nothing of the kind. */
static uint32_t turn_of(const run *r) {
    if (r->w.op == APPEND_ONE || r->w.op == APPEND_CHUNK) return r->capacity - r->context;
    return r->w.op == EVICT ? (r->context - SINKS - 1) / step_of(r) * step_of(r) : 0;
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    const bool layered = r->w.op == DECODE || r->w.op == PREFILL;
    for (uint64_t i = 0; i < iterations; i++) {
        uint32_t *at = r->at + r->group;
        r->a.layer = r->layer;
        for (uint32_t s = 0; s < r->batch; s++) operate(r, r->group * r->batch + s, *at);
        if (turn_of(r)) *at = *at + step_of(r) < turn_of(r) ? *at + step_of(r) : 0;
        if (!r->w.spread || (layered && ++r->layer < LAYERS)) continue;
        r->layer = 0, r->group = (r->group + 1) % r->groups;
    }
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    const uint64_t one = (uint64_t)2 * ROW * LAYERS * r->heads * r->batch; /* bytes of a position of the batch */
    if (r->w.op == DECODE || r->w.op == PREFILL) {
        const hr_work work = hr_work_attn(r->w.k, &r->a);
        const uint64_t bytes = work.bytes * r->batch;
        return (hr_bench_cost){
            .bytes = bytes, .flops = work.flops * r->batch, .unit = work.unit, .resident = r->w.spread ? 0 : bytes};
    }
    if (r->w.op == SAVE || r->w.op == LOAD) return (hr_bench_cost){.moved = one * r->context};
    return (hr_bench_cost){.moved = one * (r->w.op == FORK ? r->context - TAIL : step_of(r))};
}

/* ---- its memory ---- */

static void fini(run *r) {
    hr_kv_cache_destroy(r->cache);
    if (r->rows) hr_pages_free(r->rows, r->n_rows * sizeof *r->rows);
    if (r->q) hr_pages_free(r->q, r->n_q * sizeof *r->q);
    if (r->out) hr_pages_free(r->out, r->n_q * sizeof *r->out);
    if (r->partial) hr_pages_free(r->partial, r->n_partial * sizeof *r->partial);
    if (r->scratch) hr_pages_free(r->scratch, r->scratch_bytes);
    if (r->saved) hr_pages_free(r->saved, r->saved_bytes);
    free(r->at);
}

static void teardown(void *context) {
    fini(context);
    free(context);
}

static hr_status init_attention(run *r) {
    const uint32_t heads = GROUP * r->heads, n_q = r->w.op == DECODE ? 1 : r->context < CHUNK ? r->context : CHUNK;
    const size_t ld = (size_t)heads * DIM, naive = hr_attn_scratch(DIM, GROUP, r->context, false);
    r->merge = hr_bench_partner(r->w.k, HR_FAM_ATTN_MERGE);
    r->n_q = n_q * ld, r->n_partial = hr_attn_partial_floats(heads, r->heads, DIM, r->context);
    r->scratch_bytes = hr_attn_scratch(DIM, GROUP, r->context, true);
    if (naive > r->scratch_bytes) r->scratch_bytes = naive; /* the reference may be the naive one */
    r->q = hr_bench_floats(r->n_q, 31);
    r->out = hr_pages_alloc(r->n_q * sizeof *r->out, true);
    r->partial = hr_pages_alloc(r->n_partial * sizeof *r->partial, true);
    r->scratch = hr_pages_alloc(r->scratch_bytes, true);
    if (!r->q || !r->out || !r->partial || !r->scratch) HR_FAIL(HR_ERR_MEMORY, "no memory for attention");
    r->a = (hr_attn){.kv = hr_kv_cache_view(r->cache, 0),
                     .n_heads = heads,
                     .n_kv_heads = r->heads,
                     .head_dim = DIM,
                     .n_q = n_q,
                     .pos0 = r->context - n_q,
                     .q = r->q,
                     .out = r->out,
                     .ldq = ld,
                     .ldo = ld,
                     .scale = 1 / sqrtf((float)DIM)};
    if (hr_attn_is_split(&r->a)) r->a.partial = r->partial;
    return HR_OK;
}

/* Every sequence is filled to its capacity once, so that no page of memory is touched first while the clock runs. */
static hr_status fill(run *r) {
    for (uint32_t seq = 0; seq < r->groups * r->batch; seq++) {
        HR_TRY(hr_kv_cache_reserve(r->cache, seq, r->capacity));
        append_rows(r, seq, 0, r->capacity);
        hr_kv_cache_cut(r->cache, seq, r->context);
        if (r->saved) hr_kv_cache_save(r->cache, seq, saved_of(r, seq));
    }
    return HR_OK;
}

/* args: KV heads, batch, context. append: what fills the cache. */
static hr_status init(run *r, const what *w, const int64_t *args, const hr_kernel *append, size_t spread) {
    *r = (run){.w = *w, .heads = (uint32_t)args[0], .batch = (uint32_t)args[1], .context = (uint32_t)args[2]};
    const bool paged = hr_kv_is_paged(w->layout);
    r->append = append;
    r->capacity = r->context + (w->op == APPEND_ONE ? PAGE : w->op == APPEND_CHUNK ? CHUNK : 0);
    const size_t one = sequence_bytes(r) / r->context * r->capacity * r->batch;
    r->groups = spread ? (uint32_t)(spread / one + 1) : 1;
    const uint32_t n = r->groups * r->batch;
    const hr_kv_cache_config config = {.layout = w->layout,
                                       .alloc = hr_kv_alloc_default(w->layout),
                                       .n_layers = LAYERS,
                                       .n_heads = r->heads,
                                       .head_dim = DIM,
                                       .k_type = HR_BF16,
                                       .v_type = HR_BF16,
                                       .page_size = paged ? PAGE : 0,
                                       .max_seqs = w->op == FORK ? 2 * n : n,
                                       .capacity = r->capacity,
                                       .scatter = 9};
    HR_TRY(hr_kv_cache_create(&config, &r->cache));
    hr_kv_cache_touch(r->cache, 0, 1);
    r->at = calloc(r->groups, sizeof *r->at);
    r->n_rows = (size_t)2 * (FILL + SHIFTS) * r->heads * DIM;
    r->rows = hr_bench_floats(r->n_rows, 21);
    if (w->op == SAVE || w->op == LOAD) {
        r->saved_bytes = n * sequence_bytes(r);
        r->saved = hr_pages_alloc(r->saved_bytes, true);
        if (!r->saved) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu MiB of saved KV", r->saved_bytes >> 20);
    }
    if (!r->at || !r->rows) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    HR_TRY(fill(r));
    return w->op == DECODE || w->op == PREFILL ? init_attention(r) : HR_OK;
}

/* ---- the checks, on a small cache of two sequences ---- */

#define WRONG(...) HR_FAIL(HR_ERR_INTERNAL, __VA_ARGS__)

static const char *layout_of(const run *r) {
    return hr_kv_layout_name(r->w.layout);
}

/* Rows [0, n) of seq, in the order of a saved sequence, found by the run function alone. */
static void gather(const run *r, uint32_t seq, uint32_t n, uint8_t *out) {
    const hr_kv_seq *s = hr_kv_cache_view(r->cache, seq);
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t head = 0; head < r->heads; head++)
            for (int x = HR_KV_K; x <= HR_KV_V; x++)
                for (uint32_t pos = 0; pos < n; pos++, out += ROW)
                    memcpy(out, hr_kv_run(s, layer, head, pos).at[x], ROW);
}

/* Piece (layer, head, K or V) after piece: rows [from, from + n) of `got` are rows [at, at + n) of `want`; pieces of
 * got_rows and want_rows rows. */
static hr_status same_rows(const run *r, const char *name, const uint8_t *got, uint32_t got_rows, uint32_t from,
                           const uint8_t *want, uint32_t want_rows, uint32_t at, uint32_t n) {
    for (uint32_t piece = 0; piece < 2 * LAYERS * r->heads; piece++)
        for (uint32_t i = 0; i < n; i++)
            if (memcmp(got + ((size_t)piece * got_rows + from + i) * ROW,
                       want + ((size_t)piece * want_rows + at + i) * ROW, ROW) != 0)
                WRONG("%s is wrong: layer %u, head %u, %s of position %u differs in layout %s", name,
                      piece / 2 / r->heads, piece / 2 % r->heads, piece % 2 ? "V" : "K", at + i, layout_of(r));
    return HR_OK;
}

static hr_status check_attention(run *r) {
    const hr_kernel *ref = hr_kernel_ref(r->w.k);
    if (!ref) WRONG("%s has no reference row", r->w.k->name);
    float *got = malloc(r->n_q * sizeof *got);
    if (!got) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    memset(r->out, 0xff, r->n_q * sizeof *r->out);
    attend(r, r->w.k, r->merge, 1);
    memcpy(got, r->out, r->n_q * sizeof *got);
    attend(r, ref, hr_kernel_ref(r->merge), 1);
    const hr_status status = hr_bench_check(r->w.k->name, got, r->out, r->n_q, hr_bench_limit(r->w.k));
    free(got);
    return status;
}

/* The reference, one position after another from the start, writes the same bits. */
static hr_status check_append(run *r, uint8_t *got, uint8_t *want) {
    const hr_kernel *own = r->append;
    const uint32_t n = step_of(r), len = r->context + n;
    operate(r, 0, 0);
    gather(r, 0, len, got);
    r->append = hr_kernel_ref(own);
    if (!r->append) WRONG("%s has no reference row", own->name);
    hr_kv_cache_cut(r->cache, 0, 0);
    HR_TRY(hr_kv_cache_reserve(r->cache, 0, len));
    append_rows(r, 0, 0, r->context);
    append_rows(r, 0, r->context, n);
    gather(r, 0, len, want);
    return same_rows(r, own->name, got, len, 0, want, len, 0, len);
}

/* The fork sees the rows of its source, and what is appended to it does not reach the source. */
static hr_status check_fork(run *r, uint8_t *got, uint8_t *want) {
    const uint32_t to = fork_of(r, 0), len = r->context - TAIL;
    gather(r, 0, r->context, want);
    HR_TRY(hr_kv_cache_fork(r->cache, 0, to, len));
    gather(r, to, len, got);
    HR_TRY(same_rows(r, "fork", got, len, 0, want, r->context, 0, len));
    HR_TRY(hr_kv_cache_reserve(r->cache, to, r->context));
    append_rows(r, to, len, TAIL);
    gather(r, 0, r->context, got);
    HR_TRY(same_rows(r, "source of a fork", got, r->context, 0, want, r->context, 0, r->context));
    return hr_kv_cache_close(r->cache, to);
}

/* Sinks and window keep their rows and what lies between is gone, in one step and in the next. */
static hr_status check_evict(run *r, uint8_t *got, uint8_t *want) {
    hr_kv_cache_save(r->cache, 0, want);
    for (uint32_t at = 0; at < 2 * step_of(r); at += step_of(r)) {
        const uint32_t gone = at + step_of(r), left = r->context - gone;
        HR_TRY(hr_kv_cache_evict(r->cache, 0, SINKS, left - SINKS));
        const hr_kv_seq *s = hr_kv_cache_view(r->cache, 0);
        if (s->len != r->context || s->gone_from != SINKS || s->gone_to != SINKS + gone)
            WRONG("evict is wrong: expected %u to %u of %u positions gone, got %u to %u of %u", SINKS, SINKS + gone,
                  r->context, s->gone_from, s->gone_to, s->len);
        if (hr_kv_cache_saved_bytes(r->cache, 0) != sequence_bytes(r) / r->context * left)
            WRONG("evict is wrong: %u positions are left, saved they take %llu bytes", left,
                  (unsigned long long)hr_kv_cache_saved_bytes(r->cache, 0));
        hr_kv_cache_save(r->cache, 0, got);
        HR_TRY(same_rows(r, "evict", got, left, 0, want, r->context, 0, SINKS));
        HR_TRY(same_rows(r, "evict", got, left, SINKS, want, r->context, SINKS + gone, left - SINKS));
    }
    return HR_OK;
}

/* What is saved is what the run function finds, and restored into another sequence it is found again. */
static hr_status check_restore(run *r, uint8_t *got, uint8_t *want) {
    const uint32_t n = r->context;
    if (hr_kv_cache_saved_bytes(r->cache, 0) != sequence_bytes(r))
        WRONG("save is wrong: expected %zu bytes, got %llu", sequence_bytes(r),
              (unsigned long long)hr_kv_cache_saved_bytes(r->cache, 0));
    gather(r, 0, n, want);
    hr_kv_cache_save(r->cache, 0, got);
    HR_TRY(same_rows(r, "save", got, n, 0, want, n, 0, n));
    hr_kv_cache_cut(r->cache, 1, 0);
    HR_TRY(hr_kv_cache_load(r->cache, 1, got, n, 0, 0));
    gather(r, 1, n, got);
    return same_rows(r, "load", got, n, 0, want, n, 0, n);
}

static hr_status check_in(run *r) {
    if (r->w.op == DECODE || r->w.op == PREFILL) return check_attention(r);
    const size_t most = sequence_bytes(r) / r->context * r->capacity;
    uint8_t *got = calloc(2, most), *want = got + most;
    if (!got) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    const hr_status status = r->w.op == FORK    ? check_fork(r, got, want)
                             : r->w.op == EVICT ? check_evict(r, got, want)
                             : r->w.k           ? check_append(r, got, want)
                                                : check_restore(r, got, want);
    free(got);
    return status == HR_OK ? hr_kv_cache_check(r->cache) : status;
}

/* Decode also where it is split; the others where all positions of a sequence differ. */
static hr_status check(const what *w, const int64_t *args, const hr_kernel *append) {
    const int64_t most = w->op == DECODE ? 700 : 200;
    const int64_t small[] = {args[0], 2, args[2] < most ? args[2] : most};
    run r;
    hr_status status = init(&r, w, small, append, 0);
    if (status == HR_OK) status = check_in(&r);
    fini(&r);
    return status;
}

static const hr_kernel *best(hr_family family, uint32_t n) {
    const hr_kernel_query q = {
        .family = family, .isa = hr_isa_best(), .dtype = HR_BF16, .dtype2 = HR_BF16, .n = n, .flash = true};
    return hr_kernel_choose(&q);
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    const hr_kernel *append = w->op == APPEND_ONE || w->op == APPEND_CHUNK ? w->k : best(HR_FAM_KV_APPEND, CHUNK);
    HR_TRY(check(w, args, append));
    run *r = malloc(sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    const hr_status status = init(r, w, args, append, w->spread);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

/* ---- registration ---- */

/* One axis at a time about a cache of 8 KV heads and one sequence: a layer of it takes 2 KiB a position, so that these
 * contexts come to lie in the first and second level, in the third and in memory. The product of the axes would take days. */
#define CONTEXTS                             \
    {8, 1, 16}, {8, 1, 256}, {8, 1, 4096}, { \
        8, 1, 32768                          \
    }
#define HEADS(context)                                   \
    {1, 1, context}, {2, 1, context}, {4, 1, context}, { \
        32, 1, context                                   \
    }
#define BATCHES(context) \
    {8, 16, context}, {  \
        8, 256, context  \
    }
static const int64_t cold[][3] = {CONTEXTS, HEADS(4096), BATCHES(256)};
static const int64_t warm[][3] = {CONTEXTS, HEADS(256), BATCHES(16)};
static const int64_t smoke_cold[][3] = {{8, 1, 256}}, smoke_warm[][3] = {{2, 3, 40}}, smoke_split[][3] = {{1, 1, 700}};

static void add(const what *w, const char *kernel, const int64_t (*values)[3], size_t n) {
    static const char *const names[] = {"H", "batch", "context"};
    static const char *const op_names[OPS] = {"decode", "prefill", "append", "append_chunk",
                                              "fork",   "evict",   "save",   "load"};
    char name[HR_BENCH_NAME], suffix[48];
    snprintf(name, sizeof name, "kv_%s/%s", op_names[w->op], kernel);
    snprintf(suffix, sizeof suffix, "%s/bf16.%s", w->spread ? "cold" : "warm", hr_kv_layout_name(w->layout));
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 3,
                                    .values = values[0],
                                    .n_values = n,
                                    .suffix = suffix,
                                    .context = w,
                                    .context_bytes = sizeof *w,
                                    .setup = setup,
                                    .body = body,
                                    .teardown = teardown,
                                    .cost = cost});
}

static void add_both(what w, bool smoke) {
    const char *kernel = w.k ? w.k->name : "cache";
    w.spread = 0;
    if (smoke)
        add(&w, kernel, smoke_warm, 1);
    else
        add(&w, kernel, warm, sizeof warm / sizeof *warm);
    if (smoke && w.op == DECODE) add(&w, kernel, smoke_split, 1);
    w.spread = smoke ? (size_t)16 << 20 : hr_bench_cold_bytes(); /* the smoke run is about turns, not about speed */
    if (!smoke)
        add(&w, kernel, cold, sizeof cold / sizeof *cold);
    else if (w.layout == HR_KV_HEAD || w.layout == HR_KV_PAGED)
        add(&w, kernel, smoke_cold, 1);
}

/* Decode of the layout head by the row that looks nothing up: what the run function and the other layouts cost beside it. */
static void add_contiguous(bool smoke) {
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (strcmp(k->name, "attn_contig_bf16_avx512") == 0 && hr_bench_can_run(k))
            add_both((what){.op = DECODE, .k = k, .layout = HR_KV_HEAD}, smoke);
    }
}

void hr_bench_register_kv_ops(bool smoke) {
    const hr_kernel *append = best(HR_FAM_KV_APPEND, CHUNK);
    const hr_kernel *const kernels[OPS] = {best(HR_FAM_ATTN, 1), best(HR_FAM_ATTN, CHUNK), append, append};
    for (int o = 0; o < OPS; o++) {
        for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++)
            add_both((what){.op = (op)o, .k = kernels[o], .layout = (hr_kv_layout)layout}, smoke);
        if (o == DECODE) add_contiguous(smoke);
    }
}
