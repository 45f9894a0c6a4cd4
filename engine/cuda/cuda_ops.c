/* cuda_ops.c - the ops of a forward pass as launches of rows of the kernel table.
 *
 * An op is one record, as on the CPU, and a few launches: the norm and the activations it leaves, one launch for matrices of the
 * same type, what follows. In a pass that is replayed from a graph ops do nothing. Products read activations (hr_cuda_acts)
 * of the engine's type; kernels that make int8 of their results do not exist, so those are made by a launch of their own. */
#include "engine/cuda/cuda_ops.h"

#include "kernels/kv/kv_open.h"

#include <math.h>
#include <stdio.h>

static bool is_replay(const hr_pass *p) {
    return p->e->cuda->mode == HR_CUDA_REPLAY;
}
static bool acts_are_float(const hr_pass *p) {
    return p->e->act == HR_ACT_F32 || p->e->act == HR_ACT_BF16;
}
static const hr_layer *layer_of(const hr_pass *p) {
    return &p->e->cuda->w.layers[p->l];
}

/* ---- norm and activations ---- */

static void launch_norm(hr_pass *p, const float *x, const float *w, const uint32_t *rows, const hr_cuda_batch *batch,
                        uint32_t n) {
    hr_cuda *g = p->e->cuda;
    hr_cuda_norm params = {.batch = batch,
                           .x = x,
                           .w = w,
                           .rows = rows,
                           .acts = g->b.acts_dim,
                           .n = n,
                           .dim = p->e->sizes.dim,
                           .ldx = p->e->sizes.dim,
                           .kind = HR_CUDA_NORM_RMS,
                           .eps = p->m->hp.rms_eps};
    hr_cuda_launch(g, p->plan->norm, &params);
}

/* Activations of x [n][dim] as they are. */
static void launch_acts(hr_pass *p, const float *x, uint32_t dim, const hr_cuda_acts *acts) {
    hr_cuda *g = p->e->cuda;
    hr_cuda_norm params = {
        .batch = g->batch, .x = x, .acts = *acts, .n = g->n, .dim = dim, .ldx = dim, .kind = HR_CUDA_NORM_NONE};
    hr_cuda_launch(g, p->plan->acts, &params);
}

static void op_norm(hr_pass *p, const float *weight) {
    hr_cuda_enter(p, HR_OP_NORM, p->plan->norm->name, (hr_work){.bytes = p->e->sizes.dim * sizeof(float)});
    launch_norm(p, p->e->cuda->b.x, weight, NULL, p->e->cuda->batch, p->e->cuda->n);
    hr_cuda_leave(p);
}

/* ---- products ---- */

/* Matrices over the same activations, and where their results go. */
typedef struct products {
    size_t n;
    const hr_mat *w[HR_CUDA_MATS];
    float *y[HR_CUDA_MATS];
    uint32_t ldy[HR_CUDA_MATS];
    const float *bias[HR_CUDA_MATS];
    const hr_cuda_acts *x;
    const hr_cuda_acts *out; /* of the activation, or NULL */
    const hr_cuda_batch *batch;
    uint32_t tokens; /* bound */
    uint32_t glu;
    bool add, logits;
    hr_group group; /* by choose */
} products;

static void choose(hr_pass *p, hr_op op, products *s) {
    hr_plan_group(p->e, p->plan, op, s->w, s->n, &s->group);
}

static hr_work work_of(const hr_pass *p, const products *s) {
    hr_work sum = {0};
    for (size_t i = 0; i < s->n && hr_probe_on(&p->e->probe); i++) {
        const hr_work one = hr_work_matmul(s->group.rows[i], s->w[i], p->n);
        sum.bytes += one.bytes, sum.flops += one.flops, sum.unit = one.unit;
    }
    return sum;
}

static void enter_products(hr_pass *p, hr_op op, const products *s, const char *fused, uint64_t extra) {
    const char *name = s->group.rows[0] ? s->group.rows[0]->name : "none";
    hr_work work = work_of(p, s);
    work.bytes += extra;
    hr_cuda_enter(p, op, fused && hr_probe_on(&p->e->probe) ? hr_fused_name(fused, name) : name, work);
}

