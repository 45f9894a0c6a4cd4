/* test_cuda_vec_kv.c - what happens to Q, K and V before attention, and copies of sequences, on the machine that runs kernels
 * for GPUs. Two caches of the same geometry begin with the same poison; the kernel writes one and the CPU's rows the other:
 * every byte of every plane is the same, in every layout, for all pairs of types. */
#include "kernels/kv/kv_open.h"
#include "tests/cuda_fixture.h"

enum { LAYERS = 2, HEADS = 3, CAPACITY = 100, PAGE = 16 };

static const hr_dtype types[] = {HR_F32, HR_F16, HR_BF16, HR_Q8_0, HR_I8ROW, HR_Q4_0, HR_I4KC};
enum { TYPES = sizeof types / sizeof *types };

/* ---- caches ---- */

typedef struct test_cache {
    hr_kv_seq *s; /* device memory, as all that it points to */
    hr_kv_geom *g;
    size_t bytes[HR_KV_PLANES];
} test_cache;

/* pages: a permutation, of a pool with a few more. */
static test_cache cache_make(hr_kv_layout layout, hr_dtype k, hr_dtype v, uint32_t head_dim) {
    test_cache c = {.s = hr_cuda_alloc(sizeof *c.s), .g = hr_cuda_alloc(sizeof *c.g)};
    if (hr_kv_geom_init(c.g, layout, LAYERS, HEADS, head_dim, k, v, CAPACITY, PAGE) != HR_OK)
        fail_msg("%s", hr_error());
    memset(c.s, 0, sizeof *c.s);
    c.s->g = c.g;
    uint32_t pages = 1;
    if (hr_kv_is_paged(layout)) {
        const uint32_t used = c.g->n_blocks * c.g->block / PAGE;
        pages = used + 3;
        uint32_t *table = hr_cuda_alloc(used * sizeof *table);
        for (uint32_t i = 0; i < used; i++) table[i] = layout == HR_KV_PAGED_IDENTITY ? i : pages - 1 - i;
        c.s->table = table;
    }
    for (int x = 0; x < HR_KV_PLANES; x++) {
        c.bytes[x] = pages * hr_kv_extent_bytes(c.g, x);
        if (c.bytes[x]) c.s->base[x] = hr_cuda_alloc(c.bytes[x]);
    }
    if (hr_kv_open_bytes(c.g)) c.s->open = hr_cuda_alloc(hr_kv_open_bytes(c.g));
    return c;
}
static void cache_free(test_cache *c) {
    for (int x = 0; x < HR_KV_PLANES; x++) hr_cuda_free(c->s->base[x]);
    hr_cuda_free(c->s->open), hr_cuda_free(c->s->table), hr_cuda_free(c->s), hr_cuda_free(c->g);
}
static void cache_copy(const test_cache *from, const test_cache *to) {
    for (int x = 0; x < HR_KV_PLANES; x++)
        if (from->bytes[x]) memcpy(to->s->base[x], from->s->base[x], from->bytes[x]);
    if (from->s->open) memcpy(to->s->open, from->s->open, hr_kv_open_bytes(from->g));
    to->s->len = from->s->len, to->s->gone_from = from->s->gone_from, to->s->gone_to = from->s->gone_to;
}
/* All planes, and of the open plane the rows of the group that a sequence of len positions has not closed. */
static void cache_assert_same(const test_cache *got, const test_cache *want, uint32_t len, const char *what) {
    static const char *const planes[] = {"K", "V", "scales of K", "scales of V"};
    char text[160];
    for (int x = 0; x < HR_KV_PLANES; x++) {
        snprintf(text, sizeof text, "%s: %s", what, planes[x]);
        if (got->bytes[x]) hr_cuda_assert_bytes(got->s->base[x], want->s->base[x], got->bytes[x], text);
    }
    snprintf(text, sizeof text, "%s: open rows", what);
    for (uint32_t l = 0; l < LAYERS; l++)
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t pos = hr_kv_closed(got->g, len); pos < len; pos++)
                hr_cuda_assert_bytes(hr_kv_open_row(got->s, l, h, pos), hr_kv_open_row(want->s, l, h, pos),
                                     2 * (size_t)got->g->head_dim, text);
}

