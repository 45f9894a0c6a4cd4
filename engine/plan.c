/* plan.c - which kernels a pass uses, what it costs, and how much memory its buffers take. */
#include "engine/state.h"

#include "kernels/base/memory.h"

#include <math.h>

/* ---- kernels ---- */

static const hr_kernel *choose(const hr_engine *e, hr_family family, hr_dtype dtype, uint32_t n) {
    const hr_kernel_query q = {.family = family,
                               .isa = e->isa,
                               .dtype = dtype,
                               .dtype2 = e->config.v_type,
                               .act = e->act,
                               .n = n,
                               .order = e->model->info.order,
                               .flash = e->config.flash};
    return hr_kernel_choose(&q);
}

void hr_plan_choose(const hr_engine *e, uint32_t n, uint32_t n_q, hr_plan *out) {
    const hr_dtype k = e->config.k_type, embed = e->model->embed.dtype;
    *out = (hr_plan){.n = n,
                     .n_q = n_q,
                     .acts = choose(e, HR_FAM_ACTS, embed, n),
                     .attn = choose(e, HR_FAM_ATTN, k, n_q),
                     .merge = choose(e, HR_FAM_ATTN_MERGE, k, n_q),
                     .norm = choose(e, HR_FAM_NORM, embed, n),
                     .rope = choose(e, HR_FAM_ROPE, embed, n),
                     .glu = choose(e, HR_FAM_GLU, embed, n),
                     .append = choose(e, HR_FAM_KV_APPEND, k, n),
                     .embed = choose(e, HR_FAM_EMBED, embed, n)};
    for (int t = 0; t < HR_DTYPE_COUNT; t++) out->matmul[t] = choose(e, HR_FAM_MATMUL, (hr_dtype)t, n);
}

const hr_plan *hr_engine_plan_for(hr_engine *e, uint32_t n, uint32_t n_q) {
    for (int i = 0; i < 2; i++)
        if (e->plan[i].n == n && e->plan[i].n_q == n_q) return &e->plan[i];
    hr_plan *slot = &e->plan[e->plan_next];
    e->plan_next ^= 1;
    hr_plan_choose(e, n, n_q, slot);
    return slot;
}

json_t *hr_engine_kernels(const hr_engine *e, hr_phase phase, size_t n) {
    const uint32_t tokens = n < 1 ? 1 : n > e->sizes.tokens ? e->sizes.tokens : (uint32_t)n;
    hr_plan p, head;
    hr_plan_choose(e, tokens, phase == HR_PHASE_PREFILL ? tokens : 1, &p);
    hr_plan_choose(e, phase == HR_PHASE_PREFILL ? 1 : tokens, 1, &head);
    const hr_layer *l = &e->model->layers[0];
    const struct {
        hr_op op;
        const hr_kernel *kernel;
    } rows[] = {{HR_OP_EMBED, p.embed},
                {HR_OP_NORM, p.norm},
                {HR_OP_QKV, p.matmul[l->wq.dtype]},
                {HR_OP_ROPE, p.rope},
                {HR_OP_KV_APPEND, p.append},
                {HR_OP_ATTENTION, p.attn},
                {HR_OP_OUT, p.matmul[l->wo.dtype]},
                {HR_OP_GATE_UP, p.matmul[l->gate.dtype]},
                {HR_OP_DOWN, p.matmul[l->down.dtype]},
                {HR_OP_HEAD, head.matmul[e->model->head.dtype]}};
    json_t *map = json_object();
    for (size_t i = 0; map && i < sizeof rows / sizeof *rows; i++)
        json_object_set_new(map, hr_op_names[rows[i].op], json_string(rows[i].kernel->name));
    return map;
}

/* ---- work ---- */

static void add_product(const hr_plan *p, const hr_mat *w, size_t n, hr_step_work *sum) {
    hr_work one = hr_work_matmul(p->matmul[w->dtype], w, n);
    sum->bytes_weights += one.bytes;
    sum->flops[one.unit] += one.flops;
}

/* Weights of one pass of n tokens with logits of n_logits rows. */
static void add_weights(const hr_engine *e, const hr_plan *p, const hr_plan *head, size_t n, size_t n_logits,
                        hr_step_work *sum) {
    const hr_model *m = e->model;
    const size_t dim = m->hp.dim * sizeof(float);
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const hr_layer *l = &m->layers[i];
        const hr_mat *mats[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof mats / sizeof *mats; j++) add_product(p, mats[j], n, sum);
        sum->bytes_weights += 2 * dim;
    }
    if (!m->info.tied) {
        hr_mat rows = m->embed;
        rows.rows = n;
        sum->bytes_weights += hr_mat_bytes(&rows);
    }
    if (n_logits) {
        add_product(head, &m->head, n_logits, sum);
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
    hr_plan_choose(e, (uint32_t)n, 1, &p);
    add_weights(e, &p, &p, n, n, &sum);
    /* a fractional context lies between two whole ones; both costs are linear in it */
    const double whole = floor(context), part = context - whole;
    const hr_work lo = attention_work(e, &p, (uint32_t)whole, 1), hi = attention_work(e, &p, (uint32_t)whole + 1, 1);
    const double bytes = (double)lo.bytes + part * (double)(hi.bytes - lo.bytes);
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
                  .flash = c->flash,
                  .act = act};
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
    if (s->act == HR_ACT_F32) b->acts.f32 = take(base, &used, T * ld, sizeof(float));
    if (s->act == HR_ACT_BF16) b->acts.bf16 = take(base, &used, T * ld, sizeof(uint16_t));
    if (s->act == HR_ACT_INT8 || s->act == HR_ACT_INT8_ROW) {
        b->acts.q = take(base, &used, T * ld, 1);
        b->acts.d = take(base, &used, T * ld / 32, sizeof(float));
        b->acts.sum = take(base, &used, T * ld / 32, sizeof(int32_t));
    }
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
