/* cpu_ops.c - the ops of a forward pass on the CPU, one by one (cpu_fused.c: those that are joined).
 *
 * Every op is one function between hr_probe_enter and hr_probe_leave; inside, the team of threads splits rows of a
 * matrix, tokens, or (head, tile) units. */
#include "engine/backend.h"
#include "engine/cpu/cpu_pass.h"

#include "kernels/base/memory.h"
#include "kernels/kv/kv_open.h"

#include <math.h>
#include <string.h>

typedef hr_cpu_pass pass;

/* What an op begins with. */
static pass pass_of(const hr_pass *p) {
    pass c;
    c.e = p->e, c.m = p->m, c.batch = p->batch, c.plan = p->plan, c.layer = p->layer, c.l = p->l, c.n = p->n;
    return c;
}

/* A few tokens of element-wise work are not worth waking the team. */
enum { TEAM_TOKENS = 4 };

void hr_cpu_run(pass *p, hr_pool_fn *fn, size_t tokens) {
    if (tokens < TEAM_TOKENS)
        fn(p, 0, 1);
    else
        hr_pool_run(p->e->pool, fn, p);
}

static bool is_fused(const pass *p, unsigned bit) {
    return (p->e->config.fusion & bit) != 0;
}

static char *scratch_of(const pass *p, unsigned thread) {
    return p->e->b.scratch + thread * p->e->b.scratch_bytes;
}

/* ---- embed ---- */

static void embed_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const size_t dim = p->e->sizes.dim;
    const float scale = p->m->arch->embed_scale_sqrt_dim > 0 ? sqrtf((float)dim) : 1.0f;
    size_t t0, t1;
    hr_share(p->n, 1, thread, n_threads, &t0, &t1);
    for (size_t t = t0; t < t1; t++) {
        float *x = p->e->b.x + t * dim;
        p->plan->embed->fn.embed(&p->m->embed, (size_t)p->batch->tokens[t], x);
        if (scale != 1.0f)
            for (size_t i = 0; i < dim; i++) x[i] *= scale;
    }
}

/* cos and sin of every token's angles: the same for all layers. */
static void rope_angles(pass *p) {
    const size_t half = p->m->hp.rope_dims / 2;
    for (uint32_t s = 0; s < p->batch->n_segments; s++) {
        const hr_segment *g = &p->batch->segments[s];
        for (uint32_t i = 0; i < g->n; i++) {
            float *cs = p->e->b.rope + (g->row0 + i) * 2 * half;
            for (size_t j = 0; j < half; j++) {
                double angle = (double)(g->pos0 + i) * p->m->rope_freq[j];
                cs[2 * j] = (float)cos(angle), cs[2 * j + 1] = (float)sin(angle);
            }
        }
    }
}

static void op_embed(pass *p) {
    hr_mat one = p->m->embed;
    one.rows = p->m->info.tied ? 0 : p->n; /* looked-up rows of a tied table are counted with the head */
    hr_probe_enter(&p->e->probe, HR_OP_EMBED, -1, p->plan->embed->name, (hr_work){.bytes = hr_mat_bytes(&one)});
    hr_cpu_run(p, embed_share, p->n);
    rope_angles(p);
    hr_probe_leave(&p->e->probe);
}

/* ---- norm, and activations for the next product ---- */

void hr_cpu_inputs(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t t0, t1;
    hr_share(p->n, p->group.tile ? p->group.tile : 1, thread, n_threads, &t0, &t1);
    /* a tile at a time, so that what the norm wrote is still in a near cache */
    const size_t step = p->group.tile ? p->group.tile : t1 - t0;
    for (size_t t = t0; t < t1; t += step) {
        const size_t end = t1 - t < step ? t1 : t + step;
        if (p->out) p->plan->norm->fn.norm(p->in, p->dim, p->weight, p->out, p->dim, p->dim, p->m->hp.rms_eps, t, end);
        p->group.acts->fn.acts(&p->e->b.acts, p->out ? p->out : p->in, p->dim, t, end);
    }
}

static void op_norm(pass *p, const float *x, const float *weight) {
    const size_t dim = p->e->sizes.dim;
    hr_work work = {.bytes = weight ? dim * sizeof(float) : 0};
    hr_probe_enter(&p->e->probe, HR_OP_NORM, p->layer ? (int)p->l : -1, p->plan->norm->name, work);
    p->in = x, p->weight = weight, p->out = p->e->b.h, p->dim = dim;
    hr_cpu_run(p, hr_cpu_inputs, p->n);
    hr_probe_leave(&p->e->probe);
}

