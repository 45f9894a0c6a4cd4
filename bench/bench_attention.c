/* Attention: every row of the table over depth, group size, head dimension, layout and KV type; decode (one query) and
 * prefill (512 queries); and the merge of split decode by itself. */
#include "bench/bench_kvmem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct what {
    const hr_kernel *k;
    hr_kv_layout layout;
    hr_dtype type;
    uint32_t heads, kv_heads, dim, n_q;
    bool cold;
} what;

typedef struct run {
    what w;
    hr_bench_kv kv;
    hr_attn a;
    const hr_kernel *merge;
    uint32_t layers;
    float *q, *out, *partial;
    void *scratch;
    size_t q_floats, partial_floats, scratch_bytes;
} run;

static void attend(const hr_kernel *k, const hr_kernel *merge, hr_attn *a, void *scratch) {
    k->fn.attn(a, 0, hr_attn_units(a), scratch);
    if (a->partial) merge->fn.attn_merge(a, 0, a->n_kv_heads);
}

static void fini(run *r) {
    hr_bench_kv_fini(&r->kv);
    if (r->q) hr_pages_free(r->q, r->q_floats * sizeof *r->q);
    if (r->out) hr_pages_free(r->out, r->q_floats * sizeof *r->out);
    if (r->partial) hr_pages_free(r->partial, r->partial_floats * sizeof *r->partial);
    if (r->scratch) hr_pages_free(r->scratch, r->scratch_bytes);
}

static void teardown(void *context) {
    fini(context);
    free(context);
}

/* n_q queries at the end of `positions` positions. */
static hr_status init(run *r, const what *w, uint32_t positions, uint32_t layers) {
    const uint32_t group = w->heads / w->kv_heads, pos0 = positions - w->n_q;
    const size_t ld = (size_t)w->heads * w->dim;
    *r = (run){.w = *w, .layers = layers, .q_floats = w->n_q * ld};
    HR_TRY(hr_bench_kv_init(&r->kv, w->layout, w->type, layers, w->kv_heads, w->dim, positions));
    HR_TRY(hr_bench_kv_fill(&r->kv, hr_bench_partner(w->k, HR_FAM_KV_APPEND), positions));
    r->merge = hr_bench_partner(w->k, HR_FAM_ATTN_MERGE);
    r->partial_floats = hr_attn_partial_floats(w->heads, w->kv_heads, w->dim, positions);
    r->scratch_bytes = hr_attn_scratch(w->dim, group, positions, true);
    const size_t naive = hr_attn_scratch(w->dim, group, positions, false);
    if (naive > r->scratch_bytes) r->scratch_bytes = naive; /* the reference may be the naive one */
    r->q = hr_bench_floats(r->q_floats, 31);
    r->out = hr_pages_alloc(r->q_floats * sizeof *r->out, true);
    r->partial = hr_pages_alloc(r->partial_floats * sizeof *r->partial, true);
    r->scratch = hr_pages_alloc(r->scratch_bytes, true);
    if (!r->q || !r->out || !r->partial || !r->scratch) HR_FAIL(HR_ERR_MEMORY, "no memory for attention");
    r->a = (hr_attn){.kv = &r->kv.seq,
                     .n_heads = w->heads,
                     .n_kv_heads = w->kv_heads,
                     .head_dim = w->dim,
                     .n_q = w->n_q,
                     .pos0 = pos0,
                     .q = r->q,
                     .out = r->out,
                     .ldq = ld,
                     .ldo = ld,
                     .scale = 1 / sqrtf((float)w->dim)};
    if (hr_attn_is_split(&r->a)) r->a.partial = r->partial;
    return HR_OK;
}

