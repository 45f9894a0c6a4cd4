/* plan.c - which kernels a pass uses, what it costs, and how much memory its buffers take. */
#include "engine/state.h"

#include "kernels/base/memory.h"

#include <math.h>

/* ---- kernels ---- */

/* The row for an op class: one of --kernel where its row fits, else the best. */
static const hr_kernel *choose(const hr_engine *e, hr_op op, hr_kernel_query q) {
    q.isa = e->isa, q.act = e->act, q.dtype2 = e->config.v_type, q.flash = e->config.flash;
    q.cuda = hr_engine_on_gpu(e);
    for (uint32_t i = 0; i < e->config.n_forces; i++) {
        if (e->config.forces[i].op != op) continue;
        q.name = e->config.forces[i].name;
        const hr_kernel *forced = hr_kernel_choose(&q);
        if (forced) return forced;
    }
    q.name = NULL;
    return hr_kernel_choose(&q);
}

void hr_plan_choose(const hr_engine *e, uint32_t n, uint32_t n_q, hr_plan *out) {
    const hr_dtype k = e->config.k_type, embed = e->model->embed.dtype;
    const hr_order order = e->model->embed.order;
#define ROW(op, fam, type, tokens) \
    choose(e, op, (hr_kernel_query){.family = fam, .dtype = type, .order = order, .n = tokens})
    out->n = n, out->n_q = n_q, out->n_products = 0;
    out->acts = ROW(HR_OP_COUNT, HR_FAM_ACTS, embed, n);
    out->attn = ROW(HR_OP_ATTENTION, HR_FAM_ATTN, k, n_q);
    out->merge = ROW(HR_OP_ATTENTION, HR_FAM_ATTN_MERGE, k, n_q);
    out->norm = ROW(HR_OP_NORM, HR_FAM_NORM, embed, n);
    out->rope = ROW(HR_OP_ROPE, HR_FAM_ROPE, embed, n);
    out->glu = ROW(HR_OP_GATE_UP, HR_FAM_GLU, embed, n);
    out->append = ROW(HR_OP_KV_APPEND, HR_FAM_KV_APPEND, k, n);
    out->embed = ROW(HR_OP_EMBED, HR_FAM_EMBED, embed, n);
    out->add = out->finish = out->sample = out->copy = NULL;
    if (hr_engine_on_gpu(e)) {
        out->add = ROW(HR_OP_OUT, HR_FAM_ADD, embed, n);
        out->finish = ROW(HR_OP_QKV, HR_FAM_FINISH, k, n);
        out->sample = ROW(HR_OP_SAMPLE, HR_FAM_SAMPLE, embed, n);
        out->copy = ROW(HR_OP_COUNT, HR_FAM_KV_COPY, k, n);
    }
#undef ROW
}

static bool is_forced(const hr_engine *e, hr_op op) {
    for (uint32_t i = 0; i < e->config.n_forces; i++)
        if (e->config.forces[i].op == op) return true;
    return false;
}

static const hr_kernel *product(const hr_engine *e, hr_plan *p, hr_op op, const hr_mat *w, uint32_t tile) {
    for (size_t i = 0; i < p->n_products; i++) {
        const struct hr_plan_product *k = &p->products[i];
        if (k->op == op && k->dtype == w->dtype && k->order == w->order && k->tile == tile) return k->kernel;
    }
    const hr_kernel_query q = {.family = HR_FAM_MATMUL, .dtype = w->dtype, .order = w->order, .n = p->n, .tile = tile};
    const bool by_library =
        e->gemm && p->n >= HR_GEMM_TOKENS && e->gemm->dtypes >> w->dtype & 1u && e->gemm->act == (int)e->act;
    const hr_kernel *kernel = by_library && !is_forced(e, op) ? e->gemm : choose(e, op, q);
    if (p->n_products < sizeof p->products / sizeof *p->products)
        p->products[p->n_products++] = (struct hr_plan_product){op, w->dtype, w->order, tile, kernel};
    return kernel;
}

void hr_plan_group(const hr_engine *e, hr_plan *p, hr_op op, const hr_mat *const *mats, size_t n, hr_group *out) {
    out->n = n, out->acts = p->acts, out->tile = 0;
    for (size_t i = 0; i < n; i++) {
        const hr_kernel *row = out->rows[i] = product(e, p, op, mats[i], out->tile);
        if (!row || !row->tile || out->tile) continue;
        out->tile = row->tile;
        if (row->isa != p->acts->isa) { /* tiles are private to an ISA; the values are the same on all */
            hr_kernel_query q = {.family = HR_FAM_ACTS, .isa = row->isa, .act = e->act, .n = p->n};
            out->acts = hr_kernel_choose(&q);
        }
    }
}

