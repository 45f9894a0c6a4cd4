/* Claims about single kernels, on one thread and data from DRAM. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "kernels/base/clock.h"
#include "kernels/base/memory.h"
#include "kernels/base/panel.h"
#include "kernels/base/random.h"
#include "kernels/operands.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double ms_since(uint64_t start) {
    return (double)(hr_now_ns() - start) * 1e-6;
}

/* ---- a GEMM tile for one token ---- */

enum { COLS = 2048, ROWS = 16384, MANY = 512 }; /* 64 MB of bf16: from DRAM */

typedef struct product {
    const hr_kernel *kernel;
    hr_operands operands;
} product;

static double product_ms(const product *p) {
    const uint64_t start = hr_now_ns();
    hr_operands_run(p->kernel, &p->operands);
    return ms_since(start);
}

static hr_status tile_pairs(hr_claims_run *run, product *one, product *many, hr_claim_measured *out) {
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    uint64_t rng = 5;
    product_ms(one), product_ms(many);
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start)) {
        HR_TRY(hr_claim_stopped(run));
        const bool first = hr_random(&rng) & 1;
        const double a = product_ms(first ? one : many), b = product_ms(first ? many : one);
        v[n++] = first ? b / a : a / b;
    }
    *out = hr_claim_of_samples(v, n);
    return HR_OK;
}

hr_status hr_test_tile_decode(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    const hr_act act = hr_isa_best() >= HR_ISA_AVX512 && hr_cpu_features() & HR_CPU_BF16 ? HR_ACT_BF16 : HR_ACT_F32;
    const hr_kernel *rows[2] = {NULL, NULL};
    hr_mat w = {.dtype = HR_BF16, .rows = ROWS, .cols = COLS};
    for (int order = HR_ORDER_COUNT - 1; order >= 0; order--) { /* panels, where fast kernels read them */
        for (int i = 0; i < 2; i++) {
            const hr_kernel_query q = {.family = HR_FAM_MATMUL,
                                       .isa = hr_isa_best(),
                                       .dtype = HR_BF16,
                                       .act = act,
                                       .n = i ? MANY : 1,
                                       .order = (hr_order)order};
            rows[i] = hr_kernel_choose(&q);
        }
        w.order = (hr_order)order;
        if (rows[0] && rows[0]->isa > HR_ISA_GENERIC && rows[0] != rows[1]) break;
    }
    if (rows[0] == rows[1] || !rows[0] || !rows[1]) {
        snprintf(out->reason, sizeof out->reason, "one kernel serves one token and many on this machine");
        return HR_OK;
    }
    const size_t tile = rows[1]->tile > rows[1]->n_min ? rows[1]->tile : rows[1]->n_min;
    const size_t bytes = hr_panel_count(ROWS) * hr_panel_bytes(HR_BF16, COLS);
    uint16_t *data = hr_pages_alloc(bytes, true);
    if (!data) HR_FAIL(HR_ERR_MEMORY, "no memory for a matrix of %zu MB", bytes / 1000000);
    for (size_t i = 0; i < bytes / 2; i++) data[i] = (uint16_t)(0x3c00 + (i * 40503u >> 7) % 128);
    w.data = data;
    product one = {.kernel = rows[0]}, many = {.kernel = rows[1]};
    hr_status status = hr_operands_init(&one.operands, rows[0], &w, 1);
    if (status == HR_OK) status = hr_operands_init(&many.operands, rows[1], &w, tile ? tile : 1);
    if (status == HR_OK) status = tile_pairs(run, &one, &many, &out->measured);
    hr_operands_fini(&one.operands), hr_operands_fini(&many.operands);
    hr_pages_free(data, bytes);
    snprintf(out->note, sizeof out->note,
             "%s with a tile of %zu tokens, of which one counts, against %s; %d x %d bf16, one thread", rows[1]->name,
             tile, rows[0]->name, ROWS, COLS);
    return status;
}

/* ---- restrict ---- */

enum { FLOAT_PANELS = 512 }; /* 512 panels x 2048 x 16 floats: 64 MB */

static double gemv_ms(hr_claim_gemv *fn, const float *w, const float *x, float *y) {
    const uint64_t start = hr_now_ns();
    fn(w, x, y, FLOAT_PANELS, COLS);
    return ms_since(start);
}

static hr_status restrict_pairs(hr_claims_run *run, const float *w, const float *x, float *y, hr_claim_measured *out) {
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    const uint64_t start = hr_now_ns();
    for (int warm = 0; warm < 2; warm++)
        gemv_ms(hr_claim_gemv_plain, w, x, y), gemv_ms(hr_claim_gemv_restrict, w, x, y);
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(run, n, start)) {
        HR_TRY(hr_claim_stopped(run));
        const bool plain_first = n % 2;
        const double a = gemv_ms(plain_first ? hr_claim_gemv_plain : hr_claim_gemv_restrict, w, x, y);
        const double b = gemv_ms(plain_first ? hr_claim_gemv_restrict : hr_claim_gemv_plain, w, x, y);
        v[n++] = plain_first ? a / b : b / a;
    }
    *out = hr_claim_of_samples(v, n);
    return HR_OK;
}

