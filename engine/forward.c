/* forward.c - the forward pass: embed -> layers -> logits.
 *
 * Every op is one function between hr_probe_enter and hr_probe_leave; inside, the team of threads splits rows of a
 * matrix, tokens, or (head, tile) units. The pass knows no architecture by name: it reads the facts of model.h. */
#include "engine/state.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* What the team's functions see. */
typedef struct pass {
    hr_engine *e;
    const hr_model *m;
    const hr_batch *batch;
    const hr_plan *plan;
    const hr_layer *layer; /* NULL outside the layers */
    uint32_t l, n;         /* layer, tokens */
    bool split;            /* one token a segment and some segment split over positions */
    _Atomic size_t next;   /* next unit of work of a dynamically shared op */
    size_t units;
    /* a matrix-product op: up to three matrices over the same activations */
    hr_matmul products[3];
    int n_products;
    /* norm and activations */
    const float *in;
    float *out;
    size_t dim;
    const float *weight;
    bool prepare; /* quantize or convert the result for the next product */
} pass;

/* A few tokens of element-wise work are not worth waking the team. */
enum { TEAM_TOKENS = 4 };

static void run(pass *p, hr_pool_fn *fn, size_t tokens) {
    if (tokens < TEAM_TOKENS)
        fn(p, 0, 1);
    else
        hr_pool_run(p->e->pool, fn, p);
}

static size_t row_width(const pass *p) {
    return p->e->sizes.q_dim + 2 * (size_t)p->e->sizes.kv_dim;
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
    run(p, embed_share, p->n);
    rope_angles(p);
    hr_probe_leave(&p->e->probe);
}

/* ---- norm, and activations for the next product ---- */

static void prepare_share(pass *p, const float *x, size_t ldx, size_t t0, size_t t1) {
    p->plan->acts->fn.acts(&p->e->b.acts, x, ldx, t0, t1);
}

static void norm_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t t0, t1;
    hr_share(p->n, 1, thread, n_threads, &t0, &t1);
    if (t0 == t1) return;
    p->plan->norm->fn.norm(p->in, p->dim, p->weight, p->out, p->dim, p->dim, p->m->hp.rms_eps, t0, t1);
    if (p->prepare) prepare_share(p, p->out, p->dim, t0, t1);
}

/* Describes the activations of n tokens of k values in the shared buffer. */
static void acts_shape(pass *p, size_t n, size_t k) {
    hr_acts *a = &p->e->b.acts;
    a->type = p->e->act;
    a->n = n, a->k = k, a->ld = hr_align_up(k, 64);
}

static void op_norm(pass *p, const float *x, const float *weight, float *y, size_t dim) {
    hr_work work = {.bytes = weight ? dim * sizeof(float) : 0};
    hr_probe_enter(&p->e->probe, HR_OP_NORM, p->layer ? (int)p->l : -1, p->plan->norm->name, work);
    p->in = x, p->weight = weight, p->out = y, p->dim = dim, p->prepare = true;
    acts_shape(p, p->n, dim);
    run(p, norm_share, p->n);
    hr_probe_leave(&p->e->probe);
}

static void acts_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t t0, t1;
    hr_share(p->n, 1, thread, n_threads, &t0, &t1);
    if (t0 < t1) prepare_share(p, p->in, p->dim, t0, t1);
}

static void prepare(pass *p, const float *x, size_t k) {
    p->in = x, p->dim = k;
    acts_shape(p, p->n, k);
    run(p, acts_share, p->n);
}

/* ---- matrix products ---- */

/* Rows of all products as one range, so that each thread has the same share of bytes. */
static void product_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t total = 0, done = 0, from, to;
    for (int i = 0; i < p->n_products; i++) total += p->products[i].w->rows;
    hr_share(total, HR_ROW_GRAIN, thread, n_threads, &from, &to);
    for (int i = 0; i < p->n_products; i++) {
        const hr_matmul *m = &p->products[i];
        const size_t rows = m->w->rows, a = from > done ? from - done : 0, b = to > done ? to - done : 0;
        if (a < rows && b > a)
            p->plan->matmul[m->w->dtype]->fn.matmul(m, a, b < rows ? b : rows, scratch_of(p, thread));
        done += rows;
    }
}

static void product(pass *p, int i, const hr_mat *w, float *y, size_t ldy, bool add) {
    p->products[i] = (hr_matmul){.w = w, .x = &p->e->b.acts, .y = y, .ldy = ldy, .add = add};
    p->n_products = i + 1;
}

static hr_work products_work(const pass *p) {
    hr_work sum = {0};
    for (int i = 0; i < p->n_products; i++) {
        const hr_mat *w = p->products[i].w;
        hr_work one = hr_work_matmul(p->plan->matmul[w->dtype], w, p->n);
        sum.bytes += one.bytes, sum.flops += one.flops, sum.unit = one.unit;
    }
    return sum;
}

static void enter_products(pass *p, hr_op op) {
    if (p->e->probe.on)
        hr_probe_enter(&p->e->probe, op, p->layer ? (int)p->l : -1, p->plan->matmul[p->products[0].w->dtype]->name,
                       products_work(p));
}

static void add_bias(float *y, size_t ldy, const float *bias, size_t rows, size_t n) {
    for (size_t t = 0; bias && t < n; t++)
        for (size_t i = 0; i < rows; i++) y[t * ldy + i] += bias[i];
}

