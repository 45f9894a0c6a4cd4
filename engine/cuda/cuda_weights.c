/* cuda_weights.c - the weights on the device: rows in the order of the host's, each matrix at 256 bytes, sent in chunks, or made
 * there when the model is synthetic and was loaded for it. */
#include "engine/cuda/cuda_state.h"

#include "kernels/base/memory.h"

#include <math.h>
#include <string.h>

enum { ALIGN = 256 };

/* A walk over all weights: first to count their bytes, then with memory to place and send them. */
typedef struct walk {
    hr_engine *e;
    const hr_model *m;
    char *base;    /* NULL: only counted */
    size_t used;   /* bytes so far */
    size_t all;    /* of all, for progress */
    size_t unmade; /* index of the next one */
    float *room;   /* floats of a row that is made here */
} walk;

static void *place(walk *w, size_t bytes) {
    void *at = w->base ? w->base + w->used : NULL;
    w->used = hr_align_up(w->used + bytes, ALIGN);
    return at;
}

static void tell(const walk *w) {
    const hr_engine_config *c = &w->e->config;
    if (c->progress) c->progress(w->all ? (double)w->used / (double)w->all : 1, c->context);
}

/* ---- matrices that are made ---- */

static const hr_kernel *fill_row(hr_dtype t) {
    const hr_kernel_query q = {.family = HR_FAM_FILL, .dtype = t, .cuda = true};
    return hr_kernel_choose(&q);
}

/* Some rows at a time, data and then scales through one staging buffer. */
static void make_here(walk *w, const hr_unmade *u, const hr_mat *to) {
    hr_cuda *g = w->e->cuda;
    const size_t bytes = hr_row_bytes(to->dtype, to->cols), groups = hr_row_scales(to->dtype, to->cols);
    const size_t both = bytes + groups * sizeof(uint16_t), most = HR_CUDA_STAGING / (both + 1);
    for (size_t row = 0; row < to->rows && g->status == HR_OK;) {
        const size_t n = to->rows - row < most ? to->rows - row : most;
        uint16_t *scales = groups ? hr_malloc(n * groups * sizeof *scales) : NULL;
        char *room = hr_cuda_stage(g);
        if (!room) {
            hr_free(scales);
            return;
        }
        hr_status status = groups && !scales ? hr_fail(HR_ERR_MEMORY, "out of memory for scales") : HR_OK;
        if (status == HR_OK) status = hr_unmade_rows(u, row, n, w->room, room, scales);
        hr_cuda_keep(g, status);
        if (status == HR_OK) hr_cuda_send(g, (char *)(uintptr_t)to->data + row * bytes, n * bytes);
        if (status == HR_OK && groups)
            hr_cuda_upload(g, (uint16_t *)(uintptr_t)to->scales + row * groups, scales, n * groups * sizeof *scales);
        hr_free(scales);
        row += n;
    }
}

static void make(walk *w, const hr_mat *from, const hr_mat *to) {
    hr_cuda *g = w->e->cuda;
    const hr_unmade *u = &w->m->unmade[w->unmade++];
    const hr_kernel *row = fill_row(to->dtype);
    if (u->mat != from) {
        hr_cuda_keep(g, hr_fail(HR_ERR_INTERNAL, "%s: its weights are not in the order in which they are made",
                                w->m->info.filename));
    } else if (row) {
        hr_cuda_fill params = {.w = *to, .key = u->key, .center = u->center, .std = u->std};
        hr_cuda_launch(g, row, &params);
    } else {
        make_here(w, u, to);
    }
}

/* ---- the walk ---- */

static void mat(walk *w, const hr_mat *from, hr_mat *to) {
    const size_t data = hr_row_bytes(from->dtype, from->cols) * from->rows;
    const size_t scales = hr_row_scales(from->dtype, from->cols) * from->rows * sizeof(uint16_t);
    void *at = place(w, data), *scales_at = scales ? place(w, scales) : NULL;
    if (!w->base) return;
    hr_cuda *g = w->e->cuda;
    *to = *from;
    to->data = at, to->scales = scales_at, to->order = HR_ORDER_ROWS;
    if (w->m->n_unmade) {
        make(w, from, to);
    } else {
        hr_cuda_upload(g, at, from->data, data);
        if (scales) hr_cuda_upload(g, scales_at, from->scales, scales);
    }
    tell(w);
}