static const hr_kernel *cpu_append(void) {
    return hr_kernel_ref(hr_cuda_row("kv_append_cuda"));
}
/* Positions pos0..pos0 + n - 1 of all layers, by the CPU, of rows [n][ld] that begin with K of all heads. */
static void append_by_cpu(const test_cache *c, uint32_t pos0, uint32_t n, const float *k, const float *v, size_t ld) {
    for (uint32_t l = 0; l < LAYERS; l++) cpu_append()->fn.kv_append(c->s, l, pos0, k, ld, v, ld, 0, n, 0, HEADS);
    c->s->len = pos0 + n;
}

/* ---- append ---- */

typedef struct span {
    uint32_t pos0, n;
} span;

/* Layer 1 of one segment. */
static void check_append(hr_kv_layout layout, hr_dtype k, hr_dtype v, uint32_t head_dim, span at) {
    const uint32_t q_heads = 4, ld = (q_heads + 2 * HEADS) * head_dim + 4;
    const uint32_t k0 = q_heads * head_dim, v0 = k0 + HEADS * head_dim;
    test_cache before = cache_make(layout, k, v, head_dim), want = cache_make(layout, k, v, head_dim),
               got = cache_make(layout, k, v, head_dim);
    float *qkv = hr_cuda_floats((size_t)(at.pos0 + at.n) * ld, 9);
    for (uint32_t i = 0; i < head_dim; i++) qkv[(size_t)at.pos0 * ld + k0 + i] = qkv[(size_t)at.pos0 * ld + v0 + i] = 0;
    append_by_cpu(&before, 0, at.pos0, qkv + k0, qkv + v0, ld);
    cache_copy(&before, &want);
    const float *rows = qkv + (size_t)at.pos0 * ld;
    cpu_append()->fn.kv_append(want.s, 1, at.pos0, rows + k0, ld, rows + v0, ld, 0, at.n, 0, HEADS);
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, at.n, &at.pos0, 1, 1);
    batch.segments[0].kv = *got.s;
    float *mine = hr_cuda_copy_of(rows, (size_t)at.n * ld * sizeof *mine);
    hr_cuda_heads p = {.batch = batch.b,
                       .qkv = mine,
                       .n = at.n + 2,
                       .n_segments = 1,
                       .ld = ld,
                       .layer = 1,
                       .n_heads = q_heads,
                       .n_kv_heads = HEADS,
                       .head_dim = head_dim,
                       .granule = hr_kv_granule(got.g)};
    char what[128];
    snprintf(what, sizeof what, "kv_append_cuda, %s, K %s, V %s, head dim %u, positions %u..%u",
             hr_kv_layout_name(layout), hr_kv_type_name(k), hr_kv_type_name(v), head_dim, at.pos0, at.pos0 + at.n - 1);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        cache_copy(&before, &got);
        hr_cuda_run(hr_cuda_row("kv_append_cuda"), &p);
        cache_assert_same(&got, &want, at.pos0 + at.n, what);
        hr_cuda_assert_bytes(mine, rows, (size_t)at.n * ld * sizeof *mine, what);
    }
    hr_cuda_free(mine), hr_cuda_free(qkv), hr_cuda_free_batch(&batch);
    cache_free(&before), cache_free(&want), cache_free(&got);
}

static void append_in_all_layouts(void **state) {
    (void)state;
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++)
        for (int k = 0; k < TYPES; k++)
            for (int v = 0; v < TYPES; v++) check_append((hr_kv_layout)layout, types[k], types[v], 32, (span){29, 9});
}

static void append_of_all_lengths(void **state) {
    (void)state;
    static const span spans[] = {{0, 1}, {31, 1}, {32, 1}, {5, 59}, {5, 70}, {0, 64}, {40, 3}, {63, 37}};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++) {
        check_append(HR_KV_PAGED_NHD, HR_I4KC, HR_I4KC, 96, spans[i]);
        check_append(HR_KV_ZORDER, HR_I8ROW, HR_Q4_0, 64, spans[i]);
    }
    static const uint32_t odd[] = {1, 2, 6, 20, 80};
    for (size_t i = 0; i < 5; i++) {
        check_append(HR_KV_BLOCK, HR_BF16, HR_F32, odd[i], (span){3, 4});
        check_append(HR_KV_TOKEN, HR_F16, HR_BF16, odd[i], (span){3, 4});
    }
    check_append(HR_KV_HEAD, HR_I4KC, HR_Q8_0, 256, (span){20, 50});
    check_append(HR_KV_HEAD, HR_BF16, HR_Q8_0, 4128, (span){0, 2}); /* a block holds two rows */
}