/* Activations of x [n][k] as they are. */
static void prepare(pass *p, const float *x, size_t k) {
    p->in = x, p->out = NULL, p->dim = k;
    hr_cpu_run(p, hr_cpu_inputs, p->n);
}

/* ---- matrix products ---- */

void hr_cpu_products(pass *p, hr_op op, size_t k, size_t n, const hr_mat *const *mats) {
    hr_acts *a = &p->e->b.acts;
    hr_plan_group(p->e, p->plan, op, mats, n, &p->group);
    a->type = p->e->act, a->n = p->n, a->k = k, a->ld = hr_align_up(k, 64), a->tile = p->group.tile;
    a->tiles_alone = p->group.tile != 0;
    for (size_t i = 0; i < n; i++) a->tiles_alone &= p->group.rows[i]->tile == p->group.tile;
    for (size_t i = 0; i < n; i++) p->products[i] = (hr_matmul){.w = mats[i], .x = a};
}

hr_work hr_cpu_work(const pass *p) {
    hr_work sum = {0};
    for (size_t i = 0; i < p->group.n; i++) {
        hr_work one = hr_work_matmul(p->group.rows[i], p->products[i].w, p->n);
        sum.bytes += one.bytes, sum.flops += one.flops, sum.unit = one.unit;
    }
    return sum;
}

void hr_cpu_enter(pass *p, hr_op op, const char *fused, uint64_t extra) {
    if (!hr_probe_on(&p->e->probe)) return;
    hr_work work = hr_cpu_work(p);
    work.bytes += extra;
    const char *name = p->group.rows[0]->name;
    hr_probe_enter(&p->e->probe, op, p->layer ? (int)p->l : -1, fused ? hr_fused_name(fused, name) : name, work);
}

void hr_cpu_rows(const pass *p, size_t i, const hr_acts *x, size_t row0, size_t row1, unsigned thread) {
    hr_matmul m = p->products[i];
    m.x = x;
    p->group.rows[i]->fn.matmul(&m, row0, row1, scratch_of(p, thread));
}

size_t hr_cpu_piece(const pass *p, size_t rows, size_t row_bytes) {
    enum { BYTES = 1 << 20, FEW = 16, GEMM_ROWS = 128 };
    if (p->n > FEW) {
        const size_t some = BYTES / 8 / (row_bytes + 1) / HR_ROW_GRAIN * HR_ROW_GRAIN;
        return some > GEMM_ROWS ? some : GEMM_ROWS;
    }
    const size_t threads = p->e->config.threads, share = (rows + threads - 1) / threads;
    const size_t pieces = share * row_bytes / BYTES + 1;
    return hr_align_up((share + pieces - 1) / pieces, HR_ROW_GRAIN);
}

/* Pieces of all products form one list. */
static void product_share(void *context, unsigned thread, unsigned n_threads) {
    (void)n_threads;
    pass *p = context;
    size_t all = 0, ends[HR_GROUP_MAX], total = 0, piece;
    for (size_t i = 0; i < p->group.n; i++) all += p->products[i].w->rows;
    const size_t rows = hr_cpu_piece(p, all, hr_row_cost(p->products[0].w));
    for (size_t i = 0; i < p->group.n; i++) ends[i] = total += (p->products[i].w->rows + rows - 1) / rows;
    while (hr_pool_next(p->e->pool, thread, total, &piece)) {
        size_t i = 0;
        while (piece >= ends[i]) i++;
        const size_t from = (piece - (i ? ends[i - 1] : 0)) * rows, left = p->products[i].w->rows - from;
        hr_cpu_rows(p, i, p->products[i].x, from, from + (left < rows ? left : rows), thread);
    }
}

static void add_bias(float *y, size_t ldy, const float *bias, size_t rows, size_t n) {
    for (size_t t = 0; bias && t < n; t++)
        for (size_t i = 0; i < rows; i++) y[t * ldy + i] += bias[i];
}

static void set_qkv(pass *p) {
    const hr_layer *w = p->layer;
    const size_t q = p->e->sizes.q_dim, kv = p->e->sizes.kv_dim, ld = hr_cpu_width(p);
    hr_cpu_products(p, HR_OP_QKV, p->e->sizes.dim, 3, (const hr_mat *[]){&w->wq, &w->wk, &w->wv});
    hr_cpu_result(p, 0, p->e->b.qkv, ld, false);
    hr_cpu_result(p, 1, p->e->b.qkv + q, ld, false);
    hr_cpu_result(p, 2, p->e->b.qkv + q + kv, ld, false);
}

