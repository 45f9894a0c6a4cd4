/* test_cuda_vec_sample.c - tokens from logits, and synthetic weights, on the machine that runs kernels for GPUs: the same token
 * and the same use of the generator as engine/sample.c, and the same bits as hr_synth_row and hr_quantize_row. */
#include "engine/model/synth.h"
#include "engine/sample.h"
#include "tests/cuda_fixture.h"

/* ---- the largest ---- */

enum { ROWS = 3 };

/* Rows of logits with what can go wrong. */
static void spoil(float *x, uint32_t vocab, int how) {
    float *second = x + vocab, *third = x + 2 * (size_t)vocab;
    switch (how) {
    case 1: /* equals, NaN before them, -0 and 0 */
        x[vocab / 2] = x[vocab - 1] = 7, x[0] = vocab > 2 ? NAN : 7;
        for (uint32_t i = 0; i < vocab; i++) second[i] = i % 2 ? 0.0f : -0.0f;
        for (uint32_t i = 0; i < vocab; i++) third[i] = -1;
        break;
    case 2: /* infinities, nothing but NaN */
        x[vocab - 1] = INFINITY, x[vocab / 2] = -INFINITY;
        for (uint32_t i = 0; i < vocab; i++) second[i] = NAN, third[i] = -INFINITY;
        third[vocab / 2] = -3e38f;
        break;
    default:
        break;
    }
}

static void check_argmax(uint32_t vocab, int how) {
    const uint32_t pos0 = 0;
    hr_cuda_test_batch batch = hr_cuda_make_batch(1, ROWS, &pos0, 1, 1);
    float *logits = hr_cuda_floats((size_t)ROWS * vocab, vocab);
    for (size_t i = 0; i < (size_t)ROWS * vocab; i++) logits[i] *= 20;
    spoil(logits, vocab, how);
    int32_t *out = hr_cuda_alloc((ROWS + 1) * sizeof *out);
    hr_cuda_sample p = {.batch = how == 2 ? NULL : batch.b, /* both ways to say how many rows there are */
                        .logits = logits,
                        .out = out,
                        .workspace = hr_cuda_workspace(),
                        .n = how == 2 ? ROWS : ROWS + 1,
                        .vocab = vocab,
                        .top_p = 1};
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        hr_cuda_run(hr_cuda_row("sample_cuda"), &p);
        for (uint32_t i = 0; i < ROWS; i++) {
            const int32_t want = hr_argmax(logits + (size_t)i * vocab, vocab);
            if (out[i] != want)
                fail_msg("argmax (%s): vocab %u, case %d, row %u: expected %d, got %d", hr_cuda_mode_name(), vocab, how,
                         i, want, out[i]);
        }
        assert_int_equal(out[ROWS], -1); /* poison: no row there */
    }
    hr_cuda_free(logits), hr_cuda_free(out), hr_cuda_free_batch(&batch);
}

static void argmax(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 5, 33, 1000, 4099, 9001};
    for (size_t i = 0; i < 7; i++)
        for (int how = 0; how < 3; how++) check_argmax(sizes[i], how);
}

/* ---- drawing ---- */

typedef struct draw_case {
    uint32_t vocab, top_k;
    float temperature, top_p, min_p;
    size_t workspace; /* of the device; 0: as it is */
    int how;          /* spoil */
    bool one_mode;
} draw_case;