/* Values that are hard to store: no number, infinite, beyond f16, below it, ties. */
static void append_of_edges(void **state) {
    (void)state;
    static const float edges[] = {NAN,    INFINITY, -INFINITY, 65520, -70000,  1e-8f, -3e-8f, 5.9604645e-8f,
                                  1e-40f, 2049,     2051,      -0.0f, 1.0e-5f, 6e-5f, 3.5f,   0x1.008p0f};
    for (int t = 0; t < 3; t++) { /* f32, f16, bf16: not finite values stay so */
        test_cache want = cache_make(HR_KV_HEAD, types[t], types[t], 32),
                   got = cache_make(HR_KV_HEAD, types[t], types[t], 32);
        float *qkv = hr_cuda_alloc(2 * HEADS * 32 * sizeof *qkv);
        for (size_t i = 0; i < 2 * HEADS * 32; i++) qkv[i] = edges[i % 16];
        const uint32_t pos0 = 0;
        hr_cuda_test_batch batch = hr_cuda_make_batch(1, 1, &pos0, 1, 1);
        batch.segments[0].kv = *got.s;
        cpu_append()->fn.kv_append(want.s, 0, 0, qkv, 0, qkv + HEADS * 32, 0, 0, 1, 0, HEADS);
        hr_cuda_heads p = {.batch = batch.b,
                           .qkv = qkv,
                           .n = 1,
                           .n_segments = 1,
                           .ld = 2 * HEADS * 32,
                           .n_kv_heads = HEADS,
                           .head_dim = 32,
                           .granule = 1};
        hr_cuda_run(hr_cuda_row("kv_append_cuda"), &p);
        cache_assert_same(&got, &want, 1, "edges");
        hr_cuda_free(qkv), hr_cuda_free_batch(&batch), cache_free(&want), cache_free(&got);
    }
    for (int t = 3; t < TYPES; t++) { /* scales among the subnormal numbers of f16, none, and the largest */
        for (int power = -30; power <= 20; power += 5) {
            test_cache want = cache_make(HR_KV_HEAD, types[t], types[t], 64),
                       got = cache_make(HR_KV_HEAD, types[t], types[t], 64);
            float *qkv = hr_cuda_floats(32 * 2 * HEADS * 64, 4);
            for (size_t i = 0; i < 32 * 2 * HEADS * 64; i++) qkv[i] = ldexpf(qkv[i], power);
            const uint32_t pos0 = 0;
            hr_cuda_test_batch batch = hr_cuda_make_batch(1, 32, &pos0, 1, 1);
            batch.segments[0].kv = *got.s;
            cpu_append()->fn.kv_append(want.s, 0, 0, qkv, 2 * HEADS * 64, qkv + HEADS * 64, 2 * HEADS * 64, 0, 32, 0,
                                       HEADS);
            hr_cuda_heads p = {.batch = batch.b,
                               .qkv = qkv,
                               .n = 32,
                               .n_segments = 1,
                               .ld = 2 * HEADS * 64,
                               .n_kv_heads = HEADS,
                               .head_dim = 64,
                               .granule = hr_kv_granule(got.g)};
            hr_cuda_run(hr_cuda_row("kv_append_cuda"), &p);
            cache_assert_same(&got, &want, 32, "small and large values");
            hr_cuda_free(qkv), hr_cuda_free_batch(&batch), cache_free(&want), cache_free(&got);
        }
    }
}

/* ---- the whole of it ---- */

typedef struct finish_case {
    uint32_t n_heads, head_dim, rope_dims;
    bool interleaved, bias, norm;
    hr_dtype k, v;
    hr_kv_layout layout;
    uint32_t n_segments, n, pos0[3];
    bool alone; /* rope_cuda */
} finish_case;

