/* test_cuda_vec.c - embedding, norm and activations, residual and gated activation on the machine that runs kernels for GPUs:
 * to the bit where the CPU's bits are promised (dequantized rows, activations of what was normalized), else against double
 * precision. Launches are made for more tokens than the batch has: what lies beyond stays as it was. */
#include "tests/cuda_fixture.h"

enum { EXTRA = 2, VOCAB = 9 };

/* `rows` rows of n poisoned floats are still what hr_cuda_poison left. */
static void assert_untouched(const void *p, size_t bytes, const char *what) {
    const uint8_t *at = p;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0xff) fail_msg("%s (%s): byte %zu beyond the batch was written", what, hr_cuda_mode_name(), i);
}

/* ---- embedding ---- */

static void check_embed(hr_dtype type, size_t dim, float scale) {
    const hr_kernel *row = hr_cuda_row("embed_cuda");
    const uint32_t n = 3, pos0 = 0;
    hr_cuda_weights w = hr_cuda_make_weights(type, VOCAB, dim, 7 + dim);
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, n, &pos0, VOCAB, dim);
    float *x = hr_cuda_alloc((n + EXTRA) * dim * sizeof *x), *want = hr_malloc(n * dim * sizeof *want);
    char what[64];
    snprintf(what, sizeof what, "embed_cuda of %s, dim %zu", hr_dtypes[type].name, dim);
    for (uint32_t t = 0; t < n; t++)
        for (size_t c = 0; c < dim; c++) want[t * dim + c] = scale * w.values[(size_t)batch.tokens[t] * dim + c];
    hr_cuda_embed p = {.batch = batch.b, .table = w.m, .x = x, .n = n + EXTRA, .dim = (uint32_t)dim, .scale = scale};
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(x);
        hr_cuda_run(row, &p);
        hr_cuda_assert_bytes(x, want, n * dim * sizeof *x, what);
        assert_untouched(x + n * dim, EXTRA * dim * sizeof *x, what);
    }
    hr_free(want);
    hr_cuda_free(x), hr_cuda_free_weights(&w), hr_cuda_free_batch(&batch);
}

static void embedding(void **state) {
    (void)state;
    static const size_t dims[] = {1, 7, 8, 33, 100, 1064}, blocks[] = {32, 96, 1056}, wide[] = {256, 1280};
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        assert_true(hr_cuda_row("embed_cuda")->dtypes >> t & 1);
        const uint16_t block = hr_dtypes[t].block_elems;
        const size_t *list = block == 1 ? dims : block == 32 ? blocks : wide, n = block == 1 ? 6 : block == 32 ? 3 : 2;
        for (size_t i = 0; i < n; i++) check_embed((hr_dtype)t, list[i], i % 2 ? 1 : 22.627417f);
    }
}

/* ---- norm ---- */

typedef struct norm_case {
    const hr_kernel *row;
    uint32_t dim, ldx, kind;
    bool weight, bias, rows, in_place;
    int act; /* -1: none */
} norm_case;

/* The results in double precision of rows `pick` of x. */
static void norm_reference(const norm_case *c, const float *x, const float *w, const float *b, const uint32_t *pick,
                           size_t n, double *want) {
    for (size_t i = 0; i < n; i++) {
        const float *from = x + (size_t)(pick ? pick[i] : i) * c->ldx;
        double mean = 0, square = 0;
        for (uint32_t d = 0; d < c->dim && c->kind == HR_CUDA_NORM_LAYER; d++) mean += (double)from[d] / c->dim;
        for (uint32_t d = 0; d < c->dim; d++) square += ((double)from[d] - mean) * ((double)from[d] - mean);
        const double factor = c->kind == HR_CUDA_NORM_NONE ? 1 : 1 / sqrt(square / c->dim + (double)1e-5f);
        for (uint32_t d = 0; d < c->dim; d++)
            want[i * c->dim + d] =
                ((double)from[d] - mean) * factor * (c->weight ? (double)w[d] : 1) + (c->bias ? (double)b[d] : 0);
    }
}

