/* Shapes of real models, random weights and activations, and the check of a result. */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const hr_bench_model hr_bench_models[HR_BENCH_MODELS] = {
    {"smollm2-135m", 576, 9, 3, 64, 1536, 49152},
    {"qwen2.5-0.5b", 896, 14, 2, 64, 4864, 151936},
    {"llama-3.2-1b", 2048, 32, 8, 64, 8192, 128256},
    {"llama-3.1-8b", 4096, 32, 8, 128, 14336, 128256},
};

hr_bench_shape hr_bench_shape_of(const hr_bench_model *m, int matrix) {
    const size_t heads = (size_t)m->n_heads * m->head_dim, kv = (size_t)m->n_kv_heads * m->head_dim;
    const struct {
        const char *name;
        size_t rows, cols;
    } all[HR_BENCH_MATRICES] = {{"qkv", heads + 2 * kv, m->dim},
                                {"out", m->dim, heads},
                                {"gate", m->ffn, m->dim},
                                {"down", m->dim, m->ffn},
                                {"head", m->vocab, m->dim}};
    hr_bench_shape s = {.rows = all[matrix].rows, .cols = all[matrix].cols, .head = matrix == 4};
    snprintf(s.name, sizeof s.name, "%s.%s", m->name, all[matrix].name);
    return s;
}

const int64_t hr_bench_tokens[HR_BENCH_TOKENS] = {1, 2, 4, 8, 32, 128, 512};

void hr_bench_add_product(hr_bench_family f, const char *kernel, const char *shape, bool cold, const char *type,
                          const char *order) {
    static const char *const names[] = {"M"};
    char name[HR_BENCH_NAME], suffix[48];
    snprintf(name, sizeof name, "matmul/%s/%s", kernel, shape);
    snprintf(suffix, sizeof suffix, "%s/%s.%s", cold ? "cold" : "warm", type, order);
    f.name = name, f.arg_names = names, f.n_args = 1, f.suffix = suffix;
    hr_bench_add(&f);
}

bool hr_bench_can_run(const hr_kernel *k) {
    return k->isa <= hr_isa_best() && !(k->needs & ~hr_cpu_features());
}

const hr_kernel *hr_bench_partner(const hr_kernel *k, hr_family family) {
    const hr_kernel_query q = {.family = family, .isa = k->isa, .dtype = HR_F32, .dtype2 = HR_F32, .n = 1};
    return hr_kernel_choose(&q);
}

bool hr_bench_wants(const hr_kernel *k, int model) {
    if (k->isa == HR_ISA_GENERIC) return model == 0;
    return k->isa == hr_isa_best() || model % 2 == 0;
}

double hr_bench_most_flops(hr_isa isa) {
    return isa == HR_ISA_GENERIC ? 3e8 : 7e10;
}

/* ---- data ---- */

void hr_bench_fill(float *x, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)(hr_random(&seed) >> 11) / 4503599627370496.0 - 1);
}

float *hr_bench_floats(size_t n, uint64_t seed) {
    float *x = hr_pages_alloc(n * sizeof *x, true);
    if (x) hr_bench_fill(x, n, seed);
    return x;
}

enum { PATTERN = 64 }; /* rows that repeat: whole panels */

static void put_scale(uint8_t *p, uint64_t *seed) {
    const uint16_t d = hr_f32_to_f16((float)((double)(hr_random(seed) >> 40) / 16777216.0 * 0.02 - 0.01));
    memcpy(p, &d, sizeof d);
}

/* PATTERN rows as a file holds them: blocks and planes of random bits with scales of a sane size, floats in [-1, 1). */
static void fill_rows(hr_dtype t, size_t cols, uint8_t *data, uint16_t *scales) {
    uint64_t seed = 7 + (uint64_t)t;
    const size_t bytes = PATTERN * hr_row_bytes(t, cols), step = hr_dtypes[t].block_bytes;
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)(hr_random(&seed) >> 56);
        if (t == HR_I8G32 || t == HR_I8ROW || t == HR_Q8_0) data[i] = data[i] == 0x80 ? 0 : data[i]; /* |q| <= 127 */
    }
    for (size_t i = 0; i < PATTERN * hr_row_scales(t, cols); i++) put_scale((uint8_t *)(scales + i), &seed);
    for (size_t i = 0; i < bytes; i += step) {
        float f;
        hr_bench_fill(&f, 1, hr_random(&seed));
        const uint16_t half = t == HR_F16 ? hr_f32_to_f16(f) : hr_f32_to_bf16(f);
        if (t == HR_F32) memcpy(data + i, &f, sizeof f);
        if (t == HR_F16 || t == HR_BF16) memcpy(data + i, &half, sizeof half);
        if (t == HR_Q8_0 || t == HR_Q4_0 || t == HR_Q4_1) put_scale(data + i, &seed);
        if (t == HR_Q4_1) put_scale(data + i + 2, &seed);
        if (t == HR_Q6_K) put_scale(data + i + 208, &seed);
    }
}