/* Row t in double precision. */
static void finish_reference(const finish_case *c, const hr_cuda_heads *p, uint32_t pos, const float *from,
                             double *to) {
    const uint32_t dim = c->head_dim, half = c->rope_dims / 2, heads = c->n_heads + 2 * HEADS;
    for (uint32_t j = 0; j < heads; j++) {
        const bool is_q = j < c->n_heads, is_v = j >= c->n_heads + HEADS;
        const float *bias = is_q ? p->bq : is_v ? p->bv : p->bk, *norm = is_q ? p->q_norm : is_v ? NULL : p->k_norm;
        const uint32_t first = is_q ? 0 : is_v ? c->n_heads + HEADS : c->n_heads;
        double *x = to + (size_t)j * dim, square = 0;
        for (uint32_t d = 0; d < dim; d++) {
            x[d] = (double)from[(size_t)j * dim + d] + (bias ? (double)bias[(size_t)(j - first) * dim + d] : 0);
            square += x[d] * x[d];
        }
        for (uint32_t d = 0; d < dim && norm; d++) x[d] = x[d] / sqrt(square / dim + (double)p->eps) * (double)norm[d];
        for (uint32_t i = 0; i < half && !is_v; i++) {
            double *a = x + (c->interleaved ? 2 * i : i), *b = c->interleaved ? a + 1 : a + half;
            const double re = *a, im = *b;
            const double co = (double)p->angles[2 * ((size_t)pos * half + i)],
                         si = (double)p->angles[2 * ((size_t)pos * half + i) + 1];
            *a = re * co - im * si, *b = re * si + im * co;
        }
    }
}

static float *angles_make(uint32_t rope_dims) {
    float *cs = hr_cuda_alloc((size_t)CAPACITY * rope_dims * sizeof *cs + 8);
    for (uint32_t pos = 0; pos < CAPACITY; pos++) {
        for (uint32_t i = 0; i < rope_dims / 2; i++) {
            const double angle = pos * pow(10000, -2.0 * i / rope_dims);
            cs[(size_t)pos * rope_dims + 2 * i] = (float)cos(angle);
            cs[(size_t)pos * rope_dims + 2 * i + 1] = (float)sin(angle);
        }
    }
    return cs;
}

static void check_finish(const finish_case *c) {
    const uint32_t dim = c->head_dim, width = (c->n_heads + 2 * HEADS) * dim, ld = width + (dim % 4 ? 1 : 4), n = c->n;
    const uint32_t k0 = c->n_heads * dim, v0 = k0 + HEADS * dim;
    test_cache before[3], want[3], got[3];
    hr_cuda_test_batch batch = hr_cuda_make_batch(c->n_segments, n, c->pos0, 1, 1);
    float *past = hr_cuda_floats((size_t)CAPACITY * 2 * HEADS * dim, 5);
    for (uint32_t i = 0; i < c->n_segments; i++) {
        before[i] = cache_make(c->layout, c->k, c->v, dim);
        want[i] = cache_make(c->layout, c->k, c->v, dim), got[i] = cache_make(c->layout, c->k, c->v, dim);
        append_by_cpu(&before[i], 0, c->pos0[i], past, past + HEADS * dim, 2 * HEADS * (size_t)dim);
        batch.segments[i].kv = *got[i].s;
    }
    float *fresh = hr_cuda_floats((size_t)(n + 1) * ld, 3), *qkv = hr_cuda_alloc((size_t)(n + 1) * ld * sizeof *qkv);
    float *bias = hr_cuda_floats(width, 4), *norms = hr_cuda_floats(2 * (size_t)dim, 6),
          *angles = angles_make(c->rope_dims);
    hr_cuda_heads p = {.batch = batch.b,
                       .qkv = qkv,
                       .angles = angles,
                       .n = n + 1,
                       .n_segments = c->n_segments,
                       .ld = ld,
                       .layer = 1,
                       .n_heads = c->n_heads,
                       .n_kv_heads = HEADS,
                       .head_dim = dim,
                       .rope_dims = c->rope_dims,
                       .granule = hr_kv_granule(got[0].g),
                       .eps = 1e-6f,
                       .interleaved = c->interleaved};
    if (c->bias) p.bq = bias, p.bk = bias + k0, p.bv = bias + v0;
    if (c->norm) p.q_norm = norms, p.k_norm = norms + dim;
    double *wanted = hr_malloc(n * (size_t)width * sizeof *wanted);
    for (uint32_t t = 0; t < n; t++)
        finish_reference(c, &p, batch.pos[t], fresh + (size_t)t * ld, wanted + (size_t)t * width);
    const hr_kernel *row = hr_cuda_row(c->alone ? "rope_cuda" : "finish_cuda");
    char what[128];
    snprintf(what, sizeof what, "%s, %s, K %s, V %s, head dim %u, %u tokens of %u sequences", row->name,
             hr_kv_layout_name(c->layout), hr_kv_type_name(c->k), hr_kv_type_name(c->v), dim, n, c->n_segments);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        memcpy(qkv, fresh, (size_t)(n + 1) * ld * sizeof *qkv);
        for (uint32_t i = 0; i < c->n_segments; i++) cache_copy(&before[i], &got[i]), cache_copy(&before[i], &want[i]);
        hr_cuda_run(row, &p);
        /* Rounded at the bias, twice at the norm (whose factor is within 1e-6), three times at the rotation of values up
         * to 2 (norms: times 8, for few and unequal values): 8 roundings of 6e-8. */
        for (uint32_t t = 0; t < n; t++)
            hr_cuda_assert_near(qkv + (size_t)t * ld, wanted + (size_t)t * width, width, 1e-6, c->norm ? 4e-6 : 1e-6,
                                what);
        for (uint32_t t = 0; t <= n; t++) /* what lies between rows and behind the batch */
            hr_cuda_assert_bytes(qkv + (size_t)t * ld + (t < n ? width : 0),
                                 fresh + (size_t)t * ld + (t < n ? width : 0), (t < n ? ld - width : ld) * sizeof *qkv,
                                 what);
        for (uint32_t i = 0; i < c->n_segments; i++) { /* stored: the bits that the CPU stores of the same values */
            const hr_cuda_segment *g = &batch.segments[i];
            const float *rows = qkv + (size_t)g->row0 * ld;
            if (!c->alone)
                cpu_append()->fn.kv_append(want[i].s, 1, g->pos0, rows + k0, ld, rows + v0, ld, 0, g->n, 0, HEADS);
            cache_assert_same(&got[i], &want[i], g->pos0 + (c->alone ? 0 : g->n), what);
        }
    }
    for (uint32_t i = 0; i < c->n_segments; i++) cache_free(&before[i]), cache_free(&want[i]), cache_free(&got[i]);
    hr_free(wanted);
    hr_cuda_free(fresh), hr_cuda_free(qkv), hr_cuda_free(bias), hr_cuda_free(norms), hr_cuda_free(angles),
        hr_cuda_free(past);
    hr_cuda_free_batch(&batch);
}