uint32_t hr_engine_bucket(const hr_engine *e, uint32_t n) {
    uint32_t bucket = 1;
    if (!hr_engine_on_gpu(e) || !e->config.graphs) return n;
    while (bucket < n) bucket *= 2;
    return bucket < e->config.max_seqs ? bucket : e->config.max_seqs;
}

hr_plan *hr_engine_plan_for(hr_engine *e, uint32_t n, uint32_t n_q) {
    enum { PLANS = sizeof e->plan / sizeof *e->plan };
    for (int i = 0; i < PLANS; i++)
        if (e->plan[i].n == n && e->plan[i].n_q == n_q) return &e->plan[i];
    hr_plan *slot = &e->plan[e->plan_next];
    e->plan_next = (e->plan_next + 1) % PLANS;
    hr_plan_choose(e, n, n_q, slot);
    return slot;
}

/* The name of an op's matrix product, as its record has it. */
static const char *product_name(const hr_engine *e, hr_plan *p, hr_op op, const hr_mat *w) {
    const char *kernel = product(e, p, op, w, 0)->name;
    for (const hr_fused_op *f = hr_fused_ops; f->name; f++)
        if (f->op == op && (e->config.fusion & f->bit)) return hr_fused_name(f->name, kernel);
    return kernel;
}

json_t *hr_engine_kernels(const hr_engine *e, hr_phase phase, size_t n) {
    uint32_t tokens = n < 1 ? 1 : n > e->sizes.tokens ? e->sizes.tokens : (uint32_t)n;
    if (phase == HR_PHASE_DECODE && tokens <= e->config.max_seqs) tokens = hr_engine_bucket(e, tokens);
    hr_plan p, head;
    hr_plan_choose(e, tokens, phase == HR_PHASE_PREFILL ? tokens : 1, &p);
    hr_plan_choose(e, phase == HR_PHASE_PREFILL ? 1 : tokens, 1, &head);
    const hr_layer *l = &e->model->layers[0];
    const bool joined = e->config.fusion & HR_FUSE_QKV; /* then RoPE and append are no ops of their own */
    const struct {
        hr_op op;
        const char *name;
    } rows[] = {{HR_OP_EMBED, p.embed->name},
                {HR_OP_NORM, p.norm->name},
                {HR_OP_QKV, product_name(e, &p, HR_OP_QKV, &l->wq)},
                {HR_OP_ROPE, joined ? NULL : p.rope->name},
                {HR_OP_KV_APPEND, joined ? NULL : p.append->name},
                {HR_OP_ATTENTION, p.attn->name},
                {HR_OP_OUT, product_name(e, &p, HR_OP_OUT, &l->wo)},
                {HR_OP_GATE_UP, product_name(e, &p, HR_OP_GATE_UP, &l->gate)},
                {HR_OP_DOWN, product_name(e, &p, HR_OP_DOWN, &l->down)},
                {HR_OP_HEAD, product_name(e, &head, HR_OP_HEAD, &e->model->head)}};
    json_t *map = json_object();
    for (size_t i = 0; map && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].name) json_object_set_new(map, hr_op_names[rows[i].op], json_string(rows[i].name));
    return map;
}

/* ---- work ---- */

static void add_products(const hr_engine *e, hr_plan *p, hr_op op, const hr_mat *const *mats, size_t n_mats, size_t n,
                         hr_step_work *sum) {
    hr_group group;
    hr_plan_group(e, p, op, mats, n_mats, &group);
    for (size_t i = 0; i < n_mats; i++) {
        hr_work one = hr_work_matmul(group.rows[i], mats[i], n);
        sum->bytes_weights += one.bytes;
        sum->flops[one.unit] += one.flops;
    }
}

/* Weights of one pass of n tokens with logits of n_logits rows. */
static void add_weights(const hr_engine *e, hr_plan *p, hr_plan *head, size_t n, size_t n_logits, hr_step_work *sum) {
    const hr_model *m = e->model;
    const size_t dim = m->hp.dim * sizeof(float);
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const hr_layer *l = &m->layers[i];
        const hr_mat *qkv[] = {&l->wq, &l->wk, &l->wv}, *gate_up[] = {&l->gate, &l->up}, *out = &l->wo,
                     *down = &l->down;
        add_products(e, p, HR_OP_QKV, qkv, 3, n, sum);
        add_products(e, p, HR_OP_OUT, &out, 1, n, sum);
        add_products(e, p, HR_OP_GATE_UP, gate_up, 2, n, sum);
        add_products(e, p, HR_OP_DOWN, &down, 1, n, sum);
        sum->bytes_weights += 2 * dim;
    }
    if (!m->info.tied) {
        hr_mat rows = m->embed;
        rows.rows = n;
        sum->bytes_weights += hr_mat_bytes(&rows);
    }
    if (n_logits) {
        const hr_mat *w = &m->head;
        add_products(e, head, HR_OP_HEAD, &w, 1, n_logits, sum);
        sum->bytes_weights += dim;
    }
}