static bool by_library(const hr_pass *p, const products *s, size_t i) {
    return p->e->gemm && s->group.rows[i] == p->e->gemm;
}

static bool same_launch(const products *s, size_t i, size_t j) {
    return s->group.rows[i] == s->group.rows[j] && s->w[i]->dtype == s->w[j]->dtype && s->w[i]->cols == s->w[j]->cols;
}

/* Matrices from..to - 1, which have one row and one type. */
static void launch_some(hr_pass *p, const products *s, size_t from, size_t to) {
    hr_cuda *g = p->e->cuda;
    hr_cuda_matmul params = {.batch = s->batch,
                             .x = *s->x,
                             .workspace = g->b.workspace,
                             .n_mats = (uint32_t)(to - from),
                             .n = s->tokens,
                             .split = 1,
                             .glu = s->glu,
                             .add = s->add,
                             .logits = s->logits};
    if (s->out) params.out = *s->out;
    for (size_t i = from; i < to; i++) {
        params.w[i - from] = *s->w[i], params.bias[i - from] = s->bias[i];
        params.y[i - from] = s->y[i], params.ldy[i - from] = s->ldy[i];
    }
    hr_cuda_launch(g, s->group.rows[from], &params);
}

/* What the library cannot do our own rows do, from then on all products: plans are made anew. */
static void launch_instead(hr_pass *p, const products *s, size_t i) {
    hr_engine *e = p->e;
    products own = *s;
    const hr_kernel_query q = {
        .family = HR_FAM_MATMUL, .dtype = s->w[i]->dtype, .act = e->act, .n = s->tokens, .cuda = true};
    if (!e->cuda->blas_failed) snprintf(e->cuda->gemm_why, sizeof e->cuda->gemm_why, "%s", hr_error());
    own.group.rows[i] = hr_kernel_choose(&q);
    launch_some(p, &own, i, i + 1);
    e->cuda->blas_failed = true; /* the plan of this pass names its row: hr_cuda_end takes it away */
}

static void launch_library(hr_pass *p, const products *s, size_t i) {
    hr_cuda *g = p->e->cuda;
    if (g->status != HR_OK) return;
    g->last_kernel = s->group.rows[i]->name;
    if (g->blas_failed || hr_cublaslt_run(g->blas, g, s->w[i], s->x, s->y[i], s->ldy[i], s->tokens, s->add) != HR_OK)
        launch_instead(p, s, i);
}

static void launch_products(hr_pass *p, const products *s) {
    for (size_t i = 0, end; i < s->n; i = end) {
        end = i + 1;
        if (by_library(p, s, i)) {
            launch_library(p, s, i);
            continue;
        }
        while (end < s->n && same_launch(s, i, end)) end++;
        launch_some(p, s, i, end);
    }
}

/* ---- embed ---- */

static void op_embed(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    hr_mat looked_up = p->m->embed;
    looked_up.rows = p->m->info.tied ? 0 : p->n; /* looked-up rows of a tied table are counted with the head */
    hr_cuda_embed params = {.batch = g->batch,
                            .table = g->w.embed,
                            .x = g->b.x,
                            .n = g->n,
                            .dim = p->e->sizes.dim,
                            .scale = p->m->arch->embed_scale_sqrt_dim > 0 ? sqrtf((float)p->e->sizes.dim) : 1.0f};
    hr_cuda_enter(p, HR_OP_EMBED, p->plan->embed->name, (hr_work){.bytes = hr_mat_bytes(&looked_up)});
    hr_cuda_launch(g, p->plan->embed, &params);
    hr_cuda_leave(p);
}

/* ---- Q, K, V ---- */

static products qkv_products(const hr_pass *p) {
    const hr_cuda *g = p->e->cuda;
    const hr_layer *l = layer_of(p);
    const size_t q = p->e->sizes.q_dim, kv = p->e->sizes.kv_dim;
    const uint32_t ld = (uint32_t)hr_pass_width(p);
    return (products){.n = 3,
                      .w = {&l->wq, &l->wk, &l->wv},
                      .y = {g->b.qkv, g->b.qkv + q, g->b.qkv + q + kv},
                      .ldy = {ld, ld, ld},
                      .x = &g->b.acts_dim,
                      .batch = g->batch,
                      .tokens = g->n};
}