static void finish(void **state) {
    (void)state;
    static const finish_case cases[] = {
        {4, 64, 64, false, false, false, HR_BF16, HR_BF16, HR_KV_HEAD, 1, 3, {7}, false},
        {6, 64, 64, true, true, false, HR_F32, HR_F16, HR_KV_PAGED, 1, 40, {7}, false},
        {3, 80, 32, false, true, true, HR_F16, HR_F32, HR_KV_BLOCK, 1, 5, {0}, false},
        {3, 6, 4, true, false, true, HR_F32, HR_F32, HR_KV_TOKEN, 1, 5, {0}, false},
        {9, 64, 64, false, true, true, HR_Q8_0, HR_Q4_0, HR_KV_ZORDER, 1, 4, {60}, false},
        {3, 128, 128, false, false, true, HR_I8ROW, HR_Q8_0, HR_KV_SHUFFLED, 1, 2, {97}, false},
        {6, 32, 32, false, true, true, HR_I4KC, HR_I4KC, HR_KV_PAGED_NHD, 1, 70, {13}, false},
        {6, 64, 64, true, true, false, HR_I4KC, HR_BF16, HR_KV_HEAD, 1, 64, {0}, false},
        {6, 96, 96, false, false, true, HR_I4KC, HR_Q4_0, HR_KV_ZORDER_H, 3, 3, {31, 0, 62}, false},
        {6, 64, 64, false, true, false, HR_BF16, HR_F16, HR_KV_PAGED_IDENTITY, 3, 3, {31, 0, 62}, false},
        {4, 64, 64, false, true, true, HR_BF16, HR_BF16, HR_KV_HEAD, 1, 3, {7}, true},
        {4, 64, 48, true, false, false, HR_I4KC, HR_BF16, HR_KV_HEAD, 3, 3, {5, 99, 50}, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_finish(&cases[i]);
}

/* Without a norm every step is one rounding: the bits of the CPU's rotation. */
static void rotation_to_the_bit(void **state) {
    (void)state;
    const uint32_t n = 3, pos0 = 11, dim = 64, heads = 4, width = (heads + 2 * HEADS) * dim;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        hr_cuda_test_batch batch = hr_cuda_make_batch(1, n, &pos0, 1, 1);
        float *fresh = hr_cuda_floats((size_t)n * width, 3), *angles = angles_make(dim);
        float *qkv = hr_cuda_copy_of(fresh, (size_t)n * width * sizeof *qkv);
        hr_cuda_heads p = {.batch = batch.b,
                           .qkv = qkv,
                           .angles = angles,
                           .n = n,
                           .n_segments = 1,
                           .ld = width,
                           .n_heads = heads,
                           .n_kv_heads = HEADS,
                           .head_dim = dim,
                           .rope_dims = dim,
                           .granule = 1,
                           .interleaved = interleaved};
        hr_cuda_run(hr_cuda_row("rope_cuda"), &p);
        hr_kernel_ref(hr_cuda_row("rope_cuda"))
            ->fn.rope(fresh, width, heads + HEADS, dim, dim, interleaved, angles + (size_t)pos0 * dim, 0, n);
        hr_cuda_assert_bytes(qkv, fresh, (size_t)n * width * sizeof *qkv, "rope_cuda");
        hr_cuda_free(fresh), hr_cuda_free(qkv), hr_cuda_free(angles), hr_cuda_free_batch(&batch);
    }
}

/* A batch smaller than the launch, as when a captured graph is replayed: four sequences at most, here two. */
static void fewer_sequences_than_the_launch(void **state) {
    (void)state;
    const uint32_t pos0[2] = {31, 63}, dim = 32, width = (2 + 2 * HEADS) * dim;
    hr_cuda_test_batch batch = hr_cuda_make_batch(2, 2, pos0, 1, 1);
    test_cache want[2], got[2];
    float *past = hr_cuda_floats(64 * 2 * HEADS * (size_t)dim, 1), *qkv = hr_cuda_floats(4 * (size_t)width, 2);
    float *angles = angles_make(dim);
    for (int i = 0; i < 2; i++) {
        want[i] = cache_make(HR_KV_PAGED, HR_I4KC, HR_Q4_0, dim),
        got[i] = cache_make(HR_KV_PAGED, HR_I4KC, HR_Q4_0, dim);
        append_by_cpu(&want[i], 0, pos0[i], past, past + HEADS * dim, 2 * HEADS * (size_t)dim);
        cache_copy(&want[i], &got[i]);
        batch.segments[i].kv = *got[i].s;
    }
    hr_cuda_heads p = {.batch = batch.b,
                       .qkv = qkv,
                       .angles = angles,
                       .n = 4,
                       .n_segments = 4,
                       .ld = width,
                       .layer = 0,
                       .n_heads = 2,
                       .n_kv_heads = HEADS,
                       .head_dim = dim,
                       .rope_dims = dim,
                       .granule = HR_KV_GROUP};
    hr_cuda_run(hr_cuda_row("finish_cuda"), &p);
    for (int i = 0; i < 2; i++) {
        const float *row = qkv + (size_t)i * width + 2 * dim;
        cpu_append()->fn.kv_append(want[i].s, 0, pos0[i], row, width, row + HEADS * dim, width, 0, 1, 0, HEADS);
        cache_assert_same(&got[i], &want[i], pos0[i] + 1, "fewer sequences");
        cache_free(&want[i]), cache_free(&got[i]);
    }
    hr_cuda_free(past), hr_cuda_free(qkv), hr_cuda_free(angles), hr_cuda_free_batch(&batch);
}

/* ---- copies ---- */

/* Positions from..to - 1, row by row. */
static void copy_by_cpu(const hr_kv_seq *source, const hr_kv_seq *target, uint32_t from, uint32_t to) {
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            for (uint32_t pos = from; pos < to; pos++) {
                const hr_kv_rows a = hr_kv_run(source, l, h, pos), b = hr_kv_run(target, l, h, pos);
                for (int x = 0; x < HR_KV_PLANES; x++)
                    if (a.at[x]) memcpy(b.at[x], a.at[x], source->g->row_bytes[x]);
            }
        }
    }
}