/* What the CPU makes of the normalized rows h [n][dim], held against what the kernel made. */
static void assert_acts(const hr_cuda_acts *a, const float *h, size_t n, size_t dim, const char *what) {
    const hr_kernel *cpu = hr_kernel_choose(
        &(hr_kernel_query){.family = HR_FAM_ACTS, .isa = HR_ISA_GENERIC, .act = (hr_act)a->type, .n = (uint32_t)n});
    const size_t size = hr_cuda_act_bytes((hr_act)a->type), bytes = n * a->ld * size, groups = a->ld / 32;
    uint8_t *data = hr_malloc(bytes);
    float *d = hr_malloc(n * groups * sizeof *d);
    int32_t *sum = hr_malloc(n * groups * sizeof *sum);
    hr_acts want = {.type = (hr_act)a->type, .n = n, .k = dim, .ld = a->ld, .d = d, .sum = sum};
    want.f32 = (float *)(void *)data, want.bf16 = (uint16_t *)(void *)data, want.q = (int8_t *)data;
    cpu->fn.acts(&want, h, dim, 0, n);
    hr_cuda_assert_bytes(a->data, data, bytes, what);
    if (a->type == HR_ACT_INT8) hr_cuda_assert_bytes(a->d, d, n * groups * sizeof *d, what);
    for (size_t i = 0; i < n && a->type == HR_ACT_INT8_ROW; i++)
        hr_cuda_assert_bytes(a->d + i, d + i * groups, sizeof *d, what);
    hr_free(data), hr_free(d), hr_free(sum);
}

static void check_norm(const norm_case *c) {
    const uint32_t n = 3, rows[3] = {4, 0, 2}, pos0 = 0;
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, 5, &pos0, 1, 1);
    if (c->rows)
        batch.b->n_logits = n;
    else
        batch.b->n = n;
    float *fresh = hr_cuda_floats((size_t)5 * c->ldx, 11 + c->dim), *x = hr_cuda_alloc((size_t)5 * c->ldx * sizeof *x);
    float *w = hr_cuda_floats(c->dim, 5), *b = hr_cuda_floats(c->dim, 6);
    uint32_t *pick = hr_cuda_copy_of(rows, sizeof rows);
    double *want = hr_malloc((size_t)n * c->dim * sizeof *want);
    norm_reference(c, fresh, w, b, c->rows ? rows : NULL, n, want);
    hr_cuda_acts acts = {0};
    if (c->act >= 0) acts = hr_cuda_alloc_acts((hr_act)c->act, n, c->dim);
    float *out = c->in_place ? x : hr_cuda_alloc((size_t)n * c->dim * sizeof *out);
    hr_cuda_norm p = {.batch = batch.b,
                      .x = x,
                      .w = c->weight ? w : NULL,
                      .b = c->bias ? b : NULL,
                      .rows = c->rows ? pick : NULL,
                      .out = out,
                      .acts = acts,
                      .n = n + (c->act < 0 ? EXTRA : 0),
                      .dim = c->dim,
                      .ldx = c->ldx,
                      .kind = c->kind,
                      .eps = 1e-5f};
    char what[96];
    snprintf(what, sizeof what, "%s, kind %u, dim %u, act %d", c->row->name, c->kind, c->dim, c->act);
    /* A sum of dim values in a tree of at most 20 levels and a root: the factor is within 12 ulp, 8e-7 of it. The mean is
     * as exact against values up to 1, and what is left after subtracting it is stretched by factors below 4. Before a
     * bias is added, which can cancel it, a value is up to 1.8. */
    const double absolute = c->kind == HR_CUDA_NORM_LAYER ? 3e-6 : c->bias ? 1.8 * 8e-7 : 1e-7;
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        memcpy(x, fresh, (size_t)5 * c->ldx * sizeof *x);
        if (!c->in_place) hr_cuda_poison(out);
        if (acts.data) hr_cuda_poison(acts.data);
        if (acts.d) hr_cuda_poison(acts.d);
        hr_cuda_run(c->row, &p);
        hr_cuda_assert_near(out, want, (size_t)n * c->dim, 8e-7, absolute, what);
        if (acts.data) assert_acts(&acts, out, n, c->dim, what);
        if (acts.data && !c->in_place) { /* activations alone: the same */
            float *kept = p.out;
            hr_cuda_poison(acts.data);
            p.out = NULL;
            hr_cuda_run(c->row, &p);
            assert_acts(&acts, out, n, c->dim, what);
            p.out = kept;
        }
    }
    hr_free(want);
    hr_cuda_free(pick), hr_cuda_free(x), hr_cuda_free(fresh), hr_cuda_free(w), hr_cuda_free(b);
    if (!c->in_place) hr_cuda_free(out);
    hr_cuda_free_acts(&acts);
    hr_cuda_free_batch(&batch);
}