static void vec(walk *w, const float *from, size_t n, const float **to) {
    if (!from) return;
    float *at = place(w, n * sizeof *from);
    if (!w->base) return;
    *to = at;
    hr_cuda_upload(w->e->cuda, at, from, n * sizeof *from);
}

static void layer(walk *w, const hr_layer *from, hr_layer *to) {
    const hr_hparams *hp = &w->m->hp;
    const size_t dim = hp->dim, q = (size_t)hp->n_heads * hp->head_dim, kv = (size_t)hp->n_kv_heads * hp->head_dim;
    mat(w, &from->wq, &to->wq), mat(w, &from->wk, &to->wk), mat(w, &from->wv, &to->wv), mat(w, &from->wo, &to->wo);
    mat(w, &from->gate, &to->gate), mat(w, &from->up, &to->up), mat(w, &from->down, &to->down);
    vec(w, from->attn_norm, dim, &to->attn_norm), vec(w, from->ffn_norm, dim, &to->ffn_norm);
    vec(w, from->bq, q, &to->bq), vec(w, from->bk, kv, &to->bk), vec(w, from->bv, kv, &to->bv);
    vec(w, from->q_norm, hp->head_dim, &to->q_norm), vec(w, from->k_norm, hp->head_dim, &to->k_norm);
}

static void all(walk *w, hr_cuda_weights *to) {
    const hr_model *m = w->m;
    hr_layer none; /* while it is only counted */
    mat(w, &m->embed, &to->embed);
    if (!m->info.tied) mat(w, &m->head, &to->head);
    vec(w, m->output_norm, m->hp.dim, &to->output_norm);
    for (uint32_t i = 0; i < m->hp.n_layers; i++) layer(w, &m->layers[i], w->base ? &to->layers[i] : &none);
    if (m->info.tied) to->head = to->embed;
}

size_t hr_cuda_weights_bytes(const hr_model *m) {
    walk w = {.m = m};
    hr_cuda_weights unused = {0};
    all(&w, &unused);
    return w.used;
}

static size_t widest(const hr_model *m) {
    size_t cols = 0;
    for (size_t i = 0; i < m->n_unmade; i++) cols = m->unmade[i].mat->cols > cols ? m->unmade[i].mat->cols : cols;
    return cols;
}

hr_status hr_cuda_weights_open(hr_engine *e) {
    hr_cuda *g = e->cuda;
    const hr_model *m = e->model;
    void *base = NULL;
    if (!m->n_unmade && m->info.order != HR_ORDER_ROWS)
        HR_FAIL(HR_ERR_UNSUPPORTED, "%s: its weights were loaded in panels; a GPU needs --weights native",
                m->info.filename);
    walk w = {.e = e, .m = m, .all = hr_cuda_weights_bytes(m)};
    g->w.bytes = w.all;
    g->w.layers = hr_calloc(m->hp.n_layers, sizeof *g->w.layers);
    w.room = hr_malloc(hr_mul(widest(m) + 1, sizeof *w.room));
    hr_status status = g->w.layers && w.room ? HR_OK : hr_fail(HR_ERR_MEMORY, "out of memory for the list of weights");
    if (status == HR_OK) status = hr_cuda_take(g, e->config.memory, w.all, "weights", &base);
    w.base = base;
    if (status == HR_OK) {
        all(&w, &g->w);
        hr_cuda_wait(g);
        tell(&w);
        status = g->status;
        if (status != HR_OK) status = hr_fail(status, "%s", g->message);
        g->status = HR_OK;
    }
    hr_free(w.room);
    return status;
}

void hr_cuda_weights_close(hr_cuda *g) {
    hr_free(g->w.layers);
    g->w.layers = NULL;
}

/* ---- RoPE ---- */

void hr_cuda_angles(hr_engine *e) {
    hr_cuda *g = e->cuda;
    const size_t half = e->model->hp.rope_dims / 2, row = 2 * half * sizeof(float), most = HR_CUDA_STAGING / row;
    for (size_t pos = 0; pos < e->config.ctx && g->status == HR_OK;) {
        const size_t left = e->config.ctx - pos, n = left < most ? left : most;
        float *cs = hr_cuda_stage(g);
        for (size_t i = 0; cs && i < n * half; i++) {
            const double angle = (double)(pos + i / half) * e->model->rope_freq[i % half];
            cs[2 * i] = (float)cos(angle), cs[2 * i + 1] = (float)sin(angle);
        }
        hr_cuda_send(g, g->b.angles + pos * 2 * half, n * row);
        pos += n;
    }
}