static void op_qkv(pass *p) {
    const hr_layer *w = p->layer;
    const size_t q = p->e->sizes.q_dim, kv = p->e->sizes.kv_dim, ld = hr_cpu_width(p);
    float *y = p->e->b.qkv;
    hr_cpu_enter(p, HR_OP_QKV, NULL, 0);
    hr_pool_run_shared(p->e->pool, product_share, p);
    add_bias(y, ld, w->bq, q, p->n);
    add_bias(y + q, ld, w->bk, kv, p->n);
    add_bias(y + q + kv, ld, w->bv, kv, p->n);
    hr_cpu_leave(p);
}

static void residual_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const size_t dim = p->e->sizes.dim;
    size_t t0, t1;
    hr_share(p->n, 1, thread, n_threads, &t0, &t1);
    float *restrict x = p->e->b.x;
    const float *restrict h = p->e->b.h;
    for (size_t i = t0 * dim; i < t1 * dim; i++) x[i] += h[i];
}

/* The products that go back into the residual stream: x += w in. Separately: h = w in, then x += h. */
static void op_residual(pass *p, hr_op op, const hr_mat *w, const float *in) {
    const bool fused = is_fused(p, HR_FUSE_OUT_RESIDUAL);
    hr_cpu_products(p, op, w->cols, 1, &w);
    hr_cpu_result(p, 0, fused ? p->e->b.x : p->e->b.h, p->e->sizes.dim, fused);
    hr_cpu_enter(p, op, fused ? "residual_fused" : NULL, 0);
    prepare(p, in, w->cols);
    hr_pool_run_shared(p->e->pool, product_share, p);
    hr_cpu_leave(p);
    if (fused) return;
    hr_probe_enter(&p->e->probe, op, (int)p->l, "residual_add", (hr_work){0});
    hr_cpu_run(p, residual_share, p->n);
    hr_cpu_leave(p);
}

static void set_gate_up(pass *p) {
    hr_cpu_products(p, HR_OP_GATE_UP, p->e->sizes.dim, 2, (const hr_mat *[]){&p->layer->gate, &p->layer->up});
    hr_cpu_result(p, 0, p->e->b.gate, p->e->sizes.ffn, false);
    hr_cpu_result(p, 1, p->e->b.up, p->e->sizes.ffn, false);
}

static void glu_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t from, to;
    hr_share(p->n * (size_t)p->e->sizes.ffn, 64, thread, n_threads, &from, &to);
    if (from < to) p->plan->glu->fn.glu(p->e->b.gate + from, p->e->b.up + from, p->e->b.gate + from, to - from);
}

static void op_gate_up(pass *p) {
    hr_cpu_enter(p, HR_OP_GATE_UP, NULL, 0);
    hr_pool_run_shared(p->e->pool, product_share, p);
    hr_cpu_leave(p);
    hr_probe_enter(&p->e->probe, HR_OP_GATE_UP, (int)p->l, p->plan->glu->name, (hr_work){0});
    hr_pool_run(p->e->pool, glu_share, p);
    hr_cpu_leave(p);
}

/* ---- positions and KV ---- */

static void rope_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const hr_sizes *s = &p->e->sizes;
    const hr_hparams *hp = &p->m->hp;
    float *q = p->e->b.qkv, *k = q + s->q_dim;
    const size_t ld = hr_cpu_width(p);
    size_t t0, t1;
    hr_share(p->n, 1, thread, n_threads, &t0, &t1);
    if (t0 == t1) return;
    if (p->layer->q_norm) /* per head, before the rotation */
        for (size_t t = t0; t < t1; t++) {
            p->plan->norm->fn.norm(q + t * ld, s->head_dim, p->layer->q_norm, q + t * ld, s->head_dim, s->head_dim,
                                   hp->rms_eps, 0, s->n_heads);
            p->plan->norm->fn.norm(k + t * ld, s->head_dim, p->layer->k_norm, k + t * ld, s->head_dim, s->head_dim,
                                   hp->rms_eps, 0, s->n_kv_heads);
        }
    /* q and k lie side by side: one call rotates the heads of both */
    p->plan->rope->fn.rope(q, ld, s->n_heads + s->n_kv_heads, s->head_dim, hp->rope_dims, p->m->arch->rope_interleaved,
                           p->e->b.rope, t0, t1);
}