static void repeat(uint8_t *to, size_t n, const uint8_t *pattern, size_t step) {
    for (size_t at = 0; at < n; at += step) memcpy(to + at, pattern, n - at < step ? n - at : step);
}

hr_status hr_bench_weights_init(hr_bench_weights *w, hr_dtype type, hr_order order, size_t rows, size_t cols,
                                size_t copies) {
    const bool panels = order == HR_ORDER_PANELS;
    const size_t units = panels ? hr_panel_count(rows) : rows, unit_rows = panels ? HR_PANEL : 1;
    const size_t unit = panels ? hr_panel_bytes(type, cols) : hr_row_bytes(type, cols);
    const size_t scales = 2 * (panels ? hr_panel_scales(type, cols) : hr_row_scales(type, cols));
    const size_t data_bytes = hr_align_up(units * unit, 4096), one = data_bytes + hr_align_up(units * scales, 4096);
    const size_t n = PATTERN / unit_rows;
    *w = (hr_bench_weights){.copies = copies, .bytes = copies * one};
    w->m = calloc(copies, sizeof *w->m);
    w->data = hr_pages_alloc(w->bytes, true);
    uint8_t *pattern = malloc(n * unit + 64), *row_data = malloc(PATTERN * hr_row_bytes(type, cols));
    uint16_t *pattern_scales = malloc(n * scales + 64),
             *row_scales = malloc(2 * PATTERN * hr_row_scales(type, cols) + 2);
    const bool ok = w->m && w->data && pattern && row_data && pattern_scales && row_scales;
    if (ok) {
        fill_rows(type, cols, row_data, row_scales);
        const hr_mat src = {.dtype = type, .rows = PATTERN, .cols = cols, .data = row_data, .scales = row_scales};
        if (panels) {
            for (size_t p = 0; p < n; p++)
                hr_panel_pack(&src, p * HR_PANEL, pattern + p * unit, pattern_scales + p * scales / 2);
        } else {
            memcpy(pattern, row_data, n * unit);
            memcpy(pattern_scales, row_scales, n * scales);
        }
        for (size_t c = 0; c < copies; c++) {
            uint8_t *at = (uint8_t *)w->data + c * one;
            repeat(at, units * unit, pattern, n * unit);
            if (scales) repeat(at + data_bytes, units * scales, (uint8_t *)pattern_scales, n * scales);
            w->m[c] = (hr_mat){.dtype = type, .rows = rows, .cols = cols, .data = at, .order = order};
            if (scales) w->m[c].scales = (uint16_t *)(at + data_bytes);
        }
    }
    free(pattern), free(row_data), free(pattern_scales), free(row_scales);
    if (ok) return HR_OK;
    const size_t mib = w->bytes >> 20;
    hr_bench_weights_fini(w);
    HR_FAIL(HR_ERR_MEMORY, "no memory for %zu MiB of weights", mib);
}

void hr_bench_weights_fini(hr_bench_weights *w) {
    free(w->m);
    if (w->data) hr_pages_free(w->data, w->bytes);
    *w = (hr_bench_weights){0};
}

/* ---- the check ---- */

hr_status hr_bench_check(const char *name, const float *got, const float *want, size_t n, double limit) {
    double error = 0, power = 0;
    size_t worst = 0;
    double most = -1;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)want[i];
        if (!isfinite(got[i]))
            HR_FAIL(HR_ERR_INTERNAL, "%s is wrong: value %zu of %zu is %g, expected %.9g", name, i, n, (double)got[i],
                    (double)want[i]);
        if (fabs(d) > most) most = fabs(d), worst = i;
        error += d * d, power += (double)want[i] * (double)want[i];
    }
    if (error <= limit * power || error == 0) return HR_OK;
    HR_FAIL(HR_ERR_INTERNAL, "%s is wrong: NMSE %.3g, limit %.3g; value %zu of %zu: expected %.9g, got %.9g", name,
            error / power, limit, worst, n, (double)want[worst], (double)got[worst]);
}

double hr_bench_limit(const hr_kernel *k) {
    return k->unit == HR_UNIT_INT8 ? 1e-4 : k->unit == HR_UNIT_BF16 ? 1e-5 : 1e-10;
}