hr_status hr_test_restrict(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
#if defined(__x86_64__)
    if (hr_isa_best() >= HR_ISA_AVX2) {
        const size_t n_w = (size_t)FLOAT_PANELS * COLS * 16, bytes = (n_w + COLS + FLOAT_PANELS * 16) * sizeof(float);
        float *w = hr_pages_alloc(bytes, true);
        if (!w) HR_FAIL(HR_ERR_MEMORY, "no memory for a matrix of %zu MB", bytes / 1000000);
        float *x = w + n_w, *y = x + COLS;
        for (size_t i = 0; i < n_w; i++) w[i] = (float)(i % 31) * 0.01f;
        for (size_t i = 0; i < COLS; i++) x[i] = 0.01f * (float)(i % 7);
        const hr_status status = restrict_pairs(run, w, x, y, &out->measured);
        hr_pages_free(w, bytes);
        snprintf(out->note, sizeof out->note,
                 "the same C loop compiled with and without restrict: matrix times vector, 64 MB of fp32 from DRAM, "
                 "one thread");
        return status;
    }
#endif
    (void)run;
    snprintf(out->reason, sizeof out->reason, "the two loops are compiled for AVX2, which this machine lacks");
    return HR_OK;
}

/* ---- small parameters in a cache of their own ---- */

enum { NORM_DIM = 2048, NORM_CALLS = 256, NORM_VECTORS = 8192 }; /* 64 MB of norm weights: each call finds cold ones */

/* Milliseconds of one norm whose weights stand `stride` vectors apart from call to call; 0: the same. */
static double norm_ms(const hr_kernel *k, const float *x, const float *w, float *y, size_t stride, size_t *at) {
    const uint64_t start = hr_now_ns();
    for (int i = 0; i < NORM_CALLS; i++) {
        *at = (*at + stride) % NORM_VECTORS;
        k->fn.norm(x, NORM_DIM, w + (stride ? *at : 0) * NORM_DIM, y, NORM_DIM, NORM_DIM, 1e-5f, 0, 1);
    }
    return ms_since(start) / NORM_CALLS;
}

hr_status hr_claim_norms_init(hr_claim_norms *norms) {
    const size_t bytes = ((size_t)NORM_VECTORS + 2) * NORM_DIM * sizeof(float);
    *norms = (hr_claim_norms){.w = hr_pages_alloc(bytes, true), .bytes = bytes};
    if (!norms->w) HR_FAIL(HR_ERR_MEMORY, "no memory for %zu MB of norm weights", bytes / 1000000);
    for (size_t i = 0; i < bytes / sizeof(float); i++) norms->w[i] = 1 + (float)(i % 13) * 0.01f;
    return HR_OK;
}

void hr_claim_norms_fini(hr_claim_norms *norms) {
    if (norms->w) hr_pages_free(norms->w, norms->bytes);
    *norms = (hr_claim_norms){0};
}

double hr_claim_norm_saved_ms(hr_claim_norms *n) {
    const hr_kernel_query q = {.family = HR_FAM_NORM, .isa = hr_isa_best(), .n = 1};
    const hr_kernel *k = hr_kernel_choose(&q);
    const float *x = n->w + (size_t)NORM_VECTORS * NORM_DIM;
    float *y = n->w + ((size_t)NORM_VECTORS + 1) * NORM_DIM;
    const double cold = norm_ms(k, x, n->w, y, 5, &n->at);
    return cold - norm_ms(k, x, n->w, y, 0, &n->at);
}

static hr_status norm_rounds(hr_arm *arm, hr_claim_norms *weights, hr_claim_result *out) {
    const double norms = 2.0 * hr_model_get_info(arm->model)->n_layers + 1;
    double v[HR_CLAIM_SAMPLES], saved = 0;
    size_t n = 0;
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(arm->run, n, start)) {
        json_t *result = NULL;
        HR_TRY(hr_arm_run(arm, &result));
        const double step = json_number_value(json_object_get(result, "step_ms"));
        json_decref(result);
        saved = hr_claim_norm_saved_ms(weights) * norms;
        v[n++] = step / (step - saved);
    }
    out->measured = hr_claim_of_samples(v, n);
    snprintf(out->note, sizeof out->note,
             "a decode step against the same less what its norms would save if their weights never left L1 (%.4f ms a "
             "step in the last round)",
             saved);
    return HR_OK;
}

hr_status hr_test_small_params(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    hr_claim_norms norms;
    HR_TRY(hr_claim_norms_init(&norms));
    const hr_arm_spec spec = {.model = "synth:llama-3.2-1b:layers=2:vocab=8192", .kind = HR_CELL_TG, .n_gen = 16};
    hr_arm arm;
    hr_status status = hr_arm_open(run, &spec, &arm);
    if (status == HR_OK) status = norm_rounds(&arm, &norms, out);
    if (arm.run) hr_arm_close(&arm);
    hr_claim_norms_fini(&norms);
    return status;
}