static void norm(void **state) {
    (void)state;
    static const char *const names[] = {"norm_cuda", "norm_staged_cuda", "norm_restrict_cuda"};
    static const uint32_t dims[] = {1, 3, 31, 64, 100, 576, 1030, 4100, 8196};
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < 9; i++) {
            norm_case c = {.row = hr_cuda_row(names[k]), .dim = dims[i], .ldx = dims[i], .act = -1, .weight = true};
            check_norm(&c); /* RMS */
            c.rows = true, c.ldx += 3, c.act = HR_ACT_BF16, c.bias = true;
            check_norm(&c);
            c.rows = false, c.ldx = c.dim, c.in_place = true, c.act = HR_ACT_INT8, c.kind = HR_CUDA_NORM_LAYER;
            check_norm(&c);
            c.in_place = false, c.weight = c.bias = false, c.act = HR_ACT_INT8_ROW;
            check_norm(&c);
            c.kind = HR_CUDA_NORM_NONE, c.act = (int)(i % HR_ACT_COUNT);
            check_norm(&c);
        }
    }
}

/* Rows of the family ACTS: what the table says, by the same kernel. */
static void activations(void **state) {
    (void)state;
    for (int act = 0; act < HR_ACT_COUNT; act++) {
        const hr_kernel *row =
            hr_kernel_choose(&(hr_kernel_query){.family = HR_FAM_ACTS, .act = (hr_act)act, .n = 1, .cuda = true});
        assert_non_null(row);
        check_norm(&(norm_case){.row = row, .dim = 200, .ldx = 200, .kind = HR_CUDA_NORM_NONE, .act = act});
    }
}

/* Zeros, and values whose scale would be no normal number. */
static void activations_of_nothing(void **state) {
    (void)state;
    const uint32_t pos0 = 0, dim = 96;
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, 1, &pos0, 1, 1);
    float *x = hr_cuda_floats(dim, 3);
    for (uint32_t c = 0; c < 32; c++) x[c] = 0, x[32 + c] *= 1e-37f;
    for (int act = HR_ACT_INT8; act <= HR_ACT_INT8_ROW; act++) {
        hr_cuda_acts acts = hr_cuda_alloc_acts((hr_act)act, 1, dim);
        hr_cuda_norm p = {
            .batch = batch.b, .x = x, .acts = acts, .n = 1, .dim = dim, .ldx = dim, .kind = HR_CUDA_NORM_NONE};
        hr_cuda_run(hr_cuda_row("norm_cuda"), &p);
        assert_acts(&acts, x, 1, dim, "activations of zeros");
        hr_cuda_free_acts(&acts);
    }
    hr_cuda_free(x), hr_cuda_free_batch(&batch);
}

/* ---- residual, gated activation ---- */

static void residual(void **state) {
    (void)state;
    static const uint32_t dims[] = {1, 5, 64, 1000};
    const hr_kernel *row = hr_cuda_row("add_cuda");
    for (size_t i = 0; i < 4; i++) {
        const uint32_t n = 3, pos0 = 0, dim = dims[i];
        hr_cuda_test_batch batch = hr_cuda_make_batch(1, n, &pos0, 1, 1);
        float *fresh = hr_cuda_floats((size_t)n * dim, 1), *y = hr_cuda_floats((size_t)n * dim, 2);
        float *x = hr_cuda_alloc((size_t)(n + EXTRA) * dim * sizeof *x),
              *want = hr_malloc((size_t)n * dim * sizeof *want);
        for (size_t c = 0; c < (size_t)n * dim; c++) want[c] = fresh[c] + y[c];
        hr_cuda_add p = {.batch = batch.b, .x = x, .y = y, .n = n + EXTRA, .dim = dim};
        for (int rounds = 0; rounds < 2; rounds++) {
            for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
                hr_cuda_poison(x);
                memcpy(x, fresh, (size_t)n * dim * sizeof *x);
                if (rounds)
                    hr_cuda_launch("add_cuda", &(hr_cuda_shape){{2, 1, 1}, {64, 1, 1}, 0}, &p);
                else
                    hr_cuda_run(row, &p);
                hr_cuda_assert_bytes(x, want, (size_t)n * dim * sizeof *x, "add_cuda");
                assert_untouched(x + (size_t)n * dim, (size_t)EXTRA * dim * sizeof *x, "add_cuda");
            }
        }
        hr_free(want);
        hr_cuda_free(x), hr_cuda_free(y), hr_cuda_free(fresh), hr_cuda_free_batch(&batch);
    }
}