/* A sequence of 90 positions; from..to - 1 of it into poison. */
static void check_copy(hr_kv_layout layout, hr_dtype k, hr_dtype v, uint32_t from, uint32_t to) {
    const uint32_t dim = 32, len = 90;
    test_cache source = cache_make(layout, k, v, dim), want = cache_make(layout, k, v, dim),
               got = cache_make(layout, k, v, dim);
    float *past = hr_cuda_floats(len * 2 * HEADS * (size_t)dim, 1);
    append_by_cpu(&source, 0, len, past, past + HEADS * dim, 2 * HEADS * (size_t)dim);
    copy_by_cpu(source.s, want.s, from, to);
    hr_kv_open_at(source.s, to, want.s->open);
    hr_cuda_kv_copy p = {
        .source = source.s, .target = got.s, .from = from, .to = to, .n_layers = LAYERS, .n_heads = HEADS};
    char what[96];
    snprintf(what, sizeof what, "kv_copy_cuda, %s, K %s, V %s, positions %u..%u", hr_kv_layout_name(layout),
             hr_kv_type_name(k), hr_kv_type_name(v), from, to);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        for (int x = 0; x < HR_KV_PLANES; x++)
            if (got.s->base[x]) hr_cuda_poison(got.s->base[x]);
        if (got.s->open) hr_cuda_poison(got.s->open);
        hr_cuda_run(hr_cuda_row("kv_copy_cuda"), &p);
        cache_assert_same(&got, &want, to, what);
    }
    hr_cuda_free(past), cache_free(&source), cache_free(&want), cache_free(&got);
}