static void op_qkv(pass *p) {
    const hr_layer *w = p->layer;
    const size_t q = p->e->sizes.q_dim, kv = p->e->sizes.kv_dim, ld = row_width(p);
    float *y = p->e->b.qkv;
    product(p, 0, &w->wq, y, ld, false);
    product(p, 1, &w->wk, y + q, ld, false);
    product(p, 2, &w->wv, y + q + kv, ld, false);
    enter_products(p, HR_OP_QKV);
    hr_pool_run(p->e->pool, product_share, p);
    add_bias(y, ld, w->bq, q, p->n);
    add_bias(y + q, ld, w->bk, kv, p->n);
    add_bias(y + q + kv, ld, w->bv, kv, p->n);
    hr_probe_leave(&p->e->probe);
}

static void op_out(pass *p) {
    product(p, 0, &p->layer->wo, p->e->b.x, p->e->sizes.dim, true);
    enter_products(p, HR_OP_OUT);
    prepare(p, p->e->b.att, p->e->sizes.q_dim);
    hr_pool_run(p->e->pool, product_share, p);
    hr_probe_leave(&p->e->probe);
}

/* A thread's rows of gate and up are the same, so that it can apply the activation to its own part without waiting. */
static void gate_up_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    size_t from, to;
    hr_share(p->e->sizes.ffn, HR_ROW_GRAIN, thread, n_threads, &from, &to);
    if (from == to) return;
    for (int i = 0; i < 2; i++)
        p->plan->matmul[p->products[i].w->dtype]->fn.matmul(&p->products[i], from, to, scratch_of(p, thread));
    for (uint32_t t = 0; t < p->n; t++) {
        size_t at = t * (size_t)p->e->sizes.ffn + from;
        p->plan->glu->fn.glu(p->e->b.gate + at, p->e->b.up + at, p->e->b.gate + at, to - from);
    }
}

static void op_gate_up(pass *p) {
    product(p, 0, &p->layer->gate, p->e->b.gate, p->e->sizes.ffn, false);
    product(p, 1, &p->layer->up, p->e->b.up, p->e->sizes.ffn, false);
    enter_products(p, HR_OP_GATE_UP);
    hr_pool_run(p->e->pool, gate_up_share, p);
    hr_probe_leave(&p->e->probe);
}

static void op_down(pass *p) {
    product(p, 0, &p->layer->down, p->e->b.x, p->e->sizes.dim, true);
    enter_products(p, HR_OP_DOWN);
    prepare(p, p->e->b.gate, p->e->sizes.ffn);
    hr_pool_run(p->e->pool, product_share, p);
    hr_probe_leave(&p->e->probe);
}

/* ---- positions and KV ---- */

static void rope_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const hr_sizes *s = &p->e->sizes;
    const hr_hparams *hp = &p->m->hp;
    float *q = p->e->b.qkv, *k = q + s->q_dim;
    const size_t ld = row_width(p);
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
    run(p, rope_share, p->n);
    hr_probe_leave(&p->e->probe);
}

static void append_share(void *context, unsigned thread, unsigned n_threads) {
    pass *p = context;
    const size_t ld = row_width(p);
    const float *k = p->e->b.qkv + p->e->sizes.q_dim, *v = k + p->e->sizes.kv_dim;
    size_t from, to;
    hr_share(p->n, 1, thread, n_threads, &from, &to);
    for (uint32_t i = 0; i < p->batch->n_segments; i++) {
        const hr_segment *g = &p->batch->segments[i];
        size_t a = from > g->row0 ? from - g->row0 : 0, b = to > g->row0 ? to - g->row0 : 0;
        if (b > g->n) b = g->n;
        if (a < b)
            p->plan->append->fn.kv_append(g->kv, p->l, g->pos0, k + g->row0 * ld, ld, v + g->row0 * ld, ld, a, b, 0,
                                          p->e->sizes.n_kv_heads);
    }
}

static void op_kv_append(pass *p) {
    hr_probe_enter(&p->e->probe, HR_OP_KV_APPEND, (int)p->l, p->plan->append->name,
                   hr_work_kv_append(p->batch->segments[0].kv->g, p->n));
    run(p, append_share, p->n);
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
    const size_t ld = row_width(p);
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
        if (p->e->probe.on) {
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
    op_norm(p, p->e->b.x, p->m->output_norm, p->e->b.h, dim);
    product(p, 0, &p->m->head, batch->logits, p->e->sizes.vocab, false);
    enter_products(p, HR_OP_HEAD);
    hr_pool_run(p->e->pool, product_share, p);
    hr_probe_leave(&p->e->probe);
}

/* ---- the pass ---- */

static void run_layer(pass *p) {
    hr_buffers *b = &p->e->b;
    const size_t dim = p->e->sizes.dim;
    hr_probe_layer_begin(&p->e->probe, (int)p->l);
    op_norm(p, b->x, p->layer->attn_norm, b->h, dim);
    op_qkv(p);
    op_rope(p);
    op_kv_append(p);
    op_attention(p);
    op_out(p);
    op_norm(p, b->x, p->layer->ffn_norm, b->h, dim);
    op_gate_up(p);
    op_down(p);
    hr_probe_layer_end(&p->e->probe);
}

void hr_forward(hr_engine *e, const hr_batch *batch) {
    const uint32_t n_q = batch->n_segments == 1 ? batch->n : 1;
    pass p = {.e = e, .m = e->model, .batch = batch, .n = batch->n, .plan = hr_engine_plan_for(e, batch->n, n_q)};
    hr_probe_pass_begin(&e->probe, batch->phase, batch->n);
    op_embed(&p);
    for (p.l = 0; p.l < e->model->hp.n_layers; p.l++) {
        p.layer = &e->model->layers[p.l];
        run_layer(&p);
    }
    if (batch->n_logits) op_head(&p);
    e->last_logits = batch->logits;
    hr_probe_pass_end(&e->probe);
}