static void op_rope(pass *p) {
    hr_probe_enter(&p->e->probe, HR_OP_ROPE, (int)p->l, p->plan->rope->name, (hr_work){0});
    hr_cpu_run(p, rope_share, p->n);
    hr_probe_leave(&p->e->probe);
}

static void append_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const size_t ld = hr_cpu_width(p);
    const float *k = p->e->b.qkv + p->e->sizes.q_dim, *v = k + p->e->sizes.kv_dim;
    const uint32_t heads = p->e->sizes.n_kv_heads;
    size_t from, to;
    if (hr_kv_granule(p->batch->segments[0].kv->g) > 1) { /* a head's positions belong to one thread */
        hr_share((size_t)p->batch->n_segments * heads, 1, thread, n_threads, &from, &to);
        for (size_t i = from; i < to; i++) {
            const hr_segment *g = &p->batch->segments[i / heads];
            const uint32_t h = (uint32_t)(i % heads);
            p->plan->append->fn.kv_append(g->kv, p->l, g->pos0, k + g->row0 * ld, ld, v + g->row0 * ld, ld, 0, g->n, h,
                                          h + 1);
        }
        return;
    }
    hr_share(p->n, 1, thread, n_threads, &from, &to);
    for (uint32_t i = 0; i < p->batch->n_segments; i++) {
        const hr_segment *g = &p->batch->segments[i];
        size_t a = from > g->row0 ? from - g->row0 : 0, b = to > g->row0 ? to - g->row0 : 0;
        if (b > g->n) b = g->n;
        if (a < b)
            p->plan->append->fn.kv_append(g->kv, p->l, g->pos0, k + g->row0 * ld, ld, v + g->row0 * ld, ld, a, b, 0,
                                          heads);
    }
}

static void op_kv_append(pass *p) {
    hr_probe_enter(&p->e->probe, HR_OP_KV_APPEND, (int)p->l, p->plan->append->name,
                   hr_work_kv_append(p->batch->segments[0].kv->g, p->n));
    hr_cpu_run(p, append_share, p->n);
    hr_probe_leave(&p->e->probe);
}

/* Units of all segments form one list; threads take the next one, as causal tiles differ in cost. Results do not depend
 * on who computes a unit. */
static void attention_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const hr_buffers *b = &p->e->b;
    (void)n_threads;
    for (size_t unit; (unit = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->units;) {
        size_t s = 0, first = 0;
        while (unit >= b->attn_end[s]) first = b->attn_end[s++];
        p->plan->attn->fn.attn(&b->attn[s], unit - first, unit - first + 1, scratch_of(p, thread));
    }
}

static void merge_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const uint32_t heads = p->e->sizes.n_kv_heads;
    size_t from, to;
    hr_share((size_t)p->batch->n_segments * heads, 1, thread, n_threads, &from, &to);
    for (size_t i = from; i < to; i++) {
        const hr_attn *a = &p->e->b.attn[i / heads];
        if (hr_attn_is_split(a)) p->plan->merge->fn.attn_merge(a, i % heads, i % heads + 1);
    }
}

static hr_work attention_setup(pass *p) {
    const hr_sizes *s = &p->e->sizes;
    const size_t ld = hr_cpu_width(p);
    hr_work work = {0};
    p->units = 0, p->split = false;
    for (uint32_t i = 0; i < p->batch->n_segments; i++) {
        const hr_segment *g = &p->batch->segments[i];
        hr_attn *a = &p->e->b.attn[i];
        *a = (hr_attn){.kv = g->kv,
                       .layer = p->l,
                       .n_heads = s->n_heads,
                       .n_kv_heads = s->n_kv_heads,
                       .head_dim = s->head_dim,
                       .n_q = g->n,
                       .pos0 = g->pos0,
                       .q = p->e->b.qkv + g->row0 * ld,
                       .ldq = ld,
                       .out = p->e->b.att + (size_t)g->row0 * s->q_dim,
                       .ldo = s->q_dim,
                       .scale = p->m->hp.attn_scale};
        if (hr_attn_is_split(a)) {
            a->partial = p->e->b.partial + i * p->e->b.partial_floats;
            p->split = true;
        }
        p->units += hr_attn_units(a);
        p->e->b.attn_end[i] = p->units;
        if (hr_probe_on(&p->e->probe)) {
            hr_work one = hr_work_attn(p->plan->attn, a);
            work.bytes += one.bytes, work.flops += one.flops, work.unit = one.unit;
        }
    }
    return work;
}

