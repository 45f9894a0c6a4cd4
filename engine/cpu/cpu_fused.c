/* fused.c - ops joined into one job of the team (--fusion): norm + QKV + bias + RoPE + KV append, norm + gate + up +
 * activation, head + the best logits.
 *
 * A thread finishes what it has begun: it owns whole heads (or rows of gate and up), so that all steps after the product
 * need no other thread, and works on parts that stay in its caches. Up to HR_OWN_TOKENS tokens each thread also makes the
 * activations for itself: the same bits as made once, and no join before the product. The arithmetic is that of the
 * separate ops, step by step, so that results are the same to the bit. */
#include "engine/cpu/cpu_pass.h"

#include "kernels/base/panel.h"

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static uint64_t norm_bytes(const hr_cpu_pass *p, const float *weight) {
    return weight ? p->e->sizes.dim * sizeof(float) : 0;
}

/* ---- activations ---- */

/* Norm and activations before the product: here, by the team, or later by each thread for itself. */
static void fused_inputs(hr_cpu_pass *p, const float *x, const float *weight) {
    p->in = x, p->weight = weight, p->out = p->e->b.h, p->dim = p->e->sizes.dim;
    p->own = p->n <= HR_OWN_TOKENS && p->group.tile == 0;
    if (!p->own) hr_cpu_run(p, hr_cpu_inputs, p->n);
}

/* The activations that a thread works from; *own is its private copy. */
static const hr_acts *inputs_of(const hr_cpu_pass *p, unsigned thread, hr_acts *own) {
    const hr_buffers *b = &p->e->b;
    if (!p->own) return &b->acts;
    float *h = hr_buffers_own(&p->e->sizes, b, thread, own);
    own->type = b->acts.type, own->n = p->n, own->k = p->dim, own->ld = b->acts.ld;
    p->plan->norm->fn.norm(p->in, p->dim, p->weight, h, p->dim, p->dim, p->m->hp.rms_eps, 0, p->n);
    p->group.acts->fn.acts(own, h, p->dim, 0, p->n);
    return own;
}

/* ---- Q, K, V ---- */

/* Fewest heads whose rows are a multiple of a panel's. */
static size_t heads_of_panels(size_t head_dim) {
    size_t heads = 1;
    while (heads * head_dim % HR_PANEL) heads *= 2;
    return heads;
}

/* Bias, norm per head, rotation and append of heads h0 .. h1 - 1 of product i (0: Q, 1: K, 2: V). */
static void finish_heads(const hr_cpu_pass *p, int i, size_t h0, size_t h1) {
    const hr_sizes *s = &p->e->sizes;
    const hr_layer *w = p->layer;
    const size_t dim = s->head_dim, ld = p->products[i].ldy;
    const float *bias = i == 0 ? w->bq : i == 1 ? w->bk : w->bv, *norm = i == 0 ? w->q_norm : i == 1 ? w->k_norm : NULL;
    float *y = p->products[i].y, *heads = y + h0 * dim;
    for (size_t t = 0; bias && t < p->n; t++)
        for (size_t j = h0 * dim; j < h1 * dim; j++) y[t * ld + j] += bias[j];
    for (size_t t = 0; norm && t < p->n; t++)
        p->plan->norm->fn.norm(heads + t * ld, dim, norm, heads + t * ld, dim, dim, p->m->hp.rms_eps, 0, h1 - h0);
    if (i < 2)
        p->plan->rope->fn.rope(heads, ld, h1 - h0, dim, p->m->hp.rope_dims, p->m->arch->rope_interleaved, p->e->b.rope,
                               0, p->n);
    for (uint32_t g = 0; i > 0 && g < p->batch->n_segments; g++) {
        const hr_segment *seg = &p->batch->segments[g];
        const float *from = y + seg->row0 * ld;
        p->plan->append->fn.kv_append(seg->kv, p->l, seg->pos0, i == 1 ? from : NULL, ld, i == 2 ? from : NULL, ld, 0,
                                      seg->n, (uint32_t)h0, (uint32_t)h1);
    }
}