static void copies(void **state) {
    (void)state;
    for (int layout = 0; layout < HR_KV_LAYOUT_COUNT; layout++) {
        for (int t = 0; t < TYPES; t++) {
            const hr_dtype k = types[t], v = types[(t + layout) % TYPES];
            check_copy((hr_kv_layout)layout, k, v, 0, 90);
            check_copy((hr_kv_layout)layout, k, v, 3, 50); /* cuts a group that is closed */
        }
        check_copy((hr_kv_layout)layout, HR_I4KC, HR_BF16, 0, 64);
        check_copy((hr_kv_layout)layout, HR_I4KC, HR_F32, 77, 77); /* the open rows alone */
    }
}

/* Positions that are gone: their pages hold what others wrote, so they are not read; and a sequence cut in place. */
static void copies_with_a_hole(void **state) {
    (void)state;
    const uint32_t dim = 32, len = 90;
    test_cache source = cache_make(HR_KV_PAGED, HR_I4KC, HR_Q8_0, dim),
               want = cache_make(HR_KV_PAGED, HR_I4KC, HR_Q8_0, dim),
               got = cache_make(HR_KV_PAGED, HR_I4KC, HR_Q8_0, dim);
    float *past = hr_cuda_floats(len * 2 * HEADS * (size_t)dim, 1);
    append_by_cpu(&source, 0, len, past, past + HEADS * dim, 2 * HEADS * (size_t)dim);
    source.s->gone_from = 32, source.s->gone_to = 64;
    ((uint32_t *)(uintptr_t)source.s->table)[2] = ((uint32_t *)(uintptr_t)source.s->table)[3] = UINT32_MAX;
    copy_by_cpu(source.s, want.s, 0, 32);
    copy_by_cpu(source.s, want.s, 64, len);
    hr_kv_open_at(source.s, len, want.s->open);
    hr_cuda_kv_copy p = {.source = source.s, .target = got.s, .to = len, .n_layers = LAYERS, .n_heads = HEADS};
    hr_cuda_run(hr_cuda_row("kv_copy_cuda"), &p);
    cache_assert_same(&got, &want, len, "a hole");
    /* cut to 50 positions: the open rows of positions that are gone are zeros */
    hr_kv_open_at(source.s, 50, want.s->open);
    cache_copy(&source, &got);
    p = (hr_cuda_kv_copy){
        .source = source.s, .target = source.s, .from = 50, .to = 50, .n_layers = LAYERS, .n_heads = HEADS};
    hr_cuda_run(hr_cuda_row("kv_copy_cuda"), &p);
    cache_copy(&got, &want);
    hr_kv_open_at(got.s, 50, want.s->open);
    cache_assert_same(&source, &want, 50, "cut in place");
    hr_cuda_free(past), cache_free(&source), cache_free(&want), cache_free(&got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(append_in_all_layouts),
        cmocka_unit_test(append_of_all_lengths),
        cmocka_unit_test(append_of_edges),
        cmocka_unit_test(finish),
        cmocka_unit_test(rotation_to_the_bit),
        cmocka_unit_test(fewer_sequences_than_the_launch),
        cmocka_unit_test(copies),
        cmocka_unit_test(copies_with_a_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