static void op_attention(pass *p) {
    hr_work work = attention_setup(p);
    hr_probe_enter(&p->e->probe, HR_OP_ATTENTION, (int)p->l, p->plan->attn->name, work);
    atomic_store(&p->next, 0);
    hr_pool_run(p->e->pool, attention_share, p);
    if (p->split) hr_pool_run(p->e->pool, merge_share, p);
    hr_probe_leave(&p->e->probe);
}

/* ---- head ---- */

static void op_head(pass *p) {
    const hr_batch *batch = p->batch;
    const size_t dim = p->e->sizes.dim;
    /* rows in order, so a row is never overwritten before it is moved */
    for (uint32_t i = 0; i < batch->n_logits; i++)
        if (batch->logit_rows[i] != i)
            memmove(p->e->b.x + i * dim, p->e->b.x + batch->logit_rows[i] * dim, dim * sizeof(float));
    p->n = batch->n_logits;
    p->plan = hr_engine_plan_for(p->e, p->n, 1);
    p->layer = NULL;
    const hr_mat *head = &p->m->head;
    hr_cpu_products(p, HR_OP_HEAD, dim, 1, &head);
    hr_cpu_result(p, 0, batch->logits, p->e->sizes.vocab, false);
    op_norm(p, p->e->b.x, p->m->output_norm);
    if (is_fused(p, HR_FUSE_HEAD_SAMPLE) && p->n <= p->e->sizes.kept_rows && batch->logits == p->e->b.logits) {
        hr_cpu_fused_head(p);
        return;
    }
    hr_cpu_enter(p, HR_OP_HEAD, NULL, 0);
    hr_pool_run_shared(p->e->pool, product_share, p);
    hr_cpu_leave(p);
}

/* ---- the pass ---- */

/* ---- the backend ---- */

static void cpu_embed(hr_pass *q) {
    pass p = pass_of(q);
    op_embed(&p);
}
static void cpu_qkv_fused(hr_pass *q) {
    pass p = pass_of(q);
    hr_cpu_fused_qkv(&p);
}
static void cpu_qkv(hr_pass *q) {
    pass p = pass_of(q);
    set_qkv(&p);
    op_norm(&p, p.e->b.x, p.layer->attn_norm);
    op_qkv(&p);
    op_rope(&p);
    op_kv_append(&p);
}
static void cpu_attention(hr_pass *q) {
    pass p = pass_of(q);
    op_attention(&p);
}
static void cpu_out(hr_pass *q) {
    pass p = pass_of(q);
    op_residual(&p, HR_OP_OUT, &p.layer->wo, p.e->b.att);
}
static void cpu_gate_up_fused(hr_pass *q) {
    pass p = pass_of(q);
    hr_cpu_fused_gate_up(&p);
}
static void cpu_gate_up(hr_pass *q) {
    pass p = pass_of(q);
    set_gate_up(&p);
    op_norm(&p, p.e->b.x, p.layer->ffn_norm);
    op_gate_up(&p);
}
static void cpu_down(hr_pass *q) {
    pass p = pass_of(q);
    op_residual(&p, HR_OP_DOWN, &p.layer->down, p.e->b.gate);
}
static void cpu_head(hr_pass *q) {
    pass p = pass_of(q);
    op_head(&p);
}

static hr_status cpu_begin(hr_pass *p) {
    p->e->kept_rows = 0;
    return HR_OK;
}
static hr_status cpu_end(hr_pass *p) {
    p->e->last_logits = p->batch->logits;
    return HR_OK;
}

const hr_backend hr_backend_cpu = {.name = "cpu",
                                   .open = hr_cpu_open,
                                   .close = hr_cpu_close,
                                   .run_bytes = hr_cpu_run_bytes,
                                   .facts = hr_cpu_facts,
                                   .begin = cpu_begin,
                                   .end = cpu_end,
                                   .embed = cpu_embed,
                                   .qkv_fused = cpu_qkv_fused,
                                   .qkv = cpu_qkv,
                                   .attention = cpu_attention,
                                   .out = cpu_out,
                                   .gate_up_fused = cpu_gate_up_fused,
                                   .gate_up = cpu_gate_up,
                                   .down = cpu_down,
                                   .head = cpu_head,
                                   .logits = hr_cpu_logits,
                                   .sample = hr_cpu_sample};