static void check_draw(const draw_case *c) {
    const uint32_t vocab = c->vocab;
    float *logits = hr_cuda_floats((size_t)ROWS * vocab, 3 + vocab);
    for (size_t i = 0; i < (size_t)ROWS * vocab; i++) logits[i] = roundf(logits[i] * 40) / 8; /* with many equals */
    spoil(logits, vocab, c->how);
    int32_t *out = hr_cuda_alloc(ROWS * sizeof *out), want[ROWS];
    uint64_t *rng = hr_cuda_alloc(ROWS * sizeof *rng), want_rng[ROWS], fresh[ROWS];
    hr_candidate *scratch = hr_malloc(vocab * sizeof *scratch);
    const hr_sampling how = {c->temperature, (int)c->top_k, c->top_p, c->min_p};
    const bool can = c->top_k && c->top_k <= HR_CUDA_TOP_K && c->top_k < vocab;
    for (uint32_t i = 0; i < ROWS; i++) {
        fresh[i] = want_rng[i] = 77 * i + c->top_k;
        want[i] = can ? hr_sample(logits + (size_t)i * vocab, vocab, &how, &want_rng[i], scratch) : -1;
    }
    hr_cuda_sample p = {.logits = logits,
                        .out = out,
                        .rng = rng,
                        .workspace = hr_cuda_workspace(),
                        .n = ROWS,
                        .vocab = vocab,
                        .top_k = c->top_k,
                        .temperature = c->temperature,
                        .top_p = c->top_p,
                        .min_p = c->min_p};
    hr_cuda_caps caps = hr_cuda_test_caps;
    if (c->workspace) caps.workspace = c->workspace;
    const hr_kernel *row = hr_cuda_row("sample_cuda");
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        hr_cuda_poison(out);
        memcpy(rng, fresh, sizeof fresh);
        hr_cuda_shape shape;
        row->fn.cuda.shape(&p, &caps, &shape);
        hr_cuda_launch(row->fn.cuda.symbol, &shape, &p);
        const uint8_t *workspace = hr_cuda_workspace();
        for (size_t i = 0; i < hr_cuda_test_caps.workspace; i++)
            if (workspace[i]) fail_msg("byte %zu of the workspace is not left zero", i);
        for (uint32_t i = 0; i < ROWS; i++) {
            if (out[i] != want[i] || rng[i] != want_rng[i])
                fail_msg("draw (%s): vocab %u, top-k %u, row %u: expected %d and generator %llx, got %d and %llx",
                         hr_cuda_mode_name(), vocab, c->top_k, i, want[i], (unsigned long long)want_rng[i], out[i],
                         (unsigned long long)rng[i]);
        }
        if (c->one_mode) break;
    }
    hr_free(scratch);
    hr_cuda_free(logits), hr_cuda_free(out), hr_cuda_free(rng);
}