static hr_cuda_heads heads_of(const hr_pass *p, bool bias) {
    const hr_cuda *g = p->e->cuda;
    const hr_layer *l = layer_of(p);
    const hr_sizes *s = &p->e->sizes;
    return (hr_cuda_heads){.batch = g->batch,
                           .qkv = g->b.qkv,
                           .bq = bias ? l->bq : NULL,
                           .bk = bias ? l->bk : NULL,
                           .bv = bias ? l->bv : NULL,
                           .q_norm = l->q_norm,
                           .k_norm = l->k_norm,
                           .angles = g->b.angles,
                           .n = g->n,
                           .n_segments = g->n_segments,
                           .ld = (uint32_t)hr_pass_width(p),
                           .layer = p->l,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .rope_dims = p->m->hp.rope_dims,
                           .granule = hr_kv_granule(p->batch->segments[0].kv->g),
                           .eps = p->m->hp.rms_eps,
                           .interleaved = p->m->arch->rope_interleaved};
}

static void op_qkv_fused(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    products s = qkv_products(p);
    choose(p, HR_OP_QKV, &s);
    hr_cuda_heads heads = heads_of(p, true);
    enter_products(p, HR_OP_QKV, &s, "qkv_fused",
                   p->e->sizes.dim * sizeof(float) + hr_work_kv_append(p->batch->segments[0].kv->g, p->n).bytes);
    launch_norm(p, g->b.x, layer_of(p)->attn_norm, NULL, g->batch, g->n);
    launch_products(p, &s);
    hr_cuda_launch(g, p->plan->finish, &heads);
    hr_cuda_leave(p);
}

/* The library adds no bias: then the product is our own. */
static void op_qkv(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    const hr_layer *l = layer_of(p);
    products s = qkv_products(p);
    choose(p, HR_OP_QKV, &s);
    const bool late = by_library(p, &s, 0) || by_library(p, &s, 1) || by_library(p, &s, 2);
    if (!late) s.bias[0] = l->bq, s.bias[1] = l->bk, s.bias[2] = l->bv;
    op_norm(p, l->attn_norm);
    enter_products(p, HR_OP_QKV, &s, NULL, 0);
    launch_products(p, &s);
    hr_cuda_leave(p);
    hr_cuda_heads heads = heads_of(p, late);
    hr_cuda_enter(p, HR_OP_ROPE, p->plan->rope->name, (hr_work){0});
    hr_cuda_launch(g, p->plan->rope, &heads);
    hr_cuda_leave(p);
    heads = heads_of(p, false);
    if (late) heads.bv = l->bv; /* V has not been seen yet */
    hr_cuda_enter(p, HR_OP_KV_APPEND, p->plan->append->name, hr_work_kv_append(p->batch->segments[0].kv->g, p->n));
    hr_cuda_launch(g, p->plan->append, &heads);
    hr_cuda_leave(p);
}

/* ---- attention ---- */

static hr_work attention_work(const hr_pass *p) {
    const hr_sizes *s = &p->e->sizes;
    hr_work work = {0};
    for (uint32_t i = 0; i < p->batch->n_segments && hr_probe_on(&p->e->probe); i++) {
        const hr_segment *seg = &p->batch->segments[i];
        const hr_attn a = {.kv = seg->kv,
                           .layer = p->l,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .n_q = seg->n,
                           .pos0 = seg->pos0};
        const hr_work one = hr_work_attn(p->plan->attn, &a);
        work.bytes += one.bytes, work.flops += one.flops, work.unit = one.unit;
    }
    return work;
}