/* Heads h0 .. h1 - 1 of product i. */
static void qkv_heads(const hr_cpu_pass *p, int i, const hr_acts *x, size_t h0, size_t h1, unsigned thread) {
    const size_t dim = p->e->sizes.head_dim;
    hr_cpu_rows(p, (size_t)i, x, h0 * dim, h1 * dim, thread);
    finish_heads(p, i, h0, h1);
}

/* The heads of Q, K and V are one list of units that begin where panels do. */
static void qkv_share(void *context, unsigned thread, unsigned n_threads) {
    (void)n_threads;
    hr_cpu_pass *p = context;
    const hr_sizes *s = &p->e->sizes;
    const size_t unit = heads_of_panels(s->head_dim);
    const size_t units[] = {(s->n_heads + unit - 1) / unit, (s->n_kv_heads + unit - 1) / unit};
    const size_t unit_rows = unit * s->head_dim, all = units[0] + 2 * units[1];
    const size_t rows = hr_cpu_piece(p, all * unit_rows, hr_row_cost(p->products[0].w));
    const size_t many = rows / unit_rows ? rows / unit_rows : 1;
    size_t piece;
    hr_acts own;
    const hr_acts *x = NULL;
    while (hr_pool_next(p->e->pool, thread, (all + many - 1) / many, &piece)) {
        const size_t from = piece * many, end = smaller(from + many, all);
        if (!x) x = inputs_of(p, thread, &own);
        for (int i = 0; i < 3; i++) {
            const size_t first = i == 0 ? 0 : units[0] + (size_t)(i - 1) * units[1], count = units[i > 0];
            const size_t a = from > first ? from - first : 0, b = end > first ? smaller(end - first, count) : 0;
            if (a < b) qkv_heads(p, i, x, a * unit, smaller(b * unit, i ? s->n_kv_heads : s->n_heads), thread);
        }
    }
}

void hr_cpu_fused_qkv(hr_cpu_pass *p) {
    const hr_layer *w = p->layer;
    const size_t q = p->e->sizes.q_dim, kv = p->e->sizes.kv_dim, ld = hr_cpu_width(p), dim = p->e->sizes.dim;
    float *y = p->e->b.qkv;
    hr_cpu_products(p, HR_OP_QKV, dim, 3, (const hr_mat *[]){&w->wq, &w->wk, &w->wv});
    hr_cpu_result(p, 0, y, ld, false);
    hr_cpu_result(p, 1, y + q, ld, false);
    hr_cpu_result(p, 2, y + q + kv, ld, false);
    hr_cpu_enter(p, HR_OP_QKV, "qkv_fused",
                 norm_bytes(p, w->attn_norm) + hr_work_kv_append(p->batch->segments[0].kv->g, p->n).bytes);
    fused_inputs(p, p->e->b.x, w->attn_norm);
    hr_pool_run_shared(p->e->pool, qkv_share, p);
    hr_cpu_leave(p);
}

/* ---- gate and up ---- */

/* Rows of a piece whose results stay in the caches. */
static size_t piece_of(const hr_cpu_pass *p, size_t products) {
    size_t cost = 0;
    for (size_t i = 0; i < products; i++) cost += hr_row_cost(p->products[i].w);
    const size_t rows = hr_cpu_piece(p, p->products[0].w->rows, cost);
    const size_t most = HR_PART_BYTES / (products * p->n * sizeof(float)) / HR_ROW_GRAIN * HR_ROW_GRAIN;
    return most < HR_ROW_GRAIN ? HR_ROW_GRAIN : smaller(rows, most);
}

/* Results go through memory of the thread where rows lie side by side: in the rows of b.gate and b.up, a power of two apart
 * as a rule, those of many tokens fall upon few sets of the caches. */