/* Attention and append of one sequence: n tokens from position pos0 on, all layers. */
static hr_work attention_work(const hr_engine *e, const hr_plan *p, uint32_t pos0, uint32_t n) {
    const hr_sizes *s = &e->sizes;
    const hr_attn a = {.kv = hr_kv_cache_view(e->kv, 0),
                       .n_heads = s->n_heads,
                       .n_kv_heads = s->n_kv_heads,
                       .head_dim = s->head_dim,
                       .n_q = n,
                       .pos0 = pos0};
    hr_work w = hr_work_attn(p->attn, &a);
    w.bytes *= e->model->hp.n_layers, w.flops *= e->model->hp.n_layers;
    return w;
}

hr_step_work hr_engine_decode_work(const hr_engine *e, size_t n, double context) {
    hr_step_work sum = {0};
    hr_plan p;
    hr_plan_choose(e, hr_engine_bucket(e, (uint32_t)n), 1, &p);
    add_weights(e, &p, &p, n, n, &sum);
    /* a fractional context lies between two whole ones; both costs are linear in it */
    const double whole = floor(context), part = context - whole;
    const hr_work lo = attention_work(e, &p, (uint32_t)whole, 1), hi = attention_work(e, &p, (uint32_t)whole + 1, 1);
    const double bytes = (double)lo.bytes + part * ((double)hi.bytes - (double)lo.bytes);
    const double flops = (double)lo.flops + part * (double)(hi.flops - lo.flops);
    sum.bytes_kv_read = (uint64_t)(bytes * (double)n + 0.5);
    sum.flops[lo.unit] += (uint64_t)(flops * (double)n + 0.5);
    sum.bytes_kv_write = hr_work_kv_append(hr_kv_cache_view(e->kv, 0)->g, n).bytes * e->model->hp.n_layers;
    return sum;
}

hr_step_work hr_engine_prefill_work(const hr_engine *e, size_t n, size_t depth) {
    hr_step_work sum = {0};
    for (size_t done = 0; done < n;) {
        const size_t step = hr_engine_next_pass(e, done, n);
        const bool last = done + step == n;
        hr_plan p, head;
        hr_plan_choose(e, (uint32_t)step, (uint32_t)step, &p);
        hr_plan_choose(e, 1, 1, &head);
        add_weights(e, &p, &head, step, last, &sum);
        const hr_work attn = attention_work(e, &p, (uint32_t)(depth + done), (uint32_t)step);
        sum.bytes_kv_read += attn.bytes;
        sum.flops[attn.unit] += attn.flops;
        sum.bytes_kv_write += hr_work_kv_append(hr_kv_cache_view(e->kv, 0)->g, step).bytes * e->model->hp.n_layers;
        done += step;
    }
    return sum;
}

/* ---- memory ---- */

hr_sizes hr_sizes_of(const hr_model_info *info, const hr_engine_config *c, hr_act act) {
    hr_sizes s = {.max_seqs = c->max_seqs,
                  .logit_rows = c->max_seqs,
                  .threads = c->threads,
                  .ctx = c->ctx,
                  .dim = info->dim,
                  .q_dim = info->n_heads * info->head_dim,
                  .kv_dim = info->n_kv_heads * info->head_dim,
                  .ffn = info->ffn,
                  .vocab = info->vocab,
                  .head_dim = info->head_dim,
                  .n_heads = info->n_heads,
                  .n_kv_heads = info->n_kv_heads,
                  .kept_rows = 0,
                  .flash = c->flash,
                  .act = act};
    if (c->fusion & HR_FUSE_HEAD_SAMPLE) s.kept_rows = s.max_seqs < HR_KEPT_ROWS ? s.max_seqs : HR_KEPT_ROWS;
    const uint32_t pass = c->ubatch < c->batch ? c->ubatch : c->batch;
    s.tokens = pass < c->ctx ? pass : c->ctx;
    if (s.tokens < c->max_seqs) s.tokens = c->max_seqs;
    return s;
}

/* The next bytes of the arena, on a cache line; counts when there is no memory yet. */
static void *take(char *base, size_t *used, size_t count, size_t bytes) {
    void *at = base ? base + *used : NULL;
    *used = hr_align_up(*used + hr_mul(count, bytes), 128);
    return at;
}