static void draws(void **state) {
    (void)state;
    static const draw_case cases[] = {
        {.vocab = 2, .top_k = 1, .temperature = 1, .top_p = 1},
        {.vocab = 50, .top_k = 2, .temperature = 0.7f, .top_p = 0.9f},
        {.vocab = 50, .top_k = 49, .temperature = 2, .top_p = 1, .min_p = 0.05f},
        {.vocab = 1000, .top_k = 40, .temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f},
        {.vocab = 1000, .top_k = 256, .temperature = 5, .top_p = 1},
        {.vocab = 5003, .top_k = 40, .temperature = 1, .top_p = 0.5f},
        {.vocab = 9001, .top_k = 256, .temperature = 10, .top_p = 0.999f},
        {.vocab = 9001, .top_k = 3, .temperature = 1, .top_p = 0},
        /* equals whose sum is exactly what top-p asks for */
        {.vocab = 50, .top_k = 4, .temperature = 1, .top_p = 0.5f, .how = 1},
        /* several rounds in a part: a workspace for two parts, and for none */
        {.vocab = 9001, .top_k = 200, .temperature = 1, .top_p = 1, .workspace = 3 * (16 + 2 * 256 * 8)},
        {.vocab = 9001, .top_k = 100, .temperature = 1, .top_p = 1, .workspace = 1},
        /* NaN, infinities */
        {.vocab = 1000, .top_k = 40, .temperature = 1, .top_p = 1, .how = 1},
        {.vocab = 1000, .top_k = 40, .temperature = 1, .top_p = 1, .how = 2},
        /* as many parts as there are, more lists than a block holds */
        {.vocab = 140001, .top_k = 256, .temperature = 20, .top_p = 1, .one_mode = true},
        /* not done here */
        {.vocab = 1000, .top_k = 257, .temperature = 1, .top_p = 1},
        {.vocab = 1000, .top_k = 0, .temperature = 1, .top_p = 1},
        {.vocab = 100, .top_k = 100, .temperature = 1, .top_p = 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_draw(&cases[i]);
}

/* ---- synthetic weights ---- */

static void check_fill(hr_dtype type, size_t rows, size_t cols, float center, float std) {
    const size_t row_bytes = hr_row_bytes(type, cols), row_scales = hr_row_scales(type, cols);
    uint8_t *data = hr_cuda_alloc(rows * row_bytes), *want = hr_malloc(rows * row_bytes);
    uint16_t *scales = row_scales ? hr_cuda_alloc(rows * row_scales * 2) : NULL;
    uint16_t *want_scales = hr_malloc(rows * row_scales * 2 + 1);
    float *x = hr_malloc(cols * sizeof *x);
    const hr_draw draw = {0x123456789abcdefu + cols, center, std};
    for (size_t r = 0; r < rows; r++) {
        hr_synth_row(&draw, r, cols, x);
        if (hr_quantize_row(type, x, cols, want + r * row_bytes, want_scales + r * row_scales) != HR_OK)
            fail_msg("%s", hr_error());
    }
    hr_cuda_fill p = {
        .w = {type, rows, cols, data, scales, HR_ORDER_ROWS}, .key = draw.key, .center = center, .std = std};
    char what[80];
    snprintf(what, sizeof what, "fill_cuda of %s, %zu columns", hr_dtypes[type].name, cols);
    for (hr_cuda_modes m = {0}; hr_cuda_next_mode(&m);) {
        for (int rounds = 0; rounds < 2; rounds++) {
            hr_cuda_poison(data);
            if (scales) hr_cuda_poison(scales);
            if (rounds)
                hr_cuda_launch("fill_cuda", &(hr_cuda_shape){{2, 1, 1}, {64, 1, 1}, 0}, &p);
            else
                hr_cuda_run(hr_cuda_row("fill_cuda"), &p);
            hr_cuda_assert_bytes(data, want, rows * row_bytes, what);
            if (scales) hr_cuda_assert_bytes(scales, want_scales, rows * row_scales * 2, what);
        }
    }
    hr_free(x), hr_free(want), hr_free(want_scales);
    hr_cuda_free(data), hr_cuda_free(scales);
}

static void fill(void **state) {
    (void)state;
    static const size_t any[] = {1, 2, 3, 4, 5, 64, 1023, 1100}, groups[] = {32, 96, 128, 160, 1056};
    for (int t = 0; t < HR_DTYPE_COUNT; t++) {
        if (!(hr_cuda_row("fill_cuda")->dtypes >> t & 1)) continue;
        const bool block = hr_dtypes[t].block_elems > 1;
        for (size_t i = 0; i < (block ? 5 : 8); i++) {
            const size_t cols = block ? groups[i] : any[i];
            check_fill((hr_dtype)t, 5, cols, 0, (float)(1 / sqrt((double)cols)));
            check_fill((hr_dtype)t, 3, cols, 1, 0.1f / 1.7320508f);
        }
        check_fill((hr_dtype)t, 2, 64, 0, 0);         /* zeros */
        check_fill((hr_dtype)t, 2, 64, -1, 0);        /* all the same */
        check_fill((hr_dtype)t, 2, 64, 0, 2e-8f);     /* scales among the subnormal numbers, or none */
        check_fill((hr_dtype)t, 2, 64, 3e6f, 1e6f);   /* scales that f16 does not hold */
        check_fill((hr_dtype)t, 40, 128, 0, 0.0123f); /* enough groups for each place of the extreme */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(argmax), cmocka_unit_test(draws), cmocka_unit_test(fill)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
