/* cuda_attn_fixture.h - attention for GPUs against double precision: sequences of unlike lengths in caches of any layout and type,
 * whose stored rows the reference reads back one by one. */
#ifndef HR_CUDA_ATTN_FIXTURE_H
#define HR_CUDA_ATTN_FIXTURE_H

#include "tests/cuda_fixture.h"
#include "tests/kv_fixture.h"

enum { ATTN_MAX_SEGMENTS = 4, ATTN_LAYERS = 2, ATTN_LAYER = 1 };

/* Caches in memory that a kernel can reach wherever it runs. */
static inline hr_status attn_memory_alloc(void *context, size_t bytes, uint8_t **out) {
    (void)context;
    *out = hr_cuda_alloc(bytes);
    memset(*out, 0, bytes);
    return HR_OK;
}
static inline void attn_memory_free(void *context, uint8_t *at, size_t bytes) {
    (void)context, (void)bytes;
    hr_cuda_free(at);
}
static inline void attn_memory_copy(void *context, uint8_t *to, const uint8_t *from, size_t bytes) {
    (void)context;
    memmove(to, from, bytes);
}
static inline void attn_memory_write(void *context, uint8_t *to, const void *from, size_t bytes) {
    (void)context;
    memcpy(to, from, bytes);
}
static inline void attn_memory_read(void *context, void *to, const uint8_t *from, size_t bytes) {
    (void)context;
    memcpy(to, from, bytes);
}
static const hr_kv_memory attn_memory = {.alloc = attn_memory_alloc,
                                         .free = attn_memory_free,
                                         .copy = attn_memory_copy,
                                         .write = attn_memory_write,
                                         .read = attn_memory_read};

typedef struct attn_case {
    hr_kv_layout layout;
    hr_dtype k, v;
    uint32_t heads, kv_heads, dim;
    uint32_t n_segments, pos0[ATTN_MAX_SEGMENTS]; /* 0: one segment */
    uint32_t n_q;
    uint32_t window, gone_from, gone_to;
    float softcap;
    int act; /* 0: out; else 1 + hr_act of the activations that are filled instead */
    uint32_t page_size;
} attn_case;

/* A case in memory: caches, batch, parameters, and what is wanted. */
typedef struct attn_setup {
    attn_case c;
    hr_kv_cache *cache;
    hr_kv_geom *geom;
    hr_cuda_test_batch batch;
    uint32_t *tables[ATTN_MAX_SEGMENTS], rows;
    hr_cuda_attn params;
    float *q, *out, *partial;
    hr_cuda_acts acts;
    double *want; /* [rows][heads * dim] */
    float *got;   /* the same */
} attn_setup;