/* Activations of T tokens in rows of ld values. */
static void place_acts(hr_act act, char *base, size_t *used, size_t T, size_t ld, hr_acts *a) {
    if (act == HR_ACT_F32) a->f32 = take(base, used, T * ld, sizeof(float));
    if (act == HR_ACT_BF16) a->bf16 = take(base, used, T * ld, sizeof(uint16_t));
    if (act == HR_ACT_INT8 || act == HR_ACT_INT8_ROW) {
        a->q = take(base, used, T * ld, 1);
        a->d = take(base, used, T * ld / 32, sizeof(float));
        a->sum = take(base, used, T * ld / 32, sizeof(int32_t));
    }
}

/* Bytes of tiles for T tokens: the most that any row of the table wants. */
static size_t tiles_bytes(hr_act act, size_t T, size_t ld) {
    size_t most = 0;
    const hr_kernel *k;
    for (size_t i = 0; (k = hr_kernel_at(i)) != NULL; i++) {
        if (k->family != HR_FAM_MATMUL || !k->tile || (k->act >= 0 && k->act != (int)act)) continue;
        const size_t bytes = hr_mul((T + k->tile - 1) / k->tile, hr_acts_tile_bytes(act, k->tile, ld));
        if (bytes > most) most = bytes;
    }
    return most;
}

float *hr_buffers_own(const hr_sizes *s, const hr_buffers *b, unsigned thread, hr_acts *acts) {
    size_t used = 0;
    char *base = b->own + thread * b->own_bytes;
    *acts = (hr_acts){0};
    float *h = take(base, &used, HR_OWN_TOKENS * (size_t)s->dim, sizeof(float));
    place_acts(s->act, base, &used, HR_OWN_TOKENS, hr_align_up(s->dim, 64), acts);
    return h;
}

/* Bytes of that. */
static size_t own_bytes(const hr_sizes *s) {
    size_t used = 0;
    hr_acts acts;
    take(NULL, &used, HR_OWN_TOKENS * (size_t)s->dim, sizeof(float));
    place_acts(s->act, NULL, &used, HR_OWN_TOKENS, hr_align_up(s->dim, 64), &acts);
    return hr_align_up(used, 4096);
}

size_t hr_buffers_place(const hr_sizes *s, char *base, hr_buffers *b) {
    size_t used = 0;
    const size_t T = s->tokens, R = s->logit_rows;
    size_t widest = s->ffn > s->q_dim ? s->ffn : s->q_dim;
    if (s->dim > widest) widest = s->dim;
    const size_t ld = hr_align_up(widest, 64);
    *b = (hr_buffers){0};
    b->x = take(base, &used, T * s->dim, sizeof(float));
    b->h = take(base, &used, T * s->dim, sizeof(float));
    b->qkv = take(base, &used, T * (s->q_dim + 2 * (size_t)s->kv_dim), sizeof(float));
    b->att = take(base, &used, T * s->q_dim, sizeof(float));
    b->gate = take(base, &used, T * s->ffn, sizeof(float));
    b->up = take(base, &used, T * s->ffn, sizeof(float));
    b->logits = take(base, &used, R * s->vocab, sizeof(float));
    b->rope = take(base, &used, T * s->head_dim, sizeof(float));
    place_acts(s->act, base, &used, T, ld, &b->acts);
    b->acts.tiles = take(base, &used, tiles_bytes(s->act, T, ld), 1);
    b->own_bytes = own_bytes(s);
    used = hr_align_up(used, 4096);
    b->own = take(base, &used, s->threads, b->own_bytes);
    b->part_bytes = 2 * T * HR_ROW_GRAIN * sizeof(float);
    if (b->part_bytes < HR_PART_BYTES) b->part_bytes = HR_PART_BYTES;
    b->part_bytes = hr_align_up(b->part_bytes, 4096);
    used = hr_align_up(used, 4096);
    b->part = take(base, &used, s->threads, b->part_bytes);
    b->kept = take(base, &used, hr_mul(s->threads, s->kept_rows), sizeof *b->kept);
    b->partial_floats = hr_attn_partial_floats(s->n_heads, s->n_kv_heads, s->head_dim, s->ctx);
    b->partial = take(base, &used, s->max_seqs * b->partial_floats, sizeof(float));
    const size_t product = hr_matmul_scratch(ld, T);
    const size_t attention = hr_attn_scratch(s->head_dim, s->n_heads / s->n_kv_heads, s->ctx, s->flash);
    b->scratch_bytes = hr_align_up(product > attention ? product : attention, 4096);
    used = hr_align_up(used, 4096);
    b->scratch = take(base, &used, s->threads, b->scratch_bytes);
    b->segments = take(base, &used, s->max_seqs, sizeof *b->segments);
    b->attn = take(base, &used, s->max_seqs, sizeof *b->attn);
    b->attn_end = take(base, &used, s->max_seqs, sizeof *b->attn_end);
    b->logit_rows = take(base, &used, T, sizeof *b->logit_rows);
    b->candidates = take(base, &used, s->vocab, sizeof *b->candidates);
    return used;
}