static void op_attention(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    const hr_sizes *s = &p->e->sizes;
    hr_cuda_attn params = {.batch = g->batch,
                           .q = g->b.qkv,
                           .out = g->b.att,
                           .partial = g->b.partial,
                           .ldq = (uint32_t)hr_pass_width(p),
                           .ldo = s->q_dim,
                           .layer = p->l,
                           .n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .head_dim = s->head_dim,
                           .n = g->n,
                           .n_segments = g->n_segments,
                           .n_q = g->n_q,
                           .max_len = g->max_len,
                           .splits = 1,
                           .scale = p->m->hp.attn_scale};
    if (acts_are_float(p)) params.acts = g->b.acts_q;
    hr_cuda_enter(p, HR_OP_ATTENTION, p->plan->attn->name, attention_work(p));
    hr_cuda_launch(g, p->plan->attn, &params);
    if (params.splits > 1) hr_cuda_launch(g, p->plan->merge, &params);
    hr_cuda_leave(p);
}

/* ---- products that go back into the residual stream ---- */

/* x += w in, or h = w in and then x += h. in: made into activations first; NULL: they are there. */
static void op_residual(hr_pass *p, hr_op op, const hr_mat *w, const float *in, const hr_cuda_acts *acts) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    const uint32_t dim = p->e->sizes.dim;
    const bool fused = hr_pass_fuses(p, HR_FUSE_OUT_RESIDUAL);
    products s = {.n = 1,
                  .w = {w},
                  .y = {fused ? g->b.x : g->b.h},
                  .ldy = {dim},
                  .x = acts,
                  .batch = g->batch,
                  .tokens = g->n,
                  .add = fused};
    choose(p, op, &s);
    enter_products(p, op, &s, fused ? "residual_fused" : NULL, 0);
    if (in) launch_acts(p, in, (uint32_t)w->cols, acts);
    launch_products(p, &s);
    hr_cuda_leave(p);
    if (fused) return;
    hr_cuda_add params = {.batch = g->batch, .x = g->b.x, .y = g->b.h, .n = g->n, .dim = dim};
    hr_cuda_enter(p, op, p->plan->add->name, (hr_work){0});
    hr_cuda_launch(g, p->plan->add, &params);
    hr_cuda_leave(p);
}

static void op_out(hr_pass *p) {
    const hr_cuda *g = p->e->cuda;
    op_residual(p, HR_OP_OUT, &layer_of(p)->wo, acts_are_float(p) ? NULL : g->b.att, &g->b.acts_q);
}

static void op_down(hr_pass *p) {
    const hr_cuda *g = p->e->cuda;
    op_residual(p, HR_OP_DOWN, &layer_of(p)->down, acts_are_float(p) ? NULL : g->b.gate, &g->b.acts_ffn);
}

/* ---- gate and up ---- */

static products gate_up_products(const hr_pass *p) {
    const hr_cuda *g = p->e->cuda;
    const hr_layer *l = layer_of(p);
    const uint32_t ffn = p->e->sizes.ffn;
    return (products){.n = 2,
                      .w = {&l->gate, &l->up},
                      .y = {g->b.gate, g->b.up},
                      .ldy = {ffn, ffn},
                      .x = &g->b.acts_dim,
                      .batch = g->batch,
                      .tokens = g->n};
}

static void launch_glu(hr_pass *p) {
    hr_cuda *g = p->e->cuda;
    hr_cuda_glu params = {.batch = g->batch,
                          .gate = g->b.gate,
                          .up = g->b.up,
                          .n = g->n,
                          .ffn = p->e->sizes.ffn,
                          .kind = HR_CUDA_GLU_SILU};
    if (acts_are_float(p))
        params.acts = g->b.acts_ffn;
    else
        params.out = g->b.gate;
    hr_cuda_launch(g, p->plan->glu, &params);
}

static void op_gate_up_fused(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    products s = gate_up_products(p);
    choose(p, HR_OP_GATE_UP, &s);
    const bool joined = same_launch(&s, 0, 1) && !by_library(p, &s, 0);
    if (joined) {
        s.glu = HR_CUDA_GLU_SILU;
        if (acts_are_float(p)) s.out = &g->b.acts_ffn, s.y[0] = NULL;
    }
    enter_products(p, HR_OP_GATE_UP, &s, "gate_up_fused", p->e->sizes.dim * sizeof(float));
    launch_norm(p, g->b.x, layer_of(p)->ffn_norm, NULL, g->batch, g->n);
    launch_products(p, &s);
    if (!joined) launch_glu(p);
    hr_cuda_leave(p);
}