/* The same kind of call on fewer positions: whole, or split where the timed one is. */
static hr_status check(const what *w, const hr_kernel *merge, uint32_t positions) {
    what small = *w;
    const hr_kernel *ref = hr_kernel_ref(w->k);
    if (!ref) HR_FAIL(HR_ERR_INTERNAL, "%s has no reference row", w->k->name);
    if (small.n_q > 40) small.n_q = 40;
    const uint32_t most = small.n_q > 1 ? 200 : 1100;
    run r;
    hr_status status = init(&r, &small, positions < most ? positions : most, 1);
    float *got = status == HR_OK ? malloc(r.q_floats * sizeof *got) : NULL;
    if (status == HR_OK && !got) status = hr_fail(HR_ERR_MEMORY, "out of memory");
    if (status == HR_OK) {
        memset(r.out, 0xff, r.q_floats * sizeof *r.out);
        attend(w->k, merge ? merge : r.merge, &r.a, r.scratch);
        memcpy(got, r.out, r.q_floats * sizeof *got);
        attend(ref, hr_kernel_ref(r.merge), &r.a, r.scratch);
        status = hr_bench_check(merge ? merge->name : w->k->name, got, r.out, r.q_floats, hr_bench_limit(w->k));
    }
    free(got);
    fini(&r);
    return status;
}

static hr_status make(const what *w, const hr_kernel *merge, uint32_t positions, void **out) {
    HR_TRY(check(w, merge, positions));
    hr_kv_geom g;
    HR_TRY(hr_kv_geom_init(&g, HR_KV_HEAD, 1, w->kv_heads, w->dim, w->type, w->type, positions, 0));
    const hr_kv_seq seq = {.g = &g};
    const hr_attn whole = {
        .kv = &seq, .n_heads = w->heads, .n_kv_heads = w->kv_heads, .head_dim = w->dim, .n_q = positions};
    run *r = malloc(sizeof *r);
    if (!r) HR_FAIL(HR_ERR_MEMORY, "out of memory");
    const hr_status status = init(r, w, positions, w->cold ? hr_bench_kv_layers(hr_work_attn(w->k, &whole).bytes) : 1);
    if (status == HR_OK)
        *out = r;
    else
        teardown(r);
    return status;
}

static hr_status setup(const void *context, const int64_t *args, void **out) {
    const what *w = context;
    return make(w, NULL, (uint32_t)args[0] + (w->n_q > 1 ? w->n_q : 0), out);
}

static void body(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) {
        attend(r->w.k, r->merge, &r->a, r->scratch);
        if (++r->a.layer == r->layers) r->a.layer = 0;
    }
}

static hr_bench_cost cost(const void *context) {
    const run *r = context;
    const hr_work work = hr_work_attn(r->w.k, &r->a);
    return (hr_bench_cost){
        .bytes = work.bytes, .flops = work.flops, .unit = work.unit, .resident = r->w.cold ? 0 : work.bytes};
}

/* ---- the merge alone ---- */

static hr_status setup_merge(const void *context, const int64_t *args, void **out) {
    const hr_kernel *k = *(const hr_kernel *const *)context;
    const hr_kernel_query q = {
        .family = HR_FAM_ATTN, .isa = k->isa, .dtype = HR_F32, .dtype2 = HR_F32, .n = 1, .flash = true};
    const what w = {.k = hr_kernel_choose(&q), .type = HR_F32, .heads = 32, .kv_heads = 8, .dim = 64, .n_q = 1};
    HR_TRY(make(&w, k, (uint32_t)args[0], out));
    run *r = *out;
    r->merge = k;
    attend(w.k, k, &r->a, r->scratch);
    return HR_OK;
}

static void body_merge(void *context, uint64_t iterations) {
    run *r = context;
    for (uint64_t i = 0; i < iterations; i++) r->merge->fn.attn_merge(&r->a, 0, r->a.n_kv_heads);
}

static hr_bench_cost cost_merge(const void *context) {
    const run *r = context;
    return (hr_bench_cost){.items = (double)r->a.n_heads, .item = "heads/s"};
}

/* ---- registration ---- */

typedef struct depths {
    const int64_t *at;
    size_t n;
} depths;