static void gate_up_rows(const hr_cpu_pass *p, const hr_acts *x, size_t from, size_t end, unsigned thread) {
    const size_t rows = end - from, ffn = p->e->sizes.ffn;
    float *gate = (float *)(void *)(p->e->b.part + thread * p->e->b.part_bytes), *up = gate + p->n * rows;
    /* the kernels count y from row 0 */
    hr_matmul m[2] = {p->products[0], p->products[1]};
    for (int i = 0; i < 2; i++) {
        m[i].y = (i ? up : gate) - from, m[i].ldy = rows, m[i].x = x;
        p->group.rows[i]->fn.matmul(&m[i], from, end, p->e->b.scratch + thread * p->e->b.scratch_bytes);
    }
    for (size_t t = 0; t < p->n; t++)
        p->plan->glu->fn.glu(gate + t * rows, up + t * rows, p->products[0].y + t * ffn + from, rows);
}

static void gate_up_share(void *context, unsigned thread, unsigned n_threads) {
    (void)n_threads;
    hr_cpu_pass *p = context;
    const size_t ffn = p->e->sizes.ffn, rows = piece_of(p, 2);
    size_t piece;
    hr_acts own;
    const hr_acts *x = NULL;
    while (hr_pool_next(p->e->pool, thread, (ffn + rows - 1) / rows, &piece)) {
        const size_t from = piece * rows, end = smaller(from + rows, ffn);
        if (!x) x = inputs_of(p, thread, &own);
        gate_up_rows(p, x, from, end, thread);
    }
}

void hr_cpu_fused_gate_up(hr_cpu_pass *p) {
    const hr_buffers *b = &p->e->b;
    const size_t ffn = p->e->sizes.ffn, dim = p->e->sizes.dim;
    hr_cpu_products(p, HR_OP_GATE_UP, dim, 2, (const hr_mat *[]){&p->layer->gate, &p->layer->up});
    hr_cpu_result(p, 0, b->gate, ffn, false);
    hr_cpu_result(p, 1, b->up, ffn, false);
    hr_cpu_enter(p, HR_OP_GATE_UP, "gate_up_fused", norm_bytes(p, p->layer->ffn_norm));
    fused_inputs(p, b->x, p->layer->ffn_norm);
    hr_pool_run_shared(p->e->pool, gate_up_share, p);
    hr_cpu_leave(p);
}

/* ---- head ---- */

/* A thread looks through the logits of a piece of its rows while they are in its cache. */
static void head_share(void *context, unsigned thread, unsigned n_threads) {
    (void)n_threads;
    hr_cpu_pass *p = context;
    const hr_matmul *m = &p->products[0];
    const size_t rows = piece_of(p, 1), vocab = m->w->rows;
    hr_kept *kept = p->e->b.kept + (size_t)thread * p->e->sizes.kept_rows;
    size_t piece;
    while (hr_pool_next(p->e->pool, thread, (vocab + rows - 1) / rows, &piece)) {
        const size_t from = piece * rows, end = smaller(from + rows, vocab);
        hr_cpu_rows(p, 0, m->x, from, end, thread);
        for (size_t t = 0; t < p->n; t++) hr_kept_add(&kept[t], m->y + t * m->ldy + from, end - from, (int32_t)from);
    }
}

void hr_cpu_fused_head(hr_cpu_pass *p) {
    hr_cpu_enter(p, HR_OP_HEAD, "head_sample_fused", 0);
    for (unsigned thread = 0; thread < p->e->config.threads; thread++) /* of those that get no rows, too */
        for (size_t t = 0; t < p->n; t++)
            hr_kept_init(&p->e->b.kept[thread * (size_t)p->e->sizes.kept_rows + t], p->e->keep);
    hr_pool_run_shared(p->e->pool, head_share, p);
    p->e->kept_rows = p->n;
    hr_cpu_leave(p);
}