static void op_gate_up(hr_pass *p) {
    if (is_replay(p)) return;
    products s = gate_up_products(p);
    choose(p, HR_OP_GATE_UP, &s);
    op_norm(p, layer_of(p)->ffn_norm);
    enter_products(p, HR_OP_GATE_UP, &s, NULL, 0);
    launch_products(p, &s);
    hr_cuda_leave(p);
    hr_cuda_enter(p, HR_OP_GATE_UP, p->plan->glu->name, (hr_work){0});
    launch_glu(p);
    hr_cuda_leave(p);
}

/* ---- head ---- */

/* The best of each row of logits, into b.ids. */
static void launch_best(hr_pass *p, uint32_t n) {
    hr_cuda *g = p->e->cuda;
    hr_cuda_sample params = {.batch = g->batch,
                             .logits = g->b.logits,
                             .out = g->b.ids,
                             .workspace = g->b.workspace,
                             .n = n,
                             .vocab = p->e->sizes.vocab};
    hr_cuda_launch(g, p->plan->sample, &params);
}

/* Rows first..first + n - 1 of the wanted logits; n is a bound, batch tells how many. */
static void head_rows(hr_pass *p, const hr_cuda_batch *batch, const uint32_t *rows, uint32_t n, bool best) {
    hr_cuda *g = p->e->cuda;
    products s = {.n = 1,
                  .w = {&g->w.head},
                  .y = {g->b.logits},
                  .ldy = {p->e->sizes.vocab},
                  .x = &g->b.acts_dim,
                  .batch = batch,
                  .tokens = n,
                  .logits = true};
    choose(p, HR_OP_HEAD, &s);
    hr_cuda_enter(p, HR_OP_NORM, p->plan->norm->name, (hr_work){.bytes = p->e->sizes.dim * sizeof(float)});
    launch_norm(p, g->b.x, g->w.output_norm, rows, batch, n);
    hr_cuda_leave(p);
    enter_products(p, HR_OP_HEAD, &s, best ? "head_sample_fused" : NULL, 0);
    launch_products(p, &s);
    if (best) launch_best(p, n);
    hr_cuda_leave(p);
}

static void op_head(hr_pass *p) {
    if (is_replay(p)) return;
    hr_cuda *g = p->e->cuda;
    const uint32_t all = p->batch->n_logits, most = g->b.rows;
    const bool decode = p->batch->phase == HR_PHASE_DECODE;
    p->layer = NULL;
    for (uint32_t first = 0; first < all; first += most) {
        const uint32_t n = all - first < most ? all - first : most, bound = decode ? g->n : n;
        p->n = n;
        p->plan = hr_engine_plan_for(p->e, bound, 1);
        head_rows(p, g->batch + first / most, hr_cuda_logit_rows(g) + first, bound, g->ids_known);
        if (g->logits_rows) continue; /* they stay */
        float *to = p->batch->logits + (size_t)first * p->e->sizes.vocab;
        (void)HR_CUDA_DO(g, cuMemcpyDtoHAsync(to, (CUdeviceptr)(uintptr_t)g->b.logits,
                                              n * (size_t)p->e->sizes.vocab * sizeof *to, g->stream));
    }
}

const hr_backend hr_backend_cuda = {.name = "cuda",
                                    .open = hr_cuda_open,
                                    .close = hr_cuda_close,
                                    .run_bytes = hr_cuda_run_bytes,
                                    .facts = hr_cuda_facts,
                                    .begin = hr_cuda_begin,
                                    .end = hr_cuda_end,
                                    .embed = op_embed,
                                    .qkv_fused = op_qkv_fused,
                                    .qkv = op_qkv,
                                    .attention = op_attention,
                                    .out = op_out,
                                    .gate_up_fused = op_gate_up_fused,
                                    .gate_up = op_gate_up,
                                    .down = op_down,
                                    .head = op_head,
                                    .logits = hr_cuda_logits,
                                    .sample = hr_cuda_sample_row};
