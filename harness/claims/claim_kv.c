/* Claims about where KV lies and in which type: layouts in pairs with `head`, memory and speed of small types. */
#include "harness/claims/claim_bench.h"
#include "harness/claims/claim_tests.h"
#include "kernels/base/clock.h"
#include "kernels/base/random.h"

#include <stdio.h>

/* Decode of the 1B shape's attention with hardly anything around it: two layers at 8192 positions read 34 MB of KV a step. */
#define ATTENTION  "synth:llama-3.2-1b:layers=2:vocab=1024:ffn=256"
#define TWO_LAYERS "synth:llama-3.2-1b:layers=2:vocab=8192"
enum { DEPTH_QUICK = 4096, DEPTH_FULL = 16384, DEPTH_SPEED = 2048 };

static const hr_metric_ops_of attention = {HR_PHASE_DECODE, 1u << HR_OP_ATTENTION};

static hr_arm_spec layout_spec(const hr_claims_run *run, hr_kv_layout layout) {
    return (hr_arm_spec){.model = ATTENTION,
                         .kind = HR_CELL_TG,
                         .n_gen = 16,
                         .depth = run->options->quick ? DEPTH_QUICK : DEPTH_FULL,
                         .kv_layout = layout};
}

static double step_ms(const json_t *result) {
    return json_number_value(json_object_get(result, "step_ms"));
}

/* Time with `head` over time with the claim's layout. */
hr_status hr_test_kv_layout(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    const hr_arm_spec head = layout_spec(run, HR_KV_HEAD), other = layout_spec(run, (hr_kv_layout)claim->arg);
    snprintf(
        out->note, sizeof out->note,
        "attention of a decode step at %d positions, 1B shape, bf16 KV, all cores; the same bytes are read, so the "
        "bandwidth used changes by the same factor; bit-identical results",
        (int)head.depth);
    return hr_claim_compare(run, &head, &other, hr_metric_ops, &attention, &out->measured);
}

/* ---- the three together ---- */

static hr_status together(hr_arm arms[2], hr_claim_norms *norms, hr_claim_measured *out) {
    const double n_norms = 2.0 * hr_model_get_info(arms[0].model)->n_layers + 1;
    double v[HR_CLAIM_SAMPLES];
    size_t n = 0;
    uint64_t rng = 13;
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(arms[0].run, n, start)) {
        double ms[2];
        const unsigned first = hr_random(&rng) & 1;
        for (unsigned i = 0; i < 2; i++) {
            json_t *result = NULL;
            HR_TRY(hr_arm_run(&arms[first ^ i], &result));
            ms[first ^ i] = step_ms(result);
            json_decref(result);
        }
        v[n++] = ms[0] / (ms[1] - n_norms * hr_claim_norm_saved_ms(norms));
    }
    *out = hr_claim_of_samples(v, n);
    return HR_OK;
}

hr_status hr_test_zorder_all(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)claim;
    const hr_arm_spec head = layout_spec(run, HR_KV_HEAD), zorder = layout_spec(run, HR_KV_ZORDER);
    hr_arm arms[2] = {{0}};
    hr_claim_norms norms;
    HR_TRY(hr_claim_norms_init(&norms));
    hr_status status = hr_arm_open(run, &head, &arms[0]);
    if (status == HR_OK) status = hr_arm_open(run, &zorder, &arms[1]);
    if (status == HR_OK) status = together(arms, &norms, &out->measured);
    hr_arm_close(&arms[1]), hr_arm_close(&arms[0]);
    hr_claim_norms_fini(&norms);
    snprintf(
        out->note, sizeof out->note,
        "a decode step at %d positions with `head` over one with `zorder` less what norm weights that never leave L1 "
        "save; all kernels here have restrict pointers, in both arms: the row restrict says what they give",
        (int)head.depth);
    return status;
}

/* ---- small types ---- */

/* The type of that name, or the older one of so many bits. */
static hr_dtype small_type(int bits) {
    hr_dtype type;
    if (hr_kv_type_parse(bits == 8 ? "i8row" : "i4kc", &type) == HR_OK) return type;
    return bits == 8 ? HR_Q8_0 : HR_Q4_0;
}

/* KV bytes saved against bf16, %: what this engine maps for one long sequence of the 8B shape. */
hr_status hr_test_kv_saving(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    (void)run;
    hr_model_info info;
    uint64_t arena, half, small;
    const hr_dtype type = small_type(claim->arg);
    HR_TRY(hr_model_peek("synth:llama-3.1-8b", HR_QUANT_BF16, HR_ORDER_ROWS, &info));
    hr_engine_config c = hr_engine_config_default();
    c.ctx = 32768;
    HR_TRY(hr_engine_plan(&info, &c, &arena, &half));
    c.k_type = c.v_type = type;
    HR_TRY(hr_engine_plan(&info, &c, &arena, &small));
    out->measured = hr_claim_exact(100 * (1 - (double)small / (double)half));
    snprintf(out->note, sizeof out->note, "%s: %.1f KB a token where bf16 takes %.1f, scales included, 8B shape",
             hr_kv_type_name(type), (double)small / 32768e3, (double)half / 32768e3);
    return HR_OK;
}

/* Small over half, of the whole step and of its attention. */
static hr_status speed_pairs(hr_arm arms[2], hr_claim_measured *step, double *alone) {
    double whole[HR_CLAIM_SAMPLES], part[HR_CLAIM_SAMPLES];
    size_t n = 0;
    const uint64_t start = hr_now_ns();
    while (n < HR_CLAIM_SAMPLES && !hr_claim_enough(arms[0].run, n, start)) {
        double ms[2], attention_ms[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned a = (unsigned)(n + i) % 2;
            json_t *result = NULL;
            HR_TRY(hr_arm_run(&arms[a], &result));
            ms[a] = step_ms(result);
            attention_ms[a] = hr_metric_ops(&arms[a], result, &attention);
            json_decref(result);
        }
        part[n] = attention_ms[1] / attention_ms[0];
        whole[n++] = ms[1] / ms[0];
    }
    *step = hr_claim_of_samples(whole, n);
    *alone = hr_claim_of_samples(part, n).value;
    return HR_OK;
}

/* Time with the small type over time with bf16. */
hr_status hr_test_kv_speed(hr_claims_run *run, const hr_claim *claim, hr_claim_result *out) {
    hr_arm_spec half = {.model = TWO_LAYERS, .kind = HR_CELL_TG, .n_gen = 16, .depth = DEPTH_SPEED}, small = half;
    small.kv_type = small_type(claim->arg);
    double alone = 0;
    hr_arm arms[2] = {{0}};
    hr_status status = hr_arm_open(run, &half, &arms[0]);
    if (status == HR_OK) status = hr_arm_open(run, &small, &arms[1]);
    if (status == HR_OK) status = speed_pairs(arms, &out->measured, &alone);
    hr_arm_close(&arms[1]), hr_arm_close(&arms[0]);
    snprintf(out->note, sizeof out->note, "%s, a decode step at %d positions, 1B shape; attention alone takes %.2f x",
             hr_kv_type_name(small.kv_type), DEPTH_SPEED, alone);
    return status;
}

hr_dtype hr_claim_small_kv(int bits) {
    return small_type(bits);
}