static double activated(uint32_t kind, double g) {
    if (kind == HR_CUDA_GLU_SILU) return g / (1 + exp(-g));
    if (kind == HR_CUDA_GLU_GELU) return 0.5 * g * (1 + tanh(0.79788456080286536 * (g + 0.044715 * g * g * g)));
    return g;
}

static void check_glu(uint32_t kind, uint32_t ffn, bool up, int act) {
    const uint32_t n = 2, pos0 = 0;
    const size_t count = (size_t)n * ffn;
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, n, &pos0, 1, 1);
    float *fresh = hr_cuda_floats(count, 1), *u = hr_cuda_floats(count, 2), *gate = hr_cuda_alloc(count * sizeof *gate);
    double *want = hr_malloc(count * sizeof *want);
    for (size_t c = 0; c < count; c++) {
        fresh[c] *= 8;
        want[c] = activated(kind, (double)fresh[c]) * (up ? (double)u[c] : 1);
    }
    hr_cuda_acts acts = {0};
    if (act >= 0) acts = hr_cuda_alloc_acts((hr_act)act, n, ffn);
    hr_cuda_glu p = {.batch = batch.b,
                     .gate = gate,
                     .up = up ? u : NULL,
                     .out = gate,
                     .acts = acts,
                     .n = n + (act < 0 ? EXTRA : 0),
                     .ffn = ffn,
                     .kind = kind};
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        memcpy(gate, fresh, count * sizeof *gate);
        if (acts.data) hr_cuda_poison(acts.data);
        hr_cuda_run(hr_cuda_row("glu_cuda"), &p);
        /* exp or tanh within 2 ulp and four roundings: 4e-7 of the result; 1 + tanh cancels for negative gates, which
         * costs an ulp of 1 times |gate| / 2 <= 4. */
        hr_cuda_assert_near(gate, want, count, 5e-7, kind == HR_CUDA_GLU_GELU ? 1e-6 : 1e-30, "glu_cuda");
        if (acts.data) assert_acts(&acts, gate, n, ffn, "glu_cuda");
    }
    hr_free(want);
    hr_cuda_free(gate), hr_cuda_free(fresh), hr_cuda_free(u);
    hr_cuda_free_acts(&acts), hr_cuda_free_batch(&batch);
}

static void gated_activation(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 6, 64, 100, 1090};
    for (size_t i = 0; i < 5; i++) {
        for (uint32_t kind = HR_CUDA_GLU_SILU; kind <= HR_CUDA_GLU_GELU; kind++) {
            check_glu(kind, sizes[i], true, -1);
            check_glu(kind, sizes[i], false, HR_ACT_F32);
            check_glu(kind, sizes[i], true, HR_ACT_BF16);
        }
    }
}

/* Gates without bounds, as on the CPU. */
static void gates_at_the_edge(void **state) {
    (void)state;
    const uint32_t pos0 = 0;
    const float edge[4] = {-INFINITY, INFINITY, NAN, -200}, ones[4] = {1, 1, 1, 1};
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, 1, &pos0, 1, 1);
    float *gate = hr_cuda_copy_of(edge, sizeof edge), *up = hr_cuda_copy_of(ones, sizeof ones);
    hr_cuda_glu p = {.batch = batch.b, .gate = gate, .up = up, .out = gate, .n = 1, .ffn = 4, .kind = HR_CUDA_GLU_SILU};
    hr_cuda_run(hr_cuda_row("glu_cuda"), &p);
    assert_true(isinf(gate[1]) && isnan(gate[2]) && gate[3] <= 0 && gate[3] > -1e-30f);
    hr_cuda_free(gate), hr_cuda_free(up), hr_cuda_free_batch(&batch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding),         cmocka_unit_test(norm),
        cmocka_unit_test(activations),       cmocka_unit_test(activations_of_nothing),
        cmocka_unit_test(residual),          cmocka_unit_test(gated_activation),
        cmocka_unit_test(gates_at_the_edge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