static void add(const what *w, const char *shape, depths d) {
    static const char *const names[] = {"depth"};
    if (w->n_q < w->k->n_min || (w->k->n_max && w->n_q > w->k->n_max)) return;
    char name[HR_BENCH_NAME], suffix[64];
    snprintf(name, sizeof name, "attention/%s/%s.g%u.d%u/n_q:%u", w->k->name, shape, w->heads / w->kv_heads, w->dim,
             w->n_q);
    snprintf(suffix, sizeof suffix, "%s/%s.%s", w->cold ? "cold" : "warm", hr_dtypes[w->type].name,
             hr_kv_layout_name(w->layout));
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 1,
                                    .values = d.at,
                                    .n_values = d.n,
                                    .suffix = suffix,
                                    .context = w,
                                    .context_bytes = sizeof *w,
                                    .setup = setup,
                                    .body = body,
                                    .teardown = teardown,
                                    .cost = cost});
}

static const hr_dtype types[] = {HR_BF16, HR_F32, HR_F16, HR_Q8_0, HR_Q4_0};
enum { TYPES = sizeof types / sizeof *types };

/* All layouts with bf16, all types with the layout head: the rest is their product and says nothing new. */
static void add_row(const hr_kernel *k, const hr_bench_model *m) {
    static const int64_t decode[] = {512, 4096, 16384}, prefill[] = {0, 3584};
    const bool slow = k->isa == HR_ISA_GENERIC;
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++)
        for (int t = 0; t < TYPES; t++) {
            if (t && layout != HR_KV_HEAD) continue;
            if (k->dtypes && !(k->dtypes >> types[t] & 1)) continue;
            what w = {k, (hr_kv_layout)layout, types[t], m->n_heads, m->n_kv_heads, m->head_dim, 1, true};
            add(&w, m->name, (depths){decode, slow ? 2 : 3});
            w.cold = false;
            if (layout == HR_KV_HEAD) add(&w, m->name, (depths){decode, 1});
            w.n_q = 512;
            if (!slow && (layout == HR_KV_HEAD || layout == HR_KV_PAGED)) add(&w, m->name, (depths){prefill, 2});
        }
}

static void add_smoke(const hr_kernel *k) {
    static const int64_t whole[] = {100}, both[] = {100, 700};
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++)
        for (int t = 0; t < TYPES; t++) {
            if (k->dtypes && !(k->dtypes >> types[t] & 1)) continue;
            what w = {k, (hr_kv_layout)layout, types[t], 6, 2, 64, 1, false};
            add(&w, "small", (depths){both, 2});
            w.n_q = 33;
            add(&w, "small", (depths){whole, 1});
        }
}

static void add_merge(const hr_kernel *k, bool smoke) {
    static const char *const names[] = {"depth"};
    static const int64_t all[] = {4096, 16384}, few[] = {1100};
    char name[HR_BENCH_NAME];
    snprintf(name, sizeof name, "attn_merge/%s", k->name);
    hr_bench_add(&(hr_bench_family){.name = name,
                                    .arg_names = names,
                                    .n_args = 1,
                                    .values = smoke ? few : all,
                                    .n_values = smoke ? 1 : 2,
                                    .context = &k,
                                    .context_bytes = sizeof k,
                                    .setup = setup_merge,
                                    .body = body_merge,
                                    .teardown = teardown,
                                    .cost = cost_merge});
}

void hr_bench_register_attention(bool smoke) {
    for (size_t i = 0; hr_kernel_at(i); i++) {
        const hr_kernel *k = hr_kernel_at(i);
        if (!hr_bench_can_run(k)) continue;
        if (k->family == HR_FAM_ATTN_MERGE) add_merge(k, smoke);
        if (k->family != HR_FAM_ATTN) continue;
        if (smoke) add_smoke(k);
        for (int m = 0; !smoke && m < HR_BENCH_MODELS; m++)
            if (hr_bench_wants(k, m)) add_row(k, &hr_bench_models[m]);
    }
}