static inline double attn_stored(hr_dtype t, const uint8_t *row, const uint8_t *scales, uint32_t d) {
    uint16_t h = 0;
    float f;
    if (t == HR_F32) {
        memcpy(&f, row + 4 * (size_t)d, 4);
        return (double)f;
    }
    if (t == HR_F16 || t == HR_BF16) {
        memcpy(&h, row + 2 * (size_t)d, 2);
        return (double)(t == HR_F16 ? hr_f16_to_f32(h) : hr_bf16_to_f32(h));
    }
    memcpy(&h, scales + (t == HR_I8ROW ? 0 : d / 32 * 2), 2);
    const double scale = (double)hr_f16_to_f32(h);
    if (t == HR_Q8_0 || t == HR_I8ROW) return (double)((const int8_t *)row)[d] * scale;
    return (double)((row[d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8) * scale;
}
/* K of a position as stored: in i4kc a group has its scales in common, spread over its positions, and the last one is open. */
static inline double attn_stored_key(const hr_kv_seq *s, uint32_t head, uint32_t pos, uint32_t d) {
    const hr_kv_geom *g = s->g;
    const hr_kv_rows r = hr_kv_run(s, ATTN_LAYER, head, pos);
    if (g->type[0] != HR_I4KC) return attn_stored(g->type[0], r.at[HR_KV_K], r.at[HR_KV_KS], d);
    if (pos >= s->len / 32 * 32) return (double)hr_bf16_to_f32(hr_kv_open_row(s, ATTN_LAYER, head, pos)[d]);
    double f[2];
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t at = d / 16 * 32 + d % 16 + 16 * i, share = 2 * g->head_dim / 32;
        uint16_t h;
        memcpy(&h, hr_kv_run(s, ATTN_LAYER, head, pos / 32 * 32 + at / share).at[HR_KV_KS] + at % share * 2, 2);
        f[i] = (double)hr_f16_to_f32(h);
    }
    return (double)((r.at[HR_KV_K][d / 32 * 16 + d % 16] >> (d % 32 >= 16 ? 4 : 0) & 15) - 8) * f[0] + f[1];
}

static inline void attn_reference_row(const attn_setup *s, const hr_cuda_segment *seg, const double *keys,
                                      const double *values, uint32_t i, uint32_t h, double *weights) {
    const attn_case *c = &s->c;
    const uint32_t row = seg->row0 + i, last = seg->pos0 + i;
    const uint32_t first = c->window && last + 1 > c->window ? last + 1 - c->window : 0;
    const float *q = s->q + (size_t)row * s->params.ldq + (size_t)h * c->dim;
    double *out = s->want + ((size_t)row * c->heads + h) * c->dim, top = -INFINITY, sum = 0;
    for (uint32_t d = 0; d < c->dim; d++) out[d] = 0;
    for (uint32_t pos = first; pos <= last; pos++) {
        if (pos >= c->gone_from && pos < c->gone_to) continue;
        double dot = 0;
        for (uint32_t d = 0; d < c->dim; d++) dot += (double)q[d] * keys[(size_t)pos * c->dim + d];
        dot *= (double)s->params.scale;
        if (c->softcap > 0) dot = (double)c->softcap * tanh(dot / (double)c->softcap);
        weights[pos] = dot, top = fmax(top, dot);
    }
    for (uint32_t pos = first; pos <= last; pos++) {
        if (pos >= c->gone_from && pos < c->gone_to) continue;
        const double w = exp(weights[pos] - top);
        sum += w;
        for (uint32_t d = 0; d < c->dim; d++) out[d] += w * values[(size_t)pos * c->dim + d];
    }
    for (uint32_t d = 0; d < c->dim; d++) out[d] /= sum;
}

static inline void attn_reference(attn_setup *s) {
    const attn_case *c = &s->c;
    for (uint32_t g = 0; g < c->n_segments; g++) {
        const hr_cuda_segment *seg = &s->batch.segments[g];
        const uint32_t len = seg->pos0 + seg->n, group = c->heads / c->kv_heads;
        double *keys = hr_malloc((size_t)len * (2 * c->dim + 1) * sizeof *keys), *values = keys + (size_t)len * c->dim;
        assert_non_null(keys);
        for (uint32_t kv = 0; kv < c->kv_heads; kv++) {
            for (uint32_t pos = 0; pos < len; pos++) {
                if (pos >= c->gone_from && pos < c->gone_to) continue;
                const hr_kv_rows r = hr_kv_run(&seg->kv, ATTN_LAYER, kv, pos);
                for (uint32_t d = 0; d < c->dim; d++) {
                    keys[(size_t)pos * c->dim + d] = attn_stored_key(&seg->kv, kv, pos, d);
                    values[(size_t)pos * c->dim + d] = attn_stored(c->v, r.at[HR_KV_V], r.at[HR_KV_VS], d);
                }
            }
            for (uint32_t i = 0; i < seg->n; i++)
                for (uint32_t h = kv * group; h < (kv + 1) * group; h++)
                    attn_reference_row(s, seg, keys, values, i, h, values + (size_t)len * c->dim);
        }
        hr_free(keys);
    }
}

/* What was evicted may hold anything, and its pages may be gone. */
static inline void attn_lose(const hr_kv_seq *s, uint32_t *table) {
    const hr_kv_geom *g = s->g;
    for (uint32_t h = 0; h < g->n_heads; h++)
        for (uint32_t pos = s->gone_from; pos < s->gone_to; pos++) {
            const hr_kv_rows r = hr_kv_run(s, ATTN_LAYER, h, pos);
            for (int x = 0; x < HR_KV_PLANES; x++)
                if (r.at[x]) memset(r.at[x], 0xff, g->row_bytes[x]);
        }
    for (uint32_t i = 0; g->page_size && i * g->page_size < s->gone_to; i++)
        if (i * g->page_size >= s->gone_from && (i + 1) * g->page_size <= s->gone_to) table[i] = UINT32_MAX;
}

/* Bounds of the launch exceed what there is, as those of a captured graph do. */
static inline attn_setup attn_prepare(attn_case c) {
    if (!c.n_segments) c.n_segments = 1;
    uint32_t longest = 0, ld = c.kv_heads * c.dim, q_dim = c.heads * c.dim;
    attn_setup s = {.rows = c.n_segments == 1 ? c.n_q : c.n_segments};
    for (uint32_t i = 0; i < c.n_segments; i++) longest = c.pos0[i] > longest ? c.pos0[i] : longest;
    longest += c.n_q;
    if (!c.page_size) c.page_size = 16;
    s.c = c;
    s.cache = fix_cache((hr_kv_cache_config){.memory = &attn_memory,
                                             .layout = c.layout,
                                             .n_layers = ATTN_LAYERS,
                                             .n_heads = c.kv_heads,
                                             .head_dim = c.dim,
                                             .k_type = c.k,
                                             .v_type = c.v,
                                             .page_size = hr_kv_is_paged(c.layout) ? c.page_size : 0,
                                             .max_seqs = c.n_segments,
                                             .capacity = longest + 1,
                                             .scatter = 5});
    s.geom = hr_cuda_copy_of(hr_kv_cache_view(s.cache, 0)->g, sizeof *s.geom);
    s.batch = hr_cuda_make_batch(c.n_segments, s.rows, c.pos0, 100, 1);
    const hr_kernel *append = fix_kernel_of(HR_FAM_KV_APPEND, HR_ISA_GENERIC, false);
    for (uint32_t i = 0; i < c.n_segments; i++) {
        hr_cuda_segment *seg = &s.batch.segments[i];
        const uint32_t len = seg->pos0 + seg->n, pages = hr_kv_is_paged(c.layout) ? (len - 1) / c.page_size + 1 : 0;
        if (hr_kv_cache_reserve(s.cache, i, len) != HR_OK) fail_msg("%s", hr_error());
        float *k = fix_floats((size_t)len * ld, 10 + i), *v = fix_floats((size_t)len * ld, 20 + i);
        for (size_t j = 0; j < (size_t)len * ld; j++) k[j] += 0.25f * (float)(j % 5); /* channels have a centre */
        append->fn.kv_append(hr_kv_cache_view(s.cache, i), ATTN_LAYER, 0, k, ld, v, ld, 0, len, 0, c.kv_heads);
        hr_free(k), hr_free(v);
        seg->kv = *hr_kv_cache_view(s.cache, i);
        seg->kv.g = s.geom;
        s.tables[i] = hr_cuda_alloc((pages + 1) * sizeof **s.tables);
        if (pages) memcpy(s.tables[i], seg->kv.table, pages * sizeof **s.tables);
        seg->kv.table = pages ? s.tables[i] : NULL;
        seg->kv.gone_from = c.gone_from, seg->kv.gone_to = c.gone_to;
    }
    const uint32_t ldq = q_dim + 8;
    s.q = hr_cuda_floats((size_t)s.rows * ldq, 3);
    for (size_t i = 0; i < (size_t)s.rows * ldq; i++) s.q[i] *= 3; /* scores that differ: some weights vanish */
    s.out = hr_cuda_alloc((size_t)s.rows * (q_dim + 4) * sizeof *s.out);
    if (c.act) s.acts = hr_cuda_alloc_acts((hr_act)(c.act - 1), s.rows, q_dim);
    s.partial = hr_cuda_alloc((size_t)(c.n_segments + 1) * c.heads * HR_CUDA_SPLITS * (2 + c.dim) * sizeof *s.partial);
    s.params = (hr_cuda_attn){.batch = s.batch.b,
                              .q = s.q,
                              .out = s.out,
                              .acts = s.acts,
                              .partial = s.partial,
                              .ldq = ldq,
                              .ldo = q_dim + 4,
                              .layer = ATTN_LAYER,
                              .n_heads = c.heads,
                              .n_kv_heads = c.kv_heads,
                              .head_dim = c.dim,
                              .window = c.window,
                              .n = s.rows + (s.rows > 1 ? 3 : 0),
                              .n_segments = c.n_segments + (c.n_segments > 1),
                              .n_q = c.n_q + (c.n_q > 1 ? 3 : 0),
                              .max_len = longest + longest / 4,
                              .scale = 1 / sqrtf((float)c.dim),
                              .softcap = c.softcap};
    s.want = hr_malloc((size_t)s.rows * q_dim * sizeof *s.want);
    s.got = hr_malloc((size_t)s.rows * q_dim * sizeof *s.got);
    assert_non_null(s.want);
    assert_non_null(s.got);
    attn_reference(&s);
    for (uint32_t i = 0; i < c.n_segments; i++) attn_lose(&s.batch.segments[i].kv, s.tables[i]);
    return s;
}

static inline void attn_free(attn_setup *s) {
    hr_kv_cache_destroy(s->cache);
    for (uint32_t i = 0; i < s->c.n_segments; i++) hr_cuda_free(s->tables[i]);
    hr_cuda_free_batch(&s->batch), hr_cuda_free_acts(&s->acts);
    hr_cuda_free(s->geom), hr_cuda_free(s->q), hr_cuda_free(s->out), hr_cuda_free(s->partial);
    hr_free(s->want), hr_free(s->got);
}

/* One launch of a row, and of the merge where it split, over poisoned results; s->got is filled. */
static inline void attn_run(attn_setup *s, const hr_kernel *row) {
    const uint32_t q_dim = s->c.heads * s->c.dim;
    hr_cuda_poison(s->out), hr_cuda_poison(s->partial);
    if (s->acts.data) hr_cuda_poison(s->acts.data);
    hr_cuda_attn params = s->params;
    hr_cuda_run(row, &params);
    if (params.splits > 1) hr_cuda_run(hr_cuda_row("attn_merge_cuda"), &params);
    for (uint32_t t = 0; t < s->rows; t++) {
        for (uint32_t c = 0; c < q_dim; c++)
            s->got[(size_t)t * q_dim + c] =
                s->acts.data ? (float)hr_cuda_act_value(&s->acts, t, c) : s->out[(size_t)t * (q_dim + 4) + c];
        for (uint32_t c = q_dim; s->acts.data && c < s->acts.ld; c++)
            if (hr_cuda_act_value(&s->acts, t, c) != 0)
                fail_msg("%s: column %u of row %u is not zero", row->name, c, t);
    }
}

/* fp32: sums of up to ~1000 products of values below 2 and exp within two ulp: 1e-5 of the largest output (about 1). The bf16
 * unit rounds queries, weights and converted K and V to 8 bits (relative 2^-9 each, and scores of up to 10 turn theirs into
 * errors of weights): a few roundings of the largest values. Activations in bf16 are rounded once more. */
static inline void attn_check(const attn_setup *s, const hr_kernel *row) {
    const attn_case *c = &s->c;
    const size_t n = (size_t)s->rows * c->heads * c->dim;
    char what[240];
    snprintf(what, sizeof what,
             "%s %s K %s V %s heads %u/%u dim %u segments %u pos0 %u n_q %u window %u gone %u-%u cap %g", row->name,
             hr_kv_layout_name(c->layout), hr_kv_type_name(c->k), hr_kv_type_name(c->v), c->heads, c->kv_heads, c->dim,
             c->n_segments, c->pos0[0], c->n_q, c->window, c->gone_from, c->gone_to, (double)c->softcap);
    const double rounded = c->act == 1 + HR_ACT_BF16 ? 0x1p-8 : 0;
    if (row->unit == HR_UNIT_FP32) {
        hr_cuda_assert_near(s->got, s->want, n, 1e-5 + rounded, 1e-5, what);
        return;
    }
    hr_cuda_assert_near(s->got, s->want, n, rounded, 5e-2, what);
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)s->got[i] - s->want[i]) * ((double)s->got[i] - s->want[i]);
        power += s->want[i] * s->want[i];
    }
    if (!(error <= 1e-4 * power))
        fail_msg("%s (%s): mean squared error %.3g of the power, tolerance 1e-4", what, hr_cuda_mode_name(),
                 error / power);
}

/* Whether a row of attention for GPUs takes a case. */
static inline bool attn_takes(const hr_kernel *row, const attn_case *c) {
    return row->family == HR_FAM_ATTN && fix_takes(row, c->k, c->v, c->n_q);
}

#endif
